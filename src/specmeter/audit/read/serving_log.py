"""What serving engines print: vLLM and its benchmark, and SGLang.

*vLLM*: lines of `SpecDecoding metrics`, and the block of `vllm bench serve`. Every ten seconds or so the server prints
(vllm/v1/spec_decode/metrics.py, v0.11 to v0.32)

    SpecDecoding metrics: Mean acceptance length: 2.83, Accepted throughput: 1.10 tokens/s, Drafted throughput: ...,
    Accepted: 11 tokens, Drafted: 12 tokens, Per-position acceptance rate: 1.000, 0.833, Avg Draft acceptance rate: ...

with what happened since the line before: the mean acceptance length counts the bonus token, there are as many positions
as draft tokens at most, and a line beside it has the rate of all requests together and how many were running. One claim
per line, and one for the log with their sums. Until 2025 it printed `Speculative metrics`, sums since its start. The
benchmark's block (`Serving Benchmark Result`) has the numbers of its JSON, rounded; SGLang's prints the same block.

*SGLang*: lines of `Decode batch`. Every forty decode steps or so its scheduler prints, for what happened since the line
before (`Decode batch.` until 2025, `Decode batch,` since; parts in between come and go with version, model and
disaggregation),

    Decode batch, #running-req: 4, #token: 9120, token usage: 0.08, accept len: 2.36, accept rate: 0.19,
    cuda graph: True, gen throughput (token/s): 240.29, #queue-req: 0

`accept len` is emitted tokens over verifications, the target's own included, so it is tau; the throughput is that of
all running requests together. `accept rate` divides by drafted tokens with or without the root of the tree, and counts
the target's own token or not, by version: it is not read as an acceptance. The server's arguments, printed at its
start, have the algorithm and `speculative_num_steps`, the longest chain that can be accepted, hence gamma.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from specmeter.audit.claim import Claim, UnreadableError, claim_of, problem_of
from specmeter.audit.equations import ROUNDED
from specmeter.audit.read import serving
from specmeter.audit.read.cells import Num, numbers
from specmeter.audit.read.document import Importer
from specmeter.audit.read.serving import sglang_speculation
from specmeter.engines.log_lines import log_lines
from specmeter.messages import Message

# --- vLLM -------------------------------------------------------------------------------------------------------------

_MAX_LINES = 10_000
"""Lines of metrics that are claims of their own; the sum counts all."""
_FLOAT = r"(\d{1,9}(?:\.\d{1,9})?)"
_METRICS = re.compile(r"\b(SpecDecoding|Speculative) metrics:")
_FIELDS = re.compile(
    r"(Mean acceptance length|Draft acceptance rate|(?:Accepted|Drafted)(?: throughput)?"
    rf"|Number of (?:accepted|draft|speculative) tokens): {_FLOAT}"
)
_CONTINUES = re.compile(
    r"[>\s]*(?:(?:Mean|Accepted|Drafted|Per-position|Avg|Draft|System|Number)(?: [a-z]{1,20}){0,3}:|\d\.\d)"
)
"""How the rest of a wrapped line of metrics begins."""
_MAX_WRAPPED = 4_000
_POSITIONS = re.compile(r"Per-position acceptance rate: ((?:\d\.\d{1,6}(?:, )?){1,200})")
_RATE = re.compile(rf"Avg generation throughput: {_FLOAT} tokens/s(?:, Running: (\d{{1,6}}) reqs)?")
_CONFIG = re.compile(r"SpeculativeConfig\(([^()]{1,600})\)|speculative[_-]config[= '\"]{1,3}\{([^{}]{1,600})\}")
_SETUP = {
    "gamma": re.compile(r"num_spec(?:ulative)?_tokens[\\'\"]{0,2}\s*[:=]\s*(\d{1,4})\b"),
    "method": re.compile(r"method[\\'\"]{0,2}\s*[:=]\s*[\\'\"]{1,2}([\w-]{1,40})[\\'\"]"),
    "draft": re.compile(r"\bmodel['\"]?\s*[:=]\s*['\"]([^'\"]{1,160})['\"]"),
}
_TARGET = re.compile(r"\bmodel='([^']{1,160})', (?:speculative_config|tokenizer)=")
_BLOCK = re.compile(r"={3,80} (?:\w{1,40} )?Serving Benchmark Result ={3,80}")
_BLOCK_LINE = re.compile(r"\s*([A-Z][A-Za-z0-9 ()/%#.-]{2,60}?):\s+([0-9][0-9.,]*)\s*$")
_NAMES = {
    "Successful requests": "completed", "Failed requests": "failed", "Benchmark duration (s)": "duration",
    "Maximum request concurrency": "max_concurrency", "Max request concurrency": "max_concurrency",
    "Concurrency": "concurrency", "Total input tokens": "total_input_tokens",
    "Total generated tokens": "total_output_tokens", "Output token throughput (tok/s)": "output_throughput",
    "Mean TPOT (ms)": "mean_tpot_ms", "Mean E2EL (ms)": "mean_e2el_ms", "Mean E2E Latency (ms)": "mean_e2el_ms",
    "Acceptance rate (%)": "spec_decode_acceptance_rate", "Acceptance length": "spec_decode_acceptance_length",
    "Accept length": "accept_length", "Drafts": "spec_decode_num_drafts",
    "Draft tokens": "spec_decode_draft_tokens", "Accepted tokens": "spec_decode_accepted_tokens",
}  # fmt: skip
"""Lines of the block -> keys of the benchmark's JSON."""


def sniff_vllm_log(head: str) -> bool:
    """A line of metrics, or the head of the block."""
    return _METRICS.search(head) is not None or _is_head_of_block(head)


def _is_head_of_block(text: str) -> bool:
    return "Serving Benchmark Result" in text and _BLOCK.search(text) is not None


def read_vllm_log(path: Path) -> Iterator[Claim]:
    """One claim per line of metrics and per block; one with a `problem` where there is neither.

    Raises `UsageError` when the file cannot be read.
    """
    log = _VllmLog(str(path))
    held, begun = "", 0
    for number, line in enumerate(chain(log_lines(path), [""]), start=1):
        if held and len(held) < _MAX_WRAPPED and _CONTINUES.match(line):
            held += " " + line.strip("> \t")
            continue
        if held:
            yield from log.feed(begun, held)
        held, begun = (line.rstrip(), number) if _METRICS.search(line) else ("", 0)
        if not held:
            yield from log.feed(number, line)
    yield from log.rest()


VLLM_LOG = Importer(sniff_vllm_log, read_vllm_log)


@dataclass
class _VllmLog:
    """State of a log as its lines pass by."""

    source: str
    setup: dict[str, str] = field(default_factory=dict[str, str])
    _rate: tuple[float, int | None] | None = None
    _block: tuple[str, dict[str, Num]] | None = None
    """Where a benchmark's block begins, and what it printed so far, by the keys of its JSON."""
    _lines: int = 0
    _accepted: int = 0
    _drafted: int = 0
    _drafts: float = 0.0
    _positions: int = 0
    _claims: int = 0

    def feed(self, number: int, line: str) -> Iterator[Claim]:
        """Take the next line; the claims that it ends."""
        if _is_head_of_block(line):
            yield from self._end_of_block()
            self._block = f"line {number}", {}
        elif self._block is not None and (found := _BLOCK_LINE.match(line.strip("> \t"))) is not None:
            key, printed = _NAMES.get(found.group(1).strip()), numbers(found.group(2))
            if key and printed:
                self._block[1][key] = printed[0]
        elif self._block is not None and re.fullmatch(r"[>\s]*={10,}\s*", line):
            yield from self._end_of_block()
        elif "throughput" in line and (found := _RATE.search(line)) is not None:
            self._rate = (float(found.group(1)), int(found.group(2)) if found.group(2) else None)
        if "metrics:" in line and (found := _METRICS.search(line)) is not None:
            said = line[found.end() : found.end() + _MAX_WRAPPED]
            yield from self._metrics(number, said, since_start=found.group(1) == "Speculative")
        elif "peculative" in line and (found := _CONFIG.search(line)) is not None:
            self._configure(line, found.group(1) or found.group(2))

    def rest(self) -> Iterator[Claim]:
        """What is left at the end, and the sums."""
        yield from self._end_of_block()
        if self._lines > 1:
            steps = round(self._drafts)
            yield self._claim(
                "log",
                label=f"all {self._lines} lines together",
                drafted=self._drafted,
                accepted=self._accepted,
                acceptance=self._accepted / self._drafted if self._drafted else None,
                tau=1 + self._accepted / self._drafts if steps else None,
                rounding={"tau": 0.01},
                gamma=self._positions,
                pooled=("acceptance", "tau"),
            )
        if not self._claims and not self._lines:
            yield Claim(source=self.source, row="log", problem=Message("unread.vllm_log"))

    def _configure(self, line: str, text: str) -> None:
        found = {name: pattern.search(text) for name, pattern in _SETUP.items()} | {"target": _TARGET.search(line)}
        self.setup |= {name: it.group(1) for name, it in found.items() if it is not None}

    def _claim(self, row: str, **fields: Any) -> Claim:
        gamma = int(self.setup.get("gamma", 0)) or fields["gamma"] or None
        method = self.setup.get("method", "").lower() or None
        setup = {"source": self.source, "engine": "vLLM", "acceptance_of": "drafted", **self.setup}
        return claim_of(**setup | fields | {"row": row, "gamma": gamma, "method": method})

    def _metrics(self, number: int, text: str, *, since_start: bool) -> Iterator[Claim]:
        said = {name: float(value) for name, value in _FIELDS.findall(text)}
        accepted = said.get("Number of accepted tokens" if since_start else "Accepted")
        drafted = said.get("Number of draft tokens" if since_start else "Drafted")
        if accepted is None or drafted is None:
            return
        length, share = said.get("Mean acceptance length"), said.get("Draft acceptance rate")
        positions = _POSITIONS.search(text)
        shares = tuple(min(1.0, float(it)) for it in positions.group(1).strip(", ").split(",")) if positions else ()
        rate, self._rate = self._rate, None
        if not since_start:
            self._lines += 1
            self._accepted, self._drafted = self._accepted + int(accepted), self._drafted + int(drafted)
            by_length = accepted / (length - 1) if length and length > 1 else 0.0
            self._drafts += by_length or (drafted / len(shares) if shares else 0.0)
            self._positions = max(self._positions, len(shares))
        self._claims += 1
        if self._claims > _MAX_LINES:
            return
        fields: dict[str, Any] = {
            "drafted": int(drafted),
            "accepted": int(accepted),
            "tau": length,
            "acceptance": share / (1 if since_start else 100) if share is not None else None,
            "positions": shares,
            "gamma": int(said.get("Number of speculative tokens", 0)) or len(shares),
            "rounding": {"tau": 0.005, "acceptance": 0.0005, "decode_rate": 0.05, "positions": 0.0005},
            "pooled": ("acceptance", "tau"),
        }
        if (per_s := said.get("Drafted throughput", 0.0)) > 0 and "Accepted throughput" in said:
            by_rates, half = said["Accepted throughput"] / per_s, 0.005 / per_s
            if drafted and abs(accepted / drafted - by_rates) > 2 * half + ROUNDED:  # the counts are not its own
                fields["acceptance"] = by_rates
        if rate is not None and rate[0] > 0:
            fields |= {"decode_rate": rate[0], "concurrency": max(1, rate[1]) if rate[1] is not None else None}
        yield self._claim(f"line {number}", **fields)

    # --- the block of the benchmark ----------------------------------------------------------------------------------

    def _end_of_block(self) -> Iterator[Claim]:
        if self._block is None:
            return
        row, printed = self._block
        self._block = None
        self._claims += 1
        item: dict[str, object] = {
            key: int(it.value) if it.value == int(it.value) else it.value for key, it in printed.items()
        }
        try:
            if "output_throughput" not in item:
                raise UnreadableError("unread.no_throughput")
            fields = serving.vllm_serving_fields(item)
        except ValueError as error:
            yield Claim(source=self.source, row=row, problem=problem_of(error))
            return
        if "accept_length" in printed and printed["accept_length"].value >= 1:  # SGLang's
            fields |= {"tau": printed["accept_length"].value, "notes": (Message("read.since_start"),)}
        fields["rounding"] = {
            field: (printed[key].hi - printed[key].value) * factor
            for field, key, factor in _ROUNDED_BY
            if key in printed
        }
        yield claim_of(source=self.source, row=row, **fields)


_ROUNDED_BY = (
    ("decode_rate", "output_throughput", 1.0),
    ("wall_ms", "duration", 1e3),
    ("tau", "spec_decode_acceptance_length", 1.0),
    ("acceptance", "spec_decode_acceptance_rate", 0.01),
    ("token_interval_ms", "mean_tpot_ms", 1.0),
)
"""Fields, what they are printed as, and in which units."""


# --- SGLang -----------------------------------------------------------------------------------------------------------

_DECODE = re.compile(
    rf"\bDecode batch[.,] #running-req: (\d{{1,6}}),.{{0,400}}?gen throughput \(token/s\): {_FLOAT}(?:,|\s|$)"
)
_TOKENS = re.compile(r"#token: (\d{1,9}),")
_LENGTH = re.compile(rf"\baccept len: {_FLOAT},")
_ALIKE = 3
"""Lines that took the same number of steps, at least, before others are held against it."""
_SAME = 0.1
_RANK = re.compile(r"\[[\d:. -]{8,30}((?: (?:TP|DP|PP|EP)\d{1,4})+)\]")
_ARGUMENTS = re.compile(
    r"\b(model_path|speculative_algorithm|speculative_num_steps|speculative_eagle_topk)=(?:'([^']{1,200})'|(None|\d{1,5})\b)"
)


def sniff_sglang_log(head: str) -> bool:
    """A line of `Decode batch`, or the arguments that such a server prints first."""
    return _DECODE.search(head) is not None or ("server_args=ServerArgs(" in head and "model_path=" in head)


def read_sglang_log(path: Path) -> Iterator[Claim]:
    """One claim per line of `Decode batch`; one with a `problem` where there is none.

    Raises `UsageError` when the file cannot be read.
    """
    setup: dict[str, Any] = {}
    found: list[tuple[Claim, int | None]] = []
    alone: dict[str, int] = {}
    for number, line in enumerate(log_lines(path), start=1):
        if "ServerArgs(" in line:
            setup = _setup(line)
        elif "Prefill batch" in line:
            alone.clear()
        elif "Decode batch" in line and (said := _DECODE.search(line)) is not None:
            running, rate = int(said.group(1)), float(said.group(2))
            if not running or not rate:
                continue  # printed as the last request ended: a rate of none of them
            length, rank = _LENGTH.search(said.group()), _RANK.search(line)
            name = rank.group(1) if rank else ""
            tokens, before = _TOKENS.search(line), alone.pop(name, None)
            if tokens is not None and running == 1:
                alone[name] = int(tokens.group(1))
            claim = claim_of(
                source=str(path),
                row=f"line {number}",
                label=f"{running} running{name}",
                engine="SGLang",
                decode_rate=rate,
                concurrency=running,
                tau=max(1.0, float(length.group(1))) if length else None,
                rounding={"decode_rate": 0.005, "tau": 0.005},
                pooled=("tau",),
                **setup,
            )
            found.append((claim, None if before is None or name not in alone else alone[name] - before))
            if len(found) >= _MAX_LINES:
                break
    yield from _with_steps(found)
    if not found:
        yield Claim(source=str(path), row="log", problem=Message("unread.sglang_log"))


def _with_steps(found: list[tuple[Claim, int | None]]) -> Iterator[Claim]:
    """The claims with the tokens of one request since the line before, and the steps that most lines took for theirs.

    A line that took others says so of itself only if its rate too is that of another length: a new request may have
    begun that the log does not show.
    """
    taken = Counter(round(made / it.tau) for it, made in found if made and made > 0 and it.tau)
    steps, times = taken.most_common(1)[0] if taken else (0, 0)
    known = times >= _ALIKE and 2 * times > taken.total() and steps > 0
    like = [it for it, made in found if made and it.tau and round(made / it.tau) == steps]
    speed = median((it.decode_rate or 0.0) / (it.tau or 1.0) for it in like) if known else 0.0
    for claim, made in found:
        if known and speed and made and made > 0 and claim.tau and claim.decode_rate:
            by_tokens, by_rate = made / claim.tau / steps, claim.decode_rate / claim.tau / speed
            if claim in like or abs(by_tokens / by_rate - 1) < _SAME:
                yield claim.model_copy(update={"predicted_n": made, "steps": steps})
                continue
        yield claim


SGLANG_LOG = Importer(sniff_sglang_log, read_sglang_log)


def _setup(line: str) -> dict[str, Any]:
    """Target, method, draft length and tree, from the server's arguments."""
    said = {name: quoted or bare for name, quoted, bare in _ARGUMENTS.findall(line[:20_000])}
    server = {name: "" if value == "None" else value for name, value in said.items()}
    return {"target": server.pop("model_path", None), **sglang_speculation(server)}

"""Logs of `llama-speculative` and `llama-speculative-simple`, from 2023 on: one claim per run.

Both print at the end what they believe: `n_predict` tokens emitted, `n_drafted` tokens drafted, and `n_accept` draft
tokens that the target's own choice confirmed. They never look at the return value of a forward pass: when one fails,
the loop samples the logits of the last one that did not. What really took place follows from arithmetic:

*Rounds.* Each round emits the tokens it accepts and one more; the first token of all comes from the prompt. So there
were R = n_predict - 1 - n_accept verifications after it. (`-simple` verifies the last token of the prompt together with
the first draft: one round more, one prompt token less. R still counts those after the first token.)

*Tokens the target must have evaluated.* Each verification holds the token before the draft and the draft:
prompt + R + n_drafted.

*Tokens it did evaluate.* `prompt eval` and `eval` of the perf block count the tokens of successful forwards (a zero is
printed as 1, with no time). What is missing, divided by 1 + n_drafted / R, is the number of verifications that failed;
the other failures in the log are the draft's. For the draft the same sum closes: it decodes the prompt, then R + 1
corrections and n_drafted drafts one at a time, the last of them uncounted.

*Why some of them succeed.* A recurrent or hybrid model cannot take back part of a sequence. After one verification of
gamma + 1 positions the next ones start at positions it already holds and are refused, until the rounds have caught up,
one token at a time: about one verification per gamma + 1 tokens takes place, whatever is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specmeter.audit.claim import Claim, claim_of
from specmeter.audit.read import llama_server_log
from specmeter.audit.read.document import Importer
from specmeter.audit.read.llama_server_log import setup_fields
from specmeter.engines.llama_cpp.log_formats import INT, NUMBER
from specmeter.engines.llama_cpp.log_setup import Setup
from specmeter.engines.llama_cpp.log_signs import SignReader
from specmeter.engines.log_lines import log_lines, plain
from specmeter.messages import Message

_SUMMARY = re.compile(rf"\b(n_draft|n_predict|n_drafted|n_accept) +=+ *{INT}\s*$")
_SPEED = re.compile(rf"\b(encoded|decoded|generated) +{INT} tokens in +{NUMBER} seconds, speed: +{NUMBER} t/s")
_SECTION = re.compile(r"(?:^|[: ])(draft|target):\s*$")
_PERF = re.compile(rf"(prompt )?\beval time = +{NUMBER} ms / +{INT} (?:tokens|runs)")
_REUSED = re.compile(rf"graphs reused = +{INT}\s*$")
_STARTS = re.compile(
    r"loaded meta data with|\bencoded +\d+ tokens in|\bgenerated +\d+ tokens in|\bbuild: \d|build_info:"
)

_LLAMA = re.compile(r"^(?:ggml|llama|llm_load|load_tensors|print_info|common|main)\w*: |\bbuild: \d+ \(")
_COMMAND = re.compile(r"llama-speculative(?:-simple)?(?:\.exe)? +-")


def sniff_llama_speculative(head: str) -> bool:
    """Whether a file that begins like this may be a log of these programs; their own words come last in it."""
    if re.search(r"\bn_drafted += *\d", head) or _COMMAND.search(head):
        return True
    if not any(_LLAMA.search(plain(line)) for line in head.splitlines()):
        return False
    return not llama_server_log.sniff_llama_server(head)


def read_llama_speculative(path: Path) -> Iterator[Claim]:
    """One claim per run in the file, in order; a claim with a `problem` where a run breaks off.

    Raises `UsageError` when the file cannot be read.
    """
    run = _Run(1)
    found = 0
    for line in log_lines(path):
        if run.complete and _STARTS.search(line):
            yield run.claim(str(path))
            found += 1
            run = _Run(run.number + 1, run.text_after)
        run.feed(line)
    if run.complete or run.begun or not found:
        yield run.claim(str(path))


LLAMA_SPECULATIVE = Importer(sniff_llama_speculative, read_llama_speculative)


# --- one run ---------------------------------------------------------------------------------------------------------


@dataclass
class _Perf:
    """The counters of one model; None where the log does not have them."""

    prompt_tokens: int | None = None
    single_tokens: int | None = None
    graphs_reused: int | None = None

    @property
    def evaluated(self) -> int | None:
        """Tokens of all forwards that succeeded and were waited for, prompt included."""
        if self.prompt_tokens is None or self.single_tokens is None:
            return None
        return self.prompt_tokens + self.single_tokens


_WORD = re.compile(r"\w+|[^\w\s]")
_LOG_LINE = re.compile(
    r"\s*(?:[\w~.:<>]+(?:\(\))? *:(?:\s|$)|-[ -]|\.{4}|n_\w+ += |accept +=|(?:en|de)coded +\d|generated +\d|Failed to"
    r"|GGML_|\d+\.\d\d\.\d{3}\.|\||[~\w]*(?:ggml|llama)_|(?:for M-RoPE, )?it is required that)"
)


@dataclass
class _Text:
    """How much generated text repeats itself, counted as it passes by."""

    words: int = 0
    repeated: int = 0
    _last: str = ""

    def feed(self, line: str) -> None:
        if self.words > 100_000 or _LOG_LINE.match(line):
            return
        for word in _WORD.findall(line):
            self.words += 1
            self.repeated += word == self._last
            self._last = word

    @property
    def note(self) -> Message | None:
        if self.words < 40 or self.repeated < 0.25 * self.words:
            return None
        return Message("read.repeats_itself", share=self.repeated / self.words)


@dataclass
class _Run:
    number: int
    text: _Text = field(default_factory=_Text)
    text_after: _Text = field(default_factory=_Text)
    """Text after the counts: of the run that follows, whose own lines come later."""
    setup: Setup = field(default_factory=Setup)
    signs: SignReader = field(default_factory=SignReader)
    counts: dict[str, int] = field(default_factory=dict[str, int])
    speeds: dict[str, tuple[int, float, float]] = field(default_factory=dict[str, tuple[int, float, float]])
    """`encoded` and `decoded` -> tokens, ms, tokens per second."""
    perf: dict[str, _Perf] = field(default_factory=lambda: {"draft": _Perf(), "target": _Perf()})
    _section: str = "draft"

    @property
    def complete(self) -> bool:
        return "n_predict" in self.counts and "n_accept" in self.counts

    @property
    def begun(self) -> bool:
        return bool(self.counts or self.speeds or self.setup.models or self.signs.failed_decodes)

    def feed(self, line: str) -> None:
        self.signs.feed(line)
        self.setup.feed(line)
        if " time = " in line or "reused" in line:
            self._read_perf(line)
        elif "n_" in line and (found := _SUMMARY.search(line)):
            self.counts.setdefault(found.group(1), int(found.group(2)))
        elif " t/s" in line and (found := _SPEED.search(line)):
            name = "decoded" if found.group(1) == "generated" else found.group(1)
            self.speeds[name] = int(found.group(2)), 1000.0 * float(found.group(3)), float(found.group(4))
        elif "t:" in line and len(line) < 60 and (found := _SECTION.search(line)):
            self._section = found.group(1)
        else:
            (self.text_after if self.complete else self.text).feed(line)

    def _read_perf(self, line: str) -> None:
        perf = self.perf[self._section]
        if found := _PERF.search(line):
            count = 0 if float(found.group(2)) == 0.0 and found.group(3) == "1" else int(found.group(3))
            if found.group(1) is not None:
                perf.prompt_tokens = count
            else:
                perf.single_tokens = count
        elif found := _REUSED.search(line):
            perf.graphs_reused = int(found.group(1))

    def claim(self, source: str) -> Claim:
        row = f"run {self.number}"
        if not self.complete:
            failed = self.signs.failed_decodes
            notes = (Message("read.failed", failed=failed),) if failed else ()
            return Claim(source=source, row=row, notes=notes, problem=Message("unread.llama_speculative"))
        return claim_of(source=source, row=row, **self._values())

    def _values(self) -> dict[str, Any]:
        signs = self.signs.signs()
        predicted, accepted, drafted = self.counts["n_predict"], self.counts["n_accept"], self.counts.get("n_drafted")
        rounds = max(0, predicted - 1 - accepted)
        prompt_n, prompt_ms, _ = self.speeds.get("encoded", (None, 0.0, 0.0))
        _, decode_ms, rate = self.speeds.get("decoded", (0, 0.0, 0.0))
        values = setup_fields(self.setup, signs)
        values["rounding"] |= {"prompt_ms": 0.5, "predicted_ms": 0.5, "decode_rate": 0.0005}
        forwards, notes = self._forwards(rounds, prompt_n)
        notes += [note for note in (self.text.note,) if note is not None]
        return values | forwards | {
            "gamma": self.counts.get("n_draft"),
            "predicted_n": predicted,
            "accepted": accepted,
            "drafted": drafted,
            "acceptance": accepted / drafted if drafted else None,
            "steps": rounds or None,
            "prompt_n": prompt_n,
            "prompt_ms": prompt_ms or None,
            "decode_rate": rate or None,
            "predicted_ms": decode_ms or None,
            "wall_ms": prompt_ms + decode_ms if decode_ms else None,
            "window": "all tokens" if decode_ms else "unknown",
            "notes": (*notes, *signs.notes, *self.setup.notes),
        }  # fmt: skip

    # --- what took place ---------------------------------------------------------------------------------------------

    def _forwards(self, rounds: int, prompt_n: int | None) -> tuple[dict[str, int], list[Message]]:
        """Forwards that took place and that failed, as far as they are known, and how they are known.

        `rounds`: verifications after the first token, as they were asked for.
        """
        signs, target, drafted = self.signs.signs(), self.perf["target"], self.counts.get("n_drafted")
        failures, of_draft = signs.failed_decodes.count, signs.failed_decodes_of_draft
        if not rounds or drafted is None or prompt_n is None or target.evaluated is None:
            if not failures:
                return {}, []
            fields = {"failed_forwards": failures - of_draft, "failed_draft_forwards": of_draft}
            return {name: count for name, count in fields.items() if count or name == "failed_forwards"}, [
                Message("read.failed_of_either", failed=failures)
            ]
        needed, took = rounds + drafted, target.evaluated - prompt_n
        if not failures:
            if took == needed:
                return {"target_forwards": rounds}, []
            return {}, [Message("read.evaluated", took=took, needed=needed)]
        lost, exact = _lost(needed - took, rounds, drafted)
        lost = min(lost, rounds, failures)
        done, others = rounds - lost, failures - lost
        counted = {"done": done, "lost": lost, "share": lost / rounds}
        code = "read.took_place" if exact else "read.took_place_about"
        notes = [Message(code, rounds=rounds, took=took, needed=needed, **counted)]
        if exact and target.graphs_reused is not None and target.graphs_reused + 1 == done:
            notes.append(Message("read.graphs_reused", graphs=target.graphs_reused, forwards=done))
        asked, drafts = rounds + 1 + drafted, self.perf["draft"].evaluated
        if drafts is None or drafts < prompt_n:
            notes.append(Message("read.failed_of_draft", failed=others, asked=asked))
        else:
            code = "read.sum_closes" if asked - (drafts - prompt_n) - others in (0, 1) else "read.sum_is_open"
            notes.append(Message(code, failed=others, done=drafts - prompt_n, asked=asked))
        return {"target_forwards": done, "failed_forwards": lost, "failed_draft_forwards": others}, notes


def _lost(missing: int, rounds: int, drafted: int) -> tuple[int, bool]:
    """(verifications that did not take place, whether that is exact) from tokens that were never evaluated."""
    if missing <= 0:
        return 0, missing == 0
    if drafted % rounds == 0:
        batch = 1 + drafted // rounds
        return round(missing / batch), missing % batch == 0
    return round(missing / (1 + drafted / rounds)), False

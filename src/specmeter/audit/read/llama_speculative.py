"""Logs of `llama-speculative` and `llama-speculative-simple`, from 2023 on: one claim per run.

Both programs draft, verify and sample in one process and print at the end what they believe:

    n_predict   tokens emitted
    n_drafted   tokens drafted
    n_accept    draft tokens that the target's own choice confirmed

They never look at the return value of a forward pass. When one fails, the loop samples the logits of the last one that
did not, and every count continues as if nothing had happened. What really took place follows from arithmetic:

*Rounds.* Each round emits the tokens it accepts and one more; the first token of all comes from the prompt. So there
were R = n_predict - 1 - n_accept verifications after it, whatever the drafts looked like. (`-simple` verifies the last
token of the prompt together with the first draft: one round more, one prompt token less. R still counts those after
the first token.)

*Tokens the target must have evaluated.* Each verification holds the token before the draft and the draft:
prompt + R + n_drafted.

*Tokens it did evaluate.* `prompt eval` and `eval` of the perf block count the tokens of successful forwards, batches of
several and single ones (a zero is printed as 1, with no time). What is missing, divided by 1 + n_drafted / R, is the
number of verifications that failed; the other failures in the log are the draft's. For the draft the same sum closes:
it decodes the prompt, then R + 1 corrections and n_drafted drafts one at a time, the last of them uncounted.

*Why some of them succeed.* A recurrent or hybrid model cannot take back part of a sequence. After one verification
of gamma + 1 positions the next ones start at positions it already holds and are refused, until the rounds have caught
up, one token at a time, sampled from the same old logits: about one verification per gamma + 1 tokens takes place,
whatever is accepted. (In the published Apple logs it is exactly that: 40 for 200 tokens at gamma 4.)

The printed rate divides all emitted tokens by the time of the loop.
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


@dataclass(frozen=True)
class _Speed:
    tokens: int
    seconds: float
    per_second: float


@dataclass
class _Perf:
    """The counters of one model; None where the log does not have them."""

    prompt_tokens: int | None = None
    single_tokens: int | None = None
    graphs_reused: int | None = None

    @property
    def evaluated(self) -> int | None:
        """Tokens of all forwards that succeeded and were waited for."""
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
    speeds: dict[str, _Speed] = field(default_factory=dict[str, _Speed])
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
            self.speeds[name] = _Speed(int(found.group(2)), float(found.group(3)), float(found.group(4)))
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
        predicted, accepted = self.counts["n_predict"], self.counts["n_accept"]
        drafted = self.counts.get("n_drafted")
        values = setup_fields(self.setup, signs)
        values |= {
            "gamma": self.counts.get("n_draft"),
            "predicted_n": predicted,
            "accepted": accepted,
            "drafted": drafted,
            "acceptance": accepted / drafted if drafted else None,
            "steps": max(0, predicted - 1 - accepted) or None,
        }
        rounding: dict[str, float] = values["rounding"]
        encoded, decoded = self.speeds.get("encoded"), self.speeds.get("decoded")
        if encoded is not None:
            values["prompt_n"], values["prompt_ms"] = encoded.tokens, encoded.seconds * 1000.0 or None
            rounding["prompt_ms"] = 0.5
        if decoded is not None:
            values |= {
                "decode_rate": decoded.per_second or None,
                "predicted_ms": decoded.seconds * 1000.0 or None,
                "wall_ms": 1000.0 * (decoded.seconds + (encoded.seconds if encoded is not None else 0.0)) or None,
                **({"window": "all tokens"} if decoded.seconds > 0 else {}),
            }
            rounding |= {"predicted_ms": 0.5, "decode_rate": 0.0005}
        counters = Counters(
            predicted_n=predicted,
            accepted=accepted,
            drafted=drafted,
            prompt_n=values.get("prompt_n"),
            failures=signs.failed_decodes.count,
            failures_of_draft=signs.failed_decodes_of_draft,
            target_evaluated=self.perf["target"].evaluated,
            target_graphs_reused=self.perf["target"].graphs_reused,
            draft_evaluated=self.perf["draft"].evaluated,
        )
        fields, notes_on_forwards = counters.forwards()
        values |= fields
        notes = list(notes_on_forwards)
        notes += [note for note in (self.text.note,) if note is not None]
        values["notes"] = (*notes, *signs.notes, *self.setup.notes)
        return values


# --- what took place -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counters:
    """What a run printed about itself, as far as it says which forwards took place."""

    predicted_n: int
    accepted: int
    drafted: int | None = None
    prompt_n: int | None = None
    failures: int = 0
    """Forward passes that the log says failed, target and draft together."""
    failures_of_draft: int = 0
    """How many of them it ascribes to the draft."""
    target_evaluated: int | None = None
    """Tokens of the target's successful forwards, prompt included."""
    target_graphs_reused: int | None = None
    draft_evaluated: int | None = None
    """Tokens of the draft's successful forwards, prompt included."""

    @property
    def rounds(self) -> int:
        """Verifications after the first token, as they were asked for."""
        return max(0, self.predicted_n - 1 - self.accepted)

    def forwards(self) -> tuple[dict[str, int], tuple[Message, ...]]:
        """(fields of a claim: `target_forwards`, `failed_forwards`, `failed_draft_forwards`, as far as they are known;
        notes on how they are known)."""
        if not self.rounds or self.drafted is None or self.prompt_n is None or self.target_evaluated is None:
            return self._shared_failures()
        needed, took = self.rounds + self.drafted, self.target_evaluated - self.prompt_n
        if not self.failures:
            if took == needed:
                return {"target_forwards": self.rounds}, ()
            return {}, (Message("read.evaluated", took=took, needed=needed),)
        lost, exact = _lost(needed - took, self.rounds, self.drafted)
        lost = min(lost, self.rounds, self.failures)
        done, others = self.rounds - lost, self.failures - lost
        counted = {"done": done, "lost": lost, "share": lost / self.rounds}
        code = "read.took_place" if exact else "read.took_place_about"
        notes = [Message(code, rounds=self.rounds, took=took, needed=needed, **counted)]
        if exact and self.target_graphs_reused is not None and self.target_graphs_reused + 1 == done:
            notes.append(Message("read.graphs_reused", graphs=self.target_graphs_reused, forwards=done))
        notes.append(self._draft_note(self.prompt_n, self.drafted, others))
        return {"target_forwards": done, "failed_forwards": lost, "failed_draft_forwards": others}, tuple(notes)

    def _shared_failures(self) -> tuple[dict[str, int], tuple[Message, ...]]:
        if not self.failures:
            return {}, ()
        fields = {"failed_forwards": self.failures - self.failures_of_draft}
        if self.failures_of_draft:
            fields["failed_draft_forwards"] = self.failures_of_draft
        return fields, (Message("read.failed_of_either", failed=self.failures),)

    def _draft_note(self, prompt_n: int, drafted: int, failed: int) -> Message:
        asked = self.rounds + 1 + drafted
        if self.draft_evaluated is None or self.draft_evaluated < prompt_n:
            return Message("read.failed_of_draft", failed=failed, asked=asked)
        done = self.draft_evaluated - prompt_n
        code = "read.sum_closes" if asked - done - failed in (0, 1) else "read.sum_is_open"
        return Message(code, failed=failed, done=done, asked=asked)


def _lost(missing: int, rounds: int, drafted: int) -> tuple[int, bool]:
    """(verifications that did not take place, whether that is exact) from tokens that were never evaluated."""
    if missing <= 0:
        return 0, missing == 0
    if drafted % rounds == 0:
        batch = 1 + drafted // rounds
        return round(missing / batch), missing % batch == 0
    return round(missing / (1 + drafted / rounds)), False

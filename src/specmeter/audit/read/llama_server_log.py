"""Logs of `llama-server`, from 2023 on: one claim per finished request.

The window of the printed rate. T starts when the first token has been sampled, so N tokens take N - 1 steps. Builds up
to mid-2026 print N / T all the same, later ones (N - 1) / T; which it is follows from the printed numbers.
`llama_print_timings` counts forwards, so that there are N + 1 tokens.

G counts drafts that were verified: since June 2025 those shorter than the minimum are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from specmeter.audit.claim import Claim, claim_of
from specmeter.audit.read.document import Importer
from specmeter.engines.llama_cpp.log_formats import (
    ACCEPTANCE,
    BEGIN,
    DECODE_TIME,
    END,
    INT,
    NUMBER,
    PROMPT_TIME,
    SLOT_AND_TASK,
    STATISTICS,
    STEP,
    log_time_ms,
)
from specmeter.engines.llama_cpp.log_setup import LoadedModel, Setup
from specmeter.engines.llama_cpp.log_signs import LogSigns, SignReader
from specmeter.engines.log_lines import log_lines, plain, sample
from specmeter.messages import Message

# --- the log ----------------------------------------------------------------------------------------------------------

_SLOT_FIELD = re.compile(r'"?\b(?:id_slot|slot_id)"?[=:] *(-?\d{1,9})')
_TASK_FIELD = re.compile(r'"?\b(?:id_task|task_id)"?[=:] *(-?\d{1,12})')
_TOTAL = re.compile(rf"total time += +{NUMBER} ms")
_MEAN = re.compile(rf"mean (?:acceptance length|len|acc len) = +{NUMBER}")
_POSITIONS = re.compile(r"(?:acc per pos|#acc rate/pos) = \(((?:[01]\.\d{1,6}(?:, )?){1,200})\)")
_METHOD = re.compile(rf"statistics +([\w-]{{1,60}}): .{{0,160}}#gen tokens = +{INT}, #acc tokens = +{INT}")
_PROGRESS = re.compile(rf"\bn_(?:decoded|gen) = +{INT}, tg = +{NUMBER} t/s(?:, tg_3s = +{NUMBER} t/s)?")
"""Tokens so far, their rate, and the rate since the line before."""
_FORWARDS = "llama_print_timings"

_HEADING = re.compile(
    r"[\W_]{0,8}(?:(?P<no>without |w/o |no )|with )?(?:a |the )?"
    r"(?:mtp|draft(?:s|er|ing| model)?|spec(?:ulation|(?:ulative)? decoding)|sd|eagle\S{0,3}|dflash)"
    r"(?:[ :=]{1,3}(?:(?P<off>off|disabled|false)|on|enabled|true))?(?:\s?\([^()]{0,40}\))?[\W_]{0,8}"
    r"|[\W_]{0,8}(?P<plain>baseline|vanilla|plain)[\W_]{0,8}",
    re.I,
)
"""What people write above the lines that they paste: `Without MTP`, `With MTP:`."""
_LONGEST_HEADING = 80
_SERVER = re.compile(
    r"^(?:srv |slot ) *\w+(?:\(\))?:|\bprint_timings\]|\"function\":\"(?:print_timings|launch_slot_with_task|main)\""
    r"|^draft acceptance(?: rate)? = +\d|^statistics +[\w-]+: +#calls"
    r"|\bllama server listening|HTTP server (?:is )?listening|server is listening on http|^slot \d+ is processing"
)
_MAX_SLOTS = 256
_MAX_ALONE = 10_000
_MAX_STATISTICS = 2_000
_LONGEST_GAP_MS = 6_000.0
"""Between two lines of progress, which come every three seconds."""
_SLACK_MS = 10.0
"""By which the time of a line may miss that of the token it counts."""


def sniff_llama_server(head: str) -> bool:
    """Whether a file that begins like this is a log of `llama-server`."""
    return any(_SERVER.search(line) or _SERVER.search(plain(line)) for line in head.splitlines())


def read_llama_server(path: Path) -> Iterator[Claim]:
    """One claim per finished request, in order of their ends; one with a `problem` where there is none.

    Raises `UsageError` when the file cannot be read.
    """
    log = _ServerLog(str(path))
    for line in log_lines(path):
        log.signs.feed(line)
        log.setup.feed(line)
        if (claim := log.feed(line)) is not None:
            yield claim
    yield from log.rest()
    if log.finished == 0:
        yield from map(log.finish, log.alone)
    told = log.finished > 0
    for claim in (*log.in_progress(told), *log.of_methods(told)):
        told = True
        yield claim
    if not told:
        failed = log.signs.failed_decodes
        notes = (Message("read.failed", failed=failed),) if failed else ()
        yield Claim(
            source=log.source,
            row="log",
            notes=notes + log.signs.signs().notes,
            problem=Message("unread.llama_server_log"),
        )


LLAMA_SERVER = Importer(sniff_llama_server, read_llama_server)


# --- the setup -------------------------------------------------------------------------------------------------------


def setup_fields(setup: Setup, signs: LogSigns) -> dict[str, Any]:
    """What a log says of each of its runs or requests."""
    target = setup.models[0] if setup.models else LoadedModel("")
    return {
        "label": " + ".join(name for name in (setup.target_name, setup.draft_name) if name),
        "target": setup.target_name,
        "draft": setup.draft_name,
        "engine": "llama.cpp",
        "device": setup.device,
        "size_bytes": target.size_bytes,
        "experts": target.experts,
        "method": setup.method,
        "p_min": setup.p_min,
        "synthetic": bool(signs.synthetic),
        "acceptance_of": "drafted",
        "pooled": ("acceptance",),
        "runs": 1,
        "rounding": {"size_bytes": target.size_error_bytes} if setup.models else {},
    }


# --- one request -----------------------------------------------------------------------------------------------------


@dataclass
class _Request:
    slot: str
    task: str
    failures_before: tuple[int, int, int]
    """Failed forwards, those of them that are the draft's, and the drafter's own reports, when it began."""
    shared: bool = False
    """Another request ran beside it."""
    prompt: tuple[float, int] | None = None
    decode: tuple[float, int] | None = None
    """(milliseconds, tokens)"""
    printed_rate: float | None = None
    interval: str = ""
    """Printed milliseconds per token."""
    counts_forwards: bool = False
    total_ms: float | None = None
    draft: tuple[float, int, int] | None = None
    """(printed rate, accepted, generated)"""
    mean_length: float | None = None
    positions: tuple[float, ...] = ()
    rounds: int = 0
    """Verified drafts that were traced, one target forward each."""
    restores: int = 0
    longest: int = 0
    """Most tokens of a draft that was traced."""
    statistics: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Per method: (requests started, drafts verified) since the server started."""
    unread: str = ""
    """A line with its times that cannot be read."""

    def read_draft(self, line: str) -> bool:
        """Whether a line says how many drafts were accepted."""
        found = ACCEPTANCE.search(line)
        if found is None or found.group(1) is None:
            return False
        self.draft = (float(found.group(1)), int(found.group(2)), int(found.group(3)))
        if mean := _MEAN.search(line):
            self.mean_length = float(mean.group(1))
        return True


def _shares(line: str) -> tuple[float, ...]:
    found = _POSITIONS.search(line)
    return tuple(min(1.0, float(share)) for share in found.group(1).split(",")) if found else ()


@dataclass
class _ServerLog:
    """State of a log as its lines pass by: bounded, however many requests there are."""

    source: str
    signs: SignReader = field(default_factory=SignReader)
    setup: Setup = field(default_factory=Setup)
    finished: int = 0
    told_plain: bool | None = None
    """Whether a heading says that what follows ran without drafts."""
    plain: list[Claim] = field(default_factory=list[Claim])
    """The requests below the last heading that says so."""
    alone: list[_Request] = field(default_factory=list[_Request])
    """Of lines of acceptance without times, as people quote them."""
    _open: dict[str, _Request] = field(default_factory=dict[str, _Request])
    _last_slot: str = ""
    _last_task: str = ""
    _has_slots: bool = False
    _progress: list[tuple[str, list[tuple[float, int, float, float]]]] = field(default_factory=list[Any])
    """Slot and task, and what it prints every few seconds: ms, tokens so far, their rate, that since the line before.
    """
    _printed: int = 0
    _methods: dict[str, str] = field(default_factory=dict[str, str])
    """The last line of statistics per method."""
    _verified: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """The statistics per method up to the last request: they only ever grow, and an excerpt begins anywhere."""

    def feed(self, line: str) -> Claim | None:
        """Take the next line; a claim when it ends a request."""
        if "draft tokens" in line:
            if found := STEP.search(line):
                self._step(*_place(line), found)
        elif " tg = " in line and (found := _PROGRESS.search(line)) is not None:
            self._keep(_place(line), log_time_ms(line) or 0.0, found)
        elif "draft acceptance" in line or "statistics" in line or "acc per pos" in line:
            self._more(line)
        elif " time " in line or "print_timing" in line:
            return self._times(line)
        elif "processing" in line or "released" in line:
            return self._begin_or_end(line)
        elif len(line) < _LONGEST_HEADING and (found := _HEADING.fullmatch(line)):
            ended = next(self.rest(), None)
            plain = any(found.groups())
            if plain and self.told_plain is False:
                self.plain.clear()  # those of another pair
            self.told_plain = plain
            return ended
        return None

    def _keep(self, place: tuple[str | None, str | None], ms: float, found: re.Match[str]) -> None:
        """Add a line of progress to those of its request, unless requests that ended tell more."""
        tokens, rate, recent = int(found.group(1)), float(found.group(2)), float(found.group(3) or 0)
        if self.finished or not rate or self._printed >= _MAX_ALONE:
            return
        row = ", ".join(f"{what} {number}" for what, number in zip(("slot", "task"), place, strict=True) if number)
        lines = next((it for name, it in self._progress[:-_MAX_SLOTS:-1] if name == row), None)
        if not lines or tokens <= lines[-1][1] or not 0 < ms - lines[-1][0] < _LONGEST_GAP_MS:
            self._progress.append((row, lines := []))  # of another run, which may have the same number
        lines.append((ms, tokens, rate, recent))
        self._printed += 1

    def _begin_or_end(self, line: str) -> Claim | None:
        slot, task = _place(line)
        if BEGIN.search(line):
            return self._begin(slot or "", task or "")
        if END.search(line):
            return self._over(self._open.get(self._last_slot if slot is None else slot))
        return None

    def _times(self, line: str) -> Claim | None:
        if "_perf_" in line or (_FORWARDS in line and self._has_slots):
            return None  # sums over the life of a process, printed when it ends
        slot, task = _place(line)
        if slot is not None:
            self._has_slots = True
            self._last_slot, self._last_task = slot, task or ""
        ended = self._other_task(slot, task)
        if found := PROMPT_TIME.search(line):
            request, before = self._printing(slot, task)
            ended = ended or before
            request.prompt = (float(found.group(1)), int(found.group(2)))
            request.counts_forwards = _FORWARDS in line
        elif found := DECODE_TIME.search(line):
            request, before = self._printing(slot, task)
            ended = ended or before
            request.decode = (float(found.group(1)), int(found.group(2)))
            if found.group(3) is not None:
                request.interval, request.printed_rate = found.group(3), float(found.group(4))
            request.counts_forwards = _FORWARDS in line
        else:
            if "eval time" in line and (request := self._open.get(self._last_slot)) is not None:
                request.unread = request.unread or sample(line)
            self._more(line)
        return ended

    def rest(self) -> Iterator[Claim]:
        """Requests that printed their times and whose end is missing."""
        for request in list(self._open.values()):
            if (claim := self._over(request)) is not None:
                yield claim

    def _begin(self, slot: str, task: str) -> Claim | None:
        ended = self._over(self._open.get(slot))
        self._new(slot, task)
        return ended

    def _other_task(self, slot: str | None, task: str | None) -> Claim | None:
        """The request before, where a line with times names another task of its slot: what follows is not its own."""
        request = self._open.get(slot) if slot is not None else None
        if request is None or not task or not request.task or task in ("-1", request.task):
            return None
        return self._begin(request.slot, task)

    def _over(self, request: _Request | None) -> Claim | None:
        """The claim of a request that printed its times, readable or not; any other stays open."""
        if request is None or (request.decode is None and not request.unread):
            return None
        return self.finish(request)

    def _new(self, slot: str, task: str) -> _Request:
        self._open.pop(slot, None)
        request = _Request(slot, task, self._failures, shared=bool(self._open))
        for other in self._open.values():
            other.shared = True
        self._open[slot] = request
        if len(self._open) > _MAX_SLOTS:
            del self._open[next(iter(self._open))]
        self._last_slot, self._last_task = slot, task
        return request

    def _printing(self, slot: str | None, task: str | None) -> tuple[_Request, Claim | None]:
        """The request whose times are being printed, and the one before it where that is thereby over."""
        slot = self._last_slot if slot is None else slot
        request, ended = self._open.get(slot), None
        if request is not None and request.decode is not None:
            ended, request = self.finish(request), None
        if request is None:
            request = self._new(slot, task or self._last_task)
        return request, ended

    def _step(self, slot: str | None, task: str | None, found: re.Match[str]) -> None:
        slot = self._last_slot if slot is None else slot
        request = self._open.get(slot) or self._new(slot, task or "")
        request.rounds += 1
        request.restores += found.group(3) is not None
        request.longest = max(request.longest, int(found.group(2)))

    def _more(self, line: str) -> None:
        """Lines that follow the times of the request that printed last."""
        if (slot := _place(line)[0]) is not None:
            self._last_slot = slot
        request = self._open.get(self._last_slot)
        if (found := _METHOD.search(line)) and len(self._methods) < _MAX_SLOTS:
            self._methods[found.group(1)] = line[found.start() : found.start() + _MAX_STATISTICS]
        if request is None or request.decode is None:
            quoted = _Request("", "", self._failures)
            if len(self.alone) < _MAX_ALONE and quoted.read_draft(line):
                self.alone.append(quoted)
            elif self.alone and "acc per pos" in line:
                self.alone[-1].positions = _shares(line)
            return
        if found := _TOTAL.search(line):
            request.total_ms = float(found.group(1))
        elif "acc per pos" in line:
            request.positions = _shares(line)
        elif (
            not request.read_draft(line) and (found := STATISTICS.search(line)) and len(request.statistics) < _MAX_SLOTS
        ):
            request.statistics[found.group(1)] = int(found.group(2)), int(found.group(4))

    @property
    def _failures(self) -> tuple[int, int, int]:
        return self.signs.failed_decodes, self.signs.failed_decodes_of_draft, self.signs.draft_failures

    # --- lines that people paste without the rest ---------------------------------------------------------------------

    def in_progress(self, told: bool) -> Iterator[Claim]:
        """What requests say while they run, unless their ends tell more: one claim per line, and one for all of it."""
        for name, lines in self._progress if not told else ():
            row = name or "log"
            for at, (ms, tokens, rate, _) in enumerate(lines[:: max(1, len(lines) - 1)]):  # the first and the last
                begun = lines[0][0] - 1e3 * lines[0][1] / lines[0][2]
                yield self._measured(f"{row}, {tokens} tokens", rate, tokens, ms - begun if at else None)
            for (before, done, *_), (now, tokens, _, recent) in pairwise(lines):
                if recent:
                    yield self._measured(f"{row}, {done} to {tokens} tokens", recent, tokens - done, now - before)

    def _measured(self, row: str, rate: float, tokens: int, ms: float | None) -> Claim:
        values = setup_fields(self.setup, self.signs.signs())
        values["rounding"] |= {"decode_rate": 0.005, "predicted_ms": _SLACK_MS}
        return claim_of(source=self.source, row=row, decode_rate=rate, predicted_n=tokens, predicted_ms=ms, **values)

    def of_methods(self, told: bool) -> Iterator[Claim]:
        """The statistics of each method since the server started, if no request tells more, or if they cannot be."""
        for name, line in self._methods.items():
            counts = _METHOD.search(line)
            drafted, accepted = map(int, counts.groups()[1:]) if counts else (0, 0)
            if not drafted or (told and accepted <= drafted):
                continue
            mean = _MEAN.search(line)
            values = setup_fields(self.setup, self.signs.signs()) | {"method": name, "runs": None}
            values["rounding"] = {"tau": 0.005, "positions": 0.0005}
            yield claim_of(
                source=self.source,
                row=f"statistics {name}",
                drafted=drafted,
                accepted=accepted,
                tau=max(1.0, float(mean.group(1))) if mean else None,
                positions=(shares := _shares(line)),
                gamma=self.setup.gamma or len(shares) or None,
                **values,
            )

    # --- its claim ---------------------------------------------------------------------------------------------------

    def finish(self, request: _Request) -> Claim:
        """What is claimed of it."""
        self._open.pop(request.slot, None)
        self.finished += 1
        names = [f"request {self.finished}"]
        names += [f"{what} {number}" for what, number in (("slot", request.slot), ("task", request.task)) if number]
        row = ", ".join(names)
        if request.decode is None and request.draft is None:
            problem = Message("unread.times", line=request.unread)
            return claim_of(source=self.source, row=row, label=self.setup.target_name or "", problem=problem)
        return self._paired(claim_of(source=self.source, row=row, **self._values(request)))

    def _paired(self, claim: Claim) -> Claim:
        """A request below the heading that says `with`, beside those of the same prompt below `without`.

        Several of these are pooled, and so are several of other prompts, where none is of the same one.
        """
        if self.told_plain and not claim.drafted and claim.decode_rate and len(self.plain) < _MAX_ALONE:
            self.plain.append(claim)
        if self.told_plain is not False or not claim.drafted:
            return claim
        alike = [it for it in self.plain if len({it.window, claim.window} - {"unknown"}) <= 1]
        alike = [it for it in alike if it.prompt_n == claim.prompt_n] or (alike if len(alike) > 1 else [])
        if not alike:
            return claim
        rates = [it.decode_rate or 0.0 for it in alike]
        pooled = fmean(rates, [it.predicted_ms or 1.0 for it in alike])
        half = max(abs(rate - pooled) + it.rounding["decode_rate"] for rate, it in zip(rates, alike, strict=True))
        where = alike[0].row if len(alike) == 1 else f"mean of {len(alike)} requests"
        rounding = {**claim.rounding, "baseline_rate": half}
        return claim.model_copy(update={"baseline_rate": pooled, "baseline_from": where, "rounding": rounding})

    def _values(self, request: _Request) -> dict[str, Any]:
        signs = self.signs.signs()
        decode_ms, count = request.decode or (0.0, 0)
        predicted = count + 1 if request.counts_forwards else count
        values = setup_fields(self.setup, signs)
        values |= {
            "tree": False,
            "gamma": self.setup.gamma,
            "predicted_n": predicted or None,
            "predicted_ms": decode_ms or None,
            "wall_ms": request.total_ms or None,
        }
        rounding: dict[str, float] = values["rounding"]
        rounding |= {"predicted_ms": 0.005, "prompt_ms": 0.005, "wall_ms": 0.01}
        if request.printed_rate:
            values["decode_rate"] = request.printed_rate
            values["window"] = _window(request.printed_rate, decode_ms, predicted)
            rounding["decode_rate"] = 0.005
        if float(request.interval or 0):
            values["token_ms"] = float(request.interval)
            rounding["token_ms"] = 0.5 * 10.0 ** -len(request.interval.partition(".")[2])
        if request.prompt is not None:
            values["prompt_ms"], values["prompt_n"] = request.prompt[0] or None, request.prompt[1]
        notes = [*self._drafting(request, values, rounding), *self._failed(request, values)]
        values["notes"] = (*notes, *signs.notes, *self.setup.notes)
        return values

    def _drafting(self, request: _Request, values: dict[str, Any], rounding: dict[str, float]) -> Iterator[Message]:
        verified = self._newly_verified(request)
        if request.draft is not None:
            rate, accepted, generated = request.draft
            values["accepted"], values["drafted"] = accepted, generated
            values["method"] = values["method"] or "+".join(request.statistics)[:160] or None
            if generated:
                values["acceptance"] = accepted / generated
                if abs(rate - accepted / generated) > 6e-6 + 1e-5:
                    values["acceptance"], rounding["acceptance"] = rate, 0.000005
                    yield Message("read.acceptance", printed=rate, accepted=accepted, drafted=generated)
            if request.mean_length is not None and request.restores:
                yield Message("read.mean_length", length=request.mean_length)
            elif request.mean_length is not None and request.mean_length >= 1:
                values["tau"], rounding["tau"] = request.mean_length, 0.005
            values["positions"], rounding["positions"] = request.positions, 0.0005
            values["gamma"] = values["gamma"] or len(request.positions) or None
        elif values["method"] not in (None, "none"):
            yield Message("read.nothing_drafted")
        if request.rounds:
            values["steps"], values["restores"] = request.rounds, request.restores
            yield Message("read.traced", drafts=request.rounds, longest=request.longest)
            values["gamma"] = values["gamma"] or request.longest
        elif verified is not None:
            values["steps"] = verified
            yield Message("read.verified", drafts=verified)

    def _newly_verified(self, request: _Request) -> int | None:
        """Drafts verified during the request by the drafter's cumulative statistics.

        None where they are mixed, and where it is not known how they stood at its beginning: neither is this the first
        request of the server, nor did the log show those of the one before.
        """
        if not request.statistics:
            return None
        before = {
            name: (0, 0) if begun == 1 else self._verified.get(name) for name, (begun, _) in request.statistics.items()
        }
        known = all(past is not None and request.statistics[name][0] == past[0] + 1 for name, past in before.items())
        count = sum(now - (before[name] or (0, 0))[1] for name, (_, now) in request.statistics.items())
        self._verified |= request.statistics
        if len(self._verified) > _MAX_SLOTS:
            self._verified.clear()
        return count if known and count > 0 and not request.shared and request.draft is not None else None

    def _failed(self, request: _Request, values: dict[str, Any]) -> Iterator[Message]:
        decodes, of_draft, reported = (
            now - before for now, before in zip(self._failures, request.failures_before, strict=True)
        )
        if not (decodes or reported):
            return
        if request.shared:
            yield Message("read.failed_beside_others", failed=decodes)
            return
        values["failed_forwards"] = decodes - of_draft
        values["failed_draft_forwards"] = max(of_draft, reported)
        yield Message("read.failed_in_request", failed=decodes, of_draft=max(of_draft, reported))


def _place(line: str) -> tuple[str | None, str | None]:
    """(slot, task) that a line names, each None where it does not."""
    if "| task" in line:
        found = SLOT_AND_TASK.search(line)
        return (found.group(1), found.group(2)) if found is not None else (None, None)
    if "task" not in line and "slot" not in line:
        return None, None
    slot, task = _SLOT_FIELD.search(line), _TASK_FIELD.search(line)
    return (slot.group(1) if slot else None), (task.group(1) if task else None)


def _window(rate: float, ms: float, tokens: int) -> str:
    """Which tokens the printed rate counts; `unknown` where both would print it.

    It stands beside its count and time, so that a rate which neither gives is of no other window: it is false.
    """
    if ms <= 0:
        return "unknown"
    half = 0.005 + rate * 0.005 / ms
    everything, rest = (abs(1000.0 * n / ms - rate) <= half for n in (tokens, tokens - 1))
    if everything and rest:
        return "unknown"
    return "all but the first" if rest else "all tokens"

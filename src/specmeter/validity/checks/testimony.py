"""What else lies in a run's folder and tells of the same: times, machine and models that it must not contradict.

Every time of a request has witnesses that its record does not name: stamps of log lines, pauses between requests, the
counters of a server, the probe that the run made beforehand, the inputs that a prediction was made from. All of it is
a doubt: clocks are set, and processes wait for a processor.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median, median_low
from typing import NamedTuple

from specmeter import __version__
from specmeter.messages import Message
from specmeter.models.bench import shipped
from specmeter.record import Arm, Finding, Prediction
from specmeter.record.verdict import Findings
from specmeter.validity.checks.bounds import SLACK_MS, TOLERANCE
from specmeter.validity.checks.check import Check, answered, of_arm, of_run, used_sessions
from specmeter.validity.checks.run_data import RequestData, RunData

_STAMP_MS = 3.0
"""Stamps of log lines were seen to leave out or add 1 ms in the median, on a machine with four times as much work as
processors."""
_AT_ONCE = 0.25
"""Share by which a request of several at once may wait for the forward that is under way when it gets its slot."""
_PAUSE = 0.2
"""Share of a request that may pass until the next one is sent, beyond `SLACK_MS`; a client sends it at once."""
_UNLIKE_MS = 5.0
"""By which the pauses of two arms may differ as well: they were seen to by 6 ms at most."""
_CLOSING_S = 1.0
"""A cell's session may take so long to close, beyond `_PAUSE` of it."""
_PROBED = 1.6
"""Times by which plain tokens of a probe and of its baseline may differ: it was made minutes before."""
_COUNTER = "tokens_predicted_seconds_total"
_SAME = 1e-6
_SAMPLED = 0.5
"""Share of the samples of the machine, one a second, that have to be there."""
_LAST_S = 0.2
"""What is left at the end of a session is a sample if it lasts so long; latecomers are among those that may lack."""
_FEW = 4
_APART_S = (0.9, 1.5)
"""Within which samples are half of the time: the sampler keeps to the second, and a busy machine delays some."""


def _found(arm_id: str, message: Message) -> Finding:
    return of_arm("suspect", arm_id, message)


def folder_contradicts(data: RunData) -> Findings:
    """Times, a machine or models that something else in the run's folder contradicts.

    Assumes: log lines are stamped when they are written, a client sends its next request at once, and a machine
    keeps its speed within a factor of 1.6 between a probe and the run.
    Otherwise: a machine that slept or was changed meanwhile makes a right run suspect; suspect at most.
    """
    waits: dict[str, _Wait] = {}
    for arm, requests in answered(data):
        yield from _log_stamps(data, arm, requests)
        if arm.load is not None:
            yield from _cells(data, arm, requests)
        elif (wait := _waited(requests)) is not None:
            waits[arm.id] = wait
    yield from _pauses(waits)
    yield from _probed(data)
    for prediction in data.predictions:
        if (found := _recomputed(prediction)) is not None:
            yield found
    yield from _machine(data)
    yield from _models(data)
    yield from _samples(data)


# --- times -----------------------------------------------------------------------------------------------------------


def _log_stamps(data: RunData, arm: Arm, requests: Sequence[RequestData]) -> Findings:
    """A request lasts from the log line that gives it a slot to the one that prints its times; the lower median."""
    lines = [
        line
        for session in used_sessions(data, requests)
        for line in data.printed.get(session.id, ())
        if line.stamped_ms >= 0 and line.prompt_ms >= 0
    ]
    if not lines:
        return
    usual = median_low([it.prompt_ms + it.predicted_ms for it in lines])
    off = median_low([it.stamped_ms - it.prompt_ms - it.predicted_ms for it in lines])
    longer = TOLERANCE if arm.load is None else _AT_ONCE
    if not -_STAMP_MS - TOLERANCE * usual <= off <= _STAMP_MS + longer * usual:
        yield _found(
            arm.id, Message("folder-contradicts.stamps", told_ms=usual, seen_ms=usual + off, requests=len(lines))
        )


class _Wait(NamedTuple):
    """From the end of a request to the next one of its session."""

    pause_ms: float
    """The lower median."""
    wall_ms: float
    requests: int


def _waited(requests: Sequence[RequestData]) -> _Wait | None:
    pauses, walls = list[float](), list[float]()
    for one, other in pairwise(it.row for it in requests):
        if one.session_id == other.session_id and one.wall_ms is not None and other.item == one.item + 1:
            pauses.append(1000 * (other.started_at - one.started_at) - one.wall_ms)
            walls.append(one.wall_ms)
    return _Wait(median_low(pauses), median(walls), len(pauses)) if len(pauses) >= _FEW else None


def _pauses(waits: Mapping[str, _Wait]) -> Findings:
    """A request is sent when the one before it has ended, and no sooner: at once, and as soon as in other arms."""
    least = min((max(0.0, it.pause_ms) for it in waits.values()), default=0.0)
    for arm_id, wait in waits.items():
        if wait.pause_ms < -_STAMP_MS:
            yield _found(
                arm_id,
                Message(
                    "folder-contradicts.overlap", early=-wait.pause_ms, wall_ms=wait.wall_ms, requests=wait.requests
                ),
            )
        elif wait.pause_ms > min(SLACK_MS, least + _UNLIKE_MS) + _PAUSE * wait.wall_ms:
            yield _found(arm_id, Message("folder-contradicts.pauses", **wait._asdict()))


def _cells(data: RunData, arm: Arm, requests: Sequence[RequestData]) -> Findings:
    """A cell under load: its server's own sums of time, how long its requests waited, and the session around it."""
    by_session: dict[str, list[RequestData]] = {}
    for request in requests:
        by_session.setdefault(request.row.session_id, []).append(request)
    failed = {it.row.session_id for it in data.requests if it.row.status != "ok"}
    for name, mine in by_session.items():
        cell, session = data.load_cells.get(name), data.sessions.get(name)
        if cell is None or session is None or not cell.complete or name in failed:
            continue
        seconds = cell.counters.get(_COUNTER)
        told = sum(it.row.predicted_ms or 0.0 for it in mine) + sum(it.predicted_ms for it in cell.fillers)
        if seconds is not None and abs(1000 * seconds - told) > SLACK_MS + TOLERANCE * told:
            yield _found(
                arm.id,
                Message(
                    "folder-contradicts.counted",
                    counter=_COUNTER,
                    seconds=seconds,
                    told_s=told / 1000,
                    block=cell.block,
                ),
            )
        waited = data.queued.get(name)
        walls = sum(it.row.wall_ms or 0.0 for it in mine)
        worked = sum((it.row.prompt_ms or 0.0) + (it.row.predicted_ms or 0.0) for it in mine)
        if waited is not None and walls - worked - waited > len(mine) * SLACK_MS + TOLERANCE * walls:
            yield _found(
                arm.id,
                Message(
                    "folder-contradicts.waited",
                    unaccounted_ms=walls - worked - waited,
                    waited_ms=waited,
                    block=cell.block,
                ),
            )
        if session.ended_at is not None:
            began = session.started_at + (session.ready_ms + session.warmup_ms) / 1000
            idle, length = cell.began_at - began + session.ended_at - cell.ended_at, cell.ended_at - cell.began_at
            if idle > (0.0 if data.simulated else _CLOSING_S) + _PAUSE * length:
                yield _found(arm.id, Message("folder-contradicts.idle", idle_s=idle, length_s=length, block=cell.block))


def _probed(data: RunData) -> Findings:
    """Plain tokens of the run's own probe, beside those of the baseline on whose prompts it was made."""
    for probe in data.step_probes:
        requests = data.by_arm.get(probe.baseline_id, ())
        rates = [
            it.row.predicted_ms / (it.row.predicted_n - 1)
            for it in requests
            if it.row.predicted_ms and (it.row.predicted_n or 0) > 1 and it.row.predicted_n is not None
        ]
        if probe.clients > 1 or not probe.rounds or not rates or data.arms[probe.baseline_id].load is not None:
            continue
        probed, measured = median(it.plain_ms for it in probe.rounds), median(rates)
        if not 1 / _PROBED <= measured / probed <= _PROBED:
            yield _found(
                probe.baseline_id, Message("folder-contradicts.probed", probed_ms=probed, measured_ms=measured)
            )
            return


# --- predictions -----------------------------------------------------------------------------------------------------


def _recomputed(prediction: Prediction) -> Finding | None:
    """A prediction is what its own inputs give: tokens of a step over its cost, prompts left as they are. What an
    advice's screen measured is none of them."""
    if prediction.speedup is None or prediction.cost == Message("prediction.screen"):
        return None
    told, inputs = prediction.speedup.point, prediction.inputs
    parts = [inputs.get(name) for name in ("tau", "draft", "verify", "restore", "rest")]
    numbers = [float(it) for it in parts if isinstance(it, int | float)]
    first = inputs.get("first", 0.0)
    cost = sum(numbers[1:]) + (first if isinstance(first, int | float) else math.nan)
    given = math.nan if len(numbers) < len(parts) or not cost > 0 else numbers[0] / cost
    share = inputs.get("prompts")
    if isinstance(share, int | float) and share > 0 and given > 0:
        given = 1 / (share + (1 - share) / given)
    if math.isclose(told, given, rel_tol=_SAME):
        return None
    return _found(prediction.arm_id, Message("folder-contradicts.prediction", told=told, given=given))


# --- machine and models ----------------------------------------------------------------------------------------------


def _machine(data: RunData) -> Findings:
    """The processor that logs name, and the slots that servers had."""
    named = {log.cpu for log in data.logs.values() if log.cpu}
    hosts = [_words(host.cpu) for host in data.hosts]
    for name in sorted(named):
        # On some systems an engine knows no more than that it is a CPU.
        said = _words(name)
        if said != "cpu" and not any(said in it or it in said for it in hosts):
            host = data.hosts[-1].cpu if data.hosts else ""
            yield of_run("suspect", Message("folder-contradicts.processor", log=name, host=host))
    for arm, requests in answered(data):
        for session in used_sessions(data, requests):
            log, cell = data.logs.get(session.id), data.load_cells.get(session.id)
            told = [
                session.resolved.get("total_slots"),
                log.slots or None if log else None,
                cell.slots if cell else None,
            ]
            known = [it for it in told if isinstance(it, int)]
            if len(set(known)) > 1:
                yield _found(
                    arm.id, Message("folder-contradicts.slots", fewest=min(known), most=max(known), block=session.block)
                )
                break


def _words(name: str) -> str:
    return " ".join(name.lower().replace("(r)", " ").replace("(tm)", " ").split())


def _models(data: RunData) -> Findings:
    """Models that come with specmeter are known to the byte, where an engine reads those files."""
    for model in data.models.values() if data.traits.model_formats else ():
        core = shipped().get(model.reference.removeprefix("bench:")) if model.reference.startswith("bench:") else None
        if core is not None and model.sha256 != core.sha256 and data.written_by == __version__:
            shown = Message(
                "folder-contradicts.model", model=model.name, reference=model.reference, sha256=model.sha256[:12]
            )
            yield of_run("suspect", shown)


def _samples(data: RunData) -> Findings:
    """The machine is sampled once a second while a session measures; what programs take is part of what others do."""
    if data.simulated:
        return
    for due, samples, apart_s in _due_samples(data):
        if due >= _FEW and samples < _SAMPLED * due:
            yield of_run("suspect", Message("folder-contradicts.samples", samples=samples, due=due))
            break
        if apart_s is not None and not _APART_S[0] <= apart_s <= _APART_S[1]:
            yield of_run("suspect", Message("folder-contradicts.apart", apart_s=apart_s))
            break
    cores = max((host.logical_cores for host in data.hosts), default=1)
    wrong = [
        it
        for it in data.telemetry
        if it.other_cpu_percent > it.cpu_percent + 1 or 100 * it.programs / cores > 2 * it.other_cpu_percent + 10
    ]
    if wrong:
        shown = Message("folder-contradicts.programs", samples=len(wrong), of=len(data.telemetry))
        yield of_run("suspect", shown)
    for it in data.disturbances:
        shares = [one.other_cpu_percent for one in data.telemetry if it.began_at <= one.at <= it.ended_at]
        mean = sum(shares) / max(1, len(shares))
        if len(shares) != it.samples or not math.isclose(mean, it.mean_percent, abs_tol=0.01):
            shown = Message(
                "folder-contradicts.disturbance", block=it.block, mean_percent=it.mean_percent, samples=it.samples
            )
            yield of_run("suspect", shown)


def _due_samples(data: RunData) -> Iterator[tuple[int, int, float | None]]:
    """(samples that should be there, those that are, seconds between them): of each session of some seconds, and of all
    others together. One for each whole second that a session measured for, and for what is left at its end unless that
    is short."""
    spans: dict[str, tuple[float, float]] = {}
    for row in (it.row for it in data.requests):
        began, ended = spans.get(row.session_id, (row.started_at, row.started_at))
        last = row.started_at + (row.wall_ms or 0.0) / 1000
        spans[row.session_id] = min(began, row.started_at), max(ended, last)
    at, left, rest = sorted(it.at for it in data.telemetry), 0, len(data.telemetry)
    for began, ended in spans.values():
        due = math.floor(ended - began + 1 - _LAST_S)
        if due < _FEW:
            left += due
            continue
        first, after = bisect_left(at, began), bisect_right(at, ended + 1)
        rest -= after - first
        apart = [late - early for early, late in pairwise(at[first:after])]
        yield due, after - first, median(apart) if len(apart) >= _FEW else None
    yield left, max(0, rest), None


CHECKS: tuple[Check, ...] = (
    Check(
        "folder-contradicts",
        "suspect",
        folder_contradicts,
        saw=(
            *("sessions", "logs", "requests", "load-cells", "sendings", "step-probes", "predictions", "hosts"),
            *("models", "telemetry", "disturbances"),
        ),
        apart=True,
    ),
)

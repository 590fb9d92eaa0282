"""A schedule: what is advised at each of several numbers of clients.

Each number of clients is a question of its own, answered and proved like any other: screened, raced and confirmed
against decoding without speculation at the same load. So a schedule is a folder of advices,

specmeter-runs/schedule-dense-20261123-101500/
    schedule.json   what was asked
    c1/             an ordinary advice, asked of one client
    c4/             the same of four

and everything that reads an advice reads these. What is said of all of them together follows from what each one says.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from specmeter.advise.advice import Advice, AdviceQuestion, read_advice
from specmeter.analysis.load.crossover import ExpectedCrossover, expected_crossover
from specmeter.errors import StoreError, UsageError
from specmeter.files import is_link
from specmeter.numbers.stats import simultaneous
from specmeter.record import Record
from specmeter.record.base import read_record, write_record
from specmeter.record.verdict import Verdict, worst
from specmeter.store.guarded import is_run
from specmeter.store.integrity import certificate_in, is_changed, uncertified
from specmeter.store.locate import SCHEDULE_NAME, find_run, sort_of
from specmeter.store.reader import CERTIFICATE_NAME

if TYPE_CHECKING:
    from specmeter.record import Finding
    from specmeter.validity.inspection import Inspection

_MAX_BYTES = 2**20

Pattern = Literal["up to", "from", "always", "never", "mixed", "open"]
"""Of the loads that were decided: speculation pays `up to` a number of clients and not beyond, or `from` one on and not
before; at all of them, or at none (told only where every load was decided); `mixed`: none of these; `open`: too few
are decided to say."""


class Schedule(Record):
    """Advice for one target on one machine, for several numbers of clients."""

    version: Literal[1] = 1
    asked: AdviceQuestion
    """The question; its budget is for all loads together."""
    made_at: float
    """Seconds since the epoch."""
    again_of: str | None = None
    """Folder of the schedule whose answers are confirmed again."""
    advices: tuple[Advice, ...] = ()
    """The advices started so far, fewest clients first. Not in the file: each lies in a folder of its own."""

    @property
    def finished(self) -> bool:
        """Whether every load has its answer."""
        return len(self.advices) == len(self.asked.clients) and all(it.finished for it in self.advices)

    @property
    def verdict(self) -> Verdict | None:
        """The worst of all; None where nothing was measured."""
        found: list[Verdict] = [it.verdict for it in self.advices if it.verdict is not None]
        return worst(found) if found else None

    @property
    def pattern(self) -> Pattern:
        """How decisions depend on the number of clients."""
        told = [it.decision == "speculate" for it in self.advices if is_decided(it)]
        whole = len(told) == len(self.asked.clients)
        if len(set(told)) < 2:
            return "open" if not told or not whole else "always" if told[0] else "never"
        turns = sum(one != other for one, other in pairwise(told))
        return "mixed" if turns > 1 else "up to" if told[0] else "from"

    @property
    def crossover(self) -> ExpectedCrossover | None:
        """Number of clients at which the confirmed best speedup crosses 1, with a simultaneous interval over all
        loads; None unless at least two loads are confirmed and it crosses once."""
        if self.pattern not in ("up to", "from"):
            return None
        confirmed = [it for it in self.advices if it.finished and it.basis == "confirmed" and it.verdict != "invalid"]
        known = [(clients_of(it), it.speedup) for it in confirmed if it.speedup is not None]
        try:
            found = [(clients, simultaneous(it, len(self.advices))) for clients, it in known]
            if len(found) < 2 or any(it.low is None or it.high is None for _, it in found):
                return None
            told = expected_crossover(found, "confirmed at each load")
        except (UsageError, ValueError, ArithmeticError):  # numbers that no run gave, in a folder that is not examined
            return None
        return told if told.clients is not None else None


def clients_of(advice: Advice) -> int:
    """The number of clients that an advice of a schedule is asked of."""
    return advice.asked.load or 1


def is_decided(advice: Advice) -> bool:
    """Whether it says to speculate, or not to."""
    return advice.finished and advice.decision != "undecided"


def folder_of(clients: int) -> str:
    """Name of its advice's folder."""
    return f"c{clients}"


def read_schedule(folder: Path, *, examine: bool = True) -> Schedule:
    """The schedule of a folder, with its advices: each examined, unless that is left to others.

    Raises `UsageError` that names the file and what is wrong in it.
    """
    path = folder / SCHEDULE_NAME
    found = read_record(
        Schedule,
        path,
        what="record of a schedule",
        made_by="specmeter advise --clients",
        max_bytes=_MAX_BYTES,
        inside=True,
    )
    clients = found.asked.clients
    if not clients or list(clients) != sorted(set(clients)):
        raise UsageError(
            f"{path}: is not a valid schedule (asked.clients: the numbers do not increase)",
            fix="pass a file made by `specmeter advise --clients`",
        )
    advices = list(_advices(folder, found, examine=examine))
    made_at = advices[0].made_at if advices else found.made_at
    found = found.model_copy(update={"advices": tuple(advices), "made_at": made_at})
    if not examine:
        return found
    from specmeter.advise.verify_advice import doubt_of, doubted, withheld

    doubt = doubt_of(folder) if found.finished else ""
    issued, _ = certificate_in(folder)
    gone = issued is not None and not set(issued.data) <= set(_parts(found))  # an advice that was there
    advices = [
        withheld(it) if gone or is_changed(folder, (SCHEDULE_NAME, _part(it))) else doubted(it, it.uncertified or doubt)
        for it in advices
    ]
    return found.model_copy(update={"advices": tuple(advices)})


def _parts(schedule: Schedule) -> list[str]:
    """Files that the certificate of a schedule covers."""
    return [SCHEDULE_NAME, *map(_part, schedule.advices)]


def _part(advice: Advice) -> str:
    return f"{folder_of(clients_of(advice))}/{CERTIFICATE_NAME}"


def inspect_schedule(folder: Path) -> Inspection:
    """Every advice inspected, and the record held against its certificate. Raises `UsageError` where it is none."""
    from specmeter.advise.verify_advice import found_in, inspect_advice, inspected

    schedule = read_schedule(folder, examine=False)
    found: list[Finding] = []
    verdicts: dict[str, Verdict] = {}
    for advice in schedule.advices:
        name = folder_of(clients_of(advice))
        inspection = inspect_advice(folder / name)
        verdicts[name] = inspection.certificate.verdict
        found += found_in(name, inspection.findings)
    answer = list(verdicts.values())
    return inspected(folder, _parts(schedule), verdicts, answer, found, finished=schedule.finished)


def amend_schedule(schedule: Schedule, folder: Path) -> None:
    """Keep the other programs that a certified schedule has lines for, load by load (see `amend`)."""
    from specmeter.advise.verify_advice import amend

    fit = not uncertified(folder) and not is_changed(folder, _parts(schedule))
    for advice in schedule.advices:
        amend(folder / folder_of(clients_of(advice)), advice.programs)
    if fit:
        certify_schedule(schedule, folder)


def certify_schedule(schedule: Schedule, folder: Path) -> None:
    """Issue the certificate of what has just been measured, behind earlier ones; of what is not finished none."""
    from specmeter.advise.verify_advice import certify

    if not schedule.finished:
        return
    issued, _ = certificate_in(folder)
    verdicts: dict[str, Verdict] = {folder_of(clients_of(it)): it.verdict or "valid" for it in schedule.advices}
    certify(folder, _parts(schedule), verdicts, schedule.verdict or "valid", issued.issues if issued else ())


def write_schedule(schedule: Schedule, folder: Path) -> None:
    """Write what was asked into its folder. Raises `UsageError` when that cannot be done."""
    alone = schedule.model_copy(update={"advices": ()})
    write_record(alone, folder / SCHEDULE_NAME, what="record of a schedule", inside=True)


def _advices(folder: Path, schedule: Schedule, *, examine: bool) -> Iterator[Advice]:
    for clients in schedule.asked.clients:
        place = folder / folder_of(clients)
        if sort_of(place) != "advice":
            continue
        advice = read_advice(place)
        loads = schedule.asked.clients if schedule.again_of is None else advice.asked.clients
        if (advice.asked.load, advice.asked.target, advice.asked.clients) != (clients, schedule.asked.target, loads):
            raise UsageError(
                f"{place}: contains the advice for another question than its schedule",
                fix="remove that folder and repeat the command, which measures it again",
            )
        yield _examined(advice, place) if examine else advice


def read_advised(folder: Path, *, examine: bool = True) -> Advice | Schedule:
    """The advice or the schedule of a folder, examined unless that is left to others. Raises `UsageError`."""
    if sort_of(folder) == "schedule":
        return read_schedule(folder, examine=examine)
    advice = read_advice(folder)
    return _examined(advice, folder) if examine else advice


def _examined(advice: Advice, folder: Path) -> Advice:
    from specmeter.advise.verify_advice import examined  # how advice is found; who looks at a run waits for none of it

    return examined(advice, folder)


def runs_of(folder: Path) -> list[Path]:
    """The runs that what a folder says rests on: of an advice the one that its answer is of, of a schedule one for each
    load, of a study all; a run itself. Raises `StoreError` where nothing was measured."""
    match sort_of(folder):
        case "schedule":
            advices = [(it, folder / folder_of(clients_of(it))) for it in read_schedule(folder, examine=False).advices]
            found = [run for advice, place in advices for run in _run_of(advice, place)]
        case "advice":
            found = _run_of(read_advice(folder), folder)
        case "study":
            found = [place for place in sorted(folder.iterdir()) if not is_link(place) and is_run(place)]
        case _:
            return [folder]
    if not found:
        raise StoreError(f"{folder}: nothing has been measured yet", fix="repeat the command that made it")
    return found


def find_single_run(reference: str) -> Path:
    """What `find_run` finds, where it rests on one run: that run. Raises `StoreError` for several."""
    found = runs_of(find_run(reference))
    if len(found) > 1:
        named = ", ".join(map(str, found))
        raise StoreError(f"{reference}: contains {len(found)} runs, but this needs one", fix=f"pass one of: {named}")
    return found[0]


def _run_of(advice: Advice, folder: Path) -> list[Path]:
    stage = advice.stage_of(advice.basis)
    run = None if stage is None else folder / stage.folder
    return [] if run is None or is_link(run) or not is_run(run) else [run]

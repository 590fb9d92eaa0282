"""One advice after the other, the fewest clients first, within one budget.

Each load may take an equal share of what is left of the budget, so what one did not need goes to those behind it.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.advice import AdviceQuestion
from specmeter.advise.advise import advise
from specmeter.advise.again import again
from specmeter.advise.grid import grid_of
from specmeter.advise.schedule import Schedule, certify_schedule, clients_of, folder_of, read_schedule, write_schedule
from specmeter.errors import EngineError, StoreError, UsageError
from specmeter.models.reference import ONLINE, Fetching
from specmeter.store.locate import sort_of
from specmeter.text import counted

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice
    from specmeter.advise.candidates import Candidates
    from specmeter.advise.observer import AdviseObserver


def advise_loads(
    asked: AdviceQuestion,
    candidates: Candidates,
    folder: Path,
    observer: AdviseObserver,
    *,
    fetching: Fetching = ONLINE,
) -> Schedule:
    """Find what is best at each of `asked.clients`, or continue with it where `folder` was left.

    Ctrl-C ends it with what is known so far. Raises as `advise` does, and says at how many clients; what was
    measured is kept then.
    """
    if (there := _finished(folder)) is not None:
        return there
    _begin(Schedule(asked=asked, made_at=time.time()), folder)
    spent = 0.0
    for number, clients in enumerate(asked.clients):
        share = max(1.0, (asked.budget_s - spent) / (len(asked.clients) - number))
        own = asked.model_copy(update={"load": clients, "budget_s": share})
        observer.load_starting(clients, share)
        with _told_of(clients):
            grid, place = grid_of(own, candidates), folder / folder_of(clients)
            found = advise(own, grid, place, observer, left_out=candidates.left_out, fetching=fetching)
        if found.why_undecided == "interrupted":
            break
        spent += found.seconds
    return _ended(folder)


def decided_loads(before: Path) -> tuple[Schedule, list[Advice]]:
    """A schedule, and its advices that decided something. Raises `UsageError` where none did."""
    old = read_schedule(before)
    decided = [it for it in old.advices if it.finished and it.decision != "undecided"]
    if not decided:
        raise UsageError(
            f"{before}: undecided for every number of clients, so there is nothing to check again",
            fix="finish it with the command that started it, or ask for a new one",
        )
    return old, decided


def again_loads(
    before: Path,
    folder: Path,
    observer: AdviseObserver,
    *,
    fetching: Fetching = ONLINE,
) -> Schedule:
    """Confirm what a schedule decided again, load by load, into `folder`; or continue with that. Loads at which nothing
    was decided are left out.

    Raises as `again` does, and `UsageError` for a schedule that decided nothing.
    """
    if (there := _finished(folder, before.resolve().name)) is not None:
        return there
    old, decided = decided_loads(before)
    asked = old.asked.model_copy(update={"clients": tuple(map(clients_of, decided))})
    _begin(Schedule(asked=asked, made_at=time.time(), again_of=before.resolve().name), folder)
    for it in decided:
        clients, name = clients_of(it), folder_of(clients_of(it))
        observer.load_starting(clients, it.asked.budget_s)
        with _told_of(clients):
            found = again(before / name, folder / name, observer, fetching=fetching)
        if found.why_undecided == "interrupted":
            break
    return _ended(folder)


def _finished(folder: Path, again_of: str | None = None) -> Schedule | None:
    """The schedule of a folder where it has come to its end: nothing of it is written again. Raises `StoreError`."""
    if sort_of(folder) != "schedule":
        return None
    there = read_schedule(folder)
    if there.again_of != again_of:
        raise StoreError(f"{folder}: contains another schedule", fix="choose another folder with --out")
    return there if there.finished else None


def _ended(folder: Path) -> Schedule:
    """The schedule as far as it has come, certified where that is the end."""
    certify_schedule(read_schedule(folder), folder)
    return read_schedule(folder)


def _begin(schedule: Schedule, folder: Path) -> None:
    """Begin a schedule in a folder, where it was not started. Raises `StoreError`."""
    if sort_of(folder) == "schedule":
        schedule = schedule.model_copy(update={"made_at": read_schedule(folder, examine=False).made_at})
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be written ({error.strerror})", fix="choose another folder with --out"
        ) from None
    write_schedule(schedule, folder)


@contextmanager
def _told_of(clients: int) -> Generator[None]:
    """Errors say at how many clients they arose."""
    try:
        yield
    except (UsageError, EngineError) as error:
        error.message = f"with {counted(clients, 'client')}: {error.message}"
        raise

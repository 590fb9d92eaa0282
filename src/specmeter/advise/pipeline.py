"""The course of an advice: screen, race, confirmation; within a budget, and gone on with where it was left.

specmeter-runs/advise-dense-20261121-201500/
    advice.json     what was asked, what became of every arm, and what is advised: written anew after every block
    grid.yaml       the experiment whose arms are the grid
    settings/       ordinary run folders; this one where settings of the engine are tried as well
    screen/
    race/
    confirm/

Whatever is decided is decided by what lies in these folders: a course that was interrupted reads them and goes on.

The course of a schedule: one advice after the other, the fewest clients first, within one budget.

Each load may take an equal share of what is left of the budget, so what one did not need goes to those behind it.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.advice import Advice, AdviceQuestion, Fate
from specmeter.advise.confirm import confirm
from specmeter.advise.folder import again, begun, choose_folder
from specmeter.advise.question import grid_of
from specmeter.advise.race import failed_arms, race
from specmeter.advise.schedule import Schedule, clients_of, folder_of, read_schedule, write_schedule
from specmeter.advise.screen import choose, explore, look, pilots
from specmeter.advise.session import AdviseSession, Silent, StagePlan, cell_s
from specmeter.advise.settings import settle, to_try
from specmeter.analysis.answer import least_units
from specmeter.errors import EngineError, StoreError, UsageError
from specmeter.models.reference import ONLINE, Fetching
from specmeter.numbers.estimates import above, bare
from specmeter.store import RunStore
from specmeter.store.locate import is_schedule
from specmeter.text import counted, duration

if TYPE_CHECKING:
    from specmeter.advise.advice import Decision, LeftOutDraft
    from specmeter.advise.candidates import Candidates
    from specmeter.advise.session import AdviseObserver
    from specmeter.experiments.file import LoadedExperiment


__all__ = ["Silent", "advise", "choose_folder"]

MOST_RACED = 3
"""Arms beside plain decoding, and one more where there are several kinds of text: most time of a race goes into arms
within a hair of one another."""


def advise(
    asked: AdviceQuestion,
    grid: LoadedExperiment,
    folder: Path,
    observer: AdviseObserver,
    *,
    left_out: Sequence[LeftOutDraft] = (),
    fetching: Fetching = ONLINE,
) -> Advice:
    """Find the best arm of a grid, or that none helps; or go on with it where `folder` was left.

    An advice that was begun keeps the grid that it was begun with. Ctrl-C ends it with the best answer so far, which
    says that it is interrupted. Raises `UsageError` for a budget that is too small, `ExperimentError`, `ModelError`,
    `StoreError` for a folder that does not belong to this question or to these models, and `EngineError` where plain
    decoding does not work.
    """
    advice = begun(asked, grid, folder, left_out)
    if advice.finished:
        return advice
    wide = asked.wide and not advice.settings
    changes = to_try(folder) if wide else ()
    ledger = AdviseSession(advice, folder, observer, changes=changes, fetching=fetching)
    try:
        if wide:
            settle(ledger)
            ledger = AdviseSession(ledger.advice, folder, observer, fetching=fetching)
        screen(ledger)
        raced = race(ledger)
        confirm(ledger, raced)
    except KeyboardInterrupt:
        ledger.interrupted()
    return ledger.advice


def screen(ledger: AdviseSession) -> None:
    """Plain decoding on the prompts to search by, and what every arm of the grid is expected to gain on them."""
    whole = ledger.searched
    baselines = [arm.id for arm in whole.work.arms.values() if arm.role == "baseline"]
    plan = StagePlan(
        "screen",
        "screen",
        (*baselines, *pilots(whole)),
        ledger.halves.search,
        ("design.blocks=1", "design.probe=off", "design.warmup=short", "design.controls=false"),
    )

    def then(store: RunStore) -> None:
        refuse_failing(ledger, store)
        refuse_too_small(ledger, store)
        explore(whole, store, host=None if whole.work.simulated else whole.host)

    ledger.carry_out(plan, then=then)
    if ledger.advice.fates:
        return
    with RunStore.open(ledger.folder / "screen", readonly=True) as store:
        outlooks = look(whole, store, goal=ledger.advice.asked.goal)
    kinds = {kind for it in outlooks for kind in it.by_kind}
    choice = choose(outlooks, most=MOST_RACED + (len(kinds) > 1))
    known = {it.arm.id: it for it in outlooks}
    kept = [
        Fate(
            arm_id=it.arm.id,
            predicted=it.predicted,
            by_kind=dict(it.by_kind),
            basis=it.basis,
            code="open",
            stage="screen",
        )
        for it in (known[arm_id] for arm_id in choice.kept)
    ]
    ledger.set_fates([*kept, *choice.fates])
    best = next(iter(kept), None) or max(choice.fates, key=expected, default=None)
    gains = bool(kept) and above(kept[0].predicted, 1)
    decision: Decision = "speculate" if gains else "undecided" if kept else "off"
    told = known[best.arm_id] if best else None
    ledger.answer(
        decision,
        "predicted",
        best.arm_id if best else None,
        best.predicted if best else None,
        tau=None if told is None or told.tau is None else bare(told.tau, "tokens/forward", "expected by the screen"),
    )


def refuse_failing(ledger: AdviseSession, store: RunStore) -> None:
    """Raise `EngineError` where plain decoding does not work."""
    why = failed_arms(store.rows()).get(ledger.baseline.id)
    if why is not None:
        raise EngineError(
            f"plain decoding failed: {why.splitlines()[0]}",
            fix=f"see the logs in {store.folder}, and `specmeter doctor`",
        )


def refuse_too_small(ledger: AdviseSession, store: RunStore) -> None:
    """Raise `UsageError` where the budget has no room for a block of two arms and the confirmation."""
    cell, budget_s = cell_s(store, ledger.baseline.id), ledger.advice.asked.budget_s
    need = ledger.spent() + cell * (2 + 2 * least_units(1))
    if need > budget_s:
        minutes = int(need * (len(ledger.advice.asked.clients) or 1) / 60) + 1  # loads share it
        raise UsageError(
            f"the budget of {duration(budget_s)} is too small: a session of plain decoding takes {duration(cell)}, "
            f"so one block and the confirmation need about {duration(need)} in all",
            fix=f"give --budget {minutes}m or more (what was measured is kept), or lower --max-tokens",
        )


def expected(fate: Fate) -> float:
    """The speedup that the screen expects; 0 for nothing."""
    return fate.predicted.point if fate.predicted is not None else 0.0


def advise_loads(
    asked: AdviceQuestion,
    candidates: Candidates,
    folder: Path,
    observer: AdviseObserver,
    *,
    fetching: Fetching = ONLINE,
) -> Schedule:
    """Find what is best at each of `asked.clients`, or go on with it where `folder` was left.

    Ctrl-C ends it with what is known so far. Raises as `course.advise` does, and says at how many clients; what was
    measured is kept then.
    """
    _begin(Schedule(asked=asked, made_at=time.time()), folder)
    spent = 0.0
    for number, clients in enumerate(asked.clients):
        share = max(1.0, (asked.budget_s - spent) / (len(asked.clients) - number))
        own = asked.model_copy(update={"load": clients, "budget_s": share})
        observer.load_starting(clients, share)
        with _told_of(clients):
            grid, place = grid_of(own, candidates), folder / folder_of(clients)
            found = advise(own, grid, place, observer, left_out=candidates.left_out, fetching=fetching)
        if _interrupted(found):
            break
        spent += found.seconds
    return read_schedule(folder)


def again_loads(
    before: Path,
    folder: Path,
    observer: AdviseObserver,
    *,
    fetching: Fetching = ONLINE,
) -> Schedule:
    """Confirm what a schedule decided anew, load by load, into `folder`; or go on with that. Loads at which nothing was
    decided are left out.

    Raises as `again.again` does, and `UsageError` for a schedule that decided nothing.
    """
    old = read_schedule(before)
    decided = [it for it in old.advices if it.finished and it.decision != "undecided"]
    if not decided:
        raise UsageError(
            f"{before}: this schedule decided nothing that could hold again",
            fix="finish it with the command that it was begun with, or ask anew",
        )
    asked = old.asked.model_copy(update={"clients": tuple(map(clients_of, decided))})
    _begin(Schedule(asked=asked, made_at=time.time(), again_of=before.resolve().name), folder)
    for it in decided:
        clients, name = clients_of(it), folder_of(clients_of(it))
        observer.load_starting(clients, it.asked.budget_s)
        with _told_of(clients):
            found = again(before / name, folder / name, observer, fetching=fetching)
        if _interrupted(found):
            break
    return read_schedule(folder)


def _begin(schedule: Schedule, folder: Path) -> None:
    """Begin a schedule in a folder, where it was not begun. Raises `StoreError`."""
    if is_schedule(folder):
        there = read_schedule(folder, examine=False)
        if there.again_of != schedule.again_of:
            raise StoreError(f"{folder}: holds another schedule", fix="name another folder with --out")
        schedule = schedule.model_copy(update={"made_at": there.made_at})
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be written ({error.strerror})", fix="name another folder with --out"
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


def _interrupted(found: Advice) -> bool:
    return found.why_undecided == "interrupted"

"""The stage of an advice that screens: the model answers without speculation, and every configuration is predicted.

Bench models and several clients have their prompts answered all at once; whole answers come one prompt after the other,
as many as a share of the budget allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from specmeter.advise.budget import MIN_SCREENED
from specmeter.advise.duel import in_turn, promise
from specmeter.advise.race import next_block
from specmeter.advise.screen import choose, explore, look, outcome_of, pilots, selection_bias
from specmeter.advise.session import AdviseSession
from specmeter.advise.stage import StagePlan
from specmeter.advise.standing import refuse_failing
from specmeter.errors import UsageError
from specmeter.host.telemetry import wait_for_calm
from specmeter.measure.calm import disturbance, gate_of
from specmeter.numbers.estimates import above, bare, scaled
from specmeter.record.measured import threads_beside
from specmeter.store import RunStore
from specmeter.text import duration

if TYPE_CHECKING:
    from specmeter.advise.advice import Decision
    from specmeter.experiments.schedule import Cell
    from specmeter.laboratory.run import Prepared
    from specmeter.store import RunReader

MAX_RACED = 3
"""Arms next to no speculation, and one more where there are several kinds of text: most time of a race goes into arms
within a hair of one another."""


def screen(session: AdviseSession) -> None:
    """Decoding without speculation on the prompts to search by, and what every arm of the grid is expected to gain on
    them."""
    whole = session.searched
    baselines = [arm.id for arm in whole.work.arms.values() if arm.role == "baseline"]
    plan = StagePlan(
        "screen",
        "screen",
        (*baselines, *pilots(whole)),
        session.halves.search,
        {"blocks": 1, "disturbed": "keep", **session.keeping},
    )

    def next_cells(store: RunStore) -> None:
        refuse_failing(store, store.rows(), session.baseline.id)
        refuse_busy(session, store)
        price(session, whole, store)

    session.carry_out(plan, next_cells=next_cells)
    shortlist(session, whole)


def price(session: AdviseSession, whole: Prepared, store: RunStore) -> None:
    """What steps cost, and what draft models say of the answers, on record of a screen."""
    host = None if whole.work.simulated else whole.host
    explore(whole, store, host=host, budget_s=session.advice.asked.budget_s, tell=session.observer.looking_ahead)


SCREENED = 0.3
"""Share of the budget after which no further prompt is answered to search by."""
MAX_SCREENED = 8


def screen_answers(session: AdviseSession) -> float:
    """Write whole answers without speculation, one prompt of each type after the other, as many as a share of the
    budget allows, and price every configuration on them. Seconds that an answer takes, in the median."""
    prompts = in_turn([it for it in session.prompts if it.id in set(session.halves.search)])
    kinds = len({it.kind for it in session.prompts})
    prompts = prompts[: max(MAX_SCREENED, kinds)]
    whole = session.on(prompts)
    baselines = [arm.id for arm in whole.work.arms.values() if arm.role == "baseline"]
    plan = StagePlan(
        "screen",
        "screen",
        (*baselines, *(() if session.advice.asked.urls else pilots(whole))),
        tuple(prompts),
        {"blocks": len(prompts), "stopping": "decided", "disturbed": "keep", **session.keeping},
        tuple((it,) for it in prompts),
    )
    experiment = session.part(plan).experiment
    before = sum(it.seconds for it in session.advice.stages if it.stage == "settings")

    def next_cells(store: RunStore) -> Sequence[Cell] | None:
        refuse_failing(store, store.rows(), session.baseline.id)
        block = max(turn.block for turn in store.cells()) + 1
        spent = session.spent() - before
        late = spent + spent / block > SCREENED * (session.advice.asked.budget_s - before)
        if block < experiment.design.blocks and (block < MIN_SCREENED or not late):
            return next_block(experiment, list(store.arms()), block)
        refuse_busy(session, store)
        price(session, session.on(answered(store)), store)
        return None

    session.carry_out(plan, next_cells=next_cells)
    with RunStore.open(session.folder / "screen", readonly=True) as store:
        names = answered(store)
        times = [row.wall_ms / 1000 for row in store.rows() if row.arm_id == session.baseline.id and row.wall_ms]
    shortlist(session, session.on(names))
    return median(times)


def answered(store: RunReader) -> list[str]:
    """Prompts that a screen has an answer to."""
    return list(dict.fromkeys(row.prompt_id for row in store.rows() if row.status == "ok"))


def shortlist(session: AdviseSession, whole: Prepared) -> None:
    """What is expected of every configuration by the screen, and which ones may win."""
    if session.advice.outcomes:
        return
    with RunStore.open(session.folder / "screen", readonly=True) as store:
        forecasts = look(whole, store, goal=session.advice.asked.goal)
    kinds = {kind for it in forecasts for kind in it.by_kind}
    choice = choose(forecasts, most=MAX_RACED + (len(kinds) > 1))
    known = {it.arm.id: it for it in forecasts}
    kept = [outcome_of(known[arm_id], "open") for arm_id in choice.kept]
    session.set_outcomes([*kept, *choice.outcomes])
    best = next(iter(kept), None) or max(choice.outcomes, key=promise, default=None)
    best_of_many = (
        None if best is None or best.predicted is None else scaled(best.predicted, 1 / selection_bias(forecasts))
    )
    gains = bool(kept) and above(best_of_many, 1)
    decision: Decision = "speculate" if gains else "undecided" if kept else "off"
    told = known[best.arm_id] if best else None
    session.answer(
        decision,
        "predicted",
        best.arm_id if best else None,
        best_of_many,
        tau=None if told is None or told.tau is None else bare(told.tau, "tokens/forward", "expected by the screen"),
    )


def refuse_busy(session: AdviseSession, store: RunStore) -> None:
    """Wait for calm where others disturbed the screen, which counts all the same: it only says what is worth a race.

    Raises `UsageError` that says who takes the machine, where that does not end.
    """
    host, design = session.advice.host, session.whole.experiment.design
    if host is None or design.disturbed == "keep":
        return
    found = disturbance(store, (0, 0), session.arms, host)
    if found is None:
        return
    who = str(found.what)
    most = f"up to {duration(session.patience_s)} beyond the budget of {duration(session.advice.asked.budget_s)}"
    session.observer.note(f"{who}; waiting for calm, {most}")
    if not wait_for_calm(session.patience_s, gate_of(session.arms, list(store.sessions()), host)):
        now = max((it.engine.threads or host.logical_cores for it in session.arms.values()), default=None)
        threads = threads_beside(found.mean_percent, host, now) if found.cause == "others" else 0
        raise UsageError(
            f"busy machine: {who} while the baseline was measured, and still is",
            fix="wait until it ends and run the same command again"
            + (f", or leave it its cores with -t {threads}" if threads else "")
            + ", or measure anyway with SPECMETER_DISTURBED=keep and a longer --budget (the answer is then suspect)",
        )

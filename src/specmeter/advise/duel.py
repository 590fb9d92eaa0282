"""The confirmation on whole answers: each prompt that nothing was chosen by is answered once by each finalist and once
without speculation, one after the other, so that a block is one prompt.

The first tokens of a real answer say little about the rest, so answers are never cut. They take too long for a search
by measurement: the screen knows by replay what each configuration drafts on whole answers, and one or two finalists are
measured.

The speedup is that of all tokens over all time (`numbers.whole_answers`), with one interval for these prompts and one
for others like them. What is decided:

- a gain, if the interval for these prompts lies above 1 and the point is not within 2 % of it;
- no speculation, if every finalist is bounded below a gain of 2 %, and nothing else is predicted to gain more. The
  bound is what was measured, or, if that is not a gain, the same together with what a replay of these answers predicts;
- undecided otherwise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from specmeter.advise.advice import LEAVES_OFF, AdviceOfKind
from specmeter.advise.confirm import DECISIONS, FIRST, Confirmed, Ruling, ends, finish
from specmeter.advise.screen import explore, look
from specmeter.advise.stage import StagePlan, keeps_servers
from specmeter.advise.standing import counted
from specmeter.analysis.reading import read_run
from specmeter.analysis.sessions import reweighted
from specmeter.numbers.estimates import from_log
from specmeter.numbers.margin import MARGIN
from specmeter.numbers.stats import Pool, t_critical
from specmeter.numbers.whole_answers import MIN_ANSWERS, combined, deviation_of_answers, speedup_of_answers
from specmeter.store import RunStore

if TYPE_CHECKING:
    from pathlib import Path

    from specmeter.advise.advice import ArmOutcome, Decision, Goal
    from specmeter.advise.screen import ArmForecast
    from specmeter.advise.session import AdviseSession
    from specmeter.experiments.schedule import Cell
    from specmeter.laboratory.run import Prepared
    from specmeter.numbers.stats import Pair
    from specmeter.record import Estimate, Prompt
    from specmeter.store import RequestRow, RunReader

MAX_ANSWERS = 8
"""Of each finalist. With more, an interval for these prompts hardly becomes narrower."""
CHECKED = 4
"""The same of one that is predicted to lose clearly: a check that the prediction is not wrong altogether."""
MAX_UNKNOWN = 4
"""Finalists, if nothing can be predicted: servers that already run."""
CLEAR_LOSS = 0.9
"""A predicted interval that ends below this needs no more than that check."""
SERVERS = 0.006
"""Standard deviation of the logarithm of a speedup by which two servers that are kept for all answers differ from two
others: 0.4 % each (`benchmarks/servers_differ.py`)."""
START_S = 5.0
"""Seconds that a server takes until it answers, if none was seen."""
APART = 1.05
"""Prompt types whose speedups differ by this factor have a line each."""
ROOM = 0.95
"""Share of the time that is left which is planned for."""


class Candidate(NamedTuple):
    """A configuration that is measured."""

    outcome: ArmOutcome
    point: float
    """Predicted speedup; 1 if there is none."""


def duel(session: AdviseSession, answer_s: float) -> None:
    """Measure the finalists on whole answers and decide; the advice is finished then. `answer_s`: seconds that an
    answer takes without speculation."""
    finalists = finalists_of(session.advice.outcomes, session)
    if not finalists:
        session.answer("undecided", "predicted", None, None, finished=True, why_undecided="failed")
        return
    if RunStore.exists(session.folder / FIRST):
        with RunStore.open(session.folder / FIRST, readonly=True) as store:
            known = {arm.id for arm in store.arms()}
            finalists = [it for it in finalists if it.outcome.arm_id in known]
            turns = store.experiment().only.turns
    else:
        prompts = in_turn([it for it in session.prompts if it.id in set(session.halves.other)])
        finalists, turns = with_room(session, finalists, prompts, answer_s)
    if len(turns) < MIN_ANSWERS or not finalists:
        by_prediction(session)
        return
    arms = [it.outcome.arm_id for it in finalists]
    plan = StagePlan(
        "confirm",
        FIRST,
        (*session.with_baselines(arms), *arms),
        tuple(dict.fromkeys(prompt for turn in turns for prompt in turn)),
        {"blocks": len(turns), **session.keeping, **session.patience},
        turns,
    )
    found = found_of(session, measure(session, plan), arms, session.folder / "screen")
    session.change_outcomes(
        {arm: {"confirmed": it.told.speedup, "code": "open", "stage": "confirm"} for arm, it in found.items()}
    )
    best = max(found.values(), key=lambda it: (it.gains, it.told.speedup.point if it.told.speedup else 0.0))
    decision, why = decide(best, found, () if best.gains else missed(session, found))
    finish(session, decision, best.told, why, kinds_of(session, found))


def measure(session: AdviseSession, plan: StagePlan) -> Prepared:
    """Carry out a confirmation, and say what it measured; draft models read its answers, so that each has an expected
    speedup."""
    part = session.part(plan)

    def read(store: RunStore) -> Sequence[Cell] | None:
        explore(part, store, host=None, priced=False)

    session.servers.renew()
    session.carry_out(plan, next_cells=read, thorough=True)
    return part


# --- what is measured ------------------------------------------------------------------------------------------------


def finalists_of(outcomes: Sequence[ArmOutcome], session: AdviseSession) -> list[Candidate]:
    """The configuration with the best prediction, the simplest of those that are as good; then one of another drafter,
    or one that is clearly better on one prompt type, if it may win there. What has no prediction is measured, too."""
    ranked = sorted((it for it in outcomes if it.code != "failed"), key=promise, reverse=True)
    if not ranked:
        return []
    first = next((it for it in ranked if it.code == "open"), ranked[0])
    if promise(first) < promise(ranked[0]) / (1 + MARGIN):
        first = ranked[0]
    kept = [first]
    arms = session.arms
    for it in ranked:
        if it.predicted is None and it.code == "open" and it is not first and len(kept) < MAX_UNKNOWN:
            kept.append(it)
        may_win = it.predicted is not None and ends(it.predicted)[1] > max(1.0, promise(first)) * (1 + MARGIN)
        other = arms[it.arm_id].draft != arms[first.arm_id].draft
        if len(kept) == 1 and it is not first and ((other and may_win) or _better_somewhere(it, first)):
            kept.append(it)
    return [Candidate(it, promise(it) or 1.0) for it in kept]


def promise(outcome: ArmOutcome) -> float:
    """The speedup that the screen expects; 0 for nothing."""
    return outcome.predicted.point if outcome.predicted is not None else 0.0


def _better_somewhere(outcome: ArmOutcome, than: ArmOutcome) -> bool:
    """Whether it is predicted to gain clearly more on a prompt type."""
    return any(
        mine.point > 1.03 * max(1.0, than.by_kind[kind].point)
        for kind, mine in outcome.by_kind.items()
        if kind in than.by_kind
    )


def in_turn(prompts: Sequence[Prompt]) -> list[str]:
    """Ids of prompts, one of each prompt type after the other; calls of sessions from anywhere in them, so that the
    first few are not all from the beginning."""
    by_kind: dict[str, list[str]] = {}
    for prompt in sorted(prompts, key=lambda it: it.sha256 if it.turn is not None else ""):
        by_kind.setdefault(prompt.kind, []).append(prompt.id)
    return [it for row in zip_longest(*by_kind.values()) for it in row if it is not None]


def with_room(
    session: AdviseSession, finalists: Sequence[Candidate], prompts: Sequence[str], answer_s: float
) -> tuple[list[Candidate], tuple[tuple[str, ...], ...]]:
    """As many finalists as there is time for, and the prompt of each block; fewer than `MIN_ANSWERS` if there is
    none."""
    kept, start_s = list(finalists), 0.0 if session.advice.asked.urls else START_S
    while kept:
        each = answer_s * (1 + sum(1 / it.point for it in kept))
        left = ROOM * session.left() - start_s * (1 + len(kept))
        count = min(MAX_ANSWERS, int(left / each)) if each > 0 else MAX_ANSWERS
        lost = all(it.outcome.predicted is not None and ends(it.outcome.predicted)[1] < CLEAR_LOSS for it in kept)
        count = min(count, CHECKED) if lost else count
        if count >= MIN_ANSWERS + (len(kept) > 1):
            least = max(MIN_ANSWERS, min(CHECKED, count))
            own = list(prompts[:count])
            while len(own) < least:  # few prompts are asked again
                own += prompts[: least - len(own)]
            return kept, tuple((it,) for it in own)
        kept.pop()
    return [], ()


def by_prediction(session: AdviseSession) -> None:
    """No time is left to measure: what the screen says is the answer."""
    best = max(session.advice.outcomes, key=promise, default=None)
    if best is None:
        session.answer("undecided", "predicted", None, None, finished=True, why_undecided="failed")
        return
    bounded = best.predicted is not None and ends(best.predicted)[1] <= 1 + MARGIN
    session.answer(
        "off" if bounded else "undecided",
        "predicted",
        best.arm_id,
        session.advice.speedup or best.predicted,
        finished=bounded,
        why_undecided="" if bounded else "budget",
    )


# --- what it says ----------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """One prompt, answered by both sides in one block."""

    prompt: str
    kind: str
    pair: Pair
    """(configuration, no speculation): tokens after the first, and their ms."""


@dataclass(frozen=True)
class Finalist:
    """What the confirmation says of one configuration."""

    told: Confirmed
    answers: Sequence[Answer]
    expected: Sequence[float] | None
    """The speedup that a replay on each answer lets expect; None if any has none."""

    @property
    def gains(self) -> bool:
        return self.told.ruling in ("gains", "here")


def found_of(
    session: AdviseSession, part: Prepared, arms: Sequence[str], priced: Path, *, place: str = FIRST
) -> dict[str, Finalist]:
    """By the run of a confirmation, which `part` describes; `priced` is the run that knows what steps cost. Raises
    `StoreError`."""
    goal = session.advice.asked.goal
    report = read_run(session.folder / place)
    busy = any(not it.again for it in report.disturbances)
    servers = SERVERS if keeps_servers(session.whole) else 0.0
    with RunStore.open(session.folder / place, readonly=True) as store:
        base = {arm: part.work.arms[arm].baseline_id or "" for arm in arms}
        measured = {arm: answers_of(store, arm, base[arm], goal, session.prompts) for arm in arms}
        looks = _looks(part, store, priced, goal)
    found: dict[str, Finalist] = {}
    for arm in arms:
        verdict, answers = report.headline(arm), measured[arm]
        forecast = looks.get(arm)
        known = {} if forecast is None else {prompt: it.point for prompt, it in forecast.by_kind.items()}
        replayed = [known[it.prompt] for it in answers if known.get(it.prompt)]
        alone = replayed if len(replayed) == len(answers) else None
        here, over = None, None
        if answers:
            pairs, prompts = [it.pair for it in answers], [it.prompt for it in answers]
            here, over = speedup_of_answers(pairs, alone, prompts=prompts, among=len(arms), servers=servers)
        summary = next((it for it in report.summary.arms if it.arm_id == arm), None)
        predicted = None if forecast is None or alone is None else forecast.predicted
        told = Confirmed(
            arm,
            here,
            over,
            summary and summary.tau,
            verdict,
            "invalid" if verdict in (None, "invalid") else ruled(here, over, predicted),
            place,
            tuple(it.check for it in report.because(arm)),
            busy=busy,
        )
        found[arm] = Finalist(told, answers, alone)
    return found


def answers_of(store: RunReader, arm: str, baseline: str, goal: Goal, drawn: Sequence[Prompt] = ()) -> list[Answer]:
    """Each answer that both sides completed in a block; with the goal `latency` prompts are included. Calls of recorded
    sessions stand for all of `drawn`, else for those of the run."""
    rows = {(it.arm_id, it.block, it.prompt_id): it for it in store.rows() if it.status == "ok"}
    prompts = {prompt.id: prompt for prompt in store.prompts()}
    calls = any(it.turn is not None for it in prompts.values())
    found: list[Answer] = []
    for (arm_id, block, prompt), mine in rows.items():
        plain = rows.get((baseline, block, prompt))
        if arm_id != arm or plain is None:
            continue
        own, other = counted(mine, goal), counted(plain, goal)
        if own is not None and other is not None:
            kind = prompts[prompt].kind if prompt in prompts else mine.kind
            sides = _whole_calls(mine, plain, prompts[prompt]) if calls else (own, other)
            found.append(Answer(prompt, kind, sides))
    return _weighted(found, drawn or list(prompts.values())) if calls else found


def _whole_calls(mine: RequestRow, plain: RequestRow, prompt: Prompt) -> Pair:
    """A call of a recorded session on both sides, as if its answer were as long as the recorded one."""
    recorded = prompt.turn.reply_tokens if prompt.turn is not None else None
    tokens = max(2, recorded or plain.predicted_n or 0) - 1

    def side(row: RequestRow) -> Pool:
        made = max(1, (row.predicted_n or 0) - 1)
        return Pool(tokens, (row.prompt_ms or 0.0) + (row.predicted_ms or 0.0) / made * tokens)

    return side(mine), side(plain)


def _weighted(answers: Sequence[Answer], drawn: Sequence[Prompt]) -> list[Answer]:
    """Calls counted as often as those of their depth and kind come among all that were drawn from the sessions."""
    times = Counter(it.prompt for it in answers)
    known = reweighted((it for it in drawn if it.id in times), drawn)
    found: list[Answer] = []
    for it in answers:
        turn = known[it.prompt].turn if it.prompt in known else None
        weight = (1.0 if turn is None else turn.weight) / times[it.prompt]
        own, other = (Pool(weight * side.tokens, weight * side.ms) for side in it.pair)
        found.append(it._replace(pair=(own, other)))
    return found


def _looks(part: Prepared, store: RunReader, priced: Path, goal: Goal) -> dict[str, ArmForecast]:
    """What the replay of these very answers lets expect of each configuration, prompt by prompt and of all."""
    if not RunStore.exists(priced):
        return {}
    with RunStore.open(priced, readonly=True) as costs:
        return {it.arm.id: it for it in look(part, store, goal=goal, priced=costs, by_prompt=True)}


def ruled(here: Estimate | None, over: Estimate | None, predicted: Estimate | None) -> Ruling:
    """What a speedup shows, by its intervals for these prompts and for others like them, and by what a replay of the
    same answers predicts."""
    low, high = ends(here)
    if here is None or math.isinf(high):
        return "open"
    if low > 1 / (1 + MARGIN) and high < 1 + MARGIN:
        return "same"
    if low > 1 and here.point >= 1 + MARGIN / 2:
        return "gains" if ends(over)[0] > 1 else "here"
    # A prediction that is off by 5 % says so of nothing: it may not deny a gain that was measured.
    bound = min(high, ends(combined(here, predicted if here.point <= 1 else None))[1])
    return "none" if bound <= 1 + MARGIN else "open"


def decide(best: Finalist, found: Mapping[str, Finalist], missed: Sequence[str]) -> tuple[Decision, str]:
    """(decision, why it is open); `missed` may gain and were not measured."""
    told = best.told
    match told.ruling:
        case "invalid":
            return "undecided", told.why_open
        case "gains" | "here":
            return DECISIONS[told.ruling], ""
        case _:
            pass
    if any(it.told.ruling not in ("same", "none") for it in found.values()):
        return "undecided", told.why_open
    if missed:
        return "undecided", "budget"
    return ("no-difference" if told.ruling == "same" else "off"), ""


def missed(session: AdviseSession, found: Mapping[str, Finalist]) -> list[str]:
    """Configurations that were not measured and may gain 2 % or more over the best one that was: by their replays on
    all answers, those of the confirmation included, held to what its finalists showed about the cost of their steps.
    All of them where nothing is predicted."""
    goal, arms = session.advice.asked.goal, session.arms
    best = max((it.told.speedup.point for it in found.values() if it.told.speedup is not None), default=1.0)
    with (
        RunStore.open(session.folder / "screen", readonly=True) as screen,
        RunStore.open(session.folder / FIRST, readonly=True) as store,
    ):
        plain = [_plain_ms(it, session.baseline.id, goal) for it in (screen, store)]
        names = list(dict.fromkeys(row.prompt_id for row in store.rows()))
        later = {it.arm.id: it for it in look(session.on(names), store, goal=goal, priced=screen)}
    held: dict[str | None, float] = {}
    for arm, it in found.items():
        known = later.get(arm)
        if it.told.speedup is not None and known is not None and known.point and known.acceptance is not None:
            held[arms[arm].draft] = it.told.speedup.point / known.point
    unmeasured = [it for it in session.advice.outcomes if it.arm_id not in found and it.code != "failed"]
    if not any(map(promise, session.advice.outcomes)):
        return [it.arm_id for it in unmeasured]
    open_ones: list[str] = []
    for outcome in unmeasured:
        sooner, other = promise(outcome), later.get(outcome.arm_id)
        if not sooner:
            continue
        both = sooner
        if other is not None and other.acceptance is not None and other.point:
            both = sum(plain) / (plain[0] / sooner + plain[1] / other.point)
        if both * held.get(arms[outcome.arm_id].draft, 1.0) > max(1.0, best) * (1 + MARGIN):
            open_ones.append(outcome.arm_id)
    return open_ones


def _plain_ms(store: RunReader, baseline: str, goal: Goal) -> float:
    own = (counted(row, goal) for row in store.rows() if row.arm_id == baseline and row.status == "ok")
    return sum(it.ms for it in own if it is not None)


def kinds_of(session: AdviseSession, found: Mapping[str, Finalist]) -> tuple[AdviceOfKind, ...]:
    """What is best on each prompt type, if they differ in it: the measured answers of that type, with what a replay
    leaves unexplained of all answers as the error of each."""
    kinds = list(dict.fromkeys(it.kind for finalist in found.values() for it in finalist.answers))
    told: list[AdviceOfKind] = []
    for kind in kinds if len(kinds) > 1 else ():
        among = len(found) * len(kinds)
        each = {arm: known for arm, it in found.items() if (known := on_kind(it, kind, among=among)) is not None}
        if not each:
            continue
        arm, speedup = max(each.items(), key=lambda it: it[1].point)
        decision = DECISIONS.get(ruled(speedup, None, None), "undecided")
        named = None if decision in LEAVES_OFF else session.arms[arm]
        told.append(AdviceOfKind(kind=kind, decision=decision, arm=named, speedup=speedup))
    points = [it.speedup.point for it in told if it.speedup is not None]
    return tuple(told) if points and max(points) > APART * min(points) else ()


def on_kind(finalist: Finalist, kind: str, *, among: int) -> Estimate | None:
    """The speedup on the answers of a prompt type."""
    mine = [it.pair for it in finalist.answers if it.kind == kind]
    n = len(finalist.answers)
    if not mine or n < MIN_ANSWERS:
        return None
    arm, plain = ([sum(part) for part in zip(*side, strict=True)] for side in zip(*mine, strict=True))
    log = math.log(arm[0] / arm[1]) - math.log(plain[0] / plain[1])
    sd = deviation_of_answers([it.pair for it in finalist.answers], finalist.expected)
    ms = [it.ms for it, _ in mine]
    half = t_critical(n - 1, 1 - 0.05 / among) * sd * math.hypot(*ms) / sum(ms)
    method = f"all tokens over all time of {len(mine)} whole answers; the error is that of all {n} answers"
    return from_log(log, half, "x", method, n=len(mine), of="answers")

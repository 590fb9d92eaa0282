"""moe-twin: what changes if a dense model's feed-forward networks become experts behind a router.

Each rule compares cells of `cells`: the same text, draft and draft length on two models that compute the same. A cell
has its interval over blocks in which both were measured in turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from specmeter.messages import Message
from specmeter.numbers.crossing import reach
from specmeter.numbers.estimates import above, below
from specmeter.numbers.stats import STUDENT, simultaneous
from specmeter_studies.library.moe_twin.cells import (
    DENSE,
    SINGLE,
    Cell,
    at_loads,
    cells,
    kernel_cells,
    over_blocks,
    role,
    union_of,
)
from specmeter_studies.telling import by_counts, decided, quoted, several

if TYPE_CHECKING:
    from specmeter.record import Estimate
    from specmeter_studies.study import ArmResult, Found, StudyData

NEAR = 0.05
"""What `within 5 %` is."""
LEAST = 0.02
"""A speedup that falls by less than this where the union doubles does not fall for any practical purpose."""
_SHOWN = 6
NO_CELL = Message("moe-twin.no_cell")


def standing(found: Sequence[Cell]) -> list[Cell]:
    """Cells on which a ruling may rest."""
    return [it for it in found if it.stands]


# --- is it a controlled comparison? -----------------------------------------------------------------------------------


def same_texts(data: StudyData) -> Found:
    """Whether with the same drafts every model made of the dense one generates as many tokens per step, within `NEAR`.

    Greedy counts of these prompts: nothing about them is uncertain, and few prompts say nothing of others.
    """
    sound = [it for it in _ordered(cells(data)) if it.line.stands and it.base.stands]
    known = [(it, it.steps) for it in sound if it.steps is not None]
    if not known:
        return "cannot tell", NO_CELL
    apart = [(it, steps) for it, steps in known if not 1 - NEAR <= steps <= 1 + NEAR]
    shown = [Message("moe-twin.apart", name=it.name, ratio=steps) for it, steps in apart]
    equal, of = equal_tokens(data, {it.name for it in data.models if it.experts})
    same = sum(it.same_steps for it, _ in known)
    told = Message(
        "moe-twin.texts", same=same, n=len(known), apart=several(shown) if shown else "-", equal=equal, of=of
    )
    return by_counts("contradicted" if apart else "supported", told)


def equal_tokens(data: StudyData, twins: set[str]) -> tuple[int, int]:
    """(tokens of the twins' answers before they part from the dense model's, tokens in all)."""
    dense = {(it.part, it.prompt): it.tokens for it in data.answers if role(it.target) == DENSE}
    equal = of = 0
    for it in data.answers:
        other = dense.get((it.part, it.prompt))
        if it.target in twins and other is not None:
            shorter = min(len(other), len(it.tokens))
            same = next((n for n in range(shorter) if other[n] != it.tokens[n]), shorter)
            equal, of = equal + same, of + shorter
    return equal, of


def kernel(data: StudyData) -> Found:
    """Whether an MoE with one expert, which has no choice, gains what the dense model gains, within `NEAR`."""
    return _alike([it for it in cells(data) if role(it.line.target) == SINGLE])


def size(data: StudyData) -> Found:
    """Whether the dense model of the size that two active experts have gains what the dense model gains."""
    return _alike([it for it in cells(data) if not it.model.experts])


def _alike(found: Sequence[Cell]) -> Found:
    kept = standing(found)
    if not kept:
        return "cannot tell", NO_CELL
    ratios = [it.per_step for it in kept if it.per_step is not None]
    inside = sum(above(it, 1 - NEAR) and below(it, 1 + NEAR) for it in ratios)
    wide = [_among(it, len(ratios)) for it in ratios]
    outside = sum(below(it, 1 - NEAR) or above(it, 1 + NEAR) for it in wide)
    told = Message("moe-twin.alike", inside=inside, outside=outside, n=len(kept), shown=_shown(kept))
    return decided(supported=inside == len(kept), contradicted=outside > 0), told


# --- is it the union? -------------------------------------------------------------------------------------------------


def falls(data: StudyData) -> Found:
    """Whether among twins that choose one expert of several, at the same draft and length, the speedup falls as the
    union grows: the twin with a single expert differs from them by more than its union.

    Twins with more experts have larger files as well, of which a cache holds less.
    """
    return _falls(data, lambda it: (it.method, it.line.gamma))


def falls_at_equal_size(data: StudyData) -> Found:
    """The same among twins of one form: same weights, file size and code, other numbers in the router."""
    return _falls(data, lambda it: (it.method, it.line.gamma, it.model.experts))


def _falls(data: StudyData, alike: Callable[[Cell], object]) -> Found:
    """By slopes of ln(speedup) against ln(union) within cells that are alike, block by block, at equal tokens per step:
    whether the speedup falls by more than `LEAST` where the union doubles."""
    slopes: list[tuple[str, Estimate]] = []
    known = [it for it in standing(cells(data)) if it.routed and it.model.experts_used == 1 and it.reads is not None]
    for part in dict.fromkeys(it.part for it in known):
        groups: dict[object, list[Cell]] = {}
        for it in known:
            if it.part == part:
                groups.setdefault(alike(it), []).append(it)
        several_of = [it for it in groups.values() if len(it) > 1]
        here = [it for group in several_of for it in group]
        blocks = set[int].intersection(*(set(it.step_logs) for it in here)) if here else set[int]()
        doubled = {it: slope * math.log(2) for it in sorted(blocks) if (slope := _slope(several_of, it)) is not None}
        if here and (found := over_blocks(doubled, here[0].line.looks)) is not None and found.low is not None:
            slopes.append((part, found))
    if not slopes:
        return "cannot tell", Message("moe-twin.one_union")
    told = [Message("moe-twin.slope", part=part, twice=quoted(it, "x")) for part, it in slopes]
    falling = sum(below(it, 1 - LEAST) for _, it in slopes)
    flat = sum(above(_among(it, len(slopes)), 1 - LEAST) for _, it in slopes)
    return decided(supported=falling == len(slopes), contradicted=flat > 0), Message("moe-twin.slopes", parts=told)


def _slope(groups: Sequence[Sequence[Cell]], block: int) -> float | None:
    """Least squares within groups; None where unions do not differ."""
    across = along = 0.0
    for group in groups:
        x = np.array([math.log(it.reads or 1.0) for it in group])
        y = np.array([it.step_logs[block] for it in group])
        across += float(((x - x.mean()) * (y - y.mean())).sum())
        along += float(((x - x.mean()) ** 2).sum())
    return across / along if along > 1e-4 else None


def predicted(data: StudyData) -> Found:
    """Whether ratios to the dense model are as predicted from its own steps, the union and the bytes of an expert."""
    return _as_predicted([it for it in cells(data) if it.routed])


def predicted_of_single(data: StudyData) -> Found:
    """The same of ratios to the MoE with one expert: the engine's code for experts is on both sides."""
    return _as_predicted(kernel_cells(data))


def _as_predicted(found: Sequence[Cell]) -> Found:
    """Of cells with a loss of more than `NEAR`, predicted or measured: elsewhere no effect at all would do as well."""
    known = [
        (it, of)
        for it in standing(found)
        if (of := it.of_predicted) is not None
        and of.low is not None
        and ((it.predicted or 1) < 1 - NEAR or below(it.per_step, 1 - NEAR))
    ]
    if not known:
        return "cannot tell", Message("moe-twin.no_prediction")
    inside = sum(above(of, 1 - NEAR) and below(of, 1 + NEAR) for _, of in known)
    wide = [_among(of, len(known)) for _, of in known]
    outside = sum(below(of, 1 - NEAR) or above(of, 1 + NEAR) for of in wide)
    above_it = sum(of.point > 1 for _, of in known)
    worst, off = max(known, key=lambda it: abs(math.log(it[1].point)))
    told = Message(
        "moe-twin.predicted",
        inside=inside,
        outside=outside,
        n=len(known),
        above=above_it,
        typical=100 * math.exp(float(np.median([abs(math.log(of.point)) for _, of in known]))) - 100,
        worst=worst.name,
        measured=quoted(worst.per_step, "x"),
        predicted=worst.predicted,
        off=quoted(off, "x"),
    )
    return decided(supported=inside == len(known), contradicted=outside > 0), told


# --- what follows -----------------------------------------------------------------------------------------------------


def crosses(data: StudyData) -> Found:
    """Whether some draft gains on the dense model and loses on its twin; contradicted if each of them loses on the
    dense model or gains on the twin."""
    known = [it for it in standing(cells(data)) if it.routed and it.line.speedup and it.base.speedup]
    gaining = [it for it in known if above(_among(it.base.speedup, len(known)), 1)]
    if not gaining:
        return "cannot tell", Message("moe-twin.none_gains", n=len(known))
    lost = [it for it in gaining if below(_among(it.line.speedup, len(known)), 1)]
    kept = [it for it in gaining if above(it.line.speedup, 1)]
    told = Message(
        "moe-twin.crosses",
        lost=len(lost),
        kept=len(kept),
        n=len(gaining),
        shown=_speedups(lost or gaining),
        reaches=[*_reaches(data)] or "-",
    )
    none = all(below(it.base.speedup, 1) or above(it.line.speedup, 1) for it in known)
    return decided(supported=bool(lost), contradicted=none), told


def _reaches(data: StudyData) -> Iterator[Message]:
    """Up to which draft length each model gains, and the union there."""
    curves: dict[tuple[str, str, str], dict[int, tuple[Mapping[int, float], ArmResult]]] = {}
    for it in standing(cells(data)):
        for target, logs, line in (
            (it.line.target, it.speedup_logs, it.line),
            (it.base.target, {block: it.speedup_logs[block] - it.logs[block] for block in it.logs}, it.base),
        ):
            curves.setdefault((it.part, it.method, target), {})[it.line.gamma or 0] = logs, line
    models = {it.name: it for it in data.models}
    for (part, method, target), curve in curves.items():
        places = sorted(curve)
        blocks = sorted(set[int].intersection(*(set(curve[it][0]) for it in places)))
        if len(places) < 3 or not blocks:
            continue
        found = reach(places, np.array([[curve[it][0][block] for it in places] for block in blocks]))
        values = {"part": part, "method": method, "target": target, "last": places[-1]}
        if found.point == math.inf:
            yield Message("moe-twin.reach.all", **values)
        elif found.point == -math.inf:
            yield Message("moe-twin.reach.none", **values)
        else:
            union = union_of(models[target], found.point + 1)
            yield Message(
                "moe-twin.reach",
                **values,
                point=found.point,
                low=max(found.low, 0.0),
                high=min(found.high, float(places[-1])),
                union=union or 1.0,
            )


def rescued(data: StudyData) -> Found:
    """Whether all twins lose even if drafts cost nothing and every draft token were accepted: whether a verification of
    n tokens takes as long as n single tokens. Drafts of a model have costs of their own and are left out."""
    known = [(it, it.full) for it in cells(data) if it.line.stands and it.routed and it.line.draft is None]
    full = [(it, of) for it, of in known if of is not None]
    if not full:
        return "cannot tell", NO_CELL
    lose = all(below(of, 1) for _, of in full)
    gain = [(it, of) for it, of in full if above(_among(of, len(full)), 1)]
    least, most = (pick(full, key=lambda it: it[1].point) for pick in (min, max))
    told = Message(
        "moe-twin.full",
        gain=len(gain),
        n=len(full),
        most=most[0].name,
        most_at=quoted(most[1], "x"),
        least=least[0].name,
        least_at=quoted(least[1], "x"),
    )
    return decided(supported=lose, contradicted=bool(gain)), told


def clients(data: StudyData) -> Found:
    """Whether with the most clients a twin keeps more of the dense model's speedup than with one, block by block."""
    found = {target: sorted(curve.items()) for target, curve in at_loads(data).items() if len(curve) > 1}
    if not found:
        return "cannot tell", Message("moe-twin.no_loads")
    told: list[Message] = []
    changes: list[Estimate] = []
    for target, curve in found.items():
        (_, first), (_, last) = curve[0], curve[-1]
        change = over_blocks({block: last[block] - first[block] for block in first.keys() & last.keys()})
        at = [(clients, it) for clients, logs in curve if (it := over_blocks(logs)) is not None]
        numbers = [Message("moesd.at", number=quoted(it, "x"), clients=clients) for clients, it in at]
        if change is not None:
            changes.append(change)
            told.append(Message("moe-twin.load", target=target, numbers=numbers, change=quoted(change, "x")))
    more = bool(changes) and all(above(it, 1) for it in changes)
    less = any(below(_among(it, len(changes)), 1) for it in changes)
    return decided(supported=more, contradicted=less), Message("moe-twin.loads", targets=told)


# --- rows of tables and figures ---------------------------------------------------------------------------------------


def row(cell: Cell) -> Mapping[str, object]:
    """A cell as tables show it."""
    return {
        "line": cell.line,
        "name": cell.name,
        "part": cell.part,
        "target": cell.line.target,
        "base": cell.base.target,
        "method": cell.method,
        "facet": cell.facet,
        "reads": cell.reads,
        "base_speedup": cell.base.any_speedup,
        "ratio": cell.ratio,
        "per_step": cell.per_step,
        "predicted": cell.foretold,
        "full": cell.full,
        "base_acceptance": cell.base.acceptance,
    }


def beside_dense(data: StudyData) -> list[Mapping[str, object]]:
    return [row(it) for it in _ordered(cells(data))]


def beside_single(data: StudyData) -> list[Mapping[str, object]]:
    return [row(it) for it in _ordered(kernel_cells(data))]


def curve(data: StudyData) -> list[Mapping[str, object]]:
    """Measured ratios with intervals, and predicted ones, by the union."""
    found: list[Mapping[str, object]] = []
    for it in _ordered(cells(data)):
        if it.routed and it.reads is not None and it.same_steps:
            found.append({**row(it), "y": it.per_step, "series": f"{it.line.target}: measured"})
            found.append({**row(it), "y": it.foretold, "series": f"{it.line.target}: predicted"})
    return found


def _ordered(found: Sequence[Cell]) -> list[Cell]:
    return sorted(found, key=lambda it: (it.part, it.method, it.line.target, it.line.gamma or 0))


def _shown(found: Sequence[Cell]) -> Message:
    told = (Message("study.row", name=it.name, number=quoted(it.per_step, "x")) for it in _ordered(found))
    return several(told, _SHOWN)


def _speedups(found: Sequence[Cell]) -> Message:
    told = (
        Message("moe-twin.both", name=it.name, dense=quoted(it.base.speedup, "x"), moe=quoted(it.line.speedup, "x"))
        for it in _ordered(found)
    )
    return several(told, _SHOWN)


def _among(estimate: Estimate | None, several_of: int) -> Estimate | None:
    """One of so many intervals that hold together, where any of them decides."""
    return simultaneous(estimate, several_of) if estimate is not None and STUDENT in estimate.method else estimate

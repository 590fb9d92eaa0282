"""moe-twin: what changes if a dense model's feed-forward networks become experts behind a router, and nothing else.

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
from specmeter.numbers.estimates import above, below, exceeds, from_log, quotient
from specmeter.numbers.stats import STUDENT, simultaneous, t_critical
from specmeter_studies.library.moe_twin.cells import (
    DENSE,
    NEAR,
    SINGLE,
    Cell,
    cells,
    kernel_cells,
    over_blocks,
    role,
    tokens_per_step,
    union_of,
)
from specmeter_studies.telling import decided, quoted, several

if TYPE_CHECKING:
    from specmeter.record import Estimate
    from specmeter_studies.study import ArmResult, Found, PromptResult, StudyData

LEAST = 0.02
"""A speedup that falls by less than this where the union doubles does not fall for any practical purpose."""
_SHOWN = 6
NO_CELL = Message("moe-twin.no_cell")


def standing(found: Sequence[Cell]) -> list[Cell]:
    """Cells on which a ruling may rest."""
    return [it for it in found if it.stands]


# --- is it a controlled comparison? -----------------------------------------------------------------------------------


def same_texts(data: StudyData) -> Found:
    """Whether with the same drafts every twin generates as many tokens per step as its dense model, within `NEAR`."""
    first: dict[tuple[str, str], dict[str, PromptResult]] = {}
    for row in data.results:  # blocks repeat each other's outputs
        first.setdefault((row.suite, row.config), {}).setdefault(row.prompt, row)
    sides: dict[str, dict[str, tuple[list[PromptResult], list[PromptResult]]]] = {}
    for cell in cells(data) if data.results else ():
        mine, theirs = (first[cell.part, it.config] for it in (cell.line, cell.base))
        for prompt in mine.keys() & theirs.keys() if cell.model.experts else ():
            both = sides.setdefault(cell.line.target, {}).setdefault(prompt, ([], []))
            both[0].append(mine[prompt])
            both[1].append(theirs[prompt])
    logs = {
        target: [math.log(tokens_per_step(mine) / tokens_per_step(theirs)) for mine, theirs in prompts.values()]
        for target, prompts in sides.items()
    }
    if not logs:
        return "cannot tell", NO_CELL
    found = _by_prompts(logs, 0.95)
    sure = _by_prompts(logs, 1 - 0.05 / len(logs))  # where any of them decides
    equal, of = equal_tokens(data, {it.name for it in data.models if it.experts})
    shown = (Message("study.row", name=target, number=quoted(it, "x")) for target, it in found.items())
    told = Message("moe-twin.texts", shown=several(shown, len(found)), equal=equal, of=of)
    inside = all(above(it, 1 - NEAR) and below(it, 1 + NEAR) for it in found.values())
    outside = any(below(it, 1 - NEAR) or above(it, 1 + NEAR) for it in sure.values())
    return decided(supported=inside, contradicted=outside), told


def _by_prompts(logs: Mapping[str, Sequence[float]], level: float) -> dict[str, Estimate]:
    """Each twin's geometric mean over prompts: exactly 1 if no prompt differs, else by the deviation within twins that
    differ, since a few prompts of one twin would say little."""
    free = sum(len(it) - 1 for it in logs.values() if any(it))
    sd = math.sqrt(sum(len(it) * float(np.var(it)) for it in logs.values()) / free) if free else 0.0
    half = t_critical(free, level) * sd if free else None
    how = f"geometric mean over prompts; Student t with {free} degrees of freedom, deviation pooled over twins"
    found: dict[str, Estimate] = {}
    for target, it in logs.items():
        width = 0.0 if not any(it) else half and half / math.sqrt(len(it))
        named = how if any(it) else "the same in all prompts"
        found[target] = from_log(float(np.mean(it)), width, "x", named, n=len(it), of="prompts", level=level)
    return found


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
    """Whether among twins with one active expert, at the same draft and length, the speedup falls as the union grows.

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
    known = [it for it in standing(cells(data)) if it.model.experts_used == 1 and it.reads is not None]
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
    """Of cells where a loss of more than `NEAR` is predicted: elsewhere no effect at all would be as predicted."""
    known = [
        (it, of)
        for it in standing(found)
        if (of := it.of_predicted) is not None and of.low is not None and (it.predicted or 1) < 1 - NEAR
    ]
    if not known:
        return "cannot tell", Message("moe-twin.no_prediction")
    inside = sum(above(of, 1 - NEAR) and below(of, 1 + NEAR) for _, of in known)
    wide = [_among(of, len(known)) for _, of in known]
    outside = sum(below(of, 1 - NEAR) or above(of, 1 + NEAR) for of in wide)
    worst, off = max(known, key=lambda it: abs(math.log(it[1].point)))
    told = Message(
        "moe-twin.predicted",
        inside=inside,
        outside=outside,
        n=len(known),
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
    known = [(it, it.full) for it in standing(cells(data)) if it.routed and it.line.draft is None]
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
    """Whether with the most clients a twin keeps more of the dense model's speedup than with one."""
    ratios = loads(data)
    pairs = [(first, last) for _, curve in ratios if len(curve) > 1 for first, last in [(curve[0], curve[-1])]]
    if not pairs:
        return "cannot tell", Message("moe-twin.no_loads")
    more = all(exceeds(last[1], first[1]) for first, last in pairs)
    less = any(exceeds(first[1], last[1]) for first, last in pairs)
    told = [
        Message(
            "moe-twin.load",
            target=target,
            numbers=[Message("moesd.at", number=quoted(it), clients=n) for n, it in numbers],
        )
        for target, numbers in ratios
    ]
    return decided(supported=more, contradicted=less), Message("moe-twin.loads", targets=told)


def loads(data: StudyData) -> list[tuple[str, list[tuple[int, Estimate]]]]:
    """Twin -> (clients, its speedup over the dense model's) with intervals that do not use the pairing of blocks."""
    lines = [it for it in data.whole if it.clients and it.stands and it.speculates]
    dense = {(_setting(it), it.clients): it.speedup for it in lines if role(it.target) == DENSE}
    found: dict[str, list[tuple[int, Estimate]]] = {}
    for it in lines:
        other = dense.get((_setting(it), it.clients))
        if role(it.target) != DENSE and it.speedup is not None and other is not None:
            ratio = quotient(it.speedup, other, unit="x", method="ratio of two speedups")
            found.setdefault(it.target, []).append((it.clients or 0, ratio))
    return [(target, sorted(curve, key=lambda it: it[0])) for target, curve in found.items()]


def _setting(line: ArmResult) -> object:
    return line.suite, line.draft, line.method, line.gamma


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
        "predicted": cell.predicted,
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
        if it.routed and it.reads is not None:
            found.append({**row(it), "y": it.per_step, "series": f"{it.line.target}: measured"})
            found.append({**row(it), "y": it.predicted, "series": f"{it.line.target}: predicted"})
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

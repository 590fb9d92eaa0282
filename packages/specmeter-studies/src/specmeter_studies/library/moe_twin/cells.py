"""moe-twin: a dense model beside MoE models made of it, cell by cell; and what a cell should be without timing a twin.

A twin has E copies of each feed-forward network and a router that picks K of them, so it computes what the dense model
computes. A cell is one twin and one model without routing that reads as many weights per token, with the same draft,
draft length and prompts:

    ratio       (speedup of the twin / speedup of the other), block by block: four rates of the same minutes
    per_step    the same at equal tokens per step: texts part at near ties, so tokens per step differ a little
    reads       U(n) / K: experts that a verification of n tokens reads over those of one token, on the run's outputs

*Prediction.* A dense step of n tokens takes s plain tokens, of which a share a of a plain token does not grow with n
(it reads the weights) and the rest does. A twin reads U(n) - K experts more, each f of what a token reads:

    predicted   s / (s + a f (U(n) - K))

s and a come from the predictions of the dense arms, which were stored before those were measured; f from the header;
U(n) from the outputs. No time of a twin is in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from specmeter.messages import Message
from specmeter.numbers.estimates import scaled, student_geometric
from specmeter.numbers.stats import simultaneous
from specmeter.record import Estimate

if TYPE_CHECKING:
    from specmeter_studies.study import ArmResult, ModelUsed, PromptResult, StudyData

    Rows = Mapping[tuple[str, str], Sequence[PromptResult]]
    """Requests of each (part, configuration)."""

SAME = 0.01
"""Tokens per step that differ by less are the same."""
DENSE, SINGLE = "dense", "single"
"""Roles: the dense model, and the MoE with one expert; with 2 copies side by side, `dense2`. A target's name may have
something before its role, which tells families apart, such as qwen_dense."""
_ROLE = re.compile(r"(?P<family>.*?)(?P<role>dense\d*|single|moe_.*)", re.DOTALL)

Key = tuple[str, str | None, str, int | None]
"""Part, draft model, method and draft length: what both sides of a cell have in common."""
Blocks = Mapping[int, float]


@dataclass(frozen=True)
class Cell:
    """A model beside another that computes the same."""

    line: ArmResult
    model: ModelUsed
    base: ArmResult
    base_model: ModelUsed
    logs: Blocks
    """Block -> ln of the speedup over that of the base."""
    step_logs: Blocks
    """Block -> the same at equal tokens per step."""
    speedup_logs: Blocks
    """Block -> ln of the speedup alone."""
    tokens: float
    """n of a verification: 1 + draft tokens per step, counted."""
    base_tokens: float
    """The same of the base."""
    predicted: float | None
    """Of `per_step`; None where something of it was not stored."""

    @property
    def part(self) -> str:
        return self.line.suite

    @property
    def method(self) -> str:
        """The draft model, else the method."""
        return self.line.draft or self.line.method

    @property
    def routed(self) -> bool:
        """Whether there are experts to choose between."""
        return routed(self.model)

    @property
    def same_steps(self) -> bool:
        """Whether both drafted and generated as many tokens per step. Where texts part early they do not, and steps
        differ by more than the model."""
        return _same(self.tokens, self.base_tokens) and self.steps is not None and _same(self.steps, 1.0)

    @property
    def foretold(self) -> float | None:
        """`predicted` where a choice of experts makes it say something, of arms that nothing doubts."""
        doubted = {self.line.verdict, self.base.verdict} != {"valid"}
        return None if doubted or not self.routed else self.predicted

    @property
    def steps(self) -> float | None:
        """Tokens generated per step over those of the base."""
        if self.line.tau is None or self.base.tau is None or not self.base.tau.point:
            return None
        return self.line.tau.point / self.base.tau.point

    @property
    def stands(self) -> bool:
        """Whether a ruling may rest on it."""
        known = self.ratio is not None and self.ratio.low is not None
        return known and self.line.stands and self.base.stands and self.same_steps

    @cached_property
    def ratio(self) -> Estimate | None:
        return over_blocks(self.logs, self.line.looks)

    @cached_property
    def per_step(self) -> Estimate | None:
        return over_blocks(self.step_logs, self.line.looks)

    @property
    def of_predicted(self) -> Estimate | None:
        """Measured over predicted, at equal tokens per step."""
        if self.per_step is None or self.predicted is None:
            return None
        return scaled(self.per_step, 1 / self.predicted, "x")

    @property
    def union(self) -> float | None:
        return union_of_steps(self.model, self.tokens, self.line.gamma)

    @property
    def reads(self) -> float | None:
        used = self.model.experts_used or 1
        return None if self.union is None else self.union / used

    @property
    def full(self) -> Estimate | None:
        """The speedup if every draft token were accepted: the same steps with all their tokens."""
        line = self.line
        if line.speedup is None or line.tau is None or line.tau.point <= 0:
            return None
        return scaled(line.speedup, self.tokens / line.tau.point, "x")

    @property
    def name(self) -> Message:
        return Message("moe-twin.cell", target=self.line.target, method=self.method, gamma=self.line.gamma or 0)

    @property
    def facet(self) -> str:
        return f"{self.part}, {self.method}"


def routed(model: ModelUsed) -> bool:
    """Whether a router has a choice."""
    return (model.experts or 0) > (model.experts_used or 0) > 0


def role(target: str) -> str:
    """What a target is, by its name."""
    found = _ROLE.fullmatch(target)
    return found["role"] if found else target


def family(target: str) -> str:
    """What stands before the role: the same for all that are made of one dense model."""
    return target.removesuffix(role(target))


def cells(data: StudyData) -> tuple[Cell, ...]:
    """Every MoE beside the dense model that reads as much per token; and dense models of other sizes beside it."""
    return tuple(_cells(data, lambda model: _size(model) if model.experts else DENSE))


def kernel_cells(data: StudyData) -> tuple[Cell, ...]:
    """Every MoE with one active expert beside the one that has no other: the engine's code is the same as well."""
    return tuple(it for it in _cells(data, lambda _: SINGLE) if it.routed and it.model.experts_used == 1)


def _size(model: ModelUsed) -> str:
    used = model.experts_used or 1
    return DENSE if used == 1 else f"{DENSE}{used}"


def _cells(data: StudyData, base_of: Callable[[ModelUsed], str]) -> Iterator[Cell]:
    models = {it.name: it for it in data.models}
    lines = {(_key(it), it.target): it for it in data.whole if it.speculates and not it.clients}
    rows = _rows(data)
    for (key, target), line in lines.items():
        model = models.get(target)
        name = f"{family(target)}{base_of(model)}" if model is not None else ""
        if model is None or target == name or (key, name) not in lines or name not in models:
            continue
        base = lines[key, name]
        mine, theirs = _speeds(rows, line), _speeds(rows, base)
        shared = sorted(mine.keys() & theirs.keys())
        if not shared:
            continue
        # Steps of this way of drafting, whose numbers may be used.
        predictable = [it for (other, at), it in lines.items() if at == name and other[:3] == key[:3] and it.stands]
        base_tokens = _tokens(rows.get((base.suite, base.config), ()))
        yield Cell(
            line=line,
            model=model,
            base=base,
            base_model=models[name],
            logs={it: mine[it].speedup - theirs[it].speedup for it in shared},
            step_logs={it: mine[it].per_step - theirs[it].per_step for it in shared},
            speedup_logs={it: mine[it].speedup for it in shared},
            tokens=_tokens(rows.get((line.suite, line.config), ())),
            base_tokens=base_tokens,
            predicted=predicted(model, base, predictable, base_tokens),
        )


def _key(line: ArmResult) -> Key:
    return line.suite, line.draft, line.method, line.gamma


# --- what was measured ------------------------------------------------------------------------------------------------


def _rows(data: StudyData) -> Rows:
    found: dict[tuple[str, str], list[PromptResult]] = {}
    for row in data.results:
        if row.decode_ms and row.generated and row.generated > 1:
            found.setdefault((row.suite, row.config), []).append(row)
    return found


@dataclass(frozen=True)
class _Speed:
    speedup: float
    """ln."""
    per_step: float
    """ln of the speedup over the tokens of a step."""


def _speeds(rows: Rows, line: ArmResult) -> dict[int, _Speed]:
    """Block -> how much faster than its baseline, over the prompts that both answered."""
    mine, plain = rows.get((line.suite, line.config), ()), rows.get((line.suite, line.baseline or ""), ())
    times = {(it.repeat, it.prompt): (it.generated or 0, it.decode_ms or 0.0) for it in plain}
    found: dict[int, _Speed] = {}
    for block in sorted({it.repeat for it in mine}):
        here = [it for it in mine if it.repeat == block and (block, it.prompt) in times]
        if not here:
            continue
        own = sum((it.generated or 0) - 1 for it in here) / sum(it.decode_ms or 0.0 for it in here)
        other = [times[block, it.prompt] for it in here]
        speedup = math.log(own / (sum(n - 1 for n, _ in other) / sum(ms for _, ms in other)))
        found[block] = _Speed(speedup, speedup - math.log(tokens_per_step(here)))
    return found


def at_loads(data: StudyData) -> dict[str, dict[int, Blocks]]:
    """Twin -> clients -> block -> ln of its speedup over the dense model's, by the time per token of a client.

    Only where both draft and generate as many tokens per step."""
    rows = _rows(data)
    lines = [it for it in data.whole if it.clients and it.stands and it.speculates]
    dense = {(_key(it), it.clients): it for it in lines if role(it.target) == DENSE}
    found: dict[str, dict[int, Blocks]] = {}
    for it in lines:
        if (other := dense.get((_key(it), it.clients))) is None or other is it:
            continue
        mine_of, other_of = (rows.get((of.suite, of.config), ()) for of in (it, other))
        if not all(_same(count(mine_of), count(other_of)) for count in (tokens_per_step, _tokens)):
            continue
        rates = [
            _log_rates(rows.get((it.suite, config or ""), ()))
            for config in (it.config, it.baseline, other.config, other.baseline)
        ]
        shared = sorted(set[int].intersection(*(set(rate) for rate in rates)))
        if shared:
            mine, plain, theirs, their_plain = rates
            logs = {block: mine[block] - plain[block] - theirs[block] + their_plain[block] for block in shared}
            found.setdefault(it.target, {})[it.clients or 0] = logs
    return found


def _log_rates(rows: Sequence[PromptResult]) -> dict[int, float]:
    """Block -> ln of tokens per ms."""
    blocks: dict[int, list[PromptResult]] = {}
    for it in rows:
        blocks.setdefault(it.repeat, []).append(it)
    return {
        block: math.log(sum((it.generated or 0) - 1 for it in here) / sum(it.decode_ms or 0.0 for it in here))
        for block, here in blocks.items()
    }


def forwards(rows: Sequence[PromptResult]) -> float:
    """Forwards of the target in these requests."""
    return sum(((it.generated or 0) - 1) / it.tau for it in rows if it.tau)


def tokens_per_step(rows: Sequence[PromptResult]) -> float:
    """Counted over requests; 1 where steps were not."""
    steps = forwards(rows)
    return sum((it.generated or 0) - 1 for it in rows if it.tau) / steps if steps else 1.0


def _tokens(rows: Sequence[PromptResult]) -> float:
    steps = forwards(rows)
    return 1 + (sum(it.drafted or 0 for it in rows if it.tau) / steps if steps else 0.0)


def over_blocks(logs: Blocks, looks: int = 1) -> Estimate | None:
    """exp of the mean of logarithms of blocks, with Student's interval over them; None of no block."""
    if not logs:
        return None
    mean = f"geometric mean of {len(logs)} block ratios"
    found = student_geometric(
        list(logs.values()), "x", f"{mean}; Student t over blocks", alone=f"{mean}; no interval", of="blocks"
    )
    return found if found.low is None else simultaneous(found, looks)


def union_of_steps(model: ModelUsed, tokens: float, gamma: int | None) -> float | None:
    """`union_of` over steps of so many tokens on average, each with a whole draft or none: n-grams that are not found
    draft nothing. U bends, so at the mean length it would be too large; drafts that are not whole read more than this.
    """
    if not gamma or tokens > gamma + 1:
        return union_of(model, tokens)
    long, short = union_of(model, gamma + 1.0), union_of(model, 1.0)
    share = (tokens - 1) / gamma
    return None if long is None or short is None else share * long + (1 - share) * short


def union_of(model: ModelUsed, tokens: float) -> float | None:
    """Different experts of a layer that this many consecutive tokens of the outputs chose, a line between counts."""
    if not routed(model):
        return float(model.experts_used or 1)
    if model.union is None:
        return None
    places = [float(it.tokens) for it in model.union.points]
    if not places or tokens > places[-1]:
        return None
    return float(np.interp(tokens, places, [it.union.point for it in model.union.points]))


# --- what should be measured -----------------------------------------------------------------------------------------


def predicted(model: ModelUsed, base: ArmResult, others: Sequence[ArmResult], tokens: float) -> float | None:
    """Speed of a twin's step over that of the base's, from the base's stored predictions; `others` are its arms.

    Computed after the run, from the union of its outputs; no time of the twin is in it. None if the prediction expected
    other drafts than the run's, of `tokens` per verification."""
    stored = base.prediction
    share = of_forward(others)
    if stored is None or stored.speedup is None or share is None or not model.bytes_per_token:
        return None
    tau, drafted = _number(stored.inputs.get("tau")), _number(stored.inputs.get("drafted"))
    if tau is None or drafted is None or not _same(1 + drafted, tokens):
        return None
    union = union_of_steps(model, 1 + drafted, base.gamma)
    if union is None:
        return None
    step = tau / stored.speedup.point
    more = share * (model.expert_bytes or 0.0) / model.bytes_per_token * (union - (model.experts_used or 1))
    return step / (step + more)


def of_forward(lines: Sequence[ArmResult]) -> float | None:
    """a: the share of a plain token that does not grow with the tokens of a forward, by a line through (1, 1) and the
    verifications that predictions of these arms were made of; None without any, and where nothing is shared."""
    points = {
        (drafted, verify)
        for it in lines
        if it.prediction is not None
        and (drafted := _number(it.prediction.inputs.get("drafted"))) is not None
        and (verify := _number(it.prediction.inputs.get("verify"))) is not None
        and drafted > 0
    }
    if not points:
        return None
    slope = sum((verify - 1) * drafted for drafted, verify in points) / sum(drafted**2 for drafted, _ in points)
    return min(1.0, 1 - slope) if slope < 1 else None


def _same(one: float, other: float) -> bool:
    return other / (1 + SAME) <= one <= other * (1 + SAME)


def _number(given: object) -> float | None:
    return float(given) if isinstance(given, int | float) and not isinstance(given, bool) else None

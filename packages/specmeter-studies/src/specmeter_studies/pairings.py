"""Drafts held against what draft and target do by themselves: the question of three studies on Apple machines.

The document judges drafts by one number, the speed ratio r = draft rate / target rate, each decoding on its own. In the
words of `theory.cost` a draft token costs c = 1 / r target forwards, and a step of d drafts yields tau tokens for

    cost = d c + v + rest                       in target forwards; v: verification of d + 1 tokens

Break-even is a *pair* of numbers: the acceptance has to be at least (cost - 1) / d. Were verification free of charge
(v = 1, no rest), that would be exactly c: of a draft r times as fast, 1 / r of the tokens must be accepted at least.
What a step really cost follows from what was measured, tau / speedup, without knowing c or v at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from specmeter.messages import Message
from specmeter.numbers.estimates import quotient, ratio_of_means
from specmeter.numbers.stats import Pair, Pool, geometric_speedup, simultaneous, t_critical
from specmeter.theory.cost import break_even_rate
from specmeter_studies.study import StudyCell
from specmeter_studies.telling import quoted, share

if TYPE_CHECKING:
    from specmeter.record import Estimate
    from specmeter_studies.study import ArmResult, PromptResult, StudyData

RULE = 2.5
"""The document's rule: a draft must run at least this many times as fast as its target."""

GainOrLoss = Literal["gains", "loses", "undecided", "no speedup"]
Side = Literal["above", "below", "across", "unknown"]


@dataclass(frozen=True)
class Pairing:
    """A speculative arm, and what its draft and its target do by themselves."""

    line: ArmResult
    target_rate: Estimate | None
    """tok/s."""
    draft_rate: Estimate | None
    ratio: Estimate | None
    """draft rate / target rate."""

    @property
    def name(self) -> str:
        """Draft and draft length, as tables and sentences call the arm."""
        return f"{self.line.draft} k={self.line.gamma}"

    @property
    def draft_cost(self) -> float | None:
        """c: one draft token in target forwards."""
        return None if self.ratio is None else 1 / self.ratio.point

    @property
    def drafted(self) -> float | None:
        """Tokens drafted per step, from tau and acceptance; the draft length where nothing was accepted."""
        tau, acceptance = self.line.tau, self.line.acceptance
        if tau is None or acceptance is None or acceptance.point <= 0 or tau.point <= 1:
            return self.line.gamma
        return (tau.point - 1) / acceptance.point

    @property
    def least_acceptance(self) -> float | None:
        """Break-even acceptance if verifying a draft cost no more than one token; infinite where none suffices."""
        if self.draft_cost is None or not self.drafted:
            return None
        return break_even_rate(self.drafted, draft_cost=self.draft_cost)

    @property
    def needed_acceptance(self) -> float | None:
        """Break-even acceptance at what a step really cost; infinite where none suffices."""
        if self.line.step_cost is None or not self.drafted:
            return None
        return break_even_rate(self.drafted, self.line.step_cost)

    @property
    def outcome(self) -> GainOrLoss:
        """What the speedup's interval says."""
        return outcome(self.line.speedup)

    @property
    def side(self) -> Side:
        """Where the ratio lies to the rule's 2.5, with its whole interval where it has one."""
        if self.ratio is None:
            return "unknown"
        low, high = self.ratio.low, self.ratio.high
        if low is None or high is None:
            low = high = self.ratio.point
        return "above" if low >= RULE else "below" if high < RULE else "across"

    # How tables, figures and sentences show it.

    @property
    def series(self) -> Message:
        return Message("study.pair.series", draft=self.line.draft, target=self.line.target)

    @property
    def measured(self) -> Message:
        """What was measured, in a word."""
        claimed = self.line.claimed_speedup is not None
        return Message("study.pair.not_stand" if claimed else f"study.pair.{self.outcome}")

    @property
    def least_cell(self) -> StudyCell:
        """Break-even acceptance in percent if verification were free."""
        return _limit(self.least_acceptance)

    @property
    def needed_cell(self) -> StudyCell:
        """Break-even acceptance in percent at the measured cost."""
        return _limit(self.needed_acceptance)

    @property
    def break_even(self) -> float | None:
        """Break-even acceptance at the measured cost; None where none suffices, or the ratio is not known."""
        needed = self.needed_acceptance
        return None if needed is None or self.ratio is None or math.isinf(needed) else needed

    @property
    def message(self) -> Message:
        """In a sentence: `0.8B_Q8 k=4 (ratio 3.31 [3.12, 3.50], 80.1 % accepted): 1.38 [1.14, 1.68]`."""
        line, ratio = self.line, self.ratio
        none = Message("study.pair.none")
        if line.claimed_speedup is not None:
            none = Message("study.pair.claimed", claimed=line.claimed_speedup)
        return Message(
            "study.pair",
            name=self.name,
            on=Message("study.pair.on", prompt=line.prompt) if line.prompt else "",
            ratio=ratio.point if ratio is not None and ratio.low is None else quoted(ratio),
            share=share(line.acceptance),
            suspect=Message("study.pair.suspect") if line.verdict == "suspect" else "",
            speedup=none if line.speedup is None else quoted(line.speedup),
        )


def _limit(value: float | None) -> StudyCell:
    if value is None:
        return StudyCell(text="-")
    if math.isinf(value):
        return StudyCell(text=Message("study.pair.none_suffices"))
    return StudyCell(value=100 * value, digits=1)


def outcome(speedup: Estimate | None) -> GainOrLoss:
    """What a speedup's interval says."""
    if speedup is None:
        return "no speedup"
    if speedup.low is not None and speedup.low > 1:
        return "gains"
    return "loses" if speedup.high is not None and speedup.high < 1 else "undecided"


def pairings(data: StudyData, targets: Iterable[str] | None = None, *, by_prompt: bool = False) -> tuple[Pairing, ...]:
    """Every speculative arm over all prompts (or of each kind of text), of these targets only where given.

    Speedups of several arms get intervals that hold for all of them together, since claims are about the best or the
    worst of them; in tables and figures they keep those to cite.
    """
    wanted = None if targets is None else set(targets)
    lines = [
        line
        for line in data.arms
        if line.speculates
        and line.prompt_tokens is None
        and (line.prompt is not None) == by_prompt
        and (wanted is None or line.target in wanted)
    ]
    plain = {
        line.target: line.decode_rate
        for line in data.arms
        if not line.speculates and line.prompt is None and line.stands
    }
    return tuple(
        Pairing(
            line=line if data.as_cited else _jointly(line, len(lines)),
            target_rate=plain.get(line.target),
            draft_rate=plain.get(line.draft or ""),
            ratio=_ratio(data, line, plain.get(line.target), plain.get(line.draft or "")),
        )
        for line in lines
    )


def believable(pairs: Iterable[Pairing]) -> tuple[Pairing, ...]:
    """Those whose speedup is one: measured, and not found invalid."""
    return tuple(pair for pair in pairs if pair.line.speedup is not None and pair.line.stands)


def _jointly(line: ArmResult, among: int) -> ArmResult:
    if line.speedup is None or line.speedup.low is None:
        return line
    return line.model_copy(update={"speedup": simultaneous(line.speedup, among)})


def _ratio(data: StudyData, line: ArmResult, target: Estimate | None, draft: Estimate | None) -> Estimate | None:
    """Draft rate over target rate: paired by block where both were measured in blocks, else from the two rates."""
    blocks = _blocks(data.results, line.draft, line.prompt), _blocks(data.results, line.target, line.prompt)
    pairs: list[Pair] = []
    for block, mine in blocks[0].items():
        theirs = blocks[1].get(block, {})
        shared = mine.keys() & theirs.keys()
        if shared:
            pairs.append((_pool(mine[key] for key in shared), _pool(theirs[key] for key in shared)))
    if pairs:
        return geometric_speedup(pairs)
    if target is None or draft is None:
        return None
    if data.origin == "published" and draft.high is not None and target.high is not None:
        return ratio_of_means(draft, target, (_deviation(draft), _deviation(target)))
    return quotient(draft, target, unit="x", method="ratio of two rates")


def _deviation(rate: Estimate) -> float:
    """The printed standard deviation that Student's interval of a printed rate was made from."""
    assert rate.high is not None
    return (rate.high - rate.point) * math.sqrt(rate.n) / t_critical(rate.n - 1, rate.level)


def _blocks(results: Sequence[PromptResult], name: str | None, prompt: str | None) -> dict[int, dict[str, float]]:
    """Block -> prompt -> rate of a model on its own."""
    found: dict[int, dict[str, float]] = {}
    for row in results:
        alone = row.method == "none" and row.target == name and not row.config.endswith("/again")
        if alone and row.decode_rate and row.verdict != "invalid" and (prompt is None or _is_of(row.prompt, prompt)):
            found.setdefault(row.repeat, {})[row.prompt] = row.decode_rate
    return found


def _is_of(name: str, kind: str) -> bool:
    """Whether a prompt's name is that of a kind, or of one of several prompts of it (`code-3`)."""
    return name == kind or name.startswith(f"{kind}-")


def _pool(rates: Iterable[float]) -> Pool:
    """One token of each prompt at its rate: pooled as requests of equal length are."""
    times = [1000 / rate for rate in rates]
    return Pool(len(times), sum(times))

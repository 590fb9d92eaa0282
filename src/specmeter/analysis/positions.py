"""Which drafted tokens are accepted: by their position in the draft, and how many in a row.

Counted from the steps on record, over all blocks. A step that drafted d tokens and accepted k says

    position i was drafted     d >= i
    position i was reached     d >= i and k >= i - 1: every token before it was accepted
    position i was accepted    k >= i

    conditional                accepted / reached
    unconditional              accepted / all drafts, those too short included: falls with i
    accepted lengths           k of every step that drafted anything

Greedy text repeats itself from block to block, so prompts are the units of intervals (`shares`). If drafts end because
the draft model doubts (`p_min`), conditional rates hold for the tokens that it dared to draft.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from specmeter.analysis.tally import Tallies, read_tallies
from specmeter.messages import Message
from specmeter.numbers.stats import over_prompts
from specmeter.record import Estimate, Record

if TYPE_CHECKING:
    from specmeter.store import RunReader


ALL = "all"
"""Stands for all kinds of text together."""
MAX_LENGTHS = 17
"""Accepted lengths that are shown by themselves, from 0; what is longer is added to the last of them."""

Counts = Counter[tuple[int, int]]
"""(drafted, accepted) -> steps."""


class PositionRate(Record):
    """Acceptance of one position of an arm's drafts."""

    position: int
    """Position in the draft, from 1."""
    drafted: int
    """Steps with a draft token at this position."""
    reached: int
    """Of these, steps in which all earlier draft tokens were accepted."""
    accepted: int
    """Of these, steps in which this one was accepted."""
    conditional: Estimate | None
    """Accepted / reached; None where no step got so far."""
    unconditional: Estimate
    """Accepted / all drafts; a draft too short for it did not have it accepted."""


class AcceptedLength(Record):
    """Steps of an arm that accepted exactly this many tokens of their draft."""

    accepted: int
    """Tokens accepted, from 0."""
    steps: int
    """Steps that accepted this many."""
    share: Estimate
    """Of the steps that had a draft."""


class ArmPositions(Record):
    """An arm on one prompt type, or on all."""

    arm_id: str
    """Id of the configuration."""
    kind: str
    """Prompt type; `all` for all together."""
    prompts: int = 0
    """Number of prompts."""
    drafts: int = 0
    """Steps with a draft."""
    positions: tuple[PositionRate, ...] = ()
    lengths: tuple[AcceptedLength, ...] = ()
    missing: Message | None = None
    """Why there is no data: the engine reports no steps."""


def positions(run: RunReader, tallies: Tallies | None = None) -> tuple[ArmPositions, ...]:
    """Every arm that drafted, over all prompts, then by kind where there are several; `tallies` are those of the run,
    where they were read before. Raises `StoreError`."""
    tallies = read_tallies(run) if tallies is None else tallies
    drafted: Counter[str] = Counter()
    for row in run.rows():
        drafted[row.arm_id] += row.draft_n or 0
    kinds = {prompt.id: prompt.kind for prompt in run.prompts()}
    found: list[ArmPositions] = []
    for arm_id in dict.fromkeys((*(arm.id for arm in run.arms()), *drafted)):
        counts: dict[str, Counts] = {}
        for cell, tally in tallies.get(arm_id, {}).items():
            own = counts.setdefault(cell.prompt_id, Counter())
            own.update({pair: steps for pair, steps in tally.by_counts.items() if pair[0]})
        counts = {prompt: steps for prompt, steps in counts.items() if steps}
        if counts:
            found += _of_arm(arm_id, counts, kinds)
        elif drafted[arm_id]:
            found.append(ArmPositions(arm_id=arm_id, kind=ALL, missing=Message("positions.no_steps")))
    return tuple(found)


def _of_arm(arm_id: str, counts: Mapping[str, Counts], kinds: Mapping[str, str]) -> Iterator[ArmPositions]:
    yield counted(arm_id, ALL, list(counts.values()))
    groups: dict[str, list[Counts]] = {}
    for prompt, steps in counts.items():
        groups.setdefault(kinds.get(prompt, ""), []).append(steps)
    for kind, group in groups.items() if len(groups) > 1 else ():
        yield counted(arm_id, kind, group)


def counted(arm_id: str, kind: str, prompts: Sequence[Counts]) -> ArmPositions:
    """An arm from the steps of each of its prompts."""
    longest = max(drafted for steps in prompts for drafted, _ in steps)
    return ArmPositions(
        arm_id=arm_id,
        kind=kind,
        prompts=len(prompts),
        drafts=sum(steps.total() for steps in prompts),
        positions=tuple(_position(place, prompts) for place in range(1, longest + 1)),
        lengths=tuple(_length(accepted, prompts) for accepted in range(longest + 1)),
    )


def _position(place: int, prompts: Sequence[Counts]) -> PositionRate:
    reached = [_sum(steps, lambda d, k: d >= place and k >= place - 1) for steps in prompts]
    accepted = [_sum(steps, lambda _, k: k >= place) for steps in prompts]
    return PositionRate(
        position=place,
        drafted=sum(_sum(steps, lambda d, _: d >= place) for steps in prompts),
        reached=sum(reached),
        accepted=sum(accepted),
        conditional=_share(accepted, reached) if any(reached) else None,
        unconditional=_share(accepted, [steps.total() for steps in prompts]),
    )


def _length(length: int, prompts: Sequence[Counts]) -> AcceptedLength:
    steps = [_sum(of_prompt, lambda _, k: k == length) for of_prompt in prompts]
    return AcceptedLength(
        accepted=length, steps=sum(steps), share=_share(steps, [of_prompt.total() for of_prompt in prompts])
    )


def _sum(steps: Counts, wanted: Callable[[int, int], bool]) -> int:
    return sum(count for (drafted, accepted), count in steps.items() if wanted(drafted, accepted))


def _share(parts: Sequence[int], wholes: Sequence[int]) -> Estimate:
    pairs = [(float(part), float(whole)) for part, whole in zip(parts, wholes, strict=True) if whole]
    return over_prompts(pairs, unit="1", ceiling=1.0)

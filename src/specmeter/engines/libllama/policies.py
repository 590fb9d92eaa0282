"""How long drafts are: what the engine asks before, while and after it drafts.

    Fixed         as long as it may be                            llama.cpp without `p_min`
    Confidence    until the draft model's best token is unlikely  llama.cpp's `p_min`
    EntropyStop   until its distribution is too flat              AdaEDL

None of these knows what a step costs; those that do are in `adaptive`. The rules themselves stand in
`theory.controllers`, with their sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from specmeter.errors import UsageError

LONGEST = 1024
"""Longest draft that can be asked for, as in an experiment file."""


class DraftPolicy(Protocol):
    """Decides how much is drafted; one for a session, asked by one sequence.

    For each step: `length`, then `goes_on` for every token that the draft model proposes, then `observe`.
    """

    def begin(self) -> None:
        """A new request starts: another text on the same machine."""
        ...

    def length(self) -> int:
        """Most tokens to draft in the coming step; 0: decode plainly. Less may be drafted: a lookup that finds
        nothing, a request that is nearly over."""
        ...

    def goes_on(self, confidence: Callable[[], float], entropy: Callable[[], float]) -> bool:
        """Whether the token that the draft model just proposed belongs to the draft, and another may follow.

        False: the draft ends *before* this token. Its forward is paid for and the token thrown away, as llama.cpp's
        drafter does. `confidence` computes that of `sampling.confidence`, `entropy` that of the draft's distribution in
        nats: with a large vocabulary either takes a millisecond, so call what you need. Lookups, which have no
        distribution, do not ask.
        """
        ...

    def observe(self, drafted: int, accepted: int, step_ms: float) -> None:
        """What became of the step: tokens that were verified, tokens accepted, and its time from the last token's
        choice to the next one's, drafting included."""
        ...


class Fixed:
    """Drafts of `gamma` tokens, or as many as there are."""

    def __init__(self, gamma: int) -> None:
        self._gamma = whole("gamma", gamma, least=0)

    def begin(self) -> None:
        pass

    def length(self) -> int:
        return self._gamma

    def goes_on(self, confidence: Callable[[], float], entropy: Callable[[], float]) -> bool:  # noqa: ARG002
        return True

    def observe(self, drafted: int, accepted: int, step_ms: float) -> None:
        pass


class Confidence(Fixed):
    """Up to `gamma` tokens, each with a best probability of at least `p_min`: llama.cpp's rule and its default 0."""

    def __init__(self, gamma: int, p_min: float) -> None:
        super().__init__(gamma)
        self._p_min = fraction("p_min", p_min)

    def goes_on(self, confidence: Callable[[], float], entropy: Callable[[], float]) -> bool:  # noqa: ARG002
        return confidence() >= self._p_min


class EntropyStop(Fixed):
    """Up to `gamma` tokens, each with 1 - sqrt(scale x entropy) >= `threshold`: AdaEDL, arXiv 2410.18351 (second hand).

    The paper is said to move the threshold with the acceptance it sees; here it stays. That the doubtful token itself
    is thrown away is ours, as for `Confidence`.
    """

    def __init__(self, gamma: int, threshold: float, scale: float = 1.0) -> None:
        super().__init__(gamma)
        if not (math.isfinite(threshold) and threshold <= 1):
            raise UsageError(f"threshold is {threshold}: a probability cannot exceed 1", fix="give a number up to 1")
        if not (math.isfinite(scale) and scale >= 0):
            raise UsageError(f"scale is {scale}: it must be at least 0", fix="give a factor for the entropy (in nats)")
        # The same as theory.controllers.stops_by_entropy, solved for the entropy once.
        self._most_entropy = (1 - threshold) ** 2 / scale if scale > 0 else math.inf

    def goes_on(self, confidence: Callable[[], float], entropy: Callable[[], float]) -> bool:  # noqa: ARG002
        return entropy() <= self._most_entropy


def whole(name: str, value: int, *, least: int) -> int:
    """A number of tokens within [least, LONGEST]; raises `UsageError` that names it."""
    if not least <= value <= LONGEST or int(value) != value:
        raise UsageError(
            f"{name} is {value}: it must be a whole number between {least} and {LONGEST}",
            fix=f"give {name} as a number of tokens",
        )
    return int(value)


def fraction(name: str, value: float) -> float:
    """A number within [0, 1]; raises `UsageError` that names it."""
    if not 0 <= value <= 1:
        raise UsageError(f"{name} is {value}: it must be between 0 and 1", fix=f"give {name} as a fraction")
    return float(value)

"""What recent steps say about the drafts to come: by place, by confidence, and on the whole."""

from __future__ import annotations

import itertools
from bisect import bisect_right


class Acceptance:
    """Conditional acceptance by place, from recent steps.

    a_i = (accepted at i + W a) / (tried at i + W), where a is the same of all places together, with `PRIOR` in place
    of `WEIGHT` tries: places that were hardly tried are like the others, and a text of which nothing is known is
    worth a try. Counts fade with every draft, slowly with every token, and by half when a new text begins.
    """

    PRIOR = 0.75
    WEIGHT = 2.0
    _PLACE_WEIGHT = 10.0
    _PER_STEP = 0.97
    _PER_TOKEN = 0.996

    def __init__(self, longest: int) -> None:
        self._tried = [0.0] * longest
        self._accepted = [0.0] * longest
        self._all_tried = self._all_accepted = 0.0
        self._unit = 1.0
        """What one try counts now: instead of making all that went before smaller, later tries count more."""
        self._asked = self._found = 1.0

    def begin(self) -> None:
        self._unit *= 2

    def plain(self, steps: int) -> None:
        """So many plain steps."""
        self._unit /= self._PER_TOKEN**steps
        if self._unit > 1e9:
            self._shrink()

    def empty(self, steps: int) -> None:
        """So many steps for which a draft was wanted and none was found."""
        kept = self._PER_STEP**steps
        self._asked = self._asked * kept + (1 - kept) / (1 - self._PER_STEP)
        self._found *= kept
        self.plain(steps)

    def observe(self, drafted: int, accepted: int) -> None:
        """A step for which a draft was wanted: how long it was (0: none was found), how much of it was accepted."""
        self._unit /= self._PER_TOKEN ** (accepted + 1)
        self._asked = self._asked * self._PER_STEP + 1
        self._found = self._found * self._PER_STEP + (drafted > 0)
        if not drafted:
            return
        self._unit /= self._PER_STEP
        if self._unit > 1e9:
            self._shrink()
        reached = min(drafted, accepted + 1, len(self._tried))
        for place in range(reached):
            self._tried[place] += self._unit
        for place in range(min(accepted, reached)):
            self._accepted[place] += self._unit
        self._all_tried += reached * self._unit
        self._all_accepted += min(accepted, reached) * self._unit

    @property
    def found(self) -> float:
        """Of the steps that asked for a draft, how many got one."""
        return self._found / self._asked

    def overall(self) -> float:
        """Of all places together."""
        prior = self.WEIGHT * self._unit
        return (self._all_accepted + self.PRIOR * prior) / (self._all_tried + prior)

    def chances(self) -> list[float]:
        """a_1, a_2, ..., a_longest."""
        weight = self._PLACE_WEIGHT * self._unit
        like_others = self.overall() * weight
        pairs = zip(self._accepted, self._tried, strict=True)
        return [(accepted + like_others) / (tried + weight) for accepted, tried in pairs]

    def _shrink(self) -> None:
        self._tried = [value / self._unit for value in self._tried]
        self._accepted = [value / self._unit for value in self._accepted]
        self._all_tried /= self._unit
        self._all_accepted /= self._unit
        self._unit = 1.0


class Calibration:
    """Of the tokens that were proposed with a confidence, how many were accepted, all before them being accepted.

    Counts by bins of confidence, each starting as if it were worth its face value `_WEIGHT` times. It belongs to the
    pair of models rather than to the text, so it is kept over requests and fades slowly.
    """

    _EDGES = (0.15, 0.3, 0.45, 0.6, 0.7, 0.8, 0.87, 0.92, 0.96, 0.985)
    _WEIGHT = 3.0
    _KEPT = 0.99

    def __init__(self) -> None:
        edges = (0.0, *self._EDGES, 1.0)
        self._tried = [self._WEIGHT] * (len(edges) - 1)
        self._accepted = [self._WEIGHT * (low + high) / 2 for low, high in itertools.pairwise(edges)]

    def chance(self, confidence: float) -> float:
        place = bisect_right(self._EDGES, confidence)
        return self._accepted[place] / self._tried[place]

    def observe(self, confidence: float, accepted: bool) -> None:
        place = bisect_right(self._EDGES, confidence)
        self._tried[place] = self._tried[place] * self._KEPT + 1
        self._accepted[place] = self._accepted[place] * self._KEPT + accepted


class Worth:
    """Expected gain of steps that draft, of late: tokens over cost, fading towards a little optimism."""

    _OPTIMISM = 1.25
    _WEIGHT = 1.5
    _PER_STEP = 0.95
    _PER_TOKEN = 0.992

    def __init__(self) -> None:
        self._tokens = self._cost = 0.0

    def begin(self) -> None:
        self._fade(0.5)

    def observe(self, tokens: float, cost: float) -> None:
        self._fade(self._PER_STEP)
        self._tokens += tokens
        self._cost += cost

    def plain(self, steps: int) -> None:
        """So many plain steps."""
        self._fade(self._PER_TOKEN**steps)

    def empty(self, steps: int) -> None:
        """So many steps that wanted a draft and found none: a token each, for the cost of a plain step."""
        kept = self._PER_STEP**steps
        self._fade(kept)
        self._tokens += (1 - kept) / (1 - self._PER_STEP)
        self._cost += (1 - kept) / (1 - self._PER_STEP)

    def gain(self) -> float:
        return (self._tokens + self._OPTIMISM * self._WEIGHT) / (self._cost + self._WEIGHT)

    def _fade(self, factor: float) -> None:
        self._tokens *= factor
        self._cost *= factor

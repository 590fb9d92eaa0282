"""Draft lengths by what they bring and what they cost, both measured while decoding.

    gain of a length = tokens emitted per step / (time of a step / time of a plain step)

is the speedup itself (Cascade's utility, `theory.utility`). Cascade measures it as a whole, length by length, a few
steps each. Here its two halves are learnt apart, because they belong to different things:

- **what a length costs** belongs to the machine and the models, and hardly changes: `StepCosts` compares the times of
  neighbouring steps of different lengths, over all requests of a session;
- **what a length brings** belongs to the text, and changes with it: `Acceptance` counts which places of a draft were
  accepted, of late. A draft of any length says something about all lengths.

So a length need not be tried to be judged, and one step teaches about many lengths. Where the draft model says how
sure it is, that is learnt too (`Calibration`: of tokens proposed with so much confidence, how many were accepted),
and the end of each draft is decided token by token: it ends where the expected tokens are not worth the time.

Two things keep trying it out cheap:

- **Optimism that must be paid for.** Little evidence counts in favour of drafting, so that it is tried at first and
  again after a while. But every step is booked: what it emitted minus what it cost, in plain steps. Drafting must not
  bring the balance below zero, and it starts at `ALLOWANCE` and grows by `SHARE` of each token. So decoding is never
  slower than plain decoding by more than `SHARE` of the time and `ALLOWANCE` steps of the session, as far as the
  costs are known, whatever the text does.
- **Doubling.** No draft is longer than twice the longest one whose cost is known, and one.

What is published: utility as the quantity to decide by, and not drafting where it is below 1 (Cascade, arXiv
2506.20675, abstract read); product-limit counts of acceptance (see `theory.acceptance.position_rates`); keeping to a
fraction of a safe baseline (conservative bandits: Wu, Shariff, Lattimore & Szepesvari 2016, arXiv 1602.04282); ending
a draft where its next token is not worth the cost (EVICT, arXiv 2605.00342, second hand). How they are put together,
and all constants, are ours; `benchmarks/policies.py` is what they were chosen with.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from statistics import median
from typing import Protocol

import numpy as np

from specmeter.engines.libllama.policies import whole
from specmeter.errors import UsageError
from specmeter.theory.utility import set_steps

ALLOWANCE = 2.0
"""Plain steps that a session may lose before anything was gained."""
SHARE = 0.01
"""What else it may lose, per token."""
MOST_BALANCE = 30.0
"""Gains that are remembered: a text that turns bad is noticed by its acceptance long before they are spent."""
MARGIN = 0.02
"""Drafting has to promise this much, or the text is decoded plainly."""

PLAIN_STEPS = 3
"""Plain steps at the start of a session: their median is what the first drafts are compared with."""
REFRESH = 128
"""Steps with drafts after which one is decoded plainly, where the gain is below `CLEAR`: contexts grow."""
CLEAR = 1.3
FIRST_PROBE = 8
"""Plain steps after which a draft is tried again where drafting did not pay; doubled each time that it still does not,
up to `MOST_IDLE`."""
MOST_IDLE = 128


class Costs(Protocol):
    """Times of steps by the number of tokens drafted, over that of a plain step."""

    @property
    def longest_known(self) -> int: ...

    @property
    def ready(self) -> bool:
        """Whether plain steps are known well enough."""
        ...

    def curve(self) -> list[float]:
        """Of 0, 1, ..., longest drafted tokens; 1.0 first."""
        ...

    def empty(self) -> float:
        """Of a step for which a draft was asked and none came."""
        ...

    def begin(self) -> None: ...

    def observe(self, asked: int, drafted: int, step_ms: float) -> None: ...


class StepCosts:
    """Costs learnt from the times of steps: a Kalman filter over the logarithms of

        level        the time of a plain step here and now, which drifts: machines are slower at times, contexts grow
        distances    of each length from that level, which stay

    A step of length d is seen as level + distance(d) + noise. So a length is judged by how its steps differ from those
    around them, and a slow spell makes all of them slow. Distances of neighbouring lengths go together: before anything
    was seen they are (log of) a line through 1, uncertain in offset, slope and shape, wide enough for dense models,
    mixtures of experts and launch-bound machines; so a few lengths tell about all.

    Times that are far from what was expected count less the further they are; three of them in a row, on the same
    side, are a change of level.
    """

    _SLOPE, _SLOPE_SD, _OFFSET_SD, _SHAPE_SD = 0.4, 0.35, 0.2, 0.12
    _EMPTY_MEAN, _EMPTY_SD = 0.04, 0.06
    _DRIFT_SD, _CHANGE_SD, _REQUEST_SD = 0.01, 0.2, 0.05
    _FAR = 2.5
    _OPTIMISM = 0.5
    """Standard deviations by which a length is taken to be cheaper than expected."""

    def __init__(self, longest: int) -> None:
        places = np.log1p(np.arange(1, longest + 1))
        self._state = np.concatenate([[0.0, self._EMPTY_MEAN], self._SLOPE * places])
        self._covariance = np.zeros((longest + 2, longest + 2))
        self._covariance[1, 1] = self._EMPTY_SD**2
        self._covariance[2:, 2:] = (
            self._OFFSET_SD**2
            + self._SLOPE_SD**2 * np.outer(places, places)
            + self._SHAPE_SD**2 * np.minimum.outer(places, places)
        )
        self._first: list[float] = []
        self._noise = 0.06
        self._far = 0
        self._curve: list[float] | None = None
        self.longest_known = 0

    @property
    def ready(self) -> bool:
        return len(self._first) >= PLAIN_STEPS

    def begin(self) -> None:
        self._covariance[0, 0] += self._REQUEST_SD**2

    def observe(self, asked: int, drafted: int, step_ms: float) -> None:
        if not 0 < step_ms < math.inf:
            return
        now = math.log(step_ms)
        if not self.ready:
            if not asked:
                self._first.append(now)
                self._state[0] = median(self._first)
                self._covariance[0, 0] = self._noise**2
            return
        # What is seen is level + state[cell]; a plain step shows the level alone.
        cell = drafted + 1 if drafted else 1 if asked else 0
        state, covariance = self._state, self._covariance
        covariance[0, 0] += self._DRIFT_SD**2
        shared = covariance[0] + covariance[cell] if cell else covariance[0]
        spread = float(shared[0] + shared[cell]) if cell else float(shared[0])
        surprise = now - float(state[0] + state[cell]) if cell else now - float(state[0])
        noise = self._noise**2
        far = abs(surprise) / math.sqrt(spread + noise) / self._FAR
        if far > 1:
            noise = (spread + noise) * far * far
        if cell <= 1 or drafted <= self.longest_known:
            self._noise += 0.03 * (min(max(1.25 * abs(surprise), 0.01), 0.2) - self._noise)
        gain = shared / (spread + noise)
        state += gain * surprise
        covariance -= np.outer(gain, shared)
        self._far_side(surprise, far)
        self.longest_known = max(self.longest_known, drafted)
        self._curve = None

    def empty(self) -> float:
        return max(1.0, math.exp(float(self._state[1])))

    def curve(self) -> list[float]:
        if self._curve is None:
            spread = np.sqrt(np.maximum(self._covariance.diagonal()[2:], 0.0))
            self._curve = [1.0, *np.exp(np.maximum(self._state[2:] - self._OPTIMISM * spread, 0.0)).tolist()]
        return self._curve

    def _far_side(self, surprise: float, far: float) -> None:
        side = (surprise > 0) - (surprise < 0) if far > 1 else 0
        self._far = self._far + side if side * self._far > 0 else side
        if abs(self._far) >= 3:
            self._covariance[0, 0] += self._CHANGE_SD**2
            self._far = 0


class GivenCosts:
    """Costs from a table of times in ms for 0, 1, ... drafted tokens, drafting included."""

    ready = True

    def __init__(self, costs_ms: Sequence[float], longest: int) -> None:
        if len(costs_ms) < longest + 1:
            raise UsageError(
                f"costs_ms has {len(costs_ms)} times, but drafts of up to {longest} tokens need {longest + 1}",
                fix="give the time of a step with 0, 1, ..., `longest` drafted tokens",
            )
        if not all(0 < cost < math.inf for cost in costs_ms):
            raise UsageError("costs_ms: every time must be a number above 0", fix="measure each length, in ms")
        self._curve = [cost / costs_ms[0] for cost in costs_ms[: longest + 1]]
        self.longest_known = longest

    def curve(self) -> list[float]:
        return self._curve

    def empty(self) -> float:
        return 1.0

    def begin(self) -> None:
        pass

    def observe(self, asked: int, drafted: int, step_ms: float) -> None:
        pass


class Acceptance:
    """Conditional acceptance by place, from recent steps.

    a_i = (accepted at i + W a) / (tried at i + W), where a is the same of all places together, with `PRIOR` in place
    of `WEIGHT` tries: places that were hardly tried are like the others, and a text of which nothing is known is
    worth a try. Counts fade with every try of the first place, slowly with every token, and by half when a new text
    begins.
    """

    PRIOR = 0.75
    WEIGHT = 2.0
    _PLACE_WEIGHT = 10.0
    _PER_STEP = 0.97
    _PER_TOKEN = 0.996

    def __init__(self, longest: int) -> None:
        self._tried = [0.0] * longest
        self._accepted = [0.0] * longest
        self._asked = self._found = 1.0

    def begin(self) -> None:
        self._fade(0.5)

    def observe(self, asked: int, drafted: int, accepted: int) -> None:
        fade = self._PER_TOKEN ** (accepted + 1)
        if asked:
            fade *= self._PER_STEP
            self._asked = self._asked * self._PER_STEP + 1
            self._found = self._found * self._PER_STEP + (drafted > 0)
        self._fade(fade if drafted or not asked else self._PER_TOKEN)
        for place in range(min(drafted, accepted + 1, len(self._tried))):
            self._tried[place] += 1
            self._accepted[place] += place < accepted

    @property
    def found(self) -> float:
        """Of the steps that asked for a draft, how many got one."""
        return self._found / self._asked

    def chances(self) -> list[float]:
        weight = self._PLACE_WEIGHT
        overall = (sum(self._accepted) + self.PRIOR * self.WEIGHT) / (sum(self._tried) + self.WEIGHT)
        overall *= weight
        return [
            (accepted + overall) / (tried + weight) for accepted, tried in zip(self._accepted, self._tried, strict=True)
        ]

    def _fade(self, factor: float) -> None:
        self._tried = [value * factor for value in self._tried]
        self._accepted = [value * factor for value in self._accepted]


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


class _Worth:
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

    def plain(self) -> None:
        self._fade(self._PER_TOKEN)

    def gain(self) -> float:
        return (self._tokens + self._OPTIMISM * self._WEIGHT) / (self._cost + self._WEIGHT)

    def _fade(self, factor: float) -> None:
        self._tokens *= factor
        self._cost *= factor


class Utility:
    """Drafts as long as they are worth it, up to `longest` tokens; plain decoding where they are not.

    `use_confidence`: listen to the draft model's confidence, where it has one (`goes_on`).
    """

    def __init__(self, longest: int = 16, *, use_confidence: bool = True) -> None:
        self._longest = whole("longest", longest, least=1)
        self._costs: Costs = StepCosts(self._longest)
        self._use_confidence = use_confidence
        self._acceptance = Acceptance(self._longest)
        self._calibration = Calibration()
        self._worth = _Worth()
        self._balance = ALLOWANCE
        self._asked = 0
        self._confidences: list[float] = []
        self._reach = 1.0
        self._hears = False
        """Whether the drafter has confidences at all; lookups have none."""
        self._since_plain = 0
        self._gain = 1.0
        self._idle = self._falls = 0

    def begin(self) -> None:
        self._acceptance.begin()
        self._worth.begin()
        self._costs.begin()

    def length(self) -> int:
        self._confidences = []
        self._reach = 1.0
        self._asked = self._chosen() if self._costs.ready else 0
        return self._asked

    def goes_on(self, confidence: Callable[[], float], entropy: Callable[[], float]) -> bool:  # noqa: ARG002
        if not self._use_confidence:
            return True
        self._hears = True
        sure = confidence()
        chance = self._calibration.chance(sure)
        if not self._worthwhile(len(self._confidences), self._reach * chance):
            return False
        self._confidences.append(sure)
        self._reach *= chance
        return True

    def observe(self, drafted: int, accepted: int, step_ms: float) -> None:
        ready = self._costs.ready
        self._costs.observe(self._asked if self._hears else drafted, drafted, step_ms)
        if ready:
            self._book(drafted, accepted)
        self._acceptance.observe(self._asked, drafted, accepted)
        for place, confidence in enumerate(self._confidences[: min(drafted, accepted + 1)]):
            self._calibration.observe(confidence, place < accepted)

    # --- before a step -----------------------------------------------------------------------------------------------

    def _chosen(self) -> int:
        curve = self._costs.curve()
        limit = min(self._longest, 2 * self._costs.longest_known + 1)
        while limit and curve[limit] - 1 > self._balance:
            limit -= 1
        if not limit:
            return 0
        if self._use_confidence and self._hears:
            length, self._gain = limit, self._worth.gain()
        else:
            length, self._gain = self._best(curve)
            length = min(length, limit)
        # Steps without a draft are neither better nor worse than plain ones: the promise is asked of the others.
        if self._gain < 1 + MARGIN * self._acceptance.found:
            return limit if self._probes() else 0
        self._falls = 0
        if self._since_plain >= (REFRESH if self._gain > CLEAR else 32):
            return 0
        return length

    def _probes(self) -> bool:
        """Whether to look again although nothing is promised: ever more rarely, as Cascade's test phases are."""
        self._idle += 1
        if self._idle < set_steps(self._falls, first=FIRST_PROBE, most=MOST_IDLE):
            return False
        self._idle = 0
        self._falls += 1
        return True

    def _best(self, curve: list[float]) -> tuple[int, float]:
        """The length with the highest gain, and that gain; drafts that are not found cost and bring a plain step."""
        found, missing = self._acceptance.found, 1 - self._acceptance.found
        missing_cost = missing * self._empty_cost()
        best, best_gain, tokens, reach = 0, 0.0, 1.0, 1.0
        for place, chance in enumerate(self._acceptance.chances()):
            reach *= chance
            tokens += reach
            gain = (missing + found * tokens) / (missing_cost + found * curve[place + 1])
            if gain > best_gain:
                best, best_gain = place + 1, gain
        return best, best_gain

    def _empty_cost(self) -> float:
        """Looking up costs next to nothing, so a step that found nothing is a plain one."""
        return self._costs.empty() if self._hears else 1.0

    # --- while drafting ----------------------------------------------------------------------------------------------

    def _worthwhile(self, drafted: int, reach: float) -> bool:
        """Whether verifying one more token, and perhaps some after it, brings more than it costs.

        The token would be accepted with probability `reach`; those after it are taken to be like the last one before
        them on the whole. What a unit of time is worth is the gain that drafting has of late, or 1.
        """
        curve = self._costs.curve()
        price = max(1.0, self._gain)
        value, chance = 0.0, self._usual()
        for length in range(drafted + 1, self._asked + 1):
            value += reach
            if value >= price * (curve[length] - curve[drafted]):
                return True
            reach *= chance
        return False

    def _usual(self) -> float:
        return self._acceptance.chances()[0]

    # --- after a step ------------------------------------------------------------------------------------------------

    def _book(self, drafted: int, accepted: int) -> None:
        curve = self._costs.curve()
        cost = curve[min(drafted, self._longest)] if drafted or not self._asked else self._empty_cost()
        self._balance = min(self._balance + (1 + SHARE) * (accepted + 1) - cost, MOST_BALANCE)
        self._since_plain = self._since_plain + 1 if self._asked else 0
        if not self._asked:
            self._worth.plain()
            return
        expected = reach = 1.0
        for confidence in self._confidences[:drafted]:
            reach *= self._calibration.chance(confidence)
            expected += reach
        self._worth.observe(expected, cost)


class CostTable(Utility):
    """The same choice where costs are known beforehand: `costs_ms` for 0, 1, ..., `longest` drafted tokens.

    Acceptance is counted as ever; confidence is not listened to.
    """

    def __init__(self, costs_ms: Sequence[float], longest: int = 16) -> None:
        super().__init__(longest, use_confidence=False)
        self._costs = GivenCosts(costs_ms, self._longest)

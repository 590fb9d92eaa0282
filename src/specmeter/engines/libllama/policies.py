"""How long drafts are: what the engine asks before, while and after it drafts.

    Fixed         as long as it may be                            llama.cpp without `p_min`
    Confidence    until the draft model's best token is unlikely  llama.cpp's `p_min`
    EntropyStop   until its distribution is too flat              AdaEDL
    Cascade       as long as paid best, of lengths tried in turn  Cascade's schedule as published

The first three do not know what a step costs. What one costs by the number of tokens drafted is learnt by `StepCosts`
or given (`GivenCosts`); `adaptive` decides by it. The rules themselves stand in `theory.controllers`,
with their sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Protocol

import numpy as np

from specmeter.errors import UsageError
from specmeter.theory.controllers import BASELINE_EVERY, TEST_STEPS, Trial, chosen_gamma, next_trial, set_steps, utility

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
        # The rule above, solved for the entropy once.
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


# --- what steps cost -------------------------------------------------------------------------------------------------

_ENOUGH = 3
"""So many times that their median is not an outlier."""
_LAST = 9
"""Plain steps before a draft that say how fast the machine is here and now."""
PLAIN_STEPS = 3
"""Plain steps at the start of a session: their median is what the first drafts are compared with."""


class RelativeCosts(Protocol):
    """Times of steps by the number of tokens drafted, over that of a plain step."""

    @property
    def longest_known(self) -> int: ...

    @property
    def ready(self) -> bool:
        """Whether plain steps are known well enough."""
        ...

    def expected(self) -> list[float]:
        """Of 0, 1, ..., longest drafted tokens; 1.0 first."""
        ...

    def hoped(self) -> list[float]:
        """The same, with the benefit of the doubt."""
        ...

    def empty(self) -> float:
        """Of a step for which a draft was asked and none came."""
        ...

    def relative(self, step_ms: float) -> float:
        """A time over that of a plain step here and now; 0 where that is not known."""
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
    _EMPTY_MEAN, _EMPTY_SD = 0.1, 0.35
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
        self.ready = False
        self._row: list[float] = []
        """Times in ms of the last plain steps, as long as nothing else came."""
        self._noise = 0.06
        self._far = 0
        self._expected: list[float] | None = None
        self._hoped: list[float] | None = None
        self.longest_known = 0

    def begin(self) -> None:
        self._read_row()
        self._covariance[0, 0] += self._REQUEST_SD**2

    def observe(self, asked: int, drafted: int, step_ms: float) -> None:
        if self.ready and not asked and not drafted:
            self._row.append(step_ms)  # the most frequent step by far, and the shortest
        elif not 0 < step_ms < math.inf:
            return
        elif self.ready:
            self._read_row()
            self._read(drafted + 1 if drafted else 1, math.log(step_ms))
            self.longest_known = max(self.longest_known, drafted)
        elif not asked:
            self._first.append(math.log(step_ms))
            self._state[0] = median(self._first)
            self._covariance[0, 0] = self._noise**2
            self.ready = len(self._first) >= PLAIN_STEPS

    def _read_row(self) -> None:
        """The plain steps since the last draft, as one: nothing depends on them before the next draft."""
        if not self._row:
            return
        last = [math.log(it) for it in self._row[-_LAST:] if 0 < it < math.inf]
        self._covariance[0, 0] += len(self._row) * self._DRIFT_SD**2
        self._row.clear()
        if not last:
            return
        middle, count = median(last), len(last)
        if count >= _ENOUGH:
            # A median is not an outlier: however far it is, that is where the level now is.
            self._covariance[0, 0] += (middle - float(self._state[0])) ** 2
            self._learn_noise(median(abs(value - middle) for value in last) * 1.5)
        self._read(0, middle, count)

    def _read(self, cell: int, now: float, count: int = 1) -> None:
        """Update by a logarithm of a time, the median of `count`: level + state[cell], for cell 0 the level alone."""
        state, covariance = self._state, self._covariance
        if cell:
            covariance[0, 0] += self._DRIFT_SD**2
            shared = covariance[0] + covariance[cell]
            spread, surprise = float(shared[0] + shared[cell]), now - float(state[0] + state[cell])
        else:
            shared = covariance[0].copy()
            spread, surprise = float(shared[0]), now - float(state[0])
        noise = self._noise**2 * (1.5 / count if count > 1 else 1.0)
        far = abs(surprise) / math.sqrt(spread + noise) / self._FAR
        if far > 1:
            noise = (spread + noise) * far * far
        if cell == 1 or 1 < cell <= self.longest_known + 1:
            self._learn_noise(1.25 * abs(surprise))
        gain = shared / (spread + noise)
        state += gain * surprise
        covariance -= gain[:, None] * shared
        if cell:
            self._far_side(surprise, far)
        self._expected = self._hoped = None

    def _learn_noise(self, size: float) -> None:
        self._noise += 0.03 * (min(max(size, 0.01), 0.2) - self._noise)

    def empty(self) -> float:
        return max(1.0, math.exp(float(self._state[1])))

    def relative(self, step_ms: float) -> float:
        self._read_row()
        return step_ms / math.exp(float(self._state[0])) if self.ready and 0 < step_ms < math.inf else 0.0

    def expected(self) -> list[float]:
        if self._expected is None:
            self._expected = [1.0, *np.exp(np.maximum(self._state[2:], 0.0)).tolist()]
        return self._expected

    def hoped(self) -> list[float]:
        if self._hoped is None:
            spread = np.sqrt(np.maximum(self._covariance.diagonal()[2:], 0.0))
            self._hoped = [1.0, *np.exp(np.maximum(self._state[2:] - self._OPTIMISM * spread, 0.0)).tolist()]
        return self._hoped

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
        self._plain_ms = costs_ms[0]
        self._curve = [cost / self._plain_ms for cost in costs_ms[: longest + 1]]
        self.longest_known = longest

    def expected(self) -> list[float]:
        return self._curve

    def hoped(self) -> list[float]:
        return self._curve

    def empty(self) -> float:
        return 1.0

    def relative(self, step_ms: float) -> float:
        return step_ms / self._plain_ms if 0 < step_ms < math.inf else 0.0

    def begin(self) -> None:
        pass

    def observe(self, asked: int, drafted: int, step_ms: float) -> None:
        pass


# --- cascade ---------------------------------------------------------------------------------------------------------


class Cascade:
    """Tests draft lengths for `TEST_STEPS` steps each and keeps the best one for a while (arXiv 2506.20675).

    The schedule is that of `theory.controllers`, second hand. What the summary leaves open and is ours: the first test
    starts at length 1; a plain step's time is the mean of `TEST_STEPS` plain steps, measured at the start and again
    every `BASELINE_EVERY` steps. It is here to be compared with: `adaptive.Utility` is the one to use.
    """

    def __init__(self, longest: int = 16) -> None:
        self._longest = whole("longest", longest, least=1)
        self._baseline_ms = 0.0
        self._baseline_left = TEST_STEPS
        self._baseline_sum = 0.0
        self._since_baseline = 0
        self._trials: list[Trial] = []
        self._gamma: int | None = None
        """The length under test or in use; None: a test is about to start."""
        self._testing = True
        self._left = 0
        self._tokens = 0
        self._ms = 0.0
        self._best = 1
        self._falls = 0

    def begin(self) -> None:
        """Goes on where it was: costs and choices are those of the session."""

    def length(self) -> int:
        if self._baseline_left:
            return 0
        if self._gamma is None:
            self._trials = []
            self._next_trial()
        return self._gamma or 0

    def goes_on(self, confidence: Callable[[], float], entropy: Callable[[], float]) -> bool:  # noqa: ARG002
        return True

    def observe(self, drafted: int, accepted: int, step_ms: float) -> None:  # noqa: ARG002
        if self._baseline_left:
            self._baseline_sum += step_ms
            self._baseline_left -= 1
            if not self._baseline_left:
                self._baseline_ms, self._baseline_sum = self._baseline_sum / TEST_STEPS, 0.0
            return
        self._tokens += accepted + 1
        self._ms += step_ms
        self._left -= 1
        self._since_baseline += 1
        if self._left > 0:
            return
        if self._testing:
            gained = utility(self._tokens / TEST_STEPS, self._ms / TEST_STEPS, self._baseline_ms)
            self._trials.append(Trial(self._gamma or 0, gained))
            self._next_trial()
        else:
            if self._since_baseline >= BASELINE_EVERY:
                self._baseline_left, self._since_baseline = TEST_STEPS, 0
            self._gamma = None

    def _next_trial(self) -> None:
        gamma = next_trial(self._trials, start=self._best, longest=self._longest)
        self._testing = gamma is not None
        if gamma is None:
            gamma = chosen_gamma(self._trials)
            self._falls = self._falls + 1 if gamma == 0 else 0
            self._best = gamma or 1
            self._left = set_steps(self._falls)
        else:
            self._left = TEST_STEPS
        self._gamma, self._tokens, self._ms = gamma, 0, 0.0

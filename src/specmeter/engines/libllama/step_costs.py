"""What a step costs by the number of tokens drafted, in plain steps: learnt while decoding, or given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Protocol

import numpy as np

from specmeter.errors import UsageError

_ENOUGH = 3
"""So many times that their median is not an outlier."""
_LAST = 9
"""Plain steps before a draft that say how fast the machine is here and now."""
PLAIN_STEPS = 3
"""Plain steps at the start of a session: their median is what the first drafts are compared with."""


class Costs(Protocol):
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

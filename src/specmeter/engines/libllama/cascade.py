"""Cascade's schedule as it was published: measure, choose, keep, measure again."""

from __future__ import annotations

from collections.abc import Callable

from specmeter.engines.libllama.policies import whole
from specmeter.theory.controllers import (
    BASELINE_EVERY,
    TEST_STEPS,
    Trial,
    chosen_gamma,
    next_trial,
    set_steps,
    utility,
)


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
            self._start_test()
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

    def _start_test(self) -> None:
        self._trials = []
        self._next_trial()

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

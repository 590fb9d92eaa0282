"""Policies that learn: they find what is worth drafting, and what they try costs no more than they may lose."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmeter.engines.libllama.adaptive import ALLOWANCE, SHARE, Calibration, CostTable, RecentAcceptance, Utility
from specmeter.engines.libllama.policies import PLAIN_STEPS, Cascade, DraftPolicy, StepCosts
from specmeter.errors import UsageError
from specmeter.theory.acceptance import position_rates
from specmeter.theory.cost import speedup_by_gamma

moderate = settings(max_examples=60, deadline=None)

DENSE = np.interp(np.arange(17), [0, 1, 2, 3, 4, 8, 16], [1.0, 1.1, 1.25, 1.4, 1.6, 2.3, 4.0]).tolist()
MOE = np.interp(np.arange(17), [0, 1, 2, 3, 4, 8, 16], [1.0, 1.65, 2.4, 3.2, 4.1, 6.7, 10.3]).tolist()


class Play:
    """A session on a machine with known costs: 10 ms per plain step, noise, and every token guessed or not."""

    def __init__(
        self, policy: DraftPolicy, costs: list[float], noise: float = 0.03, seed: int = 1, reading: float = 0.0
    ) -> None:
        self.policy, self.costs, self.noise, self.reading = policy, costs, noise, reading
        self.rng = np.random.default_rng(seed)
        self.tokens = 0
        self.time = 0.0
        self.asked: list[int] = []
        self.unread = self.returns = 0
        """Tokens that the draft model missed, and drafts before which it had any to read."""

    def request(
        self,
        tokens: int,
        acceptance: float,
        *,
        found: Callable[[int], bool] = lambda _: True,
        confidence: Callable[[bool], float] | None = None,
        slow: Callable[[int], float] = lambda _: 1.0,
    ) -> float:
        """Speed of this request over plain decoding."""
        self.policy.begin()
        self.unread = 0
        guessed = (self.rng.random(tokens + 40) < acceptance).tolist()
        at, spent = 0, 0.0
        while at < tokens:
            asked = self.policy.length()
            drafted = 0
            while found(at) and drafted < asked:
                sure = confidence(guessed[at + drafted]) if confidence else None
                if sure is not None and not self.policy.goes_on(lambda sure=sure: sure, lambda: 0.0):
                    break
                drafted += 1
            accepted = len(list(itertools.takewhile(bool, guessed[at : at + drafted])))
            cost = self.costs[drafted] + (0.05 if confidence and asked and not drafted else 0.0)
            cost += self._read(accepted + 1, asks=bool(confidence and asked))
            noise = math.exp(self.rng.normal(0, self.noise)) * (2 if self.rng.random() < 0.02 else 1)
            self.policy.observe(drafted, accepted, 10 * cost * noise * slow(at))
            self.asked.append(asked)
            at += accepted + 1
            spent += cost
        self.tokens += at
        self.time += spent
        return at / spent

    def _read(self, emitted: int, *, asks: bool) -> float:
        """What the draft model takes to read what it missed, if it is asked now."""
        read = self.unread if asks else 0
        self.unread = 0 if asks else self.unread + emitted
        self.returns += read > 0
        return self.reading * read

    @property
    def speed(self) -> float:
        return self.tokens / self.time


def best_speed(costs: list[float], acceptance: float) -> float:
    return float(max(speedup_by_gamma([acceptance] * 16, costs)))


# --- what they find --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acceptance", [0.5, 0.7, 0.85])
def test_finds_nearly_the_best_length_where_drafting_gains(acceptance: float) -> None:
    play = Play(Utility(), DENSE)
    play.request(300, acceptance)
    later = [play.request(300, acceptance) for _ in range(8)]
    assert np.mean(later) > 0.92 * best_speed(DENSE, acceptance)


@pytest.mark.parametrize("policy", [Utility, lambda: CostTable(MOE)])
@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.5])
def test_decodes_plainly_where_drafting_loses(policy: Callable[[], DraftPolicy], acceptance: float) -> None:
    play = Play(policy(), MOE)
    for _ in range(4):
        play.request(150, acceptance)
    assert play.speed > 0.97
    assert play.asked.count(0) > 0.8 * len(play.asked)


def test_known_costs_give_the_best_length_from_the_first_request_on() -> None:
    play = Play(CostTable([10 * cost for cost in DENSE]), DENSE)
    assert play.request(400, 0.8) > 0.9 * best_speed(DENSE, 0.8)
    assert play.asked[0] > 0


def test_costs_are_kept_for_the_next_request_and_the_text_is_not() -> None:
    play = Play(Utility(), DENSE)
    play.request(300, 0.9)
    play.asked.clear()
    play.request(300, 0.9)
    assert play.asked[0] >= 4
    play.asked.clear()
    play.request(600, 0.1)
    assert np.mean(play.asked[-100:]) < 1.5


def test_comes_back_when_the_text_turns_good_again() -> None:
    speeds: list[float] = []
    for seed in range(7):
        play = Play(Utility(), MOE, seed=seed)
        for acceptance in (0.1, 0.1, 0.97):
            play.request(200, acceptance)
        speeds.append(play.request(200, 0.97))
    assert np.median(speeds) > 1.15


def test_what_a_draft_model_has_to_read_is_paid_for_like_its_drafts() -> None:
    play = Play(Utility(), MOE, reading=0.1)
    for _ in range(3):
        play.request(300, 0.3, confidence=lambda guessed: 0.6 if guessed else 0.4)
    assert play.returns >= 3
    assert play.speed > 0.97


def test_a_slow_spell_is_not_mistaken_for_a_cost() -> None:
    calm, spell = Play(Utility(), DENSE, seed=3), Play(Utility(), DENSE, seed=3)
    for play in (calm, spell):
        play.request(200, 0.75)
    calm.request(300, 0.75)
    spell.request(300, 0.75, slow=lambda at: 2.5 if 50 <= at < 150 else 1.0)
    assert spell.speed > 0.95 * calm.speed


def test_lookups_that_find_nothing_cost_nothing() -> None:
    play = Play(Utility(), DENSE)
    for _ in range(3):
        play.request(300, 0.9, found=lambda at: at % 60 > 40)
    nothing = Play(Utility(), DENSE)
    assert nothing.request(300, 0.9, found=lambda _: False) == 1
    assert play.speed > 1.1
    assert play.asked.count(0) < 0.2 * len(play.asked)


def test_listens_to_confidence_where_a_fixed_length_would_lose() -> None:
    rng = np.random.default_rng(5)

    def telling(guessed: bool) -> float:
        return float(rng.uniform(0.9, 1) if guessed else rng.uniform(0.1, 0.6))

    play = Play(Utility(), MOE)
    for _ in range(4):
        play.request(250, 0.55, confidence=telling)
    assert best_speed(MOE, 0.55) == 1
    assert play.speed > 1.04


def test_confidence_that_says_nothing_is_not_believed() -> None:
    rng = np.random.default_rng(5)
    play = Play(Utility(), MOE)
    for _ in range(4):
        play.request(250, 0.2, confidence=lambda _: float(rng.uniform(0.9, 1)))
    assert play.speed > 0.97


# --- what they may lose ----------------------------------------------------------------------------------------------


@given(
    hits=st.lists(st.integers(0, 16), min_size=1, max_size=400),
    costs=st.sampled_from([DENSE, MOE]),
    begins=st.integers(1, 50),
)
@moderate
def test_with_known_costs_no_text_can_lose_more_than_the_allowance(
    hits: list[int], costs: list[float], begins: int
) -> None:
    """An adversary decides after the fact how much of each draft is accepted."""
    policy, tokens, time = CostTable(costs), 0, 0.0
    for step, most in enumerate(hits):
        if step % begins == 0:
            policy.begin()
        asked = policy.length()
        accepted = min(most, asked)
        policy.observe(asked, accepted, 1.0)
        tokens += accepted + 1
        time += costs[asked]
        assert time <= (1 + SHARE) * tokens + ALLOWANCE + 1e-9


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.floats(0, 1e12) | st.just(math.nan), st.floats(0, 1)),
        max_size=150,
    ),
    longest=st.integers(1, 9),
    listening=st.booleans(),
)
@moderate
def test_whatever_happens_lengths_are_lengths(
    steps: list[tuple[int, int, float, float]], longest: int, listening: bool
) -> None:
    policies: Iterable[DraftPolicy] = (Utility(longest, use_confidence=listening), Cascade(longest))
    for policy in policies:
        for most, accepted, step_ms, sure in steps:
            asked = policy.length()
            assert 0 <= asked <= longest
            drafted = 0
            while drafted < min(asked, most) and policy.goes_on(lambda sure=sure: sure, lambda: 1.0):
                drafted += 1
            if isinstance(policy, Cascade) and not 0 < step_ms < math.inf:
                continue
            policy.observe(drafted, min(accepted, drafted), step_ms)


@pytest.mark.parametrize("costs", [[10.0, 11.0], [10.0, 0.0, 12.0], [10.0, math.nan, 12.0]])
def test_cost_tables_are_whole_and_positive(costs: list[float]) -> None:
    with pytest.raises(UsageError, match="costs_ms"):
        CostTable(costs, 2)


# --- what they know --------------------------------------------------------------------------------------------------


def _learnt(truth: list[float], lengths: list[int], *, drift: float = 0.0, outliers: float = 0.03) -> StepCosts:
    rng, costs = np.random.default_rng(2), StepCosts(16)
    for step, length in enumerate([0] * PLAIN_STEPS + lengths):
        noise = math.exp(rng.normal(0, 0.04)) * (2 if rng.random() < outliers else 1)
        costs.observe(length, length, 7 * truth[length] * noise * (1 + drift * step))
    return costs


@pytest.mark.parametrize("truth", [DENSE, MOE], ids=["dense", "moe"])
def test_costs_are_learnt_through_outliers_and_growing_contexts(truth: list[float]) -> None:
    lengths = np.random.default_rng(1).choice([0, 1, 2, 3, 5, 8], 300).tolist()
    found = _learnt(truth, lengths, drift=0.003).expected()
    for length in (1, 2, 3, 5, 8):
        assert found[length] == pytest.approx(truth[length], rel=0.06)
    # Lengths between those that were seen are drawn from them.
    for length in (4, 6, 7):
        assert found[length] == pytest.approx(truth[length], rel=0.15)
    assert found[0] == 1


def test_a_length_that_was_never_seen_gets_the_benefit_of_the_doubt() -> None:
    costs = _learnt(DENSE, [1, 0, 1, 0, 2, 0])
    expected, hoped = costs.expected(), costs.hoped()
    assert all(low <= high for low, high in zip(hoped, expected, strict=True))
    assert hoped[16] / expected[16] < hoped[1] / expected[1] < 1
    assert costs.longest_known == 2


def test_times_that_are_no_times_are_not_counted() -> None:
    costs = _learnt(DENSE, [1, 2, 1, 2])
    before = costs.expected()
    for bad in (0.0, -1.0, math.nan, math.inf):
        costs.observe(2, 2, bad)
    assert costs.expected() == before


def test_a_lasting_change_of_level_is_followed() -> None:
    costs = _learnt(DENSE, [0, 3] * 30)
    before = costs.expected()[3]
    for _ in range(40):
        costs.observe(3, 3, 7 * 1.7 * DENSE[3])
    for _ in range(10):
        costs.observe(0, 0, 7 * 1.7)
    assert costs.expected()[3] == pytest.approx(before, rel=0.05)


@pytest.mark.slow
@given(steps=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), min_size=150, max_size=200))
@moderate
def test_acceptance_is_that_of_position_rates(steps: list[tuple[int, int]]) -> None:
    counts, pairs = RecentAcceptance(5), [(drafted, min(drafted, accepted)) for drafted, accepted in steps]
    counts._PER_STEP = counts._PER_TOKEN = 1.0  # type: ignore[misc]
    counts._PLACE_WEIGHT = 1e-6  # type: ignore[misc]
    for drafted, accepted in pairs:
        counts.observe(drafted, accepted)
    rates = position_rates(pairs)
    np.testing.assert_allclose(counts.chances()[: len(rates.reached)], rates.conditional, atol=1e-4)


def test_acceptance_forgets() -> None:
    counts = RecentAcceptance(4)
    for accepted in [4] * 100 + [0] * 100:
        counts.observe(4, accepted)
    assert counts.chances()[0] < 0.1
    counts.plain(5000)
    assert counts.overall() == pytest.approx(RecentAcceptance.PRIOR, abs=0.01)


def test_acceptance_does_not_overflow() -> None:
    counts = RecentAcceptance(4)
    for _ in range(20_000):
        counts.observe(4, 3)
    assert counts.chances()[2] == pytest.approx(1, abs=0.1)
    assert counts.chances()[3] < 0.3
    assert math.isfinite(counts.overall())


def test_calibration_learns_what_confidence_is_worth() -> None:
    calibration, rng = Calibration(), np.random.default_rng(3)
    assert calibration.chance(0.99) > calibration.chance(0.5) > calibration.chance(0.05)
    for _ in range(2000):
        calibration.observe(0.99, bool(rng.random() < 0.6))
    assert calibration.chance(0.99) == pytest.approx(0.6, abs=0.12)
    assert calibration.chance(0.5) == pytest.approx(0.5, abs=0.05)


# --- Cascade, as published -------------------------------------------------------------------------------------------


def test_cascade_keeps_to_its_schedule() -> None:
    """Four plain steps, tests of four steps each, sixteen steps of the best; where it loses, ever longer plain rows."""

    def lengths(costs: list[float], steps: int) -> list[tuple[int, int]]:
        policy, seen = Cascade(4), []
        for _ in range(steps):
            asked = policy.length()
            seen.append(asked)
            policy.observe(asked, asked // 2, 10 * costs[asked])
        return [(length, len(list(group))) for length, group in itertools.groupby(seen)]

    losing = lengths([1.0, 3.0, 5.0, 7.0, 9.0], 90)
    assert losing == [(0, 4), (1, 4), (0, 32), (1, 4), (0, 46)]
    gaining = lengths([1.0, 0.9, 1.0, 1.1, 1.2], 40)
    # After its sixteen steps, length 2 is the first one that the next test tries.
    assert gaining[:5] == [(0, 4), (1, 4), (2, 4), (3, 4), (2, 16 + 4)]

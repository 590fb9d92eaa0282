"""The replay of known texts: against constructed profiles, and against a loop that drafts and verifies one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import profile, rounds

from specmeter.probe.draft_lengths import full_drafts, match_lengths
from specmeter.probe.replay import (
    PLAIN,
    CombinedDrafts,
    Limits,
    ModelDrafts,
    NgramDrafts,
    Round,
    UnreplayableError,
    first_impossible,
    possible_totals,
    replay,
)


def test_a_step_accepts_up_to_the_first_mismatch_and_adds_one_token() -> None:
    # Text of 8: t_0 is the prompt's. From 1: t_1, t_2 match, t_3 does not.
    assert rounds(profile("01101111"), gamma=4) == ((4, 2), (3, 3))


def test_the_last_token_is_never_drafted() -> None:
    assert rounds(profile("111111"), gamma=16) == ((4, 4),)
    assert rounds(profile("11"), gamma=4) == (PLAIN,)
    assert rounds(profile("1"), gamma=4) == ()


def test_gamma_min_throws_short_drafts_away() -> None:
    assert rounds(profile("1" * 7), gamma=3, gamma_min=3) == ((3, 3), PLAIN, PLAIN)


def test_context_shortens_drafts_and_then_ends_them() -> None:
    drafts = ModelDrafts(profile("1" * 6), gamma=8)
    assert replay(drafts, Limits(max_tokens=100, room=2)) == ((2, 2), PLAIN, PLAIN)


def test_a_text_that_ends_before_the_limit_is_replayed_to_its_end() -> None:
    drafts = ModelDrafts(profile("1" * 6), gamma=8, p_min=0.5)
    assert replay(drafts, Limits(max_tokens=100)) == ((8, 4),), "what comes behind the end is not known"


def test_a_rejection_on_a_target_that_cannot_forget_is_followed_by_a_step_of_one_token() -> None:
    drafts = ModelDrafts(profile("0010111"), gamma=2)
    assert replay(drafts, Limits(7)) == ((2, 0), (2, 1), (2, 2))
    assert replay(drafts, Limits(7, replays=True)) == ((2, 0), PLAIN, (2, 0), PLAIN, (1, 1))


def test_tokens_behind_the_end_of_a_text_count_on_a_server_only() -> None:
    drafts = ModelDrafts(profile("1111"), gamma=6)
    own, server = Limits(100), Limits(100, counts_beyond=True)
    assert possible_totals(drafts, own) == {(6, 2)}
    assert possible_totals(drafts, server) == {(6, 2), (6, 3), (6, 4), (6, 5), (6, 6)}


def test_p_min_ends_a_draft_before_the_unsure_token() -> None:
    found = profile("111111", confidences=(1, 1, 0.9, 0.3, 0.9, 0.9))
    assert rounds(found, gamma=4, p_min=0.5) == ((2, 2), (1, 1))


def test_p_min_behind_a_wrong_token_needs_the_branch() -> None:
    unknown = profile("1101111")
    assert rounds(unknown, gamma=4) == ((4, 1), (3, 3))
    with pytest.raises(UnreplayableError):
        rounds(unknown, gamma=4, p_min=0.5)
    known = profile("1101111", branches={2: (0.8, 0.2)})
    assert rounds(known, gamma=4, p_min=0.5) == ((3, 1), (3, 3))
    assert rounds(known, gamma=2, p_min=0.5) == ((2, 1), (2, 2), PLAIN)


def test_near_ties_may_go_either_way() -> None:
    found = profile("1111111", gaps={2: 0.01})
    sharp, lenient = ModelDrafts(found, 2), ModelDrafts(found, 2, near_tie=0.1)
    assert possible_totals(sharp, Limits(7)) == {(4, 4)}
    assert possible_totals(lenient, Limits(7)) == {(4, 4), (4, 3)}
    assert first_impossible(lenient, Limits(7), [Round(2, 1), Round(2, 2), PLAIN]) is None
    assert first_impossible(lenient, Limits(7), [Round(2, 0), Round(2, 2), Round(1, 1)]) == 0
    assert first_impossible(sharp, Limits(7), [Round(2, 1), Round(2, 2), PLAIN]) == 0


def test_one_count_off_by_one_is_impossible() -> None:
    drafts = ModelDrafts(profile("1101011"), 2)
    steps = list(replay(drafts, Limits(7)))
    assert first_impossible(drafts, Limits(7), steps) is None
    for place, step in enumerate(steps):
        for other in (Round(step.drafted + 1, step.accepted), Round(step.drafted, step.accepted + 1)):
            assert first_impossible(drafts, Limits(7), [*steps[:place], other, *steps[place + 1 :]]) == place
    assert first_impossible(drafts, Limits(7), steps[:-1]) == len(steps) - 1
    assert first_impossible(drafts, Limits(7), [*steps, PLAIN]) == len(steps)


def test_lookups_are_replayed_from_the_text() -> None:
    prompt, text = [1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 9]
    assert replay(NgramDrafts(prompt, text, n=2, gamma=2), Limits(5)) == (PLAIN, PLAIN, (1, 1))
    prompt = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    drafts = NgramDrafts(prompt, text, n=2, gamma=2)
    assert replay(drafts, Limits(5)) == (PLAIN, (2, 2))
    # Where the lookup is silent, the model is asked.
    both = CombinedDrafts((drafts, ModelDrafts(profile("10000"), 1)))
    assert replay(both, Limits(5)) == ((1, 0), (2, 2))
    assert replay(CombinedDrafts(both.methods, gamma_min=2), Limits(5)) == (PLAIN, (2, 2))


@given(
    st.lists(st.integers(0, 1), min_size=1, max_size=40),
    st.integers(1, 12),
    st.integers(0, 4),
    st.booleans(),
    st.integers(0, 3),
)
def test_replay_is_what_a_loop_does_that_drafts_and_verifies(
    bits: list[int], gamma: int, gamma_min: int, replays: bool, beyond: int
) -> None:
    """The text is 0, 1, 2, ...; the draft says so where it matches and something else where not."""
    n = len(bits)
    limits = Limits(n + beyond, replays=replays)
    expected: list[tuple[int, int]] = []
    emitted = 1
    while emitted < n:
        wanted = min(gamma, limits.max_tokens - emitted - 1)
        draft = [emitted + k if emitted + k < n and bits[emitted + k] else -1 for k in range(max(wanted, 0))]
        if len(draft) < gamma_min:
            draft = []
        accepted = 0
        for k, token in enumerate(draft):
            if token != emitted + k:
                break
            accepted += 1
        # Of what comes out, the last one is the target's own, and the text ends the count.
        out = min(accepted + 1, n - emitted)
        expected.append((len(draft), out - 1))
        emitted += out
        if replays and out - 1 < len(draft) and emitted < n:
            expected.append((0, 0))
            emitted += 1
    matches = "".join(map(str, bits))
    found = replay(ModelDrafts(profile(matches), gamma, gamma_min), limits)
    if not gamma_min and not beyond:
        assert full_drafts(match_lengths(matches), gamma, replays=replays) == list(found)
    assert list(found) == expected
    assert 1 + sum(1 + it.accepted for it in found) == n

"""Verification loses nothing: the joint distribution of tokens is the target's own, whatever the draft proposes.

A small vocabulary and tables in place of models: what comes next depends on the last two tokens. From one context,
many runs draft and verify until three tokens are out; their counts are compared, over all 512 triples, with the
probabilities that plain sampling has, which are known exactly. Seeds are fixed, so the tests do not flicker.
"""

from __future__ import annotations

import bisect
import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats as distributions

from specmeter.engines.libllama.verification import greedy, rejection, sample_match
from specmeter.errors import EngineProtocolError, UsageError
from specmeter.llama_binding.sampling import draw, probabilities
from specmeter.record import Generation

VOCABULARY = 8
START = (3, 5)
RUNS = 50_000
LEVEL = 0.001

PLAIN = Generation(temperature=1, top_k=0, top_p=1, min_p=0)
FILTERED = Generation(temperature=0.8, top_k=6, top_p=0.9, min_p=0.1)
GREEDY_DRAFT, LOOKUP = "best token", "lookup"


class Model:
    """Logits by the last two tokens, and the distributions that sampling draws from."""

    def __init__(self, logits: np.ndarray, generation: Generation) -> None:
        self.logits = logits.astype(np.float32)
        flat = probabilities(self.logits.reshape(-1, VOCABULARY), generation)
        self.table = flat.reshape(logits.shape)
        self._sums = {
            context: self.table[context].cumsum().tolist() for context in itertools.product(range(VOCABULARY), repeat=2)
        }

    def sample(self, context: tuple[int, int], number: float) -> int:
        sums = self._sums[context]
        return bisect.bisect_right(sums, number * sums[-1])


def models(kind: str, generation: Generation) -> tuple[Model, Model]:
    """A target, and a draft that is close to it, far from it, or itself."""
    rng = np.random.default_rng(11)
    logits = rng.normal(0, 1.3, (VOCABULARY,) * 3)
    noise = {"same": 0.0, "close": 0.5, "far": 2.5}[kind]
    return Model(logits, generation), Model(logits + rng.normal(0, 1, logits.shape) * noise, generation)


def joint(target: Model) -> np.ndarray:
    """P(first three tokens) of plain sampling, exactly."""
    first = target.table[START]
    second = np.stack([target.table[START[1], a] for a in range(VOCABULARY)])
    third = target.table  # by the two tokens before
    return first[:, None, None] * second[:, :, None] * third


def counted(rule: str, target: Model, draft: Model, gamma: int, seed: int) -> tuple[np.ndarray, float]:
    """How often each triple came out, and the share of first drafts that were accepted at the start."""
    rng, numbers = np.random.default_rng(seed), np.random.default_rng(seed + 1).random(RUNS * 3 * gamma).tolist()
    counts = np.zeros((VOCABULARY,) * 3)
    accepted_first = at = 0
    for _ in range(RUNS):
        text: list[int] = [*START]
        while len(text) < 5:
            drafted: list[int] = []
            rows: list[Any] = []
            context = (text[-2], text[-1])
            places = [context]
            for _ in range(gamma):
                if rule == LOOKUP:
                    token, row = (context[0] + context[1]) % VOCABULARY, None
                elif rule == GREEDY_DRAFT:
                    token, row = int(draft.logits[context].argmax()), None
                else:
                    token, row = draft.sample(context, numbers[at]), draft.table[context]
                    at = (at + 1) % len(numbers)
                drafted.append(token)
                rows.append(row)
                context = (context[1], token)
                places.append(context)
            targets = [target.table[place] for place in places]
            if rule == "sample match":
                result = sample_match(drafted, targets, rng)
            else:
                draft_rows = rows if rule == "rejection" or gamma % 2 else None
                result = rejection(drafted, draft_rows, targets, rng)
            if len(text) == 2:
                accepted_first += result.accepted > 0
            text += [*drafted[: result.accepted], result.token]
        counts[text[2], text[3], text[4]] += 1
    return counts, accepted_first / RUNS


def p_value(counts: np.ndarray, expected: np.ndarray) -> float:
    """Chi-square of counts against probabilities; triples that are expected fewer than five times are one cell."""
    observed, means = counts.ravel(), expected.ravel() * counts.sum()
    assert observed[means == 0].sum() == 0, "a token came out that the target never says"
    rare = means < 5
    observed = np.append(observed[~rare], observed[rare].sum())
    means = np.append(means[~rare], means[rare].sum())
    if means[-1] < 5:
        observed, means = observed[:-1], means[:-1]
        means = means * observed.sum() / means.sum()
    return float(distributions.chisquare(observed, means).pvalue)


CASES = [
    ("rejection", "same", 3, PLAIN),
    ("rejection", "close", 1, PLAIN),
    ("rejection", "close", 4, FILTERED),
    ("rejection", "far", 2, PLAIN),
    ("rejection", "far", 3, FILTERED),
    (GREEDY_DRAFT, "close", 2, FILTERED),
    (LOOKUP, "far", 3, PLAIN),
    ("sample match", "close", 3, PLAIN),
    ("sample match", "far", 2, FILTERED),
]


@pytest.mark.parametrize(("rule", "kind", "gamma", "generation"), CASES)
def test_the_text_is_distributed_as_the_target_alone(rule: str, kind: str, gamma: int, generation: Generation) -> None:
    target, draft = models(kind, generation)
    counts, accepted = counted(rule, target, draft, gamma, seed=gamma)
    assert p_value(counts, joint(target)) > LEVEL
    own, proposed = target.table[START], draft.table[START]
    if rule == GREEDY_DRAFT:
        expected = own[draft.logits[START].argmax()]
    elif rule == LOOKUP:
        expected = own[sum(START) % VOCABULARY]
    elif rule == "sample match":
        expected = (own * proposed).sum()
    else:
        expected = np.minimum(own, proposed).sum()
    assert accepted == pytest.approx(expected, abs=0.01)


def test_the_test_notices_a_rule_that_loses_something() -> None:
    """Accepting by the target's probability alone looks harmless, and is not the target's distribution."""
    target, draft = models("close", PLAIN)
    rng = np.random.default_rng(5)
    counts = np.zeros((VOCABULARY,) * 3)
    for _ in range(RUNS):
        text = [*START]
        while len(text) < 5:
            context = (text[-2], text[-1])
            token = draft.sample(context, rng.random())
            accept = rng.random() < target.table[context][token] ** 0.5
            text.append(token if accept else target.sample(context, rng.random()))
        counts[tuple(text[2:])] += 1
    assert p_value(counts, joint(target)) < 1e-9


def test_a_draft_that_is_the_target_is_always_accepted() -> None:
    target, draft = models("same", FILTERED)
    _, accepted = counted("rejection", target, draft, 1, seed=4)
    assert accepted == 1


def test_sample_matching_repeats_plain_sampling_token_by_token() -> None:
    target, draft = models("close", PLAIN)
    for seed in range(50):
        plain, text = [*START], [*START]
        rng = np.random.default_rng(seed)
        while len(plain) < 40:
            plain.append(draw(target.table[plain[-2], plain[-1]], rng))
        rng, numbers = np.random.default_rng(seed), np.random.default_rng(seed + 1)
        while len(text) < 40:
            drafted: list[int] = []
            context = (text[-2], text[-1])
            rows = [target.table[context]]
            for _ in range(4):
                drafted.append(draft.sample(context, numbers.random()))
                context = (context[1], drafted[-1])
                rows.append(target.table[context])
            result = sample_match(drafted, rows, rng)
            text += [*drafted[: result.accepted], result.token]
        assert text[:40] == plain


def _logits(*tokens: int) -> np.ndarray:
    logits = np.random.default_rng(1).normal(0, 1, (len(tokens), 10)).astype(np.float32)
    logits[range(len(tokens)), tokens] = 9
    return logits


@pytest.mark.parametrize(
    ("drafted", "own", "expected"),
    [
        ([], [4], (0, 4)),
        ([1, 2, 3], [1, 2, 3, 4], (3, 4)),
        ([1, 2, 3], [1, 7, 3, 4], (1, 7)),
        ([1, 2, 3], [0, 2, 3, 4], (0, 0)),
        ([1, 2, 3], [1, 2, 0, 4], (2, 0)),
    ],
)
def test_greedy_accepts_up_to_the_first_difference(
    drafted: list[int], own: list[int], expected: tuple[int, int]
) -> None:
    assert greedy(drafted, _logits(*own)) == expected


def test_greedy_does_not_look_beyond_a_rejection_and_refuses_what_is_no_number() -> None:
    logits = _logits(1, 7, 3)
    logits[2] = np.nan
    assert greedy([1, 2], logits) == (1, 7)
    with pytest.raises(EngineProtocolError):
        greedy([1, 7], logits)


def test_the_residual_never_contains_a_rejected_lookup() -> None:
    target = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    rng = np.random.default_rng(2)
    results = [rejection([0], None, target, rng) for _ in range(4000)]
    rejected = [result.token for result in results if not result.accepted]
    assert 0 not in rejected
    assert np.mean([token == 1 for token in rejected]) == pytest.approx(0.6, abs=0.04)
    assert np.mean([result.accepted for result in results]) == pytest.approx(0.5, abs=0.03)


def test_rows_must_fit_the_draft() -> None:
    rng, rows = np.random.default_rng(1), np.full((3, 4), 0.25)
    with pytest.raises(UsageError, match="need 2 rows"):
        greedy([1], rows)
    with pytest.raises(UsageError, match="need 4 rows"):
        sample_match([1, 2, 3], rows, rng)
    with pytest.raises(UsageError, match="draft_probs has 1"):
        rejection([1, 2], [None], rows, rng)
    with pytest.raises(UsageError, match="probability 0"):
        rejection([1, 2], np.array([[1.0, 0, 0, 0], [0, 0, 1, 0]]), rows, rng)

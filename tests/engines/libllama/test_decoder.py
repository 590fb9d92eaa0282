"""The loop on real (tiny) models: greedy text is that of plain decoding, every token and millisecond accounted for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import chisquare

from engines.libllama.contexts import Opened
from engines.llama_fixtures import TEXT
from specmeter.engines.libllama.decoder import Decoder, Generated
from specmeter.engines.libllama.drafters import Draft, Drafter, FirstOf, ModelDrafter, NgramDrafter, Oracle
from specmeter.engines.llama_cpp.draft_rules import NgramLookup
from specmeter.llama_binding.context import Context, RoutingTap, Work, alone
from specmeter.llama_binding.sampling import probabilities
from specmeter.record import Generation
from specmeter.workloads import load
from specmeter.workloads.spec import BenchWorkload

GREEDY = Generation(max_tokens=48, ignore_eos=True)
GAMMAS = (1, 2, 3, 4, 5, 6, 8, 11, 16)
NEAR_TIE = 0.3
"""Nats between the two best tokens below which another order of adding up may turn them; see the notebook."""


def texts() -> list[str]:
    prompts = load([BenchWorkload(source="bench", name="all", per_kind=1)])
    return [prompt.text for prompt in prompts]


def tokens_of(context: Context, text: str = TEXT) -> list[int]:
    return context.model.tokenize(text, add_special=True, parse_special=True)


def by_model(opened: Opened, *, p_min: float = 0.0) -> ModelDrafter:
    draft = opened("draft-small", "draft")
    return ModelDrafter(draft, draft.model.vocabulary_size, GREEDY, drawn=None, p_min=p_min)


def accounted(out: Generated) -> None:
    """What must hold of any generation."""
    assert len(out.tokens) - 1 == sum(step.accepted + 1 for step in out.steps)
    assert len(out.at_ms) == len(out.tokens)
    assert out.at_ms == sorted(out.at_ms)
    parts = ("draft_ms", "verify_ms", "sample_ms", "restore_ms", "other_ms")
    spent = sum(getattr(step, part) for step in out.steps for part in parts)
    assert spent == pytest.approx(out.decode_ms, rel=0.02)
    assert all(getattr(step, part) >= 0 for step in out.steps for part in parts)
    for step in out.steps:
        assert 0 <= step.accepted <= step.drafted


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    return next((place for place, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), None)


@pytest.mark.parametrize("name", ["moe", *(pytest.param(it, marks=pytest.mark.slow) for it in ("dense", "hybrid"))])
def test_greedy_text_is_that_of_plain_decoding(name: str, opened: Opened) -> None:
    target, ties = opened(name), 0
    for text in texts():
        prompt = tokens_of(target, text)
        plain = Decoder(target, GREEDY).generate(prompt)
        accounted(plain)
        assert plain.forwards == len(plain.tokens)
        for gamma in GAMMAS:
            drafters: list[Drafter] = [by_model(opened), NgramDrafter(NgramLookup(2, gamma))]
            for drafter in drafters:
                out = Decoder(target, GREEDY, drafter=drafter, gamma=gamma).generate(prompt)
                accounted(out)
                assert out.forwards == 1 + len(out.steps)
                assert max(step.drafted for step in out.steps) <= gamma
                place = first_difference(plain.tokens, out.tokens)
                if place is not None:
                    target.cut(0)
                    row = target.extend([*prompt, *plain.tokens[:place]])[0]
                    assert abs(row[plain.tokens[place]] - row[out.tokens[place]]) < NEAR_TIE
                    ties += 1
    assert ties <= 2  # of 90 or more generations


def test_a_good_draft_saves_forwards_and_a_rejected_one_costs_none(opened: Opened) -> None:
    target = opened("dense")
    prompt = tokens_of(target, texts()[0])
    plain = Decoder(target, GREEDY).generate(prompt)
    for rate, steps in ((1.0, 10), (0.0, 47)):
        oracle = Oracle((rate,) * 4, np.random.default_rng(1), target.model.vocabulary_size)
        oracle.foretell(plain.tokens)
        out = Decoder(target, GREEDY, drafter=oracle, gamma=4).generate(prompt)
        assert out.tokens == plain.tokens
        assert len(out.steps) == steps
        assert out.accepted == rate * out.drafted


@pytest.mark.slow
def test_planted_errors_come_at_the_rates_that_were_asked_for(opened: Opened) -> None:
    target = opened("dense")
    rates, reached = (0.8, 0.5, 0.4, 0.1), np.zeros(5)
    generation = Generation(max_tokens=400, ignore_eos=True)
    prompt = tokens_of(target)
    plain = Decoder(target, generation).generate(prompt)
    for seed in range(8):
        oracle = Oracle(rates, np.random.default_rng(seed), target.model.vocabulary_size)
        oracle.foretell(plain.tokens)
        out = Decoder(target, generation, drafter=oracle, gamma=4).generate(prompt)
        assert out.tokens == plain.tokens
        for step in out.steps:
            if step.drafted == 4:
                reached[: step.accepted + 1] += 1
    shares, n = reached[1:] / reached[0], reached[0]
    for share, rate in zip(shares, rates, strict=True):
        assert share == pytest.approx(rate, abs=4 * (rate * (1 - rate) / n) ** 0.5)


def test_an_oracle_never_plants_what_is_forbidden() -> None:
    oracle = Oracle((0.0,), np.random.default_rng(1), 4, frozenset({2, 3}))
    oracle.begin([0])
    oracle.foretell([1] * 9)
    assert alone(oracle.draft([0], 1)) == Draft([0])


def test_several_drafters_are_asked_in_turn(opened: Opened) -> None:
    target = opened("dense")
    prompt = tokens_of(target, texts()[0])
    lookup = NgramDrafter(NgramLookup(4, 8))
    both = Decoder(target, GREEDY, drafter=FirstOf([lookup, by_model(opened)]), gamma=8).generate(prompt)
    alone = Decoder(target, GREEDY, drafter=by_model(opened), gamma=8).generate(prompt)
    accounted(both)
    assert both.tokens == alone.tokens
    assert both.drafted > 0


def test_drafting_stops_where_the_draft_doubts(opened: Opened) -> None:
    target, counts = opened("dense"), np.zeros((2, 2))
    for text in texts():
        prompt = tokens_of(target, text)
        sure, always = (
            Decoder(target, GREEDY, drafter=by_model(opened, p_min=p_min), gamma=8).generate(prompt)
            for p_min in (0.9, 0.0)
        )
        assert sure.tokens == always.tokens
        counts += [[sure.drafted, sure.accepted], [always.drafted, always.accepted]]
    (drafted, accepted), (all_drafted, all_accepted) = counts
    assert 0 < drafted < all_drafted
    assert accepted / drafted > all_accepted / all_drafted


def test_short_drafts_are_thrown_away_where_that_is_asked_for(opened: Opened) -> None:
    target = opened("dense")
    prompt = tokens_of(target)
    out = Decoder(target, GREEDY, drafter=by_model(opened, p_min=0.6), gamma=8, gamma_min=3).generate(prompt)
    accounted(out)
    assert {step.drafted for step in out.steps} & {1, 2} == set()
    assert any(step.drafted >= 3 for step in out.steps)
    assert any(step.drafted == 0 for step in out.steps)


def test_self_drafting_shares_the_weights_and_is_nearly_always_right(opened: Opened) -> None:
    target, again = opened("dense"), Context(opened("dense").model, opened("dense").settings, threads=1)
    with again:
        drafter = ModelDrafter(again, target.model.vocabulary_size, GREEDY, drawn=None)
        out = Decoder(target, GREEDY, drafter=drafter, gamma=4).generate(tokens_of(target))
    accounted(out)
    assert out.accepted / out.drafted > 0.9


def test_the_end_of_the_text_ends_it_also_in_the_middle_of_a_draft(opened: Opened) -> None:
    """What the target says is replaced by a text with an end in it; drafts go beyond that."""
    target = opened("dense")
    prompt = tokens_of(target)
    plain = Decoder(target, GREEDY).generate(prompt)
    end = int(target.model.end_tokens[0])
    generation = GREEDY.model_copy(update={"ignore_eos": False})
    for at in (1, 5, 6):
        wanted = [*plain.tokens[:at], end, *plain.tokens[at + 1 :]]
        decoder = Decoder(target, generation, drafter=_Certain(wanted, len(prompt)), gamma=4)
        decoder._choose = _forced(wanted)  # type: ignore[method-assign]  # pyright: ignore
        out = decoder.generate(prompt)
        accounted(out)
        assert out.stop_reason == "eos"
        assert out.tokens == wanted[: at + 1]


class _Certain:
    def __init__(self, text: Sequence[int], prompt: int) -> None:
        self._text, self._prompt = text, prompt

    def begin(self, prompt: Sequence[int]) -> None:
        pass

    def draft(self, history: Sequence[int], most: int) -> Work[Draft]:
        yield from ()
        at = len(history) - self._prompt
        return Draft(list(self._text[at : at + most]))


def _forced(text: Sequence[int]):
    from specmeter.engines.libllama.verification import Verification

    done = 0

    def choose(drafted: Sequence[int], draft: Draft, logits: np.ndarray) -> Verification:  # noqa: ARG001
        nonlocal done
        done += len(drafted) + 1
        return Verification(len(drafted), text[done - 1])

    return choose


def test_ends_are_never_said_where_they_are_ignored(opened: Opened) -> None:
    target = opened("dense")
    end = int(target.model.end_tokens[0])
    generation = Generation(max_tokens=400, temperature=5.0, seed=3, ignore_eos=True)
    out = Decoder(target, generation, drafter=by_model(opened), gamma=3).generate(tokens_of(target))
    assert out.stop_reason == "limit"
    assert end not in out.tokens


def test_a_context_that_runs_full_ends_the_text_cleanly(opened: Opened) -> None:
    target = opened("dense")
    generation = Generation(max_tokens=10_000, ignore_eos=True)
    prompt = [7] * (target.capacity - 30)
    for drafter in (None, by_model(opened)):
        out = Decoder(target, generation, drafter=drafter, gamma=8).generate(prompt)
        accounted(out)
        assert out.stop_reason == "context"
        assert len(prompt) + len(out.tokens) == target.capacity + 1


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["rejection", "sample-match"])
def test_sampled_text_has_the_targets_distribution(rule: str, opened: Opened) -> None:
    """First three tokens over 4,000 generations with a real draft model against the target's own probabilities."""
    target, draft = opened("draft-large"), opened("draft-small", "draft")
    generation = Generation(max_tokens=4, temperature=1.5, top_k=4, top_p=1.0, min_p=0.0, ignore_eos=True)
    prompt = tokens_of(target, "Anna")
    rng = np.random.default_rng(5)
    drawn = rng if rule == "rejection" else None
    drafter = ModelDrafter(draft, draft.model.vocabulary_size, generation, drawn=drawn)
    decoder = Decoder(target, generation, drafter=drafter, gamma=2, rule=rule, rng=rng)  # type: ignore[arg-type]
    counts: dict[tuple[int, ...], int] = {}
    runs = 4000
    for _ in range(runs):
        pair = tuple(decoder.generate(prompt).tokens[:3])
        counts[pair] = counts.get(pair, 0) + 1
    expected = _joint(target, prompt, generation, 3)
    assert set(counts) <= set(expected)
    assert len(expected) > 30
    large = {pair: odds * runs for pair, odds in expected.items() if odds * runs >= 5}
    seen = [counts.get(pair, 0) for pair in large] + [runs - sum(counts.get(pair, 0) for pair in large)]
    wanted = [*large.values(), runs - sum(large.values())]
    if wanted[-1] < 5:
        seen[-2:], wanted[-2:] = [sum(seen[-2:])], [sum(wanted[-2:])]
    assert chisquare(seen, np.array(wanted) * sum(seen) / sum(wanted)).pvalue > 0.001


def _joint(target: Context, prompt: list[int], generation: Generation, length: int) -> dict[tuple[int, ...], float]:
    found: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        longer: dict[tuple[int, ...], float] = {}
        for start, odds in found.items():
            target.cut(0)
            row = target.extend([*prompt, *start])[0].copy()
            row[target.model.end_tokens] = -np.inf
            share = probabilities(row, generation)
            longer |= {(*start, int(it)): odds * float(share[it]) for it in np.flatnonzero(share)}
        found = longer
    return found


def test_experts_of_every_step_are_recorded(opened: Opened) -> None:
    model = opened("moe").model
    tap = RoutingTap()
    with Context(model, opened("moe").settings, threads=1, tap=tap) as target:
        decoder = Decoder(target, GREEDY, drafter=by_model(opened), gamma=4, tap=tap)
        out = decoder.generate(tokens_of(target))
    plain = Decoder(opened("moe"), GREEDY).generate(tokens_of(opened("moe")))
    assert out.tokens == plain.tokens
    for step in out.steps:
        assert step.experts is not None
        layers = len(step.experts)
        assert layers >= 2
        for ids in step.experts:
            assert len(ids) % (step.drafted + 1) == 0
            assert 0 <= min(ids) <= max(ids) < 32
            used = len(ids) // (step.drafted + 1)
            for at in range(0, len(ids), used):
                assert len(set(ids[at : at + used])) == used

"""moe-twin: a planted effect of routing is found and a null is not; the study loads, expands and runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from claims_of import rulings, said, values
from specmeter.messages import Message, words
from specmeter.record import Estimate, ExpertUnion, Prediction, UnionPoint
from specmeter_studies.cli.study import command
from specmeter_studies.folder import StudyFolder
from specmeter_studies.library.moe_twin.cells import cells, family, kernel_cells, of_forward, predicted, role
from specmeter_studies.library.moe_twin.extra import equal_tokens, same_texts
from specmeter_studies.order import StudyOrder, load_parts
from specmeter_studies.show.twin import TwinRow, answer, figure, measured
from specmeter_studies.study import Answered, ArmResult, ModelUsed, PromptResult, StudyData

PART, BLOCKS, PROMPTS, TOKENS = "moe-twin", 5, ("code", "reason"), 101
GAMMAS = (2, 4, 16)
FIXED = 0.6
"""Share of a plain token that the tests' dense model takes whatever the tokens."""
EXPERT = 0.5
"""Bytes of an expert, of those that a token reads."""


def union(experts: int, used: int) -> ExpertUnion | None:
    if experts <= used:
        return None
    points = [(n, experts * (1 - (1 - used / experts) ** n)) for n in (1, 2, 3, 5, 9, 17)]
    return ExpertUnion(
        experts=experts,
        used=used,
        points=tuple(
            UnionPoint(tokens=n, union=Estimate(point=u, n=2, unit="experts", method="made up")) for n, u in points
        ),
    )


def model(name: str, experts: int = 0, used: int = 0) -> ModelUsed:
    return ModelUsed(
        name=name,
        reference=name,
        bytes_per_token=1.0,
        experts=experts,
        experts_used=used,
        expert_bytes=EXPERT if experts > used else None,
        union=union(experts, used),
    )


MODELS = (model("dense"), model("single", 1, 1), model("moe_8x1", 8, 1), model("moe_16x1", 16, 1), model("dense2"))
Cost = Callable[[ModelUsed, float], float]
"""Plain tokens that a forward over n tokens takes."""


def by_bytes(it: ModelUsed, n: float) -> float:
    """As the study expects: what is read costs time."""
    more = (
        0.0
        if it.union is None
        else float(it.union.points[[p.tokens for p in it.union.points].index(int(n))].union.point) - 1
    )
    return FIXED + (1 - FIXED) * n + FIXED * EXPERT * more


def as_dense(_: ModelUsed, n: float) -> float:
    """Routing costs nothing."""
    return FIXED + (1 - FIXED) * n


def row(config: str, target: str, block: int, prompt: str, ms: float, *, drafted: int, accepted: int) -> PromptResult:
    steps = TOKENS - 1 - accepted
    return PromptResult(
        config=config,
        target=target,
        prompt=prompt,
        repeat=block,
        generated=TOKENS,
        decode_ms=ms,
        drafted=drafted,
        accepted=accepted,
        tau=(TOKENS - 1) / steps,
    )


def estimate(point: float, unit: str = "x") -> Estimate:
    return Estimate(point=point, low=0.99 * point, high=1.01 * point, n=BLOCKS, unit=unit, method="made up")


def data(
    cost: Cost = by_bytes,
    *,
    accepted: Mapping[str, float] | None = None,
    noise: float = 0.002,
    models: tuple[ModelUsed, ...] = MODELS,
) -> StudyData:
    """Lookups of full length of which a share is accepted; blocks differ by `noise`, which two arms do not share."""
    arms: list[ArmResult] = []
    results: list[PromptResult] = []
    for place, it in enumerate(models):
        share = (accepted or {}).get(it.name, 0.8)
        plain = f"{it.name}/none"
        arms.append(ArmResult(config=plain, target=it.name, requests=10, verdict="valid"))
        for block in range(BLOCKS):
            results += [row(plain, it.name, block, p, 10.0 * TOKENS, drafted=0, accepted=0) for p in PROMPTS]
        for gamma in GAMMAS:
            # All steps draft gamma tokens: TOKENS - 1 = steps (1 + share gamma).
            steps = (TOKENS - 1) / (1 + share * gamma)
            drafted, taken = round(steps * gamma), round(steps * gamma * share)
            step = cost(it, gamma + 1)
            config = f"{it.name}/ngram-simple/g{gamma}"
            tau = (TOKENS - 1) / (TOKENS - 1 - taken)
            speedup = tau / step
            arms.append(
                ArmResult(
                    config=config,
                    target=it.name,
                    method="ngram-simple",
                    gamma=gamma,
                    requests=10,
                    baseline=plain,
                    speedup=estimate(speedup),
                    tau=estimate(tau, "tokens/forward"),
                    acceptance=estimate(taken / drafted, "1"),
                    verdict="valid",
                    prediction=Prediction(
                        arm_id=config,
                        made_at=1.0,
                        speedup=estimate(tau / as_dense(it, gamma + 1)),
                        inputs={"gamma": gamma, "tau": tau, "drafted": float(gamma), "verify": as_dense(it, gamma + 1)},
                    ),
                )
            )
            for block in range(BLOCKS):
                factor = math.exp(noise * math.sin(7 * block + 3 * place + gamma))
                ms = 10.0 * TOKENS * factor / speedup
                results += [row(config, it.name, block, p, ms, drafted=drafted, accepted=taken) for p in PROMPTS]
    answers = tuple(Answered(part="", target=it.name, prompt=p, tokens=(1, 2, 3)) for it in models for p in PROMPTS)
    return StudyData(
        study="moe-twin",
        origin="measured",
        title="made up",
        arms=tuple(arms),
        results=tuple(results),
        models=models,
        answers=answers,
    )


def test_nothing_measured_decides_nothing() -> None:
    assert set(rulings(StudyData(study="moe-twin", origin="measured", title="made up")).values()) == {"cannot tell"}


def test_a_cost_of_the_union_is_found_and_predicted() -> None:
    found = data()
    ruled = rulings(found)
    names = ("same-texts", "kernel", "size", "falls-with-union", "predicted", "predicted-of-single")
    assert {it: ruled[it] for it in names} == dict.fromkeys(names, "supported")
    assert ruled["full-acceptance"] == "contradicted"  # drafts are free here, so all of them accepted always gain
    told = values(said(found, "same-texts"), "moe-twin.texts")
    assert (told["equal"], told["of"]) == (3 * len(PROMPTS) * 3, 3 * len(PROMPTS) * 3)
    assert told["same"] == told["n"] == 4 * len(GAMMAS)


def test_no_effect_is_not_found() -> None:
    ruled = rulings(data(as_dense))
    assert ruled["falls-with-union"] == "contradicted"
    assert ruled["predicted"] == ruled["predicted-of-single"] == "contradicted"
    assert ruled["crosses"] == "contradicted"
    assert ruled["size"] == ruled["kernel"] == "supported"


def test_the_engines_code_alone_is_told_from_routing() -> None:
    """Experts cost a fifth more whatever is chosen: the union explains nothing, and the control with one says so."""
    ruled = rulings(data(lambda it, n: as_dense(it, n) * (1.2 if it.experts and n > 1 else 1.0)))
    assert ruled["kernel"] == ruled["predicted"] == "contradicted"
    assert ruled["falls-with-union"] == "contradicted"


def test_a_loss_by_size_is_not_taken_for_routing() -> None:
    ruled = rulings(data(lambda it, n: as_dense(it, n) * (1.3 if it.name == "dense2" else 1.0)))
    assert ruled["size"] == "contradicted"
    assert ruled["falls-with-union"] == "contradicted"


def test_drafts_that_gain_on_one_side_only() -> None:
    ruled = rulings(data(lambda it, n: as_dense(it, n) * (3.0 if (it.experts or 0) > 1 else 1.0)))
    assert ruled["crosses"] == "supported"
    assert rulings(data(lambda it, n: n * (3.0 if (it.experts or 0) > 1 else 1.0)))["full-acceptance"] == "supported"


def test_other_acceptance_breaks_the_control() -> None:
    lower = rulings(data(as_dense, accepted=dict.fromkeys(("single", "moe_8x1", "moe_16x1"), 0.6)))
    assert lower["same-texts"] == "contradicted"
    assert lower["kernel"] == "cannot tell"  # steps differ by more than the model


def test_numbers_that_are_false_support_no_control() -> None:
    """A certificate that no longer fits makes arms invalid: their counts are nothing to go by."""
    found = data()
    arms = tuple(it.model_copy(update={"verdict": "invalid"}) if it.speculates else it for it in found.arms)
    assert rulings(replace(found, arms=arms))["same-texts"] == "cannot tell"


def test_one_twin_that_parts_is_enough_to_break_the_control() -> None:
    """The others are exactly equal, which hides nothing of it."""
    found = data(as_dense, accepted={"moe_8x1": 0.6})
    assert rulings(found)["same-texts"] == "contradicted"
    assert {it.line.target for it in cells(found) if it.stands} == {"single", "moe_16x1", "dense2"}


def test_pairs_with_no_loss_predicted_support_no_prediction() -> None:
    """Where next to nothing is predicted, no effect at all would be as predicted."""
    small = tuple(it.model_copy(update={"expert_bytes": 0.001 if it.expert_bytes else None}) for it in MODELS)
    assert rulings(data(as_dense, models=small))["predicted"] == "cannot tell"


@pytest.mark.parametrize(("kept", "ruling"), [(1.2, "supported"), (0.8, "contradicted"), (1.0, "cannot tell")])
def test_clients_are_compared_block_by_block(kept: float, ruling: str) -> None:
    """All arms drift by a third from block to block, which cancels."""
    arms: list[ArmResult] = []
    results: list[PromptResult] = []
    for clients in (1, 8):
        for name, gain in (("dense", 1.4), ("moe_16x1", 1.4 * (0.8 if clients == 1 else 0.8 * kept))):
            for method, speed in (("none", 1.0), ("ngram-simple", gain)):
                config = f"{name}/{method}/c{clients}"
                plain = f"{name}/none/c{clients}" if method != "none" else None
                arms.append(
                    ArmResult(
                        config=config, target=name, method=method, gamma=4, requests=8, verdict="valid",
                        clients=clients, baseline=plain, speedup=estimate(speed) if plain else None,
                    )
                )  # fmt: skip
                for block in range(BLOCKS):
                    ms = 1000.0 / speed * (1 + block / 3) * (1 + 0.002 * math.sin(5 * block + len(config) + speed))
                    results.append(row(config, name, block, "edit", ms, drafted=0, accepted=0))
    made = StudyData(
        study="moe-twin", origin="measured", title="made up", arms=tuple(arms), results=tuple(results), models=MODELS
    )
    assert rulings(made)["clients"] == ruling


def test_routers_of_one_form_are_compared_alone() -> None:
    """16 experts twice: the union differs by the router. An effect of the file's size is none of the router."""
    near = model("moe_16x1_near", 16, 1).model_copy(update={"union": union(6, 1)})
    both = (*MODELS, near)
    found = rulings(data(models=both))
    assert found["falls-with-union"] == found["falls-at-equal-size"] == "supported"
    by_size = rulings(data(lambda it, n: as_dense(it, n) * (1 + 0.02 * (it.experts or 0)), models=both))
    assert (by_size["falls-with-union"], by_size["falls-at-equal-size"]) == ("supported", "contradicted")


def test_ratios_and_predictions_have_right_values() -> None:
    found = data(noise=0.0)
    (cell,) = [it for it in cells(found) if it.line.target == "moe_16x1" and it.line.gamma == 4]
    dense = FIXED + (1 - FIXED) * 5
    read = 16 * (1 - (15 / 16) ** 5)
    expected = dense / (dense + FIXED * EXPERT * (read - 1))
    assert cell.per_step is not None
    assert cell.per_step.point == pytest.approx(expected, rel=1e-6)
    assert cell.predicted == pytest.approx(expected, rel=1e-6)
    assert cell.reads == pytest.approx(read, rel=0.01)
    assert cell.full is not None
    assert cell.full.point == pytest.approx(5 / (dense + FIXED * EXPERT * (read - 1)), rel=0.01)
    assert {(it.line.target, it.base.target) for it in kernel_cells(found)} == {
        ("moe_8x1", "single"),
        ("moe_16x1", "single"),
    }


def test_the_fixed_share_is_that_of_the_line() -> None:
    lines = [it for it in data().arms if it.target == "dense" and it.speculates]
    assert of_forward(lines) == pytest.approx(FIXED)
    assert of_forward([]) is None
    bare = [it.model_copy(update={"prediction": None}) for it in lines]
    assert predicted(MODELS[3], bare[0], bare, 3.0) is None


def test_every_twin_has_its_dense_model() -> None:
    """In each variant, each MoE is measured with a draft and length that a model without routing has as well; a name is
    that of one model in all parts, since data of parts are put together."""
    for variants in ((), ("bench",), ("bench", "quick")):
        named: dict[str, str] = {}
        for part in load_parts(StudyOrder("moe-twin", variants)):
            arms = [it for it in part.loaded.experiment.expand() if it.speculates]  # type: ignore[union-attr]
            for name, reference in part.loaded.experiment.targets.items():  # type: ignore[union-attr]
                assert named.setdefault(name, reference) == reference
            keys = {(it.target, it.draft, it.methods, it.gamma, it.load) for it in arms}
            assert keys
            for target, *rest in keys:
                if role(target).startswith("moe_"):
                    used = int(target.removesuffix("_near").rpartition("x")[2])
                    assert (f"{family(target)}dense{used if used > 1 else ''}", *rest) in keys


def twin_row(target: str, base: str, experts: int, ratio: float, reads: float = 1.0) -> TwinRow:
    found = estimate(ratio)
    return TwinRow(
        id=f"{target}-{base}",
        device="here",
        part=PART,
        model="folder/small.gguf",
        measured="1",
        verdict="valid",
        target=target,
        base=base,
        drafts="ngram-simple",
        gamma=16,
        experts=experts,
        used=1,
        counts=True,
        union=reads,
        reads=reads,
        ratio=found,
        per_step=found,
        predicted=0.7,
        speedup=found,
        base_speedup=found,
        full=None,
        blocks=BLOCKS,
        method="made up",
        acceptance=0.9,
        base_acceptance=0.9,
    )


@pytest.mark.parametrize(("alone", "effect"), [(0.8, "less"), (1.0, "same"), (1.2, "more")])
def test_the_page_of_all_documents_says_what_routing_alone_does(alone: float, effect: str) -> None:
    """The loss against the dense model may be the engine's code for experts; one expert tells."""
    rows = [
        twin_row("single", "dense", 1, 0.75),
        twin_row("moe_16x1", "dense", 16, 0.75, reads=10.0),
        twin_row("moe_16x1", "single", 16, alone, reads=10.0),
    ]
    (text,) = answer(rows)
    assert isinstance(text.said, Message)
    assert text.said.values["effect"] == Message(f"documents.twin.{effect}")
    assert text.row == "twin-moe_16x1-single"
    assert f"has {alone:.2f} [" in words().render(text.said)
    assert (made := figure(rows)) is not None
    assert len(made.panels) == 1


def test_rows_of_the_page_are_those_of_the_file() -> None:
    ids = [it.id for it in measured()]
    assert len(set(ids)) == len(ids)
    assert all(it.verdict == "valid" for it in measured())
    assert all(it.ratio.low is not None for it in measured() if it.counts)


@pytest.mark.slow
def test_quick_variant_on_the_real_engine(tmp_path: Path) -> None:
    """Every part runs; texts are those of the dense model; rows of the page can be made of it."""
    with pytest.raises(SystemExit) as ended:
        command(["run", "moe-twin", "--variant", "bench", "--variant", "quick", "--out", str(tmp_path / "made")])
    assert ended.value.code in (0, 1)  # a busy machine makes verdicts invalid
    folder = StudyFolder(tmp_path / "made")
    found = folder.data()
    assert {it.status for it in found.parts} == {"measured"}
    made = cells(found)
    assert {it.line.target for it in made} >= {"single", "moe_16x1", "moe_16x2", "dense2"}
    assert all(it.reads is not None and it.reads > 1 for it in made if it.routed)
    equal, of = equal_tokens(found, {it.name for it in found.models if it.experts})
    assert equal > 0.5 * of > 0
    assert any(it.same_steps for it in made if it.routed)
    assert same_texts(found)[0] != "cannot tell"

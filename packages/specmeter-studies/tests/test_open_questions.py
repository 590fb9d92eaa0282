"""open-questions: every ruling in every direction, from made-up data; parts, variants and their sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest

import specmeter_studies as studies
from claims_of import ruled, rulings, said, values
from moe306_data import estimate
from said import all_said
from specmeter.analysis.explain.memory_price import MemoryPrice
from specmeter.analysis.requests import Consumption
from specmeter.experiments.file import load
from specmeter.messages import Message
from specmeter.record import Estimate
from specmeter.workloads.spec import LengthWorkload
from specmeter_studies.library.open_questions.extra import CONTEXTS, GAMMA, GREEDY, MIXTURES, SAMPLED
from specmeter_studies.order import StudyOrder, load_parts
from specmeter_studies.study import ArmResult, ModelUsed, PromptResult, StudyData


def line(
    part: str,
    speedup: float,
    *,
    target: str = "moe_q4",
    draft: str = "draft_0.8b",
    gamma: int = 4,
    acceptance: float = 0.6,
    spread: float = 0.01,
    length: int | None = None,
    energy: float | None = None,
) -> ArmResult:
    used = None
    if energy is not None:
        used = Consumption(
            sources=("package-0",),
            requests=1,
            requests_ok=1,
            unseen=0,
            per_token=estimate(2.0, unit="J/token"),
            ratio=estimate(energy),
        )
    return ArmResult(
        config=f"{target}/draft-simple/{draft}/g{gamma}",
        suite=part,
        target=target,
        draft=draft,
        method="draft-simple",
        gamma=gamma,
        prompt_tokens=length,
        requests=4,
        decode_rate=estimate(50, unit="tok/s"),
        speedup=estimate(speedup, spread),
        acceptance=estimate(acceptance, spread, unit="1"),
        tau=estimate(2.5, unit="1"),
        energy=used,
        verdict="valid",
    )


def data(*lines: ArmResult, **more: object) -> StudyData:
    made = StudyData(study="open-questions", origin="measured", title="made up", arms=lines)
    return replace(made, **more)  # type: ignore[arg-type]


def test_nothing_measured_decides_nothing() -> None:
    assert set(rulings(data()).values()) == {"cannot tell"}


@pytest.mark.parametrize(
    ("at_32", "at_64", "ruling"),
    [(1.4, 1.5, "supported"), (0.9, 0.5, "contradicted"), (1.2, 0.5, "cannot tell"), (0.9, 1.4, "supported")],
)
def test_longer_drafts(at_32: float, at_64: float, ruling: str) -> None:
    curve = {4: 1.3, 16: 1.2, 32: at_32, 64: at_64}
    made = data(*(line(GAMMA, speedup, gamma=gamma) for gamma, speedup in curve.items()))
    assert rulings(made)["longer-drafts"] == ruling
    last = values(said(made, "longer-drafts"), "moe-306.curve.at", at=-1)
    assert (last["gamma"], values(last["speedup"], "study.interval")["point"]) == (64, at_64)


def test_draft_lengths_are_compared_block_by_block() -> None:
    """Intervals overlap, but in every block 32 is a twentieth faster than 16."""
    lines = [line(GAMMA, 1.2, gamma=16, spread=0.3), line(GAMMA, 1.26, gamma=32, spread=0.3)]
    rows = [
        PromptResult(
            config=it.config,
            suite=part,
            target="moe_q4",
            draft="draft_0.8b",
            method="draft-simple",
            gamma=it.gamma,
            prompt="code",
            repeat=block,
            decode_rate=rate * noise * (0.97 + 0.01 * block if it.gamma == 16 else 1),
        )
        for part, rate in ((GAMMA, 50.0), (SAMPLED, 500.0))
        for it, noise in ((lines[0], 1.0), (lines[1], 1.1))
        for block in range(3)
    ]
    assert rulings(data(*lines, results=tuple(rows)))["longer-drafts"] == "supported"


def price(
    gamma: int, *, kv: int = 4, buffers: int = 1, means: str = "printed by the engine", draft: str = "draft_0.8b"
) -> tuple[str, MemoryPrice]:
    return GAMMA, MemoryPrice(
        arm_id=f"moe_q4/draft-simple/{draft}/g{gamma}",
        target="moe_q4",
        draft=draft,
        means=means,  # type: ignore[arg-type]
        weights_bytes=850_000_000,
        kv_bytes=kv * 1_000_000,
        buffers_bytes=buffers * 1_000_000,
        target_bytes=0,
        share=0.05,
        context_tokens=1000,
        bits_now=4.7,
        bits_for_it=4.9,
    )


def test_memory_by_draft_length() -> None:
    lines = [line(GAMMA, 1.0, gamma=gamma) for gamma in (4, 64)]
    made = data(*lines, memory=(price(4), price(64, buffers=3)))
    assert rulings(made)["gamma-memory"] == "contradicted"
    cache = values(said(made, "gamma-memory"), "open-questions.cache")
    assert (cache["shortest"], cache["longest"]) == (4, 64)
    assert [values(cache[name], "study.mb")["mb"] for name in ("first", "last", "more")] == [4, 4, 2]
    assert rulings(data(*lines, memory=(price(4), price(64, kv=9))))["gamma-memory"] == "supported"
    unprinted = (price(4, means="from the header"), price(64, means="from the header"))
    assert rulings(data(*lines, memory=unprinted))["gamma-memory"] == "cannot tell"


def test_memory_of_two_drafts_of_one_target() -> None:
    """Each draft is compared with itself: the larger one's cache does not show growth by length."""
    drafts = {"draft_0.8b": 4, "draft_2b": 9}
    lines = [line(GAMMA, 1.0, gamma=gamma, draft=draft) for draft in drafts for gamma in (4, 64)]
    prices = tuple(price(gamma, draft=draft, kv=kv) for gamma in (4, 64) for draft, kv in drafts.items())
    made = data(*lines, memory=prices)
    assert rulings(made)["gamma-memory"] == "contradicted"
    assert [it.code for it in all_said(said(made, "gamma-memory"))].count("open-questions.cache") == 2
    longer = data(*lines, memory=(price(4), price(64, draft="draft_2b", kv=9)))
    assert rulings(longer)["gamma-memory"] == "cannot tell"


def test_longer_contexts() -> None:
    def at(*speedups: float) -> StudyData:
        return data(*(line(CONTEXTS, it, length=1024 * 4**place) for place, it in enumerate(speedups)))

    assert rulings(at(0.5, 1.2, 1.1))["longer-contexts"] == "supported"
    assert rulings(at(1.2, 1.2, 0.9))["longer-contexts"] == "contradicted"
    assert rulings(at(1.2, 1.2, 1.005))["longer-contexts"] == "cannot tell"
    row = values(said(at(0.5, 1.2), "longer-contexts"), "study.row")
    assert values(row["name"], "open-questions.tokens")["tokens"] == 4096
    assert values(row["number"], "study.interval")["point"] == 1.2
    assert rulings(at(1.2))["longer-contexts"] == "cannot tell"


def test_temperatures() -> None:
    cold = line(GREEDY, 1.3, acceptance=0.6)
    assert rulings(data(cold, line(SAMPLED, 1.1, acceptance=0.4)))["sampling"] == "supported"
    assert rulings(data(cold, line(SAMPLED, 1.31, acceptance=0.6)))["sampling"] == "cannot tell"
    assert rulings(data(cold))["sampling"] == "cannot tell"
    both = values(said(data(cold, line(SAMPLED, 1.1, acceptance=0.4)), "sampling"), "open-questions.both")
    assert [values(both[name], "study.interval")["point"] for name in ("greedy", "sampled")] == [60, 40]


def test_mixtures_as_drafts() -> None:
    models = tuple(
        ModelUsed(name=name, reference=name, experts=experts)
        for name, experts in (("moe_q8", 32), ("moe_draft", 32), ("draft_0.8b", 0))
    )

    def drafts(speedup: float, acceptance: float) -> StudyData:
        dense = line(MIXTURES, 0.1, target="moe_q8", acceptance=0.01)
        own = line(MIXTURES, speedup, target="moe_q8", draft="moe_draft", acceptance=acceptance)
        return data(dense, own, models=models)

    assert rulings(drafts(3.5, 0.9))["moe-drafts"] == "supported"
    assert rulings(drafts(0.9, 0.9))["moe-drafts"] == "contradicted"
    assert rulings(drafts(3.5, 0.2))["moe-drafts"] == "contradicted"
    found = said(drafts(0.9, 0.9), "moe-drafts")
    assert found.values["accepted"] == Message("ruling.supported")
    assert values(found, "moe-306.acceptances") == {"low": 90, "high": 90}


def test_drafts_that_are_never_rejected_are_accepted() -> None:
    """All generations at exactly 100 % leave no interval, and need none."""
    models = tuple(ModelUsed(name=name, reference=name, experts=32) for name in ("moe_q8", "moe_draft"))
    own = line(MIXTURES, 0.4, target="moe_q8", draft="moe_draft", acceptance=1.0, spread=0.0)
    own = own.model_copy(update={"speedup": estimate(0.4)})

    def made(generations: int) -> StudyData:
        rows = tuple(
            PromptResult(
                config=own.config, suite=MIXTURES, target="moe_q8", prompt="code", repeat=place, acceptance=1.0
            )
            for place in range(generations)
        )
        return data(own, models=models, results=rows)

    assert said(made(3), "moe-drafts").values["accepted"] == Message("ruling.supported")
    fast = made(3)
    fast = replace(fast, arms=tuple(it.model_copy(update={"speedup": estimate(3.5)}) for it in fast.arms))
    assert [it.rests_on for it in ruled(fast).values() if it.ruling == "supported"] == ["counts"]
    assert said(made(2), "moe-drafts").values["accepted"] == Message("ruling.cannot tell")


def test_the_draft_costs_about_a_gigabyte() -> None:
    made = data(line(GAMMA, 1.0), memory=(price(4, kv=100, buffers=60),))
    assert rulings(made)["draft-memory"] == "supported"
    assert rulings(data(line(GAMMA, 1.0), memory=(price(4, kv=900),)))["draft-memory"] == "contradicted"
    bench = (ModelUsed(name="moe_q4", reference="bench:moe", stand_in=True),)
    assert rulings(data(line(GAMMA, 1.0), memory=(price(4),), models=bench))["draft-memory"] == "does not apply here"


def test_energy_of_tokens() -> None:
    assert rulings(data(line(GAMMA, 1.5, energy=0.8)))["free-energy"] == "supported"
    assert rulings(data(line(GAMMA, 1.5, energy=1.2)))["free-energy"] == "contradicted"
    assert (
        rulings(data(line(GAMMA, 1.5, energy=1.2), line(GAMMA, 1.5, gamma=8, energy=0.8)))["free-energy"]
        == "cannot tell"
    )
    assert said(data(line(GAMMA, 1.5)), "free-energy").code == "open-questions.no_energy"


def test_an_unlike_baseline_leaves_the_rates_as_they_are() -> None:
    unlike = {"verdict": "invalid", "comparison_only": True, "rate_verdict": "valid", "speedup": None}
    (table,) = studies.findings("open-questions", data(line(GAMMA, 1.2).model_copy(update=unlike))).tables
    assert table.verdicts == ("valid",)
    assert not any(cell.struck for cell in table.rows[0])


def test_tables_and_figures() -> None:
    made = data(
        *(line(GAMMA, 1.2, gamma=gamma, energy=0.9) for gamma in (16, 64)),
        line(CONTEXTS, 1.1, length=4096),
        memory=(price(16), price(64)),
    )
    found = studies.findings("open-questions", made)
    assert [table.key for table in found.tables] == [GAMMA, CONTEXTS, "memory", "energy"]
    assert [figure.key for figure in found.figures] == ["longer-drafts", "longer-contexts"]
    for table in found.tables:
        assert all(len(row) == len(table.columns) for row in table.rows)


# --- what is measured ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variants", [(), ("bench",), ("bench", "quick")])
def test_every_part_has_its_question(variants: tuple[str, ...]) -> None:
    parts = {part.name: part.loaded for part in load_parts(StudyOrder("open-questions", variants))}
    assert tuple(parts) == studies.find("open-questions").parts
    experiments = {name: load(name, variants=variants).experiment for name in parts}
    assert max(arm.gamma or 0 for arm in experiments[GAMMA].expand()) == 64
    assert experiments[GREEDY].generation.temperature == 0
    assert experiments[SAMPLED].generation.temperature == 0.8
    same = {"name", "description", "generation", "variants", "applied"}
    greedy, sampled = (experiments[name].model_dump(exclude=same) for name in (GREEDY, SAMPLED))
    assert greedy == sampled
    assert set(experiments[MIXTURES].targets) == {"moe_q8"}
    if not variants:
        lengths = experiments[CONTEXTS].workloads[0]
        assert isinstance(lengths, LengthWorkload)
        assert lengths.lengths[-1] == 32768
        assert experiments[CONTEXTS].engine.full_context >= 32768 + 256
    references = {reference for it in experiments.values() for reference in (*it.targets.values(), *it.drafts.values())}
    assert all(reference.startswith("bench:" if variants else "hf:") for reference in references)


def test_an_interval_is_needed_to_be_apart() -> None:
    from specmeter_studies.library.open_questions.extra import apart

    bare = Estimate(point=1.0, n=1, unit="x", method="made up")
    assert not apart(bare, estimate(2.0))
    assert not apart(None, estimate(2.0))
    assert apart(estimate(1.0), estimate(2.0))
    assert apart(estimate(2.0), estimate(1.0))

"""What a draft takes in memory, and what the same bytes would buy."""

from __future__ import annotations

from pathlib import Path

import pytest

from hosts import HOST
from records import header, identity
from records import session as made
from said import codes
from specmeter.analysis.explain.memory_price import MemoryPrice, arm_prices, memory_prices, sentence
from specmeter.analysis.quality import ModelQuality, Perplexity, QualityReport, TextIdentity, kept_reports, save_report
from specmeter.messages import Message
from specmeter.record import (
    Arm,
    DeviceUse,
    EngineIdentity,
    EngineSettings,
    Estimate,
    ModelIdentity,
    Session,
)

ENGINE = EngineIdentity(kind="embedded", version="1", build="1", binary="x", binary_sha256="0" * 64)
BASE = Arm(id="moe/none", target="moe", role="baseline")


def model(name: str, size_bytes: int, parameters: int, kv: int | None = 1000, sha256: str = "") -> ModelIdentity:
    size = {"parameters": parameters, "active_parameters": parameters, "bytes_per_token": size_bytes}
    of = header(layers=4, kv_bytes_per_token=kv, **size)
    return identity(name, size_bytes, sha256=sha256 or name.ljust(64, "0"), header=of)


def arm(gamma: int = 4, **engine: object) -> Arm:
    return Arm(
        id=f"moe/g{gamma}",
        target="moe",
        methods=("draft-simple",),
        draft="small",
        gamma=gamma,
        baseline_id=BASE.id,
        engine=EngineSettings.model_validate({"context": 1000, **engine}),
    )


def session(of: Arm, target: DeviceUse, draft: DeviceUse | None = None) -> Session:
    return made(of.id, id=of.id, devices=(target,), draft_devices=(draft,) if draft else ())


def use(weights: int, kv: int, compute: int) -> DeviceUse:
    return DeviceUse(device="CPU", model_buffer_bytes=weights, kv_buffer_bytes=kv, compute_buffer_bytes=compute)


MODELS = {"moe": model("moe", 4_500_000_000, 8_000_000_000), "small": model("small", 850_000_000, 800_000_000, kv=500)}
"""A target of 4.5 bits per weight, and a draft."""


def test_the_engine_says_what_a_draft_takes() -> None:
    drafted = arm()
    sessions = [
        session(BASE, use(4_400_000_000, 100_000_000, 50_000_000)),
        session(drafted, use(4_400_000_000, 100_000_000, 60_000_000), use(840_000_000, 30_000_000, 20_000_000)),
    ]
    (price,) = arm_prices([BASE, drafted], MODELS, sessions)
    assert price.means == "printed by the engine"
    assert (price.weights_bytes, price.kv_bytes, price.buffers_bytes) == (840_000_000, 30_000_000, 20_000_000)
    assert price.target_bytes == 10_000_000
    assert price.total_bytes == 900_000_000
    assert price.share == pytest.approx(0.2)
    assert price.context_tokens == 900_000
    assert (price.bits_now, price.bits_for_it) == (pytest.approx(4.5), pytest.approx(5.4))
    assert price.buys is not None
    assert (price.buys.name, price.buys.more_bytes) == ("Q4_K_M", 394_400_000)
    assert codes(sentence(price)) == {
        *("memory-price.fits", "memory-price.either", "memory-price.context", "memory-price.bits")
    }


def test_headers_stand_in_where_the_engine_printed_nothing() -> None:
    (price,) = arm_prices([arm(draft_kv_type_k="q8_0", draft_kv_type_v="q8_0")], MODELS, [])
    assert price.means == "from the header"
    assert price.weights_bytes == 850_000_000
    # 8.5 bits in the place of 16.
    assert price.kv_bytes == round(500 * 1000 * 8.5 / 16)
    assert (price.buffers_bytes, price.target_bytes) == (0, 0)


def test_too_little_for_the_next_type_and_no_better_one() -> None:
    tiny = MODELS | {"small": model("small", 1_000_000, 800_000, kv=0)}
    (price,) = arm_prices([arm()], tiny, [])
    assert price.buys is None
    assert price.lacks is not None
    said = sentence(price)
    assert (said.code, said.values["name"]) == ("memory-price.lacks", "Q4_K_S")
    full = MODELS | {"moe": model("moe", 16_100_000_000, 8_000_000_000)}
    (price,) = arm_prices([arm()], full, [])
    assert sentence(price).code == "memory-price.best"


def test_without_headers_there_is_only_the_size() -> None:
    bare = {name: it.model_copy(update={"header": None}) for name, it in MODELS.items()}
    (price,) = arm_prices([arm()], bare, [])
    assert (price.total_bytes, price.bits_now, price.buys) == (850_000_000, None, None)
    assert sentence(price) == Message("memory-price.unknown")


def test_of_each_pair_the_dearest_arm() -> None:
    arms = [arm(4), arm(64)]
    sessions = [
        session(arms[0], use(1, 0, 0), use(100, 10, 10)),
        session(arms[1], use(1, 0, 0), use(100, 10, 30)),
    ]
    (price,) = memory_prices(arms, MODELS, sessions)
    assert (price.arm_id, price.total_bytes) == ("moe/g64", 140)


# --- measured --------------------------------------------------------------------------------------------------------


def rung(name: str, size_bytes: int, surprise: float, parameters: int = 8_000_000_000) -> ModelQuality:
    windows = tuple(surprise + 0.01 * place for place in range(4))
    of_moe = MODELS["moe"].sha256 if name == "moe" else ""
    return ModelQuality(
        model=model(name, size_bytes, parameters, sha256=of_moe),
        bits_per_weight=8 * size_bytes / parameters,
        perplexity=Perplexity(
            estimate=Estimate(point=10, n=4, unit="1", method="made up"),
            token_error=None,
            windows=4,
            window_tokens=512,
            scored=1024,
            text_tokens=None,
            tokens_sha256="same",
            window_surprise=windows,
            train_context=None,
            begins_with_bos=None,
            wall_s=1,
            engine=ENGINE,
        ),
    )


def report(*models: ModelQuality) -> QualityReport:
    text = TextIdentity(name="t", sha256="0" * 64, size_bytes=1, bundled=True)
    return QualityReport(
        made_at=1.0, complete=True, host=HOST, settings=EngineSettings(), stride=0, text=text, models=models
    )


def prices(*models: ModelQuality) -> MemoryPrice:
    (price,) = arm_prices([arm()], MODELS, [], [report(*models)])
    return price


def test_better_quantizations_that_fit_as_they_were_measured() -> None:
    price = prices(
        rung("f16", 16_000_000_000, 1.99),
        rung("moe", 4_500_000_000, 2.05),
        rung("q5", 5_300_000_000, 2.0),
        rung("q4", 4_900_000_000, 2.03),
        rung("smaller", 4_000_000_000, 2.5),
        rung("other", 5_000_000_000, 2.0, parameters=9_000_000_000),
    )
    assert [it.name for it in price.measured] == ["q4", "q5"]
    best = price.measured[-1].perplexity
    assert best is not None
    assert best.point == pytest.approx(0.951, abs=1e-3)
    assert str(sentence(price)).endswith("0.980x; q5 (5.30 bits per weight), perplexity 0.951x.")


def test_reports_without_the_target_say_nothing() -> None:
    assert prices(rung("f16", 16_000_000_000, 1.9), rung("q5", 5_300_000_000, 2.0)).measured == ()


def test_kept_reports_are_found_by_their_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path))
    folder = tmp_path / "quality"
    folder.mkdir()
    (folder / "damaged.json").write_text("{", encoding="utf-8")
    save_report(report(rung("moe", 4_500_000_000, 2.0)), folder / "ours.json")
    save_report(report(rung("else", 4_500_000_000, 2.0)), folder / "other.json")
    assert [it.models[0].model.name for it in kept_reports({MODELS["moe"].sha256})] == ["moe"]
    assert kept_reports({"unknown"}) == ()

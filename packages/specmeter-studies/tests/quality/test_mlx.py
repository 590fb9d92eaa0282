"""Models in MLX's format: what their folders say, and their rates, by packages that stand in for MLX."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from quality.mlx_folders import CONFIG, TENSORS, folder, stand_in
from specmeter.analysis.quality import SpeedTest
from specmeter.errors import EngineError, EngineStartError, ModelError, UsageError
from specmeter.record import ModelIdentity
from specmeter_studies.quality import mlx
from specmeter_studies.quality.child import mlx_times
from specmeter_studies.quality.mlx import MlxTiming, time_tests
from specmeter_studies.quality.mlx_folder import is_folder, read_folder
from specmeter_studies.quality.plan import load_plan
from specmeter_studies.quality.planned import measure_plan

PROMPT = SpeedTest(kind="prompt", tokens=40)
GENERATE = SpeedTest(kind="generate", tokens=10)
DEEP = SpeedTest(kind="generate", tokens=10, depth=30)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Stand-ins for MLX that this process and its children find first."""
    path = tmp_path / "site"
    stand_in(path)
    monkeypatch.syspath_prepend(str(path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")]))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mlx", "mlx_lm")]:
        monkeypatch.delitem(sys.modules, name)
    mlx.identify.cache_clear()
    yield path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mlx", "mlx_lm")]:
        del sys.modules[name]
    mlx.identify.cache_clear()


def identity(path: Path) -> ModelIdentity:
    return ModelIdentity(name="m", reference=str(path), path=str(path), sha256="a" * 64, size_bytes=1, origin="path")


def test_a_folder_s_weights_are_counted_one_by_one(tmp_path: Path) -> None:
    found = read_folder(folder(tmp_path / "model"))
    assert found.parameters == 100 * 64 + 128 * 8 * 8 + 64
    stored = 2 * 100 * 64 + 4 * 128 * 8 + 2 * 2 * 128 + 2 * 64
    assert found.bits_per_weight == pytest.approx(8 * stored / found.parameters)
    assert found.tensor_types == {"F16": 2, "4 bit": 1}
    assert found.vocabulary == 100
    assert is_folder(tmp_path / "model")
    assert not is_folder(tmp_path)


def test_layers_may_have_bits_of_their_own(tmp_path: Path) -> None:
    own = {"group_size": 64, "bits": 4, "model.layers.0.up": {"group_size": 64, "bits": 8}}
    found = read_folder(folder(tmp_path / "model", {**CONFIG, "quantization": own}))
    assert found.tensor_types == {"F16": 2, "8 bit": 1}
    assert found.parameters == 100 * 64 + 128 * 8 * 4 + 64


@pytest.mark.parametrize(
    ("config", "tensors"),
    [
        ([], None),
        (None, []),
        (None, {"a.weight": 3}),
        (None, {"a.weight": {"dtype": "F16", "shape": [2, -1]}}),
        (None, {"a.weight": {"dtype": "F16", "shape": "2"}}),
        (None, {"a.weight": {"dtype": 7, "shape": [2]}}),
        (None, {"a.weight": {"dtype": "F16", "shape": [1] * 9}}),
    ],
)
def test_damaged_folders_are_refused(tmp_path: Path, config: object, tensors: object) -> None:
    with pytest.raises(ModelError) as caught:
        read_folder(folder(tmp_path / "model", config, tensors))
    assert caught.value.fix


def test_a_header_that_lies_about_its_length(tmp_path: Path) -> None:
    path = folder(tmp_path / "model")
    for raw in (b"", b"\xff" * 8, struct.pack("<Q", 2**40) + b"{}", struct.pack("<Q", 50) + b"{}"):
        (path / "model.safetensors").write_bytes(raw)
        with pytest.raises(ModelError, match="not a safetensors file"):
            read_folder(path)
    (path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="contains 0 safetensors files"):
        read_folder(path)


@pytest.mark.usefixtures("site")
def test_times_are_those_of_the_loop(tmp_path: Path) -> None:
    order = MlxTiming(folder=str(folder(tmp_path / "model")), tests=(PROMPT, GENERATE, DEEP), seed=3)
    times = time_tests(order).ms
    assert times[0] >= 40 * 1  # a sleep is never shorter than asked
    assert times[1] >= 10 * 2
    assert times[2] >= 10 * 2
    assert times[2] < 30 * 1 + 10 * 2 + 1000  # a hung loop, not a slow machine


def test_in_a_process_of_its_own(site: Path, tmp_path: Path) -> None:
    times, engine = mlx_times(identity(folder(tmp_path / "model")), (GENERATE,), 1)
    assert times[0] >= 20
    assert engine.kind == "mlx"
    assert Path(engine.binary).is_relative_to(site)


def test_a_loop_that_stops_early(site: Path, tmp_path: Path) -> None:
    stand_in(site, tokens=4)
    with pytest.raises(EngineError, match="generated 4 of 17 tokens"):
        mlx_times(identity(folder(tmp_path / "model")), (GENERATE,), 1)


def test_a_model_that_cannot_be_loaded(site: Path, tmp_path: Path) -> None:
    stand_in(site, fails="Model type x not supported")
    with pytest.raises(EngineError, match="Model type x not supported"):
        mlx_times(identity(folder(tmp_path / "model")), (GENERATE,), 1)


@pytest.mark.usefixtures("site")
def test_a_folder_without_a_vocabulary(tmp_path: Path) -> None:
    path = folder(tmp_path / "model", {"model_type": "x"})
    with pytest.raises(UsageError, match="has no vocab_size"):
        time_tests(MlxTiming(folder=str(path), tests=(GENERATE,), seed=1))


def test_without_mlx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlx, "missing", lambda: "mlx not installed")
    with pytest.raises(EngineStartError, match="MLX cannot be used: mlx not installed") as caught:
        mlx_times(identity(tmp_path), (GENERATE,), 1)
    assert "specmeter-studies[mlx]" in caught.value.fix


@pytest.mark.usefixtures("site")
def test_a_plan_of_two_folders(tmp_path: Path) -> None:
    folder(tmp_path / "four")
    folder(tmp_path / "eight", {**CONFIG, "quantization": {"group_size": 64, "bits": 8}})
    made = {
        "name": "two",
        "score": False,
        "engine": "mlx",
        "tests": ["tg4"],
        "repeats": 2,
        "models": {"four": "four", "eight": "eight", "absent": "absent"},
    }
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(made, sort_keys=False), encoding="utf-8")
    report = measure_plan(load_plan(str(tmp_path / "plan.yaml")), progress=lambda *_: None, keep=lambda _: None)
    assert [model.tensor_types for model in report.models] == [{"F16": 2, "4 bit": 1}, {"F16": 2, "8 bit": 1}]
    assert all(len(model.rates[0].ms) == 2 for model in report.models)
    assert [item.name for item in report.skipped] == ["absent"]
    assert report.models[0].model.size_bytes > 8 + len(str(TENSORS))

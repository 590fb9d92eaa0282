"""Models that are not here are told of all at once, with sizes and commands that bring them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import yaml
from gguf_files import write_gguf
from hub_server import Hub, serving

from specmeter.cli import invoke
from specmeter.errors import ExperimentError, ModelError
from specmeter.experiments.file import load
from specmeter.laboratory.plan import make_plan
from specmeter.laboratory.run import prepare
from specmeter.models.hub import fetch, parse
from specmeter.models.reference import OFFLINE, AbsentModel, absent_models, refuse_absent

BIG, SMALL = "hf:owner/repo/big.gguf", "hf:owner/repo/small.gguf"
CONTENT = {"big.gguf": bytes(3_000_000), "small.gguf": bytes(1_000_000)}


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # closed
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving(Hub(files=dict(CONTENT))) as served:
        monkeypatch.setenv("HF_ENDPOINT", served.endpoint)
        yield served


def experiment(folder: Path, **changes: Any) -> str:
    data: dict[str, Any] = {
        "name": "absent",
        "targets": {"moe": BIG, "mine": "models/mine.gguf", "made": "bench:dense"},
        "drafts": {"little": SMALL},
        "arms": [{"draft": "little"}],
        "workloads": [{"source": "bench"}],
    }
    file = folder / "absent.yaml"
    file.write_text(yaml.safe_dump(data | changes), encoding="utf-8")
    return str(file)


def test_offline_all_are_listed_with_how_to_get_each(tmp_path: Path, hub: Hub) -> None:
    with pytest.raises(ModelError) as caught:
        prepare(load(experiment(tmp_path)), fetching=OFFLINE)
    message = caught.value.message
    for line in (
        f"targets.moe = {BIG} (size unknown)",
        f"specmeter models build {BIG}",
        "--set targets.moe=/path/to/model.gguf",
        "targets.mine = models/mine.gguf",
        "no such file",
        "--set targets.mine=/path/to/model.gguf",
        f"specmeter models build {SMALL}",
        "--set drafts.little=/path/to/model.gguf",
    ):
        assert line in message
    assert "bench:dense" not in message, "it is made when it is needed"
    assert "models build models/mine.gguf" not in message
    assert hub.requests == 0


def test_with_a_hub_sizes_are_told_and_nothing_is_fetched(tmp_path: Path, hub: Hub) -> None:
    with pytest.raises(ModelError) as caught:
        prepare(load(experiment(tmp_path)))
    message = caught.value.message
    assert message.startswith("a model is not on this machine:\n  targets.mine = ")
    assert caught.value.fix == "name files of your own with --set", "no command brings a file of one's own"
    would = message.partition("a run would also download:\n")[2].splitlines()
    assert sorted(would[:2]) == [f"  drafts.little = {SMALL} (1.0 MB)", f"  targets.moe = {BIG} (3.0 MB)"]
    assert hub.ranges == []


def test_a_hub_that_cannot_be_reached(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="2 models are not on this machine") as caught:
        prepare(load(experiment(tmp_path, targets={"moe": BIG})))
    assert caught.value.message.count("the hub cannot be reached") == 2
    assert caught.value.fix.startswith("download them with these commands")


def test_a_file_that_the_hub_does_not_have(tmp_path: Path, hub: Hub) -> None:
    del hub.files["big.gguf"]
    with pytest.raises(
        ModelError, match=r"targets\.moe = .*: the repository has no such file; use one of: small\.gguf"
    ):
        prepare(load(experiment(tmp_path, targets={"moe": BIG})))


@pytest.mark.usefixtures("hub")
def test_what_was_fetched_before_is_here(tmp_path: Path) -> None:
    fetch(parse(BIG))
    (left,) = absent_models({"targets.moe": BIG, "drafts.little": SMALL}, base_dir=tmp_path, offline=True)
    assert (left.key, left.size_bytes) == ("drafts.little", None)
    refuse_absent(absent_models({"targets.moe": BIG, "drafts.little": SMALL}, base_dir=tmp_path))


def test_a_dry_run_misses_files_only(tmp_path: Path, hub: Hub) -> None:
    with pytest.raises(ModelError, match=r"a model is not on this machine:\n  targets\.mine"):
        make_plan(load(experiment(tmp_path)))
    assert hub.requests == 0
    (tmp_path / "models").mkdir()
    write_gguf(tmp_path / "models" / "mine.gguf", tensors={"t.weight": (32, 4)})
    plan = make_plan(load(experiment(tmp_path)))
    assert {need.name: need.size_bytes for need in plan.models if not need.present and need.name != "made"} == {
        "moe": 3_000_000,
        "little": 1_000_000,
    }
    asked = hub.requests
    plan = make_plan(load(experiment(tmp_path)), offline=True)
    assert {need.size_bytes for need in plan.models if need.reference.startswith("hf:")} == {None}
    assert hub.requests == asked


def test_a_mock_needs_no_models(tmp_path: Path) -> None:
    targets = {"dense": BIG, "moe": "no/such.gguf"}
    mocked = experiment(tmp_path, targets=targets, drafts={"small": SMALL}, arms=[{"draft": "small"}])
    prepare(load(mocked, ["engine.kind=mock"]), fetching=OFFLINE)


def test_sizes_of_the_experiment_are_told_where_nobody_else_can_say(tmp_path: Path) -> None:
    told = {"moe": 20.6e9, "little": 1.2e9, "mine": 3e9}
    with pytest.raises(ModelError) as caught:
        prepare(load(experiment(tmp_path, sizes=told)), fetching=OFFLINE)
    message = caught.value.message
    assert f"targets.moe = {BIG} (about 20.6 GB)" in message
    assert f"drafts.little = {SMALL} (about 1.2 GB)" in message
    assert "models/mine.gguf (size unknown)" in message  # a file of one's own may be any
    assert "together about 21.8 GB, as far as known" in message


@pytest.mark.usefixtures("hub")
def test_what_the_hub_says_of_a_size_goes_first(tmp_path: Path) -> None:
    found = absent_models({"drafts.d": SMALL}, base_dir=tmp_path, sizes={"drafts.d": 9e9})
    assert [(model.size_bytes, model.about) for model in found] == [(1_000_000, False)]


def test_sizes_of_unknown_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="sizes: 'other' is not a target or draft model"):
        load(experiment(tmp_path, sizes={"other": 1}))


def test_real_demo_says_what_it_lacks_and_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "real-demo", "--dry-run"]) == 0
    assert capsys.readouterr().out.count("will be downloaded") == 2
    assert invoke(["run", "real-demo", "--offline"]) == 2
    error = capsys.readouterr().err
    assert error.count("specmeter models build hf:Qwen/Qwen2.5-Coder-") == 2
    assert "--set targets.coder-1.5b=/path/to/model.gguf" in error


def test_commands_can_be_pasted_and_a_long_name_is_cut() -> None:
    model = AbsentModel(key="targets.a", reference="hf:o/r/my file.gguf", size_bytes=None, why="gone")
    assert shlex.split(model.commands[0]) == ["specmeter", "models", "build", "hf:o/r/my file.gguf"]
    with pytest.raises(ModelError) as caught:
        refuse_absent([model.model_copy(update={"reference": "hf:" + "x" * 10_000})])
    assert caught.value.message.count("x") < 20_000

"""`specmeter run` without a file: models and options make the experiment that a file would hold."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest
import yaml

from models.gguf_files import write_gguf
from specmeter.api.audit import audit
from specmeter.api.runs import Experiment
from specmeter.cli import invoke
from specmeter.errors import UsageError
from specmeter.experiments.file import load
from specmeter.laboratory import doctor
from specmeter.laboratory import run as laboratory
from specmeter.models import bench
from specmeter.record import Gpu
from specmeter.store import RunStore

MOCK = ["run", "-m", "mock:dense", "-md", "mock:small", "--engine", "mock", "--max-tokens", "8"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(*argv: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a refused command says."""
    assert invoke(list(argv)) == 2
    return capsys.readouterr().err


def copy(name: str, path: str) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(bench.build(bench.parse(f"bench:{name}")), path)
    return path


def test_quiet_says_only_the_answer_and_clients_have_llama_cpps_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*MOCK, "--gamma", "2", "-np", "2", "--blocks", "1", "--quiet"]) in (0, 1)
    told = capsys.readouterr()
    assert "2 clients" in told.out
    assert told.err == ""


def test_models_are_measured_saved_and_resumed_by_either_way(capsys: pytest.CaptureFixture[str]) -> None:
    target, draft = copy("dense", "Größe mit Leer/Ziel Größe.gguf"), copy("draft-small", "Größe mit Leer/klein ä.gguf")
    Path("mine.txt").write_text("What is 2 + 2?\n\nTell me about the sea.\n", encoding="utf-8")
    options = ["--draft", draft, "--gamma", "2", "--prompts", "mine.txt", "-n", "8", "--blocks", "2", "-c", "512"]
    command = ["run", target, *options, "--save", "kept/mine.yaml"]
    Path("kept").mkdir()
    assert invoke(command) in (0, 1)
    kept = Path("kept/mine.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(kept) == {
        "target": "../Größe mit Leer/Ziel Größe.gguf",
        "draft": "../Größe mit Leer/klein ä.gguf",
        "arms": [{"gamma": 2}],
        "workloads": [{"source": "file", "paths": ["../mine.txt"], "per_line": True}],
        "design": {"blocks": 2},
        "generation": {"max_tokens": 8},
        "engine": {"context": 512},
    }
    (run,) = Path("specmeter-runs").iterdir()
    assert run.name.startswith("Ziel-Grosse-")
    with RunStore.open(run, readonly=True) as store:
        assert store.state().state == "complete"
        assert [prompt.id for prompt in store.prompts()] == ["file/mine-1", "file/mine-3"]
    capsys.readouterr()
    for again in (command, ["run", "kept/mine.yaml"]):
        assert invoke([*again, "--out", str(run)]) in (0, 1)
        assert "nothing left to measure" in capsys.readouterr().err


def test_an_interrupted_run_goes_on_by_the_same_command(capsys: pytest.CaptureFixture[str]) -> None:
    class Stopped(KeyboardInterrupt):
        pass

    with pytest.MonkeyPatch.context() as patched:
        calls = iter(range(100))

        def add(self: RunStore, *args: object, **more: object) -> None:
            if next(calls) == 1:
                raise Stopped
            return kept(self, *args, **more)  # pyright: ignore[reportArgumentType]

        kept = RunStore.add_requests
        patched.setattr(RunStore, "add_requests", add)
        assert invoke(MOCK) == 130
    assert "the same command resumes" in capsys.readouterr().err
    assert invoke(MOCK) in (0, 1)
    (run,) = Path("specmeter-runs").iterdir()
    assert "resuming" in capsys.readouterr().err
    with RunStore.open(run, readonly=True) as store:
        assert store.state().state == "complete"


def test_options_a_file_and_python_make_the_same_experiment() -> None:
    options = [
        "--gamma",
        "2,4",
        "--ngram",
        "-t",
        "2",
        "--temp",
        "0.5",
        "--min-p",
        "0",
        "--stop",
        "a\\n",
        "--stop",
        "b",
        "--set",
        "design.seed=7",
    ]
    assert (
        invoke(["run", "bench:dense", "--draft", "bench:draft-small", *options, "--save", "m.yaml", "--dry-run"]) == 0
    )
    kept = load("m.yaml").experiment
    built = Experiment(
        target="bench:dense",
        draft="bench:draft-small",
        arms=[{"gamma": [2, 4]}, {"method": "ngram-simple", "gamma": 6, "ngram_n": 6}],
        design={"blocks": 4, "seed": 7},
        engine={"threads": 2},
        generation={"temperature": 0.5, "min_p": 0, "stop": ["a\\n", "b"]},
    )
    assert kept.model_dump_json() == built.model_dump_json()
    assert (kept.name, [spec.source for spec in kept.workloads]) == ("dense", ["bench"])
    assert [arm.id for arm in kept.expand()] == [
        "dense/none",
        "dense/draft-simple/draft-small/g2",
        "dense/draft-simple/draft-small/g4",
        "dense/ngram-simple/g6/n6",
    ]


def test_names_come_from_files() -> None:
    keys = {
        "target": ["a/big.gguf", "b/big.gguf", "hf:o/r/Qwen3-8B-Q4_K_M.gguf@main", "x/split-00001-of-00003.gguf"],
        "draft": ["c/big.gguf", "bench:draft-small?quant=Q8_0", r"C:\models\kleiner Entwurf.GGUF"],
        "arms": [{"gamma": 2}],
    }
    experiment = load(keys).experiment
    assert experiment.name == "big-and-3-more"
    assert list(experiment.targets) == ["big", "big-2", "Qwen3-8B-Q4_K_M", "split"]
    assert list(experiment.drafts) == ["big-3", "draft-small", "kleiner-Entwurf"]
    (workload,) = experiment.workloads
    assert workload.source == "studies"
    assert load(keys, ["targets.big=own.gguf"]).experiment.targets["big"] == "own.gguf"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes by name here")
def test_an_experiment_from_a_pipe_is_read_once(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe")
    text = "target: bench:dense\narms: [{method: ngram-simple, gamma: 8}]\n"
    writer = threading.Thread(target=lambda: Path("pipe").write_text(text, encoding="utf-8"))
    writer.start()
    assert invoke(["run", str(Path("pipe").absolute()), "--dry-run"]) == 0
    writer.join()
    assert "dense/ngram-simple/g8" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("gamma", "draft"),
    [("--spec-draft-n-max", "--spec-draft-model"), ("--draft-max", "--model-draft"), ("--draft-n", "-md")],
)
def test_llama_cpps_names_of_options_are_taken(gamma: str, draft: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "bench:dense", draft, "bench:draft-small", gamma, "4", "--dry-run"]) == 0
    assert "dense/draft-simple/draft-small/g4" in capsys.readouterr().out


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes by name here")
def test_pipes_and_devices_are_not_waited_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specmeter.files.SILENCE_S", 0.05)
    for name in ("pipe.yaml", "pipe.gguf", "pipe.json", "pipe.csv"):
        os.mkfifo(name)
    Path("zero.gguf").symlink_to("/dev/zero")
    silent, odd = "delivered nothing", "not a regular file"
    for words, message in (
        (["pipe.yaml"], silent),
        (["/dev/zero"], odd),
        (["pipe.gguf", "--ngram"], f"pipe.gguf: {odd}"),
        (["zero.gguf", "--ngram"], f"zero.gguf: {odd}"),
        (["demo", "--probe", "pipe.json"], silent),
        (["demo", "--probe", "/dev/zero"], odd),
    ):
        assert message in said("run", *words, "--dry-run", capsys=capsys), words
    with pytest.raises(UsageError, match=odd):
        audit("pipe.csv")


def test_settings_are_keys_for_experiments_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "demo", "--blocks", "5", "-n", "7", "-ngl", "all", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["sessions"] == 5 * len(plan["arms"])
    assert plan["arms"][0]["arm"]["engine"]["gpu_layers"] == 100_000
    Path("mine.yaml").write_text(
        "target: bench:dense\narms: [{method: ngram-simple}]\nengine: {gpu_layers: all, draft_gpu_layers: 3}\n"
    )
    assert invoke(["run", "mine.yaml", "--dry-run", "--json"]) == 0
    engine = json.loads(capsys.readouterr().out)["arms"][0]["arm"]["engine"]
    assert (engine["gpu_layers"], engine["draft_gpu_layers"]) == (100_000, 3)
    assert "gpu_layers" in said("run", "mine.yaml", "--set", "engine.gpu_layers=some", "--dry-run", capsys=capsys)


def test_a_table_of_prompts_begins_with_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.csv").write_text("prompt,kind\nWhy is the sky blue?,fact\nSort a list.,code\n", encoding="utf-8")
    assert invoke(["run", "bench:dense", "--ngram", "--prompts", "mine.csv", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prompts"] == 2


def test_a_dry_run_refuses_what_the_run_would(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = copy("dense", "dense.gguf")
    Path("long.txt").write_text("Short.\n" + "word " * 500, encoding="utf-8")
    asked = ("run", target, "--ngram", "-c", "256", "-n", "32")
    found = said(*asked, "--prompts", "long.txt", "--dry-run", capsys=capsys)
    assert "file/long-2: the prompt has" in found
    monkeypatch.setattr(laboratory, "allow_open_files", lambda wanted: wanted - 1)
    for how in ([], ["--dry-run"]):
        found = said(*asked, "--gamma", "4", "--clients", "4", *how, capsys=capsys)
        assert "4 clients need" in found
    monkeypatch.setattr(doctor, "read_gpus", lambda: [Gpu(index=0, name="H200", vendor="NVIDIA", driver="570")])
    for command in ("run", "advise"):
        assert invoke([command, target, *(["--ngram"] if command == "run" else []), "--dry-run"]) == 3
        assert "no installed engine can use this GPU" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes by name here")
def test_an_experiment_is_saved_only_where_it_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe.yaml")
    Path("zero.yaml").symlink_to("/dev/zero")
    Path("full.yaml").symlink_to("/dev/full")
    Path("nowhere.yaml").symlink_to("gone.yaml")
    Path("folder.yaml").mkdir()
    cases = {
        **dict.fromkeys(("/dev/zero", "/dev/full", "x.gguf", "-", "mine", "mine.json"), "does not end in .yaml"),
        "": "an empty name does not end in .yaml",
        **dict.fromkeys(("pipe.yaml", "zero.yaml", "full.yaml"), "not a regular file"),
        "nowhere.yaml": "nowhere.yaml: a broken link",
        "folder.yaml": "a folder, not a file",
    }
    before = sorted(Path().iterdir())
    for name, message in cases.items():
        assert message in said(*MOCK, "--save", name, capsys=capsys), name
    assert "bench:nothing" in said("bench:nothing", "--save", "mine.yaml", "--dry-run", capsys=capsys)
    assert sorted(Path().iterdir()) == before


def test_files_that_are_not_targets_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = copy("dense", "dense.gguf")
    for architecture, kind, message in (
        ("clip", "mmproj", "part of a model (mmproj), not a causal language model"),
        ("llama", "adapter", "an adapter (LoRA) of a model, not a causal language model"),
        ("modern-bert", "model", "an encoder, which makes embeddings of texts, not a causal language model"),
        ("llada", "model", "a diffusion model, which does not write in order, not a causal language model"),
        ("eagle3", "model", "is a draft model (eagle3), not a target"),
    ):
        write_gguf(tmp_path / f"{kind}.gguf", architecture, keys={"block_count": 1}, general={"type": kind})
        assert message in said("run", f"{kind}.gguf", "--ngram", "--dry-run", capsys=capsys)
    message = said("run", target, "--draft", "model.gguf", "--dry-run", capsys=capsys)
    assert "only works with method draft-eagle3, not draft-simple" in message
    Path("text.gguf").write_text("hello", encoding="utf-8")
    assert "not a usable GGUF file" in said("run", "text.gguf", "--dry-run", capsys=capsys)
    copy("dense", "part-00002-of-00003.gguf")
    assert "pass the first part" in said("run", "part-00002-of-00003.gguf", "--dry-run", capsys=capsys)


def test_a_draft_larger_than_its_target_is_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "bench:draft-small", "--draft", "bench:dense", "--gamma", "2", "--dry-run"]) == 0
    assert "is larger than its target draft-small" in " ".join(capsys.readouterr().out.split())


def test_models_of_the_mock_engine_are_models_and_imply_it(capsys: pytest.CaptureFixture[str]) -> None:
    described = ["run", "mock:dense", "--draft", "mock:small", "--gamma", "2", "--max-tokens", "8"]
    Path("kept").mkdir()
    assert invoke([*described, "--save", "kept/mine.yaml", "--dry-run"]) == 0
    assert "experiment saved: kept/mine.yaml" in capsys.readouterr().err
    Path("empty.txt").write_text("", encoding="utf-8")
    said(*described, "--prompts", "empty.txt", "--save", "kept/other.yaml", capsys=capsys)
    assert not Path("kept/other.yaml").exists(), "its prompts are refused"
    kept = load("kept/mine.yaml").experiment
    assert (kept.engine.kind, kept.targets, kept.drafts) == ("mock", {"dense": "mock:dense"}, {"small": "mock:small"})
    for engine in ((), ("--engine", "mock")):
        assert invoke([*described, *engine]) in (0, 1)
    capsys.readouterr()
    for other in (("--engine", "native"), ("--binary", "/none")):
        message = said(*described, *other, "--dry-run", capsys=capsys)
        assert "mock:dense: a model of the mock engine, but the engine is native" in message


def test_a_dry_run_refuses_models_that_the_mock_engine_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    described = ["run", "bench:dense-100m", "--draft", "bench:draft-small", "--engine", "mock"]
    for more in ((), ("--dry-run",)):
        message = said(*described, *more, capsys=capsys)
        assert "bench:dense-100m: the mock engine has no model 'dense-100m'" in message
        assert "mock:dense, mock:moe, mock:small" in message
    message = said("run", "mock:dens", "--ngram", "--dry-run", capsys=capsys)
    assert "mock:dens: the mock engine has no such model" in message


def test_what_is_named_in_the_wrong_place_is_refused_before_anything_is_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    target, other = copy("dense", "dense.gguf"), copy("draft-other-vocab", "other.gguf")
    Path("mine.yaml").write_text(f"target: {target}\narms: [{{method: ngram-simple, gamma: 8}}]\n", encoding="utf-8")
    copy("dense", "magic")
    assert invoke(["run", "magic", "--dry-run"]) == 0
    for argv, named in (
        (("mine.yaml", "--gamma", "2", "--ngram"), "--gamma, --ngram"),
        (("mine.yaml", target), "2 names"),
        ((target, "--draft", "mine.yaml"), "mine.yaml"),
        (("-m", "mine.yaml"), "mine.yaml"),
        ((), "run:"),
        ((".",), "a folder"),
        ((target, "--variant", "x"), "variants"),
        ((target, "--save", "mine.yaml"), "mine.yaml"),
        ((target, "-hf", "o/r:Q4"), "hf:OWNER/REPO/FILE.gguf"),
        ((target, "--draft", other), "other.gguf"),
        ((target, "--gamma", "2,x"), "--gamma 2,x: x is not"),
        ((target, "-ngl", "many"), "use all or"),
        ((target, "--prompts", "none.txt"), "--prompts none.txt"),
        ((target, "--prompts", "."), "--prompts ."),
        (("none.gguf",), "did you mean other.gguf, dense.gguf?"),
        (("none/none.gguf",), "check the path"),
        ((target, "--draft", "none/d.gguf"), "d.gguf"),
        ((target, "--draft-min", "1"), "arms.0.gamma_min"),
        ((target, "--spec-draft-type-k", "1"), "engine.draft_kv_type_k"),
    ):
        assert named in said("run", *argv, "--dry-run", capsys=capsys), argv
    assert invoke(["run", target, "--binary", "/none", "--dry-run"]) == 3
    assert "/none" in capsys.readouterr().err
    assert not Path("specmeter-runs").exists()

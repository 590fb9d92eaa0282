"""`specmeter advise` as a user types it: what is refused before anything is measured, and what a dry run says."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from models.gguf_files import write_gguf
from specmeter.advise import candidates
from specmeter.cli import invoke
from specmeter.cli.advise import command
from specmeter.models import bench
from specmeter.text import seconds_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, a home without models, and a machine with little memory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(candidates, "memory_free_bytes", lambda: 4 * 10**9)
    monkeypatch.setattr(candidates, "found_models", list)
    return tmp_path


def put(name: str, path: str) -> str:
    shutil.copy(bench.build(bench.parse(f"bench:{name}")), path)
    return path


def outline(*argv: str, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    capsys.readouterr()
    assert invoke(["advise", *argv, "--dry-run", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "no target model given"),
        (["none.gguf"], "no such file"),
        (["bench:dense", "-m", "bench:moe"], "two target models given"),
        (["bench:dense", "--budget", "0"], "--budget 0: not a duration"),
        (["bench:dense", "--budget", "soon"], "write 90s, 10m, 1h"),
        (["bench:dense", "--budget", "-5m"], "--budget -5m: not a duration"),
        (["bench:dense", "--budget", "600"], "--budget 600: not a duration"),
        (["bench:dense", "--goal", "fun"], "use throughput or latency"),
        (["bench:dense", "--kind", "cod"], "use one of fact, code, reason, zh, edit"),
        (["bench:dense", "--kind", "code", "--prompts", "mine.txt"], "leave one of them out"),
        (["bench:dense", "--prompts", "nowhere.txt"], "--prompts nowhere.txt: no such file"),
        (["bench:dense", "--prompts", "empty.txt"], "contains no prompts"),
        (["bench:dense", "--for", "ollama"], "use one of llama-server, llama-cli"),
        (["bench:dense", "--spec-draft-n-max", "4"], "advise finds methods and draft lengths"),
        (["bench:dense", "-hf", "o/r"], "write hf:OWNER/REPO/FILE.gguf"),
        (["bench:dense", "--parallel", "4"], "use --set engine.slots=VALUE"),
        (["bench:dense", "--draft", "bench:draft-other-vocab"], "none of these draft models can be used"),
        (["mock:dense", "--engine", "embedded"], "a model of the mock engine, but the engine is embedded"),
        (["bench:dense", "--set", "design.bloks=1"], "did you mean 'blocks'"),
        (["bench:dense", "-c", "10000000"], "weights and KV cache need"),
        (["--from", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["bench:dense", "--from", "mine.yaml"], "TARGET: already set by mine.yaml"),
        (["--from", "mine.yaml", "--wide"], "--wide: already set by mine.yaml"),
        (["--again", "--wide"], "leave the other options out"),
        (["--again", "--kind", "code"], "leave the other options out"),
        (["encoder.gguf"], "not a causal language model"),
        (["bench:dense", "--dry-run", "--out", "."], "--dry-run writes nothing"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_measured(
    argv: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_gguf(folder / "encoder.gguf", "nomic-bert", keys={"block_count": 1})
    (folder / "mine.txt").write_text("Why is the sky blue?\n", encoding="utf-8")
    (folder / "empty.txt").write_text(" \n\n", encoding="utf-8")
    before = sorted(folder.iterdir())
    assert invoke(["advise", *argv]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert not shown.out
    assert sorted(folder.iterdir()) == before


def test_a_dry_run_says_what_would_be_tried_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, draft = put("dense", "big.gguf"), put("draft-small", "small.gguf")
    put("draft-other-vocab", "other.gguf")
    before = sorted(folder.iterdir())
    found = outline(target, "--kind", "code", "--kind", "edit", "--budget", "90s", capsys=capsys)
    assert found["drafts"] == [
        {"reference": str(folder / draft), "method": "draft-simple", "size_bytes": Path(draft).stat().st_size}
    ]
    assert found["prompts"] == {"code": 16, "edit": 16}
    assert found["budget_s"] == 90
    configurations = found["configurations"]
    assert isinstance(configurations, dict)
    assert configurations.keys() >= {"draft-simple", "ngram-simple", "ngram-map-k", "ngram-mod"}
    assert invoke(["advise", target, "--dry-run"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "other.gguf: its vocabulary differs from the target's" in shown
    assert "at most 5 min" in shown
    assert sorted(folder.iterdir()) == before


def test_llama_cpps_names_of_options_mean_what_they_mean_for_run(capsys: pytest.CaptureFixture[str]) -> None:
    models = ("-m", "bench:dense", "-md", "bench:draft-small")
    found = outline(*models, "-n", "32", "-c", "512", "-t", "1", "-fa", "on", capsys=capsys)
    assert found["max_tokens"] == 32
    plain = outline(*models, "-c", "4096", capsys=capsys)
    small, large = found["memory_bytes"], plain["memory_bytes"]
    assert isinstance(small, int)
    assert isinstance(large, int)
    assert small < large
    assert invoke(["advise", *models, "-ctk", "nonsense", "--dry-run"]) == 2
    assert "-ctk: " in capsys.readouterr().err


def test_prompts_longer_than_the_context_are_refused_before_anything_is_measured(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.txt").write_text("Why is the sky blue?\n" + "word " * 500 + "\n", encoding="utf-8")
    argv = ["advise", "bench:dense", "--prompts", "mine.txt", "-c", "256", "-n", "32", "--no-find"]
    assert invoke(argv) == 2
    error = capsys.readouterr().err
    assert "file/mine-2: the prompt has" in error
    assert "the context has room for 256" in error
    assert "use a longer context (-c" in error
    assert not (folder / "specmeter-runs").exists()


def test_durations_are_read_by_one_parser() -> None:
    assert [seconds_of(it) for it in ("90s", "10m", "1h", "1h30m", "2 min", "1.5h", "0s")] == [
        *(90, 600, 3600, 5400, 120, 5400, 0)
    ]
    for wrong in ("10", "m", "10 m 5", "1m1h", "-1m", "1e3s", "nan", "10d"):
        with pytest.raises(ValueError, match=re.escape(wrong)):
            seconds_of(wrong)


QUICK = ("advise", "mock:dense", "--draft", "mock:small", "--kind", "fact", "--kind", "code", "-n", "16")


def test_an_advice_is_given_and_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*QUICK, "--for", "vllm"]) == 0
    shown = capsys.readouterr()
    assert "x as fast [" in shown.out
    (first,) = Path("specmeter-runs").iterdir()
    assert invoke(["advise", "--again", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["again"]["holds"] == "holds"
    assert invoke(["advise", "--again"]) == 0  # of the advice, not of its confirmation
    assert f"checking {first}, measuring into" in capsys.readouterr().err
    assert invoke(["advise", "--again", str(first), "--out", "there"]) == 0
    assert Path("there/advice.json").is_file()


def test_a_budget_too_small_says_what_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*QUICK, "--budget", "1s"]) == 2
    assert "give 10s or more" in capsys.readouterr().err
    assert not Path("specmeter-runs").exists(), "nothing was measured"
    assert invoke([*QUICK, "--budget", "10s"]) == 4
    (undecided,) = Path("specmeter-runs").iterdir()
    capsys.readouterr()
    assert invoke(["advise", "--again", str(undecided)]) == 2
    assert "measuring into" not in capsys.readouterr().err
    assert invoke([*QUICK, "--budget", "10m"]) == 0
    assert "resuming" in capsys.readouterr().err


def test_again_without_an_older_advice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["advise", "--again"]) == 2
    assert "measuring" not in capsys.readouterr().err
    assert invoke(["advise", "--again", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_the_commands_of_the_how_to_are_ones_and_its_dry_run_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/advise.md").read_text(encoding="utf-8")
    lines = [shlex.split(it) for it in re.findall(r"^uv run specmeter (advise .*)$", page, re.MULTILINE)]
    assert len(lines) >= 8
    for _, *words in lines:
        command.make_context("advise", words)
    (dry,) = (it for it in lines if "--dry-run" in it)
    assert invoke(dry) == 0
    assert "configurations and no speculation" in capsys.readouterr().out


def test_an_interrupted_advice_goes_on_in_its_folder(capsys: pytest.CaptureFixture[str]) -> None:
    """What stops it is a fault of the engine, at the tenth request of each start."""
    stopped = (*QUICK, "--set", "engine.mock={faults: [{kind: interrupt, call: 9}]}")
    assert invoke(list(stopped)) == 130
    assert "interrupted" in capsys.readouterr().out
    assert invoke(list(stopped)) in (0, 130)
    assert len(list(Path("specmeter-runs").iterdir())) == 1

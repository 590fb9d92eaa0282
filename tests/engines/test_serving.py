"""The command to paste: what an arm asks for, in the flags of the server that was measured; and it works."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llama_fixtures import NATIVE, NO_NATIVE, arm, core, launch

from pasted_line import TOKENS, timings_of
from specmeter.engines.registry import serving_command
from specmeter.record import Arm, EngineSettings
from specmeter.text import pasted


def served(tmp_path: Path, arm: Arm, *, draft: str | None = None, started: tuple[str, ...] = ()) -> list[str] | None:
    found = serving_command("embedded", launch(tmp_path, arm, draft=draft), started)
    return None if found is None else list(found)


def test_the_command_that_serves_has_what_the_arm_asks_for_and_nothing_for_measuring(tmp_path: Path) -> None:
    settings = {"context": 4096, "threads": None}
    drafting = arm(methods=("draft-simple",), draft="draft-small", gamma=4, p_min=0.5, engine=settings)
    target, draft = core("dense").path, core("draft-small").path
    assert served(tmp_path, drafting, draft="draft-small") == [
        "llama-server", "-m", target, "-md", draft,
        "--spec-type", "draft-simple", "--spec-draft-n-max", "4", "--spec-draft-p-min", "0.5",
        "-c", "4096",
    ]  # fmt: skip
    assert served(tmp_path, arm(engine=settings)) == ["llama-server", "-m", target, "-c", "4096"]
    lookup = arm(methods=("ngram-simple",), gamma=8, ngram_n=6, engine={"threads": 2, "context": 512, "mmap": False})
    assert served(tmp_path, lookup) == [
        "llama-server", "-m", target, "--spec-type", "ngram-simple",
        "--spec-ngram-simple-size-m", "8", "--spec-ngram-simple-size-n", "6",
        "-c", "512", "--load-mode", "none", "--threads", "2",
    ]  # fmt: skip
    remote = {"rpc": ("10.0.0.2:50052",), "draft_devices": ("RPC0",), "extra_flags": ("--jinja",), **settings}
    far = served(tmp_path, drafting.model_copy(update={"engine": EngineSettings(**remote)}), draft="draft-small")
    assert far is not None
    assert far[3:5] == ["--rpc", "10.0.0.2:50052"]
    assert far[-3:] == ["--spec-draft-device", "RPC0", "--jinja"]


def test_the_command_speaks_as_the_server_that_was_measured(tmp_path: Path) -> None:
    old = ("old/llama-server", "--model", "x", "--model-draft", "y", "--draft-max", "4", "--ctx-size", "512")
    drafting = arm(methods=("draft-simple",), draft="draft-small", gamma=4, engine={"context": 512, "threads": None})
    assert served(tmp_path, drafting, draft="draft-small", started=old) == [
        "llama-server", "-m", core("dense").path, "-md", core("draft-small").path, "--draft-max", "4", "-c", "512",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"synthetic_rates": (1.0, 1.0)},
        {"role": "control"},
        {"refused_draft": "measure"},
        {"methods": ("medusa",)},
        {"engine": {"rpc": ("relay:1ms",), "draft_devices": ("RPC0",)}},
    ],
)
def test_what_is_not_for_serving_has_no_command(tmp_path: Path, changes: dict[str, Any]) -> None:
    usual = {"methods": ("draft-simple",), "draft": "draft-small", "gamma": 2}
    assert served(tmp_path, arm(**{**usual, **changes}), draft="draft-small") is None


def test_engines_that_do_not_say_have_no_command(tmp_path: Path) -> None:
    for kind in ("mock", "libllama", "of-another-author"):
        assert serving_command(kind, launch(tmp_path, arm()), ()) is None


def test_models_are_named_as_the_user_named_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(reference: str, path: Path | str, origin: Any = "path") -> list[str]:
        model = core("dense").model_copy(update={"reference": reference, "path": str(path), "origin": origin})
        made = replace(launch(tmp_path, arm(engine={"context": 4096, "threads": None})), target=model)
        found = serving_command("embedded", made, ())
        assert found is not None
        assert found[-2:] == ("-c", "4096")
        return list(found[1:-2])

    monkeypatch.chdir(tmp_path)
    assert of("models/it is.gguf", tmp_path / "models/it is.gguf") == ["-m", "models/it is.gguf"]
    assert of("it.gguf", "/elsewhere/it.gguf") == ["-m", "/elsewhere/it.gguf"]
    assert of("--version", tmp_path / "--version") == ["-m", "./--version"]
    assert of("hf:org/repo/sub/it.gguf", "/cache/it.gguf", "hf") == ["-hf", "org/repo", "-hff", "sub/it.gguf"]
    assert of("hf:org/repo/it.gguf@v1", "/cache/it.gguf", "hf") == ["-m", "/cache/it.gguf"]


def test_a_command_is_quoted_for_the_shell() -> None:
    argv = ("llama-server", "-m", "a b/it's.gguf", "--spec-type", "ngram-mod,draft-simple")
    assert shlex.split(pasted(argv, windows=False)) == list(argv)
    assert pasted(("llama-server", "-m", "C:\\my models\\a,b.gguf"), windows=True) == (
        'llama-server -m "C:\\my models\\a,b.gguf"'
    )
    assert pasted(("llama-server", "-m", "C:\\models\\a.gguf"), windows=True) == "llama-server -m C:\\models\\a.gguf"


# --- and it works ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "native", [None, pytest.param(NATIVE, marks=pytest.mark.skipif(NATIVE is None, reason=NO_NATIVE))]
)
@pytest.mark.parametrize("drafts", [True, False])
def test_a_server_started_by_the_pasted_line_answers_and_speculates(
    tmp_path: Path, native: Path | None, drafts: bool
) -> None:
    asked = arm(methods=("draft-simple",), draft="draft-small", gamma=3) if drafts else arm()
    argv = serving_command("embedded", launch(tmp_path, asked, draft="draft-small" if drafts else None), ())
    assert argv is not None
    timings = timings_of(pasted(argv, windows=False), tmp_path, native=native)
    assert timings["predicted_n"] == TOKENS
    assert (timings.get("draft_n", 0) > 0) is drafts

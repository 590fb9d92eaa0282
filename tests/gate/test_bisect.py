"""The first slower build of a folder: by halves, in the order of names, and with an end that is told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from specmeter.cli import invoke
from specmeter.errors import EngineStartError, UsageError
from specmeter.gate.bisect import Bisection, bisect, builds_between
from specmeter.gate.ruling import Gate, Ruling

NAMES = ("b9", "b10", "b11", "b100", "b101", "b1000")


@pytest.fixture
def builds(tmp_path: Path) -> Path:
    for name in (*NAMES, "b12"):
        (tmp_path / name / "xllamacpp").mkdir(parents=True)
    (tmp_path / "b12" / "xllamacpp").rmdir()  # an empty folder is no build
    (tmp_path / "README").write_text("no build", encoding="utf-8")
    return tmp_path


def gate(ruling: Ruling) -> Gate:
    return Gate(
        base="",
        head="",
        engine="",
        simulated=False,
        same_build=False,
        tolerance=0.03,
        blocks=5,
        seconds=1,
        rows=(),
        ruling=ruling,
    )


def search(folder: Path, slower_from: str, stops_at: str = "", fails_at: str = "") -> tuple[Bisection, list[str]]:
    asked: list[str] = []

    def gate_of(old: Path, other: Path) -> Gate:
        assert old.name == NAMES[0]
        asked.append(other.name)
        if other.name == fails_at:
            raise EngineStartError("it did not start\nits log", fix="read it")
        slow = slower_from and NAMES.index(other.name) >= NAMES.index(slower_from)
        return gate("cannot tell" if other.name == stops_at else "fail" if slow else "pass")

    return bisect(builds_between(folder / NAMES[0], folder / NAMES[-1]), gate_of), asked


@pytest.mark.parametrize("slower", NAMES[1:])
def test_the_first_slower_build_is_found_by_halves(builds: Path, slower: str) -> None:
    result, asked = search(builds, slower)
    assert result.builds == NAMES
    assert result.first_slower == slower
    assert result.last_as_fast == NAMES[NAMES.index(slower) - 1]
    assert asked[0] == NAMES[-1]
    assert len(asked) <= 4
    assert not result.stopped


def test_it_stops_where_nothing_is_slower_or_a_gate_cannot_tell(builds: Path) -> None:
    result, asked = search(builds, "")
    assert (result.first_slower, asked) == (None, [NAMES[-1]])
    result, _ = search(builds, "b101", stops_at="b11")
    assert (result.stopped, result.first_slower, result.last_as_fast) == ("b11", "b1000", "b9")
    result, _ = search(builds, "b101", fails_at="b11")
    assert result.stopped == "b11: it did not start"
    result, _ = search(builds, "b101", stops_at="b1000")
    assert (result.stopped, result.first_slower) == ("b1000", None)


def test_two_builds_of_one_folder_in_order_are_needed(builds: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not come after"):
        builds_between(builds / "b10", builds / "b9")
    with pytest.raises(UsageError, match="not a build"):
        builds_between(builds / "b12", builds / "b100")
    (tmp_path / "apart" / "b2" / "xllamacpp").mkdir(parents=True)
    with pytest.raises(UsageError, match="not in one folder"):
        builds_between(builds / "b9", tmp_path / "apart" / "b2")


def test_the_command_tells_what_it_found(
    builds: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from specmeter.cli import gate as module

    monkeypatch.chdir(builds)
    slow = {"b101", "b1000"}

    def measured(spec: object, *_: object, **__: object) -> Gate:
        head = Path(spec.builds["head"]).name  # pyright: ignore[reportAttributeAccessIssue]
        return gate("fail" if head in slow else "pass")

    monkeypatch.setattr(module, "_measured", measured)
    command = ["compare", "--bisect", "b9", f"b1000{os.sep}"]
    assert invoke(command) == 1
    assert "b101 is the first build that is slower than b9; b100 is not" in capsys.readouterr().out
    assert invoke([*command, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["first_slower"] == "b101"
    slow.clear()
    assert invoke(command) == 0
    assert "b1000 is not slower than b9" in capsys.readouterr().out
    assert invoke(["compare", "--bisect", "b9"]) == 2
    assert invoke([*command, "--html", "page.html"]) == 2
    assert invoke(["compare", "--bisect", "b9", "b10", "demo", "more"]) == 2

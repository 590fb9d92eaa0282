"""Hints name commands as the user started specmeter; what is kept names plain `specmeter`."""

from __future__ import annotations

import pytest

from specmeter.text import as_started, program


def test_within_another_program_commands_stay_as_they_are() -> None:
    assert program() == "specmeter"
    assert (
        as_started("see `specmeter list`, or `specmeter run demo`") == "see `specmeter list`, or `specmeter run demo`"
    )


def test_only_commands_are_worded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specmeter.text.program", lambda: "uv run specmeter")
    said = as_started("specmeter itself; `specmeter list`; specmeter-runs\n    specmeter run demo\n`specmeter-runs`")
    assert (
        said
        == "specmeter itself; `uv run specmeter list`; specmeter-runs\n    uv run specmeter run demo\n`specmeter-runs`"
    )

"""Finished runs that were doctored: what a reader is told of them, with the certificate in place and without it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from provocations.doctored import AGREEING, AROUND, DATA, EXPERIMENT, Judged, copied, forged, judge
from specmeter.cli import invoke

TOLD_WITHOUT_CERTIFICATE = (
    *("accepted-raised", "drafted-cut", "tokens-doubled", "forwards-dropped", "decode-halved", "faster-than-arrivals"),
    *("wall-below-decode", "baseline-slowed", "requests-before-their-session", "requests-after-their-session"),
    *("slow-requests-failed", "arms-exchanged", "gamma-edited", "baseline-by-another-build", "threads-edited"),
    *("tokens-edited", "log-removed", "attempt-raised", "accepted-raised-without-profile", "block-an-hour-early"),
)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean run of the real engine, with its report."""
    folder = tmp_path_factory.mktemp("clean")
    file = folder / "clean.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT), encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(folder / "run")]) == 0
    assert invoke(["report", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def kept(clean: Path) -> Judged:
    return judge(clean)


@pytest.fixture(scope="module")
def without(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """The clean run without its certificate: what is said of it for that reason alone."""
    return judge(forged(copied(clean, tmp_path_factory.mktemp("forged") / "run")))


def test_a_clean_run_is_as_it_was_certified(kept: Judged) -> None:
    assert kept.verdict != "invalid"
    assert ("data-changed", "invalid") not in kept.told


@pytest.mark.parametrize("name", [*AGREEING, *(pytest.param(name, marks=pytest.mark.slow) for name in DATA)])
def test_changed_data_is_not_what_was_certified(name: str, clean: Path, tmp_path: Path) -> None:
    """Also what agrees with itself."""
    copy = copied(clean, tmp_path / "run")
    (DATA | AGREEING)[name](copy)
    found = judge(copy)
    assert found.verdict in ("invalid", "refused")
    assert {check for check, _ in found.told} & {"data-changed", "refused"}, found


@pytest.mark.parametrize("name", TOLD_WITHOUT_CERTIFICATE)
def test_data_contradicts_itself_without_a_certificate(name: str, clean: Path, without: Judged, tmp_path: Path) -> None:
    copy = copied(clean, tmp_path / "run")
    DATA[name](copy)
    found = judge(forged(copy))
    assert found.told - without.told, found
    assert found.verdict != "valid"


@pytest.mark.parametrize("name", ["verdict-edited", "file-deleted"])
def test_what_lies_around_the_data(name: str, clean: Path, kept: Judged, tmp_path: Path) -> None:
    copy = copied(clean, tmp_path / "run")
    AROUND[name](copy)
    found = judge(copy)
    assert found.told - kept.told, found
    assert found.verdict != "valid"


def test_there_are_more_than_thirty() -> None:
    assert len(DATA) + len(AGREEING) + len(AROUND) >= 30

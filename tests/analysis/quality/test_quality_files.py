"""Texts that are read, reports that are kept."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from analysis.quality.reports import points, quality, report
from specmeter.analysis.quality import default_path, load_report, save_report
from specmeter.errors import UsageError
from specmeter.workloads.texts import held_out_text
from specmeter_studies.quality.text import read_text


def test_bytes_are_taken_as_they_are_but_for_one_line_break_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes("a\r\n\ufeffb ü\n\n".encode())
    text, identity = read_text(file)
    assert text == "a\r\n\ufeffb ü\n"
    assert identity.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert (identity.name, identity.size_bytes, identity.bundled) == ("text.txt", len(text.encode()), False)


def test_without_a_file_it_is_the_bundled_text() -> None:
    text, identity = read_text(None)
    assert text == held_out_text().removesuffix("\n")
    assert identity.bundled


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"abc\xff\xfe", "not UTF-8: byte 0xff at position 3"), (b"", "empty"), (b" \n\n", "empty")],
)
def test_no_text(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=said):
        read_text(file)


def test_a_file_that_is_not_there_or_is_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            read_text(path)


def test_a_text_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specmeter_studies.quality.text.MAX_BYTES", 2**20)
    file = tmp_path / "text.txt"
    file.write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(UsageError, match=r"longer than 1\.0 MB"):
        read_text(file)


def test_a_report_is_what_it_was(tmp_path: Path) -> None:
    kept = report(quality("a", 500, points(6, 8), [5, 6]), quality("b", 400))
    path = tmp_path / "new" / "report.json"
    save_report(kept, path)
    assert load_report(path) == kept
    assert [it.name for it in path.parent.iterdir()] == ["report.json"]


def test_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path))
    one = default_path(report(quality("x/../y.gguf", 5)))
    assert one.name.startswith("y-xxxxxxxx-")
    assert default_path(report(quality("a", 5), quality("b", 5))).name.startswith("a-aaaaaaaa+1-")


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text('{"format": 1}', encoding="utf-8")
    with pytest.raises(UsageError, match=r"is not a report \(made_at"):
        load_report(file)
    with pytest.raises(UsageError, match="cannot be read"):
        load_report(tmp_path / "absent.json")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="--out"):
        save_report(report(quality("a", 5)), tmp_path / "file" / "report.json")

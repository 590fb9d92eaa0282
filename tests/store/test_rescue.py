"""A flipped bit anywhere in `run.sqlite`: what is damaged is named, and the rest of the run is saved."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from measure.test_measure import measured, write
from specmeter.cli import invoke
from specmeter.errors import StoreError
from specmeter.record import Request
from specmeter.store import RunStore
from specmeter.store.database import tables
from specmeter.store.rescue import rescue

READERS = ("show", "explain", "check", "export")
PAGE = 4096


@pytest.fixture(autouse=True)
def debug(monkeypatch: pytest.MonkeyPatch) -> None:
    """What specmeter does not foresee is raised."""
    monkeypatch.setenv("SPECMETER_DEBUG", "1")


def texts(run: Path) -> Iterator[tuple[str, str, str]]:
    with closing(sqlite3.connect(run / "run.sqlite")) as db:
        for table in tables():
            for _, name, kind, *_ in db.execute(f"PRAGMA table_info({table})"):
                if db.execute(f"SELECT count({name}) FROM {table}").fetchone()[0]:
                    yield table, name, kind


def flip(content: bytes, at: int, bit: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


def read_all(run: Path, out: Path) -> list[Request]:
    """By every reading command; what cannot be read is an error about the file, never a defect of specmeter. Gives the
    requests that a rescue saves."""
    assert 3 not in list(codes(run, out))
    return saved(run)


def codes(run: Path, out: Path) -> Iterator[int]:
    for reader in READERS:
        yield invoke([reader, str(run), *(["--out", str(out)] if reader == "export" else [])])


def saved(run: Path) -> list[Request]:
    with RunStore.open(rescued(run), readonly=True) as again:
        again.check()
        return [request for _, request in again.attempts()]


def rescued(run: Path) -> Path:
    to = run.with_name("rescued")
    shutil.rmtree(to, ignore_errors=True)
    return rescue(run, to).folder


def test_a_bit_in_each_column(run: Path, tmp_path: Path):
    rng = random.Random(4)
    original = (run / "run.sqlite").read_bytes()
    for table, name, kind in texts(run):
        if table in ("run", "format"):  # without these there is nothing to save
            continue
        with closing(sqlite3.connect(run / "run.sqlite", isolation_level=None)) as db:
            db.execute("PRAGMA ignore_check_constraints = ON")
            row, value = db.execute(
                f"SELECT rowid, CAST({name} AS BLOB) FROM {table} WHERE {name} IS NOT NULL"
            ).fetchone()
            wrong = flip(value, rng.randrange(len(value)), 7)
            made = "?" if kind == "BLOB" else "CAST(? AS TEXT)"
            try:
                db.execute(f"UPDATE {table} SET {name} = {made} WHERE rowid = ?", (wrong, row))
            except sqlite3.IntegrityError:  # the number of a row cannot be a text
                continue
        assert read_all(run, tmp_path / "out.csv")
        (run / "run.sqlite").write_bytes(original)


@pytest.mark.parametrize("byte", [0, 16, 18, 24, 28, 44, 47, 56, 59, 92])
def test_a_bit_in_the_header(run: Path, tmp_path: Path, byte: int):
    file = run / "run.sqlite"
    file.write_bytes(flip(file.read_bytes(), byte, byte % 8))
    assert read_all(run, tmp_path / "out.csv")


def damaged(content: bytes, rng: random.Random) -> bytes:
    """A bit, some bytes, a page of zeros, two pages exchanged, zeros across two pages, or the end cut off; the first
    page is left as it is."""
    at, kind = rng.randrange(PAGE, len(content)), rng.randrange(6)
    first, second = (PAGE * rng.randrange(1, len(content) // PAGE) for _ in range(2))
    if kind == 0:
        return flip(content, at, rng.randrange(8))
    if kind == 1:
        made = rng.randbytes(rng.randrange(1, 40))
        return content[:at] + made + content[at + len(made) :]
    pages = bytearray(content)
    if kind == 2:
        pages[first : first + PAGE] = bytes(PAGE)
    elif kind == 3:
        one, other = content[first : first + PAGE], content[second : second + PAGE]
        pages[first : first + PAGE], pages[second : second + PAGE] = other, one
    elif kind == 4:
        pages[at : at + PAGE] = bytes(len(pages[at : at + PAGE]))
    return bytes(pages if kind < 5 else pages[:at])


@pytest.mark.parametrize("seed", range(15))
def test_damage_anywhere(
    run: Path,
    tmp_path: Path,
    seed: int,
    times: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    """Where no reader expects it, the run is named as the likely cause."""
    monkeypatch.delenv("SPECMETER_DEBUG")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    file = run / "run.sqlite"
    original = file.read_bytes()
    for turn in range(times):
        file.write_bytes(damaged(original, random.Random(seed + 1000 * turn)))
        for code in codes(run, tmp_path / "out.csv"):
            assert code != 3 or f"{run} is damaged, or specmeter" in capsys.readouterr().err
        with suppress(StoreError):  # where a whole page is gone, there may be nothing to save
            saved(run)


def test_a_request_whose_answer_is_lost_is_measured_again(run: Path):
    lose_a_reply(run)
    found = rescue(run, run.with_name("rescued"))
    assert found.lost == {"reply": ["row 3: ends too early"], "request": ["row 3: its answer was lost"]}
    with RunStore.open(run, readonly=True) as was, RunStore.open(found.folder, readonly=True) as now:
        assert now.state().planned == was.state().planned
        assert now.state().ok == was.state().ok - 1
        assert len(now.missing()) == 1
    assert (found.folder / "logs").is_dir()


@pytest.mark.parametrize("lost", [False, True])
def test_rescue_ends_with_what_to_do_next(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: bool):
    if lost:
        lose_a_reply(run)
    assert invoke(["rescue", str(run), "--out", str(tmp_path / "rescued")]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("next: ")
    assert (f"--out {tmp_path / 'rescued'}" in last) == lost


def lose_a_reply(run: Path) -> None:
    with closing(sqlite3.connect(run / "run.sqlite")) as db, db:
        db.execute("UPDATE reply SET zlib_json = x'00' WHERE request_id = 3")


def test_what_was_lost_is_measured_again_and_the_run_stays_in_doubt(run: Path, tmp_path: Path):
    lose_a_reply(run)
    again = rescue(run, tmp_path / "rescued").folder
    state, _ = measured(write(tmp_path, design={"blocks": 2}), again)
    assert (state.state, state.ok) == ("complete", state.planned)
    with RunStore.open(again, readonly=True) as store:
        found = [it for it in store.findings() if it.check == "data-changed"]
        certificate = store.certificate()
    assert [(it.severity, it.message.code == "data-changed.rescued") for it in found] == [("suspect", True)]
    assert certificate is not None
    assert "logs/rescued.log" in certificate.data
    assert "row 3: ends too early" in (again / "logs" / "rescued.log").read_text(encoding="utf-8")


def test_where_nothing_was_lost_the_certificate_goes_along(run: Path):
    kept = rescued(run)
    assert (kept / "certificate.json").read_bytes() == (run / "certificate.json").read_bytes()
    assert not (kept / "logs" / "rescued.log").exists()


@pytest.mark.parametrize(
    ("table", "column"), [("prompt_tokens", "zlib_json"), ("session", "json"), ("finding", "json")]
)
def test_a_document_that_is_null(run: Path, tmp_path: Path, table: str, column: str):
    with closing(sqlite3.connect(run / "run.sqlite", isolation_level=None)) as db:
        made = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
        if table == "finding":
            db.execute("INSERT INTO finding (json) VALUES ('{}')")
        db.execute("PRAGMA writable_schema = ON")
        free = made.replace(f"{column} TEXT NOT NULL", f"{column} TEXT").replace(
            f"{column} BLOB NOT NULL", f"{column} BLOB"
        )
        assert free != made
        db.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (free, table))
    with closing(sqlite3.connect(run / "run.sqlite", isolation_level=None)) as db:
        db.execute(f"UPDATE {table} SET {column} = NULL")
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (made, table))
    read_all(run, tmp_path / "out.csv")
    assert rescue(run, tmp_path / "other").lost[table]


def test_a_rescue_that_fails_leaves_no_folder(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("specmeter.store.rescue.read_inside", fail)
    with pytest.raises(RuntimeError):
        rescue(run, tmp_path / "new")
    assert sorted(it.name for it in run.parent.iterdir()) == ["run"]


def test_a_database_of_no_bytes_beside_a_run_is_lost_by_every_command(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (run / "run.sqlite").write_bytes(b"")
    file = write(tmp_path, design={"blocks": 2})
    for command in (["show", str(run)], ["check", str(run)], ["rescue", str(run)], ["run", file, "--out", str(run)]):
        assert invoke(command) == 2
        told = " ".join(capsys.readouterr().err.split())
        assert "its run.sqlite is empty; its contents are lost" in told
    assert (run / "certificate.json").exists()


def test_a_database_of_no_bytes_alone_is_begun_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "begun"
    (folder / "logs").mkdir(parents=True)
    (folder / "run.sqlite").touch()
    for command in ("show", "check", "rescue"):
        assert invoke([command, str(folder)]) == 2
        assert "stopped before it started" in capsys.readouterr().err
    state, _ = measured(write(tmp_path), folder)
    assert state.state == "complete"


def test_what_is_missing_is_named(run: Path):
    with closing(sqlite3.connect(run / "run.sqlite")) as db, db:
        db.execute("DROP TABLE energy")
    with pytest.raises(StoreError) as refused:
        RunStore.open(run, readonly=True)
    assert refused.value.message.endswith(": is damaged (its table energy is missing)")


def test_what_can_be_saved_is_no_other_run(run: Path, tmp_path: Path):
    assert invoke(["rescue", str(run), "--out", str(tmp_path / "rescued")]) == 0
    assert invoke(["check", str(tmp_path / "rescued")]) == invoke(["check", str(run)])
    with pytest.raises(StoreError, match="already exists"):
        rescue(run, tmp_path / "rescued")


def test_nothing_to_save(run: Path):
    (run / "run.sqlite").write_bytes(b"garbage " * 1000)
    with pytest.raises(StoreError, match="is damaged"):
        rescue(run, run.with_name("rescued"))
    assert not run.with_name("rescued").exists()

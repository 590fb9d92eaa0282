"""Opening a folder that a stranger made: what is in it can overwrite nothing, publish nothing and hang nothing."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import specmeter
from analysis.quality.reports import quality, report
from measure.test_measure import measured, write
from specmeter.analysis.quality import load_report, save_report
from specmeter.cli import invoke
from specmeter.errors import StoreError, UsageError
from specmeter.files import NotPlainError, open_inside, read_inside, whole_file, write_inside
from specmeter.show.page.site import write_site
from specmeter.store import RunStore
from specmeter_studies.folder import Part, StudyFolder, StudyRecord

SECRET = "the user's own words"
READERS = {
    "show": "show RUN",
    "explain": "explain RUN",
    "export": "export RUN --out OUT/requests.csv",
    "report": "report RUN --out OUT/page.html",
    "report here": "report RUN",
    "compare": "compare RUN RUN",
    "site": "report --site OUT/public RUN --lang en",
    "check": "check RUN",
    "verify": "check RUN --signer OUT/anna.pub",
}
"""Each as it is typed."""
DATABASE = ("run.sqlite", "run.sqlite-wal", "run.sqlite-shm", "run.sqlite-journal")
DOCUMENTS = ("experiment.yaml", "BENCHMARK_ENV.md", "certificate.json", "certificate.json.sig", "report.html")
WRITTEN = ("run.lock", *DOCUMENTS, *(f"{name}{end}" for name in DOCUMENTS for end in (".tmp", ".part")))
"""Everything that is written beside the database, and the temporary names that were once used for it."""

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs links, pipes and signals of POSIX")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Files of the user; what becomes of them is what this is about."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A test that hangs ends with a message, and not with the suite."""

    def stop(*_: object) -> None:
        pytest.fail("it hangs")

    if not hasattr(signal, "SIGALRM"):
        yield
        return
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(100)
    yield
    signal.alarm(0)


def sql(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / "run.sqlite")) as db, db:
        for statement in statements:
            db.execute(statement)


def uncertify(folder: Path) -> None:
    """As a run that was stopped before it was certified: `check` writes a certificate."""
    sql(folder, "DELETE FROM certificate", "DELETE FROM finding")
    (folder / "certificate.json").unlink(missing_ok=True)


def leave_unfinished(folder: Path) -> None:
    """As a run that lacks a request, so that it is resumed."""
    uncertify(folder)
    last = "(SELECT max(id) FROM request)"
    sql(folder, "UPDATE run SET state = 'partial'")
    sql(folder, f"DELETE FROM reply WHERE request_id = {last}", f"DELETE FROM request WHERE id = {last}")


def kill_while_writing(folder: Path) -> None:
    """What was written last lies in a WAL that was not merged."""
    code = (
        "import os, sys; from pathlib import Path; from specmeter.store import RunStore; "
        "RunStore.open(Path(sys.argv[1])).begin(1.0); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=False, timeout=60)
    assert (folder / "run.sqlite-wal").stat().st_size > 0


def contents(folder: Path) -> dict[str, object]:
    """Everything in a folder: names, what they are, their bytes and times."""
    return {
        str(path.relative_to(folder)): (
            path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None,
            path.lstat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
    }


def type_in(command: str, run: Path, out: Path) -> int:
    words = READERS[command].replace("RUN", str(run)).replace("OUT", str(out)).split()
    return invoke(words)


def victim(home: Path, name: str) -> Path:
    path = home / name.replace("/", "-")
    path.write_text(f"{SECRET}: {name}")
    return path


def put_link(folder: Path, name: str, to: Path, *, hard: bool = False) -> None:
    path = folder / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    os.link(to, path) if hard else path.symlink_to(to)


# --- readers change nothing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", sorted(READERS.keys() - {"report here"}))
@pytest.mark.parametrize("state", [kill_while_writing, Path.exists], ids=["killed", "as it is"])
def test_readers_change_nothing(run: Path, tmp_path: Path, command: str, state: Callable[[Path], object]) -> None:
    if command in ("check", "verify") and state is kill_while_writing:
        pytest.skip("a run without a certificate is certified")
    state(run)
    before = contents(run)
    type_in(command, run, tmp_path)
    assert contents(run) == before


def test_a_run_is_read_as_it_was_measured_whatever_lies_beside_the_file(run: Path) -> None:
    with RunStore.open(run, readonly=True) as store:
        expected, probes = list(store.requests()), store.probes()
    kill_while_writing(run)
    with RunStore.open(run, readonly=True) as store:
        assert list(store.requests()) == expected
        assert store.probes() == probes
        assert store.routing() == []
        assert store.state().state == "complete"


def test_a_run_that_goes_on_is_read_in_place_and_nobody_is_kept_out(run: Path) -> None:
    leave_unfinished(run)
    with RunStore.open(run) as writer, RunStore.open(run, readonly=True) as reader:
        missing = reader.missing()
        writer.begin(5.0)
        assert reader.state().started_at is not None
        with RunStore.open(run, readonly=True) as another:
            assert another.missing() == missing
    with RunStore.open(run, readonly=True) as reader, RunStore.open(run) as writer:
        writer.begin(6.0)
        assert reader.missing() == missing
    assert (run / "run.sqlite").stat().st_size > 0
    assert not (run / "run.sqlite-wal").exists()


def test_a_reader_is_told_when_the_run_was_written_to_meanwhile(run: Path) -> None:
    with RunStore.open(run, readonly=True) as reader:
        uncertify(run)
        with pytest.raises(StoreError, match="changed while being read"):
            list(reader.rows())


# --- links -----------------------------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("hard", [False, True], ids=["symbolic", "hard"])
@pytest.mark.parametrize("command", [*READERS, "resume"])
def test_links_to_files_of_the_user_are_neither_written_nor_shown(
    run: Path, home: Path, tmp_path: Path, command: str, hard: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_unfinished(run)
    for name in WRITTEN:
        put_link(run, name, victim(home, name), hard=hard)
    log = next((run / "logs").iterdir()).name
    put_link(run, f"logs/{log}", victim(home, log), hard=hard)
    before = contents(home)
    if command == "resume":
        for name in ("run.lock", "certificate.json"):
            with pytest.raises(StoreError, match=f"{name}: .*(is a symbolic link|hard links)"):
                measured(write(tmp_path, design={"blocks": 2}), run)
            (run / name).unlink()
        measured(write(tmp_path, design={"blocks": 2}), run)
    else:
        type_in(command, run, tmp_path)
    assert contents(home) == before
    made = [path for path in tmp_path.rglob("*") if path.is_file() and tmp_path / "run" not in path.parents]
    told = "".join(path.read_text("utf-8", "replace") for path in made if home not in path.parents)
    assert SECRET not in told + capsys.readouterr().out


@posix
@pytest.mark.parametrize("hard", [False, True], ids=["symbolic", "hard"])
@pytest.mark.parametrize("name", DATABASE)
@pytest.mark.parametrize("command", ["show", "check", "export", "site", "resume"])
def test_a_linked_database_is_refused(
    run: Path, home: Path, original: Path, tmp_path: Path, command: str, name: str, hard: bool
) -> None:
    private = home / name
    shutil.copyfile(original / "run.sqlite", private)
    put_link(run, name, private, hard=hard)
    before = contents(home)
    if command == "resume":
        with pytest.raises(StoreError, match="is a symbolic link" if not hard else "hard links"):
            measured(write(tmp_path, design={"blocks": 2}), run)
    else:
        assert type_in(command, run, tmp_path) == 2
    assert contents(home) == before


@posix
def test_a_dangling_link_makes_no_file(run: Path, home: Path, tmp_path: Path) -> None:
    uncertify(run)
    for name in (*WRITTEN, "run.sqlite-wal", "run.sqlite-journal"):
        put_link(run, name, home / name)
    for command in ("show", "check", "report"):
        type_in(command, run, tmp_path)
    for name in DATABASE:
        (run / name).unlink(missing_ok=True)
    with pytest.raises(StoreError):
        measured(write(tmp_path, design={"blocks": 2}), run)
    assert list(home.iterdir()) == []


@posix
@pytest.mark.parametrize("unfinished", [True, False], ids=["resumed", "begun"])
def test_a_linked_folder_of_logs_is_refused(run: Path, home: Path, tmp_path: Path, unfinished: bool) -> None:
    if unfinished:
        leave_unfinished(run)
    else:
        shutil.rmtree(run)
        run.mkdir()
    put_link(run, "logs", home)
    with pytest.raises(StoreError, match=r"is a symbolic link|is not a folder"):
        measured(write(tmp_path, design={"blocks": 2}), run)
    assert list(home.iterdir()) == []


@posix
def test_the_run_folder_itself_may_be_named_by_a_link(run: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(run)
    assert invoke(["show", str(tmp_path / "latest")]) == 0
    assert invoke(["check", str(tmp_path / "latest")]) == 0
    assert invoke(["report", str(tmp_path / "latest")]) == 0
    assert (run / "report.html").is_file()


@posix
def test_a_report_from_python_replaces_a_link(run: Path, home: Path) -> None:
    path = victim(home, "page.html")
    put_link(run, "report.html", path)
    assert specmeter.load(run).report() == run / "report.html"
    assert path.read_text() == f"{SECRET}: page.html"


@posix
def test_a_report_goes_where_the_user_says(run: Path, home: Path, tmp_path: Path) -> None:
    """A path that is named may be a link, to a page as anywhere else."""
    page = victim(home, "page.html")
    page.write_text('<!doctype html>\n<meta name="generator" content="specmeter 0.0.1">\n', "utf-8")
    (tmp_path / "named.html").symlink_to(page)
    assert invoke(["report", str(run), "--out", str(tmp_path / "named.html")]) == 0
    assert "<html" in page.read_text("utf-8")


# --- what is published -----------------------------------------------------------------------------------------------


def study_of(run: Path, place: Path) -> StudyFolder:
    folder = StudyFolder(place)
    place.mkdir()
    shutil.copytree(run, place / "moe-306")
    parts = (Part(name="moe-306", kind="experiment"), Part(name="ladder", kind="quality"))
    folder.write(StudyRecord(study="moe-306", made_at=1.0, parts=parts))
    save_report(report(quality("a", 5)), folder.quality_file("ladder"), inside=True)
    return folder


@posix
@pytest.mark.parametrize("name", ["study.json", "ladder.json", "moe-306", "moe-306/BENCHMARK_ENV.md"])
def test_a_study_publishes_nothing_that_is_linked(
    run: Path, home: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    study = study_of(run, tmp_path / "study")
    there = study.path / name
    private = home / "private"
    if there.is_dir():
        shutil.copytree(there, private)
        sql(private, f'UPDATE run SET experiment_yaml = experiment_yaml || "# {SECRET}"')
    else:
        private.write_bytes(there.read_bytes())
        with private.open("a") as file:
            file.write(f"\n{SECRET}" if name.endswith(".md") else f"{' ' * 10}")
    put_link(study.path, name, private)
    before = contents(home)
    codes = [
        invoke(["report", "--site", str(tmp_path / "public"), str(study.path), "--lang", "en"]),
        invoke(["study", "export", str(study.path), "--out", str(tmp_path / "data")]),
        invoke(["study", "show", str(study.path)]),
        invoke(["report", str(study.path)]),
    ]
    assert all(code == 2 for code in codes) or name.endswith(".md")
    published = [*(tmp_path / "public").rglob("*"), *(tmp_path / "data").rglob("*")]
    assert not [path for path in published if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert contents(home) == before
    assert "is a symbolic link" in capsys.readouterr().err or name.endswith(".md")


@posix
def test_pages_of_a_site_replace_links(run: Path, home: Path, tmp_path: Path) -> None:
    public = tmp_path / "public"
    write_site(public, [run], ("en",))
    for page in list(public.rglob("*.*")):
        put_link(public, str(page.relative_to(public)), victim(home, page.name))
    put_link(public, "index.html", public / "real.html")
    (public / "real.html").write_text('<meta name="generator" content="specmeter')
    before = contents(home)
    write_site(public, [run], ("en",))
    assert contents(home) == before
    assert not (public / "index.html").is_symlink()


# --- pipes, devices, and files without an end ------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("command", ["show", "check", "verify", "explain", "site", "report here", "resume"])
def test_pipes_hang_nothing(run: Path, tmp_path: Path, command: str) -> None:
    leave_unfinished(run)
    for name in ("run.lock", "experiment.yaml", "BENCHMARK_ENV.md", "certificate.json", "certificate.json.sig"):
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)
    log = next((run / "logs").iterdir())
    log.unlink()
    os.mkfifo(log)
    if command == "resume":
        with pytest.raises(StoreError, match="is not a file but a pipe"):
            measured(write(tmp_path, design={"blocks": 2}), run)
    else:
        type_in(command, run, tmp_path)
    if command == "report here":
        assert (run / "report.html").is_file()


@posix
@pytest.mark.parametrize("name", DATABASE)
def test_a_pipe_in_the_place_of_the_database_is_refused(run: Path, tmp_path: Path, name: str) -> None:
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    for command in ("show", "check", "site"):
        assert type_in(command, run, tmp_path) == 2


@posix
@pytest.mark.parametrize("name", ["experiment.yaml", "BENCHMARK_ENV.md", "certificate.json", "report.html", "logs/a"])
@pytest.mark.parametrize("command", ["show", "check", "verify", "site"])
def test_files_without_an_end_are_not_read(run: Path, tmp_path: Path, name: str, command: str) -> None:
    """Sparse files of a terabyte."""
    with (run / name).open("ab") as file:
        file.truncate(10**12)
    code = type_in(command, run, tmp_path)
    assert name == "report.html" or code in (1, 2)
    page = tmp_path / "public"
    assert sum(path.stat().st_size for path in page.rglob("*")) < 10**8 if page.exists() else True


# --- the database ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    [
        "CREATE VIEW mine AS SELECT 1",
        "CREATE TRIGGER t AFTER INSERT ON telemetry BEGIN DELETE FROM request; END",
        "CREATE INDEX i ON request (abs(wall_ms))",
        "CREATE VIRTUAL TABLE v USING fts5 (x)",
    ],
    ids=lambda made: made.split()[1].lower(),
)
@pytest.mark.parametrize("readonly", [True, False])
def test_what_specmeter_did_not_make_is_refused(run: Path, made: str, readonly: bool) -> None:
    sql(run, made)
    with pytest.raises(StoreError, match="contains something specmeter did not write"):
        RunStore.open(run, readonly=readonly)


@pytest.mark.parametrize("readonly", [True, False])
def test_a_view_in_the_place_of_a_table_is_never_evaluated(run: Path, readonly: bool) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x, '{}' FROM n"
    for table in ("arm", "format"):
        sql(run, f"DROP TABLE {table}", f"CREATE VIEW {table} (seq, json) AS {endless}")
        with pytest.raises(StoreError):
            RunStore.open(run, readonly=readonly)


def test_a_table_that_lacks_a_column_is_damage(run: Path) -> None:
    sql(run, "ALTER TABLE request DROP COLUMN target_forwards")
    for readonly in (True, False):
        with pytest.raises(StoreError, match="is damaged"):
            RunStore.open(run, readonly=readonly)


def test_a_plain_table_of_the_users_own_is_left_alone(run: Path) -> None:
    """`.recover` leaves one, and people take notes."""
    sql(run, "CREATE TABLE lost_and_found (x)", "INSERT INTO lost_and_found VALUES (1)")
    with RunStore.open(run, readonly=True) as store:
        assert store.state().state == "complete"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT load_extension('x')",
        "SELECT json FROM (WITH RECURSIVE n(json) AS (SELECT 1 UNION ALL SELECT json + 1 FROM n) SELECT json FROM n)",
        "ATTACH ':memory:' AS other",
        "PRAGMA writable_schema = ON",
        "DELETE FROM request",
        "SELECT randomblob(1000000000)",
        "SELECT * FROM lost_and_found",
    ],
)
def test_only_our_own_tables_are_read(run: Path, query: str) -> None:
    sql(run, "CREATE TABLE lost_and_found (x)")
    refused = pytest.raises((sqlite3.DatabaseError, StoreError), match=r"authoriz|prohibited")
    with RunStore.open(run, readonly=True) as store, refused:
        list(store.raw(query))


def test_a_file_that_holds_more_rows_than_it_has_room_for_ends(run: Path, tmp_path: Path) -> None:
    """Pages of a tree that all lead to the same page: five of them hold 583 ** 5 rows."""
    path = run / "run.sqlite"
    with closing(sqlite3.connect(path)) as db:
        root = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'arm'").fetchone()[0]
        size = db.execute("PRAGMA page_size").fetchone()[0]
    data = bytearray(path.read_bytes())
    leaf = bytes(data[(root - 1) * size : root * size])
    assert leaf[0] == 0x0D

    def inner(child: int) -> bytes:
        count = (size - 12) // 7
        cells = struct.pack(">IB", child, 1) * count
        places = b"".join(struct.pack(">H", size - len(cells) + 5 * i) for i in range(count))
        head = struct.pack(">BHHHBI", 5, 0, count, size - len(cells), 0, child)
        return (head + places).ljust(size - len(cells), b"\0") + cells

    data += leaf
    for _ in range(4):
        data += inner(len(data) // size)
    data[(root - 1) * size : root * size] = inner(len(data) // size)
    data[28:32] = struct.pack(">I", len(data) // size)
    path.write_bytes(data)
    with RunStore.open(run, readonly=True) as store, pytest.raises(StoreError, match="it contains more data"):
        sum(1 for _ in store.raw("SELECT json FROM arm"))
    assert type_in("show", run, tmp_path) == 2


def test_a_journal_that_names_another_file_does_not_have_it_deleted(run: Path, home: Path, tmp_path: Path) -> None:
    """SQLite deletes the file that a rollback journal of several databases names."""
    path = victim(home, "diary")
    named = str(path).encode()
    magic = bytes.fromhex("d9d505f920a163d7")
    head = magic + struct.pack(">IIIII", 0, 1, 1, 512, 4096)
    total = sum(byte - 256 if byte > 127 else byte for byte in named) & 0xFFFFFFFF
    body = struct.pack(">I", 262145) + named + struct.pack(">II", len(named), total) + magic
    (run / "run.sqlite-journal").write_bytes(head.ljust(512, b"\0") + body)
    for command in ("show", "check"):
        assert type_in(command, run, tmp_path) == 2
    with pytest.raises(StoreError, match="points to a file elsewhere"):
        RunStore.open(run)
    assert path.read_text() == f"{SECRET}: diary"


# --- files of a folder -----------------------------------------------------------------------------------------------


@posix
def test_a_swap_while_a_file_is_written_leads_nowhere(tmp_path: Path, home: Path) -> None:
    folder, path = tmp_path / "run", victim(home, "diary")
    folder.mkdir()
    with whole_file(folder / "a") as stream:
        stream.write(b"new")
        (temporary,) = folder.iterdir()
        put_link(folder, "a", path)
        folder.rename(tmp_path / "moved")
        folder.symlink_to(home)
        assert temporary.name.startswith(".specmeter-")
    assert (tmp_path / "moved" / "a").read_bytes() == b"new"
    assert not (tmp_path / "moved" / "a").is_symlink()
    assert path.read_text() == f"{SECRET}: diary"
    assert [entry.name for entry in home.iterdir()] == ["diary"]


@posix
def test_a_temporary_name_that_is_guessed_is_not_used(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "0" * 16)
    put_link(tmp_path, f".specmeter-{'0' * 16}.part", victim(home, "diary"))
    with pytest.raises(FileExistsError):
        write_inside(tmp_path, "a", b"new")
    assert (home / "diary").read_text() == f"{SECRET}: diary"


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "logs/../../a", "", ".", "a\0b", "logs//a"])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").write_text(SECRET)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "logs").mkdir()
    with pytest.raises(NotPlainError):
        open_inside(tmp_path / "run", name)


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_inside(tmp_path, "a", 5) == b"12345"
    with pytest.raises(OSError, match="is larger than"):
        read_inside(tmp_path, "a", 4)


def test_what_a_killed_process_had_begun_to_write_is_removed_by_the_next(run: Path) -> None:
    (run / f".specmeter-{'a' * 16}.part").write_text("half")
    RunStore.open(run, readonly=True).close()
    assert (run / f".specmeter-{'a' * 16}.part").exists()
    RunStore.open(run).close()
    assert not (run / f".specmeter-{'a' * 16}.part").exists()


@posix
def test_a_report_of_quality_inside_a_study_is_a_plain_file(tmp_path: Path, home: Path) -> None:
    path = home / "report.json"
    save_report(report(quality("a", 5)), path)
    (tmp_path / "linked.json").symlink_to(path)
    assert load_report(tmp_path / "linked.json") == load_report(path)
    with pytest.raises(UsageError, match="is a symbolic link"):
        load_report(tmp_path / "linked.json", inside=True)
    before = path.read_bytes()
    save_report(report(quality("b", 6)), tmp_path / "linked.json", inside=True)
    assert path.read_bytes() == before
    assert not (tmp_path / "linked.json").is_symlink()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
@pytest.mark.parametrize(
    "line", ["check RUN --signer PIPE", "quality bench:draft-small --text PIPE", "probe bench:draft-small --text PIPE"]
)
def test_a_pipe_that_nothing_writes_to_is_told(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    monkeypatch.setattr("specmeter.files.SILENCE_S", 0.1)
    (run / "certificate.json.sig").write_text("-")
    os.mkfifo(tmp_path / "pipe")
    named = {"RUN": str(run), "PIPE": str(tmp_path / "pipe")}
    assert invoke([named.get(it, it) for it in line.split()]) in (1, 2)
    assert "delivered nothing" in capsys.readouterr().err


def test_what_a_terminal_acts_on_is_neither_published_nor_exported(run: Path, tmp_path: Path) -> None:
    (run / "BENCHMARK_ENV.md").write_text("a \x1b[2J \u202e b")
    sql(run, "UPDATE request SET error = 'x' || char(27) || char(8238), status = 'failed'", "DELETE FROM reply")
    write_site(tmp_path / "public", [run], ("en",))
    assert invoke(["export", str(run), "--out", str(tmp_path / "rows.csv")]) == 0
    for file in [tmp_path / "rows.csv", *(tmp_path / "public").rglob("*.md"), *(tmp_path / "public").rglob("*.csv")]:
        assert not {"\x1b", "\u202e"} & set(file.read_text(encoding="utf-8"))

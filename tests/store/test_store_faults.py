"""What can be wrong with a run folder, and what the user is told."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from specmeter.analysis.divergences import read_texts
from specmeter.analysis.tally import read_tallies
from specmeter.errors import StoreError
from specmeter.record import Arm, ModelIdentity, Prompt
from specmeter.store import RunIdentity, RunStore, compare_identity, rows
from specmeter.store.guarded import is_written
from specmeter.validity.checks import run_data

PROMPT = Prompt(id="p", workload="w", kind="code", text="x", sha256="1")
MODEL = ModelIdentity(name="dense", reference="mock:t", path="m", sha256="1", size_bytes=1, origin="mock")


def in_child(code: str, *arguments: object, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


# --- folders ---------------------------------------------------------------------------------------------------------


def test_a_missing_folder_or_one_without_a_run(tmp_path: Path):
    with pytest.raises(StoreError, match="does not exist"):
        RunStore.open(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"not a run folder \(no run\.sqlite\)"):
        RunStore.open(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="is not a folder"):
        RunStore.open(tmp_path / "file", readonly=True)


def test_the_database_file_may_be_named_instead_of_the_folder(store):
    store.close()
    with RunStore.open(store.path) as again:
        assert again.folder == store.folder


@pytest.mark.parametrize("readonly", [True, False])
def test_another_programs_database_is_refused(tmp_path: Path, readonly):
    db = sqlite3.connect(tmp_path / "run.sqlite")
    db.execute("CREATE TABLE t (x)")
    db.close()
    with pytest.raises(StoreError, match="not a specmeter run"):
        RunStore.open(tmp_path, readonly=readonly)


@pytest.mark.parametrize("readonly", [True, False])
@pytest.mark.parametrize("number", [0, 2])
def test_a_run_of_another_format_is_refused(store, readonly, number):
    store.close()
    db = sqlite3.connect(store.path)
    db.execute("UPDATE format SET number = ?, specmeter = '9.1'", (number,))
    db.execute("CREATE TABLE later (id INTEGER PRIMARY KEY)")
    db.commit()
    db.close()
    with pytest.raises(
        StoreError, match=rf"has format {number} \(specmeter 9\.1\), but this version reads format 1"
    ) as no:
        RunStore.open(store.folder, readonly=readonly)
    assert "use the version that wrote it" in no.value.fix


@pytest.mark.parametrize("number", ["'x'", "NULL"])
def test_a_format_that_is_no_number_is_no_run(store, number):
    store.close()
    db = sqlite3.connect(store.path)
    db.executescript(f"DELETE FROM format; INSERT OR IGNORE INTO format VALUES ({number}, '9.1')")
    db.close()
    with pytest.raises(StoreError, match="not a specmeter run"):
        RunStore.open(store.folder, readonly=True)


# --- damage ----------------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_sqlite(store):
    store.close()
    store.path.write_bytes(b"garbage " * 1000)
    for readonly in (True, False):
        with pytest.raises(StoreError, match="is damaged") as failure:
            RunStore.open(store.folder, readonly=readonly)
        assert f"specmeter rescue {store.folder}" in failure.value.fix
    assert not is_written(store.folder)


def test_damage_in_the_middle_is_found_when_it_is_read(store, make_request, plan):
    for key in plan:
        store.add_request(make_request(key))
    store.close()
    data = bytearray(store.path.read_bytes())
    data[4096 * 2 :] = os.urandom(len(data) - 4096 * 2)
    store.path.write_bytes(data)
    with pytest.raises(StoreError, match="is damaged"), RunStore.open(store.folder, readonly=True) as reader:
        list(reader.requests())


def test_a_reply_that_cannot_be_unpacked_is_named(store, make_request):
    store.add_request(make_request())
    store._db.execute("UPDATE reply SET zlib_json = x'00'")
    with pytest.raises(StoreError, match="reply of p1 of base"):
        list(store.requests())
    assert len(list(store.rows())) == 1


def checked(run: RunStore) -> object:
    return list(run_data.read_requests(run, {}, {}, count_tokens=False))


@pytest.mark.parametrize("read", [read_tallies, read_texts, lambda run: list(run.requests()), checked])
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"0" * 5000, "unpacks to more than"),
        (b"[" * 3000, "recursion limit"),
        (b"[1]", "not a JSON object"),
    ],
)
def test_every_reader_names_a_reply_that_is_a_bomb_or_no_reply(
    store, make_request, monkeypatch: pytest.MonkeyPatch, read: Callable[[RunStore], object], content: bytes, why: str
) -> None:
    monkeypatch.setattr(rows, "MAX_DOCUMENT", 4000)
    store.add_request(make_request())
    store.close()
    db = sqlite3.connect(store.path)
    db.execute("UPDATE reply SET zlib_json = ?", (zlib.compress(content),))
    db.commit()
    db.close()
    with RunStore.open(store.folder, readonly=True) as run, pytest.raises(StoreError, match=why) as error:
        read(run)
    assert "the reply of p1 of base" in error.value.message


WRITE_THEN_DIE = """
import os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from conftest import PLAN, request_record
from specmeter.store import RunStore
store = RunStore.open(Path(sys.argv[1]))
for key in PLAN:
    store.add_request(request_record(key))
os._exit(9)
"""


def test_what_a_killed_writer_left_in_the_wal_is_recovered(store, plan):
    store.close()
    in_child(WRITE_THEN_DIE, store.folder, Path(__file__).parent)
    assert (store.folder / "run.sqlite-wal").stat().st_size > 0
    copy = store.folder.with_name("copy")
    shutil.copytree(store.folder, copy)
    with RunStore.open(copy, readonly=True) as reader:
        assert len(list(reader.requests())) == len(plan)
    with RunStore.open(store.folder) as again:
        assert again.done_keys() == set(plan)
        again.check()


def test_damage_that_a_kill_left_is_found_before_anything_is_added(store, make_request, plan):
    for key in plan:
        store.add_request(make_request(key))
    store.close()
    (store.folder / "run.lock").write_text('{"pid": 1}')
    data = bytearray(store.path.read_bytes())
    data[-4096:] = bytes(4096)
    store.path.write_bytes(data)
    for _ in range(2):
        with pytest.raises(StoreError, match="is damaged"):
            RunStore.open(store.folder)
    assert not is_written(store.folder)


@pytest.mark.alone
@pytest.mark.skipif(sys.platform == "win32", reason="Windows folders have no read-only mode")
def test_read_only_folders(store, make_request):
    store.add_request(make_request())
    store.close()
    code = """
import os, sys
from pathlib import Path
from specmeter.errors import StoreError
from specmeter.store import RunStore
if os.getuid() == 0:  # permissions do not bind root
    os.setuid(65534)
folder = Path(sys.argv[1])
print(len(list(RunStore.open(folder, readonly=True).requests())))
try:
    RunStore.open(folder)
except StoreError as error:
    print(error.message)
"""
    root = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir()))
    above = [folder for folder in store.folder.parents if root in folder.parents]
    paths = (*above, store.folder, *store.folder.iterdir())
    modes = [path.stat().st_mode for path in paths]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        answer = in_child(code, store.folder)
    finally:
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode)
    assert answer.stdout.splitlines()[:1] == ["1"], answer.stderr
    assert "cannot be written" in answer.stdout


def test_a_full_disk_loses_nothing(store, make_request, plan):
    store.add_request(make_request(plan[0]))
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    big = make_request(plan[1]).reply.model_copy(update={"text": os.urandom(50_000).hex()})
    with pytest.raises(StoreError, match="everything stored so far is safe") as failure:
        store.add_request(make_request(plan[1], reply=big))
    assert "resume" in failure.value.fix
    store._db.execute("PRAGMA max_page_count = 1000000")
    store.add_request(make_request(plan[1], reply=big))
    assert store.done_keys() == set(plan[:2])
    store.check()


@pytest.mark.skipif(sys.platform == "win32", reason="no file size limit")
def test_a_write_that_the_system_refuses_loses_nothing(store, plan):
    store.close()
    code = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from conftest import PLAN, request_record
from specmeter.errors import StoreError
from specmeter.store import RunStore
store = RunStore.open(Path(sys.argv[1]))
store.add_request(request_record(PLAN[0]))
size = (Path(sys.argv[1]) / "run.sqlite-wal").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
try:
    store.add_request(request_record(PLAN[1]))
except StoreError as error:
    print(error.message)
store.close()
"""
    answer = in_child(code, store.folder, Path(__file__).parent)
    assert "everything stored so far is safe" in answer.stdout, answer.stderr
    with RunStore.open(store.folder) as again:
        assert again.done_keys() == {plan[0]}
        again.check()


# --- one writer ------------------------------------------------------------------------------------------------------

HOLD = """
import sys
from pathlib import Path
from specmeter.store import RunStore
store = RunStore.open(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("replaced", [True, False])
def test_a_folder_that_is_moved_or_replaced_stops_the_run(store, make_request, plan, replaced):
    store.add_request(make_request())
    moved = store.folder.with_name("moved")
    store.folder.rename(moved)
    if replaced:
        shutil.copytree(moved, store.folder)
    for write in (
        lambda: store.add_request(make_request(plan[1])),
        lambda: store.log_path("s2", "base"),
        lambda: store.write_environment("x"),
    ):
        with pytest.raises(StoreError, match="was moved, removed or replaced"):
            write()
    store.close()
    store.close()
    assert store.folder.exists() == replaced
    for folder in (moved, store.folder) if replaced else (moved,):
        with RunStore.open(folder, readonly=True) as again:
            assert list(again.requests()) == [make_request()]


def test_a_second_writer_is_refused_until_the_first_is_killed(store):
    store.close()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert is_written(store.folder)
        with pytest.raises(StoreError, match=f"process {holder.pid} is writing"):
            RunStore.open(store.folder)
        RunStore.open(store.folder, readonly=True).close()
        holder.kill()
        holder.wait()
    assert not is_written(store.folder)
    with RunStore.open(store.folder):
        assert is_written(store.folder)
        with pytest.raises(StoreError, match="is writing"):
            RunStore.open(store.folder)


# --- the same run? ---------------------------------------------------------------------------------------------------


def test_a_database_that_is_replaced_stops_the_run(store, make_request, plan):
    copy = store.folder.with_name("copy.sqlite")
    store.add_request(make_request())
    shutil.copy(store.path, copy)
    store.path.unlink()
    shutil.copy(copy, store.path)
    with pytest.raises(StoreError, match=r"run\.sqlite in it, was moved, removed or replaced"):
        store.add_request(make_request(plan[1]))


def test_every_difference_is_named(make_engine):
    was = RunIdentity(
        experiment={"design": {"blocks": 3}, "arms": [{"gamma": 4}, {"gamma": 8}]},
        engine=make_engine(libraries={"libllama.so": "1", "libold.so": "2"}),
        models=[MODEL],
        prompts=[PROMPT],
        arms=[Arm(id="a", target="dense")],
    )
    now = RunIdentity(
        experiment={"design": {"blocks": 5}, "arms": [{"gamma": 4}]},
        engine=make_engine(libraries={"libllama.so": "9"}, binary="/elsewhere"),
        models=[MODEL.model_copy(update={"sha256": "2", "path": "/elsewhere"})],
        prompts=[PROMPT.model_copy(update={"sha256": "2", "text": "y"}), PROMPT.model_copy(update={"id": "q"})],
        arms=[Arm(id="a", target="dense", gamma=3)],
    )
    assert compare_identity(was, was) == []
    lines = [str(change) for change in compare_identity(was, now)]
    assert "experiment.design.blocks: 3 -> 5" in lines
    assert 'experiment.arms.1: {"gamma": 8} -> (absent)' in lines
    assert "arms.a.gamma: null -> 3" in lines
    assert "engine.libraries.libllama.so: 1 -> 9" in lines
    assert "engine.libraries.libold.so: 2 -> (absent)" in lines
    assert "models.dense.sha256: 1 -> 2" in lines
    assert "prompts.p.sha256: 1 -> 2" in lines
    assert [line for line in lines if line.startswith("prompts.q: (absent) -> ")]
    assert len(lines) == 8


def test_a_changed_run_is_not_resumed(store, make_session, make_engine):
    store.set_models([MODEL])
    same = RunIdentity(experiment={"name": "t"}, engine=make_engine(), models=[MODEL], prompts=[PROMPT])
    store.refuse_changes(same)
    store.add_session(make_session())
    store.refuse_changes(same)
    changed = RunIdentity(experiment={"name": "t"}, engine=make_engine(binary_sha256="bb"), models=[MODEL])
    with pytest.raises(StoreError, match=r"engine\.binary_sha256: aa -> bb") as refusal:
        store.refuse_changes(changed)
    assert "--out" in refusal.value.fix

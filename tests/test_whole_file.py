"""Files appear whole, and only files are ever replaced."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from specmeter.errors import UsageError
from specmeter.files import whole_file, write_whole
from specmeter.show.page.files import write_text


def test_a_file_is_replaced_at_the_end_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(TypeError), whole_file(path) as stream:
        stream.writelines([b"half", "no bytes"])  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert path.read_text() == "old"
    with whole_file(path) as stream:
        stream.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.html"
    link.symlink_to(tmp_path / "real" / "page.html")
    write_whole(link, b"page")
    assert link.is_symlink()
    assert (tmp_path / "real" / "page.html").read_bytes() == b"page"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_whole(pipe, b"through")
    reader.join(10)
    assert read == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="needs a name for standard output")
def test_a_file_that_output_is_appended_to_keeps_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    path.write_bytes(b"old\n")
    program = "from pathlib import Path; from specmeter.files import *; write_whole(Path('/dev/stdout'), b'new')"
    with path.open("ab") as stream:
        subprocess.run([sys.executable, "-c", program], stdout=stream, check=True, timeout=60)
    assert path.read_bytes() == b"old\nnew"
    assert [item.name for item in tmp_path.iterdir()] == ["all.csv"]


def test_a_folder_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{tmp_path}: cannot be written"):
        write_text(tmp_path, "page")
    assert tmp_path.is_dir()

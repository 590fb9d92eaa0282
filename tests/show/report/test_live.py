"""Pages of a folder while something in it is measured, and the server that shows them to one person."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from report_pages import Looked
from specmeter.cli import invoke
from specmeter.experiments.file import load
from specmeter.laboratory.run import prepare
from specmeter.laboratory.run import run as measure
from specmeter.record import Request
from specmeter.show.page import live as live_module
from specmeter.show.page.live import Pages
from specmeter.show.page.server import PageServer
from specmeter.show.terminal.console import Screen
from specmeter.show.terminal.progress import RunProgress
from specmeter.store import RunStore

Look = Callable[..., Looked]
EXPERIMENT = """
name: looked-at
targets: {dense: "mock:dense"}
drafts: {small: "mock:small"}
arms: [{draft: small, gamma: [2, 4]}]
workloads: [{source: bench, kinds: [fact, code], per_kind: 1}]
design: {blocks: 3}
engine: {kind: mock}
generation: {max_tokens: 16}
"""
INTERIM = "Interim numbers: unfinished, unchecked"
WAITS = "Something in this folder is being measured."


class _StopsAfter(RunProgress):
    """A person who presses Ctrl-C after so many requests."""

    left = 8

    def request_done(self, request: Request) -> None:
        super().request_done(request)
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs and one that was stopped half way."""
    place = tmp_path_factory.mktemp("live")
    file = place / "looked-at.yaml"
    file.write_text(EXPERIMENT, encoding="utf-8")
    for name in ("first", "second"):
        assert invoke(["run", str(file), "--set", f"name={name}", "--out", str(place / "runs" / name), "--quiet"]) == 0
    stopped = place / "runs" / "third"
    with pytest.raises(KeyboardInterrupt):
        measure(prepare(load(str(file), ())), stopped, _StopsAfter(stopped, Screen(quiet=True)))
    return place


@pytest.fixture
def folder(base: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    shutil.copytree(base, tmp_path / "live")
    return tmp_path / "live" / "runs"


def finish(folder: Path) -> None:
    assert invoke(["run", str(folder.parent / "looked-at.yaml"), "--out", str(folder / "third"), "--quiet"]) == 0


@contextmanager
def served(folder: Path) -> Generator[PageServer]:
    with PageServer(Pages(folder, ("en", "zh")), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server: PageServer, path: str, *, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        reply = connection.getresponse()
        return reply.status, reply.read().decode(), dict(reply.headers)
    finally:
        connection.close()


def test_a_run_that_is_measured_has_a_light_page_and_a_finished_one_the_whole_report(folder: Path) -> None:
    with served(folder) as server:
        with RunStore.open(folder / "third"):  # it is written to
            status, page, _ = ask(server, "/third/")
            assert status == 200
            assert INTERIM in page
            assert "中间数据" in page
            assert '<progress class="bar" max="18" value="8"' in page
            assert "connect-src" in page
            assert len(page) < 100_000
        server.pages._kept.clear()  # pyright: ignore[reportPrivateUsage]
        finish(folder)
        status, page, _ = ask(server, "/third/")
    assert status == 200
    assert INTERIM not in page
    assert 'id="validity"' in page
    assert "connect-src" not in page


def test_whole_reports_wait_while_anything_is_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = Pages(folder, ("en",))
    whole = pages.page("/first/")
    with RunStore.open(folder / "third"), monkeypatch.context() as patch:

        def never(*_: Any) -> None:
            raise AssertionError("the processor belongs to the measurement")

        for name in ("whole_page", "read_side"):
            patch.setattr(live_module, name, never)
        assert pages.page("/first/") == whole  # it was made before
        for address in ("/second/", "/compare/?run=first&run=second"):
            assert WAITS in pages.page(address).text
    assert 'id="validity"' in pages.page("/second/").text


def test_a_page_is_not_made_anew_for_everyone_who_asks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    read = live_module.read_progress
    monkeypatch.setattr(live_module, "FRESH_S", 1e9)
    monkeypatch.setattr(live_module, "read_progress", lambda place: (made.append(place), read(place))[1])
    pages = Pages(folder, ("en",))
    with RunStore.open(folder / "third"):
        assert {pages.page("/third/") for _ in range(5)} == {pages.page("/third/")}
    assert len(made) == 1


def test_the_index_shows_all_and_two_that_are_ticked_are_compared(folder: Path) -> None:
    with served(folder) as server:
        _, page, _ = ask(server, "/")
        assert sorted(re.findall(r'<h2><a href="([^"]*)/">', page)) == ["first", "second", "third"]
        assert sorted(re.findall(r'name="run" value="([^"]*)"', page)) == ["first", "second"]
        status, page, _ = ask(server, "/compare/?run=first&run=second")
        assert status == 200
        assert "By configuration" in page
        for query in ("", "?run=first", "?run=first&run=first", "?run=first&run=..", "?" + "run=a&" * 9, "?run=%zz"):
            status, page, _ = ask(server, f"/compare/{query}")
            assert status == 404
            assert "Select two runs" in page


def test_stages_of_an_advice_in_progress_have_an_index_of_their_own(folder: Path) -> None:
    (folder / "advised").mkdir()
    (folder / "third").rename(folder / "advised" / "screen")
    pages = Pages(folder, ("en",))
    with RunStore.open(folder / "advised" / "screen"):
        assert 'href="advised/"' in pages.page("/").text
        assert 'href="screen/"' in pages.page("/advised/").text
        assert INTERIM in pages.page("/advised/screen/").text
        assert WAITS in pages.page("/first/").text


def test_a_single_run_is_served_alone(folder: Path) -> None:
    assert 'id="validity"' in Pages(folder / "first", ("en",)).page("/").text


HOSTILE = [
    *("/../", "/first/../../", "/..", "/%2e%2e/", "/..%2f..%2fetc%2fpasswd", "//etc/passwd", "/./", "/%00/"),
    *("/first/run.sqlite", "/first/logs/", "/link/", "/link/run.sqlite/", "/\\..\\", "/%ff%fe/", "/first/first/"),
    *("/C:/", "/a" * 900 + "/", "/" + "x" * 3000, "http://evil.example/", "*", "/first%2f", "/%E2%80%AE/"),
]


@pytest.mark.parametrize("path", HOSTILE)
def test_no_address_leads_out_of_the_folder(folder: Path, tmp_path: Path, path: str) -> None:
    outside = tmp_path / "outside"
    shutil.copytree(folder / "first", outside)
    (folder / "link").symlink_to(outside, target_is_directory=True)
    with served(folder) as server:
        assert ask(server, "/first")[2]["Location"] == "/first/"
        status, page, _ = ask(server, path)
        assert status == (421 if "evil" in path else 404), "also where a slash is missing"
        assert 'id="validity"' not in page
        assert "link" not in re.findall(r'<h2><a href="([^"]*)/">', ask(server, "/")[1])


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "evil.example:80", "[::1]", "a:localhost"]
)
def test_other_names_that_lead_here_are_refused(folder: Path, host: str) -> None:
    with served(folder) as server:
        status, page, _ = ask(server, "/", Host=host)
    assert status == 421
    assert "first" not in page


def test_names_of_this_machine_are_answered_by_any_port(folder: Path) -> None:
    with served(folder) as server:
        for host in ("localhost", "127.0.0.1:8765", "LOCALHOST:1"):
            assert ask(server, "/", Host=host)[0] == 200


def test_two_hosts_and_none_are_refused(folder: Path) -> None:
    with served(folder) as server:
        for lines in (b"Host: localhost\r\nHost: localhost\r\n", b""):
            with socket.create_connection(("127.0.0.1", server.server_port)) as client:
                client.sendall(b"GET / HTTP/1.1\r\n" + lines + b"\r\n")
                assert b" 421 " in client.recv(100)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "ANY"])
def test_it_can_only_be_read(folder: Path, method: str) -> None:
    with served(folder) as server:
        status, _, headers = ask(server, "/", method=method)
    assert status == 405
    assert headers["Allow"] == "GET"


def test_other_sites_get_nothing_and_links_from_them_work(folder: Path) -> None:
    with served(folder) as server:
        assert ask(server, "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Dest="image")[0] == 403
        assert ask(server, "/", Sec_Fetch_Site="same-site", Sec_Fetch_Dest="empty")[0] == 403
        assert ask(server, "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Dest="document")[0] == 200
        assert ask(server, "/", Sec_Fetch_Site="same-origin", Sec_Fetch_Dest="empty")[0] == 200
        _, _, headers = ask(server, "/")
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert headers["Cache-Control"] == "no-store"


def test_a_hostile_run_does_nothing_to_the_pages(hostile: Path, look: Look) -> None:
    with served(hostile.parent) as server, RunStore.open(hostile):
        for path in ("", "run/"):
            looked = look(server.address + path)
            assert looked.run("window.attacked") is None
            assert looked.said == []


def test_a_damaged_run_is_told_and_the_others_are_shown(folder: Path) -> None:
    (folder / "first" / "run.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    pages = Pages(folder, ("en",))
    assert "cannot be read" in pages.page("/").text
    assert pages.page("/first/").status == 500
    assert pages.page("/second/").status == 200


def test_in_a_browser_a_page_goes_on_by_itself_until_the_report_is_there(folder: Path, look: Look) -> None:
    with served(folder) as server:
        with RunStore.open(folder / "third"):
            index = look(server.address)
            index.page.check("input >> nth=0")
            looked = look(server.address + "third/")
            assert looked.page.inner_text(".chip") in ("being measured", "测量中")
        finish(folder)
        looked.page.wait_for_selector("#validity")
        index.until("document.querySelectorAll('input').length === 3")
        assert index.run("document.querySelectorAll('input:checked').length") == 1
        assert all(url.startswith((server.address, "data:")) for url in (*looked.asked, *index.asked))
        assert looked.said == index.said == []
    index.page.wait_for_selector("[data-gone]", state="visible")


def test_a_port_that_is_taken_is_a_clear_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert invoke(["serve", str(folder), "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"--port {port}: " in said
    assert "--port 0" in said


def test_it_prints_its_address_and_ctrl_c_ends_it_quietly(folder: Path) -> None:
    command = [sys.executable, "-P", "-m", "specmeter", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
        os.kill(server.pid, signal.SIGINT)
        _, said = server.communicate(timeout=60)
    assert server.returncode == 0
    assert "Traceback" not in said


def test_a_run_is_watched_by_a_process_that_ends_with_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages: list[str] = []
    done = RunProgress.request_done

    def look_on(self: RunProgress, request: Request) -> None:
        done(self, request)
        if not pages:
            said = capsys.readouterr().err
            (port,) = re.findall(r"watch it at http://127\.0\.0\.1:(\d+)/third/", said)
            connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
            connection.request("GET", "/third/")
            pages.extend((connection.getresponse().read().decode(), port))

    monkeypatch.setattr(RunProgress, "request_done", look_on)
    file, out = folder.parent / "looked-at.yaml", folder / "third"
    assert invoke(["run", str(file), "--out", str(out), "--watch"]) == 0
    assert INTERIM in pages[0]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(pages[1])))

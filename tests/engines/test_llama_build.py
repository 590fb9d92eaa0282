"""A build from order to record, with a cmake and a compiler that only pretend; and the real ones where all is built."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import subprocess
import sys
import tarfile
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from programs import write_program
from specmeter.cli import invoke
from specmeter.engines.llama_cpp.build import (
    BACKENDS,
    NAME,
    OPTIONS,
    PACKAGE,
    SHA256,
    Backend,
    BuildSpec,
    Heard,
    packaged_source,
    steps_of,
)
from specmeter.engines.llama_cpp.build import build as build_with
from specmeter.engines.llama_cpp.tools import PROGRAMS, Build, builds, find_program
from specmeter.errors import EngineError, UsageError
from specmeter.files import locked
from specmeter.record import Gpu

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="programs are scripts here")

CMAKE = """\
#!{python}
import json, os, pathlib, sys, time
words = sys.argv[1:]
with open({notes!r}, "a") as notes:
    notes.write(json.dumps(words) + "\\n")
if "--build" not in words:
    tree = pathlib.Path(words[words.index("-B") + 1])
    tree.mkdir(parents=True, exist_ok=True)
    (tree / "CMakeCache.txt").write_text("")
    sys.exit(0)
tree = pathlib.Path(words[words.index("--build") + 1])
if "--target" in words:
    names = words[words.index("--target") + 1:]
    (tree / "bin").mkdir(exist_ok=True)
    for number, name in enumerate(names, 1):
        print(f"[{{100 * number // len(names):3d}}%] Building CXX object {{name}}.o", flush=True)
        {each}
        program = tree / "bin" / name
        program.write_text({program!r})
        program.chmod(0o755)
"""

PROGRAM = """\
#!{python}
import json, sys
if "--version" in sys.argv:
    print("version: 8240 (abc)"); print("built with a compiler")
elif "--help" in sys.argv:
    print("--model --port --host --metrics --ctx-size --rpc")
else:
    for prompt, generated in ((8, 0), (0, 4)):
        print(json.dumps({"n_prompt": prompt, "n_gen": generated, "n_depth": 0, "samples_ns": [1000000]}))
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SPECMETER_LLAMA_SERVER", raising=False)


@pytest.fixture
def own_source(tmp_path: Path) -> Path:
    folder = tmp_path / "llama.cpp"
    for name in ("CMakeLists.txt", "ggml/CMakeLists.txt", "include/llama.h", "tools/rpc/CMakeLists.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("set(TARGET ggml-rpc-server)\n", encoding="utf-8")
    return folder


def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, each: str = "pass", program: str = PROGRAM) -> Path:
    """A cmake on PATH that does `each` for each program; returns where it notes what it is asked."""
    notes = tmp_path / "notes.jsonl"
    folder = tmp_path / "tools"
    folder.mkdir(exist_ok=True)
    text = program.replace("{python}", sys.executable)
    cmake = CMAKE.format(python=sys.executable, notes=str(notes), each=each, program=text)
    for name, content in (("cmake", cmake), ("c++", "#!/bin/sh\n"), ("make", "#!/bin/sh\n")):
        write_program(folder / name, content)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return notes


def silent(what: str, done: int, of: int) -> None:
    del what, done, of


def build(spec: BuildSpec, heard: Heard = silent) -> Build:
    return build_with(spec, lambda: "model.gguf", heard)


def asked(notes: Path) -> list[list[str]]:
    return [json.loads(line) for line in notes.read_text(encoding="utf-8").splitlines()]


def test_what_is_built_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_source: Path) -> None:
    notes = pretend(tmp_path, monkeypatch)
    heard: list[tuple[str, int, int]] = []
    order = BuildSpec(backends=(), cmake=("-DGGML_LTO=ON",), source=own_source, jobs=3)
    made = build(order, lambda *it: heard.append(it))
    assert set(made.programs) == set(PROGRAMS)
    assert all(find_program(name) == made.programs[name] for name in PROGRAMS)
    assert made.record.version == "8240 (abc)"
    assert made.record.source == str(own_source)
    configure, compile_ = asked(notes)
    assert [*OPTIONS, "-DGGML_LTO=ON"][-1] == configure[-1]
    assert "-DGGML_NATIVE=ON" not in configure
    assert compile_[compile_.index("-j") + 1] == "3"
    assert [what for what, _, _ in dict.fromkeys((what, 0, 0) for what, _, _ in heard)] == [
        "configuring",
        "compiling",
        "trying what was built",
    ]


def test_builds_with_other_options_lie_apart(own_source: Path) -> None:
    names = {
        BuildSpec(source=own_source).folder.name,
        BuildSpec(source=own_source, tuned=True).folder.name,
        BuildSpec(source=own_source, backends=("cuda",)).folder.name,
        BuildSpec(source=own_source, backends=("cuda",), cmake=("-DX=1",)).folder.name,
        BuildSpec().folder.name,
    }
    assert len(names) == 5
    assert "-DGGML_CUDA=ON" in BuildSpec(backends=("cuda",)).options
    assert "-DGGML_NATIVE=ON" in BuildSpec(tuned=True).options


@pytest.mark.parametrize(
    ("each", "said"),
    [("print('x.cpp:1:2: error: no such thing', flush=True); sys.exit(2)", "error: no such thing")],
)
def test_a_compiler_that_fails_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_source: Path, each: str, said: str
) -> None:
    pretend(tmp_path, monkeypatch, each=each)
    with pytest.raises(EngineError, match=r"cmake failed while compiling \(exit code 2\)") as error:
        build(BuildSpec(source=own_source))
    assert said in error.value.message
    assert builds() == []
    pretend(tmp_path, monkeypatch)
    assert build(BuildSpec(source=own_source)).programs, "the same order goes on"


def test_a_build_that_does_not_compute_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_source: Path
) -> None:
    crashing = "#!{python}\nimport os, signal\nos.kill(os.getpid(), signal.SIGILL)\n"
    pretend(tmp_path, monkeypatch, program=crashing)
    with pytest.raises(EngineError, match="the built program does not run here") as error:
        build(BuildSpec(source=own_source, tuned=True))
    assert error.value.fix == "build without --tuned"
    assert builds() == []


def test_an_order_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_source: Path) -> None:
    pretend(tmp_path, monkeypatch)
    with pytest.raises(UsageError, match="not an option of cmake"):
        build(BuildSpec(source=own_source, cmake=("--build",)))
    with pytest.raises(UsageError, match=r"does not contain llama\.cpp's sources"):
        build(BuildSpec(source=tmp_path))
    assert not BuildSpec(source=tmp_path).folder.exists()


def test_everything_that_is_missing_stands_in_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_source: Path
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"missing cmake, C\+\+ compiler, make") as error:
        build(BuildSpec(source=own_source))
    assert "apt install cmake" in error.value.fix
    assert "apt install g++" in error.value.fix


@pytest.mark.parametrize(("vendors", "native"), [(["NVIDIA"], True), (["AMD"], False), ([], False)])
def test_cuda_is_built_for_the_gpu_at_hand(monkeypatch: pytest.MonkeyPatch, vendors: list[str], native: bool) -> None:
    gpus = tuple(Gpu(index=0, name="it", vendor=it) for it in vendors)
    monkeypatch.setattr("specmeter.engines.llama_cpp.build.read_gpus", lambda: gpus)
    assert ("-DCMAKE_CUDA_ARCHITECTURES=native" in BuildSpec(backends=("cuda",)).options) == native
    assert "-DCMAKE_CUDA_ARCHITECTURES=native" not in BuildSpec().options


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_gpu_needs(monkeypatch: pytest.MonkeyPatch, own_source: Path, backend: Backend) -> None:
    tools = {name: name for name in ("cmake", "c++", "make")}
    monkeypatch.setattr("shutil.which", tools.get)
    for name in ("CUDACXX", "VULKAN_SDK", "HIP_PATH"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match=r"cannot be built here: missing \w+"):
        build(BuildSpec(backends=(backend,), source=own_source))


def test_two_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_source: Path) -> None:
    pretend(tmp_path, monkeypatch)
    order = BuildSpec(source=own_source)
    order.folder.mkdir(parents=True)
    with locked(order.folder / "lock"), pytest.raises(UsageError, match="another process is building here"):
        build(order)


def test_interrupted_and_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_source: Path) -> None:
    """Ctrl-C ends the compilers, keeps what there is, and takes nothing half built for a program."""
    pretend(tmp_path, monkeypatch, each="time.sleep(600)")
    command = [sys.executable, "-m", "specmeter", "engines", "build", "--source", str(own_source)]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    log = BuildSpec(source=own_source).folder / "log.txt"
    deadline = time.monotonic() + 60
    while not (log.is_file() and "Building" in log.read_text(encoding="utf-8")) and time.monotonic() < deadline:
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    _, told = started.communicate(timeout=120)
    assert started.returncode == 130, told
    assert builds() == []
    pretend(tmp_path, monkeypatch)
    assert invoke(["engines", "build", "--source", str(own_source)]) == 0
    assert len(builds()) == 1


def test_the_command_prints_paths_and_lists_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(tmp_path, monkeypatch)
    assert invoke(["engines", "list"]) == 0
    assert "nothing built yet" in capsys.readouterr().out
    assert invoke(["engines", "build", "--source", str(own_source)]) == 0
    shown = capsys.readouterr()
    assert [Path(line).name for line in shown.out.splitlines()] == list(PROGRAMS)
    assert "compiling" in shown.err
    assert invoke(["engines", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert set(listed["programs"]) == set(PROGRAMS)
    assert [item["version"] for item in listed["builds"]] == ["8240 (abc)"]
    monkeypatch.setenv("SPECMETER_LLAMA_SERVER", sys.executable)
    assert invoke(["engines", "build", "--source", str(own_source), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["programs"] == listed["builds"][0]["programs"]
    assert invoke(["engines", "list"]) == 0
    out = capsys.readouterr().out
    assert re.search(rf"^llama-server +{re.escape(sys.executable)}$", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", (0, 0)),
        ("-- Configuring done\n[  7%] Building\n[ 42%] Built target x\n", (42, 100)),
        ("[1/300] a\n[12/300] Building\n", (12, 300)),
        (textwrap.dedent("x[5%] y"), (0, 0)),
    ],
)
def test_how_far_it_is(text: str, steps: tuple[int, int]) -> None:
    assert steps_of(text) == steps


class Pip:
    """A pip that leaves an archive of these files where it is told to."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.wanted: list[str] = []
        self.sha256 = ""

    def __call__(self, what: str, command: Sequence[str]) -> None:
        assert what == "downloading sources"
        self.wanted.append(Path(command[command.index("-r") + 1]).read_text(encoding="ascii"))
        path = Path(command[command.index("--dest") + 1]) / f"{NAME}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for name in self.names:
                archive.addfile(tarfile.TarInfo(name))
        self.sha256 = hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_package_is_asked_for_with_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = Pip(f"{NAME}/vendor/llama.cpp/CMakeLists.txt")
    with pytest.raises(EngineError, match=rf"its SHA-256 is \w+, not {SHA256}"):
        packaged_source(tmp_path, pip)
    assert pip.wanted == [f"{PACKAGE} --hash=sha256:{SHA256}\n"]
    assert list(tmp_path.iterdir()) == [], "nothing of a package with another checksum stays"
    monkeypatch.setattr("specmeter.engines.llama_cpp.build.SHA256", pip.sha256)
    found = packaged_source(tmp_path, pip)
    assert (found / "CMakeLists.txt").is_file()
    assert packaged_source(tmp_path, pip) == found
    assert len(pip.wanted) == 2, "downloaded once"


def test_a_package_that_leads_out_of_its_folder_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = Pip("a/../../outside")
    with pytest.raises(EngineError):
        packaged_source(tmp_path, pip)
    monkeypatch.setattr("specmeter.engines.llama_cpp.build.SHA256", pip.sha256)
    with pytest.raises(tarfile.TarError):
        packaged_source(tmp_path, pip)
    assert list(tmp_path.iterdir()) == [], "nothing half unpacked"


def test_without_a_network_it_is_said_what_to_do(tmp_path: Path) -> None:
    def pip(*_: object) -> None:
        raise EngineError("pip failed (exit code 1)\n  | no route to host", fix="-")

    with pytest.raises(EngineError, match="could not be downloaded: pip failed") as error:
        packaged_source(tmp_path, pip)
    assert "--source FOLDER" in error.value.fix


def test_without_pip_and_uv_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="neither pip nor uv"):
        packaged_source(tmp_path, Pip())

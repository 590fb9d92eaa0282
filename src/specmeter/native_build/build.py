"""A build of llama.cpp's programs, from sources to a record of what was made.

It is made in a folder of the cache that its options name, by cmake under `engines.guard`: whatever ends specmeter ends
the compilers too. What was compiled stays, so the same order goes on where it was; a build that is complete takes
seconds. By default the processor's code is that of the installed wheel (AVX2 on x86-64, whatever this machine has
elsewhere): so it can be compared with the embedded engine, and runs where a virtual machine claims more than it has.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specmeter.engines.llama_cpp.native import NativeEngine
from specmeter.engines.llama_cpp.tools import (
    OTHER_NAMES,
    PROGRAMS,
    Build,
    BuildRecord,
    begin_build,
    builds_folder,
    finish_build,
)
from specmeter.engines.process import EngineProcess
from specmeter.errors import EngineError, UsageError
from specmeter.models.reference import resolve
from specmeter.native_build import sources
from specmeter.native_build.prerequisites import NVCC, Backend, require
from specmeter.quality import SpeedTest
from specmeter.quality.native import native_times
from specmeter.record import EngineSettings

OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_RPC=ON",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
)
LIKE_THE_WHEEL = ("-DGGML_NATIVE=OFF", *(f"-DGGML_{name}=ON" for name in ("AVX2", "FMA", "F16C", "BMI2")))
_BYTES_PER_JOB = 2 * 2**30
"""A compiler may take that much memory; more of them at once than fit would swap."""
_POLL_S = 0.5
_ASK_S = 30.0
_MAX_LOG = 4 * 2**20
_SHOWN_LINES = 8
_STEP = re.compile(r"^\[\s*(\d{1,3})%\]|^\[(\d{1,6})/(\d{1,6})\]", re.MULTILINE)
_WRONG = re.compile(r"error|fatal|undefined reference|not found|could not", re.IGNORECASE)
_OPTION = re.compile(r"-[DGATU]\s?[^\x00-\x1f]{1,1000}")
_TRIAL = "bench:draft-small"

Heard = Callable[[str, int, int], None]
"""Called with (what is being done, done, of): `of` is 0 where nothing can be said of its length."""


@dataclass(frozen=True)
class BuildSpec:
    """What is to be built."""

    backends: tuple[Backend, ...] = ()
    tuned: bool = False
    """Use everything that this machine's processor says it can do."""
    cmake: tuple[str, ...] = ()
    """Further options of cmake."""
    source: Path | None = None
    """The user's own sources, a folder or an archive; None: those of the pinned package."""
    jobs: int | None = None
    """Compilers at once; None: as many as cores and memory allow."""

    @property
    def options(self) -> tuple[str, ...]:
        """All options of cmake, in the order in which a later one counts."""
        x86 = platform.machine().lower() in ("x86_64", "amd64")
        like_the_wheel = LIKE_THE_WHEEL if x86 and not self.tuned else ()
        tuned = ("-DGGML_NATIVE=ON",) if self.tuned else ()
        backends = tuple(f"-DGGML_{name.upper()}=ON" for name in self.backends)
        return (*OPTIONS, *like_the_wheel, *tuned, *backends, *self.cmake)

    @property
    def folder(self) -> Path:
        """Builds of other sources or with other options do not overwrite each other. Raises `UsageError`."""
        name = sources.NAME if self.source is None else _source_name(self.source)
        words = [*self.backends, *(["tuned"] if self.tuned else [])]
        if self.cmake:
            words.append(hashlib.sha256(" ".join(self.cmake).encode()).hexdigest()[:8])
        return builds_folder() / "-".join([name, *words])


def build(spec: BuildSpec, heard: Heard) -> Build:
    """Build what is asked for, or what an interrupted build left to do.

    Raises `UsageError` where something must be installed first or the order cannot be carried out, `EngineError` when
    the sources cannot be downloaded, the build fails or its server does not run here.
    """
    from filelock import FileLock, Timeout

    for option in spec.cmake:
        if not _OPTION.fullmatch(option):
            raise UsageError(
                f"--cmake {option[:80]!r}: is not an option of cmake", fix="write --cmake=-DNAME=VALUE, as cmake has it"
            )
    require(spec.backends)
    folder = spec.folder
    try:
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(folder / "lock", timeout=0):
                return _build(spec, folder, heard)
        except UsageError:
            if is_new and not (folder / "log.txt").exists():
                shutil.rmtree(folder, ignore_errors=True)
            raise
    except Timeout:
        raise UsageError(f"{folder}: another process is building here", fix="wait until it has ended") from None
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be written ({error.strerror or error})",
            fix="free some space, or set SPECMETER_CACHE to a folder that can be written to",
        ) from None


def _build(spec: BuildSpec, folder: Path, heard: Heard) -> Build:
    log = folder / "log.txt"

    def run(what: str, command: Sequence[str]) -> None:
        _run(command, what, log, heard)

    if spec.source is None:
        source = sources.packaged(folder, lambda command: run("downloading sources", command))
    else:
        source = sources.given(spec.source.expanduser(), folder)
    tree = folder / "build"
    begin_build(folder)
    run("configuring", [_cmake(), "-S", str(source), "-B", str(tree), *_generator(tree), *spec.options])
    jobs = spec.jobs or default_jobs()
    targets = _targets(source)
    run("compiling", [_cmake(), "--build", str(tree), "--config", "Release", "-j", str(jobs), "--target", *targets])
    place = next((file.parent for file in sorted((tree / "bin").rglob("*")) if file.stem == "llama-server"), None)
    if place is None:
        raise EngineError(f"{tree}: no llama-server was built", fix=f"see {log}")
    heard("trying what was built", 0, 0)
    try:
        version = _tried(place)
    except EngineError as error:
        fix = "build without --tuned" if spec.tuned else f"see {log}, and run the program by hand"
        raise EngineError(f"what was built does not run here: {error.message}", fix=fix) from None
    record = BuildRecord(
        source=sources.TOLD if spec.source is None else str(spec.source.expanduser().absolute()),
        version=version,
        options=spec.options,
        built_at=time.time(),
        folder=place.relative_to(folder).as_posix(),
    )
    return finish_build(folder, record)


def _tried(place: Path) -> str:
    """Version of the server, after a real model has been computed with: processors claim what virtual machines trap.

    Raises `EngineError`.
    """
    model = resolve("trial", _TRIAL, base_dir=Path())
    tests = (SpeedTest(kind="prompt", tokens=8), SpeedTest(kind="generate", tokens=4))
    native_times(_executable(place, "llama-bench"), model, tests, EngineSettings(threads=1))
    return NativeEngine(_executable(place, "llama-server")).identify().version


def default_jobs() -> int:
    """Compilers at once: one for each core that may be used, as far as memory allows."""
    from specmeter.host import memory_available_bytes

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, min(cores, memory_available_bytes() // _BYTES_PER_JOB))


def steps_of(text: str) -> tuple[int, int]:
    """(done, of) by the last line of make (`[ 42%]`) or ninja (`[12/345]`) that counts; (0, 0) where none does."""
    steps = _STEP.findall(text)
    if not steps:
        return 0, 0
    percent, done, of = steps[-1]
    return (int(percent), 100) if percent else (int(done), int(of))


def _run(command: Sequence[str], what: str, log: Path, heard: Heard) -> None:
    """Raises `EngineError` with the lines that say why, when it fails."""
    heard(what, 0, 0)
    process = EngineProcess(command, env=_environment(), log_path=log)
    try:
        while (code := process.wait(_POLL_S)) is None:
            heard(what, *steps_of(_text(log)))
    finally:
        process.close()
    if code != 0:
        raise EngineError(
            f"{Path(command[0]).name} failed while {what} (exit code {code}){_why(_text(log))}",
            fix=f"its output is in {log}; the same command continues where it stopped",
        )


def _environment() -> dict[str, str]:
    """This process's own, with the compilers of CUDA and ROCm that cmake does not find by itself."""
    env = dict(os.environ)
    if "CUDACXX" not in env and shutil.which("nvcc") is None and NVCC.is_file():
        env["CUDACXX"] = str(NVCC)
    config = shutil.which("hipconfig")
    for variable, flag, suffix in (("HIPCXX", "-l", "/clang"), ("HIP_PATH", "-R", "")):
        if config and variable not in env:
            with contextlib.suppress(OSError, subprocess.SubprocessError):  # cmake then looks for itself
                said = subprocess.run([config, flag], capture_output=True, text=True, check=False, timeout=_ASK_S)
                if said.stdout.strip():
                    env[variable] = said.stdout.strip() + suffix
    return env


def _cmake() -> str:
    found = shutil.which("cmake")
    assert found is not None, "looked for before"
    return found


def _generator(tree: Path) -> list[str]:
    """What cmake is to write files for, where it would choose make and there is only ninja."""
    if os.name == "nt" or (tree / "CMakeCache.txt").exists() or shutil.which("make"):
        return []
    return ["-G", "Ninja"]


def _targets(source: Path) -> list[str]:
    """The programs by the names that these sources have for them."""
    try:
        rpc = (source / "tools" / "rpc" / "CMakeLists.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        rpc = ""
    old = OTHER_NAMES["ggml-rpc-server"]
    renamed = {"ggml-rpc-server": old} if re.search(rf"set\(TARGET {old}\)", rpc) else {}
    return [renamed.get(name, name) for name in PROGRAMS]


def _executable(folder: Path, name: str) -> Path:
    return folder / (f"{name}.exe" if os.name == "nt" else name)


def _source_name(source: Path) -> str:
    """Folder name for builds of the user's own sources: an archive goes by its content, a folder by its path."""
    source = source.expanduser().absolute()
    if source.is_dir():
        mark = hashlib.sha256(str(source).encode("utf-8", "surrogateescape")).hexdigest()
    else:
        mark = sources.archive_sha256(source)
    stem = re.sub(r"[^A-Za-z0-9._-]", "-", source.name)[:60].strip(".-") or "source"
    return f"{stem}-{mark[:8]}"


def _text(log: Path) -> str:
    """The end of what was printed."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _MAX_LOG))
        return stream.read(_MAX_LOG).decode("utf-8", "replace")


def _why(text: str) -> str:
    lines = [line.strip()[:300] for line in text.splitlines() if line.strip()]
    wrong = [line for line in lines if _WRONG.search(line)] or lines
    return "".join(f"\n  | {line}" for line in wrong[-_SHOWN_LINES:])

"""Builds llama.cpp's own programs on this machine, and says which servers can be used here.

A build lies in a folder of the cache that its options name (`tools` finds it), and is made by cmake under
`engines.guard`: whatever ends specmeter ends the compilers too. What was compiled stays, so the same command continues.
By default the processor's code is that of the installed wheel (AVX2 on x86-64): so it can be compared with the embedded
engine, and runs if a virtual machine claims more than it has. Sources are the user's own, or a pinned package's, which
pip downloads since it knows the user's index and proxy, and whose checksum is known.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from specmeter.engines.llama_cpp import tools
from specmeter.engines.llama_cpp.engine import EmbeddedEngine, NativeEngine
from specmeter.engines.llama_cpp.spec import is_gpu
from specmeter.engines.llama_cpp.tools import BINARY_VARIABLE, BUILD_COMMAND, Program, find_program
from specmeter.engines.process import EngineProcess, clean_environment
from specmeter.engines.registry import Device, EngineStatus
from specmeter.errors import EngineError, SpecmeterError, UsageError
from specmeter.files import locked_at_once
from specmeter.host.gpus import read_gpus
from specmeter.host.limits import memory_available_bytes, usable_cores
from specmeter.record import EngineIdentity, Gpu, Host

# Name of a device begins with its backend; the vendors whose GPUs that backend drives.
_BACKEND_VENDORS: Mapping[str, tuple[str, ...]] = {
    "CUDA": ("NVIDIA",),
    "ROCm": ("AMD",),
    "HIP": ("AMD",),
    "MTL": ("Apple", "AMD", "Intel"),
    "Metal": ("Apple", "AMD", "Intel"),
    "SYCL": ("Intel",),
    "Vulkan": ("NVIDIA", "AMD", "Intel", "Qualcomm", "Apple", "unknown"),
}
_BUILD_FLAGS: Mapping[str, str] = {"NVIDIA": "--cuda", "AMD": "--hip", "Apple": "--metal"}
_USES: Mapping[Program, str] = {
    "llama-quantize": "quantizing with an importance matrix",
    "llama-perplexity": "a second opinion on perplexity",
    "llama-bench": "a second opinion on rates",
    "ggml-rpc-server": "drafts on other machines",
}
"""Of llama.cpp's programs beside the server."""


def examine_embedded(host: Host) -> EngineStatus:
    """The wheel that comes with specmeter: does it work, and does it use all that this processor has?"""
    try:
        engine = EmbeddedEngine()
        return status_of_wheel(engine.identify(), engine.devices, host)
    except SpecmeterError as error:
        return EngineStatus(
            "missing",
            error.message,
            "reinstall specmeter's dependencies; on a CPU without AVX2 (x86) or ARMv8, build llama-server "
            f"(`{BUILD_COMMAND} --tuned`) and use engine.kind: native",
        )


def status_of_wheel(identity: EngineIdentity, devices: tuple[Device, ...], host: Host) -> EngineStatus:
    """The same of a wheel that works."""
    unused = [flag for flag in host.cpu_flags if flag not in parse_features(identity.system_info)]
    if not unused or any(is_gpu(device.name) for device in devices):
        return EngineStatus("ok", identity.version, devices=devices, drives=drives(devices))
    cost = (
        "about 8% slower than a native build (measured on an AVX-512 machine)"
        if "AVX512" in unused
        else "a native build may be faster"
    )
    return EngineStatus(
        "limited",
        f"{identity.version}, built without {' '.join(unused)} of this CPU: {cost}",
        f"none needed for comparisons; for full speed, run `{BUILD_COMMAND} --tuned` and use engine.kind: native",
        devices,
        drives(devices),
    )


def examine_native(_: Host) -> EngineStatus:
    """A `llama-server` binary, built by specmeter or the user's, and the programs that go with it."""
    try:
        engine = NativeEngine()
        identity = engine.identify()
        devices = engine.devices
    except SpecmeterError as error:
        return EngineStatus(
            "missing",
            error.message,
            f"run `{BUILD_COMMAND}`, put llama-server on PATH, or set {BINARY_VARIABLE} "
            f"(only needed for GPUs without a wheel, {', '.join(_USES.values())})",
        )
    programs: dict[Program, Path | None] = {name: find_program(name, beside=Path(identity.binary)) for name in _USES}
    there = ", ".join(name for name, path in programs.items() if path is not None)
    told = f"llama-server {identity.version} ({identity.binary})" + (f", with {there}" if there else "")
    lacking = [f"{name} ({_USES[name]})" for name, path in programs.items() if path is None]
    fix = f"run `{BUILD_COMMAND}` for {', '.join(lacking)}" if lacking else ""
    return EngineStatus("ok", told, fix, devices, drives(devices))


def drives(devices: Iterable[Device]) -> frozenset[str]:
    """Vendors of the GPUs among these."""
    return frozenset(
        vendor
        for device in devices
        for backend, vendors in _BACKEND_VENDORS.items()
        if is_gpu(device.name) and device.name.startswith(backend)
        for vendor in vendors
    )


def gpu_fix(gpu: Gpu) -> str:
    """How llama.cpp would use a GPU that no engine here can use."""
    if gpu.vendor == "NVIDIA" and gpu.driver is None:
        return "install NVIDIA's driver"
    if gpu.vendor == "Apple":
        return "use a Python for arm64, not one under Rosetta (only the arm64 wheel has Metal)"
    wheel = {"NVIDIA": "CUDA", "AMD": "ROCm (Linux) or Vulkan"}.get(gpu.vendor, "Vulkan")
    return (
        f"install the {wheel} wheel of the installed version of xllamacpp (see Installation in its README), or build "
        f"llama-server for this GPU (`{BUILD_COMMAND} {_BUILD_FLAGS.get(gpu.vendor, '--vulkan')}`)"
    )


def parse_features(system_info: str) -> frozenset[str]:
    """Names that are on in llama.cpp's system line: `CPU : AVX = 1 | AVX2 = 1 | LLAMAFILE = 1 |`."""
    return frozenset(re.findall(r"(\w+) = 1\b", system_info))


Backend = Literal["cuda", "metal", "vulkan", "hip", "sycl"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)

PACKAGE = "llama-cpp-python==0.3.36"
"""The source package whose llama.cpp is nearest to that of the installed wheel."""
NAME = "llama_cpp_python-0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
_INSIDE = f"{NAME}/vendor/llama.cpp"
_SIGNS = ("CMakeLists.txt", "ggml/CMakeLists.txt", "include/llama.h")

_WITHOUT = ("OPENSSL", "CURL", "BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_UI")
OPTIONS = ("-DCMAKE_BUILD_TYPE=Release", "-DGGML_RPC=ON", *(f"-DLLAMA_{name}=OFF" for name in _WITHOUT))
LIKE_THE_WHEEL = ("-DGGML_NATIVE=OFF", *(f"-DGGML_{name}=ON" for name in ("AVX2", "FMA", "F16C", "BMI2")))
NVCC = "/usr/local/cuda/bin/nvcc"
"""Where CUDA's compiler lies on Linux, often not on PATH."""
_INSTALL_VULKAN = "install LunarG's Vulkan SDK (Debian: sudo apt install libvulkan-dev glslc spirv-headers)"
_NEEDS: dict[str, tuple[str, tuple[str, ...], str, str]] = {
    "cmake": ("cmake", ("cmake",), "", "sudo apt install cmake (dnf, brew, pip: the same; winget: Kitware.CMake)"),
    "c++": ("C++ compiler", ("c++", "g++", "clang++"), "CXX", "sudo apt install g++ make (dnf: gcc-c++ make)"),
    "make": ("make", ("make", "ninja"), "", "sudo apt install make (dnf: the same)"),
    "cuda": ("CUDA compiler (nvcc)", ("nvcc", NVCC), "CUDACXX", "install NVIDIA's CUDA Toolkit (a Mac has none)"),
    "metal": ("Metal outside of macOS", ("xcrun",), "", "leave --metal out"),
    "vulkan": ("Vulkan SDK (glslc)", ("glslc",), "VULKAN_SDK", _INSTALL_VULKAN),
    "hip": ("ROCm (hipconfig)", ("hipconfig",), "HIP_PATH", "install AMD's ROCm, with its bin folder on PATH"),
    "sycl": ("Intel oneAPI (icpx)", ("icpx", "icx"), "", "install Intel's oneAPI and run its setvars script here"),
}
"""What a build needs: its name, any of these programs or this variable, and how it is installed."""
_BYTES_PER_JOB = 2 * 2**30
"""A compiler may take that much memory; more of them at once than fit would swap."""
_POLL_S = 0.5
_MAX_LOG = 4 * 2**20
_STEP = re.compile(r"^\[\s*(\d{1,3})%\]|^\[(\d{1,6})/(\d{1,6})\]", re.MULTILINE)
_WRONG = re.compile(r"error|fatal|undefined reference|not found|could not", re.IGNORECASE)

Heard = Callable[[str, int, int], None]
"""Called with (what is being done, done, of): `of` is 0 where nothing can be said of its length."""
Run = Callable[[str, Sequence[str]], None]
"""Does what its first argument says by a command; raises `EngineError` with what it printed when it fails."""


@dataclass(frozen=True)
class BuildSpec:
    """What is to be built."""

    backends: tuple[Backend, ...] = ()
    tuned: bool = False
    """Use everything that this machine's processor says it can do."""
    cmake: tuple[str, ...] = ()
    """Further options of cmake."""
    source: Path | None = None
    """The folder of the user's own sources; None: those of the pinned package."""
    jobs: int | None = None
    """Compilers at once; None: as many as cores and memory allow."""

    @property
    def options(self) -> tuple[str, ...]:
        """All options of cmake, in the order in which a later one counts."""
        is_x86 = platform.machine().lower() in ("x86_64", "amd64")
        processor = ("-DGGML_NATIVE=ON",) if self.tuned else LIKE_THE_WHEEL if is_x86 else ()
        # Without it llama.cpp compiles for seven generations of GPUs: seven times as long.
        here = "cuda" in self.backends and any(gpu.vendor == "NVIDIA" for gpu in read_gpus())
        generation = ("-DCMAKE_CUDA_ARCHITECTURES=native",) if here else ()
        return (
            *OPTIONS,
            *processor,
            *generation,
            *(f"-DGGML_{name.upper()}=ON" for name in self.backends),
            *self.cmake,
        )

    @property
    def folder(self) -> Path:
        """Builds of other sources or with other options do not overwrite each other."""
        words = [NAME]
        if self.source is not None:
            name = re.sub(r"[^A-Za-z0-9._-]", "-", self.source.name)[:60].strip(".-") or "source"
            words = [name, hashlib.sha256(os.fsencode(self.source.absolute())).hexdigest()[:8]]
        words += [*self.backends, *(["tuned"] if self.tuned else [])]
        if self.cmake:
            words.append(hashlib.sha256(" ".join(self.cmake).encode()).hexdigest()[:8])
        return tools.builds_folder() / "-".join(words)


def build(spec: BuildSpec, trial: Callable[[], str], heard: Heard) -> tools.Build:
    """Build what is asked for, or what an interrupted build left to do; `trial` gives the path of a small model.

    Raises `UsageError` where something must be installed first or the spec cannot be carried out, `EngineError` when
    the sources cannot be downloaded, the build fails or its programs do not run here.
    """
    for option in spec.cmake:
        if not re.fullmatch(r"-[DGATU]\s?[^\x00-\x1f]{1,1000}", option):
            fix = "write --cmake=-DNAME=VALUE"
            raise UsageError(f"--cmake {option[:80]!r}: not an option of cmake", fix=fix)
    # cmake would tell it after a download and in many lines, but on Windows it knows best where compilers lie.
    needs = ("cmake", *(() if os.name == "nt" else ("c++", "make")), *spec.backends)
    lacking = [
        (what, fix)
        for what, programs, variable, fix in map(_NEEDS.__getitem__, needs)
        if not any(map(shutil.which, programs)) and not os.environ.get(variable)
    ]
    if lacking:
        raise UsageError(
            f"llama.cpp cannot be built here: missing {', '.join(what for what, _ in lacking)}",
            fix="; ".join(fix for _, fix in lacking) + ", then run this command again",
        )
    if spec.source is not None and not all((spec.source / sign).is_file() for sign in _SIGNS):
        raise UsageError(
            f"--source {spec.source}: does not contain llama.cpp's sources ({', '.join(_SIGNS)})",
            fix="pass a clone of llama.cpp",
        )
    folder = spec.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked_at_once(folder / "lock"):
            return _build(spec, folder, trial, heard)
    except BlockingIOError:
        raise UsageError(f"{folder}: another process is building here", fix="wait until it ends") from None
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be written ({error.strerror or error})",
            fix="free some space, or set SPECMETER_CACHE to a writable folder",
        ) from None


def _build(spec: BuildSpec, folder: Path, trial: Callable[[], str], heard: Heard) -> tools.Build:
    log, tree, env = folder / "log.txt", folder / "build", clean_environment(trace=False)
    if "cuda" in spec.backends and not shutil.which("nvcc"):
        env.setdefault("CUDACXX", NVCC)

    def run(what: str, command: Sequence[str]) -> None:
        heard(what, 0, 0)
        process = EngineProcess(command, env=env, log_path=log)
        try:
            while (code := process.wait(_POLL_S)) is None:
                heard(what, *steps_of(_text(log)))
        finally:
            process.close()
        if code != 0:
            lines = [line.strip()[:300] for line in _text(log).splitlines() if line.strip()]
            why = [line for line in lines if _WRONG.search(line)] or lines
            raise EngineError(
                "\n  | ".join([f"{Path(command[0]).name} failed while {what} (exit code {code})", *why[-8:]]),
                fix=f"see its output in {log}; run the same command to continue from there",
            )

    source = spec.source.absolute() if spec.source else packaged_source(folder, run)
    tools.begin_build(folder)
    generator = ["-G", "Ninja"] if os.name != "nt" and not shutil.which("make") else []
    run("configuring", ["cmake", "-S", str(source), "-B", str(tree), *generator, *spec.options])
    jobs = spec.jobs or max(1, min(int(usable_cores()), memory_available_bytes() // _BYTES_PER_JOB))
    rpc = source / "tools" / "rpc" / "CMakeLists.txt"
    rpc_text = rpc.read_text(encoding="utf-8", errors="replace") if rpc.is_file() else ""
    others = {name: old for name, old in tools.OTHER_NAMES.items() if f"set(TARGET {old})" in rpc_text}
    targets = [others.get(name, name) for name in tools.PROGRAMS]
    run("compiling", ["cmake", "--build", str(tree), "--config", "Release", "-j", str(jobs), "--target", *targets])
    place = next((file.parent for file in sorted((tree / "bin").rglob("*")) if file.stem == "llama-server"), None)
    if place is None:
        raise EngineError(f"{tree}: no llama-server was built", fix=f"read {log}")
    try:  # a real model: processors claim what virtual machines trap
        run("trying what was built", [str(place / "llama-bench"), "-m", trial(), "-p", "8", "-n", "4", "-r", "1"])
        version = NativeEngine(place / "llama-server").identify().version
    except EngineError as error:
        fix = "build without --tuned" if spec.tuned else f"see {log}, and run it by hand"
        raise EngineError(f"the built program does not run here: {error.message}", fix=fix) from None
    record = tools.BuildRecord(
        source=PACKAGE.replace("==", " ") if spec.source is None else str(spec.source.absolute()),
        version=version,
        options=spec.options,
        built_at=time.time(),
        folder=place.relative_to(folder).as_posix(),
    )
    return tools.finish_build(folder, record)


def packaged_source(folder: Path, run: Run) -> Path:
    """llama.cpp's sources of the pinned package, downloaded and unpacked below `folder` unless they are there."""
    source = folder / "source"
    if source.is_dir():
        return source / _INSIDE
    with tempfile.TemporaryDirectory(prefix="download-", dir=folder) as name:
        wanted = Path(name) / "requirements.txt"
        wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n", encoding="ascii")
        only = ["--no-deps", "--no-binary", PACKAGE.partition("==")[0], "--require-hashes", "--retries", "2"]
        try:
            run("downloading sources", [*_pip(), "download", *only, "--dest", name, "-r", str(wanted)])
        except EngineError as error:
            raise EngineError(
                f"the source package {PACKAGE} could not be downloaded: {error.message}",
                fix="connect to a package index (pip's settings apply), or give the sources with --source FOLDER",
            ) from None
        archive = Path(name) / f"{NAME}.tar.gz"
        found = hashlib.sha256(archive.read_bytes()).hexdigest() if archive.is_file() else "missing"
        if found != SHA256:  # pip looked already; here it is once more what is unpacked
            raise EngineError(f"{archive.name}: its SHA-256 is {found}, not {SHA256}", fix="run this command again")
        with tarfile.open(archive) as content:
            content.extractall(Path(name) / "unpacked", filter="data")
        (Path(name) / "unpacked").rename(source)
    return source / _INSIDE


def _pip() -> list[str]:
    """pip of this environment, or else through uv, whose environments have none."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if uvx := shutil.which("uvx"):
        return [uvx, "pip"]
    raise UsageError(
        "neither pip nor uv is installed to download the sources",
        fix="run `python -m ensurepip`, then this command again; or give the sources with --source FOLDER",
    )


def steps_of(text: str) -> tuple[int, int]:
    """(done, of) by the last line of make (`[ 42%]`) or ninja (`[12/345]`) that counts; (0, 0) where none does."""
    percent, done, of = (_STEP.findall(text) or [("", "0", "0")])[-1]
    return (int(percent), 100) if percent else (int(done), int(of))


def _text(log: Path) -> str:
    return log.read_bytes()[-_MAX_LOG:].decode("utf-8", "replace")

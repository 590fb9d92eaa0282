"""What must be installed before llama.cpp can be built, looked for beforehand: each with the command that installs it.

A missing compiler would otherwise be told by cmake after a download, and in many lines.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from specmeter.errors import UsageError

Backend = Literal["cuda", "metal", "vulkan", "hip", "sycl"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
System = Literal["linux", "darwin", "win32"]

NVCC = Path("/usr/local/cuda/bin/nvcc")
"""Where CUDA's compiler lies on Linux, often not on PATH."""

_COMPILERS = ("c++", "g++", "clang++")
_MSVC = "Microsoft.VisualStudio.Component.VC.Tools.x86.x64"
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Lacking:
    """Something that is not installed."""

    what: str
    fix: str


def require(backends: Sequence[Backend]) -> None:
    """Raise `UsageError` that names everything that is missing, with how to install it on this system."""
    system: System = "win32" if os.name == "nt" else "darwin" if sys.platform == "darwin" else "linux"
    lacking = list(look(system, backends))
    if lacking:
        raise UsageError(
            "llama.cpp cannot be built here: there is no " + ", no ".join(item.what for item in lacking),
            fix="; ".join(dict.fromkeys(item.fix for item in lacking)) + ", then run this command again",
        )


def look(
    system: System,
    backends: Sequence[Backend],
    *,
    which: Callable[[str], str | None] = shutil.which,
    answers: Callable[[Sequence[str]], bool] | None = None,
) -> Iterator[Lacking]:
    """What is missing for a build with these backends. `answers` says whether a command ends well and prints."""
    answers = answers or _answers
    if which("cmake") is None:
        yield Lacking(
            "cmake",
            {
                "linux": "sudo apt install cmake (dnf, pacman: the same name), or pip install cmake",
                "darwin": "brew install cmake, or pip install cmake",
                "win32": "winget install Kitware.CMake, or pip install cmake",
            }[system],
        )
    if not _has_compiler(system, which, answers):
        yield Lacking(
            "C++ compiler",
            {
                "linux": "sudo apt install g++ make (Fedora: sudo dnf install gcc-c++ make)",
                "darwin": "xcode-select --install",
                "win32": "install Visual Studio's Build Tools with the workload `Desktop development with C++` "
                "(winget install Microsoft.VisualStudio.2022.BuildTools)",
            }[system],
        )
    if system != "win32" and not any(map(which, ("make", "ninja"))):
        yield Lacking("make", "xcode-select --install" if system == "darwin" else "sudo apt install make")
    for backend in backends:
        yield from _LOOKS[backend](system, which)


def _has_compiler(system: System, which: Callable[[str], str | None], answers: Callable[[Sequence[str]], bool]) -> bool:
    if os.environ.get("CXX"):
        return True
    if system == "darwin":  # /usr/bin/c++ is always there, and asks for the tools in a window when they are not
        return answers(["xcode-select", "-p"])
    if any(map(which, _COMPILERS)):
        return True
    if system == "win32":
        programs = os.environ.get("PROGRAMFILES(X86)", r"C:\Program Files (x86)")
        finder = str(Path(programs) / "Microsoft Visual Studio" / "Installer" / "vswhere.exe")
        asked = [finder, "-latest", "-products", "*", "-requires", _MSVC, "-property", "installationPath"]
        return which("cl") is not None or answers(asked)
    return False


def _cuda(system: System, which: Callable[[str], str | None]) -> Iterator[Lacking]:
    known = os.environ.get("CUDACXX") or os.environ.get("CUDA_PATH") or which("nvcc")
    if system == "darwin":
        yield Lacking("CUDA on a Mac", "leave out --cuda: Metal is built in")
    elif not known and not NVCC.is_file():
        yield Lacking("CUDA compiler (nvcc)", "install NVIDIA's CUDA Toolkit, with its bin folder on PATH")


def _metal(system: System, which: Callable[[str], str | None]) -> Iterator[Lacking]:
    del which
    if system != "darwin":
        yield Lacking("Metal outside of macOS", "leave --metal out")


def _vulkan(system: System, which: Callable[[str], str | None]) -> Iterator[Lacking]:
    if which("glslc") is None and not os.environ.get("VULKAN_SDK"):
        yield Lacking(
            "Vulkan SDK (glslc)",
            "sudo apt install libvulkan-dev glslc spirv-headers"
            if system == "linux"
            else "install the Vulkan SDK of LunarG (it sets VULKAN_SDK)",
        )


def _hip(system: System, which: Callable[[str], str | None]) -> Iterator[Lacking]:
    if system == "darwin":
        yield Lacking("ROCm on a Mac", "leave --hip out")
    elif which("hipconfig") is None and not os.environ.get("HIP_PATH"):
        yield Lacking("ROCm (hipconfig)", "install AMD's ROCm with its bin folder on PATH")


def _sycl(system: System, which: Callable[[str], str | None]) -> Iterator[Lacking]:
    del system
    if which("icpx") is None and which("icx") is None:
        yield Lacking("Intel oneAPI compiler (icpx)", "install Intel's oneAPI and run its setvars script in this shell")


_LOOKS: dict[Backend, Callable[[System, Callable[[str], str | None]], Iterator[Lacking]]] = {
    "cuda": _cuda,
    "metal": _metal,
    "vulkan": _vulkan,
    "hip": _hip,
    "sycl": _sycl,
}


def _answers(command: Sequence[str]) -> bool:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0 and bool(done.stdout.strip())

"""What must be installed is looked for beforehand, and its absence told with the fix for this system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from specmeter.errors import UsageError
from specmeter.native_build import prerequisites
from specmeter.native_build.prerequisites import BACKENDS, Backend, System, look

VARIABLES = ("CXX", "CUDACXX", "CUDA_PATH", "VULKAN_SDK", "HIP_PATH")
ALL = {"cmake", "c++", "make", "nvcc", "glslc", "hipconfig", "icpx"}


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(prerequisites, "NVCC", Path("/nowhere/nvcc"))


def having(names: set[str]) -> Callable[[str], str | None]:
    return lambda name: f"/usr/bin/{name}" if name in names else None


def lacking(system: System, names: set[str], *backends: Backend, tools: bool = True) -> dict[str, str]:
    def answers(command: Sequence[str]) -> bool:
        assert command[0] in ("xcode-select",) or command[0].endswith("vswhere.exe")
        return tools

    return {item.what: item.fix for item in look(system, backends, which=having(names), answers=answers)}


def test_nothing_is_missing_where_all_is_there() -> None:
    assert lacking("linux", ALL, "cuda", "vulkan", "hip", "sycl") == {}
    assert lacking("darwin", {"cmake", "make"}, "metal") == {}
    assert lacking("win32", {"cmake"}) == {}


@pytest.mark.parametrize(
    ("system", "cmake", "compiler"),
    [
        ("linux", "apt install cmake", "apt install g++"),
        ("darwin", "brew install cmake", "xcode-select --install"),
        ("win32", "winget install Kitware.CMake", "Build Tools"),
    ],
)
def test_each_system_is_told_its_own_fix(system: System, cmake: str, compiler: str) -> None:
    found = lacking(system, set(), tools=False)
    assert cmake in found["cmake"]
    assert compiler in found["C++ compiler"]


def test_a_mac_asks_for_its_tools_because_the_compiler_is_always_there() -> None:
    assert "C++ compiler" in lacking("darwin", {"cmake", "make", "c++"}, tools=False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_gpu_needs(backend: Backend) -> None:
    assert lacking("linux", {"cmake", "c++", "make"}, backend)


def test_everything_that_is_missing_stands_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        prerequisites,
        "look",
        lambda *_: map(prerequisites.Lacking, ("cmake", "make"), ("a", "b")),
    )
    with pytest.raises(UsageError, match="there is no cmake, no make") as error:
        prerequisites.require(())
    assert error.value.fix == "a; b, then run this command again"

"""Several builds in one run: wheels in folders of their own, each told apart by its bytes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from llama_fixtures import arm, launch

from programs import write_program
from specmeter.engines.llama_cpp import child
from specmeter.engines.llama_cpp.builds import SeveralBuilds, is_build
from specmeter.engines.llama_cpp.engine import EmbeddedEngine
from specmeter.errors import EngineStartError, ExperimentError
from specmeter.gate.builds import same_build

WHEEL = """
__version__ = {version!r}
BUILD_INFO = {{"build_number": 1, "commit": "c", "compiler": "cc", "build_target": "here"}}
get_device_info = list
get_system_info = lambda: "CPU : AVX = 1 |"
"""


def wheel(folder: Path, version: str, text: str = WHEEL) -> str:
    package = folder / "xllamacpp"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(text.format(version=version), encoding="utf-8")
    (package / "xllamacpp.abi3.so").write_text(version, encoding="utf-8")
    return str(folder)


def test_each_folder_is_asked_for_its_own_wheel(tmp_path: Path) -> None:
    places = {name: wheel(tmp_path / name, version) for name, version in (("base", "1.0"), ("head", "2.0"))}
    identity = SeveralBuilds(places).identify()
    assert identity.version == "base: xllamacpp 1.0; head: xllamacpp 2.0"
    assert identity.kind == "native"
    checksums = {identity.binary: identity.binary_sha256, **identity.libraries}
    assert len(checksums) >= 2
    assert not same_build(checksums)
    copies = {"base": places["base"], "head": wheel(tmp_path / "copy", "1.0")}
    copied = SeveralBuilds(copies).identify()
    assert same_build({copied.binary: copied.binary_sha256, **copied.libraries})


def test_a_wheel_that_cannot_be_loaded_is_named_with_its_folder(tmp_path: Path) -> None:
    folder = Path(wheel(tmp_path / "broken", "1.0", "raise ImportError('no such symbol')"))
    with pytest.raises(EngineStartError, match="no such symbol") as error:
        EmbeddedEngine(folder).identify()
    assert str(folder) in error.value.message
    assert f"--target {folder} " in error.value.fix


def test_an_arm_names_one_of_the_builds(tmp_path: Path) -> None:
    builds = SeveralBuilds({"base": wheel(tmp_path / "base", "1.0")})
    for options in ({}, {"build": "other"}):
        with pytest.raises(ExperimentError, match="none of the builds"):
            builds.start(launch(tmp_path, arm(engine={"options": options})))


def test_what_may_be_a_build(tmp_path: Path) -> None:
    wheel(tmp_path / "wheel", "1.0")
    (tmp_path / "empty").mkdir()
    assert is_build(tmp_path / "wheel")
    assert not is_build(tmp_path / "empty")
    assert not is_build(tmp_path / "nothing")
    if sys.platform != "win32":
        (tmp_path / "bin").mkdir()
        write_program(tmp_path / "bin" / "llama-server", "#!/bin/sh\necho 'version: 7 (abc)'\necho 'built with cc'\n")
        assert is_build(tmp_path / "bin")
        assert is_build(tmp_path / "bin" / "llama-server")
        assert SeveralBuilds({"old": str(tmp_path / "bin")}).identify().version == "old: 7 (abc)"


def test_older_wheels_take_a_single_address(monkeypatch: pytest.MonkeyPatch) -> None:
    params = SimpleNamespace(hostname="", port=0)
    made: list[object] = []

    def refuse(given: object) -> None:
        made.append(given)
        raise RuntimeError("no model")

    module = SimpleNamespace(CommonParams=lambda: params, Server=refuse)
    monkeypatch.setattr(child, "_wheel", lambda: module)
    assert child.serve({"hostnames": ["127.0.0.1"], "port": 8080}) == 1
    assert made == [params]
    assert (params.hostname, params.port) == ("127.0.0.1", 8080)

import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from programs import write_program
from specmeter.cli.doctor import command
from specmeter.engines.libllama.engine import examine as examine_libllama
from specmeter.engines.llama_cpp.build import drives, examine_embedded, examine_native, parse_features, status_of_wheel
from specmeter.engines.llama_cpp.engine import parse_devices
from specmeter.engines.llama_cpp.spec import is_gpu
from specmeter.engines.registry import Device, EngineStatus
from specmeter.errors import EngineError, EngineStartError
from specmeter.experiments.experiment import Experiment
from specmeter.laboratory import doctor
from specmeter.laboratory.doctor import (
    Diagnosis,
    diagnose_devices,
    diagnose_host,
    diagnose_models,
    refuse_idle_gpu,
)
from specmeter.record import EngineIdentity, Gpu, Host


class PurePosixHome(PurePosixPath):
    """A home folder that need not exist."""

    def resolve(self) -> "PurePosixHome":
        return self


SYSTEM = "CPU : SSE3 = 1 | AVX = 1 | AVX2 = 1 | AVX512 = 0 | FMA = 1 | LLAMAFILE = 1 | "
VERSION = "ggml_cuda_init: found 1 CUDA devices:\nversion: 7166 (eec1e33a9)\nbuilt with cc (Debian) for x86_64\n"
DEVICES = """\
ggml_cuda_init: found 1 CUDA devices:
  Device 0: NVIDIA GeForce RTX 5090, compute capability 12.0, VMM: yes
Available devices:
ggml_backend_cuda_get_available_uma_memory: final available_memory_kb: 56701456
  CUDA0: NVIDIA GeForce RTX 5090 (32106 MiB, 31372 MiB free)
  RPC0[10.0.0.2:50052]: 10.0.0.2:50052 (24000 MiB, 23000 MiB free)
"""


def host(**changes: Any) -> Host:
    facts: dict[str, Any] = {
        "hostname_sha256": "ab" * 32,
        "os": "Linux",
        "os_version": "Debian",
        "kernel": "6.1",
        "machine": "x86_64",
        "python": "3.11",
        "specmeter": "0.1",
        "cpu": "CPU",
        "physical_cores": 8,
        "logical_cores": 16,
        "usable_cores": 16,
        "cpu_flags": ("AVX", "AVX2"),
        "governor": "performance",
        "power_source": "mains",
        "memory_bytes": 32 * 2**30,
        "memory_available_bytes": 30 * 2**30,
        "swap_used_bytes": 0,
        "load_average": (0.1, 0.1, 0.1),
        "power_meter": {"sources": ("package-0",)},
    }
    return Host.model_validate(facts | changes)


WHEEL = EngineIdentity(
    kind="embedded",
    version="xllamacpp 1",
    build="1",
    binary="x",
    binary_sha256="ab" * 32,
    system_info="CPU : AVX = 1 | AVX2 = 1 | AVX512 = 0",
)
CPU = (Device("CPU", "x"),)


def states(diagnoses: list[Diagnosis]) -> dict[str, str]:
    return {diagnosis.name: diagnosis.state for diagnosis in diagnoses}


def test_what_engines_print() -> None:
    assert parse_features(SYSTEM) == {"SSE3", "AVX", "AVX2", "FMA", "LLAMAFILE"}
    assert [(device.name, is_gpu(device.name)) for device in parse_devices(DEVICES)] == [
        ("CUDA0", True),
        ("RPC0[10.0.0.2:50052]", False),
    ]
    assert parse_devices("nothing") == ()


def test_the_wheel_is_limited_where_the_processor_can_do_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert status_of_wheel(WHEEL, CPU, host()).state == "ok"
    slow = status_of_wheel(WHEEL, CPU, host(cpu_flags=("AVX", "AVX2", "AVX512", "AVX512_VNNI")))
    assert slow.state == "limited"
    assert "AVX512 AVX512_VNNI" in slow.detail
    assert "8%" in slow.detail
    assert "specmeter engines build --tuned" in slow.fix

    def die(_: object) -> EngineIdentity:
        raise EngineStartError("ended by signal 4", fix="none")

    monkeypatch.setattr("specmeter.engines.llama_cpp.engine.EmbeddedEngine.identify", die)
    broken = examine_embedded(host())
    assert (broken.state, broken.detail) == ("missing", "ended by signal 4")


def test_gpus_that_no_engine_uses() -> None:
    nvidia = Gpu(index=0, name="H200", vendor="NVIDIA", driver="570")
    amd = Gpu(index=1, name="MI300", vendor="AMD", driver="amdgpu")
    wheel = EngineStatus("ok", "xllamacpp 1", devices=CPU, drives=drives(CPU))
    cpu_only = diagnose_devices({"embedded": wheel}, [nvidia, amd])
    assert states(cpu_only) == {"CPU": "ok", "GPU 0": "missing", "GPU 1": "missing"}
    assert "specmeter engines build --cuda" in cpu_only[1].fix
    assert "specmeter engines build --hip" in cpu_only[2].fix
    card = (Device("CUDA0", "H200"),)
    cuda = EngineStatus("ok", "b1", devices=card, drives=drives(card))
    both = diagnose_devices({"embedded": wheel, "native": cuda}, [nvidia, amd])
    assert states(both) == {"CPU": "ok", "CUDA0": "ok", "GPU 1": "missing"}
    (no_driver,) = diagnose_devices({}, [Gpu(index=0, name="card", vendor="NVIDIA")])
    assert "driver" in no_driver.fix


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, True),
        ({"engine": {"threads": 1}}, True),
        ({"engine": {"kind": "embedded"}}, False),
        ({"engine": {"gpu_layers": 0}}, False),
        ({"targets": {"a": "bench:dense"}}, False),
    ],
)
def test_the_processor_is_measured_beside_an_idle_gpu_only_when_asked_for(
    changes: dict[str, Any], refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia = Gpu(index=0, name="H200", vendor="NVIDIA", driver="570")
    monkeypatch.setattr(doctor, "read_gpus", lambda: (nvidia,))
    asked: dict[str, Any] = {"name": "a", "targets": {"a": "model.gguf"}, "workloads": [{"source": "bench"}]}
    experiment = Experiment.model_validate(asked | {"arms": [{"method": "ngram-simple"}]} | changes)
    refuse_idle_gpu(experiment, SimpleNamespace(devices=(Device("CUDA0", "H200"),)))
    if not refused:
        refuse_idle_gpu(experiment, SimpleNamespace(devices=CPU))
        return
    with pytest.raises(EngineError, match="H200: no installed engine can use this GPU") as error:
        refuse_idle_gpu(experiment, SimpleNamespace(devices=CPU))
    assert "-ngl 0" in error.value.fix


def test_a_quiet_machine_is_fine() -> None:
    assert set(states(diagnose_host(host())).values()) == {"ok"}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("power", {"power_source": "battery"}),
        ("power", {"power_source": "unknown", "container": "docker"}),
        ("clock policy", {"governor": "performance+powersave"}),
        ("clock policy", {"governor": "low power", "os": "macOS"}),
        ("clock policy", {"governor": None}),
        ("other load", {"busy_processes": ("python (0.98 cores)",)}),
        ("other load", {"load_average": (12.0, 3.0, 1.0)}),
        ("cores", {"usable_cores": 1.5}),
        ("cores", {"usable_cores": 1, "logical_cores": 1}),
        ("memory", {"memory_available_bytes": 2**30}),
        ("swap", {"swap_used_bytes": None}),
    ],
)
def test_bad_conditions(name: str, changes: dict[str, Any]) -> None:
    diagnoses = diagnose_host(host(**changes))
    assert [diagnosis.name for diagnosis in diagnoses if diagnosis.state != "ok"] == [name]
    assert all(diagnosis.fix for diagnosis in diagnoses if diagnosis.state != "ok")


def test_models_need_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "not" / "yet"))
    assert states(diagnose_models())["cache folder"] in ("ok", "limited")
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 2**30}))
    assert states(diagnose_models())["cache folder"] == "limited"


def test_a_named_server_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECMETER_LLAMA_SERVER", str(tmp_path / "absent"))
    missing = examine_native(host())
    assert missing.state == "missing"
    assert "absent" in missing.detail
    monkeypatch.setenv("SPECMETER_LLAMA_SERVER", sys.executable)
    assert "llama-server" in examine_native(host()).detail


@pytest.mark.skipif("sys.platform == 'win32'")
def test_a_server_that_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = tmp_path / "llama-server"
    write_program(server, f"#!/bin/sh\ncat <<'END'\n{VERSION}{DEVICES}END\n")
    monkeypatch.setenv("SPECMETER_LLAMA_SERVER", str(server))
    monkeypatch.setattr("specmeter.engines.llama_cpp.tools.builds", list)
    alone = examine_native(host())
    assert alone.state == "ok"
    assert alone.detail == f"llama-server 7166 (eec1e33a9) ({server})"
    assert [device.name for device in alone.devices if is_gpu(device.name)] == ["CUDA0"]
    assert alone.drives == {"NVIDIA"}
    for program in ("llama-quantize", "rpc-server"):  # as older builds call it
        write_program(tmp_path / program, "#!/bin/sh\n")
    found = examine_native(host())
    assert "specmeter engines build" in found.fix
    assert "llama-perplexity" in found.fix
    assert "quantize" not in found.fix


def test_the_installed_wheel_answers() -> None:
    found = examine_embedded(host())
    assert found.state != "missing", found.detail
    assert any(device.name == "CPU" for device in found.devices)


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[Diagnosis]:
    diagnoses = [
        Diagnosis("engines", "embedded", "limited", "works\x1b[2J", "do this"),
        Diagnosis("host", "power", "ok", "mains"),
    ]
    monkeypatch.setattr("specmeter.cli.doctor.read_host", host)
    monkeypatch.setattr("specmeter.cli.doctor.examine", lambda _: tuple(diagnoses))
    return diagnoses


def test_command_gives_json_and_fails_without_an_engine(examined: list[Diagnosis]) -> None:
    examined[0] = Diagnosis("engines", "embedded", "missing", "gone", "reinstall")
    result = CliRunner().invoke(command, ["--json"])
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["usable"] is False
    assert answer["diagnoses"][0]["state"] == "missing"
    assert answer["host"]["cpu"] == "CPU"
    assert CliRunner().invoke(command, []).exit_code == 1


def test_what_people_publish_has_no_home_no_user_and_no_host(tmp_path: Path) -> None:
    """The whole command, in a home of its own; the hash of the host's name is gone as well."""
    home = tmp_path / "marker-of-a-user"
    (home / "bin").mkdir(parents=True)
    disk = tmp_path / "media" / home.name / "cache"
    where = {name: str(home) for name in ("HOME", "USERPROFILE")}
    named = {"SPECMETER_LLAMA_SERVER": str(home / "bin" / "absent"), "SPECMETER_CACHE": str(disk)}
    result = subprocess.run(
        [sys.executable, "-m", "specmeter", "doctor", "--json"],
        env=os.environ | where | named,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    told = {it["name"]: it["detail"] for it in json.loads(result.stdout)["diagnoses"]}
    assert str(Path("~", "bin", "absent")) in told["native"]
    assert str(Path("media", "USER", "cache")) in told["cache folder"]
    assert home.name not in result.stdout
    assert hashlib.sha256(platform.node().encode()).hexdigest() not in result.stdout


@pytest.mark.parametrize(
    ("home", "told", "said"),
    [
        ("/home/al", "/home/al/x and /home/alice/x, /home/al", "~/x and /home/alice/x, ~"),
        ("/home/al", "/media/al/x, al, total", "/media/USER/x, al, total"),
        ("/", "/usr/bin/python", "/usr/bin/python"),
    ],
)
def test_only_the_home_itself_is_replaced(home: str, told: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: PurePosixHome(home))
    assert doctor.without_home(told) == said


def test_the_library_of_the_instrumented_engine_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert examine_libllama(host()).state == "ok"
    monkeypatch.setenv("SPECMETER_LIBLLAMA", str(tmp_path / "missing.so"))
    missing = examine_libllama(host())
    assert missing.state == "limited"
    assert "SPECMETER_LIBLLAMA" in missing.detail

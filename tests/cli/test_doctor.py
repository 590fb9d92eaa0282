import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from specmeter.cli.doctor import command
from specmeter.laboratory.doctor import (
    Diagnosis,
    can_measure,
    diagnose_devices,
    diagnose_embedded,
    diagnose_host,
    diagnose_libllama,
    diagnose_models,
    diagnose_native,
    native_programs,
)
from specmeter.laboratory.engine_status import (
    Device,
    EngineStatus,
    parse_devices,
    parse_features,
    probe_embedded,
    probe_libllama,
    probe_native,
)
from specmeter.record import Gpu, Host

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


WHEEL = EngineStatus("embedded", "xllamacpp 1", features=frozenset({"AVX", "AVX2"}), devices=(Device("CPU", "x"),))


def states(diagnoses: list[Diagnosis]) -> dict[str, str]:
    return {diagnosis.name: diagnosis.state for diagnosis in diagnoses}


def test_what_engines_print() -> None:
    assert parse_features(SYSTEM) == {"SSE3", "AVX", "AVX2", "FMA", "LLAMAFILE"}
    assert [(device.name, device.is_gpu) for device in parse_devices(DEVICES)] == [
        ("CUDA0", True),
        ("RPC0[10.0.0.2:50052]", False),
    ]
    assert parse_devices("nothing") == ()


def test_the_wheel_is_limited_where_the_processor_can_do_more() -> None:
    assert diagnose_embedded(WHEEL, host()).state == "ok"
    slow = diagnose_embedded(WHEEL, host(cpu_flags=("AVX", "AVX2", "AVX512", "AVX512_VNNI")))
    assert slow.state == "limited"
    assert "AVX512 AVX512_VNNI" in slow.detail
    assert "8 %" in slow.detail
    assert "specmeter engines build --tuned" in slow.fix
    broken = diagnose_embedded(EngineStatus("embedded", problem="ended by signal 4"), host())
    assert (broken.state, broken.detail) == ("missing", "ended by signal 4")


def test_gpus_that_no_engine_uses() -> None:
    nvidia = Gpu(index=0, name="H200", vendor="NVIDIA", driver="570")
    amd = Gpu(index=1, name="MI300", vendor="AMD", driver="amdgpu")
    cpu_only = diagnose_devices([WHEEL], [nvidia, amd])
    assert states(cpu_only) == {"CPU": "ok", "GPU 0": "missing", "GPU 1": "missing"}
    assert "specmeter engines build --cuda" in cpu_only[1].fix
    assert "specmeter engines build --hip" in cpu_only[2].fix
    cuda = EngineStatus("native", "b1", devices=(Device("CUDA0", "H200"),))
    assert states(diagnose_devices([WHEEL, cuda], [nvidia, amd])) == {"CPU": "ok", "CUDA0": "ok", "GPU 1": "missing"}
    (no_driver,) = diagnose_devices([], [Gpu(index=0, name="card", vendor="NVIDIA")])
    assert "driver" in no_driver.fix


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
    missing = probe_native()
    assert "absent" in missing.problem
    assert diagnose_native(missing, {}).state == "missing"
    monkeypatch.setenv("SPECMETER_LLAMA_SERVER", sys.executable)
    assert "llama-server" in probe_native().problem


@pytest.mark.skipif("sys.platform == 'win32'")
def test_a_server_that_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = tmp_path / "llama-server"
    server.write_text(f"#!/bin/sh\ncat <<'END'\n{VERSION}{DEVICES}END\n")
    server.chmod(0o755)
    monkeypatch.setenv("SPECMETER_LLAMA_SERVER", str(server))
    monkeypatch.setattr("specmeter.engines.llama_cpp.tools.builds", list)
    probe = probe_native()
    assert probe.version == "llama-server 7166 (eec1e33a9)"
    assert [device.name for device in probe.gpu_devices] == ["CUDA0"]
    alone = diagnose_native(probe, native_programs(probe))
    assert alone.state == "ok"
    assert "ggml-rpc-server (drafts on other machines)" in alone.fix
    for program in ("llama-quantize", "rpc-server"):  # as older builds call it
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    found = diagnose_native(probe, native_programs(probe))
    assert "with llama-quantize, ggml-rpc-server" in found.detail
    assert "specmeter engines build" in found.fix
    assert "llama-perplexity" in found.fix
    assert "quantize" not in found.fix


def test_the_installed_wheel_answers() -> None:
    probe = probe_embedded()
    assert probe.works, probe.problem
    assert any(device.name == "CPU" for device in probe.devices)


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[Diagnosis]:
    diagnoses = [
        Diagnosis("engines", "embedded", "limited", "works\x1b[2J", "do this"),
        Diagnosis("host", "power", "ok", "mains"),
    ]
    monkeypatch.setattr("specmeter.cli.doctor.read_host", host)
    monkeypatch.setattr("specmeter.cli.doctor.examine", lambda _: tuple(diagnoses))
    return diagnoses


def test_command_prints_states_and_fixes(examined: list[Diagnosis]) -> None:
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 0
    answer, first, *_ = result.stdout.splitlines()
    assert answer.startswith("this machine can measure (")
    assert first == "engines"
    assert "limited" in result.stdout
    assert "fix: do this" in result.stdout
    assert "\x1b" not in result.stdout
    assert can_measure(examined)


def test_command_gives_json_and_fails_without_an_engine(examined: list[Diagnosis]) -> None:
    examined[0] = Diagnosis("engines", "embedded", "missing", "gone", "reinstall")
    result = CliRunner().invoke(command, ["--json"])
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["usable"] is False
    assert answer["diagnoses"][0]["state"] == "missing"
    assert answer["host"]["cpu"] == "CPU"
    assert CliRunner().invoke(command, []).exit_code == 1


def test_the_library_of_the_instrumented_engine_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    works = probe_libllama()
    assert works.works
    assert "AVX2" in works.features or "NEON" in works.features
    assert diagnose_libllama(works).state == "ok"
    monkeypatch.setenv("SPECMETER_LIBLLAMA", str(tmp_path / "missing.so"))
    missing = diagnose_libllama(probe_libllama())
    assert missing.state == "limited"
    assert "SPECMETER_LIBLLAMA" in missing.detail

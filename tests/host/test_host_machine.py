from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from specmeter.host.ask import run_command
from specmeter.host.gpus import read_gpus
from specmeter.host.limits import find_cgroup, usable_cores
from specmeter.host.machine import (
    hypervisor_of,
    parse_cpuinfo,
    parse_lscpu_name,
    parse_pmset,
    parse_power_scheme,
    parse_power_supplies,
    read_container,
    read_cpu,
    read_governor,
    read_host,
    read_power_source,
)
from specmeter.host.programs import read_busy_processes

EPYC = """\
processor	: 0
vendor_id	: AuthenticAMD
model name	: AMD EPYC 9655 96-Core Processor
flags		: fpu sse2 fma f16c avx avx2 bmi2 avx512f avx512_vnni avx512vbmi avx_vnni hypervisor

processor	: 1
model name	: something else
flags		: fpu
"""
NEOVERSE = """\
processor	: 0
BogoMIPS	: 50.00
Features	: fp asimd evtstrm aes crc32 atomics fphp asimdhp asimddp sve i8mm bf16
CPU implementer	: 0x41
CPU part	: 0xd40
"""
LSCPU = """\
Architecture:             aarch64
Vendor ID:                ARM
Model name:               Neoverse-V1
"""


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_the_first_processor_names_the_x86_machine() -> None:
    name, flags = parse_cpuinfo(EPYC)
    assert name == "AMD EPYC 9655 96-Core Processor"
    assert flags == ("AVX", "AVX_VNNI", "AVX2", "F16C", "FMA", "BMI2", "AVX512", "AVX512_VBMI", "AVX512_VNNI")


def test_arm_kernels_give_features_and_lscpu_the_name() -> None:
    assert parse_cpuinfo(NEOVERSE) == (None, ("NEON", "DOTPROD", "FP16_VA", "MATMUL_INT8", "SVE"))
    assert parse_lscpu_name(LSCPU) == "Neoverse-V1"
    assert parse_lscpu_name("Model name: -\n") is None


@pytest.mark.parametrize("text", ["", "garbage", "::::", "flags\t:"])
def test_unknown_text_gives_nothing(text: str) -> None:
    assert parse_cpuinfo(text) == (None, ())


@pytest.mark.parametrize(("quota", "bound"), [("50000 100000", 0.5), ("max 100000", None), ("99999999 1", None)])
def test_quota_bounds_the_usable_cores(tmp_path: Path, quota: str, bound: float | None) -> None:
    mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0"
    put(tmp_path, {"proc/self/mounts": mounts, "sys/fs/cgroup/cpu.max": quota})
    unbound = usable_cores(tmp_path / "absent")
    assert unbound >= 1
    assert usable_cores(tmp_path) == (bound or unbound)


def test_cgroup_v2_takes_the_smallest_limit_on_the_way_up(tmp_path: Path) -> None:
    root = put(
        tmp_path,
        {
            "proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0",
            "proc/self/cgroup": "0::/user.slice/job",
            "sys/fs/cgroup/user.slice/cpu.max": "150000 100000",
            "sys/fs/cgroup/user.slice/job/cpu.max": "max 100000",
            "sys/fs/cgroup/user.slice/memory.max": "4294967296",
            "sys/fs/cgroup/user.slice/memory.current": "3221225472",
            "sys/fs/cgroup/user.slice/memory.stat": "anon 1\ninactive_file 1073741824",
            "sys/fs/cgroup/user.slice/job/memory.max": "max",
        },
    )
    cgroup = find_cgroup(root)
    assert cgroup.cores() == 1.5
    assert cgroup.memory_limit_bytes() == 4 * 2**30
    assert cgroup.memory_available_bytes() == 2 * 2**30


def test_cgroup_v1_in_a_container_that_only_knows_the_hosts_path(tmp_path: Path) -> None:
    root = put(
        tmp_path,
        {
            "proc/self/mounts": (
                "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n"
                "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0"
            ),
            "proc/self/cgroup": "4:memory:/docker/0a1b\n2:cpu,cpuacct:/docker/0a1b",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "536870912",
            "sys/fs/cgroup/memory/memory.stat": "inactive_file 5\ntotal_inactive_file 268435456",
        },
    )
    cgroup = find_cgroup(root)
    assert cgroup.cores() == 2
    assert cgroup.memory_available_bytes() == 3 * 2**28


def test_no_limits_anywhere(tmp_path: Path) -> None:
    root = put(
        tmp_path,
        {
            "proc/self/mounts": "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0",
            "proc/self/cgroup": "4:memory:/../outside",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )
    for cgroup in (find_cgroup(root), find_cgroup(tmp_path / "absent")):
        assert cgroup.cores() is None
        assert cgroup.memory_limit_bytes() is None
        assert cgroup.memory_available_bytes() is None


MAC = {
    "sysctl -n machdep.cpu.brand_string": "Apple M4\n",
    "pmset -g": " powermode 1\n",
    "system_profiler SPDisplaysDataType -json": '{"SPDisplaysDataType": [{"sppci_model": "Apple M4"}]}',
}


def test_what_a_command_prints() -> None:
    assert run_command([sys.executable, "-c", "print('x')"]) == "x\n"


@pytest.mark.parametrize(
    "argv", [["no-such-command"], [sys.executable, "-c", "raise SystemExit(1)"], ["bad\0name"]], ids=str
)
def test_no_answer_is_none(argv: Sequence[str]) -> None:
    assert run_command(argv) is None


def test_a_slow_command_is_ended() -> None:
    assert run_command([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.3) is None


@pytest.mark.parametrize("answers", [MAC, {}], ids=["a Mac", "a Mac that says nothing"])
def test_reads_a_mac(monkeypatch: pytest.MonkeyPatch, answers: dict[str, str]) -> None:
    def answer(argv: Sequence[str], **_: Any) -> SimpleNamespace:
        if " ".join(argv) not in answers:
            raise FileNotFoundError(argv[0])
        return SimpleNamespace(stdout=answers[" ".join(argv)])

    monkeypatch.setattr(subprocess, "run", answer)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(psutil, "sensors_battery", lambda: SimpleNamespace(power_plugged=False))
    name, flags = read_cpu()
    assert read_power_source(virtual=False) == "battery"
    assert usable_cores() >= 1
    if answers:
        assert (name, flags) == ("Apple M4", ())
        assert read_governor() == "low power"
        assert [gpu.vendor for gpu in read_gpus()] == ["Apple"]
    else:
        assert name
        assert read_governor() is None
        assert read_gpus() == ()


PMSET = """\
System-wide power settings:
Currently in use:
 standby              1
 lowpowermode         1
 hibernatemode        3
"""


def supplies(root: Path, **entries: dict[str, str]) -> Path:
    folder = root / "sys/class/power_supply"
    folder.mkdir(parents=True, exist_ok=True)
    for name, facts in entries.items():
        (folder / name).mkdir()
        for fact, text in facts.items():
            (folder / name / fact).write_text(text + "\n")
    return folder


MAINS = {"type": "Mains", "online": "1"}
UNPLUGGED = {"type": "Mains", "online": "0"}
DRAINING = {"type": "Battery", "status": "Discharging", "present": "1"}
MOUSE = {"type": "Battery", "status": "Discharging", "scope": "Device"}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"AC": MAINS, "BAT0": DRAINING}, "mains"),
        ({"AC": UNPLUGGED, "BAT0": DRAINING}, "battery"),
        ({"BAT0": {"type": "Battery", "status": "Full"}}, "mains"),
        ({"BAT0": {"type": "Battery", "status": "Full"}, "BAT1": DRAINING}, "battery"),
        ({"hidpp_battery_0": MOUSE}, None),
        ({"AC": MAINS, "hidpp_battery_0": MOUSE}, "mains"),
        ({}, None),
    ],
)
def test_power_supplies(tmp_path: Path, entries: dict[str, dict[str, str]], expected: str | None) -> None:
    assert parse_power_supplies(supplies(tmp_path, **entries)) == expected


@pytest.mark.skipif("sys.platform != 'linux'")
def test_without_any_battery_only_a_real_machine_is_surely_on_mains(tmp_path: Path) -> None:
    assert read_power_source(virtual=False, root=tmp_path) == "mains"
    assert read_power_source(virtual=True, root=tmp_path) == "unknown"


@pytest.mark.skipif("sys.platform != 'linux'")
def test_several_governors_are_all_told(tmp_path: Path) -> None:
    assert read_governor(tmp_path) is None
    for number, governor in enumerate(["powersave", "performance", "powersave"]):
        policy = tmp_path / f"sys/devices/system/cpu/cpufreq/policy{number}"
        policy.mkdir(parents=True)
        (policy / "scaling_governor").write_text(governor + "\n")
    assert read_governor(tmp_path) == "performance+powersave"


def test_macos_energy_modes() -> None:
    assert parse_pmset(PMSET) == "low power"
    assert parse_pmset(PMSET.replace("lowpowermode         1", "lowpowermode         0")) == "automatic"
    assert parse_pmset(" powermode            2\n") == "high power"
    assert parse_pmset("") is None


def test_windows_power_schemes_are_named_by_their_number() -> None:
    german = "GUID des Energieschemas: 381b4222-f694-41f0-9685-ff5bb260df2e  (Ausbalanciert)"
    assert parse_power_scheme(german) == "balanced"
    own = "Power Scheme GUID: 01234567-89ab-cdef-0123-456789abcdef  (My scheme)"
    assert parse_power_scheme(own) == "My scheme"
    assert parse_power_scheme("Access denied") is None


@pytest.mark.parametrize(
    ("firmware", "expected"),
    [
        ("QEMU Standard PC (Q35 + ICH9, 2009)", "qemu"),
        ("Microsoft Corporation Virtual Machine", "hyper-v"),
        ("VMware, Inc. VMware20,1", "vmware"),
        ("Dell Inc. XPS 15 9520", None),
        ("", None),
    ],
)
def test_firmware_gives_the_hypervisor_away(firmware: str, expected: str | None) -> None:
    assert hypervisor_of(firmware) == expected


@pytest.mark.skipif("sys.platform != 'linux'")
def test_containers_and_machines_are_told_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert read_container(tmp_path) is None
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/cpuinfo").write_text("flags : fpu hypervisor avx\n")
    assert read_container(tmp_path) == "virtual machine"
    (tmp_path / ".dockerenv").touch()
    assert read_container(tmp_path) == "docker on virtual machine"
    (tmp_path / "proc/sys/kernel/osrelease").write_text("5.15.153.1-microsoft-standard-WSL2\n")
    assert read_container(tmp_path) == "docker on wsl2"


SPIN = "while True: sum(range(10000))"


def test_a_busy_process_is_named() -> None:
    spinning = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        found = read_busy_processes(0.4)
    finally:
        spinning.kill()
        spinning.wait()
    assert any("python" in name for name in found)


def test_the_host_of_these_tests() -> None:
    host = read_host(load_sample_s=0.01)
    assert host.cpu
    assert host.cpu != "unknown"
    assert 0 < (host.usable_cores or 0) <= host.logical_cores
    assert 0 < host.memory_available_bytes <= host.memory_bytes
    assert len(host.hostname_sha256) == 64

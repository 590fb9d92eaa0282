from pathlib import Path

import pytest

from specmeter.host.cgroup import find_cgroup
from specmeter.host.cpu import parse_cpuinfo, parse_lscpu_name, parse_sysctl_cpu, usable_cores
from specmeter.host.telemetry import CpuSensors

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
M3_SYSCTL = """\
hw.ncpu: 12
hw.optional.arm.FEAT_DotProd: 1
hw.optional.arm.FEAT_I8MM: 1
hw.optional.arm.FEAT_FP16: 1
hw.optional.arm.FEAT_SME: 0
hw.optional.AdvSIMD: 1
hw.memsize: 38654705664
machdep.cpu.brand_string: Apple M3 Pro
"""
INTEL_MAC_SYSCTL = """\
hw.optional.avx2_0: 1
machdep.cpu.brand_string: Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz
machdep.cpu.features: FPU VME SSE4.2 FMA F16C AVX1.0 RDRAND
machdep.cpu.leaf7_features: RDWRFSGS BMI1 AVX2 BMI2
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


def test_macs_of_both_kinds() -> None:
    assert parse_sysctl_cpu(M3_SYSCTL) == ("Apple M3 Pro", ("NEON", "DOTPROD", "FP16_VA", "MATMUL_INT8"))
    name, flags = parse_sysctl_cpu(INTEL_MAC_SYSCTL)
    assert name == "Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz"
    assert flags == ("AVX", "AVX2", "F16C", "FMA", "BMI2")


@pytest.mark.parametrize("text", ["", "garbage", "::::", "flags\t:"])
def test_unknown_text_gives_nothing(text: str) -> None:
    assert parse_cpuinfo(text) == (None, ())
    assert parse_sysctl_cpu(text) == (None, ())


def test_quota_bounds_the_usable_cores() -> None:
    assert usable_cores(0.5) == 0.5
    assert usable_cores(None) == usable_cores(1e6) >= 1


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


def test_clock_and_temperature_come_from_the_right_files(tmp_path: Path) -> None:
    files = {f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_cur_freq": str(1_000_000 + n) for n in range(32)}
    files |= {
        "sys/class/hwmon/hwmon0/name": "nvme",
        "sys/class/hwmon/hwmon0/temp1_input": "30000",
        "sys/class/hwmon/hwmon1/name": "coretemp",
        "sys/class/hwmon/hwmon1/temp2_input": "61000",
        "sys/class/hwmon/hwmon1/temp2_label": "Core 0",
        "sys/class/hwmon/hwmon1/temp3_input": "64500",
        "sys/class/hwmon/hwmon1/temp3_label": "Package id 0",
    }
    sensors = CpuSensors(put(tmp_path, files))
    # Cores 0, 4, 8 ... 28: eight of 32.
    assert sensors.mhz() == 1000.028
    assert sensors.celsius() == 64.5


def test_missing_sensors_are_none(tmp_path: Path) -> None:
    sensors = CpuSensors(tmp_path)
    assert sensors.mhz() is None
    assert sensors.celsius() is None

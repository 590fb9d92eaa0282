from pathlib import Path

import pytest

from specmeter.host.power import parse_pmset, parse_power_scheme, parse_power_supplies, read_governor, read_power_source
from specmeter.host.virtual import hypervisor_of, read_container

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

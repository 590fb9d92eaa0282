import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from specmeter.host.command import run_command
from specmeter.host.cpu import read_cpu, usable_cores
from specmeter.host.gpu import read_gpus
from specmeter.host.power import read_governor, read_power_source
from specmeter.host.virtual import read_container

MAC = {
    "sysctl hw machdep.cpu": "machdep.cpu.brand_string: Apple M4\nhw.optional.AdvSIMD: 1\n",
    "sysctl -n kern.hv_vmm_present": "0\n",
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
    assert read_container() is None
    assert read_power_source(virtual=False) == "battery"
    assert usable_cores(None) >= 1
    if answers:
        assert (name, flags) == ("Apple M4", ("NEON",))
        assert read_governor() == "low power"
        assert [gpu.vendor for gpu in read_gpus()] == ["Apple"]
    else:
        assert name
        assert read_governor() is None
        assert read_gpus() == ()

"""Whether the machine is real: containers and virtual machines, where they can be told."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from specmeter.host.command import run_command
from specmeter.host.kernel_files import read_text

# Words of the firmware's vendor and product -> the hypervisor.
_FIRMWARE: Mapping[str, str] = {
    "kvm": "kvm",
    "qemu": "qemu",
    "vmware": "vmware",
    "virtualbox": "virtualbox",
    "parallels": "parallels",
    "xen": "xen",
    "amazon ec2": "amazon ec2",
    "google compute engine": "google compute engine",
    "virtual machine": "hyper-v",
    "bochs": "bochs",
}


def read_container(root: Path = Path("/")) -> str | None:
    """For example `docker on kvm`, `podman`, `wsl2`; None where the machine looks real."""
    if sys.platform == "darwin":
        return (
            "virtual machine" if (run_command(["sysctl", "-n", "kern.hv_vmm_present"]) or "").strip() == "1" else None
        )
    if sys.platform == "win32":
        return hypervisor_of(
            run_command(["powershell", "-NoProfile", "-NonInteractive", "-Command", _WINDOWS_MODEL], timeout_s=20) or ""
        )
    parts = [part for part in (_linux_container(root), _linux_machine(root)) if part]
    return " on ".join(parts) or None


_WINDOWS_MODEL = '(Get-CimInstance Win32_ComputerSystem | ForEach-Object { "$($_.Manufacturer) $($_.Model)" })'


def hypervisor_of(firmware: str) -> str | None:
    """The hypervisor that a vendor-and-product text gives away (`QEMU Standard PC`), or None."""
    lowered = firmware.lower()
    return next((name for word, name in _FIRMWARE.items() if word in lowered), None)


def _linux_container(root: Path) -> str | None:
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    return read_text(root / "run/systemd/container")


def _linux_machine(root: Path) -> str | None:
    if "microsoft" in (read_text(root / "proc/sys/kernel/osrelease") or "").lower():
        return "wsl2"
    firmware = " ".join(
        text for name in ("sys_vendor", "product_name") if (text := read_text(root / "sys/class/dmi/id" / name))
    )
    named = hypervisor_of(firmware)
    # The processor says that there is a hypervisor, though not which one.
    hidden = "hypervisor" in (read_text(root / "proc/cpuinfo") or "").split()
    return named or ("virtual machine" if hidden else None)

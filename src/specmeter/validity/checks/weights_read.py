"""How fast weights can be read: the peak of the memory that holds them, and so the least time of a drafted token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specmeter.record import Arm, DeviceUse, Host, Session
from specmeter.validity.checks.evidence import used_sessions
from specmeter.validity.checks.request_data import RequestData
from specmeter.validity.checks.run_data import RunData

CACHE_BYTES = 256 * 1024 * 1024
"""Weights that may stay in a processor's largest cache, and need not be read from memory."""


class Blind(NamedTuple):
    """Why nothing is known."""

    reason: str
    applies: bool = True


class Peak(NamedTuple):
    """What no traffic can exceed."""

    bytes_per_s: float
    device: str


class DraftTime(NamedTuple):
    """Least time that a draft takes for a token."""

    ms: float
    device: str


def draft_floor(data: RunData, arm: Arm, requests: Sequence[RequestData]) -> DraftTime | Blind:
    """Least time for one drafted token: the draft's weights over the peak bandwidth of the memory that holds them.

    Only for drafts made token by token, by a model of its own, on this machine.
    """
    if arm.methods != ("draft-simple",) or arm.draft is None:
        return Blind("no draft model drafts alone for it, one token after the other", applies=False)
    if data.simulated:
        return Blind("a simulated draft reads no memory", applies=False)
    header = data.header(arm.draft)
    if header is None:
        return Blind(f"the header of {arm.draft} is not on record, and its own rate was not measured")
    peak = peak_of_sessions(data, used_sessions(data, requests), draft=True)
    if isinstance(peak, Blind):
        return Blind(f"the draft's own rate was not measured, and {peak.reason}")
    if header.bytes_per_token <= CACHE_BYTES:
        return Blind("the draft's own rate was not measured, and it may lie in a processor's cache")
    return DraftTime(1000 * (header.bytes_per_token - CACHE_BYTES) / peak.bytes_per_s, peak.device)


def peak_of_sessions(data: RunData, sessions: Sequence[Session], *, draft: bool) -> Peak | Blind:
    """The fastest memory that can have held the weights in any of these sessions."""
    peaks: list[Peak] = []
    for session in sessions:
        uses = session.draft_devices if draft else session.devices
        layers = session.draft_layers_offloaded if draft else session.layers_offloaded
        peak = _peak(data.hosts, uses, layers)
        if isinstance(peak, Blind):
            return peak
        peaks.append(peak)
    return max(peaks, default=Blind("no session is on record"))


_MAKERS = {"CUDA": "nvidia", "ROCM": "amd", "HIP": "amd", "METAL": "apple", "MTL": "apple"}
"""Backend -> maker of its GPUs; others take any."""
CPU_BUFFERS = ("CPU", "BLAS", "ACCEL", "AMX")


def _peak(hosts: Sequence[Host], uses: Sequence[DeviceUse], layers: tuple[int, int] | None) -> Peak | Blind:
    """The peak bandwidth of what holds weights: of all GPUs together that the backend may have meant, or of the CPU."""
    from specmeter.theory import catalogue

    held = [use.device.upper() for use in uses if use.model_buffer_bytes]
    gpus = [name for name in held if not name.startswith(CPU_BUFFERS)]
    if not held:
        return Blind("the engine does not say where the weights lie")
    if any(name.startswith("RPC") for name in gpus):
        return Blind("some weights lie on another machine")
    if gpus and (layers is None or layers[0] < layers[1]):
        return Blind("some layers are computed by the CPU, others by a GPU")
    if gpus:
        makers = {next((maker for prefix, maker in _MAKERS.items() if name.startswith(prefix)), "") for name in gpus}
        names = [[gpu.name for gpu in host.gpus if "" in makers or gpu.vendor.casefold() in makers] for host in hosts]
    else:
        names = [[host.cpu] for host in hosts]
    found: list[Peak] = []
    for of_host in names:
        # Names may hold commas, which the catalogue takes for lists.
        peaks = [catalogue.peak(name) if "," not in name else None for name in of_host]
        known = [peak.high for peak in peaks if peak is not None]
        if not known or len(known) < len(peaks):
            return Blind(f"the peak bandwidth of {', '.join(of_host) or 'the GPU'} is not in the catalogue")
        found.append(Peak(sum(known), ", ".join(of_host)))
    return max(found, default=Blind("the machine is not on record"))

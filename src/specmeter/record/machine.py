"""The machine: what it is, what it did each second, the energy it took."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from specmeter.record.base import Record


class Telemetry(Record):
    """State of the machine at one moment, sampled about once a second while requests run."""

    at: float
    """When it was sampled."""
    cpu_percent: float
    """All cores together, 0-100."""
    other_cpu_percent: float
    """Share used by processes that are neither specmeter nor its engine, 0-100 of the whole machine."""
    memory_available_bytes: int
    """Memory that could be given to processes."""
    engine_rss_bytes: int | None = None
    """Memory resident in the engine's processes."""
    cpu_mhz: float | None = None
    """Mean clock of the cores."""
    cpu_celsius: float | None = None
    """Hottest sensor of the processor."""
    on_battery: bool | None = None
    """Whether the machine ran on its battery."""
    gpus: tuple[GpuSample, ...] = ()
    """State of each GPU."""


class GpuSample(Record):
    """State of one GPU at one moment."""

    index: int
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    sm_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None
    celsius: float | None = None
    throttle_reasons: tuple[str, ...] = ()


class PowerMeter(Record):
    """What of a machine's electric energy can be read, and its power at rest."""

    sources: tuple[str, ...] = ()
    """`package-0` (a processor), `dram-0` (memory beside it), `gpu-0`, `chip` (a Mac's CPU, GPU and neural engine)."""
    unread: tuple[str, ...] = ()
    """What cannot be read, and how to allow it."""
    idle_w: Annotated[float, Field(ge=0)] | None = None
    """Power of all sources together before anything was started; None where that is not known."""
    idle_cpu_percent: float | None = None
    """Share of the processor that was busy meanwhile: at rest it is next to nothing."""


class RequestEnergy(Record):
    """Electric energy that the machine took during one request, its prompt included."""

    invocation: int
    """Of the request, as the next three."""
    block: int
    """Of the request."""
    arm_id: str
    """Of the request."""
    prompt_id: str
    """Of the request."""
    joules: dict[str, Annotated[float, Field(ge=0)]]
    """By source, see `PowerMeter`."""
    seconds: Annotated[float, Field(gt=0)]
    """From just before it was sent to just after its last token had come."""
    unseen_s: Annotated[float, Field(ge=0)]
    """Of them without a reading, of the source that covers the least: sensors that are slow, or were not answered."""


class Gpu(Record):
    """One graphics processor."""

    index: int
    name: str
    vendor: str
    memory_bytes: int | None = None
    driver: str | None = None
    runtime: str | None = None
    """CUDA, Metal, Vulkan or ROCm version."""
    power_limit_w: float | None = None


class Host(Record):
    """The machine a run was made on."""

    hostname_sha256: str
    """The name itself stays private; its hash tells machines apart."""
    os: str
    os_version: str
    kernel: str
    machine: str
    """`x86_64`, `arm64`, ..."""
    python: str
    specmeter: str
    cpu: str
    physical_cores: int | None
    logical_cores: int
    usable_cores: float | None = None
    """Cores this process may use (affinity and container quota); None: all logical ones."""
    cpu_flags: tuple[str, ...] = ()
    """Instruction sets that matter, by llama.cpp's own names (`AVX2`, `AVX512_VNNI`, `NEON`)."""
    governor: str | None = None
    """Clock policy: the cpufreq governor, macOS's energy mode or Windows's power scheme."""
    power_source: Literal["mains", "battery", "unknown"] = "unknown"
    memory_bytes: int
    """Memory of the machine, or the container's limit where that is smaller."""
    memory_available_bytes: int
    swap_used_bytes: int | None = None
    gpus: tuple[Gpu, ...] = ()
    container: str | None = None
    """Virtualisation or container, if known."""
    load_average: tuple[float, float, float] | None = None
    busy_processes: tuple[str, ...] = ()
    """Names and CPU shares of other processes that were busy at the start."""
    power_meter: PowerMeter | None = None
    """What of its electric energy was read; None where nothing was asked."""

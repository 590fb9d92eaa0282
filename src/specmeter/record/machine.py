"""Records of what a run was measured with: machine, telemetry, energy, models, engine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from specmeter.record.base import Record
from specmeter.record.spec import EngineTraits


class Telemetry(Record):
    """State of the machine at one moment, sampled about once a second while requests run."""

    at: float
    """Time of the sample."""
    cpu_percent: float
    """Use of all cores together, 0-100."""
    other_cpu_percent: float
    """Use by other programs than specmeter and its engine, 0-100 of all cores."""
    memory_available_bytes: int
    """Available memory."""
    engine_rss_bytes: int | None = None
    """Resident memory of the engine's processes."""
    cpu_mhz: float | None = None
    """Mean clock of the cores."""
    cpu_celsius: float | None = None
    """Hottest sensor of the CPU."""
    on_battery: bool | None = None
    """Whether the machine ran on battery."""
    gpus: tuple[GpuSample, ...] = ()
    """State of each GPU."""
    programs: tuple[str, ...] = ()
    """Other programs with the highest use since the previous sample; only looked up if use was high."""
    invocation: Annotated[int | None, Field(exclude_if=lambda value: value is None)] = None
    """In a run of several devices: the invocation."""


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
    """Of the request."""
    block: int
    """Of the request."""
    arm_id: str
    """Of the request."""
    prompt_id: str
    """Of the request."""
    joules: dict[str, Annotated[float, Field(ge=0)]]
    """Joules by source (`PowerMeter`)."""
    seconds: Annotated[float, Field(gt=0)]
    """Time from sending the request to its last token."""
    unseen_s: Annotated[float, Field(ge=0)]
    """Part of that time without a reading, for the worst source."""
    prompt_j: Annotated[float | None, Field(ge=0, exclude_if=lambda value: value is None)] = None
    """Joules until the first token, all sources; None if the time of the first token is unknown."""


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
    device: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """What it is called in a run that several devices measured."""
    invocations: Annotated[tuple[int, ...], Field(exclude_if=lambda value: not value)] = ()
    """Those that it measured, in such a run."""


class TwinOf(Record):
    """What a model says that it was made of: a dense model whose feed-forward networks were copied."""

    form: str
    """`16x2`: 16 experts of which 2 are active; `dense2`: two copies side by side."""
    router: str
    """Empty for a dense control."""
    parent: str
    """Name of the dense model's file."""
    parent_sha256: str
    """Of that file; of the first one where it is split."""


class ModelHeader(Record):
    """What a model file says about its shape, as far as judging a measurement needs it."""

    architecture: str | None
    layers: int | None
    experts: int
    """Experts per layer to choose from; 0 for dense models."""
    experts_used: int
    """Experts chosen for a token."""
    recurrent: bool
    """Carries a recurrent state, so that rejected tokens cannot simply be forgotten."""
    parameters: int
    bytes_per_token: int
    """Weights read to decode one token on its own: of an MoE the chosen experts only."""
    kv_bytes_per_token: int | None
    """KV cache of one more token in 16-bit; None when the layout is not known."""
    active_parameters: int
    """Used for one token: without the experts that are not chosen and without draft heads."""
    quantization: str
    """Number format of the largest share of the weights, like `Q4_K`."""
    chat_template: bool = True
    """The file has a chat template. Without one, chats are continued as plain text."""
    twin: Annotated[TwinOf | None, Field(exclude_if=lambda value: value is None)] = None
    """None for all models but those of `models.twin`."""


class ModelIdentity(Record):
    """A model file as it was used."""

    name: str
    """Name in the experiment."""
    reference: str
    """As written in the experiment: a path, `bench:...` or `hf:...`."""
    path: str
    sha256: str
    size_bytes: int
    origin: Literal["path", "bench", "hf", "mock", "engine"]
    """Its source; `engine`: a name that only the engine understands."""
    timing_only: bool = False
    """Random weights: fine for timing, but not for acceptance."""
    header: ModelHeader | None = None
    """None for a model of the engine's own."""

    @property
    def simulated(self) -> bool:
        """The model does not exist: the engine simulates it."""
        return self.origin == "mock"


class Condition(Record):
    """One thing that target and draft should have in common."""

    name: str
    status: Literal["ok", "refused", "warning"]
    target: str
    """What the target has."""
    draft: str
    """What the draft has."""
    why: str
    """What the condition is about, or what follows from breaking it."""


class DraftPair(Record):
    """A target and a draft of the experiment, compared before anything was measured."""

    target: str
    """Name in the experiment."""
    draft: str
    """Name in the experiment."""
    conditions: tuple[Condition, ...]


class EngineIdentity(Record):
    """Which engine, to the byte."""

    kind: str
    """The value of `engine.kind`: `embedded`, `native`, `mock`, ..."""
    version: str
    """Package or build version as the engine reports it."""
    build: str
    """Build information line of the engine."""
    binary: str
    """Path of the executable or extension module."""
    binary_sha256: str
    """SHA-256 of that file."""
    libraries: dict[str, str] = {}
    """File name -> SHA-256 of every shared library of the engine."""
    system_info: str = ""
    """CPU features and backends, as printed by the engine."""
    traits: EngineTraits | None = None
    """What it states about itself; None where it measured something else than an experiment."""

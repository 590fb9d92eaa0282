"""What llama.cpp's server says in its log (steps, values in force, memory per device, failures) and by `/metrics`.

Pure functions over text. The log is untrusted like everything from outside: a line that does not look as expected is
passed over. The forms are those of builds from 2025 to late 2026; older builds print no timestamps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specmeter.engines.llama_cpp.log_formats import (
    BEGIN,
    BUILD,
    DECODE_TIME,
    END,
    METHOD,
    PARAMETER,
    PARAMETERS,
    STATISTICS,
    STEP,
    TASK,
    log_time_ms,
)
from specmeter.engines.log_lines import unwrapped
from specmeter.errors import EngineProtocolError
from specmeter.record import DeviceUse, Drafting, Step

_MIB = 1024 * 1024

# --- one request -----------------------------------------------------------------------------------------------------

_MAX_METHODS = 16


@dataclass(frozen=True)
class RequestLog:
    """The part of the log that belongs to one request."""

    steps: tuple[Step, ...]
    complete: bool
    """Its last line is there (the server writes its log from a thread of its own, a little later)."""
    totals: Mapping[str, Drafting] = field(default_factory=dict[str, Drafting])
    """Statistics of each drafting method since the server started, as printed at the end of the request."""


def parse_request(text: str) -> RequestLog:
    """Steps of the last request that begins in `text`; times count from the line that begins it.

    A checkpoint restore is a step of its own: the draft as it was made, and of it what the replay confirmed. The replay
    emits those tokens in one more target forward, a step with no draft. So drafted and accepted add up to the server's
    counters, and every step is one target forward.
    """
    start_ms = 0.0
    rounds: list[tuple[int, int, bool, float]] = []
    totals: dict[str, Drafting] = {}
    complete = False
    for line in text.splitlines():
        if BEGIN.search(line):
            start_ms, complete = log_time_ms(line) or 0.0, False
            rounds.clear()
        elif found := STEP.search(line):
            at_ms = max(0.0, (log_time_ms(line) or start_ms) - start_ms)
            rounds.append((int(found.group(1)), int(found.group(2)), found.group(3) is not None, at_ms))
        elif (found := STATISTICS.search(line)) and len(totals) < _MAX_METHODS:
            method, _, calls, _, *times = found.groups()
            if None not in times:
                begin_ms, generate_ms, accept_ms = map(float, times)
                totals[method] = Drafting(
                    method=method, calls=int(calls), begin_ms=begin_ms, generate_ms=generate_ms, accept_ms=accept_ms
                )
        elif END.search(line):
            complete = True
    return RequestLog(tuple(_steps(rounds)), complete, totals)


def task_lines(text: str, predicted_n: int, predicted_ms: float) -> str:
    """Lines of the request that took so long for this many tokens, of several that the server worked on at once.

    Empty where none says so: the server prints that at a request's end, and older builds without its number.
    """
    lines = text.splitlines()
    for line in lines:
        if (task := TASK.search(line)) and _ended(line) == evaluated(predicted_n, predicted_ms):
            return "\n".join(it for it in lines if task.group() in it)
    return ""


def _ended(line: str) -> tuple[int, str] | None:
    """What a line that ends a request says, as `evaluated` has it."""
    found = DECODE_TIME.search(line)
    return None if found is None else (int(found.group(2)), found.group(1))


def evaluated(predicted_n: int, predicted_ms: float) -> tuple[int, str]:
    """What the log says of a request by which it is known: its tokens, and how long they took."""
    return predicted_n, f"{predicted_ms:.2f}"


def logs_at_once(text: str) -> dict[tuple[int, str], RequestLog]:
    """What the log says of each request that ended in `text`, by what `evaluated` makes of it; of two that nothing
    tells apart, neither."""
    lines: dict[str, list[str]] = {}
    ends: dict[tuple[int, str], list[str]] = {}
    for line in text.splitlines():
        if (found := TASK.search(line)) is None:
            continue
        lines.setdefault(found.group(1), []).append(line)
        if end := _ended(line):
            ends.setdefault(end, []).append(found.group(1))
    return {key: parse_request("\n".join(lines[tasks[0]])) for key, tasks in ends.items() if len(tasks) == 1}


def drafting_between(before: Mapping[str, Drafting], after: Mapping[str, Drafting]) -> tuple[Drafting, ...]:
    """What each method did between two requests' ends; statistics that went back to zero count from there."""
    return tuple(_since(before.get(method), total) for method, total in after.items())


def _since(before: Drafting | None, after: Drafting) -> Drafting:
    if before is None or after.calls < before.calls:
        return after
    return Drafting(
        method=after.method,
        calls=after.calls - before.calls,
        # Printed with three decimals: a difference may be off by one of the last, and below zero by as much.
        begin_ms=max(0.0, after.begin_ms - before.begin_ms),
        generate_ms=max(0.0, after.generate_ms - before.generate_ms),
        accept_ms=max(0.0, after.accept_ms - before.accept_ms),
    )


def _steps(rounds: Iterable[tuple[int, int, bool, float]]) -> Iterable[Step]:
    pending: list[tuple[int, float]] = []
    """(drafted, time) of restores whose replay has not come yet; only the first of a chain had a draft."""
    for accepted, drafted, restored, at_ms in rounds:
        if restored:
            pending.append((0 if pending else drafted, at_ms))
        elif pending:
            # The replayed tokens include the one that the target put in place of the rejected draft token.
            confirmed = max(0, accepted - 1)
            for index, (made, restored_ms) in enumerate(pending):
                yield Step(drafted=made, accepted=0 if index else confirmed, at_ms=restored_ms, restored=True)
            yield Step(drafted=0, accepted=0, at_ms=at_ms)
            pending.clear()
        else:
            yield Step(drafted=drafted, accepted=accepted, at_ms=at_ms)
    for made, restored_ms in pending:
        yield Step(drafted=made, accepted=0, at_ms=restored_ms, restored=True)


# --- loading ---------------------------------------------------------------------------------------------------------

_DRAFT_BEGINS = re.compile(r"loading draft model|creating MTP draft context")
_BUFFER = re.compile(r"(\S+) +(model|KV|RS|compute) buffer size *= *([\d.]+) MiB")
_LAYERS = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_SYSTEM = re.compile(r"system_info: (.*)$")
_CONTEXT = re.compile(r"llama_context: (n_ctx|n_ctx_seq|n_batch|n_ubatch|n_rs_seq|kv_unified) *= *(\S+)")
_VOCABULARY = re.compile(r"print_info: n_vocab *= *(\d{1,9})$")
_KV_TYPES = re.compile(r"llama_kv_cache(?:_unified)?: size .*K \((\w+)\).*V \((\w+)\)")
_FLASH = re.compile(r"Flash Attention (enabled|disabled)|flash_attn *= *(\S+)$|Flash Attention was auto, set to (\w+)")
_THREADS = re.compile(r"n_threads = (\d+) \(n_threads_batch = (\d+)\)")
_LOAD_MODE = re.compile(r"\(load_mode = (\w+)\)")
_WARNING = re.compile(
    r"failed to initialize speculative|speculative decoding not supported|no implementations specified"
    r"|not compatible|tokens will be translated|must match target|must closely match"
    r"|synthetic (?:speculative )?acceptance|failed to decode|for M-RoPE|llama_(?:process|decode)(?:\[\d+\])? returned"
    r"|exceeds? the training context|Failed to connect|is too small|exceeds the trained block|backend offload failed"
)
_LOADED = re.compile(r": model loaded\s*$|all slots are idle")
_MAX_WARNINGS = 50
_MAX_LINE = 400


@dataclass
class LoadLog:
    """What the log of a starting server says; anything it does not say stays empty."""

    build: str = ""
    system_info: str = ""
    devices: tuple[DeviceUse, ...] = ()
    draft_devices: tuple[DeviceUse, ...] = ()
    layers_offloaded: tuple[int, int] | None = None
    draft_layers_offloaded: tuple[int, int] | None = None
    resolved: dict[str, Any] = field(default_factory=dict[str, Any])
    """`n_vocab`, `n_ctx`, `n_batch`, `n_ubatch`, `kv_type_k`, `kv_type_v`, `flash_attention`, `threads`,
    `batch_threads`, `load_mode` (and those of the draft under `draft_...`), and `method_parameters`: method -> name ->
    value."""
    warnings: tuple[str, ...] = ()
    complete: bool = False
    """A line from after loading is there (the server writes its log from a thread of its own, a little later)."""


def parse_load(text: str) -> LoadLog:
    """Read the log of a server up to where it was ready."""
    load = LoadLog()
    buffers: dict[str, dict[tuple[str, str], float]] = {"": {}, "draft_": {}}
    methods: dict[str, dict[str, Any]] = {}
    prefix = ""
    method = ""
    warnings: list[str] = []
    for line in text.splitlines():
        if _DRAFT_BEGINS.search(line):
            prefix = "draft_"
        elif "initializing, n_slots" in line or "initializing slots" in line:
            prefix = ""
        if found := _BUFFER.search(line):
            key = (found.group(1), found.group(2))
            size = _number(found.group(3)) * _MIB
            # Compute buffers are announced again whenever a graph is reserved again: the last one holds.
            buffers[prefix][key] = size if key[1] == "compute" else buffers[prefix].get(key, 0.0) + size
        elif found := _LAYERS.search(line):
            setattr(load, f"{prefix}layers_offloaded", (int(found.group(1)), int(found.group(2))))
        elif found := METHOD.search(line):
            method = found.group(1)
            methods[method] = {}
        elif method and (found := PARAMETERS.search(line)):
            for name, value in PARAMETER.findall(found.group(1)):
                methods[method].setdefault(name, _value(value))
        elif _LOADED.search(line):
            load.complete = True
        else:
            _read_value(line, prefix, load)
        if _WARNING.search(line) and len(warnings) < _MAX_WARNINGS:
            warnings.append(_plain(line))
    load.devices = _device_uses(buffers[""])
    load.draft_devices = _device_uses(buffers["draft_"])
    load.resolved["method_parameters"] = methods
    load.warnings = tuple(dict.fromkeys(warnings))
    return load


def _read_value(line: str, prefix: str, load: LoadLog) -> None:
    resolved = load.resolved
    if found := _CONTEXT.search(line):
        resolved[prefix + found.group(1)] = _value(found.group(2))
    elif found := _VOCABULARY.search(line):
        resolved[f"{prefix}n_vocab"] = int(found.group(1))
    elif found := _KV_TYPES.search(line):
        resolved[f"{prefix}kv_type_k"], resolved[f"{prefix}kv_type_v"] = found.groups()
    elif found := _FLASH.search(line):
        resolved[f"{prefix}flash_attention"] = next(group for group in found.groups() if group)
    elif found := _SYSTEM.search(line):
        load.system_info = found.group(1).split("|", 1)[-1].strip(" |")
        if threads := _THREADS.search(line):
            resolved["threads"], resolved["batch_threads"] = int(threads.group(1)), int(threads.group(2))
    elif found := _LOAD_MODE.search(line):
        resolved[f"{prefix}load_mode"] = found.group(1)
    elif not load.build and (found := BUILD.search(line)):
        load.build = (found.group(1) or found.group(2)).strip()


def _device_uses(buffers: dict[tuple[str, str], float]) -> tuple[DeviceUse, ...]:
    devices: dict[str, dict[str, int]] = {}
    for (device, kind), size in buffers.items():
        name = {"model": "model", "KV": "kv", "RS": "kv", "compute": "compute"}[kind] + "_buffer_bytes"
        sizes = devices.setdefault(device, {})
        sizes[name] = sizes.get(name, 0) + round(size)
    return tuple(
        DeviceUse(
            device=device,
            model_buffer_bytes=sizes.get("model_buffer_bytes", 0),
            kv_buffer_bytes=sizes.get("kv_buffer_bytes", 0),
            compute_buffer_bytes=sizes.get("compute_buffer_bytes", 0),
        )
        for device, sizes in devices.items()
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _value(text: str) -> Any:
    """A number where it is one: int, then float; otherwise the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "yes": True, "no": False}.get(text, text)


# --- failures --------------------------------------------------------------------------------------------------------

_NOISE = re.compile(r"llama_model_loader: - |print_info: |^\s*$")


def last_words(text: str, count: int = 8) -> tuple[str, ...]:
    """The lines that most likely say why a server ended: its last errors and warnings, or else its last lines."""
    lines = [line for line in text.splitlines() if not _NOISE.search(line)]
    serious = [line for line in lines if re.search(r"^[\d.]+ [EW] |error|fail|abort|assert|exception", line, re.I)]
    return tuple(_plain(line) for line in (serious or lines)[-count:])


def _plain(line: str) -> str:
    return unwrapped(line)[1][:_MAX_LINE]


# --- counters --------------------------------------------------------------------------------------------------------

_SAMPLE = re.compile(r"^(?:\w+:)?(\w+_total|n_busy_slots_per_decode)(\{[^{}]{0,1000}\})? +(\S+)")
_BUSY, _DECODES = "n_busy_slots_per_decode", "n_decode_total"
_MAX_SAMPLES = 4096


def parse_counters(text: str) -> dict[str, float]:
    """Every `..._total` sample by its name without the prefix `llamacpp:`, labels included: `n_decode_total`,
    `spec_decode_num_accepted_tokens_per_pos_total{position="0"}`, ...; and `n_busy_slots_total`, the forwards of all
    slots added up, which the server tells as a mean over its decodes.

    Raises `EngineProtocolError` for a value that is not a finite number, or for far too many samples.
    """
    counters: dict[str, float] = {}
    for line in text.splitlines():
        if not (sample := _SAMPLE.match(line)):
            continue
        try:
            value = float(sample.group(3))
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or len(counters) >= _MAX_SAMPLES:
            raise EngineProtocolError(
                f"/metrics cannot be parsed at `{line[:120]}`",
                fix="check that the engine is a llama-server (its log is in the run folder)",
            )
        counters[sample.group(1) + (sample.group(2) or "")] = value
    if (busy := counters.pop(_BUSY, None)) is not None and _DECODES in counters:
        counters["n_busy_slots_total"] = busy * counters[_DECODES]
    return counters

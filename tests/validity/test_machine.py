"""Checks of the machine: who else ran on it, how fast it was allowed to be, and whether things fitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from factory import (
    BASE,
    SD,
    before,
    experiment,
    found,
    host,
    load,
    run_data,
    simulated,
    unchecked,
    with_arms,
    with_models,
    with_sessions,
)

from specmeter.record import DeviceUse, EngineTraits, Gpu
from specmeter.validity.checks import machine
from specmeter.validity.checks.check import Check
from specmeter.validity.checks.machine import free_cores, host_busy, memory_short, power_source
from specmeter.validity.checks.run_data import RunData, Sample

CLEAN = run_data()


def on_host(data: RunData = CLEAN, **changes: Any) -> RunData:
    return replace(data, hosts=(host(**changes),))


def while_running(arm_id: str, change: Callable[[Sample, int], Sample], data: RunData = CLEAN) -> RunData:
    """Changes samples that were taken while requests of an arm ran; the second argument numbers them."""
    spans = [
        (it.row.started_at, it.row.started_at + (it.row.wall_ms or 0) / 1000)
        for it in data.requests
        if it.row.arm_id == arm_id
    ]
    samples: list[Sample] = []
    number = 0
    for sample in data.telemetry:
        inside = any(start <= sample.at <= end for start, end in spans)
        samples.append(change(sample, number) if inside else sample)
        number += inside
    return replace(data, telemetry=tuple(samples))


# --- all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", machine.CHECKS, ids=lambda check: check.id)
def test_a_simulated_machine_is_none(check: Check) -> None:
    (gap,) = check.look(simulated(CLEAN))
    assert gap in unchecked(check.look, simulated(CLEAN), applies=False)


@pytest.mark.parametrize("check", machine.CHECKS, ids=lambda check: check.id)
def test_a_machine_that_is_not_recorded(check: Check) -> None:
    data = replace(CLEAN, hosts=(), telemetry=())
    assert found(check.look, data) == []
    assert unchecked(check.look, data, applies=True)


# --- host-busy -------------------------------------------------------------------------------------------------------


def test_other_programs_while_an_arm_ran() -> None:
    data = while_running(SD, lambda it, _: it._replace(other_cpu_percent=20.0))
    (finding,) = found(host_busy, data)
    assert (finding.severity, finding.arm_id) == ("suspect", SD)
    assert float(str(finding.evidence["mean_percent"])) > 15
    assert float(str(finding.evidence["mean_percent_of_baseline"])) < 5


def test_other_programs_that_come_and_go() -> None:
    """Below the gate in the mean, above it in a quarter of the time."""
    data = while_running(SD, lambda it, n: it._replace(other_cpu_percent=15.0 if n % 4 == 0 else 0.5))
    (finding,) = found(host_busy, data)
    assert float(str(finding.evidence["mean_percent"])) < 5


def test_a_short_disturbance() -> None:
    assert (
        found(host_busy, while_running(SD, lambda it, n: it._replace(other_cpu_percent=60.0 if n == 3 else 0.5))) == []
    )


def test_what_happens_between_requests_is_nobodys_business() -> None:
    spans = [(it.row.started_at, it.row.started_at + (it.row.wall_ms or 0) / 1000 + 1) for it in CLEAN.requests]
    telemetry = [
        it if any(start <= it.at <= end for start, end in spans) else it._replace(other_cpu_percent=90.0)
        for it in CLEAN.telemetry
    ]
    assert any(it.other_cpu_percent == 90 for it in telemetry)
    assert found(host_busy, replace(CLEAN, telemetry=tuple(telemetry))) == []


def test_the_second_before_a_sample_is_what_it_tells_of() -> None:
    """Samples just after a request belong to it; those long after belong to no request."""
    last = CLEAN.requests[-1].row
    end = last.started_at + (last.wall_ms or 0) / 1000
    just_after = replace(CLEAN, telemetry=(load(end + 0.5, other_cpu_percent=50.0),))
    assert [it.arm_id for it in found(host_busy, just_after)] == [last.arm_id]
    long_after = replace(CLEAN, telemetry=(load(end + 5, other_cpu_percent=50.0),))
    assert found(host_busy, long_after) == []
    assert {gap.arm_id for gap in unchecked(host_busy, long_after, applies=True)} == {BASE, SD}


def test_quiet_machines_raise_no_alarm() -> None:
    """Shares as measured on a quiet machine with two cores: 0.8 % in the mean, 3 % at times, 6.4 % once in 300."""
    rng = np.random.default_rng(1)
    for _ in range(30):
        shares = rng.exponential(0.8, len(CLEAN.telemetry)).tolist()
        telemetry = tuple(
            it._replace(other_cpu_percent=share) for it, share in zip(CLEAN.telemetry, shares, strict=True)
        )
        assert found(host_busy, replace(CLEAN, telemetry=telemetry)) == []


@pytest.mark.parametrize(("threads", "suspect"), [(64, True), (32, False)])
def test_one_core_counts_where_every_core_decodes(threads: int, suspect: bool) -> None:
    """2.5 % of a machine of 64 cores with two threads each are more than three of its logical cores."""
    data = on_host(physical_cores=64, logical_cores=128)
    data = with_sessions(data, resolved={"threads": threads})
    data = while_running(SD, lambda it, _: it._replace(other_cpu_percent=2.5), data)
    assert bool(found(host_busy, data)) == suspect


def test_one_core_does_not_count_where_a_gpu_decodes() -> None:
    data = with_sessions(on_host(physical_cores=64, logical_cores=128), resolved={"threads": 64})
    data = with_sessions(data, devices=(DeviceUse(device="CUDA0", model_buffer_bytes=1),))
    assert found(host_busy, while_running(SD, lambda it, _: it._replace(other_cpu_percent=2.5), data)) == []


@pytest.mark.parametrize(
    ("reasons", "severity"),
    [
        (("hw_thermal_slowdown",), "suspect"),
        (("sw_power_cap", "sw_thermal_slowdown"), "suspect"),
        (("hw_power_brake",), "suspect"),
        (("sw_power_cap",), "note"),
        (("application_clocks", "sync_boost"), None),
    ],
)
def test_a_gpu_that_is_slowed_down(reasons: tuple[str, ...], severity: str | None) -> None:
    data = while_running(SD, lambda it, n: it._replace(gpu_throttle=reasons if n % 3 == 0 else ()))
    assert [(it.severity, it.arm_id) for it in found(host_busy, data)] == ([(severity, SD)] if severity else [])


def test_reasons_of_slow_gpus_have_an_order() -> None:
    """The most frequent first, then by name: never that of a set."""
    often, rare = ("sw_power_cap", "hw_slowdown", "hw_power_brake"), ("hw_thermal_slowdown", "hw_slowdown")
    (finding,) = found(host_busy, while_running(SD, lambda it, n: it._replace(gpu_throttle=often if n % 3 else rare)))
    assert finding.evidence["reasons"] == "hw_slowdown, hw_power_brake, sw_power_cap, hw_thermal_slowdown"


def test_a_gpu_that_is_slowed_down_once() -> None:
    data = while_running(SD, lambda it, n: it._replace(gpu_throttle=("hw_slowdown",) if n == 0 else ()))
    assert found(host_busy, data) == []


def test_a_clock_that_drops() -> None:
    data = while_running(SD, lambda it, n: it._replace(cpu_mhz=2400.0 if n % 3 == 0 else 3500.0))
    (finding,) = found(host_busy, data)
    assert (finding.severity, finding.arm_id, finding.evidence["fastest_mhz"]) == ("suspect", SD, 3500)


def test_a_clock_that_is_lower_for_one_arm() -> None:
    data = while_running(SD, lambda it, _: it._replace(cpu_mhz=3000.0))
    (finding,) = found(host_busy, data)
    assert (finding.evidence["median_mhz"], finding.evidence["median_mhz_of_baseline"]) == (3000, 3500)
    assert found(host_busy, while_running(SD, lambda it, _: it._replace(cpu_mhz=3300.0))) == []


def test_a_clock_that_nobody_knows() -> None:
    data = replace(CLEAN, telemetry=tuple(it._replace(cpu_mhz=None) for it in CLEAN.telemetry))
    assert found(host_busy, data) == []
    assert unchecked(host_busy, data) == []


def test_memory_that_runs_out() -> None:
    data = while_running(SD, lambda it, n: it._replace(memory_available_bytes=10**9 if n == 2 else 48 * 2**30))
    (finding,) = found(host_busy, data)
    assert (finding.severity, finding.arm_id) == ("suspect", SD)
    assert finding.evidence["memory_available_bytes"] == 10**9


# --- free-cores ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threads", "cores", "severity"),
    [
        (8, {}, None),
        (12, {}, "note"),
        (17, {}, "suspect"),
        (8, {"usable_cores": 4.0}, "suspect"),
        (4, {"usable_cores": 4.0}, None),
        (2, {"usable_cores": 1.5, "physical_cores": 2, "logical_cores": 2}, "suspect"),
        (8, {"physical_cores": None, "logical_cores": 8}, None),
    ],
)
@pytest.mark.parametrize("asked", [False, True])
def test_more_threads_than_cores(threads: int, cores: dict[str, Any], severity: str | None, asked: bool) -> None:
    """Known from what was asked for before a run, and from what was in force after it."""
    data = on_host(**cores)
    if asked:
        settings = data.arms[SD].engine.model_dump() | {"threads": threads}
        data = with_arms(before(data), SD, engine=settings)
    else:
        data = with_sessions(data, SD, resolved={"threads": threads})
    assert [it.severity for it in found(free_cores, data) if it.arm_id == SD] == ([severity] if severity else [])


BUSY = ("python3 (0.98 cores)", "cc1plus (1.02 cores)")


def test_programs_that_are_busy_at_the_start() -> None:
    data = on_host(physical_cores=2, logical_cores=2, busy_processes=BUSY)
    (finding,) = found(free_cores, before(data))
    assert (finding.severity, finding.scope, finding.evidence["busy_cores"]) == ("suspect", "run", 2.0)
    assert finding.message.values["processes"] == BUSY
    assert "-t 1" in str(finding.remedy)
    (finding,) = found(free_cores, replace(before(data), stated=EngineTraits()))
    assert str(finding.remedy) == "close these programs", "the server is not ours"
    assert "thread" not in str(finding.message), "nor is it known how many threads it has"
    one = with_sessions(data, resolved={"threads": 1})
    (finding,) = found(free_cores, one)
    assert "the engine decodes with 1 thread: " in str(finding.message)
    assert str(finding.remedy) == "close these programs", "it has no fewer"
    (finding,) = found(free_cores, data)
    assert finding.severity == "note", "telemetry knows better"
    (finding,) = found(free_cores, replace(data, telemetry=()))
    assert finding.severity == "suspect"


def test_a_resumed_run_was_started_twice() -> None:
    first, second = (
        host(physical_cores=2, logical_cores=2),
        host(physical_cores=2, logical_cores=2, busy_processes=BUSY),
    )
    assert found(free_cores, replace(CLEAN, hosts=(second, first)))
    assert found(free_cores, replace(CLEAN, hosts=(first, second)))


def test_busy_programs_beside_free_cores() -> None:
    """Two threads of the engine and two cores of others on eight."""
    settings = experiment(engine={"kind": "embedded", "threads": 2})
    data = replace(before(run_data(settings)), hosts=(host(busy_processes=BUSY),))
    assert found(free_cores, data) == []
    assert found(free_cores, on_host(before(CLEAN), busy_processes=BUSY)), "by default the engine takes all cores"


@pytest.mark.parametrize("names", [("kworker (0.12 cores)",), ("strange",), ("(9 cores) of nothing",)])
def test_hardly_busy(names: tuple[str, ...]) -> None:
    assert found(free_cores, on_host(before(CLEAN), busy_processes=names)) == []


def test_a_load_that_nobody_makes() -> None:
    (finding,) = found(free_cores, on_host(load_average=(9.5, 3.0, 1.0)))
    assert (finding.severity, finding.evidence["load_average"]) == ("note", 9.5)
    assert found(free_cores, on_host(load_average=(2.0, 9.0, 9.0))) == []


# --- power-source ----------------------------------------------------------------------------------------------------


def test_a_battery() -> None:
    for data in (on_host(power_source="battery"), before(on_host(power_source="battery"))):
        (finding,) = found(power_source, data)
        assert (finding.severity, finding.scope, finding.evidence["starts_on_battery"]) == ("suspect", "run", 1)


def test_a_plug_that_was_pulled() -> None:
    (finding,) = found(power_source, while_running(SD, lambda it, n: it._replace(on_battery=n > 2)))
    assert (finding.severity, finding.evidence["starts_on_battery"]) == ("suspect", 0)


@pytest.mark.parametrize(
    ("governor", "processor", "severity"),
    [
        ("performance", "x86_64", None),
        ("schedutil", "aarch64", None),
        ("powersave", "x86_64", "note"),
        ("powersave", "AMD64", "note"),
        ("powersave", "aarch64", "suspect"),
        ("performance+powersave", "aarch64", "suspect"),
        ("low power", "arm64", "suspect"),
        ("power saver", "AMD64", "suspect"),
        ("automatic", "arm64", None),
        (None, "x86_64", None),
    ],
)
def test_a_clock_policy(governor: str | None, processor: str, severity: str | None) -> None:
    findings = found(power_source, on_host(governor=governor, machine=processor))
    assert [it.severity for it in findings] == ([severity] if severity else [])


def test_a_source_that_nobody_knows() -> None:
    data = replace(on_host(power_source="unknown"), telemetry=())
    assert found(power_source, data) == []
    assert unchecked(power_source, data, applies=True)
    assert unchecked(power_source, on_host(power_source="unknown")) == [], "telemetry knows"


# --- memory-short ----------------------------------------------------------------------------------------------------


def test_models_that_do_not_fit() -> None:
    """410 MB of weights and 64 MiB of KV cache; the arm with the draft needs 21 MB and as much cache more."""
    data = before(on_host(memory_available_bytes=540_000_000))
    (finding,) = found(memory_short, data)
    assert (finding.severity, finding.arm_id) == ("suspect", SD)
    kv = 16_384 * 4096
    assert finding.evidence["needed_bytes"] == 431_000_000 + 2 * kv
    assert found(memory_short, before(on_host(memory_available_bytes=700_000_000))) == []
    assert {it.arm_id for it in found(memory_short, before(on_host(memory_available_bytes=400_000_000)))} == {BASE, SD}


def test_memory_of_gpus_counts() -> None:
    gpu = Gpu(index=0, name="A GPU", vendor="NVIDIA", memory_bytes=24 * 2**30)
    assert found(memory_short, before(on_host(memory_available_bytes=300_000_000, gpus=(gpu,)))) == []


def test_a_smaller_cache_needs_less() -> None:
    settings = CLEAN.arms[BASE].engine.model_dump() | {"kv_type_k": "q4_0", "kv_type_v": "q4_0", "context": 100_000}
    asked = with_arms(CLEAN, BASE, engine=settings)
    (finding,) = found(memory_short, before(on_host(asked, memory_available_bytes=700_000_000)))
    assert finding.evidence["needed_bytes"] == round(410_000_000 + 16_384 * 100_000 * 4.5 / 16)


def test_what_the_engine_printed_counts_more() -> None:
    """450 MB for the baseline, 475 MB with the draft."""
    (finding,) = found(memory_short, on_host(memory_available_bytes=520_000_000))
    assert (finding.arm_id, finding.evidence["printed_by_the_engine"]) == (SD, True)
    assert finding.evidence["needed_bytes"] == 475_000_009
    assert found(memory_short, on_host(memory_available_bytes=540_000_000)) == []


def test_models_of_unknown_size() -> None:
    assert unchecked(memory_short, before(replace(CLEAN, models={})), applies=True)
    headless = with_models(before(CLEAN), header=None)
    assert found(memory_short, headless) == []


def test_swap_that_grows() -> None:
    more = replace(CLEAN, hosts=(host(swap_used_bytes=0), host(swap_used_bytes=900_000_000)))
    (finding,) = found(memory_short, more)
    assert (finding.severity, finding.scope) == ("suspect", "run")
    same = replace(CLEAN, hosts=(host(swap_used_bytes=900_000_000), host(swap_used_bytes=900_000_000)))
    assert found(memory_short, same) == []

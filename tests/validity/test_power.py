from dataclasses import replace

from factory import BASE, SD, found, run_data, simulated, unchecked

from specmeter.analysis.consumption import Energies
from specmeter.messages import Message
from specmeter.record import PowerMeter, RequestEnergy
from specmeter.validity.checks.power import energy_read
from specmeter.validity.checks.run_data import RunData, Sample


def metered(
    *, watts: float = 50.0, unseen: float = 0.0, idle_w: float | None = 10.0, busy: float = 2.0, other: float = 0.0
) -> RunData:
    """A run whose energy was read."""
    data = run_data()
    meter = PowerMeter(sources=("package-0",), idle_w=idle_w, idle_cpu_percent=busy)
    read = [
        RequestEnergy(
            invocation=it.row.invocation,
            block=it.row.block,
            arm_id=it.row.arm_id,
            prompt_id=it.row.prompt_id,
            joules={"package-0": watts * (it.row.wall_ms or 0) / 1000},
            seconds=(it.row.wall_ms or 0) / 1000,
            unseen_s=unseen * (it.row.wall_ms or 0) / 1000,
        )
        for it in data.requests
    ]
    loads = [Sample(it.row.started_at + 0.5, other, 10**10, None, None, ()) for it in data.requests]
    hosts = tuple(host.model_copy(update={"power_meter": meter}) for host in data.hosts)
    return replace(data, hosts=hosts, telemetry=loads, energies=Energies(read, [meter]))


def test_joules_that_can_be_believed() -> None:
    assert found(energy_read, metered()) == []
    assert unchecked(energy_read, metered()) == []


def test_readings_that_do_not_cover_the_time_are_a_note_for_each_arm() -> None:
    seen = found(energy_read, metered(unseen=0.3))
    assert [(it.arm_id, it.severity) for it in seen] == [(BASE, "note"), (SD, "note")]
    assert seen[0].evidence["unseen"] == 0.3


def test_other_programs_are_in_the_joules() -> None:
    seen = found(energy_read, metered(other=8.0))
    assert {it.arm_id for it in seen} == {BASE, SD}
    assert seen[0].message == Message("energy-read.others", other_cpu_percent=8.0)


def test_a_rest_that_was_none() -> None:
    (busy,) = found(energy_read, metered(busy=40.0))
    assert (busy.scope, busy.evidence["idle_cpu_percent"]) == ("run", 40.0)
    seen = found(energy_read, metered(idle_w=60.0))
    assert {it.arm_id for it in seen} == {BASE, SD}
    assert seen[0].message.values["idle_w"] == 60.0


def test_without_readings_the_reason_is_said() -> None:
    data = run_data()
    assert [it.reason.code for it in unchecked(energy_read, data, applies=False)] == ["unchecked.no_energy"]
    meter = PowerMeter(unread=("the counter is readable by root alone",))
    hosts = tuple(host.model_copy(update={"power_meter": meter}) for host in data.hosts)
    assert [it.reason for it in unchecked(energy_read, replace(data, hosts=hosts), applies=False)] == [
        Message("unchecked.energy_unread", reason="the counter is readable by root alone")
    ]
    assert [it.reason.code for it in unchecked(energy_read, simulated(data), applies=False)] == ["unchecked.simulated"]

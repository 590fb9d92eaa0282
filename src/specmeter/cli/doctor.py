"""The command `specmeter doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import click

from specmeter.cli.usage import Number
from specmeter.engines.llama_cpp.tools import find_program
from specmeter.errors import UsageError
from specmeter.host.bandwidth import Bandwidth, measure_bandwidth, remember, remembered
from specmeter.host.energy import EnergyMeter, find_sources
from specmeter.host.limits import memory_available_bytes
from specmeter.host.machine import read_host
from specmeter.laboratory.doctor import Diagnosis, can_measure, examine, without_home
from specmeter.laboratory.pairs import pair
from specmeter.models.reference import found_models
from specmeter.record import Estimate, Host
from specmeter.show.table import Table, Tone, numbers, row, text
from specmeter.show.terminal.console import output, say_json
from specmeter.show.terminal.welcome import print_welcome
from specmeter.text import estimated, rate, size
from specmeter.theory.catalogue import devices as catalogue
from specmeter.theory.catalogue.devices import DeviceEntry

_TONES: dict[str, Tone] = {"ok": "good", "limited": "doubtful", "missing": "bad"}


@click.command(name="doctor")
@click.option("--bandwidth", is_flag=True, help="Measure memory bandwidth instead, and compare it with the catalogue.")
@click.option("--device", "names", multiple=True, metavar="NAME", help="Show this catalogue entry; repeatable.")
@click.option("--no-measure", is_flag=True, help="With --bandwidth: show the last measurement.")
@click.option(
    "--threads",
    type=Number(1, 1024),
    help="With --bandwidth. Default: all physical cores.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a bug report, without user, host and home names.")
@click.pass_context
def command(
    ctx: click.Context, bandwidth: bool, names: tuple[str, ...], no_measure: bool, threads: int | None, as_json: bool
) -> None:
    """Show what this machine can measure, and what is missing.

    Each line is ok, limited (works, with a drawback) or missing, with a fix.

    --bandwidth reads and copies memory on all cores for a few seconds and keeps the result for predictions. Decoding
    without speculation reads every active weight once per token, so its rate is at most about bandwidth / bytes per
    token. The catalogue has the manufacturers' peaks, which programs do not reach. GPU memory is not measured; --device
    measures nothing.

    \b
    Examples:
      specmeter doctor
      specmeter doctor --json | jq '.diagnoses[] | select(.state != "ok")'
      specmeter doctor --bandwidth
      specmeter doctor --bandwidth --no-measure --json | jq '.machine.read.point'
      specmeter doctor --device "RTX 3090" --device "M2 Ultra"
      SPECMETER_LLAMA_SERVER=~/llama.cpp/build/bin/llama-server specmeter doctor

    Exit codes: 0 an engine is usable, 1 none is, 2 wrong input.
    """
    if bandwidth or names:
        _show_bandwidth(names, threads, no_measure=no_measure, as_json=as_json)
        return
    for option, given in (("--no-measure", no_measure), ("--threads", threads)):
        if given:
            raise UsageError(f"{option}: only with --bandwidth", fix=f"add --bandwidth, or leave {option} out")
    with EnergyMeter(find_sources()) as meter:
        host = read_host().model_copy(update={"power_meter": meter.facts()})
    diagnoses = examine(host)
    usable = can_measure(diagnoses)
    if as_json:
        answer = {
            "usable": usable,
            "diagnoses": [{key: without_home(it) for key, it in asdict(one).items()} for one in diagnoses],
            # People publish this, and a hash of a name can be guessed.
            "host": host.model_dump(mode="json", exclude={"hostname_sha256"}),
        }
        say_json(answer)
    else:
        _print(diagnoses, usable=usable)
    ctx.exit(0 if usable else 1)


def _print(diagnoses: Sequence[Diagnosis], *, usable: bool) -> None:
    """Whether this machine can measure, then each diagnosis."""
    screen, area = output(), ""
    counts = {state: sum(it.state == state for it in diagnoses) for state in ("limited", "missing")}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "everything ok"
    answer = "ready to measure" if usable else "cannot measure yet: no engine works"
    screen.say((answer, "strong"), f" ({told})")
    width = max(len(diagnosis.name) for diagnosis in diagnoses)
    for it in diagnoses:
        if it.area != area:
            area = it.area
            screen.say(area)
        screen.say("  ", (f"{it.state:8}", _TONES[it.state]), f" {it.name:{width}}  {it.detail}", wrap=False)
        if it.fix:
            screen.say(f"  {'':8} {'':{width}}  fix: {it.fix}", wrap=False)


# --- memory bandwidth ------------------------------------------------------------------------------------------------


def _show_bandwidth(names: tuple[str, ...], threads: int | None, *, no_measure: bool, as_json: bool) -> None:
    listed = [device for name in names for device in catalogue.named(name)] if names else list(catalogue.devices())
    host = read_host(load_sample_s=0.1)
    if names or no_measure:
        machine = remembered(host)
    else:
        machine = measure_bandwidth(host, threads)
        if threads is None:
            remember(machine)
    own = {name: catalogue.find(name) for name in dict.fromkeys((host.cpu, *(gpu.name for gpu in host.gpus)))}
    if as_json:
        _print_devices_json(machine, own, listed)
        return
    if not names:
        _print_machine(machine, host, own)
    _print_catalogue(list(dict.fromkeys(listed)), machine)


def _print_devices_json(
    machine: Bandwidth | None, own: dict[str, tuple[DeviceEntry, ...]], listed: list[DeviceEntry]
) -> None:
    answer: dict[str, Any] = {
        "machine": machine.model_dump(mode="json") | {"memory_bound": machine.memory_bound} if machine else None,
        "own": {name: [device.name for device in devices] for name, devices in own.items()},
        "catalogue": [device.model_dump(mode="json") for device in dict.fromkeys(listed)],
    }
    say_json(answer)


def _print_machine(machine: Bandwidth | None, host: Host, own: dict[str, tuple[DeviceEntry, ...]]) -> None:
    screen = output()
    screen.say(f"this machine: {host.cpu}, {host.logical_cores} cores, {size(host.memory_bytes)}", wrap=False)
    if machine is None:
        screen.say("  memory bandwidth not measured yet: run `specmeter doctor --bandwidth`", wrap=False)
    else:
        when = datetime.fromtimestamp(machine.measured_at, UTC).astimezone()
        lines = [
            f"read  {_rate(machine.read, machine.read_best)}",
            f"copy  {_rate(machine.copied, machine.copied_best)}, bytes read plus written",
            f"by {machine.threads} threads over arrays of {size(machine.array_bytes)}, {when:%Y-%m-%d %H:%M}",
        ]
        if not machine.memory_bound:
            lines.append(
                f"reading from cache is not faster ({machine.cached_read:.1f} GB/s): the cores are the limit here, "
                "memory may be faster"
            )
        reach = rate(machine.read.point)
        lines.append(f"on the CPU, a model that reads 1 GB per token decodes at most at about {reach}")
        screen.say_all((f"  {line}" for line in lines), wrap=False)
    for name, devices in own.items():
        fits = ", ".join(f"{device.name} ({device.bandwidth_gb_s:g} GB/s)" for device in devices)
        screen.say(f"  {name}: {fits or 'not in the catalogue'}", wrap=False)
    screen.line()


def _rate(estimate: Estimate, best: float) -> str:
    return f"{estimated(estimate, 1, ' GB/s', exact=True)}, best {best:.1f}"


def _print_catalogue(listed: list[DeviceEntry], machine: Bandwidth | None) -> None:
    rows = [
        row(
            device.name,
            f"{device.bandwidth_gb_s:g}",
            *(() if machine is None else (f"{device.bandwidth_gb_s / machine.read.point:.1f}",)),
            "" if device.fp16_tflops is None else f"{device.fp16_tflops:g}",
            "/".join(map(str, device.memory_gb)),
            "yes" if device.verified else "no",
        )
        for device in listed
    ]
    share = () if machine is None else ("x this machine's read",)
    columns = numbers("peak GB/s", *share, "fp16 TFLOPS", "memory GB")
    output().table(Table("devices", (*text("device"), *columns, *text("verified")), rows))


# --- `specmeter` alone, at a terminal ---------------------------------------------------------------------------------


def welcome() -> None:
    """Say what is on this machine, and what to type next."""
    models = found_models()
    native = find_program("llama-server")
    engine = f"llama.cpp from xllamacpp {version('xllamacpp')}"
    if native is not None:
        engine += f"; your own with --engine native: {native}"
    print_welcome(output(), models, engine, pair(models, memory_available_bytes()))

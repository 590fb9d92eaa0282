"""`specmeter devices`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from specmeter.show.terminal.text import output_console, printable

if TYPE_CHECKING:
    from specmeter.host.bandwidth import Bandwidth
    from specmeter.record import Estimate, Host
    from specmeter.theory.catalogue import Device


@click.command(name="devices")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--no-measure", is_flag=True, help="Show what was measured last, without measuring now.")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads that measure. Default: all physical cores.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(names: tuple[str, ...], no_measure: bool, threads: int | None, as_json: bool) -> None:
    """Measure this machine's memory bandwidth, and show it beside the catalogue of devices.

    Decoding reads every active weight once per forward, so bandwidth over bytes per token is about the rate that plain
    decoding can reach. This machine's memory is measured by reading and by copying, with all cores, in some seconds;
    the result is kept for predictions. The catalogue has what makers state, which nothing reaches.

    With NAMEs only those entries are shown, and nothing is measured. The memory of a GPU is not measured.

    \b
    Examples:
      specmeter devices
      specmeter devices "RTX 3090" "M2 Ultra"
      specmeter devices --no-measure --json | jq '.machine.read.point'

    \b
    Exit codes: 0 shown, 2 a name is not in the catalogue (the nearest ones are named).
    """
    from specmeter.host import read_host
    from specmeter.host.bandwidth import measure_bandwidth, remember, remembered
    from specmeter.theory import catalogue

    listed = [device for name in names for device in catalogue.named(name)] if names else list(catalogue.devices())
    host = read_host(load_sample_s=0.1)
    if names or no_measure:
        machine = remembered(host)
    else:
        machine = measure_bandwidth(host, threads)
        if threads is None:
            remember(machine)
    own = _own_devices(host)
    if as_json:
        _print_json(machine, own, listed)
        return
    if not names:
        _print_machine(machine, host, own)
    _print_catalogue(list(dict.fromkeys(listed)), machine)


def _own_devices(host: Host) -> dict[str, tuple[Device, ...]]:
    """Processor and GPUs of this machine -> entries that fit the name."""
    from specmeter.theory import catalogue

    return {name: catalogue.find(name) for name in dict.fromkeys((host.cpu, *(gpu.name for gpu in host.gpus)))}


def _print_json(machine: Bandwidth | None, own: dict[str, tuple[Device, ...]], listed: list[Device]) -> None:
    import json

    answer: dict[str, Any] = {
        "machine": machine.model_dump(mode="json") | {"memory_bound": machine.memory_bound} if machine else None,
        "own": {name: [device.name for device in devices] for name, devices in own.items()},
        "catalogue": [device.model_dump(mode="json") for device in dict.fromkeys(listed)],
    }
    click.echo(json.dumps(answer, indent=2))


def _print_machine(machine: Bandwidth | None, host: Host, own: dict[str, tuple[Device, ...]]) -> None:
    from datetime import UTC, datetime

    click.echo(f"this machine: {printable(host.cpu)}, {host.logical_cores} cores, {host.memory_bytes / 1e9:.1f} GB")
    if machine is None:
        click.echo("  memory bandwidth was not measured here yet; `specmeter devices` does it")
    else:
        when = datetime.fromtimestamp(machine.measured_at, UTC).astimezone()
        click.echo(f"  read  {_rate(machine.read, machine.read_best)}")
        click.echo(f"  copy  {_rate(machine.copied, machine.copied_best)}, read and written bytes together")
        click.echo(
            f"  by {machine.threads} threads over arrays of {machine.array_bytes / 1e6:,.0f} MB, {when:%Y-%m-%d %H:%M}"
        )
        if not machine.memory_bound:
            click.echo(
                f"  in cache the cores read no more than {machine.cached_read:.1f} GB/s: they set the pace here, "
                "memory may deliver more"
            )
        click.echo(
            f"  a model that reads 1 GB per token can decode at about {machine.read.point:.0f} tok/s on the processor"
        )
    for name, devices in own.items():
        fits = ", ".join(f"{device.name} ({device.bandwidth_gb_s:g} GB/s)" for device in devices)
        click.echo(f"  {printable(name)}: {fits or 'not in the catalogue'}")
    click.echo()


def _rate(estimate: Estimate, best: float) -> str:
    known = estimate.low is not None and estimate.high is not None
    interval = f" [{estimate.low:.1f}, {estimate.high:.1f}]" if known else ""
    return f"{estimate.point:.1f} GB/s{interval}, best {best:.1f}"


def _print_catalogue(listed: list[Device], machine: Bandwidth | None) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    headings = ["device", "peak GB/s", "fp16 TFLOPS", "memory GB", "verified"]
    if machine:
        headings.insert(2, "x this machine's read")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("device", "verified") else "right")
    for device in listed:
        cells = [
            escape(device.name),
            f"{device.bandwidth_gb_s:g}",
            "" if device.fp16_tflops is None else f"{device.fp16_tflops:g}",
            "/".join(map(str, device.memory_gb)),
            "yes" if device.verified else "no",
        ]
        if machine:
            cells.insert(2, f"{device.bandwidth_gb_s / machine.read.point:.1f}")
        table.add_row(*cells)
    output_console().print(table)

"""`specmeter doctor`."""

from __future__ import annotations

import os

import click

from specmeter.show.terminal.text import printable

_COLOURS = {"ok": "green", "limited": "yellow", "missing": "red"}


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, the facts of the machine included.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Say what this machine can measure, and what is missing.

    Looks at engines, devices, models and the state of the machine. Each line is ok, limited (it works, with a
    drawback) or missing, and says what to do about it. Ends with exit code 1 when no engine is usable.

    \b
    Examples:
      specmeter doctor
      specmeter doctor --json | jq '.diagnoses[] | select(.state != "ok")'
      SPECMETER_LLAMA_SERVER=~/llama.cpp/build/bin/llama-server specmeter doctor
    """
    from specmeter.host import read_host
    from specmeter.host.energy import EnergyMeter, find_sources
    from specmeter.laboratory.doctor import can_measure, examine

    with EnergyMeter(find_sources()) as meter:
        host = read_host().model_copy(update={"power_meter": meter.facts()})
    diagnoses = examine(host)
    usable = can_measure(diagnoses)
    if as_json:
        import json
        from dataclasses import asdict

        answer = {
            "usable": usable,
            "diagnoses": [asdict(diagnosis) for diagnosis in diagnoses],
            "host": host.model_dump(mode="json"),
        }
        click.echo(json.dumps(answer, indent=2))
    else:
        width = max(len(diagnosis.name) for diagnosis in diagnoses)
        area = ""
        for diagnosis in diagnoses:
            if diagnosis.area != area:
                area = diagnosis.area
                _say(area)
            state = click.style(f"{diagnosis.state:8}", fg=_COLOURS[diagnosis.state])
            _say(f"  {state} {diagnosis.name:{width}}  {printable(diagnosis.detail)}")
            if diagnosis.fix:
                _say(f"  {'':8} {'':{width}}  fix: {printable(diagnosis.fix)}")
        if not usable:
            click.echo("no engine is usable: nothing can be measured yet", err=True)
    ctx.exit(0 if usable else 1)


def _say(text: str) -> None:
    click.echo(text, color=False if os.environ.get("NO_COLOR") else None)

"""`specmeter doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specmeter.laboratory.doctor import Diagnosis
    from specmeter.show.table import Tone

_TONES: dict[str, Tone] = {"ok": "good", "limited": "doubtful", "missing": "bad"}


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, including the machine's details.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show what this machine can measure and what is missing.

    Covers engines, devices, models and the state of the machine. Each line is ok, limited (works, with a drawback) or
    missing, with a fix. The exit code is 1 when no engine is usable.

    \b
    Examples:
      specmeter doctor
      specmeter doctor --json | jq '.diagnoses[] | select(.state != "ok")'
      SPECMETER_LLAMA_SERVER=~/llama.cpp/build/bin/llama-server specmeter doctor
    """
    from specmeter.host import read_host
    from specmeter.host.energy import EnergyMeter, find_sources
    from specmeter.laboratory.doctor import can_measure, examine
    from specmeter.show.terminal.console import say_json

    with EnergyMeter(find_sources()) as meter:
        host = read_host().model_copy(update={"power_meter": meter.facts()})
    diagnoses = examine(host)
    usable = can_measure(diagnoses)
    if as_json:
        from dataclasses import asdict

        answer = {
            "usable": usable,
            "diagnoses": [asdict(diagnosis) for diagnosis in diagnoses],
            "host": host.model_dump(mode="json"),
        }
        say_json(answer)
    else:
        _print(diagnoses, usable=usable)
    ctx.exit(0 if usable else 1)


def _print(diagnoses: Sequence[Diagnosis], *, usable: bool) -> None:
    """Whether this machine can measure, then each diagnosis."""
    from specmeter.show.terminal.console import output

    screen, area = output(), ""
    counts = {state: sum(it.state == state for it in diagnoses) for state in ("limited", "missing")}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "everything is ok"
    answer = "this machine can measure" if usable else "nothing can be measured yet: no engine is usable"
    screen.say((answer, "strong"), f" ({told})")
    width = max(len(diagnosis.name) for diagnosis in diagnoses)
    for it in diagnoses:
        if it.area != area:
            area = it.area
            screen.say(area)
        screen.say("  ", (f"{it.state:8}", _TONES[it.state]), f" {it.name:{width}}  {it.detail}", wrap=False)
        if it.fix:
            screen.say(f"  {'':8} {'':{width}}  fix: {it.fix}", wrap=False)

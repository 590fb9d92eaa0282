"""`specmeter check`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from specmeter.inspection import Inspection


@click.command(name="check")
@click.argument("run", default="latest")
@click.option("--all", "every", is_flag=True, help="List every check, also those that passed or do not apply.")
@click.option("--json", "as_json", is_flag=True, help="Print verdicts, findings and checks as JSON.")
def command(run: str, every: bool, as_json: bool) -> int:
    """Check RUN again from its raw data: can its numbers be believed?

    RUN is a run folder, the name of one under specmeter-runs/, or `latest` (the default). Every check is computed
    anew, whatever was found when the run was measured, and the data is held against the hashes in its certificate, so
    that any later change is noticed. A run that has no certificate yet (it was interrupted) gets one, unless something
    is writing to it.

    \b
    Examples:
      specmeter check
      specmeter check specmeter-runs/demo-20261121-101500 --all
      specmeter check latest --json | jq '.arms'

    \b
    Exit codes: 0 valid or suspect, 1 invalid, 2 no such run, or a damaged one.
    """
    from specmeter.laboratory import find_run

    folder = find_run(run)
    inspection, issued = _inspect(folder)
    if as_json:
        document = inspection.certificate.model_dump(mode="json")
        document["findings"] = [finding.model_dump(mode="json", exclude_none=True) for finding in inspection.findings]
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _print(folder, inspection, issued, every=every)
    return 1 if inspection.certificate.verdict == "invalid" else 0


def _inspect(folder: Path) -> tuple[Inspection, bool]:
    """(inspection, whether a certificate was issued just now)."""
    import contextlib

    from specmeter.errors import StoreError
    from specmeter.inspection import inspect, issue
    from specmeter.store import RunStore

    with RunStore.open(folder, readonly=True) as store:
        if store.certificate() is not None:
            return inspect(store), False
    with contextlib.suppress(StoreError), RunStore.open(folder) as store:
        return issue(store), True
    with RunStore.open(folder, readonly=True) as store:
        return inspect(store), False


def _print(folder: Path, inspection: Inspection, issued: bool, *, every: bool) -> None:
    from rich.markup import escape

    from specmeter.cli.text import output_console
    from specmeter.cli.verdicts import STYLES, print_findings, print_outcomes, print_verdicts

    console = output_console()
    certificate = inspection.certificate
    style = STYLES[certificate.verdict]
    counts = certificate.requests
    console.print(
        f"verdict: [{style}]{certificate.verdict}[/{style}]  ({certificate.state} run; requests: "
        f"{counts['valid']} valid, {counts['suspect']} suspect, {counts['invalid']} invalid)\n",
        highlight=False,
    )
    print_verdicts(console, certificate, inspection.findings)
    console.print()
    print_findings(console, inspection.findings)
    console.print()
    print_outcomes(console, certificate.checks, every=every)
    if inspection.certified_before:
        same = not any(finding.check == "data-changed" for finding in inspection.findings)
        state = "is what was certified" if same else "IS NOT what was certified"
        console.print(f"\nthe data in {escape(str(folder))} {state}", highlight=False, soft_wrap=True)
    elif issued:
        console.print(f"\ncertified now: {escape(str(folder))}/certificate.json", highlight=False, soft_wrap=True)
    else:
        console.print("\nnot certified: the run is being written to, or its folder is read-only", highlight=False)

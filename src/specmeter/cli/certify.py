"""`specmeter certify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from specmeter.cli.settings import Lengths
from specmeter.errors import UsageError

if TYPE_CHECKING:
    from specmeter.store import RunState


@click.command(name="certify")
@click.argument("configs", nargs=-1, required=True, metavar="CONFIG...")
@click.option(
    "--gamma",
    type=Lengths(),
    help="Fixed draft lengths to measure beside each controller, up to its own. Default: 1,2,3,4,6,8,12,16.",
)
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="A variant of the experiment; repeatable.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a value of the experiment; repeatable."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Run folder; for a single CONFIG. Default: a new folder under specmeter-runs/.",
)
@click.option("--new", is_flag=True, help="Start a new run even if one of this certification is unfinished.")
@click.option("--offline", is_flag=True, help="Use only models already on this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print the rulings as JSON.")
def command(
    configs: tuple[str, ...],
    gamma: tuple[int, ...] | None,
    variants: tuple[str, ...],
    overrides: tuple[str, ...],
    out: Path | None,
    new: bool,
    offline: bool,
    as_json: bool,
) -> int:
    """Certify controllers: does an engine's own adaptive draft length ever lose, and how much does it leave?

    CONFIG is an experiment (a file or a bundled name) with arms that decide by themselves how long each draft is: by a
    `policy`, a `p_min`, or the engine's own flags (`engine: {extra_flags: [...]}`). Plain decoding and every fixed
    length are measured beside them, in the same blocks; Ctrl-C keeps everything, and the same command goes on. CONFIG
    may also be the folder of such a run, on which is ruled without measuring.

    Each controller is held, on every kind of text, against plain decoding, the best fixed length, and the oracle: the
    best length at every step.

    \b
    Examples:
      specmeter certify controllers
      specmeter certify mine.yaml --gamma 1,2,4,8 --set design.blocks=5
      specmeter certify specmeter-runs/certify-controllers-20261122-220000 --json

    \b
    Exit codes: 0 ruled, 1 a controller fails or its numbers are invalid, 2 the experiment or a model cannot be used,
    3 the engine failed for some requests, 130 interrupted (run again to resume).
    """
    from specmeter.advise.certify import certify
    from specmeter.show.terminal.certify import print_certifications
    from specmeter.store.places import find_run

    if out is not None and len(configs) > 1:
        raise UsageError("--out: one folder, and several CONFIGs", fix="certify them one by one, or leave --out out")
    folders: list[Path] = []
    failed = False
    for config in configs:
        if _is_folder(config):
            folders.append(find_run(config))
            continue
        folder, state = _measured(config, gamma, variants, overrides, out=out, new=new, offline=offline)
        folders.append(folder)
        failed = failed or state.state != "complete"
    found = [certify(folder) for folder in folders]
    print_certifications(found, as_json=as_json)
    if failed:
        return 3
    return 0 if all(it.passes for it in found) else 1


def _is_folder(config: str) -> bool:
    from specmeter.store.places import RUNS_FOLDER

    return config == "latest" or Path(config).is_dir() or (RUNS_FOLDER / config).is_dir()


def _measured(
    config: str,
    gamma: tuple[int, ...] | None,
    variants: tuple[str, ...],
    overrides: tuple[str, ...],
    *,
    out: Path | None,
    new: bool,
    offline: bool,
) -> tuple[Path, RunState]:
    from specmeter.advise.controllers import GAMMAS, with_fixed_lengths
    from specmeter.cli.run import carry_out
    from specmeter.experiments.file import load
    from specmeter.show.terminal.console import errors

    loaded = with_fixed_lengths(load(config, overrides, variants=variants), gamma or GAMMAS)
    screen = errors()
    folder, state = carry_out(loaded, screen, out=out, new=new, offline=offline)
    if state.failed:
        screen.say(f"{state.failed} of {state.planned} requests failed; the same command tries them again")
    return folder, state

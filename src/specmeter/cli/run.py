"""`specmeter run`."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from specmeter.laboratory.run import Prepared
    from specmeter.probe import Probe
    from specmeter.show.terminal.console import Screen
    from specmeter.store import RequestRow, RunState


@click.command(name="run")
@click.argument("experiment")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Run folder; an unfinished run in it is resumed. Default: a new folder under specmeter-runs/.",
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="Run this variant of the experiment; repeatable, later ones override earlier ones.",
)
@click.option(
    "--faithful",
    is_flag=True,
    help="Arrange the run as the repeated study did; short for --variant faithful.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a value of the file, after variants; repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be run and what it needs.")
@click.option("--new", is_flag=True, help="Start a new run even if one of this experiment is unfinished.")
@click.option("--offline", is_flag=True, help="Use only models already on this machine.")
@click.option(
    "--probe",
    "probe_files",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Predict arms from this probe before measuring them; repeatable. Default: the newest that fits, if any.",
)
@click.option("--details", is_flag=True, help="Print everything that was found, as `show --details` does.")
@click.option("--json", "as_json", is_flag=True, help="Print the result (or the dry run) as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    experiment: str,
    out: Path | None,
    variants: tuple[str, ...],
    faithful: bool,
    overrides: tuple[str, ...],
    dry_run: bool,
    new: bool,
    offline: bool,
    probe_files: tuple[Path, ...],
    details: bool,
    as_json: bool,
) -> int:
    """Run EXPERIMENT (a bundled name or a YAML file), or resume it where it was left.

    Every request is on disk before the next one starts: after Ctrl-C, a crash or a power cut, the same command
    measures exactly what is missing.

    \b
    Examples:
      specmeter run demo
      specmeter run mine.yaml --dry-run
      specmeter run mine.yaml --set design.blocks=5 --set arms.0.gamma=[2,4,8]
      specmeter run mine.yaml --out results/monday
      specmeter run mine.yaml --variant small --variant quick

    \b
    Exit codes: 0 every request was measured, 1 checks found numbers invalid, 2 the experiment or a model cannot be
    used, 3 the engine failed for some requests, 130 interrupted (run again to resume).
    """
    from specmeter.experiments.file import load
    from specmeter.show.terminal.console import errors

    loaded = load(experiment, overrides, variants=(*(("faithful",) if faithful else ()), *variants))
    from specmeter.probe.files import load_probe
    from specmeter.show.terminal.probe import warn_of_suspect

    probes = [(file.name, load_probe(file)) for file in probe_files]
    for name, probe in probes:
        warn_of_suspect(probe, name)
    if dry_run:
        if out is not None and out.exists():
            ctx.fail(f"--dry-run writes nothing, but --out {out} exists already; leave one of them out")
        from specmeter.laboratory.plan import make_plan
        from specmeter.show.terminal.plan import print_plan

        print_plan(make_plan(loaded, offline=offline), as_json=as_json)
        return 0

    from specmeter.laboratory.plan import too_few
    from specmeter.laboratory.run import choose_folder, foresee, prepare
    from specmeter.show.terminal.progress import model_progress
    from specmeter.show.terminal.run import print_run
    from specmeter.show.terminal.verdicts import print_findings

    screen = errors()
    with model_progress(screen) as progress:
        prepared = prepare(loaded, offline=offline, progress=progress)
    asked = prepared.experiment
    folder, resumed = choose_folder(asked.name, asked.model_dump_json(), out=out, new=new)
    print_findings(screen, foresee(prepared), notes=False)
    for warning in too_few(prepared.experiment, list(prepared.work.arms.values())):
        screen.say(f"warning: {warning}", tone="doubtful")
    try:
        state = measure_shown(prepared, folder, resumed, screen, probes)
    except KeyboardInterrupt:
        screen.say(f"stopped; the same command resumes {folder}", wrap=False)
        raise
    verdict = print_run(folder, as_json=as_json, everything=details)
    if state.state != "complete":
        screen.say(f"{state.failed} of {state.planned} requests failed; the same command tries them again")
        return 3
    return 1 if verdict == "invalid" else 0


def measure_shown(
    prepared: Prepared, folder: Path, resumed: bool, screen: Screen, probes: Sequence[tuple[str, Probe]] = ()
) -> RunState:
    """Measure with progress on `screen`; Ctrl-C passes through, and polite requests to end do as it does."""
    from specmeter.laboratory.run import run
    from specmeter.show.terminal.interim import MOST_REQUESTS
    from specmeter.show.terminal.progress import RunProgress
    from specmeter.store import RequestKey, RunStore

    missing = [RequestKey(*key) for key in prepared.work.keys()]  # noqa: SIM118
    total = len(missing)
    before: list[RequestRow] = []
    if resumed:
        with RunStore.open(folder, readonly=True) as store:
            missing = store.missing()
            before = list(islice(store.rows(), MOST_REQUESTS))

    def say_what_is_left() -> None:
        verb = "resuming" if resumed else "measuring"
        text = f"{verb} {len(missing)} of {total} requests into {folder}"
        if not missing:
            text = f"nothing left to measure: all {total} requests are in {folder}; checking them"
        screen.say(text, wrap=False)

    observer = RunProgress(prepared.work, missing, total, screen, before)
    stop_like_ctrl_c()
    with observer.shown():
        return run(prepared, folder, observer, probes=probes, opened=say_what_is_left)


def stop_like_ctrl_c() -> None:
    """A polite request to end (`kill`, a closed terminal, a shutdown) leaves the run as Ctrl-C does."""
    import signal

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), interrupt)


@contextmanager
def undisturbed() -> Generator[None]:
    """Another Ctrl-C does nothing meanwhile: for the few milliseconds in which the first one is told about."""
    import signal

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

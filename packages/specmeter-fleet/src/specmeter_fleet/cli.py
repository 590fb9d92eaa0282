"""`specmeter fleet`."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout, suppress
from importlib.resources import files
from pathlib import Path

import click

from specmeter.advise.advice import read_advice
from specmeter.cli.settings import language_option
from specmeter.cli.streams import stop_like_ctrl_c
from specmeter.errors import StoreError, UsageError
from specmeter.experiments.file import LoadedExperiment, load, load_text
from specmeter.files import locked_at_once
from specmeter.laboratory.cautions import too_few
from specmeter.probe.files import plain_name
from specmeter.show import run_report
from specmeter.show.page.files import write_text
from specmeter.show.page.page import report_page
from specmeter.show.terminal.console import Screen, errors
from specmeter.show.terminal.report import print_report
from specmeter.store import RunStore
from specmeter.store.environment import environment_of
from specmeter.store.locate import ADVICE_NAME, RUNS_FOLDER, new_folder
from specmeter.store.run import EXPERIMENT_NAME
from specmeter.text import duration
from specmeter.validity.inspection import certify_run
from specmeter_fleet import report, worker
from specmeter_fleet.cluster import Cluster, refuse_no_ray
from specmeter_fleet.head import Design, FleetRecord, Head, begun, read_record, shipped
from specmeter_fleet.merge import Part, merge
from specmeter_fleet.spec import of_cluster, read_fleet
from specmeter_fleet.spread import spreads

BESIDE = ".fleet"
"""How the folder beside a merged run ends that has its parts."""


@click.group(name="fleet")
def command() -> None:
    """Measure one experiment on several machines.

    \b
    Examples:
      specmeter fleet run demo --on local:2
      specmeter fleet show specmeter-runs/demo-20261128-001500
    """


@command.command(name="run")
@click.argument("experiment")
@click.option(
    "--on", required=True, metavar="FLEET", help="Machines: fleet.yaml, ray://HEAD:10001, auto, local:N or slurm."
)
@click.option(
    "--design",
    type=click.Choice(["replicate", "survey"]),
    default="replicate",
    show_default=True,
    help="One sample of equal machines, or a comparison of different ones.",
)
@click.option(
    "--variant", "variants", multiple=True, metavar="NAME", help="Apply this variant; repeatable, later ones win."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a key of the file, after variants; repeatable."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the merged run. Default: a new one under specmeter-runs/.",
)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Also write a page about the machines.")
@click.option("--watch", is_flag=True, help="Show progress in the browser (local, or with a shared folder).")
@language_option
@click.option("--quiet", is_flag=True, help="Print only results and errors, no progress.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def run(
    experiment: str,
    on: str,
    design: Design,
    variants: tuple[str, ...],
    overrides: tuple[str, ...],
    out: Path | None,
    html: Path | None,
    watch: bool,
    languages: Sequence[str],
    quiet: bool,
    as_json: bool,
) -> int:
    """Measure EXPERIMENT on every machine of a fleet, and merge the results into one run.

    EXPERIMENT may be the folder of an advice: its confirmation is then repeated. Every device measures all
    configurations and blocks, with nothing else running on it. If every device has one session, the intervals of the
    merged run apply to this kind of machine. `show`, `check`, `report`, `export` and `compare` read it like any run;
    OUT.fleet keeps the parts. If a machine is lost, the same command continues with the rest.

    \b
    Examples:
      specmeter fleet run demo --on local:2
      specmeter fleet run mine.yaml --on fleet.yaml
      specmeter fleet run specmeter-runs/advice-big-20261128-101500 --on fleet.yaml
      specmeter fleet run mine.yaml --on ray://head:10001 --design survey --html machines.html
      specmeter fleet run mine.yaml --on slurm > job.sh

    Exit codes: 0 valid, 1 numbers are invalid, 2 wrong input, 3 some parts or requests failed, 130 interrupted.
    """
    screen = errors(quiet=quiet)
    confirmed, named = _confirmed(experiment)
    loaded = load(confirmed, (*named, *overrides), variants=variants)
    if on == "slurm":
        given: dict[str, Sequence[object]] = {
            "--variant": variants,
            "--set": overrides,
            "--html": [html] if html else [],
        }
        given["--lang"] = languages if len(languages) == 1 else []
        argv = [experiment, "--on", "auto", "--design", design, "--out", str(out or "fleet-result")]
        argv += [str(it) for option, values in given.items() for value in values for it in (option, value)]
        argv += [f"--{name}" for name, asked in (("watch", watch), ("quiet", quiet), ("json", as_json)) if asked]
        script = files("specmeter_fleet").joinpath("job.sh").read_text("utf-8")
        click.echo(script.replace("COMMAND", shlex.join(argv)), nl=False)
        return 0
    fleet = read_fleet(on)
    refuse_no_ray()
    stop_like_ctrl_c()
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(sys.stderr))  # Ray prints there what its workers die of
        if isinstance(fleet, str):
            cluster = Cluster(fleet)
            stack.callback(cluster.close)
            fleet = of_cluster(fleet, cluster.resources())
        else:
            cluster = None
        asked = loaded.experiment.design.invocations
        count = asked if asked > 1 or design == "survey" else len(fleet.devices)
        sent, prompts = shipped(loaded, count)
        merged = out or _unfinished(sent, design) or new_folder(sent.experiment.name)
        folder = merged.with_name(merged.name + BESIDE)
        if merged.exists() and any(merged.iterdir()) and not folder.is_dir():
            raise StoreError(f"{merged}: not empty, and not a fleet run", fix="give a new folder with --out")
        is_new = not folder.exists()
        stack.enter_context(_locked(folder))
        record = begun(folder, design, sent, fleet)
        if not _is_done(record):
            for warning in too_few(sent.experiment, sent.experiment.expand()):
                screen.say(f"warning: {warning}", tone="doubtful")
            screen.say(f"{sum(it.done is not None for it in record.parts)} of {len(record.parts)} parts are done")
            if cluster is None:
                cluster = Cluster(fleet.address, fleet)
                stack.callback(cluster.close)
            head = Head(cluster, fleet, sent, prompts, folder, record, lambda text: screen.say(text, wrap=False))
            if watch:
                from specmeter.cli.serve import watching

                stack.enter_context(watching(record.base(folder) / "any", screen))
            try:
                head.greet()
                head.measure(_progress(screen))
            except KeyboardInterrupt:
                screen.say(f"stopped; the same command resumes {folder}", wrap=False)
                raise
            except UsageError:
                if is_new and not any(part.attempts for part in head.record.parts):
                    shutil.rmtree(folder, ignore_errors=True)
                raise
            record = head.record
            cluster.close()
        places = record.places(folder)
        if design == "replicate" and places:
            _merge(sent, record, places, merged, folder)
    return _tell(record, merged, folder, places, html, languages, as_json=as_json)


@command.command(name="show")
@click.argument("folder", type=click.Path(path_type=Path), metavar="RUN")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Also write a page about the machines.")
@language_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(folder: Path, html: Path | None, languages: Sequence[str], as_json: bool) -> int:
    """Show how the machines of a fleet run differ. RUN is the merged run, next to RUN.fleet.

    \b
    Example:
      specmeter fleet show specmeter-runs/demo-20261128-001500
    """
    merged = folder.with_name(folder.name.removesuffix(BESIDE))
    beside = merged.with_name(merged.name + BESIDE)
    record = read_record(beside)
    if record is None:
        raise StoreError(f"{folder}: not a fleet run", fix="give a folder made by `specmeter fleet run`")
    return _tell(record, merged, beside, record.places(beside), html, languages, as_json=as_json)


def _confirmed(named: str) -> tuple[str, tuple[str, ...]]:
    """The experiment that is meant, and what it is called: of an advice that of its confirmation."""
    folder = Path(named)
    if not (folder / ADVICE_NAME).is_file():
        return named, ()
    if not (stage := read_advice(folder).confirmation):
        raise UsageError(f"{named}: an advice without a confirmation", fix="finish it, or give an experiment")
    return str(folder / stage / EXPERIMENT_NAME), (f"name={plain_name(str(folder.resolve()))}",)


def _unfinished(sent: LoadedExperiment, design: Design) -> Path | None:
    """The run of the same experiment that was begun last and is not done."""
    for folder in sorted(RUNS_FOLDER.glob(f"{sent.experiment.name}-*{BESIDE}"), reverse=True):
        with suppress(StoreError):
            record = read_record(folder)
            same = record is not None and (record.experiment, record.design) == (sent.text, design)
            if record is not None and same and not _is_done(record):
                return folder.with_name(folder.name.removesuffix(BESIDE))
    return None


def _is_done(record: FleetRecord) -> bool:
    return bool(record.devices) and all(part.done is not None and part.done.code != 3 for part in record.parts)


def _locked(folder: Path) -> ExitStack:
    stack = ExitStack()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stack.enter_context(locked_at_once(folder / "fleet.lock"))
    except BlockingIOError:
        raise StoreError(f"{folder}: in use by another process", fix="wait for it, or give another --out") from None
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written ({error.strerror})", fix="give another folder") from None
    return stack


def _progress(screen: Screen) -> Callable[[Mapping[str, worker.Said]], None]:
    said: dict[str, int] = {}
    told: dict[str, str] = {}

    def tell(now: Mapping[str, worker.Said]) -> None:
        for part, done in now.items():
            tenth = 10 * done["done"] // max(1, done["planned"])
            if said.get(part, 0) < tenth < 10:
                left = f", about {duration(done['left'])} left" if done["left"] else ""
                screen.say(f"{part}: {done['done']} of {done['planned']} requests{left}", wrap=False)
            said[part] = max(said.get(part, 0), tenth)
            if (text := done["said"]) and text != told.get(part):
                screen.say(f"{part}: {text}", wrap=False)
            told[part] = text

    return tell


def _merge(sent: LoadedExperiment, record: FleetRecord, places: Mapping[str, Path], merged: Path, folder: Path) -> None:
    """Make the merged run of all parts that there are, and certify it; what was there before is replaced."""
    parts = [
        Part(places[part.name], part.done.device, part.invocation)
        for part in record.parts
        if part.done is not None and part.invocation is not None
    ]
    few = len(parts) < len(record.parts)
    only = [f"only.invocations={[part.invocation for part in parts]}"] if few else []
    loaded = load_text(sent.text, sent.source, sent.base_dir, only)
    made = folder / "merged"
    shutil.rmtree(made, ignore_errors=True)
    merge(parts, made, experiment_yaml=loaded.text, experiment_json=loaded.experiment.model_dump_json())
    with RunStore.open(made) as store:
        store.write_environment(environment_of(store))
        certify_run(store, measured_now=True)
    if merged.exists():
        shutil.rmtree(merged)
    made.rename(merged)


def _tell(
    record: FleetRecord,
    merged: Path,
    folder: Path,
    places: Mapping[str, Path],
    html: Path | None,
    languages: Sequence[str],
    *,
    as_json: bool,
) -> int:
    if not places:
        raise UsageError(f"{folder}: nothing was measured", fix="fix the errors above, and run it again")
    if record.design == "survey":
        said = report.survey(record, folder, places)
        verdicts: set[str | None] = set()
    else:
        measured, found = spreads(merged)
        if not as_json:
            print_report(run_report.report(measured))
        said = report.replicate(record, merged, measured, found)
        verdicts = {None if measured.certificate is None else measured.certificate.verdict}
    print_report(said, as_json=as_json)
    if html is not None:
        write_text(html, report_page(said, languages))
        errors().say(str(html), wrap=False)
    if any(part.done is None or part.done.code == 3 for part in record.parts):
        return 3
    return 1 if "invalid" in verdicts else 0

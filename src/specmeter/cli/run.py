"""The command `specmeter run`."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specmeter.analysis.answer import least_units
from specmeter.analysis.reading import Measured, read_run
from specmeter.cli.settings import (
    ENGINE_GROUP,
    MODEL_HELP,
    OUT_HELP,
    GroupedCommand,
    Heading,
    addresses,
    draft_option,
    dry_run_option,
    hub_option,
    json_option,
    load_by,
    load_options,
    naming_options,
    new_option,
    offline_option,
    prompts_option,
    quiet_option,
    refuse_hub,
    sessions_option,
    set_by,
    setting_options,
    turns_option,
    url_options,
    variant_option,
)
from specmeter.cli.streams import stop_like_ctrl_c
from specmeter.cli.usage import Number, Numbers
from specmeter.engines.registry import spec_of
from specmeter.errors import ModelError, UsageError
from specmeter.experiments.described import Described, refuse_bad_prompts, refuse_engine
from specmeter.experiments.experiment import Experiment
from specmeter.experiments.file import MAX_BYTES, LoadedExperiment, load
from specmeter.files import is_link, open_regular, write_whole
from specmeter.laboratory.cautions import queueing, self_drafting, swapped, too_few
from specmeter.laboratory.run import Prepared, choose_folder, predict_findings, prepare, run
from specmeter.models.reference import Fetching, check_path, made_of, means_a_model, origin_of
from specmeter.show.run_report import found, report
from specmeter.show.terminal.console import JsonScreen, Screen, errors, output, say_json
from specmeter.show.terminal.progress import RunProgress, model_progress
from specmeter.show.terminal.report import print_blocks, print_report
from specmeter.store import RunStore
from specmeter.text import counted

if TYPE_CHECKING:
    from specmeter.probe.record import Probe


def _schema(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked:
        return
    say_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **Experiment.model_json_schema()})
    ctx.exit()


def _example(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked:
        return
    text = (resources.files("specmeter.experiments") / "demo.yaml").read_text(encoding="utf-8")
    output().say_all(text.splitlines(), wrap=False)
    ctx.exit()


_GROUPS = {
    Heading.CANDIDATES: ("targets", "twins", "drafts", "gamma", "ngram", "methods"),
    Heading.EXPERIMENT: ("variants", "faithful", "overrides", "save", "schema", "example"),
    Heading.PROMPTS: ("prompts", "sessions", "turns"),
    Heading.AMOUNT: ("blocks", "max_tokens"),
    Heading.LOAD: ("clients", "rate", "depth", "slo_ttft", "slo_tpot"),
    Heading.SERVERS: ("urls", "baseline_url"),
    **ENGINE_GROUP,
    Heading.FOLDER: ("out", "new"),
    Heading.DISPLAY: ("dry_run", "quiet", "progress_as", "watch", "details", "as_json"),
}


@click.command(name="run", cls=GroupedCommand, groups=_GROUPS)
@click.argument("what", nargs=-1, metavar="EXPERIMENT|TARGET...")
@click.option("-m", "--model", "targets", multiple=True, metavar="MODEL", help=MODEL_HELP)
@draft_option("A draft model; repeatable.")
@click.option(
    "--gamma",
    "--spec-draft-n-max",
    "--draft-max",
    "--draft-n",
    "gamma",
    type=Numbers(Number(1, 1024), "2,4,8"),
    help="Draft lengths. Default: 2,4,8.",
)
@click.option(
    "--twin",
    "twins",
    multiple=True,
    metavar="ExK",
    help="Also an MoE twin of each target: 16x2 has 16 experts, 2 active; dense2 is its dense control. Repeatable.",
)
@click.option("--ngram", is_flag=True, help="Also try n-grams of 6 tokens, which need no draft model.")
@click.option(
    "--method",
    "--spec-type",
    "methods",
    multiple=True,
    metavar="METHOD",
    help="Drafting method, by the engine's name; repeatable. Default: draft-simple, or the engine's own.",
)
@prompts_option
@sessions_option
@turns_option
@load_options
@url_options("Measure a running server")
@hub_option
@setting_options(repeats=True)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write these options as an experiment file.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help=OUT_HELP,
)
@variant_option
@click.option(
    "--faithful",
    is_flag=True,
    help="Measure in the original study's order; short for --variant faithful.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a key of the file, after variants; repeatable.",
)
@dry_run_option
@new_option
@offline_option
@click.option(
    "--probe",
    "probe_files",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Predict from this probe before measuring; repeatable. Default: the newest that fits.",
)
@quiet_option
@click.option(
    "--progress",
    "progress_as",
    type=click.Choice(["text", "json"]),
    default="text",
    help="json: one JSON object per line on stderr.",
)
@click.option("--watch", is_flag=True, help="Show progress in the browser (see `serve`).")
@click.option("--details", is_flag=True, help="Print all results, as `show --details` does.")
@json_option
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_schema,
    help="Print the keys of experiment files as JSON Schema.",
)
@click.option(
    "--example",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_example,
    help="Print an example file.",
)
@click.pass_context
def command(
    ctx: click.Context,
    what: tuple[str, ...],
    targets: tuple[str, ...],
    twins: tuple[str, ...],
    drafts: tuple[str, ...],
    gamma: tuple[int, ...] | None,
    ngram: bool,
    methods: tuple[str, ...],
    prompts: tuple[str, ...],
    sessions: tuple[str, ...],
    turns: int | None,
    urls: tuple[str, ...],
    baseline_url: str | None,
    hub: tuple[str, ...],
    save: Path | None,
    out: Path | None,
    variants: tuple[str, ...],
    faithful: bool,
    overrides: tuple[str, ...],
    dry_run: bool,
    new: bool,
    offline: bool,
    probe_files: tuple[Path, ...],
    quiet: bool,
    progress_as: str,
    watch: bool,
    details: bool,
    as_json: bool,
    **settings: Any,
) -> int:
    """Run an experiment, or resume it.

    EXPERIMENT is a bundled name or a YAML file. TARGET is a model: a GGUF file, hf:OWNER/REPO/FILE.gguf, bench:NAME, or
    mock:NAME of the mock engine; options have llama.cpp's names where it has them.

    Every request is on disk before it is reported (under a load: every cell). After Ctrl-C, a crash or a power cut
    the same command measures what is missing.

    \b
    Examples:
      specmeter run demo
      specmeter run big.gguf --draft small.gguf
      specmeter run big.gguf --draft small.gguf --gamma 2,4,8 --ngram --prompts mine.txt --save mine.yaml
      specmeter run big.gguf --draft small.gguf --gamma 4 --clients 1,2,4,8
      specmeter run dense.gguf --twin 16x2 --ngram
      specmeter run --url http://127.0.0.1:8080 --baseline-url http://127.0.0.1:8081
      specmeter run mine.yaml --dry-run
      specmeter run mine.yaml --set design.blocks=5 --set arms.0.gamma=[2,4,8]
      specmeter run mine.yaml --out results/monday
      specmeter run mine.yaml --variant small --variant quick
      specmeter run --example > mine.yaml
      specmeter run --schema > experiment.schema.json

    \b
    To have an editor check and complete a file, begin it with
      # yaml-language-server: $schema=experiment.schema.json
    """
    refuse_hub(hub)
    clients, lengths = load_by(settings), gamma or ()
    described = Described(_with_twins((*what, *targets), twins), drafts, methods, lengths, ngram, settings["engine"])
    described = replace(described, prompts=prompts, load=clients)
    described = replace(described, sessions=sessions, turns=turns or described.turns)
    described = replace(described, servers=_servers(described, settings, urls, baseline_url))
    changes = (*set_by(settings), *overrides)
    variants = (*(("faithful",) if faithful else ()), *variants)
    with naming_options(settings, overrides):
        loaded = _loaded(described, what, changes, variants, save)
    screen = JsonScreen(quiet=quiet) if progress_as == "json" else errors(quiet=quiet)
    if save is not None:
        screen.say(f"experiment saved: {save}", wrap=False)
    probes = _probes(screen, probe_files)
    if dry_run:
        from specmeter.laboratory.plan import make_plan
        from specmeter.show.terminal.plan import print_plan

        if out is not None and out.exists():
            raise UsageError(f"--out {out}: exists, and --dry-run writes nothing", fix="leave one of them out")
        print_plan(make_plan(loaded, offline=offline), as_json=as_json)
        return 0

    with model_progress(screen) as progress:
        prepared = prepare(loaded, fetching=Fetching(offline, progress))
    folder, resumed = choose_folder(prepared.experiment.name, prepared.experiment.model_dump_json(), out=out, new=new)
    _warn(screen, prepared)
    if not (quiet or resumed or prepared.work.simulated):
        from specmeter.laboratory.plan import make_plan
        from specmeter.show.terminal.plan import print_duration

        print_duration(screen, make_plan(prepared.loaded, offline=True))
    certified = list[Measured]()
    wait: Callable[[], None] | None = None
    if watch:
        from specmeter.cli.serve import watching

        wait = ctx.with_resource(watching(folder, errors() if quiet else screen))
    try:
        with shown_on(screen, folder, resumed) as (observer, opened):
            state = run(prepared, folder, observer, probes=probes, opened=opened, certified=certified.append)
    except KeyboardInterrupt:
        screen.say(f"stopped; the same command resumes {folder}", wrap=False)
        raise
    passes = _answer(folder, *certified, as_json=as_json, details=details)
    if state.state != "complete":
        screen.say(f"{state.failed} of {state.planned} requests failed; the same command retries them")
    if wait is not None:
        wait()
    if state.state != "complete":
        return 3
    return 0 if passes else 1


def _with_twins(targets: Sequence[str], forms: Sequence[str]) -> Sequence[str]:
    """Each model, with its twins behind it."""
    if not forms:
        return targets
    from specmeter.models import twin

    if others := [it for it in targets if not means_a_model(it)]:
        raise UsageError(f"--twin: {others[0]} is an experiment", fix="write twin:16x2:MODEL among its targets")
    if not targets:
        raise UsageError("--twin: no dense model given", fix="name one, for example model.gguf --twin 16x2")
    found: list[str] = []
    for target in targets:
        found.append(target)
        for form in forms:
            try:
                found.append(twin.parse(f"{twin.PREFIX}{form}:{target}").reference)
            except ModelError as error:
                fix = "write --twin 16x2, 16x2?router=uniform, or dense2"
                raise UsageError(f"--twin {form[:80]}: {error.message}", fix=fix) from None
    return found


def _probes(screen: Screen, files: Sequence[Path]) -> list[tuple[str, Probe]]:
    """The probes in some files, with what is to be minded about them."""
    if not files:
        return []
    from specmeter.probe.files import load_probe
    from specmeter.show import probe_report

    probes = [(file.name, load_probe(file)) for file in files]
    for name, probe in probes:
        screen.say_all(probe_report.warnings(probe, name), wrap=False)
    return probes


def _warn(screen: Screen, prepared: Prepared) -> None:
    """Say what the checks expect to find, and what an experiment like this cannot show."""
    print_blocks(screen, found(predict_findings(prepared), with_notes=False))
    arms, models = list(prepared.work.arms.values()), prepared.work.models
    warnings = (*swapped(arms, models), *self_drafting(arms, models), *queueing(arms))
    for warning in (*warnings, *too_few(prepared.experiment, arms)):
        screen.say(f"warning: {warning}", tone="doubtful")


def _answer(folder: Path, just: Measured | None = None, *, as_json: bool, details: bool) -> bool:
    """Print a run; whether it is not invalid."""
    measured = read_run(folder, just=just)
    print_report(report(measured, details=details), as_json=as_json, details=details)
    return measured.certificate is None or measured.certificate.verdict != "invalid"


_STARTED_WITH = {
    "-t": "threads",
    "-ngl": "gpu_layers",
    "-ngld": "draft_gpu_layers",
    "-fa": "flash_attn",
    "-ctk": "cache_type_k",
    "-ctv": "cache_type_v",
    "--binary": "binary",
}
"""Options that a server has been started with, by their names among the settings."""


def _servers(
    described: Described, settings: dict[str, Any], urls: Sequence[str], baseline_url: str | None
) -> dict[str, Any]:
    """The servers that are given; none if there are none. Raises `UsageError` for what only those can be told that
    specmeter starts."""
    if not urls:
        if baseline_url is not None:
            raise UsageError("--baseline-url: no other server to compare with", fix="add the other server with --url")
        return {}
    given = {
        "--draft": described.drafts,
        "--gamma": described.gamma,
        "--ngram": described.ngram,
        "--method": described.methods,
    } | {option: settings[name] is not None for option, name in _STARTED_WITH.items()}
    if told := [option for option, value in given.items() if value]:
        raise UsageError(
            f"{', '.join(told)}: cannot be set on a running server",
            fix="leave it out, and start the server with it",
        )
    first, *others = addresses(urls)
    found: dict[str, Any] = {"url": first} | ({"others": others} if others else {})
    return found if baseline_url is None else found | {"baseline_url": addresses([baseline_url], "--baseline-url")[0]}


def _loaded(
    described: Described, what: Sequence[str], changes: Sequence[str], variants: Sequence[str], save: Path | None
) -> LoadedExperiment:
    """The experiment that is named, or that is described by its models."""

    if described.servers:
        return _described(described, changes, variants, save)
    if not described.targets:
        raise UsageError("run: no experiment or model given", fix="write `specmeter run demo`, or give a GGUF file")
    others = [it for it in what if not means_a_model(it)]
    if not others:
        return _described(described, changes, variants, save)
    if len(described.targets) > 1:
        raise UsageError(
            f"{others[0]}: not a model, and {counted(len(described.targets), 'name')} are given",
            fix="give one experiment, or only models (GGUF files, hf:..., bench:... or mock:...)",
        )
    options = {
        "--draft": described.drafts,
        "--gamma": described.gamma,
        "--ngram": described.ngram,
        "--method": described.methods,
        "--prompts": described.prompts,
        "--sessions": described.sessions,
        "--clients, --rate, --depth": described.load,
        "--save": save,
    }
    if given := [option for option, value in options.items() if value]:
        raise UsageError(
            f"{', '.join(given)}: only for models, and {others[0]} is an experiment",
            fix="use --set, for example --set arms.0.gamma=[2,4,8] or --set load.clients=[1,4]; or give a GGUF file",
        )
    return load(others[0], changes, variants=variants)


def _described(
    described: Described, changes: Sequence[str], variants: Sequence[str], save: Path | None
) -> LoadedExperiment:
    from specmeter import workloads
    from specmeter.models import bench, twin

    if variants:
        raise UsageError("--variant: models have no variants", fix="leave it out, or give an experiment")
    refuse_bad_prompts(described.prompts)
    kept = None if save is None else _kept(save)
    keys = described.keys(Path() if save is None else save.parent)
    references = (*described.targets, *described.drafts)
    first = load(described.keys(), changes).experiment
    refuse_engine(first.engine.kind, references)
    if spec_of(first.engine.kind).traits.model_formats:
        for reference in {*references} & {*first.targets.values(), *first.drafts.values()}:
            if origin_of(reference) == "twin":
                twin.parse(reference)
            dense = made_of(reference)
            if (origin := origin_of(dense)) == "path":
                check_path(dense, Path())
            elif origin == "bench":
                bench.parse(dense)
    arms = first.expand()
    most = max(sum(arm.target == target and arm.speculates for arm in arms) for target in {arm.target for arm in arms})
    changes = (f"design.blocks={least_units(most)}", *changes)
    loaded = load(keys, changes)
    if save is None:
        return loaded
    files = [spec for spec in loaded.experiment.workloads if not workloads.needs_tokenizer(spec)]
    workloads.load(files, base_dir=save.parent.absolute())  # what is saved can be run
    if kept not in (None, loaded.text.encode()):
        raise UsageError(f"--save {save}: exists, with another experiment", fix="give another file, or remove it")
    try:
        write_whole(save, loaded.text.encode())
    except OSError as error:
        raise UsageError(f"--save {save}: cannot be written ({error.strerror})", fix="give another file") from None
    return load(str(save.absolute()))


def _kept(save: Path) -> bytes | None:
    """What a file to save an experiment in holds already, None where there is none.

    Raises `UsageError` for a name that `run` would not read as an experiment, and for what is not a regular file.
    """
    if save.suffix.lower() not in {".yaml", ".yml"}:
        named = "an empty name" if save == Path() else f"{save}"
        raise UsageError(
            f"--save: {named} does not end in .yaml",
            fix="write --save mine.yaml, for example",
        )
    try:
        with open_regular(save) as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        if is_link(save):
            raise UsageError(f"--save {save}: a broken link", fix="give another file, or remove it") from None
        return None
    except OSError as error:
        raise UsageError(f"--save {save}: {error.strerror}", fix="give another file") from None


@contextmanager
def shown_on(screen: Screen, folder: Path, resumed: bool) -> Generator[tuple[RunProgress, Callable[[RunStore], None]]]:
    """Progress of a run on `screen`: its observer, and what says how much is left, to be called when the folder is
    open. Ctrl-C passes through, and polite requests to end do as it does."""
    observer = RunProgress(folder, screen)
    stop_like_ctrl_c()
    with observer.shown():
        yield observer, lambda store: observer.opened(store, resumed=resumed)


@contextmanager
def undisturbed() -> Generator[None]:
    """Another Ctrl-C does nothing while the interrupt message is printed."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

"""Runs an experiment from beginning to end: resolves models, chooses the folder, measures, and closes in order."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmeter import workloads
from specmeter.analysis.prediction.forecast import Forecaster, refuse_misfit
from specmeter.engines import Engine, EngineSession, Launch, load_engine
from specmeter.engines.registry import own_options, spec_of
from specmeter.engines.warm_servers import WarmServerPool
from specmeter.errors import (
    EngineStartError,
    ExperimentError,
    SpecmeterError,
    StoreError,
    interruptible,
    no_stop_becomes_an_error,
)
from specmeter.experiments import schedule
from specmeter.experiments.cells import first_pass, prompts_under
from specmeter.experiments.file import LoadedExperiment, parse
from specmeter.experiments.schedule import Cell
from specmeter.host.limits import allow_open_files
from specmeter.laboratory.fitting import fitted, most_tokens
from specmeter.measure import Observer, Predictor, Work, measure, needed
from specmeter.models import preflight
from specmeter.models.reference import OFFLINE, ONLINE, Fetching, absent_models, locate, refuse_absent, resolve
from specmeter.record import Arm, DraftPair, EngineIdentity, EngineTraits, Finding, Host, ModelIdentity, Prompt
from specmeter.store import RunIdentity, RunState, RunStore
from specmeter.store.environment import environment_of
from specmeter.store.locate import RUNS_FOLDER, find_runs, new_folder
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.inspection import certify_run, refuse_changed_data
from specmeter.validity.inspection import predict_findings as look
from specmeter.workloads.spec import FileWorkload, LengthWorkload, RandomWorkload
from specmeter.workloads.texts import Tokenizer

if TYPE_CHECKING:
    from specmeter.analysis.reading import Measured
    from specmeter.experiments.experiment import Experiment
    from specmeter.models.reference import AbsentModel
    from specmeter.probe.record import Probe
    from specmeter.store import RunReader

NextCells = Callable[[RunStore], Sequence[Cell] | None]

_OTHER_FILES = 128
"""Open files beside those of clients: run folder, logs, libraries."""


@dataclass(frozen=True)
class Prepared:
    """An experiment whose models, prompts and engine are at hand."""

    loaded: LoadedExperiment
    work: Work
    engine: Engine
    identity: EngineIdentity
    pairs: tuple[DraftPair, ...] = ()
    """How each draft goes with its target; none where the engine names models in its own way."""

    @property
    def experiment(self) -> Experiment:
        return self.work.experiment

    @cached_property
    def host(self) -> Host:
        """The machine now; looking for busy programs takes half a second, so it is read once per start."""
        from specmeter.host.machine import read_host

        kind = self.experiment.engine.kind
        return read_host(ours=spec_of(kind).running(own_options(kind, self.experiment.engine.own_options)))


def prepare(
    loaded: LoadedExperiment,
    *,
    fetching: Fetching = ONLINE,
    leave_out: Collection[str] = (),
) -> Prepared:
    """Expand the experiment, bring its models here, check them, and load its prompts.

    Arms in `leave_out` are no part of the run, nor are models that only they use. Raises `ExperimentError`,
    `ModelError` or `EngineError`; nothing has been measured or written to a run folder.
    """
    arms = tuple(arm for arm in loaded.experiment.expand() if arm.id not in leave_out)
    engine, identity, traits = engine_for(loaded.experiment, arms)
    files = [it for it in loaded.experiment.workloads if isinstance(it, FileWorkload)]
    workloads.load(files, base_dir=loaded.base_dir)  # refused before a model is made or downloaded
    models = resolve_models(loaded, arms, fetching)
    pairs = preflight.check(arms, models, loaded.experiment.engine.kind, fits=False)  # its context is not known yet
    loaded = fit(loaded, models, OFFLINE)
    experiment = loaded.experiment
    arms = tuple(arm for arm in experiment.expand() if arm.id not in leave_out)
    if "gguf" in traits.model_formats:
        preflight.refuse_too_large(arms, models)
    prompts = _prompts(loaded, arms, models, engine)
    work = Work(experiment, {arm.id: arm for arm in arms}, models, prompts, _cells(experiment, arms), traits)
    return Prepared(loaded, work, engine, identity, pairs)


def part_of(prepared: Prepared, experiment: Experiment) -> Prepared:
    """The part of a prepared experiment that `experiment`, the same with another design or `only` some of its arms and
    prompts, measures: with the models, prompts and engine that are at hand already. Raises `ExperimentError`."""
    work = prepared.work
    if experiment.engine.context is None:
        experiment = experiment.with_context(work.experiment.engine.context)
    arms = experiment.expand()
    return replace(
        prepared,
        loaded=replace(prepared.loaded, value=experiment),
        work=replace(
            work,
            experiment=experiment,
            arms={arm.id: arm for arm in arms},
            models={name: work.models[name] for name in used_models(experiment, arms)},
            prompts={
                arm.id: prompts_under(experiment.chosen(first_pass(work.prompts[arm.id])), arm.load) for arm in arms
            },
            cells=_cells(experiment, arms),
        ),
        pairs=tuple(it for it in prepared.pairs if (it.target, it.draft) in {(arm.target, arm.draft) for arm in arms}),
    )


def _cells(experiment: Experiment, arms: Sequence[Arm]) -> tuple[Cell, ...]:
    """What is planned from the start: of a run that stops when it is decided, one block."""
    design, measured = experiment.design, frozenset(experiment.invocations)
    planned = schedule.plan(
        [arm.id for arm in arms],
        1 if design.stopping == "decided" else design.blocks,
        design.invocations,
        design.order,
        design.seed,
        first=[arm.id for arm in arms if arm.role == "baseline"],
    )
    return tuple(turn for turn in planned if turn.invocation in measured)


def working_engine(experiment: Experiment) -> tuple[Engine, EngineIdentity, EngineTraits]:
    """The engine, which says what it is; one that does not work at all says so now, before models are made for it.

    Raises `ExperimentError` or `EngineError`.
    """
    engine = load_engine(experiment.engine.kind, **experiment.engine.own_options)
    identity = engine.identify()
    return engine, identity, _stated(experiment.engine.kind, identity)


def engine_for(experiment: Experiment, arms: Sequence[Arm]) -> tuple[Engine, EngineIdentity, EngineTraits]:
    """The working engine, where it and this machine can measure the arms. Raises `ExperimentError` or `EngineError`."""
    for arm in arms:
        _refuse_too_long(experiment, arm)
    engine, identity, traits = working_engine(experiment)
    if not traits.simulated:
        from specmeter.laboratory.doctor import refuse_idle_gpu

        refuse_idle_gpu(experiment, engine)
        _refuse_too_many(arms)
    return engine, identity, traits


def _refuse_too_long(experiment: Experiment, arm: Arm) -> None:
    """Prompts of a length that is written in the experiment, and the text before them, have to fit into the context
    together with the answer, where one is given."""
    if arm.engine.context is None:
        return
    room, depth = arm.engine.slot_context, 0 if arm.load is None else arm.load.depth
    for spec in experiment.workloads if depth else ():
        if depth + (answer := most_tokens(experiment, spec)) >= room:
            raise ExperimentError(
                f"load.depth: {depth} tokens before each prompt of workload {spec.name!r} plus {answer} generated "
                f"tokens do not fit in the {room} tokens of {arm.id}",
                fix=f"set engine.context to {needed(arm, depth + answer)} plus the length of the prompts, or lower "
                "load.depth or max_tokens",
            )
    for spec in experiment.workloads:
        if isinstance(spec, LengthWorkload | RandomWorkload) and (not arm.workloads or spec.name in arm.workloads):
            longest, answer = max(spec.lengths), most_tokens(experiment, spec)
            if depth + longest + answer > room:
                raise ExperimentError(
                    f"engine.context: prompts of workload {spec.name!r} have {longest} tokens plus {answer} to "
                    f"generate, but {arm.id} has room for {room}",
                    fix=f"set engine.context to {needed(arm, depth + longest + answer)} or more, or lower lengths or "
                    "max_tokens",
                )


def _refuse_too_many(arms: Sequence[Arm]) -> None:
    """Each client has a connection, which is an open file here and one in the server."""
    clients = max((arm.load.clients or 0 for arm in arms if arm.load is not None), default=0)
    wanted = clients + _OTHER_FILES
    if clients and (allowed := allow_open_files(wanted)) < wanted:
        raise ExperimentError(
            f"load.clients: {clients} clients need {wanted} open files, but this system allows {allowed}",
            fix=f"raise the limit (`ulimit -n {wanted}`), or use fewer clients",
        )


def _stated(kind: str, identity: EngineIdentity) -> EngineTraits:
    """The traits of an engine, which have to be those that its identity keeps. Raises `EngineStartError`."""
    traits = spec_of(kind).traits
    if identity.kind != kind or identity.traits is None or not traits.stated_by(identity.traits):
        raise EngineStartError(
            f"engine.kind: {kind}: it reports another engine's identity, or other traits than it registered",
            fix="report this to its authors: `identify` must return its kind and traits",
        )
    return identity.traits


def resolve_models(
    loaded: LoadedExperiment, arms: Sequence[Arm], fetching: Fetching = ONLINE
) -> dict[str, ModelIdentity]:
    """Every model that some arm uses, by its name in the experiment; built or downloaded where needed.

    Raises one `ModelError` about all models that can be neither found nor fetched, before anything is fetched.
    """
    refuse_absent(absent(loaded, arms, offline=fetching.offline))
    engine = loaded.experiment.engine
    kind, own = spec_of(engine.kind), own_options(engine.kind, engine.own_options)
    found: dict[str, ModelIdentity] = {}
    for name, reference in used_models(loaded.experiment, arms).items():
        if kind.model is not None and not kind.traits.model_formats:
            found[name] = kind.model(own, name, reference)
            continue
        from specmeter.models.facts import read_header

        identity = resolve(name, reference, base_dir=loaded.base_dir, fetching=fetching)
        found[name] = identity.model_copy(update={"header": read_header(Path(identity.path))})
    return found


def fit(loaded: LoadedExperiment, targets: Collection[str], fetching: Fetching = ONLINE) -> LoadedExperiment:
    """The experiment with a context that the prompts of these targets fit into; see `fitting.fitted`."""

    @contextmanager
    def session(arm: Arm) -> Generator[EngineSession]:
        engine, _, _ = working_engine(loaded.experiment)
        target = resolve_models(loaded, [arm], fetching)[arm.target]
        with (
            tempfile.TemporaryDirectory(prefix="specmeter-") as scratch,
            engine.start(Launch(arm, target, None, Path(scratch) / "tokenizer.log")) as started,
        ):
            yield started

    files = dict.fromkeys(targets)
    if "gguf" in spec_of(loaded.experiment.engine.kind).traits.model_formats:
        known = loaded.experiment.targets
        files = {it: locate(known[it], base_dir=loaded.base_dir, fetching=fetching) for it in targets if it in known}
    return fitted(loaded, files, session)


def absent(
    loaded: LoadedExperiment, arms: Sequence[Arm], *, offline: bool = False, ask: bool = True
) -> tuple[AbsentModel, ...]:
    """Models of the arms that are not on this machine; see `absent_models`."""
    experiment = loaded.experiment
    if not spec_of(experiment.engine.kind).traits.model_formats:
        return ()
    keys = {name: f"targets.{name}" for name in experiment.targets}
    keys |= {name: f"drafts.{name}" for name in experiment.drafts}
    references = {keys[name]: reference for name, reference in used_models(experiment, arms).items()}
    sizes = {keys[name]: size for name, size in experiment.sizes.items() if name in keys}
    return absent_models(references, base_dir=loaded.base_dir, offline=offline, ask=ask, sizes=sizes)


def used_models(experiment: Experiment, arms: Sequence[Arm]) -> dict[str, str]:
    """Name -> reference of the models that the arms really use."""
    names = dict.fromkeys(name for arm in arms for name in (arm.target, arm.draft) if name is not None)
    return {name: (experiment.targets | experiment.drafts)[name] for name in names}


def predict_findings(prepared: Prepared) -> tuple[Finding, ...]:
    """What validity checks have to say about an experiment on this machine before anything is measured."""
    work = prepared.work
    return look(
        RunData(
            experiment=work.experiment,
            arms=work.arms,
            models=work.models,
            hosts=() if work.simulated else (prepared.host,),
            pairs={(pair.target, pair.draft): pair for pair in prepared.pairs},
            prompts={prompt.id: prompt for prompt in _distinct(work)},
            stated=work.traits,
        )
    )


def run(
    prepared: Prepared,
    folder: Path,
    observer: Observer,
    *,
    probes: Sequence[tuple[str, Probe]] = (),
    predictor: Predictor | None = None,
    opened: Callable[[RunStore], None] = lambda _: None,
    next_cells: NextCells | None = None,
    thorough: bool = True,
    certified: Callable[[Measured], None] = lambda _: None,
) -> RunState:
    """Measure what `folder` does not hold yet; create it if it is new. Then ask the target where texts differ, read the
    texts with the drafts, and the experts of MoE targets (all that only if `thorough`), check everything and certify
    it.

    The prediction for each arm is stored before the arm is measured. It comes from `predictor`, from `probes` (name and
    record), or from what else is known. `opened` gets the store once the folder can be used. `next_cells` is called
    when all planned cells were measured, before the checks: the cells that it returns are measured as well, and it is
    called again until it returns none. `certified` gets the summary and the hashes of the certificate. Raises
    `UsageError` for a probe of other models, and for a run whose blocks depend on what is measured if `next_cells` is
    missing.

    Engine failures end up in the records and in the state. Anything that stops the run early (Ctrl-C, a full disk,
    an engine that never starts) is passed on after the run folder has been left in order.
    """
    from specmeter.host.energy import EnergyMeter, EnergySources, find_sources
    from specmeter.validity.losslessness import measure_margins

    work, loaded = prepared.work, prepared.loaded
    if next_cells is None and work.experiment.design.stopping == "decided":
        raise ExperimentError(
            "design.stopping: decided: only `specmeter advise` and `specmeter study run` can add blocks depending on "
            "results",
            fix="set design.stopping to planned; to continue an advice, repeat its own command",
        )
    forecaster = _forecaster(prepared, probes) if predictor is None else predictor
    identity = RunIdentity(
        experiment=json.loads(work.experiment.model_dump_json()),
        engine=prepared.identity,
        models=tuple(work.models.values()),
        prompts=_distinct(work),
        arms=tuple(work.arms.values()),
    )
    with (
        interruptible(),
        _opened(folder, loaded, work, identity, more=next_cells is not None) as store,
        EnergyMeter(find_sources() if work.watched else EnergySources()) as meter,
        _servers(prepared) as engine,
    ):
        opened(store)
        if next_cells is None and store.is_settled():
            if store.certificate() is None:
                _certify(store, certified, measured_now=False)  # its end is past: nothing saw what became of it since
            return store.state()
        # The order lies in the folder: a run that is resumed continues as it was planned.
        work = replace(work, cells=store.cells())
        # A simulated run has no machine whose energy it could use; one with nothing left to measure uses none.
        meters: dict[str, object] = {}
        if work.watched:
            meters["power_meter"] = meter.facts() if store.state().state == "complete" else meter.at_rest()
        store.set_host(prepared.host.model_copy(update=meters))
        store.set_pairs(prepared.pairs)
        # Of a simulated run that answers one request at a time there is nothing to find out.
        looks = not work.simulated or any(arm.load for arm in work.arms.values())
        if isinstance(forecaster, Forecaster) and looks:
            from specmeter.laboratory.pre_measure import Scout

            host = None if work.simulated else prepared.host
            forecaster.scout = Scout(work, engine, store, host, tell=observer.looking_ahead)
        interrupted, reason = False, None
        try:
            with no_stop_becomes_an_error():
                measure(work, engine, store, observer, forecaster, meter)
                while next_cells is not None and (more := next_cells(store)):
                    further = replace(work, cells=more)
                    store.extend_plan(further.keys())
                    measure(further, engine, store, observer, forecaster, meter)
        except (KeyboardInterrupt, SystemExit):
            interrupted, reason = True, "interrupted"
            raise
        except SpecmeterError as error:
            reason = error.message
            raise
        finally:
            store.end(time.time(), interrupted=interrupted, reason=reason)
            store.write_environment(environment_of(store))
        if thorough:
            measure_margins(work, engine, store)
        if thorough and not work.simulated:
            from specmeter.laboratory.routing import measure_routing
            from specmeter.probe.profile import profile_run

            profile_run(work, store)
            measure_routing(work, store)
        _certify(store, certified, measured_now=True)
        return store.state()


def _certify(store: RunStore, certified: Callable[[Measured], None], *, measured_now: bool) -> None:
    inspection = certify_run(store, measured_now=measured_now)
    if inspection.measured is not None and not inspection.refuted:
        certified(inspection.measured)


@contextmanager
def _servers(prepared: Prepared) -> Generator[Engine]:
    """The engine that a run starts sessions with: where it keeps servers, those that `prepared` keeps already."""
    engine, wanted = prepared.engine, prepared.experiment.design.session == "run"
    if isinstance(engine, WarmServerPool):
        yield engine if wanted else engine.engine
    elif wanted:
        with closing(kept(prepared)) as own:
            yield own
    else:
        yield engine


def kept(prepared: Prepared, *, prompts_mib: int = 0) -> WarmServerPool:
    """Its engine, with servers that are kept for the next session of their arm, unless they learn from requests; each
    with so much room for prompts."""
    from specmeter.analysis.prediction.ngram_tables import table_of

    traits = prepared.work.traits

    def lasting(arm: Arm) -> bool:
        simple = len(arm.methods) <= 1 and arm.load is None and not arm.engine.rpc and not arm.engine.prompt_cache
        remembers = table_of(arm) is not None or any(it.remembers for it in traits.methods if it.name in arm.methods)
        return traits.drafting == "llama-server" and simple and not remembers

    return WarmServerPool(prepared.engine, lasting, prompts_mib=prompts_mib)


def _forecaster(prepared: Prepared, probes: Sequence[tuple[str, Probe]]) -> Forecaster:
    work = prepared.work
    for name, probe in probes:
        refuse_misfit(probe, name, work.models, work.arms.values())
    folder = None
    if not work.simulated:
        from specmeter.probe.files import probes_folder

        folder = probes_folder()
    return Forecaster(
        work.arms,
        work.models,
        prepared.identity,
        host=None if work.simulated else prepared.host,
        named=probes,
        probes=folder,
        prompts={arm_id: frozenset(prompt.id for prompt in prompts) for arm_id, prompts in work.prompts.items()},
    )


def choose_folder(
    name: str, experiment_json: str, *, out: Path | None = None, new: bool = False, runs: Path = RUNS_FOLDER
) -> tuple[Path, bool]:
    """(folder, whether it is to be resumed): `out`, or the latest unfinished run of the experiment, or a new folder.

    One that was stopped after its last request, before it was checked, is unfinished too. Raises `StoreError` where a
    `new` run is wanted in a folder that holds one.
    """
    if out is not None:
        resumed = RunStore.exists(out)
        if resumed and new:
            raise StoreError(
                f"{out}: already contains a run, and --new needs a new folder", fix="choose another folder with --out"
            )
        return out, resumed
    if not new:
        for folder in reversed(find_runs(runs, name)):
            try:
                with RunStore.open(folder, readonly=True) as store:
                    same = json.loads(store.experiment_json) == _as_begun(store, json.loads(experiment_json))
                    if same and not store.state().is_finished(checked=store.certificate() is not None):
                        return folder, True
            except StoreError:
                continue
    return new_folder(name, runs), False


def _as_begun(store: RunReader, experiment: Mapping[str, Any]) -> Mapping[str, Any]:
    """An experiment with the rule for disturbed blocks that the run was started with, where its file leaves that to the
    environment: blocks that were excluded stay so, and those that come follow the rule that is in force then."""
    with suppress(ExperimentError, KeyError):  # of a file that is damaged, or of another version
        if "disturbed" not in parse(store.experiment_yaml).design.model_fields_set:
            rule = json.loads(store.experiment_json)["design"]["disturbed"]
            return {**experiment, "design": {**experiment["design"], "disturbed": rule}}
    return experiment


def _opened(folder: Path, loaded: LoadedExperiment, work: Work, identity: RunIdentity, *, more: bool) -> RunStore:
    """The run, to be gone on with; as it is where it was complete, unless `more` may come."""
    if RunStore.exists(folder):
        store = RunStore.open(folder)
        try:
            store.refuse_changes(replace(identity, experiment=_as_begun(store, identity.experiment)))
            refuse_changed_data(store)
        except BaseException:
            store.close()
            raise
        if store.is_settled() and not more:
            return store
    else:
        store = RunStore.create(
            folder, experiment_yaml=loaded.text, experiment_json=work.experiment.model_dump_json(), plan=work.keys()
        )
    # First of all: a certificate must not outlive what it certifies, not even in a run that is stopped at once.
    store.begin(time.time())
    store.set_experiment(work.experiment.model_dump_json())
    store.set_models(identity.models)
    store.set_arms(identity.arms)
    store.set_prompts(identity.prompts)
    return store


def _distinct(work: Work) -> tuple[Prompt, ...]:
    return tuple({prompt.id: prompt for prompts in work.prompts.values() for prompt in prompts}.values())


def _prompts(
    loaded: LoadedExperiment, arms: Sequence[Arm], models: dict[str, ModelIdentity], engine: Engine
) -> dict[str, tuple[Prompt, ...]]:
    """Arm id -> prompts. Prompts of an exact length, and behind text of one, are cut by the tokenizer of the first
    target."""
    specs = loaded.experiment.workloads
    depths = sorted({arm.load.depth for arm in arms if arm.load is not None and arm.load.depth})
    behind: dict[int, tuple[Prompt, ...]] = {}
    if depths or any(workloads.needs_tokenizer(spec) for spec in specs):
        plain = next((arm for arm in arms if not arm.speculates), arms[0])
        with tempfile.TemporaryDirectory(prefix="specmeter-") as scratch:
            draft = models[plain.draft] if plain.draft else None
            launch = Launch(plain, models[plain.target], draft, Path(scratch) / "tokenizer.log")
            with engine.start(launch) as session:
                prompts = workloads.load(
                    specs, base_dir=loaded.base_dir, tokenize=session.tokenize, detokenize=session.detokenize
                )
                measured = loaded.experiment.chosen(prompts)
                tokenizer = Tokenizer(session.tokenize, session.detokenize)
                behind = {depth: workloads.behind_text(specs, measured, depth, tokenizer) for depth in depths}
    else:
        prompts = workloads.load(specs, base_dir=loaded.base_dir)
    if missing := set(loaded.experiment.only.prompts).difference(prompt.id for prompt in prompts):
        raise ExperimentError(f"only.prompts: the experiment has no prompt {min(missing)}", fix="list prompts by id")
    prompts = loaded.experiment.chosen(prompts)
    return {
        arm.id: prompts_under(
            [it for it in behind.get(arm.load.depth if arm.load else 0, prompts) if _runs(arm, it)], arm.load
        )
        for arm in arms
    }


def _runs(arm: Arm, prompt: Prompt) -> bool:
    return not arm.workloads or prompt.workload in arm.workloads

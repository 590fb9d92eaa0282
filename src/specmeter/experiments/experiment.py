"""The experiment file: what a user may write in YAML, and how it expands into arms.

A file names targets and drafts, describes arms (any list is expanded to a matrix), and says which prompts are
generated, in what order and on which engine. Unknown keys are errors. For every target, and for every different
setting of the engine that would change decoding without speculation, a baseline arm (method `none`) is added, so that
each arm is compared with its like; an arm that names its baseline gets no other. `variants` of a file are merged into
it before anything of this happens (`experiments.file`).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import ConfigDict, Field, ValidationError, ValidationInfo, model_validator

from specmeter.engines.llama_cpp.spec import any_remote
from specmeter.engines.registry import KV_FIELDS, own_options, spec_of, unknown_method
from specmeter.errors import ExperimentError
from specmeter.experiments.defaults import completed
from specmeter.experiments.names import arm_id, id_under
from specmeter.experiments.schedule import in_turn
from specmeter.experiments.spec import (
    DRAFTING_AXES,
    OPEN_SLOTS,
    ArmSpec,
    Constraint,
    Design,
    Exclusion,
    ExperimentEngine,
    LoadSpec,
    Only,
    as_tuple,
    split_methods,
)
from specmeter.record import (
    PLAIN,
    Address,
    Arm,
    EngineSettings,
    EngineTraits,
    Generation,
    Load,
    MethodName,
    Prompt,
    Record,
)
from specmeter.record.base import first_fault
from specmeter.workloads.spec import Name, SessionsWorkload, WorkloadSpec

MAX_ARMS = 2_000
"""More arms than this in one experiment are refused: that is never meant."""
MAX_VARIANTS = 64
ON_RECORD = "on record"
"""The context in which a stored run's experiment is validated: its engine may not be installed here."""
Variants = Annotated[dict[Name, dict[str, Any]], Field(max_length=MAX_VARIANTS)]
DRAFT_ONLY = (
    "draft_kv_type_k",
    "draft_kv_type_v",
    "draft_gpu_layers",
    "draft_cpu_moe_layers",
    "draft_devices",
    "rpc",
)
"""Settings without influence on decoding without speculation: arms that differ only in these share a baseline. (Remote
machines have none where the target stays here; where it does not, its baseline goes to the same.)"""
REMOTE_DEVICE = "RPC0"
"""What llama.cpp calls the first device of the first remote machine."""


def _needs_a_target(schema: dict[str, Any]) -> None:
    schema["required"].remove("targets")
    schema["anyOf"] = [{"required": ["target"]}, {"required": ["targets"]}]


class Experiment(Record):
    """A whole experiment file."""

    model_config = ConfigDict(json_schema_extra=_needs_a_target)

    name: Annotated[Name, Field(default_factory=str)]
    """Part of the run folder's name. Default: the target's name."""
    description: str = ""
    """The question it answers."""
    study: Annotated[Name | None, Field(exclude_if=lambda value: value is None)] = None
    """The published study it belongs to; the page of its run shows that study's claims."""
    target: Annotated[str | tuple[str, ...] | None, Field(exclude=True)] = None
    """One or more target models without a name; each is named after its file and added to `targets`."""
    targets: Annotated[dict[Name, str], Field(min_length=1, max_length=64)]
    """Name -> model: a path, `bench:NAME`, or `hf:owner/repo/file.gguf`."""
    draft: Annotated[str | tuple[str, ...] | None, Field(exclude=True)] = None
    """One or more draft models without a name; each is named after its file and added to `drafts`."""
    drafts: Annotated[dict[Name, str], Field(max_length=64, default_factory=dict)]
    """Name -> draft model."""
    remotes: Annotated[dict[Name, Address | None], Field(max_length=16, default_factory=dict)]
    """Name -> `HOST:PORT` of a machine with `ggml-rpc-server`, or null; for `remote` in `arms`."""
    sizes: Annotated[dict[Name, Annotated[float, Field(gt=0, le=1e14)]], Field(max_length=128, default_factory=dict)]
    """Name -> approximate bytes of that model file, shown if it is missing."""
    arms: Annotated[tuple[ArmSpec, ...], Field(min_length=1, max_length=1_000)]
    """What is compared; baselines are added automatically."""
    exclude: tuple[Exclusion, ...] = ()
    """Configurations to leave out."""
    constraints: tuple[Constraint, ...] = ()
    """Conditions for configurations."""
    only: Annotated[Only, Field(exclude_if=lambda value: value == Only())] = Only()
    """Measure only these configurations, prompts and sessions. Default: everything."""
    workloads: Annotated[tuple[WorkloadSpec, ...], Field(min_length=1, max_length=100, default_factory=tuple)]
    """Prompts. Default: one of each type, from `bench` if all targets are bench models, otherwise from `studies`."""
    design: Design = Design()
    """Order and number of measurements."""
    engine: ExperimentEngine = ExperimentEngine()
    """Which engine measures, and its settings."""
    load: Annotated[LoadSpec | None, Field(exclude_if=lambda value: value is None)] = None
    """Requests at once, for every configuration. Default: one after the other."""
    generation: Generation = Generation()
    """What is generated for each prompt."""
    variants: Annotated[Variants, Field(default_factory=dict)]
    """Name -> changes to this file (`specmeter run --variant NAME`): mappings are merged, lists and single values
    replaced; null removes a key. A variant's own `variants` change those chosen after it. Runs store the resulting
    file."""
    applied: Annotated[tuple[Name, ...], Field(max_length=MAX_VARIANTS)] = ()
    """Variants applied, in order; written by specmeter."""

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, data: Any) -> Any:
        return completed(cast("Mapping[str, Any]", data)) if isinstance(data, Mapping) else data

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> Experiment:
        names = [workload.name for workload in self.workloads]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"workloads: the name {name!r} is used twice; names must be unique")
        if self.load is not None and self.engine.slots > 1:
            raise ValueError("engine.slots: under load, use load.slots instead")
        if absent := [it for it in self.only.invocations if it >= self.design.invocations]:
            raise ValueError(
                f"only.invocations: {absent[0]} is not one of the {self.design.invocations} invocations (counted "
                "from 0)"
            )
        for name in self.sizes:
            if name not in self.targets and name not in self.drafts:
                raise ValueError(f"sizes: {name!r} is not a target or draft model")
        for index, spec in enumerate(self.arms):
            for field, known in (
                ("target", self.targets),
                ("draft", self.drafts),
                ("remote", self.remotes),
                ("workloads", names),
            ):
                for name in as_tuple(getattr(spec, field)):
                    if name is not None and name not in known:
                        raise ValueError(
                            f"arms.{index}.{field}: {name!r} is not defined; "
                            f"use one of: {', '.join(sorted(known)) or 'none yet'}"
                        )
        if info.context != ON_RECORD:
            for name in self.targets.keys() & self.drafts.keys():
                if self.targets[name] != self.drafts[name]:
                    raise ValueError(f"drafts: {name!r} is also the name of a target; names must be unique")
            self._refuse_unknown()
        return self

    @property
    def invocations(self) -> tuple[int, ...]:
        """Numbers of those that are measured."""
        return self.only.invocations or tuple(range(self.design.invocations))

    def with_context(self, context: int | None) -> Experiment:
        """The same with another context."""
        return self.model_copy(update={"engine": self.engine.model_copy(update={"context": context})})

    def _refuse_unknown(self) -> None:
        """Raise `ValueError` for what the engine does not know by its own statement."""
        if self.engine.mock is not None and self.engine.kind != "mock":
            key = ".".join(("engine.mock", *sorted(self.engine.mock.model_fields_set)[:1]))
            raise ValueError(f"{key}: the engine is {self.engine.kind}, not the mock; write kind: mock under engine")
        try:
            traits = spec_of(self.engine.kind).traits
            own_options(self.engine.kind, self.engine.own_options)
            for spec in self.arms:
                if spec.engine.options:
                    own_options(self.engine.kind, self.engine.own_options | spec.engine.options)
        except ExperimentError as error:
            raise ValueError(f"{error.message}; {error.fix}") from None
        if not traits.replays_sessions and any(isinstance(it, SessionsWorkload) for it in self.workloads):
            raise ValueError(
                f"workloads: the engine {self.engine.kind} cannot replay recorded sessions; use embedded or native"
            )
        for field in self.generation.sampling:
            if field not in traits.sampling:
                raise ValueError(
                    f"generation.{field}: the engine {self.engine.kind} does not have this setting; "
                    f"it has {', '.join(traits.sampling) or 'none'}"
                )
        named = [(f"engine.{field}", getattr(self.engine, field), traits.kv_types) for field in KV_FIELDS]
        for index, spec in enumerate(self.arms):
            for method in as_tuple(spec.method):
                for part in split_methods(method):
                    if (problem := unknown_method(self.engine.kind, traits, part)) is not None:
                        raise ValueError(f"arms.{index}.method: {problem}")
            named += [(f"arms.{index}.policy", value, traits.policies) for value in as_tuple(spec.policy)]
            named += [(f"arms.{index}.rule", value, traits.rules) for value in as_tuple(spec.rule)]
            drawn = as_tuple(spec.draft_sampling)
            named += [(f"arms.{index}.draft_sampling", value, traits.draft_samplings) for value in drawn]
            named += [
                (f"arms.{index}.engine.{field}", getattr(spec.engine, field), traits.kv_types) for field in KV_FIELDS
            ]
        for field, value, known in named:
            if known and value not in (None, *known):
                raise ValueError(
                    f"{field}: {value!r} is not available in the engine {self.engine.kind} (known: {', '.join(known)})"
                )

    def expand(self, traits: EngineTraits | None = None) -> tuple[Arm, ...]:
        """All arms, baselines first per target; in the order of the file where the design is `grouped`.

        `traits` are those of the engine that a run has on record; without, the engine has to be installed here. Raises
        `ExperimentError` when it is not, when the matrix is too large, empty, or an arm asks for the impossible.
        """
        if traits is None:
            traits = spec_of(self.engine.kind).traits
        listed: list[Arm] = []
        known: dict[str, Arm] = {}
        named: set[str] = set()
        alone: set[str] = set()
        for index, spec in enumerate(self.arms):
            for arm in self._expand_spec(index, spec, traits):
                if spec.baseline is False:
                    alone.add(arm.id)
                other = known.get(arm.id)
                if other is not None and (other != arm if arm.speculates else arm.id in named or spec.name is not None):
                    raise ExperimentError(
                        f"arms.{index}: the id {arm.id} is already used by another arm", fix="give it a unique `name`"
                    )
                if other is None or not arm.speculates:
                    listed.append(arm)
                known[arm.id] = arm
                if spec.name is not None:
                    named.add(arm.id)
                if len(listed) > MAX_ARMS:
                    raise ExperimentError(
                        f"arms: the matrix has more than {MAX_ARMS} arms", fix="shorten the lists or add exclusions"
                    )
        if not listed:
            raise ExperimentError("arms: exclusions and constraints remove every arm", fix="remove some of them")
        _refuse_other_baselines(known, named)
        return self._chosen(self._with_baselines(listed, named, alone, traits))

    def _chosen(self, arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
        """Those that `only` names. Raises `ExperimentError` for one that is not there, or lacks its baseline."""
        if not self.only.arms:
            return arms
        chosen = tuple(arm for arm in arms if arm.id in self.only.arms)
        ids = {arm.id for arm in chosen}
        for wanted in (*self.only.arms, *(arm.baseline_id for arm in chosen if arm.baseline_id is not None)):
            if wanted not in ids:
                what = "is not among them" if wanted in {arm.id for arm in arms} else "is not an arm of the experiment"
                raise ExperimentError(f"only.arms: {wanted} {what}", fix="list arms by id, including their baselines")
        return chosen

    def chosen(self, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
        """Those of some prompts that are measured."""
        only = self.only.prompts
        return tuple(prompt for prompt in prompts if not only or (prompt.of or prompt.id) in only)

    def due(self, arm: Arm, prompts: Sequence[Prompt], invocation: int, block: int) -> tuple[Prompt, ...]:
        """Those of an arm's prompts that it is to be measured on in a block, in their own order.

        All of them, unless prompts take turns (`only.turns`), or a workload has baselines take turns
        (`baseline_per_block`).
        """
        if self.only.turns:
            now = self.only.turns[block % len(self.only.turns)]
            return tuple(prompt for prompt in prompts if (prompt.of or prompt.id) in now)
        turns = {spec.name: spec.baseline_per_block for spec in self.workloads if spec.baseline_per_block is not None}
        if arm.role != "baseline" or not turns:
            return tuple(prompts)
        turn = invocation * self.design.blocks + block
        out: set[str] = set()
        for name, count in turns.items():
            ids = [prompt.id for prompt in prompts if prompt.workload == name]
            out.update(set(ids).difference(in_turn(ids, count, turn, self.design.seed)))
        return tuple(prompt for prompt in prompts if prompt.id not in out)

    def _expand_spec(self, index: int, spec: ArmSpec, traits: EngineTraits) -> Iterator[Arm]:
        targets = as_tuple(spec.target) if spec.target is not None else tuple(self.targets)
        axes = {name: as_tuple(getattr(spec, name)) for name in DRAFTING_AXES}
        loads: tuple[Load | None, ...] = (None,) if self.load is None else self.load.loads()
        choices = (
            (methods, load, {"target": target, "draft": draft, **dict(zip(axes, values, strict=True))})
            for target in targets
            for load in loads
            for methods in map(split_methods, as_tuple(spec.method))
            for draft in self._drafts_of(spec, methods, traits)
            for values in itertools.product(*axes.values())
        )
        for methods, load, choice in choices:
            changes = {name: getattr(spec.engine, name) for name in spec.engine.model_fields_set}
            if spec.engine.options:
                changes["options"] = {**self.engine.options, **spec.engine.options}
            usual = self._settings_under(load)
            settings = self._settings_under(load, spec.engine).model_copy(update=changes)
            if spec.remote is not None:
                settings = self._placed(settings, spec.remote)
            draft = choice["draft"]
            known = [found for name in methods if (found := traits.method(name)) is not None]
            if methods == (PLAIN,):
                choice |= dict.fromkeys((*DRAFTING_AXES, "draft"))
            elif (needs := [it.name for it in known if it.draft_model == "needed"]) and draft is None:
                raise ExperimentError(
                    f"arms.{index}: the method {min(needs)} needs a draft model",
                    fix="add one: `draft: model.gguf` next to the target",
                )
            elif known and all(it.draft_model == "none" for it in known):
                choice["draft"] = None
            fields = {
                **choice,
                "methods": methods,
                "engine": settings,
                "synthetic_rates": () if methods == (PLAIN,) else spec.synthetic_rates,
                "refused_draft": "refuse" if choice["draft"] is None else spec.refused_draft,
                "workloads": tuple(name for name in as_tuple(spec.workloads) if name is not None),
                "role": _role(methods, spec.baseline or None),
                "baseline_id": id_under(f"{choice['target']}/{spec.baseline}", load) if spec.baseline else None,
                "load": load,
            }
            arm = _checked_arm(index, {**fields, "id": "-"})
            own_id = arm_id(arm, usual) if spec.name is None else id_under(f"{arm.target}/{spec.name}", load)
            arm = arm.model_copy(update={"id": own_id})
            if any(rule.matches(arm) for rule in self.exclude):
                continue
            if any(rule.when.matches(arm) and not rule.require.matches(arm) for rule in self.constraints):
                continue
            yield arm

    def _settings_under(self, load: Load | None, own: EngineSettings | None = None) -> EngineSettings:
        """The experiment's settings as a load needs them: as many slots as clients, unless `load.slots` says otherwise,
        and `context` for each of them. What an arm's `own` settings change keeps what is written there."""
        settings = self.engine.settings
        if load is None or self.load is None:
            return settings
        changed = own.model_fields_set if own is not None else frozenset[str]()
        slots = self.load.slots or load.clients or OPEN_SLOTS
        if own is not None and "slots" in changed:
            slots = own.slots
        context = settings.context
        if context is not None and "context" not in changed:
            context *= slots
        return settings.model_copy(update={"slots": slots, "context": context})

    def _drafts_of(self, spec: ArmSpec, methods: Sequence[MethodName], traits: EngineTraits) -> Sequence[str | None]:
        """The drafts that are named; all of them for methods that need one, where none is."""
        needed = any(known.draft_model == "needed" for name in methods if (known := traits.method(name)) is not None)
        return tuple(self.drafts) if needed and spec.draft is None and self.drafts else as_tuple(spec.draft)

    def _with_baselines(
        self, listed: Sequence[Arm], named: Collection[str], alone: Collection[str], traits: EngineTraits
    ) -> tuple[Arm, ...]:
        """`listed` with the baselines that are not named, each made of all arms that need it."""
        shared: dict[str, Arm] = {}
        standing: set[str] = set()
        """Baselines that stand in the file, unnamed."""
        needed: list[str | None] = []
        """Of each arm, the baseline that is not named."""
        for arm in listed:
            if arm.id in alone or arm.baseline_id is not None or (arm.id in named and not arm.speculates):
                needed.append(None)
                continue
            baseline = self._baseline_for(arm, traits)
            if baseline.id in named:
                raise ExperimentError(
                    f"arms: the id {baseline.id} is already used by an automatic baseline",
                    fix="choose another name, or give every arm a `baseline:`",
                )
            shared[baseline.id] = _merged(shared.get(baseline.id), baseline)
            needed.append(baseline.id)
            if not arm.speculates:
                standing.add(baseline.id)
        arms: dict[str, Arm] = {}
        for arm, baseline_id in zip(listed, needed, strict=True):
            if baseline_id is None:
                arms[arm.id] = arm
            elif not arm.speculates:
                arms[baseline_id] = shared[baseline_id]
            else:
                if baseline_id not in standing:
                    arms[baseline_id] = shared[baseline_id]
                arms[arm.id] = arm.model_copy(update={"baseline_id": baseline_id})
        baselines = {arm.id: arm for arm in arms.values() if arm.role == "baseline"}
        compared = [arm for arm in arms.values() if arm.role != "baseline"]
        controls = self._controls(baselines, compared, traits) if self.design.controls else []
        if self.design.order == "grouped":
            return (*arms.values(), *controls)
        targets = list(self.targets)
        return tuple(sorted([*baselines.values(), *compared, *controls], key=lambda arm: targets.index(arm.target)))

    def _placed(self, settings: EngineSettings, remote: str) -> EngineSettings:
        """The settings with the draft on a remote machine; one without an address leaves `rpc` empty."""
        address = self.remotes[remote]
        return settings.model_copy(
            update={"rpc": () if address is None else (address,), "draft_devices": (REMOTE_DEVICE,)}
        )

    def _baseline_for(self, arm: Arm, traits: EngineTraits) -> Arm:
        """Decoding without speculation with the settings of `arm`, as far as they matter to it."""
        without = {name: getattr(self.engine.settings, name) for name in DRAFT_ONLY}
        if arm.engine.options:
            mine = {name: value for name, value in arm.engine.options.items() if name not in traits.draft_options}
            usual = {name: value for name, value in self.engine.options.items() if name in traits.draft_options}
            without["options"] = mine | usual
        if any_remote(arm.engine.devices):
            del without["rpc"]
        settings = arm.engine.model_copy(update=without)
        baseline = Arm(
            id="-", target=arm.target, engine=settings, role="baseline", workloads=arm.workloads, load=arm.load
        )
        return baseline.model_copy(update={"id": arm_id(baseline, self._settings_under(arm.load))})

    def _controls(self, baselines: Mapping[str, Arm], compared: Sequence[Arm], traits: EngineTraits) -> list[Arm]:
        """Per baseline: an A/A repeat and, with a draft model, synthetic acceptance of 1 and 0."""
        controls: list[Arm] = []
        for baseline in baselines.values():
            controls.append(
                baseline.model_copy(
                    update={"id": f"{baseline.id}/again", "role": "control", "baseline_id": baseline.id}
                )
            )
            model_arm = next(
                (
                    arm
                    for arm in compared
                    if arm.baseline_id == baseline.id
                    and len(arm.methods) == 1
                    and traits.drafters(arm.methods) == {"model"}
                ),
                None,
            )
            if model_arm is not None and traits.synthetic != "none":
                gamma = model_arm.gamma or 4
                for label, rate in (("accept-all", 1.0), ("accept-none", 0.0)):
                    controls.append(
                        model_arm.model_copy(
                            update={
                                "id": f"{baseline.id}/{label}",
                                "role": "control",
                                "gamma": gamma,
                                "synthetic_rates": (rate,) * gamma,
                                "workloads": baseline.workloads,
                            }
                        )
                    )
        return controls


def _role(methods: tuple[MethodName, ...], baseline: str | None) -> Literal["baseline", "speculative", "control"]:
    if methods != (PLAIN,):
        return "speculative"
    return "baseline" if baseline is None else "control"


def _merged(known: Arm | None, baseline: Arm) -> Arm:
    """A baseline for all that it is needed for: of no workloads is of all."""
    if known is None:
        return baseline
    both = (*known.workloads, *baseline.workloads) if known.workloads and baseline.workloads else ()
    return known.model_copy(update={"workloads": tuple(dict.fromkeys(both))})


def _refuse_other_baselines(arms: Mapping[str, Arm], named: Collection[str]) -> None:
    """Raise `ExperimentError` for a baseline that was named and is none."""
    for arm in arms.values():
        if arm.baseline_id is None:
            continue
        baseline, name = arms.get(arm.baseline_id), arm.baseline_id.partition("/")[2]
        if baseline is None or arm.baseline_id not in named:
            elsewhere = [other for other in sorted(named) if other.partition("/")[2] == name]
            plain = [arms[other].id for other in sorted(named) if arms[other].role == "baseline"]
            raise ExperimentError(
                f"{arm.id}: the target {arm.target} has no arm {name!r} to use as a baseline",
                fix=f"only {', '.join(elsewhere)} has it; add that target to it"
                if elsewhere
                else f"use one of {', '.join(plain)}"
                if plain
                else "add an arm with `method: none` and this `name`",
            )
        if baseline.role != "baseline":
            what = "drafts itself" if baseline.speculates else f"is a control, compared with {baseline.baseline_id}"
            raise ExperimentError(
                f"{arm.id}: its baseline {baseline.id} {what}",
                fix="use an arm with `method: none` that has no baseline itself",
            )


def _checked_arm(index: int, fields: dict[str, Any]) -> Arm:

    try:
        arm = Arm.model_validate(fields)
    except ValidationError as error:
        plain = fields.get("gamma") == 0
        fix = "leave it out: the baseline is measured anyway" if plain else "correct that value"
        raise ExperimentError(f"arms.{index}.{first_fault(error)}", fix=fix) from None
    if arm.gamma is not None and arm.gamma_min is not None and arm.gamma_min > arm.gamma:
        raise ExperimentError(
            f"arms.{index}: gamma_min {arm.gamma_min} is above gamma {arm.gamma}",
            fix="set gamma_min to gamma or less",
        )
    return arm

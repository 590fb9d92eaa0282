"""What a page about a run tells, read once from the run folder (and from a probe, where one is given)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.analysis.explain.account import Account, explain, probes_of
from specmeter.analysis.explain.ceiling import Ceiling, ceilings
from specmeter.analysis.explain.memory_price import MemoryPrice, memory_prices
from specmeter.analysis.positions import ArmPositions, positions
from specmeter.analysis.reading import RunReport, read_run, repeats
from specmeter.analysis.tally import Tallies, read_tallies
from specmeter.probe.draft_lengths import DraftLength, draft_lengths
from specmeter.probe.record import Probe
from specmeter.record import Arm, EngineIdentity, Finding, Host, Prompt, Session, TextRouting
from specmeter.record.verdict import Group, grouped
from specmeter.show.names import Names, label
from specmeter.show.studies import StudySection, studies
from specmeter.show.table import Cell
from specmeter.store import RunReader, RunStore
from specmeter.store.environment import private, render_environment

if TYPE_CHECKING:
    from specmeter.analysis.quality import QualityReport
    from specmeter.analysis.summary import ArmSummary
    from specmeter.numbers.stats import Floats
    from specmeter.store.columns import RequestColumns


MAX_PROMPTS = 200
"""Runs with more prompts are told by kinds of text."""
MAX_POINTS = 3_000
"""Runs with more requests show how many there are at each rate, not every one."""
MAX_EXPLAINED = 50_000
"""Larger runs are explained by `specmeter explain` alone: it reads every step."""
BINS = 60


class RequestPoint(NamedTuple):
    """The decode rate of one request."""

    arm_id: str
    prompt_id: str
    kind: str
    block: int
    rate: float
    """tok/s."""


class RateBin(NamedTuple):
    """How many `requests` of an arm had a rate between `low` and `high` tok/s."""

    arm_id: str
    low: float
    high: float
    requests: int


@dataclass(frozen=True)
class Document:
    """A run with everything that is told about it."""

    run: RunReport
    hosts: tuple[Host, ...]
    """The machine at each start."""
    engines: tuple[EngineIdentity, ...]
    argvs: Mapping[str, tuple[str, ...]]
    """Arm -> the command line that was started."""
    prompts: Mapping[str, Prompt]
    """By id; empty where there are more than `MAX_PROMPTS`."""
    prompt_count: int
    experiment_yaml: str
    environment: str
    """The text of BENCHMARK_ENV.md, made again."""
    groups: tuple[Group, ...]
    """Findings by check and severity, the worst first."""
    points: tuple[RequestPoint, ...]
    """Every request, or none where there are too many."""
    bins: tuple[RateBin, ...]
    """Rates counted, where there are too many requests to show each."""
    probes: tuple[Probe, ...]
    """Costs of this run's models, each probe once."""
    account: Account | None
    """Where the time of each token went; None where nothing was measured, and of runs with more than `MAX_EXPLAINED`
    requests."""
    lengths: tuple[DraftLength, ...]
    """What every draft length would yield on the run's texts; empty where no draft was replayed."""
    memory: tuple[MemoryPrice, ...]
    """What each draft model takes in memory, and what that would buy."""
    positions: tuple[ArmPositions, ...]
    """Acceptance by position and accepted lengths of every arm that drafted; empty for runs with more than
    `MAX_EXPLAINED` requests."""
    routing: tuple[TextRouting, ...]
    """Which experts the MoE targets choose for the run's texts."""
    study: StudySection | None
    """What the run says about the document that its experiment repeats; None for other experiments."""
    ceilings: Mapping[str, Ceiling]
    """Arm -> what its speedup cannot exceed, where that is known."""

    @property
    def unread_study(self) -> str | None:
        """The study that the run belongs to, where the package that knows it is not installed."""
        return self.run.study if studies() is None else None

    @cached_property
    def arms(self) -> dict[str, Arm]:
        """What was asked for, by id."""
        return {arm.id: arm for arm in self.run.arms}

    @cached_property
    def names(self) -> Names:
        """What each arm is called."""
        return Names(self.run.arms)

    def named(self, arm_id: str) -> Cell:
        """An arm in a table."""
        return Cell(self.names[arm_id], id=label(arm_id))

    @property
    def is_large(self) -> bool:
        """Whether only `specmeter explain` tells where its time went."""
        return self.run.state.ok > MAX_EXPLAINED

    @property
    def model_names(self) -> dict[str, str]:
        """SHA-256 of each model file -> its name in the run."""
        return {model.sha256: model.name for model in self.run.models}

    def targets(self) -> list[list[ArmSummary]]:
        """Each baseline with the arms that are compared with it; those under load have tables of their own."""
        arms = [arm for arm in self.run.summary.arms if arm.load is None]
        baselines = [arm for arm in arms if arm.baseline_id is None]
        return [[base, *(arm for arm in arms if arm.baseline_id == base.arm_id)] for base in baselines]

    def because(self, arm_id: str) -> list[Finding]:
        """What makes an arm's verdict worse than valid, see `RunReport.because`."""
        return self.run.because(arm_id)


def read_document(
    folder: Path, *, named: Sequence[tuple[str, Probe]] = (), quality: Sequence[QualityReport] = (), whole: bool = False
) -> Document:
    """Read a run for a page. `named`: probes to explain it by, before those that are kept; `quality`: what is known of
    quantizations of its targets; `whole`: explain also a run of more than `MAX_EXPLAINED` requests.

    Raises `StoreError` for the run, `UsageError` for a probe of other models.
    """
    with RunStore.open(folder, readonly=True) as store:
        again = repeats(store, store.arms())
        prompt_count = len({again.get(str(name), str(name)) for (name,) in store.raw("SELECT id FROM prompt")})
        few = prompt_count <= MAX_PROMPTS
        run = read_run(folder, by_prompt=few)
        hosts, sessions = tuple(store.hosts()), tuple(store.sessions())
        engines = tuple({session.engine.model_dump_json(): session.engine for session in sessions}.values())
        points, bins = _rates(store.columns(), count=run.state.planned)
        probes, name = probes_of(store, run, named)
        told = any(arm.drafted is not None and arm.load is None for arm in run.summary.arms)
        small = run.state.ok <= MAX_EXPLAINED
        explained = whole or small
        tallies: Tallies = read_tallies(store) if explained else {}
        return Document(
            run=run,
            hosts=hosts,
            engines=engines,
            argvs={session.arm_id: session.argv for session in sessions},
            prompts=_prompts(store) if few else {},
            prompt_count=prompt_count,
            experiment_yaml=private(store.experiment_yaml),
            environment=_environment(run, hosts, engines, sessions),
            groups=tuple(grouped(run.findings)),
            points=points,
            bins=bins,
            probes=tuple({probe.model_dump_json(): probe for probe in probes.values()}.values()),
            account=explain(store, run, probes, name, tallies=tallies)
            if whole or (told and explained and run.state.ok)
            else None,
            lengths=draft_lengths(store) if explained else (),
            memory=memory_prices(run.arms, {model.name: model for model in run.models}, sessions, quality),
            positions=positions(store, tallies) if small else (),
            routing=tuple(store.routing()),
            study=None if (package := studies()) is None else package.of_run(run),
            ceilings=ceilings(run.arms, run.summary.arms, probes),
        )


def _prompts(store: RunReader) -> dict[str, Prompt]:
    """Every prompt once, as it is asked first; under load it is asked again under other ids."""
    found: dict[str, Prompt] = {}
    for prompt in store.prompts():
        found.setdefault(prompt.of or prompt.id, prompt)
    return found


def _rates(read: RequestColumns, count: int) -> tuple[tuple[RequestPoint, ...], tuple[RateBin, ...]]:
    """Rates of all answered requests: one by one, or counted where there are more than `MAX_POINTS`."""
    tokens, ms = read.number("predicted_n"), read.number("predicted_ms")
    decoded = np.flatnonzero((tokens >= 2) & (np.nan_to_num(ms) != 0))
    rates = 1000.0 * (tokens[decoded] - 1) / ms[decoded]  # the rule of `rates.decode_rate`
    if count > MAX_POINTS:
        arms = read.codes["arm_id"][decoded]
        found: list[int] = list(dict.fromkeys(arms.tolist()))
        return (), _counted({read.values["arm_id"][arm]: rates[arms == arm] for arm in found})
    told = read.of(("arm_id", "prompt_id", "kind", "block"), decoded)
    return tuple(RequestPoint._make((*it, rate)) for it, rate in zip(told, rates.tolist(), strict=True)), ()


def _counted(rates: Mapping[str, Floats]) -> tuple[RateBin, ...]:
    if not rates:
        return ()
    highest = max(float(values.max()) for values in rates.values())
    edges = np.linspace(0.0, highest, BINS + 1)
    return tuple(
        RateBin(arm_id, float(edges[place]), float(edges[place + 1]), int(count))
        for arm_id, values in rates.items()
        for place, count in enumerate(np.histogram(values, edges)[0])
        if count
    )


def _environment(
    run: RunReport, hosts: Sequence[Host], engines: Sequence[EngineIdentity], sessions: Sequence[Session]
) -> str:
    if not hosts:
        return ""
    return render_environment(
        host=hosts[-1],
        engines=engines,
        models=run.models,
        experiment_name=run.name,
        argvs={session.arm_id: session.argv for session in sessions},
        started_at=run.state.started_at or 0.0,
        finished_at=run.state.finished_at,
        state=run.state.state,
        sessions=sessions,
    )

"""Predicts a run's arms before each is measured, and compares the predictions with what was measured.

Which costs and which acceptance an arm is predicted from, in which order, says docs/explanation/prediction.md. Under
load both are those of the arm's own load. Whatever takes time (files, first use of a library) happens when the
forecaster is made, or in `prepare`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from specmeter.analysis.prediction.drafts import Counted, Given, count_steps
from specmeter.errors import SpecmeterError, UsageError
from specmeter.messages import Message, Value
from specmeter.record import PARAMETERS, Arm, ModelIdentity, Prediction, Request

if TYPE_CHECKING:
    from pathlib import Path

    from specmeter.analysis.prediction.costs import Costs
    from specmeter.analysis.prediction.drafts import Acceptance
    from specmeter.analysis.prediction.speedup import AtGamma
    from specmeter.probe.record import Probe
    from specmeter.record import EngineIdentity, EngineSettings, Host, StepProbe


ASSUMED = (0.7, 0.5, 0.85)
"""(point, low, high) of alpha for an unknown draft model: what published pairs of one family lie between."""
ASSUMED_HITS = (0.1, 0.0, 0.6)
"""The same of how often an n-gram method has a draft at all; text that repeats itself lies above."""
MIN_DRAFTED = 50
"""Tokens drafted by other arms, below which an assumed range says as much."""
_COST_SETTINGS = (
    "threads",
    "kv_type_k",
    "kv_type_v",
    "flash_attention",
    "gpu_layers",
    "draft_gpu_layers",
    "cpu_moe_layers",
    "draft_cpu_moe_layers",
    "override_tensors",
    "devices",
    "draft_devices",
    "rpc",
    "batch",
    "ubatch",
)
"""Settings on which the cost of a forward depends."""


class CostProber(Protocol):
    """Finds out what a run does not show on its own; `laboratory.pre_measure.Scout` is one."""

    def price(self, arm: Arm) -> StepProbe | None:
        """What its steps cost; None where that is not to be measured."""
        ...

    def price_between(self, arm: Arm) -> tuple[StepProbe, StepProbe] | None:
        """What its steps cost with fewer clients and with more, where its own load was not probed."""
        ...

    def plain_ms(self, baseline_id: str) -> float | None:
        """Time of a plain token of a baseline, as measured so far."""
        ...

    def tokens(self, baseline_id: str) -> float | None:
        """Tokens after the first that its requests generated on average, which share what their first step takes; None
        where the time of that step does not count."""
        ...

    def prompts_share(self, baseline_id: str) -> float | None:
        """The part of its time that a baseline under load spends on prompts, as measured so far."""
        ...

    def replay(self, arm: Arm) -> Counted | Message:
        """Its steps on the texts of its baseline, or why they are not known."""
        ...


class Sources(NamedTuple):
    """What an arm is predicted from."""

    costs: Costs
    acceptance: Acceptance
    cost_basis: Message
    """Where costs are from, and why there is nothing better."""
    acceptance_basis: Message


class Forecaster:
    """Knows what was seen of a run so far. One per start of the run."""

    def __init__(
        self,
        arms: Mapping[str, Arm],
        models: Mapping[str, ModelIdentity],
        engine: EngineIdentity,
        *,
        host: Host | None = None,
        named: Sequence[tuple[str, Probe]] = (),
        probes: Path | None = None,
        prompts: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """`named` are probes that were given, with their names; `probes` is the folder to look for others; `prompts`
        are the ids of each arm's prompts, where arms differ in them."""
        self.scout: CostProber | None = None
        """What looks into the run; set where there is one."""
        self._named: set[str] = set()
        """Arms whose cost is that of a probe named on the command line."""
        self._replayed: dict[str, Counted | Message] = {}
        self._unprobed: dict[str, Message] = {}
        self._prompts_shares: dict[str, float] = {}
        """Baseline under load -> the part of its time that prompts take."""
        self._arms = arms
        self._prompts = prompts or {}
        self._models = models
        self._seen: dict[tuple[object, ...], Counted] = {}
        self._sources: dict[tuple[object, ...], list[str]] = {}
        self._costs: dict[str, Costs | Message] = {}
        self._found: dict[tuple[str, str | None], tuple[Path, Probe] | None] = {}
        for arm in arms.values():
            if arm.speculates:
                self._costs[arm.id] = self._cost(arm, engine, host, named, probes)
        self._first_use()

    def saw(self, requests: Iterable[Request]) -> None:
        """Take in requests that were measured; failed ones say nothing."""
        for request in requests:
            arm = self._arms.get(request.arm_id)
            if arm is None or arm.gamma is None or request.reply is None or not arm.speculates or arm.synthetic_rates:
                continue
            key = drafting(arm)
            self._seen.setdefault(key, Counted()).add(request.prompt_id, count_steps(request.reply, arm.gamma))
            sources = self._sources.setdefault(key, [])
            if arm.id not in sources:
                sources.append(arm.id)

    def prepare(self, arm: Arm) -> None:
        """Probe and replay, as far as that can be done; nothing that fails here fails a run."""
        if self.scout is None or arm.gamma is None:
            return
        from specmeter.analysis.prediction.costs import stepped

        if arm.load is not None and (share := self.scout.prompts_share(arm.baseline_id or "")) is not None:
            self._prompts_shares[arm.baseline_id or ""] = share
        early = arm.p_min is not None and arm.p_min > 0
        probe = self.scout.price(arm) if arm.id not in self._named and modelled(arm) else None
        header = self._models[arm.target].header
        recurrent = header is not None and header.recurrent
        around = None
        if probe is not None and not probe.rounds and arm.load is not None:
            around = self.scout.price_between(arm)
        if around is not None and arm.load is not None:
            from specmeter.analysis.prediction.at_clients import mixed

            fewer, more = around
            low, high = (
                stepped(it, tokens=self.scout.tokens(it.baseline_id), stops_early=early, recurrent=recurrent)
                for it in around
            )
            told = Message("costs.between", fewer=fewer.clients, more=more.clients)
            place = math.log2(arm.load.clients or 1) - math.log2(fewer.clients)
            self._costs[arm.id] = mixed(low, high, place / math.log2(more.clients / fewer.clients), told)
        elif probe is not None and (probe.rounds or probe.left_out):
            # Of a cell under load there is only the mean, which holds whatever disturbed it.
            plain_ms = self.scout.plain_ms(probe.baseline_id) if arm.load is None else None
            tokens = self.scout.tokens(probe.baseline_id)
            self._costs[arm.id] = stepped(probe, plain_ms, tokens=tokens, stops_early=early, recurrent=recurrent)
            self._unprobed.pop(arm.id, None)
        elif probe is not None and probe.failure is not None:
            self._unprobed[arm.id] = probe.failure
        if not arm.synthetic_rates:
            self._replayed[arm.id] = self.scout.replay(arm)

    def prompts_share(self, arm: Arm) -> float:
        """The part of the time of an arm's baseline that prompts take: what drafts do not shorten. 0 without a load,
        where speedups are those of decoding, and where it is not known."""
        return self._prompts_shares.get(arm.baseline_id or "", 0.0)

    def predict(self, arm: Arm, now: float) -> Prediction:
        """What is expected of an arm at `now`, by the clock of the engine; never raises for what is not known."""
        try:
            known = self.sources(arm)
            if isinstance(known, Message):
                return _nothing(arm, now, known)
            from specmeter.analysis.prediction.speedup import predict

            by_model = arm.draft is not None
            (found,) = predict(known.acceptance, known.costs, [arm.gamma or 1], by_model=by_model).by_gamma
        except SpecmeterError as error:
            return _nothing(arm, now, Message("text.outside", text=error.message))
        speedup, behind = found.speedup, inputs(found)
        if arm.load is not None:
            from specmeter.analysis.prediction.at_clients import with_prompts

            share = self._prompts_shares.get(arm.baseline_id or "")
            speedup = with_prompts(speedup, share or 0.0)
            behind |= {"clients": arm.load.clients, "prompts": share}
        return Prediction(
            arm_id=arm.id,
            made_at=now,
            speedup=speedup,
            cost=known.cost_basis,
            acceptance=known.acceptance_basis,
            inputs=behind,
        )

    def sources(self, arm: Arm) -> Sources | Message:
        """The best that is known at this moment, or why nothing is. Raises `UsageError` for a policy that was not seen
        at work."""
        costs = self._costs[arm.id]
        if isinstance(costs, Message):
            return costs
        if arm.gamma is None:
            return Message("prediction.any_gamma")
        if arm.load is not None and arm.load.clients is None:
            return Message("prediction.by_rate")
        acceptance, basis = self._acceptance(arm)
        why = self._unprobed.get(arm.id)
        found = costs.basis if why is None else Message("costs.unprobed", costs=costs.basis, why=why)
        return Sources(costs, acceptance, found, basis)

    def _acceptance(self, arm: Arm) -> tuple[Acceptance, Message]:
        gamma = arm.gamma or 1
        if arm.synthetic_rates:
            return synthetic(arm.synthetic_rates), Message("rates.synthetic")
        replayed = self._replayed.get(arm.id)
        if isinstance(replayed, Counted):
            return replayed, replayed.basis
        key = drafting(arm)
        seen = self._on_prompts(arm, self._seen.get(key, Counted()))
        if seen.drafted >= MIN_DRAFTED:
            further = "" if seen.longest >= gamma else Message("rates.further", longest=seen.longest)
            said: dict[str, Value] = {"drafted": seen.drafted, "prompts": len(seen.prompts), "further": further}
            return seen, Message("rates.of_arms", arms=tuple(self._sources[key]), **said)
        if arm.policy is not None:
            raise UsageError(
                f"the policy {arm.policy} chooses draft lengths while running, so it cannot be predicted",
                fix="measure it",
            )
        looks_up = arm.draft is None and all(method.startswith("ngram") for method in arm.methods)
        given = assumed(by_model=not looks_up)
        return given, given.basis

    def _on_prompts(self, arm: Arm, seen: Counted) -> Counted:
        """What was seen on the arm's own prompts; where that says too little, on others, which says less about them."""
        wanted = self._prompts.get(arm.id)
        if wanted is None or set(seen.prompts) <= set(wanted):
            return seen
        own = Counted({name: steps for name, steps in seen.prompts.items() if name in wanted})
        return own if own.drafted >= MIN_DRAFTED else Counted(seen.prompts, other_prompts=len(wanted))

    def _cost(
        self,
        arm: Arm,
        engine: EngineIdentity,
        host: Host | None,
        named: Sequence[tuple[str, Probe]],
        probes: Path | None,
    ) -> Costs | Message:
        """Costs, or why there are none."""
        target, draft = self._models[arm.target], self._models[arm.draft] if arm.draft else None
        at_once = _at_once(arm)
        if not modelled(arm):
            return Message("costs.not_modelled", methods="+".join(arm.methods))
        if (named or probes is not None) and (probed := self._probed(arm, engine, host, named, probes)) is not None:
            return probed
        if target.header is None or (draft is not None and draft.header is None):
            return Message("costs.unknown")
        if target.header.bytes_per_token <= 0:
            return Message("costs.no_bytes")
        from specmeter.analysis.prediction.costs import by_bytes, footprint_of

        return by_bytes(
            footprint_of(target, target.header),
            footprint_of(draft, draft.header) if draft is not None and draft.header is not None else None,
            Message("costs.headers"),
            processor=host is not None and not host.gpus,
            recurrent=target.header.recurrent,
            context=0,
            requests=at_once,
        )

    def _probed(
        self,
        arm: Arm,
        engine: EngineIdentity,
        host: Host | None,
        named: Sequence[tuple[str, Probe]],
        probes: Path | None,
    ) -> Costs | None:
        """Costs from a probe of its models; None where there is none."""
        from specmeter.analysis.prediction.at_clients import covers, probed_at
        from specmeter.probe.files import find_probe

        target, draft = self._models[arm.target], self._models[arm.draft] if arm.draft else None
        at_once = _at_once(arm)
        for name, probe in named:
            if fits(probe, target, draft):
                if at_once > 1 and not covers(probe, at_once):
                    continue
                self._named.add(arm.id)
                basis, others = Message("costs.probe", name=name), unlike(probe.settings, arm.engine)
                if others:
                    basis = Message("costs.made_with", probe=basis, settings=others)
                return probed_at(probe, basis, at_once)
        if probes is not None:
            pair = (target.sha256, draft.sha256 if draft is not None else None)
            if pair not in self._found:
                self._found[pair] = find_probe(target, draft, engine, probes, host=host)
            found = self._found[pair]
            usable = found is not None and not unlike(found[1].settings, arm.engine)
            if found is not None and usable and (at_once == 1 or covers(found[1], at_once)):
                return probed_at(found[1], Message("costs.probe", name=found[0].name), at_once)
        return None

    def _first_use(self) -> None:
        """Whatever a library does when it is used first happens now."""
        for arm in self._arms.values():
            if arm.speculates and arm.gamma is not None:
                self.predict(arm, 0.0)
                return


def _at_once(arm: Arm) -> int:
    """Requests that are answered at the same time."""
    return 1 if arm.load is None else min(arm.load.clients or 1, arm.engine.slots)


def fits(probe: Probe, target: ModelIdentity, draft: ModelIdentity | None) -> bool:
    """Whether a probe is of these very models; one with a draft serves an arm without."""
    same_draft = draft is None or (probe.draft is not None and probe.draft.sha256 == draft.sha256)
    return probe.target.sha256 == target.sha256 and same_draft


def refuse_misfit(probe: Probe, name: str, models: Mapping[str, ModelIdentity], arms: Iterable[Arm]) -> None:
    """Raises `UsageError` for a probe that was named for a run, and fits none of its arms."""
    speculating = [arm for arm in arms if arm.speculates]
    if speculating and not any(
        fits(probe, models[arm.target], models[arm.draft] if arm.draft else None) for arm in speculating
    ):
        draft = f" with {probe.draft.reference}" if probe.draft else ""
        raise UsageError(
            f"{name}: a probe of {probe.target.reference}{draft}, which this experiment does not use",
            fix="probe the experiment's own models, or leave --probe out",
        )


def assumed(*, by_model: bool) -> Given:
    """Acceptance of an unknown draft: a range, said to be one."""
    point, low, high = ASSUMED
    if by_model:
        return Given.alpha(point, low, high, basis=Message("rates.assumed", low=low, high=high))
    basis = Message("rates.assumed_hits", low=low, high=high, fewest=ASSUMED_HITS[1], most=ASSUMED_HITS[2])
    return Given((point,), (low,), (high,), hits=ASSUMED_HITS, basis=basis)


def synthetic(rates: tuple[float, ...]) -> Given:
    """Synthetic acceptance: the rates that an engine is given are marginal, P(position i accepted)."""
    conditional = [rates[0]]
    for before, rate in itertools.pairwise(rates):
        conditional.append(rate / before if before > 0 else 0.0)
    return Given(tuple(conditional), basis=Message("rates.synthetic"))


def inputs(found: AtGamma) -> dict[str, bool | int | float | str | None]:
    """The numbers behind a prediction, for the record."""
    return {
        "gamma": found.gamma,
        "tau": found.tau,
        "drafted": found.drafted,
        "extrapolated": found.extrapolated,
        **dict(found.parts),
    }


def modelled(arm: Arm) -> bool:
    """Whether it is known how the arm's drafts are made."""
    return all(method in ("draft-simple", "none") or method.startswith("ngram") for method in arm.methods)


def drafting(arm: Arm) -> tuple[object, ...]:
    """What two arms must have in common for the acceptance of one to be that of the other."""
    by = (getattr(arm, name) for name in PARAMETERS if name != "gamma")
    return (arm.target, arm.methods, arm.draft, *by, arm.policy, arm.rule, arm.draft_sampling, repr(arm.engine.options))


def unlike(probe: EngineSettings, arm: EngineSettings) -> list[str]:
    """Settings that costs depend on and that a probe was made with others of."""
    return [name for name in _COST_SETTINGS if getattr(probe, name) != getattr(arm, name)]


def _nothing(arm: Arm, now: float, reason: Message) -> Prediction:
    return Prediction(arm_id=arm.id, made_at=now, speedup=None, reason=reason)

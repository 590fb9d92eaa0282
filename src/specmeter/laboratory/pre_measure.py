"""Measures what a prediction of an arm needs before its first session: what its steps cost and will yield.

Cost comes from a probe of whole steps (`probe.steps`), taken once for each draft model of a baseline, at as many
requests at once as it has clients, and put on record. Yield comes from replaying the arm on the texts that its baseline
has generated: a draft model reads them once.

All of that together takes at most `SHARE` of the time that the baseline's arms will take, and by each arm's first
session no more than `REQUESTS` requests of the baseline for each arm so far, but for one coarse probe
(docs/explanation/prediction.md). Whatever fails here leaves a reason behind, not a failed run.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice, zip_longest
from pathlib import Path
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, NamedTuple

from specmeter.errors import EngineError, ExperimentError
from specmeter.experiments.cells import first_pass
from specmeter.host.telemetry import QUIET, Gate, gate_for, is_busy
from specmeter.laboratory.evidence import Evidence, at_once, probe_key, why_not_replayed
from specmeter.messages import Message
from specmeter.probe.replay import drafts_ends_of
from specmeter.probe.steps import WHOLE_STEPS, RoundSpec, change_costs, measure_round, pricing, routed, tokens_of
from specmeter.record import Arm, ChatMessage, EngineTraits, StepProbe, StepRound
from specmeter.text import duration

if TYPE_CHECKING:
    from specmeter.analysis.prediction.drafts import Counted
    from specmeter.engines import Engine
    from specmeter.measure import Work
    from specmeter.record import Host, Prompt
    from specmeter.store import RunStore


SHARE = 0.05
"""Of the time that the run will take: all that is found out beside a baseline."""
REQUESTS = 2.0
"""This many requests of the baseline may be taken for each arm that was asked for: before the second session, for
one."""
MAX_ROUNDS = 6
MIN_ROUNDS = 2
"""Where a probe is always wanted."""
PRECISE = 0.01
"""Standard error of the logarithm of a step's cost with which a probe ends before its allowance is used."""
_PROMPTS = 3
_COARSE_STEPS = 2
"""Whole steps of a request in a coarse round."""
_COARSE_GAMMA = 4
"""Drafts are not cut further for the sake of time."""
_PROFILE_S = 20.0
"""Of a draft that reads texts, where the probe has an allowance of its own."""
_MIN_READING_S = 3.0
CHEAPEST = 0.8
"""A step over several tokens takes no less than this share of a plain one: otherwise something held the plain one up,
and the round says nothing."""
LONGEST_GAMMA = 64
"""Longer drafts are priced from those of this length."""


class Shape(NamedTuple):
    """How much a round measures."""

    prompts: int
    whole_steps: int
    longest: int
    """Tokens of a draft."""


Tell = Callable[[Message], None]


class Scout(Evidence):
    """Collects what predictions need; one instance per invocation."""

    def __init__(
        self,
        work: Work,
        engine: Engine,
        store: RunStore,
        host: Host | None,
        *,
        allowance_s: float | None = None,
        longest: int = LONGEST_GAMMA,
        tell: Tell = lambda _: None,
    ) -> None:
        """`host` is the machine; None where it is simulated.

        `allowance_s` is the time for one probe of all that drafts beside a baseline. Without it each draft is probed
        when its first arm is due, within a share of the run, unless the experiment wants no probe or the machine is
        simulated. Drafts longer than `longest` are priced from those. `tell` hears what is done now.
        """
        super().__init__(work, store)
        self._engine = engine
        self._store = store
        self._host = host
        self._allowance_s = allowance_s
        self._longest = longest
        self._tell = tell
        self._asked: dict[str, set[str]] = {}
        """Baseline -> arms that were asked for."""
        self._spent: dict[str, float] = {}
        """Baseline -> seconds that were taken for them."""
        self._tried: dict[tuple[object, ...], Message | None] = {}
        """Whose texts, draft and settings that were let read -> why they could not."""

    @property
    def measures(self) -> bool:
        """Whether costs are probed in this run."""
        asked = self._host is not None and self._work.experiment.design.probe != "off"
        return asked or self._allowance_s is not None

    @property
    def _least_rounds(self) -> int:
        """Rounds that are measured whatever they take."""
        return MIN_ROUNDS if self._work.experiment.design.probe == "always" else 0

    # --- cost --------------------------------------------------------------------------------------------------------

    def price(self, arm: Arm) -> StepProbe | None:
        """What steps of an arm cost: on record, or measured now together with all arms of its baseline.

        None where none is to be measured, and where the baseline was not measured yet; a failed one says why.
        """
        if arm.baseline_id is None or not self.measures or self.plain_ms(arm.baseline_id) is None:
            return None
        if arm.load is not None and arm.load.clients is None:
            return None  # how many requests are answered at once is chance
        key = probe_key(arm.baseline_id, arm.draft, arm.engine)
        self._asked.setdefault(arm.baseline_id, set()).add(arm.id)
        if key not in self._probes:
            probes = self._measure(arm.baseline_id, None if self._allowance_s is not None else key)
            self._store.add_probes(probes)
            self._probes |= {probe_key(it.baseline_id, it.draft, it.engine): it for it in probes}
        return self._probes.get(key)

    def _measure(self, baseline_id: str, only: tuple[object, ...] | None) -> list[StepProbe]:
        """One probe for each way of drafting beside a baseline, or for `only` one; all in the same rounds."""
        found: dict[tuple[object, ...], Arm] = {}
        for arm in self._work.arms.values():
            if arm.baseline_id == baseline_id and arm.gamma is not None and _priced(arm, self._work.traits):
                key = probe_key(baseline_id, arm.draft, arm.engine)
                if only not in (None, key) or key in self._probes:
                    continue
                if key not in found or (found[key].gamma or 0) < arm.gamma:
                    found[key] = arm
        ways = list(found.values())
        started_at = self._engine.clock()
        rounds: list[list[StepRound]] = []
        shape = self._affordable(baseline_id, ways)
        turns = self._turns(baseline_id, shape.prompts)
        failure: Message | None = None
        try:
            if ways:
                self._tell(self._said(baseline_id, ways, shape))
                with tempfile.TemporaryDirectory(prefix="specmeter-probe-") as folder:
                    for it in self._rounds(baseline_id, ways, turns, shape, Path(folder)):
                        rounds.append(it)  # noqa: PERF402  # what was measured before an engine fails is kept
        except (EngineError, ExperimentError) as error:
            failure = Message("text.outside", text=error.message)
        ended_at = self._engine.clock()
        self._spent[baseline_id] = self._spent.get(baseline_id, 0.0) + ended_at - started_at
        prompts = list({it.id: it for turn in turns[: max(1, len(rounds))] for it in turn}.values())
        return [
            self._probe(
                baseline_id, arm, prompts, [it[index] for it in rounds], failure, started_at, ended_at, shape.longest
            )
            for index, arm in enumerate(ways)
        ]

    def _said(self, baseline_id: str, ways: Sequence[Arm], shape: Shape) -> Message:
        """That steps are measured, beside which draft models, and about how long."""
        drafts = tuple(dict.fromkeys(arm.draft for arm in ways if arm.draft is not None))
        code = "looking.steps" if drafts else "looking.lookups"
        return Message(code, drafts=drafts, time=duration(math.ceil(self._expected(baseline_id, ways, shape))))

    def _probe(
        self,
        baseline_id: str,
        arm: Arm,
        prompts: Sequence[Prompt],
        rounds: Sequence[StepRound],
        failure: Message | None,
        started_at: float,
        ended_at: float,
        longest: int,
    ) -> StepProbe:
        gate = self._gate(arm)
        drafted = [it for it in rounds if any(it.step_ms)]  # of some length above 0
        if rounds and not drafted:
            failure = Message("step-probe.no_draft")
        rounds = [it for it in drafted if min(it.step_ms.values()) >= CHEAPEST * it.plain_ms]
        if drafted and not rounds:
            failure = Message("step-probe.impossible")
        calm = tuple(it for it in rounds if not is_busy(it.other_cpu_percent, gate))
        busy = tuple(it for it in rounds if it not in calm)
        if busy and not calm:
            share = fmean(share for it in busy for share in it.other_cpu_percent)
            failure = Message("step-probe.busy", share=share / 100)
        return StepProbe(
            baseline_id=baseline_id,
            target=arm.target,
            draft=arm.draft,
            engine=arm.engine,
            gamma=min(arm.gamma or 1, longest),
            clients=at_once(arm),
            started_at=started_at,
            ended_at=ended_at,
            prompts=tuple(prompt.id for prompt in prompts),
            rounds=calm,
            left_out=busy,
            failure=None if calm else failure,
        )

    def _rounds(
        self, baseline_id: str, ways: Sequence[Arm], turns: Sequence[Sequence[Prompt]], shape: Shape, folder: Path
    ) -> Iterator[list[StepRound]]:
        """One in any case, and others like it as far as the time allows."""
        experiment = self._work.experiment
        priced = [pricing(arm, min(arm.gamma or 1, shape.longest)) for arm in ways]
        spec = RoundSpec(
            plain=self._work.arms[baseline_id],
            drafting=[arm.model_copy(update={"id": f"{arm.id}/{index}"}) for index, arm in enumerate(priced)],
            models=self._work.models,
            prompts=(),
            generation=experiment.generation.model_copy(update={"temperature": 0.0, "ignore_eos": True}),
            folder=folder,
            start_timeout_s=experiment.engine.start_timeout_s,
            idle_timeout_s=experiment.engine.idle_timeout_s,
            watched=self._host is not None,
            clients=at_once(self._work.arms[baseline_id]),
            whole_steps=shape.whole_steps,
        )
        left, expected, least = self._for_steps(baseline_id, ways), 0.0, max(1, self._least_rounds)
        seen: list[list[StepRound]] = []
        for index, prompts in enumerate(turns):
            if expected > left and index >= least:
                return
            before = self._engine.clock()
            found = measure_round(self._engine, replace(spec, prompts=prompts), index)
            yield found
            seen.append(found)
            if self._allowance_s is not None and _is_precise(seen):
                return
            expected = self._engine.clock() - before
            left -= expected
            if not spec.shorter and any(change_costs(it) for it in found):
                spec = replace(spec, shorter=self._shorter(baseline_id, ways, spec.drafting))
                least = max(least, index + 2)  # without it shorter drafts would not be priced at all

    def _shorter(self, baseline_id: str, ways: Sequence[Arm], priced: Sequence[Arm]) -> dict[str, list[Arm]]:
        """Arms that time each length, below the longest, that the run drafts: by the id of the arm that times that."""
        found: dict[str, list[Arm]] = {}
        for arm, longest in zip(ways, priced, strict=True):
            key = probe_key(baseline_id, arm.draft, arm.engine)
            gammas = {
                it.gamma
                for it in self._work.arms.values()
                if probe_key(it.baseline_id or "", it.draft, it.engine) == key and it.draft is not None and not it.p_min
            }
            found[longest.id] = [
                pricing(arm, gamma).model_copy(update={"id": f"{longest.id}/{gamma}"})
                for gamma in sorted(it for it in gammas if it is not None and it < (longest.gamma or 1))
            ]
        return found

    def _for_steps(self, baseline_id: str, ways: Sequence[Arm]) -> float:
        """Seconds for a probe. Half of what is left, where a draft model has texts to read as well."""
        if self._allowance_s is not None:
            return self._allowance_s
        return self._left(baseline_id) * (0.5 if any(arm.draft for arm in ways) else 1.0)

    def _left(self, baseline_id: str) -> float:
        """Seconds that may still be taken beside a baseline, if each of its arms takes as long as it does."""
        alike = {arm.id for arm in self._work.arms.values() if baseline_id in (arm.id, arm.baseline_id)}
        cells = sum(cell.arm_id in alike for cell in self._work.cells)
        replies = [it.reply.timings for it in self._texts.get(baseline_id, {}).values() if it.reply is not None]
        request_s = fmean(it.prompt_ms + it.predicted_ms for it in replies) / 1000 if replies else 0.0
        asked = len(self._asked.get(baseline_id, ()))
        most = min(SHARE * cells * self._session_s(baseline_id), REQUESTS * asked * request_s)
        return most - self._spent.get(baseline_id, 0.0)

    def _session_s(self, baseline_id: str) -> float:
        """Mean length of a baseline's sessions so far."""
        lengths = [
            it.ended_at - it.started_at
            for it in self._store.sessions()
            if it.arm_id == baseline_id and it.ended_at is not None
        ]
        return fmean(lengths) if lengths else 0.0

    def _expected(self, baseline_id: str, ways: Sequence[Arm], shape: Shape) -> float:
        """Seconds that a round takes: loading, prompts, and steps, each a plain token and for every drafted one what a
        token of a prompt takes; of a draft model by its size beside the target's. Endless where the baseline was not
        measured yet."""
        replies = [it.reply for it in self._texts.get(baseline_id, {}).values() if it.reply is not None]
        plain_ms = self.plain_ms(baseline_id)
        if not replies or plain_ms is None:
            return math.inf
        loading = fmean(it.ready_ms for it in self._store.sessions() if it.arm_id == baseline_id)
        reading = fmean(reply.timings.prompt_ms for reply in replies)
        row_ms = min(plain_ms, reading / fmean(max(1, reply.timings.prompt_n) for reply in replies))
        reading += row_ms * fmean(reply.timings.predicted_n for reply in replies) / 2
        clients, target = at_once(self._work.arms[baseline_id]), self._work.models[ways[0].target]
        waves = max(1, shape.prompts / clients)
        longest = max(min(arm.gamma or 1, shape.longest) for arm in ways)
        each = [(longest, 0.0, 0.0)]  # (tokens of a draft, share of the steps that draft, a draft model's part)
        for arm in ways:
            part = self._work.models[arm.draft].size_bytes / max(1, target.size_bytes) if arm.draft else 0.0
            times = 2 if routed(self._work.models[arm.target]) else 1
            each += times * [(min(arm.gamma or 1, shape.longest), 1.0, part)]
        took = 0.0
        for gamma, drafting, part in each:
            steps = tokens_of(gamma, clients, shape.whole_steps)
            drafted = drafting * ((steps - gamma) * gamma + gamma * (gamma - 1) / 2)
            verified = steps * plain_ms + drafted * row_ms
            took += loading + waves * reading + waves * (verified * (1 + part) + drafted * part * plain_ms)
        return took / 1000

    def _affordable(self, baseline_id: str, ways: Sequence[Arm]) -> Shape:
        """What a round may measure: fewer prompts, then fewer steps and shorter drafts, until there is the time for
        it. Prompts in whole waves of the baseline's clients. The last one, coarse, is measured in any case."""
        clients = at_once(self._work.arms[baseline_id])
        once, left = len(first_pass(self._work.prompts[baseline_id])), self._for_steps(baseline_id, ways)
        most, longest = max(1, min(_PROMPTS, once) // clients) * clients, self._longest
        shapes = [Shape(count, WHOLE_STEPS, longest) for count in range(most, 0, -clients)]
        drafted = min(longest, max((arm.gamma or 1 for arm in ways), default=1))
        shapes += [Shape(clients, _COARSE_STEPS, it) for it in _halved(drafted)]
        fitting = (it for it in shapes if not ways or self._expected(baseline_id, ways, it) <= left)
        return next(fitting, shapes[-1])

    def _turns(self, baseline_id: str, count: int) -> list[list[Prompt]]:
        """Prompts of each round, so that rounds go through all of the baseline's, those of middling length first, of
        each kind. Each is asked once more after half of its answer: steps cost what they do at the mean depth of the
        run, and the answer repeats what can be looked up."""
        kinds: dict[str, list[Prompt]] = {}
        prompts = first_pass(self._work.prompts[baseline_id])
        middle = median(len(it.text) for it in prompts)
        for prompt in sorted(prompts, key=lambda it: abs(len(it.text) - middle)):
            request = self._texts.get(baseline_id, {}).get(prompt.id)
            answer = request.reply.text if request is not None and request.reply is not None else ""
            kinds.setdefault(prompt.kind, []).append(_asked_again(prompt, answer[: len(answer) // 2]))
        ordered = cycle([it for row in zip_longest(*kinds.values()) for it in row if it is not None])
        return [list(islice(ordered, count)) for _ in range(MAX_ROUNDS)]

    def _gate(self, arm: Arm) -> Gate:
        return QUIET if self._host is None else gate_for(arm.engine, self._host)

    # --- yield -------------------------------------------------------------------------------------------------------

    def replay(self, arm: Arm) -> Counted | Message:
        """The steps of an arm on the texts that its baseline generated first, or why they are not known."""
        reason = why_not_replayed(arm, self._work.traits, self._work.experiment.generation)
        if reason is None:
            reason = self.read(arm)
        return reason or super().replay(arm)

    def read(self, arm: Arm) -> Message | None:
        """Let the arm's draft read what it has not read of its baseline's texts; why it cannot, where it cannot."""
        from specmeter.probe.profile import profile_texts

        if arm.draft is None or not (passages := self.unread(arm)):
            return None
        baseline_id, started_at = arm.baseline_id or "", self._engine.clock()
        reader = probe_key(baseline_id, arm.draft, arm.engine)
        quick, within_run = self._host is not None, self._allowance_s is None
        limit_s = max(_MIN_READING_S, self._left(baseline_id)) if quick and within_run else _PROFILE_S
        again = quick and within_run and limit_s > _MIN_READING_S
        if reader in self._tried and (not again or self._tried[reader]):
            return self._tried[reader]
        self._tried[reader] = None
        self._tell(Message("looking.reading", draft=arm.draft, time=duration(math.ceil(limit_s))))
        alike = [it for it in self._work.arms.values() if it.draft == arm.draft and it.p_min]
        if self.is_hopeless(arm):
            alike = []  # what a draft model says behind a wrong token takes most of the time, and could not help
        try:
            made = profile_texts(
                self._work.models[arm.draft],
                arm.engine,
                passages,
                drafts_ends=drafts_ends_of(self._work.traits, self._work.experiment.generation),
                gamma=max((it.gamma or 0 for it in alike), default=0),
                p_min=min((it.p_min or 0.0 for it in alike), default=0.0),
                limit_s=limit_s,
                quick=quick,
            )
        except EngineError as error:
            self._tried[reader] = Message("text.outside", text=error.message)
            return self._tried[reader]
        finally:
            self._spent[baseline_id] = self._spent.get(baseline_id, 0.0) + self._engine.clock() - started_at
        if not (quick and within_run):  # else they are read thoroughly, and put on record, after the run
            self._store.add_profiles(made)
        self.learn(made)
        return None


def _asked_again(prompt: Prompt, answer: str) -> Prompt:
    if not answer:
        return prompt
    if prompt.format == "completion":
        return prompt.model_copy(update={"text": f"{prompt.text}{answer}\n\n{prompt.text}"})
    said = (ChatMessage(role="user", content=prompt.text), ChatMessage(role="assistant", content=answer))
    return prompt.model_copy(update={"before": (*prompt.before, *said)})


def _halved(gamma: int) -> Iterator[int]:
    """From the longest draft down to those that are not cut further."""
    while True:
        yield gamma
        if gamma <= _COARSE_GAMMA:
            return
        gamma = max(_COARSE_GAMMA, gamma // 2)


def _is_precise(rounds: Sequence[Sequence[StepRound]]) -> bool:
    """Whether rounds agree in what a step of each way of drafting costs, on average over its lengths."""
    if len(rounds) < MIN_ROUNDS:
        return False
    for of_way in zip(*rounds, strict=True):
        lengths = set[int](of_way[0].step_ms).intersection(*(it.step_ms for it in of_way))
        costs = [fmean(math.log(it.step_ms[length] / it.plain_ms) for length in lengths) for it in of_way if lengths]
        if costs and stdev(costs) > PRECISE * math.sqrt(len(costs)):
            return False
    return True


def _priced(arm: Arm, traits: EngineTraits) -> bool:
    """Whether its steps cost what steps cost that draft as much and reject it all."""
    drafters = traits.drafters(arm.methods)
    return bool(drafters) and drafters <= {"model", "lookup"}

"""What is found out before an arm's first session, so that it can be predicted: what its steps cost and will yield.

Cost comes from a probe of whole steps (`probe.steps`), taken once for all arms of a baseline, at as many requests at
once as it has clients, and put on record. Yield
comes from replaying the arm on the texts that its baseline has generated (`profile`): a draft model reads them once.
The probe takes at most `SHARE` of the time that the baseline's arms will take, unless it is always wanted; reading
some seconds. Whatever fails
here leaves a reason behind, not a failed run; what is interrupted is taken anew when the run is resumed.

Which experts a run's texts choose: read by its MoE targets when it has been measured.

Servers do not show their experts, and reading them slows forwards down, so they are read afterwards: prompts and the
texts that the baseline generated go through the target once more, as prompts do. What the experts of n consecutive
tokens come to is what a verification of n tokens reads where its drafts are accepted; a rejected draft token is
another token, whose experts are on record only where the engine itself recorded them (`engine.record_experts`).

It may take a twentieth of the time that the run took, or ten seconds. Nothing that goes wrong here fails the run.

What the record of a run says about an arm before it is measured, or of one that is not measured at all.

Its steps are replayed on the texts that its baseline has generated (`profile`), and what they cost was probed in the
run. `scout` finds out what the record lacks.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice, zip_longest
from pathlib import Path
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING

from specmeter.analysis.load.crossover import way
from specmeter.analysis.load.summary import measured_cells
from specmeter.analysis.prediction.drafts import Counted, SessionRequest, follow, table_of
from specmeter.errors import EngineError, ExperimentError, UsageError
from specmeter.experiments.schedule import first_pass, item_order
from specmeter.host.telemetry import QUIET, Gate, gate_for, is_busy
from specmeter.measure import warmup_tokens
from specmeter.messages import Message
from specmeter.probe.profile import Passage, allowed_s, drafts_ends_of, profile_texts
from specmeter.probe.replay import UnreplayableError, digest, drafts_of, key_of, limits_of, replay, wanted_key, why_not
from specmeter.probe.routing import MOST_EXPERTS, WINDOWS, ContinuationsOrder, load_routing, text_unions
from specmeter.probe.steps import RoundSpec, change_costs, measure_round, plain_ms, pricing, routed, tokens_of
from specmeter.record import (
    UNKNOWN_TOKEN,
    Arm,
    EngineSettings,
    EngineTraits,
    Generation,
    Request,
    StepProbe,
    StepRound,
    TextRouting,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from specmeter.analysis.load.summary import CellFigures
    from specmeter.analysis.prediction.drafts import NgramTable
    from specmeter.engines import Engine
    from specmeter.measure import Work
    from specmeter.probe.replay import Limits, ProfileKey, Round
    from specmeter.record import Host, MatchProfile, Prompt, Reply
    from specmeter.store import RunReader, RunStore


MOST_PROMPTS = 0.95
"""A share of prompts above this says nothing about decoding."""


def at_once(arm: Arm) -> int:
    """Requests of an arm that the engine works on at once, as far as its clients say."""
    return 1 if arm.load is None else min(arm.load.clients or arm.engine.slots, arm.engine.slots)


def why_not_replayed(arm: Arm, traits: EngineTraits, generation: Generation) -> Message | None:
    """Why an arm's steps cannot be known from its baseline's texts; None where they can."""
    if traits.drafting == "llama-server" and table_of(arm) is not None:
        return Message("replay.shared_table") if at_once(arm) != 1 else None
    if (reason := why_not(arm, traits=traits, generation=generation)) is not None:
        return reason
    return None if arm.policy is None else Message("replay.policy", policy=arm.policy)


class Evidence:
    """The record of one run."""

    def __init__(self, work: Work, store: RunReader) -> None:
        """`work` has the arms that are asked about; the run may have measured only some of them."""
        self._work = work
        self._record = store
        self._probes = {probe_key(it.baseline_id, it.draft, it.engine): it for it in store.probes()}
        self._complete: dict[str, dict[str, Request]] | None = None
        """Texts of all baselines, once all prompts have one."""
        self._prompts: dict[tuple[str, str], tuple[int, ...]] = {}
        """(target, prompt id) -> its tokens."""
        self._profiles: dict[ProfileKey, MatchProfile] | None = None
        self._settings: dict[str, dict[str, object]] = {}
        """Baseline -> what its first session said is in force."""
        self._measured: dict[str, list[CellFigures]] = {}
        """Loaded baseline -> its cells."""

    def price(self, arm: Arm) -> StepProbe | None:
        """What steps of an arm cost, where that was probed."""
        return self._probes.get(probe_key(arm.baseline_id or "", arm.draft, arm.engine))

    def price_between(self, arm: Arm) -> tuple[StepProbe, StepProbe] | None:
        """Probes of the same steps at the next fewer and the next more clients, for an arm whose own load was not
        probed; None where there are none on both sides."""
        clients = at_once(arm)
        fewer: StepProbe | None = None
        more: StepProbe | None = None
        for it in self._probes.values():
            if not it.rounds or it.draft != arm.draft or not self._differ_in_clients(arm, it.baseline_id):
                continue
            if it.clients < clients and (fewer is None or it.clients > fewer.clients):
                fewer = it
            if it.clients > clients and (more is None or it.clients < more.clients):
                more = it
        return None if fewer is None or more is None else (fewer, more)

    def _differ_in_clients(self, arm: Arm, baseline_id: str) -> bool:
        """Whether it is the arm's baseline, ignoring the number of clients."""
        own, other = self._work.arms.get(arm.baseline_id or ""), self._work.arms.get(baseline_id)
        if own is None or other is None or own.load is None or other.load is None:
            return False
        return other.load.clients is not None and way(own) == way(other)

    def plain_ms(self, baseline_id: str) -> float | None:
        """Time of a plain token in what was measured of a baseline, the median request; under load of a step that
        decodes for every client."""
        arm = self._work.arms[baseline_id]
        if arm.load is not None:
            cells = [it for it in self._cells(baseline_id) if it.full_tokens and it.full_ms]
            steps = [(it.full_ms or 0.0) * at_once(arm) / (it.full_tokens or 1) for it in cells]
            return median(steps) if steps else None
        each = [plain_ms(reply) for reply in self._timed(baseline_id)]
        return median(each) if each else None

    def tokens(self, baseline_id: str) -> float | None:
        """Tokens after the first of a baseline's requests, on average."""
        each = [reply.timings.predicted_n - 1 for reply in self._timed(baseline_id)]
        return fmean(each) if each else None

    def _timed(self, baseline_id: str) -> list[Reply]:
        """A baseline's first answer to each prompt, where it has a time for a token."""
        replies = (it.reply for it in self._texts.get(baseline_id, {}).values())
        return [reply for reply in replies if reply is not None and reply.timings.predicted_n > 1]

    def prompts_share(self, baseline_id: str) -> float | None:
        """The part of a loaded baseline's steady window that prompts take: what is left when every token after the
        first of a request has taken its part of a step that decodes for every client. None where it was not measured,
        or never decoded for all clients at once."""
        cells = [it for it in self._cells(baseline_id) if it.full_tokens and it.full_ms and it.window_ms]
        if not cells:
            return None
        shares = [1 - it.decode_tokens * (it.full_ms or 0.0) / (it.full_tokens or 1) / it.window_ms for it in cells]
        return min(max(median(shares), 0.0), MOST_PROMPTS)

    def _cells(self, baseline_id: str) -> Sequence[CellFigures]:
        """What was measured of a loaded baseline first: the cells of one block."""
        if baseline_id not in self._measured:
            found = [it.figures for it in measured_cells(self._record, baseline_id) if it.figures.counts]
            if not found:
                return ()
            self._measured[baseline_id] = found
        return self._measured[baseline_id]

    def replay(self, arm: Arm) -> Counted | Message:
        """The steps of an arm on the texts that its baseline generated first, or why they are not known."""
        generation = self._work.experiment.generation
        reason = why_not_replayed(arm, self._work.traits, generation)
        if reason is not None:
            return reason
        texts, unread = self._texts.get(arm.baseline_id or "", {}), 0
        wanted = {prompt.id: prompt.max_tokens or generation.max_tokens for prompt in self._work.prompts[arm.id]}
        known = {
            prompt_id: (tokens, text)
            for prompt_id in wanted
            if (text := text_of(texts.get(prompt_id))) and (tokens := self._tokens(arm.target, prompt_id))
        }
        found = Counted(replayed=True)
        table = table_of(arm)
        try:
            for prompt_id, (tokens, text) in known.items() if table is None else ():
                rounds = self._follow(arm, tokens, text, wanted[prompt_id])
                if rounds is None:
                    unread += 1
                else:
                    found.add(prompt_id, _steps(arm, rounds))
        except UnreplayableError as error:
            return Message("text.outside", text=error.message)
        alone = bool(self._work.experiment.only.turns)  # a prompt has a server of its own then
        for together in ([[it] for it in known] if alone else [list(known)]) if table is not None else ():
            session = {name: known[name] for name in together}
            for prompt_id, rounds in self._follow_session(arm, table, session, wanted):
                found.add(prompt_id, _steps(arm, rounds))
        missing = len(wanted) - len(found.prompts)
        if not found.prompts and unread:
            return Message("replay.unread")
        if not found.prompts:
            return Message("replay.no_text")
        found.basis = Message(
            "rates.replayed",
            arm=arm.baseline_id,
            prompts=len(found.prompts),
            missing=Message("rates.missing", missing=missing) if missing else "",
            session="" if table is None or alone else Message("rates.session"),
        )
        return found

    def unread(self, arm: Arm) -> list[Passage]:
        """Texts of its baseline that the draft of an arm has not read."""
        passages: dict[ProfileKey, Passage] = {}
        for prompt_id, request in self._texts.get(arm.baseline_id or "", {}).items():
            text, tokens = text_of(request), self._tokens(arm.target, prompt_id)
            if arm.draft and tokens and text and (key := self._profile_key(arm, tokens, text)) not in self._read:
                passages.setdefault(key, Passage(prompt_id=prompt_id, prompt=tokens, text=text))
        return list(passages.values())

    def _follow(self, arm: Arm, prompt: Sequence[int], text: Sequence[int], max_tokens: int) -> Sequence[Round] | None:
        """An arm's steps on one text; None where its draft did not read it. Raises `UnreplayableError`."""
        traits, resolved = self._work.traits, self._resolved(arm)
        limits = self._limits(arm, prompt, max_tokens)
        profile = self._read.get(self._profile_key(arm, prompt, text)) if arm.draft is not None else None
        if arm.draft is not None and profile is None:
            return None
        rounds = replay(drafts_of(arm, resolved, traits=traits, profile=profile, prompt=prompt, text=text), limits)
        return _without_replays(rounds) if limits.replays else rounds

    def _follow_session(
        self,
        arm: Arm,
        table: NgramTable,
        known: Mapping[str, tuple[Sequence[int], Sequence[int]]],
        wanted: Mapping[str, int],
    ) -> Iterator[tuple[str, Sequence[Round]]]:
        """An arm's steps on the texts of its first session, in their order, after its warm-ups."""
        names = list(known)
        names = [names[index] for index in item_order(names, 0, 0, self._work.experiment.design.seed)]
        asked: list[SessionRequest] = []
        most = warmup_tokens(self._work.experiment.design.warmup, wanted[names[0]]) if names else 1
        for prompt, text in self._warmed_up(arm):
            asked.append(SessionRequest(prompt, text, self._limits(arm, prompt, most if len(text) > 1 else 1)))
        before = len(asked)
        asked += [SessionRequest(*known[name], self._limits(arm, known[name][0], wanted[name])) for name in names]
        for name, rounds in zip(names, list(follow(table, asked))[before:], strict=True):
            yield name, _without_replays(rounds) if asked[0].limits.replays else rounds

    def _warmed_up(self, arm: Arm) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        """(prompt, text) of each request before the first one that is measured."""
        for session in self._record.sessions():
            if session.arm_id == arm.baseline_id and session.warmup is not None:
                yield session.warmup.prompt, session.warmup.text
                yield session.warmup.prompt, session.warmup.text[:1]
                return

    def _limits(self, arm: Arm, prompt: Sequence[int], max_tokens: int) -> Limits:
        header = self._work.models[arm.target].header
        return limits_of(
            self._resolved(arm),
            traits=self._work.traits,
            max_tokens=max_tokens,
            prompt_tokens=len(prompt),
            recurrent=header is not None and header.recurrent,
        )

    @property
    def _read(self) -> dict[ProfileKey, MatchProfile]:
        if self._profiles is None:
            self._profiles = {key_of(it): it for it in self._record.profiles()}
        return self._profiles

    def learn(self, profiles: Iterable[MatchProfile]) -> None:
        self._profiles = self._read | {key_of(it): it for it in profiles}

    def _tokens(self, target: str, prompt_id: str) -> tuple[int, ...]:
        """A prompt by the target's tokenizer; nothing where it was not told."""
        if (target, prompt_id) not in self._prompts:
            self._prompts = {(it.target, it.prompt_id): it.token_ids for it in self._record.prompt_tokens()}
        return self._prompts.get((target, prompt_id), ())

    def _profile_key(self, arm: Arm, prompt: Sequence[int], text: Sequence[int]) -> ProfileKey:
        experiment = self._work.experiment
        return wanted_key(
            digest(prompt),
            digest(text),
            arm,
            self._work.models[arm.draft or ""],
            traits=self._work.traits,
            generation=experiment.generation,
        )

    @property
    def _texts(self) -> dict[str, dict[str, Request]]:
        """Baseline -> prompt -> the first request on it; read anew while baselines are still being measured."""
        if self._complete is not None:
            return self._complete
        baselines = {arm.id for arm in self._work.arms.values() if arm.role == "baseline"}
        found: dict[str, dict[str, Request]] = {}
        for request in self._record.requests():
            if request.arm_id in baselines and request.reply is not None:
                found.setdefault(request.arm_id, {}).setdefault(request.prompt_id, request)
        if all(len(found.get(it, {})) == len(self._work.prompts[it]) for it in baselines):
            self._complete = found
        return found

    def _resolved(self, arm: Arm) -> dict[str, object]:
        """What the engine says about settings that an arm shares with its baseline."""
        baseline_id = arm.baseline_id or ""
        if baseline_id not in self._settings:
            for session in self._record.sessions():
                if session.arm_id == baseline_id:
                    found = {name: session.resolved[name] for name in _SHARED if name in session.resolved}
                    self._settings[baseline_id] = found
                    break
        return self._settings.get(baseline_id, {})


_SHARED = ("n_ctx", "n_ctx_seq", "n_batch")


def text_of(request: Request | None) -> tuple[int, ...]:
    """Token ids that were generated; none where some are not known, or there is nothing to follow."""
    text = request.reply.token_ids if request is not None and request.reply is not None else ()
    return () if len(text) < 2 or UNKNOWN_TOKEN in text else text


def _steps(arm: Arm, rounds: Sequence[Round]) -> Counter[tuple[int, int, int]]:
    return Counter((arm.gamma or 1, it.drafted, it.accepted) for it in rounds)


def _without_replays(rounds: Sequence[Round]) -> list[Round]:
    """A forward that a rejection makes necessary belongs to the step that was rejected."""
    kept: list[Round] = []
    due = False
    for it in rounds:
        if not due:
            kept.append(it)
        due = not due and it.accepted < it.drafted
    return kept


def probe_key(baseline_id: str, draft: str | None, engine: EngineSettings) -> tuple[object, ...]:
    """What steps have in common that cost the same: the baseline, who drafts, and the settings."""
    return (baseline_id, draft, engine.model_dump_json())


SHARE = 0.1
"""Of the time that the run will take."""
STEADY = 2.5
"""So many times that share where each length of draft needs a session of its own."""
MOST_ROUNDS = 6
LEAST_ROUNDS = 2
"""Where a probe is always wanted."""
PRECISE = 0.01
"""Standard error of the logarithm of a step's cost with which a probe ends before its allowance is used."""
_PROMPTS = 3
_PROFILE_S = 20.0
LONGEST_GAMMA = 64
"""Longer drafts are priced from those of this length."""


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
    ) -> None:
        """`host` is the machine; None where it is simulated.

        `allowance_s` is the time for the probe beside each baseline. Without it that is a share of the run, unless the
        experiment wants no probe or the machine is simulated. Drafts longer than `longest` are priced from those.
        """
        super().__init__(work, store)
        self._engine = engine
        self._store = store
        self._host = host
        self._allowance_s = allowance_s
        self._longest = longest
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
        return LEAST_ROUNDS if self._work.experiment.design.probe == "always" else 0

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
        if key not in self._probes:
            probes = self._measure(arm.baseline_id)
            self._store.add_probes(probes)
            self._probes |= {probe_key(it.baseline_id, it.draft, it.engine): it for it in probes}
        return self._probes.get(key)

    def _measure(self, baseline_id: str) -> list[StepProbe]:
        """One probe for each way of drafting beside a baseline; all in the same rounds."""
        found: dict[tuple[object, ...], Arm] = {}
        for arm in self._work.arms.values():
            if arm.baseline_id == baseline_id and arm.gamma is not None and _priced(arm, self._work.traits):
                key = probe_key(baseline_id, arm.draft, arm.engine)
                if key not in self._probes and (key not in found or (found[key].gamma or 0) < arm.gamma):
                    found[key] = arm
        ways = list(found.values())
        started_at = self._engine.clock()
        rounds: list[list[StepRound]] = []
        turns = self._affordable(baseline_id, ways)
        failure: Message | None = None
        try:
            if ways:
                with tempfile.TemporaryDirectory(prefix="specmeter-probe-") as folder:
                    for it in self._rounds(baseline_id, ways, turns, Path(folder)):
                        rounds.append(it)  # noqa: PERF402  # what was measured before an engine fails is kept
                failure = None if rounds else Message("step-probe.too_long")
        except (EngineError, ExperimentError) as error:
            failure = Message("text.outside", text=error.message)
        ended_at = self._engine.clock()
        prompts = list({it.id: it for turn in turns[: max(1, len(rounds))] for it in turn}.values())
        return [
            self._probe(baseline_id, arm, prompts, [it[index] for it in rounds], failure, started_at, ended_at)
            for index, arm in enumerate(ways)
        ]

    def _probe(
        self,
        baseline_id: str,
        arm: Arm,
        prompts: Sequence[Prompt],
        rounds: Sequence[StepRound],
        failure: Message | None,
        started_at: float,
        ended_at: float,
    ) -> StepProbe:
        gate = self._gate(arm)
        drafted = [it for it in rounds if any(it.step_ms)]  # of some length above 0
        if rounds and not drafted:
            failure = Message("step-probe.no_draft")
        rounds = drafted
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
            gamma=min(arm.gamma or 1, self._longest),
            clients=at_once(arm),
            started_at=started_at,
            ended_at=ended_at,
            prompts=tuple(prompt.id for prompt in prompts),
            rounds=calm,
            left_out=busy,
            failure=None if calm else failure,
        )

    def _rounds(
        self, baseline_id: str, ways: Sequence[Arm], turns: Sequence[Sequence[Prompt]], folder: Path
    ) -> Iterator[list[StepRound]]:
        """As many as the time allows: one whose length is guessed from the baseline's session, others like it."""
        experiment = self._work.experiment
        priced = [pricing(arm, min(arm.gamma or 1, self._longest)) for arm in ways]
        spec = RoundSpec(
            plain=self._work.arms[baseline_id],
            drafting=[arm.model_copy(update={"id": f"{arm.id}/{index}"}) for index, arm in enumerate(priced)],
            models=self._work.models,
            prompts=(),
            generation=experiment.generation.model_copy(update={"temperature": 0.0}),
            folder=folder,
            start_timeout_s=experiment.engine.start_timeout_s,
            idle_timeout_s=experiment.engine.idle_timeout_s,
            watched=self._host is not None,
            clients=at_once(self._work.arms[baseline_id]),
        )
        left, expected = self._allowance(baseline_id), 0.0
        seen: list[list[StepRound]] = []
        for index, prompts in enumerate(turns):
            if expected > left and index >= self._least_rounds:
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
                more = sum(map(len, spec.shorter.values()))
                expected *= 1 + more / (1 + len(ways))
                left += (STEADY - 1) * self._allowance(baseline_id)

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

    def _allowance(self, baseline_id: str) -> float:
        """Seconds for the probe of a baseline: `SHARE` of what its arms will take, if each takes as long as it does."""
        if self._allowance_s is not None:
            return self._allowance_s
        alike = {arm.id for arm in self._work.arms.values() if baseline_id in (arm.id, arm.baseline_id)}
        cells = sum(cell.arm_id in alike for cell in self._work.cells)
        return SHARE * cells * self._session_s(baseline_id)

    def _session_s(self, baseline_id: str) -> float:
        """Mean length of a baseline's sessions so far."""
        lengths = [
            it.ended_at - it.started_at
            for it in self._store.sessions()
            if it.arm_id == baseline_id and it.ended_at is not None
        ]
        return fmean(lengths) if lengths else 0.0

    def _expected(self, baseline_id: str, ways: Sequence[Arm], prompts: int) -> float:
        """Seconds that a round on so many prompts takes at least: loading, prompts, and steps of a plain token each.

        Endless where the baseline was not measured yet.
        """
        replies = [it.reply for it in self._texts.get(baseline_id, {}).values() if it.reply is not None]
        plain_ms = self.plain_ms(baseline_id)
        if not replies or plain_ms is None:
            return math.inf
        loading = fmean(it.ready_ms for it in self._store.sessions() if it.arm_id == baseline_id)
        reading = fmean(reply.timings.prompt_ms for reply in replies)
        clients = at_once(self._work.arms[baseline_id])
        steps = fmean(tokens_of(min(arm.gamma or 1, self._longest), clients) for arm in ways)
        waves = prompts / clients
        sessions = 1 + sum(2 if routed(self._work.models[arm.target]) else 1 for arm in ways)
        return (loading + (waves + 1) * reading + waves * steps * plain_ms) * sessions / 1000

    def _affordable(self, baseline_id: str, ways: Sequence[Arm]) -> list[list[Prompt]]:
        """Prompts of each round, in as many whole waves of the baseline's clients as a round has the time for, so that
        rounds go through all of its prompts, the shortest of each kind first; no round where it has not the time, but
        one wave where a probe is always wanted, or where there is an allowance: that is there to be used."""
        clients = at_once(self._work.arms[baseline_id])
        kinds: dict[str, list[Prompt]] = {}
        for prompt in sorted(first_pass(self._work.prompts[baseline_id]), key=lambda it: len(it.text)):
            kinds.setdefault(prompt.kind, []).append(prompt)
        once = [it for row in zip_longest(*kinds.values()) for it in row if it is not None]
        ordered = cycle(once)
        count, left = max(1, min(_PROMPTS, len(once)) // clients) * clients, self._allowance(baseline_id)
        least = 0 if self._allowance_s is None and not self._least_rounds else clients
        while count > least and ways and self._expected(baseline_id, ways, count) > left:
            count -= clients
        rounds = [list(islice(ordered, count)) for _ in range(MOST_ROUNDS)]
        return [it for it in rounds if it]

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
        if arm.draft is None or not (passages := self.unread(arm)):
            return None
        reader = probe_key(arm.baseline_id or "", arm.draft, arm.engine)
        if reader in self._tried:
            return self._tried[reader]
        self._tried[reader] = None
        alike = [it for it in self._work.arms.values() if it.draft == arm.draft and it.p_min]
        try:
            made = profile_texts(
                self._work.models[arm.draft],
                arm.engine,
                passages,
                drafts_ends=drafts_ends_of(self._work.traits, self._work.experiment.generation),
                gamma=max((it.gamma or 0 for it in alike), default=0),
                p_min=min((it.p_min or 0.0 for it in alike), default=0.0),
                limit_s=_PROFILE_S,
            )
        except EngineError as error:
            self._tried[reader] = Message("text.outside", text=error.message)
            return self._tried[reader]
        self._store.add_profiles(made)
        self.learn(made)
        return None


def _is_precise(rounds: Sequence[Sequence[StepRound]]) -> bool:
    """Whether rounds agree in what a step of each way of drafting costs, on average over its lengths."""
    if len(rounds) < LEAST_ROUNDS:
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


ROUTING_SHARE = 0.05
"""Of the time that the run took."""
MOST_TOKENS = 8192
"""Tokens of all prompts and texts: as much as tells a mean."""
SHORTEST = 2
"""Tokens of a text that says anything about windows."""
_LONG_WINDOWS = (49, 65)
"""Beyond those of probes: verifications of 48 and 64 drafted tokens."""
_LOADING_S = 120.0
_LONGEST_REASON = 300


def measure_routing(work: Work, store: RunStore) -> None:
    """Read the experts of every MoE target that the run does not know them of, and keep them; what failed is tried
    again when the run is resumed.

    Raises `StoreError`; Ctrl-C passes on.
    """

    if work.simulated:
        return
    known = {it.target for it in store.routing() if it.union is not None}
    headers = {name: model.header for name, model in work.models.items()}
    sparse = {name for name, it in headers.items() if it and MOST_EXPERTS >= it.experts > it.experts_used > 0} - known
    baselines = [it for it in work.arms.values() if it.role == "baseline" and it.target in sparse]
    wanted = {it.target: it for it in reversed(baselines)}
    left_s = allowed_s(store, ROUTING_SHARE)
    for arm in wanted.values():
        texts = list(_texts(arm, store))
        if texts:
            store.add_routing(_read(work, arm, texts, left_s / len(wanted)))


def _read(work: Work, arm: Arm, texts: list[tuple[tuple[int, ...], tuple[int, ...]]], limit_s: float) -> TextRouting:
    from specmeter.engines.process import default_threads
    from specmeter.probe.make import read_apart

    target = work.models[arm.target]
    own = {"threads": arm.engine.threads or default_threads()}
    # The library that reads may have been built for fewer devices than an engine of the user's.
    elsewhere = {} if work.traits.pinned else {"devices": (), "gpu_layers": None, "rpc": ()}
    order = ContinuationsOrder(
        target=target.path,
        settings=arm.engine.model_copy(update={**own, **elsewhere}),
        experts=target.header.experts if target.header else 1,
        texts=tuple(texts),
        limit_s=limit_s,
    )
    try:
        with tempfile.TemporaryDirectory(prefix="specmeter-routing-") as folder:
            routing = load_routing(read_apart(order, Path(folder), limit_s=2 * limit_s + _LOADING_S))
    except (EngineError, UsageError, OSError) as error:
        reason = str(error) if isinstance(error, OSError) else error.message
        failure = Message("text.outside", text=reason[:_LONGEST_REASON])
        return TextRouting(target=arm.target, baseline_id=arm.id, failure=failure)
    union, layers = text_unions(routing, (*WINDOWS, *_LONG_WINDOWS))
    return TextRouting(
        target=arm.target,
        baseline_id=arm.id,
        texts=len(routing.segments),
        tokens=routing.tokens,
        union=union,
        layers=layers,
    )


def _texts(arm: Arm, store: RunStore) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(prompt, text) of a baseline's first answer to each prompt, up to `MOST_TOKENS` in all."""
    prompts = {it.prompt_id: it.token_ids for it in store.prompt_tokens() if it.target == arm.target}
    left = MOST_TOKENS
    for request in store.requests():
        if request.arm_id != arm.id or request.reply is None:
            continue
        prompt, text = prompts.get(request.prompt_id), request.reply.token_ids
        if not prompt or len(text) < SHORTEST or UNKNOWN_TOKEN in text or len(prompt) + len(text) > left:
            continue
        del prompts[request.prompt_id]
        left -= len(prompt) + len(text)
        yield prompt, text

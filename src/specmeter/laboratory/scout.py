"""What is found out before an arm's first session, so that it can be predicted: what its steps cost and will yield.

Cost comes from a probe of whole steps (`probe.steps`), taken once for all arms of a baseline and put on record. Yield
comes from replaying the arm on the texts that its baseline has generated (`profile`): a draft model reads them once.
The probe takes at most `SHARE` of the time that the baseline's arms will take, reading some seconds. Whatever fails
here leaves a reason behind, not a failed run; what is interrupted is taken anew when the run is resumed.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

from specmeter.analysis.prediction.drafts import Counted
from specmeter.analysis.prediction.lookups import follow_map
from specmeter.engines.llama_cpp.reply import UNKNOWN_TOKEN
from specmeter.errors import EngineError, ExperimentError
from specmeter.host.load import busy_percent, is_busy
from specmeter.probe.steps import RoundSpec, measure_round, plain_ms, pricing, tokens_of
from specmeter.profile.arms import drafts_of, key_of, limits_of, wanted_key, why_not
from specmeter.profile.make import Passage, digest, drafts_ends_of, profile_texts
from specmeter.profile.replay import UnreplayableError, replay
from specmeter.record import Arm, EngineSettings, EngineTraits, Request, StepProbe, StepRound
from specmeter.text import counted, percent

if TYPE_CHECKING:
    from specmeter.engines import Engine
    from specmeter.measure import Work
    from specmeter.profile.arms import ProfileKey
    from specmeter.profile.replay import Round
    from specmeter.record import Host, MatchProfile, Prompt
    from specmeter.store import RunStore

SHARE = 0.1
"""Of the time that the run will take."""
MOST_ROUNDS = 6
_PROMPTS = 3
_PROFILE_S = 20.0
_LONGEST_GAMMA = 64
"""Longer drafts are priced from those of this length."""


class Scout:
    """Looks ahead in one run. One per start of it."""

    def __init__(self, work: Work, engine: Engine, store: RunStore, host: Host | None) -> None:
        """`host` is the machine; None where it is simulated, and then nothing is measured."""
        self._work = work
        self._engine = engine
        self._store = store
        self._host = host
        self._probes = {_key(it.baseline_id, it.draft, it.engine): it for it in store.probes()}
        self._unread: dict[tuple[object, ...], str] = {}
        """Draft and settings -> why it could not read."""
        self._complete: dict[str, dict[str, Request]] | None = None
        """Texts of all baselines, once all prompts have one."""

    @property
    def measures(self) -> bool:
        """Whether costs are probed in this run."""
        return self._host is not None and self._work.experiment.design.probe == "auto"

    # --- cost --------------------------------------------------------------------------------------------------------

    def price(self, arm: Arm) -> StepProbe | None:
        """What steps of an arm cost: on record, or measured now together with all arms of its baseline.

        None where none is to be measured, and where the baseline was not measured yet; a failed one says why.
        """
        if arm.baseline_id is None or not self.measures or self.plain_ms(arm.baseline_id) is None:
            return None
        key = _key(arm.baseline_id, arm.draft, arm.engine)
        if key not in self._probes:
            probes = self._measure(arm.baseline_id)
            self._store.add_probes(probes)
            self._probes |= {_key(it.baseline_id, it.draft, it.engine): it for it in probes}
        return self._probes.get(key)

    def plain_ms(self, baseline_id: str) -> float | None:
        """Time of a plain token in what was measured of a baseline, the median request."""
        replies = [it.reply for it in self._texts.get(baseline_id, {}).values()]
        each = [plain_ms(reply) for reply in replies if reply is not None and reply.timings.predicted_n > 1]
        return median(each) if each else None

    def _measure(self, baseline_id: str) -> list[StepProbe]:
        """One probe for each way of drafting beside a baseline; all in the same rounds."""
        found: dict[tuple[object, ...], Arm] = {}
        for arm in self._work.arms.values():
            if arm.baseline_id == baseline_id and arm.gamma is not None and _priced(arm, self._work.traits):
                key = _key(baseline_id, arm.draft, arm.engine)
                if key not in self._probes and (key not in found or (found[key].gamma or 0) < arm.gamma):
                    found[key] = arm
        ways = list(found.values())
        # A recurrent target pays for each rejection, so that steps which reject all say little about others.
        header = self._work.models[self._work.arms[baseline_id].target].header
        if header is not None and header.recurrent:
            ways = []
        started_at = self._engine.clock()
        rounds: list[list[StepRound]] = []
        prompts = self._affordable(baseline_id, ways)
        failure = ""
        try:
            if ways:
                with tempfile.TemporaryDirectory(prefix="specmeter-probe-") as folder:
                    for it in self._rounds(baseline_id, ways, prompts, Path(folder)):
                        rounds.append(it)  # noqa: PERF402  # what was measured before an engine fails is kept
                failure = "" if rounds else "a probe would take more than a tenth of the run's time"
        except (EngineError, ExperimentError) as error:
            failure = error.message
        ended_at = self._engine.clock()
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
        failure: str,
        started_at: float,
        ended_at: float,
    ) -> StepProbe:
        gate = self._gate(arm)
        calm = tuple(it for it in rounds if not is_busy(it.other_cpu_percent, gate))
        busy = tuple(it for it in rounds if it not in calm)
        if busy and not calm:
            share = fmean(share for it in busy for share in it.other_cpu_percent)
            failure = f"other programs took {percent(share / 100)} of the machine during it"
        return StepProbe(
            baseline_id=baseline_id,
            target=arm.target,
            draft=arm.draft,
            engine=arm.engine,
            gamma=min(arm.gamma or 1, _LONGEST_GAMMA),
            started_at=started_at,
            ended_at=ended_at,
            prompts=tuple(prompt.id for prompt in prompts),
            rounds=calm,
            left_out=busy,
            failure="" if calm else failure,
        )

    def _rounds(
        self, baseline_id: str, ways: Sequence[Arm], prompts: Sequence[Prompt], folder: Path
    ) -> Iterator[list[StepRound]]:
        """As many as the time allows: one whose length is guessed from the baseline's session, others like it."""
        experiment = self._work.experiment
        priced = [pricing(arm, min(arm.gamma or 1, _LONGEST_GAMMA)) for arm in ways]
        spec = RoundSpec(
            plain=self._work.arms[baseline_id],
            drafting=[arm.model_copy(update={"id": f"{arm.id}/{index}"}) for index, arm in enumerate(priced)],
            models=self._work.models,
            prompts=prompts,
            generation=experiment.generation.model_copy(update={"temperature": 0.0}),
            folder=folder,
            start_timeout_s=experiment.engine.start_timeout_s,
            idle_timeout_s=experiment.engine.idle_timeout_s,
        )
        left, expected = self._allowance(baseline_id), 0.0
        for index in range(MOST_ROUNDS if prompts else 0):
            if expected > left:
                return
            before = self._engine.clock()
            yield measure_round(self._engine, spec, index)
            expected = self._engine.clock() - before
            left -= expected

    def _allowance(self, baseline_id: str) -> float:
        """Seconds for the probe of a baseline: `SHARE` of what its arms will take, if each takes as long as it does."""
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
        steps = fmean(tokens_of(min(arm.gamma or 1, _LONGEST_GAMMA)) for arm in ways)
        return (loading + (prompts + 1) * reading + prompts * steps * plain_ms) * (1 + len(ways)) / 1000

    def _affordable(self, baseline_id: str, ways: Sequence[Arm]) -> list[Prompt]:
        """The baseline's shortest prompt of each kind, as many as a round has the time for; none where it has not."""
        kinds: dict[str, Prompt] = {}
        for prompt in sorted(self._work.prompts[baseline_id], key=lambda it: len(it.text)):
            kinds.setdefault(prompt.kind, prompt)
        prompts, left = list(kinds.values())[:_PROMPTS], self._allowance(baseline_id)
        while prompts and ways and self._expected(baseline_id, ways, len(prompts)) > left:
            prompts.pop()
        return prompts

    def _gate(self, arm: Arm) -> float:
        host = self._host
        if host is None:
            return busy_percent(None, 1, 1)
        cores = host.physical_cores or host.logical_cores
        on_cpu = not host.gpus or not arm.engine.gpu_layers
        return busy_percent(arm.engine.threads or cores if on_cpu else None, cores, host.logical_cores)

    # --- yield -------------------------------------------------------------------------------------------------------

    def replay(self, arm: Arm) -> Counted | str:
        """The steps of an arm on the texts that its baseline generated first, or why they are not known."""
        traits, generation = self._work.traits, self._work.experiment.generation
        by_map = traits.drafting is not None and arm.methods == ("ngram-map-k",) and arm.ngram_n is not None
        reason = None if by_map else why_not(arm, traits=traits, generation=generation)
        if reason is not None:
            return reason
        if arm.policy is not None:
            return f"the policy {arm.policy} chooses draft lengths while it runs"
        texts = self._texts.get(arm.baseline_id or "", {})
        prompts = {it.prompt_id: it.token_ids for it in self._store.prompt_tokens() if it.target == arm.target}
        profiles = self._profiles(arm, texts, prompts)
        if isinstance(profiles, str):
            return profiles
        wanted = {prompt.id: prompt.max_tokens or generation.max_tokens for prompt in self._work.prompts[arm.id]}
        found = Counted()
        for prompt_id, max_tokens in wanted.items():
            text, tokens = _text_of(texts.get(prompt_id)), prompts.get(prompt_id)
            if not text or not tokens:
                continue
            try:
                rounds = self._follow(arm, tokens, text, max_tokens, profiles)
            except UnreplayableError as error:
                return error.message
            if rounds is not None:
                found.add(prompt_id, Counter((arm.gamma or 1, it.drafted, it.accepted) for it in rounds))
        missing = len(wanted) - len(found.prompts)
        if not found.prompts:
            return "its baseline has not generated text for its prompts yet"
        less = f", {missing} without a text" if missing else ""
        how = ", each as after a prompt of its length" if by_map else ""
        found.basis = f"replayed on the text of {arm.baseline_id} ({counted(len(found.prompts), 'prompt')}{less}{how})"
        return found

    def _follow(
        self,
        arm: Arm,
        prompt: Sequence[int],
        text: Sequence[int],
        max_tokens: int,
        profiles: Mapping[ProfileKey, MatchProfile],
    ) -> Sequence[Round] | None:
        """An arm's steps on one text; None where its draft did not read it. Raises `UnreplayableError`."""
        traits, resolved = self._work.traits, self._resolved(arm)
        header = self._work.models[arm.target].header
        limits = limits_of(
            resolved,
            traits=traits,
            max_tokens=max_tokens,
            prompt_tokens=len(prompt),
            recurrent=header is not None and header.recurrent,
        )
        if arm.methods == ("ngram-map-k",):
            return list(follow_map(prompt, text, arm.ngram_n or 1, arm.gamma or 1, limits))
        profile = profiles.get(self._profile_key(arm, prompt, text)) if arm.draft is not None else None
        if arm.draft is not None and profile is None:
            return None
        rounds = replay(drafts_of(arm, resolved, traits=traits, profile=profile, prompt=prompt, text=text), limits)
        return _without_replays(rounds) if limits.replays else rounds

    def _profiles(
        self, arm: Arm, texts: dict[str, Request], prompts: dict[str, tuple[int, ...]]
    ) -> dict[ProfileKey, MatchProfile] | str:
        """Profiles of the baseline's texts by the arm's draft, made now where they are not on record."""
        known = {key_of(it): it for it in self._store.profiles()}
        if arm.draft is None:
            return known
        passages: list[Passage] = []
        for prompt_id, request in texts.items():
            text, tokens = _text_of(request), prompts.get(prompt_id)
            if tokens and text and self._profile_key(arm, tokens, text) not in known:
                passages.append(Passage(prompt_id=prompt_id, prompt=tokens, text=text))
        if not passages:
            return known
        reader = _key("", arm.draft, arm.engine)
        if reader in self._unread:
            return self._unread[reader]
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
            self._unread[reader] = error.message
            return error.message
        self._store.add_profiles(made)
        return known | {key_of(it): it for it in made}

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
        for request in self._store.requests():
            if request.arm_id in baselines and request.reply is not None:
                found.setdefault(request.arm_id, {}).setdefault(request.prompt_id, request)
        if all(len(found.get(it, {})) == len(self._work.prompts[it]) for it in baselines):
            self._complete = found
        return found

    def _resolved(self, arm: Arm) -> dict[str, object]:
        """What the engine says about settings that an arm shares with its baseline."""
        for session in self._store.sessions():
            if session.arm_id == arm.baseline_id:
                return {name: session.resolved[name] for name in _SHARED if name in session.resolved}
        return {}


_SHARED = ("n_ctx", "n_ctx_seq", "n_batch")


def _text_of(request: Request | None) -> tuple[int, ...]:
    """Token ids that were generated; none where some are not known, or there is nothing to follow."""
    text = request.reply.token_ids if request is not None and request.reply is not None else ()
    return () if len(text) < 2 or UNKNOWN_TOKEN in text else text


def _without_replays(rounds: Sequence[Round]) -> list[Round]:
    """A forward that a rejection makes necessary belongs to the step that was rejected."""
    kept: list[Round] = []
    due = False
    for it in rounds:
        if not due:
            kept.append(it)
        due = not due and it.accepted < it.drafted
    return kept


def _priced(arm: Arm, traits: EngineTraits) -> bool:
    """Whether its steps cost what steps cost that draft as much and reject it all."""
    drafters = traits.drafters(arm.methods)
    return bool(drafters) and drafters <= {"model", "lookup"}


def _key(baseline_id: str, draft: str | None, engine: EngineSettings) -> tuple[object, ...]:
    return (baseline_id, draft, engine.model_dump_json())

"""What the record of a run says about an arm before it is measured: replays of its steps, and their probed costs.

Steps are replayed on the texts that the arm's baseline has generated. `pre_measure` finds out what the record lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING

from specmeter.analysis.prediction.drafts import Counted
from specmeter.experiments.schedule import prompt_order
from specmeter.measure import warmup_tokens
from specmeter.messages import Message
from specmeter.probe.replay import UnreplayableError, digest, drafts_of, key_of, limits_of, replay, wanted_key, why_not
from specmeter.probe.steps import best_case, plain_ms
from specmeter.record import UNKNOWN_TOKEN, Arm, EngineSettings, EngineTraits, Generation, Request, StepProbe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from specmeter.analysis.load.figures import CellFigures
    from specmeter.analysis.prediction.ngram_tables import NgramTable, SessionRequest
    from specmeter.measure import Work
    from specmeter.probe.profile import Passage
    from specmeter.probe.replay import Limits, ProfileKey, Round
    from specmeter.record import MatchProfile, Reply
    from specmeter.store import RunReader


MIN_TEXTS = 2
"""Texts, of which some were not read, whose differences say how far others may lie from them."""
MAX_PROMPTS = 0.95
"""A share of prompts above this says nothing about decoding."""


WORTH = 1.1
"""Speedup with every draft token accepted, below which a draft model is not read further."""


def at_once(arm: Arm) -> int:
    """Requests of an arm that the engine works on at once, as far as its clients say."""
    return 1 if arm.load is None else min(arm.load.clients or arm.engine.slots, arm.engine.slots)


def why_not_replayed(arm: Arm, traits: EngineTraits, generation: Generation) -> Message | None:
    """Why an arm's steps cannot be known from its baseline's texts; None where they can."""
    if traits.drafting == "llama-server":
        from specmeter.analysis.prediction.ngram_tables import table_of

        if table_of(arm) is not None:
            return Message("replay.shared_table") if at_once(arm) != 1 else None
    return why_not(arm, traits=traits, generation=generation)


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

    def is_hopeless(self, arm: Arm) -> bool:
        """Whether a draft model would hardly gain even if every token of it were accepted."""
        probe = self._probes.get(probe_key(arm.baseline_id or "", arm.draft, arm.engine))
        bound = None if probe is None or arm.draft is None else best_case(probe.rounds or probe.left_out)
        return bound is not None and bound < WORTH

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
        from specmeter.analysis.load.crossover import way

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
        return min(max(median(shares), 0.0), MAX_PROMPTS)

    def _cells(self, baseline_id: str) -> Sequence[CellFigures]:
        """What was measured of a loaded baseline first: the cells of one block."""
        from specmeter.analysis.load.figures import measured_cells

        if baseline_id not in self._measured:
            found = [it.figures for it in measured_cells(self._record, baseline_id) if it.figures.counts]
            if not found:
                return ()
            self._measured[baseline_id] = found
        return self._measured[baseline_id]

    def replay(self, arm: Arm) -> Counted | Message:
        """The steps of an arm on the texts that its baseline generated first, or why they are not known."""
        from specmeter.analysis.prediction.ngram_tables import table_of

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
        if table is not None:
            for together in [[it] for it in known] if alone else [list(known)]:
                session = {name: known[name] for name in together}
                for prompt_id, rounds in self._follow_session(arm, table, session, wanted):
                    found.add(prompt_id, _steps(arm, rounds))
        missing = len(wanted) - len(found.prompts)
        if unread and len(found.prompts) < MIN_TEXTS:
            return Message("replay.unread")
        if not found.prompts:
            return Message("replay.no_text")
        # Of prompts that were not read others are only a sample.
        found.other_prompts = len(wanted) if unread else None
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
        from specmeter.probe.profile import Passage

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
        from specmeter.analysis.prediction.ngram_tables import SessionRequest, follow

        prompts = [it for it in self._work.prompts[arm.id] if it.id in known]
        names = [prompts[it].id for it in prompt_order(prompts, 0, 0, self._work.experiment.design.seed)]
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
        """Baseline -> prompt -> the first request on it; read again while baselines are still being measured."""
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

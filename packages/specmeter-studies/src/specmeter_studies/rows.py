"""What a run's store says in the words of studies: `PromptResult` rows, `ArmResult` lines, and where drafts ran.

How much a quality measurement is, in its own units: models, windows of a text that are scored, and timings.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specmeter.analysis.summary import ArmSummary
from specmeter.engines.traffic import RECEIVED, SENT
from specmeter.messages import Message
from specmeter.numbers import rates
from specmeter.record import Record, network_of
from specmeter_studies.study import ArmResult, DraftPlace, PromptResult, several

if TYPE_CHECKING:
    from specmeter.analysis.quality import QualityReport
    from specmeter.analysis.reading import RunReport
    from specmeter.analysis.summary import KindSummary
    from specmeter.record import Arm, Estimate, Prompt, Reply, Verdict
    from specmeter.store import RequestRow, RunStore
    from specmeter_studies.quality.plan import QualityPlan


_LENGTH = re.compile(r"length-(\d{1,9})$")
"""Kind of prompts of an exact length."""
_MOST_REASONS = 2
_TEXTS = "output-differs"
OF_COMPARISON = frozenset({"baseline-unlike", "baseline-elsewhere"})
"""Checks that find a comparison false, and leave the rate a rate."""


@dataclass(frozen=True)
class RunRows:
    """A run, and what its requests are described by."""

    report: RunReport
    rows: Sequence[RequestRow]
    prompts: Mapping[str, Prompt]
    """By id."""
    max_tokens: int | None
    """Of prompts that have no limit of their own."""
    finished: bool = True
    """Whether all that was planned was measured, and checked."""
    vouched: bool = False
    """Whether what is not checked yet is taken to be valid."""
    looks: int = 1
    """How often it may have been looked at to end it."""

    def results(self, suite: str = "") -> Iterator[PromptResult]:
        """Every request of the arms in question, in the order of measurement."""
        arms = {arm.id: arm for arm in self._arms()}
        verdicts = {arm_id: self._verdict(arm_id) for arm_id in arms}
        names = prompt_names(self.prompts)
        blocks = max((row.block for row in self.rows), default=0) + 1
        for row in self.rows:
            arm = arms.get(row.arm_id)
            if arm is None:
                continue
            prompt = self.prompts.get(row.prompt_id)
            verdict, why = verdicts[row.arm_id]
            yield PromptResult(
                **_identity(arm),
                suite=suite,
                prompt=names.get(row.prompt_id, row.prompt_id),
                prompt_tokens=_prompt_tokens(prompt, row),
                repeat=row.invocation * blocks + row.block,
                max_tokens=(prompt.max_tokens if prompt else None) or self.max_tokens,
                verdict=verdict,
                why=why if row.error is None else Message("study.why.failed", error=row.error),
                **_numbers(row),
            )

    def lines(self, suite: str = "") -> Iterator[ArmResult]:
        """Each arm in question over all prompts; then each per kind of text or length, where there are several."""
        summary = self.report.summary
        arms = {arm.id: arm for arm in self._arms()}
        of_arm = {item.arm_id: item for item in (*summary.arms, *summary.controls) if item.arm_id in arms}
        found = [of_arm[arm_id] for arm_id in arms if arm_id in of_arm]
        for item in found:
            yield self._line(arms[item.arm_id], item, suite, requests=item.requests_ok)
        answered = Counter((row.arm_id, row.kind) for row in self.rows if row.status == "ok")
        for item in found:
            for kind in dict.fromkeys(prompt.kind for prompt in self.prompts.values()):
                part = item.kinds.get(kind)
                if part is None:
                    continue
                yield self._line(arms[item.arm_id], part, suite, requests=answered[item.arm_id, kind], kind=kind)

    def _arms(self) -> Iterator[Arm]:
        """All but the controls that decide by dice: those test the measurement itself."""
        return (arm for arm in self.report.arms if not (arm.role == "control" and arm.synthetic_rates))

    def _line(
        self, arm: Arm, part: KindSummary | ArmSummary, suite: str, *, requests: int, kind: str | None = None
    ) -> ArmResult:
        length = _LENGTH.match(kind) if kind is not None else None
        verdict, why = self._verdict(arm.id)
        withheld = self._withheld(arm.id, kind)
        comparison_only = verdict == "invalid" and all(it.check in OF_COMPARISON for it in self.report.because(arm.id))
        return ArmResult(
            **_identity(arm),
            clients=None if arm.load is None else arm.load.clients,
            suite=suite,
            prompt=None if length else kind,
            prompt_tokens=int(length[1]) if length else None,
            requests=requests,
            baseline=arm.baseline_id,
            decode_rate=part.load.throughput if isinstance(part, ArmSummary) and part.load else part.decode_rate,
            speedup=part.speedup,
            cited=self.report.cited(part) if isinstance(part, ArmSummary) else None,
            claimed_speedup=withheld.point if withheld else None,
            acceptance=part.acceptance,
            tau=part.tau,
            energy=part.energy if isinstance(part, ArmSummary) else None,
            verdict=verdict,
            why=why,
            comparison_only=comparison_only,
            rate_verdict=self._of_rate(arm.id) if comparison_only else None,
            least_effect=self._least_effect(arm),
            looks=self.looks,
            texts_apart=self._texts_apart(arm) if kind is None else None,
        )

    def _least_effect(self, arm: Arm) -> float:
        """What a control of the same baseline showed where there is nothing, as far as its interval goes."""
        controls = {it.id for it in self.report.arms if it.role == "control" and it.baseline_id == arm.baseline_id}
        found = (it.evidence.get("least_effect_percent") for it in self.report.findings if it.arm_id in controls)
        return max((it / 100 for it in found if isinstance(it, int | float)), default=0.0)

    def _of_rate(self, arm_id: str) -> Verdict:
        """The verdict of an arm whose comparison alone is at fault, by what else was found."""
        doubtful = (it for it in self.report.findings if it.arm_id in (arm_id, None) and it.severity == "suspect")
        return "suspect" if any(doubtful) else "valid"

    def _texts_apart(self, arm: Arm) -> int | None:
        """Answers that leave plain decoding's where the target is sure, by the check that compares them."""
        certificate = self.report.certificate
        check = next((it for it in certificate.checks if it.check == _TEXTS), None) if certificate else None
        if check is None or check.status == "skipped" or not arm.speculates:
            return None
        if any(it.arm_id in (arm.id, None) for it in check.unchecked):
            return None
        found = (it.evidence.get("real") for it in self.report.findings if it.check == _TEXTS and it.arm_id == arm.id)
        return sum(real for real in found if isinstance(real, int))

    def _withheld(self, arm_id: str, kind: str | None) -> Estimate | None:
        if kind is None:
            return self.report.withheld.get(arm_id)
        return self.report.withheld_by_kind.get((arm_id, kind))

    def _verdict(self, arm_id: str) -> tuple[Verdict | None, Message | None]:
        """An arm's verdict and what makes it worse than valid; None for a run that was not checked."""
        certificate = self.report.certificate
        if self.vouched:
            return "valid", None
        if certificate is None or not self.finished or arm_id not in certificate.arms:
            return None, Message("study.why.not_checked")
        verdict = certificate.arms[arm_id]
        if verdict == "valid":
            return verdict, None
        found = (Message("study.because", name=it.check, why=it.message) for it in self.report.because(arm_id))
        return verdict, several(found, _MOST_REASONS)


def prompt_names(prompts: Mapping[str, Prompt]) -> dict[str, str]:
    """Id -> short name: the kind of text where a run has one prompt of it, else the prompt's own name."""
    kinds = Counter(prompt.kind for prompt in prompts.values())
    return {
        prompt.id: prompt.kind if kinds[prompt.kind] == 1 else prompt.id.removeprefix(f"{prompt.workload}/")
        for prompt in prompts.values()
    }


def _identity(arm: Arm) -> dict[str, Any]:
    return {
        "config": arm.id,
        "target": arm.target,
        "draft": arm.draft,
        "method": "+".join(arm.methods),
        "gamma": arm.gamma,
    }


def _numbers(row: RequestRow) -> dict[str, Any]:
    timings = row.timings
    if timings is None:
        return {}
    return {
        "decode_rate": rates.decode_rate(timings),
        "acceptance": rates.acceptance_rate(timings),
        "tau": (timings.predicted_n - 1) / row.target_forwards if row.target_forwards else None,
        "generated": timings.predicted_n,
        "decode_ms": timings.predicted_ms,
        "drafted": timings.draft_n,
        "accepted": timings.draft_n_accepted,
    }


def _prompt_tokens(prompt: Prompt | None, row: RequestRow) -> int | None:
    """The exact length that was asked for, else what the engine counted."""
    if prompt is not None and prompt.token_count is not None:
        return prompt.token_count
    return None if row.prompt_n is None else row.prompt_n + (row.cache_n or 0)


_METHOD = "draft-simple"
_DECODES = "n_decode_total"
_LOOPBACK = re.compile(r"\[127\.0\.0\.1:\d{1,5}\]")


def draft_places(store: RunStore) -> Iterator[DraftPlace]:
    """One per arm that drafts with a model of its own and answered something."""
    arms = {arm.id: arm for arm in store.arms() if arm.methods == (_METHOD,) and not arm.synthetic_rates}
    tallies = {arm_id: _Tally() for arm_id in arms}
    for session in store.sessions():
        if session.arm_id in arms:
            tally = tallies[session.arm_id]
            tally.sessions += 1
            tally.held_by.update(use.device for use in session.draft_devices if use.model_buffer_bytes)
            vocabulary = session.resolved.get("draft_n_vocab")
            tally.vocabulary = vocabulary if isinstance(vocabulary, int) else tally.vocabulary
    for request in store.requests():
        if request.arm_id in arms and request.reply is not None:
            tallies[request.arm_id].add((request.invocation, request.block), request.reply)
    for arm_id, arm in arms.items():
        if tallies[arm_id].requests:
            yield tallies[arm_id].place(arm)


@dataclass
class _Tally:
    requests: int = 0
    sessions: int = 0
    held_by: set[str] = field(default_factory=set[str])
    vocabulary: int | None = None
    ms: dict[tuple[int, int], float] = field(default_factory=lambda: defaultdict(float))
    """(invocation, block) -> time spent drafting."""
    tokens: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    drafted: int = 0
    forwards: int = 0
    sent: float | None = None
    received: float | None = None

    def add(self, block: tuple[int, int], reply: Reply) -> None:
        """One more reply."""
        self.requests += 1
        drafting = next((it for it in reply.drafting if it.method == _METHOD), None)
        if drafting is None:
            return
        self.ms[block] += drafting.generate_ms
        self.tokens[block] += reply.timings.draft_n or 0
        if SENT in reply.counters and RECEIVED in reply.counters:
            self.sent = (self.sent or 0.0) + reply.counters[SENT]
            self.received = (self.received or 0.0) + reply.counters[RECEIVED]
            self.drafted += reply.timings.draft_n or 0
            # After each forward of the target the draft catches up with what that one read.
            self.forwards += (reply.timings.draft_n or 0) + round(reply.counters.get(_DECODES, drafting.calls + 1))

    def place(self, arm: Arm) -> DraftPlace:
        """What the arm's replies and sessions say."""
        blocks = tuple(block for block, count in sorted(self.tokens.items()) if count)
        return DraftPlace(
            config=arm.id,
            machine=", ".join(arm.engine.rpc),
            held_by=tuple(sorted({_without_port(device, arm) for device in self.held_by})),
            block_ms=tuple(self.ms[block] / self.tokens[block] for block in blocks),
            blocks=blocks,
            drafted=self.drafted,
            forwards=max(0, self.forwards - self.sessions),
            sent_bytes=self.sent,
            received_bytes=self.received,
            vocabulary=self.vocabulary,
        )


def _without_port(device: str, arm: Arm) -> str:
    """A device behind a relay by the relay's name: each session has another port."""
    relays = [address for address in arm.engine.rpc if network_of(address) is not None]
    return _LOOPBACK.sub(f"[{relays[0]}]", device) if len(relays) == 1 else device


class Amount(Record):
    """What is to be measured of models, or what was."""

    models: int = 0
    perplexities: int = 0
    """Models that are scored."""
    windows: int | None = 0
    """Windows that are scored, of all models together; None: as many as the text has."""
    timings: int = 0
    """Of all models, tests and blocks together."""

    @property
    def told(self) -> Message | None:
        """`7 models (7 perplexities of 70 windows in all, 84 timings)`; None where there is nothing."""
        if not self.models:
            return None
        parts: list[Message] = []
        if self.perplexities:
            windows = "" if self.windows is None else Message("study.amount.windows", windows=self.windows)
            parts.append(Message("study.amount.scored", perplexities=self.perplexities, windows=windows))
        if self.timings:
            parts.append(Message("study.amount.timed", timings=self.timings))
        return Message("study.amount", models=self.models, parts=parts or [Message("study.nothing_yet")])


def planned(plan: QualityPlan, models: Sequence[str]) -> Amount:
    """What a plan asks for of those of its models that are measured."""
    scored = len(models) if plan.score else 0
    windows = 0 if not scored else None if plan.windows is None else scored * plan.windows
    return Amount(
        models=len(models),
        perplexities=scored,
        windows=windows,
        timings=len(models) * len(plan.tests) * plan.repeats,
    )


def measured(report: QualityReport) -> Amount:
    """What a report holds, complete or not."""
    scores = [model.perplexity for model in report.models if model.perplexity is not None]
    return Amount(
        models=len(report.models),
        perplexities=len(scores),
        windows=sum(score.windows for score in scores),
        timings=sum(len(rate.ms) for model in report.models for rate in model.rates),
    )


def together(amounts: Iterable[Amount]) -> Amount:
    """Several measurements as one; windows are unknown where those of one are."""
    every = list(amounts)
    windows = [amount.windows for amount in every]
    return Amount(
        models=sum(amount.models for amount in every),
        perplexities=sum(amount.perplexities for amount in every),
        windows=None if None in windows else sum(count or 0 for count in windows),
        timings=sum(amount.timings for amount in every),
    )

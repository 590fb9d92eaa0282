"""What a run's store says in the words of studies: `PromptResult` rows and `ArmResult` lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from specmeter.analysis.summary import ArmSummary
from specmeter.messages import Message
from specmeter.numbers import rates
from specmeter_studies.study import ArmResult, PromptResult
from specmeter_studies.telling import several

if TYPE_CHECKING:
    from specmeter.analysis.reading import RunReport
    from specmeter.analysis.summary import KindSummary
    from specmeter.record import Arm, Estimate, Prediction, Prompt, Verdict
    from specmeter.store import RequestRow


_LENGTH = re.compile(r"length-(\d{1,9})$")
"""Kind of prompts of an exact length."""
_MAX_REASONS = 2
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

    @cached_property
    def _predicted(self) -> dict[str, Prediction]:
        return {it.prediction.arm_id: it.prediction for it in self.report.predictions}

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
        """All but the controls with synthetic acceptance: those test the measurement itself."""
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
            prediction=self._predicted.get(arm.id) if kind is None else None,
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
        """Answers that leave the baseline's where the target is sure, by the check that compares them."""
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
        return verdict, several(found, _MAX_REASONS)


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

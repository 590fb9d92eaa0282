"""moe-306: its names, and which lines belong together.

Suites, as the paper's Table 3 names them:

    A   mixture-of-experts targets by themselves        B   mixture-of-experts targets with drafts
    C   dense models by themselves                      D   dense targets with drafts
    F   prompts of 32 to 1024 tokens, with and without drafts
    E   another architecture (numbered in the paper's data, not measured there; optional here)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specmeter.messages import Message
from specmeter.numbers.estimates import scaled
from specmeter.record import Estimate
from specmeter_studies.study import ArmResult, ModelUsed, StudyData
from specmeter_studies.telling import quoted, several

SUITES = {
    "A": Message("moe-306.suite.a"),
    "B": Message("moe-306.suite.b"),
    "C": Message("moe-306.suite.c"),
    "D": Message("moe-306.suite.d"),
    "E": Message("moe-306.suite.e"),
    "F": Message("moe-306.suite.f"),
}
"""Suite -> the paper's description; E is ours."""

LABELS = {
    "moe_q4": Message("moe-306.label.moe", size="Q4"),
    "moe_q8": Message("moe-306.label.moe", size="Q8"),
    "moe_other": Message("moe-306.label.other_moe"),
    "dense_0.8b": Message("moe-306.label.dense", size="0.8B"),
    "dense_2b": Message("moe-306.label.dense", size="2B"),
    "dense_4b": Message("moe-306.label.dense", size="4B"),
    "dense_9b": Message("moe-306.label.dense", size="9B"),
    "draft_0.8b": Message("moe-306.label.draft", size="0.8B"),
    "draft_2b": Message("moe-306.label.draft", size="2B"),
    "moe_draft": Message("moe-306.label.moe_draft"),
    "moe_small": Message("moe-306.label.small_moe"),
}
"""Names of models -> what the paper prints."""

MOE = ("moe_q4", "moe_q8")
DENSE = ("dense_4b", "dense_9b")
"""Dense models that are targets of speculation, not only measured by themselves."""
SMALL, LARGE = "draft_0.8b", "draft_2b"
GAMMAS = (4, 8, 16)

BYTES_PER_WEIGHT = {"F32": 4.0, "BF16": 2.0, "F16": 2.0, "Q8_0": 34 / 32, "UD-Q8_K_XL": 1_175_481_600 / 752_393_024}
"""Of the formats that drafts and dense models of the study have; the last by the header of Qwen3.5-0.8B-UD-Q8_K_XL."""

MIN_EXACT = 3
"""This many generations, all on one side, are an exact count that needs no interval."""


def suite(line: ArmResult) -> str:
    """The paper's suite of a configuration, told by its target, its method, and the name of the arms of suite F."""
    if line.config.partition("/")[2].startswith("lengths"):
        return "F"
    if line.target == "moe_other":
        return "E"
    if line.target.startswith("moe"):
        return "B" if line.speculates else "A"
    return "D" if line.speculates else "C"


def label(name: str) -> Message | str:
    """How the paper calls a model; our own name for others."""
    return LABELS.get(name, name)


def named(line: ArmResult) -> Message | str:
    """A configuration in a few words: `MoE Q4, 0.8B draft, gamma 8`."""
    if not line.speculates:
        return label(line.target)
    draft = label(line.draft or line.method)
    return Message("moe-306.named", target=label(line.target), draft=draft, gamma=line.gamma)


# --- which lines -----------------------------------------------------------------------------------------------------


def overall(data: StudyData, *suites: str) -> tuple[ArmResult, ...]:
    """Lines over all prompts of a suite; of all suites where none is named."""
    return tuple(line for line in data.whole if not suites or line.suite in suites)


def speculative(
    data: StudyData, *suites: str, target: str | Sequence[str] | None = None, draft: str | None = None
) -> tuple[ArmResult, ...]:
    """Lines over all prompts that speculate, in the suites named (default B and D), by target and gamma."""
    targets = (target,) if isinstance(target, str) else target
    return tuple(
        line
        for line in overall(data, *(suites or ("B", "D")))
        if line.speculates and (targets is None or line.target in targets) and draft in (None, line.draft)
    )


def at(data: StudyData, target: str, draft: str, gamma: int) -> ArmResult | None:
    """One configuration of suite B or D; None where it was not measured."""
    return next((line for line in speculative(data, target=target, draft=draft) if line.gamma == gamma), None)


def by_length(data: StudyData) -> tuple[ArmResult, ...]:
    """Lines of suite F by prompt length, shortest first."""
    found = [line for line in data.arms if line.suite == "F" and line.prompt_tokens is not None]
    return tuple(sorted(found, key=lambda line: line.prompt_tokens or 0))


def by_kind(data: StudyData, target: str, draft: str, gamma: int) -> tuple[ArmResult, ...]:
    """Lines of one configuration of suites B and D on each kind of prompt."""
    return tuple(
        line
        for line in data.arms
        if line.prompt is not None
        and line.suite in ("B", "D")
        and (line.target, line.draft, line.gamma) == (target, draft, gamma)
    )


def baseline_of(data: StudyData, line: ArmResult) -> ArmResult | None:
    """The same target on its own: on prompts of the same lengths for suite F, else over all prompts of its suite."""
    same = data.arms if line.suite == "F" else overall(data, "A", "C", "E")
    return next(
        (
            other
            for other in same
            if not other.speculates
            and other.target == line.target
            and (line.suite != "F" or (other.suite == "F" and other.prompt_tokens == line.prompt_tokens))
        ),
        None,
    )


def refuted(data: StudyData, line: ArmResult) -> float | None:
    """A speedup that is false: what was claimed, else what the paper's reckoning gives without a baseline of its own.

    The latter divides by the same target's rate on other prompts at another time, as the arrangement of the paper does.
    """
    if line.claimed_speedup is not None or line.stands or not line.speculates:
        return line.claimed_speedup
    base = baseline_of(data, line)
    if base is None or base.decode_rate is None or line.decode_rate is None or not base.decode_rate.point:
        return None
    return line.decode_rate.point / base.decode_rate.point


def draft_rate(data: StudyData, draft: str | None) -> Estimate | None:
    """tok/s of a draft model on its own: suite C measures the same model as `dense_...`, if in another format."""
    return next((line.decode_rate for line in overall(data, "C") if line.target == alone(draft)), None)


def alone(draft: str | None) -> str:
    """Name of the model that suite C measures for a draft."""
    return (draft or "").replace("draft_", "dense_")


@dataclass(frozen=True)
class OtherFormat:
    """A draft that was measured on its own in another number format than it drafts in."""

    measured: str
    drafts_in: str
    at_most: float
    """The draft's rate over the measured one at most, by the bytes of the formats; at least 1."""

    @property
    def message(self) -> Message:
        """As a sentence continues."""
        return self._told("moe-306.format")

    @property
    def sentence(self) -> Message:
        """As one begins."""
        return self._told("moe-306.format.sentence")

    def _told(self, code: str) -> Message:
        return Message(code, measured=self.measured, drafts_in=self.drafts_in, most=self.at_most)


def other_format(data: StudyData, draft: str | None) -> OtherFormat | None:
    """Whether a draft's own rate is that of another number format; None where it is not, or not known."""
    drafting, measured = model(data, draft or ""), model(data, alone(draft))
    if drafting is None or measured is None or drafting.quantization == measured.quantization:
        return None
    sizes = BYTES_PER_WEIGHT.get(drafting.quantization), BYTES_PER_WEIGHT.get(measured.quantization)
    if sizes[0] is None or sizes[1] is None:
        return None
    return OtherFormat(measured.quantization, drafting.quantization, max(1.0, sizes[1] / sizes[0]))


def model(data: StudyData, name: str) -> ModelUsed | None:
    """A model as it was used."""
    return next((used for used in data.models if used.name == name), None)


def believable(lines: Iterable[ArmResult]) -> tuple[ArmResult, ...]:
    """Lines with a speedup that nothing refutes."""
    return tuple(line for line in lines if line.stands and line.speedup is not None)


# --- how numbers are said --------------------------------------------------------------------------------------------


def listed(lines: Iterable[ArmResult], most: int = 6) -> Message:
    """Configurations with their speedups; the rest counted."""
    return several((with_speedup(named(line), line) for line in lines), most)


def with_speedup(name: Message | str, line: ArmResult) -> Message:
    """A name with the speedup of its configuration."""
    return Message("study.row", name=name, number=quoted(line.speedup, "x"))


def best_first(lines: Iterable[ArmResult]) -> list[ArmResult]:
    """By speedup, the highest first."""
    return sorted(lines, key=lambda line: line.speedup.point if line.speedup else 0, reverse=True)


def acceptance_of(line: ArmResult) -> float:
    return line.acceptance.point if line.acceptance else 0.0


def acceptances(lines: Sequence[ArmResult]) -> Message:
    shares = sorted(map(acceptance_of, lines))
    return Message("moe-306.acceptances", low=100 * shares[0], high=100 * shares[-1])


def percent(estimate: Estimate | None) -> Message:
    """A share with its interval; its place has the digits."""
    return quoted(None if estimate is None else scaled(estimate, 100), "%")

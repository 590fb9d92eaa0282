"""The rules of draft-lengths: each says what the data says of one claim."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

from specmeter_studies.rules import exceeded, lies
from specmeter_studies.study import ArmResult, Found, StudyData


def _drafting(data: StudyData) -> list[ArmResult]:
    """Arms that speculate, over all prompts, by target and draft length."""
    lines = [it for it in data.arms if it.speculates and it.prompt is None and it.prompt_tokens is None]
    return sorted(lines, key=lambda it: (it.target, it.gamma or 0))


def drafts_pay(data: StudyData) -> Found:
    """Whether every draft of four tokens on the dense target is faster than no speculation."""
    rows = [it for it in _drafting(data) if (it.target, it.gamma) == ("dense", 4)]
    return lies(rows, "speedup", low=1, unit="x")


def longer_is_better(data: StudyData) -> Found:
    """Whether each draft length gains more than the next shorter one on the same target."""

    def longer_and_shorter(rows: Sequence[ArmResult]) -> list[tuple[ArmResult, ArmResult]]:
        curves = [list(curve) for _, curve in groupby(rows, key=lambda it: it.target)]
        return [(longer, shorter) for curve in curves for shorter, longer in pairwise(curve)]

    return exceeded(_drafting(data), "speedup", longer_and_shorter, unit="x")


def mixtures_gain_less(data: StudyData) -> Found:
    """Whether the dense target gains more than the MoE model with the same draft length."""

    def dense_and_moe(rows: Sequence[ArmResult]) -> list[tuple[ArmResult, ArmResult]]:
        moe = {it.gamma: it for it in rows if it.target == "moe"}
        return [(it, moe[it.gamma]) for it in rows if it.target == "dense" and it.gamma in moe]

    return exceeded(_drafting(data), "speedup", dense_and_moe, unit="x")


def accepted_alike(data: StudyData) -> Found:
    """Whether 60 to 90% of the draft tokens are accepted everywhere."""
    return lies(_drafting(data), "acceptance", low=0.6, high=0.9)

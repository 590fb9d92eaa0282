"""What the Apple document printed about speculation and about machines, as data of studies.

A line over three prompts is as good as the worst of its runs: the page's tables print means of runs whose counters and
raw logs were published too, so a mean of impossible runs is no speedup, whatever the mean alone would permit.

Rates of models by themselves come from `llama-bench` with the standard deviation of four runs. That of the 4B target is
54.0 tok/s with a standard deviation of 19.5: every ratio to it is known to within a factor of two or so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING

from specmeter.audit.published import table
from specmeter.record import Estimate
from specmeter.studies.from_claims import printed_rate, result, rulings, tally, worst_of
from specmeter.studies.study import ArmResult, ModelUsed, StudyData

if TYPE_CHECKING:
    from specmeter.audit.claim import Ruling
    from specmeter.studies.study import Result

SOURCE = (
    "Efficient On-Device LLM Inference on Apple Silicon: From Quantization to Collaborative Speculative Decoding "
    "(AtomGradient, March 2026): project page, data and four raw logs"
)
BANDWIDTH = 800e9
"""Of the M2 Ultra, as the document states it."""

_BENCH, _RUNS = "apple/bench.csv", "apple/sd_runs.csv"
_NAMES = {"4B_Q8_0": "4B_Q8", "4B_Q6_K": "4B_Q6", "4B_Q4_K_M": "4B_Q4", "4B_Q3_K_M": "4B_Q3", "4B_Q2_K": "4B_Q2"}
"""`llama-bench` rows -> names of the runs."""
_MOE = "35B_Q4"
_MOE_RATE = 55.2
"""Of the MoE by itself, as the page's comparison takes it [tok/s]; no benchmark of this file was published."""
_MOE_BYTES = 20.6e9
"""Of the same file, as the same authors print it in their study of 306 runs; about 3 of 35 parts are active."""


def speculation(study: str, target: str, compared: Sequence[str] = ()) -> StudyData:
    """The document's runs on `target`, with the rates of target and drafts by themselves.

    `compared` names further targets whose runs are put beside.
    """
    rows = tuple(_rows((target, *compared)))
    lines = tuple(_line(config, of_arm) for config, of_arm in _by_arm(rows).items())
    used = tuple(dict.fromkeys((target, *compared, *(line.draft for line in lines if line.draft))))
    plain = {line.target: line for line in _plain()}
    return StudyData(
        study=study,
        origin="published",
        title="published by the document, with the audit's verdicts",
        results=rows,
        arms=(*(plain[name] for name in used), *lines, *_per_prompt(rows)),
        models=tuple(_model(name) for name in used),
        machine="M2 Ultra",
        bandwidth_bytes_per_s=BANDWIDTH,
        notes=(
            "Rates of the runs are `eff_tps`: tokens that the target evaluated, the prompt's and those of rejected "
            "drafts among them, over the life of its context; the rates they are compared with are llama-bench's.",
            "In the four raw logs that were published, 40 verifications took place of 150 to 177 that were asked for; "
            "the others failed and stale logits were read. Acceptance counted there means nothing.",
            f"`specmeter audit --published apple` rules the runs of the document's table `sd_runs`, those on other "
            f"targets among them: {tally('apple', _RUNS)}.",
        ),
    )


# --- runs ------------------------------------------------------------------------------------------------------------


def _rows(targets: Sequence[str]) -> Iterator[Result]:
    for ruling in rulings("apple", _RUNS):
        target, draft, gamma, prompt = _parts(ruling)
        if target in targets:
            config = f"{target}/{draft}/k{gamma}"
            yield result(ruling, config=config, target=target, draft=draft, prompt=prompt).model_copy(
                update={"tau": _counted_tau(ruling)}
            )


def _parts(ruling: Ruling) -> tuple[str, str, str, str]:
    """`9B_Q8, 0.8B_Q8 draft, gamma 4, code` -> its parts."""
    target, draft, gamma, prompt = ruling.claim.label.split(", ")
    return target, draft.removesuffix(" draft"), gamma.removeprefix("gamma "), prompt


def _counted_tau(ruling: Ruling) -> float | None:
    """What the printed counters would mean if every round had been verified."""
    claim = ruling.claim
    return 1 + claim.accepted / claim.steps if claim.steps and claim.accepted is not None else None


def _by_arm(rows: Sequence[Result]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    for row in rows:
        found.setdefault(row.config, []).append(row)
    return found


def _line(config: str, rows: Sequence[Result], prompt: str | None = None) -> ArmResult:
    """The mean over prompts that the page prints, and the worst verdict of the runs behind it."""
    first = rows[0]
    rate = fmean(row.decode_rate for row in rows if row.decode_rate is not None)
    verdict, why = worst_of(rows)
    baseline = next(line.decode_rate for line in _plain() if line.target == first.target)
    claimed = rate / baseline.point if baseline is not None else None
    return ArmResult(
        config=config,
        target=first.target,
        draft=first.draft,
        method=first.method,
        gamma=first.gamma,
        prompt=prompt,
        requests=len(rows),
        decode_rate=_mean(rate, len(rows), "tok/s"),
        speedup=None if verdict or claimed is None else _mean(claimed, len(rows), "x"),
        claimed_speedup=claimed if verdict else None,
        acceptance=_mean(fmean(row.acceptance for row in rows if row.acceptance is not None), len(rows), "1"),
        tau=_mean(fmean(row.tau for row in rows if row.tau is not None), len(rows), "tokens/forward"),
        verdict=verdict,
        why=why,
    )


def _per_prompt(rows: Sequence[Result]) -> Iterator[ArmResult]:
    for row in rows:
        yield _line(row.config, [row], row.prompt)


def _mean(value: float, n: int, unit: str) -> Estimate:
    return Estimate(point=value, n=n, unit=unit, method=f"mean of {n} printed values; no interval")


# --- raw logs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RawLog:
    """One raw log of a speculative run, by the counts in it."""

    run: str
    """Name of the log."""
    models: str
    asked: int
    """Verifications that the loop asked for."""
    took_place: int
    rate: float
    """tok/s as it prints them."""
    acceptance: float
    repeated: float
    """Share of the words that are the word before once more."""

    @property
    def failed(self) -> int:
        """Verifications that failed."""
        return self.asked - self.took_place


@cache
def raw_logs() -> tuple[RawLog, ...]:
    """The raw logs that were published with the document."""
    words = {row["log"]: int(row["words_repeated"]) / int(row["words"]) for row in table.rows("apple_logs.csv")}
    return tuple(
        RawLog(
            run=claim.row,
            models=claim.label,
            asked=claim.target_forwards + claim.failed_forwards,
            took_place=claim.target_forwards,
            rate=claim.decode_rate,
            acceptance=claim.acceptance,
            repeated=words[claim.row],
        )
        for ruling in rulings("apple", "apple/logs.csv")
        if (claim := ruling.claim).target_forwards is not None
        and claim.failed_forwards is not None
        and claim.decode_rate is not None
        and claim.acceptance is not None
    )


# --- models by themselves ---------------------------------------------------------------------------------------------


def _plain() -> Iterator[ArmResult]:
    for ruling in rulings("apple", _BENCH):
        claim = ruling.claim
        if claim.decode_rate is not None:
            name = _NAMES.get(claim.label, claim.label)
            yield _alone(name, printed_rate(claim), claim.runs or 1)
    rate = Estimate(point=_MOE_RATE, n=1, unit="tok/s", method="as printed; no benchmark of it was published")
    yield _alone(_MOE, rate, 1)


def _alone(name: str, rate: Estimate | None, runs: int) -> ArmResult:
    return ArmResult(config=f"{name}/none", target=name, requests=runs, decode_rate=rate)


def _model(name: str) -> ModelUsed:
    if name == _MOE:
        return ModelUsed(
            name=name,
            reference="Qwen3.5-35B-A3B-UD-Q4_K_XL",
            size_bytes=_MOE_BYTES,
            bytes_per_token=_MOE_BYTES * 3 / 35,
            experts=256,
            experts_used=8,
        )
    for ruling in rulings("apple", _BENCH):
        claim = ruling.claim
        if _NAMES.get(claim.label, claim.label) == name:
            size = claim.size_bytes
            return ModelUsed(
                name=name, reference=f"Qwen3.5 {claim.label}", size_bytes=size, bytes_per_token=size, experts=0
            )
    return ModelUsed(name=name, reference=name)

"""What the Apple document printed about speculation and about machines, as data of studies.

A line over three prompts is as good as the worst of its runs: the page's tables print means of runs whose counters and
raw logs were published too, so a mean of impossible runs is not a speedup, whatever the mean alone would permit.

Rates of models by themselves come from `llama-bench` with the standard deviation of four runs. That of the 4B target is
54.0 tok/s with a standard deviation of 19.5: every ratio to it is known to within a factor of two or so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from specmeter.audit import published
from specmeter.messages import Message
from specmeter.numbers.estimates import bare
from specmeter_studies.from_claims import counted_tau, mean_line, printed_rate, result, rulings, tally
from specmeter_studies.study import ArmResult, ModelUsed, PromptResult, StudyData

BANDWIDTH = 800e9
"""Of the M2 Ultra, as the document states it."""

_BENCH, _RUNS, _LOGS = "apple/bench.csv", "apple/sd_runs.csv", "apple/logs.csv"
_MOE = "35B_Q4"
_MOE_RATE = 55.2
"""Of the MoE on its own, as the page's comparison takes it [tok/s]; no benchmark of this file was published."""
_MOE_BYTES = 20.6e9
"""Of the same file, as the same authors print it in their study of 306 runs; about 3 of 35 parts are active."""


def speculation(study: str, target: str, compared: Sequence[str] = ()) -> StudyData:
    """The document's runs on `target`, with the rates of target and drafts by themselves.

    `compared` names further targets whose runs are put beside.
    """
    rows = tuple(
        result(ruling, config=f"{claim.target}/{claim.draft}/k{claim.gamma}").model_copy(
            update={"tau": counted_tau(claim)}
        )
        for ruling in rulings("apple", _RUNS)
        if (claim := ruling.claim).target in (target, *compared)
    )
    by_arm: dict[str, list[PromptResult]] = {}
    for row in rows:
        by_arm.setdefault(row.config, []).append(row)
    used = tuple(dict.fromkeys((target, *compared, *(row.draft for row in rows if row.draft))))
    plain = _plain()
    alone = {name: line.decode_rate.point for name, line in plain.items() if line.decode_rate is not None}
    return StudyData(
        study=study,
        origin="published",
        title=Message("apple.published"),
        results=rows,
        arms=(
            *(plain[name] for name in used),
            *(mean_line(of_arm, alone.get(of_arm[0].target)) for of_arm in by_arm.values()),
            *(mean_line([row], alone.get(row.target), prompt=row.prompt) for row in rows),
        ),
        models=tuple(map(_model, used)),
        machine="M2 Ultra",
        bandwidth_bytes_per_s=BANDWIDTH,
        notes=(
            Message("apple.rates"),
            logs_told(),
            Message("apple.audited", tally=tally("apple", _RUNS)),
        ),
    )


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
    failures: int
    """Forwards of target and draft that failed."""
    prompt_tokens: int
    prompt_ms: float
    """Of reading the prompt, which it prints apart."""
    rate: float
    """tok/s as it prints them, of what came after."""
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
    return tuple(
        RawLog(
            run=claim.row,
            models=claim.label,
            asked=claim.target_forwards + claim.failed_forwards,
            took_place=claim.target_forwards,
            failures=claim.failed_forwards + (claim.failed_draft_forwards or 0),
            prompt_tokens=claim.prompt_n,
            prompt_ms=claim.prompt_ms,
            rate=claim.decode_rate,
            acceptance=claim.acceptance,
            repeated=int(cells["words_repeated"]) / int(cells["words"]),
        )
        for ruling, cells in zip(rulings("apple", _LOGS), published.cells(_LOGS), strict=True)
        if (claim := ruling.claim).target_forwards is not None
        and claim.failed_forwards is not None
        and claim.prompt_n is not None
        and claim.prompt_ms is not None
        and claim.decode_rate is not None
        and claim.acceptance is not None
    )


def logs_told() -> Message:
    """What all of them say."""
    logs = raw_logs()
    failures, asked, took = ([getattr(log, name) for log in logs] for name in ("failures", "asked", "took_place"))
    return Message(
        "apple.logs",
        logs=len(logs),
        low=min(failures),
        high=max(failures),
        least=min(took),
        most=max(took),
        asked_low=min(asked),
        asked_high=max(asked),
    )


# --- models by themselves ---------------------------------------------------------------------------------------------


def _plain() -> dict[str, ArmResult]:
    """Model -> its rate on its own."""
    rates = {
        ruling.claim.target or "": (printed_rate(ruling.claim), ruling.claim.runs or 1)
        for ruling in rulings("apple", _BENCH)
        if ruling.claim.decode_rate is not None
    }
    rates[_MOE] = (
        bare(_MOE_RATE, "tok/s", "as printed; no benchmark of it was published"),
        1,
    )
    return {
        name: ArmResult(config=f"{name}/none", target=name, requests=runs, decode_rate=rate)
        for name, (rate, runs) in rates.items()
    }


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
    claim = next((claim for claim in published.table(_BENCH) if claim.target == name), None)
    if claim is None:
        return ModelUsed(name=name, reference=name)
    size = claim.size_bytes
    return ModelUsed(name=name, reference=f"Qwen3.5 {claim.label}", size_bytes=size, bytes_per_token=size, experts=0)

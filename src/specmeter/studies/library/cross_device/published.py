"""What the Apple document printed about drafts on other machines, twice: first with drafts that ran at home."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from specmeter.record import Estimate
from specmeter.studies.from_claims import printed_rate, result, rulings, tally, worst_of
from specmeter.studies.library.cross_device.costs import WITHDRAWN
from specmeter.studies.study import ArmResult, DraftPlace, ModelUsed, StudyData

if TYPE_CHECKING:
    from specmeter.audit.claim import Ruling
    from specmeter.studies.study import Result

SOURCE = (
    "Efficient On-Device LLM Inference on Apple Silicon: From Quantization to Collaborative Speculative Decoding "
    "(AtomGradient, March 2026): project page, data and a raw log"
)
TARGET, DRAFT = "9B_Q8", "0.8B_Q8"
BASELINE = f"{TARGET}/none"

_AGAIN, _FIRST, _BENCH = "apple/cross_again.csv", "apple/cross_first.csv", "apple/bench.csv"
_WHERE = re.compile(r"draft on (\w+), gamma \d+, (\w+)$")
_NAMES = {"local": "local", "103_M1Max": "M1 Max", "104_M2Pro": "M2 Pro"}
_ALONE = {"M1 Max": 86.62, "M2 Pro": 62.94}
"""The draft by itself on the machines, as printed [tok/s]."""
_LOGS = "apple/logs.csv"
_LOG = re.compile(r"crossdevice_(\w+?)_0\.8B_Q8_\w+$")
_NOT_REACHED = "Failed to connect"
_VOCABULARY = 248_320
"""Tokens of both models, as the raw log lists them."""


def published() -> StudyData:
    """Nine runs that the document stands by, and the seven it withdrew."""
    again = dict(_by_config(_AGAIN, ""))
    first = dict(_by_config(_FIRST, " (first)"))
    return StudyData(
        study="cross-device",
        origin="published",
        title="published by the document, with the audit's verdicts",
        results=tuple(row for rows in (*again.values(), *first.values()) for row, _ in rows),
        arms=(
            *_baseline(),
            *(_line(config, rows, "") for config, rows in again.items()),
            *(_line(config, rows, WITHDRAWN) for config, rows in first.items()),
        ),
        models=(
            ModelUsed(name=TARGET, reference="Qwen3.5-9B-UD-Q8_K_XL", experts=0),
            ModelUsed(name=DRAFT, reference="Qwen3.5-0.8B-UD-Q8_K_XL", experts=0),
        ),
        places=(
            *(_place(config, rows) for config, rows in again.items()),
            *(_place(config, rows, stayed=True) for config, rows in first.items()),
        ),
        machine="M2 Ultra, with drafts on M1 Max and M2 Pro over 1 Gbit/s",
        bandwidth_bytes_per_s=800e9,
        notes=(
            "One run for each of three prompts and three places. Rates are `eff_tps`: tokens that the target "
            "evaluated, the prompt's and those of rejected drafts among them, over the life of its context.",
            "In the raw log of these runs that was published, 40 verifications took place of the 177 that were asked "
            "for; the others failed. The local draft's counters on the same prompt say the same.",
            f"`specmeter audit --published apple` rules both series of runs: {tally('apple', _AGAIN, _FIRST)}.",
        ),
    )


def _by_config(source: str, suffix: str) -> Iterator[tuple[str, list[tuple[Result, Ruling]]]]:
    found: dict[str, list[tuple[Result, Ruling]]] = {}
    for ruling in rulings("apple", source):
        where = _WHERE.search(ruling.claim.label)
        assert where, ruling.claim.label
        config = f"{TARGET}/{_NAMES[where.group(1)]}{suffix}"
        row = result(
            ruling, config=config, target=TARGET, draft=DRAFT, method="draft-simple", gamma=4, prompt=where.group(2)
        )
        claim = ruling.claim
        if claim.steps and claim.accepted is not None:
            row = row.model_copy(update={"tau": 1 + claim.accepted / claim.steps})
        found.setdefault(config, []).append((row, ruling))
    yield from found.items()


def _line(config: str, rows: Sequence[tuple[Result, Ruling]], suite: str) -> ArmResult:
    """The mean over prompts that the page prints, as good as the worst of its runs."""
    told = [row for row, _ in rows if row.decode_rate is not None]
    rate = fmean(row.decode_rate or 0.0 for row in told)
    verdict, why = worst_of(told)
    baseline = rows[0][1].claim.baseline_rate or next(
        ruling.claim.baseline_rate for _, ruling in rows if ruling.claim.baseline_rate
    )
    speedup = rate / baseline
    return ArmResult(
        config=config,
        suite=suite,
        target=TARGET,
        draft=DRAFT,
        method="draft-simple",
        gamma=4,
        requests=len(rows),
        decode_rate=_mean(rate, len(told), "tok/s"),
        speedup=None if verdict else _mean(speedup, len(told), "x"),
        claimed_speedup=speedup if verdict else None,
        acceptance=_mean(fmean(row.acceptance or 0.0 for row in told), len(told), "1"),
        verdict=verdict,
        why=why,
    )


def _place(config: str, rows: Sequence[tuple[Result, Ruling]], *, stayed: bool = False) -> DraftPlace:
    name = config.rpartition("/")[2].partition(" (")[0]
    if name == "local":
        return DraftPlace(config=config, vocabulary=_VOCABULARY)
    rate = next((ruling.claim.draft_rate for _, ruling in rows if ruling.claim.draft_rate), None)
    return DraftPlace(
        config=config,
        machine=name,
        held_by=tuple(_told_by_logs(name)) if stayed else (),
        block_ms=(1000 / rate,) if rate and not stayed else (),
        alone_rate=None if stayed else _ALONE[name],
        vocabulary=_VOCABULARY,
    )


def _told_by_logs(name: str) -> Iterator[str]:
    """What raw logs say of the place of a draft that was asked onto a machine."""
    for ruling in rulings("apple", _LOGS):
        log = _LOG.search(ruling.claim.row)
        if log and _NAMES.get(log.group(1)) == name:
            yield from (note for note in ruling.claim.notes if note.startswith(_NOT_REACHED))


def _baseline() -> Iterator[ArmResult]:
    for ruling in rulings("apple", _BENCH):
        if ruling.claim.label == TARGET and ruling.claim.decode_rate is not None and ruling.claim.device == "M2 Ultra":
            rate = printed_rate(ruling.claim)
            yield ArmResult(config=BASELINE, target=TARGET, requests=ruling.claim.runs or 1, decode_rate=rate)


def _mean(value: float, n: int, unit: str) -> Estimate:
    return Estimate(point=value, n=n, unit=unit, method=f"mean of {n} printed values; no interval")

"""rtx3090-aug: April's matrix, repeated by its author in blocks, and what that leaves of April's claims.

Runs, by their names in the source: O2 and O3 are nine configurations in nine blocks of a Latin square, five hours
apart; C is a matrix of five repeats with f16 KV beside q8_0; B has acceptance by prompt; T and T3 have timers around
checkpoints. DFlash with 2 tokens was measured in twelve runs, whose blocks were published (`blocks.csv`): its interval
over blocks is computed from them, and one over runs, which is what the next run will differ by. Of the other
configurations the blocks lie in 81 files of requests, which are not held here: their intervals are the source's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from specmeter.audit import published as tables
from specmeter.messages import Message
from specmeter.numbers.estimates import above, below, between, ratio_of_means, student_geometric, student_mean
from specmeter.numbers.margin import MARGIN
from specmeter.record import Estimate
from specmeter.theory.catalogue import devices as catalogue
from specmeter.theory.roofline import expected_union
from specmeter_studies import from_claims
from specmeter_studies.rules import NOTHING, lies
from specmeter_studies.rungs import percent_change
from specmeter_studies.study import ArmResult, Found, ModelUsed, StudyData
from specmeter_studies.telling import by_counts, by_intervals, in_percent, quoted

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim

DEVICE, TARGET = "RTX 3090", "Qwen3.6-35B-A3B"
BLOCKS, BLOCKED = 9, ("O2", "O3")
OWN_LAYERS = ("draft-dflash", "draft-mtp")
APRIL = ("ngram-cache", "ngram-mod", "draft-simple")
"""Methods of the matrix of April that are in this one."""
FIGURE = (1.255, 1.271)
"""Of DFlash with 2 tokens, as the table of O2 has it."""
CHECKPOINTS = 0.547
_MATRIX, _BLOCKS, _TIMERS, _PROMPTS = (f"rtx3090-aug/{it}.csv" for it in ("matrix", "blocks", "checkpoints", "prompts"))


def published() -> StudyData:
    """What was measured in August 2026, as it was published."""
    return StudyData(
        study="rtx3090-aug",
        origin="published",
        title=Message("rtx3090-aug.published"),
        arms=tuple(_lines()),
        models=(
            ModelUsed(
                name=TARGET,
                reference=f"{TARGET} UD-Q4_K_XL",
                size_bytes=21e9,
                experts=256,
                experts_used=8,
                quantization="UD-Q4_K_XL",
            ),
        ),
        machine=DEVICE,
        bandwidth_bytes_per_s=peak.high if (peak := catalogue.peak(DEVICE)) else None,
        notes=(
            Message("rtx3090-aug.texts"),
            Message("rtx3090-aug.held"),
            Message("rtx3090-aug.audited", tally=from_claims.tally("rtx3090-aug")),
            Message("rtx3090-38.ruled_again"),
        ),
    )


def _lines() -> Iterator[ArmResult]:
    rows = list(zip(from_claims.rulings("rtx3090-aug", _MATRIX), tables.cells(_MATRIX), strict=True))
    rates = {ruling.claim.label: from_claims.printed_rate(ruling.claim) for ruling, _ in rows}
    for ruling, cells in rows:
        claim = ruling.claim
        line = from_claims.arm(ruling, config=claim.label.partition(", ")[0], target=TARGET, suite=cells["run"])
        shared = {"acceptance": line.acceptance if claim.drafted else None, "tau": None}
        yield line.model_copy(update={**shared, "speedup": _speedup(claim, cells, rates)})


def _speedup(claim: Claim, cells: Mapping[str, str], rates: Mapping[str, Estimate | None]) -> Estimate | None:
    """Over the baseline: by the blocks that are held here, as printed, or by the spread of two configurations."""
    run = cells["run"]
    if claim.method == "none":
        return None
    if claim.label == f"spec-dflash-n2, {run}":
        return _over(gains()[run], "blocks")
    if cells["ci_low"]:
        point, low, high = (1 + float(cells[name]) / 100 for name in ("change_percent", "ci_low", "ci_high"))
        return between(point, low, high, "x", f"as printed: paired over {BLOCKS} blocks; Student t", n=BLOCKS)
    base = f"baseline{'-kvfp16' if cells['kv_type'] == 'f16' else ''}, {run}"
    ours, theirs = rates[claim.label], rates[base]
    spreads = {it.label: it.decode_rate_sd or 0.0 for it in tables.table(_MATRIX)}
    return (
        None if ours is None or theirs is None else ratio_of_means(ours, theirs, (spreads[claim.label], spreads[base]))
    )


# --- twelve runs of one configuration ---------------------------------------------------------------------------------


def gains() -> dict[str, list[float]]:
    """Run -> speedup of DFlash with 2 tokens in each of its blocks."""
    found: dict[str, list[float]] = {}
    for cells in tables.cells(_BLOCKS):
        found.setdefault(cells["run"], []).append(1 + float(cells["change_percent"]) / 100)
    return found


def _over(ratios: Sequence[float], what: str) -> Estimate:
    method = f"geometric mean over {len(ratios)} {what}"
    return student_geometric(
        [math.log(it) for it in ratios], "x", f"{method}; Student t", alone=f"{method}; no interval"
    )


def over_runs() -> Estimate:
    """The speedup of that configuration in the next run: runs, not blocks, are what repeats."""
    return _over([_over(ratios, "blocks").point for ratios in gains().values()], "runs")


def runs(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Each of the twelve."""
    for run, ratios in gains().items() if data.origin == "published" else ():
        percent = [100 * (it - 1) for it in ratios]
        mean = percent_change(_over(ratios, "blocks"))
        yield {"run": run, "blocks": len(ratios), "change": mean, "low": min(percent), "high": max(percent)}


def blocks(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Each block of the twelve."""
    for run, ratios in gains().items() if data.origin == "published" else ():
        yield from ({"run": run, "change": 100 * (it - 1)} for it in ratios)


# --- checkpoints ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timed:
    """One pass over the prompts with timers around checkpoints."""

    run: str
    repeat: int
    created: int
    restored: int
    create_s: float
    restore_target_s: float
    restore_draft_s: float
    excess_s: float
    """Decode time that drafting adds, by the rates of its run."""

    @property
    def share(self) -> float:
        """Of the added time that checkpoints take."""
        return (self.create_s + self.restore_target_s + self.restore_draft_s) / self.excess_s


def timed(data: StudyData) -> list[Timed]:
    """Every pass that was timed."""
    if data.origin != "published":
        return []
    return [
        Timed(
            run=it["run"],
            repeat=int(it["source_place"].rpartition(" ")[2]),
            created=int(it["created"]),
            restored=int(it["restored"]),
            create_s=float(it["create_s"]),
            restore_target_s=float(it["restore_target_s"]),
            restore_draft_s=float(it["restore_draft_s"]),
            excess_s=int(it["predicted_n"]) * (1 / float(it["decode_rate"]) - 1 / float(it["baseline_rate"])),
        )
        for it in tables.cells(_TIMERS)
    ]


def checkpoints(data: StudyData) -> Found:
    """Whether checkpoints take 54.7 % of the time that drafts add, within the margin."""
    found = timed(data)
    if not found:
        return "cannot tell", Message("rtx3090-aug.not_timed")
    method = f"mean of {len(found)} passes of two runs"
    share = student_mean([it.share for it in found], "1", f"{method}; Student t", alone=f"{method}; no interval")
    told = Message(
        "rtx3090-aug.checkpoints",
        share=in_percent(share),
        passes=len(found),
        spent=fmean(it.share * it.excess_s for it in found),
        excess=fmean(it.excess_s for it in found),
        create=1000 * fmean(it.create_s / it.created for it in found),
        restore=1000 * fmean((it.restore_target_s + it.restore_draft_s) / it.restored for it in found),
    )
    return by_intervals([(share, CHECKPOINTS)], MARGIN), told


# --- claims -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InMatrix:
    """A configuration of the matrix of nine blocks; of a run of ours, any."""

    line: ArmResult

    @property
    def name(self) -> str:
        """With its run."""
        return f"{self.line.config} {self.line.suite}".strip()

    @property
    def change(self) -> Estimate | None:
        """Of the rate, in percent."""
        return percent_change(self.line.speedup)

    @property
    def drafted(self) -> float | None:
        """Tokens drafted for each one that was generated."""
        claim = next((it for it in tables.table(_MATRIX) if it.label == f"{self.line.config}, {self.line.suite}"), None)
        return claim.drafted / claim.predicted_n if claim and claim.drafted and claim.predicted_n else None

    @property
    def message(self) -> Message:
        """`ngram-cache O2 -19.0 % [-19.4, -18.6]`."""
        return Message("rtx3090-aug.change", name=self.name, change=quoted(self.change, "%"))


def matrix(data: StudyData) -> list[InMatrix]:
    """The configurations over all prompts: of what was published, those in nine blocks."""
    return [InMatrix(line) for line in data.whole if data.origin != "published" or line.suite in BLOCKED]


def _of(data: StudyData, *methods: str) -> list[InMatrix]:
    return [it for it in matrix(data) if it.line.method in methods]


def _gaining(data: StudyData) -> list[InMatrix]:
    """Configurations that gain in every run, as the first run has them."""
    found: dict[str, list[InMatrix]] = {}
    for it in matrix(data):
        if it.line.speculates:
            found.setdefault(it.line.config, []).append(it)
    return [lines[0] for lines in found.values() if all(above(it.line.speedup, 1) for it in lines)]


def own_layers(data: StudyData) -> Found:
    """Whether each draft from the target's own layers gains."""
    return lies(_of(data, *OWN_LAYERS), "line.speedup", low=1, told="message", empty=NOTHING)


def ngram_map(data: StudyData) -> Found:
    """Whether it stays within the margin of decoding without speculation."""
    rows = _of(data, "ngram-map-k4v")
    return lies(rows, "line.speedup", low=1 / (1 + MARGIN), high=1 + MARGIN, told="message", empty=NOTHING)


def dflash_figure(data: StudyData) -> Found:
    """Whether the interval of one run holds what other runs of the same configuration found."""
    if data.origin != "published":
        return "cannot tell", Message("rtx3090-aug.one_run")
    means = {run: _over(ratios, "blocks").point for run, ratios in gains().items()}
    outside = [run for run, mean in means.items() if not FIGURE[0] <= mean <= FIGURE[1]]
    ours, here = over_runs(), _over(gains()["O2"], "blocks")
    told = Message(
        "rtx3090-aug.figure",
        here=quoted(percent_change(here), "%"),
        runs=len(means),
        outside=len(outside),
        lowest=100 * (min(means.values()) - 1),
        highest=100 * (max(means.values()) - 1),
        ours=quoted(percent_change(ours), "%"),
    )
    beyond = below(ours, FIGURE[0]) or above(ours, FIGURE[1])
    return "contradicted" if beyond else "cannot tell", told


def april_no_gain(data: StudyData) -> Found:
    """Whether the methods of April lose again; the others are no methods of April."""
    others = [it.message for it in _gaining(data) if it.line.method in OWN_LAYERS]
    fill = {"others": Message("rtx3090-aug.others_gain", n=len(others), others=others) if others else ""}
    return lies(_of(data, *APRIL), "line.speedup", high=1, told="message", found="rtx3090-aug.april", fill=fill)


def april_in_general(data: StudyData) -> Found:
    """Whether every method loses."""
    rows = [it for it in matrix(data) if it.line.speculates]
    if gaining := [it.message for it in _gaining(data)]:
        known = len({it.line.config for it in rows})
        return "contradicted", Message("rtx3090-aug.gaining", n=len(gaining), of=known, gaining=gaining)
    return lies(rows, "line.speedup", high=1, told="message", empty=NOTHING)


def april_full_acceptance(data: StudyData) -> Found:
    """Whether the counter still says that everything was accepted, now that it counts what is rejected."""
    shares = {it.name: it.line.acceptance.point for it in _of(data, *APRIL) if it.line.acceptance is not None}
    if not shares:
        return "cannot tell", NOTHING
    partial = [name for name, share in shares.items() if share < 1]
    told = Message(
        "rtx3090-aug.acceptance",
        partial=len(partial),
        of=len(shares),
        low=min(shares.values()),
        high=max(shares.values()),
    )
    return by_counts("contradicted" if partial else "supported", told)


def april_kv(data: StudyData) -> Found:
    """Whether the n-gram cache loses with f16 KV over a baseline with f16 KV."""
    rows = [InMatrix(it) for it in data.arms if it.config.endswith("ngram-cache-kvfp16")]
    return lies(rows, "line.speedup", high=1, told="message", empty=Message("rtx3090-aug.no_f16"))


def april_draft_choice(data: StudyData) -> Found:
    """Whether the draft loses on every prompt now that its vocabulary is found to be the target's."""
    if data.origin != "published":
        return "cannot tell", NOTHING
    rows = tables.table(_PROMPTS)
    ratios = [it.decode_rate / it.baseline_rate for it in rows if it.decode_rate and it.baseline_rate]
    slower = sum(it < 1 for it in ratios)
    told = Message("rtx3090-aug.prompts", slower=slower, of=len(ratios), low=min(ratios) - 1, high=max(ratios) - 1)
    return by_counts("supported" if slower == len(ratios) else "contradicted", told)


def april_saturation(data: StudyData) -> Found:
    """Whether drafts below the threshold can gain."""
    gaining = _gaining(data)
    used = next((it for it in data.models if it.experts and it.experts_used), None)
    if not gaining or used is None or not used.experts or not used.experts_used:
        return "cannot tell", NOTHING
    longest = max(it.line.gamma or 0 for it in gaining) + 1
    told = Message(
        "rtx3090-aug.below_threshold",
        n=len(gaining),
        gaining=[it.message for it in gaining],
        tokens=longest,
        union=expected_union(longest, used.experts, used.experts_used),
        experts=used.experts,
    )
    return "contradicted", told

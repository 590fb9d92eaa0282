"""rtx3090-38: second study of the RTX 3090's author, on a dense-hybrid target, and what it leaves of the first.

Phases, by their names in the source: A is the primary result; `n-max` has every draft length from 1 to 8; C has other
methods, among them April's own draft model; M has a mixture of experts and the dense target in one session; L is A's
best arms at a context of 96K.

Its intervals come from a percentile bootstrap over 25 prompts. The authors simulate that such an interval holds in 86.3
to 93.7 % of all cases, not in 95 %. What is ruled here takes the lowest: every half of an interval is widened by

    z(0.95) / z(0.863) = 1.96 / 1.49 = 1.32,   z(p) the half width in deviations that holds a share p of a normal

so that an interval which excludes a value only just decides nothing. The factor is approximate: phase L has 15 prompts,
and the simulation 25.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from specmeter.audit import published as tables
from specmeter.messages import Message
from specmeter.numbers.estimates import above, below, between, exceeds
from specmeter.numbers.stats import t_critical
from specmeter_studies import from_claims
from specmeter_studies.library.rtx3090_aug import extra as august
from specmeter_studies.rules import NOTHING, exceeded, lies
from specmeter_studies.rungs import percent_change
from specmeter_studies.study import ArmResult, Found, ModelUsed, StudyData
from specmeter_studies.telling import by_counts, by_intervals, quoted

if TYPE_CHECKING:
    from specmeter.record import Estimate

DENSE, MOE = "Qwen3.8-27B", "Qwen3.6-35B-A3B"
SHORT = ("A", "n-max", "M")
"""Phases with short contexts, whose gains should agree."""
FIGURE = 1.598
"""Of MTP with n-max 2 in phase A."""
PER_POSITION = (0.245, 0.295)
"""0.25 to 0.29, to half a unit of the last digit."""
LAST_WIDTH = 8
"""Positions that llama.cpp's kernel for few rows takes on CUDA at most (`MMVQ_MAX_BATCH_SIZE`)."""
_ARMS, _STEPS, _OTHER, _LATER = (
    "rtx3090-38/arms.csv",
    "rtx3090-38/steps.csv",
    "rtx3090-38/other.csv",
    "rtx3090-aug/later.csv",
)


def fact(key: str) -> Mapping[str, str]:
    """A row of the facts that are no rates, of this study or of the later blocks of the first."""
    return next(it for name in (_OTHER, _LATER) for it in tables.cells(name) if it["key"] == key)


def number(key: str, column: str = "value") -> float:
    """A number of such a row."""
    return float(fact(key)[column])


def widening() -> float:
    """By how much half of a nominal interval is widened; see above."""
    lowest = number("coverage", "low") / 100
    normal = NormalDist()
    return normal.inv_cdf(0.975) / normal.inv_cdf((1 + lowest) / 2)


def published() -> StudyData:
    """What was measured, as it was published."""
    return StudyData(
        study="rtx3090-38",
        origin="published",
        title=Message("rtx3090-38.published"),
        arms=tuple(_lines()),
        models=(
            ModelUsed(name=DENSE, reference=f"{DENSE} UD-Q4_K_XL", quantization="UD-Q4_K_XL"),
            ModelUsed(name=MOE, reference=f"{MOE} UD-Q4_K_XL", experts=256, experts_used=8, quantization="UD-Q4_K_XL"),
        ),
        machine="RTX 3090",
        notes=(
            Message(
                "rtx3090-38.coverage",
                low=number("coverage", "low"),
                high=number("coverage", "high"),
                factor=widening(),
            ),
            Message("rtx3090-38.prompts"),
            Message("rtx3090-38.audited", tally=from_claims.tally("rtx3090-38")),
        ),
    )


def _lines() -> Iterator[ArmResult]:
    for ruling, cells in zip(from_claims.rulings("rtx3090-38", _ARMS), tables.cells(_ARMS), strict=True):
        line = from_claims.arm(
            ruling,
            config=ruling.claim.label.partition(", ")[0],
            target=cells["target"],
            suite=cells["run"],
            requests=int(cells["prompts"]),
        )
        yield line.model_copy(update={"speedup": _printed(cells)})


def _printed(cells: Mapping[str, str]) -> Estimate | None:
    if not cells["ci_low"]:
        return None
    point, low, high = (1 + float(cells[name]) / 100 for name in ("change_percent", "ci_low", "ci_high"))
    n = int(cells["prompts"])
    return between(point, low, high, "x", f"as printed: percentile bootstrap over {n} prompts, nominal 95 %", n=n)


def _to_the_digit(change: Estimate | None) -> Estimate | None:
    """Without what a ratio made of a printed 31.75 % loses in its last bits."""
    if change is None:
        return None
    ends = {
        end: None if value is None else round(value, 9) for end, value in (("low", change.low), ("high", change.high))
    }
    return change.model_copy(update={"point": round(change.point, 9), **ends})


@dataclass(frozen=True)
class InStudy:
    """A configuration of a phase; of a run of ours, any."""

    line: ArmResult
    printed: bool

    @property
    def name(self) -> str:
        """With its phase."""
        return f"{self.line.config} {self.line.suite}".strip()

    @property
    def sure(self) -> Estimate | None:
        """The speedup with the interval that rulings use: a printed one is widened."""
        found = self.line.speedup
        if not self.printed or found is None or found.low is None or found.high is None:
            return found
        low, high = (found.point + widening() * (end - found.point) for end in (found.low, found.high))
        return found.model_copy(
            update={"low": low, "high": high, "method": f"{found.method}; widened for its coverage"}
        )

    @property
    def change(self) -> Estimate | None:
        """Of the rate in percent, as printed."""
        return _to_the_digit(percent_change(self.line.speedup))

    @property
    def sure_change(self) -> Estimate | None:
        """The same, widened."""
        return percent_change(self.sure)

    @property
    def message(self) -> Message:
        """`mtp-n2 A +59.8 % [57.0, 62.8]`."""
        return Message("rtx3090-38.change", name=self.name, change=quoted(self.change, "%"))


def arms(data: StudyData) -> list[InStudy]:
    """All configurations that draft, over all prompts."""
    return [InStudy(it, data.origin == "published") for it in data.whole if it.speculates]


def _of(data: StudyData, *methods: str, moe: bool | None = None, gamma: int | None = None) -> list[InStudy]:
    """`moe`: only on targets with experts, or only on those without."""
    mixed = {it.name for it in data.models if it.experts}
    return [
        it
        for it in arms(data)
        if it.line.method in methods
        and (moe is None or moe == (it.line.target in mixed))
        and (gamma is None or it.line.gamma == gamma)
    ]


def ladder(data: StudyData) -> list[InStudy]:
    """The draft lengths of phase n-max."""
    return [it for it in arms(data) if it.line.suite == "n-max"]


# --- speedups ---------------------------------------------------------------------------------------------------------


def mtp_gains(data: StudyData) -> Found:
    """Whether MTP with n-max 2 gains on the dense target in every phase."""
    return lies(_of(data, "draft-mtp", moe=False, gamma=2), "sure", low=1, told="message", empty=NOTHING)


def mtp_figure(data: StudyData) -> Found:
    """Whether the other phases with short contexts agree with the figure of phase A, within 5 %."""
    rows = [it for it in _of(data, "draft-mtp", moe=False, gamma=2) if it.line.suite in SHORT[1:]]
    known = [(it, sure) for it in rows if (sure := it.sure) is not None and sure.low is not None]
    if not known:
        return "cannot tell", NOTHING
    holding = sum(by_intervals([(sure, FIGURE)], about=0.05) == "supported" for _, sure in known)
    shown = [it.message for it, _ in known]
    told = Message("rtx3090-38.figure", n=len(known), holding=holding, shown=shown)
    return by_intervals([(sure, FIGURE) for _, sure in known], about=0.05), told


def best_n_max(data: StudyData) -> Found:
    """Whether n-max 2 is faster than every other draft length of MTP."""
    rows = [it for it in ladder(data) if it.line.method == "draft-mtp"]
    best = next((it for it in rows if it.line.gamma == 2), None)
    others = [it for it in rows if it is not best]
    if best is None or not others:
        return "cannot tell", NOTHING
    open_ = [it for it in others if not exceeds(best.sure, it.sure)]
    told = Message("rtx3090-38.best", n=len(others), best=best.message, open=[it.message for it in open_])
    beaten = any(exceeds(it.sure, best.sure) for it in others)
    return ("contradicted" if beaten else "cannot tell" if open_ else "supported"), told


def predecessor_loses(data: StudyData) -> Found:
    """Whether April's draft model loses on a target without experts."""
    rows = _of(data, "draft-simple", moe=False, gamma=8)
    return lies(rows, "sure", high=1, told="message", found={"supported": "rtx3090-38.dense_loses"})


def past_last_width(data: StudyData) -> Found:
    """Whether one draft token more, past the width that the kernel for few rows takes, is faster."""
    rows = [
        it for it in ladder(data) if it.line.method == "draft-mtp" and it.line.gamma in (LAST_WIDTH - 1, LAST_WIDTH)
    ]
    ruling, said = exceeded(
        rows, "sure_change", lambda found: [(found[1], found[0])] if len(found) == 2 else [], unit="%", empty=NOTHING
    )
    if not rows:
        return ruling, said
    widths, costs, _ = _curve("draft-mtp")
    past = next(it for it in steps() if it.method == "draft-mtp" and it.width > LAST_WIDTH)
    slope, start = np.polyfit(widths, costs, 1)
    line = float(start + slope * past.width)
    return ruling, Message("rtx3090-38.past", said=said, width=past.width, below=1 - past.k / line, last=LAST_WIDTH)


# --- what a step costs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """Time of a whole step with drafts in steps without speculation, at one draft length."""

    name: str
    method: str
    width: int
    """Positions that are verified: n-max + 1."""
    k: float
    sd: float
    """Over requests."""
    prompts: int


def steps() -> list[Step]:
    """Of phase n-max, as printed."""
    return [
        Step(it["label"], it["method"], int(it["width"]), float(it["k"]), float(it["k_sd"]), int(it["prompts"]))
        for it in tables.cells(_STEPS)
    ]


def step_rows(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Each of them, with what its last position costs."""
    last: dict[str, Step] = {}
    for it in steps() if data.origin == "published" else ():
        before = last.get(it.method)
        each = (it.k - before.k) / (it.width - before.width) if before else None
        last[it.method] = it
        yield {"name": it.name, "method": it.method, "width": it.width, "k": it.k, "each": each}


def _curve(method: str) -> tuple[list[int], list[float], list[Step]]:
    """Widths and costs that one kernel serves."""
    known = [it for it in steps() if it.method == method and it.width <= LAST_WIDTH]
    return [it.width for it in known], [it.k for it in known], known


def _weighted(terms: Mapping[Step, float], unit: str) -> Estimate:
    """A sum of steps with these weights: Student's t over prompts. All steps have the same prompts, so their errors are
    added up: the most that any correlation makes of them.

    Requests of one prompt are taken for one: the standard deviation over requests, divided by the root of prompts.
    """
    point = sum(weight * it.k for it, weight in terms.items())
    n = next(iter(terms)).prompts
    half = t_critical(n - 1, 0.95) * sum(abs(weight) * it.sd for it, weight in terms.items()) / math.sqrt(n)
    return between(point, point - half, point + half, unit, f"printed means and deviations, {n} prompts", n=n)


def _mean_cost(known: list[Step]) -> Estimate:
    first, last = known[0], known[-1]
    span = last.width - first.width
    return _weighted({last: 1 / span, first: -1 / span}, "steps")


def _bend(known: list[Step]) -> Estimate:
    """What a position costs in the second half of the curve, less what it costs in the first."""
    first, middle, last = known[0], known[len(known) // 2], known[-1]
    early, late = middle.width - first.width, last.width - middle.width
    return _weighted({last: 1 / late, middle: -1 / late - 1 / early, first: 1 / early}, "steps")


def cost_per_position(data: StudyData) -> Found:
    """Whether a further position costs 0.25 to 0.29 of a step, on average over the widths of one kernel."""
    if data.origin != "published":
        return "cannot tell", NOTHING
    curves = {method: _curve(method)[2] for method in ("draft-mtp", "draft-dflash")}
    means = {method: _mean_cost(known) for method, known in curves.items()}
    each = [row["each"] for row in step_rows(data) if isinstance(row["each"], float) and row["each"] > 0]
    inside = all(above(it, PER_POSITION[0]) and below(it, PER_POSITION[1]) for it in means.values())
    outside = any(below(it, PER_POSITION[0]) or above(it, PER_POSITION[1]) for it in means.values())
    told = Message(
        "rtx3090-38.per_position",
        shown=[Message("rtx3090-38.mean", name=method, mean=quoted(it)) for method, it in means.items()],
        first=curves["draft-mtp"][0].k - 1,
        high=max(each),
    )
    return ("supported" if inside else "contradicted" if outside else "cannot tell"), told


def cost_concave(data: StudyData) -> Found:
    """Whether further positions become cheaper, up to the width that the kernel for few rows takes."""
    if data.origin != "published":
        return "cannot tell", NOTHING
    curves = {method: _curve(method)[2] for method in ("draft-mtp", "draft-dflash")}
    bends = {method: _bend(known) for method, known in curves.items()}
    told = Message(
        "rtx3090-38.bend",
        shown=[Message("rtx3090-38.bend.of", name=method, bend=quoted(it)) for method, it in bends.items()],
        first=curves["draft-mtp"][0].k - 1,
        mean=_mean_cost(curves["draft-mtp"]).point,
    )
    if all(below(it, 0) for it in bends.values()):
        return "supported", told
    return ("contradicted" if any(above(it, 0) for it in bends.values()) else "cannot tell"), told


# --- what was counted -------------------------------------------------------------------------------------------------


def ngram_mod_idle(data: StudyData) -> Found:
    """Whether no request of ngram-mod with its defaults drafts."""
    if data.origin == "published":
        in_august = next(it for it in august.matrix(august.published()) if it.line.method == "ngram-mod")
        told = Message(
            "rtx3090-38.idle", drafting=int(number("ngram-mod")), requests=75, august=in_august.drafted or 0.0
        )
        return by_counts("supported" if not number("ngram-mod") else "contradicted", told)
    asked = [it for it in data.results if it.method == "ngram-mod" and it.drafted is not None]
    if not asked:
        return "cannot tell", NOTHING
    drafting = sum(bool(it.drafted) for it in asked)
    told = Message("rtx3090-38.drafting", drafting=drafting, requests=len(asked))
    return by_counts("contradicted" if drafting else "supported", told)


def divergence(data: StudyData) -> Found:
    """Whether nearly all greedy outputs leave those without speculation within 1,600 tokens."""
    if data.origin != "published":
        return "cannot tell", NOTHING
    same, of = int(number("same-1600")), 375
    told = Message(
        "rtx3090-38.divergence",
        same=same,
        of=of,
        low=number("diverging", "low"),
        high=number("diverging", "high"),
        quantized_low=min(number(f"same-{it}") for it in ("q4", "q6", "q8")),
        quantized_high=max(number(f"same-{it}") for it in ("q4", "q6", "q8")),
        bf16=number("same-bf16"),
    )
    return by_counts("supported" if same <= (1 - number("diverging", "low") / 100) * of else "contradicted", told)


# --- what is left of the first study ----------------------------------------------------------------------------------


def architecture(data: StudyData) -> Found:
    """Whether a mixture and a dense target in one session show what experts cost: their anchor failed."""
    rows = [it for moe in (False, True) for it in _of(data, "draft-mtp", moe=moe, gamma=2) if it.line.suite == "M"]
    anchor = next((it for it in _of(data, "draft-simple", moe=True, gamma=8) if it.line.suite == "M"), None)
    if anchor is None:
        return "cannot tell", NOTHING
    registered = {"low": number("anchor", "low"), "high": number("anchor", "high")}
    shown = [it.message for it in rows]
    return "cannot tell", Message("rtx3090-38.withdrawn", anchor=anchor.message, shown=shown, **registered)


def april_no_gain(data: StudyData) -> Found:
    """Whether April's methods lose again, on either target."""
    return lies(_of(data, *august.APRIL), "sure", high=1, told="message", empty=NOTHING)


def _gaining(data: StudyData) -> list[InStudy]:
    return [it for it in _of(data, *august.OWN_LAYERS, *august.APRIL, moe=True) if above(it.sure, 1)]


def april_in_general(data: StudyData) -> Found:
    """Whether every method loses on April's model."""
    known = _of(data, *august.OWN_LAYERS, *august.APRIL, moe=True)
    if gaining := [it.message for it in _gaining(data)]:
        return "contradicted", Message("rtx3090-38.gaining", n=len(gaining), of=len(known), shown=gaining)
    return lies(known, "sure", high=1, told="message", empty=NOTHING)


def april_saturation(data: StudyData) -> Found:
    """Whether the experts' saturation is needed to explain the loss, and whether it forbids a gain."""
    gaining = _gaining(data)
    dense = [it for it in _of(data, "draft-simple", moe=False, gamma=8) if below(it.sure, 1)]
    if not gaining:
        return "cannot tell", NOTHING
    code = "rtx3090-38.not_explained" if dense else "rtx3090-38.gain_below"
    longest = max(it.line.gamma or 0 for it in gaining) + 1
    told = {"gaining": [it.message for it in gaining], "tokens": longest}
    return "contradicted", Message(code, **told, **({"dense": [it.message for it in dense]} if dense else {}))


def august_own_layers(data: StudyData) -> Found:
    """Whether drafting with the target's own layers gains on a mixture, at the draft lengths of August."""
    rows = [it for it in _of(data, *august.OWN_LAYERS, moe=True) if (it.line.gamma or 0) <= 4]
    return lies(rows, "sure", low=1, told="message", empty=NOTHING)


def august_lengths(data: StudyData) -> Found:
    """Whether DFlash with 4 tokens loses where answers end by themselves: printed with held lengths too."""
    if data.origin != "published":
        return "cannot tell", NOTHING
    values = {"whole": number("whole-answers"), "held": number("held-lengths")}
    return "cannot tell", Message("rtx3090-38.lengths", **values)


def august_checkpoints(data: StudyData) -> Found:
    """Whether the share of checkpoints stands: by the timers of August, and in what its author says since."""
    if data.origin != "published":
        return "cannot tell", NOTHING
    ruling, timed = august.checkpoints(august.published())
    later = number("checkpoints")
    return ruling, Message("rtx3090-38.checkpoints", timed=timed, later=later)

"""What a study is, and what it finds: the words that every study speaks, whatever it measures.

A study is a published document that specmeter repeats: parts to be measured (experiments, quality measurements), the
claims that the document makes, and the tables and figures it prints. Claims, tables and figures are computed from one
form of data, `StudyData`, which a run of our own and the published numbers both take: so their figures are drawn from
their numbers by the code that draws ours.

How findings are put into words, and the one rule of what counts for them.

A claim is *supported* or *contradicted* by numbers, and by these only:

    intervals       every number that decides has an interval, and each lies wholly on one side (`estimates.above`,
                    `below`, `exceeds`). Ours are over blocks; of printed numbers from their spread and their runs
    counts          exact numbers, and arithmetic with printed ones: true to half a unit of their last digit
    printed values  what a document says about its own table holds or falls by every value of that table (`denied_by`)

Numbers that do not stand (impossible, implausible, invalid, in doubt) support nothing, and of our own runs those that
nothing vouches for are left out before any claim is looked at (`rules.carrying`). They can deny what their own document
says about them: a claim that its own table refutes falls, whatever the table is worth. A bound that rests on
assumptions contradicts nothing by itself: it makes numbers implausible. What is claimed of named models or machines
does not apply where others were measured (`only_of`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from specmeter.analysis.consumption import Consumption
from specmeter.analysis.explain.memory_price import MemoryPrice
from specmeter.analysis.quality import QualityReport
from specmeter.messages import Message, Value
from specmeter.numbers.estimates import above, below, scaled
from specmeter.record import Estimate, ExpertUnion, Host, Record, Standing

if TYPE_CHECKING:
    from specmeter_studies.machines import MachineTable


def _said(given: object) -> object:
    return Message(given) if isinstance(given, str) else given


Said = Annotated[Message, BeforeValidator(_said)]
"""What is shown to readers. Plain text, which code of a user's own study may give, is its own code."""

RulingWord: TypeAlias = Literal["supported", "contradicted", "cannot tell", "does not apply here"]
"""What data say about a claim. `does not apply here`: it is about named models or machines; others were measured."""

FINDINGS: tuple[RulingWord, ...] = ("supported", "contradicted", "cannot tell", "does not apply here")

RestsOn = Literal["intervals", "counts", "printed values", ""]
"""What makes a ruling; empty where there is none:

    intervals       of estimates, each of which lies on one side as a whole
    counts          exact numbers (tokens, verifications, bytes), and arithmetic with printed ones to their last digit
    printed values  all values of a table, for what its document says about that very table
"""


class StudyCell(Record):
    """A cell of a table: text, or a number with what is known about it."""

    text: str | Message = ""
    """With a value, what stands in its place when it is None."""
    value: float | Estimate | None = None
    digits: int = 2
    struck: bool = False
    """The number is false."""


class PromptResult(Record):
    """One generation on one prompt, measured by us or printed by the document."""

    config: str
    """The configuration: id of the arm, or the document's name for it."""
    suite: str = ""
    """The part of the study, where it has several experiments."""
    target: str
    """The study's name of the target."""
    draft: str | None = None
    """The study's name of the draft model."""
    method: str = "none"
    """llama.cpp's name, several joined with `+`; `none`: plain decoding."""
    gamma: int | None = None
    prompt: str
    """Kind of text or name of the prompt."""
    prompt_tokens: int | None = None
    repeat: int = 0
    """Block of our runs, repetition of theirs, from 0."""
    max_tokens: int | None = None
    decode_rate: float | None = None
    """tok/s; None where the request failed or the document has no number."""
    acceptance: float | None = None
    """Accepted / drafted tokens; None where nothing was drafted or nothing is known."""
    tau: float | None = None
    """Tokens per target forward."""
    generated: int | None = None
    """Tokens generated, the first included."""
    decode_ms: float | None = None
    """Time for them, the first excluded."""
    drafted: int | None = None
    """Draft tokens that were counted."""
    accepted: int | None = None
    """Those of them that were accepted."""
    verdict: Standing | None = None
    """Whether the number can be believed: of our arm by the checks, of a published row by the audit; None where nothing
    decides."""
    why: Said | None = None
    """What makes the verdict worse than valid."""


class Requests(Record):
    """An arm's requests summed up one by one, as some documents print them."""

    mean_rate: float
    """Mean of the requests' rates in tok/s; the same for the next four."""
    median_rate: float
    lowest_rate: float
    highest_rate: float
    rate_sd: float
    """Standard deviation over requests."""
    generated: int
    """Tokens of all requests, the first ones included."""
    decode_ms: float
    """Time for them, the first ones excluded."""
    drafted: int
    """Draft tokens that were counted."""
    accepted: int
    drafting: int
    """Requests in which any were."""


class ArmResult(Record):
    """One configuration over all its prompts and repeats."""

    config: str
    suite: str = ""
    """The document's name of the group, like `B`; empty where it has none."""
    target: str
    draft: str | None = None
    method: str = "none"
    gamma: int | None = None
    prompt: str | None = None
    """Kind of text where this line is of one kind only; None: of all."""
    prompt_tokens: int | None = None
    """Where this line is of prompts of one length only."""
    clients: int | None = None
    """How many asked at once; None: one after the other, or by a rate."""
    max_tokens: int | None = None
    """Where all its requests were given the same limit, and the document says which."""
    requests: int
    decode_rate: Estimate | None = None
    """tok/s."""
    speedup: Estimate | None = None
    """Over plain decoding; None for baselines, without a baseline, and where the verdict is invalid."""
    cited: Estimate | None = None
    """The same with the interval to cite (`RunReport.cited`), which tables and figures show: see `citing`."""
    baseline: str | None = None
    """The configuration that it is compared with; None where the document does not say."""
    one_by_one: Requests | None = None
    """Its requests, where a document sums them up and does not print each."""
    claimed_speedup: float | None = None
    """A speedup that is impossible, implausible or was found invalid: shown as what was claimed, never used."""
    acceptance: Estimate | None = None
    tau: Estimate | None = None
    energy: Consumption | None = None
    """What its tokens cost in electric energy, where that was read; of lines over all prompts."""
    verdict: Standing | None = None
    why: Said | None = None
    """What makes the verdict worse than valid; or what is wrong with the comparison."""
    comparison_only: bool = False
    """Only the comparison with the baseline is at fault (`why`): the speedup is none and the verdict `invalid`, but
    the rate is a rate, with a verdict of its own."""
    rate_verdict: Standing | None = None
    """Of the rate by itself, where the comparison alone is at fault."""
    least_effect: float = 0.0
    """Share that effects have to exceed: so much a control of the same run shows where there is nothing."""
    carries: bool = True
    """Whether a ruling may rest on it; see `rules.carrying`."""
    looks: int = 1
    """How often its run may have been looked at to end it: what is claimed by it has to hold at all of them."""
    texts_apart: int | None = None
    """Answers that leave plain decoding's where the target is sure; None where that was not found out."""

    @property
    def speculates(self) -> bool:
        """Whether anything is drafted."""
        return self.method != "none"

    @property
    def stands(self) -> bool:
        """Whether its numbers may be used: neither impossible, nor implausible, nor found invalid."""
        return self.carries and self.verdict not in ("invalid", "implausible")

    @property
    def of_rate(self) -> Standing | None:
        """The verdict about its rate by itself."""
        return self.rate_verdict if self.comparison_only else self.verdict

    @property
    def any_speedup(self) -> Estimate | float | None:
        """The speedup, else the one that is only claimed."""
        return self.claimed_speedup if self.speedup is None else self.speedup

    @property
    def speedup_cell(self) -> StudyCell:
        """The speedup; one that is only claimed is struck out where it is false, not where it is implausible."""
        struck = self.speedup is None and self.claimed_speedup is not None and self.verdict == "invalid"
        return StudyCell(value=self.any_speedup, text="-", struck=struck)

    @property
    def step_cost(self) -> float | None:
        """Plain tokens that take as long as one step: tau / speedup."""
        if self.tau is None or self.speedup is None or not self.speedup.point:
            return None
        return self.tau.point / self.speedup.point


class Ran(Record):
    """A part of a study, measured or not."""

    part: str
    status: Literal["measured", "incomplete", "skipped"]
    reason: Said | None = None
    """Why it was skipped or is incomplete."""


class ModelUsed(Record):
    """A model of the study as it was used."""

    name: str
    """The study's name."""
    reference: str
    size_bytes: float | None = None
    parameters: float | None = None
    active_parameters: float | None = None
    """Parameters that one token reads; of dense models all."""
    bytes_per_token: float | None = None
    """Weights that decoding one token reads: of an MoE the chosen experts only."""
    experts: int | None = None
    experts_used: int | None = None
    union: ExpertUnion | None = None
    """Experts that consecutive tokens of the run's texts choose; None where they were not read."""
    quantization: str = ""
    stand_in: bool = False
    """One of specmeter's bench models, or simulated: not a model that the document names."""


class DraftPlace(Record):
    """Where the draft model of a configuration ran, what drafting took there, and what crossed the network."""

    config: str
    machine: str = ""
    """The other machine that the draft was asked onto, by address or name; empty: none."""
    held_by: tuple[str, ...] = ()
    """Devices that held its weights, by the engine's account."""
    block_ms: tuple[float, ...] = ()
    """Drafting time per drafted token in ms, block by block (published: one number for all)."""
    blocks: tuple[tuple[int, int], ...] = ()
    """(invocation, block) of each: those in which anything was drafted. Empty: blocks 0, 1, ... of one invocation."""
    alone_rate: float | None = None
    """tok/s of the draft by itself on the machine that it was asked onto."""
    drafted: int = 0
    """Tokens drafted in the requests whose traffic was counted."""
    forwards: int = 0
    """Forwards of the draft with an output in these requests: one per drafted token, and one for each
    forward of the target; less one per session, whose last output may be under way as its last request ends."""
    sent_bytes: float | None = None
    """To the other machine in these requests; None where it was not counted."""
    received_bytes: float | None = None
    vocabulary: int | None = None
    """Tokens that an output of the draft has a number for."""

    @property
    def held_told(self) -> str:
        """Devices that held its weights, as a table has them."""
        return ", ".join(dict.fromkeys(self.held_by))

    @property
    def by_block(self) -> dict[tuple[int, int], float]:
        """(invocation, block) -> drafting time per drafted token in ms."""
        blocks = self.blocks or [(0, place) for place in range(len(self.block_ms))]
        return dict(zip(blocks, self.block_ms, strict=True))


@dataclass(frozen=True)
class StudyData:
    """Everything that claims, tables and figures of a study are computed from."""

    study: str
    origin: Literal["measured", "published"]
    title: Message | str
    """What these numbers are: `measured here with the bench models`, `published by ...`."""
    results: tuple[PromptResult, ...] = ()
    arms: tuple[ArmResult, ...] = ()
    """Lines over all prompts, then per kind and per prompt length."""
    models: tuple[ModelUsed, ...] = ()
    quality: tuple[QualityReport, ...] = ()
    """Of studies of quantization."""
    places: tuple[DraftPlace, ...] = ()
    """Of arms with a draft model, where that is known."""
    memory: tuple[tuple[str, MemoryPrice], ...] = ()
    """(part, what the draft of an arm takes) for every arm with a draft model."""
    hosts: tuple[Host, ...] = ()
    machine: str | Message = ""
    """Device as the document names it; empty: `hosts`."""
    machines: MachineTable | None = None
    """Several machines beside each other, where that is the study; None: `hosts`."""
    bandwidth_bytes_per_s: float | None = None
    """Peak or measured memory bandwidth of the machine."""
    parts: tuple[Ran, ...] = ()
    notes: tuple[Message | str, ...] = ()
    """What a reader has to know before any number."""
    as_cited: bool = False
    """Whether speedups have the interval to cite: claims widen the arm's own by what they compare."""

    @property
    def stands_in(self) -> bool:
        """Whether other models than the document's were measured."""
        return any(model.stand_in for model in self.models)


def citing(data: StudyData) -> StudyData:
    """What tables and figures are made of: speedups of whole configurations with the interval to cite."""
    arms = (it.model_copy(update={"speedup": it.cited}) if it.cited is not None else it for it in data.arms)
    return replace(data, arms=tuple(arms), as_cited=True)


# --- what is said about it -------------------------------------------------------------------------------------------


class ClaimRuling(Record):
    """A claim of the document, and what the data says about it."""

    id: str
    """Short and stable: `finding-1`."""
    claim: Said
    """What the document claims, in our words."""
    where: Said
    """Its place: `abstract; section 4.2, Table 5`."""
    ruling: RulingWord
    found: Said
    """What was found, with numbers and intervals: one or two sentences."""
    rests_on: RestsOn = ""
    """What makes the ruling; empty where nothing does."""


class StudyTable(Record):
    """A table of the document, made from data."""

    key: str
    """`table-4`."""
    title: Said
    about: Said | None = None
    """What differs from the document's, and what to mind."""
    columns: tuple[Said, ...]
    """Headings with units."""
    rows: tuple[tuple[StudyCell, ...], ...]
    verdicts: tuple[Standing | None, ...] = ()
    """One per row; empty: none are known."""


class Point(Record):
    """A point, bar or end of a line."""

    series: str = ""
    """What colour and shape distinguish."""
    facet: str | Message = ""
    """What panels side by side distinguish."""
    x: float | str
    y: float
    low: float | None = None
    high: float | None = None
    label: str = ""
    """For the tooltip."""
    name: str = ""
    """Written beside the mark: the name of a rung, its bits."""
    verdict: Standing | None = None

    @classmethod
    def of(
        cls,
        estimate: Estimate,
        *,
        x: float | str,
        series: str = "",
        facet: str | Message = "",
        label: str = "",
        name: str = "",
        verdict: Standing | None = None,
    ) -> Point:
        """The point of an estimate, with its interval where it has one."""
        return cls(
            series=series,
            facet=facet,
            x=x,
            y=estimate.point,
            low=estimate.low,
            high=estimate.high,
            label=label,
            name=name,
            verdict=verdict,
        )


class Axis(Record):
    """An axis and its title with unit."""

    title: Said
    log: bool = False
    ratio: bool = False
    """Ratios to a baseline: a line at 1 is drawn across."""
    order: tuple[str, ...] = ()
    """Order of names, where x is one."""


class StudyFigure(Record):
    """A figure of the document, made from data."""

    key: str
    """`figure-2`."""
    title: Said
    about: Said | None = None
    kind: Literal["points", "lines", "bars"]
    x: Axis
    y: Axis
    series_title: Said | None = None
    points: Annotated[tuple[Point, ...], Field(max_length=20_000)]


@dataclass(frozen=True)
class StudyFindings:
    """Everything that is shown about a study."""

    data: StudyData
    claims: tuple[ClaimRuling, ...]
    tables: tuple[StudyTable, ...]
    figures: tuple[StudyFigure, ...]
    title: Message | str = ""
    """Of the study."""
    source: Message | str = ""
    """The document that is repeated."""
    command: str = ""
    """What measures it."""
    chinese: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts of a user's own study in English and Chinese."""


Found = tuple[RulingWord, Message]
"""A ruling, and what was found."""
FAR = 1e4
"""Ends of intervals beyond this are not printed: such an interval says nothing."""


class _Resting(tuple[RulingWord, Message]):
    """A finding that rests on something else than intervals."""

    rests_on: RestsOn


def resting_on(what: RestsOn, found: Found) -> Found:
    """A finding with what makes it, where that is not intervals."""
    made = _Resting(found)
    made.rests_on = what
    return made


def by_counts(ruling: RulingWord, found: Message) -> Found:
    """A finding from exact numbers."""
    return resting_on("counts", (ruling, found))


def by_values(ruling: RulingWord, found: Message) -> Found:
    """A finding from all values of a printed table."""
    return resting_on("printed values", (ruling, found))


def ruling(identity: str, claim: Message, where: Message, found: Found) -> ClaimRuling:
    """A claim with what was found: the one place where rulings are made."""
    rests_on: RestsOn = found.rests_on if isinstance(found, _Resting) else "intervals"
    decided = found[0] in ("supported", "contradicted")
    return ClaimRuling(
        id=identity,
        claim=claim,
        where=where,
        ruling=found[0],
        found=found[1],
        rests_on=rests_on if decided else "",
    )


def only_of(data: StudyData, named: Message, found: Found) -> Found:
    """What was found, of a claim about `named` models or machines; where others were measured it does not apply."""
    if not data.stands_in or data.origin == "published":
        return found
    return "does not apply here", Message("study.elsewhere", named=named, found=found[1])


def denied_by(values: Sequence[float], *, most: float, last_digit: float) -> list[float]:
    """Values that deny a claim of `at most` so much, beyond half a unit of its own last digit."""
    return [value for value in values if value > most + last_digit / 2]


def by_intervals(found: Sequence[tuple[Estimate, float]], about: float) -> RulingWord:
    """Of estimates, each claimed to be about so much: within a share `about` of it with their whole interval."""
    if found and all(above(it, (1 - about) * value) and below(it, (1 + about) * value) for it, value in found):
        return "supported"
    outside = any(below(it, (1 - about) * value) or above(it, (1 + about) * value) for it, value in found)
    return "contradicted" if outside else "cannot tell"


def fallen(lines: Sequence[ArmResult], among: int) -> Message:
    """How many of `among` lines do not stand, and why: `2 of 4 false, 2 implausible: they support nothing`"""
    unlike = sum(line.comparison_only for line in lines)
    counts = {
        "study.fallen.false": sum(line.verdict == "invalid" and not line.comparison_only for line in lines),
        "study.fallen.implausible": sum(line.verdict == "implausible" for line in lines),
        "study.fallen.unlike": unlike,
        "study.fallen.doubtful": sum(not line.carries for line in lines),
    }
    (first, number), *more = [(code, number) for code, number in counts.items() if number]
    some = Message("study.some_of", number=number, of=among, what=Message(first))
    rest = [Message("study.some", number=number, what=Message(code)) for code, number in more]
    return Message("study.fallen", parts=[some, *rest])


def quoted(estimate: Estimate | None, unit: str | Message = "") -> Message:
    """`1.26 [1.20, 1.31]`, or openly without an interval; its place has the digits, as in `{speedup:.2f}`."""
    if estimate is None:
        return Message("unknown")
    unit = Message("study.times") if unit == "x" else unit
    if estimate.low is None or estimate.high is None:
        return Message("study.single", point=estimate.point, unit=unit)
    return Message("study.interval", point=estimate.point, unit=unit, low=_end(estimate.low), high=_end(estimate.high))


def _end(value: float) -> float | Message:
    """An end of an interval; of one that says nothing only that it is far away."""
    return value if value < FAR else Message("study.above", far=FAR)


def share(value: float | Estimate | None) -> Message:
    """`3.3 %`."""
    point = value.point if isinstance(value, Estimate) else value
    return Message("unknown") if point is None else Message("study.share", percent=100 * point)


def in_percent(estimate: Estimate) -> Message:
    """`64.0 % [60.1, 68.0]`; its place has the digits. The share alone where there is no interval."""
    return share(estimate) if estimate.low is None else quoted(scaled(estimate, 100, "%"), " %")


def sentence(said: Message) -> Message:
    """What is said with its full stop."""
    return Message("study.sentence", said=said)


def where_any(code: str, *, n: int, **values: Value) -> Message | str:
    """What is added where there is any of it."""
    return Message(code, n=n, **values) if n else ""


def several(items: Iterable[Value], most: int | None = None) -> Message:
    """`a; b; and 3 more`, of which at most so many are said."""
    known = list(items)
    more = 0 if most is None else len(known) - most
    if more <= 0 and len(known) == 1 and isinstance(known[0], Message):
        return known[0]
    return Message("study.list", parts=[*known[:most], *([Message("study.more", more=more)] if more > 0 else ())])

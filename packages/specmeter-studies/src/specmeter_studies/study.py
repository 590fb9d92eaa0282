"""What a study is, and what it finds: the words that every study speaks, whatever it measures.

A study is a published document that specmeter repeats: parts to be measured (experiments, quality measurements), the
claims that the document makes, and the tables and figures it prints. Claims, tables and figures are computed from one
form of data, `StudyData`, which a run of our own and the published numbers both take: so their figures are drawn from
their numbers by the code that draws ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from specmeter.analysis.consumption import Consumption
from specmeter.analysis.explain.memory_price import MemoryPrice
from specmeter.analysis.quality import QualityReport
from specmeter.messages import Message
from specmeter.record import Estimate, ExpertUnion, Host, Prediction, Record, Standing

if TYPE_CHECKING:
    from specmeter_studies.machines import MachineTable


def _said(given: object) -> object:
    return Message(given) if isinstance(given, str) else given


Said = Annotated[Message, BeforeValidator(_said)]
"""What is shown to readers. Plain text, which code of a user's own study may give, is its own code."""

RulingWord: TypeAlias = Literal["supported", "contradicted", "cannot tell", "does not apply here"]
"""What data say about a claim. `does not apply here`: it is about named models or machines; others were measured."""

Found = tuple[RulingWord, Message]
"""A ruling, and what was found."""

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
    """llama.cpp's name, several joined with `+`; `none`: decoding without speculation."""
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
    """Over decoding without speculation; None for baselines, without a baseline, and where the verdict is invalid."""
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
    """Of the rate on its own, where the comparison alone is at fault."""
    least_effect: float = 0.0
    """Share that effects have to exceed: so much a control of the same run shows where there is nothing."""
    carries: bool = True
    """Whether a ruling may rest on it; see `rules.carrying`."""
    looks: int = 1
    """How often its run may have been looked at to end it: what is claimed by it has to hold at all of them."""
    texts_apart: int | None = None
    """Answers that leave the baseline's where the target is sure; None where that was not found out."""
    prediction: Prediction | None = None
    """What was expected of it before it was measured, of lines over all prompts."""

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
        """The verdict about its rate on its own."""
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
    expert_bytes: float | None = None
    """One expert in every layer; None for dense models."""
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
    """tok/s of the draft on its own on the machine that it was asked onto."""
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


class Answered(Record):
    """What a target answered to a prompt without speculation."""

    part: str
    target: str
    prompt: str
    tokens: tuple[int, ...]


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
    answers: tuple[Answered, ...] = ()
    """What baselines answered first to each prompt, where twins were measured."""
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
    lead: tuple[Message | str, ...] = ()
    """What a page says first: the answer to the study's title, its cause, and how many numbers are wrong."""
    notes: tuple[Message | str, ...] = ()
    """What a reader has to know before any number."""
    as_cited: bool = False
    """Whether speedups have the interval to cite: claims widen the arm's own by what they compare."""

    @property
    def whole(self) -> tuple[ArmResult, ...]:
        """The lines over all prompts."""
        return tuple(line for line in self.arms if line.prompt is None and line.prompt_tokens is None)

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
    """A claim of the document and the ruling on it."""

    id: str
    """Short and stable: `finding-1`."""
    claim: Said
    """What the document claims, in our words."""
    where: Said
    """Its place, such as `abstract; section 4.2, Table 5`."""
    ruling: RulingWord
    found: Said
    """The result with numbers and intervals, in one or two sentences."""
    rests_on: RestsOn = ""
    """Basis of the ruling; empty if there is none."""
    would_decide: Annotated[Said | None, Field(exclude_if=lambda value: value is None)] = None
    """What would decide it, if the document's own numbers leave it open."""

    @property
    def told(self) -> Message:
        """The result, and what would decide."""
        if self.would_decide is None:
            return self.found
        return Message("study.would_decide", found=self.found, decide=self.would_decide)


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
    """Everything shown about a study."""

    data: StudyData
    claims: tuple[ClaimRuling, ...]
    tables: tuple[StudyTable, ...]
    figures: tuple[StudyFigure, ...]
    title: Message | str = ""
    """Of the study."""
    source: Message | str = ""
    """The document repeated."""
    command: str = ""
    """Command that measures it."""
    chinese: Mapping[str, str] = field(default_factory=dict[str, str])
    """English -> Chinese texts of a user's own study."""

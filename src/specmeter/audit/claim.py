"""The records of audits: what a source claims, and what is to be said about it.

A printed number is what it may have been before it was rounded (`printed`). A bound counts as broken only if no value
within these ranges obeys it.

A bound depends on how drafts are made, and that is told by the names that people give their methods (`Family`):

    model    a draft model, one token per forward: each draft costs a forward
    chain    a head or small module, one token per forward, whose cost is not that of any model on its own
    tree     candidates branch, and one path of them can be accepted: a share of nodes is not an acceptance per position
    block    several tokens per forward
    lookup   n-grams and other tables: drafts cost next to nothing

Names also say settings (`n-max 4`), and those of models whether they are MoE models. A name proves nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from specmeter.messages import Message
from specmeter.record import Record
from specmeter.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_core import ErrorDetails

    from specmeter.messages import Value


Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0, le=10**15)]
"""More tokens would only overflow."""


NOT_READ = "ignore"
"""The meaning of a column whose numbers say nothing about decoding, or nothing that is understood."""


_SPEED = re.compile(r"(?<![a-z])(?:(?:tokens?|toks?|tk|t) ?(?:/|per|p) ?s(?:ec(?:ond)?)?\b|tps\b)", re.I)


class ColumnRead(Record):
    """What the numbers of a column were taken for."""

    heading: str
    slot: str = ""
    """Which number of its cells, if not the first: `%`, `x`, `den`."""
    meaning: str
    """One of `specmeter audit --column list`; `ignore`: not read."""
    certainty: float
    """From 0 to 1: the weight of the readings in which it has this meaning, among all that were tried."""

    @property
    def name(self) -> str:
        """What `--column` calls it."""
        return column_name(self.heading, self.slot)

    @property
    def is_read(self) -> bool:
        """Whether its numbers are used."""
        return self.meaning != NOT_READ

    @property
    def is_speed(self) -> bool:
        """Whether its heading or cells say tokens per second."""
        return "rate" in self.slot or (not self.slot and _SPEED.search(self.heading) is not None)


def column_name(heading: str, slot: str = "") -> str:
    """How a user names the numbers at one place of a column's cells: `tok/s`, `tok/s [%]`."""
    return f"{heading} [{slot}]" if slot else heading


class Claim(Record):
    """One row of a table or run of a log; every field but `source` and `row` may be missing.

    Shares are fractions (0.026, never 2.6). `rounding` says how far a printed value may lie from what was measured, so
    that a bound is only called broken when it is broken whatever was rounded away.
    """

    source: str
    """File it comes from."""
    row: str
    """Its place: `line 7`, `run 2`, or as given in the row, `Table 3, row 4`."""
    document: str | None = None
    """Document that the row was copied from, if given."""
    label: str = ""
    """What the source calls it."""
    target: str | None = None
    """The model that is decoded, as the source names it."""
    draft: str | None = None
    """The draft model; None where the source names none."""
    engine: str | None = None
    """What ran the models."""
    conditions: dict[str, str] = Field(default={})
    """Name -> text of conditions such as prompt, task or temperature. Rows that are alike in these and in all that says
    what was run are repeats of one configuration."""
    method: str | None = None
    """How drafts were made, where it is said; `none` for a baseline."""
    tree: bool | None = None
    """Whether drafts are trees. None: not said, and the method's name decides."""
    synthetic: bool = False
    """Acceptance was simulated at random."""
    repeat: Count | None = None
    """Which repetition of its configuration the row is, as its source counts them."""
    runs: Annotated[int, Field(ge=1)] | None = None
    """Generations that the row sums up or averages; its counts then leave out one first token each."""
    concurrency: Positive | None = None
    """Requests served at once: weights are then read once for several tokens, one of each request."""

    speedup: Positive | None = None
    """Claimed speedup over no speculation of the same target (1.26, not 26 %)."""
    speedup_of: Literal["decoding", "run"] = "decoding"
    """Whether `speedup` compares rates of decoding or times of whole runs."""
    decode_rate: Positive | None = None
    """Tokens per second claimed for this configuration."""
    decode_rate_sd: Annotated[float, Field(ge=0)] | None = None
    """Standard deviation of the rates that `decode_rate` is the mean of."""
    samples: tuple[Positive, ...] = ()
    """The individual rates in tokens per second, if given."""
    baseline_rate: Positive | None = None
    """Tokens per second of the target on its own, from wherever the source has it."""
    baseline_rate_sd: Annotated[float, Field(ge=0)] | None = None
    """Standard deviation of the rates that `baseline_rate` is the mean of."""
    baseline_from: str | None = None
    """Source of `baseline_rate` if it is not in the row: `line 3`, `mean of 4 rows`."""
    baseline_device: str | None = None
    """Device of that baseline, if different from the row's."""
    draft_rate: Positive | None = None
    """Tokens per second of the draft model on its own."""
    speed_ratio: Positive | None = None
    """Draft rate / target rate, where a source gives only their ratio."""
    token_ms: Positive | None = None
    """Milliseconds per token, if given next to `decode_rate`."""
    token_interval_ms: Positive | None = None
    """Mean time between tokens of one request, if `decode_rate` is the sum of several."""
    draft_elsewhere: bool = False
    """The draft ran on another machine or device, so that drafting may overlap with verification."""

    gamma: Annotated[int, Field(ge=0)] | None = None
    """Most draft tokens per step."""
    p_min: Annotated[float, Field(ge=0, le=1)] | None = None
    """Drafting stops early when the draft is less sure than this; 0: every draft has gamma tokens. None: not said, and
    taken for 0."""
    cheapest_forward: Annotated[float, Field(gt=0, le=1)] | None = None
    """Measured minimum of T(n) / T(1) for n up to gamma + 1. None: not measured, and taken for 1."""
    acceptance: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """Accepted / drafted tokens. Above 1 it contradicts itself, which is for the judge to say."""
    acceptance_of: Literal["drafted", "output"] | None = None
    """What the engine divides accepted tokens by; None: unknown, taken as `drafted`."""
    tau: Annotated[float, Field(ge=1)] | None = None
    """Tokens emitted per target forward (mean accepted length + 1)."""
    positions: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()
    """Acceptance per draft position: share of all drafts that were accepted that far."""
    step_ms: Positive | None = None
    """Time of one draft-then-verify round."""
    drafted: Count | None = None
    accepted: Count | None = None
    steps: Count | None = None
    """Draft-then-verify rounds."""
    target_forwards: Count | None = None
    """Successful target forwards after the prompt, as the engine counted them."""
    failed_forwards: Count | None = None
    """Target (or shared) forwards that the log says failed."""
    failed_draft_forwards: Count | None = None
    """Draft forwards that the log says failed."""
    restores: Count | None = None
    """Checkpoints restored (steps without output)."""

    predicted_n: Count | None = None
    """Tokens generated, the first included."""
    predicted_ms: Positive | None = None
    """Time for them; see `window`."""
    baseline_predicted_ms: Positive | None = None
    """Time for them without speculation."""
    prompt_n: Count | None = None
    prompt_ms: Positive | None = None
    prompt_rate: Positive | None = None
    """Tokens of the prompt per second, as printed."""
    prompt_rate_sd: Annotated[float, Field(ge=0)] | None = None
    wall_ms: Positive | None = None
    """Time of the whole run."""
    baseline_wall_ms: Positive | None = None
    """Time of the same whole run without speculation."""
    window: Literal["all tokens", "all but the first", "with prompt", "unknown"] = "unknown"
    """Definition of `decode_rate`."""

    bytes_per_token: Positive | None = None
    """Weights that one token reads: the active ones of an MoE."""
    size_bytes: Positive | None = None
    """The model file; an upper bound of `bytes_per_token`, and equal to it for dense models."""
    experts: Count | None = None
    """Experts per layer; 0 for a dense model."""
    mixture: bool | None = None
    """Whether the target is an MoE model, if only that is known."""
    device: str | None = None
    """Name of the machine or GPU, as the source spells it."""
    bandwidth_bytes_per_s: Positive | None = None
    """Peak memory bandwidth, if given."""
    claimed_bandwidth_bytes_per_s: Positive | None = None
    """Memory traffic computed by the source."""

    perplexity: Positive | None = None
    """Of the target, on a text that the source names."""
    perplexity_sd: Annotated[float, Field(ge=0)] | None = None
    """Its printed error."""

    rounding: dict[str, float] = Field(default={})
    """Field -> half a unit of its last digit, or more if the source gives an uncertainty."""
    averaged: tuple[str, ...] = ()
    """Fields that are means of per-prompt or per-request values."""
    pooled: tuple[str, ...] = ()
    """Fields that are sums over all prompts divided by sums."""
    kept: tuple[str, ...] = Field(default=(), exclude=True, repr=False)
    """Laws that rows may break and the other rows of its table keep (`specmeter.audit.equations`)."""
    against: tuple[Message, ...] = Field(default=(), exclude=True, repr=False)
    """What in its row breaks a law that all other rows of its table keep, whatever the columns mean."""
    rivals: tuple[tuple[Claim, ...], ...] = Field(default=(), exclude=True, repr=False)
    """What other likely readings make of the same row, the likeliest first: it is refused only if all of them are."""
    notes: tuple[Message | str, ...] = ()
    """Notes of the importer (log lines, sampling settings)."""
    columns: tuple[ColumnRead, ...] = Field(default=(), exclude=True)
    """How the columns of its table were read."""
    problem: Message | None = None
    """Why this row could not be read (ruling: `cannot tell`)."""

    @property
    def is_baseline(self) -> bool:
        """Whether the row is labelled as the baseline."""
        return self.method == "none"

    @property
    def drafted_nothing(self) -> bool:
        """Whether nothing was drafted, whatever the label."""
        return self.is_baseline or self.gamma == 0 or self.drafted == 0

    @property
    def speculates(self) -> bool:
        """Whether the claim shows any drafting."""
        if self.method is not None:
            return not self.is_baseline
        signs = (self.gamma, self.acceptance, self.tau, self.drafted, self.accepted, self.steps, self.draft_rate)
        return any(sign is not None for sign in (*signs, self.speed_ratio))

    @property
    def decoded_tokens(self) -> int | None:
        """Tokens after the first of each generation; None below 1."""
        if self.predicted_n is None:
            return None
        decoded = self.predicted_n - (self.runs or 1)
        return decoded if decoded > 0 else None


AuditVerdict = Literal["impossible", "implausible", "possible", "cannot tell"]
VERDICTS: tuple[AuditVerdict, ...] = ("impossible", "implausible", "possible", "cannot tell")
"""The worst first."""


class Assumption(Record):
    """An assumption behind a broken bound. Where one of them fails by as much as it `needs`, the bound holds."""

    name: str
    """A name from `specmeter.audit.judge.ASSUMPTIONS`."""
    needs: Message
    """How wrong it must be for the claim to be true: `a forward pass over 17 tokens at 0.71 of the time of one`."""


class Ruling(Record):
    """The ruling on a claim."""

    claim: Claim
    verdict: AuditVerdict
    bound: str
    """Id of the bound or law that decides, as in the checks: `speedup-above-tau`, `conservation`, ..."""
    arithmetic: Message
    """The deciding calculation in one line."""
    rests_on: tuple[Assumption, ...] = ()
    """The assumptions behind an "implausible"; empty otherwise."""
    also_broken: tuple[str, ...] = ()
    """Ids of other broken bounds."""
    contradictions: tuple[Message, ...] = ()
    """Contradictions between the row's numbers, one line each."""
    others: tuple[Message, ...] = ()
    """Other bounds tried, one line each, broken ones first."""

    @property
    def broken(self) -> bool:
        """Whether a bound is broken."""
        return self.verdict in {"impossible", "implausible"}

    @property
    def reason(self) -> Message:
        """The arithmetic, and what must be wrong for the claim to be true."""
        also = Message("audit.also_breaks", bounds=self.also_broken) if self.also_broken else ""
        return Message("audit.reason", arithmetic=self.arithmetic, needs=needed(self.rests_on), also=also)


def assumed(name: str, code: str, /, **values: Value) -> Assumption:
    """The assumption, with the message of what it needs."""
    return Assumption(name=name, needs=Message(code, **values))


def needed(assumptions: Sequence[Assumption]) -> Message | str:
    """What would have to be wrong, as it follows an arithmetic; nothing where that is not so."""
    return Message("audit.needs", needs=[it.needs for it in assumptions]) if assumptions else ""


class UnreadableError(ValueError):
    """What a source says cannot be what it says it is."""

    def __init__(self, code: str, /, **values: Value) -> None:
        self.said = Message(code, **values)
        super().__init__(str(self.said))


def problem_of(error: ValueError) -> Message:
    """What is wrong with a row of which this was raised."""
    return error.said if isinstance(error, UnreadableError) else Message("unread.why", why=str(error))


def claim_of(**fields: Any) -> Claim:
    """The claim, or one with a `problem` where a value cannot be what its field says, its place and label included."""
    try:
        return Claim(**fields)
    except ValidationError as error:
        source, row, label = (printable(str(fields.get(key, ""))) for key in ("source", "row", "label"))
        given, fault = fields.get("problem"), error.errors(include_url=False)[0]
        problem = given if isinstance(given, Message) else _problem(fault)
        return Claim(source=source, row=row, label=label, problem=problem)


def _problem(fault: ErrorDetails) -> Message:
    name, value = str(fault["loc"][0]), printable(str(fault["input"])[:40])
    limits = fault.get("ctx", {})
    for limit in ("gt", "ge", "lt", "le"):
        if limit in limits:
            return Message(f"unread.{limit}", name=name, value=value, limit=limits[limit])
    return Message(_FAULTS.get(fault["type"], "unread.value"), name=name, value=value)


_FAULTS = {
    "finite_number": "unread.not_finite",
    "int_from_float": "unread.not_whole",
    "int_parsing": "unread.not_whole",
    "float_parsing": "unread.not_number",
}


# --- bounds -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoundOutcome:
    """One bound, tried."""

    bound: str
    """By the names of `specmeter.audit.judge`."""
    result: Literal["broken", "doubtful", "holds", "weak", "undecided"]
    """`doubtful`: broken by less than noise explains, or by numbers that may mean something else; `weak`: holds, but
    nearly anything would; `undecided`: something is missing."""
    line: Message
    """The arithmetic, or what is missing."""
    rests_on: tuple[Assumption, ...] = ()
    """Of a broken bound: what would make it hold again. Empty where nothing would: arithmetic."""

    @property
    def impossible(self) -> bool:
        """Broken, whatever the machine."""
        return self.result == "broken" and not self.rests_on


class Range(NamedTuple):
    """What a printed value may have been before it was rounded: `low <= value <= high`, none negative."""

    low: float
    value: float
    high: float

    def over(self, other: Range) -> Range:
        """Quotient of two ranges of positive numbers."""
        most = self.high / other.low if other.low > 0 else math.inf
        return Range(self.low / other.high, self.value / other.value, most)

    def by(self, other: Range | float) -> Range:
        """Product with another range, or a positive number."""
        low, value, high = other if isinstance(other, Range) else (other, other, other)
        return Range(self.low * low, self.value * value, self.high * high)

    def plus(self, other: Range | float) -> Range:
        """Sum."""
        low, value, high = other if isinstance(other, Range) else (other, other, other)
        return Range(self.low + low, self.value + value, self.high + high)


ONE = Range(1.0, 1.0, 1.0)


def printed(claim: Claim, field: str) -> Range | None:
    """The range of a field of the claim, None where it is absent. Rounding takes no share past 0 or 1, no rate to 0."""
    value = getattr(claim, field)
    if value is None:
        return None
    half = max(0.0, claim.rounding.get(field, 0.0))
    low, high = value - half, value + half
    if field == "acceptance":
        low, high = max(0.0, low), min(max(1.0, value), high)
    elif low <= 0 < value:
        low = value / 2
    return Range(low, value, high)


# --- methods by their names -------------------------------------------------------------------------------------------

Family = Literal["none", "model", "chain", "tree", "block", "lookup", "unknown"]

_FAMILIES: tuple[tuple[Family, str], ...] = (
    ("tree", r"medusa|eagle|hydra|sequoia|specinfer|opt-?tree|\btree|\brest\b|ouroboros|recycling|beagle|\bhass\b|"
             r"re-?drafter|spectr\b|traversal|griffin\b|\bcoral\b|kangaroo|clover"),
    ("chain", r"\bmtp\b|\blinear\b|\bchain\b|next-?n\b|multi-?token|self-?spec|layer-?skip|swift"),
    ("block", r"dflash|dspark|parallel|\bpard\b|diffusion|\bblock"),
    ("lookup", r"n-?gram|look-?(up|ahead)|\bpld\b|prompt-?cache|suffix|\bsam\b|retrieval|\blade\b"),
    ("model", r"^draft\b|draft-?(simple|model)|^(vanilla )?(sd|sps)$|speculative|spec-?(dec|sampl)|assist|two-?model|"
              r"small-?model|standalone|^spec(ulation)?$"),
)  # fmt: skip
"""The first that fits; a name has its spaces and underscores read as hyphens too."""


def family_by_name(method: str | None) -> Family:
    """What a method's name says; `unknown` for a name that says nothing, or none at all."""
    if method is None:
        return "unknown"
    name = method.lower().strip()
    if name == "none":
        return "none"
    spellings = (name, re.sub(r"[\s_]+", "-", name))
    for found, pattern in _FAMILIES:
        if any(re.search(pattern, spelling) for spelling in spellings):
            return found
    return "unknown"


def family_of(claim: Claim) -> Family:
    """What the method says, or the draft's name where that says more: `EAGLE3-LLaMA3.1-8B` under "speculative"."""
    found = family_by_name(claim.method)
    if found in {"unknown", "model"} and claim.draft is not None:
        of_draft = family_by_name(claim.draft)
        return of_draft if of_draft in {"tree", "chain", "block"} else "model"
    return found


def drafts_one_by_one(claim: Claim) -> bool:
    """Whether each draft token cost one forward of a draft model.

    So it is where the method says so; and where its name says nothing else, and a draft model or its rate is named, or
    no method is.
    """
    found = family_of(claim)
    if claim.method and _OVERLAPPED.search(claim.method.lower()):
        return False
    return found == "model" or (
        found == "unknown" and (claim.method is None or claim.draft_rate is not None or claim.speed_ratio is not None)
    )


_OVERLAPPED = re.compile(r"\bpearl\b|amusd|overlap|async|specbranch|dovetail")
"""Methods that draft while the target verifies: drafts take no time of their own."""


def joined(claim: Claim) -> bool:
    """Whether two methods draft, `MTP + n-gram`, of which a row may give the numbers of one."""
    parts = re.split(r"[+&,/]|\band\b", (claim.method or "").lower())
    named = (family_by_name(without_length(part)) for part in parts)  # `--draft-max 4` is a setting, not a method
    return len(parts) > 1 and sum(family not in {"unknown", "none"} for family in named) > 1


def may_be_tree(claim: Claim) -> bool:
    """Whether acceptance may be a share of the nodes of a tree: a method of an unknown name may draft trees."""
    if claim.tree is not None:
        return claim.tree
    if drafts_of_vllm(f"{claim.engine} {claim.label} {claim.method}"):
        return False
    return family_of(claim) == "tree" or (claim.method is not None and family_by_name(claim.method) == "unknown")


def drafts_of_vllm(text: str) -> bool:
    """Whether a text names vLLM or its setting `num_speculative_tokens`, and neither trees nor other engines.

    EAGLE and Medusa draft chains there, and of a tree too that setting counts all tokens.
    """
    named = re.search(r"vllm|num[-_ ]spec(?:ulative)?[-_ ]tokens", text, re.I)
    return named is not None and re.search(r"sg-?lang|tree|tensorrt|trt", text, re.I) is None


def length_binds(claim: Claim) -> bool:
    """Whether no step can draft or accept more than gamma tokens.

    What is called k beside a tree may be its width or its nodes, and methods that adapt their length, or draft on while
    they verify, go beyond it. An engine that says whether its drafts are trees gives their depth.
    """
    if claim.tree is not None:
        return True
    return not may_be_tree(claim) and not (claim.method and _OPEN_LENGTH.search(claim.method.lower()))


_OPEN_LENGTH = re.compile(r"adapt|dynamic|\bpearl\b|\bsvip\b|suffix|look-?ahead|\bsam\b|specdec\+\+")


_LENGTH = re.compile(
    r"(?<![a-z0-9])(?:num[-_ ]steps|num[-_ ]spec(?:ulative)?[-_ ](?:tokens|steps)|num[-_ ]draft[-_ ]tokens|n[-_ ]max"
    r"|draft[-_ ](?:n[-_ ])?max|draft[-_ ](?:n|len|length|depth|block[-_ ]size)|n[-_ ]draft|spec[-_ ](?:tokens|len)"
    r"|(?<!-)k|γ|gamma)\s*[=:`]*\s*(\d{1,3})(?![.\d]\d|[a-z\d]|%)"
    # words that count other things too: one or two digits, and nothing behind them that says what they count
    r"|(?<![a-z0-9])(?:heads|depth|nd|(?<!power )cap(?==)|block(?:[-_ ]size)?(?==)|d(?==)|--draft|draft(?:[-_ ]size)?)"
    r"\s*[=:]?\s*(\d{1,2})(?!\.\d|\w|[%/:]| ?(?:ms|s\b|tok|prompt|run|sample|request|model|gpu))"
    # behind a method, `n` is its draft length, and so is what follows MTP; alone it may count samples
    r"|(?<![a-z])(?:mtp|eagle\S{0,3}|draft\w{0,6}|dflash\d?|dspark|nextn|spec\w{0,8})(?: on| enabled| [\d.]{1,4}b)?"
    r"[ ,(_-]{1,3}"
    r"n[-= ]{0,3}(\d{1,2})\b(?!\.\d|%| (?:prompt|run|sample|request))"
    r"|(?<![a-z])(?:mtp|nextn)[-_ =:(]{0,2}([1-9]|1\d)\b"
    r"(?!\.\d|[%x/]| ?(?:[bkx]\b|gpu|run|prompt|sample|request|tok|t/s))",
    re.I,
)
_LENGTH_ALONE = re.compile(r"(?:n|d|k|nd|mtp-?n)[-_ =]?(\d{1,2})", re.I)
"""All of a label."""
_P_MIN = re.compile(r"\bp[-_ ]?min\s*[=:`]?\s*(0?\.\d{1,4}|0|1)\b", re.I)


def least_certainty(text: str) -> float | None:
    """The least certainty that a name says: `p-min 0.6`."""
    match = _P_MIN.search(text[:200])
    return None if match is None else float(match.group(1))


def draft_lengths(text: str) -> list[int]:
    """Every draft length that a text says: `n-max 4`, `EAGLE-3, k=3`, `MTP (n=2)`, `MTP-1`, `D2`."""
    if (alone := _LENGTH_ALONE.fullmatch(text.strip("*_` "))) is not None:
        return [int(alone[1])]
    return [int(next(filter(None, found.groups()))) for found in _LENGTH.finditer(text)]


def without_length(label: str) -> str:
    """A label without the draft length that it says."""
    return _LENGTH.sub("", label[:200]).strip(" ,/-")


# --- models by their names --------------------------------------------------------------------------------------------

_EXPERTS = re.compile(
    r"moe|(?<![a-z0-9])a[0-9]+(?:\.[0-9]+)?b(?![a-z0-9])|[0-9]x[0-9]+(?:\.[0-9]+)?b|mixtral|gpt-?oss|dbrx|grok|kimi-?k2"
    r"|deepseek-?(?:v[23]|r1(?!-distill)|2)|llama-?4|qwen3-?next|glm-?4\.[5-9]|minimax|ling-|hunyuan-?a"
)
_DENSE = re.compile(
    r"\bdense\b|(?<![a-z0-9])(?:qwen(?:2|2\.5|3|3\.5|35|3\.6)?|llama(?:-?[23](?:\.[0-9])?)?|tinyllama|gemma-?[23]?|"
    r"mistral|phi-?[234]?|falcon|vicuna|smollm[23]?|starcoder2?|olmo2?)"
    r"[-_ :]+(?:instruct|it|v?[0-9.]+)?[-_ :]*[0-9]+(?:\.[0-9]+)?[bm](?![a-z0-9])"
)


def mixture_of_experts(name: str) -> bool | None:
    """True or False where the name of a model says so, None where it does not."""
    plain = name[:500].lower()
    if _EXPERTS.search(plain):
        return True
    return False if _DENSE.search(plain) else None

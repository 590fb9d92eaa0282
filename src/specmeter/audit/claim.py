"""What somebody claims, and what is to be said about it: the two records that importers and the judge speak."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from specmeter.record import Record

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0, le=10**15)]
"""More tokens than anybody ever counted would only overflow."""


class Claim(Record):
    """One row of a table, or one run of a log; every field may be absent, `source` and `row` aside.

    Shares are fractions (0.026, never 2.6). `rounding` says how far a printed value may lie from what was measured, so
    that a bound is only called broken when it is broken whatever was rounded away.
    """

    source: str
    """File it comes from."""
    row: str
    """Where in the file: `line 7`, `run 2`, `Table 3, row 4`."""
    label: str = ""
    """What the source calls it."""
    method: str | None = None
    """How drafts were made, where it is said; `none` for a baseline."""
    synthetic: bool = False
    """Acceptance was decided by dice."""
    runs: Annotated[int, Field(ge=1)] | None = None
    """Generations that the row sums up or averages; its counts then leave out one first token each."""
    concurrency: Positive | None = None
    """Requests served at once: weights are then read once for several tokens, one of each request."""

    speedup: Positive | None = None
    """Claimed speedup over plain decoding of the same target (1.26, not 26 %)."""
    decode_rate: Positive | None = None
    """Tokens per second claimed for this configuration."""
    decode_rate_sd: Annotated[float, Field(ge=0)] | None = None
    """Standard deviation of the rates that `decode_rate` is the mean of."""
    baseline_rate: Positive | None = None
    """Tokens per second of the target by itself, from wherever the source has it."""
    draft_rate: Positive | None = None
    """Tokens per second of the draft model by itself."""
    speed_ratio: Positive | None = None
    """Draft rate / target rate, where a source gives only their ratio."""
    token_interval_ms: Positive | None = None
    """Mean time between tokens of one request, where `decode_rate` sums up several requests."""
    draft_elsewhere: bool = False
    """The draft ran on another machine or device, so that drafting may overlap with verification."""

    gamma: Annotated[int, Field(ge=0)] | None = None
    """Most draft tokens per step."""
    p_min: Annotated[float, Field(ge=0, le=1)] | None = None
    """Drafting stops early when the draft is less sure than this; 0: every draft has gamma tokens. None: not said, and
    taken for 0."""
    acceptance: Annotated[float, Field(ge=0, le=1)] | None = None
    """Accepted / drafted tokens."""
    tau: Annotated[float, Field(ge=1)] | None = None
    """Tokens emitted per target forward (mean accepted length + 1)."""
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
    """Checkpoints restored: rounds whose forward emitted nothing."""

    predicted_n: Count | None = None
    """Tokens generated, the first included."""
    predicted_ms: Positive | None = None
    """Time for them; see `window`."""
    prompt_n: Count | None = None
    prompt_ms: Positive | None = None
    wall_ms: Positive | None = None
    """Time of the whole run."""
    window: Literal["all tokens", "all but the first", "with prompt", "unknown"] = "unknown"
    """Which tokens `decode_rate` divides by which time."""

    bytes_per_token: Positive | None = None
    """Weights that one token reads: the active ones of an MoE."""
    size_bytes: Positive | None = None
    """The model file; an upper bound of `bytes_per_token`, and equal to it for dense models."""
    experts: Count | None = None
    """Experts per layer; 0 for a dense model."""
    mixture: bool | None = None
    """Whether the target is a mixture of experts, where only that is known."""
    device: str | None = None
    """Name of the machine or GPU, as the source spells it."""
    bandwidth_bytes_per_s: Positive | None = None
    """Peak memory bandwidth, where the source says it."""
    claimed_bandwidth_bytes_per_s: Positive | None = None
    """Memory traffic that the source itself computes."""

    rounding: dict[str, float] = Field(default={})
    """Field -> half a unit of its last printed digit, in the field's own unit; or more, where the source itself gives
    an uncertainty or several values."""
    unit_unsaid: tuple[str, ...] = ()
    """Shares that the source gives without saying whether they are fractions or percent; read as fractions."""
    notes: tuple[str, ...] = ()
    """Things the importer saw that a reader should know (log lines, sampling settings)."""
    problem: str | None = None
    """Why this row could not be read; such a claim carries no numbers and is ruled `cannot tell`."""


class Ruling(Record):
    """What is to be said about a claim."""

    claim: Claim
    verdict: Literal["possible", "impossible", "cannot tell"]
    bound: str
    """Name of the bound or law that decides, by the names of the checks: `speedup-above-tau`, `conservation`, ..."""
    arithmetic: str
    """The deciding calculation in one line, with its numbers."""
    others: tuple[str, ...] = ()
    """Further bounds that were tried, each in one line, broken ones first."""

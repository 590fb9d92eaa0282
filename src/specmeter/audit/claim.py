"""What somebody claims, and what is to be said about it: the two records that importers and the judge speak."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from specmeter.record import Record

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]


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

    speedup: Positive | None = None
    """Claimed speedup over plain decoding of the same target (1.26, not 26 %)."""
    decode_rate: Positive | None = None
    """Tokens per second claimed for this configuration."""
    baseline_rate: Positive | None = None
    """Tokens per second of the target by itself, from wherever the source has it."""
    draft_rate: Positive | None = None
    """Tokens per second of the draft model by itself."""
    draft_elsewhere: bool = False
    """The draft ran on another machine or device, so that drafting may overlap with verification."""

    gamma: Annotated[int, Field(ge=0)] | None = None
    """Most draft tokens per step."""
    acceptance: Annotated[float, Field(ge=0, le=1)] | None = None
    """Accepted / drafted tokens."""
    tau: Annotated[float, Field(ge=1)] | None = None
    """Tokens emitted per target forward (mean accepted length + 1)."""
    drafted: Count | None = None
    accepted: Count | None = None
    steps: Count | None = None
    """Draft-then-verify rounds."""
    target_forwards: Count | None = None
    """Target forwards after the prompt, as the engine counted them."""
    failed_forwards: Count | None = None
    """Target (or shared) forwards that the log says failed."""
    failed_draft_forwards: Count | None = None
    """Draft forwards that the log says failed."""

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
    device: str | None = None
    """Name of the machine or GPU, as the source spells it."""
    bandwidth_bytes_per_s: Positive | None = None
    """Peak memory bandwidth, where the source says it."""
    claimed_bandwidth_bytes_per_s: Positive | None = None
    """Memory traffic that the source itself computes."""

    rounding: dict[str, float] = {}
    """Field -> half a unit of its last printed digit, in the field's own unit."""
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

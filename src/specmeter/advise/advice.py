"""The records of an advice: what was asked, what became of every arm, and what is advised."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field

from specmeter.analysis.answers_made import AnswersMade
from specmeter.engines.url.spec import Url
from specmeter.messages import Message
from specmeter.record import Arm, Disturbance, EngineIdentity, Estimate, Host, ModelIdentity, Record
from specmeter.record.base import read_record, write_record
from specmeter.record.verdict import Verdict
from specmeter.store.locate import ADVICE_NAME

Doubt = Literal["", "none", "late", "version"]
"""There is no certificate; a later check issued it; another version computed what it covers."""
Goal = Literal["throughput", "latency"]
Stage = Literal["settings", "screen", "race", "confirm"]
Decision = Literal["speculate", "on-these-prompts", "no-difference", "off", "undecided"]
"""- `speculate`: faster, by the interval over blocks and by the one over prompts, so on other prompts like these, too;
- `on-these-prompts`: faster on those that were measured; they are too few, or too unlike, to speak of others;
- `no-difference`: within 2 %: it is better left off;
- `off`: nothing is faster;
- `undecided`: none of these is shown.
"""
DRAFTS: tuple[Decision, ...] = ("speculate", "on-these-prompts")
LEAVES_OFF: tuple[Decision, ...] = ("no-difference", "off")
Basis = Literal["predicted", "raced", "confirmed"]
MAX_CLIENTS = 64
MAX_LOADS = 16
Seconds = Annotated[float, Field(ge=0, le=1e9)]


class AdviceQuestion(Record):
    """The question: enough to continue with it, and to ask it again. Paths are absolute."""

    target: str
    """A model reference; with `from_file` empty where the file says it; of servers what they call it."""
    urls: Annotated[tuple[Url, ...], Field(max_length=16, exclude_if=lambda value: not value)] = ()
    """Servers that run and are chosen among; the first decodes without speculation. None: specmeter starts them."""
    drafts: tuple[str, ...] = ()
    """Model references that were named; others may be found."""
    find_drafts: bool = True
    """Whether drafts are looked for beside the target and in the folders of other programs."""
    prompts: tuple[str, ...] = ()
    """Files of prompts."""
    sessions: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Files of recorded sessions."""
    kinds: tuple[str, ...] = ()
    """Kinds of text, of the prompts that come with specmeter."""
    from_file: str | None = None
    """An experiment whose arms are the grid."""
    budget_s: Seconds = 300.0
    goal: Goal = "throughput"
    clients: Annotated[tuple[Annotated[int, Field(ge=1, le=MAX_CLIENTS)], ...], Field(max_length=MAX_LOADS)] = ()
    """Numbers of clients that ask at once, each sending its next request when its last one has ended; the fewest first.
    None: one request after the other."""
    load: Annotated[int, Field(ge=1, le=MAX_CLIENTS)] | None = None
    """Which of them an advice of a schedule is about; None of the schedule itself, and of an advice without clients."""
    wide: bool = False
    """Threads, flash attention and types of the cache are tried as well."""
    max_tokens: int | None = None
    settings: tuple[str, ...] = ()
    """Changes of the experiment, as `--set` takes them."""


class LeftOutDraft(Record):
    """A draft model that is not tried, and why."""

    reference: str
    why: Message


class ArmOutcome(Record):
    """What became of an arm of the grid, as a code and the numbers behind it; the catalogues have the sentences."""

    arm_id: str
    predicted: Estimate | None = None
    """Speedup over no speculation that the screen expects."""
    raced: Estimate | None = None
    """The same as the race measured it."""
    confirmed: Estimate | None = None
    """The same as the confirmation measured it."""
    by_kind: dict[str, Estimate] = Field(default_factory=dict[str, Estimate])
    """The same on each kind of text, where there are several."""
    basis: Message | None = None
    """What the prediction rests on; or why there is none."""
    acceptance: float | None = None
    """Accepted draft tokens over all draft tokens that the prediction rests on; None if nothing was drafted."""
    code: Literal[
        "cannot-gain",  # not even its optimistic end is above 1
        "cannot-win",  # its optimistic end is below the pessimistic end of `than`
        "as-good",  # predicted to be within a hair of `than`, which is simpler or expected to be faster
        "no-room",  # might win, and the budget has no room for it; told as such
        "slower",  # raced, and shown to be slower than `than`
        "equivalent",  # raced, and shown to be within 2 % of `than`, which is simpler
        "open",  # raced, and neither shown
        "failed",  # it could not be measured; `why`
        "winner",
    ]
    stage: Stage
    than: str | None = None
    """The arm that it was held against."""
    ratio: Estimate | None = None
    """Its rate over that of `than`: predicted in the screen, measured in the race."""
    blocks: int = 0
    """Blocks in which it was raced."""
    why: str = ""
    """What an engine said when it failed."""


class AdviceOfKind(Record):
    """What is advised for one kind of text, where kinds differ."""

    kind: str
    decision: Decision
    arm: Arm | None
    """The arm to use; None where decoding without speculation is best, or nothing is shown."""
    speedup: Estimate | None


SettingName = Literal["threads", "flash_attention", "kv_type_k", "kv_type_v"]
SETTING_NAMES: tuple[SettingName, ...] = get_args(SettingName)


class TriedSettings(Record):
    """Settings of the engine that were tried in place of its default."""

    engine: dict[SettingName, int | str]
    """What differs from the default."""
    speedup: Estimate | None = None
    """Rate over that of the default, of decoding without speculation or of a draft, whichever was ahead."""
    blocks: int = 0
    code: Literal["chosen", "not-faster", "failed"]
    """`chosen`: in force for all that was measured later, decoding without speculation included."""
    why: str = ""

    @property
    def changes_text(self) -> bool:
        """Whether outputs may differ from those of the default beyond rounding: numbers of the cache are coarser."""
        return any(name.startswith("kv_type") for name in self.engine)


class StageRun(Record):
    """A stage that was carried out, or started."""

    stage: Stage
    folder: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """Name of its run folder within the advice's."""
    verdict: Verdict | None
    certificate_sha256: str | None
    seconds: Seconds
    """Time that it took, over all starts."""
    blocks: int = 0
    sessions: int = 0
    prompts: int = 0
    disturbed: Disturbance | None = None
    """The most disturbed block."""


class Changed(Record):
    """Something that is not what it was when an earlier advice was given."""

    what: Literal["host", "engine", "target", "draft", "specmeter"]
    before: str
    """In a few words: a build, a processor, the first digits of a hash."""
    now: str


class Again(Record):
    """An earlier advice held against what is measured now."""

    holds: Literal["holds", "does-not-hold", "cannot-tell"]
    before: Estimate | None
    """Speedup that the earlier advice told."""
    made_at: float
    """When that was."""
    changed: tuple[Changed, ...] = ()


class Advice(Record):
    """Advice for one target on one machine."""

    version: Literal[1] = 1
    asked: AdviceQuestion
    made_at: float
    """Seconds since the epoch."""
    finished: bool = False
    """False: it was interrupted or is running, and this is the best so far."""
    decision: Decision = "undecided"
    basis: Basis = "predicted"
    arm: Arm | None = None
    """The arm to use, or the best so far; None: no speculation."""
    speedup: Estimate | None = None
    """Speedup of `arm` (or of the best other arm if speculation is off) over no speculation, from the stage `basis`."""
    over_prompts: Estimate | None = None
    """The same with an interval over prompts like those of the confirmation; None before it, under load, or with
    fewer than four prompts."""
    rival: str = ""
    """Id of an arm that may be more than 2% faster than `arm`."""
    speedup_of: str | None = None
    """Id of the arm that `speedup` belongs to, if it is not `arm`."""
    tau: Estimate | None = None
    """Tokens per step of this arm; divided by `speedup`: cost of a step in steps without speculation."""
    verdict: Verdict | None = None
    """Verdict of the stage `basis`; None for a prediction."""
    doubts: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Ids of the checks that lower it."""
    why_undecided: str = ""
    """Why it is undecided: `interrupted`, `budget`, `not-told-apart`, `not-confirmed`, `too-noisy`, `busy`,
    `invalid`, `failed`;
    empty otherwise. `changed` is only said by who reads it: it is not what was measured."""
    confirmation: Annotated[str, Field(pattern=r"^(confirm(-longer)?)?$")] = ""
    """Folder of the confirmation behind the answer (`confirm-longer`: the same arms with more blocks)."""
    target: ModelIdentity | None = None
    draft: ModelIdentity | None = None
    engine: EngineIdentity | None = None
    host: Host | None = None
    baseline: Arm | None = None
    command: tuple[str, ...] = ()
    """The command to paste; empty if the engine has none."""
    programs: tuple[str, ...] = ()
    """Other programs to print the command for."""
    by_kind: tuple[AdviceOfKind, ...] = ()
    """Answers per prompt type, if they differ."""
    arms: tuple[Arm, ...] = ()
    """All candidates (named in `outcomes`) and the baseline."""
    outcomes: tuple[ArmOutcome, ...] = ()
    """Outcome of every candidate, the advised one first."""
    settings: tuple[TriedSettings, ...] = ()
    """Engine settings that were tried (`wide`)."""
    left_out: tuple[LeftOutDraft, ...] = ()
    made: AnswersMade | None = None
    """Type and amount of the outputs behind the answer."""
    stages: tuple[StageRun, ...] = ()
    seconds: Seconds = 0.0
    """Total time."""
    prompts_given: int = 0
    """Number of prompts available; 0 if unknown."""
    prompts_used: int = 0
    """Number of these that were used."""
    held_out: bool = True
    """Whether it was confirmed on prompts not used for choosing."""
    again_of: str | None = None
    """Certificate of the confirmation that this advice repeats."""
    again: Again | None = None
    """Result of repeating it."""
    uncertified: Doubt = ""
    """Why a finished advice is not certified; set when it is read."""

    @property
    def best(self) -> str | None:
        """Id of the arm that the speedup belongs to."""
        return self.arm.id if self.arm is not None else self.speedup_of

    def stage_of(self, basis: str) -> StageRun | None:
        """The last stage that predicted, searched or confirmed."""
        named = self.confirmation if basis == "confirmed" else ""
        made = {"predicted": "screen", "raced": "race", "confirmed": "confirm"}[basis]
        return next((it for it in reversed(self.stages) if it.stage == made and named in ("", it.folder)), None)

    @property
    def disturbed(self) -> Disturbance | None:
        """The most disturbed block."""
        found = [it.disturbed for it in self.stages if it.disturbed is not None]
        return max(found, key=lambda it: it.mean_percent, default=None)

    @property
    def served(self) -> Arm | None:
        """The arm of the command to paste: no speculation while undecided."""
        return self.baseline if self.arm is None or self.decision == "undecided" else self.arm


GRID_NAME = "grid.yaml"
"""The experiment whose arms are the grid, beside the advice."""
_MAX_BYTES = 16 * 2**20
"""A grid of some hundred arms takes less than one."""


def read_advice(folder: Path) -> Advice:
    """The advice of a folder. Raises `UsageError` that names the file and what is wrong in it."""
    path = folder / ADVICE_NAME
    return read_record(
        Advice, path, what="record of an advice", made_by="specmeter advise", max_bytes=_MAX_BYTES, inside=True
    )


def write_advice(advice: Advice, folder: Path) -> None:
    """Write it into its folder, in place of an earlier one. Raises `UsageError` when that cannot be done."""
    write_record(advice, folder / ADVICE_NAME, what="record of an advice", inside=True)

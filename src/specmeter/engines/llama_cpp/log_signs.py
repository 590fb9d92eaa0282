"""Signs in a log of llama.cpp that a measurement went wrong, for audits of foreign logs and checks of our own sessions.

How llama.cpp reports a failed forward pass, over its generations:

- `decode: failed to initialize batch` (or another error of that function), then from `llama_decode` itself
  `failed to decode, ret = -1`: one failure, two lines. Builds that decode through `llama_process` print the first only.
- A draft that failed adds a third line, `llama_decode returned -1` or `llama_process[2] returned -1`. It says whose
  failure the one before it was; without it target and draft look the same.
- A return value of 1 (no room in the KV cache) is logged by the caller only.

Nothing in here raises for what a log contains, and nothing that is kept grows with the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from specmeter.engines.llama_cpp.log_formats import BUILD, SLOT_AND_TASK, STEP, loaded_model
from specmeter.engines.log_lines import sample
from specmeter.messages import Message

MAX_SAMPLES = 3
_MAX_KEPT = 50
"""Buffers kept."""


@dataclass(frozen=True)
class Sign:
    """How often a log says something, and its first lines that do."""

    count: int = 0
    samples: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.count > 0


@dataclass(frozen=True)
class Checkpoints(Sign):
    """Checkpoints of recurrent state that speculation saved or restored."""

    size_bytes: int = 0
    """Sum of the sizes that were printed."""
    sized: int = 0
    """How many of them printed their size."""


@dataclass(frozen=True)
class RpcBuffer:
    """Weights that went to a remote machine."""

    device: str
    """As printed: `RPC0[192.168.0.103:50052]`."""
    size_bytes: int
    model: int
    """Which model of the process it belongs to, in order of loading: 0 is the target."""


@dataclass(frozen=True)
class LogSigns:
    """What a log says about the validity of what was measured, by the threats that `docs` and checks name."""

    lines: int = 0
    """Lines read."""
    failed_decodes: Sign = Sign()
    """Forward passes that failed, of any model: one failure counts once however many lines it wrote."""
    failed_decodes_of_draft: int = 0
    """How many of them the log ascribes to the draft."""
    position_refused: Sign = Sign()
    """Batches refused because their positions lie before what the KV cache holds (M-RoPE and others)."""
    draft_failures: Sign = Sign()
    """Draft forwards reported as failed by the drafter itself (`llama_process[i] returned -1`)."""
    speculation_refused: Sign = Sign()
    """Speculation could not be initialised: the engine continues without it, or ends."""
    vocabulary_mismatch: Sign = Sign()
    """Target and draft have different vocabularies (`not compatible`, `must match target`)."""
    tokens_translated: Sign = Sign()
    """Draft tokens are translated by way of text."""
    synthetic: Sign = Sign()
    """Acceptance is simulated at random."""
    checkpoints_created: Checkpoints = Checkpoints()
    checkpoints_restored: Checkpoints = Checkpoints()
    longest_replay: int = 0
    """Most restores in a row at one position of one request; above 1 it may be a livelock."""
    longest_replay_at: str = ""
    """Slot, task and position of it, as far as they are printed."""
    connect_failed: Sign = Sign()
    """A remote machine could not be reached."""
    context_shifted: Sign = Sign()
    """A slot's context was full, and its oldest tokens were dropped."""
    memory_short: Sign = Sign()
    """No room was left in the KV cache: a forward was cut into smaller ones, or what a slot kept was thrown away."""
    rpc_buffers: tuple[RpcBuffer, ...] = ()
    """Weights on remote machines, per model."""
    build: str = ""
    """Build of the engine."""

    @property
    def notes(self) -> tuple[Message, ...]:
        """Signs that a reader of the numbers should know; failed forwards are not among them."""
        told = (
            (self.speculation_refused, "read.speculation_refused"),
            (self.vocabulary_mismatch, "read.vocabulary_mismatch"),
            (self.tokens_translated, "read.tokens_translated"),
            (self.synthetic, "read.synthetic"),
            (self.connect_failed, "read.connect_failed"),
        )
        notes = [Message(code, line=sign.samples[0]) for sign, code in told if sign]
        buffers = self.rpc_buffers[:MAX_SAMPLES]
        notes += [Message("read.weights_elsewhere", model=it.model + 1, device=it.device) for it in buffers]
        if self.checkpoints_restored:
            notes.append(Message("read.restored", count=self.checkpoints_restored.count))
        if self.longest_replay > 1:
            notes.append(Message("read.restored_in_a_row", times=self.longest_replay, at=self.longest_replay_at))
        return tuple(notes)

    @property
    def failed_decodes_of_target(self) -> int:
        """Failures that the log does not ascribe to the draft; logs of old builds cannot tell the two apart."""
        return max(0, self.failed_decodes.count - self.failed_decodes_of_draft)


def _may_be_a_sign(line: str) -> bool:
    """Whether a line has any of the texts of which each sign has at least one; most lines of a log have none.

    One expression that looks for all of them takes three times as long.
    """
    return (
        "ailed" in line or "returned " in line or "decode: " in line or " batch" in line or "checkpoint" in line
        or "rror" in line or "upport" in line or "build" in line or "disabled" in line or "model buffer" in line
        or "meta data" in line or "required that" in line or "compatible" in line or "match" in line
        or "translated" in line or "ynthetic " in line or "on refused" in line or "content differs" in line
        or "context shift" in line or "purging slot" in line or "retrying with" in line
    )  # fmt: skip


_DECODE_ERROR = re.compile(
    r"\bdecode: (?:failed to initialize batch|n_tokens == 0|could not reserve|unexpected memory|compute failed"
    r"|embd row|pooled embedding|backend sampling supports|invalid token|failed to find)"
    r"|\bprocess_ubatch: failed to|\bfailed to compute graph, compute status"
)
_DECODE_FAILED = re.compile(r"(?<!draft )\bfailed to (?:decode|eval), ret = -?\d")
_CALLER_FAILED = re.compile(
    r"(?:Invalid input batch|Compute error)\. (?:off|i) = |failed to decode the batch: .{0,200} ret = -?\d"
)
_NOT_TOLD, _TOLD_INSIDE, _TOLD, _TOLD_BY_CALLER = range(4)
_FAILED = ((_TOLD_INSIDE, _DECODE_ERROR), (_TOLD, _DECODE_FAILED), (_TOLD_BY_CALLER, _CALLER_FAILED))
"""One failure is logged in this order, in up to three lines."""
_DRAFT_FAILED = re.compile(
    r"\bllama_(?:process|decode)(?:\[\d+\])? returned (-?\d+)|failed to decode draft batch, ret = (-?\d+)"
    r"|llama_process\(ctx_dft\) failed rc=(-?\d+)"
)
_SIMPLE = {
    "position_refused": re.compile(r"it is required that the (?:position satisfies|sequence positions remain)"),
    "speculation_refused": re.compile(
        r"failed to initialize speculative|failed to create (?:speculative|draft|MTP) |failed to load draft model"
        r"|speculative decoding not supported"
        r"|failed to process speculative|synthetic acceptance requires|draft model is not compatible"
        r"|speculative decoding (?:is |will be )?disabled|context does not support speculative"
    ),
    "vocabulary_mismatch": re.compile(
        r"vocabs? (?:are|is) not compatible|not compatible with the target|model vocab (?:type )?must"
        r"|tokens must match target|must closely match target|token \d+ content differs|vocab size \d+ does not match"
    ),
    "tokens_translated": re.compile(r"tokens will be translated"),
    "synthetic": re.compile(r"synthetic (?:speculative )?acceptance(?! requires)"),
    "connect_failed": re.compile(r"[Ff]ailed to connect|[Cc]onnection refused|failed to initialize RPC"),
    "context_shifted": re.compile(r"slot context shift, n_keep = \d"),
    "memory_short": re.compile(r"free space in the KV cache, retrying with smaller|\bpurging slot \d+ with \d+ tokens"),
}
"""Signs of one line each, by the names of `LogSigns`."""
_CREATED = re.compile(r"(?:creat|sav)(?:ed|ing) speculative checkpoint")
_RESTORED = re.compile(r"restor(?:ed|ing) speculative checkpoint|partial acceptance: \d+ < \d+, restoring")
_SIZE = re.compile(r"\b(size|draft) = (\d{1,15}(?:\.\d{1,9})?)( MiB)?")
_AT = re.compile(r"pos_max = (-?\d{1,12})")
_RPC = re.compile(r"(RPC\d*\[[^\]\s]{1,100}\]) +model buffer size *= *(\d{1,12}(?:\.\d{1,4})?) MiB")
_BUILD_JSON = re.compile(r'"build":(\d{1,9}),"commit":"([^"]{1,60})"')


@dataclass
class _SignTally:
    """A sign under construction."""

    count: int = 0
    samples: list[str] = field(default_factory=list[str])

    def add(self, line: str) -> None:
        self.count += 1
        if len(self.samples) < MAX_SAMPLES:
            self.samples.append(sample(line))

    def done(self) -> Sign:
        return Sign(self.count, tuple(self.samples))


@dataclass
class _CheckpointTally(_SignTally):
    size_bytes: int = 0
    sized: int = 0

    def add(self, line: str) -> None:
        super().add(line)
        if sizes := _SIZE.findall(line):
            self.sized += 1
            self.size_bytes += sum(round(float(value) * (1024 * 1024 if mib else 1)) for _, value, mib in sizes)

    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.count, tuple(self.samples), self.size_bytes, self.sized)


class SignReader:
    """Collects the signs of a log as its lines are fed; so that a reader of a log for other things can use it too."""

    def __init__(self) -> None:
        self._lines = 0
        self._decodes = _SignTally()
        self._told = _NOT_TOLD
        self._unclaimed = False
        self._of_draft = 0
        self._tallies = {name: _SignTally() for name in _SIMPLE}
        self._draft = _SignTally()
        self._created = _CheckpointTally()
        self._restored = _CheckpointTally()
        self._restored_steps = _SignTally()
        self._replays: dict[tuple[str, str], tuple[str, int]] = {}
        self._longest: tuple[int, str] = (0, "")
        self._rpc: list[RpcBuffer] = []
        self._build = ""
        self._model, self._models = "", 0

    def feed(self, line: str) -> None:
        """Take the next line."""
        self._lines += 1
        if not _may_be_a_sign(line) or self._failure(line):
            return
        found = [name for name, pattern in _SIMPLE.items() if pattern.search(line)]
        for name in found:
            self._tallies[name].add(line)
        if not found and not ("checkpoint" in line and self._checkpoint(line)):
            self._fact(line)

    def _failure(self, line: str) -> bool:
        """Failed forwards: a line that only repeats the failure before it is not counted again."""
        if found := _DRAFT_FAILED.search(line):
            self._draft.add(line)
            if self._unclaimed and "1" not in found.groups():
                self._of_draft += 1
            self._unclaimed, self._told = False, _NOT_TOLD
            return True
        for rank, pattern in _FAILED:
            if pattern.search(line):
                if not _NOT_TOLD < self._told < rank:
                    self._decodes.add(line)
                    self._unclaimed = True
                self._told = _NOT_TOLD if rank == _TOLD_BY_CALLER else rank
                return True
        return False

    def _checkpoint(self, line: str) -> bool:
        if _CREATED.search(line):
            self._created.add(line)
        elif _RESTORED.search(line):
            self._restored.add(line)
            at = _AT.search(line)
            self._replayed(line, at.group(1) if at else "?")
        elif (step := STEP.search(line)) and step.group(3):
            self._restored_steps.add(line)
        else:
            return False
        return True

    def _replayed(self, line: str, position: str) -> None:
        found = SLOT_AND_TASK.search(line)
        key = (found.group(1), found.group(2)) if found else ("", "")
        last, count = self._replays.pop(key, ("", 0))
        count = count + 1 if last == position and position != "?" else 1
        self._replays[key] = (position, count)
        if len(self._replays) > 64:
            del self._replays[next(iter(self._replays))]
        if count > self._longest[0]:
            where = f"slot {key[0]}, task {key[1]}, " if found else ""
            self._longest = (count, f"{where}position {position}")

    def _fact(self, line: str) -> None:
        if found := _RPC.search(line):
            if len(self._rpc) < _MAX_KEPT:
                size = round(float(found.group(2)) * 1024 * 1024)
                self._rpc.append(RpcBuffer(sample(found.group(1)), size, max(0, self._models - 1)))
        elif model := loaded_model(line):
            self._models += model != self._model
            self._model = model
        elif not self._build and (found := BUILD.search(line)):
            self._build = sample((found.group(1) or found.group(2)).strip())
        elif not self._build and (found := _BUILD_JSON.search(line)):
            self._build = f"{found.group(1)} ({sample(found.group(2))})"

    @property
    def failed_decodes(self) -> int:
        """Forward passes that failed so far."""
        return self._decodes.count

    @property
    def failed_decodes_of_draft(self) -> int:
        """Those of them that the log ascribes to the draft."""
        return self._of_draft

    @property
    def draft_failures(self) -> int:
        """Failures that the drafter itself has reported so far."""
        return self._draft.count

    def signs(self) -> LogSigns:
        """Everything seen so far."""
        tallies = {name: tally.done() for name, tally in self._tallies.items()}
        restored = self._restored.checkpoints()
        if self._restored_steps.count > restored.count:
            steps = self._restored_steps.done()
            restored = replace(restored, count=steps.count, samples=steps.samples)
        return LogSigns(
            lines=self._lines,
            failed_decodes=self._decodes.done(),
            failed_decodes_of_draft=self._of_draft,
            draft_failures=self._draft.done(),
            checkpoints_created=self._created.checkpoints(),
            checkpoints_restored=restored,
            longest_replay=self._longest[0],
            longest_replay_at=self._longest[1],
            rpc_buffers=tuple(self._rpc),
            build=self._build,
            **tallies,
        )


def scan(lines: Iterable[str]) -> LogSigns:
    """Every sign in these lines, in one pass and bounded memory."""
    reader = SignReader()
    for line in lines:
        reader.feed(line)
    return reader.signs()

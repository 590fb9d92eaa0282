"""What a draft on another machine costs, from a study's rows: rates beside the local draft, ms and bytes per token."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter.numbers.estimates import bare, student_geometric, student_mean
from specmeter.record import Estimate
from specmeter_studies.latency import LENGTH_BYTES, output_bytes
from specmeter_studies.study import StudyCell

if TYPE_CHECKING:
    from specmeter_studies.study import ArmResult, DraftPlace, PromptResult, StudyData


WITHDRAWN = "first runs, withdrawn"
"""Suite of the document's runs that it does not stand by."""
_WIDE = 10
"""An interval that reaches this many times the point says nothing."""
GIGABIT = 1e9 / 8
"""Bytes per second of the document's network."""


@dataclass(frozen=True)
class Backend:
    """A place where the draft of one arm was to run."""

    line: ArmResult
    """Over all prompts."""
    place: DraftPlace
    local: Backend | None
    """The same draft on this machine; None for that one itself."""
    rows: tuple[PromptResult, ...]

    @property
    def name(self) -> str:
        """As tables and sentences call it: the arm's own name."""
        return self.line.config.rpartition("/")[2]

    @property
    def remote(self) -> bool:
        """Whether the draft was to run on another machine."""
        return bool(self.place.machine)

    @property
    def believable(self) -> bool:
        """Whether nothing refutes the arm or the local one that it is compared with."""
        return self.line.stands and (self.local is None or self.local.line.stands)

    @property
    def proven(self) -> bool:
        """Whether buffers and traffic both say that the draft ran on the other machine."""
        place = self.place
        return (
            self.line.stands
            and any(device.startswith("RPC") for device in place.held_by)
            and bool(place.received_bytes)
        )

    @property
    def to_local(self) -> Estimate | None:
        """Decode rate over that of the local draft; invalid rows or not. Over blocks where there are several."""
        if self.local is None:
            return None
        if (logs := _log_ratios(self.rows, self.local.rows)) is not None:
            mean = f"geometric mean of {len(logs)} block ratios"
            return student_geometric(
                logs, "x", f"{mean}; Student's t over blocks", alone=f"{mean}; no interval, no variation"
            )
        mine, theirs = self.line.decode_rate, self.local.line.decode_rate
        if mine is None or theirs is None:
            return None
        return bare(mine.point / theirs.point, "x", "ratio of two means; no interval")

    @property
    def believed_to_local(self) -> Estimate | None:
        """The same where nothing refutes either of the two."""
        return self.to_local if self.believable else None

    @property
    def beside(self) -> StudyCell:
        """The same in a table."""
        if self.local is None:
            return StudyCell(text=Message("cell.baseline"))
        return StudyCell(value=self.to_local, text="-", struck=not self.believable)

    @property
    def reduction(self) -> Message:
        """What is lost, in a sentence."""
        ratio = self.to_local
        if ratio is None:
            return Message("cross-device.less.unknown", name=self.name)
        if ratio.low is None or ratio.high is None:
            return Message("cross-device.less.single", name=self.name, less=1 - ratio.point)
        if ratio.high > _WIDE * ratio.point:
            return Message("cross-device.less.wide", name=self.name, less=1 - ratio.point)
        low, high = 1 - ratio.high, 1 - ratio.low
        return Message("cross-device.less", name=self.name, less=1 - ratio.point, low=low, high=high)

    @property
    def draft_rate(self) -> Estimate | None:
        """Drafted tokens per second of drafting: from a time, so its ends change places."""
        ms = self.draft_ms
        if ms is None or ms.point <= 0:
            return None
        low, high = ((None if end is None or end <= 0 else 1000 / end) for end in (ms.high, ms.low))
        ends = {"low": low, "high": high} if low is not None and high is not None else {"low": None, "high": None}
        return ms.model_copy(update={"point": 1000 / ms.point, "unit": "tok/s", **ends})

    @property
    def draft_ms(self) -> Estimate | None:
        """Drafting time per drafted token in ms."""
        return _over_blocks(self.place.block_ms, "ms")

    @property
    def overhead_ms(self) -> Estimate | None:
        """What a drafted token takes longer there, in ms: than the draft on its own on that machine where that is known
        (as in the document), else than drafting here, block by block."""
        if (alone_rate := self.place.alone_rate) is not None:
            return _over_blocks([value - 1000 / alone_rate for value in self.place.block_ms], "ms")
        return _over_blocks(list(self.beyond_local.values()), "ms")

    @property
    def beyond_local(self) -> dict[tuple[int, int], float]:
        """(invocation, block) -> what a drafted token takes longer than here, in ms; where both drafted."""
        theirs = self.local.place.by_block if self.local is not None else {}
        return {block: ms - theirs[block] for block, ms in self.place.by_block.items() if block in theirs}

    @property
    def bytes_per_token(self) -> tuple[float, float] | None:
        """(to the other machine, back) per drafted token."""
        place = self.place
        if place.sent_bytes is None or place.received_bytes is None or not place.drafted:
            return None
        return place.sent_bytes / place.drafted, place.received_bytes / place.drafted

    @property
    def out_cell(self) -> StudyCell:
        """kB to the other machine per drafted token."""
        return self._crossed(0)

    @property
    def back_cell(self) -> StudyCell:
        """kB back per drafted token."""
        return self._crossed(1)

    def _crossed(self, way: int) -> StudyCell:
        crossed = self.bytes_per_token
        if crossed is None:
            return StudyCell(text=Message("cross-device.not_counted") if self.remote else "-")
        return StudyCell(value=crossed[way] / 1e3, digits=1)

    @property
    def other_answers(self) -> float | None:
        """At most this many answers per drafted token beside the outputs of the draft's forwards.

        Each output is 4 bytes per token of the vocabulary and the 8 bytes of its length; what came back beyond that
        could be other answers, of 8 bytes at least.
        """
        place = self.place
        if place.received_bytes is None or place.vocabulary is None or not place.drafted:
            return None
        outputs = place.forwards * output_bytes(place.vocabulary)
        return max(0.0, place.received_bytes - outputs) / LENGTH_BYTES / place.drafted

    @property
    def transfer_ms(self) -> float | None:
        """Least time that the bytes of a drafted token take on the document's network of 1 Gbit/s, in ms."""
        crossed = self.bytes_per_token
        return None if crossed is None else 1000 * sum(crossed) / GIGABIT

    def same_acceptance(self) -> tuple[int, int] | None:
        """(rows whose acceptance is that of the local draft, rows compared); None for the local one."""
        return None if self.local is None else shared_acceptance(self.rows, self.local.rows)


def backends(data: StudyData, *, withdrawn: bool = False) -> tuple[Backend, ...]:
    """The places of the study's draft, the local one first; `withdrawn`: in the runs that the document withdrew."""
    lines = [line for line in data.whole if line.speculates and (line.suite == WITHDRAWN) == withdrawn]
    places = {place.config: place for place in data.places}
    rows: dict[str, list[PromptResult]] = defaultdict(list)
    for row in data.results:
        rows[row.config].append(row)
    known = [line for line in lines if line.config in places]

    def made(line: ArmResult, local: Backend | None) -> Backend:
        return Backend(line, places[line.config], local, tuple(rows[line.config]))

    local = next((made(line, None) for line in known if not places[line.config].machine), None)
    remote = [made(line, local) for line in known if places[line.config].machine]
    return (*((local,) if local else ()), *remote)


def shared_acceptance(one: Iterable[PromptResult], other: Iterable[PromptResult]) -> tuple[int, int]:
    """(rows of the same prompt and repeat with the same acceptance, rows of the same prompt and repeat)."""
    theirs = {(row.prompt, row.repeat): row.acceptance for row in other if row.acceptance is not None}
    both = [
        (row.acceptance, theirs[row.prompt, row.repeat])
        for row in one
        if row.acceptance is not None and (row.prompt, row.repeat) in theirs
    ]
    return sum(math.isclose(mine, its, abs_tol=1e-9) for mine, its in both), len(both)


def _log_ratios(rows: Sequence[PromptResult], local: Sequence[PromptResult]) -> list[float] | None:
    """Mean log ratio over the prompts of each repeat; None where there are not two of them."""
    theirs = {(row.prompt, row.repeat): row.decode_rate for row in local}
    found: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        base = theirs.get((row.prompt, row.repeat))
        if row.decode_rate and base:
            found[row.repeat].append(math.log(row.decode_rate / base))
    return [sum(logs) / len(logs) for _, logs in sorted(found.items())] if len(found) > 1 else None


def _over_blocks(values: Sequence[float], unit: str) -> Estimate | None:
    if not values:
        return None
    method = f"mean of {len(values)} blocks; Student's t over blocks"
    return student_mean(values, unit, method, alone="one value, or blocks all alike; no interval")

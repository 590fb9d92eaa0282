"""Where the drafts of a run ran, what drafting took there, and what crossed the network."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specmeter.engines.traffic import RECEIVED, SENT
from specmeter.record import network_of
from specmeter_studies.study import DraftPlace

if TYPE_CHECKING:
    from specmeter.record import Arm, Reply
    from specmeter.store import RunStore


_METHOD = "draft-simple"
_DECODES = "n_decode_total"
_LOOPBACK = re.compile(r"\[127\.0\.0\.1:\d{1,5}\]")


def draft_places(store: RunStore) -> Iterator[DraftPlace]:
    """One per arm that drafts with a model of its own and answered something."""
    arms = {arm.id: arm for arm in store.arms() if arm.methods == (_METHOD,) and not arm.synthetic_rates}
    tallies = {arm_id: _Tally() for arm_id in arms}
    for session in store.sessions():
        if session.arm_id in arms:
            tally = tallies[session.arm_id]
            tally.sessions += 1
            tally.held_by.update(use.device for use in session.draft_devices if use.model_buffer_bytes)
            vocabulary = session.resolved.get("draft_n_vocab")
            tally.vocabulary = vocabulary if isinstance(vocabulary, int) else tally.vocabulary
    for request in store.requests():
        if request.arm_id in arms and request.reply is not None:
            tallies[request.arm_id].add((request.invocation, request.block), request.reply)
    for arm_id, arm in arms.items():
        if tallies[arm_id].requests:
            yield tallies[arm_id].place(arm)


@dataclass
class _Tally:
    requests: int = 0
    sessions: int = 0
    held_by: set[str] = field(default_factory=set[str])
    vocabulary: int | None = None
    ms: dict[tuple[int, int], float] = field(default_factory=lambda: defaultdict(float))
    """(invocation, block) -> time spent drafting."""
    tokens: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    drafted: int = 0
    forwards: int = 0
    sent: float | None = None
    received: float | None = None

    def add(self, block: tuple[int, int], reply: Reply) -> None:
        """One more reply."""
        self.requests += 1
        drafting = next((it for it in reply.drafting if it.method == _METHOD), None)
        if drafting is None:
            return
        self.ms[block] += drafting.generate_ms
        self.tokens[block] += reply.timings.draft_n or 0
        if SENT in reply.counters and RECEIVED in reply.counters:
            self.sent = (self.sent or 0.0) + reply.counters[SENT]
            self.received = (self.received or 0.0) + reply.counters[RECEIVED]
            self.drafted += reply.timings.draft_n or 0
            # After each forward of the target the draft catches up with what that one read.
            self.forwards += (reply.timings.draft_n or 0) + round(reply.counters.get(_DECODES, drafting.calls + 1))

    def place(self, arm: Arm) -> DraftPlace:
        """What the arm's replies and sessions say."""
        blocks = tuple(block for block, count in sorted(self.tokens.items()) if count)
        return DraftPlace(
            config=arm.id,
            machine=", ".join(arm.engine.rpc),
            held_by=tuple(sorted({_without_port(device, arm) for device in self.held_by})),
            block_ms=tuple(self.ms[block] / self.tokens[block] for block in blocks),
            blocks=blocks,
            drafted=self.drafted,
            forwards=max(0, self.forwards - self.sessions),
            sent_bytes=self.sent,
            received_bytes=self.received,
            vocabulary=self.vocabulary,
        )


def _without_port(device: str, arm: Arm) -> str:
    """A device behind a relay by the relay's name: each session has another port."""
    relays = [address for address in arm.engine.rpc if network_of(address) is not None]
    return _LOOPBACK.sub(f"[{relays[0]}]", device) if len(relays) == 1 else device

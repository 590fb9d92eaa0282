"""A request as checks see it: its numbers, and a summary of its bulk, read once."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specmeter.engines.traffic import RECEIVED, SENT
from specmeter.probe.replay import REPLAYED, Round
from specmeter.record import (
    UNKNOWN_TOKEN,
    Arm,
    Timings,
)
from specmeter.store import RequestKey, RequestRow
from specmeter.store.integrity import output_digest
from specmeter.store.rows import REQUEST_COLUMNS

if TYPE_CHECKING:
    from specmeter.store import RunReader

NGRAM = 8
"""Length of the runs of tokens whose repetition is counted."""
BUCKETS = 256
"""Into this many are tokens hashed where their counts are kept."""


class Arrivals(NamedTuple):
    """When tokens arrived at the client, in short; times from the start of the request."""

    tokens: int
    first_ms: float
    last_ms: float
    in_order: bool


class Steps(NamedTuple):
    """What the steps of a request add up to."""

    number: int
    drafted: int
    accepted: int
    first_ms: float
    """When the first one ended, by the engine's clock, from the start of the request."""
    last_ms: float
    """When the last one ended."""

    @property
    def span_ms(self) -> float | None:
        """From the end of the first to the end of the last; None for fewer than two."""
        return self.last_ms - self.first_ms if self.number > 1 else None


@dataclass(slots=True)
class RequestData:
    """One request that counts (no attempt that a retry replaced): its numbers, and what its bulk says in short.

    It is never changed, and not frozen only because creating it would take three times as long.
    """

    row: RequestRow
    output: bytes = b""
    """Digest of the generated token ids: equal for equal texts; empty where nothing was generated."""
    tokens: int = 0
    """Token ids stored."""
    decodes: float | None = None
    """Target forwards that the engine counted during the request, the prompt's among them; None: it does not count."""
    remote_bytes: float | None = None
    """Bytes exchanged with remote machines during the request; None: not counted."""
    printed_rate: float | None = None
    """Decode rate as the engine itself printed it, tok/s."""
    answered: bool = True
    """There is text beside the reasoning."""
    reasoned: bool = False
    """There is reasoning."""
    calls: tuple[tuple[str, str], ...] = ()
    """Functions that were called: name, and arguments as sorted JSON; empty arguments if they are no JSON."""
    repeated: float = 0.0
    """Share of the runs of 8 generated tokens that occurred before in the same text."""
    restores: int = 0
    """Checkpoints restored."""
    restores_at_one_place: int = 0
    """The most restores in a row without a token in between."""
    partial: int = 0
    """Steps that rejected drafted tokens, without a restore."""
    retold: bool = False
    """An earlier request has the same tokens and another text; only greedy requests are compared."""
    otherwise: str = ""
    """The first count or time that the engine's own answer has otherwise than the record; empty where none has."""
    packed_steps: bytes = b""
    """Drafted and accepted tokens of each recorded step in turn, as unsigned 16-bit numbers; see `rounds`."""
    known: bool = True
    """The id of every generated token was sent."""
    histogram: bytes = b""
    """How many tokens fall into each of the `BUCKETS`, 255 at most; only of sampled texts."""
    steps: Steps | None = None
    """What its steps add up to; None where none is on record."""
    arrivals: Arrivals | None = None
    """What its arrival times say; None where none is on record."""

    @property
    def key(self) -> RequestKey:
        return self.row.key

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The recorded steps."""
        counts = array("H", self.packed_steps)
        return tuple(map(Round, counts[::2], counts[1::2]))


def read_requests(
    run: RunReader, arms: Mapping[str, Arm], looked_up_texts: dict[bytes, tuple[int, ...]], *, count_tokens: bool
) -> Iterator[RequestData]:
    """The requests; the texts of those that look n-grams up are put into `looked_up_texts`."""
    repeated: dict[bytes, float] = {}
    """Texts repeat from block to block: the repetition within a text is counted once."""
    targets = {} if count_tokens else {arm.id: arm.target for arm in arms.values()}
    texts: dict[tuple[str, bytes], str] = {}
    """By target, since two may not have the same vocabulary."""
    looked_up = {arm.id for arm in arms.values() if "ngram-simple" in arm.methods}
    drafting = {arm.id for arm in arms.values() if arm.speculates and REPLAYED.issuperset(arm.methods)}
    query = f"SELECT {REQUEST_COLUMNS}, zlib_json FROM request LEFT JOIN reply ON request_id = id"
    for *values, bulk in run.raw(f"{query} WHERE superseded = 0 ORDER BY id"):
        row = RequestRow._make(values)
        if bulk is None:
            yield RequestData(row)
            continue
        reply = run.reply(bulk, row)
        request = _read(row, reply, repeated)
        if request.output and request.known and row.arm_id in targets:
            text: str = reply.get("text", "")
            request.retold = _is_other(texts.setdefault((targets[row.arm_id], request.output), text), text)
        if row.arm_id in drafting:
            request.packed_steps = _pack(reply.get("steps", ()))
        if row.arm_id in looked_up and request.output not in looked_up_texts:
            looked_up_texts[request.output] = tuple(reply["token_ids"])
        if count_tokens:
            request.histogram = token_histogram(reply.get("token_ids", []))
        yield request


def _read(row: RequestRow, bulk: dict[str, Any], repeated: dict[bytes, float]) -> RequestData:
    ids: list[int] = bulk.get("token_ids", [])
    output = output_digest(ids)
    if output not in repeated:
        repeated[output] = repetition(ids)
    steps: list[dict[str, Any]] = bulk.get("steps", [])
    arrivals: list[float] = bulk.get("arrival_ms", [])
    added_up, restores, at_one_place, partial = _added_up(steps)
    said: dict[str, Any] = bulk.get("raw_timings", {})
    rate = said.get("predicted_per_second")
    counters: dict[str, float] = bulk.get("counters", {})
    return RequestData(
        row=row,
        output=output,
        tokens=len(ids),
        known=UNKNOWN_TOKEN not in ids,
        decodes=counters.get("n_decode_total"),
        remote_bytes=counters[SENT] + counters[RECEIVED] if SENT in counters and RECEIVED in counters else None,
        printed_rate=rate if isinstance(rate, int | float) else None,
        answered=bool(bulk.get("text", "").strip()),
        reasoned=bool(bulk.get("reasoning")),
        calls=_calls(bulk.get("tool_calls", ())),
        repeated=repeated[output],
        restores=restores,
        restores_at_one_place=at_one_place,
        partial=partial,
        steps=added_up,
        arrivals=_arrivals(arrivals) if arrivals else None,
        otherwise="" if _TIMES.isdisjoint(said) else _first_otherwise(row, said),
    )


def _calls(calls: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    return tuple((it["name"], _sorted(it["arguments"])) for it in calls)


def _sorted(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return ""


_CUT_OFF = 8
"""Characters at the end of a text that may be missing: a last character whose tokens are not complete."""


def _is_other(first: str, text: str) -> bool:
    if first == text:
        return False
    length = min(len(first), len(text))
    return first[:length] != text[:length] or abs(len(first) - len(text)) > _CUT_OFF


_TIMES = frozenset(Timings.model_fields)
_SAID = tuple((name, RequestRow._fields.index(name)) for name in Timings.model_fields)
"""Counts and times that engines print as they are stored, and their places in a row."""
_LEFT_OUT = {"cache_n": 0, "draft_n": 0, "draft_n_accepted": 0}
"""What it means when an engine leaves one of these out."""


def _first_otherwise(row: RequestRow, said: Mapping[str, Any]) -> str:
    for name, at in _SAID:
        value = said.get(name)
        if value != row[at] and (value is not None or row[at] != _LEFT_OUT.get(name, row[at])):
            return name
    return ""


def _arrivals(times: list[float]) -> Arrivals:
    return Arrivals(len(times), times[0], times[-1], times == sorted(times))


def repetition(token_ids: Sequence[int]) -> float:
    """Share of the runs of 8 tokens that are no first occurrence; 0 for texts shorter than 16 tokens."""
    if len(token_ids) < 2 * NGRAM:
        return 0.0
    runs = Counter(tuple(token_ids[at : at + NGRAM]) for at in range(len(token_ids) - NGRAM + 1))
    return 1 - len(runs) / runs.total()


def token_histogram(token_ids: Sequence[int]) -> bytes:
    """Counts of tokens by bucket, one byte each; empty for no tokens."""
    if not token_ids:
        return b""
    # Fibonacci hashing: neighbouring ids, which are often alike, fall far apart.
    hashed = np.asarray(token_ids, dtype=np.int64).astype(np.uint32) * np.uint32(2654435761)
    counts = np.bincount(hashed >> np.uint32(24), minlength=BUCKETS)
    return np.minimum(counts, 255).astype(np.uint8).tobytes()


def _added_up(steps: Sequence[Mapping[str, Any]]) -> tuple[Steps | None, int, int, int]:
    """Sums over steps, restored checkpoints, the most of them in a row, and steps that rejected without one."""
    drafted = accepted = restores = most = row = partial = 0
    for step in steps:
        drafted += step["drafted"]
        accepted += step["accepted"]
        if step.get("restored"):
            restores, row = restores + 1, row + 1
            most = max(most, row)
        else:
            row = 0
            partial += step["accepted"] < step["drafted"]
    both = Steps(len(steps), drafted, accepted, steps[0]["at_ms"], steps[-1]["at_ms"]) if steps else None
    return both, restores, most, partial


_MAX_U16 = 65_535
"""The most that 16 bits hold."""


def _pack(steps: Sequence[Mapping[str, Any]]) -> bytes:
    """Drafted and accepted tokens of each step; what no draft can be long stands as the most that fits."""
    counts: list[int] = [count for step in steps for count in (step["drafted"], step["accepted"])]
    try:
        return array("H", counts).tobytes()
    except OverflowError:
        return array("H", (min(count, _MAX_U16) for count in counts)).tobytes()

"""The requests of a cell under load as columns of times, in ms from the moment the cell began.

The clock is that of the engine. Tokens keep their arrival times, 8 bytes each, for as long as one cell is looked at.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.numbers.stats import Floats, Ints

    Bools = NDArray[np.bool_]
    Singles = NDArray[np.float32]


class Window(NamedTuple):
    """(start, end] in ms from the beginning of the cell."""

    start: float
    end: float

    @property
    def ms(self) -> float:
        """Its length."""
        return self.end - self.start


OPEN = -1
"""The client of a request that none sent: those of an open loop."""
_UNKNOWN = float("nan")


class Sent(NamedTuple):
    """A request as it was sent and answered, as far as times are concerned."""

    client: int | None
    due_at: float
    """Seconds, as `started_at`."""
    started_at: float
    late_ms: float
    queued_ms: float | None
    wall_ms: float | None
    """None: it failed."""
    arrival_ms: Sequence[float]
    """Of each token, from the start of the request; empty where it failed, or the engine tells no times."""


@dataclass(frozen=True)
class CellTimes:
    """The requests of one cell in the order of being due; n rows."""

    client: Ints
    """`OPEN` in an open loop."""
    due: Floats
    started: Floats
    first: Floats
    """When the first token arrived; NaN where no arrival is known."""
    last: Floats
    ended: Floats
    """NaN where it failed: nothing says when."""
    tokens: Ints
    late_ms: Floats
    queued_ms: Floats
    """NaN where the engine does not say."""
    arrivals: Floats
    """Of all tokens, request after request."""
    offsets: Ints
    """n + 1 places in `arrivals`: tokens of request i are `arrivals[offsets[i]:offsets[i + 1]]`."""

    @classmethod
    def of(cls, began_at: float, requests: Iterable[Sent]) -> CellTimes:
        """The columns of a cell that began at `began_at` seconds.

        Raises `TypeError`, `ValueError` or `OverflowError` for what is not a time: nothing else looks at it before.
        """
        rows, arrivals, counts = array("d"), array("d"), array("q")
        for it in requests:
            start = 1000 * (it.started_at - began_at)
            rows.append(OPEN if it.client is None else it.client)
            rows.append(1000 * (it.due_at - began_at))
            rows.append(start)
            rows.append(_UNKNOWN if it.wall_ms is None else start + it.wall_ms)
            rows.append(it.late_ms)
            rows.append(_UNKNOWN if it.queued_ms is None else it.queued_ms)
            counts.append(len(it.arrival_ms))
            arrivals.extend(it.arrival_ms)
        columns: Floats = np.array(rows, dtype=np.float64).reshape(-1, 6)
        whole = np.isfinite(columns[:, [0, 1, 2, 4]]).all() and np.isfinite(arrivals).all()
        if not whole or np.isinf(columns).any() or (columns[:, 4:] < 0).any():
            raise ValueError("a time is not one")
        order = np.argsort(columns[:, 1], kind="stable")
        tokens: Ints = np.array(counts, dtype=np.int64)
        of_token: Floats = np.array(arrivals, dtype=np.float64) + np.repeat(columns[:, 2], tokens)
        of_token = of_token[np.argsort(np.repeat(np.argsort(order, kind="stable"), tokens), kind="stable")]
        client, due, started, ended, late, queued = columns[order].T
        tokens = tokens[order]
        offsets: Ints = np.concatenate([[0], np.cumsum(tokens)]).astype(np.int64)
        first, last = np.full(len(tokens), np.nan), np.full(len(tokens), np.nan)
        told = tokens > 0
        first[told], last[told] = of_token[offsets[:-1][told]], of_token[offsets[1:][told] - 1]
        return cls(client.astype(np.int64), due, started, first, last, ended, tokens, late, queued, of_token, offsets)

    @property
    def answered(self) -> Bools:
        """Which requests did not fail."""
        return np.isfinite(self.ended)

    @property
    def ttft_ms(self) -> Floats:
        """Time to first token of each request, from when it was due: a late client cannot hide that it waited."""
        return self.first - self.due

    @property
    def ttft_sent_ms(self) -> Floats:
        """The same from when it was sent, as vLLM's benchmark and AIPerf count it."""
        return self.first - self.started

    @property
    def e2el_ms(self) -> Floats:
        """End-to-end latency of each request: from when it was sent to its last token."""
        return self.last - self.started

    def itl_ms(self, window: Window) -> Singles:
        """Inter-token latencies: between tokens of a request that arrived one after the other, the later one inside the
        window. Tokens that arrive in one event have none between them."""
        gaps = np.diff(self.arrivals)
        mine = np.ones(len(gaps), dtype=np.bool_)
        starts = self.offsets[1:-1]
        mine[starts[(starts > 0) & (starts <= len(gaps))] - 1] = False
        later = self.arrivals[1:]
        return gaps[mine & (gaps > 0) & (later > window.start) & (later <= window.end)].astype(np.float32)

    @property
    def tpot_ms(self) -> Floats:
        """Time per output token of each request: from its first to its last token, over the tokens after the first."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.tokens > 1, (self.last - self.first) / (self.tokens - 1), np.nan)

"""What an engine printed in its log at the end of each request: the same times and counts that its replies carry.

`llama-server` has printed these lines in all of its builds; a reader of logs passes its lines through `watched`, and
finds them in a list afterwards. Bounded by the number of requests, 40 bytes each.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_MS = r"(\d{1,12}(?:\.\d{1,9})?) ms"
_PROMPT = re.compile(rf"prompt eval time += +{_MS} / +(\d{{1,12}}) tokens")
_DECODE = re.compile(rf"(?<!prompt )\beval time += +{_MS} / +(\d{{1,12}}) (?:tokens|runs)")
_DRAFT = re.compile(r"draft acceptance(?: rate)? = +\S+ \( *(\d{1,12}) accepted / +(\d{1,12}) generated\)")
_MOST = 1_000_000
_FIELDS = 5


class Printed(NamedTuple):
    """The lines of one request."""

    prompt_ms: float
    predicted_ms: float
    predicted_n: int
    draft_n_accepted: int
    """-1 where no line says it, as for the next."""
    draft_n: int


class PrintedRequests(Sequence[Printed]):
    """Requests of one log, in order."""

    def __init__(self) -> None:
        self._values = array("d")

    def watched(self, lines: Iterable[str]) -> Iterator[str]:
        """The same lines, read on the way."""
        prompt_ms = -1.0
        for line in lines:
            if "eval time" in line:
                if found := _PROMPT.search(line):
                    prompt_ms = float(found.group(1))
                elif (found := _DECODE.search(line)) and len(self) < _MOST:
                    self._values.extend((prompt_ms, float(found.group(1)), float(found.group(2)), -1.0, -1.0))
                    prompt_ms = -1.0
            elif "draft acceptance" in line and self._values and (found := _DRAFT.search(line)):
                self._values[-2], self._values[-1] = float(found.group(1)), float(found.group(2))
            yield line

    def __len__(self) -> int:
        return len(self._values) // _FIELDS

    def __getitem__(self, place: int) -> Printed:  # pyright: ignore[reportIncompatibleMethodOverride]  # no slices
        at = range(len(self))[place] * _FIELDS
        prompt_ms, predicted_ms, predicted_n, accepted, drafted = self._values[at : at + _FIELDS]
        return Printed(prompt_ms, predicted_ms, int(predicted_n), int(accepted), int(drafted))

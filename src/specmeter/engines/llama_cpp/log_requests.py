"""What llama.cpp printed in its log at the end of each request: the same times and counts that its replies carry.

`llama-server` has printed these lines in all of its builds. A reader of logs passes its lines through `watched`, and
finds them in a list afterwards. Bounded by the number of requests, 40 bytes each.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from specmeter.engines.llama_cpp.log_formats import ACCEPTANCE, DECODE_TIME, PROMPT_TIME

_MAX_LINES = 1_000_000
_FIELDS = 5


class Printed(NamedTuple):
    """The lines of one request."""

    prompt_ms: float
    predicted_ms: float
    predicted_n: int
    draft_n_accepted: int
    """-1 where no line says it, as for the next one."""
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
                if found := PROMPT_TIME.search(line):
                    prompt_ms = float(found.group(1))
                elif (found := DECODE_TIME.search(line)) and len(self) < _MAX_LINES:
                    self._values.extend((prompt_ms, float(found.group(1)), float(found.group(2)), -1.0, -1.0))
                    prompt_ms = -1.0
            elif "draft acceptance" in line and self._values and (found := ACCEPTANCE.search(line)):
                self._values[-2], self._values[-1] = float(found.group(2)), float(found.group(3))
            yield line

    def __len__(self) -> int:
        return len(self._values) // _FIELDS

    def __getitem__(self, place: int) -> Printed:  # pyright: ignore[reportIncompatibleMethodOverride]  # no slices
        at = range(len(self))[place] * _FIELDS
        prompt_ms, predicted_ms, predicted_n, accepted, drafted = self._values[at : at + _FIELDS]
        return Printed(prompt_ms, predicted_ms, int(predicted_n), int(accepted), int(drafted))

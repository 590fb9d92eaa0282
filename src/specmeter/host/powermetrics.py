"""Power of a Mac's chip, from Apple's `powermetrics`, which only root may run.

It prints one block per interval: how long that was, and the mean power. On Apple's own chips that is CPU, GPU and
neural engine together, without memory; on Intel's the package. The program is started through `sudo -n`, which never
asks for a password: where it is not allowed without one, there are no readings, and the reason says what would do.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator

INTERVAL_MS = 200
_LONGEST_LINE = 10_000
_LAST_BLOCK_S = 2.0
_ELAPSED = re.compile(r"\*\*\* Sampled system activity .*\((\d+(?:\.\d+)?)ms elapsed\)")
_COMBINED = re.compile(r"Combined Power \(CPU \+ GPU \+ ANE\): (\d+(?:\.\d+)?) mW")
_PACKAGE = re.compile(r"Intel energy model derived package power .*: (\d+(?:\.\d+)?)W")
_COMMAND = ("sudo", "-n", "powermetrics", "-b", "1", "-i", str(INTERVAL_MS), "--samplers", "cpu_power,gpu_power")

REFUSED = (
    "powermetrics runs for root alone: let sudo run it without a password "
    "(`sudo visudo`, then the line `YOU ALL=(root) NOPASSWD: /usr/bin/powermetrics`)"
)


def blocks(lines: Iterable[str]) -> Iterator[tuple[float, float]]:
    """(seconds, joules) of every interval that is told whole."""
    elapsed_s: float | None = None
    for line in lines:
        if found := _ELAPSED.search(line[:_LONGEST_LINE]):
            elapsed_s = float(found[1]) / 1000
            continue
        watts = _watts(line[:_LONGEST_LINE])
        if watts is not None and elapsed_s is not None:
            yield elapsed_s, watts * elapsed_s
            elapsed_s = None


def _watts(line: str) -> float | None:
    if found := _COMBINED.search(line):
        return float(found[1]) / 1000
    return float(found[1]) if (found := _PACKAGE.search(line)) else None


class PowerMetrics:
    """The running program; `emit(seconds, joules)` is called on a thread of its own for every interval."""

    def __init__(self, emit: Callable[[float, float], object]) -> None:
        """Raises `OSError` where it cannot be started at all."""
        self._process = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
        )
        self._emit = emit
        self._seen = False
        self._known = threading.Event()
        """Set with the first interval, or when there will be none."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, name="powermetrics", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Whether a first interval has come, within so many seconds; known at once where the program ends before."""
        self._known.wait(timeout_s)
        return self._seen

    def close(self) -> None:
        """End it. It runs as root and cannot be signalled: once its output is closed it ends at its next line."""
        self._stop.set()
        self._thread.join(_LAST_BLOCK_S)
        with contextlib.suppress(OSError):
            self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_BLOCK_S)

    def _read(self) -> None:
        output = self._process.stdout
        if output is None:
            return
        try:
            with output:
                for seconds, joules in blocks(output):
                    self._emit(seconds, joules)
                    self._seen = True
                    self._known.set()
                    if self._stop.is_set():
                        return
        finally:
            self._known.set()

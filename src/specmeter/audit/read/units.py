"""Units as people print them, lower case and without spaces -> their factor; one table for files and for options."""

from __future__ import annotations

RATES: dict[str, float] = dict.fromkeys(
    ("", "tok/s", "toks/s", "t/s", "tokens/s", "tps", "token/s", "tokens/sec", "tok/sec", "toks/sec"), 1.0
)
"""To tokens per second."""
TIMES: dict[str, float] = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "µs": 1e-3, "ns": 1e-6}
"""To milliseconds."""
BYTES: dict[str, float] = {
    **dict.fromkeys(("b", "byte", "bytes"), 1.0),
    **{f"{letter}b": 1000.0**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024.0**power for power, letter in enumerate("kmgt", 1)},
}
"""To bytes."""

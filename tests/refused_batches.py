"""Write out the excerpts of `tests/data/audit`: one line there stands for the six that llama.cpp writes."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parent / "data" / "audit"

_BATCH = """\
init: the tokens of sequence 0 in the input batch have inconsistent sequence positions:
 - the last position stored in the memory module of the context (i.e. the KV cache) for sequence 0 is X = {x}
 - the tokens for sequence 0 in the input batch have a starting position of Y = {y}
 for M-RoPE, it is required that the position satisfies: X < Y
decode: failed to initialize batch
llama_decode: failed to decode, ret = -1
"""


def excerpt(name: str) -> str:
    """The log as the program wrote it."""
    lines = (DATA / f"{name}.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(_refused(line) if line.startswith("@refused ") else line for line in lines)


def _refused(line: str) -> str:
    _, x, y = line.split()
    return _BATCH.format(x=x, y=y)

"""What SGLang's server prints while it decodes: lines of `Decode batch`.

Every forty decode steps or so its scheduler prints, for what happened since the line before (`Decode batch.` until
2025, `Decode batch,` since; parts in between come and go with version, model and disaggregation),

    Decode batch, #running-req: 4, #token: 9120, token usage: 0.08, accept len: 2.36, accept rate: 0.19,
    cuda graph: True, gen throughput (token/s): 240.29, #queue-req: 0

`accept len` is emitted tokens over verifications, the target's own included, so it is tau; the throughput is that of
all running requests together. `accept rate` divides by drafted tokens with or without the root of the tree, and counts
the target's own token or not, by version: it is not read as an acceptance. The server's arguments, printed at its
start, have the algorithm and `speculative_num_steps`, the longest chain that can be accepted, hence gamma.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specmeter.audit.claim import Claim, claim_of
from specmeter.audit.read.log_lines import log_lines
from specmeter.audit.read.sglang import speculation

_MOST_LINES = 10_000
"""Lines that are claims; a log of weeks has more, and says nothing new in them."""
_FLOAT = r"(\d{1,9}(?:\.\d{1,9})?)"
_DECODE = re.compile(
    rf"\bDecode batch[.,] #running-req: (\d{{1,6}}),.{{0,400}}?gen throughput \(token/s\): {_FLOAT}(?:,|\s|$)"
)
_LENGTH = re.compile(rf"\baccept len: {_FLOAT},")
_RANK = re.compile(r"\[[\d:. -]{8,30}((?: (?:TP|DP|PP|EP)\d{1,4})+)\]")
_ARGUMENTS = re.compile(
    r"\b(model_path|speculative_algorithm|speculative_num_steps|speculative_eagle_topk)=(?:'([^']{1,200})'|(None|\d{1,5})\b)"
)


def sniff(head: str) -> bool:
    """A line of `Decode batch`, or the arguments that such a server prints first."""
    return _DECODE.search(head) is not None or ("server_args=ServerArgs(" in head and "model_path=" in head)


def read(path: Path) -> Iterator[Claim]:
    """One claim per line of `Decode batch`; one with a `problem` where there is none.

    Raises `UsageError` when the file cannot be read.
    """
    setup: dict[str, Any] = {}
    found = 0
    for number, line in enumerate(log_lines(path), start=1):
        if "ServerArgs(" in line:
            setup = _setup(line)
        elif "Decode batch" in line and (said := _DECODE.search(line)) is not None:
            running, rate = int(said.group(1)), float(said.group(2))
            if not running or not rate:
                continue  # printed as the last request ended: a rate of none of them
            length = _LENGTH.search(said.group())
            rank = _RANK.search(line)
            found += 1
            yield claim_of(
                source=str(path),
                row=f"line {number}",
                label=f"{running} running{rank.group(1) if rank else ''}",
                engine="SGLang",
                decode_rate=rate,
                concurrency=running,
                tau=max(1.0, float(length.group(1))) if length else None,
                rounding={"decode_rate": 0.005, "tau": 0.005},
                pooled=("tau",),
                **setup,
            )
            if found >= _MOST_LINES:
                return
    if not found:
        yield Claim(source=str(path), row="log", problem="no line of `Decode batch` with a running request in it")


def _setup(line: str) -> dict[str, Any]:
    """Target, method, draft length and tree, from the server's arguments."""
    said = {name: quoted or bare for name, quoted, bare in _ARGUMENTS.findall(line[:20_000])}
    server = {name: "" if value == "None" else value for name, value in said.items()}
    return {"target": server.pop("model_path", None), **speculation(server)}

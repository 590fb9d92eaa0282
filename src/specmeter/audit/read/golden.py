"""Acceptance lengths by draft length, as InferenceX keeps them for its benchmark (`golden_al_distribution/*.yaml`).

    # dataset: coding | temperature: 1.0 | output_len: 4096
    # Measured on deepseek-v4-pro (B300, vLLM MTP), per num_speculative_tokens.
    deepseek-v4-pro:
      thinking_on:
        1: 1.79
        2: 2.27

A value is 1 + accepted / verifications over all prompts, so tau, rounded to two digits. With vLLM drafts are chains,
EAGLE's too: `num_speculative_tokens` is their length. Only these lines are looked at; what else is YAML is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from specmeter.audit.claim import Claim, claim_of
from specmeter.audit.read.document import Importer, read_text
from specmeter.errors import UsageError

_MEASURED = re.compile(r"#.{0,20}Measured on [^()]{1,160}\(([^(),]{1,60}), (vLLM|SGLang) ([\w-]{1,40})")
_SETTINGS = re.compile(r"# *(dataset: .{1,200})")
_NAME = re.compile(r"""( *)(["']?)([\w./ -]{1,160})\2:\s*(?:#.*)?""")
_VALUE = re.compile(r"\s+(\d{1,3}): *(\d{1,4}(?:\.(\d{1,6}))?)\s*(?:#.*)?")
_CURVE = re.compile(r"^[\w./-]{1,160}:\s*\n +[\w-]{1,60}:\s*\n\s+\d{1,3}: *\d{1,4}\.\d{1,6}\s*$", re.M)

_MAX_ROWS = 20_000


def _sniff(head: str) -> bool:
    return "num_speculative_tokens" in head and _CURVE.search(head) is not None


def _read(path: Path) -> Iterator[Claim]:
    """One claim per value, told where it was measured by the comments above it."""
    said: dict[str, str] = {}
    target, mode, values = "", "", 0
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if (found := _MEASURED.match(line)) is not None:
            said |= dict(zip(("device", "engine", "method"), found.groups(), strict=True))
        elif (found := _SETTINGS.match(line)) is not None:
            said = {"dataset": found[1]}
        elif (found := _NAME.fullmatch(line)) is not None:
            target, mode = (target, found[3]) if found[1] else (found[3], "")
        elif line.strip() and line[0] not in " #":
            target = ""  # what is below belongs to something else
        elif (found := _VALUE.fullmatch(line)) is not None and target:
            if (values := values + 1) > _MAX_ROWS:
                raise UsageError(f"{path}: more than {_MAX_ROWS:,} acceptance lengths", fix="split the file")
            names = {name: said.get(name) for name in ("device", "engine")}
            method = said.get("method", "").lower() or None
            yield claim_of(
                source=str(path), row=f"line {number}", label=" ".join(filter(None, (target, mode))), target=target,
                **names, method=method, tree=False if said.get("engine") == "vLLM" else None,
                conditions={"mode": mode, "dataset": said.get("dataset", "")}, gamma=int(found[1]), tau=float(found[2]),
                pooled=("tau",), rounding={"tau": 0.5 * 10.0 ** -len(found[3] or "")},
            )  # fmt: skip


GOLDEN = Importer(_sniff, _read)

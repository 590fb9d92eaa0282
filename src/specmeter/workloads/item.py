"""What a source gives for one prompt, before it is named within its workload and hashed."""

from __future__ import annotations

from typing import NamedTuple


class Item(NamedTuple):
    """One prompt of a source."""

    id: str
    """Unique within the workload."""
    kind: str
    text: str
    max_tokens: int | None = None
    token_count: int | None = None
    """Exact length by the target's tokenizer, where it was asked for."""
    random_tokens: bool = False

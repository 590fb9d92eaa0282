"""Strings of every script and habit that a tokenizer may trip over."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterator

from prompts import OUT

PIECES = [
    "\r\n", "\n\n", "\r", "\t", "  ", "   x", " \n ", "\u00a0", "\u3000", "\u200b", "\u200d", "\ufeff", "\ufffd",
    "👩\u200d👩\u200d👧\u200d👦", "🏳️\u200d🌈", "😀", "🇨🇭", "e\u0301", "a\u0308\u0323", "\u0915\u094d\u0937", "한국어",
    "العربية", "עברית", "ไทย", "Straße", "İstanbul", "ﬁ", "½", "٣٤", "Ⅷ", "don't", "WE'LL", "it'S", "I\u2019m", "12345",
    "3.14", "<|", "|>", "'s", "def f(x):\n    return x\n", "水车", "\u2028", "\u0085", "\x00", "\x7f", "''", "...", "—",
    "$€", "#!/", "\u0301", "x\u0301\u0302",
]  # fmt: skip


def odd_strings(count: int) -> Iterator[str]:
    """Seeded mixtures of held-out text, awkward pieces, and letters, marks, digits and signs of all of Unicode."""
    rng = random.Random(7)
    held_out = (OUT / "heldout.txt").read_text(encoding="utf-8")
    letters = [chr(c) for c in range(0x20, 0x30000) if unicodedata.category(chr(c))[0] in "LMNPSZ"]
    for _ in range(count):
        parts: list[str] = []
        for _ in range(rng.randint(1, 8)):
            form = rng.random()
            if form < 0.3:
                start = rng.randrange(len(held_out))
                parts.append(held_out[start : start + rng.randint(1, 30)])
            elif form < 0.7:
                parts.append(rng.choice(PIECES))
            else:
                parts.append("".join(rng.choice(letters) for _ in range(rng.randint(1, 4))))
        yield "".join(parts)

"""Every word of a report, in one place per language: `en.TEXT` and `zh.TEXT` have the same keys.

Values in braces are filled in; whoever fills them in decides how they are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from specmeter.show.words import en, zh

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


@dataclass(frozen=True)
class Words:
    """The words of one language."""

    language: Language
    text: Mapping[str, str]
    separator: str

    def __call__(self, key: str, **values: object) -> str:
        """The text of a key, with its values filled in. Raises `KeyError` for an unknown key: a defect."""
        text = self.text[key]
        return text.format(**values) if values else text

    def listed(self, items: Iterable[str]) -> str:
        """`a, b, c` as the language writes it."""
        return self.separator.join(items)


def words(language: Language) -> Words:
    """The words of a language."""
    return Words("en", en.TEXT, ", ") if language == "en" else Words("zh", zh.TEXT, "、")

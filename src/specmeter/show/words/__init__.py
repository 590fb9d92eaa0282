"""Every word of a report, in one place per language: both have the same keys.

What checks look for (`threat.CHECK`) stands in Chinese alone: in English they say it themselves.

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
    return _ENGLISH if language == "en" else Words("zh", zh.TEXT, "、")


_THREATS = {key: "{threat}" for key in zh.TEXT if key.startswith("threat.")}
_ENGLISH = Words("en", en.TEXT | _THREATS, ", ")

"""Every word of a report, in one place per language: both have the same keys. `sentences` are made elsewhere.

What checks look for (`threat.CHECK`) stands in Chinese alone: in English they say it themselves.

Values in braces are filled in; the caller that fills them in decides how they are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from specmeter.show.words import en, zh
from specmeter.show.words.sentences import Catalogue, catalogue, ours

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


@dataclass(frozen=True)
class Words:
    """The words of one language."""

    language: Language
    text: Mapping[str, str]
    separator: str
    sentences: Catalogue | None = None
    """Translates sentences of lower rooms, where the language is not theirs."""

    def __call__(self, key: str, **values: object) -> str:
        """The text of a key, with its values filled in. Raises `KeyError` for an unknown key: a defect."""
        text = self.text[key]
        return text.format(**values) if values else text

    def told(self, sentence: str) -> str:
        """A sentence of a lower room in this language; as it is, where it is not a sentence of ours."""
        return sentence if self.sentences is None else self.sentences.told(sentence) or sentence

    def listed(self, items: Iterable[str]) -> str:
        """`a, b, c` as the language writes it."""
        return self.separator.join(items)


def words(language: Language, chinese: Mapping[str, str] | None = None) -> Words:
    """The words of a language; `chinese`: further sentences in English and Chinese, of a user's own study."""
    if language == "en":
        return _ENGLISH
    return Words("zh", zh.TEXT, "、", Catalogue({**chinese, **ours()}) if chinese else catalogue())


_THREATS = {key: "{threat}" for key in zh.TEXT if key.startswith("threat.")}
_ENGLISH = Words("en", en.TEXT | _THREATS, ", ")

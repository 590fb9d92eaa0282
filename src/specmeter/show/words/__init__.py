"""The languages of pages; sentences of lower rooms are found by their shape until they are messages."""

from __future__ import annotations

from collections.abc import Mapping

from specmeter import messages
from specmeter.messages import Words, with_own
from specmeter.show.words.sentences import catalogue

Language = str
LANGUAGES = messages.languages()

__all__ = ["LANGUAGES", "Language", "Words", "words"]

messages.SENTENCES["zh"] = lambda text: catalogue().told(text)


def words(language: Language = "en", chinese: Mapping[str, str] | None = None) -> Words:
    """The words of a language; `chinese`: further texts of a user's own study, for that language alone."""
    return with_own(messages.words(language), chinese if chinese and language == "zh" else {})

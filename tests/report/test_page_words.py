"""Both languages say the same things."""

from __future__ import annotations

import re
from string import Formatter

import pytest

from specmeter.show.page.page import Voice
from specmeter.show.table import Phrase
from specmeter.show.words import LANGUAGES, words, zh
from specmeter.validity.checks import CHECKS

EN = words("en").text


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def test_languages_have_the_same_keys() -> None:
    assert set(EN) == set(zh.TEXT)


@pytest.mark.parametrize("key", sorted(EN))
def test_a_text_fills_in_nothing_that_the_other_does_not_know(key: str) -> None:
    if key.startswith("threat."):
        assert fields(EN[key]) == {"threat"}
        return
    missing = fields(EN[key]) - fields(zh.TEXT[key])
    assert fields(zh.TEXT[key]) <= fields(EN[key])
    # Why there is no interval is told by the statistics, in English.
    assert missing <= ({"why"} if key == "answer.no_interval" else set())


def test_chinese_is_chinese_and_no_text_is_empty() -> None:
    same = {key for key in EN if EN[key] == zh.TEXT[key]}
    assert all(text.strip() for text in (*EN.values(), *zh.TEXT.values()))
    # What is a name or a symbol in both languages.
    assert all(re.fullmatch(r"[A-Za-z0-9 .,/+-]{1,12}", EN[key]) for key in same)
    assert len(same) < 10


def test_every_check_is_told_in_both() -> None:
    for check in (*(check.id for check in CHECKS), "data-changed"):
        assert f"threat.{check}" in zh.TEXT


def test_a_voice_escapes_what_is_filled_in_and_nothing_of_its_own() -> None:
    voice = Voice([words(language) for language in LANGUAGES])
    told = str(voice.say(Phrase("cell.only", {"arm": "<b>`x`</b>", "workloads": "\u202ea"})))
    assert "<b>" not in told
    assert "&lt;b&gt;`x`&lt;/b&gt;" in told
    assert "\u202e" not in told
    assert 'data-lang="en"' in told
    assert 'data-lang="zh"' in told
    assert "<code>specmeter check</code>" in str(voice.tell("note.unchecked"))
    assert "data-lang" not in str(Voice([words("zh")]).tell("note.unchecked"))

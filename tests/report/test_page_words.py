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


def test_a_text_fills_in_nothing_that_the_other_does_not_know() -> None:
    for key, text in EN.items():
        if key.startswith("threat."):
            assert fields(text) == {"threat"}, key
            continue
        missing = fields(text) - fields(zh.TEXT[key])
        assert fields(zh.TEXT[key]) <= fields(text), key
        # Why there is no interval is told by the statistics, in English.
        assert missing <= ({"why"} if key == "answer.no_interval" else set()), key


def test_chinese_is_chinese_and_no_text_is_empty() -> None:
    same = {key for key in EN if EN[key] == zh.TEXT[key]}
    assert all(text.strip() for text in (*EN.values(), *zh.TEXT.values()))
    # What is a name or a symbol in both languages.
    bare = (re.sub(r"\{\w+\}", "", EN[key]) for key in same)
    assert all(re.fullmatch(r"[A-Za-z0-9 .,/+\[\]-]{0,12}", text) for text in bare)
    assert len(same) < 16


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


def test_chinese_leaves_a_blank_beside_the_name_of_a_method() -> None:
    close = re.compile(r"[\u4e00-\u9fff]\{method\}|\{method\}[\u4e00-\u9fff]")
    assert [key for key, text in zh.TEXT.items() if close.search(text)] == []


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("356 rows: 1 impossible, 253 implausible, 102 possible", "356 行，其中 1 行不可能，253 行不可信，102 行可能"),
        ("1 row: 1 possible", "1 行，可能"),
        ("2 rows: 2 cannot tell", "2 行，其中 2 行无法判断"),
        ("12 rows: 1 implausible, 2 possible, 9 cannot tell", "12 行，其中 1 行不可信，2 行可能，9 行无法判断"),
    ],
)
def test_the_tally_of_an_audit_is_told_in_chinese(english: str, chinese: str) -> None:
    assert words("zh").told(english) == chinese
    assert (
        words("zh")
        .told(f"`specmeter audit --published apple` rules on both series of runs: {english}.")
        .endswith(f"{chinese}。")
    )

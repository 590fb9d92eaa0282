"""Messages have a text in every language, whatever they hold; catalogues say the same things."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

import specmeter
import specmeter_fleet
import specmeter_studies
from said import never_said
from specmeter.messages import LANGUAGES, Message, with_own, words
from specmeter.show.page.page import Voice

SOURCES = tuple(Path(it.__path__[0]) for it in (specmeter, specmeter_studies, specmeter_fleet))
FOLDERS = tuple(folder / "messages" for folder in SOURCES)
CATALOGUES = {
    (folder.parent.name, file.stem): json.loads(file.read_text("utf-8"))
    for folder in FOLDERS
    for file in sorted(folder.glob("*.json"))
}
HOLE = re.compile(r"\{(\w+)(:[^{}]*)?\}")
HAN = re.compile("[\u4e00-\u9fff]")


def holes(text: str) -> set[tuple[str, str]]:
    """Placeholders with their forms; of a plural only that it is one."""
    return {(name, "#" if "#" in form else form) for name, form in HOLE.findall(text)}


def test_catalogues_have_the_same_codes_in_the_same_order_and_the_same_placeholders() -> None:
    for (package, language), texts in CATALOGUES.items():
        english = CATALOGUES[package, "en"]
        assert list(texts) == list(english), f"{package}, {language}"
        for code, text in texts.items():
            assert text, code
            assert holes(text) == holes(english[code]), f"{language}: {code}"


def test_a_catalogue_is_one_line_a_message() -> None:
    for folder in FOLDERS:
        for file in folder.glob("*.json"):
            texts = json.loads(file.read_text("utf-8"))
            assert file.read_text("utf-8") == json.dumps(texts, ensure_ascii=False, indent=1) + "\n", file


def test_no_code_stands_in_two_catalogues() -> None:
    codes = [code for folder in SOURCES for code in CATALOGUES[folder.name, "en"]]
    assert len(codes) == len(set(codes))


def test_every_message_is_said_somewhere() -> None:
    core, studies, fleet = SOURCES
    assert never_said(CATALOGUES["specmeter", "en"], core, studies) == {"language"}
    assert never_said((it for it in CATALOGUES["specmeter_fleet", "en"] if it.startswith("fleet.")), fleet) == set()


def test_literal_codes_of_the_source_are_in_the_catalogue() -> None:
    known = {code for texts in CATALOGUES.values() for code in texts}
    calls = {"Message", "words", "tell", "t"}
    for folder in SOURCES:
        for path in folder.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).rpartition(".")[2] in calls:
                    code = node.args[0]
                    if isinstance(code, ast.Constant) and "." in str(code.value):
                        assert code.value in known, f"{path}:{node.lineno}"


def test_chinese_is_chinese() -> None:
    for folder in SOURCES:
        english, chinese = CATALOGUES[folder.name, "en"], CATALOGUES[folder.name, "zh"]
        bare = (HOLE.sub("", text) for code, text in english.items() if text == chinese[code])
        alike = re.compile(r"[A-Za-z0-9 .,/+%()\[\]:;-]{0,12}|(tau|gamma|max|tok/s|GB/s|GB|[Sacgmx]|[0-9 .,/+()=<>-])*")
        assert [text for text in bare if not alike.fullmatch(text)] == []
        close = re.compile(r"[\u4e00-\u9fff]\{method\}|\{method\}[\u4e00-\u9fff]")
        assert [code for code, text in chinese.items() if close.search(text)] == []
        full_width = r"[\u3001\u3002\uff01-\uff0f\uff1a-\uff1f]"
        spaced = re.compile(rf"{full_width}\s|\s{full_width}|\| #")  # an item of a list follows one too
        assert [code for code, text in chinese.items() if spaced.search(text)] == []


# --- rendering -------------------------------------------------------------------------------------------------------

Values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.builds(lambda: 10**5000),
    lambda inner: st.lists(inner, max_size=3) | st.builds(lambda value: Message("answer.where", kind=value), inner),
    max_leaves=8,
)
EVERY = [code for texts in CATALOGUES.values() for code in texts]


@given(
    st.sampled_from(EVERY) | st.text(max_size=30), st.dictionaries(st.from_regex(r"\A[a-z]{1,9}\Z"), Values), st.data()
)
def test_every_message_has_a_text_whatever_it_holds(code: str, more: dict[str, Any], data: Any) -> None:
    named = {name: data.draw(Values) for name, _ in HOLE.findall(words("en").text.get(code, ""))}
    said = Message(code, **{**more, **named})
    for language in LANGUAGES:
        assert isinstance(words(language).render(said), str)


def test_forms() -> None:
    said = with_own(
        words("en"),
        {
            "all": "{x:x} {share:.0%} {gap:+.1f} {n:,} {bytes:size} {s:duration} {name:quoted}",
            "lists": "{a}|{a:;}|{a:and}|{none}|{one:and}",
            "count": "{n:# prompt|# prompts}",
            "braces": "{{n}} {n}",
            "inner": "{low} to {high:.0f}",
        },
    )
    values = {"x": 2.1, "share": 0.74, "gap": 3, "n": 1200, "bytes": 1.2e9, "s": 200, "name": "a b"}
    assert said("all", **values) == "2.10x 74% +3.0 1,200 1.2 GB 3 min 20 s 'a b'"
    assert said("lists", a=["x", "y", "z"], none=[], one=["x"]) == "x, y, z|x; y; z|x, y and z||x"
    assert [said("count", n=n) for n in (1, 2, 1200)] == ["1 prompt", "2 prompts", "1,200 prompts"]
    assert said("braces", n=3) == "{n} 3"
    assert said("braces", n=25.71237157242975) == "{n} 25.71"  # a place that says no digits
    assert (
        with_own(words("en"), {"outer": "{it:.2f}", "inner": "{low} to {high:.0f}"})(
            "outer", it=Message("inner", low=1, high=2)
        )
        == "1.00 to 2"
    )


def test_what_no_catalogue_knows_is_shown_as_it_stands() -> None:
    assert words("zh")("All {n} foxes jump.", n=7) == "All 7 foxes jump."
    assert words("en")("no.such.code", n=7, of="x") == "no.such.code (n: 7, of: x)"
    assert words("en")("answer.where") == " on {kind} prompts", "a missing value shows its place"
    assert words("en")("see {0.__class__} and {x}", x="{y}") == "see {0.__class__} and {y}"
    own = with_own(words("zh"), {"All {n} foxes jump.": "{n} 只狐狸都跳。", "answer.where": "骗人"})
    assert own("All {n} foxes jump.", n=7) == "7 只狐狸都跳。"
    assert "骗人" not in own("answer.where", kind="code")


def test_endless_nesting_and_endless_texts_end() -> None:
    said: Any = Message("answer.where", kind="x" * 100_000)
    for _ in range(200):
        said = Message("scheduled.of", loads=said, told=said)
    assert len(words("en").render(said)) < 30_000


@pytest.mark.parametrize("value", ["", "<" * 30, 10**400, None, [1] * 900])
def test_holes_that_a_stranger_nested_are_filled_a_bounded_number_of_times(value: Any) -> None:
    """A dozen levels of a thousand holes each would be 10^36 of them."""
    said: Any = value
    for _ in range(12):
        said = Message("{a}" * 1_000, a=said)
    for text in (words("en").render(said), str(Voice([words("en")]).say(said))):
        assert len(text) < 1_000_000
    page = str(Voice([words("en")]).say(said))
    assert page.count("<bdi>") == page.count("</bdi>")
    assert re.fullmatch(r"([^&]|&(lt|gt|amp|#3[49]);)*", page), "nothing escaped is cut in halves"


def test_a_page_escapes_what_is_filled_in_and_nothing_of_its_own() -> None:
    voice = Voice([words(language) for language in LANGUAGES])
    told = str(voice.say(Message("cell.only", arm="<b>`x`</b>", workloads="\u202ea")))
    assert "<b>" not in told
    assert "&lt;b&gt;`x`&lt;/b&gt;" in told
    assert "\u202e" not in told
    assert 'data-lang="en"' in told
    assert 'data-lang="zh"' in told
    assert "<code>specmeter check <bdi>here</bdi></code>" in str(voice.tell("note.unchecked", folder="here"))
    assert "data-lang" not in str(Voice([words("zh")]).tell("note.unchecked", folder="here"))
    own = Voice([with_own(words("zh"), {"a {b}": "<i>{b}</i>"})])
    assert "<i>" not in str(own.say(Message("a {b}", b="<u>")))


# --- stored ----------------------------------------------------------------------------------------------------------


class Kept(BaseModel):
    """A record that holds a message."""

    said: Message


def test_a_message_is_stored_with_its_english_and_read_without() -> None:
    kept = Kept(said=Message("scheduled.of", loads=Message("crossover.one_client"), told=["a", 1, None, True]))
    data = json.loads(kept.model_dump_json())
    assert data["said"]["text"] == str(kept.said)
    data["said"]["text"] = "something else"
    assert Kept.model_validate(data).said == Message(
        "scheduled.of", loads=Message("crossover.one_client"), told=("a", 1, None, True)
    )


@pytest.mark.parametrize(
    "wrong",
    [
        "text",
        {"code": 1, "values": {}},
        {"code": "a"},
        {"code": "a", "values": {"b": {"c": 1}}},
        {"code": "x" * 50_000, "values": {}},
    ],
)
def test_what_is_no_message_is_refused(wrong: object) -> None:
    with pytest.raises(ValidationError):
        Kept.model_validate({"said": wrong})


def test_a_message_nested_too_deep_is_refused() -> None:
    deep: dict[str, Any] = {"code": "a", "values": {}}
    for _ in range(50):
        deep = {"code": "a", "values": {"b": deep}}
    with pytest.raises(ValidationError):
        Kept.model_validate({"said": deep})

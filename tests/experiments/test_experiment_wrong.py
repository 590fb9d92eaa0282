"""Whatever stands at whatever place of an experiment: it is accepted, or refused in words of the file.

pydantic's own phrases, and the names of its types, are for programmers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmeter.api.runs import Experiment as Built
from specmeter.errors import ExperimentError
from specmeter.experiments.experiment import Experiment
from specmeter.experiments.file import load

FULL: dict[str, Any] = {
    "name": "mine",
    "target": "a.gguf",
    "draft": "b.gguf",
    "description": "x",
    "remotes": {"far": "10.0.0.1:5000"},
    "sizes": {"a": 1e9},
    "arms": [{"gamma": [2, 4]}, {"method": "ngram-simple", "name": "n", "engine": {"options": {}}}],
    "exclude": [{"target": "a", "gamma": 9}],
    "constraints": [{"when": {"gamma": 9}, "require": {"target": "a"}}],
    "workloads": [
        {"source": source, "name": source} | ({"paths": ["p.txt"]} if source == "file" else {})
        for source in ("bench", "studies", "length", "file", "random")
    ],
    "engine": {"kind": "mock", "mock": {}},
    "design": {},
    "generation": {},
    "variants": {"quick": {"design": {"blocks": 1}}},
    "applied": ["old"],
}
WRONG: list[Any] = [
    None, True, 0, -1, 1.5, 1e300, "", "x", "no such word", "a" * 70, [], [[]], [None], [[[1]]], {}, {"x": 1}, [{}],
    {1: 2}, {"": None}, {None: []}, 2**100, float("inf"), float("nan"),
]  # fmt: skip
PROGRAMMERS = re.compile(
    r"Input should|[Ff]ield required|[Ee]xtra inputs|validation error|[Vv]alue error|Unable to|discriminator|pydantic"
    r"|\\btuple|\\bdict\\b|model_type|union|literal|str_type|something else|ctx|\\bNone\\b|\\bTrue\\b|instance of",
)


def keys_of(schema: dict[str, Any], definitions: dict[str, Any], depth: int = 0) -> Iterator[str]:
    """Every key of an object of the schema, as `--set` writes it: `design.blocks`, `arms.0.gamma`."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[-1]]
    for key, value in schema.get("properties", {}).items():
        yield key
        yield from (f"{key}.{inner}" for inner in _inside(value, definitions, depth))


def _inside(value: dict[str, Any], definitions: dict[str, Any], depth: int) -> Iterator[str]:
    if depth > 4:
        return
    for option in (value, *value.get("anyOf", []), *value.get("oneOf", []), *value.get("allOf", [])):
        if "$ref" in option:
            yield from keys_of(option, definitions, depth + 1)
        if option.get("type") == "array":
            yield "0"
            items = option.get("items", {})
            for place, item in enumerate([items, *items.get("oneOf", [])]):
                yield from (f"{max(0, place - 1)}.{key}" for key in keys_of(item, definitions, depth + 1))


SCHEMA = Experiment.model_json_schema()
KEYS = sorted(set(keys_of(SCHEMA, SCHEMA["$defs"])))


def told(keys: dict[str, Any], *, as_file: bool = True) -> str:
    """What is said of an experiment, of a file or in Python; nothing where it is accepted."""
    try:
        load(keys) if as_file else Built(**keys)
    except ExperimentError as error:
        return str(error)
    return ""


def test_the_whole_form_is_accepted_and_all_of_it_is_tried() -> None:
    assert told(FULL) == ""
    assert {"arms.0.engine.kv_type_k", "workloads.3.paths", "constraints.0.when.gamma"} <= set(KEYS)
    assert any(key.startswith("engine.mock.") for key in KEYS)


def put(keys: Any, path: list[str], value: Any) -> Any:
    """`keys` with another value at a place, whatever lies on the way."""
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(keys, list) and first.isdecimal():
        entries = [*keys, *([{}] * (int(first) + 1 - len(keys)))]
        return [put(it, rest, value) if place == int(first) else it for place, it in enumerate(entries)]
    known = keys if isinstance(keys, dict) else {}
    return {**known, first: put(known.get(first, [] if rest and rest[0].isdecimal() else {}), rest, value)}


@pytest.mark.parametrize("key", KEYS)
def test_wrong_values_are_refused_in_words_of_the_file(key: str) -> None:
    for value in WRONG:
        said = told(put(FULL, key.split("."), value), as_file=key in FULL)
        assert not PROGRAMMERS.search(said), (value, said)


# A refusal quotes what was given, so a value must not hold such a word itself ("ctx").
TEXT = st.text(max_size=4).filter(lambda it: not PROGRAMMERS.search(it))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(key=st.sampled_from(KEYS), value=JSON)
def test_nothing_at_all_brings_out_words_for_programmers(key: str, value: Any) -> None:
    said = told(put(FULL, key.split("."), value))
    assert not PROGRAMMERS.search(said), said


def test_models_of_the_mock_imply_the_mock_engine() -> None:
    """As on the command line; an engine that is named stays."""
    keys: dict[str, Any] = {"targets": {"dense": "mock:dense"}, "arms": [{"method": "ngram-simple", "gamma": 2}]}
    assert load(keys).experiment.engine.kind == "mock"
    assert load({**keys, "engine": {"mock": {"noise": 0.0}}}).experiment.engine.kind == "mock"
    assert load(keys, ["engine.kind=native"]).experiment.engine.kind == "native"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (
            "engine",
            {"mock": {"targets": {}}},
            "engine.mock.targets: the engine is embedded, not the mock; write kind: mock",
        ),
        ("arms.0.gamma", [True], "arms.0.gamma.0: must be a number (given: true)"),
        ("design.blocks", True, "design.blocks: must be a number (given: true)"),
        ("engine.mock.targets", {"a": {"base_ms": 1e300}}, "engine.mock.targets.a.base_ms: has to be at most"),
        (
            "engine.mock.targets",
            {"a": {"base_ms": 0, "token_ms": 0}},
            "engine.mock.targets.a: a forward pass takes no time",
        ),
    ],
)
def test_what_was_not_meant_is_refused_where_it_stands(key: str, value: Any, said: str) -> None:
    assert said in told(put(FULL, key.split("."), value))

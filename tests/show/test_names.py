"""Arms have names that people can read, and no two arms of a target have the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmeter.experiments.file import load
from specmeter.messages import LANGUAGES, words
from specmeter.record import Arm, EngineSettings
from specmeter.show.names import METHODS, PARAMETERS, SETTINGS, Names, label


def arm(arm_id: str = "", **fields: Any) -> Arm:
    methods = fields.setdefault("methods", ("draft-simple",) if "draft" in fields else ("none",))
    fields.setdefault("role", "baseline" if methods == ("none",) else "speculative")
    fields.setdefault("engine", EngineSettings(**fields.pop("settings", {})))
    return Arm(id=arm_id or f"t/{'+'.join(methods)}", target="t", **fields)


def named(*arms: Arm, language: str = "en") -> list[str]:
    names = Names(arms)
    return [words(language).render(names[it.id]) for it in arms]


def test_what_distinguishes_arms_is_said_and_nothing_else() -> None:
    same = {"threads": 2}
    plain, drafting = (
        arm("t/none", settings=same),
        arm("t/draft-simple/small/g4", draft="small", gamma=4, settings=same),
    )
    small = "draft model small, 4 draft tokens"
    assert named(plain, drafting) == ["no speculation", small]
    far = arm("t/draft-simple/small/g4/context=8192", draft="small", gamma=4, settings={**same, "context": 8192})
    assert named(plain, drafting, far)[1:] == [small, f"{small}, context 8192"]
    wide = arm("t/none/context=8192", settings={**same, "context": 8192})
    other = arm("t/ngram-simple", methods=("ngram-simple",), gamma=8, settings={**same, "context": 8192})
    assert named(plain, wide, other) == [
        "no speculation",
        "no speculation, context 8192",
        "ngram-simple, n-max 8, context 8192",
    ]
    heads = [arm(f"t/draft-eagle3/{it}", methods=("draft-eagle3",), draft=it, gamma=4) for it in ("one", "two")]
    assert named(*heads) == ["EAGLE-3, 4 draft tokens, draft model one", "EAGLE-3, 4 draft tokens, draft model two"]
    lookups = [arm(f"t/ngram-simple/n{n}", methods=("ngram-simple",), gamma=8, ngram_n=n) for n in (3, 6)]
    assert named(*lookups) == ["ngram-simple, n-max 8, n-match 3", "ngram-simple, n-max 8, n-match 6"]
    hits = [arm(f"t/ngram-map-k4v/{n}", methods=("ngram-map-k4v",), gamma=8, ngram_min_hits=n) for n in (1, 2)]
    assert [it.rpartition(", ")[2] for it in named(*hits)] == ["min-hits 1", "min-hits 2"]


def test_an_id_of_no_arm_is_told_without_its_target() -> None:
    assert Names()["moe/draft-simple/small/g8"] == "draft-simple/small/g8"
    assert Names()["alone"] == label("alone") == "alone"


def test_every_part_of_a_name_has_words() -> None:
    known = words("en").text
    switches = {name for name, field in EngineSettings.model_fields.items() if field.annotation in (bool, bool | None)}
    assert {f"arm.{name}" for name in PARAMETERS} <= set(known)
    for name in SETTINGS:
        assert ({f"setting.{name}.on", f"setting.{name}.off"} if name in switches else {f"setting.{name}"}) <= set(
            known
        )


@pytest.mark.parametrize(
    "name",
    [
        "demo",
        "advised",
        "load-demo",
        "methods-demo",
        "real-demo",
        "open-sampled",
        "open-contexts",
        "open-moe-drafts",
        "apple-sd",
        "moe-306",
    ],
)
def test_arms_of_bundled_experiments_have_short_names_of_their_own(name: str) -> None:
    arms = load(name).experiment.expand()
    for language in LANGUAGES:
        names = Names(arms)
        shown = [(it.target, words(language).render(names[it.id])) for it in arms]
        assert max(Counter(shown).values()) == 1
        assert max(len(text) for _, text in shown) <= 70


TEXTS = st.sampled_from(["small", "large", "draft", "no speculation", "x (1)", "x", "1", "\u202e", "\u202d"])
NUMBERS = st.none() | st.integers(1, 3)
ARMS = st.builds(
    lambda methods, role, fields, settings: Arm(
        id="-", target="t", methods=methods, role=role, engine=EngineSettings(**settings), **fields
    ),
    st.sampled_from(
        [
            ("none",),
            *((name,) for name in METHODS),
            ("ngram-simple",),
            ("ngram-map-k4v",),
            ("draft-simple",),
            ("ngram-mod", "draft-simple"),
            ("own",),
        ]
    ),
    st.sampled_from(["baseline", "speculative", "control"]),
    st.fixed_dictionaries(
        {},
        optional={
            "draft": TEXTS,
            "gamma": NUMBERS,
            "gamma_min": NUMBERS,
            "ngram_n": NUMBERS,
            "ngram_min_hits": NUMBERS,
            "p_min": st.none() | st.sampled_from([0.0, 0.5, 0.75]),
            "policy": st.sampled_from([None, "adaptive", "own"]),
            "rule": st.sampled_from([None, "rejection", "sample-match"]),
            "workloads": st.sampled_from([(), ("edit",), ("edit", "text")]),
            "synthetic_rates": st.sampled_from([(), (1.0, 1.0), (0.0,), (0.5, 0.25)]),
            "baseline_id": st.sampled_from([None, "t/none"]),
        },
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "context": st.sampled_from([2048, 4096]),
            "kv_type_k": st.sampled_from([None, "q8_0"]),
            "mmap": st.sampled_from([None, True, False]),
            "rpc": st.sampled_from([(), ("relay:1ms",), ("host:1",)]),
            "options": st.sampled_from([{}, {"a": 1}, {"a": "1"}, {"b": [1]}]),
        },
    ),
)


@given(st.lists(st.tuples(ARMS, TEXTS), max_size=12))
def test_names_are_unique_within_a_target(drawn: list[tuple[Arm, str]]) -> None:
    """Whatever arms there are, and whatever their ids: only these are known to differ."""
    arms = [it.model_copy(update={"id": f"t/{text}{'/' * at}"}) for at, (it, text) in enumerate(drawn)]
    for language in LANGUAGES:
        found = named(*arms, language=language)
        assert len(set(found)) == len(found)
        assert all(found)

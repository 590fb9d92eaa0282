"""Settings with which llama.cpp silently drafts nothing or otherwise than asked: told beforehand, and true of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.llama_fixtures import arm, launch, prompt
from specmeter.engines import load_engine
from specmeter.engines.llama_cpp.draft_rules import DraftLimit, NgramLookup, Room, draft_limits
from specmeter.messages import Message
from specmeter.record import Generation

WIDE, SHORT = Room(answer=300, text=500), Room(answer=10, text=99)


UNLESS = {name: Message("drafter-idle.unless", field=name) for name in ("gamma", "ngram_n")}


def told(room: Room = WIDE, *, instrumented: bool = False, **fields: Any) -> list[DraftLimit]:
    return list(draft_limits(arm(**fields), room, instrumented=instrumented))


@pytest.mark.parametrize("instrumented", [False, True])
@pytest.mark.parametrize(
    ("fields", "n", "m"),
    [({"gamma": 5, "ngram_n": 6}, 6, 5), ({"gamma": 8}, 12, 8), ({"ngram_n": 50}, 50, 48)],
)
def test_a_lookup_that_discards_every_draft(fields: dict[str, Any], n: int, m: int, instrumented: bool) -> None:
    (limit,) = told(methods=("ngram-simple",), instrumented=instrumented, **fields)
    assert limit[:2] == ("ngram-simple", True)
    unless = {f"unless_{name}": "" if name in fields else said for name, said in UNLESS.items()}
    assert limit.told == Message("drafter-idle.short_lookups", ngram_n=n, gamma=m, **unless)
    assert limit.fix == Message("drafter-idle.fix_short_lookups", ngram_n=n, gamma=m)


@pytest.mark.parametrize(
    "fields",
    [
        {"methods": ("ngram-simple",), "gamma": 6, "ngram_n": 6},
        {"methods": ("ngram-map-k",), "gamma": 5, "ngram_n": 6},
        {"methods": ("ngram-map-k4v",), "gamma": 5, "ngram_n": 6, "ngram_min_hits": 3},
        {"methods": ("ngram-mod",), "gamma": 8, "gamma_min": 2, "ngram_n": 3},
        {"methods": ("ngram-mod",), "gamma": 64, "gamma_min": 48},
        {"methods": ("ngram-cache",)},
        {"methods": ("draft-simple",), "draft": "d", "gamma": 4, "gamma_min": 4},
        {"methods": ("draft-simple",), "draft": "d", "gamma_min": 3},
        {},
    ],
)
def test_what_does_what_it_was_asked_to(fields: dict[str, Any]) -> None:
    assert told(**fields) == []


@pytest.mark.parametrize(
    ("fields", "room", "never", "what", "value"),
    [
        ({"methods": ("ngram-simple",), "ngram_n": 4, "gamma": 8}, Room(20, 14), True, "short_texts", 15),
        ({"methods": ("ngram-map-k",), "ngram_n": 4, "gamma": 8}, Room(20, 16), True, "short_texts", 17),
        ({"methods": ("ngram-mod",), "gamma_min": 0}, Room(80, 24), True, "short_texts", 25),
        ({"methods": ("draft-simple",), "draft": "d", "gamma_min": 4}, WIDE, True, "gamma_min", 3),
        ({"methods": ("draft-simple",), "draft": "d", "gamma": 9, "gamma_min": 9}, SHORT, True, "gamma_min_answers", 8),
        ({"methods": ("draft-simple",), "draft": "d", "gamma": 4}, Room(2, 99), True, "short_answers", 2),
        ({"methods": ("draft-simple",), "draft": "d", "gamma": 9}, SHORT, False, "gamma", 8),
        ({"methods": ("ngram-mod",), "gamma": 8}, WIDE, False, "ngram_mod", 8),
        ({"methods": ("ngram-map-k",), "ngram_min_hits": 2}, WIDE, False, "min_hits", None),
        ({"methods": ("ngram-simple",), "engine": {"batch": 32}}, WIDE, False, "server_batch", 48),
    ],
)
def test_what_a_server_does_silently(
    fields: dict[str, Any], room: Room, never: bool, what: str, value: int | None
) -> None:
    (limit,) = told(room, **fields)
    assert limit[:2] == (fields["methods"][0], never)
    assert limit.told.code == f"drafter-idle.{what}"
    values = limit.told.values
    assert values.get("longest", values.get("needed", values.get("answer"))) == value


def test_the_instrumented_engine_has_rules_of_its_own() -> None:
    """It discards short drafts of lookups too; llama.cpp's server does so with those of models alone."""
    both = {"methods": ("ngram-simple", "draft-simple"), "draft": "d", "ngram_n": 3, "gamma": 8, "gamma_min": 5}
    (limit,) = told(instrumented=True, **both)
    assert limit[:2] == ("ngram-simple", False)
    assert limit.told == Message("drafter-idle.gamma_min_lookups", gamma_min=5)
    assert told(**both) == []
    batch = {"methods": ("draft-simple",), "draft": "d", "gamma": 8, "engine": {"batch": 8}}
    (limit,) = told(instrumented=True, **batch)
    assert not limit.never
    assert limit.told == Message("drafter-idle.batch", method="draft-simple", longest=7, batch=8)
    assert limit.fix == Message("drafter-idle.fix_batch", batch=9)
    lookup = {"methods": ("ngram-simple",), "ngram_n": 3, "gamma": 9, "gamma_min": 9}
    (limit,) = told(SHORT, instrumented=True, **lookup)
    assert limit.never
    assert limit.told.values["gamma_min"] == 9


def test_one_method_of_two_may_be_idle() -> None:
    both = {"methods": ("ngram-simple", "draft-simple"), "draft": "d", "gamma": 8}
    assert [limit[:2] for limit in told(**both)] == [("ngram-simple", True)]


@given(st.integers(1, 9), st.integers(1, 9), st.lists(st.integers(0, 1), max_size=40))
def test_a_lookup_that_never_drafts_really_does_not(n: int, gamma: int, text: list[int]) -> None:
    """The instrumented engine's lookup is llama.cpp's, token for token."""
    fields = {"methods": ("ngram-simple",), "ngram_n": n, "gamma": gamma}
    never = any(limit[1] for limit in told(Room(len(text) + 3, len(text)), instrumented=True, **fields))
    lookup = NgramLookup(n, gamma)
    drafted = [lookup.draft(text[: at + 1], gamma) for at in range(len(text))]
    if never:
        assert not any(drafted)
    repeated = NgramLookup(n, gamma).draft([*range(20)] * 3, gamma)
    assert bool(repeated) == (gamma >= n), (
        "twenty tokens again and again: every n-gram has a match, and enough after it"
    )


@pytest.mark.parametrize("kind", ["embedded", "libllama"])
@pytest.mark.parametrize(("gamma", "drafts"), [(2, False), (3, True)])
def test_the_engine_itself_discards_them(tmp_path: Path, kind: str, gamma: int, drafts: bool) -> None:
    fields = {"methods": ("ngram-simple",), "ngram_n": 3, "gamma": gamma}
    assert bool(drafted(tmp_path, kind, **fields)) == drafts
    assert any(limit[1] for limit in told(instrumented=kind == "libllama", **fields)) != drafts


@pytest.mark.parametrize(("method", "reads"), [("ngram-map-k", False), ("ngram-map-k4v", True)])
def test_which_lookup_reads_how_often_an_n_gram_was_seen(tmp_path: Path, method: str, reads: bool) -> None:
    once, never = ({"methods": (method,), "ngram_n": 3, "gamma": 4, "ngram_min_hits": hits} for hits in (1, 1000))
    assert drafted(tmp_path / "once", "embedded", **once) > 0
    assert (drafted(tmp_path / "never", "embedded", **never) == 0) == reads
    assert bool(told(**once)) != reads


def drafted(folder: Path, kind: str, **fields: Any) -> int:
    """Tokens that an engine drafts for a text that repeats itself."""
    with load_engine(kind).start(launch(folder, arm(**fields))) as session:
        return session.generate(prompt(), Generation(max_tokens=60, ignore_eos=True)).timings.draft_n or 0

"""Variants of an experiment file: what they change, what the run holds, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from specmeter.cli import invoke
from specmeter.errors import ExperimentError
from specmeter.experiments.file import bundled, load
from specmeter.laboratory.run import choose_folder, prepare
from specmeter.store import RunStore

FILE = """
name: mine
targets: {a: "mock:dense", b: "mock:moe"}
drafts: {small: "mock:small"}
arms: [{draft: small, gamma: [2, 4]}]
workloads: [{source: bench, kinds: [fact, code], per_kind: 1}]
engine: {kind: mock, threads: 2}
generation: {max_tokens: 16}
variants:
  one: {targets: {b: null}, design: {blocks: 2}, arms: [{method: ngram-simple}]}
  two: {design: {order: williams}, engine: {threads: null}}
  faithful: {design: {order: grouped}}
  broken: {design: {bloks: 3}}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(FILE, encoding="utf-8")
    return str(path)


def changed(text: str, **changes: Any) -> str:
    return yaml.safe_dump(yaml.safe_load(text) | changes)


def test_without_a_choice_nothing_changes(file: str) -> None:
    loaded = load(file)
    assert loaded.text == FILE
    assert loaded.variants == ("one", "two", "faithful", "broken")
    assert (loaded.experiment.applied, loaded.experiment.variants) == ((), {})
    assert list(loaded.experiment.targets) == ["a", "b"]


def test_mappings_are_merged_lists_replaced_and_null_removes(file: str) -> None:
    experiment = load(file, variants=["one", "two"]).experiment
    assert list(experiment.targets) == ["a"]
    assert [arm.method for arm in experiment.arms] == ["ngram-simple"]
    assert (experiment.design.blocks, experiment.design.order) == (2, "williams")
    assert experiment.engine.threads is None
    assert experiment.engine.kind == "mock"
    assert experiment.applied == ("one", "two")


def test_later_variants_and_overrides_win(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    variants = {"two": {"design": {"blocks": 2}}, "five": {"design": {"blocks": 5}}}
    path.write_text(changed(FILE, variants=variants), encoding="utf-8")
    assert load(str(path), variants=["two", "five"]).experiment.design.blocks == 5
    assert load(str(path), variants=["five", "two"]).experiment.design.blocks == 2
    assert load(str(path), ["design.blocks=9"], variants=["five"]).experiment.design.blocks == 9
    assert load(str(path), variants=["five", "five"]).experiment.applied == ("five",)


def test_a_variant_changes_what_is_chosen_after_it(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    real = {"targets": {"b": "mock:dense"}, "variants": {"quick": {"targets": None, "design": {"blocks": 3}}}}
    quick = {"targets": {"a": None}, "design": {"blocks": 2, "order": "grouped"}}
    path.write_text(changed(FILE, variants={"real": real, "quick": quick}), encoding="utf-8")
    after = load(str(path), variants=["real", "quick"]).experiment
    assert (after.targets, after.design.blocks) == ({"a": "mock:dense", "b": "mock:dense"}, 3)
    assert after.design.order == "grouped"
    before = load(str(path), variants=["quick", "real"]).experiment
    assert (before.targets, before.design.blocks) == ({"b": "mock:dense"}, 2)
    assert after.variants == before.variants == {}


def test_what_it_became_can_be_loaded_and_is_the_same(file: str, tmp_path: Path) -> None:
    loaded = load(file, ["design.seed=7"], variants=["two", "one"])
    again = tmp_path / "again.yaml"
    again.write_text(loaded.text, encoding="utf-8")
    reloaded = load(str(again))
    assert reloaded.experiment == loaded.experiment
    assert reloaded.experiment.applied == ("two", "one")
    assert reloaded.variants == ()
    assert reloaded.experiment.model_dump_json() == loaded.experiment.model_dump_json()


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        (["nope"], "no such variant 'nope'"),
        (["broken"], r"design\.bloks: unknown key; did you mean 'blocks'"),
        (["\x1b[31m" + "x" * 1000], "no such variant"),
    ],
)
def test_choices_that_are_refused(file: str, variants: list[str], message: str) -> None:
    with pytest.raises(ExperimentError, match=message) as caught:
        load(file, variants=variants)
    assert len(str(caught.value)) < 500
    assert "one, two" in caught.value.fix or "schema" in caught.value.fix


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ([], "variants: "),
        ({"one": 3}, r"variants\.one"),
        ({"one": None}, r"variants\.one"),
        ({"a b": {}}, r"variants\.a b"),
        ({1: {}}, r"variants\.1"),
        ({"one": {"variants": 3}}, r"variants\.one\.variants: has to have changes to one"),
        ({"one": {"variants": {"two": {}}}}, r"variants\.one\.variants: has to have changes to one"),
        ({"one": {"applied": ["x"]}}, r"variants\.one\.applied: a variant cannot change this key"),
        ({f"v{number}": {} for number in range(65)}, "variants: "),
    ],
)
def test_sections_that_are_refused(tmp_path: Path, variants: Any, message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(changed(FILE, variants=variants), encoding="utf-8")
    with pytest.raises(ExperimentError, match=message):
        load(str(path))


def test_aliases_are_not_changed_together(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    text = FILE.replace("engine: {kind: mock, threads: 2}", "engine: &e {kind: mock, threads: 2}")
    path.write_text(text.replace("two: {", "two: {engine: *e, "), encoding="utf-8")
    with pytest.raises(ExperimentError, match="duplicate key"):
        load(str(path))
    path.write_text(text + "  same: {engine: *e}\n  more: {engine: {threads: 4}}\n", encoding="utf-8")
    assert load(str(path), variants=["same"]).experiment == load(str(path)).experiment.model_copy(
        update={"applied": ("same",)}
    )
    assert load(str(path), variants=["more", "same"]).experiment.engine.threads == 2


@pytest.mark.parametrize("override", ["variants.one.name=x", "applied=[one]"])
def test_overrides_choose_no_variants(file: str, override: str) -> None:
    with pytest.raises(ExperimentError, match="a variant cannot be set like this"):
        load(file, [override])


def test_bundled_variants_are_valid() -> None:
    """Alone, or after `bench`, which some of them are meant to follow."""
    for name, found in bundled().items():
        for variant in found.variants:
            chain = ["bench", variant] if variant == "quick" and "bench" in found.variants else [variant]
            assert len(load(name, variants=chain).experiment.expand()) > 1, (name, variant)


VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abc"), VALUES), st.dictionaries(st.sampled_from("abc"), VALUES))
def test_merging_changes_nothing_that_was_given_and_settles(base: dict[str, Any], change: dict[str, Any]) -> None:
    from specmeter.experiments.file import _merged  # pyright: ignore[reportPrivateUsage]

    before = json.dumps([base, change])
    once = _merged(base, change)
    assert _merged(once, change) == once
    assert json.dumps([base, change]) == before
    assert {key for key, value in change.items() if value is None}.isdisjoint(once)
    assert all(once[key] == value for key, value in base.items() if key not in change)


# --- runs ------------------------------------------------------------------------------------------------------------


def test_a_variant_run_resumes_only_itself(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    faults = "engine.mock.faults=[{kind: dies, block: 1}]"
    folder = Path("specmeter-runs/mine-20260101-000000")
    assert invoke(["run", file, "--variant", "one", "--set", faults, "--out", str(folder)]) == 3
    with RunStore.open(folder, readonly=True) as store:
        kept = store.experiment_json
    assert json.loads(kept)["applied"] == ["one"]
    assert choose_folder("mine", kept) == (folder, True)

    def asked(variants: list[str]) -> str:
        return prepare(load(file, [faults], variants=variants)).experiment.model_dump_json()

    for variants in ([], ["two"], ["one", "two"]):
        _, resumed = choose_folder("mine", asked(variants))
        assert not resumed
    assert choose_folder("mine", asked(["one"]))[1]

"""The benchmark on unseen results counts what it says it counts."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TABLE = "config,tok_s,baseline_tok_s,speedup\none,60,40,1.50\ntwo,80,40,2.00\n"
FALSE = "config,tok_s,baseline_tok_s,speedup\none,60,40,1.50\nodd,60,40,2.90\n"
ITEMS = [
    {"file": "true.csv", "true": True, "twin": {"old": "80,", "new": "140,", "catchable": True, "kind": "rate raised"}},
    {"file": "false.csv", "true": False, "false_rows": ["odd"], "twin": None},
    {"file": "words.txt", "true": True, "twin": {"old": "Nothing", "new": "No", "catchable": False}, "layout": "words"},
]


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("audit_unseen")


def test_items_and_twins_are_counted(unseen: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "items").mkdir()
    for name, text in (("true.csv", TABLE), ("false.csv", FALSE), ("words.txt", "Nothing to see.\n")):
        (tmp_path / "items" / name).write_text(text, encoding="utf-8")
    (tmp_path / "items.yaml").write_text(yaml.safe_dump(ITEMS), encoding="utf-8")
    outcomes = unseen.audit_all(unseen.read_items(tmp_path), ROOT)
    assert {what: told.split(" (")[0] for what, told in unseen.figures(outcomes).items()} == {
        "items of which no row was read": "1 of 3",
        "true rows refused": "0 of 3",
        "of these called impossible": "0",
        "items with a true row refused": "0 of 3",
        "published false rows refused": "1 of 1",
        "twins refused": "1 of 2",
        "of those that arithmetic can show": "1 of 1",
    }
    assert unseen.misses(outcomes) == ["- words: `words.txt`: not read"]


def test_an_edit_that_does_not_fit_is_refused(unseen: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "items").mkdir()
    (tmp_path / "items" / "true.csv").write_text(TABLE, encoding="utf-8")
    item = {"file": "true.csv", "true": True, "twin": {"old": "40", "new": "30", "catchable": True}}
    (tmp_path / "items.yaml").write_text(yaml.safe_dump([item]), encoding="utf-8")
    with pytest.raises(SystemExit, match="'40' is there 2 times, must be once"):
        unseen.read_items(tmp_path)


def test_a_share_comes_with_its_interval(unseen: ModuleType) -> None:
    assert unseen.share(4, 65) == "4 of 65 (6.2% [2.4, 15])"
    assert unseen.wilson(0, 0) == (0.0, 1.0)

"""A column of acceptance whose unit is not said: it is read as what accuses no row that can be true."""

from __future__ import annotations

from pathlib import Path

from specmeter.audit.claim import Claim
from specmeter.audit.read.options import TableOptions
from specmeter.audit.reading import Audit, read_claims, row_defaults, rule


def audited(folder: Path, *rows: str) -> Audit:
    path = folder / "table.csv"
    path.write_text("\n".join(["baseline_tok_s,tok_s,gamma,acceptance", *rows]) + "\n", encoding="utf-8")
    form, claims = read_claims(path, None, TableOptions())
    return rule(claims, "table.csv", form)


def test_a_column_that_would_be_false_throughout_as_percent_is_fractions(tmp_path: Path) -> None:
    audit = audited(tmp_path, "40,60,2,0.80", "41,70,4,0.60", "40,64,3,0.65")
    assert [ruling.verdict for ruling in audit.rulings] == ["possible"] * 3


def test_then_one_row_that_is_false_as_a_fraction_is_found(tmp_path: Path) -> None:
    audit = audited(tmp_path, "40,60,2,0.80", "41,70,4,0.60", "40,150,3,0.65", "40,66,4,0.55")
    assert [ruling.verdict for ruling in audit.rulings] == ["possible", "possible", "implausible", "possible"]


def test_losses_are_possible_in_either_unit(tmp_path: Path) -> None:
    audit = audited(tmp_path, "40,30,2,0.80", "40,31,4,0.60", "40,39,3,0.65")
    assert [ruling.verdict for ruling in audit.rulings] == ["possible"] * 3


def test_what_the_user_says_holds_in_every_reading() -> None:
    """With 2 drafts per step 9.5x is impossible, whichever column acceptance is."""
    rival = Claim(source="x", row="line 1", speedup=9.5)
    claim = Claim(source="x", row="line 1", speedup=9.5, acceptance=0.5, rivals=((rival,),))
    audit = rule([claim], "x", "table", row_defaults(gamma=2))
    assert [it.verdict for it in audit.rulings] == ["implausible"]
    assert rule([claim], "x", "table").asked == {("gamma",): 1}

"""Everything that is ruled about published numbers, as it was last agreed upon: no ruling changes by accident.

`tests/data/rulings.json` holds the audit's ruling of every published row and what every study says of its document's
own numbers. After a deliberate change `uv run python tests/audit/test_rulings.py` writes it anew; read its diff.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import specmeter_studies as studies
from specmeter.audit import published
from specmeter.audit.reading import published as audited
from specmeter.record import Estimate
from specmeter_studies.study import StudyCell

SNAPSHOT = Path(__file__).parents[1] / "data" / "rulings.json"


def of_rows(name: str) -> list[str]:
    """`source | row | label | verdict | bound | arithmetic and needs`, one per published row."""
    return [
        " | ".join((it.claim.source, it.claim.row, it.claim.label, it.verdict, it.bound, str(it.reason)))
        for it in audited(name).rulings
    ]


def of_claims(name: str) -> list[dict[str, Any]]:
    """What a study says of its document's claims, from the document's own numbers; nothing where it printed none. What
    is said stands there by its code and values, whatever its words."""
    data = studies.find(name).published()
    if data is None:
        return []
    return [
        {key: _unworded(value) for key, value in it.model_dump(mode="json").items() if key not in ("claim", "where")}
        for it in studies.findings(name, data).claims
    ]


def _unworded(value: Any) -> Any:
    return {key: it for key, it in value.items() if key != "text"} if isinstance(value, dict) else value


def of_tables(name: str) -> dict[str, list[str]]:
    """A study's tables from its document's numbers: key -> rows as they read."""
    data = studies.find(name).published()
    if data is None:
        return {}
    return {
        table.key: [" | ".join(map(str, table.columns)), *(" | ".join(map(_read, row)) for row in table.rows)]
        for table in studies.findings(name, data).tables
    }


def _read(cell: StudyCell) -> str:
    value = cell.value
    if value is None:
        return str(cell.text)
    if not isinstance(value, Estimate):
        told = f"{value:.{cell.digits}f}"
    elif value.low is None or value.high is None:
        told = f"{value.point:.{cell.digits}f}"
    else:
        told = f"{value.point:.{cell.digits}f} [{value.low:.{cell.digits}f}, {value.high:.{cell.digits}f}]"
    return f"~~{told}~~" if cell.struck else told


def snapshot() -> dict[str, Any]:
    """All of it."""
    return {
        "rows": {name: of_rows(name) for name in published.names()},
        "claims": {name: of_claims(name) for name in studies.names()},
        "tables": {name: of_tables(name) for name in studies.names()},
    }


def agreed() -> dict[str, Any]:
    return json.loads(SNAPSHOT.read_text(encoding="utf-8"))


def rounded(value: Any) -> Any:
    """Without the last digits, which differ from processor to processor."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", published.names())
def test_rows_are_ruled_as_agreed(name: str) -> None:
    assert rounded(of_rows(name)) == rounded(agreed()["rows"][name])


@pytest.mark.parametrize("name", studies.names())
def test_claims_are_ruled_as_agreed(name: str) -> None:
    assert rounded(of_claims(name)) == rounded(agreed()["claims"][name])


@pytest.mark.parametrize("name", studies.names())
def test_an_undecided_claim_says_in_one_sentence_what_would_decide_it(name: str) -> None:
    data = studies.find(name).published()
    claims = () if data is None else studies.findings(name, data).claims
    for claim in claims:
        asked = claim.would_decide
        assert (asked is not None) == (claim.ruling == "cannot tell"), claim.id
        assert str(claim.told) == (str(claim.found) if asked is None else f"{claim.found} Would decide: {asked}")
        assert asked is None or (len(str(asked).split()) <= 25 and str(asked).count(". ") == 0), claim.id


@pytest.mark.parametrize("name", studies.names())
def test_tables_read_as_agreed(name: str) -> None:
    assert rounded(of_tables(name)) == rounded(agreed()["tables"][name])


def test_nothing_agreed_upon_is_gone() -> None:
    assert {part: list(named) for part, named in agreed().items()} == {
        "rows": list(published.names()),
        "claims": list(studies.names()),
        "tables": list(studies.names()),
    }


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(snapshot(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

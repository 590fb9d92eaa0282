"""How columns were read is said: what is in doubt as a question, the rest with --details and in JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from specmeter.audit.claim import Claim, ColumnRead
from specmeter.audit.read.options import TableOptions, table_options
from specmeter.audit.reading import Audit, read_rows, rule
from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.show import audit_report
from specmeter.show.terminal.report import print_report

COLUMNS = (
    ColumnRead(heading="tok/s", meaning="decode_rate", certainty=0.99),
    ColumnRead(heading="tok/s", slot="%", meaning="acceptance", certainty=0.62),
    ColumnRead(heading="Peak tok/s", meaning="ignore", certainty=0.9),
    ColumnRead(heading="VRAM", meaning="ignore", certainty=0.97),
    ColumnRead(heading="rate (t/s)", slot="%", meaning="ignore", certainty=0.9),
)


def audited(*columns: ColumnRead) -> Audit:
    claims = read_rows([{"speedup": 1.9, "gamma": 4, "acceptance": "70%"}], TableOptions())
    return rule((it.model_copy(update={"columns": columns}) for it in claims), "a.md", "table")


@pytest.fixture
def audit() -> Audit:
    return audited(*COLUMNS)


def printed(audits: list[Audit], capsys: pytest.CaptureFixture[str], *, details: bool = False) -> str:
    print_report(audit_report.report(audits, details=details), details=details)
    return capsys.readouterr().out


def test_what_is_in_doubt_is_asked_with_the_option_that_settles_it(
    audit: Audit, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed([audit], capsys)
    assert "  tok/s [%]: acceptance, 62% certain. Is this right? Then add --column 'tok/s [%]=acceptance'\n" in out
    assert "VRAM" not in out
    assert "tok/s: decode rate" not in out


def test_details_say_how_every_column_was_read(audit: Audit, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed([audit], capsys, details=True)
    assert "  tok/s: decode rate\n" in out
    assert "  VRAM: not read\n" in out


def test_what_is_certain_asks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert "How it was read" not in printed([audited(COLUMNS[0])], capsys)


def test_columns_of_several_tables_that_are_alike_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed([audited(COLUMNS[1], COLUMNS[1].model_copy(update={"certainty": 0.7}))], capsys)
    assert out.count("tok/s [%]: acceptance") == 1


def test_the_headline_names_speeds_and_rows_that_were_not_read(
    audit: Audit, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed([audit], capsys).startswith("a.md (table): 1 row: 1 possible; speeds not read: Peak tok/s\n")
    claims = list(read_rows([{"speedup": "1.9", "gamma": 4}], TableOptions()))
    claims.append(Claim(source="b", row="line 2", problem=Message("unread.json.no_object")))
    assert str(rule(claims, "b", "table").summary) == "2 rows: 1 undecided, 1 not read"


def test_json_has_all_columns(audit: Audit) -> None:
    columns = cast("Any", audit_report.report([audit]).document())["sources"][0]["columns"]
    assert columns[1] == {
        "heading": "tok/s",
        "slot": "%",
        "meaning": "acceptance",
        "certainty": 0.62,
    }
    assert json.dumps(columns)


def test_a_meaning_is_given_for_a_heading_or_for_one_of_the_numbers_in_its_cells() -> None:
    options = table_options({"tok/s": "decode_rate", "tok/s [%]": "acceptance"})
    assert options.meaning_of("tok/s") == "decode_rate"
    assert options.meaning_of("tok/s", "%") == "acceptance"
    assert options.meaning_of("TTFT") is None
    options.refuse_unknown(["tok/s", "tok/s [%]"], Path("a.md"))
    with pytest.raises(UsageError, match=r"a.md: --column tok/s \[%\]=acceptance: no such heading"):
        options.refuse_unknown(["tok/s"], Path("a.md"))

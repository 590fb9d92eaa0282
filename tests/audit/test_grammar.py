"""Headings as people write them: a quantity, a unit and a side, in any order, or a unit in the cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from specmeter.audit.read.columns import understand
from specmeter.audit.read.infer_units import TableOptions
from specmeter.audit.reading import Audit, read_claims, rule
from specmeter.messages import Message


def audited(folder: Path, text: str) -> Audit:
    path = folder / ("table.json" if text.startswith("[") else "table.html" if text.startswith("<") else "table.md")
    path.write_text(text, encoding="utf-8")
    form, claims = read_claims(path, None, TableOptions())
    return rule(claims, "table", form)


def table(*rows: str) -> str:
    first, *rest = ("| " + " | ".join(cell.strip() for cell in row.split("|")) + " |" for row in rows)
    return "\n".join([first, "|" + "---|" * (first.count("|") - 1), *rest]) + "\n"


def pair(plain: str, drafts: str, cells: tuple[str, str] = ("20.0", "60.0")) -> str:
    """3.0x at two tokens per draft, of which half are accepted: at most 2.0 can be true."""
    return table(f"Model|{plain}|{drafts}|n_max|acceptance", f"Q|{cells[0]}|{cells[1]}|2|50%")


def rows(headings: str, plain: str, drafts: str) -> str:
    """The same with its baseline in a row of its own."""
    return table(headings, plain, drafts)


RATES = ("20.0 t/s", "60.0 t/s")
TIMES = ("50.0", "16.67")
FALSE = {
    "unit behind": rows("Config|Decode (tok/s)|n_max|acceptance", "baseline|20.0||", "draft|60.0|2|50%"),
    "unit in cells": rows("Config|decode|n_max|acceptance", "baseline|20.0 t/s||", "draft|60.0 t/s|2|50%"),
    "unit in cells, longer": rows("Config|Decode|n_max|acceptance", "baseline|17.73 tok/s||", "draft|53.2 tok/s|2|50%"),
    "output speed": rows("Setup|Output speed|k|accept rate", "no spec|20.0 tok/s||", "spec|60.0 tok/s|2|50%"),
    "tpot rows": rows("Config|TPOT (ms)|n_max|acceptance", "baseline|50.0||", "draft|16.67|2|50%"),
    "n, plain 0": rows("Config|n|tok/s|acceptance", "baseline|0|20.0|", "draft|2|60.0|50%"),
    "n, plain dash": rows("Config|n|tok/s|accept", "baseline|-|20.0|-", "draft|2|60.0|50%"),
    "n grows": table("Model|n|tok/s off|tok/s on|accept", "Q|1|20|31|60%", "Q|2|20|60|50%", "Q|4|20|32|30%"),
    "ttft beside": rows("Config|TTFT (ms)|Decode (tok/s)|k|acceptance", "baseline|100|20.0|0|", "mtp|110|60.0|2|50%"),
    "off, on": pair("tok/s off", "tok/s on"),
    "off first": pair("off tok/s", "on tok/s"),
    "off in parentheses": pair("tok/s (off)", "tok/s (on)"),
    "unit in parentheses": pair("Off (t/s)", "On (t/s)"),
    "side and unit in parentheses": pair("Generation (baseline, t/s)", "Generation (MTP, t/s)"),
    "without draft": pair("without draft (t/s)", "with draft (t/s)"),
    "without draft, unit in cells": pair("without draft", "with draft", RATES),
    "w/o": pair("tok/s w/o", "tok/s w/"),
    "w/o spec": pair("tok/s w/o spec", "tok/s w/ spec"),
    "MTP off": pair("MTP off", "MTP on", RATES),
    "AR": pair("AR tok/s", "SD tok/s"),
    "vanilla": pair("Vanilla (tok/s)", "Speculative (tok/s)"),
    "plain": pair("plain", "speculative", RATES),
    "before": pair("before (tok/s)", "after (tok/s)"),
    "decode off": pair("decode off", "decode on", RATES),
    "TG": pair("TG off", "TG on"),
    "tokens per second": pair("Baseline tokens/sec", "With MTP tokens/sec"),
    "tpot off": pair("TPOT off (ms)", "TPOT on (ms)", TIMES),
    "tpot of sides": pair("Baseline TPOT", "Spec TPOT", ("50.0 ms", "16.67 ms")),
    "tpot in parentheses": pair("TPOT (baseline)", "TPOT (speculative)", ("50.0 ms", "16.67 ms")),
    "tpot of a method": pair("Baseline TPOT (ms)", "MTP TPOT (ms)", TIMES),
    "ms per token": pair("baseline ms/token", "speculative ms/token", TIMES),
    "ms/tok": pair("ms/tok off", "ms/tok on", TIMES),
    "latency per token": pair("latency per token, baseline (ms)", "latency per token, speculative (ms)", TIMES),
    "Chinese": table("模型|关闭 (tok/s)|开启 (tok/s)|草稿长度|接受率", "Q|20.0|60.0|2|50%"),
    "Chinese, unit in cells": table("模型|基线速度|推测速度|草稿长度|接受率", "Q|20.0 tok/s|60.0 tok/s|2|50%"),
    "percent": table("Model|n_max|change|acceptance", "Q|2|+200%|50%"),
    "num_speculative_tokens": table(
        "Model|spec off|spec on|num_speculative_tokens|acceptance", "Q|20.0 t/s|60.0 t/s|2|50%"
    ),
    "two levels": (
        "<table><tr><th rowspan=2>Model</th><th colspan=2>tok/s</th><th rowspan=2>n_max</th><th rowspan=2>acceptance"
        "</th></tr><tr><th>off</th><th>on</th></tr><tr><td>Q</td><td>20</td><td>60</td><td>2</td><td>50%</td></tr></table>"
    ),
    "names of fields": '[{"tps_off": 20.0, "tps_on": 60.0, "n_max": 2, "acceptance": 0.5}]',
    "fields in ms": '[{"tpot_off_ms": 50, "tpot_on_ms": 16.67, "num_speculative_tokens": 2, "acceptance_rate": 0.5}]',
}


@pytest.mark.parametrize("text", FALSE.values(), ids=FALSE.keys())
def test_a_false_claim_is_found_however_its_columns_are_called(text: str, tmp_path: Path) -> None:
    broken = [ruling for ruling in audited(tmp_path, text).rulings if ruling.broken]
    assert [ruling.bound for ruling in broken] == ["speedup-above-tau"]
    assert broken[0].claim.gamma == 2


QUANTITIES = ("VRAM (GB)", "TTFT (ms)", "Power (W)", "Prompt t/s", "Prefill", "pp512", "Accuracy", "GPU %", "J/token",
              "Load time (s)", "Perplexity", "Energy (J)", "req/s", "Memory", "Latency (s)")  # fmt: skip
SIDES = (("off", "on"), ("MTP off", "MTP on"), ("without draft", "with draft"), ("baseline", "speculative"))


@pytest.mark.parametrize("what", QUANTITIES)
def test_sides_of_other_quantities_are_no_rates(what: str, tmp_path: Path) -> None:
    for plain, drafts in SIDES:
        above = (
            f"<table><tr><th rowspan=2>Model</th><th colspan=2>{what}</th><th rowspan=2>n_max</th><th rowspan=2>"
            f"acceptance</th></tr><tr><th>{plain}</th><th>{drafts}</th></tr>"
            "<tr><td>Q</td><td>20</td><td>60</td><td>2</td><td>50%</td></tr></table>"
        )
        for text in (above, pair(f"{what} {plain}", f"{what} {drafts}"), pair(f"{plain} {what}", f"{drafts} {what}")):
            claims = [ruling.claim for ruling in audited(tmp_path, text).rulings]
            assert not any(claim.decode_rate or claim.baseline_rate or claim.speedup for claim in claims), text


def test_accepted_tokens_of_a_method_are_no_rate(tmp_path: Path) -> None:
    """`accepted/8` was read as tokens per second, and equal values as copied timings."""
    audit = audited(
        tmp_path,
        table("Context|base t/s|DFlash2 t/s|DFlash2 accepted/8", "1k|20|40|3.1", "4k|19|35|3.1", "8k|18|30|3.1"),
    )
    assert [ruling.claim.decode_rate for ruling in audit.rulings] == [40, 35, 30]
    assert audit.notes == ()


@pytest.mark.parametrize("unread", ["total tok/s", "mainline decode", "TPS of all"])
def test_speeds_that_are_not_read_are_named_in_the_headline(unread: str, tmp_path: Path) -> None:
    audit = audited(tmp_path, table(f"Model|{unread}|prompt tok/s|gamma|acceptance|note", "Q|20|300|2|50%|7"))
    assert audit.told.code == "audit.unread_speeds"
    assert audit.told.values["columns"] == [unread]
    assert "note" in str([str(note) for note in audit.rulings[0].claim.notes])


def test_an_n_that_may_count_samples_is_not_read(tmp_path: Path) -> None:
    audit = audited(tmp_path, table("Model|n|baseline tok/s|tok/s|acceptance", "Q|3|20|60|70%", "R|3|20|60|70%"))
    assert [ruling.claim.gamma for ruling in audit.rulings] == [None, None]
    assert Message("read.n_left") in audit.rulings[0].claim.notes


@pytest.mark.parametrize(
    ("text", "name", "unit"),
    [
        ("Decode (tok/s)", "decode_rate", ""),
        ("Decode (ms)", "predicted_ms", "ms"),
        ("Prefill (t/s)", "prompt_rate", ""),
        ("wall off (s)", "baseline_wall_ms", "s"),
        ("spec wall time (s)", "wall_ms", "s"),
        ("base avg pred t/s", "baseline_rate", ""),
        ("Speedup (MTP)", "speedup", "mtp"),
    ],
)
def test_a_heading_is_quantity_unit_and_side(text: str, name: str, unit: str) -> None:
    heading = understand(text)
    assert heading is not None
    assert (heading.name, heading.unit) == (name, unit)

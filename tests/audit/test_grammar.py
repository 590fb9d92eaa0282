"""Headings as people write them: a quantity, a unit and a side, in any order, or a unit in the cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from specmeter.audit.read.options import TableOptions
from specmeter.audit.reading import Audit, read_claims, rule


def audited(folder: Path, text: str) -> Audit:
    path = folder / (
        "table.json" if text.startswith(("[", "{")) else "table.html" if text.startswith("<") else "table.md"
    )
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
    "no draft, draft": pair("no draft (tok/s)", "draft (tok/s)"),
    "no draft, draft, unit in cells": pair("no draft", "draft", RATES),
    "baseline t/s, draft t/s": pair("baseline t/s", "draft t/s"),
    "ms/token of sides in parentheses": pair("ms/token (no draft)", "ms/token (draft)", TIMES),
    "counts in one cell": table("Draft|n_max|tok/s|accepted/drafted", "none|0|20|", "0.6B|2|60|150/300"),
    "length of a list": '{"gamma": 2, "results": [{"prompt": "a", "speedup": "3.0x", "acceptance": "50%"}]}',
    "length of a list with its baseline": (
        '{"n_max": 2, "results": [{"name": "baseline", "tps": 20.0}, '
        '{"name": "draft", "tps": 60.0, "acceptance": "50%"}]}'
    ),
    "walls with their change": table(
        "Prompt|gamma|acceptance|wall off (s)|wall on (s)|change", "code|2|50%|10.0|3.3|-67%"
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
              "Load time (s)", "Perplexity", "Energy (J)", "req/s", "Memory")  # fmt: skip
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


def test_an_n_that_may_count_samples_is_not_read(tmp_path: Path) -> None:
    audit = audited(tmp_path, table("Model|n|baseline tok/s|tok/s|acceptance", "Q|3|20|60|70%", "R|3|20|60|70%"))
    assert [ruling.claim.gamma for ruling in audit.rulings] == [None, None]
    assert [ruling.claim.rivals[0][0].gamma for ruling in audit.rulings] == [3, 3]


TPOT = ("TPOT off (ms)", "TPOT on (ms)")
OF_TIMES = {
    "change": table("|".join((*TPOT, "change")), "50.0|31.3|-37.4%", "40.0|30.0|-25%"),
    "delta": table("|".join((*TPOT, "Δ")), "50.0|31.3|−37%"),
    "delta in percent": table("|".join((*TPOT, "Δ%")), "50.0|31.3|-37"),
    "ratio": table("TPOT baseline (ms)|TPOT spec (ms)|vs baseline", "50|31.3|0.63x"),
    "reduction": table("|".join((*TPOT, "improvement")), "50.0|31.3|37%", "40.0|30.0|25%"),
    "gain": table("|".join((*TPOT, "gain")), "50.0|31.3|+60%"),
    "in the cell": table("Model|TPOT off|TPOT on", "Q|50.0 ms|31.3 ms (-37%)"),
    "baseline in a row": table("Config|TPOT (ms)|change", "baseline|50.0|-", "draft n-max 2|31.3|-37.4%"),
    "fields": '[{"baseline_tpot_ms": 50.0, "spec_tpot_ms": 31.3, "change": "-37.4%"}]',
    "walls": table("Prompt|wall off (s)|wall on (s)|change", "code|10.0|6.3|-37%"),
}


@pytest.mark.parametrize("text", OF_TIMES.values(), ids=OF_TIMES.keys())
def test_a_change_beside_times_may_be_that_of_the_time(text: str, tmp_path: Path) -> None:
    rulings = [ruling for ruling in audited(tmp_path, text).rulings if not ruling.claim.is_baseline]
    assert not any(ruling.broken or ruling.contradictions for ruling in rulings)
    assert rulings[0].claim.speedup is None or rulings[0].claim.speedup == pytest.approx(1.597, abs=0.02)


@pytest.mark.parametrize(
    "row",
    ["31.3|50.0|+37%|improvement", "50.0|31.3|-80%|change", "50.0|31.3|0.2x|vs baseline"],
)
def test_a_change_that_is_that_of_neither_is_a_contradiction(row: str, tmp_path: Path) -> None:
    *cells, heading = row.split("|")
    (ruling,) = audited(tmp_path, table("|".join((*TPOT, heading)), "|".join(cells))).rulings
    assert ruling.contradictions


@pytest.mark.parametrize(
    "headings",
    [
        "n_max|baseline_tps|draft_tps|speedup|acceptance",
        "draft-n|baseline t/s|draft t/s|uplift|accept",
        "n_max|no draft (tok/s)|draft (tok/s)|speedup|acceptance",
        "n_max|tok/s|draft (t/s)|speedup|acceptance",
    ],
)
def test_draft_beside_a_baseline_is_with_drafts(headings: str, tmp_path: Path) -> None:
    (ruling,) = audited(tmp_path, table(headings, "2|20.0|32.0|+60%|80%")).rulings
    claim = ruling.claim
    assert (claim.gamma, claim.baseline_rate, claim.decode_rate, claim.draft_rate) == (2, 20, 32, None)
    assert ruling.verdict == "possible"


@pytest.mark.parametrize(
    "headings",
    ["n_max|target t/s|draft t/s|acceptance", "n_max|baseline_rate|draft_rate|acceptance"],
)
def test_the_rate_of_the_draft_itself_stays_one(headings: str, tmp_path: Path) -> None:
    (ruling,) = audited(tmp_path, table(headings, "2|20.0|140|80%")).rulings
    assert (ruling.claim.draft_rate, ruling.verdict) == (140, "cannot tell")
    said = table("n_max|baseline t/s|draft t/s|speedup|acceptance", "2|20.0|140|1.6x|80%")
    assert audited(tmp_path, said).rulings[0].claim.draft_rate == 140


def test_more_accepted_than_drafted_in_one_cell_is_impossible(tmp_path: Path) -> None:
    (ruling,) = audited(tmp_path, table("n_max|tok/s|accepted/drafted", "2|60|310/300")).rulings
    assert (ruling.verdict, ruling.bound) == ("impossible", "conservation")


@pytest.mark.parametrize("heading", ["end-to-end speedup", "Speedup (wall)", "Speedup (e2e)", "Wall-clock speedup"])
def test_a_speedup_of_the_whole_run_is_not_that_of_decoding(heading: str, tmp_path: Path) -> None:
    text = table(f"Prompt|tok/s off|tok/s on|{heading}|n_max|accept", "32k|20.0|36.0|1.05x|2|95%")
    (ruling,) = audited(tmp_path, text).rulings
    assert (ruling.verdict, ruling.contradictions) == ("possible", ())
    (beyond,) = audited(tmp_path, text.replace("1.05x", "2.9x")).rulings
    assert beyond.contradictions  # prompts bring it nearer to 1, never beyond


def test_a_speedup_per_token_is_not_that_of_throughputs(tmp_path: Path) -> None:
    text = table("n_max|base throughput (tok/s)|spec throughput (tok/s)|TPOT speedup|accept", "2|410|300|0.80x|80%")
    (ruling,) = audited(tmp_path, text).rulings
    assert (ruling.verdict, ruling.contradictions) == ("possible", ())
    (high,) = audited(tmp_path, text.replace("0.80x", "2.9x").replace("|300|", "|900|")).rulings
    assert high.contradictions == ()


def test_a_gain_behind_a_lower_rate_is_a_contradiction(tmp_path: Path) -> None:
    (ruling,) = audited(tmp_path, table("Model|off|on", "Q|45.0 t/s|33.0 t/s (+37%)")).rulings
    assert (ruling.bound, ruling.broken) == ("speedup-not-its-rates", True)
    (true,) = audited(tmp_path, table("Model|off|on", "Q|33.0 t/s|45.2 t/s (+37%)")).rulings
    assert not true.broken

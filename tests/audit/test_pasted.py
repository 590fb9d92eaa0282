"""Results as people paste them: sentences, columns of spaces, cells with several numbers, a lone line of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.test_grammar import audited, table
from specmeter.audit.claim import Claim, joined, may_be_tree
from specmeter.audit.reading import row_defaults, rule

TOLD = {
    "from, to": "Enabled MTP, went from 23 to 41 t/s with 71% acceptance (n-max 4).",
    "arrow": "- MTP n_max=4: 23 → 41 tok/s, accept 71%",
    "against": "With --draft-max 4 I get 41 t/s vs 23 t/s baseline, 71% acceptance.",
    "a unit for both": "On a 3090: baseline 23 tok/s, with the draft 41 (1.78x), acceptance rate 0.71, --draft-max 4",
    "a unit for both, to": "Went from 23 t/s up to 41 (almost 2x!) with 71% acceptance, draft-max 4.",
    "counts told": "Without drafts 23 t/s, with `--draft-max 4` it's 41 t/s, 71 of 100 drafted tokens were accepted.",
    "a rate beside counts": (
        "mode  tok/s  n_max  drafted  accepted  rate\nbaseline  23  -  -  -  -\nspec  41  4  1000  710  71%\n"
    ),
    "a share of them": "71% of them get accepted; it went from 23 to 41 t/s with 4 drafted tokens.",
    "a list": "Mine:\n\n- baseline: 23 t/s\n- draft-max 4: 41 t/s (71% acceptance)\n",
    "a method and n": "RTX 3090: 23 t/s → 41 t/s w/ MTP (n=4), accept 0.71",
    "Chinese": "开启 MTP（n_max=4）后从 23 t/s 提升到 41 t/s，接受率 71%。",
    "Chinese, draft tokens": "由 23 提升至 41 tok/s，每次 4 个草稿 token，接受率约 71%",
    "Chinese, off and on": "关闭MTP：23 t/s，开启后 41 t/s，草稿长度为 4，接受率 71%",
    "a line of a log": "With n-max 4: 41 t/s, draft acceptance = 0.71 (71 accepted / 100 generated). Without: 23 t/s",
    "a gain of prompts": "Baseline 23 t/s, MTP n=4 41 t/s, 71% accepted; prompt processing is 20% faster.",
    "a gain of the whole run": (
        "The whole run is 1.2x faster (decode: 23 t/s without draft, 41 t/s with). Draft length 4, acceptance 71%."
    ),
    "a gain of all, Chinese": "整体任务只快了 25%。解码速度：关闭MTP 23 t/s，开启MTP 41 t/s，草稿长度 4，接受率 71%。",
    "autoregressive": "23 t/s with autoregressive decoding, 41 t/s with a 4 token draft, 71% accepted",
    "length in brackets": "Went from 23 to 41 t/s with MTP (4 tokens), 71% acceptance.",
    "tokens per draft": "Went from 23 to 41 t/s at 71% acceptance and 4 tokens per draft.",
    "Greek": "23 t/s → 41 t/s at γ = 4, α = 0.71",
    "spec dec": "No spec 23 t/s; with spec dec (1B draft, 4 tokens, 71% acceptance) 41 t/s.",
    "beside prompts": "pp 512 t/s in both cases, tg went from 23 t/s to 41 t/s (draft-max 4, 71% accepted)",
    "counts and their share": "Without drafts 23 t/s, with k=4 41 t/s: 71 of 100 drafted tokens were accepted (71%).",
    "n in the heading of a side": table("Prompt|MTP off|MTP on (n=4)|acceptance", "code|23|41|71%"),
    "Chinese headings": table("模型|关闭MTP|开启MTP(n=4)|接受率", "Q|23|41|71%"),
    "Chinese cells": table("方法|草稿长度|速度 (t/s)|接受率", "无||23|-", "草稿|4|41|71%"),
    "rows under a heading of their own": table("test|tok/s|acceptance|n", "base|23||0", "a|41|71%|4"),
    "beside a prompt": "Prompt at 500 t/s. Baseline 23 t/s, MTP 41 t/s, k=4, acceptance of 71%.",
    "columns": (
        "config     tok/s  acceptance  gamma\nbaseline   23     -           0\ndraft n=4  41     71%         4\n"
    ),
    "columns, to the right": (
        "Mine:\n\n    n_max  t/s  accept\n        0   23       -\n        4   41    0.71\n\nso 4 is best.\n"
    ),
    "in a cell": table("config|tok/s|gamma", "baseline|23|0", "draft|41 (1.78x, 71% accept)|4"),
    "in a cell, of a column": table("model|baseline|n_max=4", "Q|23|41 (1.78x, 71% accept)"),
    "counts": table("config|tok/s|acceptance|gamma", "baseline|23|-|0", "draft|41|71/100|4"),
    "units in cells": table("|baseline|draft n_max=4|acceptance", "code|23.0 tok/s|41.0 tok/s|71%"),
    "settings in an object": (
        '[{"params": {"n_max": 0}, "tps": 23}, {"params": {"n_max": 4}, "tps": 41, "acceptance": "71%"}]'
    ),
    "settings and metrics": (
        '{"results": [{"params": {"n_max": 0}, "metrics": {"tps": 23}}, '
        '{"params": {"n_max": 4}, "metrics": {"tps": 41, "acceptance": "71%"}}]}'
    ),
    "modes of prompts": table("mode|prompt|tok/s|n_max|acceptance", "off|a|23||", "mtp|a|41|4|71%"),
}


def drafting(text: str, folder: Path) -> list[Claim]:
    return [it.claim for it in audited(folder, text).rulings if not it.claim.drafted_nothing]


@pytest.mark.parametrize("text", TOLD.values(), ids=TOLD.keys())
def test_what_people_paste_is_read(text: str, tmp_path: Path) -> None:
    (claim,) = drafting(text, tmp_path)
    assert (claim.baseline_rate, claim.decode_rate, claim.gamma) == (23, 41, 4)
    assert claim.acceptance == pytest.approx(0.71)
    assert {it.verdict for it in audited(tmp_path, text).rulings} <= {"possible", "cannot tell"}
    assert not any(it.contradictions for it in audited(tmp_path, text).rulings)


@pytest.mark.parametrize("text", TOLD.values(), ids=TOLD.keys())
def test_what_is_false_is_found_there_too(text: str, tmp_path: Path) -> None:
    """110 in place of 41 t/s: 4.8x where at most 3.84 tokens come of a step."""
    false = text.replace("1.78x", "4.78x").replace("41", "110")
    (broken,) = (it for it in audited(tmp_path, false).rulings if it.broken)
    assert {broken.bound, *broken.also_broken} & {"speedup-above-tau", "speedup-not-its-rates"}


@pytest.mark.parametrize(
    "text",
    [
        "Prompt processing went from 230 to 410 t/s with MTP.",
        "My 3x RTX 3090 runs it at 41 t/s.",
    ],
)
def test_of_sentences_that_leave_it_open_no_pair_is_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "told.md"
    path.write_text(f"{text}\n\nWith MTP: 41 t/s, 71% acceptance\n", encoding="utf-8")
    assert all(claim.baseline_rate is None for claim in drafting(path.read_text(), tmp_path))


@pytest.mark.parametrize(
    ("text", "speedup"),
    [
        ("With MTP (n=2, 70% accepted) it is 60% faster.", 1.6),
        ("MTP, n=2, 70% accepted: faster by 60 %", 1.6),
        ("MTP n=2 快 60%，接受率 70%", 1.6),
        ("With the draft it runs at 160% of the speed, 70% accepted.", 1.6),
        ("With the draft (70% accepted) it is ~160% as fast.", 1.6),
        ("Without: 512 tokens in 20 s. With draft (k=4, 70% accepted): 512 tokens in 12.8 s", 1.5625),
        ("Latency per token dropped by 40% (from 50ms/token to 30ms/token), 70% accepted", 1 / 0.6),
        ("速度提升 60%，接受率 70%，草稿长度 4", 1.6),
        ("Without it 20 t/s, with MTP 32 t/s, 70% accepted; about 60% faster than Q8, prompts 30% faster prompt", None),
    ],
)
def test_speedups_in_percent_and_times(text: str, speedup: float | None, tmp_path: Path) -> None:
    (claim,) = drafting(text, tmp_path)
    assert (claim.speedup, claim.acceptance) == (speedup and pytest.approx(speedup), pytest.approx(0.7))
    if speedup is None:
        assert (claim.decode_rate or 0) / (claim.baseline_rate or 1) == pytest.approx(1.6, abs=0.07)


def test_a_mean_of_tokens_per_step_is_no_count(tmp_path: Path) -> None:
    (claim,) = drafting("From 23 to 41 t/s with the draft, 1.9 of 3 drafted tokens were accepted", tmp_path)
    assert (claim.tau, claim.gamma, claim.accepted) == (pytest.approx(2.9), 3, None)


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("23 → 41 t/s with MTP, 4 draft tokens, 71% accepted", "draft-mtp"),
        ("23 → 41 t/s with MTP + n-gram, 71% accepted", "mtp + n-gram"),
    ],
)
def test_words_of_drafting_are_no_method_beside_one_with_a_name(text: str, method: str, tmp_path: Path) -> None:
    (claim,) = drafting(text, tmp_path)
    assert claim.method == method
    assert joined(claim) is ("+" in method)
    assert not may_be_tree(claim) or joined(claim)


def test_a_length_in_a_heading_or_label_is_not_overruled(tmp_path: Path) -> None:
    columns = table("Prompt|no MTP|MTP n=2|MTP n=3", "a|22.4|60.1|70.1")
    labels = table("config|tok/s|acceptance", "none|23|-", "MTP, draft-max 4|41|71%")
    found = [it for text in (columns, labels) for it in drafting(text, tmp_path)]
    assert [row_defaults(gamma=5).complete(it).gamma for it in found] == [2, 3, 4]
    assert not any(map(joined, found))


def test_what_a_sentence_says_of_two_tasks_is_told_apart(tmp_path: Path) -> None:
    claims = drafting("MTP: 23 → 41 t/s, acceptance 71% on code, acceptance 50% on chat", tmp_path)
    assert [(it.decode_rate, it.baseline_rate, it.acceptance) for it in claims] == [(41, 23, 0.71), (41, 23, 0.5)]


def test_columns_by_requests_at_once_have_their_own_baselines(tmp_path: Path) -> None:
    text = table("config|np=1|np=2|np=4|acceptance", "baseline|22.5|40.1|70.2|", "MTP n_max=3|30.3|50.1|65.2|70%")
    claims = drafting(text, tmp_path)
    assert [(it.concurrency, it.baseline_rate, it.decode_rate) for it in claims] == [
        (1, 22.5, 30.3),
        (2, 40.1, 50.1),
        (4, 70.2, 65.2),
    ]
    assert {(it.gamma, it.acceptance) for it in claims} == {(3, 0.7)}


def test_at_several_requests_it_is_the_load_that_has_to_be_alike(tmp_path: Path) -> None:
    text = table("config|np=1|np=2|acceptance", "baseline|22.5|40.1|", "MTP n_max=3|30.3|190|70%")
    broken = [it for it in audited(tmp_path, text).rulings if it.broken]
    assert [it.claim.concurrency for it in broken] == [2]
    assert "same-load" in {it.name for it in broken[0].rests_on}
    assert "one-request" not in {it.name for it in broken[0].rests_on}


def test_the_rate_of_a_draft_alone_is_not_held_against_that_of_a_load(tmp_path: Path) -> None:
    """Four requests at once give 70 tok/s; the draft's 140 are of one request, so that it does not cost half a step."""
    text = table(
        "config|np=1|np=4|acceptance|method", "baseline|22.5|70.2||", "draft n_max=3|30.3|120|70%|draft-simple"
    )
    given = row_defaults(draft_rate="140")
    claims = [it.claim for it in audited(tmp_path, text).rulings]
    by_load = {it.claim.concurrency: it for it in rule(claims, "table", "table", given).rulings if it.claim.gamma}
    assert [by_load[1].bound, by_load[4].bound] == ["speedup-above-cost-bound", "speedup-above-tau"]
    assert by_load[4].verdict == "possible"


def test_speeds_by_requests_at_once_bear_their_units(tmp_path: Path) -> None:
    text = table(
        "|np=1|np=4", "off|38.1 tok/s|121.5 tok/s", "on (k=4)|68.9 tok/s (1.81x, 66% accept)|139.0 tok/s (1.14x)"
    )
    claims = drafting(text, tmp_path)
    assert [(it.concurrency, it.baseline_rate, it.decode_rate, it.speedup, it.gamma) for it in claims] == [
        (1, 38.1, 68.9, 1.81, 4),
        (4, 121.5, 139.0, 1.14, 4),
    ]


def test_columns_by_kind_of_text_are_speeds_beside_a_length_of_0(tmp_path: Path) -> None:
    text = table("n_max|code|chat", "0|22.5|22.4", "2|30.3 (1.35x, 96% accept)|27.1 (1.21x, 70% accept)")
    claims = drafting(text, tmp_path)
    assert [(it.baseline_rate, it.decode_rate, it.speedup, it.acceptance) for it in claims] == [
        (22.5, 30.3, 1.35, 0.96),
        (22.4, 27.1, 1.21, 0.7),
    ]


def test_a_list_has_the_baseline_that_it_begins_with(tmp_path: Path) -> None:
    text = (
        "- stock: 23 t/s\n- draft-max 4: 41 t/s (71% acceptance)\n- draft-max 16: 58 t/s (12% acceptance)\n\n"
        "Elsewhere:\n\n- draft-max 4: 50 t/s (71% acceptance)\n"
    )
    found = [it for it in audited(tmp_path, text).rulings if not it.claim.drafted_nothing]
    assert [it.claim.baseline_rate for it in found] == [23, 23, None]
    assert [it.verdict for it in found] == ["possible", "possible", "cannot tell"]


def test_settings_that_are_off_are_no_baselines(tmp_path: Path) -> None:
    """The first column has no name that says what it is: `off` may be of anything."""
    text = table("fa|tok/s|acceptance|n_max", "off|20|50%|2", "on|22|50%|2")
    assert {claim.method for claim in drafting(text, tmp_path)} == {None}
    assert len(drafting(text, tmp_path)) == 2


LOADS = {
    "settings": (
        '[{"params": {"draft_max": 0, "np": 1}, "tps": 48}, {"params": {"draft_max": 2, "np": 1}, "tps": 81.2},'
        ' {"params": {"draft_max": 0, "np": 4}, "tps": 131}, {"params": {"draft_max": 2, "np": 4}, "tps": 160.1}]'
    ),
    "a column": "mode,np,gamma,tok/s\nbaseline,1,,48\nspec,1,2,81.2\nbaseline,4,,131\nspec,4,2,160.1\n",
}


@pytest.mark.parametrize("text", LOADS.values(), ids=LOADS.keys())
def test_loads_have_their_own_baselines(text: str, tmp_path: Path) -> None:
    claims = drafting(text, tmp_path)
    assert [(it.concurrency, it.baseline_rate, it.decode_rate) for it in claims] == [(1, 48, 81.2), (4, 131, 160.1)]


FALSE = {
    "accepted of drafted": table(
        "test|draft-n|t/s base|t/s spec|accepted/drafted|acceptance",
        "a|3|41|80.4|187/171|83.6%",
        "b|3|41|51|118/264|44.7%",
    ),
    "counts told": "Without drafts 12 t/s, with `--draft-max 16` 25 t/s, 612 of 530 drafted tokens were accepted.",
    "counts in a row": "Without drafts 12.5 t/s, with `--draft-max 16` it's 25 t/s. drafted 530, accepted 612.",
    "share behind counts": "20 t/s without, 32 t/s with the draft; 412 of 530 drafted tokens were accepted (61%)",
    "counts behind a share": "20 t/s without, 32 t/s with the draft; acceptance 61% (412 of 530)",
    "faster by percent": "MTP made it 160% faster for me: 20 tok/s -> 32 tok/s",
    "faster in Chinese": "用 MTP 后快了 160%：20 tok/s -> 32 tok/s",
    "speedup of spec": "Base 23 t/s, with spec 41 t/s, so a 2.4x speedup",
    "speedup without a sign": "A speedup of 1.26 at 0.2 % acceptance and 16 tokens per draft",
    "speedup in Chinese": "加速比 1.26x，接受率 0.2%，每次 16 个草稿 token",
    "times in Chinese": "MTP n=2 加速 3.3 倍，接受率 71%",
    "columns by length": table("Prompt|no MTP|MTP n=2|MTP n=3", "a|22.4|73.9 (3.30x, 90% accept)|70.1 (84% accept)"),
    "speedup behind": "baseline 30 tok/s, with the draft 42 tok/s (1.8x), acceptance rate 0.64, --draft-max 8.",
    "speedup behind a bare speed": "baseline 30 tok/s, with the draft 42 (1.8x), acceptance 0.64, --draft-max 8.",
    "rate": "tok/s  drafted  accepted  rate\n17.73  -  -  -\n29.10  640  409  0.94\n21.87  512  364  71%\n",
}


@pytest.mark.parametrize("text", FALSE.values(), ids=FALSE.keys())
def test_what_contradicts_itself_is_found(text: str, tmp_path: Path) -> None:
    assert sum(it.broken or bool(it.contradictions) for it in audited(tmp_path, text).rulings) == 1


def test_a_fraction_beside_percent_is_one(tmp_path: Path) -> None:
    text = table("config|tok/s|acceptance|gamma", "none|23|-|0", "a|41|0.64|4", "b|42|71%|4")
    claims = drafting(text, tmp_path)
    assert [claim.acceptance for claim in claims] == [0.64, 0.71]


def test_a_lone_line_of_a_log_says_what_its_drafts_permit(tmp_path: Path) -> None:
    line = "draft acceptance rate = 0.57576 (  171 accepted /   297 generated)\n"
    audit = audited(tmp_path, line + line.replace("171", "297").replace("0.57576", "1.00000"))
    assert [(it.claim.accepted, it.claim.drafted) for it in audit.rulings] == [(171, 297), (297, 297)]
    assert audit.rulings[0].arithmetic.code == "audit.no_speedup_no_gamma"
    with_gamma = rule((it.claim for it in audit.rulings), "log", "llama-server", row_defaults(gamma=4))
    assert "at most 3.30x" in str(with_gamma.rulings[0].arithmetic)


def test_modes_of_other_things_are_conditions(tmp_path: Path) -> None:
    text = table("mode|thinking|tok/s|n_max|acceptance", "off|x|20|2|50%", "on|x|22|2|50%")
    assert {claim.method for claim in drafting(text, tmp_path)} == {None}


RATIOS = {
    "of walls": table("prompt|baseline ms|spec ms|ratio|acceptance|gamma", "a|3000|1500|0.5|71%|4"),
    "of walls, upside down": table("prompt|baseline ms|spec ms|ratio|acceptance|gamma", "a|3000|1500|2.0|71%|4"),
    "of times per token": table("prompt|TPOT off|TPOT on|ratio|acceptance|gamma", "a|50 ms|25 ms|0.5|71%|4"),
    "of rows": table("config|time (s)|ratio|acceptance|gamma", "baseline|30|1.0||0", "spec|15|0.5|71%|4"),
    "change of rows": table("config|wall time (s)|change|acceptance|gamma", "baseline|30|||0", "spec|15|-50%|71%|4"),
}


@pytest.mark.parametrize("text", RATIOS.values(), ids=RATIOS.keys())
def test_a_ratio_of_times_is_held_against_the_times(text: str, tmp_path: Path) -> None:
    (claim,) = drafting(text, tmp_path)
    assert claim.speedup == pytest.approx(2.0)


def test_a_change_of_times_without_a_baseline_is_not_judged(tmp_path: Path) -> None:
    """A fifth of the speed or five times as fast, nobody knows: the row is not refused."""
    (ruling,) = audited(tmp_path, table("wall time (s)|change|acceptance|gamma", "15|-80%|20%|4")).rulings
    assert not ruling.broken


@pytest.mark.parametrize(
    ("row", "asked"),
    [
        ("23|41||71%|spec", {("gamma",): 1}),
        ("|41|4|71%|spec", {("baseline_rate",): 1}),
        ("23|41|4|71%|spec", {}),
        ("||4|71%|spec", {}),
        ("|41||71%|spec", {("gamma", "baseline_rate"): 1}),
        ("23|41||71%|magic", {("gamma", "draft_rate"): 1}),
        ("23|41|4|71%|magic", {("draft_rate",): 1}),
    ],
)
def test_the_numbers_that_would_decide_are_asked_for(
    row: str, asked: dict[tuple[str, ...], int], tmp_path: Path
) -> None:
    text = table("baseline tok/s|tok/s|gamma|acceptance|method", row)
    assert audited(tmp_path, text).asked == asked


@pytest.mark.parametrize(("rate", "verdict"), [("38", "possible"), ("41", "cannot tell")])
def test_what_a_draft_of_one_token_permits_is_possible(rate: str, verdict: str, tmp_path: Path) -> None:
    """23 x 1.715 = 39.4: whatever the length that is not told."""
    text = table("baseline tok/s|tok/s|acceptance|method", f"23|{rate}|71%|spec")
    assert [it.verdict for it in audited(tmp_path, text).rulings] == [verdict]


def test_a_length_by_the_name_that_counts_tokens_elsewhere(tmp_path: Path) -> None:
    row = '{{"mode": "{}", "draft_n": {}, "accepted": 412, "tok_s": 41}}'
    text = '{{"results": [{{"mode": "off", "tok_s": 23}}, ' + row.replace("{}", "mtp", 1) + "]}}"
    (claim,) = drafting(text.format(4), tmp_path)
    assert (claim.gamma, claim.drafted, claim.accepted) == (4, None, 412)
    (claim,) = drafting(text.format(400), tmp_path)
    assert (claim.gamma, claim.drafted) == (None, 400)
    assert [it.bound for it in audited(tmp_path, text.format(400)).rulings if it.broken]

"""Texts that were misread or not read at all, as people paste them, each with its right values and verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.test_grammar import audited, table
from specmeter.audit.claim import Claim, Ruling
from specmeter.audit.judge import rule_claim
from specmeter.audit.read.options import TableOptions
from specmeter.audit.read.table import read_table
from specmeter.audit.reading import rule
from specmeter.errors import UsageError

COUNTERS = "".join(
    f'vllm:spec_decode_{name}_total{{engine="0"}} {count}\n'
    for name, count in (("num_drafts", 4687), ("num_draft_tokens", 46870), ("num_accepted_tokens", 52368))
)
SPECFORGE = "batch_size | steps | num_draft_tokens | throughput | accept_length\n--|--|--|--|--\n1|0|0|218.89|1.0\n"
READ: dict[str, tuple[str, dict[str, Any], str]] = {
    "share in brackets": (
        table("Domain|Baseline t/s|DFlash t/s (accept)", "GSM8K|100.6|246.4 (53.2%)"),
        {"decode_rate": 246.4, "baseline_rate": 100.6, "acceptance": 0.532},
        "cannot tell",
    ),
    "speedup in brackets": (
        table("Task|Base tok/s|MTP tok/s (speedup)", "code|158.4|223.3 (1.41x)"),
        {"decode_rate": 223.3, "speedup": 1.41, "acceptance": None},
        "cannot tell",
    ),
    "length in brackets": (
        table("Task|Base tok/s|EAGLE tok/s (accept length)", "code|158.4|373.3 (3.2)"),
        {"decode_rate": 373.3, "tau": 3.2, "acceptance": None},
        "possible",
    ),
    "an empty corner": (
        " | tok/s | accept | speedup\n-- | -- | -- | --\n1 | 140 | 82% | \n",
        {"decode_rate": 140, "acceptance": 0.82, "speedup": None},
        "cannot tell",
    ),
    "a speedup of the whole run": (
        table("arm|wall (s)|tok/s|speedup", "off|61.2|41.0|", "on|41.0|77.1|1.49x"),
        {"speedup": 1.49, "decode_rate": 77.1, "baseline_rate": 41.0},
        "cannot tell",
    ),
    "a chain that vLLM allows": (
        "method,num_speculative_tokens,acceptance_length,tok_s\nnone,,,80\neagle3,3,3.62,170\n",
        {"gamma": 3, "tau": 3.62, "baseline_rate": 80},
        "possible",
    ),
    "a longer chain": (
        "method,num_speculative_tokens,acceptance_length,tok_s\nnone,,,80\neagle3,3,4.62,170\n",
        {"gamma": 3, "tau": 4.62},
        "impossible",
    ),
    "positions that rise": (
        table("k|pos 1|pos 2|mean length", "2|0.668|0.843|2.4"),
        {"positions": (0.668, 0.843), "tau": 2.4, "gamma": 2},
        "implausible",
    ),
    "a rate above 1": ("accept rate: 1.49, gen throughput (token/s): 604.01\n", {"tau": 1.49}, "cannot tell"),
    "no steps are a baseline": (
        SPECFORGE + "1|3|4|370.35|2.017\n",
        {"baseline_rate": 218.89, "decode_rate": 370.35, "gamma": 3, "tau": 2.017, "concurrency": 1},
        "possible",
    ),
    "faster than its length": (SPECFORGE + "1|3|4|870.35|2.017\n", {"baseline_rate": 218.89}, "implausible"),
    "counters": (
        "num_drafts: 4687\nnum_draft_tokens: 46870\nnum_accepted_tokens: 52368\n",
        {"steps": 4687, "drafted": 46870, "accepted": 52368},
        "impossible",
    ),
    "counters of Prometheus": (COUNTERS, {"steps": 4687, "drafted": 46870, "accepted": 52368}, "impossible"),
    "counts with a slash": (
        "accepted 94982/93000 draft tokens",
        {"accepted": 94982, "drafted": 93000},
        "impossible",
    ),
    "counts of a step": ("- 9 draft tokens, 18 accepted", {"drafted": 9, "accepted": 18}, "impossible"),
    "a gain that is none": (
        "20.46 tokens/second with speculative decoding, and 15.22 without it, a gain of 74%",
        {"decode_rate": 20.46, "baseline_rate": 15.22, "speedup": 1.74},
        "implausible",
    ),
    "time saved": (
        table("Config|Baseline (s)|MTP (s)|Difference (%)", "a|8.18|6.90|+15.65"),
        {"speedup": pytest.approx(1 / (1 - 0.1565))},
        "cannot tell",
    ),
    "an arrow in brackets": (
        "We see 1.87x (63 -> 80 tok/s).",
        {"speedup": 1.87, "baseline_rate": 63, "decode_rate": 80},
        "implausible",
    ),
    "a gain in brackets": (
        table("base|MTP", "10.47 tok/s|20 tok/s (+91%)"),
        {"speedup": 1.91, "baseline_rate": 10.47, "decode_rate": 20},
        "cannot tell",
    ),
    "a rate without the prompt": (
        table("Latency (s)|Output tokens|tok/s", "6.171|512|182.97"),
        {"predicted_n": 512, "wall_ms": 6171, "decode_rate": 182.97},
        "cannot tell",
    ),
    "a rate of other tokens": (
        "Run 1: 500 tokens, 2.15s, 232.8 t/s\nRun 2: 500 tokens, 3.76s, 232.8 t/s\n",
        {"predicted_n": 500, "decode_rate": 232.8},
        "implausible",
    ),
    "only a share": ("60.35% aggregate acceptance", {"acceptance": 0.6035}, "cannot tell"),
    "simulated above": (
        "In synthetic accept mode:\n\n" + table("config|n_max|tok/s", "off|0|50", "MTP|3|180"),
        {"gamma": 3, "synthetic": True},
        "impossible",
    ),
}


@pytest.mark.parametrize(("text", "values", "verdict"), READ.values(), ids=READ.keys())
def test_what_was_misread_has_its_right_values(text: str, values: dict[str, Any], verdict: str, tmp_path: Path) -> None:
    ruling: Ruling = audited(tmp_path, text).rulings[-1]
    assert {name: getattr(ruling.claim, name) for name in values} == values
    assert ruling.verdict == verdict


def test_baselines_of_long_and_short_contexts_are_not_averaged(tmp_path: Path) -> None:
    text = table("Config|tok/s (short ctx)|tok/s (long ctx)", "Baseline|60|20", "MTP|100|34")
    rulings = audited(tmp_path, text).rulings[2:]
    assert [(it.claim.decode_rate, it.claim.baseline_rate) for it in rulings] == [(100, 60), (34, 20)]


@pytest.mark.parametrize("label", ["MTP-1", "MTP1", "D1", "nd1"])
def test_a_label_may_be_a_draft_length(label: str, tmp_path: Path) -> None:
    text = table("config|tok/s|acceptance", "baseline|20|", f"{label}|44|90%")
    ruling = audited(tmp_path, text).rulings[-1]
    assert (ruling.claim.gamma, ruling.bound, ruling.broken) == (1, "speedup-above-tau", True)


_PIECES = (
    "speedup", "tok/s", "t/s", "acceptance", "tau", "gamma", "n_max", "baseline", "MTP", "draft", "off",
    "accepted", "drafted", "TPOT (ms)", "wall (s)", "change", "1.2x", "+34%", "-5%", "0.71", "71%", "412/530",
    "23 → 41 t/s", "64.0 ± 0.3", "0", "1e300", "-1", "none", "—", "速度", "接受率", "3", "512 tokens", "\n", "\n\n",
    " | ", "|---|---|", ",", ": ", "  ", "(", ")", "<td>", "<table>", "</table>", '{"a": 1}', "[", "- ", "## ",
    "with", "without",
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(st.sampled_from(_PIECES), max_size=40).map(" ".join)))
def test_any_text_is_read_or_refused_and_any_row_is_ruled(text: str) -> None:
    try:
        claims = list(read_table(text or " ", Path("page.md"), TableOptions()))
    except UsageError as error:
        claims = list[Claim]()
        str(error)
    for ruling in rule(claims, "page.md", "table").rulings:
        assert str(ruling.reason)
    for claim in claims:
        rule_claim(claim)

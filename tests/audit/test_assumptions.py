"""What a row may rest on that its numbers do not say: chains, joined methods, overlap, requests at once, positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specmeter.audit.claim import Claim, Ruling
from specmeter.audit.judge import rule_claim
from specmeter.audit.read.options import TableOptions
from specmeter.audit.reading import Audit, read_claims, rule


def ruled(**fields: Any) -> Ruling:
    return rule_claim(Claim(source="test", row="row 1", **fields))


def audited(folder: Path, *lines: str) -> Audit:
    path = folder / "page.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    form, claims = read_claims(path, None, TableOptions())
    return rule(claims, "page.md", form)


def needed(ruling: Ruling) -> list[str]:
    return [item.name for item in ruling.rests_on]


# --- chains ----------------------------------------------------------------------------------------------------------

LENGTHS = "| Engine | Method | num_speculative_tokens | Accept length |", "|---|---|---|---|"


def test_the_chains_of_vllm_are_bound_by_their_length(tmp_path: Path) -> None:
    ruling = audited(tmp_path, *LENGTHS, "| vLLM | EAGLE-3 | 4 | 6.2 |").rulings[0]
    assert (ruling.verdict, ruling.bound) == ("impossible", "conservation")
    assert audited(tmp_path, *LENGTHS, "| vLLM | EAGLE-3 | 4 | 3.2 |").rulings[0].verdict != "impossible"
    label = audited(
        tmp_path, "| Config | Accept length |", "|---|---|", "| vLLM EAGLE num_speculative_tokens=4 | 6.2 |"
    )
    assert label.rulings[0].verdict == "impossible"
    csv = "method,num_speculative_tokens,acceptance_length,tok_s", "none,0,1.0,80", "eagle3,3,4.62,170"
    assert audited(tmp_path, *csv).rulings[1].verdict == "impossible", "the setting is vLLM's"
    above = (
        "EAGLE-3 in vLLM 0.12, one H100:",
        "",
        "| Method | Draft length | Accept length |",
        "|---|---|---|",
        "| EAGLE-3 | 4 | 6.2 |",
    )
    assert audited(tmp_path, *above).rulings[0].verdict == "impossible"


def test_unless_a_tree_is_said(tmp_path: Path) -> None:
    for engine, method in (("vLLM", "EAGLE tree"), ("SGLang", "EAGLE-3"), ("TensorRT-LLM", "EAGLE-3")):
        ruling = audited(tmp_path, *LENGTHS, f"| {engine} | {method} | 4 | 6.2 |").rulings[0]
        assert ruling.verdict == "cannot tell", engine


# --- two methods -----------------------------------------------------------------------------------------------------


def test_of_two_methods_joined_the_row_may_give_the_numbers_of_one() -> None:
    row = {"gamma": 2, "acceptance": 0.5, "speedup": 3.0, "baseline_rate": 20.0, "decode_rate": 60.0}
    assert "one-method" in needed(ruled(method="MTP + n-gram", **row))
    assert "one-method" not in needed(ruled(method="draft-mtp", **row))
    longer = ruled(method="mtp + suffix", gamma=2, tau=4.1)
    assert longer.verdict != "impossible"
    assert ruled(method="mtp", gamma=2, tau=4.1).verdict == "impossible"
    both = ruled(method="ngram+mtp", gamma=2, tau=4.1)
    assert (both.verdict, needed(both)) == ("implausible", ["one-method"])


# --- drafting while the target verifies ------------------------------------------------------------------------------


def test_drafts_may_be_made_while_the_target_verifies() -> None:
    row = {"gamma": 4, "acceptance": 0.9, "baseline_rate": 30.0, "draft_rate": 120.0, "decode_rate": 120.0}
    plain = ruled(method="draft-simple", **row)
    assert plain.bound == "speedup-above-cost-bound"
    assert "in-turn" in needed(plain)
    assert "in-turn" not in needed(ruled(method="draft-simple", **row | {"decode_rate": 137.9, "draft_rate": 90.0}))
    assert ruled(method="pearl", **row).verdict != "implausible"


# --- requests at once ------------------------------------------------------------------------------------------------

RATES = (
    "| Config | n_max | tok/s | Acceptance |",
    "|---|---|---|---|",
    "| baseline | 0 | 20 | |",
    "| MTP | 2 | 60 | 50% |",
)


@pytest.mark.parametrize("above", ["Concurrency: 8", "batch size 8, greedy", "with 8 concurrent requests", "bs=8"])
def test_the_text_above_says_how_many_requests_are_served_at_once(above: str, tmp_path: Path) -> None:
    ruling = audited(tmp_path, "## Results", above, "", *RATES).rulings[1]
    assert ruling.claim.concurrency == 8
    assert "same-load" in needed(ruling)
    assert "one-request" not in needed(ruling)
    assert ruling.verdict == "implausible"


def test_the_text_of_another_table_or_section_does_not(tmp_path: Path) -> None:
    first = ("Concurrency: 8", "", *RATES, "", "One user:", "", *RATES)
    assert [it.claim.concurrency for it in audited(tmp_path, *first).rulings] == [8, 8, None, None]
    assert audited(tmp_path, "## At batch size 8", "", "## Alone", "", *RATES).rulings[0].claim.concurrency is None
    assert audited(tmp_path, "batch size 1", "", *RATES).rulings[0].claim.concurrency is None


# --- acceptance of a position ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["Acceptance at position 4", "acceptance rate (pos 4)", "Fully accepted", "acceptance, last position"]
)
def test_an_acceptance_of_one_position_is_not_that_of_all(text: str, tmp_path: Path) -> None:
    ruling = audited(
        tmp_path,
        f"| Config | n_max | tok/s | {text} |",
        "|---|---|---|---|",
        "| off | 0 | 20 | |",
        "| MTP | 4 | 60 | 20% |",
    ).rulings[1]
    assert (ruling.claim.acceptance, ruling.broken) == (None, False)


def test_the_text_above_says_which_acceptance_a_column_is(tmp_path: Path) -> None:
    said = "Acceptance is that of drafts at position 4. Greedy."
    table = (
        "| Config | n_max | tok/s | Acceptance |",
        "|---|---|---|---|",
        "| off | 0 | 20 | |",
        "| MTP | 4 | 60 | 20% |",
    )
    assert not audited(tmp_path, said, "", *table).rulings[1].broken
    assert audited(tmp_path, "Times are from the first token on. All drafts count.", "", *table).rulings[1].broken


# --- other machines --------------------------------------------------------------------------------------------------


def test_a_baseline_of_another_machine_is_said(tmp_path: Path) -> None:
    labels = audited(tmp_path, "| Config | n_max | tok/s |", "|---|---|---|", "| baseline (RTX 3090) | 0 | 20 |",
                     "| MTP (RTX 4090) | 2 | 60 |")  # fmt: skip
    names = "| Model | baseline t/s (RTX 3090) | MTP t/s (RTX 4090) | n_max |"
    headings = audited(tmp_path, names, "|---|---|---|---|", "| Q | 20 | 90 | 2 |")
    for audit in (labels, headings):
        assert audit.notes[0].code == "audit.baseline_elsewhere"
        assert (audit.rulings[-1].claim.baseline_device, audit.rulings[-1].claim.device) == ("RTX 3090", "RTX 4090")
    assert needed(headings.rulings[0])[-1] == "baseline"


def test_that_the_only_baseline_is_of_another_machine_is_said(tmp_path: Path) -> None:
    rows = "| RTX 3090 | baseline | 0 | 20 |", "| RTX 4090 | MTP | 2 | 60 |"
    audit = audited(tmp_path, "| Device | Config | n_max | tok/s |", "|---|---|---|---|", *rows)
    assert [note.code for note in audit.notes] == ["audit.baseline_elsewhere"]
    assert (audit.rulings[1].claim.baseline_device or "").lower() == "rtx 3090"

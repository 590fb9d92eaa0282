"""What of a table goes into its claims: baselines, conditions, counters, and the requests of an export."""

from __future__ import annotations

from pathlib import Path

import pytest

from specmeter.audit.claim import Claim
from specmeter.audit.read.options import TableOptions
from specmeter.audit.read.table import read_table


def claims(text: str, name: str = "table.md", **columns: str) -> list[Claim]:
    return list(read_table(text, Path(name), TableOptions(columns)))


def test_a_baseline_in_the_row_is_taken_before_one_of_another_row() -> None:
    rows = "| none | 50.0 | |\n| mtp | 90.0 | 60.0 |\n| eagle | 80.0 | |\n"
    found = claims("| method | decode tok/s | baseline tok/s |\n|---|---|---|\n" + rows)
    assert [it.baseline_rate for it in found[1:]] == [60.0, 50.0]


def test_numbers_are_conditions_too() -> None:
    found = claims("method,max_tokens,tok_s\nnone,128,50\nmtp,128,90\nmtp,256,95\n", "t.csv")
    assert [it.conditions.get("max_tokens") for it in found] == ["128", "128", "256"]


def test_counters_that_only_their_own_name_tells_are_read_in_any_table() -> None:
    (claim,) = claims("gamma,tokens,target_forwards,n_drafted,n_accepted\n4,256,104,414,151\n", "t.csv")
    assert (claim.target_forwards, claim.drafted, claim.accepted, claim.predicted_n) == (104, 414, 151, 256)


def test_a_column_that_names_the_baseline_is_no_method() -> None:
    rows = "A plain,RTX 4090,14B Q4,none,62.8,\nA draft,RTX 4090,14B Q4,draft-simple,137.5,A plain\n"
    plain, draft = claims("label,device,target,method,tok_s,compared_with\n" + rows, "t.csv")
    assert (plain.method, draft.method, draft.baseline_rate) == ("none", "draft-simple", 62.8)
    assert draft.target == "14B Q4"


def test_a_setting_may_name_only_the_baseline() -> None:
    rows = "| off | 61.4 | — |\n| 1 | 94.2 | 0.94 |\n| **4** | 135.0 | 0.87 |\n"
    found = claims("| n-max | tok/s | Acceptance |\n|---|---|---|\n" + rows)
    assert [(it.gamma, it.baseline_rate) for it in found[1:]] == [(1, 61.4), (4, 61.4)]


def test_a_request_of_an_export_is_one_run() -> None:
    head = "arm_id,prompt_id,predicted_n,predicted_ms,draft_n,draft_n_accepted,decode_tok_s,target_forwards\n"
    plain, draft = claims(head + "a/none,p,48,38.0,0,0,1236.8,47\na/draft,p,48,37.6,57,43,1250.0,4\n", "t.csv")
    assert (draft.runs, draft.window, draft.decode_rate) == (1, "all but the first", 1250.0)
    assert draft.target_forwards == 4
    assert (plain.method, draft.baseline_rate) == ("none", 1236.8)


@pytest.mark.parametrize(("heading", "meaning", "tau"), [("len", "tau", 2.5), ("len", "accepted_drafts_per_step", 3.5)])
def test_a_column_is_what_the_user_says(heading: str, meaning: str, tau: float) -> None:
    (claim,) = claims("speedup,len\n1.9x,2.5\n", "t.csv", **{heading: meaning})
    assert claim.tau == tau
    assert {rival.tau for group in claim.rivals for rival in group} <= {tau}


def test_what_the_user_says_holds_for_texts_and_for_our_own_columns() -> None:
    (claim,) = claims("Thing,speedup,tau\nEAGLE,1.9x,2.5\n", "t.csv", Thing="method")
    assert claim.method == "eagle"
    own = "predicted_n,predicted_ms,decode_rate,n\n48,480,100,7\n"
    (claim,) = claims(own, "t.csv", n="gamma", decode_rate="ignore")
    assert (claim.gamma, claim.decode_rate) == (7, None)


def test_a_number_that_counts_repeats_is_no_condition() -> None:
    rows = "base,none,0,50.3\nbase,none,1,50.1\nmtp,mtp,0,90.2\nmtp,mtp,1,91.0\n"
    found = claims("name,method,rep,tok_s\n" + rows, "t.csv")
    assert [it.conditions for it in found] == [{}] * 4

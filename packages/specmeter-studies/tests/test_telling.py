"""The rule of what counts: what rulings rest on, where claims do not apply, and which values deny one."""

from __future__ import annotations

from dataclasses import replace

from specmeter.messages import Message
from specmeter_studies.study import FINDINGS, Found, ModelUsed, StudyData
from specmeter_studies.telling import by_counts, by_values, denied_by, only_of, ruling

OURS = StudyData("s", "measured", "t", models=(ModelUsed(name="m", reference="bench:m", stand_in=True),))


def test_a_ruling_says_what_it_rests_on_and_an_open_one_nothing() -> None:
    said = Message("said")

    def rests_on(found: Found) -> str:
        return ruling("c", Message("claim"), Message("where"), found).rests_on

    assert rests_on(("supported", said)) == "intervals"
    assert rests_on(by_counts("contradicted", said)) == "counts"
    assert rests_on(by_values("contradicted", said)) == "printed values"
    assert rests_on(by_counts("cannot tell", said)) == rests_on(("does not apply here", said)) == ""


def test_a_claim_about_named_models_does_not_apply_where_others_were_measured() -> None:
    word, told = only_of(OURS, Message("Qwen3.5"), ("contradicted", Message("19 of 19 above.")))
    assert word == FINDINGS[3]
    assert told == Message("study.elsewhere", named=Message("Qwen3.5"), found=Message("19 of 19 above."))
    named = replace(OURS, models=(ModelUsed(name="m", reference="hf:a/b"),))
    assert only_of(named, Message("Qwen3.5"), ("contradicted", Message("x"))) == ("contradicted", Message("x"))


def test_a_value_denies_a_rounded_claim_only_beyond_its_last_digit() -> None:
    """Below 0.3: 0.308 is 0.3 to that digit, 0.36 is not. At most 4 %: 4.4 % rounds to it, 4.6 % does not."""
    assert denied_by([0.093, 0.308, 0.36], most=0.3, last_digit=0.1) == [0.36]
    assert denied_by([0.0398, 0.044, 0.046], most=0.04, last_digit=0.01) == [0.046]

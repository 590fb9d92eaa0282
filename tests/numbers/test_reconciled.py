"""One account for all engines: the laws hold, and what was not told is not made up."""

from __future__ import annotations

from typing import Any

import pytest

from specmeter.numbers.reconciled import VERIFIED, acceptance_record, reconciled
from specmeter.record import Reply, Step, Timings


def reply(emitted: int, proposed: int | None, accepted: int | None, **beside: Any) -> Reply:
    timings = Timings(
        prompt_n=5, prompt_ms=1, predicted_n=emitted, predicted_ms=9, draft_n=proposed, draft_n_accepted=accepted
    )
    return Reply(text="x", stop_reason="limit", timings=timings, wall_ms=10, **beside)


def steps(*pairs: tuple[int, int]) -> tuple[Step, ...]:
    return tuple(Step(drafted=drafted, accepted=accepted, at_ms=1.0) for drafted, accepted in pairs)


def test_steps_tell_everything_and_the_laws_hold() -> None:
    told = reconciled(reply(14, 12, 7, steps=steps((4, 4), (4, 0), (0, 0), (4, 3))))
    assert (told.steps, told.bonus, told.corrected, told.evaluated) == (3, 1, 2, 9)
    kept = {name: value for name, value in told if value is not None}
    assert kept["corrected"] + kept["bonus"] == kept["steps"]
    assert kept["accepted"] + kept["corrected"] == kept["evaluated"]
    assert kept["accepted"] + kept["steps"] + kept["plain"] == kept["emitted"]
    assert kept["proposed"] >= kept["evaluated"] >= kept["accepted"]


def test_a_total_alone_tells_no_more_than_it_says() -> None:
    told = reconciled(reply(64, 56, 49, counters={VERIFIED: 14}))
    assert (told.steps, told.plain) == (14, 1)
    assert (told.evaluated, told.corrected, told.bonus) == (None, None, None)


def test_a_histogram_of_full_drafts_tells_what_was_corrected() -> None:
    said = {f"acceptance_histogram.{at}": count for at, count in enumerate((1, 0, 0, 3, 10))}
    told = reconciled(reply(64, 56, 49, counters={VERIFIED: 14}, raw_timings=said | {"num_spec_tokens": 4}))
    assert (told.bonus, told.corrected, told.evaluated) == (10, 4, 53)
    shorter = reconciled(reply(64, 56, 49, counters={VERIFIED: 14}, raw_timings=said | {"num_spec_tokens": 8}))
    assert shorter.bonus is None


@pytest.mark.parametrize(("proposed", "accepted"), [(None, None), (None, 49), (0, 0)])
def test_what_is_not_told_stays_so(proposed: int | None, accepted: int | None) -> None:
    told = reconciled(reply(64, proposed, accepted))
    assert told.steps == (0 if proposed == 0 else None)
    assert told.plain == (64 if proposed == 0 else None)
    assert acceptance_record(reply(64, proposed, accepted)) is None


def test_the_record_of_aiperf() -> None:
    assert acceptance_record(reply(12, 8, 7, steps=steps((4, 4), (4, 3)))) == {
        "mean_acceptance_length": 4.5,
        "draft_acceptance_rate": 0.875,
        "num_accepted_draft_tokens": 7,
        "num_draft_tokens": 8,
        "num_spec_steps": 2,
        "acceptance_histogram": {"0": 0, "1": 0, "2": 0, "3": 1, "4": 1},
    }

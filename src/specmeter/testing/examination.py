"""All cases of conformance, tried on one engine."""

from __future__ import annotations

import textwrap
import time
from dataclasses import dataclass
from typing import Literal

from specmeter.testing import answers, lives
from specmeter.testing.subject import Case, NotApplicable, NotMet, Subject

CASES: tuple[Case, ...] = (
    answers.identity_is_stable,
    answers.a_session_says_what_it_is,
    answers.a_damaged_model_is_refused,
    answers.counts_are_exact,
    answers.the_end_is_obeyed,
    answers.times_lie_within_the_request,
    answers.text_is_that_of_its_tokens,
    answers.tokens_come_back_as_text,
    answers.any_script_is_answered,
    answers.what_is_not_unicode_is_refused,
    answers.long_prompts_have_a_limit,
    answers.greedy_decoding_repeats,
    answers.candidates_begin_with_what_is_said,
    answers.drafts_are_conserved,
    answers.drafting_changes_no_text,
    lives.requests_in_flight_are_answered,
    lives.requests_in_flight_overlap,
    lives.a_request_fails_alone,
    lives.a_cancelled_request_is_never_collected,
    lives.a_dead_engine_fails_all_in_flight,
    lives.a_hung_engine_is_noticed,
    lives.garbage_is_told_from_an_answer,
    lives.close_ends_the_engine,
    lives.close_ends_what_is_in_flight,
    lives.nothing_is_left_behind,
)


@dataclass(frozen=True)
class Result:
    """What came of one case."""

    case: str
    status: Literal["passed", "failed", "not applicable"]
    reason: str
    seconds: float


@dataclass(frozen=True)
class Examination:
    """What came of all cases; as text, a line for each."""

    results: tuple[Result, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return all(result.status != "failed" for result in self.results)

    def __str__(self) -> str:
        lines: list[str] = []
        for result in self.results:
            lines.append(f"{result.status:<16}{result.case.replace('_', ' ')} ({result.seconds:.1f} s)")
            if result.reason:
                lines += textwrap.wrap(result.reason, 100, initial_indent=" " * 16, subsequent_indent=" " * 16)
        count = {status: sum(it.status == status for it in self.results) for status in ("passed", "failed")}
        return "\n".join([*lines, f"{count['passed']} of {len(self.results)} cases passed, {count['failed']} failed"])


def examine(subject: Subject, cases: tuple[Case, ...] = CASES) -> Examination:
    """Try all cases on an engine. Whatever one of them raises is its failure; Ctrl-C passes on."""
    with subject:
        return Examination(tuple(_tried(case, subject) for case in cases))


def _tried(case: Case, subject: Subject) -> Result:
    started = time.monotonic()
    status, reason = "passed", ""
    try:
        case(subject)
    except NotApplicable as error:
        status, reason = "not applicable", str(error)
    except NotMet as error:
        status, reason = "failed", str(error)
    except Exception as error:
        status, reason = "failed", f"{type(error).__name__}: {error}"
    if status == "failed":
        subject.close()  # the next case gets a session that this one did not break
    return Result(case.__name__, status, reason, time.monotonic() - started)

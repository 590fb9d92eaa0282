"""Conformance: what every engine has to do, so that what is measured through it can be believed.

For the author of an engine. With pytest,

    import pytest
    from specmeter.testing import CASES, Subject

    @pytest.fixture(scope="module")
    def subject():
        with Subject(MyEngine(), arm=..., target=...) as it:
            yield it

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
    def test_conformance(case, subject):
        case(subject)

and without, `print(examine(Subject(...)))`. Each case is a function whose docstring says what is demanded and why; it
raises `NotMet` (an `AssertionError`), or `NotApplicable` (a skipped test) for what the engine does not have.
"""

from specmeter.testing.examination import CASES, Examination, Result, examine
from specmeter.testing.subject import Case, NotApplicable, NotMet, Subject

__all__ = ["CASES", "Case", "Examination", "NotApplicable", "NotMet", "Result", "Subject", "examine"]

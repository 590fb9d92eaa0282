"""The first answer of an advice that takes long, on a real pair of bench models."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from specmeter.advise import pipeline, session
from specmeter.advise.advice import Advice, AdviceQuestion, read_advice
from specmeter.advise.pipeline import Silent, advise
from specmeter.errors import UsageError
from specmeter.experiments.file import load
from specmeter.messages import words
from specmeter.show.advice_words import headline, names_of
from specmeter.store import RunStore

ASKED = AdviceQuestion(target="bench:dense", drafts=("bench:draft-small",), settings=(), budget_s=600)
GRID = {
    "targets": {"t": "bench:dense"},
    "drafts": {"small": "bench:draft-small"},
    "arms": [{"draft": "small", "gamma": [1, 4]}],
    "workloads": [{"source": "bench", "kinds": ["code"], "per_kind": 8}],
    "design": {"blocks": 1, "probe": "off", "disturbed": "keep"},
    "generation": {"max_tokens": 16},
    "engine": {"threads": 1, "context": 1024},
}


class Impatient(Silent):
    """Ends it with the first answer."""

    heard: Advice | None = None

    def told(self, advice: Advice) -> None:
        if self.heard is None:
            self.heard = advice
            raise KeyboardInterrupt


def test_a_first_answer_rests_on_half_of_the_texts_and_on_sizes_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "FIRST_S", 0.0)
    monkeypatch.setattr(session, "LEAST_KEPT_BYTES", 0)
    observer = Impatient()
    found = advise(ASKED, load(GRID), tmp_path / "advice", observer)
    first = observer.heard
    assert first is not None
    assert first.basis == "predicted"
    assert first.fates == ()
    assert "a first guess from the sizes of the models" in words().render(headline(first, names_of(first)))
    assert (found.decision, found.why_undecided) == ("undecided", "interrupted")
    assert read_advice(tmp_path / "advice").why_undecided == "interrupted"
    with RunStore.open(tmp_path / "advice" / "screen", readonly=True) as store:
        assert len(list(store.rows())) == 2
        assert not list(store.probes())
        assert list(store.profiles())
    # It goes on with the other half, and prices what it drafts.
    again = pipeline.AdviseSession(read_advice(tmp_path / "advice"), tmp_path / "advice", Silent())
    with closing(again.servers):
        pipeline.screen(again)
    with RunStore.open(tmp_path / "advice" / "screen", readonly=True) as store:
        assert len({row.prompt_id for row in store.rows()}) == 4
        assert list(store.probes())
    assert again.advice.fates


def test_a_budget_that_half_of_the_texts_show_to_be_too_small_is_refused_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LEAST_KEPT_BYTES", 0)
    asked = ASKED.model_copy(update={"budget_s": 0.01})
    with pytest.raises(UsageError, match="is too small"):
        advise(asked, load(GRID), tmp_path / "advice", Silent())
    with RunStore.open(tmp_path / "advice" / "screen", readonly=True) as store:
        assert len(list(store.rows())) == 2

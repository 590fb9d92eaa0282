"""Settings of the engine that are tried first: which, and what is in force then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from specmeter.advise.advice import DRAFTS, AdviceQuestion
from specmeter.advise.advise import advise
from specmeter.advise.observer import Silent
from specmeter.advise.settings import alternatives
from specmeter.engines.mock.player import Player
from specmeter.engines.registry import spec_of
from specmeter.errors import UsageError
from specmeter.experiments.file import load
from specmeter.messages import Message
from specmeter.record import EngineSettings
from specmeter.show.advice_report import report
from specmeter.show.terminal.report import print_report
from specmeter.store import RunStore

if TYPE_CHECKING:
    from specmeter.experiments.file import LoadedExperiment
    from specmeter.record import Request

ASKED = AdviceQuestion(
    target="mock:dense", drafts=("mock:small",), settings=("engine.kind=mock",), budget_s=900, wide=True
)
KEYS = {
    "targets": {"t": "mock:dense"},
    "drafts": {"small": "mock:small"},
    "arms": [{"draft": "small", "gamma": [2, 4]}],
    "workloads": [{"source": "bench", "kinds": ["fact", "code"], "per_kind": 2}],
    "design": {"blocks": 1, "probe": "off"},
    "generation": {"max_tokens": 48},
    "engine": {"kind": "mock", "mock": {"noise": 0.004}},
}


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has."""
    monkeypatch.setattr("specmeter.engines.process.default_threads", lambda: 4)


def paced(monkeypatch: pytest.MonkeyPatch, **speeds: float) -> None:
    """Let the mock engine be so many times as fast with a setting of that value."""
    usual = vars(Player)["_pace"]

    def pace(player: Player, *place: object) -> float:
        engine = vars(player)["_arm"].engine
        named = (str(engine.threads), engine.flash_attention, engine.kv_type_k)
        return usual(player, *place) / max(speeds.get(f"at_{it}", 1.0) for it in named)

    monkeypatch.setattr(Player, "_pace", pace)


def grid(**engine: object) -> LoadedExperiment:
    mock = {"kind": "mock", "mock": {"noise": 0.004}, **engine}
    return load({**KEYS, "engine": mock})


class Stopping(Silent):
    """Interrupts at a request."""

    left = 20

    def request_done(self, request: Request) -> None:  # noqa: ARG002
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def test_what_is_given_is_not_tried() -> None:
    traits = spec_of("mock").traits

    def tried(cores: int = 8, **given: object) -> list[dict[str, int | str]]:
        known = EngineSettings.model_validate(given)
        return list(alternatives(known, traits.settings, traits.kv_types, cores))

    cache = {"kv_type_k": "q8_0", "kv_type_v": "q8_0"}
    attention = [{"flash_attention": "on"}, {"flash_attention": "off"}]
    assert tried() == [{"threads": 7}, {"threads": 4}, *attention, {**cache, "flash_attention": "on"}]
    assert tried(2, flash_attention="on") == [{"threads": 1}, cache]
    assert tried(1, flash_attention="off") == []
    assert tried(threads=8, kv_type_k="f16") == attention
    assert list(alternatives(EngineSettings(), ("context",), (), 8)) == []


def test_a_faster_setting_is_in_force_for_all_that_follows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    paced(monkeypatch, at_3=1.2)
    first = advise(ASKED, grid(), tmp_path / "a", Stopping())
    assert first.why_undecided == "interrupted"
    assert [stage.stage for stage in first.stages] == ["settings"]
    advice = advise(ASKED, grid(), tmp_path / "a", Silent())
    assert [stage.stage for stage in advice.stages] == ["settings", "screen", "race", "confirm"]
    assert {it.engine.get("threads"): it.code for it in advice.settings} == {
        3: "chosen",
        2: "not-faster",
        None: "not-faster",
    }
    chosen = next(it for it in advice.settings if it.code == "chosen")
    assert chosen.speedup is not None
    assert chosen.speedup.point == pytest.approx(1.2, rel=0.02)
    assert not chosen.changes_text
    assert advice.decision in DRAFTS
    assert all(arm.engine.threads == 3 for arm in advice.arms)
    assert all(outcome.code != "failed" for outcome in advice.outcomes)
    # Plain decoding had it as well: what is told is what drafting gains.
    alone = advise(ASKED.model_copy(update={"wide": False}), grid(), tmp_path / "b", Silent())
    assert alone.speedup is not None
    assert advice.speedup is not None
    assert advice.speedup.point == pytest.approx(alone.speedup.point, rel=0.05)
    with RunStore.open(tmp_path / "a" / "confirm", readonly=True) as store:
        assert {arm.engine.threads for arm in store.arms()} == {3}


def test_another_cache_is_said_to_change_the_outputs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paced(monkeypatch, at_q8_0=1.2)
    advice = advise(ASKED, grid(), tmp_path / "a", Silent())
    assert [it.changes_text for it in advice.settings if it.code == "chosen"] == [True]
    assert {(arm.engine.kv_type_k, arm.engine.kv_type_v, arm.engine.flash_attention) for arm in advice.arms} == {
        ("q8_0", "q8_0", "on")
    }
    print_report(report(advice, tmp_path / "a"), details=True)
    assert "kv_type_k=q8_0" in " ".join(capsys.readouterr().out.split())
    assert Message("advised.note.kv_types") in {it.said for it in report(advice, tmp_path / "a").notes}


def test_the_default_is_kept_where_nothing_is_faster(tmp_path: Path) -> None:
    faults = [{"kind": "start-fails", "arm": "*/flash_attention=off"}]
    advice = advise(ASKED, grid(mock={"noise": 0.004, "faults": faults}), tmp_path / "a", Silent())
    assert {it.code for it in advice.settings} == {"not-faster", "failed"}
    failed = [it for it in advice.settings if it.code == "failed"]
    assert [it.engine for it in failed] == [{"flash_attention": "off"}]
    assert "did not start" in failed[0].why
    assert all(arm.engine.threads is None for arm in advice.arms)
    assert advice.decision in DRAFTS


def test_nothing_to_try_is_refused(tmp_path: Path) -> None:
    given = grid(threads=2, flash_attention="off")
    with pytest.raises(UsageError, match="left to try"):
        advise(ASKED, given, tmp_path / "a", Silent())

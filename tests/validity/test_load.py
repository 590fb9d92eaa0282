"""Cells under load that are as they should be, and what each check says when one thing about them is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory import found, unchecked, with_arms, with_requests, with_sessions
from mock_run import mock_run

from specmeter.analysis.load.contradictions import contradiction
from specmeter.analysis.load.times import CellTimes, Sent
from specmeter.messages import Message
from specmeter.record import Load, LoadCell
from specmeter.record.verdict import Findings
from specmeter.validity.checks import load
from specmeter.validity.checks.counters import conservation
from specmeter.validity.checks.run_data import RunData

BASE, SD = "dense/none/c4", "dense/draft-simple/small/g4/c4"


def under(folder: Path, asked: dict[str, Any], **changes: Any) -> RunData:
    given: dict[str, Any] = {
        "targets": {"dense": "mock:dense"},
        "arms": [{"draft": "small", "gamma": 4}],
        "design": {"blocks": 2},
        "load": asked,
    }
    return mock_run(folder, **given | changes)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    """One client and four, on the mock engine; its prompts all go into one batch, as a server's would."""
    data = under(tmp_path_factory.mktemp("load"), {"clients": [1, 4], "rounds": 2})
    return with_sessions(data, resolved={"n_batch": 2048})


@pytest.fixture(scope="module")
def arriving(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    """Requests by a rate that the engine keeps up with."""
    return under(tmp_path_factory.mktemp("rate"), {"rate": 0.3, "requests": 16})


def with_cells(data: RunData, arm_id: str, change: Callable[[LoadCell], dict[str, Any]]) -> RunData:
    """Replace fields of an arm's cells as they are recorded."""
    changed = {
        name: it.model_copy(update=change(it)) if it.arm_id == arm_id else it for name, it in data.load_cells.items()
    }
    return replace(data, load_cells=changed)


def with_figures(data: RunData, arm_id: str, change: Callable[[Any], dict[str, Any]]) -> RunData:
    """Replace numbers of an arm's cells as they are told."""
    cells = tuple(
        it._replace(figures=it.figures.model_copy(update=change(it.figures))) if it.figures.arm_id == arm_id else it
        for it in data.cells
    )
    return replace(data, cells=cells)


def counted(cell: LoadCell, more: int) -> dict[str, Any]:
    forwards = cell.counters["n_busy_slots_total"] + more
    return {"counters": cell.counters | {"n_busy_slots_total": forwards}}


@pytest.mark.parametrize("look", [conservation, *(check.look for check in load.CHECKS)])
def test_cells_as_they_should_be(look: Callable[[RunData], Findings], clean: RunData, arriving: RunData) -> None:
    for data in (clean, arriving):
        assert data.cells
        assert found(look, data) == []
        assert unchecked(look, data, applies=True) == []


@pytest.mark.parametrize("more", [-1, 1])
def test_counts_of_a_cell_that_are_off_by_one_do_not_close(more: int, clean: RunData) -> None:
    seen = found(conservation, with_cells(clean, SD, lambda it: counted(it, more)))
    assert {(it.arm_id, it.severity, it.evidence["unexplained"]) for it in seen} == {(SD, "invalid", -more)}


def test_fillers_are_counted_with_their_cell_and_lie_beside_the_requests_of_their_client(clean: RunData) -> None:
    def fewer(it: LoadCell) -> dict[str, Any]:
        return {"fillers": it.fillers[1:]}

    assert {(it.arm_id, it.severity) for it in found(conservation, with_cells(clean, SD, fewer))} == {(SD, "invalid")}
    cell = next(it for it in clean.load_cells.values() if it.arm_id == SD)
    mine = [it.row for it in clean.requests if it.row.session_id == cell.session_id]
    sent = [
        Sent(client, row.started_at, row.started_at, 0.0, 0.0, row.wall_ms, [row.wall_ms or 0.0])
        for client, row in enumerate(sorted(mine, key=lambda it: it.started_at)[:4])
    ]
    times, asked = CellTimes.of(cell.began_at, sent), Load(clients=4, requests=4)
    lead = cell.fillers[0].model_copy(update={"client": 0, "started_at": sent[0].started_at - 1, "wall_ms": 1000.0})
    assert contradiction(cell.model_copy(update={"fillers": (lead,)}), times, asked) is None
    across = lead.model_copy(update={"wall_ms": 1500.0})
    seen = contradiction(cell.model_copy(update={"fillers": (across,)}), times, asked)
    assert seen is not None
    assert seen.what.code == "records-differ.cell_due"


def test_one_accepted_token_more_in_one_request_of_a_cell(clean: RunData) -> None:
    one = next(it.row for it in clean.requests if it.row.arm_id == SD and it.row.draft_n_accepted)
    more = with_requests(clean, lambda row: row == one, draft_n_accepted=(one.draft_n_accepted or 0) + 1)
    cell, request = found(conservation, more)
    assert (cell.arm_id, cell.severity, cell.evidence["block"]) == (SD, "invalid", one.block)
    assert (request.scope, request.prompt_id, request.evidence["unexplained"]) == ("request", one.prompt_id, -1)


def test_forwards_that_were_not_counted_or_cells_that_are_gone_are_not_taken_for_closed(clean: RunData) -> None:
    for data in (with_cells(clean, SD, lambda _: {"counters": {}}), replace(clean, load_cells={})):
        assert SD in {it.arm_id for it in unchecked(conservation, data, applies=True)}
    gone = unchecked(load.load_not_reached, replace(clean, load_cells={}, cells=()), applies=True)
    assert {it.arm_id for it in gone} == set(clean.arms)


def test_clients_that_rest(clean: RunData) -> None:
    resting = with_figures(clean, BASE, lambda it: {"request_ms": 0.9 * it.request_ms})
    (seen,) = found(load.load_not_reached, resting)
    assert (seen.arm_id, seen.severity, seen.evidence["busy"]) == (BASE, "suspect", pytest.approx(3.6, abs=0.05))
    short = with_figures(clean, BASE, lambda _: {"no_window": "too short"})
    (seen,) = found(load.load_not_reached, short)[:1]
    assert seen.message.values["why"] == Message("no-window.too_short")


def test_fewer_slots_than_clients(clean: RunData, tmp_path: Path) -> None:
    (seen,) = found(load.requests_queued, with_figures(clean, SD, lambda _: {"slots": 3}))
    assert (seen.arm_id, seen.severity, seen.evidence["slots"]) == (SD, "suspect", 3)
    meant = under(tmp_path, {"clients": 4, "slots": 2}, design={"blocks": 1})
    assert {it.severity for it in found(load.requests_queued, meant)} == {"note"}
    assert found(conservation, meant) == []


def test_clients_that_send_late(clean: RunData, arriving: RunData) -> None:
    longest = max(it.figures.duration_ms for it in (*clean.cells, *arriving.cells))
    for data in (clean, arriving):
        for arm_id in data.arms:
            (seen,) = found(load.client_late, with_figures(data, arm_id, lambda _: {"late_sum_ms": 0.5 * longest}))
            assert (seen.arm_id, seen.severity) == (arm_id, "suspect")
            assert found(load.client_late, with_figures(data, arm_id, lambda _: {"late_sum_ms": 1.0})) == []


def test_a_pause_in_one_cell_of_several_is_told_and_a_short_cell_says_that_it_is_short(clean: RunData) -> None:
    def paused(it: Any, clients: int = 4) -> dict[str, Any]:
        return {"late_sum_ms": 0.03 * it.duration_ms * clients if it.block == 0 else 0.0}

    (seen,) = found(load.client_late, with_figures(clean, BASE, paused))
    assert (seen.severity, seen.evidence["share"], seen.evidence["mean"]) == ("note", 0.03, 0.015)
    assert seen.remedy.code == "client-late.fix"
    short = with_figures(clean, BASE, lambda it: paused(it) | {"duration_ms": 200.0, "late_sum_ms": 50.0})
    assert [it.remedy.code for it in found(load.client_late, short)] == ["client-late.fix_short"]


def test_cells_that_were_measured_again_have_to_have_been_late(clean: RunData) -> None:
    cell = next(it for it in clean.load_cells.values() if it.arm_id == BASE)
    took = 4 * 1000 * (cell.ended_at - cell.began_at)
    for share, severity, code in ((0.05, "note", "client-late.again"), (0.01, "suspect", "client-late.in_time")):
        again = {**clean.load_cells, "before": cell.model_copy(update={"session_id": "before"})}
        (seen,) = found(load.client_late, replace(clean, load_cells=again, late_before={"before": share * took}))
        assert (seen.arm_id, seen.severity, seen.message.code) == (BASE, severity, code)


def test_clients_that_take_the_machine(clean: RunData) -> None:
    busy = with_figures(clean, BASE, lambda _: {"client_cores": 1.0})
    real = replace(
        busy, experiment=busy.experiment.model_copy(update={"engine": engine_of(busy, "embedded")}), stated=None
    )
    hosts = tuple(it.model_copy(update={"logical_cores": 2}) for it in real.hosts)
    (seen,) = found(load.client_late, replace(real, hosts=hosts))
    assert (seen.arm_id, seen.severity, seen.evidence["share"]) == (BASE, "suspect", 0.5)


def engine_of(data: RunData, kind: str) -> Any:
    return data.experiment.engine.model_copy(update={"kind": kind})


def test_requests_that_arrive_faster_than_they_are_answered(arriving: RunData, tmp_path: Path) -> None:
    flooded = under(tmp_path, {"rate": 20, "requests": 32, "slots": 4})
    seen = found(load.overloaded, flooded)
    assert {(it.arm_id, it.severity) for it in seen} == {(arm_id, "suspect") for arm_id in flooded.arms}
    assert all(float(str(it.evidence["reached"])) < 18 for it in seen)
    assert found(load.load_not_reached, flooded) == []
    # Chance alone makes few requests arrive more slowly than their rate.
    arm_id = next(iter(arriving.arms))
    slow = with_figures(arriving, arm_id, lambda it: {"requests_done": 0.7 * 0.3 * it.window_ms / 1000})
    assert found(load.overloaded, slow) == []


def test_windows_that_are_about_prompts_or_about_nothing(clean: RunData) -> None:
    (prompts,) = found(load.prompts_in_window, with_figures(clean, SD, lambda it: {"decode_ms": 0.4 * it.request_ms}))
    assert (prompts.arm_id, prompts.evidence["share"]) == (SD, pytest.approx(0.6))
    (short,) = found(load.prompts_in_window, with_figures(clean, SD, lambda _: {"tokens": 63}))
    assert (short.arm_id, short.evidence["tokens"]) == (SD, 63)


@pytest.mark.parametrize("nothing", [0, None])
def test_a_slot_that_drafts_nothing(nothing: int | None, clean: RunData) -> None:
    silent = with_requests(clean, lambda row: row.arm_id == SD and row.item == 1, draft_n=nothing, draft_n_accepted=0)
    (seen,) = found(load.slot_without_drafts, silent)
    assert (seen.arm_id, seen.severity) == (SD, "invalid")
    # A rule that may decide against drafts is another matter.
    assert found(load.slot_without_drafts, with_arms(silent, SD, p_min=0.9)) == []


def test_a_method_that_remembers_meets_a_prompt_again(tmp_path: Path) -> None:
    again = under(tmp_path, {"clients": 4, "rounds": 2}, arms=[{"method": "ngram-mod"}], design={"blocks": 1})
    arm_id = next(name for name, arm in again.arms.items() if arm.speculates)
    (seen,) = found(load.prompt_remembered, again)
    assert (seen.arm_id, seen.severity, seen.evidence["requests"]) == (arm_id, "suspect", 4)
    once = replace(again, prompts={name: it.model_copy(update={"of": None}) for name, it in again.prompts.items()})
    assert found(load.prompt_remembered, once) == []


def test_runs_without_a_load_have_nothing_to_say(tmp_path: Path) -> None:
    single = mock_run(tmp_path, design={"blocks": 1})
    for check in load.CHECKS:
        assert found(check.look, single) == []
        assert all(not it.applies for it in unchecked(check.look, single))

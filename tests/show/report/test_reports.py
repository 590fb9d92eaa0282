"""Every report, whatever its subject, on every medium: it fits, says all of its words, and nothing in it acts."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import specmeter
from advices import ALL, HOSTILE, SCHEDULES
from mock_probe import mock_probe
from report_pages import ATTACK
from report_pages import measured as measured_run
from specmeter.analysis.comparison import compare_runs, read_side
from specmeter.analysis.prediction.at_clients import over_clients, probed_at
from specmeter.analysis.prediction.sources import acceptance_of, costs_of
from specmeter.analysis.prediction.speedup import predict, surface
from specmeter.analysis.reading import read_run
from specmeter.audit.read.options import TableOptions
from specmeter.audit.reading import read_rows, rule
from specmeter.cli import invoke
from specmeter.messages import LANGUAGES, Message, words
from specmeter.probe.record import Probe
from specmeter.probe.routing import Routing, summarize
from specmeter.record import BatchPoint, Estimate
from specmeter.show import (
    advice_report,
    audit_report,
    check_report,
    comparison_report,
    prediction_report,
    probe_report,
    run_report,
    schedule_report,
    why_report,
)
from specmeter.show.notebook import report_html
from specmeter.show.page.document import read_document
from specmeter.show.page.page import report_page
from specmeter.show.report import Command, Report, Tabled, Text
from specmeter.show.terminal.console import Screen
from specmeter.show.terminal.report import print_on
from specmeter.store import RunStore
from specmeter.text import printable
from specmeter.validity.inspection import inspect

FOLDER = Path("specmeter-runs/one")
LOADED = """
name: loaded
targets: {dense: "mock:dense", moe: "mock:moe"}
drafts: {small: "mock:small"}
workloads: [{source: bench, kinds: [fact], per_kind: 1}]
arms: [{draft: small, gamma: [2]}]
load: {clients: [1, 2]}
engine: {kind: mock}
design: {blocks: 2}
generation: {max_tokens: 16}
"""
HOLE = re.compile(r"\{[a-z_]+(?::[^{}]*)?\}")
CONTROL = re.compile("[\x00\x07\x1b\x9b\u202e\u2066]")
ACTING = re.compile(f"{CONTROL.pattern}|<script>|<img|<svg")


def batched() -> Probe:
    """A probe of several sequences, by a stranger."""
    shapes = [(b, n) for b in (1, 2, 4) for n in (1, 2, 3, 5)]
    times = (
        Estimate(point=20 + b * n, low=19 + b * n, high=21 + b * n, n=9, unit="ms", method="made up") for b, n in shapes
    )
    points = [BatchPoint(sequences=b, tokens=n, depth=128, ms=ms) for (b, n), ms in zip(shapes, times, strict=True)]
    made = mock_probe("moe").model_copy(update={"batches": tuple(points), "other_cpu_percent": (80.0, 90.0)})
    target, host = made.target.model_copy(update={"reference": HOSTILE}), made.host.model_copy(update={"cpu": ATTACK})
    return made.model_copy(update={"target": target, "host": host})


def probes() -> list[Report]:
    return [probe_report.report(it, FOLDER) for it in (mock_probe(), mock_probe("moe", draft=None), batched())]


def routing() -> list[Report]:
    rng = np.random.default_rng(1)
    ids = np.stack([[rng.permutation(8)[:2] for _ in range(64)] for _ in range(2)]).astype(np.uint8)
    model = mock_probe("moe").target.model_copy(update={"reference": HOSTILE})
    found = (Routing(8, (0, 1), ids, (64,)), Routing(8, (0, 1), ids, (64,), ids))
    return [probe_report.routing(model, summarize(it), FOLDER) for it in found]


def predictions() -> list[Report]:
    probe, lengths = batched(), (1, 2, 4, 8, 16)
    costs = costs_of(probe, Message("costs.probe", name=HOSTILE), None, None, "", None, None, 512, no_draft=False)
    given = acceptance_of(0.7, None, None, None, None, by_model=True, probe=probe)
    found = predict(given, costs, lengths, by_model=True)
    named = Message("costs.probe", name=HOSTILE)
    loads = over_clients(given, lambda count: probed_at(probe, named, count), lengths, (1, 2, 4), by_model=True)
    whole = surface(costs, lengths, (0.3, 0.6, 0.9), by_model=True)
    slow = specmeter.predict(device="M2 Ultra", model="Qwen3.5-9B", alpha=0)
    return [prediction_report.report(found, whole, loads), prediction_report.report(slow)]


def audits() -> list[Report]:
    rows = [{"gamma": 4, "acceptance": share, "speedup": 1.9, "name": ATTACK} for share in (0.01, 0.7, 0.9) * 12]
    found = rule(read_rows(rows, TableOptions()), HOSTILE, "table")
    few = rule(read_rows(rows[:1], TableOptions()), "rows", "table")
    return [audit_report.report(it, details=details) for it in ([found], [found, few]) for details in (False, True)]


MADE: dict[str, Callable[[], list[Report]]] = {
    "advice": lambda: [advice_report.report(it, FOLDER) for it in ALL.values()],
    "schedule": lambda: [schedule_report.report(it, FOLDER) for it in SCHEDULES.values()],
    "probe": probes,
    "routing": routing,
    "prediction": predictions,
    "audit": audits,
}


@pytest.fixture(scope="session")
def measured(sweep: Path, hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Report]]:
    """Reports of runs."""
    loaded = measured_run(tmp_path_factory.mktemp("loaded"), LOADED)
    sides = [read_side(it) for it in (sweep, hostile)]
    pairs = [compare_runs(side, side, measure=by) for side in sides for by in ("rate", "speedup")]
    return {
        "comparison": [comparison_report.report(it) for it in (pairs[:1], pairs[1:])],
        "run": [run_report.report(read_run(it), by_kind=True) for it in (sweep, hostile, loaded)],
        "check": [_check(sweep, every=every) for every in (False, True)],
        "why": [why_report.report(read_document(it)) for it in (sweep, hostile)],
    }


def _check(folder: Path, *, every: bool) -> Report:
    with RunStore.open(folder, readonly=True) as store:
        return check_report.report(folder, inspect(store), issued=every, every=every)


SUBJECTS = [*MADE, "comparison", "run", "check", "why"]


@pytest.fixture
def reports(subject: str, measured: dict[str, list[Report]]) -> list[Report]:
    return MADE[subject]() if subject in MADE else measured[subject]


def holes(text: str) -> set[str]:
    """Places that no value was filled into."""
    return set(HOLE.findall(text)) - {"{attacked}"}


def unbroken(report: Report) -> set[str]:
    """Beginnings of lines that stay whole: commands and paths."""
    blocks = [*report.answer, *report.closing, *(block for section in report.sections for block in section.blocks)]
    whole = (it for it in blocks if isinstance(it, Text) and it.whole)
    return {"  ", *(printable(words().render(it.said))[:20] for it in whole)}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_terminal_of_any_width_shows_it(reports: list[Report]) -> None:
    for report in reports:
        for width, details in ((40, True), (80, False), (160, True)):
            file = io.StringIO()
            print_on(Screen(width=width, file=file), report, details=details)
            shown = file.getvalue()
            assert not CONTROL.search(shown)
            lines = [it for it in shown.splitlines() if not it.startswith(tuple(unbroken(report)))]
            assert [it for it in lines if len(it.rstrip()) > width] == []
            if width == 160:
                assert not holes(shown)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_page_shows_it_in_every_language(reports: list[Report]) -> None:
    for report in reports:
        page = report_page(report)
        assert not CONTROL.search(page)
        main = page[page.index("<main") : page.index("</main>")]
        assert not ACTING.search(main)
        assert not holes(main)
        assert all(f'data-lang="{it}"' in main for it in LANGUAGES)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_notebook_shows_it(reports: list[Report]) -> None:
    for report in reports:
        shown = report_html(report)
        assert not ACTING.search(shown)
        assert not holes(shown)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_its_tables_have_names_of_their_own(reports: list[Report]) -> None:
    for report in reports:
        blocks = [*report.answer, *(block for section in report.sections for block in section.blocks)]
        names = [block.table.name for block in blocks if isinstance(block, Tabled)]
        assert len(names) == len(set(names))
        assert not any(isinstance(block, Command) and not block.argv for block in blocks)


def test_the_interval_of_the_answer_is_that_of_its_row(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One interval to cite, where several configurations compete; details name the other."""
    assert invoke(["show", str(sweep)]) == 1  # one of its arms is invalid
    said = " ".join(capsys.readouterr().out.split())
    low, high = re.findall(r"best configuration: [\d.]+x \[([\d.]+), ([\d.]+)\]", said)[0]
    assert re.search(rf"draft model small, 8 draft tokens [\d.]+ [\d.]+ \[{low}, {high}\]", said)
    assert invoke(["show", str(sweep), "--details"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    ((other, _),) = set(
        re.findall(rf"\[{low}, {high}\]: 95% interval .*?without the correction: \[(\S+), (\S+)\] ", said)
    )
    assert other > low
    run = read_run(sweep)
    cited = {arm.arm_id: run.cited(arm) for arm in (*run.summary.arms, *run.summary.controls)}
    assert run.predictions
    assert all(it.measured == cited[it.prediction.arm_id] for it in run.predictions)
    account = read_document(sweep).account
    assert account is not None
    assert all(arm.speedup == cited[arm.arm_id] for arm in account.arms)
    row = next(it for it in specmeter.load(sweep).table("summary") if it["arm_id"] == "dense/draft-simple/small/g8")
    assert f"{row['speedup_low']:.2f}" == low
    assert f"{row['speedup_alone_low']:.2f}" == other


def test_a_run_that_stopped_when_it_was_decided_says_so(sweep: Path) -> None:
    run = read_run(sweep)
    found = run.findings[0].model_copy(
        update={"check": "stopped-when-decided", "severity": "note", "message": Message("stopped-when-decided.found")}
    )
    told = run_report.report(replace(run, findings=(*run.findings, found))).sections
    assert any(isinstance(it, Text) and it.said == found.message for part in told for it in part.blocks)


def test_where_none_helps_each_interval_is_its_own(sweep: Path) -> None:
    run = read_run(sweep)
    assert any(run.cited(arm) != arm.speedup for arm in run.summary.arms), "it allows for picking the best"
    off = replace(run, answers=tuple(it.model_copy(update={"decision": "do not speculate"}) for it in run.answers))
    assert all(off.cited(arm) == arm.speedup for arm in off.summary.arms)
    assert "corrected for picking the best" in str(run_report.interval_to_cite(run))
    assert "corrected" not in str(run_report.interval_to_cite(off))

"""The Python face: the same laboratory, numbers, verdicts and refusals as the command line's, and nothing heavy."""

from __future__ import annotations

import dataclasses
import doctest
import json
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import specmeter
from specmeter.analysis.reading import read_run
from specmeter.api import audit, prediction, runs
from specmeter.cli import invoke
from specmeter.errors import ExperimentError, StoreError, UsageError
from specmeter.show.export.tables import TABLES

ASKED: dict[str, Any] = {
    "name": "mine",
    "targets": {"dense": "mock:dense"},
    "drafts": {"small": "mock:small"},
    "arms": [{"draft": "small", "gamma": [2, 4]}],
    "workloads": [{"source": "bench", "kinds": ["code", "edit"], "per_kind": 1}],
    "design": {"blocks": 4},
    "generation": {"max_tokens": 32},
    "engine": {"kind": "mock"},
}
FAST = "dense/draft-simple/small/g4"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> specmeter.Run:
    return specmeter.run(ASKED, out=tmp_path_factory.mktemp("api") / "run")


def in_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


# --- the module ------------------------------------------------------------------------------------------------------


def test_importing_it_imports_nothing_heavy():
    loaded = in_python("import sys, specmeter; dir(specmeter); print(*sys.modules)").split()
    own = {name for name in loaded if name.startswith("specmeter")}
    assert own == {"specmeter", "specmeter.advise", "specmeter.audit"}
    assert not {"numpy", "pydantic", "click", "yaml", "sqlite3", "rich"} & set(loaded)


def test_what_is_listed_is_there_and_says_what_it_is():
    assert dir(specmeter) == sorted(specmeter.__all__)
    for name in specmeter.__all__:
        assert getattr(specmeter, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'measured'"):
        specmeter.measured  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("first", ["specmeter.audit", "specmeter.audit.reading", "specmeter.cli.audit"])
def test_the_function_audit_is_not_hidden_by_the_package_that_does_it(first: str):
    code = f"import {first}\nfrom specmeter.audit.reading import rule\nprint(specmeter.audit.__module__)"
    assert in_python(code).strip() == "specmeter.api.audit"


def test_examples_in_docstrings_are_true():
    found = [doctest.testmod(it, extraglobs={"specmeter": specmeter}) for it in (runs, audit, prediction)]
    assert (sum(it.failed for it in found), sum(it.attempted for it in found)) == (0, 4)


# --- experiments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"arm": []},
        {"targets": {}},
        {"arms": [{"draft": "smal"}]},
        {"arms": [{"method": "ngram-simpel"}]},
        {"design": {"blocks": "many", "ordr": "latin"}},
        {"name": "a/b"},
        {"generation": {"temperature": float("nan")}},
    ],
    ids=str,
)
def test_what_is_wrong_is_told_as_of_a_file(wrong: dict[str, Any], tmp_path: Path):
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump(ASKED | wrong), encoding="utf-8")
    with pytest.raises(ExperimentError) as of_file:
        specmeter.run(file)
    with pytest.raises(ExperimentError) as built:
        specmeter.Experiment(**ASKED | wrong)
    assert built.value.message == of_file.value.message.replace(str(file), "Experiment")
    assert built.value.fix == of_file.value.fix


def test_a_key_is_not_suggested_in_place_of_itself():
    with pytest.raises(ExperimentError, match="arm: unknown key; did you mean 'arms'"):
        specmeter.Experiment(**ASKED, arm=[])


def test_a_first_ctrl_c_that_python_drops_is_heard_before_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As in a notebook, where nothing but Python's own handler hears it."""
    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    done: list[int] = []

    def dropped(count: int, _planned: int, _request: object) -> None:
        done.append(count)
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    try:
        with pytest.raises(KeyboardInterrupt):
            specmeter.run(specmeter.Experiment(**ASKED), progress=dropped)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == [1]
    assert specmeter.load().state.reason == "interrupted"
    assert specmeter.run(specmeter.Experiment(**ASKED)).state.state == "complete", "the stop is forgotten"


def test_it_is_the_experiment_of_a_file_and_its_run_goes_on_from_either_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(yaml.safe_dump(ASKED), encoding="utf-8")
    seen: list[tuple[int, int]] = []

    def stop_after_five(done: int, planned: int, _request: object) -> None:
        seen.append((done, planned))
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        specmeter.run(specmeter.Experiment(**ASKED), progress=stop_after_five)
    assert seen == [(n, 24) for n in range(1, 6)]
    begun = specmeter.load()
    assert (begun.state.state, begun.verdict) == ("partial", None)
    assert invoke(["run", "mine.yaml"]) == 0
    assert begun.state.ok >= 5, "what was told, and what was stored together with it"
    assert f"resuming {24 - begun.state.ok} of 24 requests" in capsys.readouterr().err
    assert [it.name for it in Path("specmeter-runs").iterdir()] == [begun.folder.name]

    again: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        specmeter.run("mine.yaml", new=True, progress=stop_after_five)
    stored = specmeter.load().state.ok
    finished = specmeter.run(ASKED, progress=lambda done, _planned, _request: again.append(done))
    assert again == list(range(stored + 1, 25))
    assert (finished.state.state, finished.verdict) == ("complete", "valid")
    with pytest.raises(StoreError, match="already contains a run"):
        specmeter.run(ASKED, out=finished.folder, new=True)


def test_variants_and_overrides_change_what_is_built_in_python(tmp_path: Path):
    asked = ASKED | {"variants": {"short": {"design": {"blocks": 2}}}}
    with pytest.warns(UserWarning, match="an answer needs at least 3 blocks"):
        found = specmeter.run(
            asked, out=tmp_path / "run", variants=["short"], overrides=["arms.0.gamma=4", "generation.max_tokens=16"]
        )
    assert [arm.id for arm in found.arms] == ["dense/none", FAST]
    assert found.state.planned == 8


# --- runs ------------------------------------------------------------------------------------------------------------


def test_a_run_says_what_its_folder_says(run: specmeter.Run):
    read = read_run(run.folder)
    assert dataclasses.asdict(run) == dataclasses.asdict(read)
    assert run.verdict == "valid"
    assert run.arm(FAST) == next(arm for arm in read.summary.arms if arm.arm_id == FAST)
    assert specmeter.load(run.folder) == run
    by_prompt = specmeter.load(run.folder, by_prompt=True).arm(FAST).prompts or {}
    assert set(by_prompt) == {it.prompt_id for it in run.requests()}
    with pytest.raises(UsageError, match="run has no arm g5"):
        run.arm("g5")
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.name = "another"  # pyright: ignore[reportAttributeAccessIssue]


def test_requests_and_tables_are_those_of_exports(run: specmeter.Run, tmp_path: Path):
    requests = list(run.requests())
    assert len(requests) == run.state.ok == 24
    assert run.tables == tuple(TABLES)
    assert run.table("steps").write(tmp_path / "steps.jsonl") == sum(len(it.reply.steps) for it in requests if it.reply)
    lines = (tmp_path / "steps.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(json.dumps(row)) for row in run.table("steps")] == [json.loads(line) for line in lines]
    with pytest.raises(UsageError, match="step: no such table"):
        run.table("step")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_the_same_in_every_library(run: specmeter.Run, table: Any):
    rows = list(run.table(table))
    for row in rows:
        for column in run.table(table).columns:
            value = row[column.name]
            if column.type == "json" and value is not None:
                row[column.name] = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            elif isinstance(value, tuple):
                row[column.name] = list(value)
    assert run.to_arrow(table).to_pylist() == rows
    assert run.to_polars(table).to_dicts() == rows
    frame = run.to_pandas(table)
    assert list(frame.columns) == [column.name for column in TABLES[table].columns]
    assert len(frame) == len(rows)


def test_whole_numbers_stay_whole_where_some_are_missing(run: specmeter.Run):
    frame = run.to_pandas()
    assert str(frame["predicted_n"].dtype) == "Int64"
    missing = run.to_pandas("findings")["invocation"]
    assert (str(missing.dtype), missing.count(), len(missing) > 0) == ("Int64", 0, True)
    rates = frame.loc[frame["arm_id"] == FAST, "acceptance"].tolist()
    assert rates == [row["acceptance"] for row in run.table() if row["arm_id"] == FAST]


@pytest.mark.parametrize(("library", "extra"), [("pyarrow", "parquet"), ("pandas", "pandas"), ("polars", "polars")])
def test_a_library_that_is_missing_is_named_with_its_extra(run: specmeter.Run, library: str, extra: str, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    convert = {"pyarrow": run.to_arrow, "pandas": run.to_pandas, "polars": run.to_polars}[library]
    with pytest.raises(UsageError, match=f"needs {library}, which is not installed") as refusal:
        convert()
    assert f".[{extra}]" in refusal.value.fix


def test_it_shows_the_answer_its_interval_and_the_verdict_first(run: specmeter.Run):
    shown = run._repr_html_()
    answer = run.answers[0].speedup_simultaneous
    interval = f"[{answer.low:.2f}, {answer.high:.2f}]"
    assert f"{answer.point:.2f}x as fast {interval} with draft model small, 4 draft tokens" in shown
    assert shown.index("x as fast [") < shown.index(">simulated<") < shown.index("<table>")
    assert "Simulated" in shown


def test_comparisons_audits_predictions_and_tables_show_their_answer_first(run: specmeter.Run):
    shown = run.table("requests")._repr_html_()
    assert shown.startswith("<div><p><strong>requests: the first 20 rows</strong></p><table>")
    (compared,) = specmeter.compare(run, run)
    assert compared._repr_html_().startswith("<div><p><strong>run and run are the same data")  # pyright: ignore[reportAttributeAccessIssue]
    rows = [{"gamma": 4, "acceptance": 0.5, "speedup": 9.5, "name": "<b>"}] * 25
    audited = specmeter.audit(rows)._repr_html_()  # pyright: ignore[reportAttributeAccessIssue]
    assert audited.startswith("<div><p><strong>rows (table): 25 rows: ")
    assert "implausible" in audited
    assert "15 more" in audited
    assert "<b>" not in audited
    told = specmeter.predict(device="RTX 3090", model="Qwen3-8B", draft_model="Qwen3-0.6B", alpha=0.8)
    assert re.match(r"<div><p><strong>\d\.\d\dx as fast \[[\d., ]+\] with \d+ draft tokens", told._repr_html_())  # pyright: ignore[reportAttributeAccessIssue]


def test_nothing_from_outside_acts_in_a_notebook(run: specmeter.Run):
    evil = '<script>alert(1)</script>\x1b[2J\u202e"'
    arms = tuple(arm.model_copy(update={"target": evil}) for arm in run.arms)
    answers = tuple(it.model_copy(update={"arm_id": f"x/{evil}"}) for it in run.answers)
    shown = dataclasses.replace(run, name=evil, arms=arms, answers=answers)
    for text in (shown._repr_html_(), repr(shown)):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "<script>" not in shown._repr_html_()


def test_what_the_command_line_withholds_is_withheld(run: specmeter.Run, tmp_path: Path, capsys):
    import shutil

    folder = tmp_path / "doctored"
    shutil.copytree(run.folder, folder)
    with sqlite3.connect(folder / "run.sqlite") as db:
        db.execute("UPDATE request SET predicted_ms = predicted_ms / 2 WHERE arm_id = ?", (FAST,))
    db.close()
    found = specmeter.load(folder)
    assert found.verdict == "invalid"
    assert found.arm(FAST).speedup is None
    assert found.answers == ()
    assert found.withheld[FAST].point > 4
    shown = found._repr_html_()
    assert f"{found.withheld[FAST].point:.2f}" not in shown + repr(found)
    assert "<td>invalid</td>" in shown
    assert "data-changed" in shown
    assert invoke(["show", str(folder), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["verdict"], told["answers"]) == (found.verdict, [])


def test_a_report_is_the_one_of_the_command_line(run: specmeter.Run, tmp_path: Path):
    out = run.report(tmp_path / "of-python.html")
    assert invoke(["report", str(run.folder), "--out", str(tmp_path / "of-shell.html")]) == 0
    assert out.read_bytes() == (tmp_path / "of-shell.html").read_bytes()


# --- several runs, rows of others, predictions, studies --------------------------------------------------------------


def test_runs_are_compared_as_on_the_command_line(run: specmeter.Run, tmp_path: Path, capsys):
    other = specmeter.run(ASKED | {"generation": {"max_tokens": 48}}, out=tmp_path / "other")
    (found,) = specmeter.compare(run, str(other.folder), by="speedup", threshold=0.05)
    words = ["compare", str(run.folder), str(other.folder), "--by", "speedup", "--threshold", "5", "--json"]
    invoke(words)
    assert [found.model_dump(mode="json")] == json.loads(capsys.readouterr().out)
    with pytest.raises(UsageError, match="at least two runs"):
        specmeter.compare(run)


def test_rows_are_ruled_on_as_in_a_file(tmp_path: Path, capsys):
    import pandas

    rows = [
        {"config": "a", "gamma": 4, "acceptance": 0.5, "speedup": 9.5},
        {"config": "b", "gamma": 4, "acceptance": None, "speedup": 1.2},
    ]
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(rows), encoding="utf-8")
    of_file, of_rows = specmeter.audit(file, noise=0.03), specmeter.audit(rows, noise=0.03)
    assert [it.verdict for it in of_rows.rulings] == [it.verdict for it in of_file.rulings]
    assert [it.arithmetic for it in of_rows.rulings] == [it.arithmetic for it in of_file.rulings]
    assert specmeter.audit(pandas.DataFrame(rows).to_dict("records"), noise=0.03) == of_rows
    assert repr(of_rows).startswith("<Audit of rows, 2 rows: 1 implausible")
    assert invoke(["audit", str(file), "--noise", "3", "--json"]) == 4
    told = json.loads(capsys.readouterr().out)
    assert json.dumps([it.verdict for it in of_file.rulings])[1:-1].split(", ")[0] in json.dumps(told)


def test_predictions_are_those_of_the_command_line(run: specmeter.Run, capsys):
    words = ["--device", "RTX 3090", "--model", "Qwen3.5-9B", "--draft-model", "Qwen3.5-0.8B", "--gamma", "2,4"]
    assert invoke(["predict", *words, "--acceptance-from", str(run.folder), "--kind", "code", "--json"]) == 0
    found = specmeter.predict(
        device="RTX 3090",
        model="Qwen3.5-9B",
        draft_model="Qwen3.5-0.8B",
        gamma=[2, 4],
        acceptance_from=run,
        kind="code",
    )
    told = json.loads(capsys.readouterr().out)
    assert [it.model_dump(mode="json") for it in found.by_gamma] == told["by_gamma"]
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, "a probe, or a device with a model"),
        ({"device": "RTX 3090"}, "^model is missing"),
        ({"device": "RTX 3090", "model": "Qwen3.5-9B", "alpha": 2}, "^alpha is 2"),
        ({"device": "RTX 3090", "model": "Qwen3.5-9B", "gamma": [0]}, "gamma"),
        ({"device": "RTX 3090", "model": "Qwen3.5-9B", "kind": "code"}, "^kind and arm only select within a run"),
    )
    for wrong, why in refused:
        with pytest.raises(UsageError, match=why) as refusal:
            specmeter.predict(**wrong)
        assert "--" not in str(refusal.value)


def test_studies_are_listed_and_ruled_on():
    assert "moe-306" in specmeter.studies.names()
    found = specmeter.studies.published("moe-306")
    assert {claim.ruling for claim in found.claims} <= {
        "supported",
        "contradicted",
        "cannot tell",
        "does not apply here",
    }
    with pytest.raises(UsageError, match="there are no printed numbers"):
        specmeter.studies.published("open-questions")
    with pytest.raises(StoreError):
        specmeter.studies.load("nowhere")


ROW = [{"gamma": 4, "speedup": 2}]
NO_SOURCES: tuple[Any, ...] = (None, ROW[0], [1], [])
NO_SETTINGS: tuple[dict[str, Any], ...] = (
    {"gamma": -3},
    {"noise": "x"},
    {"noise": 3},
    {"bandwidth": "fast"},
    {"device": "RTX 309"},
    {"columns": "acceptance"},
    {"columns": {"speedup": "speed"}},
)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        *((partial(specmeter.audit, source), "source") for source in NO_SOURCES),
        *((partial(specmeter.audit, ROW, **given), next(iter(given))) for given in NO_SETTINGS),
        (lambda: specmeter.predict(device=3), "device"),  # pyright: ignore[reportArgumentType]
        (lambda: specmeter.predict(gamma="4"), "gamma"),  # pyright: ignore[reportArgumentType]
        (lambda: specmeter.run("demo", variants="faithful"), "variants"),
        (lambda: specmeter.run("demo", out=3), "out"),  # pyright: ignore[reportArgumentType]
        (lambda: specmeter.run("demo", progress=3), "progress"),  # pyright: ignore[reportArgumentType]
        (lambda: specmeter.compare("a", "b", by="x"), "by"),  # pyright: ignore[reportArgumentType]
        (lambda: specmeter.compare("a", "b", threshold=float("nan")), "threshold"),
        (lambda: specmeter.load(""), "run"),
    ],
)
def test_an_argument_that_cannot_be_is_named_as_in_python(call: Callable[[], object], argument: str) -> None:
    with pytest.raises(UsageError, match=rf"^{argument} ") as caught:
        call()
    assert caught.value.fix
    assert "--" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "given"), [([{"colour": "red"}], {}), (ROW, {"columns": {"speedup": "colour"}}), ("nowhere.csv", {})]
)
def test_what_cannot_be_ruled_on(source: Any, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        specmeter.audit(source, **given)


def test_an_audit_takes_a_data_frame() -> None:
    frame = pytest.importorskip("pandas").DataFrame([{"gamma": 4, "acceptance": 0.5, "speedup": 9.5}])
    assert specmeter.audit(frame).rulings[0].verdict == "implausible"

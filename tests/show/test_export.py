"""A run as a table: every field, in every format, safe to open."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as parquet
import pytest

from records import request as asked
from records import session as made
from specmeter.engines import Launch
from specmeter.engines.mock.engine import MockEngine
from specmeter.engines.mock.spec import mock_model
from specmeter.errors import StoreError, UsageError
from specmeter.numbers import rates
from specmeter.record import Arm, Generation, GpuSample, Prompt, Reply, Request, Session, Step, Telemetry, Timings
from specmeter.show.export.formats import FORMATS, FormatName
from specmeter.show.export.run_table import RunTable
from specmeter.show.export.tables import TABLES, TableName
from specmeter.store import RunStore

PROMPTS = [
    Prompt(id="code-1", workload="w", kind="code", text='=HYPERLINK("http://x")', sha256="1"),
    Prompt(id="zh,1", workload="w", kind="zh", text='你好,\n"世界"\r', sha256="2"),
    Prompt(id="lost", workload="w", kind="code", text="", sha256="3"),
]
ARM = Arm(id="dense/sd", target="dense", methods=("draft-simple",), draft="small", gamma=4)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "run"
    engine = MockEngine()
    plan = [(0, 0, ARM.id, prompt.id) for prompt in PROMPTS]
    sample = Telemetry(at=5, cpu_percent=1.5, other_cpu_percent=0, memory_available_bytes=2**40, on_battery=False)
    with RunStore.create(folder, experiment_yaml="", experiment_json='{"name": "export"}', plan=plan) as store:
        launch = Launch(
            ARM, mock_model("dense", "mock:dense"), mock_model("small", "mock:small"), store.log_path("s1", ARM.id)
        )
        store.set_prompts(PROMPTS)
        store.set_arms([ARM])
        with engine.start(launch) as session:
            facts = session.facts
            seen = {
                "argv": facts.argv,
                "devices": facts.devices,
                "layers_offloaded": (3, 4),
                "ready_ms": facts.ready_ms,
            }
            store.add_session(made(ARM.id, id="s1", engine=engine.identify(), started_at=engine.clock(), **seen))
            for item, prompt in enumerate(PROMPTS):
                lost = prompt.id == "lost"
                what = {"status": "failed", "error": "-1 is what it said"} if lost else {}
                times = {"session_id": "s1", "started_at": engine.clock()}
                reply = None if lost else session.generate(prompt, Generation(max_tokens=20, ignore_eos=True))
                request = asked(ARM.id, prompt, item=item, reply=reply, **times, **what)
                if item == 1:
                    store.add_request(request.model_copy(update={"status": "failed", "reply": None, "error": "first"}))
                store.add_request(request)
        store.add_telemetry([sample.model_copy(update={"gpus": (GpuSample(index=0, power_w=5.5),)}), sample])
    return folder


def as_csv(run: Path, table: str) -> list[dict[str, str]]:
    out = io.BytesIO()
    RunTable(run, table).write(out)
    return list(csv.DictReader(io.StringIO(out.getvalue().decode("utf-8"), newline="")))


def as_jsonl(run: Path, table: str) -> list[dict[str, object]]:
    out = io.BytesIO()
    RunTable(run, table).write(out, "jsonl")
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_every_field_of_the_records_is_a_column():
    names = {name: {column.name for column in table.columns} for name, table in TABLES.items()}
    assert set(Request.model_fields) - {"reply"} <= names["requests"]
    assert set(Reply.model_fields) - {"timings", "steps"} <= names["requests"]
    assert set(Timings.model_fields) <= names["requests"]
    assert set(Session.model_fields) - {"engine"} <= names["sessions"]
    assert set(Step.model_fields) <= names["steps"]
    assert set(Telemetry.model_fields) == names["telemetry"]
    assert set(Prompt.model_fields) == names["prompts"]


def test_every_column_is_described_and_named_once():
    for name, table in TABLES.items():
        assert all(column.description for column in table.columns), name
        assert len({column.name for column in table.columns}) == len(table.columns)


def test_every_table_and_format_is_named_where_the_command_line_reads_names():
    assert list(TABLES) == list(get_args(TableName))
    assert list(FORMATS) == list(get_args(FormatName))


def test_requests_with_rates_by_the_one_rule(run: Path):
    with RunStore.open(run, readonly=True) as store:
        requests = list(store.requests())
    rows = as_jsonl(run, "requests")
    assert [row["prompt_id"] for row in rows] == ["code-1", "zh,1", "lost"]
    assert [row["attempt"] for row in rows] == [1, 2, 1]
    for row, request in zip(rows[:2], requests, strict=False):
        assert request.reply is not None
        assert row["decode_tok_s"] == rates.decode_rate(request.reply.timings)
        assert row["tau"] == rates.tau(request.reply.timings, request.reply.steps)
        assert row["acceptance"] == rates.acceptance_rate(request.reply.timings)
        assert row["token_ids"] == list(request.reply.token_ids)
        assert row["counters"] == request.reply.counters
    assert rows[2]["decode_tok_s"] is None
    assert rows[2]["text"] is None


def test_csv_is_utf8_quoted_and_harmless_in_a_spreadsheet(run: Path):
    prompts = as_csv(run, "prompts")
    assert [row["text"] for row in prompts] == ['\'=HYPERLINK("http://x")', '你好,\n"世界"\r', ""]
    requests = as_csv(run, "requests")
    assert requests[2]["error"] == "'-1 is what it said"
    assert requests[0]["decode_tok_s"] == str(as_jsonl(run, "requests")[0]["decode_tok_s"])
    assert json.loads(requests[0]["token_ids"])[0] >= 256
    assert as_csv(run, "telemetry")[0]["on_battery"] == "false"
    assert as_csv(run, "sessions")[0]["layers_offloaded"] == "[3,4]"


def test_nested_records_become_json(run: Path):
    first, second = as_jsonl(run, "telemetry")
    assert isinstance(first["gpus"], list)
    assert first["gpus"][0]["power_w"] == 5.5
    assert second["gpus"] == []
    session = as_jsonl(run, "sessions")[0]
    assert session["engine_kind"] == "mock"
    assert session["devices"] == [
        {"device": "MOCK0", "model_buffer_bytes": 400_000_000, "kv_buffer_bytes": 0, "compute_buffer_bytes": 0}
    ]


def test_steps_have_a_row_each(run: Path):
    with RunStore.open(run, readonly=True) as store:
        expected = [step for request in store.requests() if request.reply for step in request.reply.steps]
    rows = as_jsonl(run, "steps")
    assert [(row["drafted"], row["accepted"], row["at_ms"]) for row in rows] == [
        (step.drafted, step.accepted, step.at_ms) for step in expected
    ]
    assert [row["step"] for row in rows][:3] == [0, 1, 2]


@pytest.mark.parametrize("table", TABLES)
def test_parquet_holds_what_jsonl_holds(run: Path, tmp_path: Path, table, monkeypatch):
    monkeypatch.setattr("specmeter.show.export.formats.BATCH_ROWS", 2)
    out = tmp_path / "t.parquet"
    rows = as_jsonl(run, table)
    assert RunTable(run, table).write(out) == len(rows)
    kinds = {column.name: column.type for column in TABLES[table].columns}
    found = parquet.read_table(out).to_pylist()
    for row in found:
        for name, value in row.items():
            if kinds[name] == "json" and value is not None:
                row[name] = json.loads(value)
    assert found == rows
    assert b"description" in parquet.read_schema(out).field(0).metadata


def test_a_file_appears_only_when_it_is_complete(run: Path, tmp_path: Path, monkeypatch):
    out = tmp_path / "out.csv"
    out.write_text("old")
    assert RunTable(run, "requests").write(out) == 3
    assert out.read_text("utf-8").startswith("invocation,block,")
    out.write_text("old")

    def interrupted(_self):
        yield PROMPTS[0]
        raise KeyboardInterrupt

    monkeypatch.setitem(TABLES, "prompts", TABLES["prompts"]._replace(rows=interrupted))
    with pytest.raises(KeyboardInterrupt):
        RunTable(run, "prompts").write(out)
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


def test_streams_stay_open(run: Path):
    for name in FORMATS:
        out = io.BytesIO()
        RunTable(run, "requests").write(out, name)
        assert not out.closed
        assert out.getvalue()


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("x", "xlsx"),
        ("x.xlsx", None),
        ("x.XLSX", None),
        ("x.xlsx", "csv"),
        ("x.parquet", "csv"),
        ("no/such/f.csv", None),
    ],
)
def test_files_that_cannot_be_written_are_refused(run: Path, tmp_path: Path, name: str, chosen: Any) -> None:
    with pytest.raises(UsageError) as refusal:
        RunTable(run, "requests").write(tmp_path / name, chosen)
    assert refusal.value.fix
    assert list(tmp_path.iterdir()) == []


def test_tables_and_libraries_that_are_not_there_are_refused(run: Path, tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(UsageError, match="request: no such table"):
        RunTable(run, "request")  # pyright: ignore[reportArgumentType]
    with pytest.raises(StoreError):
        RunTable(tmp_path / "nowhere", "requests").write(tmp_path / "x")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="pyarrow"):
        RunTable(run, "requests").write(tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []

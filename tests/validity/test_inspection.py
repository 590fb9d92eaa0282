"""Certificates: what they say, and that no change of the data goes unnoticed."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from measure.test_measure import faults, measured, write
from specmeter.analysis.reading import read_run
from specmeter.cli import invoke
from specmeter.errors import StoreError
from specmeter.messages import Message, words
from specmeter.record import Unchecked
from specmeter.record.verdict import about_arm, about_run
from specmeter.store import RunStore
from specmeter.store import run as run_module
from specmeter.store.database import sqlite_errors
from specmeter.store.environment import environment_of
from specmeter.store.integrity import PARTS
from specmeter.validity.checks.check import Check, of_request
from specmeter.validity.checks.registry import CHECKS
from specmeter.validity.inspection import certify, certify_run, inspect, judge
from validity.factory import BASE, SD, run_data


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was measured, checked and certified, beside its experiment."""
    place = tmp_path_factory.mktemp("original")
    measured(write(place, design={"blocks": 3}), place / "run")
    return place


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy of the run."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


def test_a_full_disk_is_told_with_its_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(folder / "run.sqlite")) as db, db:
        db.execute("DELETE FROM certificate")
        db.execute("DELETE FROM finding")
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL

    def issued(store: RunStore) -> None:
        with sqlite_errors(store.path):
            raise full

    monkeypatch.setattr("specmeter.cli.check.issue_run", issued)
    assert invoke(["check", str(folder)]) == 0
    said = capsys.readouterr()
    assert f"not certified: {folder / 'run.sqlite'}: cannot be written (database or disk is full)" in said.err
    assert "not certified: the run folder cannot be written to" in said.out


def test_requests_that_were_taken_out_of_a_complete_run_are_not_measured_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or the slowest block could be measured until it is fast."""
    with closing(sqlite3.connect(folder / "run.sqlite")) as db, db:
        for table in ("certificate", "finding", "request WHERE block = 1"):
            db.execute(f"DELETE FROM {table}")
    (folder / "certificate.json").unlink()
    assert invoke(["run", str(folder.parent / "mocked.yaml"), "--out", str(folder)]) == 2
    assert "was complete when it ended, but" in " ".join(capsys.readouterr().err.split())
    assert invoke(["check", str(folder)]) == 1
    assert "data-changed" in capsys.readouterr().out


def test_a_certificate_that_was_taken_away_is_not_issued_anew_by_a_resume(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As if the run had just ended: what became of it since then cannot be seen."""
    experiment = str(folder.parent / "mocked.yaml")
    assert invoke(["run", experiment, "--out", str(folder)]) == 0
    assert invoke(["check", str(folder)]) == 0, "nothing was taken away"
    with closing(sqlite3.connect(folder / "run.sqlite")) as db, db:
        for table in ("certificate", "finding"):
            db.execute(f"DELETE FROM {table}")
    (folder / "certificate.json").unlink()
    invoke(["run", experiment, "--out", str(folder)])
    capsys.readouterr()
    invoke(["check", str(folder)])
    assert "it was certified" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", ["show", "check", "report"])
@pytest.mark.parametrize("change", ["stop_reason = x'00'", "predicted_ms = 'abc'", "predicted_ms = 9e999"])
def test_values_that_no_request_has_are_damage(
    folder: Path, command: str, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(folder / "run.sqlite")) as db, db:
        db.execute(f"UPDATE request SET {change} WHERE id = 2")
    assert invoke([command, str(folder)]) == 2
    assert "a row of the table request cannot be read" in (said := capsys.readouterr().err)
    assert f"specmeter rescue {folder}" in said


def test_damage_that_no_reader_expects_is_told_with_the_rescue(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: RunStore) -> None:
        raise TypeError

    monkeypatch.setattr("tempfile.tempdir", str(folder.parent))
    monkeypatch.setattr(RunStore, "models", fail)
    assert invoke(["show", str(folder)]) == 3
    assert f"{folder} is damaged, or specmeter itself failed" in (said := capsys.readouterr().err)
    assert f"specmeter rescue {folder}" in said


# --- verdicts --------------------------------------------------------------------------------------------------------


M, R = Message("m"), Message("r")


def check(*items: object, severity: str = "invalid") -> Check:
    return Check(
        id="c",
        severity=severity,  # type: ignore[arg-type]
        look=lambda _: iter(items),  # type: ignore[arg-type]
        saw=("requests",),
    )


def test_a_clean_run_is_valid() -> None:
    judgement = judge(run_data(), [check()])
    assert (judgement.verdict, set(judgement.arms.values())) == ("valid", {"valid"})
    assert judgement.outcomes[0].status == "passed"


def test_an_arm_is_as_bad_as_its_worst_request() -> None:
    data = run_data()
    request = data.by_arm[SD][0]
    judgement = judge(data, [check(of_request("invalid", request, Message("c.found"), R))])
    assert judgement.arms == {BASE: "valid", SD: "invalid"}
    assert judgement.requests == {request.key: "invalid"}
    certificate = certify(data, judgement, {}, "complete")
    assert certificate.requests == {"valid": len(data.requests) - 1, "suspect": 0, "invalid": 1}


def test_an_arm_is_no_better_than_its_baseline() -> None:
    judgement = judge(run_data(), [check(about_arm("c", "invalid", BASE, M, R))])
    assert judgement.arms == {BASE: "invalid", SD: "invalid"}


def test_a_false_run_has_no_valid_arm_but_a_suspect_one_may() -> None:
    assert set(judge(run_data(), [check(about_run("c", "invalid", M, R))]).arms.values()) == {"invalid"}
    judgement = judge(run_data(), [check(about_run("c", "suspect", M, R))])
    assert (judgement.verdict, set(judgement.arms.values())) == ("suspect", {"valid"})


def test_notes_change_no_verdict() -> None:
    judgement = judge(run_data(), [check(about_run("c", "note", M, R), about_arm("c", "note", SD, M, R))])
    assert judgement.verdict == "valid"
    assert judgement.outcomes[0].status == "found"


def test_what_is_told_and_not_there_is_a_finding() -> None:
    """Where a check that could have found an arm invalid lacks data that the engine tells, the arm is suspect."""
    judgement = judge(run_data(), [check(Unchecked(reason=Message("no counters"), arm_id=SD))])
    assert judgement.arms == {BASE: "valid", SD: "suspect"}
    (finding,) = judgement.findings
    assert (finding.arm_id, finding.message.code) == (SD, "evidence-missing.found")
    judgement = judge(run_data(), [check(Unchecked(reason=Message("no counters")))])
    assert set(judgement.arms.values()) == {"suspect"}
    assert judgement.outcomes[0].status == "found"


@pytest.mark.parametrize(("truths", "told"), [({"reads": ("log",)}, "log"), ({"needs": ("identity",)}, "identity")])
def test_what_an_engine_does_not_tell_is_no_doubt_and_is_named(truths: dict[str, Any], told: str) -> None:
    looking = replace(check(Unchecked(reason=Message("no log"), arm_id=SD)), **truths)
    assert judge(run_data(), [looking]).verdict == "suspect", "this engine tells it, and it is not there"
    data = run_data()
    vars(data)["traits"] = data.traits.model_copy(update={"tells": ("drafts",)})
    judgement = judge(data, [looking])
    assert (judgement.verdict, judgement.findings) == ("valid", ())
    assert certify(data, judgement, {}, "complete").untold == (told,)
    bad = replace(looking, look=lambda _: iter([about_arm("c", "invalid", SD, M, R)]), needs=())
    assert judge(data, [bad]).arms[SD] == "invalid"


def test_what_does_not_apply_or_could_only_find_doubts_makes_nothing_suspect() -> None:
    assert (
        judge(run_data(), [check(Unchecked(reason=Message("no draft"), arm_id=SD, applies=False))]).verdict == "valid"
    )
    assert judge(run_data(), [check(Unchecked(reason=Message("no telemetry")), severity="suspect")]).verdict == "valid"


def test_what_a_message_says_in_numbers_and_texts_is_evidence() -> None:
    said = Message("m", steps=3, share=0.123, log="a line", streamed=False, empty="", gone=None, arms=["a"], part=R)
    finding = about_run("c", "note", said, R, share=0.12, of=2)
    assert finding.evidence == {"steps": 3, "share": 0.12, "log": "a line", "streamed": False, "of": 2}


def test_every_check_says_what_it_looks_for() -> None:
    said = {code.partition(".")[2] for code in words("en").text if code.startswith("threat.")}
    assert said == {*(one.id for one in CHECKS), "data-changed"}


def test_checks_have_names_of_their_own_and_say_what_they_saw() -> None:
    names = [one.id for one in CHECKS]
    assert len(names) == len(set(names))
    for one in CHECKS:
        assert set(one.saw) <= set(PARTS), one.id
        assert one.saw, one.id


# --- certificates ----------------------------------------------------------------------------------------------------


def test_a_measured_run_has_a_certificate_that_hashes_all_its_data(folder: Path) -> None:
    document = json.loads((folder / "certificate.json").read_text("utf-8"))
    # The texts of a simulated run are read by nothing, its steps are not probed, it uses no energy, and has no load.
    absent = {"logs", "profiles", "profiled", "step-probes", "energy", "routing", "load-cells", "sendings"}
    assert set(PARTS) - absent <= set(document["data"])
    assert len([part for part in document["data"] if part.startswith("logs/")]) == len(
        list((folder / "logs").iterdir())
    )
    assert {outcome["check"] for outcome in document["checks"]} >= {one.id for one in CHECKS}
    with RunStore.open(folder, readonly=True) as store:
        certificate = store.certificate()
        assert certificate is not None
        assert certificate.model_dump(mode="json").items() <= document.items()
        again = inspect(store)
    assert again.certified_before
    assert again.certificate.verdict == certificate.verdict
    assert not [finding for finding in again.findings if finding.check == "data-changed"]


def sql(statement: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with closing(sqlite3.connect(folder / "run.sqlite")) as db:
            assert db.execute(statement).rowcount != 0
            db.commit()

    return change


def edit_log(folder: Path) -> None:
    with next((folder / "logs").iterdir()).open("a") as log:
        log.write("one line more\n")


CHANGES: dict[str, Callable[[Path], object]] = {
    "requests": sql("UPDATE request SET predicted_ms = predicted_ms * 0.9 WHERE id = 3"),
    "a request is gone": sql("DELETE FROM request WHERE id = 3"),
    "replies": sql(
        "UPDATE reply SET zlib_json = (SELECT zlib_json FROM reply WHERE request_id = 2) WHERE request_id = 1"
    ),
    "sessions": sql("UPDATE session SET json = replace(json, '\"block\":0', '\"block\":1')"),
    "engines": sql("UPDATE engine SET json = replace(json, 'mock', 'mocK')"),
    "arms": sql("UPDATE arm SET json = replace(json, '\"gamma\":4', '\"gamma\":8')"),
    "prompts": sql("UPDATE prompt SET json = replace(json, 'kind', 'kind')||' ' WHERE seq = 1"),
    "models": sql("UPDATE model SET json = replace(json, 'mock:dense', 'mock:danse')"),
    "plan": sql("DELETE FROM plan WHERE seq = 1"),
    "experiment": sql("UPDATE run SET experiment_yaml = experiment_yaml || ' '"),
    "logs": edit_log,
    "a new log": lambda folder: (folder / "logs" / "new.log").touch(),
    "documents about the machine": lambda folder: (folder / "BENCHMARK_ENV.md").write_text("# A faster machine\n"),
    "a document that is gone": lambda folder: (folder / "BENCHMARK_ENV.md").unlink(),
    "experiment.yaml": lambda folder: (folder / "experiment.yaml").write_text(
        (folder / "experiment.yaml").read_text() + "# other\n"
    ),
    "when it ran": sql("UPDATE run SET started_at = started_at - 86400"),
    "findings in the database": sql("UPDATE finding SET json = replace(json, 'note', 'suspect')"),
    "findings in the file": lambda folder: (folder / "certificate.json").write_text(
        (folder / "certificate.json").read_text().replace("in one session", "in ten sessions")
    ),
    "certificate edited": lambda folder: (folder / "certificate.json").write_text(
        (folder / "certificate.json").read_text().replace('"complete"', '"partial"')
    ),
    "certificate with a line more": lambda folder: (folder / "certificate.json").write_text(
        (folder / "certificate.json").read_text().replace("{", '{"signed_by": "anna",', 1)
    ),
    "certificate gone": lambda folder: (folder / "certificate.json").unlink(),
    "certificate is rubbish": lambda folder: (folder / "certificate.json").write_text("[[["),
    "certificate is a list": lambda folder: (folder / "certificate.json").write_text("[]"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_any_change_of_the_data_is_noticed(folder: Path, change: Callable[[Path], object]) -> None:
    change(folder)
    with RunStore.open(folder, readonly=True) as store:
        inspection = inspect(store)
    assert inspection.certificate.verdict == "invalid"
    assert "data-changed" in {finding.check for finding in inspection.findings}
    assert invoke(["check", str(folder)]) == 1


@pytest.mark.parametrize(("command", "code"), [("show", 1), ("report", 0), ("explain", 1)])
def test_no_reader_tells_a_speedup_of_data_that_was_changed(
    folder: Path, command: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [arm for arm in read_run(folder).summary.arms if arm.speedup is not None]
    CHANGES["requests"](folder)
    assert invoke([command, str(folder)]) == code
    shown = capsys.readouterr().out
    told = (folder / "report.html").read_text("utf-8") if command == "report" else shown
    if command != "explain":
        assert "was changed after it was certified" in " ".join(told.split())
    assert "x as fast with " not in told
    report = read_run(folder)
    assert not [arm for arm in report.summary.arms if arm.speedup is not None]
    assert report.withheld


def forget(folder: Path) -> None:
    """The certificate's row is deleted, and its file stays."""
    with closing(sqlite3.connect(folder / "run.sqlite")) as db, db:
        assert db.execute("DELETE FROM certificate").rowcount
        db.execute("DELETE FROM finding")


def test_a_certificate_that_only_the_file_still_has_counts(folder: Path, tmp_path: Path) -> None:
    """Rates made better, and the certificate deleted from the database."""
    forget(folder)
    assert read_run(folder).certificate is None, "nothing contradicts it: not checked"
    CHANGES["requests"](folder)
    report = read_run(folder)
    assert report.certificate is not None
    assert report.certificate.verdict == "invalid"
    assert report.answers == ()
    assert report.withheld
    assert invoke(["export", str(folder), "--out", str(tmp_path / "requests.csv")]) == 0
    lines = (tmp_path / "requests.csv").read_text("utf-8").splitlines()
    place = lines[0].split(",").index("verdict")
    assert {line.split(",")[place] for line in lines[1:]} == {"invalid"}


def remove_block(folder: Path, *, from_plan: bool = True) -> None:
    with closing(sqlite3.connect(folder / "run.sqlite")) as db, db:
        db.execute("DELETE FROM reply WHERE request_id IN (SELECT id FROM request WHERE block = 2)")
        assert db.execute("DELETE FROM request WHERE block = 2").rowcount
        if from_plan:
            db.execute("DELETE FROM plan WHERE block = 2")
        db.execute("DELETE FROM session WHERE json_extract(json, '$.block') = 2")


@pytest.mark.parametrize("change", [remove_block, CHANGES["requests"], edit_log], ids=["block", "request", "log"])
def test_a_run_is_never_certified_over_a_file_that_refutes_it(
    folder: Path, change: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    forget(folder)
    change(folder)
    before = (folder / "certificate.json").read_bytes()
    assert invoke(["check", str(folder)]) == 1
    out = capsys.readouterr().out
    assert "HAS CHANGED since it was certified" in out
    assert "certified now" not in out
    assert (folder / "certificate.json").read_bytes() == before
    certificate = read_run(folder).certificate
    assert certificate is not None
    assert certificate.verdict == "invalid"
    with pytest.raises(StoreError, match="cannot be resumed"):
        measured(write(folder.parent, design={"blocks": 3}), folder)


def test_what_cannot_be_resumed_is_not_told_to_be(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remove_block(folder, from_plan=False)
    for command in ("check", "show"):
        invoke([command, str(folder)])
        told = " ".join(capsys.readouterr().out.split())
        assert "the run folder was changed after it was certified" in told
        assert "to resume" not in told
        assert "give the command again" not in told


def test_a_file_that_a_stopped_certification_left_is_believed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed between the file and the row: nothing was changed, so the run is certified, and can go on."""
    forget(folder)
    assert invoke(["check", str(folder)]) == 0
    assert "certified now" in capsys.readouterr().out
    forget(folder)
    assert measured(write(folder.parent, design={"blocks": 3}), folder)[0].state == "complete"


def test_a_certificate_that_is_no_certificate_is_not_overwritten(folder: Path) -> None:
    forget(folder)
    (folder / "certificate.json").write_text("[[[")
    assert invoke(["check", str(folder)]) == 1
    assert (folder / "certificate.json").read_text() == "[[["


def test_a_complete_run_without_a_certificate_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forget(folder)
    (folder / "certificate.json").unlink()
    assert invoke(["check", str(folder)]) == 0
    assert "it was certified" in " ".join(capsys.readouterr().out.split())
    with RunStore.open(folder, readonly=True) as store:
        assert "data-changed" in {finding.check for finding in store.findings()}
    assert invoke(["check", str(folder)]) == 0


def test_a_complete_run_is_not_made_whole_by_calling_it_interrupted(folder: Path) -> None:
    """Its certificate is removed, and it is said to have been stopped: every request is there all the same."""
    forget(folder)
    with closing(sqlite3.connect(folder / "run.sqlite")) as db, db:
        db.execute("UPDATE run SET state = 'interrupted', interrupted = 1, finished_at = NULL")
    (folder / "certificate.json").unlink()
    for _ in range(2):
        assert invoke(["check", str(folder)]) == 0
        checked = read_run(folder).certificate
        assert checked is not None
        assert checked.verdict == "suspect"


def test_a_block_that_is_gone_with_its_certificate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The experiment still asks for it."""
    forget(folder)
    (folder / "certificate.json").unlink()
    remove_block(folder)
    assert invoke(["check", str(folder)]) == 1
    assert "experiment-differs" in capsys.readouterr().out


def test_what_is_covered_and_what_is_not(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "notes.txt").write_text("mine")
    assert invoke(["check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "covered by the certificate: run.sqlite (24 tables), 12 logs, experiment.yaml, BENCHMARK_ENV.md" in out
    assert "not covered: notes.txt" in out
    assert invoke(["check", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["not_covered"] == ["notes.txt"]
    assert set(document["covered"]) == set(document["data"])


def test_documents_of_a_run_without_a_certificate_are_held_against_its_records(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forget(folder)
    (folder / "certificate.json").unlink()
    (folder / "experiment.yaml").write_text("name: other\n")
    assert invoke(["check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "verdict: suspect" in out
    assert "experiment.yaml is not the experiment that was run" in out


def test_a_reader_with_another_home_folder_doubts_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer's is `~` in BENCHMARK_ENV.md, and written out in the records."""
    home = "/srv/all_homes/anna"
    sql(f"""UPDATE session SET json = json_set(json, '$.argv', json_array('{home}/llama-server', '-v'))""")(folder)
    sql(f"""UPDATE engine SET json = json_set(json, '$.binary', '{home}/llama-server')""")(folder)
    monkeypatch.setattr(Path, "home", lambda: Path(home))
    forget(folder)
    (folder / "certificate.json").unlink()
    with RunStore.open(folder) as store:
        store.write_environment(environment_of(store))
        certify_run(store, measured_now=True)
    text = (folder / "BENCHMARK_ENV.md").read_text("utf-8")
    assert "~/llama-server" in text
    assert home not in text
    monkeypatch.setattr(Path, "home", lambda: Path("/home/bert"))
    with RunStore.open(folder) as store:
        assert not [it for it in inspect(store).findings if it.check == "data-changed"]
    forget(folder)
    (folder / "certificate.json").unlink()
    with RunStore.open(folder) as store:
        store.write_environment(text.replace(" -v\n", " -x\n"))
        certify_run(store, measured_now=True)
        assert [it.severity for it in inspect(store).findings if it.check == "data-changed"] == ["suspect"]


# --- the report ------------------------------------------------------------------------------------------------------


def test_a_report_is_sealed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["report", str(folder)]) == 0
    assert invoke(["check", str(folder)]) == 0
    assert "report.html (unchanged since it was written)" in capsys.readouterr().out
    page = folder / "report.html"
    page.write_bytes(page.read_bytes().replace(b"mocked", b"mocket", 1))
    assert invoke(["check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "report.html was edited" in out
    assert "verdict: suspect" in out, "the data is what it was"


def test_a_report_of_an_earlier_state(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["report", str(folder)]) == 0
    with RunStore.open(folder) as store:
        store.begin(0.0)
    assert invoke(["check", str(folder)]) == 0
    assert "from an earlier state of the run" in " ".join(capsys.readouterr().out.split())


def test_a_report_without_a_seal_is_not_covered(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "report.html").write_text("<html></html>")
    assert invoke(["check", str(folder)]) == 0
    assert "report.html (without a checksum)" in capsys.readouterr().out


def test_a_link_in_the_place_of_a_document_is_not_it(folder: Path) -> None:
    text = (folder / "BENCHMARK_ENV.md").read_bytes()
    (folder.parent / "elsewhere.md").write_bytes(text)
    (folder / "BENCHMARK_ENV.md").unlink()
    try:
        (folder / "BENCHMARK_ENV.md").symlink_to(folder.parent / "elsewhere.md")
    except OSError:
        pytest.skip("links cannot be made here")
    assert invoke(["check", str(folder)]) == 1


def test_checking_changes_nothing(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and "-" not in path.name}
    assert invoke(["check", str(folder)]) == 0
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and "-" not in path.name}
    assert after == before


def test_a_resumed_run_is_certified_anew(tmp_path: Path) -> None:
    file = write(tmp_path, engine=faults({"kind": "dies", "arm": "dense/draft*", "block": 1}))
    folder = tmp_path / "run"
    state, _ = measured(file, folder)
    if state.state == "complete":
        pytest.skip("the fault did no harm")
    with RunStore.open(folder, readonly=True) as store:
        first = store.certificate()
    measured(file, folder)
    with RunStore.open(folder, readonly=True) as store:
        second = store.certificate()
        assert not [finding for finding in store.findings() if finding.check == "data-changed"]
    assert first is not None
    assert second is not None
    assert second.data["requests"] != first.data["requests"]


def test_a_run_that_was_stopped_while_it_was_certified_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a certificate is none, and no sign of a change."""

    def stop(folder: Path, name: str, text: str) -> None:
        if name == "certificate.json":
            raise KeyboardInterrupt
        written(folder, name, text)

    file, folder = write(tmp_path), tmp_path / "run"
    written = run_module.write_document
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "write_document", stop)
        with pytest.raises(KeyboardInterrupt):
            measured(file, folder)
    with RunStore.open(folder, readonly=True) as store:
        assert store.certificate() is None
    assert measured(file, folder)[0].state == "complete"
    assert invoke(["check", str(folder)]) == 0


def test_a_run_that_was_stopped_before_it_went_on_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, folder = write(tmp_path), tmp_path / "run"
    measured(file, folder)

    def stop(_: RunStore) -> None:
        raise KeyboardInterrupt

    with RunStore.open(folder) as store, monkeypatch.context() as patch:
        patch.setattr(RunStore, "_transaction", stop)
        with pytest.raises(KeyboardInterrupt):
            store.begin(0.0)
    assert measured(file, folder)[0].state == "complete"


def test_a_run_without_a_certificate_gets_one_from_check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunStore.open(folder) as store:
        store.begin(0.0)
    assert not (folder / "certificate.json").exists()
    assert read_run(folder).certificate is None
    assert invoke(["show", str(folder)]) == 0
    assert "Not checked yet" in capsys.readouterr().out
    assert invoke(["check", str(folder)]) == 0
    assert "certified now" in capsys.readouterr().out
    assert (folder / "certificate.json").exists()
    assert read_run(folder).certificate is not None


def test_an_invalid_arm_has_no_speedup_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    arms = [{"draft": "small", "gamma": [2, 4]}]
    file = write(tmp_path, arms=arms, engine=faults({"kind": "inactive", "arm": "dense/draft*g4"}))
    assert invoke(["run", file, "--out", str(folder)]) == 1
    assert "invalid" in capsys.readouterr().out
    report = read_run(folder)
    assert report.invalid == {"dense/draft-simple/small/g4"}
    found = {arm.arm_id: arm for arm in report.summary.arms}
    false, true = found["dense/draft-simple/small/g4"], found["dense/draft-simple/small/g2"]
    assert false.speedup is None
    assert false.speedup_bootstrap is None
    assert all(kind.speedup is None for kind in false.kinds.values())
    assert true.speedup is not None
    assert report.answers[0].arm_id == "dense/draft-simple/small/g2"
    assert invoke(["show", str(folder), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "invalid"
    assert document["verdicts"]["dense/draft-simple/small/g4"] == "invalid"
    assert any(finding["check"] == "speculation-not-active" for finding in document["findings"])
    assert invoke(["check", str(folder)]) == 1


def test_check_prints_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["check", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] in {"valid", "suspect"}
    assert document["findings"] is not None


def test_check_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["check", str(tmp_path / "none")]) == 2
    assert "fix:" in capsys.readouterr().err

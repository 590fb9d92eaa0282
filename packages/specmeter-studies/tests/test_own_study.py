"""Studies of a user's own: the documented example as it runs, what is refused, and code that is not run unasked."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import specmeter_studies as studies
from specmeter.cli import invoke
from specmeter.errors import ExperimentError, UsageError
from specmeter.messages import Message
from specmeter_studies import loading
from specmeter_studies.folder import StudyFolder
from specmeter_studies.order import StudyOrder
from specmeter_studies.runner import look
from specmeter_studies.study import StudyData

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "draft-lengths"
SHORT = """
name: short
targets: {dense: mock:dense}
drafts: {small: mock:small}
arms: [{draft: small, gamma: 2}]
workloads: [{source: studies, per_kind: 1}]
design: {blocks: 2}
engine: {kind: mock}
"""
HEAD = "name: mine\ntitle: t\nsource: s\nparts: [demo]\n"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def own(text: str, **files: str) -> Path:
    """A folder `mine` with a study.yaml, and code."""
    folder = Path("mine")
    folder.mkdir()
    (folder / "study.yaml").write_text(text, encoding="utf-8")
    for name, code in files.items():
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    return folder


def test_the_documented_example_runs_shows_and_reports(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(EXAMPLE, "draft-lengths")
    assert invoke(["study", "run", "./draft-lengths", "--trust", "--set", "design.blocks=3", "--out", "result"]) == 0
    printed = capsys.readouterr().out
    assert "How long drafts of a small model should be" in printed
    assert "2 supported, 1 contradicted, 0 undecided, 1 not applicable here" in printed
    assert invoke(["study", "show", "result", "--trust", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    rulings = {claim["id"]: claim["ruling"] for claim in shown["claims"]}
    assert rulings == {
        "drafts-pay": "supported",
        "longer-is-better": "contradicted",
        "mixtures-gain-less": "supported",
        "accepted-alike": "does not apply here",
    }
    (table,) = shown["tables"]
    assert table["columns"][0]["code"] == "target"
    assert len(table["rows"]) == 6
    shutil.rmtree("draft-lengths")  # the result keeps what its study was, but for its code
    assert [figure.key for figure in StudyFolder(Path("result")).findings().figures] == ["figure-1"]

    assert invoke(["report", "result"]) == 0
    page = Path("result/report.html").read_text(encoding="utf-8")
    assert "How long drafts of a small model should be" in page
    plain = re.sub("</?bdi>", "", page)
    assert "Intervals over blocks: tok/s" in plain
    assert "Intervals over prompts: accepted [%], tokens per forward" in plain
    assert "specmeter study run ./draft-lengths" in page
    for language, claim in (("en", "On the dense target, drafting"), ("zh-Hans", "在稠密目标模型上")):
        assert re.search(rf'lang="{language}"><bdi>{claim}', page)


def test_how_to_repeat_it_names_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my studies" / "lengths"
    shutil.copytree(EXAMPLE, folder)
    nothing = StudyData("draft-lengths", "measured", "nothing yet")
    monkeypatch.chdir(tmp_path)
    assert loading.own(folder).findings(nothing).command == "specmeter study run './my studies/lengths'"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert loading.own(folder).findings(nothing).command == f"specmeter study run '{folder}'"


def test_it_is_listed_and_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(EXAMPLE, "draft-lengths")
    assert invoke(["study", "list", "./draft-lengths", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["studies"]
    assert listed[-1]["name"] == "draft-lengths"
    assert listed[-1]["parts"] == ["draft-lengths"]
    small = ["--trust", "--set", "design.blocks=2", "--set", "generation.max_tokens=8"]
    assert invoke(["study", "run", "draft-lengths", *small]) in (0, 1)
    capsys.readouterr()
    (folder,) = Path("specmeter-runs").iterdir()
    assert invoke(["study", "run", "draft-lengths", *small, "--out", str(folder)]) in (0, 1)
    assert "resuming draft-lengths" in capsys.readouterr().err


def test_the_how_to_shows_the_example_as_it_is() -> None:
    how_to = (EXAMPLE.parents[1] / "how-to" / "studies.md").read_text(encoding="utf-8")
    study = studies.find(str(EXAMPLE))
    assert study.title in how_to
    assert study.form.claims[0].claim in how_to
    assert all(chinese in how_to for chinese in study.form.chinese.values())
    rules = (EXAMPLE / "rules.py").read_text(encoding="utf-8")
    assert all(f"def {claim.rule.removeprefix('rules.')}(data" in rules for claim in study.form.claims)
    shown = how_to.split("```python\n")[2].split("```")[0]
    assert all(line in rules for line in shown.splitlines())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("parts: []\n", "parts"),
        ("colour: red\n", "colour"),
        ("claims: [{id: a, claim: c, where: w, rule: {is: below, of: speedup}}]\n", "claims.0.rule"),
        ("tables: [{key: t, title: t, columns: [{title: a, of: a.__class__}]}]\n", "tables.0.columns.0.of"),
        ("claims: [{id: a, claim: c, where: w, rule: os.system.x}]\n", "claims.0.rule"),
        ("claims: &a [{id: a, claim: c, where: w, rule: x.y}, {id: a, claim: c, where: w, rule: x.y}]\n", "twice"),
        ("tables: [{key: t, title: t, columns: []}]\n", "tables.0.columns"),
        ("title: !!python/object/apply:os.system [x]\n", "study.yaml"),
    ],
)
def test_a_bad_file_is_refused_with_file_key_and_fix(text: str, message: str) -> None:
    folder = own(HEAD.replace("parts: [demo]\n", "") + text if text.startswith("parts") else HEAD + text)
    with pytest.raises(ExperimentError) as refused:
        studies.find(str(folder))
    assert message in str(refused.value)
    assert "study.yaml" in str(refused.value)
    assert refused.value.fix


def test_a_bundled_study_s_name_and_a_missing_part_are_refused() -> None:
    folder = own(HEAD.replace("mine", "moe-306"))
    with pytest.raises(UsageError, match="bundled study"):
        studies.find(str(folder))
    (folder / "study.yaml").write_text(HEAD.replace("demo", "nowhere"), encoding="utf-8")
    assert invoke(["study", "run", "mine", "--dry-run"]) == 2
    with pytest.raises(UsageError, match=r"has no study\.yaml"):
        studies.find(".")
    with pytest.raises(UsageError, match="did you mean moe-306"):
        studies.find("moe306")


def test_code_runs_only_where_it_is_trusted(capsys: pytest.CaptureFixture[str]) -> None:
    claims = """claims:
  - {id: a, claim: c, where: w, rule: extra.ruled}
"""
    table = "tables: [extra.made, {key: t, title: t, columns: [{title: g, of: gamma}]}]\n"
    code = """from pathlib import Path
Path("ran").touch()
def ruled(data):
    return "supported", f"{len(data.arms)} lines"
"""
    folder = own(HEAD + claims + table, extra=code)
    assert invoke(["study", "run", str(folder), "--dry-run"]) == 2
    refused = capsys.readouterr().err
    assert "uses Python code from its folder (extra.made, extra.ruled)" in refused
    assert "--trust" in refused
    assert not Path("ran").exists()
    with pytest.raises(UsageError, match="--trust"):
        StudyOrder(str(folder)).definition.function("extra.ruled")

    untrusted = studies.find(str(folder))
    data = studies.find("apple-sd").published()
    assert data is not None
    (claim,) = untrusted.findings(data).claims
    assert claim.ruling == "cannot tell"
    assert claim.found.code == "study.untrusted"
    assert [it.key for it in untrusted.findings(data).tables] == ["t"]
    assert not Path("ran").exists()

    trusted = studies.find(str(folder), trusted=True)
    (claim,) = trusted.claims(data)
    assert (claim.ruling, claim.found) == ("supported", Message(f"{len(data.arms)} lines")), (
        "plain text is its own code"
    )
    assert Path("ran").exists()
    with pytest.raises(UsageError, match="no function made"):
        trusted.tables(data)


def test_a_broken_file_of_code_is_named() -> None:
    folder = own(
        HEAD + "claims: [{id: a, claim: c, where: w, rule: extra.ruled}]\n", extra="import nothing_like_this\n"
    )
    data = studies.find("apple-sd").published()
    assert data is not None
    with pytest.raises(UsageError, match=r"extra\.py: cannot be loaded \(ModuleNotFoundError"):
        studies.find(str(folder), trusted=True).findings(data)


def test_a_failure_of_the_authors_code_is_the_authors(capsys: pytest.CaptureFixture[str]) -> None:
    code = "def ruled(data):\n    return {}['rows']\n"
    own(HEAD.replace("[demo]", "[short]") + "claims: [{id: a, claim: c, where: w, rule: extra.ruled}]\n", extra=code)
    Path("mine/short.yaml").write_text(SHORT, encoding="utf-8")
    assert invoke(["study", "run", "./mine", "--trust"]) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "extra.py failed (KeyError: 'rows')" in said
    assert "fix: correct that code; the traceback is in" in said
    assert "specmeter itself" not in said


def test_a_quantity_that_is_not_there_is_answered_with_those_that_are() -> None:
    folder = own(HEAD + "tables: [{key: t, title: t, columns: [{title: a, of: speedupp}]}]\n")
    data = studies.find("apple-sd").published()
    assert data is not None
    with pytest.raises(UsageError, match="ArmResult has no quantity 'speedupp'") as refused:
        studies.find(str(folder)).findings(data)
    assert "speedup" in (refused.value.fix or "")


@pytest.mark.parametrize(
    ("part", "key"),
    [
        ("engine: {kind: native, binary: ./evil}", "engine.binary"),
        ("engine: {kind: native, extra_flags: [--log-file, /tmp/x]}", "engine.extra_flags"),
        ("workloads: [{source: file, paths: [../private.txt]}]", "workloads.file"),
    ],
)
def test_programs_flags_and_texts_of_a_stranger_are_not_used_unasked(part: str, key: str) -> None:
    folder = own(HEAD.replace("[demo]", "[p]"))
    Path("private.txt").write_text("private", encoding="utf-8")
    Path("evil").write_text("#!/bin/sh\ntouch ran\n", encoding="utf-8")
    Path("evil").chmod(0o755)
    rest = 'targets: {dense: "mock:dense"}\ndrafts: {small: "mock:small"}\narms: [{draft: small, gamma: 4}]\n'
    rest += "" if part.startswith("workloads") else "workloads: [{source: bench, kinds: [code], per_kind: 1}]\n"
    rest += "engine: {kind: mock}\n" if part.startswith("workloads") else ""
    (folder / "p.yaml").write_text(f"name: p\n{rest}{part}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=key) as caught:
        look(StudyOrder("./mine"))
    assert "--trust" in caught.value.fix
    assert not Path("ran").exists()
    if key == "workloads.file":
        assert look(StudyOrder("./mine", trusted=True)).record.study == "mine"

"""Another author's engine: found by its entry point, used like ours, judged by what it says of itself."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from specmeter.cli import invoke
from specmeter.engines.registry import installed, load_engine, spec_of, statuses, survey, traits_on_record
from specmeter.errors import ExperimentError
from specmeter.experiments.file import load
from specmeter.host.machine import read_host
from specmeter.laboratory.plan import make_plan
from specmeter.messages import Message
from specmeter.record import Arm, EngineTraits
from specmeter.store import RunStore
from specmeter.testing import Subject, examine

HERE = Path(__file__).parent / "foreign"
ENTRIES = {"toy": "toy_engine:KIND", "shy": "toy_engine:SHY_KIND"}
FILE: dict[str, Any] = {
    "name": "parrots",
    "targets": {"bird": "toy:parrot"},
    "arms": [{"method": "parrot", "gamma": 4, "engine": {"options": {"stride": 6}}}],
    "workloads": [{"source": "file", "name": "words", "paths": ["words.jsonl"]}],
    "generation": {"max_tokens": 48},
    "design": {"blocks": 4, "seed": 5},
    "engine": {"kind": "toy"},
}
BASE, SD = "bird/none", "bird/parrot/g4/stride=6"


def package(folder: Path, name: str, entries: dict[str, str]) -> None:
    """An installed distribution that brings engines."""
    about = folder / f"{name.replace('-', '_')}-0.9.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.9\n")
    lines = "\n".join(f"{kind} = {target}" for kind, target in entries.items())
    (about / "entry_points.txt").write_text(f"[specmeter.engines]\n{lines}\n")


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of packages with the toy in it, on the path of this process and of those that it starts."""
    folder = tmp_path_factory.mktemp("site")
    package(folder, "toy-engine", ENTRIES)
    shutil.copy(HERE / "toy_engine.py", folder)
    spec_of.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]))
        yield folder
    spec_of.cache_clear()
    sys.modules.pop("toy_engine", None)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for more packages."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ["PYTHONPATH"]]))
    spec_of.cache_clear()
    yield folder
    spec_of.cache_clear()


def written(folder: Path, **changes: Any) -> str:
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(FILE | changes))
    (folder / "words.jsonl").write_text('{"prompt": "say hello"}\n{"prompt": "say again"}\n')
    return str(path)


def specmeter(*args: str) -> subprocess.CompletedProcess[str]:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = invoke(list(args))
    return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())


def started_anew(*args: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which has imported nothing yet and finds packages by its environment."""
    return subprocess.run(
        [sys.executable, "-m", "specmeter", *args], capture_output=True, text=True, timeout=240, check=False
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy's experiment, measured as a user would."""
    place = tmp_path_factory.mktemp("toy")
    done = started_anew("run", written(place), "--out", str(place / "run"))
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    return place / "run"


def test_an_experiment_from_beginning_to_end(measured: Path) -> None:
    with RunStore.open(measured, readonly=True) as store:
        state, certificate = store.state(), store.certificate()
        sessions, arms = list(store.sessions()), {arm.id: arm for arm in store.arms()}
        assert store.traits().method("parrot") is not None
    assert (state.state, state.ok) == ("complete", 16)
    assert set(arms) == {BASE, SD}
    assert arms[SD].engine.options == {"stride": 6}
    assert arms[BASE].engine.options == {}  # its own setting has no influence on plain decoding, it says
    assert {session.engine.kind for session in sessions} == {"toy"}
    assert certificate is not None
    outcomes = {outcome.check: outcome for outcome in certificate.checks}
    assert outcomes["conservation"].status == "passed"
    assert outcomes["speedup-above-tau"].status in ("passed", "partly")
    assert outcomes["output-differs"].status == "passed"
    (gap,) = outcomes["flag-inert"].unchecked
    assert outcomes["flag-inert"].status == "skipped"
    assert gap.reason == Message("unchecked.not_told", what=Message("truth.settings"))
    assert "by its own rules" in str(outcomes["replay-differs"].unchecked[-1].reason)
    assert outcomes["target-decode-failed"].status == "passed", "without a log the counters say it"
    assert certificate.verdict != "invalid"


def test_whatever_reads_a_run_reads_this_one(measured: Path) -> None:
    shown = specmeter("show", str(measured), "--json")
    told = json.loads(shown.stdout)
    assert SD in shown.stdout
    assert told
    for command in (["check"], ["explain"], ["report", "--out", str(measured.parent / "page.html")], ["compare"]):
        runs = [str(measured)] * (2 if command == ["compare"] else 1)
        done = specmeter(command[0], *runs, *command[1:])
        assert done.returncode in (0, 1), f"{command}: {done.stderr}"
        assert "Traceback" not in done.stderr


def test_a_run_opens_and_is_judged_where_its_engine_is_not_installed(
    measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = started_anew("check", str(measured), "--json")
    monkeypatch.delenv("PYTHONPATH")
    after = started_anew("check", str(measured), "--json")
    assert (after.returncode, after.stderr) == (before.returncode, before.stderr)
    assert json.loads(after.stdout)["arms"] == json.loads(before.stdout)["arms"]
    lacking = started_anew("run", written(measured.parent))
    assert lacking.returncode == 2
    assert "engine 'toy' is not installed" in lacking.stderr


def test_of_what_an_engine_does_not_tell_nothing_is_passed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = specmeter("run", written(tmp_path, engine={"kind": "shy"}), "--out", str(folder))
    assert "Traceback" not in done.stderr
    with RunStore.open(folder, readonly=True) as store:
        state, certificate, rows = store.state(), store.certificate(), list(store.rows())
    assert (state.state, state.ok) == ("complete", 16), done.stderr
    assert {(row.draft_n, row.target_forwards, row.ttft_ms) for row in rows} == {(None, None, None)}
    assert certificate is not None
    outcomes = {outcome.check: outcome for outcome in certificate.checks}
    reasons = {name: [gap.reason for gap in outcome.unchecked] for name, outcome in outcomes.items()}
    for name, truth in (
        ("conservation", "drafts"),
        ("speculation-not-active", "drafts"),
        ("speedup-above-tau", "drafts"),
        ("two-binaries", "identity"),
        ("default-drift", "settings"),
    ):
        assert outcomes[name].status == "skipped", name
        assert reasons[name][0] == Message("unchecked.not_told", what=Message(f"truth.{truth}"))
    for name in ("output-differs", "target-decode-failed"):
        assert outcomes[name].status == "skipped", (name, reasons[name])
    assert set(certificate.untold) >= {"drafts", "identity", "settings", "log"}
    doubted = {outcome.check for outcome in certificate.checks if outcome.suspect or outcome.invalid}
    assert not doubted & {"conservation", "target-decode-failed", "two-binaries"}, "what is not told is not a finding"
    told = json.loads(specmeter("show", str(folder), "--json").stdout)
    (arm,) = [it for it in told["summary"]["arms"] if it["arm_id"] == SD]
    assert arm["speedup"] is not None
    assert (arm["acceptance"], arm["tau"], arm["drafted"]) == (None, None, None)


@pytest.mark.parametrize("kind", ["toy", "shy"])
def test_it_conforms_as_far_as_it_says(kind: str) -> None:
    """What it does not tell is not demanded of it."""
    options = spec_of(kind).options
    model = spec_of(kind).model
    assert options is not None
    assert model is not None
    plain = Arm(id=BASE, target="bird", role="baseline")
    drafting = plain.model_copy(update={"id": SD, "methods": ("parrot",), "gamma": 4, "role": "speculative"})
    with Subject(
        load_engine(kind), arm=plain, target=model(options(), "bird", "toy:parrot"), drafting=drafting
    ) as subject:
        results = {it.case: it for it in examine(subject).results}
    assert [it.reason for it in results.values() if it.status == "failed"] == []
    assert (results["drafts_are_conserved"].status == "passed") == (kind == "toy")
    assert results["candidates_begin_with_what_is_said"].status == "not applicable"


# --- what is asked of it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"engine": {"kind": "tyo"}}, "engine 'tyo' is not installed; did you mean toy?"),
        ({"arms": [{"method": "parot"}]}, r"arms.0.method: unknown method 'parot'; did you mean parrot\?"),
        ({"arms": [{"method": "draft-simple"}]}, "known to the engine toy: none, parrot"),
        ({"engine": {"kind": "toy", "options": {"strid": 3}}}, "engine.options.strid: unknown key"),
        ({"engine": {"kind": "toy", "options": {"stride": "far"}}}, "engine.options.stride: has to be a whole number"),
        ({"engine": {"kind": "embedded", "options": {"stride": 3}}}, "the engine embedded has no options"),
    ],
)
def test_a_file_is_held_against_the_engine_it_names(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ExperimentError, match=says):
        load(written(tmp_path, **changes))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"engine": {"kind": "toy", "threads": 2}}, "engine.threads: the engine does not have this setting"),
        ({"engine": {"kind": "toy", "kv_type_k": "q8_0"}}, "engine.kv_type_k: the engine does not have this setting"),
        ({"arms": [{"method": "parrot", "p_min": 0.5}]}, "p_min has no effect on parrot"),
        ({"arms": [{"method": "parrot", "policy": "entropy"}]}, "policy: the engine does not have this setting"),
        (
            {"arms": [{"method": "parrot", "gamma": 1, "synthetic_rates": [0.5]}]},
            "synthetic_rates: the engine does not have this setting",
        ),
    ],
)
def test_what_it_has_nothing_of_is_refused_before_anything_starts(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(ExperimentError, match=re.escape(says)):
        make_plan(load(written(tmp_path, **changes)))


# --- what is installed -----------------------------------------------------------------------------------------------


def test_a_broken_package_breaks_nothing_but_itself(shelf: Path, tmp_path: Path) -> None:
    (shelf / "exploding.py").write_text("raise RuntimeError('no such device')\n")
    package(shelf, "broken", {"bang": "exploding:KIND", "gone": "missing:KIND", "odd": "toy_engine:NOT_A_KIND"})
    for kind, says in (
        ("bang", "exploding:KIND of broken 0.9 cannot be loaded (RuntimeError: no such device)"),
        ("gone", "missing:KIND of broken 0.9 cannot be loaded (ModuleNotFoundError"),
        ("odd", "is a type, not an EngineSpec"),
    ):
        done = specmeter("run", written(tmp_path, engine={"kind": kind}), "--dry-run")
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert says in " ".join(done.stderr.split())
    told = {it.name: it for it in survey()}
    assert told["bang"].problem is not None
    assert told["bang"].traits is None
    assert told["toy"].problem is None
    found = statuses(read_host(load_sample_s=0.1))
    assert (found["toy"].state, found["bang"].state) == ("ok", "missing")
    assert specmeter("run", written(tmp_path), "--dry-run").returncode == 0


def test_the_code_of_the_how_to_runs_as_printed(shelf: Path, tmp_path: Path) -> None:
    """Its engine is found by its entry point, and its file of conformance tests is one, here of the toy."""
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "write-an-engine.md").read_text(encoding="utf-8")
    engine, kit = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    entry, place = re.findall(r'^(\w+) = "(.*)"$', re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0], re.MULTILINE)[
        0
    ]
    (arms,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (shelf / "my_engine.py").write_text(engine, encoding="utf-8")
    package(shelf, "my-engine", {entry: place})
    written(tmp_path)
    spec = FILE | {"targets": {"bird": "bench:dense"}} | yaml.safe_load(arms)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(spec))
    arms_of = [arm for arm in load(str(tmp_path / "mine.yaml")).experiment.expand() if arm.speculates]
    assert [(arm.gamma, arm.engine.options["window"]) for arm in arms_of] == [(2, 8), (4, 8)]
    toy = 'from toy_engine import Options, model\n\nMODEL = model(Options(), "m", "toy:parrot")\n'
    file = tmp_path / "test_conformance_of_mine.py"
    file.write_text(toy + kit.replace('"mine"', '"toy"').replace("lookahead", "parrot"), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "repeats or unicode", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_a_package_that_fails_later_is_named_and_not_specmeter(shelf: Path, tmp_path: Path) -> None:
    (shelf / "clumsy.py").write_text(
        "from specmeter.engines.registry import EngineSpec\n"
        "from toy_engine import TOY, ToyEngine, ToySession, Options, model\n"
        "class Clumsy(ToySession):\n"
        "    def generate(self, prompt, generation):\n"
        "        return {}['timings']\n"
        "class Engine(ToyEngine):\n"
        "    def start(self, launch):\n"
        "        return Clumsy(launch, self.traits)\n"
        "KIND = EngineSpec(traits=TOY, make=lambda _: Engine('clumsy', TOY), model=model, options=Options)\n"
    )
    package(shelf, "clumsy-engine", {"clumsy": "clumsy:KIND"})
    done = specmeter("run", written(tmp_path, engine={"kind": "clumsy"}), "--out", str(tmp_path / "run"))
    assert done.returncode == 3
    said = " ".join(done.stderr.split())
    assert "error: the engine of clumsy-engine 0.9 failed (KeyError: 'timings')" in said
    assert "Traceback" not in done.stderr


def test_a_package_is_imported_only_when_it_is_named(shelf: Path, tmp_path: Path) -> None:
    (shelf / "leaves_a_trace.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w')\n")
    package(shelf, "curious", {"curious": "leaves_a_trace:KIND"})
    assert started_anew("run", written(tmp_path), "--dry-run").returncode == 0
    assert started_anew("list").returncode == 0
    assert not (tmp_path / "trace").exists()


def test_nobody_takes_the_place_of_another(shelf: Path) -> None:
    package(shelf, "impostor", {"mock": "toy_engine:KIND", "toy": "toy_engine:KIND"})
    assert spec_of("mock").traits.simulated
    assert installed()["mock"].clash == "impostor 0.9"
    with pytest.raises(ExperimentError, match=r"toy: provided by impostor 0\.9 and toy-engine 0\.9"):
        spec_of("toy")
    assert "ignored: an engine of the same name in impostor 0.9" in specmeter("engines").stdout


def test_a_run_without_a_session_knows_the_traits_of_our_engines_alone() -> None:
    assert traits_on_record("libllama", None) == spec_of("libllama").traits
    assert traits_on_record("mock", None).simulated
    assert traits_on_record("never-heard-of", None) == EngineTraits()
    assert traits_on_record("mock", EngineTraits()) == EngineTraits()

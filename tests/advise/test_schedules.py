"""Schedules: an advice for each number of clients, on the mock engine, whose batches cost what is planted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import specmeter
from specmeter.advise.advice import AdviceQuestion
from specmeter.advise.candidates import Candidates
from specmeter.advise.export_commands import also_for
from specmeter.advise.folder import choose_again, choose_folder
from specmeter.advise.grid import MAX_PER_KIND, grid
from specmeter.advise.loads import advise_loads, again_loads
from specmeter.advise.observer import Silent
from specmeter.advise.question import ask
from specmeter.advise.schedule import Schedule, amend_schedule, clients_of, folder_of, read_schedule
from specmeter.cli import invoke
from specmeter.errors import EngineError, StoreError, UsageError
from specmeter.store import RunStore
from specmeter.workloads.texts import packaged

if TYPE_CHECKING:
    from specmeter.record import Request

DENSE = {"base_ms": 26.0, "token_ms": 12.0, "prompt_token_ms": 0.2}
"""A verification of two tokens costs 1.32 plain forwards for one client, and 1.79 for eight."""
DRAFT = {"token_ms": 1.0, "other_acceptance": [0.7], "load_ms": 50, "size_bytes": 2_000_000}
EXPERIMENT = {
    "targets": {"t": "mock:dense"},
    "drafts": {"small": "mock:small"},
    "arms": [{"draft": "small", "gamma": [1, 2]}],
    "workloads": [{"source": "bench", "kinds": ["fact"], "per_kind": 4}],
    "generation": {"max_tokens": 32},
    "engine": {"kind": "mock", "mock": {"noise": 0.004, "targets": {"dense": DENSE}, "drafts": {"small": DRAFT}}},
}


def asked_of(folder: Path, clients: Sequence[int] = (1, 8), **more: Any) -> AdviceQuestion:
    source = folder / "mine.yaml"
    source.write_text(json.dumps(EXPERIMENT), encoding="utf-8")
    return ask(from_file=str(source), clients=clients, **{"budget_s": 7200.0, **more})


@dataclass
class Heard(Silent):
    """Interrupts at a request."""

    interrupt_at: int | None = None
    requests: int = 0
    loads: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])

    def load_starting(self, clients: int, budget_s: float) -> None:
        self.loads.append((clients, budget_s))

    def request_done(self, request: Request) -> None:  # noqa: ARG002
        self.requests += 1
        if self.requests == self.interrupt_at:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Schedule, Path, Heard]:
    folder, heard = tmp_path_factory.mktemp("schedules"), Heard()
    return advise_loads(asked_of(folder), Candidates(), folder / "schedule", heard), folder / "schedule", heard


def test_each_load_has_its_own_answer_against_plain_decoding_at_that_load(told: tuple[Schedule, Path, Heard]) -> None:
    schedule, folder, heard = told
    alone, crowded = schedule.advices
    assert (alone.decision, crowded.decision, schedule.pattern) == ("speculate", "off", "up to")
    assert schedule.finished
    assert schedule.verdict == "valid"
    for advice in schedule.advices:
        loads = {arm.load.clients if arm.load else None for arm in advice.arms}
        assert loads == {clients_of(advice)}
        assert advice.baseline is not None
        assert advice.speedup is not None
        with RunStore.open(folder / f"c{clients_of(advice)}" / advice.confirmation, readonly=True) as store:
            assert len(list(store.load_cells())) == len(list(store.sessions()))
    crossover = schedule.crossover
    assert crossover is not None
    assert crossover.clients is not None
    assert 1 < crossover.clients.point < 8
    assert heard.loads[0] == (1, 3600.0)
    assert heard.loads[1][1] == pytest.approx(7200 - alone.seconds)  # what the first one did not need


def test_the_expected_speedup_counts_prompts_which_no_draft_shortens(told: tuple[Schedule, Path, Heard]) -> None:
    for advice in told[0].advices:
        for outcome in advice.outcomes:
            if outcome.predicted is not None and outcome.raced is not None:
                assert outcome.predicted.point == pytest.approx(outcome.raced.point, rel=0.06), outcome.arm_id


def test_an_interrupted_schedule_goes_on_with_the_load_it_was_at(tmp_path: Path) -> None:
    asked, place = asked_of(tmp_path), tmp_path / "schedule"
    whole = Heard()
    first = advise_loads(asked.model_copy(update={"clients": (1,)}), Candidates(), tmp_path / "alone", whole)
    broken = advise_loads(asked, Candidates(), place, Heard(interrupt_at=whole.requests + 30))
    assert [it.why_undecided for it in broken.advices] == ["", "interrupted"]
    assert not broken.finished
    assert broken.advices[0].speedup == first.advices[0].speedup
    assert choose_folder(asked, runs=tmp_path, out=place) == (place, True)
    with pytest.raises(StoreError, match="another question"):
        choose_folder(asked.model_copy(update={"clients": (1, 4)}), out=place)
    done = advise_loads(asked, Candidates(), place, Heard())
    assert done.finished
    assert done.advices[0] == broken.advices[0]
    assert done.made_at == broken.made_at
    again = Heard()
    assert advise_loads(asked, Candidates(), place, again) == done
    assert again.requests == 0


def test_what_a_schedule_decided_is_confirmed_again(told: tuple[Schedule, Path, Heard], tmp_path: Path) -> None:
    schedule, folder, _ = told
    assert choose_again(str(folder), out=tmp_path / "again") == (folder, tmp_path / "again", False)
    found = again_loads(folder, tmp_path / "again", Silent())
    assert [it.again.holds for it in found.advices if it.again] == ["holds", "holds"]
    assert found.asked.clients == schedule.asked.clients
    assert found.again_of == folder.name
    with pytest.raises(StoreError, match="another schedule"):
        again_loads(folder, folder, Silent())


def test_errors_say_at_how_many_clients_they_arose(tmp_path: Path) -> None:
    asked = asked_of(tmp_path, settings=['engine.mock.faults=[{"kind": "dies", "arm": "*/none*"}]'])
    with pytest.raises(EngineError, match=r"with 1 client: the baseline"):
        advise_loads(asked, Candidates(), tmp_path / "schedule", Silent())


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ({"clients": (0, 1)}, "--clients 0: not between"),
        ({"clients": (65,)}, "--clients 65: not between"),
        ({"clients": (2, 2)}, "a number is repeated"),
        ({"clients": (1, 2), "goal": "latency"}, "--goal latency: does not work with --clients"),
    ],
)
def test_questions_that_cannot_be_asked(question: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        ask("mock:dense", budget_s=600.0, **question)


def test_every_load_is_measured_on_the_same_prompts() -> None:
    asked = AdviceQuestion(target="mock:dense", clients=(1, 8), settings=("engine.kind=mock",))
    specs = {
        load: grid(asked.model_copy(update={"load": load})).experiment.workloads[0].model_dump() for load in (1, 8)
    }
    assert specs[1] == specs[8]
    both = grid(asked).experiment.expand()
    assert {arm.load.clients for arm in both if arm.load} == {1, 8}


@pytest.mark.parametrize("source", MAX_PER_KIND)
def test_there_are_so_many_prompts_of_each_kind(source: Any) -> None:
    kinds = ("fact", "code", "reason", "zh", "edit")
    count = MAX_PER_KIND[source]
    assert len(list(packaged(source, kinds, count, 0))) == len(kinds) * count
    with pytest.raises(UsageError, match="per_kind"):
        list(packaged(source, kinds, count + 1, 0))


def test_the_command_prints_a_schedule_and_shows_it_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(*words: str) -> tuple[int, str]:
        code, said = invoke(list(words)), capsys.readouterr()
        return code, " ".join((said.out + said.err if code else said.out).split())

    out = str(tmp_path / "out")
    asking = ("advise", "--from", asked_of(tmp_path).from_file or "", "--clients", "1,8", "--budget", "2h")
    code, dry = told(*asking, "--dry-run")
    assert (code, "with 1, 8 clients" in dry) == (0, True), dry
    code, answer = told(*asking, "--out", out)
    assert (code, "with 1 client" in answer) == (0, True), answer
    code, shown = told("show", out, "--json")
    document = json.loads(shown)
    assert document["pattern"] == "up to"
    assert [it["decision"] for it in document["advices"]] == ["speculate", "off"]
    code, refused = told("advise", "mock:dense", "--clients", "1,two")
    assert (code, "two is not a whole number" in refused) == (2, True)


def test_from_python(tmp_path: Path) -> None:
    asked = asked_of(tmp_path)
    heard: list[int | None] = []
    found = specmeter.schedule(
        clients=[1, 8],
        from_file=asked.from_file,
        budget_s=7200,
        out=tmp_path / "out",
        progress=lambda advice: heard.append(advice.asked.load),
    )
    assert found.finished
    assert set(heard) == {1, 8}
    assert read_schedule(tmp_path / "out").pattern == found.pattern == "up to"
    assert "8 clients" in str(found)
    with pytest.raises(UsageError, match="clients"):
        specmeter.schedule("mock:dense", clients=[])


def _edited(folder: Path, name: str, **changes: Any) -> None:
    path = folder / name
    record = json.loads(path.read_text(encoding="utf-8"))
    for key, value in changes.items():
        *within, last = key.split("__")
        place = record
        for part in within:
            place = place[int(part) if part.isdigit() else part]
        place[last] = value
    path.write_text(json.dumps(record), encoding="utf-8")


@pytest.mark.parametrize(
    "changes",
    [
        {"arm__gamma": 7},
        {"speedup__point": 2.0},
        {"stages__0__certificate_sha256": "0" * 64},
    ],
)
def test_an_advice_that_is_not_what_its_runs_say_is_invalid(
    told: tuple[Schedule, Path, Heard], tmp_path: Path, changes: dict[str, Any]
) -> None:
    folder = tmp_path / "doctored"
    shutil.copytree(told[1], folder)
    _edited(folder / "c1", "advice.json", **changes)
    found = read_schedule(folder)
    assert [it.verdict for it in found.advices] == ["invalid", "valid"]
    assert found.pattern == "open"


def test_a_schedule_is_certified_with_its_advices(
    told: tuple[Schedule, Path, Heard], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(told[1], folder)
    assert read_schedule(folder) == told[0]
    assert invoke(["check", str(folder)]) == 0
    assert "covered by the certificate: schedule.json, c1/certificate.json, c8/certificate.json" in str(
        " ".join(capsys.readouterr().out.split())
    )
    amend_schedule(also_for(told[0], "vllm"), folder)
    assert {it.verdict for it in read_schedule(folder).advices} == {"valid"}
    _edited(folder, "schedule.json", asked__budget_s=1.0)
    assert {it.verdict for it in read_schedule(folder).advices} == {"invalid"}
    assert invoke(["check", str(folder)]) == 1
    assert "schedule.json changed since" in capsys.readouterr().out


def test_a_load_that_was_removed_is_not_called_not_begun(told: tuple[Schedule, Path, Heard], tmp_path: Path) -> None:
    """A losing load, say: what remains was never measured as a schedule."""
    folder = tmp_path / "less"
    shutil.copytree(told[1], folder)
    last = read_schedule(folder).advices[-1]
    shutil.rmtree(folder / folder_of(clients_of(last)))
    assert {it.verdict for it in read_schedule(folder).advices} == {"invalid"}


def test_one_load_cannot_pass_for_another(told: tuple[Schedule, Path, Heard], tmp_path: Path) -> None:
    folder = tmp_path / "doctored"
    shutil.copytree(told[1], folder)
    shutil.rmtree(folder / "c8")
    shutil.copytree(folder / "c1", folder / "c8")
    with pytest.raises(UsageError, match="another question"):
        read_schedule(folder)
    _edited(folder / "c8", "advice.json", asked__load=8)
    assert [it.verdict for it in read_schedule(folder).advices] == ["valid", "invalid"]
    _edited(folder, "schedule.json", asked__clients=[1])
    with pytest.raises(UsageError, match="another question"):
        read_schedule(folder)

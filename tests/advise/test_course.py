"""The course of an advice, on the mock engine: virtual time, planted faults, real run folders."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import specmeter
from specmeter.advise.advice import Advice, AdviceQuestion, read_advice, write_advice
from specmeter.advise.advise import advise
from specmeter.advise.folder import choose_folder
from specmeter.advise.observer import Silent
from specmeter.advise.schedule import find_single_run, runs_of
from specmeter.cli import invoke
from specmeter.errors import EngineError, StoreError
from specmeter.experiments.file import load
from specmeter.show.advice_words import headline, names_of, would_decide
from specmeter.show.page.live import Pages
from specmeter.show.page.site import write_site
from specmeter.store import RunStore
from specmeter.store.locate import find_advice, find_folders, find_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specmeter.experiments.file import LoadedExperiment
    from specmeter.record import Arm, Request

ASKED = AdviceQuestion(target="mock:dense", drafts=("mock:small",), settings=("engine.kind=mock",), budget_s=900)
KINDS = ("fact", "code")


def grid_of(
    *, target: str = "mock:dense", gamma: Sequence[int] = (1, 4, 16), kinds: Sequence[str] = KINDS, **mock: Any
) -> LoadedExperiment:
    """A small grid on the mock engine, nearly without noise."""
    return load(
        {
            "targets": {"t": target},
            "drafts": {"small": "mock:small"},
            "arms": [{"draft": "small", "gamma": list(gamma)}],
            "workloads": [{"source": "bench", "kinds": list(kinds), "per_kind": 4}],
            "design": {"blocks": 1, "probe": "off"},
            "generation": {"max_tokens": 48},
            "engine": {"kind": "mock", "mock": {"noise": 0.004, **mock}},
        }
    )


@dataclass
class Heard(Silent):
    """Keeps what was told; interrupts at a request, counted over all stages."""

    interrupt_at: int | None = None
    requests: int = 0
    answers: list[Advice] = field(default_factory=list[Advice])
    stages: list[tuple[str, tuple[str, ...]]] = field(default_factory=list[tuple[str, tuple[str, ...]]])
    notes: list[str] = field(default_factory=list[str])

    def request_done(self, request: Request) -> None:  # noqa: ARG002
        self.requests += 1
        if self.requests == self.interrupt_at:
            raise KeyboardInterrupt

    def stage_starting(self, stage: str, arms: Mapping[str, Arm], left_s: float) -> None:
        assert left_s >= 0
        self.stages.append((stage, tuple(arms)))

    def best_so_far(self, advice: Advice) -> None:
        self.answers.append(advice)

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Advice, Path, Heard]:
    """An advice from beginning to end."""
    folder, heard = tmp_path_factory.mktemp("advice") / "a", Heard()
    return advise(ASKED, grid_of(), folder, heard), folder, heard


def test_the_fastest_arm_is_confirmed_on_other_prompts(whole: tuple[Advice, Path, Heard]) -> None:
    advice, folder, _ = whole
    assert (advice.decision, advice.basis, advice.verdict, advice.finished) == ("speculate", "confirmed", "valid", True)
    assert advice.arm is not None
    assert advice.arm.gamma == 4  # 2.2x, the others 1.6x: tau of alpha 0.8 over (33 + 4 (n + 1) + 0.8 n) / 37
    assert advice.speedup is not None
    assert advice.speedup.low is not None
    assert advice.speedup.low > 1.5
    assert "together with" in advice.speedup.method  # one of two looks
    assert advice.over_prompts is not None
    assert (advice.over_prompts.of, advice.over_prompts.n) == ("prompts", 4)
    assert advice.over_prompts.low is not None
    assert advice.over_prompts.low > 1
    assert advice.held_out
    with RunStore.open(folder / "screen") as screen, RunStore.open(folder / "confirm") as confirm:
        searched, others = ({prompt.id for prompt in store.prompts()} for store in (screen, confirm))
    assert searched
    assert not searched & others
    assert read_advice(folder) == advice


def test_every_arm_has_an_outcome_with_what_was_measured(whole: tuple[Advice, Path, Heard]) -> None:
    advice, _, _ = whole
    outcomes = {outcome.arm_id: outcome for outcome in advice.outcomes}
    assert outcomes.keys() == {arm.id for arm in advice.arms if arm.speculates}
    assert advice.outcomes[0].code == "winner"
    assert advice.outcomes[0].confirmed == advice.speedup
    for outcome in advice.outcomes[1:]:
        if outcome.stage == "race":
            assert outcome.code in ("slower", "equivalent", "open")
            assert outcome.raced is not None


def test_predictions_of_all_arms_are_on_one_scale(tmp_path: Path) -> None:
    heard = Heard()
    advice = advise(ASKED, grid_of(gamma=range(1, 17)), tmp_path / "a", heard)
    predicted = {outcome.arm_id: outcome.predicted.point for outcome in advice.outcomes if outcome.predicted}
    held = [it for it in advice.outcomes if it.stage == "screen" and it.than and it.ratio]
    assert held
    for it in held:
        assert it.ratio is not None
        assert it.than is not None
        assert predicted[it.arm_id] / predicted[it.than] == pytest.approx(it.ratio.point), it.arm_id
    first = heard.answers[0]
    assert first.speedup is not None
    assert first.arm is not None
    assert first.speedup.point < predicted[first.arm.id], "the first line has what its arm owes to luck taken off"


def test_each_stage_is_a_run_folder_that_says_what_it_is(whole: tuple[Advice, Path, Heard]) -> None:
    advice, folder, _ = whole
    assert [stage.stage for stage in advice.stages] == ["screen", "race", "confirm"]
    for stage in advice.stages:
        with RunStore.open(folder / stage.folder, readonly=True) as store:
            assert store.state().state == "complete"
            checks = {finding.check: finding.severity for finding in store.findings()}
        assert stage.verdict == "valid"
        assert stage.certificate_sha256
        assert checks.get("stopped-when-decided") == ("note" if stage.stage == "race" else None)
        assert "experiment-differs" not in checks
    assert advice.seconds == pytest.approx(sum(stage.seconds for stage in advice.stages))


def test_answers_come_early_and_get_better(whole: tuple[Advice, Path, Heard]) -> None:
    _, _, heard = whole
    assert [answer.basis for answer in heard.answers][:1] == ["predicted"]
    assert heard.answers[-1].basis == "confirmed"
    assert not any(answer.finished for answer in heard.answers[:-1])
    raced = [arms for stage, arms in heard.stages if stage == "race"]
    assert all(len(later) <= len(earlier) for earlier, later in pairwise(raced))
    assert all("t/none" in arms for arms in raced)


def test_where_nothing_helps_the_answer_is_off(tmp_path: Path) -> None:
    drafts = {"small": {"token_ms": 30.0, "other_acceptance": [0.4], "load_ms": 50, "size_bytes": 2_000_000}}
    advice = advise(ASKED, grid_of(drafts=drafts), tmp_path / "a", Silent())
    assert (advice.decision, advice.arm, advice.finished) == ("off", None, True)
    assert advice.basis == "confirmed"
    assert advice.speedup_of is not None
    assert advice.speedup is not None
    assert advice.speedup.point < 1


@pytest.mark.parametrize("at", [3, 14, 60, 10_000])
def test_interrupted_anywhere_it_goes_on_to_the_same_answer(
    at: int, tmp_path: Path, whole: tuple[Advice, Path, Heard]
) -> None:
    expected, folder = whole[0], tmp_path / "a"
    at = min(at, whole[2].requests - 2)
    first = advise(ASKED, grid_of(), folder, Heard(interrupt_at=at))
    assert (first.finished, first.why_undecided) == (False, "interrupted")
    assert read_advice(folder) == first
    kept = sum(stage.sessions for stage in first.stages)
    again = Heard()
    other_grid = grid_of(gamma=(2, 3))  # found meanwhile: what was begun goes on
    advice = advise(ASKED, other_grid, folder, again)
    assert advice.finished
    assert (advice.decision, advice.arm) == (expected.decision, expected.arm)
    assert kept >= 1
    # Nothing that was on disk was measured again.
    assert again.requests <= whole[2].requests - at + 1


def test_a_budget_that_cannot_be_enough_has_predictions_and_one_that_can_is_kept(tmp_path: Path) -> None:
    small = ASKED.model_copy(update={"budget_s": 20.0})
    advice = advise(small, grid_of(), tmp_path / "a", Silent())
    assert (advice.decision, advice.basis, advice.finished) == ("undecided", "predicted", False), "more time decides it"
    assert advice.speedup is not None
    told = would_decide(advice, tmp_path / "a")
    assert str(told) == "To decide, allow more time than 20 s (`--budget`)."
    tight = ASKED.model_copy(update={"budget_s": 150.0})
    advice = advise(tight, grid_of(), tmp_path / "b", Silent())
    assert advice.finished
    assert advice.seconds < 1.3 * tight.budget_s
    assert {outcome.code for outcome in advice.outcomes} & {"no-room", "open", "winner"}


def test_an_arm_that_does_not_start_fails_alone(tmp_path: Path) -> None:
    faults = [{"kind": "start-fails", "arm": "*/g4"}]
    advice = advise(ASKED, grid_of(gamma=(1, 2, 4), faults=faults), tmp_path / "a", Silent())
    failed = [outcome for outcome in advice.outcomes if outcome.code == "failed"]
    assert [outcome.arm_id for outcome in failed] == ["t/draft-simple/small/g4"]
    assert "did not start" in failed[0].why
    assert advice.decision == "speculate"
    assert advice.arm is not None
    assert advice.arm.gamma == 2


def test_plain_decoding_that_fails_ends_it(tmp_path: Path) -> None:
    faults = [{"kind": "dies", "arm": "*/none"}]
    with pytest.raises(EngineError, match=r"the baseline \(no speculation\) failed"):
        advise(ASKED, grid_of(faults=faults), tmp_path / "a", Silent())


def test_an_invalid_confirmation_advises_nothing(tmp_path: Path) -> None:
    faults = [{"kind": "acceptance-stuck", "arm": "*/small/*"}]
    advice = advise(ASKED, grid_of(faults=faults), tmp_path / "a", Silent())
    assert (advice.decision, advice.why_undecided, advice.verdict) == ("undecided", "invalid", "invalid")


def test_kinds_of_text_that_differ_get_answers_of_their_own(tmp_path: Path) -> None:
    rates = {"code": [0.95], "fact": [0.05]}
    drafts = {
        "small": {"token_ms": 6.0, "acceptance": rates, "other_acceptance": [0.5], "load_ms": 50, "size_bytes": 1000}
    }
    advice = advise(ASKED, grid_of(drafts=drafts, gamma=(2, 6)), tmp_path / "a", Silent())
    found = {it.kind: it.decision for it in advice.by_kind}
    assert found == {"code": "on-these-prompts", "fact": "off"}  # two prompts of a kind say nothing about others


def test_a_single_prompt_of_a_kind_is_confirmed_on_itself_and_said(tmp_path: Path) -> None:
    grid = load(grid_of().experiment.model_dump(mode="json", exclude_unset=True), ["workloads.0.per_kind=1"])
    advice = advise(ASKED, grid, tmp_path / "a", Silent())
    assert not advice.held_out
    assert (advice.decision, advice.over_prompts) == ("on-these-prompts", None)


def test_the_folder_of_a_question_is_found_again(tmp_path: Path, whole: tuple[Advice, Path, Heard]) -> None:
    runs = tmp_path / "runs"
    folder, resumed = choose_folder(ASKED, runs=runs)
    assert not resumed
    assert folder.name.startswith("advise-dense-")
    advise(ASKED, grid_of(), folder, Heard(interrupt_at=3))
    more = ASKED.model_copy(update={"budget_s": 5000.0})
    assert choose_folder(more, runs=runs) == (folder, True)
    assert choose_folder(ASKED, runs=runs, new=True)[1] is False
    other = ASKED.model_copy(update={"goal": "latency"})
    assert choose_folder(other, runs=runs)[1] is False
    with pytest.raises(StoreError, match="another question"):
        choose_folder(other, out=folder)
    assert choose_folder(ASKED, out=folder) == (folder, True)
    assert find_folders("advice", runs=runs) == [folder]
    assert find_advice("latest", runs) == find_advice(folder.name, runs) == folder
    with pytest.raises(StoreError, match="not an advice folder"):
        find_advice(str(whole[1] / "race"))
    assert find_run(str(whole[1] / "race")) == whole[1] / "race"


@pytest.mark.parametrize("command", ["show", "explain", "check", "export", "report"])
def test_every_reading_command_takes_an_advice_that_was_made_last(
    whole: tuple[Advice, Path, Heard],
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = tmp_path / "specmeter-runs/advise-dense-20261121-101500"
    shutil.copytree(whole[1], place)
    monkeypatch.chdir(tmp_path)
    assert invoke([command]) == 0
    assert capsys.readouterr().out
    assert runs_of(place) == [place / "confirm"]
    loaded = specmeter.load()
    assert isinstance(loaded, Advice)
    assert (loaded.decision, loaded.speedup) == (whole[0].decision, whole[0].speedup)
    assert find_single_run("latest") == Path("specmeter-runs") / place.name / "confirm"


def test_an_advice_is_a_page_of_the_site(whole: tuple[Advice, Path, Heard], tmp_path: Path) -> None:
    index, page = write_site(tmp_path / "public", [whole[1]], ("en",))
    assert 'href="a/index.html"' in index.read_text("utf-8")
    assert 'href="data/advice.json"' in page.read_text("utf-8")
    links = re.findall(r'<a href="([^"]+)/report\.html"', page.read_text("utf-8"))
    assert links == [stage.folder for stage in whole[0].stages]
    for link in links:
        stage = page.parent / link / "report.html"
        back = re.findall(r'class="brand" href="([^"]+)"', stage.read_text("utf-8"))
        assert [(stage.parent / it).resolve() for it in back] == [index]


def test_the_card_of_an_unfinished_advice_says_so(whole: tuple[Advice, Path, Heard], tmp_path: Path) -> None:
    write_advice(whole[0].model_copy(update={"finished": False}), tmp_path / "a")
    index, _ = write_site(tmp_path / "public", [tmp_path / "a"], ("en",))
    assert "<li>unfinished</li>" in index.read_text("utf-8")
    index, _ = write_site(tmp_path / "other", [whole[1]], ("en",))
    assert "<li>complete</li>" in index.read_text("utf-8")


def test_an_advice_that_is_served_leads_to_its_stages(whole: tuple[Advice, Path, Heard]) -> None:
    pages = Pages(whole[1].parent, ("en",))
    name = whole[1].name
    for stage in whole[0].stages:
        assert f'href="{stage.folder}/"' in pages.page(f"/{name}/").text
    assert 'id="validity"' in pages.page(f"/{name}/{whole[0].stages[0].folder}/").text


def test_an_advice_that_was_edited_has_no_headline_on_the_index(
    whole: tuple[Advice, Path, Heard], tmp_path: Path
) -> None:
    shutil.copytree(whole[1], tmp_path / "advice")
    file = tmp_path / "advice" / "advice.json"
    file.write_text(file.read_text("utf-8") + " ", encoding="utf-8")
    page = Pages(tmp_path, ("en",)).page("/").text
    assert "cannot be read" in page
    assert str(headline(whole[0], names_of(whole[0]))) not in page


def test_a_run_that_is_written_to_after_an_advice_is_the_latest(
    whole: tuple[Advice, Path, Heard], tmp_path: Path
) -> None:
    shutil.copytree(whole[1], tmp_path / "advice")
    shutil.copytree(whole[1] / "confirm", tmp_path / "run")
    for name, seconds in (("advice", 100), ("run", 200)):
        for file in (tmp_path / name).rglob("*"):
            os.utime(file, (seconds, seconds))
    assert find_run("latest", tmp_path) == tmp_path / "run"
    os.utime(tmp_path / "advice/advice.json", (300, 300))
    assert find_run("latest", tmp_path) == tmp_path / "advice"

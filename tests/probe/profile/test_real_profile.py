"""Real drafts over real texts: what engines counted equals the replay, and what is planted is contradicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from profiles import rounds

from engines.llama_fixtures import core
from specmeter.cli import invoke
from specmeter.messages import Message
from specmeter.probe.draft_lengths import ALL, DraftLength, draft_lengths
from specmeter.probe.profile import Passage, profile_texts
from specmeter.probe.replay import ProfileKey
from specmeter.record import UNKNOWN_TOKEN, EngineSettings, Finding, MatchProfile, Profiled, Request, Unchecked
from specmeter.record.verdict import Findings
from specmeter.store import RunStore
from specmeter.validity.checks.replay import exact, replay_differs
from specmeter.validity.checks.request_data import RequestData
from specmeter.validity.checks.requests import in_columns
from specmeter.validity.checks.run_data import RunData, read_run_data

pytestmark = pytest.mark.slow
Run = tuple[RunData, list[Request], tuple[DraftLength, ...]]
TOKENS = 48


@pytest.fixture(scope="module", params=["embedded", "libllama"])
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A dense and a hybrid core, drafts and lookups, completions and chat; on both engines."""
    folder = tmp_path_factory.mktemp("replay")
    asked = {
        "name": "replay",
        "targets": {"dense": "bench:dense", "hybrid": "bench:hybrid"},
        "drafts": {"small": "bench:draft-small", "large": "bench:draft-large"},
        "workloads": [
            {"source": "bench", "name": "text", "kinds": ["code", "zh"], "per_kind": 1},
            {"source": "bench", "name": "chat", "kinds": ["edit"], "per_kind": 1, "format": "chat"},
        ],
        "arms": [
            {"draft": "small", "gamma": [1, 4]},
            {"draft": "large", "gamma": 8, "p_min": 0.7, "gamma_min": 2},
            {"method": "ngram-simple+draft-simple", "draft": "small", "ngram_n": 2, "gamma": 3},
        ],
        "design": {"blocks": 1, "warmup": "none"},
        "engine": {"kind": request.param, "context": 512, "threads": 1},
        "generation": {"max_tokens": TOKENS},
    }
    file = folder / "replay.yaml"
    file.write_text(yaml.safe_dump(asked), encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(folder / "run")]) in (0, 1)
    with RunStore.open(folder / "run", readonly=True) as store:
        requests = [it for it in store.requests() if it.reply is not None]
        return read_run_data(store), requests, draft_lengths(store)


def found(findings: Findings) -> list[Finding]:
    return [it for it in findings if isinstance(it, Finding)]


def test_every_counter_is_what_the_replay_says(measured: Run) -> None:
    data, _, _ = measured
    replayed = list(exact(data))
    drafting = [it for it in data.requests if data.arms[it.row.arm_id].speculates and it.known]
    assert len(replayed) == len(drafting) >= 2 * 4 * 2
    equal = [(it.row.draft_n, it.row.draft_n_accepted) == _totals(steps) for it, steps in replayed]
    assert sum(equal) >= len(equal) - 1, "one near tie may go the other way on another processor"
    assert found(replay_differs(data)) == []


def _totals(steps: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    return sum(drafted for drafted, _ in steps), sum(accepted for _, accepted in steps)


def test_prompts_are_kept_as_the_engine_processes_them(measured: Run) -> None:
    data, _, _ = measured
    for it in data.requests:
        tokens = data.prompt_tokens[data.arms[it.row.arm_id].target, it.row.prompt_id]
        assert len(tokens) == it.row.prompt_n


def test_counters_that_are_off_by_one_are_found(measured: Run) -> None:
    data, _, _ = measured
    arm = "dense/draft-simple/small/g4"
    for accepted, drafted in ((1, 0), (-1, 0), (0, 1)):
        changed = _changed(data, arm, accepted, drafted)
        kinds = {it.severity for it in found(replay_differs(changed))}
        assert kinds == {"invalid"}, (accepted, drafted)


def _changed(data: RunData, arm_id: str, accepted: int, drafted: int) -> RunData:
    """The totals of an arm's requests off by one; their steps as they were."""

    def one(it: RequestData) -> RequestData:
        if it.row.arm_id != arm_id:
            return it
        row = it.row
        return replace(
            it,
            row=row._replace(
                draft_n=(row.draft_n or 0) + drafted, draft_n_accepted=(row.draft_n_accepted or 0) + accepted
            ),
        )

    return replace(data, requests=in_columns(one(it) for it in data.requests))


def test_a_step_that_cannot_have_been_is_named(measured: Run) -> None:
    data, _, _ = measured
    arm = "dense/draft-simple/small/g4"
    it = next(it for it in data.by_arm[arm] if it.known)
    steps = bytearray(it.packed_steps)
    steps[4] = 0 if steps[4] == 4 else 4  # drafted of the second step
    changed = replace(
        data,
        requests=in_columns(
            replace(it, packed_steps=bytes(steps)) if one.key == it.key else one for one in data.requests
        ),
    )
    (finding,) = found(replay_differs(changed))
    assert finding.evidence["step"] == 1
    assert finding.prompt_id == it.row.prompt_id


def test_a_log_that_ends_early_contradicts_nothing_and_hides_nothing(measured: Run) -> None:
    data, _, _ = measured
    arm = "dense/draft-simple/small/g4"
    for kept in (0, 8):
        cut = [replace(it, packed_steps=it.packed_steps[:kept]) if it.row.arm_id == arm else it for it in data.requests]
        assert found(replay_differs(replace(data, requests=in_columns(cut)))) == []
        assert found(replay_differs(_changed(replace(data, requests=in_columns(cut)), arm, 1, 0)))


def test_another_draft_and_a_forgotten_template_are_found(measured: Run) -> None:
    data, requests, _ = measured
    arm = data.arms["dense/draft-simple/small/g4"]
    own = [it for it in requests if it.arm_id == arm.id and it.reply and UNKNOWN_TOKEN not in it.reply.token_ids]
    kept = [it for it in data.requests if it.row.arm_id == arm.id]
    ends = data.experiment.engine.kind == "embedded"
    for draft, template in (("large", True), ("small", False)):
        profiles: dict[ProfileKey, MatchProfile] = {}
        asked = [it for it in own if template or data.prompts[it.prompt_id].format == "chat"]
        for it in asked:
            prompt = data.prompt_tokens["dense", it.prompt_id]
            assert it.reply is not None
            passage = Passage(
                prompt_id=it.prompt_id, prompt=prompt if template else prompt[5:-5], text=it.reply.token_ids
            )
            (made,) = profile_texts(data.models[draft], arm.engine, [passage], drafts_ends=ends)
            right = next(
                key
                for key, known in data.profiles.items()
                if known.prompt_id == it.prompt_id
                and known.text_digest == made.text_digest
                and key.draft_sha256 == data.models["small"].sha256
            )
            profiles[right] = made
        wrong = replace(data, requests=in_columns(kept), profiles=profiles, profiled=None, predictions=())
        assert len(found(replay_differs(wrong))) == len(asked) >= 1, (draft, template)


def test_a_run_without_prompt_tokens_is_not_replayed_and_not_doubted(measured: Run) -> None:
    data, _, _ = measured
    late = Profiled(missing=9, reason=Message("profile.too_long", share=0.1))
    nothing = replace(data, profiles={}, profiled=None, predictions=())
    for older in (replace(nothing, prompt_tokens={}), nothing, replace(nothing, profiled=late)):
        said = list(replay_differs(older))
        assert all(isinstance(it, Unchecked) and not it.applies for it in said)
        assert any("not_replayable" in it.reason.code for it in said if isinstance(it, Unchecked))


def test_a_replay_that_is_missing_and_predicted_from_is_suspect(measured: Run) -> None:
    data, _, _ = measured
    assert any(it.acceptance is not None and it.acceptance.code == "rates.replayed" for it in data.predictions)
    emptied = replace(data, profiles={}, profiled=None)
    assert found(replay_differs(emptied))


def test_texts_that_no_draft_has_read_yet_are_not_doubted(measured: Run) -> None:
    """A stopped run: drafts read what plain decoding wrote, and an arm's text, rounded otherwise, was to follow."""
    data, _, _ = measured
    plain = {arm.id for arm in data.arms.values() if not arm.speculates}
    moved = [it if it.row.arm_id in plain else replace(it, output=it.output[:-4] + b"\1\0\0\0") for it in data.requests]
    assert not found(replay_differs(replace(data, requests=in_columns(moved), profiled=None)))


def test_figures_are_those_of_the_arms_that_were_measured(measured: Run) -> None:
    data, _, lengths = measured
    for target, gamma in (("dense", 1), ("dense", 4), ("hybrid", 4)):
        (row,) = (it for it in lengths if (it.target, it.draft, it.kind, it.gamma) == (target, "small", ALL, gamma))
        own = [it.row for it in data.by_arm[f"{target}/draft-simple/small/g{gamma}"] if it.known]
        if row.texts != len(own):
            continue  # a token whose id the server did not send
        drafted, accepted = (sum(getattr(it, name) for it in own) for name in ("draft_n", "draft_n_accepted"))
        # Two arms may leave each other's text at a near tie of the target; figures take the first answer.
        assert row.acceptance == pytest.approx(accepted / drafted, abs=0.05)
    places = sum(it.places for it in lengths if (it.target, it.draft, it.kind) == ("dense", "small", ALL))
    texts = next(it.texts for it in lengths if (it.target, it.draft, it.kind) == ("dense", "small", ALL))
    assert places == texts * (TOKENS - 1)


def test_a_text_that_no_draft_read_in_a_run_that_was_read_is_suspect(measured: Run) -> None:
    data, _, _ = measured
    arm = "dense/draft-simple/small/g4"
    assert data.profiled == Profiled(missing=0)
    edited = [replace(it, output=b"another text") if it.row.arm_id == arm else it for it in data.requests]
    (finding,) = found(replay_differs(replace(data, requests=in_columns(edited))))
    assert (finding.arm_id, finding.severity) == (arm, "suspect")


# --- making profiles -------------------------------------------------------------------------------------------------

SETTINGS = EngineSettings(context=256, threads=1)


@pytest.fixture(scope="module")
def passages() -> Mapping[str, Passage]:
    """The draft's own greedy text, and the same with one token put wrong."""
    prompt = tuple(range(40, 60))
    text = list[int]()
    # Token by token: the text's own next token is found by asking which of all matches.
    from specmeter.llama_binding.context import Context
    from specmeter.llama_binding.model import Model

    with Model(Path(core("draft-small").path)) as model, Context(model, SETTINGS, threads=1, draft=True) as context:
        row = context.extend(prompt)[0]
        for _ in range(24):
            text.append(int(row.argmax()))
            row = context.decode((text[-1],))[0]
    other = [*text[:10], (text[10] + 1) % 1000, *text[11:]]
    return {
        "own": Passage(prompt_id="own", prompt=prompt, text=tuple(text)),
        "other": Passage(prompt_id="other", prompt=prompt, text=tuple(other)),
    }


def test_a_draft_agrees_with_its_own_text(passages: Mapping[str, Passage]) -> None:
    (profile,) = profile_texts(core("draft-small"), SETTINGS, [passages["own"]], drafts_ends=True)
    assert profile.matches == "1" * 24
    assert rounds(profile, gamma=4) == ((4, 4),) * 4 + ((2, 2),)
    assert 0 <= profile.sway < 0.1
    assert all(0 < it <= 1 for it in profile.confidences)


def test_a_wrong_token_does_not_match_and_its_branch_is_followed(passages: Mapping[str, Passage]) -> None:
    plain, branched = (
        profile_texts(core("draft-small"), SETTINGS, [passages["other"]], drafts_ends=True, gamma=gamma, p_min=p_min)[0]
        for gamma, p_min in ((0, 0.0), (6, 1e-6))
    )
    assert plain.matches[:11] == "1" * 10 + "0"
    assert plain.branches == {}
    assert plain.matches == branched.matches
    assert plain.gaps == branched.gaps, "looking aside changes nothing"
    own = profile_texts(core("draft-small"), SETTINGS, [passages["own"]], drafts_ends=True)[0]
    # Behind the wrong token the draft goes on as it would in its own text.
    assert branched.branches[10] == pytest.approx(own.confidences[11:16], abs=1e-3)


@pytest.mark.parametrize("name", ["own", "other"])
def test_reading_in_haste_finds_the_same_where_nothing_is_nearly_tied(
    passages: Mapping[str, Passage], name: str
) -> None:
    slow, quick = (
        profile_texts(
            core("draft-small"), SETTINGS, [passages[name]], drafts_ends=True, gamma=6, p_min=1e-6, quick=quick
        )[0]
        for quick in (False, True)
    )
    sure = [place for place, gap in enumerate(slow.gaps) if gap > 0.3]
    assert len(sure) > 12
    assert [slow.matches[it] for it in sure] == [quick.matches[it] for it in sure]
    assert quick.confidences == pytest.approx(slow.confidences, abs=0.02)
    for place in slow.branches.keys() & quick.branches.keys():
        assert quick.branches[place] == pytest.approx(slow.branches[place], abs=0.02)


def test_a_limit_leaves_texts_out_and_says_so_by_their_absence(passages: Mapping[str, Passage]) -> None:
    assert profile_texts(core("draft-small"), SETTINGS, [passages["own"]] * 3, drafts_ends=True, limit_s=0.0) == []

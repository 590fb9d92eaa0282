"""Where greedy texts part the target is asked, once; on the mock engine, and on the real one with the shipped cores."""

from __future__ import annotations

import json
import math
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from measure.test_measure import Silent
from specmeter.analysis.divergences import Divergence, find_divergences, first_divergence, read_texts
from specmeter.engines.mock.engine import MockEngine
from specmeter.engines.mock.spec import Fault, FaultKind, MockSpec
from specmeter.experiments.file import load
from specmeter.laboratory.run import Prepared, prepare, run
from specmeter.measure import block_seed
from specmeter.record import Finding, Margin
from specmeter.store import RequestKey, RunStore
from specmeter.validity import losslessness
from specmeter.validity.checks.output import NEAR_TIE, output_differs
from specmeter.validity.checks.run_data import read_run_data
from specmeter.validity.losslessness import measure_margins

BASE, SD = "dense/none", "dense/draft-simple/small/g4"
MOCKED: dict[str, Any] = {
    "name": "mocked",
    "targets": {"dense": "mock:dense"},
    "drafts": {"small": "mock:small"},
    "arms": [{"draft": "small", "gamma": 4}],
    "workloads": [{"source": "bench", "name": "text", "kinds": ["fact", "edit"], "per_kind": 2}],
    "design": {"blocks": 2},
    "engine": {"kind": "mock"},
    "generation": {"max_tokens": 32},
}
DIFFERS = {"kind": "text-differs", "arm": "*/draft-simple/*"}


def measured(folder: Path, *faults: dict[str, Any], **changes: Any) -> Prepared:
    """A run in `folder`/run, without margins even where a laboratory asks for them by itself."""
    engine = MOCKED["engine"] | ({"mock": {"faults": list(faults)}} if faults else {})
    file = folder / "mocked.yaml"
    file.write_text(yaml.safe_dump(MOCKED | {"engine": engine} | changes), encoding="utf-8")
    prepared = prepare(load(str(file)))
    run(prepared, folder / "run", Silent())
    change(folder, "DELETE FROM margin")
    return prepared


def change(folder: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(folder / "run" / "run.sqlite")) as db, db:
        db.execute(statement, values)


def forge(folder: Path, key: RequestKey, edit: Callable[[list[int]], list[int]]) -> None:
    """Change the token ids of a stored reply."""
    with closing(sqlite3.connect(folder / "run" / "run.sqlite")) as db, db:
        where = "invocation = ? AND block = ? AND arm_id = ? AND prompt_id = ?"
        row_id, bulk = db.execute(
            f"SELECT id, zlib_json FROM request JOIN reply ON request_id = id WHERE {where}", key
        ).fetchone()
        reply = json.loads(zlib.decompress(bulk))
        reply["token_ids"] = edit(reply["token_ids"])
        data = zlib.compress(json.dumps(reply).encode())
        db.execute("UPDATE reply SET zlib_json = ? WHERE request_id = ?", (data, row_id))


def ask(folder: Path, prepared: Prepared, most: int = losslessness.MAX_QUESTIONS) -> tuple[int, list[Margin]]:
    """How many questions were answered, and all margins in the store."""
    answered, really_ask = list[object](), losslessness._ask

    def ask_once(*question: Any) -> Any:
        answer = really_ask(*question)
        answered.append(question)
        return answer

    with pytest.MonkeyPatch.context() as patch, RunStore.open(folder / "run") as store:
        patch.setattr(losslessness, "_ask", ask_once)
        patch.setattr(losslessness, "MAX_QUESTIONS", most)
        measure_margins(prepared.work, prepared.engine, store)
        return len(answered), store.margins()


def differences(folder: Path) -> list[Divergence]:
    with RunStore.open(folder / "run", readonly=True) as store:
        return find_divergences(store, {arm.id: arm for arm in store.arms()}, read_texts(store))


def found(folder: Path) -> dict[str | None, Finding]:
    """Findings of output-differs by arm."""
    with RunStore.open(folder / "run", readonly=True) as store:
        items = list(output_differs(read_run_data(store)))
    return {item.arm_id: item for item in items if isinstance(item, Finding)}


def replaced(at: int, token: int) -> Callable[[list[int]], list[int]]:
    return lambda ids: [*ids[:at], token, *ids[at + 1 :]]


# --- differences -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "place"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([1, 2, 3], [1, 5, 3], 1),
        ([1, 2], [1, 2, 3], None),
        ([], [1], None),
        ([1, -1, 3], [1, 2, 3], None),
        ([1, -1, 3], [1, 2, 4], 2),
    ],
)
def test_the_first_difference(one: Sequence[int], other: Sequence[int], place: int | None) -> None:
    assert first_divergence(one, other) == first_divergence(other, one) == place


def test_texts_that_are_equal_ask_nothing(tmp_path: Path) -> None:
    prepared = measured(tmp_path)
    before = prepared.engine.clock()
    assert ask(tmp_path, prepared) == (0, [])
    assert prepared.engine.clock() == before, "no session was started"


def test_lengths_alone_are_no_difference_of_content(tmp_path: Path) -> None:
    measured(tmp_path, {"kind": "truncated", "arm": SD})
    assert differences(tmp_path) == []


def test_who_is_compared_with_whom(tmp_path: Path) -> None:
    measured(tmp_path, design={"blocks": 3, "controls": True})
    prompt_id = next(iter(read_ids(tmp_path)))
    for arm_id in (BASE, f"{BASE}/again", f"{BASE}/accept-all", SD):
        forge(tmp_path, RequestKey(0, 1, arm_id, prompt_id), replaced(3, 256 + len(arm_id)))
    compared = {
        (it.key.arm_id, it.key.block): (it.reference.arm_id, it.reference.block) for it in differences(tmp_path)
    }
    assert compared == {(BASE, 1): (BASE, 0), (f"{BASE}/again", 1): (BASE, 1), (SD, 1): (BASE, 1)}


def read_ids(folder: Path) -> dict[str, tuple[int, ...]]:
    """Prompt id -> token ids of the baseline in block 0; prompts of facts first."""
    with RunStore.open(folder / "run", readonly=True) as store:
        requests = [it for it in store.requests() if it.arm_id == BASE and it.block == 0 and it.reply]
    return {it.prompt_id: it.reply.token_ids for it in sorted(requests, key=lambda it: it.kind != "fact") if it.reply}


# --- asking ----------------------------------------------------------------------------------------------------------


def test_every_place_is_asked_about_once(tmp_path: Path) -> None:
    prepared = measured(tmp_path, DIFFERS)
    asked, margins = ask(tmp_path, prepared)
    assert (asked, len(margins)) == (4, 8)
    said = read_ids(tmp_path)
    for margin in margins:
        assert (margin.arm_id, margin.position) == (SD, 16)
        assert margin.baseline_token == said[margin.prompt_id][16]
        assert margin.best_logprob == margin.baseline_logprob == pytest.approx(math.log(0.9))
        assert margin.arm_logprob == pytest.approx(math.log(0.05))
    assert ask(tmp_path, prepared) == (0, margins)


def test_what_was_answered_before_is_not_asked_again(tmp_path: Path) -> None:
    """Block 1 came after the margins of block 0."""
    prepared = measured(tmp_path, DIFFERS)
    _, margins = ask(tmp_path, prepared)
    change(tmp_path, "DELETE FROM margin WHERE json_extract(json, '$.block') = 1")
    asked, again = ask(tmp_path, prepared)
    assert asked == 0
    assert sorted(again, key=str) == sorted(margins, key=str)


def test_questions_are_bounded_and_shared_fairly(tmp_path: Path) -> None:
    arms = [{"draft": "small", "gamma": 4}, {"draft": "small", "gamma": 8}]
    prepared = measured(tmp_path, DIFFERS, arms=arms)
    key = RequestKey(0, 0, "dense/draft-simple/small/g8", next(iter(read_ids(tmp_path))))
    forge(tmp_path, key, replaced(2, 256))
    asked, margins = ask(tmp_path, prepared, most=2)
    assert asked == 2
    assert {margin.arm_id for margin in margins} == set(prepared.work.arms) - {BASE}
    asked, _ = ask(tmp_path, prepared, most=4)
    assert asked == 2, "those of the first time count"
    assert ask(tmp_path, prepared, most=1)[0] == 0


def test_unknown_tokens_cannot_be_asked_about(tmp_path: Path) -> None:
    prepared = measured(tmp_path)
    first, second = list(read_ids(tmp_path))[:2]
    for arm_id in (BASE, SD):
        forge(tmp_path, RequestKey(0, 0, arm_id, first), replaced(4, -1))
    forge(tmp_path, RequestKey(0, 0, SD, first), replaced(9, 256))
    forge(tmp_path, RequestKey(0, 0, SD, second), lambda ids: replaced(9, 256)(replaced(4, -1)(ids)))
    asked, margins = ask(tmp_path, prepared)
    # The baseline knows the second prompt's token. Its repeats differ nowhere: an unknown token does not differ.
    assert asked == 1
    assert [margin.prompt_id for margin in margins] == [second]
    assert found(tmp_path)[SD].evidence["not_asked"] == 1


@pytest.mark.parametrize("kind", ["start-fails", "dies", "hangs", "garbage"])
def test_an_engine_that_fails_leaves_margins_missing(tmp_path: Path, kind: FaultKind) -> None:
    prepared = measured(tmp_path, DIFFERS)
    failing = replace(prepared, engine=MockEngine(MockSpec(faults=(Fault(kind=kind, arm=BASE, block=0),))))
    asked, margins = ask(tmp_path, failing)
    assert (asked, margins) == (0, [])
    finding = found(tmp_path)[SD]
    assert (finding.severity, finding.evidence["not_asked"]) == ("suspect", 8)
    asked, margins = ask(tmp_path, failing)
    assert (asked, len(margins)) == (4, 8), "the next session works"


def test_one_refused_question_is_passed_over(tmp_path: Path) -> None:
    prepared = measured(tmp_path, DIFFERS)
    refused = next(iter(read_ids(tmp_path)))
    fault = Fault(kind="garbage", arm=BASE, prompt=refused)
    asked, margins = ask(tmp_path, replace(prepared, engine=MockEngine(MockSpec(faults=(fault,)))))
    assert asked == 3
    assert refused not in {margin.prompt_id for margin in margins}


def test_ctrl_c_keeps_what_was_answered(tmp_path: Path) -> None:
    prepared = measured(tmp_path, DIFFERS)
    last = max(read_ids(tmp_path))
    fault = Fault(kind="interrupt", arm=BASE, prompt=last)
    with pytest.raises(KeyboardInterrupt):
        ask(tmp_path, replace(prepared, engine=MockEngine(MockSpec(faults=(fault,)))))
    asked, margins = ask(tmp_path, prepared)
    assert (asked, len(margins)) == (1, 8)


def test_a_baseline_that_does_not_repeat_itself(tmp_path: Path) -> None:
    prepared = measured(tmp_path)
    first = next(iter(read_ids(tmp_path)))
    for arm_id in (BASE, SD):
        forge(tmp_path, RequestKey(0, 1, arm_id, first), replaced(5, 300))
    _, (margin,) = ask(tmp_path, prepared)
    assert (margin.arm_id, margin.block, margin.arm_token) == (BASE, 1, 300)
    finding = found(tmp_path)[BASE]
    assert finding.severity == "suspect"
    assert str(finding.message).startswith("1 of 4 outputs differ from the earlier output for the same prompt: ")


def test_sampled_texts_are_not_asked_about(tmp_path: Path) -> None:
    prepared = measured(tmp_path, DIFFERS, generation={"max_tokens": 32, "temperature": 1.0})
    assert ask(tmp_path, prepared) == (0, [])


# --- seeds -----------------------------------------------------------------------------------------------------------


def texts(folder: Path) -> dict[tuple[str, int], list[tuple[int, ...]]]:
    """(arm id, block) -> token ids by prompt."""
    said: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    with RunStore.open(folder / "run", readonly=True) as store:
        for it in sorted(store.requests(), key=lambda it: it.prompt_id):
            assert it.reply
            said.setdefault((it.arm_id, it.block), []).append(it.reply.token_ids)
    return said


def test_each_block_is_a_sample_of_its_own_that_its_arms_share(tmp_path: Path) -> None:
    measured(tmp_path, generation={"max_tokens": 32, "temperature": 1.0})
    said = texts(tmp_path)
    assert said[BASE, 0] == said[SD, 0]
    assert said[BASE, 1] == said[SD, 1]
    assert not set(said[BASE, 0]) & set(said[BASE, 1])


def test_greedy_blocks_say_the_same_whatever_the_seed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    measured(tmp_path)
    measured(tmp_path / "other", generation={"max_tokens": 32, "seed": 9})
    said = texts(tmp_path)
    assert said[BASE, 0] == said[BASE, 1] == said[SD, 0] == texts(tmp_path / "other")[BASE, 1]


def test_seeds_are_the_same_everywhere_and_never_twice() -> None:
    assert block_seed(1, 0, 0) == 2_309_390_642
    seeds = {
        block_seed(seed, invocation, block) for seed in range(3) for invocation in range(10) for block in range(10)
    }
    assert len(seeds) == 300
    assert all(0 <= seed <= 2**32 - 2 for seed in seeds)


# --- the real engine -------------------------------------------------------------------------------------------------

REAL: dict[str, Any] = {
    "name": "real",
    "targets": {"dense": "bench:dense", "moe": "bench:moe"},
    # Verification of 80 tokens at once takes other paths through the arithmetic than plain decoding does.
    "arms": [{"draft": "small", "gamma": 4}, {"method": "ngram-mod", "gamma": 80, "gamma_min": 2, "ngram_n": 3}],
    "drafts": {"small": "bench:draft-small"},
    "workloads": [{"source": "bench", "name": "text", "kinds": ["reason", "edit"], "per_kind": 2}],
    "design": {"blocks": 1, "warmup": "none"},
    "engine": {"context": 1024, "threads": 1},
    "generation": {"max_tokens": 96},
}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Prepared]:
    folder = tmp_path_factory.mktemp("real")
    return folder, measured(folder, **REAL)


@pytest.mark.slow
def test_speculation_leaves_the_text_only_at_near_ties(real: tuple[Path, Prepared]) -> None:
    folder, prepared = real
    _, margins = ask(folder, prepared)
    assert len(differences(folder)) == len(margins)
    for margin in margins:
        assert margin.best_logprob is not None
        assert margin.arm_logprob is not None
        assert margin.baseline_logprob is not None
        assert margin.best_logprob - min(margin.arm_logprob, margin.baseline_logprob) <= NEAR_TIE
    assert {finding.severity for finding in found(folder).values()} <= {"note"}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["dense", "moe"])
def test_a_forged_difference_is_real(real: tuple[Path, Prepared], target: str) -> None:
    folder, prepared = real
    arm_id = f"{target}/draft-simple/small/g4"
    with RunStore.open(folder / "run", readonly=True) as store:
        request = next(it for it in store.requests() if it.arm_id == arm_id and it.prompt_id.startswith("text/reason"))
    assert request.reply
    said, at = request.reply.token_ids, 40
    key = RequestKey(0, 0, arm_id, request.prompt_id)
    forge(folder, key, replaced(at, (said[at] + 700) % 2000))
    try:
        _, margins = ask(folder, prepared)
        (margin,) = [it for it in margins if (it.arm_id, it.prompt_id, it.position) == (arm_id, request.prompt_id, at)]
        assert margin.baseline_token == said[at]
        assert margin.baseline_logprob is not None
        assert margin.best_logprob is not None
        assert margin.best_logprob - margin.baseline_logprob <= NEAR_TIE, "the baseline says what the target says"
        assert margin.arm_logprob is None or margin.best_logprob - margin.arm_logprob > 2
        finding = found(folder)[arm_id]
        assert (finding.severity, finding.evidence["real"]) == ("suspect", 1)
    finally:
        forge(folder, key, lambda _: list(said))

"""A real model on real text, held against a llama.cpp server that was started by hand: the template, token ids and BOS
of prompts, what is answered, what is drafted and accepted, and the replay of lookups.

No test here knows how long anything takes: other programs may do what they like.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml

from real_models import SHA256, by_hand
from specmeter.analysis.positions import find_divergences, read_texts
from specmeter.cli import invoke
from specmeter.probe.replay import REPLAYED, drafts_of, limits_of, replay
from specmeter.record import Finding, Request
from specmeter.store import RunStore
from specmeter.validity.checks.output import NEAR_TIE
from specmeter.validity.checks.replay import exact, replay_differs
from specmeter.validity.checks.run_data import RunData, read_run_data

pytestmark = pytest.mark.slow

N, GAMMA = 3, 8
PLAIN, LOOKUP = "smol/none", "smol/simple"
LINES = (
    {"id": "edit", "max_tokens": 96, "prompt": """Write this function again with type annotations. Change nothing else.

def total(prices, discount):
    result = 0
    for price in prices:
        result = result + price
    for price in prices:
        result = result - price * discount
    return result"""},
    {"id": "ends", "max_tokens": 96, "prompt": "Say hello."},
    {"id": "bytes", "max_tokens": 32, "prompt": "Repeat three times: 猫が好き 🐈‍⬛ — „déjà vu“"},
    {
        "id": "turns",
        "max_tokens": 32,
        "messages": [
            {"role": "system", "content": "You are a brief assistant."},
            {"role": "user", "content": "Name a river."},
            {"role": "assistant", "content": "The Loire."},
            {"role": "user", "content": "And another one? <|im_start|> is not a token of mine."},
        ],
    },
)  # fmt: skip
EDIT = {"workloads": "edit"}
ARMS = (
    {"name": "simple", "method": "ngram-simple", "ngram_n": N, "gamma": GAMMA},
    {"name": "map-k", "method": "ngram-map-k", "ngram_n": N, "gamma": GAMMA, **EDIT},
    {"name": "map-k4v", "method": "ngram-map-k4v", "ngram_n": N, "gamma": GAMMA, "ngram_min_hits": 1, **EDIT},
    {"name": "mod", "method": "ngram-mod", "ngram_n": 4, "gamma": GAMMA, "gamma_min": 2, **EDIT},
)


class Measured(NamedTuple):
    """A run of the model, as a user starts it."""

    folder: Path
    data: RunData
    requests: dict[tuple[str, str], Request]
    """(arm, prompt) -> its only request."""

    def prompt_tokens(self, prompt: str) -> tuple[int, ...]:
        return self.data.prompt_tokens["smol", prompt]


@pytest.fixture(scope="module")
def measured(smol: Path, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("real-text")
    for name, lines in (("edit", LINES[:1]), ("file", LINES[1:])):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    asked = {
        "name": "real-text",
        "targets": {"smol": str(smol)},
        "workloads": [{"source": "file", "name": name, "paths": [f"{name}.jsonl"]} for name in ("edit", "file")],
        "arms": list(ARMS),
        "design": {"blocks": 1, "warmup": "none", "probe": "off"},
        "engine": {"context": 2048, "threads": 1},
        "generation": {"ignore_eos": False},
    }
    file = folder / "real-text.yaml"
    file.write_text(yaml.safe_dump(asked), encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(folder / "run")]) == 0
    with RunStore.open(folder / "run", readonly=True) as store:
        requests = {(it.arm_id, it.prompt_id): it for it in store.requests()}
        return Measured(folder / "run", read_run_data(store), requests)


@pytest.fixture(scope="module")
def plain(smol: Path) -> Iterator[httpx.Client]:
    with by_hand(smol) as client:
        yield client


def named(line: dict[str, Any]) -> str:
    return f"{'edit' if line is LINES[0] else 'file'}/{line['id']}"


def messages(line: dict[str, Any]) -> list[dict[str, str]]:
    return line.get("messages") or [{"role": "user", "content": line["prompt"]}]


def answered(client: httpx.Client, line: dict[str, Any]) -> dict[str, Any]:
    """What a chat client gets."""
    wish = {"messages": messages(line), "temperature": 0, "max_tokens": line["max_tokens"], "cache_prompt": False}
    answer = client.post("/v1/chat/completions", json=wish)
    answer.raise_for_status()
    return answer.json()


def test_the_file_is_the_one_that_is_meant(smol: Path) -> None:
    with smol.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SHA256


@pytest.mark.parametrize("line", LINES, ids=lambda it: it["id"])
def test_prompts_are_those_of_a_server_started_by_hand(
    measured: Measured, plain: httpx.Client, line: dict[str, Any]
) -> None:
    prompt = named(line)
    text = plain.post("/apply-template", json={"messages": messages(line)}).json()["prompt"]
    wish = {"content": text, "add_special": True, "parse_special": True}
    ids = plain.post("/tokenize", json=wish).json()["tokens"]
    assert measured.prompt_tokens(prompt) == tuple(ids)
    bos = plain.post("/tokenize", json={"content": "<|im_start|>", "parse_special": True}).json()["tokens"]
    assert list(ids[:1]) == bos, "the template begins with it"
    assert list(ids[1:2]) != bos, "and it is not added once more"
    assert measured.requests[PLAIN, prompt].reply is not None
    assert answered(plain, {**line, "max_tokens": 1})["usage"]["prompt_tokens"] == len(ids)


@pytest.mark.parametrize("line", LINES, ids=lambda it: it["id"])
def test_answers_are_those_of_a_server_started_by_hand(
    measured: Measured, plain: httpx.Client, line: dict[str, Any]
) -> None:
    theirs, reply = answered(plain, line), measured.requests[PLAIN, named(line)].reply
    assert reply is not None
    assert reply.text == theirs["choices"][0]["message"]["content"]
    assert reply.timings.predicted_n == len(reply.token_ids) == theirs["usage"]["completion_tokens"]
    assert reply.timings.prompt_n == theirs["usage"]["prompt_tokens"]
    assert not reply.timings.draft_n
    ended = theirs["choices"][0]["finish_reason"] == "stop"
    assert (reply.stop_reason == "eos") == ended
    if line["id"] == "ends":
        assert ended, "an answer ends by itself long before its limit"


def test_what_is_drafted_and_accepted_is_what_a_server_started_by_hand_counts(smol: Path, measured: Measured) -> None:
    with by_hand(smol, (N, GAMMA)) as client:
        for line in LINES[:2]:
            theirs, reply = answered(client, line), measured.requests[LOOKUP, named(line)].reply
            assert reply is not None
            timings = theirs["timings"]
            assert reply.text == theirs["choices"][0]["message"]["content"]
            counted = (reply.timings.draft_n or 0, reply.timings.draft_n_accepted or 0)
            assert counted == (timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)), line["id"]
            assert counted == (sum(it.drafted for it in reply.steps), sum(it.accepted for it in reply.steps))
    drafted = measured.requests[LOOKUP, "edit/edit"].reply
    assert drafted is not None
    assert (drafted.timings.draft_n_accepted or 0) > 10, "an edit repeats its prompt"


def test_texts_part_only_where_two_tokens_are_as_likely(measured: Measured) -> None:
    with RunStore.open(measured.folder, readonly=True) as store:
        parted = find_divergences(store, {arm.id: arm for arm in store.arms()}, read_texts(store))
        margins = store.margins()
    asked = {(it.arm_id, it.prompt_id): it for it in margins}
    for it in parted:
        margin = asked[it.key.arm_id, it.key.prompt_id]
        assert margin.baseline_logprob is not None
        assert margin.arm_logprob is not None
        assert abs(margin.baseline_logprob - margin.arm_logprob) < NEAR_TIE, it.key


@pytest.mark.parametrize("name", [it["name"] for it in ARMS])
def test_lookups_are_replayed_to_the_unit(measured: Measured, name: str) -> None:
    """Also where the text ends by itself, and of characters of several tokens."""
    arm = measured.data.arms[f"smol/{name}"]
    own = [(request, steps) for request, steps in exact(measured.data) if request.row.arm_id == arm.id]
    if not REPLAYED.issuperset(arm.methods):
        assert own == []
        pytest.skip(f"{arm.methods[0]} is not replayed")
    assert len(own) >= (len(LINES) - 1 if name == "simple" else 1), "a text may have a token whose id was never sent"
    for request, steps in own:
        expected = (sum(it.drafted for it in steps), sum(it.accepted for it in steps))
        assert (request.row.draft_n, request.row.draft_n_accepted) == expected, request.row.prompt_id
    assert sum(request.row.draft_n or 0 for request, _ in own) > 0
    assert [it for it in replay_differs(measured.data) if isinstance(it, Finding)] == []


def test_a_lookup_that_was_never_run_is_what_a_server_started_by_hand_then_counts(
    smol: Path, measured: Measured
) -> None:
    """From the text of plain decoding alone: what a prediction does."""
    data, line = measured.data, LINES[0]
    arm = data.arms[LOOKUP].model_copy(update={"id": "smol/other", "ngram_n": 2, "gamma": 5})
    reply = measured.requests[PLAIN, "edit/edit"].reply
    assert reply is not None
    prompt, traits = measured.prompt_tokens("edit/edit"), data.traits
    drafts = drafts_of(arm, {}, traits=traits, prompt=prompt, text=reply.token_ids)
    limits = limits_of(
        {"n_ctx": 2048}, traits=traits, max_tokens=line["max_tokens"], prompt_tokens=len(prompt), recurrent=False
    )
    steps = replay(drafts, limits)
    with by_hand(smol, (2, 5)) as client:
        theirs = answered(client, line)
    if theirs["choices"][0]["message"]["content"] != reply.text:
        pytest.skip("a near tie parts the texts on this processor")
    timings = theirs["timings"]
    expected = (sum(it.drafted for it in steps), sum(it.accepted for it in steps))
    assert (timings["draft_n"], timings["draft_n_accepted"]) == expected

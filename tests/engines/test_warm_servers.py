"""Servers that are kept from session to session: what is shared, what each session has to itself, when they end."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from llama_fixtures import TEXT, alive, arm, gone_within, greedy, launch, prompt

from specmeter.engines import warm_servers
from specmeter.engines.llama_cpp.engine import EmbeddedEngine
from specmeter.engines.llama_cpp.server import LlamaSession
from specmeter.engines.warm_servers import WarmServerPool
from specmeter.record import Arm, ModelIdentity


def servers(lasting: bool = True) -> WarmServerPool:
    return WarmServerPool(EmbeddedEngine(), lambda _: lasting)


def answered(engine: WarmServerPool, folder: Path, asked: Arm | None = None, text: str = TEXT) -> LlamaSession:
    """A session that has ended, after a request of 8 tokens."""
    session = engine.start(launch(folder, asked or arm()))
    assert isinstance(session, LlamaSession)
    with session:
        session.generate(prompt(text), greedy(8))
    return session


def log(folder: Path) -> str:
    return (folder / "logs" / "engine.log").read_text(encoding="utf-8")


def times_printed(folder: Path) -> int:
    return log(folder).count(" eval time") - log(folder).count("prompt eval time")


def test_the_next_session_of_an_arm_goes_on_with_its_server_and_has_a_log_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a" / "logs").mkdir(parents=True)
    (tmp_path / "b" / "logs").mkdir(parents=True)
    with closing(servers()) as engine:
        first = answered(engine, tmp_path / "a")
        other = arm(id="other name")
        second = answered(engine, tmp_path / "b", other)
        assert second is first
        assert second.facts.server is not None
        assert second.facts.ready_ms < 1000
        pids = second.facts.pids
        assert alive(pids)
    assert gone_within(pids, 5.0)
    assert times_printed(tmp_path / "a") == times_printed(tmp_path / "b") == 1
    loading = log(tmp_path / "a").splitlines()[:20]
    assert log(tmp_path / "b").splitlines()[:20] == loading


def test_a_prompt_that_was_read_is_gone_on_from_and_the_same_tokens_come(tmp_path: Path) -> None:
    texts = (TEXT, "Once upon a time there was a small red house by the sea, and in it")
    engine = WarmServerPool(EmbeddedEngine(), lambda _: True, prompts_mib=64)
    replies: dict[tuple[bool, str], list[tuple[int, ...]]] = {}
    with closing(engine):
        for number, reuse in enumerate((False, True, True)):
            (tmp_path / str(number) / "logs").mkdir(parents=True)
            with engine.start(replace(launch(tmp_path / str(number), arm()), reuse=reuse)) as session:
                for text in texts:
                    reply = session.generate(prompt(text), greedy(8))
                    assert (reply.timings.prompt_n == 1) is reuse, reply.timings
                    assert (reply.timings.cache_n == 0) is not reuse
                    replies.setdefault((reuse, text), []).append(reply.token_ids)
    assert all(len({*replies[False, text], *replies[True, text]}) == 1 for text in texts)


def test_a_server_that_is_not_kept_reads_each_prompt_anew(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with closing(servers(lasting=False)) as engine, engine.start(replace(launch(tmp_path, arm()), reuse=True)) as it:
        assert [it.generate(prompt(TEXT), greedy(4)).timings.cache_n for _ in range(2)] == [0, 0]


def test_arms_that_learn_and_arms_that_differ_share_nothing(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name / "logs").mkdir(parents=True)
    with closing(servers(lasting=False)) as engine:
        assert answered(engine, tmp_path / "a") is not answered(engine, tmp_path / "b")
    with closing(servers()) as engine:
        assert answered(engine, tmp_path / "c") is not answered(engine, tmp_path / "d", arm(engine={"context": 256}))


def test_a_server_that_died_while_it_waited_is_replaced(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name / "logs").mkdir(parents=True)
    with closing(servers()) as engine:
        first = answered(engine, tmp_path / "a")
        first.end()
        second = answered(engine, tmp_path / "b")
        assert second is not first
        assert second.facts.server != first.facts.server


def test_where_memory_holds_one_server_the_one_that_waits_ends_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (tmp_path / name / "logs").mkdir(parents=True)
    monkeypatch.setattr(warm_servers, "memory_available_bytes", lambda: 1)
    with closing(servers()) as engine:
        first = answered(engine, tmp_path / "a")
        assert answered(engine, tmp_path / "b", arm(engine={"context": 256})) is not first
        assert gone_within(first.facts.pids, 5.0)
        assert answered(engine, tmp_path / "c") is not first


def test_a_model_that_was_replaced_gets_a_server_of_its_own(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name / "logs").mkdir(parents=True)
    with closing(servers()) as engine:
        first = answered(engine, tmp_path / "a")
        later = launch(tmp_path / "b", arm())
        changed: ModelIdentity = later.target.model_copy(update={"sha256": "0" * 64})
        with engine.start(replace(later, target=changed)) as second:
            assert second is not first

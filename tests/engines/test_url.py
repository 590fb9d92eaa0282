"""Servers that already run: what they are and tell is found out, and what they count becomes the run's numbers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_fixtures as llama
import pytest
from dialect_server import speaking, steps_of

from specmeter.advise.advice import read_advice
from specmeter.cli import invoke
from specmeter.engines import EngineSession, Launch
from specmeter.engines.llama_cpp.engine import EmbeddedEngine
from specmeter.engines.registry import check_arm
from specmeter.engines.url.dialects import LLAMA, counters_of, told_by
from specmeter.engines.url.engine import UrlEngine, refuse_unlike, served_model
from specmeter.engines.url.found import Found, client_of, key_of
from specmeter.engines.url.replies import received
from specmeter.engines.url.session import steps_in
from specmeter.engines.url.spec import URL, UrlOptions, address
from specmeter.errors import EngineError, EngineProtocolError, EngineStartError, ExperimentError, ModelError
from specmeter.numbers.reconciled import VERIFIED, reconciled
from specmeter.record import Arm, EngineSettings, Generation, Prompt
from specmeter.show.names import Names
from specmeter.show.report import as_told, verdict_said
from specmeter.store import RunStore

TOKENS = 30  # where vLLM's last draft goes beyond them
GREEDY = Generation(max_tokens=TOKENS)
DRAFTED, ACCEPTED = (sum(step[at] for step in steps_of(TOKENS)) for at in (0, 1))
ASK = Prompt(id="p", workload="w", kind="code", text="count on", sha256="0" * 64)


def arm(url: str, *, method: str = "served", baseline: str | None = None) -> Arm:
    options = {"url": url} | ({"baseline_url": baseline} if baseline else {})
    return Arm(id="t", target="t", methods=(method,), engine=EngineSettings(options=options))


@contextlib.contextmanager
def opened(url: str, tmp_path: Path, *, model: str = "served") -> Iterator[EngineSession]:
    options = UrlOptions(url=url)
    launch = Launch(arm(url), served_model(options, "t", model), None, tmp_path / "log", idle_timeout_s=20)
    with UrlEngine(options).start(launch) as session:
        yield session


@pytest.mark.parametrize(
    ("dialect", "name", "tells"),
    [
        (
            "vllm",
            "vLLM 9.8.7",
            {"drafts", "forwards", "tokens", "arrivals", "candidates", "activation", "processes"},
        ),
        ("sglang", "SGLang 0.9", {"drafts", "arrivals", "activation", "processes"}),
        ("tensorrt", "TensorRT-LLM 9.8.7", {"drafts", "processes"}),
        ("lmstudio", "LM Studio unknown version", {"drafts", "activation", "processes"}),
        ("ollama", "Ollama 1.2", {"processes"}),
        ("unknown", "an OpenAI-compatible server unknown version", {"processes"}),
    ],
)
def test_a_server_is_asked_what_it_is_and_what_it_can_tell(dialect: str, name: str, tells: set[str]) -> None:
    with speaking(dialect) as (url, _):
        identity = UrlEngine(UrlOptions(url=url)).identify()
    assert identity.version == name
    assert identity.traits is not None
    assert set(identity.traits.tells) == tells
    assert identity.traits.watched


def test_a_server_that_only_resembles_another_is_measured_by_the_common_paths(tmp_path: Path) -> None:
    with speaking("unknown", wrong="as-lmstudio") as (url, _), opened(url, tmp_path) as session:
        assert session.generate(ASK, GREEDY).timings.predicted_n == TOKENS
        assert UrlEngine(UrlOptions(url=url)).identify().version.startswith("an OpenAI-compatible server")


@pytest.mark.parametrize(
    ("dialect", "per_request"),
    [("vllm", True), ("vllm", False), ("sglang", True), ("tensorrt", False), ("lmstudio", True)],
)
def test_counts_come_from_wherever_the_dialect_has_them(dialect: str, per_request: bool, tmp_path: Path) -> None:
    with speaking(dialect, per_request=per_request) as (url, _), opened(url, tmp_path) as session:
        replies = [session.generate(ASK, GREEDY) for _ in range(2)]
    for reply in replies:
        timings = reply.timings
        assert (timings.predicted_n, timings.draft_n, timings.draft_n_accepted) == (TOKENS, DRAFTED, ACCEPTED)
        assert reply.text.split() == [str(number) for number in range(TOKENS)]
        assert reply.stop_reason == "limit"
        told = reconciled(reply)
        assert told.steps == (None if dialect == "lmstudio" else len(steps_of(TOKENS)))
        each = [(step.drafted, step.accepted) for step in reply.steps]
        assert each == (steps_of(TOKENS) if dialect == "vllm" and per_request else [])


def test_a_real_llama_server_is_measured_as_by_those_who_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafting = llama.arm(methods=("draft-simple",), draft="small", gamma=4)
    started = EmbeddedEngine().start(llama.launch(tmp_path, drafting, draft="draft-small"))
    with started:
        client = started._client  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setenv("SPECMETER_API_KEY", client.api_key)
        options = UrlOptions(url=f"http://127.0.0.1:{client.port}")
        traits = UrlEngine(options).identify().traits
        assert traits is not None
        assert set(traits.tells) == set(URL.traits.tells)
        with opened(options.url or "", tmp_path) as found:
            assert found.facts.speculating
            assert found.facts.pids
            reply = found.generate(llama.prompt(), llama.greedy(32))
        own = started.generate(llama.prompt(), llama.greedy(32))
        assert reply.token_ids == own.token_ids
        counts = ("predicted_n", "draft_n", "draft_n_accepted")
        assert [getattr(reply.timings, it) for it in counts] == [getattr(own.timings, it) for it in counts]
        for name in ("n_decode_total", VERIFIED):
            assert reply.counters[name] == own.counters[name]


def test_an_arm_is_one_of_the_servers_of_its_run(tmp_path: Path) -> None:
    with speaking("vllm") as (url, _), speaking("vllm") as (other, _):
        target = served_model(UrlOptions(url=url), "t", "served")
        with pytest.raises(EngineStartError, match="http://h is not one of the run's servers"):
            UrlEngine(UrlOptions(url=url)).start(Launch(arm("http://h"), target, None, tmp_path / "log"))
        both = UrlEngine(UrlOptions(url=url, others=(other,)))
        with both.start(Launch(arm(other), target, None, tmp_path / "log")) as session:
            assert session.facts.argv == (other,)


def test_the_first_servers_key_is_for_its_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMETER_API_KEY", "mine")
    urls = ("http://h:1", "http://h:2", "http://elsewhere")
    options = UrlOptions(url=urls[0], others=urls[1:], baseline_url="http://h:3")
    assert [key_of(it, options) for it in (*urls, "http://h:3")] == ["mine", "mine", "", "mine"]


def test_what_is_not_told_is_not_counted(tmp_path: Path) -> None:
    with speaking("ollama") as (url, _), opened(url, tmp_path) as session:
        reply = session.generate(ASK, GREEDY)
        with pytest.raises(EngineProtocolError, match="has no tokenizer endpoint"):
            session.tokenize("a")
    assert (reply.timings.draft_n, reply.timings.draft_n_accepted) == (None, None)
    assert reply.arrival_ms == ()


def test_a_server_whose_metrics_are_out_of_reach_is_measured_without_them(tmp_path: Path) -> None:
    with speaking("vllm", wrong="no-metrics", per_request=False) as (url, _), opened(url, tmp_path) as session:
        timings = session.generate(ASK, GREEDY).timings
    assert (timings.predicted_n, timings.draft_n_accepted) == (TOKENS, None)


def test_a_vllm_that_counts_nothing_is_believed_what_its_replies_say(tmp_path: Path) -> None:
    for per_request, draft_n in ((False, None), (True, DRAFTED)):
        with (
            speaking("vllm", wrong="no-counts", per_request=per_request) as (url, _),
            opened(url, tmp_path) as session,
        ):
            assert session.facts.speculating is (True if per_request else None)
            assert session.generate(ASK, GREEDY).timings.draft_n == draft_n


def test_what_may_come_next_is_asked_of_a_vllm(tmp_path: Path) -> None:
    with speaking("vllm") as (url, speaker), opened(url, tmp_path) as session:
        found = session.candidates(ASK, (5, 6), GREEDY, 64)
    assert found == ((0, -0.5), (1, -1.5))
    asked = speaker.asked[-1][1]
    assert (asked["prompt"], asked["logprobs"]) == ([*map(ord, ASK.text), 5, 6], 20)


REAL = Path(__file__).parent.parent / "data" / "vllm-0.32.0-stream.txt"
"""What vLLM 0.32.0 answered: 16 tokens, seven drafts of four, the last of which goes beyond them."""


def events_of(name: Path) -> list[tuple[float, dict[str, Any]]]:
    lines = [it.removeprefix("data: ") for it in name.read_text("utf-8").splitlines() if it.startswith("data: {")]
    return [(float(at), json.loads(line)) for at, line in enumerate(lines)]


def test_a_real_answer_of_vllm_is_accounted_for() -> None:
    got = received(events_of(REAL))
    own = told_by(got.last)
    assert (got.count, len(got.ids), own.proposed, own.accepted, own.steps) == (16, 16, 28, 10, 7)
    told = own.within(16)
    assert (told.proposed, told.accepted, told.each[-2:]) == (24, 8, ((4, 3), (0, 0)))
    assert [it.at_ms for it in steps_in(got, told, 0.0)] == [1e3, 2e3, 3e3, 4e3, 5e3, 6e3, 7e3]


def test_a_last_draft_that_is_cut_off_is_seen_behind_plain_tokens(tmp_path: Path) -> None:
    with speaking("vllm") as (url, speaker), opened(url, tmp_path) as session:
        speaker.steps = lambda tokens: [(0, 0)] * (tokens - 3) + [(4, 4)]
        timings = session.generate(ASK, GREEDY).timings
    assert (timings.draft_n, timings.draft_n_accepted) == (1, 1)


def test_parts_that_came_together_keep_their_steps() -> None:
    events = events_of(REAL)
    first, second = (event["choices"][0] for _, event in events[4:6])
    second["token_ids"], second["text"] = first["token_ids"] + second["token_ids"], first["text"] + second["text"]
    got = received([*events[:4], *events[5:]])
    found = steps_in(got, told_by(got.last).within(16), 0.0)
    assert [(it.accepted, it.at_ms) for it in found[3:6]] == [(2, 5e3), (3, 5e3), (3, 6e3)]


def test_a_server_without_speculation_drafts_nothing(tmp_path: Path) -> None:
    with speaking("vllm", speculates=False) as (url, _), opened(url, tmp_path) as session:
        assert session.facts.speculating is False
        assert session.generate(ASK, GREEDY).timings.draft_n == 0


def test_a_request_asks_for_what_the_dialect_knows_and_for_nothing_else(tmp_path: Path) -> None:
    with speaking("vllm") as (url, speaker), opened(url, tmp_path) as session:
        session.generate(ASK, GREEDY)
    path, asked = speaker.asked[-1]
    assert path == "/v1/completions"
    assert asked["ignore_eos"] is False
    assert asked["return_token_ids"] is True
    with speaking("unknown") as (url, speaker), opened(url, tmp_path) as session:
        session.generate(ASK.model_copy(update={"format": "chat", "thinking": False}), GREEDY)
        assert speaker.asked[-1][1].pop("chat_template_kwargs") == {"enable_thinking": False}
        session.generate(ASK.model_copy(update={"format": "chat"}), GREEDY)
        path, asked = speaker.asked[-1]
        assert path == "/v1/chat/completions"
        assert asked.keys() == {"model", "messages", "max_tokens", "temperature", "seed", "stream", "stream_options"}
        sampled = GREEDY.model_copy(update={"temperature": 0.7, "top_p": 0.9, "stop": ("\n\n",)})
        session.generate(ASK, sampled)
        asked = speaker.asked[-1][1]
        assert (asked["top_p"], asked["stop"], "top_k" in asked) == (0.9, ["\n\n"], False)
        for field, value in (("top_k", 40), ("repeat_penalty", 1.1), ("ignore_eos", True)):
            with pytest.raises(EngineProtocolError, match=f"generation.{field}: an OpenAI-compatible server does not"):
                session.generate(ASK, GREEDY.model_copy(update={field: value}))


def test_settings_have_the_names_of_the_server(tmp_path: Path) -> None:
    asked_for = {"temperature": 0.7, "ignore_eos": True, "top_k": 0, "min_p": 0.1, "repeat_penalty": 1.1}
    with speaking("vllm") as (url, speaker), opened(url, tmp_path) as session:
        session.generate(ASK, GREEDY.model_copy(update=asked_for))
    asked = speaker.asked[-1][1]
    assert (asked["top_k"], asked["min_p"], asked["repetition_penalty"]) == (-1, 0.1, 1.1)
    assert asked["ignore_eos"] is True
    assert "top_p" not in asked, "its own"


@pytest.mark.parametrize(
    ("wrong", "says", "fix"),
    [
        ("limit", "limits the rate of requests", "wait 17 seconds"),
        ("breaks-off", "out of memory", "log of that server"),
        ("no-usage", "does not say how many tokens it generated", "include_usage"),
    ],
)
def test_a_request_that_fails_says_why(wrong: str, says: str, fix: str, tmp_path: Path) -> None:
    with (
        speaking("unknown", wrong=wrong) as (url, _),
        opened(url, tmp_path) as session,
        pytest.raises(EngineError) as caught,
    ):
        session.generate(ASK, GREEDY)
    assert says in caught.value.message
    assert fix in caught.value.fix


def test_a_model_may_be_called_otherwise_by_a_gateway(tmp_path: Path) -> None:
    with speaking("unknown", wrong="other-model") as (url, speaker), opened(url, tmp_path) as session:
        assert session.generate(ASK, GREEDY).timings.predicted_n == TOKENS
        assert session.generate(ASK, GREEDY).timings.predicted_n == TOKENS
        speaker.wrong, speaker.model = "", "third"
        with pytest.raises(EngineProtocolError, match="'another' at first, now with 'third'"):
            session.generate(ASK, GREEDY)


def test_a_model_that_is_called_otherwise_is_a_note(
    run: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    with speaking("unknown") as (url, speaker):
        speaker.replies_as = "gateway/target"
        run("--url", url)
        invoke(["check", "latest"])
    said = " ".join(capsys.readouterr().out.split())
    assert "replies name the model gateway/target" in said
    assert doubted("forwards") <= {"output-degenerate"}, "the stand-in counts on and on"


def test_servers_are_called_by_what_they_serve_and_their_ports() -> None:
    options = {"url": "http://127.0.0.1:8081", "baseline_url": "http://127.0.0.1:8080"}
    found = {
        "t/served": arm(options["url"]).model_copy(update={"id": "t/served", "target": "qwen"}),
        "t/none": arm(options["url"], method="none").model_copy(update={"id": "t/none", "target": "qwen"}),
    }
    alone = Names([found["t/served"]])
    assert str(alone["t/served"]) == "qwen"
    with_options = [it.model_copy(update={"engine": EngineSettings(options=options)}) for it in found.values()]
    names = Names(with_options)
    assert [str(names[it]) for it in found] == ["qwen, :8081", "no speculation (qwen, :8080)"]


def test_a_key_comes_from_the_environment_and_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with speaking("unknown", wrong="key") as (url, speaker):
        with pytest.raises(EngineStartError, match="without a valid key") as caught:
            UrlEngine(UrlOptions(url=url)).identify()
        assert "SPECMETER_API_KEY" in caught.value.fix
        monkeypatch.setenv("SPECMETER_API_KEY", "right")
        identity = UrlEngine(UrlOptions(url=url)).identify()
    assert "right" not in identity.model_dump_json()
    assert speaker.keys == {None, "Bearer right"}


def test_a_redirection_is_not_followed() -> None:
    with speaking("unknown", wrong="redirect") as (url, _), pytest.raises(EngineStartError) as caught:
        UrlEngine(UrlOptions(url=url)).identify()
    assert "redirects /v1/models to 'http://elsewhere.example/v1/models'" in caught.value.message


def test_a_server_that_does_not_speak_tls_is_told_from_one_that_is_gone() -> None:
    with speaking("unknown") as (url, _), pytest.raises(EngineStartError, match="TLS"):
        UrlEngine(UrlOptions(url=url.replace("http:", "https:"))).identify()
    with pytest.raises(EngineStartError, match="cannot be reached"):
        UrlEngine(UrlOptions(url=url)).identify()


def test_a_model_that_changes_under_way_ends_the_run(tmp_path: Path) -> None:
    with speaking("vllm") as (url, speaker):
        options = UrlOptions(url=url)
        launch = Launch(arm(url), served_model(options, "t", "served"), None, tmp_path / "log")
        speaker.model = "another"
        with pytest.raises(EngineStartError, match="no longer serves target"):
            UrlEngine(options).start(launch)


def test_a_model_is_named_where_a_server_has_several_or_not_that_one() -> None:
    with speaking("vllm") as (url, _), pytest.raises(ModelError, match="serves no model 'other'"):
        served_model(UrlOptions(url=url), "t", "other")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("https://Host.example/v1/", "https://host.example"),
        ("http://h/proxy/v1", "http://h/proxy"),
    ],
)
def test_a_url_is_kept_as_an_address(given: str, kept: str) -> None:
    assert address(given) == kept


@pytest.mark.parametrize("given", ["ftp://h", "http://me:key@h", "http://h/?api_key=1", "http://", "http://h:99999"])
def test_what_is_no_address_or_holds_a_key_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match=r"URL|more than") as caught:
        address(given)
    assert "api_key" not in str(caught.value)


def test_an_arm_without_a_server_is_refused() -> None:
    with pytest.raises(ExperimentError, match="no server runs without speculation"):
        check_arm("url", arm("http://h", method="none"), has_draft=False)
    with pytest.raises(ExperimentError, match="also the server"):
        check_arm("url", arm("http://h", baseline="http://h"), has_draft=False)


def test_counts_that_cannot_be_are_refused() -> None:
    with pytest.raises(EngineProtocolError, match="5 of 4"):
        told_by({"timings": {"draft_n": 4, "draft_n_accepted": 5}})
    assert told_by({"timings": {"draft_n": True, "draft_n_accepted": "x"}}).accepted is None
    assert counters_of("[" * 100_000) == {}
    assert counters_of("a_total nonsense\n") == {}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What `specmeter run` prints of a short run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPECMETER_DISTURBED", "keep")

    def run(*args: str, ends: int = 0) -> str:
        code = invoke(["run", *args, "--max-tokens", str(TOKENS), "--blocks", "2", "--quiet"])
        told = capsys.readouterr()
        assert code == ends, told
        return " ".join(told.out.split())

    return run


def doubted(untold: str) -> set[str]:
    """Checks that doubt the last run, apart from those that see other programs on this machine; `untold` is among what
    was not checked."""
    folder = max(Path("specmeter-runs").iterdir(), key=lambda it: it.stat().st_mtime)
    with RunStore.open(folder, readonly=True) as store:
        certificate, findings = store.certificate(), list(store.findings())
    assert certificate is not None
    assert untold in certificate.untold
    told = verdict_said("valid", simulated=False, untold=as_told(certificate))
    assert str(told).startswith("valid, as far as this server reports; not checked: ")
    return {it.check for it in findings if it.severity != "note"} - {
        "host-busy",
        "free-cores",
        "clock-differs",
        "stalls",
    }


def test_one_server_is_measured_without_a_speedup(run: Callable[..., str]) -> None:
    with speaking("vllm") as (url, _):
        told = run("--url", url)
    assert (
        "of draft tokens accepted; no speedup, because nothing without speculation was measured to compare with" in told
    )
    assert doubted("identity") == set()


def test_two_servers_are_compared(run: Callable[..., str]) -> None:
    with speaking("vllm") as (url, one), speaking("vllm", speculates=False) as (plain, other):
        told = run("--url", url, "--baseline-url", plain)
    assert one.asked
    assert other.asked
    assert "speedup" in told
    assert f"{ACCEPTED / DRAFTED:.0%}" in told


def test_several_servers_share_a_baseline(run: Callable[..., str]) -> None:
    with (
        speaking("vllm") as (url, one),
        speaking("vllm") as (second, two),
        speaking("vllm", speculates=False) as (plain, _),
    ):
        told = run("--url", url, "--url", second, "--baseline-url", plain)
    assert len(one.asked) == len(two.asked)
    for it in (url, second):
        assert f"target, :{it.rpartition(':')[2]}" in told
    assert f"no speculation (target, :{plain.rpartition(':')[2]})" in told


def test_the_best_of_several_servers_is_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPECMETER_DISTURBED", "keep")
    Path("mine.txt").write_text("".join(f"Count on from {number}.\n" for number in range(4)), encoding="utf-8")
    asked = ["--prompts", "mine.txt", "--budget", "10s", "-n", str(TOKENS), "--quiet", "--out", "here"]
    with (
        speaking("vllm") as (url, one),
        speaking("vllm") as (second, two),
        speaking("vllm", speculates=False) as (plain, other),
    ):
        code = invoke(["advise", "--baseline-url", plain, "--url", url, "--url", second, *asked])
    assert code in (0, 4), capsys.readouterr()
    assert one.asked
    assert two.asked
    assert other.asked
    advice = read_advice(Path("here"))
    assert advice.asked.urls == (plain, url, second)
    assert {it.arm_id.rpartition("-")[2] for it in advice.outcomes} == {it.rpartition(":")[2] for it in (url, second)}
    assert {it.stage for it in advice.stages} == {"screen", "confirm"}
    assert all(it.confirmed is not None for it in advice.outcomes)
    assert advice.made is not None
    assert not advice.made.contexts  # it is the servers' own


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--url", "http://h"], "--url: no server without speculation"),
        (["--baseline-url", "http://h"], "no other server to compare with"),
        (["--url", "http://h", "--baseline-url", "h/v1"], "--url http://h: given twice"),
        (["--url", "h", "--baseline-url", "g", "--draft", "bench:draft-small"], "a running server's drafting"),
        (["--url", "h", "--baseline-url", "g", "--from", "mine.yaml"], "--url: already set by mine.yaml"),
    ],
)
def test_what_cannot_be_advised_of_servers_is_refused(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["advise", *argv]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_prompt_beyond_the_context_of_a_server_is_refused_before_it_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with speaking("vllm") as (url, speaker):
        speaker.context = TOKENS + 2
        assert invoke(["run", "--url", url, "--max-tokens", str(TOKENS)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"has room for {TOKENS + 2} fix: start the server with more, or lower max_tokens" in said


def test_a_server_that_does_not_speculate_is_measured_as_it_is(run: Callable[..., str]) -> None:
    with speaking("vllm", speculates=False) as (url, _):
        told = run("--url", url)
    assert "no speedup, because nothing without speculation was measured to compare with" in told


@pytest.mark.parametrize(
    ("baseline", "speculates", "says"),
    [
        ("vllm", True, "speculates, but the baseline must not fix: give the server without speculation (were"),
        ("sglang", False, "is SGLang, so their ratio is not a speedup"),
    ],
)
def test_a_baseline_is_the_same_engine_without_drafts(
    baseline: str, speculates: bool, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with speaking("vllm") as (url, _), speaking(baseline, speculates=speculates) as (plain, _):
        assert invoke(["run", "--url", url, "--baseline-url", plain, "--dry-run"]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_baseline_has_the_same_weights() -> None:
    one = Found("http://a", client_of("http://a", ""), LLAMA, "1", {"m": {"meta": {"n_params": 8, "n_vocab": 2}}})
    other = replace(one, url="http://b", models={"n": {"meta": {"n_params": 4, "n_vocab": 2}}})
    refuse_unlike(one, [replace(one, models={"n": {"meta": {"n_params": 8}}})])
    with pytest.raises(ExperimentError, match=r"serve different models \(n_params is 4 and 8\)"):
        refuse_unlike(one, [one, other])


def test_a_server_that_rests_is_no_other_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specmeter.engines.url.engine.processes", lambda url: (len(url),))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    assert URL.running(UrlOptions(url="http://h", baseline_url="http://he")) == (8, 9)


def test_a_server_that_should_speculate_and_does_not_is_no_result(run: Callable[..., str]) -> None:
    with speaking("vllm", speculates=False) as (url, _), speaking("vllm", speculates=False) as (plain, _):
        told = run("--url", url, "--baseline-url", plain, ends=1)
    assert "speculation-not-active" in told


def test_two_servers_may_not_serve_two_models_unseen(
    run: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    with speaking("vllm") as (url, _), speaking("vllm", speculates=False) as (plain, other):
        other.context = 2048
        told = run("--url", url, "--baseline-url", plain)
        invoke(["check", "latest"])
    assert "the servers report different models: max_model_len" in told
    assert "2 servers share the machine 127.0.0.1" in capsys.readouterr().out


def test_a_server_out_of_sight_is_measured_without_this_machine(
    run: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("found", "engine"):
        monkeypatch.setattr(f"specmeter.engines.url.{module}.processes", lambda _: ())
    with speaking("ollama") as (url, _):
        told = run("--url", url, "--out", "here")
        again = run("--url", url, "--out", "here")
    assert "no speedup, because nothing without speculation was measured to compare with" in told
    assert again == told
    invoke(["check", "here"])
    said = " ".join(capsys.readouterr().out.split())
    assert "the server's process is not visible" in said
    assert "the load on the machine was not recorded" in said


def test_a_server_meets_several_clients(run: Callable[..., str]) -> None:
    with speaking("vllm") as (url, _):
        told = run("--url", url, "--clients", "2", "--set", "load.rounds=2")
    assert "no speedup, because nothing without speculation was measured to compare with" in told
    assert "over plain decoding at the same load" not in told


def test_options_for_engines_that_are_started_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "--url", "http://127.0.0.1:1", "--gamma", "4", "-t", "2"]) == 2
    assert "--gamma, -t: cannot be set on a running server" in capsys.readouterr().err

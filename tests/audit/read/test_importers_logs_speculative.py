"""Logs of llama-speculative: what they say, and what really took place."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refused_batches import excerpt
from said import codes
from specmeter.audit.claim import Claim
from specmeter.audit.read import llama_server_log, llama_speculative
from specmeter.audit.read.options import TableOptions
from specmeter.audit.reading import read_claims
from specmeter.errors import SpecmeterError, UsageError
from specmeter.messages import Message


def claims_of(text: str | bytes, tmp_path: Path) -> list[Claim]:
    path = tmp_path / "some.log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return list(llama_speculative.read_llama_speculative(path))


# --- the published logs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "drafted", "accepted", "failures"),
    [("apple_9b", 708, 23, 819), ("apple_35b", 696, 26, 801), ("apple_4b", 600, 50, 657)],
)
def test_what_took_place_in_a_published_run(
    name: str, drafted: int, accepted: int, failures: int, tmp_path: Path
) -> None:
    (claim,) = claims_of(excerpt(name), tmp_path)
    assert (claim.gamma, claim.drafted, claim.accepted, claim.predicted_n) == (4, drafted, accepted, 201)
    assert claim.acceptance == pytest.approx(accepted / drafted)

    # By hand: each round drafts 4 tokens and emits one of its own; the first token comes from the prompt.
    rounds = drafted // 4
    assert 1 + rounds + accepted == 201
    assert claim.steps == rounds
    # The perf block counts 220 tokens in successful forwards of the target, 20 of them the prompt: 200 / 5 = 40.
    took_place = (220 - 20) // (4 + 1)
    assert claim.target_forwards == took_place == 40
    assert claim.failed_forwards == rounds - 40
    # The draft decodes one correction after each of the rounds + 1 samplings and each draft, one by one. It counts 223
    # tokens, 20 of the prompt; its last forward was never waited for and is not counted.
    asked, done = (rounds + 1) + drafted, 223 - 20 + 1
    assert (rounds - 40) + (asked - done) == failures
    assert claim.failed_draft_forwards == asked - done
    # Emitted tokens that no successful forward stands behind.
    assert 200 - (accepted + 40) > 100
    assert {"read.sum_closes", "read.repeats_itself"} <= codes(claim.notes)
    assert Message("read.graphs_reused", graphs=39, forwards=40) in claim.notes


def test_rates_and_setup_of_a_published_run(tmp_path: Path) -> None:
    (claim,) = claims_of(excerpt("apple_9b"), tmp_path)
    assert (claim.decode_rate, claim.window) == (61.356, "all tokens")
    assert claim.decode_rate == pytest.approx(201 / 3.276, rel=1e-3)
    assert (claim.predicted_ms, claim.prompt_n, claim.prompt_ms) == (pytest.approx(3276), 20, pytest.approx(75))
    assert claim.label == "Qwen3.5-9B-UD-Q8_K_XL + Qwen3.5-0.8B-UD-Q8_K_XL"
    assert (claim.device, claim.experts, claim.method) == ("Apple M2 Ultra", 0, "draft-simple")
    assert claim.size_bytes == pytest.approx(12.07 * 1024**3)
    (moe,) = claims_of(excerpt("apple_35b"), tmp_path)
    assert moe.experts == 256


def test_the_beginning_of_a_published_log_is_recognised() -> None:
    head = excerpt("apple_9b")[:4000]
    assert llama_speculative.sniff_llama_speculative(head)
    assert not llama_server_log.sniff_llama_server(head)


@pytest.mark.parametrize(
    "head",
    [
        "",
        "type,target,draft,n_drafted,n_accept,accept_rate\nspeculative,9B,0.8B,680,30,0.04\n",
        "config,engine,tok_s\nbase,llama-server,35.1\nspec,llama-speculative,44\n",
        '{"tools": {"llama_cpp": "llama-bench / llama-speculative"}, "results": []}',
        "| model | tok/s |\n|---|---|\n| main: 9B | 44 |\n",
        "INFO 04-01 12:00:00 metrics.py:455] SpecDecoding metrics: Draft acceptance rate: 70.0%\n",
    ],
)
def test_tables_and_other_engines_are_not_taken_for_logs(head: str) -> None:
    assert not llama_speculative.sniff_llama_speculative(head)
    assert not llama_server_log.sniff_llama_server(head)


def test_runs_one_after_the_other_are_claims_of_their_own(tmp_path: Path) -> None:
    text = excerpt("apple_9b") + excerpt("apple_4b") + excerpt("apple_35b")
    claims = claims_of(text, tmp_path)
    assert [claim.row for claim in claims] == ["run 1", "run 2", "run 3"]
    assert [claim.failed_forwards for claim in claims] == [137, 110, 134]
    assert [claim.drafted for claim in claims] == [708, 600, 696]
    assert all("read.repeats_itself" in codes(claim.notes) for claim in claims)


# --- other generations -----------------------------------------------------------------------------------------------

SOUND = """\
llama_model_loader: loaded meta data with 9 key-value pairs and 9 tensors from a/target.gguf (version GGUF V3 (latest))
llm_load_print_meta: model size       = 4.33 GiB (4.83 BPW)
llama_model_loader: loaded meta data with 9 key-value pairs and 9 tensors from a/draft.gguf (version GGUF V3 (latest))

 A tidy answer with all of its words different from one another.

encoded    6 tokens in    0.100 seconds, speed:   60.000 t/s
decoded   41 tokens in    2.000 seconds, speed:   20.500 t/s

n_draft   = 5
n_predict = 41
n_drafted = 45
n_accept  = 30
accept    = 66.667%

draft:

llama_print_timings:        load time = 42345.19 ms
llama_print_timings:      sample time =     0.00 ms /     1 runs   (    0.00 ms per token,      inf tokens per second)
llama_print_timings: prompt eval time =   363.60 ms /     6 tokens (   45.45 ms per token,    22.00 tokens per second)
llama_print_timings:        eval time = 27360.44 ms /    55 runs   (  127.85 ms per token,     7.82 tokens per second)
llama_print_timings:       total time = 290684.19 ms

target:

llama_print_timings:        load time = 44875.62 ms
llama_print_timings: prompt eval time =   900.00 ms /    60 tokens (   15.00 ms per token,    66.67 tokens per second)
llama_print_timings:        eval time =    50.00 ms /     1 runs   (   50.00 ms per token,    20.00 tokens per second)
llama_print_timings:       total time = 290684.19 ms
"""


def test_a_sound_run_of_an_older_build(tmp_path: Path) -> None:
    (claim,) = claims_of(SOUND, tmp_path)
    # 41 - 1 - 30 = 10 rounds after the first token; 6 + 10 + 45 = 61 tokens to evaluate, and 60 + 1 were.
    assert claim.steps == 10
    assert claim.target_forwards == 10
    assert claim.failed_forwards is None
    assert claim.notes == ()
    assert claim.label == "target + draft"
    assert claim.size_bytes == pytest.approx(4.33 * 1024**3)


def test_tokens_that_are_missing_without_failures_are_only_noted(tmp_path: Path) -> None:
    (claim,) = claims_of(SOUND.replace("/    60 tokens", "/    51 tokens"), tmp_path)
    assert claim.target_forwards is None
    assert claim.notes == (Message("read.evaluated", took=46, needed=55),)


def test_drafts_of_any_length_make_the_share_an_estimate(tmp_path: Path) -> None:
    failure = "llama_decode: failed to decode, ret = -1\n"
    text = failure * 4 + SOUND.replace("/    60 tokens", "/    49 tokens")
    (claim,) = claims_of(text, tmp_path)
    # 61 - 50 = 11 tokens missing, in verifications of 5.5 tokens on average.
    assert (claim.target_forwards, claim.failed_forwards, claim.failed_draft_forwards) == (8, 2, 2)
    assert "read.took_place_about" in codes(claim.notes)


def test_failures_without_counters_are_shared(tmp_path: Path) -> None:
    failure = "llama_decode: failed to decode, ret = -1\n"
    (claim,) = claims_of(failure * 7 + SOUND.partition("draft:\n")[0], tmp_path)
    assert (claim.failed_forwards, claim.failed_draft_forwards, claim.target_forwards) == (7, None, None)
    assert claim.notes[0] == Message("read.failed_of_either", failed=7)


def test_failures_that_the_drafter_reports_are_its_own(tmp_path: Path) -> None:
    failure = "llama_decode: failed to decode, ret = -1\ndraft: llama_decode[1] returned -1\n"
    (claim,) = claims_of(failure * 7 + SOUND, tmp_path)
    assert (claim.target_forwards, claim.failed_forwards, claim.failed_draft_forwards) == (10, 0, 7)


def test_a_first_generation_log_without_an_encode_line(tmp_path: Path) -> None:
    text = (
        "generated 129 tokens in 248.340 seconds, speed: 0.519 t/s\n\nn_draft   = 8\nn_predict = 129\n"
        "n_drafted = 132\nn_accept  = 47\naccept    = 35.606%\n"
    )
    (claim,) = claims_of(text, tmp_path)
    assert (claim.decode_rate, claim.predicted_n, claim.steps) == (0.519, 129, 81)
    assert claim.window == "all tokens"


def test_stamps_colours_and_windows_line_ends_change_nothing(tmp_path: Path) -> None:
    (plain,) = claims_of(SOUND, tmp_path)
    dressed = "".join(f"0.01.002.003 I \x1b[32m{line}\x1b[0m\r\n" for line in SOUND.splitlines())
    (claim,) = claims_of(dressed, tmp_path)
    assert claim.model_dump(exclude={"notes"}) == plain.model_dump(exclude={"notes"})
    (claim,) = claims_of(SOUND.encode("utf-16"), tmp_path)
    assert claim == plain


def test_nothing_drafted_is_no_acceptance(tmp_path: Path) -> None:
    text = SOUND.replace("n_drafted = 45", "n_drafted = 0").replace("n_accept  = 30", "n_accept  = 0")
    (claim,) = claims_of(text.replace("66.667%", "nan%"), tmp_path)
    assert (claim.acceptance, claim.drafted, claim.steps) == (None, 0, 40)


@pytest.mark.parametrize("text", ["", "\n", "hello\n", excerpt("apple_9b")[:9000], "n_predict = 12\n"])
def test_a_log_without_counts_is_a_problem_not_a_number(text: str, tmp_path: Path) -> None:
    (claim,) = claims_of(text, tmp_path)
    assert claim.problem == Message("unread.llama_speculative")
    assert claim.decode_rate is None


def test_a_run_that_breaks_off_after_a_finished_one(tmp_path: Path) -> None:
    first, second = claims_of(SOUND + SOUND.partition("n_predict")[0], tmp_path)
    assert first.problem is None
    assert second.problem is not None
    assert second.row == "run 2"


def test_a_log_of_the_server_is_read_as_one(tmp_path: Path) -> None:
    text = "slot print_timing: id  0 | task 5 | \nprompt eval time = 1 ms / 2 tokens\n  eval time = 9 ms / 3 tokens\n"
    (tmp_path / "log.txt").write_text(text, encoding="utf-8")
    (claim,) = read_claims(tmp_path / "log.txt", "llama-speculative", TableOptions())[1]
    assert claim.row == "request 1, slot 0, task 5"


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        list(llama_speculative.read_llama_speculative(tmp_path / "none.log"))


# --- whatever comes --------------------------------------------------------------------------------------------------

PARTS = [
    *("n_draft = ", "n_predict = ", "n_drafted = ", "n_accept = "),
    "encoded 1 tokens in 0.0 seconds, speed: inf t/s\n",
    *("decoded 5 tokens in 0.000 seconds, speed: 0.000 t/s\n", "draft:\n", "target:\n"),
    *("prompt eval time = 0.00 ms / 1 tokens\n", "eval time = 1e400 ms / 1 runs\n", "graphs reused = "),
    *("loaded meta data with x from y.gguf\n", "print_info: file size = 0.00 GiB\n"),
    *("failed to decode, ret = -1\n", "llama_decode[1] returned -1\n", "9" * 400, "999999999999", "0"),
    *("-1", "7", "nan", "\n", "\x00", "llama-server -m a 'b\n", "slot print_timing: id  0 | task 1 |"),
    "slot launch_slot_: id  1 | task 2 | processing task",
    *("slot release: id  1 | task 2 | stop processing:", "prompt eval time = ", " eval time = "),
    *("total time = ", " ms / ", " tokens ( 1 ms per token, ", " tokens per second)"),
    *("llama_print_timings:", "draft acceptance = 0.9 ( ", " accepted / ", " generated), mean len = "),
    *("accepted 1/ 4 draft tokens", "statistics x: #calls(b,g,a) = 1 2 3", "id_slot=3 id_task=9"),
    "adding speculative implementation 'draft-simple'\n: - n_max=9999999, p_min=x",
    *('llama-server -m "x --draft-max 99999999999999999999 --draft-max 3', "failed to decode, ret = -1"),
    *("1e400", "0.00", "-5", "12"),
    "\n",
]
"""Fragments of lines that mean something to either reader, and numbers that no counter prints."""


@settings(max_examples=600, deadline=None)
@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=8), max_size=100))
def test_nothing_but_our_own_errors(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.log"
    path.write_bytes("".join(parts).encode("utf-8", "surrogatepass"))
    for read in (llama_speculative.read_llama_speculative, llama_server_log.read_llama_server):
        try:
            assert list(read(path))
        except SpecmeterError:
            continue
    llama_server_log.sniff_llama_server("".join(parts))
    llama_speculative.sniff_llama_speculative("".join(parts))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_log_cut_anywhere_with_bytes_changed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    text = bytearray(SOUND.encode())
    del text[data.draw(st.integers(0, len(text))) :]
    for _ in range(data.draw(st.integers(0, 5))):
        if text:
            text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("cut") / "x.log"
    path.write_bytes(bytes(text))
    assert list(llama_speculative.read_llama_speculative(path))

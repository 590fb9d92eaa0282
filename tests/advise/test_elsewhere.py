"""How a measured choice is written for programs that did not measure it."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
import yaml

from advices import ALL, NGRAM, SCHEDULES, confirmed, drafts, off, schedule, undecided
from said import codes
from specmeter.advise.export_commands import (
    PROGRAMS,
    TABLES,
    also_for,
    by_batch_size,
    check_program,
    elsewhere,
    tables,
    written_for,
)
from specmeter.advise.schedule import Schedule
from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.record import Arm

MEASURED = (
    *("llama-server", "-m", "big.gguf", "-md", "small.gguf", "--spec-type", "draft-simple"),
    *("--spec-draft-n-max", "4", "-c", "1024"),
)
SMALL = Arm(id="small", target="big", draft="small", methods=("draft-simple",), gamma=4, p_min=0.5)
LOOKUP = Arm(id="lookup", target="big", methods=("ngram-simple",), gamma=8, ngram_n=3)
HEADS = Arm(id="heads", target="big", methods=("draft-mtp",), gamma=2)


def test_a_draft_model_is_written_in_the_words_of_each_program() -> None:
    lines = {program: written_for(program, SMALL, MEASURED).line for program in PROGRAMS}
    assert lines["llama-server"] == MEASURED
    assert lines["llama-cli"] == ("llama-cli", *MEASURED[1:])
    assert shlex.join(lines["koboldcpp"]) == (
        "koboldcpp --model big.gguf --contextsize 1024 --draftmodel small.gguf --draftamount 4"
    )
    assert lines["vllm"][:4] == ("vllm", "serve", "TARGET", "--speculative-config")
    assert json.loads(lines["vllm"][4]) == {"method": "draft_model", "model": "DRAFT", "num_speculative_tokens": 4}
    assert shlex.join(lines["sglang"]) == (
        "python3 -m sglang.launch_server --model-path TARGET --speculative-algorithm STANDALONE "
        "--speculative-draft-model-path DRAFT --speculative-num-steps 4 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 5"
    )
    assert shlex.join(lines["mlx-lm"]) == "mlx_lm.server --model TARGET --draft-model DRAFT --num-draft-tokens 4"
    python, option, code = lines["lm-studio"]
    assert (python, option) == ("python3", "-c")
    compile(code, "line", "exec")
    assert '"speculativeDecodingMinContinueDraftingProbability": 0.5' in code


def test_what_a_program_lacks_is_said() -> None:
    notes = {program: written_for(program, SMALL, MEASURED).notes for program in PROGRAMS}
    assert notes["llama-server"] == ()
    lacking = {program for program in PROGRAMS if Message("program.no_setting", lost=["p_min"]) in notes[program]}
    assert lacking == {"koboldcpp", "vllm", "sglang", "mlx-lm", "tensorrt-llm"}
    assert {program for program in PROGRAMS if "program.own_format" in codes(notes[program])} == {
        *("vllm", "sglang", "mlx-lm", "lm-studio", "tensorrt-llm")
    }
    plain = MEASURED[:3]
    can = {program for program in PROGRAMS if written_for(program, LOOKUP, plain).line}
    assert can == {"llama-server", "llama-cli", "vllm", "tensorrt-llm"}
    found = written_for("sglang", LOOKUP, plain)
    assert found.notes == (Message("program.nothing_like", program="sglang", method="ngram-simple"),)
    assert json.loads(written_for("vllm", LOOKUP, plain).line[-1]) == {
        "method": "ngram",
        "num_speculative_tokens": 8,
        "prompt_lookup_min": 3,
        "prompt_lookup_max": 3,
    }
    assert {program for program in PROGRAMS if written_for(program, HEADS, plain).line} == {
        *("llama-server", "llama-cli", "vllm", "sglang", "tensorrt-llm")
    }
    both = LOOKUP.model_copy(update={"methods": ("ngram-simple", "draft-mtp")})
    assert written_for("llama-cli", both, plain).line
    assert codes(written_for("vllm", both, plain).notes) == {"program.one_way"}


def test_plain_decoding_is_written_for_all_of_them() -> None:
    for program in PROGRAMS:
        line = written_for(program, None, ("llama-server", "-m", "big.gguf")).line
        assert line
        assert not any("spec" in word or "draft" in word for word in line)


def test_where_the_engine_has_no_line_there_is_none_to_write_another_from() -> None:
    for program in PROGRAMS[1:]:
        found = written_for(program, SMALL, ())
        assert (found.line, found.notes) == ((), (Message("program.not_served"),))


def test_unknown_programs_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match="no such program") as error:
        check_program("vlm")
    assert all(program in error.value.fix for program in PROGRAMS)


# --- draft lengths by batch size -------------------------------------------------------------------------------------


def vllm(found: Schedule) -> dict[str, Any]:
    """What vllm is told of drafting."""
    *line, option, config = tables(found, "vllm").line
    assert (line, option) == (["vllm", "serve", "TARGET"], "--speculative-config")
    return json.loads(config)


def tensorrt(found: Schedule) -> dict[str, Any]:
    """The file that its line writes for tensorrt-llm."""
    shell, option, script = tables(found, "tensorrt-llm").line
    echo, text, to, file, then, *serve = shlex.split(script)
    assert (shell, option, echo, to, then) == ("sh", "-c", "echo", ">", "&&")
    assert serve == ["trtllm-serve", "TARGET", "--config", file]
    return yaml.safe_load(text)


@pytest.mark.parametrize(
    ("loads", "lengths"),
    [
        ({1: 4, 2: 3, 4: 2, 8: 0}, ((1, 1, 4), (2, 2, 3), (3, 5, 2), (6, 8, 0))),
        ({1: 4, 16: 0}, ((1, 3, 4), (4, 16, 0))),  # 4 is as near to both: it has the K of more clients
        ({1: 4, 2: 4, 4: 4}, ((1, 4, 4),)),
        ({4: 2, 8: 0}, ((1, 5, 2), (6, 8, 0))),
        ({1: 0}, ((1, 1, 0),)),
    ],
)
def test_a_batch_size_has_the_length_of_the_nearer_load(
    loads: dict[int, int], lengths: tuple[tuple[int, int, int], ...]
) -> None:
    assert by_batch_size(loads) == lengths


def test_a_schedule_is_one_table_for_each_program() -> None:
    found = SCHEDULES["up-to"]
    assert vllm(found) == {
        "method": "draft_model",
        "model": "DRAFT",
        "num_speculative_tokens": 4,
        "num_speculative_tokens_per_batch_size": [[1, 1, 4], [2, 2, 2], [3, 8, 0]],
    }
    assert tensorrt(found) == {
        "speculative_config": {
            "decoding_type": "Draft_Target",
            "speculative_model": "DRAFT",
            "max_draft_len": 4,
            "draft_len_schedule": {1: 4, 2: 2, 8: 0},
        },
        "disable_overlap_scheduler": True,
    }
    assert "program.vllm_lengths" in codes(tables(found, "vllm").notes)
    same = schedule(*(confirmed(),) * 4)
    assert "num_speculative_tokens_per_batch_size" not in vllm(same)
    assert tensorrt(same)["speculative_config"]["draft_len_schedule"] == {8: 4}
    for program in TABLES:
        assert {8} == {note.values["last"] for note in tables(same, program).notes if "last" in note.values}


def test_lengths_that_grow_with_the_load_are_not_for_tensorrt_llm() -> None:
    for found in (SCHEDULES["from"], schedule(confirmed(arm=drafts(2)), confirmed(arm=drafts(4)))):
        assert vllm(found)["num_speculative_tokens"] == 4
        told = tables(found, "tensorrt-llm")
        assert told.line == ()
        assert told.lengths
        assert told.notes[0] == Message("program.longest_first")


def test_an_open_load_and_another_way_of_drafting_get_no_drafts() -> None:
    found = schedule(confirmed(arm=NGRAM), confirmed(), undecided("budget"), confirmed(arm=drafts(3, p_min=0.5)))
    told = tables(found, "vllm")
    assert told.lengths == ((1, 1, 0), (2, 2, 4), (3, 5, 0), (6, 8, 3))
    assert vllm(found)["method"] == "draft_model"
    assert Message("program.off_undecided", clients=[4]) in told.notes
    assert Message("program.off_other", clients=[1]) in told.notes
    assert Message("program.no_setting", lost=["p_min"]) in told.notes
    tied = schedule(confirmed(arm=NGRAM), confirmed(), loads=(1, 2))
    assert vllm(tied)["method"] == "ngram"  # of fewer clients
    assert tensorrt(tied)["speculative_config"]["max_matching_ngram_size"] == 3


def test_where_there_is_no_table_to_write_it_says_why() -> None:
    cache = NGRAM.model_copy(update={"methods": ("ngram-cache",)})
    for found, why in (
        (SCHEDULES["first"], "program.undecided"),
        (schedule(confirmed(arm=cache)), "program.nothing_like"),
        (schedule(confirmed(command=())), "program.not_served"),
    ):
        for program in TABLES:
            told = tables(found, program)
            assert (told.line, codes(told.notes)) == ((), {why})
    assert tables(SCHEDULES["up-to"], "sglang").notes == (Message("program.one_length", program="sglang"),)
    assert tables(schedule(off(), ALL["nothing"]), "vllm").line == ("vllm", "serve", "TARGET")


def test_a_program_is_written_for_every_load_that_is_decided() -> None:
    found = also_for(SCHEDULES["between"], "mlx-lm")
    assert [list(elsewhere(it)) == ["mlx-lm"] for it in found.advices] == [True, False, True, True]
    assert also_for(found, "llama-server") == found
    with pytest.raises(UsageError, match="no such program"):
        also_for(found, "vlm")

"""How a measured choice is written for programs that did not measure it."""

from __future__ import annotations

import json
import shlex

import pytest

from specmeter.advise.elsewhere import PROGRAMS, check_program, written_for
from specmeter.errors import UsageError
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
    notes = {program: " | ".join(written_for(program, SMALL, MEASURED).notes) for program in PROGRAMS}
    assert notes["llama-server"] == ""
    lacking = {program for program in PROGRAMS if "no setting for p_min" in notes[program]}
    assert lacking == {"koboldcpp", "vllm", "sglang", "mlx-lm"}
    assert {program for program in PROGRAMS if "TARGET and DRAFT" in notes[program]} == {
        *("vllm", "sglang", "mlx-lm", "lm-studio")
    }
    plain = MEASURED[:3]
    can = {program for program in PROGRAMS if written_for(program, LOOKUP, plain).line}
    assert can == {"llama-server", "llama-cli", "vllm"}
    found = written_for("sglang", LOOKUP, plain)
    assert found.notes == ("sglang has nothing like ngram-simple, as far as its documentation says",)
    assert json.loads(written_for("vllm", LOOKUP, plain).line[-1]) == {
        "method": "ngram",
        "num_speculative_tokens": 8,
        "prompt_lookup_min": 3,
        "prompt_lookup_max": 3,
    }
    assert {program for program in PROGRAMS if written_for(program, HEADS, plain).line} == {
        *("llama-server", "llama-cli", "vllm", "sglang")
    }
    both = LOOKUP.model_copy(update={"methods": ("ngram-simple", "draft-mtp")})
    assert written_for("llama-cli", both, plain).line
    assert "one way at a time" in written_for("vllm", both, plain).notes[0]


def test_plain_decoding_is_written_for_all_of_them() -> None:
    for program in PROGRAMS:
        line = written_for(program, None, ("llama-server", "-m", "big.gguf")).line
        assert line
        assert not any("spec" in word or "draft" in word for word in line)


def test_where_the_engine_has_no_line_there_is_none_to_write_another_from() -> None:
    for program in PROGRAMS[1:]:
        found = written_for(program, SMALL, ())
        assert (found.line, found.notes) == ((), ("the engine that measured does not say how it is served",))


def test_unknown_programs_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match="unknown") as error:
        check_program("vlm")
    assert "did you mean vllm?" in error.value.fix
    assert all(program in error.value.fix for program in PROGRAMS)

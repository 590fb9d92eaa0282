"""How a choice that was measured with llama.cpp is written for other programs that serve the same models.

A choice is one for the engine that it was measured on: another program has kernels, batching and verification of its
own, so each of these lines is a place to start, to be measured there. A program is named a method only where its
documentation has it. Looked up in November 2026:

| program | source |
|---|---|
| llama-cli | tools/cli/README.md of ggml-org/llama.cpp: the options of drafting are those of llama-server |
| koboldcpp | koboldcpp.py of LostRuins/koboldcpp: `--draftmodel`, `--draftamount` |
| vllm | docs/features/speculative_decoding/ (draft_model.md, n_gram.md, mtp.md, eagle.md) of vllm-project/vllm |
| sglang | docs/advanced_features/speculative_decoding.md of sgl-project/sglang |
| mlx-lm | mlx_lm/generate.py and mlx_lm/server.py of ml-explore/mlx-lm |
| lm-studio | lmstudio.ai/docs/python/llm-prediction/speculative-decoding, `LlmPredictionConfig` of lmstudio-python |
| tensorrt-llm | docs/source/features/speculative-decoding.md, tensorrt_llm/llmapi/llm_args.py of NVIDIA/TensorRT-LLM |

The page of tensorrt-llm calls the `decoding_type` of a draft model DraftTarget, the code that reads it Draft_Target.

Two of them can be told a draft length K by batch size, which is what a schedule says:

- vllm: `num_speculative_tokens_per_batch_size: [[first, last, K], ...]`, sorted, from 1 on. K is at most
  `num_speculative_tokens`, 0 for decoding without speculation. Gaps, and what lies behind the last range, have the K
  before them. Sources: docs/features/speculative_decoding/dynamic_speculative_decoding.md,
  vllm/v1/spec_decode/dynamic/utils.py.
- tensorrt-llm, from 1.3 on: `draft_len_schedule: {last: K, ...}`. The first K is `max_draft_len`, and none is larger;
  behind the last there are no drafts. Sources: pull request 10860, tensorrt_llm/llmapi/llm_args.py. With pull request
  16888 (July 2026) one token is drafted where K is 0. Older versions read the keys as the first batch size.

Clients that never pause are a batch of their number while all of them decode. Between two loads that were measured, a
batch size has the K of the one that is nearer on the logarithmic scale.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from specmeter.advise.schedule import clients_of, is_decided
from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.record import Arm

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice
    from specmeter.advise.schedule import Schedule


MEASURED = "llama-server"
"""Whose line comes from the engine that measured."""
_TARGET, _DRAFT = "TARGET", "DRAFT"
_FILE = "speculative.yaml"

Range = tuple[int, int, int]
"""(first batch size, last batch size, draft tokens; 0: no drafts)"""


@dataclass(frozen=True)
class Elsewhere:
    """The advised settings as another program's command line."""

    line: tuple[str, ...]
    """Words of the command; empty where the program cannot do it. Shown as unmeasured."""
    notes: tuple[Message, ...]
    """What has to be known about it."""
    lengths: tuple[Range, ...] = ()
    """Of a schedule: the draft length of each batch size up to the largest load."""


def check_program(program: str) -> None:
    """Raise `UsageError`, with the names that are known, for a program that is not."""
    if program in PROGRAMS:
        return
    near = difflib.get_close_matches(program, PROGRAMS, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(f"--for {program[:80]}: no such program", fix=f"{hint}use one of {', '.join(PROGRAMS)}")


def written_for(program: str, arm: Arm | None, measured: tuple[str, ...]) -> Elsewhere:
    """The choice `arm` (None: decoding without speculation) for a program; `measured` is llama-server's line for it.

    Raises `UsageError` for a program that is not known.
    """
    check_program(program)
    if program == MEASURED:
        return Elsewhere(measured, ())
    if arm is not None and len(arm.methods) > 1 and program != "llama-cli":
        return _not_for(Message("program.one_way", program=program, methods=" + ".join(arm.methods)))
    if not measured:
        return _not_for(Message("program.not_served"))
    line = _WRITERS[program](arm, measured)
    if line is None:
        method = Message("program.plain") if arm is None else " + ".join(arm.methods)
        return _not_for(Message("program.nothing_like", program=program, method=method))
    return Elsewhere(line, _notes(program, line, () if arm is None else (arm,)))


def _not_for(why: Message) -> Elsewhere:
    return Elsewhere((), (why,))


def also_for(schedule: Schedule, program: str) -> Schedule:
    """The schedule, to be written for a program as well at every load that is decided."""
    return schedule.model_copy(update={"advices": tuple(advice_for(it, program) for it in schedule.advices)})


def advice_for(advice: Advice, program: str) -> Advice:
    """The advice, to be written for a program as well where it is decided.

    Raises `UsageError` for a program that is not known.
    """
    check_program(program)
    if program == MEASURED or not is_decided(advice):
        return advice
    return advice.model_copy(update={"programs": tuple(dict.fromkeys((*advice.programs, program)))})


def elsewhere(advice: Advice) -> dict[str, Elsewhere]:
    """The advice as each of the other programs that were asked for is told it. Nothing of it is ever stored."""
    measured = advice.command if advice.command[:1] == (MEASURED,) else ()
    asked = [it for it in PROGRAMS if it in advice.programs and it != MEASURED]
    return {program: written_for(program, advice.arm, measured) for program in asked}


def tables(schedule: Schedule, program: str) -> Elsewhere:
    """What a schedule says for a program that can be told draft lengths by batch size; of the others nothing.

    The line has the way of drafting that most loads use. Raises `UsageError` for a program that is not known.
    """
    check_program(program)
    if program not in TABLES:
        return _not_for(Message("program.one_length", program=program))
    loads = {clients_of(advice): 0 for advice in schedule.advices}
    decided = {clients_of(advice): advice for advice in schedule.advices if is_decided(advice)}
    if not decided:
        return _not_for(Message("program.undecided"))
    if not any(advice.command[:1] == (MEASURED,) for advice in decided.values()):
        return _not_for(Message("program.not_served"))
    chosen = {clients: it.arm for clients, it in decided.items() if it.decision == "speculate" and it.arm is not None}
    shown = _most_used([arm for arm in chosen.values() if _CONFIGS[program](arm) is not None and arm.gamma])
    if chosen and not shown:
        ways = " or ".join(dict.fromkeys(" + ".join(arm.methods) for arm in chosen.values()))
        return _not_for(Message("program.nothing_like", program=program, method=ways))
    loads |= {clients: arm.gamma or 0 for clients, arm in chosen.items() if arm in shown}
    lengths = by_batch_size(loads)
    notes = _of_table(program, lengths, min(loads))
    if open_ := [clients for clients in loads if clients not in decided]:
        notes.append(Message("program.off_undecided", clients=open_))
    if others := [clients for clients, arm in chosen.items() if arm not in shown]:
        notes.append(Message("program.off_other", clients=others))
    longest = max(loads.values())
    if program == "tensorrt-llm" and lengths[0][2] < longest:
        return Elsewhere((), (Message("program.longest_first"), *notes), lengths)
    arm = shown[0].model_copy(update={"gamma": longest}) if shown else None
    line = _LINES[program](arm, lengths)
    return Elsewhere(line, (*_notes(program, line, shown), *notes), lengths)


def by_batch_size(loads: Mapping[int, int]) -> tuple[Range, ...]:
    """The draft length of every batch size, from those at some numbers of clients: that of the nearer one on the
    logarithmic scale, of two alike that of more clients."""
    counts = sorted(loads)
    found: list[Range] = []
    first = 1
    for clients, following in zip(counts, [*counts[1:], None], strict=True):
        last = clients
        while following is not None and (last + 1) ** 2 < clients * following:
            last += 1
        if found and found[-1][2] == loads[clients]:
            first = found.pop()[0]
        found.append((first, last, loads[clients]))
        first = last + 1
    return tuple(found)


def _most_used(arms: Sequence[Arm]) -> list[Arm]:
    """Those that draft in the way that most of them do; of ways alike that of the first."""
    counts = Counter(map(_way, arms))
    most = max(counts, key=counts.__getitem__, default=None)
    return [arm for arm in arms if _way(arm) == most]


def _way(arm: Arm) -> tuple[object, ...]:
    return (arm.methods, arm.draft, arm.ngram_n)


def _of_table(program: str, lengths: Sequence[Range], fewest: int) -> list[Message]:
    """What has to be known of a program's table."""
    *_, (_, last, behind) = lengths
    notes: list[Message] = []
    if fewest > 1:
        notes.append(Message("program.fewer", fewest=fewest))
    if program == "vllm":
        if behind:
            notes.append(Message("program.more", last=last))
        if len(lengths) > 1:
            notes.append(Message("program.vllm_lengths"))
    elif any(length for *_, length in lengths):
        notes.append(Message("program.more_off", last=last))
        notes.append(Message("program.tensorrt_table"))
    return notes


def _notes(program: str, line: Sequence[str], arms: Sequence[Arm]) -> tuple[Message, ...]:
    """What has to be known about a line for the choice `arms`."""
    notes: list[Message] = []
    if _TARGET in " ".join(line):
        notes.append(Message("program.own_format", target=_TARGET, draft=_DRAFT))
    lost = dict.fromkeys(name for arm in arms for name in _lost(arm) if name not in _HONOURED[program])
    if lost:
        notes.append(Message("program.no_setting", lost=tuple(lost)))
    return tuple(notes)


def _lost(arm: Arm) -> list[str]:
    """Settings of how an arm drafts that few programs have."""
    return [name for name in ("p_min", "gamma_min", "ngram_n", "ngram_min_hits") if getattr(arm, name) is not None]


Writer = Callable[[Arm | None, tuple[str, ...]], tuple[str, ...] | None]
"""Given the choice and llama-server's line: the words, None where the program has no such method."""


def _llama_cli(arm: Arm | None, measured: tuple[str, ...]) -> tuple[str, ...] | None:  # noqa: ARG001
    return ("llama-cli", *measured[1:]) if measured else None


def _koboldcpp(arm: Arm | None, measured: tuple[str, ...]) -> tuple[str, ...] | None:
    files = dict(pairwise(measured))
    if "-m" not in files:
        return None
    line = ("koboldcpp", "--model", files["-m"])
    if "-c" in files:
        line += ("--contextsize", files["-c"])
    if arm is None:
        return line
    if arm.methods != ("draft-simple",) or "-md" not in files:
        return None
    return (*line, "--draftmodel", files["-md"], *_amount("--draftamount", arm.gamma))


def _vllm(arm: Arm | None, measured: tuple[str, ...]) -> tuple[str, ...] | None:  # noqa: ARG001
    return _vllm_line(arm) if arm is None or _vllm_config(arm) is not None else None


def _vllm_line(arm: Arm | None, lengths: Sequence[Range] = ()) -> tuple[str, ...]:
    line = ("vllm", "serve", _TARGET)
    if arm is None:
        return line
    table = {"num_speculative_tokens_per_batch_size": lengths} if len(lengths) > 1 else {}
    return (*line, "--speculative-config", json.dumps({**(_vllm_config(arm) or {}), **table}))


def _vllm_config(arm: Arm) -> dict[str, Any] | None:
    length = {} if arm.gamma is None else {"num_speculative_tokens": arm.gamma}
    match arm.methods:
        case ("draft-simple",):
            return {"method": "draft_model", "model": _DRAFT, **length}
        case ("draft-eagle3",):
            return {"method": "eagle3", "model": _DRAFT, **length}
        case ("draft-mtp",):
            return {"method": "mtp", **({"model": _DRAFT} if arm.draft else {}), **length}
        case ("ngram-simple",):
            sizes = {} if arm.ngram_n is None else {"prompt_lookup_min": arm.ngram_n, "prompt_lookup_max": arm.ngram_n}
            return {"method": "ngram", **length, **sizes}
        case _:
            return None


def _tensorrt_llm(arm: Arm | None, measured: tuple[str, ...]) -> tuple[str, ...] | None:  # noqa: ARG001
    return _tensorrt_line(arm) if arm is None or _tensorrt_config(arm) is not None else None


def _tensorrt_line(arm: Arm | None, lengths: Sequence[Range] = ()) -> tuple[str, ...]:
    """It takes settings of drafting from a file alone, so the line writes it."""
    if arm is None:
        return ("trtllm-serve", _TARGET)
    config = dict(_tensorrt_config(arm) or {})
    if len(lengths) > 1 or (lengths and lengths[-1][1] > 1):
        config["draft_len_schedule"] = _flow({str(last): str(length) for _, last, length in lengths})
    whole = {"speculative_config": _flow(config)}
    if config["decoding_type"] in ("Draft_Target", "NGram"):  # as its documentation has them
        whole["disable_overlap_scheduler"] = "true"
    return ("sh", "-c", f'echo "{_flow(whole)}" > {_FILE} && trtllm-serve {_TARGET} --config {_FILE}')


def _tensorrt_config(arm: Arm) -> dict[str, str] | None:
    length = {} if arm.gamma is None else {"max_draft_len": str(arm.gamma)}
    match arm.methods:
        case ("draft-simple",):
            return {"decoding_type": "Draft_Target", "speculative_model": _DRAFT, **length}
        case ("draft-eagle3",):
            return {"decoding_type": "Eagle3", "speculative_model": _DRAFT, **length}
        case ("draft-mtp",) if arm.draft is None:
            return {"decoding_type": "MTP", **length}
        case ("ngram-simple",):
            size = {} if arm.ngram_n is None else {"max_matching_ngram_size": str(arm.ngram_n)}
            return {"decoding_type": "NGram", **length, **size}
        case _:
            return None


def _flow(values: Mapping[str, str]) -> str:
    """A mapping as YAML on one line."""
    return f"{{{', '.join(f'{name}: {value}' for name, value in values.items())}}}"


def _sglang(arm: Arm | None, measured: tuple[str, ...]) -> tuple[str, ...] | None:  # noqa: ARG001
    line = ("python3", "-m", "sglang.launch_server", "--model-path", _TARGET)
    if arm is None:
        return line
    names = {"draft-simple": "STANDALONE", "draft-eagle3": "EAGLE3", "draft-mtp": "EAGLE"}
    name = names.get(arm.methods[0])
    if name is None:  # its n-grams are a tree over all earlier texts: another method than any of llama.cpp's
        return None
    line += ("--speculative-algorithm", name)
    if arm.draft is not None:
        line += ("--speculative-draft-model-path", _DRAFT)
    if arm.gamma is None:
        return line
    # A chain: one candidate for each step; with those, the token that the target gave is verified as well.
    return (
        *line,
        *_amount("--speculative-num-steps", arm.gamma),
        *_amount("--speculative-eagle-topk", 1),
        *_amount("--speculative-num-draft-tokens", arm.gamma + 1),
    )


def _mlx(arm: Arm | None, measured: tuple[str, ...]) -> tuple[str, ...] | None:  # noqa: ARG001
    line = ("mlx_lm.server", "--model", _TARGET)
    if arm is None:
        return line
    if arm.methods != ("draft-simple",):
        return None
    return (*line, "--draft-model", _DRAFT, *_amount("--num-draft-tokens", arm.gamma))


def _lm_studio(arm: Arm | None, measured: tuple[str, ...]) -> tuple[str, ...] | None:  # noqa: ARG001
    config: dict[str, Any] = {}
    if arm is not None:
        if arm.methods != ("draft-simple",):
            return None
        settings = {
            "speculativeDecodingNumDraftTokensExact": arm.gamma,
            "speculativeDecodingMinDraftLengthToConsider": arm.gamma_min,
            "speculativeDecodingMinContinueDraftingProbability": arm.p_min,
        }
        config = {"draftModel": _DRAFT} | {name: value for name, value in settings.items() if value is not None}
    given = f", config={json.dumps(config)}" if config else ""
    code = f'import lmstudio; print(lmstudio.llm("{_TARGET}").respond("Hello"{given}))'
    return ("python3", "-c", code)


def _amount(option: str, number: int | None) -> tuple[str, ...]:
    return () if number is None else (option, str(number))


_WRITERS: Mapping[str, Writer] = {
    "llama-cli": _llama_cli,
    "koboldcpp": _koboldcpp,
    "vllm": _vllm,
    "sglang": _sglang,
    "mlx-lm": _mlx,
    "lm-studio": _lm_studio,
    "tensorrt-llm": _tensorrt_llm,
}
_CONFIGS: Mapping[str, Callable[[Arm], Mapping[str, Any] | None]] = {
    "vllm": _vllm_config,
    "tensorrt-llm": _tensorrt_config,
}
_LINES: Mapping[str, Callable[[Arm | None, Sequence[Range]], tuple[str, ...]]] = {
    "vllm": _vllm_line,
    "tensorrt-llm": _tensorrt_line,
}
_ALL = frozenset({"p_min", "gamma_min", "ngram_n", "ngram_min_hits"})
_HONOURED: Mapping[str, frozenset[str]] = {
    "llama-cli": _ALL,
    "koboldcpp": frozenset(),
    "vllm": frozenset({"ngram_n"}),
    "sglang": frozenset(),
    "mlx-lm": frozenset(),
    "lm-studio": frozenset({"p_min", "gamma_min"}),
    "tensorrt-llm": frozenset({"ngram_n"}),
}
"""Settings that a program's line has, of those of `_lost`."""
PROGRAMS = (MEASURED, *_WRITERS)
"""What `--for` knows."""
TABLES = tuple(_LINES)
"""Those that can be told draft lengths by batch size."""

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
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from specmeter.errors import UsageError
from specmeter.record import Arm

MEASURED = "llama-server"
"""Whose line comes from the engine that measured."""
_TARGET, _DRAFT = "TARGET", "DRAFT"


@dataclass(frozen=True)
class Elsewhere:
    """A choice as another program is told it."""

    line: tuple[str, ...]
    """Words of the command; empty where the program cannot do it. It was not measured there, and is told as such."""
    notes: tuple[str, ...]
    """What has to be known about it."""


def check_program(program: str) -> None:
    """Raise `UsageError`, with the names that are known, for a program that is not."""
    if program in PROGRAMS:
        return
    near = difflib.get_close_matches(program, PROGRAMS, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(f"--for {program[:80]}: unknown", fix=f"{hint}known: {', '.join(PROGRAMS)}")


def written_for(program: str, arm: Arm | None, measured: tuple[str, ...]) -> Elsewhere:
    """The choice `arm` (None: plain decoding) for a program; `measured` is llama-server's line for it.

    Raises `UsageError` for a program that is not known.
    """
    check_program(program)
    if program == MEASURED:
        return Elsewhere(measured, ())
    if arm is not None and len(arm.methods) > 1 and program != "llama-cli":
        return Elsewhere((), (f"{program} drafts in one way at a time, not by {' + '.join(arm.methods)}",))
    if not measured:
        return Elsewhere((), ("the engine that measured does not say how it is served",))
    line = _WRITERS[program](arm, measured)
    if line is None:
        method = "plain decoding" if arm is None else " + ".join(arm.methods)
        return Elsewhere((), (f"{program} has nothing like {method}, as far as its documentation says",))
    notes: list[str] = []
    if _TARGET in " ".join(line):
        notes.append(f"{_TARGET} and {_DRAFT} stand for the same models in its own format")
    if arm is not None and (lost := [name for name in _lost(arm) if name not in _HONOURED[program]]):
        notes.append(f"it has no setting for {' and '.join(lost)}")
    return Elsewhere(line, tuple(notes))


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
    line = ("vllm", "serve", _TARGET)
    if arm is None:
        return line
    length = {} if arm.gamma is None else {"num_speculative_tokens": arm.gamma}
    config: dict[str, Any]
    match arm.methods[0]:
        case "draft-simple":
            config = {"method": "draft_model", "model": _DRAFT, **length}
        case "draft-eagle3":
            config = {"method": "eagle3", "model": _DRAFT, **length}
        case "draft-mtp":
            config = {"method": "mtp", **({"model": _DRAFT} if arm.draft else {}), **length}
        case "ngram-simple":
            sizes = {} if arm.ngram_n is None else {"prompt_lookup_min": arm.ngram_n, "prompt_lookup_max": arm.ngram_n}
            config = {"method": "ngram", **length, **sizes}
        case _:
            return None
    return (*line, "--speculative-config", json.dumps(config))


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
}
_ALL = frozenset({"p_min", "gamma_min", "ngram_n", "ngram_min_hits"})
_HONOURED: Mapping[str, frozenset[str]] = {
    "llama-cli": _ALL,
    "koboldcpp": frozenset(),
    "vllm": frozenset({"ngram_n"}),
    "sglang": frozenset(),
    "mlx-lm": frozenset(),
    "lm-studio": frozenset({"p_min", "gamma_min"}),
}
"""Settings that a program's line has, of those of `_lost`."""
PROGRAMS = (MEASURED, *_WRITERS)
"""What `--for` knows."""

"""The study's arms on servers of two generations: the one it used, and today's, whose options have other names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from engines.llama_fixtures import NATIVE, NO_NATIVE
from specmeter.engines import Launch
from specmeter.engines.llama_cpp.options import known_flags, to_flags
from specmeter.engines.llama_cpp.spec import server_options
from specmeter.errors import EngineStartError
from specmeter.experiments.file import load
from specmeter.models.bench import shipped
from specmeter.record import Arm, EngineSettings, ModelIdentity

COMMON = """\
-c,    --ctx-size N                     context
-b,    --batch-size N                   batch
-ub,   --ubatch-size N                  physical batch
-np,   --parallel N                     slots
-t,    --threads N                      threads
-tb,   --threads-batch N                threads of batches
-m,    --model FNAME                    model
-ctk,  --cache-type-k TYPE              type of K
-ctv,  --cache-type-v TYPE              type of V
-fa,   --flash-attn [on|off|auto]       flash attention
-ngl,  --gpu-layers, --n-gpu-layers N   layers on the GPU
--metrics                               counters
--slots, --no-slots                     slots
--cache-prompt, --no-cache-prompt       reuse of prompts
"""

APRIL_2026 = (
    COMMON
    + """\
-md,   --model-draft FNAME              draft model
-td,   --threads-draft N                threads of the draft
--draft, --draft-n, --draft-max N       most draft tokens (default: 16)
                                        (env: LLAMA_ARG_DRAFT_MAX)
--draft-min, --draft-n-min N            fewest draft tokens
                                        (default: 0)
--draft-p-min P                         probability (default: 0.75)
--spec-type [none|ngram-cache|ngram-simple|ngram-map-k|ngram-map-k4v|ngram-mod]
                                        what to use without a draft model
--spec-ngram-size-n N                   length of the n-gram
--spec-ngram-size-m N                   length of the draft
--spec-ngram-min-hits N                 fewest hits
"""
)

AUTUMN_2026 = (
    COMMON
    + """\
--spec-draft-model, -md, --model-draft FNAME
                                        draft model
--spec-draft-threads, -td, --threads-draft N
                                        threads of the draft
--spec-draft-n-max N                    most draft tokens (default: 3)
--spec-draft-n-min N                    fewest draft tokens
--spec-draft-p-min, --draft-p-min P     probability (default: 0.00)
--spec-type none,draft-simple,draft-eagle3,draft-mtp,ngram-simple,ngram-map-k,ngram-map-k4v,ngram-mod,ngram-cache
                                        methods
--spec-ngram-mod-n-min N                fewest draft tokens
--spec-ngram-mod-n-max N                most draft tokens
--spec-ngram-mod-n-match N              length of the n-gram
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max or
                                        --spec-ngram-mod-n-max
--draft-min, --draft-n-min N            the argument has been removed. use --spec-draft-n-min or
                                        --spec-ngram-mod-n-min
--spec-ngram-size-n N                   the argument has been removed. use the respective option
"""
)


def model(name: str) -> ModelIdentity:
    core = shipped()["dense" if name == "target" else "draft-small"]
    return ModelIdentity(
        name=name, reference=name, path=f"/models/{name}.gguf", sha256=core.sha256, size_bytes=1, origin="path"
    )


def flags(arm: Arm, help_text: str) -> str:
    launch = Launch(arm, model("target"), model("draft") if arm.draft else None, Path("engine.log"))
    return " ".join(to_flags(server_options(launch, 2), known_flags(help_text)))


def arms() -> dict[str, Arm]:
    return {arm.id.partition("/")[2]: arm for arm in load("rtx3090-19").experiment.expand()}


SPELLED: dict[str, tuple[str, str]] = {
    "baseline": ("--spec-type none", "--spec-type none"),
    "ngram-cache": ("--spec-type ngram-cache", "--spec-type ngram-cache"),
    "ngram-mod-n24": (
        "--spec-type ngram-mod --draft-max 64 --draft-min 48 --spec-ngram-size-n 24",
        "--spec-type ngram-mod --spec-ngram-mod-n-max 64 --spec-ngram-mod-n-min 48 --spec-ngram-mod-n-match 24",
    ),
    "draft-q35-08b-max16": (
        "--model-draft /models/draft.gguf --draft-max 16 --draft-min 4 --draft-p-min 0.75",
        "--spec-draft-model /models/draft.gguf --spec-type draft-simple --spec-draft-n-max 16 --spec-draft-n-min 4 "
        "--spec-draft-p-min 0.75",
    ),
}


@pytest.mark.parametrize("name", SPELLED)
def test_an_arm_in_the_words_of_both_generations(name: str) -> None:
    for text, spelled in zip((APRIL_2026, AUTUMN_2026), SPELLED[name], strict=True):
        assert spelled in flags(arms()[name], text)


def test_every_arm_of_the_study_can_be_asked_of_both() -> None:
    for arm in arms().values():
        for text in (APRIL_2026, AUTUMN_2026):
            line = flags(arm, text)
            assert "--cache-type-k f16" in line if arm.id.endswith("kv-fp16") else "--cache-type-k q8_0" in line
            assert ("--spec-type draft-simple" in line) == (arm.draft is not None and text == AUTUMN_2026)


def test_methods_that_a_server_does_not_have() -> None:
    one = Arm(id="a", target="t", methods=("ngram-mod", "draft-simple"), draft="d", engine=EngineSettings())
    assert "--spec-type ngram-mod " in flags(one, APRIL_2026)
    assert "--spec-type ngram-mod,draft-simple " in flags(one, AUTUMN_2026)
    two = one.model_copy(update={"methods": ("ngram-mod", "ngram-cache"), "draft": None})
    with pytest.raises(EngineStartError, match=r"ngram-mod \+ ngram-cache: --spec-type takes one of"):
        flags(two, APRIL_2026)
    eagle = one.model_copy(update={"methods": ("draft-dflash",)})
    with pytest.raises(EngineStartError, match="takes any of draft-eagle3"):
        flags(eagle, AUTUMN_2026)


@pytest.mark.skipif(NATIVE is None, reason=NO_NATIVE)
def test_the_server_of_this_machine_knows_every_flag() -> None:
    said = subprocess.run([str(NATIVE), "--help"], capture_output=True, text=True, check=False, timeout=60)
    for arm in arms().values():
        line = flags(arm, said.stdout + said.stderr)
        assert f"--spec-type {'+'.join(arm.methods)}" in line

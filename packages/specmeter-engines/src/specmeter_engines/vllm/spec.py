"""The traits of this engine: what it can do, what it reports, and what starts it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from specmeter.engines.registry import EngineSpec, late
from specmeter.errors import ExperimentError
from specmeter.record import SAMPLING, Arm, EngineTraits, Record
from specmeter_engines.traits import WHOLE, by_lookup, by_model

DRAFT_MODEL, NGRAM = "draft_model", "ngram"
PYTHON = "SPECMETER_VLLM_PYTHON"
"""Environment variable with the interpreter, where no option names it."""


class Options(Record):
    """Settings of its own; flags of its command line go into `engine.extra_flags`."""

    python: str | None = None
    """Interpreter that vLLM is installed for; None: what `SPECMETER_VLLM_PYTHON` names, or else specmeter's own."""
    speculative: dict[str, Any] = Field(default_factory=dict[str, Any])
    """More keys of `--speculative-config`, such as those of its own controllers of the draft length."""


def check_arm(arm: Arm, has_draft: bool) -> None:  # noqa: ARG001
    """Refuse an arm that vLLM would refuse only when it has loaded its models."""
    if arm.speculates and arm.gamma is None:
        raise ExperimentError(f"arm {arm.id}: vLLM has no default draft length", fix="give the arm a `gamma`")


VLLM = EngineSpec(
    traits=EngineTraits(
        methods=(by_model(DRAFT_MODEL), by_lookup(NGRAM)),
        sampling=SAMPLING,
        settings=("context", "slots", "threads", "prompt_cache", "extra_flags"),
        draft_options=("speculative",),
        tells=WHOLE,
    ),
    make=late("specmeter_engines.vllm.engine:VllmEngine"),
    model=late("specmeter_engines.folders:folder_model"),
    options=Options,
    check_arm=check_arm,
)

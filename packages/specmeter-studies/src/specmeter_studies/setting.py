"""What a study was measured with: models, machines, bandwidth, and what a reader has to know of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from specmeter.analysis.prediction.costs import footprint_of
from specmeter.messages import Message
from specmeter_studies.machines import bandwidth_of
from specmeter_studies.study import ModelUsed

if TYPE_CHECKING:
    from specmeter.record import ExpertUnion, Host, ModelIdentity


BENCH_NOTE = Message("study.note.bench")
REAL_NOTE = Message("study.note.real")
MOCK_NOTE = Message("study.note.mock")
TIMING_NOTE = Message("study.note.timing")
STAND_INS = ("bench", "mock")
"""Origins of models that no document names."""
REAL = "real"
"""The variant with small real models in the place of a document's."""

_QUANTIZATION = re.compile(r"(?:^|[-_.= ])((?:I?Q\d|F16|BF16|F32|MXFP4)(?:_[A-Z0-9]{1,3}){0,2})(?=[-_.&]|$)", re.I)


def title(models: Sequence[ModelIdentity], applied: Sequence[str]) -> Message:
    """What numbers from these models are, in these variants."""
    origins = {model.origin for model in models}
    which = "mock" if "mock" in origins else "bench" if "bench" in origins else "real" if REAL in applied else "other"
    return Message(f"study.measured.{which}")


def notes(models: Sequence[ModelIdentity], applied: Sequence[str]) -> tuple[Message, ...]:
    """What a reader has to know before any number."""
    origins = {model.origin for model in models}
    found = [note for origin, note in (("bench", BENCH_NOTE), ("mock", MOCK_NOTE)) if origin in origins]
    if REAL in applied:
        found.append(REAL_NOTE)
    if any(model.timing_only for model in models):
        found.append(TIMING_NOTE)
    return tuple(found)


def model_used(model: ModelIdentity, applied: Sequence[str], union: ExpertUnion | None = None) -> ModelUsed:
    """A model as a run identified it, with the experts that its texts choose where they were read."""
    header, stand_in = model.header, model.origin in STAND_INS or REAL in applied
    if header is None:
        return ModelUsed(
            name=model.name, reference=model.reference, size_bytes=model.size_bytes or None, stand_in=stand_in
        )
    return ModelUsed(
        name=model.name,
        reference=model.reference,
        size_bytes=model.size_bytes,
        parameters=header.parameters,
        active_parameters=header.active_parameters,
        bytes_per_token=header.bytes_per_token,
        experts=header.experts,
        experts_used=header.experts_used,
        expert_bytes=footprint_of(model, header).expert_bytes or None,
        union=union,
        quantization=quantization(model.reference) or header.quantization,
        stand_in=stand_in,
    )


def quantization(reference: str) -> str:
    """`Q4_K_M` from a reference that says so in its file's name, as `?quant=` or as `quant:`; empty where it does
    not."""
    found = _QUANTIZATION.findall(reference[:1000])
    if made := re.match(r"(?:twin:[^:]*:)*quant:([^:]*):", reference):
        return made[1].upper()
    return str(found[-1]).upper() if found else ""


def distinct(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """Each machine once, as it was at its last start."""
    return tuple({(host.hostname_sha256, host.cpu): host for host in hosts}.values())


def bandwidth(hosts: Sequence[Host], *, on_gpu: bool) -> float | None:
    """Bytes per second of the memory that weights were read from; None for several machines, or if nothing is known."""
    return bandwidth_of(hosts[-1], on_gpu=on_gpu)[0] if len(distinct(hosts)) == 1 else None

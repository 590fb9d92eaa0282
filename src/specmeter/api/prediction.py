"""Predictions from Python: `predict`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.analysis.prediction.sources import HEADS, acceptance_of, costs_of, doubling
from specmeter.analysis.prediction.speedup import predict as forecast
from specmeter.api.arguments import is_number, need_type, path_of, several
from specmeter.api.runs import Run, folder_of
from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.probe.files import load_probe
from specmeter.show.notebook import (
    ShownPrediction,
)
from specmeter.store import RunStore

if TYPE_CHECKING:
    from specmeter.analysis.prediction.speedup import Predicted


def predict(
    *,
    probe: str | Path | None = None,
    device: str | None = None,
    model: str | None = None,
    format: str = "Q4_K_M",  # noqa: A002
    draft_model: str | None = None,
    draft_format: str | None = None,
    context: int = 512,
    gamma: Sequence[int] | int | None = None,
    alpha: float | None = None,
    rates: Sequence[float] | float | None = None,
    acceptance_from: Run | str | Path | None = None,
    kind: str | None = None,
    arm: str | None = None,
    no_draft: bool = False,
    heads: str | None = None,
) -> Predicted:
    """Predict the speedup for each draft length, with its uncertainty, without measuring.

    Costs come from a `probe` file, or from the catalogue by `device`, `model` and `format`. Acceptance is `alpha`,
    `rates` by position, measured in a run (`acceptance_from`, optionally one `kind` of prompts or one `arm`), or an
    assumed range. `heads` (`draft-mtp`, `draft-eagle3`) draft in place of a model, with the catalogue. Raises
    `UsageError` for unknown names and impossible numbers, `StoreError` for the run.

    >>> found = specmeter.predict(device="RTX 3090", model="Qwen3-8B", draft_model="Qwen3-0.6B", alpha=0.8)
    >>> found.best.speedup.point > 1
    True
    """
    gamma = None if gamma is None else several("gamma", [gamma] if isinstance(gamma, int) else gamma, int)
    rates = None if rates is None else several("rates", [rates] if is_number(rates) else rates, int, float)
    for name, value in (
        ("device", device),
        ("model", model),
        ("draft_model", draft_model),
        ("kind", kind),
        ("arm", arm),
    ):
        need_type(name, value, (str, type(None)), "a name")
    need_type("format", format, (str,), 'a number format, such as "Q4_K_M"')
    need_type("context", context, (int,), "a whole number of tokens")
    made = None if probe is None else load_probe(Path(path_of("probe", probe)))
    named = Message("costs.probe", name="" if probe is None else Path(probe).name)
    if heads not in (None, *HEADS):
        raise UsageError(f"heads: {heads!r} is none", fix=f"use one of {', '.join(HEADS)}")
    costs = costs_of(
        made, named, device, model, format, draft_model, draft_format, context, no_draft=no_draft, heads=heads
    )
    by_model = costs.has_draft and not no_draft
    run = nullcontext() if acceptance_from is None else RunStore.open(folder_of(acceptance_from), readonly=True)
    with run as store:
        acceptance = acceptance_of(alpha, rates, store, kind, arm, by_model=by_model, probe=made)
    return ShownPrediction(
        **vars(forecast(acceptance, costs, doubling(16) if gamma is None else gamma, by_model=by_model))
    )

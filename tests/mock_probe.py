"""A probe of models of the mock engine: the very costs that it will charge."""

from __future__ import annotations

from pathlib import Path

from cost_curves import curve_of
from hosts import HOST
from specmeter.engines.mock.engine import MockEngine
from specmeter.engines.mock.spec import MockSpec, mock_model
from specmeter.probe.record import Probe
from specmeter.record import EngineSettings, Estimate, ExpertUnion, UnionPoint

TINY_MS = 1e-6
"""Taking in what was verified costs the mock nothing; a curve needs a time above 0."""


def mock_probe(
    target: str = "dense",
    draft: str | None = "small",
    *,
    spread: float = 0.01,
    longest: int = 17,
    spec: MockSpec | None = None,
) -> Probe:
    """T(n) for n = 1 .. `longest`, each with an interval of +- `spread`."""
    spec = spec or MockSpec()
    model = spec.target(f"mock:{target}")
    n = list(range(1, longest + 1))
    ms = [model.forward_ms(tokens) for tokens in n]
    drafting = None
    if draft is not None:
        each = spec.draft(f"mock:{draft}").token_ms
        drafting = curve_of(n, [each] + [TINY_MS] * (longest - 1))
    union = None
    if model.experts > 1:
        touched = [model.experts * (1 - (1 - model.top_k / model.experts) ** tokens) for tokens in n]
        points = [
            UnionPoint(tokens=tokens, union=Estimate(point=value, n=1, unit="experts", method="computed"))
            for tokens, value in zip(n, touched, strict=True)
        ]
        union = ExpertUnion(experts=model.experts, used=model.top_k, points=tuple(points))
    return Probe(
        made_at=1.0,
        source="libllama",
        host=HOST,
        engine=MockEngine().identify(),
        settings=EngineSettings(),
        target=mock_model(target, f"mock:{target}"),
        draft=None if draft is None else mock_model(draft, f"mock:{draft}"),
        depth=128,
        target_ms=curve_of(n, ms, spread=spread, units=9),
        draft_ms=drafting,
        plain_rounds_ms=(),
        other_cpu_percent=(),
        union=union,
    )


def written(folder: Path, probe: Probe, name: str = "probe.json") -> str:
    """The probe as a file; its path."""
    path = folder / name
    path.write_text(probe.model_dump_json(), encoding="utf-8")
    return str(path)

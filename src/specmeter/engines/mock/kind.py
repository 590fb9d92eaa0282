"""The mock as a kind of engine: it stands in for any of llama.cpp's, so it knows what these know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.engines.kinds import EngineKind
from specmeter.engines.llama_cpp.kinds import KV_TYPES, METHODS, SERVER_TELLS, settings_without
from specmeter.engines.mock.spec import MockSpec, mock_model
from specmeter.errors import ModelError
from specmeter.record import PARAMETERS, EngineTraits, ModelIdentity

if TYPE_CHECKING:
    from specmeter.engines import Engine


def _make(options: MockSpec) -> Engine:
    from specmeter.engines.mock.engine import MockEngine

    return MockEngine(options)


def _model(options: MockSpec, name: str, reference: str) -> ModelIdentity:
    """Any experiment can be tried out without its models (`--set engine.kind=mock`): each has one of its name."""
    if reference.startswith("mock:"):
        return mock_model(name, reference, options)
    if name not in options.targets | options.drafts:
        raise ModelError(
            f"{reference}: the mock engine has no model {name!r} to stand in for it",
            fix=f"name one of {', '.join(f'mock:{known}' for known in options.targets | options.drafts)} instead, or "
            "describe it under engine.mock.targets or engine.mock.drafts",
        )
    return mock_model(name, f"mock:{name}", options)


MOCK = EngineKind(
    traits=EngineTraits(
        simulated=True,
        methods=tuple(method.model_copy(update={"parameters": tuple(PARAMETERS)}) for method in METHODS),
        combines_methods=True,
        policies=("entropy", "utility", "cost-table"),
        rules=("sample-match", "rejection"),
        settings=settings_without(),
        kv_types=KV_TYPES,
        synthetic="dice",
        compares_drafts=True,
        tells=tuple(truth for truth in SERVER_TELLS if truth != "processes"),
    ),
    make=_make,
    model=_model,
    options=MockSpec,
)

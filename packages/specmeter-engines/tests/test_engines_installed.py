"""Each engine of this package is found by name, and where its extra is missing it says how to install it."""

from __future__ import annotations

import pytest

from specmeter.engines.registry import installed, load_engine, spec_of, survey
from specmeter.errors import EngineStartError, ModelError
from specmeter.experiments.described import Described
from specmeter_engines.installed import needed

OURS = [name for name, it in installed().items() if it.package.startswith("specmeter-engines ")]


def test_engines_are_found() -> None:
    assert OURS == ["mlx", "onnxruntime", "openvino", "several", "transformers", "vllm"]


@pytest.mark.parametrize("name", OURS)
def test_each_is_usable_or_says_how_to_install_it(name: str) -> None:
    report = next(it for it in survey() if it.name == name)
    if report.problem is None:
        assert load_engine(name).identify().traits == spec_of(name).traits
    else:
        own = "pip install vllm=="  # it is started from an interpreter of its own
        assert (own in str(report.fix)) if name == "vllm" else f"packages/specmeter-engines[{name}]" in str(report.fix)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(EngineStartError, match="not-to-be-had is not installed"):
        needed("transformers", "not-to-be-had")


def test_what_is_no_folder_of_a_model_is_refused() -> None:
    model = spec_of("transformers").model
    assert model is not None
    with pytest.raises(ModelError, match="not a folder with config"):
        model(None, "dense", "nowhere")


@pytest.mark.parametrize(
    ("engine", "methods"),
    [
        (None, [None, "ngram-simple"]),
        ("embedded", [None, "ngram-simple"]),
        ("vllm", ["draft_model", "ngram"]),
        ("transformers", ["assisted", "prompt-lookup"]),
    ],
)
def test_drafts_and_lookups_are_what_the_engine_calls_them(engine: str | None, methods: list[str | None]) -> None:
    """Where the command line names no method."""
    described = Described(("big",), ("small",), ngram=True, engine=engine)
    assert [arm.get("method") for arm in described.keys()["arms"]] == methods

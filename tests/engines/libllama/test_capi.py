"""The binding: its layouts are proven when the library is loaded, and anything else is refused."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from specmeter.errors import EngineStartError
from specmeter.llama_binding import capi


def test_the_wheels_library_is_the_one_this_was_written_for() -> None:
    library = capi.library()
    assert library.version.startswith(capi.VERSION)
    assert "CPU" in library.system_info
    assert library.processor  # checks hold the machine on record against it
    assert library.ggml_backend_dev_count() >= 1
    assert capi.library() is library


@pytest.mark.parametrize(("kind", "name"), [("model", "n_gpu_layers"), ("context", "n_batch"), ("context", "no_perf")])
def test_another_layout_is_refused_by_what_it_reads(kind: str, name: str) -> None:
    library = capi.library()
    model, context = library.llama_model_default_params(), library.llama_context_default_params()
    params = model if kind == "model" else context
    setattr(params, name, not getattr(params, name) if name == "no_perf" else 77)
    with pytest.raises(EngineStartError, match=rf"a different layout of {kind}.*{name} reads"):
        capi.prove(library.version, model, context, Path("libllama.so"))


def test_shifted_fields_are_noticed_wherever_the_shift_begins() -> None:
    """A field more, anywhere in the structure: what lies behind it reads something else."""
    library = capi.library()
    raw = bytes(library.llama_context_default_params())
    names = [field[0] for field in capi.ContextParams._fields_]
    last = capi.ContextParams.swa_full.offset  # behind it everything is zero, and zeros look like zeros
    for name in names:
        at = getattr(capi.ContextParams, name).offset
        shifted = (raw[:at] + b"\0" * 8 + raw[at:])[: len(raw)]
        if at > last:
            continue
        params = capi.ContextParams.from_buffer_copy(shifted)
        with pytest.raises(EngineStartError, match="context parameters"):
            capi.prove(library.version, library.llama_model_default_params(), params, Path("libllama.so"))


@pytest.mark.parametrize("version", ["0.5.0-dev", "0.7.0", "", "garbage"])
def test_another_version_is_refused_by_name(version: str) -> None:
    library = capi.library()
    with pytest.raises(EngineStartError, match=capi.VERSION):
        capi.prove(
            version, library.llama_model_default_params(), library.llama_context_default_params(), Path("libllama.so")
        )


def test_a_library_that_is_named_must_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(capi.SETTING, str(tmp_path / "missing.so"))
    with pytest.raises(EngineStartError, match=capi.SETTING):
        capi.library()
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"\x7fELF nothing behind it")
    monkeypatch.setenv(capi.SETTING, str(broken))
    with pytest.raises(EngineStartError, match="cannot be loaded"):
        capi.library()


def test_a_library_without_llama_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capi, "_load", lambda _: iter([ctypes.CDLL(None)]))
    with pytest.raises(EngineStartError, match="has no function llama_"):
        capi.Library(Path("libother.so"))


def test_what_llama_logs_can_be_heard() -> None:
    library = capi.library()
    heard: list[str] = []
    library.listen(lambda _, text: heard.append(text))
    try:
        assert not library.llama_model_load_from_file(b"/nowhere.gguf", library.llama_model_default_params())
    finally:
        library.listen(None)
    assert any("nowhere.gguf" in text for text in heard)
    assert "nowhere.gguf" in library.last_words()


def test_only_bound_functions_exist() -> None:
    library: Any = capi.library()
    with pytest.raises(AttributeError, match="not among the functions"):
        library.llama_model_quantize()

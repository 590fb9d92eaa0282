"""Contexts on the shipped cores, opened once per module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from engines.libllama.contexts import SETTINGS, Opened, core_path
from specmeter.llama_binding.context import Context
from specmeter.llama_binding.model import Model


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    """`opened("dense")` is a context of that core, the same one every time; `opened("dense", "draft")` another one."""
    known: dict[tuple[str, str], Context] = {}
    with ExitStack() as stack:

        def get(name: str, use: str = "target") -> Context:
            if (name, use) not in known:
                model = stack.enter_context(Model(core_path(name)))
                known[name, use] = stack.enter_context(Context(model, SETTINGS, threads=1, draft=use == "draft"))
            return known[name, use]

        yield get

"""`specmeter` alone, at a terminal."""

from __future__ import annotations


def welcome() -> None:
    """Say what is on this machine, and what to type next."""
    from importlib.metadata import version

    from specmeter.engines.llama_cpp.tools import find_program
    from specmeter.host.machine import memory_available_bytes
    from specmeter.laboratory.doctor import pair
    from specmeter.models.reference import found_models
    from specmeter.show.terminal.console import output
    from specmeter.show.terminal.plan import print_welcome

    models = found_models()
    native = find_program("llama-server")
    engine = f"llama.cpp from xllamacpp {version('xllamacpp')}"
    if native is not None:
        engine += f"; your own with --engine native: {native}"
    print_welcome(output(), models, engine, pair(models, memory_available_bytes()))

"""The `llama-server` command that serves with an arm as it was measured, for people to paste."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specmeter.engines import Launch
from specmeter.engines.llama_cpp.methods import METHOD_OPTIONS, serving_options
from specmeter.engines.llama_cpp.options import OPTIONS, to_flags
from specmeter.errors import EngineStartError
from specmeter.record import ModelIdentity, network_of

PROGRAM = "llama-server"
_NEWEST = frozenset(option.flags[0] for option in OPTIONS.values() if option.flags)
SHORT = {"--model": "-m", "--spec-draft-model": "-md", "--model-draft": "-md", "--ctx-size": "-c"}
"""Every version knows these."""
_HUB = "hf:"


def command(launch: Launch, started: Sequence[str]) -> tuple[str, ...] | None:
    """`llama-server -m TARGET -md DRAFT --spec-type draft-simple --spec-draft-n-max 4`, in the flags of the server that
    was `started`, of the newest one where that was the embedded server.

    None for methods that are not llama.cpp's, and where the draft's network was a relay of specmeter's.
    """
    settings = launch.arm.engine
    relayed = any(network_of(address) is not None for address in settings.rpc)
    if relayed or not METHOD_OPTIONS.keys() >= set(launch.arm.methods):
        return None
    draft = launch.draft and launch.draft.model_copy(update={"path": _given(launch.draft)})
    target = launch.target.model_copy(update={"path": _given(launch.target)})
    options = serving_options(replace(launch, target=target, draft=draft))
    native = "--model" in started
    if native and "rpc" in options and "--device" in started:  # the target was kept here
        options.setdefault("devices", started[started.index("--device") + 1])
    try:
        flags = to_flags(options, frozenset(started) if native else _NEWEST)
    except EngineStartError:
        flags = to_flags(options, _NEWEST)
    shown = [SHORT.get(flag, flag) for flag in flags]
    if (hub := _hub_file(launch.target)) is not None:
        place = shown.index("-m")
        shown[place : place + 2] = ["-hf", hub[0], "-hff", hub[1]]
    return (PROGRAM, *shown, *settings.extra_flags)


def _given(model: ModelIdentity) -> str:
    """A model's path as it was written where that leads there from here, otherwise all of it."""
    written = model.reference
    if model.origin == "path" and str(Path(written).absolute()) == model.path:
        return f"./{written}" if written.startswith("-") else written
    return model.path


def _hub_file(model: ModelIdentity) -> tuple[str, str] | None:
    """(repository, file) of a target from the hub; None for any other, and for a revision, which the server cannot be
    asked for. Of a draft it takes no file, only a repository."""
    if model.origin != "hf" or "@" in model.reference:
        return None
    owner, _, rest = model.reference.removeprefix(_HUB).partition("/")
    name, _, file = rest.partition("/")
    return (f"{owner}/{name}", file) if file else None

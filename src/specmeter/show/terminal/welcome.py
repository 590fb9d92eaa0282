"""Prints the five lines that answer `specmeter` alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specmeter.show.terminal.console import Screen
from specmeter.text import counted, program, quoted, size

if TYPE_CHECKING:
    from specmeter.laboratory.pairs import Pair
    from specmeter.models.reference import FoundModel


_NAMED = 3


def print_welcome(screen: Screen, models: Sequence[FoundModel], engine: str, pair: Pair | None) -> None:
    """What is here, and one command to copy."""
    screen.say(("specmeter", "strong"), ": does speculative decoding make your model faster here?", wrap=False)
    screen.say(("models  ", "faint"), _models(models), wrap=False)
    screen.say(("engine  ", "faint"), engine, wrap=False)
    arguments = "run demo" if pair is None else f"advise {quoted(str(pair.target.path))}"
    screen.say(("start   ", "faint"), (f"{program()} {arguments}", "strong"), wrap=False)
    screen.say(("more    ", "faint"), f"{program()} --help", wrap=False)


def _models(models: Sequence[FoundModel]) -> str:
    if not models:
        return "none found; the demo brings its own"
    places = Counter(it.place for it in models)
    named = ", ".join(f"{it.name} ({size(it.size_bytes)})" for it in models[:_NAMED])
    more = ", ..." if len(models) > _NAMED else ""
    return f"{counted(len(models), 'GGUF file')} ({', '.join(places)}): {named}{more}"

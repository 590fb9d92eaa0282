"""Published studies of speculative decoding as claims: every row of their tables, every run of their data.

The numbers lie in `data/`; where they come from and what was left out is said in `data/SOURCES.md`. A module per study
gives each row the context that the same study provides: baseline and draft rates, memory, failed forwards where a log
was published. Nothing from elsewhere is added, and what is derived is said so in the claim's notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from specmeter.errors import UsageError

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim

_MODULES = {"moe-306": "moe306", "apple": "apple", "rtx3090-19": "rtx3090"}


def names() -> tuple[str, ...]:
    """The studies, by the names that `claims` takes."""
    return tuple(_MODULES)


def about(name: str) -> str:
    """One line on a study. Raises `UsageError` for an unknown name."""
    return (_module(name).__doc__ or "").partition("\n")[0]


def claims(name: str) -> Iterator[Claim]:
    """Every claim of a study, tables first. Raises `UsageError` for an unknown name."""
    read: Callable[[], Iterator[Claim]] = _module(name).claims
    return read()


def _module(name: str) -> ModuleType:
    if name not in _MODULES:
        raise UsageError(f"no published study is called {name!r}", fix=f"choose one of: {', '.join(_MODULES)}")
    return import_module(f"specmeter.audit.published.{_MODULES[name]}")

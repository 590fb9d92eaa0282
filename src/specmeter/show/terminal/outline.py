"""Prints what an advice would try, and what it needs (`specmeter advise --dry-run`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.show.terminal.console import Screen
from specmeter.text import counted, duration, size

if TYPE_CHECKING:
    from specmeter.advise.question import Outline


def print_outline(screen: Screen, outline: Outline) -> None:
    """What would be tried, on what, and what that takes."""
    for target in outline.targets:
        told = "" if outline.target_bytes is None or len(outline.targets) > 1 else f" ({size(outline.target_bytes)})"
        screen.say(("target  ", "faint"), (target, "strong"), told, wrap=False)
    for draft in outline.drafts:
        told = "" if draft.size_bytes is None else f", {size(draft.size_bytes)}"
        screen.say(("draft   ", "faint"), f"{draft.reference} ({draft.method}{told})", wrap=False)
    if not outline.drafts:
        screen.say(("draft   ", "faint"), "none; what needs no draft model is tried")
    for it in outline.left_out:
        screen.say(("without ", "faint"), f"{it.reference}: {it.why}", wrap=False)
    methods = ", ".join(f"{name} {number}" for name, number in outline.configurations.items())
    screen.say(
        ("tries   ", "faint"), f"{counted(sum(outline.configurations.values()), 'configuration')} and none: {methods}"
    )
    if outline.clients:
        loads = ", ".join(map(str, outline.clients))
        screen.say(("load    ", "faint"), f"all of it with {loads} {'client' if loads == '1' else 'clients'}")
    kinds = ", ".join(f"{kind} {number}" for kind, number in outline.prompts.items())
    screen.say(
        ("prompts ", "faint"),
        f"{sum(outline.prompts.values())} ({kinds}), at most {counted(outline.max_tokens, 'token')} for each",
    )
    plain = (
        "" if outline.plain_s is None else f"; plain decoding alone takes about {duration(outline.plain_s)} each time"
    )
    screen.say(("time    ", "faint"), f"at most {duration(outline.budget_s)} (--budget){plain}")
    needed = "unknown" if outline.memory_bytes is None else size(outline.memory_bytes)
    screen.say(("memory  ", "faint"), f"{needed} of {size(outline.memory_free_bytes)} free")
    screen.say(("disk    ", "faint"), f"{size(outline.disk_bytes)} to be written")
    for problem in outline.problems:
        screen.say(f"warning: {problem}", tone="doubtful")

"""The arms of a run as its charts, tables and filters tell them: by names that people read, in every language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from specmeter.messages import LANGUAGES, Message, words
from specmeter.record import Arm
from specmeter.show.names import label, method
from specmeter.text import printable

if TYPE_CHECKING:
    from specmeter.show.figure import Datum
    from specmeter.show.page.document import Document


FILTERS = ("target", "method", "kind")
"""What readers may choose one of, on a page about a run."""


def who(document: Document, arm_id: str) -> Datum:
    """The fields of an arm in the data of charts: its id, its name in each language, target, method and verdict."""
    arm = document.arms[arm_id]
    certificate = document.run.certificate
    several = len({it.target for it in document.arms.values()}) > 1
    names = {
        f"named_{language}": (f"{printable(arm.target)} · " if several else "")
        + document.names.render(arm_id, words(language))
        for language in LANGUAGES
    }
    return {
        "arm": printable(arm_id),
        **names,
        **filed(document, arm_id),
        "verdict": certificate.arms.get(arm_id, "invalid") if certificate else "unchecked",
    }


def filed(document: Document, arm_id: str, kind: str = "") -> dict[str, str]:
    """What an arm's row or mark is filtered by: a baseline has no method, and is kept by any."""
    arm = document.arms[arm_id]
    found = {"target": arm.target, "method": _way(arm) if arm.speculates else "", "kind": kind}
    return {name: printable(value) for name, value in found.items() if value}


def choices(document: Document) -> dict[str, list[tuple[str, str | Message]]]:
    """Filter -> (value, what it is called), for those that have something to choose between."""
    arms = list(document.arms.values())
    kinds = dict.fromkeys(kind for arm in document.run.summary.arms for kind in arm.kinds)
    found: dict[str, dict[str, str | Message]] = {
        "target": {arm.target: arm.target for arm in arms},
        "method": {_way(arm): method(arm) for arm in arms if arm.speculates},
        "kind": {kind: kind for kind in kinds},
    }
    return {
        name: [(printable(value), called) for value, called in found[name].items()]
        for name in FILTERS
        if len(found[name]) > 1
    }


def lines(document: Document) -> Mapping[str, str | Message]:
    """Arm -> what it shares with arms that differ from it in their draft length alone, for all arms with a length;
    those under load have figures of their own."""
    every = (it for it in document.arms.values() if it.load is None)
    arms = [it for it in every if it.gamma is not None and it.speculates and it.role != "control"]
    rest = {arm.id: "/".join(part for part in label(arm.id).split("/") if part != f"g{arm.gamma}") for arm in arms}
    alike = {_way(arm): {rest[it.id] for it in arms if _way(it) == _way(arm)} for arm in arms}
    return {arm.id: method(arm) if len(alike[_way(arm)]) == 1 else rest[arm.id] for arm in arms}


def _way(arm: Arm) -> str:
    return "/".join(("+".join(arm.methods), *((arm.draft,) if arm.draft else ())))

"""The reference of the Python face, as Markdown, from signatures and docstrings: docs/reference/api.md."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any, cast

import specmeter
import specmeter_studies
from specmeter import errors
from specmeter.analysis.answer import Answer, BestForKind
from specmeter.analysis.comparison import ArmComparison, Difference, RunComparison
from specmeter.analysis.gain import Gain
from specmeter.analysis.prediction.outcomes import PredictionOutcome
from specmeter.analysis.prediction.speedup import AtGamma, Parts
from specmeter.analysis.summary import ArmSummary, KindSummary, RunSummary
from specmeter.audit.claim import Assumption, Claim, ColumnRead, Ruling
from specmeter.audit.read.options import meanings
from specmeter.experiments.spec import ArmSpec
from specmeter.record import Arm, Certificate, Estimate, Finding, ModelIdentity, Request
from specmeter.show.export.tables import TABLES
from specmeter.store.reader import RunState
from specmeter_studies.study import ClaimRuling, StudyFindings

FUNCTIONS = (
    *(specmeter.load, specmeter.run, specmeter.advise, specmeter.schedule, specmeter.compare, specmeter.audit),
    specmeter.predict,
)
CLASSES = (
    *(specmeter.Run, specmeter.Experiment, specmeter.RunTable, specmeter.Advice, specmeter.Schedule),
    *(specmeter.Audit, specmeter.Predicted),
)
STUDIES = (specmeter_studies.names, specmeter_studies.published, specmeter_studies.load)
RECORDS = (
    *(Estimate, Answer, BestForKind, Gain, RunSummary, ArmSummary, KindSummary, RunState, Arm, ModelIdentity),
    *(Certificate, Finding, PredictionOutcome, Request),
    *(RunComparison, ArmComparison, Difference, Ruling, Assumption, Claim, ColumnRead, AtGamma, Parts),
    *(StudyFindings, ClaimRuling),
)
"""What the objects above consist of."""
_BY_NAME: dict[type, tuple[str, set[str]]] = {
    Claim: ("a table's [columns](audit.md#columns)", set(meanings())),
    Arm: ("the keys of [ArmSpec](experiment.md#armspec)", set(ArmSpec.model_fields)),
}
"""Records whose fields mean what something else of the same name does."""
_told = {
    (it.name, it.description): f"the columns of [{name}](columns.md#{name})"
    for name, table in reversed([*TABLES.items()])
    for it in table.columns
}
"""(name, what is said of it) -> where that stands first: nothing is said twice."""


def api_page() -> str:
    """The whole page."""
    parts = [
        "# Python\n",
        "`import specmeter`. [Use from Python](../how-to/python.md) has a worked example and the list of names that "
        "stay stable. `help(specmeter.run)` prints more.\n",
        "## Functions\n",
        *(_function(function) for function in FUNCTIONS),
        "## Objects\n",
        *(_class(cls, level=3) for cls in CLASSES),
        "## Studies\n\nIn the package `specmeter_studies`, which `specmeter_studies` leads to.\n",
        *(_function(function) for function in STUDIES),
        "## Errors\n\nIn the module `specmeter.errors`; `specmeter.SpecmeterError` is the base of all.\n",
        *_errors(),
        "## Records\n\nWhat these objects consist of. All are frozen; those that are pydantic models become plain data "
        "by `model_dump()`.\n",
        *(_class(cls, level=3) for cls in RECORDS),
    ]
    return "\n".join(parts)


def _function(function: FunctionType) -> str:
    owner = "specmeter_studies" if function in STUDIES else "specmeter"
    return f"### `{function.__name__}`\n\n```text\n{_signature(function, owner)}\n```\n\n{_doc(function)}\n"


def _signature(function: FunctionType, owner: str, *, wide: bool = False) -> str:
    """One line where it fits, or where it may be wide; else an argument per line."""
    signature = inspect.signature(function)
    arguments: list[str] = []
    for it in signature.parameters.values():
        if it.kind is it.KEYWORD_ONLY and not any(argument.startswith("*") for argument in arguments):
            arguments.append("*")
        default = "" if it.default is it.empty else f" = {it.default!r}"
        if it.name != "self":
            arguments.append(f"{'*' if it.kind is it.VAR_POSITIONAL else ''}{it.name}: {it.annotation}{default}")
    name, end = f"{owner}.{function.__name__}".lstrip("."), f" -> {signature.return_annotation}"
    line = f"{name}({', '.join(arguments)}){end}"
    return line if wide or len(line) <= 100 else f"{name}(\n" + "".join(f"    {it},\n" for it in arguments) + f"){end}"


def _doc(thing: Any) -> str:
    """The first sentence of a docstring."""
    return _first_sentence(inspect.getdoc(thing) or "")


def _first_sentence(text: str) -> str:
    """What stands before the first full stop, semicolons and lists included."""
    text = " ".join(text.split("\n\n")[0].split())
    found = re.match(r"(.+?[.])(?= [A-Z`(]|$)", text)
    return found[1] if found else text


def _class(cls: type, level: int) -> str:
    parts = [f"{'#' * level} `{cls.__name__}`\n", f"{_doc(cls)}\n"]
    if cls is specmeter.Experiment:
        return "\n".join([*parts, "Its keys: [experiment files](experiment.md). `expand()` gives its arms.\n"])
    properties = [
        (name, str(inspect.signature(cast("FunctionType", it.fget)).return_annotation), inspect.getdoc(it) or "")
        for name, it in _members(cls)
        if isinstance(it, property)
    ]
    attributes: list[str] = []
    elsewhere: dict[str, list[str]] = {}
    for name, kind, text in (*_fields(cls), *properties):
        told, here = _first_sentence(text), f"`{cls.__name__}`"
        same, names = _BY_NAME.get(cls, ("", ()))
        place = same if name in names else _told.setdefault((name, told), here) if told else ""
        if place == here:
            attributes.append(f"- `{name}: {kind}`: {told}")
        else:
            elsewhere.setdefault(place, []).append(f"`{name}`" if place else f"`{name}: {kind}`")
    attributes += [f"- {place and f'as in {place}: '}{', '.join(names)}" for place, names in elsewhere.items()]
    methods = [it for _, it in _members(cls) if isinstance(it, FunctionType)] if cls in CLASSES else []
    attributes += [f"- `{_signature(it, '', wide=True)}`: {_doc(it)}" for it in methods]
    return "\n".join([*parts, *attributes, ""])


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public properties and methods that the project wrote, inherited ones first."""
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("specmeter"):
            yield from ((name, it) for name, it in vars(base).items() if not name.startswith("_"))


def _fields(cls: type) -> Iterator[tuple[str, str, str]]:
    """(name, type, docstring) of every field, inherited ones first, as the source has them."""
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("specmeter"):
            continue
        body = cast("ast.ClassDef", ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]).body
        for line, following in zip(body, [*body[1:], None], strict=True):
            if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
                continue
            told = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            text = str(cast("ast.Constant", cast("ast.Expr", following).value).value) if told else ""
            kind = line.annotation
            if (
                isinstance(kind, ast.Subscript)
                and isinstance(kind.slice, ast.Tuple)
                and ast.unparse(kind.value) == "Annotated"
            ):
                kind = kind.slice.elts[0]
            yield line.target.id, re.sub(r"Annotated\[([^,]+), .*?\)\]", r"\1", ast.unparse(kind)), text


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _errors() -> Iterator[str]:
    rows = (
        f"| `{cls.__name__}` | `{cls.__base__.__name__}` | {' '.join((inspect.getdoc(cls) or '').split())} |"
        for cls in vars(errors).values()
        if isinstance(cls, type) and cls.__module__ == errors.__name__ and cls.__base__ is not None
    )
    yield "\n".join(["| error | is a | when |\n|---|---|---|", *rows]) + "\n"

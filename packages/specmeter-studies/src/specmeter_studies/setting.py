"""What a study was measured with: models, machines, bandwidth, and what a reader has to know of them.

What tables, figures and shared rules of a study look at: rows by the name of their kind, quantities by name.

    arms, arms_by_text, arms_by_length   `ArmResult`: over all prompts, per kind of text, per length of prompts
    results                              `Result`: single requests
    models                               `ModelUsed`
    pairs, pairs_by_text                 `pairings.Pairing`: an arm with the rates of its draft and its target alone
    rungs                                `rungs.Rung`: a model of a quality measurement

Any other kind is made by a function of the study's own folder, `FILE.FUNCTION`. A quantity is the name of a field or
property of such a row, or of one of its parts (`line.speedup`). Nothing is computed here and nothing evaluated.

What a study is: a folder with `study.yaml`, its data, and code of its own only where its arithmetic needs it.

    study.yaml    title, source, parts, tables, figures, and claims with their place in the document and their rule
    NAME.yaml     experiments of its own that `parts` names (`NAME.quality.yaml`: quality plans)
    FILE.py       functions that rules, tables and figures name as `FILE.FUNCTION`; each takes the study's data

A rule is such a function. The file is read as data: bounded, no unknown keys, nothing in it evaluated. Code of a user's
folder runs only where it is trusted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from specmeter.errors import UsageError
from specmeter.experiments.experiment import Variants
from specmeter.experiments.file import FileKind
from specmeter.messages import Message
from specmeter.record import Estimate, Record
from specmeter_studies.pairings import pairings
from specmeter_studies.rungs import rungs
from specmeter_studies.study import ArmResult, ModelUsed, StudyCell, StudyData

if TYPE_CHECKING:
    from specmeter.record import ExpertUnion, Host, ModelIdentity


Path = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){0,5}$", max_length=200)]
"""A quantity: `speedup`, `line.speedup`."""
Function = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*$", max_length=100)]
"""`FILE.FUNCTION` of the study's folder."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Text = Annotated[str, Field(max_length=4000)]
Scalar = str | int | float | bool | None


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


def _kind(given: object) -> str:
    """Tells code by name from what is described, so that messages speak of one of them."""
    return "function" if isinstance(given, str) else "described"


class Selection(_Strict):
    """Which rows are looked at."""

    rows: Path = "arms"
    """A kind of `specmeter_studies.setting`, or a function of the study that makes others."""
    where: dict[Path, Scalar | tuple[Scalar, ...]] = Field(default_factory=dict)
    """Quantity -> the value that it has, or one of several."""


_ByName = Annotated[Function, Tag("function")]
_Kinds = Discriminator(_kind)


class ClaimForm(_Strict):
    """What the document claims."""

    id: Name
    claim: Annotated[Text, Field(min_length=1)]
    where: Text
    """Its place in the document."""
    rule: Function
    """Decides, from the study's data."""
    only_of: Text | None = None
    """The models or machines that it is about: where others were measured it does not apply."""


class ColumnForm(_Strict):
    """A column of a table."""

    title: Text
    of: Path
    digits: Annotated[int, Field(ge=0, le=6)] = 2
    times: float = 1.0
    """Shown = value x times (100 for percent)."""
    none: Annotated[str, Field(max_length=40)] = "-"
    """Shown where there is none."""
    words: dict[str, str] = Field(default_factory=dict)
    """Value -> what is shown in its place."""
    struck: Path | None = None
    """Quantity that says whether the number is false."""


class TableForm(Selection):
    """A table, one line per row."""

    key: Name
    title: Text
    about: Text = ""
    fill: Function | None = None
    """Gives the values of {names} in title, about and headings."""
    columns: Annotated[tuple[ColumnForm, ...], Field(min_length=1, max_length=40)]
    verdict: Path | None = None


class AxisForm(_Strict):
    """An axis and the quantity along it."""

    title: Text
    of: Path
    times: float = 1.0
    log: bool = False
    ratio: bool = False
    """Ratios to a baseline: a line at 1 is drawn across."""
    ordered: bool = False
    """Names, in the order of the rows."""


class FigureForm(Selection):
    """A figure, one mark per row that has both numbers."""

    key: Name
    title: Text
    about: Text = ""
    fill: Function | None = None
    kind: Literal["points", "lines", "bars"]
    x: AxisForm
    y: AxisForm
    series: Path | None = None
    series_title: Text = ""
    facet: Path | None = None
    label: Path | None = None
    """For the tooltip; default: the row's name."""
    name: Path | None = None
    """Written beside the mark."""
    verdict: Path | None = None


class StudyForm(_Strict):
    """What `study.yaml` holds."""

    name: Name
    title: Annotated[Text, Field(min_length=1)]
    source: Text
    """The document: title, author, date, address."""
    parts: Annotated[tuple[Name, ...], Field(min_length=1, max_length=50)]
    """What is measured: experiments and quality plans, bundled ones or files beside this one."""
    suite: Function | None = None
    """Gives an arm the document's name of its group."""
    published: Function | None = None
    """Gives the document's own numbers."""
    needs: Function | None = None
    """Says which arms cannot be measured here, and why."""
    claims: Annotated[tuple[ClaimForm, ...], Field(max_length=200)] = ()
    tables: Annotated[
        tuple[Annotated[_ByName | Annotated[TableForm, Tag("described")], _Kinds], ...], Field(max_length=100)
    ] = ()
    figures: Annotated[
        tuple[Annotated[_ByName | Annotated[FigureForm, Tag("described")], _Kinds], ...], Field(max_length=100)
    ] = ()
    chinese: Annotated[dict[Text, Text], Field(max_length=2000)] = {}
    """Every text above, and what rules find, in English -> in Chinese, with the same {names} of values in any order.
    What is not here is shown in English."""
    variants: Annotated[Variants, Field(default_factory=dict, max_length=0)]
    applied: Annotated[tuple[str, ...], Field(max_length=0)] = ()

    @model_validator(mode="after")
    def _distinct(self) -> StudyForm:
        for what, keys in (
            ("claims", [claim.id for claim in self.claims]),
            ("tables", [it.key for it in self.tables if isinstance(it, TableForm)]),
            ("figures", [it.key for it in self.figures if isinstance(it, FigureForm)]),
            ("parts", list(self.parts)),
        ):
            twice = next((key for key in keys if keys.count(key) > 1), None)
            if twice is not None:
                raise ValueError(f"{what}: {twice!r} is there twice")
        return self


FORM = FileKind(
    kind=StudyForm,
    shelf="specmeter_studies.library",
    word="study",
    listing="`specmeter study list` shows the bundled ones",
    keys="docs/how-to/write-a-study.md explains every key",
    start="start from the example in docs/how-to/write-a-study.md",
)


BENCH_NOTE = Message("study.note.bench")
MOCK_NOTE = Message("study.note.mock")
TIMING_NOTE = Message("study.note.timing")
STAND_INS = ("bench", "mock")
"""Origins of models that no document names."""

_QUANTIZATION = re.compile(r"(?:^|[-_.= ])((?:I?Q\d|F16|BF16|F32|MXFP4)(?:_[A-Z0-9]{1,3}){0,2})(?=[-_.&]|$)", re.I)


def title(models: Sequence[ModelIdentity]) -> Message:
    """What numbers from these models are."""
    origins = {model.origin for model in models}
    which = "mock" if "mock" in origins else "bench" if "bench" in origins else "other"
    return Message(f"study.measured.{which}")


def notes(models: Sequence[ModelIdentity]) -> tuple[Message, ...]:
    """What a reader has to know before any number."""
    origins = {model.origin for model in models}
    found = [note for origin, note in (("bench", BENCH_NOTE), ("mock", MOCK_NOTE)) if origin in origins]
    if any(model.timing_only for model in models):
        found.append(TIMING_NOTE)
    return tuple(found)


def model_used(model: ModelIdentity, union: ExpertUnion | None = None) -> ModelUsed:
    """A model as a run identified it, with the experts that its texts choose where they were read."""
    header, stand_in = model.header, model.origin in STAND_INS
    if header is None:
        return ModelUsed(
            name=model.name, reference=model.reference, size_bytes=model.size_bytes or None, stand_in=stand_in
        )
    return ModelUsed(
        name=model.name,
        reference=model.reference,
        size_bytes=model.size_bytes,
        parameters=header.parameters,
        active_parameters=header.active_parameters,
        bytes_per_token=header.bytes_per_token,
        experts=header.experts,
        experts_used=header.experts_used,
        union=union,
        quantization=quantization(model.reference) or header.quantization,
        stand_in=stand_in,
    )


def quantization(reference: str) -> str:
    """`Q4_K_M` from a reference that says so in its file's name or as `?quant=`; empty where it does not."""
    found = _QUANTIZATION.findall(reference[:1000])
    return str(found[-1]).upper() if found else ""


def distinct(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """Each machine once, as it was at its last start."""
    return tuple({(host.hostname_sha256, host.cpu): host for host in hosts}.values())


def bandwidth(hosts: Sequence[Host], *, on_gpu: bool) -> float | None:
    """Bytes per second of the memory that weights were read from; None for several machines, or where nothing is known.

    Of processors, what was measured on that machine (`specmeter doctor --bandwidth`), else the peak that the maker
    states. Of GPUs the peak.
    """
    from specmeter.host.bandwidth import remembered
    from specmeter.theory.catalogue import devices as catalogue

    if len(distinct(hosts)) != 1:
        return None
    host = hosts[-1]
    if not on_gpu and (measured := remembered(host)) is not None:
        return measured.read.point * 1e9
    names = ", ".join(gpu.name for gpu in host.gpus) if on_gpu else host.cpu
    peak = catalogue.peak(names) if names else None
    return peak.low if peak is not None and peak.low == peak.high else None


Value = str | Message | float | bool | Estimate | StudyCell | None
Make = Callable[[str], Callable[[StudyData], Any]]
"""Finds a function of the study's own."""
Row = Any
"""A record or a dataclass, whose fields and properties are quantities; or a mapping of names to them."""


def _arms(data: StudyData) -> Iterable[Row]:
    return (line for line in data.arms if line.prompt is None and line.prompt_tokens is None)


KINDS: Mapping[str, Callable[[StudyData], Iterable[Row]]] = {
    "arms": _arms,
    "arms_by_text": lambda data: (line for line in data.arms if line.prompt is not None),
    "arms_by_length": lambda data: sorted(
        (line for line in data.arms if line.prompt_tokens is not None), key=lambda line: line.prompt_tokens or 0
    ),
    "results": lambda data: data.results,
    "models": lambda data: data.models,
    "pairs": pairings,
    "pairs_by_text": lambda data: pairings(data, by_prompt=True),
    "rungs": rungs,
}


def selected(data: StudyData, wanted: Selection, make: Make) -> list[Row]:
    """The rows of a kind that are as wanted; `make` finds the study's own functions. Raises `UsageError`."""
    source = KINDS.get(wanted.rows) or make(wanted.rows)
    return [row for row in source(data) if meets(row, wanted.where)]


def meets(row: Row, where: Mapping[str, object]) -> bool:
    """Whether the named quantities have one of the values that are listed for them."""
    return all(
        value(row, name) in (asked if isinstance(asked, Sequence) and not isinstance(asked, str) else (asked,))
        for name, asked in where.items()
    )


def value(row: Row, path: str) -> Any:
    """A quantity of a row; None where it, or the part that it is of, is missing. Raises `UsageError` for no such."""
    found: Any = row
    for name in path.split("."):
        if found is None:
            return None
        known = _quantities(found)
        if name not in known:
            kind = cast("type[object]", type(found)).__name__
            raise UsageError(
                f"{path}: {kind} has no quantity {name!r}",
                fix=f"choose one of: {', '.join(sorted(known)) or 'none'}",
            )
        found = cast("dict[str, Any]", found)[name] if isinstance(found, dict) else getattr(found, name)
    return found


def shown(row: Row, path: str) -> Value:
    """A quantity that can stand in a table: text, a number, an estimate, or a ready cell. Raises `UsageError`."""
    found = value(row, path)
    if found is None or isinstance(found, (str, Message, int, float, bool, Estimate, StudyCell)):
        return found
    raise UsageError(f"{path}: {type(found).__name__} is not a single value", fix=f"name a part of it: {path}.NAME")


def estimate(row: Row, path: str) -> Estimate | float | None:
    """A quantity that can be compared. Raises `UsageError` for text."""
    found = shown(row, path)
    if found is None or isinstance(found, (int, float, Estimate)):
        return found
    raise UsageError(f"{path}: text cannot be compared with a number", fix="name a quantity that is a number")


def line_of(row: Row) -> ArmResult | None:
    """The arm that a row is about, whose verdict decides whether it counts; None for rows without one."""
    found = row if isinstance(row, ArmResult) else value(row, "line") if "line" in _quantities(row) else None
    return found if isinstance(found, ArmResult) else None


def name_of(row: Row) -> str | Message:
    """How sentences call a row: its `name`, else its configuration, else its prompt."""
    for name in ("name", "config", "title", "subject", "prompt"):
        if name in _quantities(row):
            found = value(row, name)
            return found if isinstance(found, Message) else str(found)
    return type(row).__name__


def _quantities(row: Row) -> frozenset[str]:
    """Public fields and properties of a row."""
    if isinstance(row, dict):
        return frozenset(cast("dict[str, Any]", row))
    kind = cast("type[Any]", type(row))
    names = {name for name in dir(kind) if isinstance(getattr(kind, name, None), property)}
    if issubclass(kind, Record):
        names |= kind.model_fields.keys()
        names -= {"model_extra", "model_fields_set"}
    elif is_dataclass(kind):
        names |= {field.name for field in fields(kind)}
    else:  # a named tuple, or nothing that has quantities
        names = set(getattr(kind, "_fields", ()))
    return frozenset(name for name in names if not name.startswith("_"))

"""What a study is: a folder with `study.yaml`, its data, and code of its own only where its arithmetic needs it.

    study.yaml    title, source, parts, tables, figures, and claims with their place in the document and their rule
    NAME.yaml     experiments of its own that `parts` names (`NAME.quality.yaml`: quality plans)
    FILE.py       functions that rules, tables and figures name as `FILE.FUNCTION`; each takes the study's data

A rule is such a function. The file is read as data: bounded, no unknown keys, nothing in it evaluated. Code of a user's
folder runs only where it is trusted.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from specmeter.experiments.experiment import Variants
from specmeter.experiments.file import FileKind

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
    would_decide: Text | None = None
    """What would decide it, where the document's own numbers leave it open."""


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
                raise ValueError(f"{what}: {twice!r} is listed twice")
        return self


FORM = FileKind(
    kind=StudyForm,
    shelf="specmeter_studies.library",
    word="study",
    listing="`specmeter study list` shows the bundled ones",
    keys="correct these keys; docs/how-to/studies.md has an example",
    start="start from the example in docs/how-to/studies.md",
)

"""Studies as they are loaded: bundled ones by name, a user's by their folder; and what each says about data."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module, resources
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmeter.errors import UsageError
from specmeter.experiments.file import parse_form, read_form
from specmeter.extensions import OWN_CODE
from specmeter.messages import Message
from specmeter.text import quoted
from specmeter_studies import builders, experts
from specmeter_studies.definition import FORM, ClaimForm, FigureForm, StudyForm, TableForm
from specmeter_studies.naming import of_stand_ins
from specmeter_studies.rules import carrying
from specmeter_studies.study import StudyFindings, citing
from specmeter_studies.telling import only_of, ruling

if TYPE_CHECKING:
    from specmeter.experiments.file import LoadedExperiment
    from specmeter.record import Arm
    from specmeter_studies.study import ArmResult, ClaimRuling, Found, StudyData, StudyFigure, StudyTable

FILE_NAME = "study.yaml"
LIBRARY = "specmeter_studies.library"
NAMES = (
    "moe-306",
    "apple-quant-ladder",
    "qat-vs-ptq",
    "apple-sd",
    "self-speculation",
    "quant-acceptance",
    "moe-sd",
    "cross-device",
    "hardware-comparison",
    "rtx3090-19",
    "rtx3090-aug",
    "rtx3090-38",
    "moesd",
    "open-questions",
    "moe-twin",
)
"""In the order in which they are listed."""


@dataclass(frozen=True)
class Study:
    """A study, and what it says about data."""

    form: StudyForm
    folder: Path | None = None
    """Of a user's own study; None: bundled."""
    text: str = ""
    """Of its `study.yaml`, where it is a user's own."""
    trusted: bool = True
    """Whether code of its folder may run."""

    @property
    def name(self) -> str:
        return self.form.name

    @property
    def title(self) -> str:
        return self.form.title

    @property
    def source(self) -> str:
        """The document: title, author, date, address."""
        return self.form.source

    @property
    def parts(self) -> tuple[str, ...]:
        """What is measured: names of experiments or of quality plans."""
        return self.form.parts

    def published(self) -> StudyData | None:
        """The document's own numbers with our verdicts; None where it published none."""
        return None if self.form.published is None else self.function(self.form.published)()

    def findings(self, data: StudyData) -> StudyFindings:
        """Claims, tables and figures from data, and which experts its targets read where that was measured.

        Raises `UsageError` for a rule, table or figure that names what is not there.
        """
        found = StudyFindings(
            data=data,
            claims=self.claims(data),
            tables=(*self.tables(data), *experts.tables(data)),
            figures=self.figures(data),
            title=Message(self.title),
            source=Message(self.source),
            command=self._command,
            chinese=self.form.chinese,
        )
        return of_stand_ins(found)

    @property
    def _command(self) -> str:
        """What measures it; of a user's own, by its path from here."""
        if self.folder is None:
            return f"specmeter study run {self.name} --variant bench"
        here = Path.cwd()
        shown = f"./{self.folder.relative_to(here).as_posix()}" if self.folder.is_relative_to(here) else self.folder
        return f"specmeter study run {quoted(str(shown))}"

    def claims(self, data: StudyData) -> tuple[ClaimRuling, ...]:
        """What the data says about each claim, by those of its numbers on which a ruling can rest."""
        data = carrying(data)
        return tuple(self._ruled(data, claim) for claim in self.form.claims)

    def tables(self, data: StudyData) -> tuple[StudyTable, ...]:
        """The tables that this data fills."""
        data = citing(data)
        made = [self._made(data, it, builders.table) for it in self._allowed(self.form.tables)]
        return tuple(table for table in made if table is not None and table.rows)

    def figures(self, data: StudyData) -> tuple[StudyFigure, ...]:
        """The figures that this data fills."""
        data = citing(data)
        made = [self._made(data, it, builders.figure) for it in self._allowed(self.form.figures)]
        return tuple(figure for figure in made if figure is not None and figure.points)

    def suite_of(self, line: ArmResult) -> str:
        """The document's name of an arm's group; the line's own where the study has none."""
        return line.suite if self.form.suite is None or not self.trusted else self.function(self.form.suite)(line)

    def unavailable(self, part: str, loaded: LoadedExperiment, arms: Sequence[Arm]) -> Mapping[str, Message]:
        """Arms that this study knows cannot be measured here -> why."""
        return {} if self.form.needs is None else self.function(self.form.needs)(part, loaded, arms)

    @property
    def code(self) -> tuple[str, ...]:
        """The functions of its own that it names."""
        form = self.form
        entries: list[object] = [*form.tables, *form.figures, form.suite, form.needs, form.published]
        for it in (*form.tables, *form.figures):
            if not isinstance(it, str):
                entries += [it.fill, it.rows]
        entries += [claim.rule for claim in form.claims]
        return tuple(dict.fromkeys(it for it in entries if isinstance(it, str) and "." in it))

    def refuse_untrusted(self) -> None:
        """Raise `UsageError` where the folder is a user's, has code, and was not said to be trusted."""
        if self.folder is not None and self.code and not self.trusted:
            raise UsageError(
                f"{self.folder / FILE_NAME}: uses Python code from its folder ({', '.join(self.code)}), which runs "
                "only with --trust",
                fix="read the code; if you trust it, add --trust",
            )

    def function(self, reference: str) -> Callable[..., Any]:
        """`FILE.FUNCTION` of the study's folder. Raises `UsageError` where it is not there or not trusted."""
        file, _, name = reference.partition(".")
        if self.folder is None:
            found = getattr(import_module(_module(self.name, file)), name, None)
        else:
            self.refuse_untrusted()
            found = getattr(_load(self.folder / f"{file}.py"), name, None)
        if not callable(found):
            raise UsageError(f"{reference}: {file}.py has no function {name}", fix=f"fix {FILE_NAME}")
        return found

    def _ruled(self, data: StudyData, claim: ClaimForm) -> ClaimRuling:
        found = self._decided(data, claim.rule)
        if claim.only_of is not None:
            found = only_of(data, Message(claim.only_of), found)
        ruled = ruling(claim.id, Message(claim.claim), Message(claim.where), found)
        if ruled.ruling != "cannot tell" or data.origin != "published" or claim.would_decide is None:
            return ruled
        return ruled.model_copy(update={"would_decide": Message(claim.would_decide)})

    def _decided(self, data: StudyData, rule: str) -> Found:
        if not self.trusted:
            return "cannot tell", Message("study.untrusted", folder=str(self.folder), rule=rule)
        return self.function(rule)(data)

    def _made(self, data: StudyData, given: Any, build: Callable[..., Any]) -> Any:
        return self.function(given)(data) if isinstance(given, str) else build(data, given, self.function)

    def _allowed(self, given: Sequence[str | TableForm] | Sequence[str | FigureForm]) -> list[Any]:
        """Without those that need code which is not trusted."""
        return [
            it for it in given if self.trusted or not (isinstance(it, str) or it.fill is not None or "." in it.rows)
        ]


def find(name: str, *, trusted: bool = False) -> Study:
    """A bundled study by name, or a user's by the path of its folder.

    Raises `UsageError` for neither, `ExperimentError` for a bad `study.yaml`.
    """
    if name in NAMES:
        return bundled(name)
    folder = Path(name).expanduser()
    if (folder / FILE_NAME).is_file():
        return own(folder, trusted=trusted)
    if folder.is_dir():
        raise UsageError(f"{name}: has no {FILE_NAME}", fix="start from the example in docs/how-to/studies.md")
    near = difflib.get_close_matches(name, NAMES, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"{name[:80]!r}: no such study",
        fix=f"{hint}use one of: {', '.join(NAMES)}; or pass a folder with a {FILE_NAME}",
    )


@cache
def bundled(name: str) -> Study:
    """A study that ships with specmeter."""
    text = (resources.files(LIBRARY) / _place(name) / FILE_NAME).read_text(encoding="utf-8")
    return Study(parse_form(FORM, text, f"{name}/{FILE_NAME}"))


def own(folder: Path, *, trusted: bool = False) -> Study:
    """A user's study. Raises `ExperimentError`, which names the key and what would help, for a bad `study.yaml`."""
    text, source, _ = read_form(str(folder / FILE_NAME), FORM)
    form = parse_form(FORM, text, source)
    if form.name in NAMES:
        raise UsageError(f"{source}: name: {form.name!r} is the name of a bundled study", fix="choose another name")
    return Study(form, folder.resolve(), text, trusted)


def remembered(folder: Path, text: str, *, trusted: bool = False) -> Study:
    """A user's study as it was when it was measured. Raises `ExperimentError`."""
    return Study(parse_form(FORM, text, f"{FILE_NAME} of {folder}"), folder, text, trusted)


def _place(name: str) -> str:
    return name.replace("-", "_")


def _module(name: str, file: str) -> str:
    return f"{LIBRARY}.{_place(name)}.{file}"


def _load(path: Path) -> Any:
    """A user's file as a module, once per process. Raises `UsageError` for one that cannot be loaded."""
    name = f"{OWN_CODE}{abs(hash(str(path)))}_{path.stem}"
    if name not in sys.modules:
        spec = spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise UsageError(f"{path}: no such file", fix=f"write it, or fix {FILE_NAME}")
        module = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise UsageError(f"{path}: cannot be loaded ({type(error).__name__}: {error})", fix="correct it") from error
        sys.modules[name] = module
    return sys.modules[name]

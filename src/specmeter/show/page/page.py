"""A run as one HTML file: Jinja templates (escaping everything), one style sheet, one script, Vega, and the data.

What comes from outside is cleaned of control and direction characters before it is escaped, and isolated (`bdi`), so
that it can neither act nor rearrange its surroundings. The page's own policy forbids every request and every script but
the two whose hashes it names; Vega's expressions are therefore interpreted, never compiled to functions.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from specmeter import __version__, extensions
from specmeter.analysis.load.crossover import CrossoverOutcome, crossover_outcomes
from specmeter.messages import LANGUAGES, Message, Value, Words, with_own, words
from specmeter.show import run_tables, why_report
from specmeter.show.crossover_words import crossover_sentence, foreseen_sentence, main_crossovers, untold
from specmeter.show.figure import Figure, specification
from specmeter.show.load_figures import load_figures
from specmeter.show.load_tables import left_out, loaded, window_span
from specmeter.show.names import Names
from specmeter.show.page.arms import choices
from specmeter.show.palette import PAGE
from specmeter.show.report import Chart, Command, Tabled, as_told, engine, machine, moment, verdict_said
from specmeter.show.run_figures import run_figures
from specmeter.show.run_report import interval_to_cite
from specmeter.show.run_words import at_load, best_of, details, excluded_blocks, headline_interval, sentence, where
from specmeter.show.session_report import session_answers, session_blocks
from specmeter.show.step_figures import called, probe_figures
from specmeter.store.environment import private
from specmeter.text import pasted, printable, printable_lines

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from specmeter.analysis.answer import Answer
    from specmeter.analysis.load.crossover import Crossover
    from specmeter.show.page.document import Document
    from specmeter.show.report import Block, Report


_LONGEST_TEXT = 400_000
_CODE, _AS_CODE = re.compile(r"`([^`]+)`"), r"<code>\1</code>"


def run_page(
    document: Document,
    languages: Sequence[str] = LANGUAGES,
    *,
    index: str | None = None,
    downloads: Sequence[tuple[str, str]] = (),
) -> str:
    """The report of a run. `index` links to the page of all studies, `downloads` (name, size) lie beside the page."""
    run = document.run
    figures = document_figures(document)
    why = document.is_large or any(
        name in figures for name in ("parts", "positions", "accepted", "lookahead", "cost", "union")
    )
    study = ["study"] if document.study else []
    reasons = _reasons(document)
    under_load = bool(loaded(run))
    alone = not under_load or any(arm.load is None for arm in run.summary.arms)
    sections = [*study, *(["sessions"] if run.sessions else []), *(["load"] if under_load else [])]
    sections += ["comparison"] if alone else []
    sections += ["why"] if why else []

    def crossover_of(found: Crossover) -> Message:
        return crossover_sentence(found, document.names)

    def foreseen_of(found: CrossoverOutcome) -> Message:
        return foreseen_sentence(found, document.names)

    sections += ["prompts", "validity", "environment", "repeat"]
    return render(
        "run.html",
        languages,
        figures.values(),
        figures=figures,
        metered=next((arm.energy for arm in run.summary.arms if arm.energy), None),
        title=" · ".join([printable(run.name), *_no_number(document, languages), "specmeter"]),
        document=document,
        install=extensions.INSTALL,
        tables=run_tables.all_tables(document),
        heads=[] if run.sessions else untold(run),
        calls=[(it, run.headline(it.arm_id)) for it in session_answers(run.sessions, document.names)],
        sessions=_seen(session_blocks(run.sessions, document.names), []),
        crossovers=run.crossovers,
        crossed=[(it, run.headline(*(at.arm_id for at in it.loads))) for it in main_crossovers(run.crossovers)],
        crossover_of=crossover_of,
        foreseen=crossover_outcomes(run.crossovers, run.predictions),
        foreseen_of=foreseen_of,
        cite=interval_to_cite(run),
        window=window_span(run),
        cells_left_out=left_out(run),
        excluded=None if run.worst is None else excluded_blocks(run, run.worst, document.names),
        busy=None if run.busy is None else Message("decision.none.busy", what=run.busy.what),
        remedy=run.remedy,
        lines=_lines(document),
        filters=choices(document),
        sections=[*sections, *(["downloads"] if downloads else [])],
        bench=any(model.origin == "bench" for model in run.models),
        started=None if run.state.started_at is None else moment(run.state.started_at),
        checked=None if run.certificate is None else moment(run.certificate.checked_at),
        untold=as_told(run.certificate) if run.certificate and run.certificate.verdict == "valid" else None,
        anchors=_first_of_check(document),
        reasons=reasons,
        why=[
            _seen(blocks, [])
            for blocks in (
                why_report.time(document, but=reasons),
                why_report.drafts(document),
                why_report.memory(document),
                why_report.method_notes(document),
            )
        ],
        machine=machine,
        engine=engine,
        called=called,
        run_folder=run.folder.resolve().name,
        index=index,
        downloads=downloads,
    )


def _reasons(document: Document) -> dict[str, Message]:
    """Arm of an answer -> what decides about its speedup, which stands under the answer."""
    arms = document.account.arms if document.account else ()
    told = {answer.arm_id for answer in untold(document.run)}
    return {it.arm_id: Message("page.why", why=_alone(it.sentence)) for it in arms if it.arm_id in told and it.sentence}


def _alone(sentence: Message) -> Message:
    """A sentence without the speedup that it begins with, where the answer above it has the same one."""
    step = sentence.values.get("step")
    if not isinstance(step, Message) or not isinstance(step.values.get("speedup"), float):
        return sentence
    rest = {name: value for name, value in step.values.items() if name != "speedup"}
    return Message(sentence.code, **{**sentence.values, "step": Message("page.step", **rest)})


def _no_number(document: Document, languages: Sequence[str]) -> list[str]:
    """Part of the title where a busy machine left none."""
    run = document.run
    return [] if run.busy is None or run.answers else [words(languages[0])("decision.none.busy.title")]


def document_figures(document: Document) -> dict[str, Figure]:
    """All figures of a run, of the probes beside it, and of the document that it repeats."""
    of_study = {figure.name: figure for figure in document.study.figures} if document.study else {}
    by_probes = probe_figures(document.probes, document.model_names, document.routing)
    return of_study | load_figures(document) | run_figures(document) | by_probes


_MAX_NOTES = 60


def report_page(
    report: Report,
    languages: Sequence[str] = LANGUAGES,
    *,
    index: str | None = None,
    downloads: Sequence[tuple[str, str]] = (),
) -> str:
    """The page of a report; `index` and `downloads` as of `run_page`."""
    drawn: list[Figure] = []
    sections = [(it.name, blocks) for it in report.sections if (blocks := _seen(it.blocks, drawn))]
    return render(
        "report.html",
        languages,
        drawn,
        title=f"{printable(report.target)} · specmeter",
        report=report,
        answer=_seen(report.answer, drawn),
        notes=_seen(report.notes[:_MAX_NOTES], drawn),
        sections=[*sections, *([("repeat", blocks)] if (blocks := _seen(report.closing, drawn)) else [])],
        folder="" if report.folder is None else report.folder.name,
        index=index,
        downloads=downloads,
    )


def _seen(blocks: Iterable[Block], drawn: list[Figure]) -> list[tuple[str, object]]:
    """(kind, what the template shows) of blocks: figures, which join those `drawn`, lines as others may see them, and
    tables with rows."""
    shown: list[tuple[str, object]] = []
    for block in (it for it in blocks if it.at not in ("screen", "brief")):
        match block:
            case Chart():
                if (figure := block.make()) is not None:
                    drawn.append(figure)
                    shown.append(("figure", figure))
            case Command():
                shown.append(("command", shareable(block.argv)))
            case Tabled():
                if block.table.rows:
                    shown.append(("folded" if block.at == "details" else "table", block.table))
            case _:
                shown.append((block.kind, block))
    return shown


def render(
    template: str,
    languages: Sequence[str],
    shown: Iterable[Figure],
    *,
    own: Mapping[str, Mapping[str, str]] | None = None,
    live: bool = False,
    **values: Any,
) -> str:
    """A page from a template with the data of the figures `shown`; everything in `values` counts as coming from
    outside. `own`: language -> texts of users' own studies; a `live` page asks its own server for itself again."""
    from markupsafe import Markup

    voice = Voice([with_own(words(it), (own or {}).get(it, {})) for it in languages])
    css, script, shown = asset("page.css") + _one_at_a_time(languages), asset("page.js"), list(shown)
    vega = asset("vega.js") if shown else ""
    text: str = (
        _environment()
        .get_template(template)
        .render(
            t=voice.tell,
            say=voice.say,
            label=voice.label,
            named=voice.named,
            sentence=voice.sentence,
            details=voice.details,
            prose=voice.prose,
            spoken=voice.spoken,
            headline=voice.headline,
            verdict_said=verdict_said,
            languages=languages,
            every=voice.languages,
            charts_json=Markup(_charts_json(shown, voice.languages)),
            policy=policy(css, *filter(None, (vega, script)), live=live),
            css=Markup(css),
            vega=Markup(vega),
            script=Markup(script),
            version=__version__,
            **values,
        )
    )
    return text


def _one_at_a_time(languages: Sequence[str]) -> str:
    """The style by which a page shows one of its languages."""
    return "".join(
        f'html[data-language="{it}"] [data-lang]:not([data-lang="{it}"]) {{ display: none; }}\n' for it in languages
    )


class Voice:
    """Tells words in every language of a page, each in an element that is shown for its language only."""

    def __init__(self, languages: Sequence[Words]) -> None:
        self.languages = languages

    def tell(self, key: str, **values: Value) -> Markup:
        """The text of a key."""
        return self.say(Message(key, **values))

    def say(self, text: str | Message, *, code: bool = False) -> Markup:
        """A phrase, or a sentence of ours, in every language; other text from outside as it is."""
        if isinstance(text, str):
            return self._isolated(text, code=code)
        return self._in_each(lambda one: self._rendered(text, one, code=code))

    def sentence(self, answer: Answer, names: Names) -> Markup:
        """An answer."""
        return self.say(sentence(answer, names))

    def headline(self, answer: Answer, names: Names) -> Markup:
        """An answer in so few words that they are read at a glance."""

        return self.tell(
            f"headline.{answer.decision}",
            target=at_load(answer, answer.load) if answer.load else answer.baseline_id.replace("/none", "", 1),
            where=where(answer),
            method=names.alone(answer.arm_id),
            speedup=f"{answer.speedup.point:.2f}",
            interval=headline_interval(answer),
            unit=Message(f"headline.{answer.unit}s"),
            best=best_of(answer, names),
        )

    def details(self, answer: Answer, names: Names) -> list[Markup]:
        """What must be known beside an answer, point by point."""
        return [self.say(line) for line in details(answer, names)]

    def prose(self, text: str | Message) -> Markup:
        """The same as `say`, but `code` within text from outside is shown as such."""
        return self.say(text, code=True)

    def spoken(self, text: str | Message, *, key: bool = False) -> Markup:
        """Attributes that hold a text of an element that can hold none in several languages; `key`: of ours."""
        from markupsafe import Markup

        phrase = Message(text) if key and isinstance(text, str) else text
        return Markup(" ").join(
            Markup('data-say-{}="{}"').format(one.language, one.render(phrase)) for one in self.languages
        )

    def label(self, key: str) -> Markup:
        """An `aria-label` of ours."""
        return self.named(Message(key))

    def named(self, *parts: str | Message) -> Markup:
        """An `aria-label`, and its text in the other languages for when they are chosen."""
        from markupsafe import Markup, escape

        spoken = {
            one.language: str(escape(": ".join(one.render(part) for part in parts if part))) for one in self.languages
        }
        others = "".join(f' data-label-{language}="{text}"' for language, text in spoken.items())
        return Markup(f'aria-label="{next(iter(spoken.values()))}"{others}')

    def _in_each(self, text: Callable[[Words], str]) -> Markup:
        from markupsafe import Markup

        if len(self.languages) == 1:
            return Markup(text(self.languages[0]))
        return Markup(
            "".join(f'<span data-lang="{one.language}" lang="{one.tag}">{text(one)}</span>' for one in self.languages)
        )

    def _rendered(self, said: Message, one: Words, *, code: bool = False) -> str:
        """Our own words, which may hold `code`, with what comes from outside escaped."""

        def outside(text: str) -> Markup:
            return self._isolated(text, code=code)

        return one.render(said, own=lambda text: _CODE.sub(_AS_CODE, text), outside=outside)

    def _isolated(self, text: str, *, code: bool = False) -> Markup:
        from markupsafe import Markup, escape

        shown = str(escape(printable(text)))
        return Markup(f"<bdi>{_CODE.sub(_AS_CODE, shown) if code else shown}</bdi>") if text else Markup("")


def policy(css: str, *scripts: str, live: bool = False) -> str:
    """The content security policy of a page with this style and these scripts: nothing else, and no network but, of a
    `live` page, its own server."""
    hashes = " ".join(_hash(script) for script in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src {_hash(css)}; img-src data:; " + (
        "base-uri 'none'; form-action 'self'; connect-src 'self'" if live else "base-uri 'none'; form-action 'none'"
    )


@cache
def asset(name: str) -> str:
    """A file that comes with the package."""
    return (resources.files("specmeter.show.page") / "assets" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _charts_json(shown: Iterable[Figure], languages: Sequence[Words]) -> str:
    """Data once, specifications per language; no character in it can end the element that holds it."""
    payload = {
        panel.name: {
            "data": list(panel.data),
            "specs": {one.language: specification(panel, one, PAGE) for one in languages},
        }
        for figure in shown
        for panel in figure.panels
    }
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def clean(value: object) -> object:
        return (
            printable_lines(value, _LONGEST_TEXT) if isinstance(value, str) and not isinstance(value, Markup) else value
        )

    return Environment(
        loader=PackageLoader("specmeter.show.page"),
        autoescape=True,
        finalize=clean,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _lines(document: Document) -> list[tuple[str, str]]:
    """(arm, the command that serves as its answer advises), for the answers of the heading that advise something."""
    found: list[tuple[str, str]] = []
    for answer in untold(document.run):
        advised = None if answer.decision == "depends on the text" else answer.serves
        if advised is not None and advised in document.run.commands:
            found.append((advised, shareable(document.run.commands[advised])))
    return found


def shareable(argv: Sequence[str]) -> str:
    """A command to paste, on a page that others may see: without secrets and the name of the home folder, for which a
    shell takes `~` where it is not quoted."""
    told = [private(word) for word in argv]
    return " ".join(f"~/{pasted([word[2:]])}" if word[:2] == "~/" and word[2:] else pasted([word]) for word in told)


def _first_of_check(document: Document) -> set[int]:
    """Places of the first group of each check: where links to a check lead."""
    places: dict[str, int] = {}
    for place, group in enumerate(document.groups):
        places.setdefault(group.first.check, place)
    return set(places.values())

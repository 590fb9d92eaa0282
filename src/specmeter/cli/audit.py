"""The command `specmeter audit`."""

from __future__ import annotations

import io
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISDIR, S_ISFIFO, S_ISREG
from typing import BinaryIO

import click

from specmeter import extensions
from specmeter import files as file_access
from specmeter.audit import published as documents
from specmeter.audit.read.options import meanings, table_options
from specmeter.audit.reading import FORMATS, Audit, RowDefaults, noise_share, read_claims, row_defaults, rule
from specmeter.cli.settings import flag
from specmeter.cli.usage import BadValue, Number
from specmeter.errors import SpecmeterError, UsageError
from specmeter.messages import Message
from specmeter.show import audit_report
from specmeter.show.terminal.console import errors, output, say_json
from specmeter.show.terminal.report import print_report
from specmeter.text import size

MAX_PIPED = 64 * 2**20
"""How long a named pipe may bring nothing."""

_GAMMA = Number(0, 100_000)

_HELP = """Check published results: which rows cannot be true?

FILE is a table (CSV, TSV, Markdown, HTML, LaTeX, JSON or JSON Lines), a benchmark's output or an engine's log; `-` is
standard input. Every row is checked against arithmetic and hardware limits; rounded numbers are read in the row's
favour. A row that breaks arithmetic is impossible. One that breaks a bound based on assumptions is implausible; the
assumptions are printed, with how wrong they would have to be. A row that passes a bound it could have broken is
possible, which does not prove it; any other is undecided.

Exit codes: 0 no row is broken, 1 a row is impossible or contradicts itself, 2 wrong input, 4 a row is implausible.

\b
Examples:
  specmeter audit table.csv
  specmeter audit table.md --baseline-rate 55.3 --device "M2 Ultra"
  specmeter audit run1.log run2.log --details
  specmeter audit results.json --json | jq '.counts'
  llama-bench -o jsonl -m model.gguf | specmeter audit -
  specmeter audit table.md --column "acc=acceptance"
  specmeter audit --published list
"""


@click.command(name="audit", help=_HELP)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--published", metavar="NAME", help="Check a bundled published data set, or `list` them.")
@click.option(
    "--format", "format_name", type=click.Choice(list(FORMATS)), help="Format of the files. Default: detected."
)
@click.option("--baseline-rate", metavar="TOK/S", help="Rate without speculation, for rows that give none.")
@click.option("--draft-rate", metavar="TOK/S", help="Rate of the draft model alone.")
@click.option("--gamma", type=_GAMMA, help="Draft length.")
@click.option("--device", metavar="NAME", help="Machine or GPU of the measurements.")
@click.option("--bandwidth", metavar="GB/S", help="Peak memory bandwidth of an unknown device.")
@click.option("--bytes-per-token", metavar="SIZE", help="Active weights, read per token, such as 1.9GB.")
@click.option(
    "--cheapest-forward",
    type=Number(0, 1, whole=False, above=True),
    metavar="RATIO",
    help="Time of the fastest forward pass over several tokens, relative to one token. Default: 1.",
)
@click.option(
    "--column", multiple=True, metavar="HEADING=MEANING", help="What this column means; `list` shows all meanings."
)
@click.option("--noise", metavar="PERCENT", help="Timing noise to allow for. Default: from the table's repeats.")
@click.option("--details", is_flag=True, help="Also show all bounds and notes per row.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    published: str | None,
    format_name: str | None,
    baseline_rate: str | None,
    draft_rate: str | None,
    gamma: int | None,
    device: str | None,
    bandwidth: str | None,
    bytes_per_token: str | None,
    cheapest_forward: float | None,
    column: tuple[str, ...],
    noise: str | None,
    details: bool,
    as_json: bool,
) -> None:
    if "list" in column:
        known = meanings()
        said = [f"{name}: {meaning}" if meaning else name for name, meaning in known.items()]
        say_json({"meanings": known}) if as_json else output().say_all(said, wrap=False)
        return
    if not files and published is None:
        raise UsageError("audit: no file given", fix="give a file, `-` for standard input, or --published list")
    given = row_defaults(
        baseline_rate=baseline_rate,
        draft_rate=draft_rate,
        gamma=gamma,
        device=device,
        bandwidth=bandwidth,
        bytes_per_token=bytes_per_token,
        cheapest_forward=cheapest_forward,
        flag=flag,
    )
    share = noise_share(noise)
    options = table_options({it.rpartition("=")[0].strip(): it.rpartition("=")[2].strip() for it in column})
    audits: list[Audit] = []
    if published is not None:
        names = documents.names()
        if published == "list":
            say_json({"published": names}) if as_json else output().say_all(names, wrap=False)
            return
        audits.append(_audit_published(published, names, given, share))
    unread = 0
    for file in files:
        try:
            with _opened(file) as path:
                name, claims = read_claims(path, format_name, options)
                source = "standard input" if file == "-" else file
                if str(path) != file:
                    claims = (claim.model_copy(update={"source": source}) for claim in claims)
                audits.append(rule(claims, source, name, given, share))
        except SpecmeterError as error:
            if len(files) == 1:
                raise
            unread += 1
            errors().say_all(f"error: {error}".splitlines(), wrap=False)
    print_report(audit_report.report(audits, details=details), as_json=as_json, details=details)
    if not (as_json or published or "-" in files) and sys.stdin.isatty() and sys.stdout.isatty():
        audits = _with_answers(audits, share, details=details)
    ctx.exit(2 if unread else _exit_code(audits))


def _with_answers(audits: list[Audit], share: float | None, *, details: bool) -> list[Audit]:
    """The audits with numbers that a person types in: the one that decides most rows first, until none would."""
    while asked := sum((Counter(audit.asked) for audit in audits), Counter[tuple[str, ...]]()):
        name = asked.most_common(1)[0][0][0]
        try:
            question = str(Message("audit.ask", flag=flag(name)))
            given = click.prompt(question, "", show_default=False, value_proc=lambda it, name=name: _answer(name, it))
        except click.Abort:
            given = None
        if given is None:
            break
        audits = [rule((it.claim for it in old.rulings), old.source, old.format, given, share) for old in audits]
        print_report(audit_report.report(audits, details=details), details=details)
    return audits


def _answer(name: str, text: str) -> RowDefaults | None:
    """What was typed for that number, if anything. Raises the error of click that makes it ask again."""
    if not text.strip():
        return None
    try:
        return row_defaults(
            gamma=_GAMMA(text) if name == "gamma" else None,
            baseline_rate=text if name == "baseline_rate" else None,
            draft_rate=text if name == "draft_rate" else None,
            flag=flag,
        )
    except (SpecmeterError, BadValue) as error:
        raise click.UsageError(f"{error.message}; {error.fix}") from None


def _exit_code(audits: Sequence[Audit]) -> int:
    """3 is an engine that failed, in all commands; so what only assumptions refute has 4."""
    if any(audit.count("impossible") or audit.contradicted for audit in audits):
        return 1
    return 4 if any(audit.count("implausible") for audit in audits) else 0


@contextmanager
def _opened(file: str) -> Generator[Path]:
    """The path of a file; what can be read only once, standard input or a pipe, goes into a file of its own first."""
    path = Path(file).expanduser()
    if file != "-" and not _is_special(path):
        yield path
        return
    name = "standard input" if file == "-" else file
    content = _bounded(sys.stdin.buffer, name) if file == "-" else _piped(path, name)
    with tempfile.TemporaryDirectory(prefix="specmeter-audit-") as folder:
        copy = Path(folder) / "piped"
        copy.write_bytes(content)
        try:
            yield copy
        except SpecmeterError as error:
            raise UsageError(error.message.replace(str(copy), name), fix=error.fix) from None


def _is_special(path: Path) -> bool:
    """Whether a path is neither a file nor a folder; one that is missing is told of by its reader."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False
    return not (S_ISREG(mode) or S_ISDIR(mode))


def _piped(path: Path, name: str) -> bytes:
    """What a pipe brings until its end. Raises `UsageError` for a device, and for a pipe that nothing writes to."""
    if not S_ISFIFO(path.stat().st_mode):
        raise UsageError(f"{name}: a device, not a file", fix="give a file, or `-` for standard input")
    try:
        content = file_access.read_pipe(path, MAX_PIPED + 1, file_access.SILENCE_S)
    except TimeoutError as error:
        raise UsageError(
            f"{name}: {error.strerror}", fix="write to it, or use standard input: `... | specmeter audit -`"
        ) from None
    return _bounded(io.BytesIO(content), name)


def _bounded(stream: BinaryIO, name: str) -> bytes:
    content = stream.read(MAX_PIPED + 1)
    if len(content) > MAX_PIPED:
        raise UsageError(
            f"{name}: more than {size(MAX_PIPED)}",
            fix="keep only the rows and columns you need; save a long log to a file first",
        )
    return content


def _audit_published(name: str, names: tuple[str, ...], given: RowDefaults, noise: float | None) -> Audit:
    if name not in names:
        fix = f"use one of {', '.join(names)}"
        studies = extensions.studies()
        if studies is not None and name in studies.names():
            fix = f"run `specmeter report --published {name}` for this study, or use one of {', '.join(names)}"
        raise UsageError(f"--published {name[:80]}: no such data set", fix=fix)
    return rule(documents.claims(name), name, "published", given, noise)

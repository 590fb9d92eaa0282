"""Hashes a run folder, compares it with its certificate, and finds files of it that contradict each other.

Hashed (SHA-256) are all tables of `run.sqlite` but those of the certificate, every log, and the documents that
specmeter writes beside them before it certifies: `FILES`.

A report is written after the run was certified, so no certificate can cover it. It has a *seal* instead: its last line
names the certificate.json that it was made from, and hashes all that comes before. A seal finds edits, but an editor
can seal the page again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import marshal
import math
import re
import time
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from pydantic import ValidationError

from specmeter import __version__
from specmeter.errors import StoreError
from specmeter.files import NotPlainError, is_link, oddity, open_inside, read_inside
from specmeter.messages import Message
from specmeter.record import Certificate, Finding, Unchecked
from specmeter.record.verdict import Findings, about_run
from specmeter.store.database import DATABASE_FILES
from specmeter.store.environment import environment_of
from specmeter.store.guarded import LOCK_NAME
from specmeter.store.reader import CERTIFICATE_NAME, certificate_file
from specmeter.store.run import (
    ENVIRONMENT_NAME,
    EXPERIMENT_NAME,
    LOGS_NAME,
    REPORT_NAME,
    RESCUED_NAME,
    SIGNATURE_NAME,
)
from specmeter.text import size

if TYPE_CHECKING:
    from specmeter.store import RunReader


_TABLES = {
    "experiment": "SELECT specmeter, experiment_yaml, experiment_json FROM run",
    "plan": "SELECT invocation, block, arm_id, prompt_id FROM plan ORDER BY seq",
    "hosts": "SELECT json FROM host ORDER BY id",
    "arms": "SELECT id, json FROM arm ORDER BY seq",
    "prompts": "SELECT id, json FROM prompt ORDER BY seq",
    "models": "SELECT name, json FROM model ORDER BY seq",
    "pairs": "SELECT json FROM pair ORDER BY seq",
    "engines": "SELECT id, json FROM engine ORDER BY id",
    "sessions": "SELECT id, engine_id, json FROM session ORDER BY seq",
    "requests": "SELECT * FROM request ORDER BY id",
    "replies": "SELECT request_id, zlib_json FROM reply ORDER BY request_id",
    "telemetry": "SELECT at, json FROM telemetry ORDER BY id",
    "margins": "SELECT json FROM margin ORDER BY id",
    "predictions": "SELECT arm_id, json FROM prediction ORDER BY seq",
    "prompt-tokens": "SELECT target, prompt_id, zlib_json FROM prompt_tokens ORDER BY seq",
    "step-probes": "SELECT json FROM step_probe ORDER BY seq",
    "profiles": "SELECT zlib_json FROM profile ORDER BY seq",
    "profiled": "SELECT json FROM profiled",
    "disturbances": "SELECT invocation, block, again, json FROM disturbance ORDER BY seq",
    "energy": "SELECT json FROM energy ORDER BY seq",
    "routing": "SELECT target, json FROM routing ORDER BY seq",
    "load-cells": "SELECT json FROM load_cell ORDER BY seq",
    "sendings": "SELECT * FROM sending ORDER BY request_id",
    "run": "SELECT created_at, started_at, finished_at, interrupted, reason FROM run",
}
FILES = (EXPERIMENT_NAME, ENVIRONMENT_NAME)
"""Documents beside the database that are certified with it."""
MAX_BYTES = 64 * 2**20
"""Of such a document."""
_LONGEST_HOME, _MAX_HOMES = 300, 8
_ROWS_AT_ONCE = 100
_MARSHAL = 2
"""The last version in which equal values are equal bytes: later ones also tell which objects are the same. Four times
as fast as `repr`."""
MAX_BYTES_OF_LOG = 8 * 2**30
PARTS = (*_TABLES, *FILES, LOGS_NAME)
"""Parts that checks name; each log has a hash of its own, `logs/NAME`."""


def hash_data(run: RunReader) -> dict[str, str]:
    """Part -> SHA-256, computed from what lies in the run folder now. Raises `StoreError` when it is damaged."""
    hashes = {part: _hash_rows(run, query) for part, query in _TABLES.items()}
    names = list(FILES)
    logs = run.folder / LOGS_NAME
    if logs.is_dir() and not is_link(logs):
        names += sorted(f"{LOGS_NAME}/{path.name}" for path in logs.iterdir())
    return hashes | {name: digest for name in names if (digest := hash_file(run.folder, name))}


def changed(was: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Parts that differ, appeared or are gone, in order."""
    return [part for part in dict.fromkeys((*was, *now)) if was.get(part) != now.get(part)]


def _hash_rows(run: RunReader, query: str) -> str:
    """Of the values with their types and lengths, so that no two different tables look alike."""
    digest, rows = hashlib.sha256(), run.raw(query)
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        digest.update(marshal.dumps(some, _MARSHAL))
    return digest.hexdigest()


def hash_file(folder: Path, name: str) -> str | None:
    """None where there is no plain file of that name. Raises `StoreError` where it is too large, or cannot be read."""
    most = MAX_BYTES_OF_LOG if name not in FILES else MAX_BYTES
    try:
        with open_inside(folder, name) as file:
            if file.seek(0, 2) > most:
                raise OSError(errno.EFBIG, f"is larger than {size(most)}")
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotPlainError):
        return None
    except OSError as error:
        raise StoreError(
            f"{folder / name}: cannot be read: {error.strerror}", fix="check its permissions, or move it elsewhere"
        ) from None


def output_digest(token_ids: Sequence[int]) -> bytes:
    """12 bytes that are equal for equal token ids; empty where there are none."""
    return blake2b(array("q", token_ids).tobytes(), digest_size=12).digest() if token_ids else b""


_SEAL = re.compile(rb"\n<!-- sealed by specmeter: certificate ([0-9a-f]{64}|none), page ([0-9a-f]{64}) -->\s*\Z")
_MARK = b"<!-- sealed by specmeter: "


class Seal(NamedTuple):
    """What a page says about itself."""

    intact: bool
    """The page is as it was written."""
    certificate: str | None
    """SHA-256 of the certificate.json that it was made from; None where there was none, or the page was edited."""


def sealed(page: bytes, certificate: str | None) -> bytes:
    """The page with a seal at its end."""
    line = f"\n<!-- sealed by specmeter: certificate {certificate or 'none'}, page "
    return page + line.encode() + _digest(page, certificate or "none").encode() + b" -->\n"


def read_seal(page: bytes) -> Seal | None:
    """The seal of a page; None where it has none."""
    found = _SEAL.search(page)
    if found is None:
        return Seal(intact=False, certificate=None) if _MARK in page else None
    certificate, digest = (group.decode() for group in found.groups())
    intact = digest == _digest(page[: found.start()], certificate)
    return Seal(intact, certificate if intact and certificate != "none" else None)


def _digest(page: bytes, certificate: str) -> str:
    return hashlib.sha256(page + b"\n" + certificate.encode()).hexdigest()


FIX = Message("data-changed.fix")
GONE = Message("data-changed.gone", file=CERTIFICATE_NAME)
_NO_CERTIFICATE = Message("data-changed.no_certificate", file=CERTIFICATE_NAME)
_PARTS_SHOWN = 5
_MAX_LISTED = 1_000
_LONGEST_REPORT = 256 * 2**20
_LATE_S = 3600.0
"""Between the end of a run and its certificate the target is asked about differences, and everything is checked."""


def changes(run: RunReader, issued: Certificate | None, hashes: Mapping[str, str]) -> Findings:
    """What is no longer as it was certified.

    The certificate lies in the database and beside it. One that is gone from the database (a process killed while it
    certified leaves it so) still holds what lies here against the file.
    """
    said, problem = certificate_in(run.folder)
    if issued is None and said is None and problem == GONE:
        yield from lost(run)
        yield Unchecked(reason=Message("unchecked.no_certificate"), applies=False)
        return
    certified = issued or said
    if certified is not None and (parts := changed(certified.data, hashes)):
        shown = [*parts[:_PARTS_SHOWN], *(["..."] if len(parts) > _PARTS_SHOWN else [])]
        message = Message("data-changed.found", parts=shown)
        if issued is None:
            message = Message("data-changed.found_beside", file=CERTIFICATE_NAME, parts=shown)
        yield about_run("data-changed", "invalid", message, FIX, parts=", ".join(shown), count=len(parts))
    if issued is not None and problem is None and said != issued:
        problem = Message("data-changed.contradicts", file=CERTIFICATE_NAME)
    elif issued is not None and problem is None and not _same_findings(run):
        problem = Message("data-changed.lacks_findings", file=CERTIFICATE_NAME)
    if problem is not None:
        yield about_run("data-changed", "invalid", problem, FIX)


def lost(run: RunReader) -> Iterator[Finding]:
    """Requests that a run lacks which was certified complete: measured again, they would be chosen."""
    now = run.state()
    if run.was_complete() and now.state != "complete" and _text(run, RESCUED_NAME) is None:
        yield about_run("data-changed", "invalid", Message("data-changed.lost", requests=now.planned - now.ok), FIX)


def certificate_beside(run: RunReader) -> Certificate | None:
    """The certificate that lies beside the database; None where it is gone or is none."""
    return certificate_in(run.folder)[0]


def certificate_in(folder: Path) -> tuple[Certificate | None, Message | None]:
    """(the certificate that lies in a folder, or what is wrong with it)."""
    document = _document(folder)
    if not isinstance(document, dict):
        return None, document
    said = {name: value for name, value in document.items() if name not in ("findings", "findings_left_out")}
    try:
        return Certificate.model_validate(said), None
    except ValidationError:
        return None, _NO_CERTIFICATE


def hash_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Name -> SHA-256 of those files that are there. Raises `StoreError`."""
    return {name: digest for name in names if (digest := hash_file(folder, name))}


def is_changed(folder: Path, names: Iterable[str]) -> bool:
    """Whether one of these files is not what the certificate in its folder says, or that is none. Raises
    `StoreError`."""
    issued, problem = certificate_in(folder)
    if issued is None:
        return problem != GONE
    return any(issued.data.get(name) != hash_file(folder, name) for name in names)


def uncertified(folder: Path) -> Literal["", "none", "late"]:
    """What the certificate in a folder lacks: there is none, or a later check issued it. Empty: nothing."""
    issued, _ = certificate_in(folder)
    if issued is None:
        return "none"
    return "" if any(it.by == "run" for it in issued.issues) else "late"


def _document(folder: Path) -> dict[str, Any] | Message:
    """certificate.json as data, or why it is none."""
    try:
        content = certificate_file(folder)
        if content is None:
            return GONE
        document: Any = json.loads(content.decode("utf-8"))
    except (StoreError, ValueError, RecursionError):
        return Message("data-changed.unreadable", file=CERTIFICATE_NAME)
    return cast("dict[str, Any]", document) if isinstance(document, dict) else _NO_CERTIFICATE


def _same_findings(run: RunReader) -> bool:
    document = _document(run.folder)
    if not isinstance(document, dict):
        return False
    shown, left_out = document.get("findings"), document.get("findings_left_out")
    if not isinstance(shown, list) or not isinstance(left_out, int):
        return False
    # As they were written, with their English text: what a reader sees was no more certified again than the numbers.
    try:
        kept = [json.loads(row) for (row,) in run.raw("SELECT json FROM finding ORDER BY rowid")]
    except (TypeError, ValueError, RecursionError):
        return False
    listed = cast("list[Any]", shown)
    return len(listed) + left_out == len(kept) and _present(listed) == _present(kept[: len(listed)])


def _present(value: Any) -> Any:
    """Without what is None, which documents leave out."""
    if isinstance(value, list):
        return [_present(it) for it in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: _present(it) for name, it in cast("dict[str, Any]", value).items() if it is not None}
    return value


def late(run: RunReader, issued: Certificate | None) -> Findings:
    """A run that was complete is certified when it ends; what became of it until a later time, nothing shows.

    Its certificate says when it was issued, and by what: one that is removed and issued again does not come of the run.
    A run whose every request is there is complete, whatever it says of having been interrupted.
    """
    state, certified = run.state(), issued or certificate_beside(run)
    if state.state != "complete":
        return
    ((last,),) = run.raw("SELECT max(started_at) FROM request")
    ended = state.finished_at if state.finished_at is not None else float(last or 0.0)
    seconds = (certified.checked_at if certified else time.time()) - ended
    if certified is None or seconds > _LATE_S or not any(it.by == "run" for it in certified.issues):
        after = (
            Message("data-changed.hours", hours=seconds / 3600)
            if seconds >= _LATE_S
            else Message("data-changed.minutes", minutes=max(1, math.ceil(seconds / 60)))
        )
        yield about_run(
            "data-changed",
            "suspect",
            Message("data-changed.late", after=after),
            Message("data-changed.fix_late"),
            seconds_after_the_end=round(seconds),
        )


# --- documents beside the data ---------------------------------------------------------------------------------------


def contradictions(run: RunReader) -> Iterator[Finding]:
    """Documents that do not say what the run's own records say: a doubt, since the numbers come from the database.

    Also those that were certified: a changed record may have been certified again.
    """
    if _text(run, RESCUED_NAME) is not None:
        message = Message("data-changed.rescued", file=RESCUED_NAME)
        yield about_run("data-changed", "suspect", message, FIX)
    if _text(run, EXPERIMENT_NAME) not in (None, run.experiment_yaml):
        yield about_run("data-changed", "suspect", Message("data-changed.experiment", file=EXPERIMENT_NAME), FIX)
    if _is_other_environment(run):
        yield about_run("data-changed", "suspect", Message("data-changed.environment", file=ENVIRONMENT_NAME), FIX)
    yield from _report(run)


def _text(run: RunReader, name: str) -> str | None:
    """A document's text, empty where it is not text; None where there is none."""
    try:
        return read_inside(run.folder, name, MAX_BYTES).decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return ""


def _is_other_environment(run: RunReader) -> bool:
    """Only where this version wrote it, after the last request: others may tell the same otherwise."""
    state, hosts = run.state(), run.hosts()
    if state.finished_at is None or state.state != "complete" or not hosts or hosts[-1].specmeter != __version__:
        return False
    text = _text(run, ENVIRONMENT_NAME)
    if text is None or text == environment_of(run):
        return False
    return all(text != environment_of(run, home=home) for home in _homes(text, environment_of(run, home="")))


def _homes(text: str, whole: str) -> list[str]:
    """What the writer's home folder may have been, which is `~` in its text and written out in the whole one: another
    one than the reader's does not make a run doubtful."""
    at = next((place for place, (one, other) in enumerate(zip(text, whole, strict=False)) if one != other), len(text))
    after = text[at + 1 : at + 2]
    if text[at : at + 1] != "~" or not after:
        return []
    written = whole[at : at + _LONGEST_HOME]
    ends = islice((end for end, char in enumerate(written) if char == after and end), _MAX_HOMES)
    return [re.sub(r"\\(\W|_)", r"\1", written[:end]) for end in ends]  # without the marks of Markdown


def _report(run: RunReader) -> Iterator[Finding]:
    seal = _report_seal(run)
    fix = Message("data-changed.fix_report", run=run.folder.name)
    if seal is None:
        return
    if not seal.intact:
        message = Message("data-changed.edited", file=REPORT_NAME)
        yield about_run("data-changed", "suspect", message, fix)
    elif seal.certificate is None or seal.certificate != run.certificate_sha256():
        message = Message("data-changed.earlier", file=REPORT_NAME)
        yield about_run("data-changed", "note", message, fix)


def _report_seal(run: RunReader) -> Seal | None:
    try:
        return read_seal(read_inside(run.folder, REPORT_NAME, _LONGEST_REPORT))
    except OSError:
        return None


def uncovered(run: RunReader, covered: Collection[str]) -> dict[str, str]:
    """Files in the run folder that are no part of the certified data and not specmeter's own, each with a remark."""
    own = {LOCK_NAME, CERTIFICATE_NAME, SIGNATURE_NAME, *DATABASE_FILES}
    names = (path.relative_to(run.folder).as_posix() for path in _entries(run.folder))
    found = islice((name for name in names if name not in own and name not in covered), _MAX_LISTED)
    return {name: oddity(run.folder, name) or (_remark(run) if name == REPORT_NAME else "") for name in found}


def _remark(run: RunReader) -> str:
    seal = _report_seal(run)
    return "without a checksum" if seal is None else "unchanged since it was written" if seal.intact else "edited"


def _entries(folder: Path) -> Iterator[Path]:
    """What lies in the run folder and among its logs."""
    for path in sorted(folder.iterdir()):
        if path.name == LOGS_NAME and path.is_dir() and not is_link(path):
            yield from sorted(path.iterdir())
        else:
            yield path

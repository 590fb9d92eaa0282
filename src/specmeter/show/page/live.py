"""Pages of a folder that a person looks at: what lies in it, how far its runs have come, two of them compared.

A page that is asked for often costs milliseconds, and is made at most every few seconds. The whole report of a run
takes seconds of processor time: it is made, and kept, while nothing in the folder is measured. A place is found by the
names that its folder lists, so that no address leads out of it, or through a link.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from specmeter.advise.schedule import read_advised
from specmeter.analysis.answer import is_uninformative
from specmeter.analysis.comparison import compare_runs, read_side
from specmeter.analysis.progress import Progress, read_progress
from specmeter.errors import UsageError
from specmeter.files import is_link
from specmeter.messages import Message
from specmeter.record import Estimate
from specmeter.show import comparison_report
from specmeter.show.listing import line_of
from specmeter.show.names import Names
from specmeter.show.page.advice_page import own
from specmeter.show.page.document import read_document
from specmeter.show.page.page import render, report_page, run_page
from specmeter.show.report import moment
from specmeter.show.run_tables import decimal
from specmeter.show.schedule_report import report_of
from specmeter.show.studies import needed
from specmeter.show.table import Cell, Table, estimate_cell, made
from specmeter.store import RunStore
from specmeter.store.database import DATABASE_NAME
from specmeter.store.environment import private
from specmeter.store.guarded import LOCK_NAME, is_run, is_written
from specmeter.store.locate import ADVISED, sort_of, written_at
from specmeter.text import duration, ratio

FRESH_S = 2.0
"""A page of what changes is not made again within."""
_KEPT = 16
"""Pages, of some 1 MB each where they have charts."""
_MAX_ENTRIES = 500
"""Entries of an index, the newest."""
_MAX_LOOKED_AT = 5_000
"""Folders in which a lock is looked for."""
_DEEPEST = 3
_LONGEST = 2_000
"""Characters of an address."""


class Page(NamedTuple):
    """What is answered."""

    status: int
    text: str = ""
    location: str = ""
    """Where it is instead."""


class Entry(NamedTuple):
    """What an index tells of a folder."""

    name: str
    href: str
    sort: str
    """`run`, `advice`, `schedule`, `study` or `parts`, in which runs lie."""
    state: str
    done: int = 0
    planned: int = 0
    aside: int = 0
    """Excluded blocks."""
    started: str = ""
    headline: Message | None = None
    problem: str = ""


class Pages:
    """The pages of a folder, or of a run, an advice, a schedule or a study; one is made at a time."""

    def __init__(self, root: Path, languages: Sequence[str]) -> None:
        self._root = root
        self._languages = languages
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[object, Page]] = OrderedDict()
        self._entries: dict[Path, tuple[int, Entry]] = {}

    def page(self, address: str) -> Page:
        """The page at an address, as a browser asks for it."""
        path, _, query = address.partition("?")
        if not path.startswith("/") or len(address) > _LONGEST:
            return Page(404)
        names = [os.fsdecode(unquote_to_bytes(part)) for part in path[1:].split("/")]
        if names[-1]:
            if names != ["compare"] and self._place([name for name in names if name]) is None:
                return self._missing()
            return Page(302, location="".join(f"/{quote(os.fsencode(name), safe='')}" for name in names if name) + "/")
        with self._lock:
            if names == ["compare", ""] and child(self._root, "compare") is None:
                return self._compared(query)
            place = self._place(names[:-1])
            return self._missing() if place is None else self._shown(place, names[:-1])

    def _place(self, names: Sequence[str]) -> Path | None:
        place: Path | None = self._root
        for name in names if len(names) <= _DEEPEST else ("",):
            place = None if place is None else child(place, name)
        return place

    def _shown(self, place: Path, names: Sequence[str]) -> Page:
        key = "/".join(names)
        if sort_of(place) is None:
            return self._fresh(key, lambda: self._index(place, names))
        if is_run(place) and is_written(place):
            return self._fresh(key, lambda: self._live(names, progress=read_progress(place)))
        return self._whole(key, _stamp(place), names, lambda: self._report(place, names))

    def _fresh(self, key: str, make: Callable[[], Page]) -> Page:
        """A page of what changes."""
        at, page = self._kept.get(key, (None, Page(404)))
        if isinstance(at, float) and time.monotonic() - at < FRESH_S:
            return page
        page = self._made(make)
        return self._keep(key, time.monotonic(), page)

    def _whole(self, key: str, stamp: object, names: Sequence[str], make: Callable[[], Page]) -> Page:
        """A page that takes seconds: made once, while nothing is measured."""
        if (found := self._kept.get(key)) is not None and found[0] == stamp:
            return found[1]
        if is_measured(self._root):
            return self._live(names, waits=True)
        page = self._made(make)
        return self._keep(key, stamp, page) if page.status == 200 else page

    def _keep(self, key: str, stamp: object, page: Page) -> Page:
        self._kept[key] = stamp, page
        self._kept.move_to_end(key)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return page

    def _made(self, make: Callable[[], Page]) -> Page:
        try:
            return make()
        except UsageError as error:
            return self._live((), status=500, problem=private(str(error)))
        except Exception as error:  # what a stranger made may be anything
            return self._live((), status=500, problem=f"{type(error).__name__}: {error}"[:_LONGEST])

    def _report(self, place: Path, names: Sequence[str]) -> Page:
        return Page(200, whole_page(place, self._languages, "/" if names else None))

    def _missing(self) -> Page:
        return self._live((), status=404, missing=True)

    def _index(self, place: Path, names: Sequence[str]) -> Page:
        found = sorted(((_stamp(it), it) for it in children(place)), reverse=True)[:_MAX_ENTRIES]
        entries = [self._entry(it, stamp) for stamp, it in found]
        entries.sort(key=lambda it: it.state not in ("measuring", "checking"))
        return self._live(names, entries=entries)

    def _entry(self, place: Path, stamp: int) -> Entry:
        found = self._entries.get(place)
        if found is not None and found[0] == stamp and found[1].sort != "parts" and not is_written(place):
            return found[1]
        try:
            entry = entry_of(place)
        except UsageError as error:
            entry = Entry(
                place.name, _href(place), sort_of(place) or "parts", "unreadable", problem=private(error.message)
            )
        if entry.state not in ("measuring", "checking"):
            self._entries[place] = stamp, entry
        return entry

    def _compared(self, query: str) -> Page:
        with suppress(ValueError):
            chosen = [value for key, value in parse_qsl(query, max_num_fields=8) if key == "run"]
            found = (child(self._root, os.fsdecode(unquote_to_bytes(name))) for name in dict.fromkeys(chosen))
            places = [it for it in found if it is not None and is_run(it)]
            places.sort(key=_stamp)  # the older is the reference
            if len(places) == len(chosen) == 2:
                stamp = tuple(map(_stamp, places))
                return self._whole("?" + "?".join(chosen), stamp, ("compare",), lambda: self._comparison(places))
        return self._live(("compare",), status=404, problem=Message("live.two"))

    def _comparison(self, places: Sequence[Path]) -> Page:
        first, second = map(read_side, places)
        found = compare_runs(first, second, measure="rate", threshold=0.02)
        return Page(200, report_page(comparison_report.report([found]), self._languages, index="/"))

    def _live(
        self,
        names: Sequence[str],
        *,
        status: int = 200,
        progress: Progress | None = None,
        entries: Sequence[Entry] | None = None,
        problem: str | Message = "",
        waits: bool = False,
        missing: bool = False,
    ) -> Page:
        """A page that asks for itself again."""
        title = names[-1] if names else self._root.resolve().name
        text = render(
            "live.html",
            self._languages,
            (),
            live=True,
            title=f"{title} · specmeter",
            name=title,
            index="/" if names else None,
            progress=progress,
            table=None if progress is None else interim(progress),
            worst=None if progress is None else max(progress.aside, key=lambda it: it.mean_percent, default=None),
            now=None if progress is None or progress.arm_id is None else Names(progress.asked).in_full(progress.arm_id),
            duration=duration,
            entries=entries,
            comparable=sum(it.sort == "run" and it.state == "complete" for it in entries or ()) > 1,
            problem=problem,
            waits=waits,
            missing=missing,
        )
        return Page(status, text)


def children(place: Path) -> list[Path]:
    """What a folder holds that has a page."""
    try:
        names = [] if is_run(place) else list(islice(os.scandir(place), _MAX_LOOKED_AT))
    except OSError:
        return []
    return [place / it.name for it in names if it.is_dir(follow_symlinks=False) and _has_page(place / it.name)]


def child(place: Path, name: str) -> Path | None:
    """The one of that name."""
    with suppress(OSError, ValueError):
        if not is_run(place) and name in {it.name for it in os.scandir(place)} and _has_page(place / name):
            return place / name
    return None


def _has_page(place: Path) -> bool:
    """No link has, which may lead anywhere."""
    return not is_link(place) and place.is_dir() and (sort_of(place) is not None or any(map(is_run, _within(place))))


def _within(folder: Path) -> list[Path]:
    with suppress(OSError):
        return list(islice(folder.iterdir(), _MAX_ENTRIES))
    return []


def is_measured(folder: Path) -> bool:
    """Whether a process writes to a run in the folder, or in what it is made of."""
    locks = (lock for deep in ("", "*/", "*/*/") for lock in folder.glob(f"{deep}{LOCK_NAME}"))
    return any(is_written(lock.parent) for lock in islice(locks, _MAX_LOOKED_AT))


def _stamp(place: Path) -> int:
    """What changes when a folder is written to; of a run the time of its database."""
    with suppress(OSError):
        return (place / DATABASE_NAME).lstat().st_mtime_ns
    return written_at(place)


def _href(place: Path) -> str:
    return quote(os.fsencode(place.name), safe="")


def entry_of(place: Path) -> Entry:
    """What an index tells of a folder, in milliseconds. Raises `StoreError` or `UsageError` for a damaged one."""
    told: dict[str, Any] = {}
    sort = sort_of(place) or "parts"
    if sort == "run":
        with RunStore.open(place, readonly=True) as store:
            state, told["aside"] = store.state(), len(store.disturbances())
        told |= {"state": state.state_now(written=is_written(place)), "done": state.ok, "planned": state.planned}
        if state.started_at is not None:
            told["started"] = moment(state.started_at)
    elif sort in ADVISED:
        line = line_of(place)
        told = {"headline": line.headline, "started": moment(line.made_at)}
        told["state"] = "complete" if line.finished else "partial"
    else:
        told["state"] = "measuring" if any(map(is_written, _within(place))) else ""
    return Entry(place.name, _href(place), sort, **told)


def whole_page(place: Path, languages: Sequence[str], index: str | None) -> str:
    """The page that `specmeter report` writes of a folder; one of an advice leads to those of its stages.

    Raises `StoreError` or `UsageError` for a damaged one.
    """
    sort = sort_of(place)
    if sort in ADVISED:
        links = {it.name: f"{_href(it)}/" for it in children(place)}
        return report_page(report_of(read_advised(place), own(place), links), languages, index=index)
    if sort == "study":
        with tempfile.TemporaryDirectory(prefix="specmeter-") as scratch:
            written, *_ = needed(str(place)).shown(place, languages).page(Path(scratch) / "study.html", False)
            return written.read_text("utf-8")
    return run_page(read_document(place), languages, index=index)


def interim(progress: Progress) -> Table:
    """The arms of a run so far."""
    names = Names(progress.asked)
    return made(
        "interim",
        progress.arms,
        ("arm", "text", lambda it: Cell(names.in_full(it.arm_id), id=it.arm_id)),
        ("done", "number", lambda it: Cell(f"{it.done}/{it.planned}", it.done)),
        ("rate_so_far", "number", lambda it: decimal(it.tokens_per_second)),
        ("speedup_so_far", "number", lambda it: _so_far(it.speedup, it.role)),
    )


def _so_far(speedup: Estimate | None, role: str) -> Cell:
    """With its interval where that says anything yet."""
    if speedup is None:
        return Cell(Message("cell.baseline") if role == "baseline" else "-")
    if speedup.low is None or speedup.high is None or is_uninformative(speedup.low, speedup.high):
        return Cell(f"~{ratio(speedup.point)}", speedup.point)
    cell = estimate_cell(speedup, 2)
    return Cell(f"~{cell.text}", speedup.point, speedup)

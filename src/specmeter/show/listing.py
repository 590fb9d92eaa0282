"""An advice or a schedule in a line of a list, read in milliseconds: not examined, but as it was certified."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from specmeter.advise.advice import read_advice
from specmeter.advise.schedule import clients_of, folder_of, read_schedule
from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.show import schedule_report
from specmeter.show.advice_words import headline, names_of
from specmeter.store.integrity import is_changed
from specmeter.store.locate import ADVICE_NAME, SCHEDULE_NAME, sort_of


class Line(NamedTuple):
    """What a list says of it."""

    headline: Message
    made_at: float
    finished: bool


def line_of(folder: Path) -> Line:
    """Raises `StoreError` or `UsageError` for one that is damaged, and for one that was changed."""
    if sort_of(folder) == "schedule":
        schedule = read_schedule(folder, examine=False)
        parts = [folder / folder_of(clients_of(it)) for it in schedule.advices]
        changed = any(is_changed(it, [ADVICE_NAME]) for it in parts) or is_changed(folder, [SCHEDULE_NAME])
        line = Line(schedule_report.headline(schedule), schedule.made_at, schedule.finished)
    else:
        advice = read_advice(folder)
        changed = is_changed(folder, [ADVICE_NAME])
        line = Line(headline(advice, names_of(advice)), advice.made_at, advice.finished)
    if changed:
        raise UsageError(str(Message("advised.why.changed")), fix="ask again with `specmeter advise`")
    return line

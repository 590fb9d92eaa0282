"""The course of an advice: screen, race, confirmation; within a budget; it resumes where it stopped.

specmeter-runs/advise-dense-20261121-201500/
    advice.json     what was asked, what became of every arm, and what is advised: written again after every block
    grid.yaml       the experiment whose arms are the grid
    settings/       ordinary run folders; this one if settings of the engine are tried as well
    screen/
    race/
    confirm/

Whatever is decided is decided by what lies in these folders: a course that was interrupted reads them and continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.advice import Advice, AdviceQuestion
from specmeter.advise.budget import refuse_small_budget
from specmeter.advise.confirm import FIRST, confirm
from specmeter.advise.duel import by_prediction, duel
from specmeter.advise.folder import begun
from specmeter.advise.race import race, reserved_s
from specmeter.advise.screening import screen, screen_answers
from specmeter.advise.session import AdviseSession
from specmeter.advise.settings import settle, to_try
from specmeter.advise.verify_advice import certify_advice, examined
from specmeter.models.reference import ONLINE, Fetching
from specmeter.store import RunStore
from specmeter.store.locate import ADVICE_NAME

if TYPE_CHECKING:
    from specmeter.advise.advice import LeftOutDraft
    from specmeter.advise.observer import AdviseObserver
    from specmeter.experiments.file import LoadedExperiment


def advise(
    asked: AdviceQuestion,
    grid: LoadedExperiment,
    folder: Path,
    observer: AdviseObserver,
    *,
    left_out: Sequence[LeftOutDraft] = (),
    fetching: Fetching = ONLINE,
) -> Advice:
    """Find the best arm of a grid, or that none helps; or continue with it where `folder` was left.

    An advice that was started keeps the grid that it was started with. Ctrl-C ends it with the best answer so far,
    which says that it is interrupted. Raises `UsageError` for a budget that is too small, `ExperimentError`,
    `ModelError`,
    `StoreError` for a folder that does not belong to this question or to these models, and `EngineError` where plain
    decoding does not work.
    """
    if not (folder / ADVICE_NAME).is_file():
        refuse_small_budget(asked, grid, offline=fetching.offline)
    advice = begun(asked, grid, folder, left_out)
    if advice.finished:
        return examined(advice, folder)
    wide = asked.wide and not advice.settings
    session = AdviseSession(advice, folder, observer, trial=to_try if wide else None, fetching=fetching)
    try:
        if wide:
            settle(session)
            session.servers.close()
            session = AdviseSession(session.advice, folder, observer, fetching=fetching)
        if session.whole_answers:
            duel(session, screen_answers(session))
        else:
            _race_and_confirm(session)
        if session.advice.finished:  # otherwise more time would decide it, and the same command continues
            certify_advice(session.advice, folder)
    except KeyboardInterrupt:
        session.interrupted()
    finally:
        session.servers.close()
    return session.advice


def _race_and_confirm(session: AdviseSession) -> None:
    """Text that is the same all along, or several clients: what is promising is raced, and the winner confirmed."""
    screen(session)
    raced = race(session)
    if not raced and any(it.stage == "race" for it in session.advice.stages):
        session.answer("undecided", "predicted", None, None, finished=True, why_undecided="busy")
    elif not raced and session.left() < reserved_s(session) and not RunStore.exists(session.folder / FIRST):
        by_prediction(session)
    else:
        confirm(session, raced)

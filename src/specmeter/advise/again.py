"""Whether an older advice still holds: its arm is confirmed again, on today's machine, build and models.

Nothing is looked for a second time: if the advice does not hold, what is best now is another question.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from specmeter.advise.advice import DRAFTS, GRID_NAME, Advice, Again, Changed, read_advice
from specmeter.advise.confirm import DECISIONS, Confirmed, confirmed
from specmeter.advise.duel import found_of, measure
from specmeter.advise.folder import beginning
from specmeter.advise.session import AdviseSession
from specmeter.advise.stage import StagePlan
from specmeter.advise.verify_advice import certify_advice, examined
from specmeter.analysis.answer import least_units
from specmeter.analysis.reading import read_run
from specmeter.errors import StoreError, UsageError
from specmeter.experiments.file import load, parse
from specmeter.models.reference import ONLINE, Fetching
from specmeter.store import RunStore
from specmeter.store.locate import ADVICE_NAME

if TYPE_CHECKING:
    from specmeter.advise.advice import Decision, StageRun
    from specmeter.advise.confirm import Ruling
    from specmeter.advise.observer import AdviseObserver
    from specmeter.record import ModelIdentity

Holds = Literal["holds", "does-not-hold", "cannot-tell"]
NAME = "confirm"


def decided(before: Path) -> tuple[Advice, str, StageRun]:
    """An advice, its configuration and the stage that confirmed that. Raises `UsageError` for an advice that is
    undecided or changed."""
    old = examined(read_advice(before), before)
    confirmation = next((it for it in reversed(old.stages) if it.folder == old.confirmation), None)
    if old.why_undecided == "changed":
        raise UsageError(
            f"{before}: its numbers are not those that its confirmation measured",
            fix="ask for a new advice; `specmeter check` names what was changed in a stage's folder",
        )
    if not old.finished or old.best is None or confirmation is None or old.decision == "undecided":
        raise UsageError(
            f"{before}: this advice is undecided, so there is nothing to check again",
            fix="finish it with the command that started it, or ask for a new one",
        )
    return old, old.best, confirmation


def again(
    before: Path,
    folder: Path,
    observer: AdviseObserver,
    *,
    fetching: Fetching = ONLINE,
) -> Advice:
    """Confirm the advice in the folder `before` again, into `folder`; or continue with that.

    Ctrl-C ends it like `advise`. Raises `UsageError` for an advice that was not finished, `ModelError` where its models
    are gone, `StoreError`, and `EngineError` where nothing can be measured.
    """
    old, arm, confirmation = decided(before)
    advice = _begun(old, before, folder, confirmation.certificate_sha256)
    if advice.finished:
        return examined(advice, folder)
    session = AdviseSession(advice, folder, observer, fetching=fetching)
    with RunStore.open(before / confirmation.folder, readonly=True) as store:
        experiment = parse(store.experiment_yaml)
        turns, blocks = experiment.only.turns, experiment.design.blocks
        plan = StagePlan(
            "confirm",
            NAME,
            (*session.with_baselines([arm]), arm),
            tuple(prompt.id for prompt in store.prompts()),
            {"blocks": blocks if turns else least_units(1), **(session.keeping if turns else session.warming)},
            turns,
            experiment.generation.max_tokens,
        )
    try:
        if turns:
            found = found_of(session, measure(session, plan), [arm], before / "screen", place=NAME)[arm].told
        else:
            session.carry_out(plan, thorough=True)
            found = confirmed(read_run(folder / NAME), NAME, arm, old.asked.goal, looks=1)
        _finish_again(session, old, found)
        certify_advice(session.advice, folder)
    except KeyboardInterrupt:
        session.interrupted()
    finally:
        session.servers.close()
    return session.advice


def _begun(old: Advice, before: Path, folder: Path, certificate: str | None) -> Advice:
    if (folder / ADVICE_NAME).is_file():
        there = read_advice(folder)
        if there.again_of != certificate:
            raise StoreError(f"{folder}: contains another advice", fix="choose another folder with --out")
        return there
    advice = Advice(
        asked=old.asked,
        made_at=time.time(),
        basis="confirmed",
        settings=old.settings,
        outcomes=tuple(it.model_copy(update={"confirmed": None}) for it in old.outcomes if it.confirmed is not None),
        again_of=certificate,
    )
    return beginning(advice, load(str(before / GRID_NAME)), folder)


def _finish_again(session: AdviseSession, old: Advice, found: Confirmed) -> None:
    decision = DECISIONS.get(found.ruling, "undecided")
    code = "winner" if decision in DRAFTS else "open"
    mine = {"confirmed": found.speedup, "code": code}
    session.set_outcomes([it.model_copy(update=mine) for it in session.advice.outcomes if it.arm_id == found.arm_id])
    session.answer(
        decision,
        "confirmed",
        found.arm_id,
        found.speedup,
        found.verdict,
        doubts=found.doubts,
        tau=found.tau,
        over_prompts=found.over_prompts,
        confirmation=NAME,
        finished=True,
        why_undecided=found.why_open if decision == "undecided" else "",
        again=Again(
            holds=holds(old.decision, found.ruling),
            before=old.speedup,
            made_at=old.made_at,
            changed=tuple(changes(old, session.advice, _draft(old, session))),
        ),
    )


def holds(decision: Decision, ruling: Ruling) -> Holds:
    """Whether what was decided is what is found now."""
    now = DECISIONS.get(ruling)
    return "cannot-tell" if now is None else "holds" if (now in DRAFTS) == (decision in DRAFTS) else "does-not-hold"


def _draft(old: Advice, session: AdviseSession) -> ModelIdentity | None:
    """The draft model of the arm that was advised, as it is now."""
    return None if old.arm is None else session.whole.work.models.get(old.arm.draft or "")


def changes(old: Advice, new: Advice, draft: ModelIdentity | None) -> Iterator[Changed]:
    """What an advice rests on, and is not what it was; `draft` is that of its arm now."""
    if old.host is not None and new.host is not None:
        if (old.host.hostname_sha256, old.host.cpu) != (new.host.hostname_sha256, new.host.cpu):
            yield Changed(what="host", before=old.host.cpu, now=new.host.cpu)
        if old.host.specmeter != new.host.specmeter:
            yield Changed(what="specmeter", before=old.host.specmeter, now=new.host.specmeter)
    if old.engine is not None and new.engine is not None:
        was, is_ = old.engine, new.engine
        if (was.kind, was.binary_sha256, was.libraries) != (is_.kind, is_.binary_sha256, is_.libraries):
            before, now = f"{was.kind} {was.version} {was.build}", f"{is_.kind} {is_.version} {is_.build}"
            if before == now:
                before, now = (f"{it.version}, {it.binary_sha256[:12]}" for it in (was, is_))
            yield Changed(what="engine", before=before, now=now)
    models: tuple[tuple[Literal["target", "draft"], ModelIdentity | None, ModelIdentity | None], ...] = (
        ("target", old.target, new.target),
        ("draft", old.draft, draft),
    )
    for what, was, is_ in models:
        if was is not None and is_ is not None and was.sha256 != is_.sha256:
            yield Changed(what=what, before=was.sha256[:12], now=is_.sha256[:12])

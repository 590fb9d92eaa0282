"""The course of an advice: screen, race, confirmation; within a budget; it resumes where it stopped.

specmeter-runs/advise-dense-20261121-201500/
    advice.json     what was asked, what became of every arm, and what is advised: written anew after every block
    grid.yaml       the experiment whose arms are the grid
    settings/       ordinary run folders; this one where settings of the engine are tried as well
    screen/
    race/
    confirm/

Whatever is decided is decided by what lies in these folders: a course that was interrupted reads them and goes on.

The course of a schedule: one advice after the other, the fewest clients first, within one budget.

Each load may take an equal share of what is left of the budget, so what one did not need goes to those behind it.

The folder of an advice: which one a question goes on in, and what it is begun with.

Whether an older advice still holds: its arm is confirmed anew, on today's machine, build and models.

Nothing is looked for a second time: where it does not hold, what is best now is another question.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal

from specmeter.advise.advice import (
    DRAFTS,
    GRID_NAME,
    Advice,
    AdviceQuestion,
    Again,
    Changed,
    Fate,
    read_advice,
    write_advice,
)
from specmeter.advise.confirm import DECISIONS, FIRST, Confirmed, confirm, confirmed
from specmeter.advise.duel import by_prediction, duel, found_of, in_turn, measure, promise
from specmeter.advise.examination import certify_advice, examined
from specmeter.advise.question import ROUNDS, grid_of, once
from specmeter.advise.race import failed_arms, next_block, race, reserved_s, settle, to_try
from specmeter.advise.schedule import (
    Schedule,
    certify_schedule,
    clients_of,
    folder_of,
    read_advised,
    read_schedule,
    write_schedule,
)
from specmeter.advise.screen import choose, explore, look, owed_to_luck, pilots
from specmeter.advise.session import AdviseSession, Silent, StagePlan, prepared_for
from specmeter.analysis.answer import least_units
from specmeter.analysis.reading import read_run
from specmeter.errors import EngineError, StoreError, UsageError
from specmeter.experiments.experiment import name_of
from specmeter.experiments.file import load, parse
from specmeter.files import write_inside
from specmeter.host.telemetry import wait_for_calm
from specmeter.laboratory.duration import TYPICAL_ANSWER
from specmeter.laboratory.plan import make_plan
from specmeter.measure.calm import disturbance, gate_of
from specmeter.models.reference import ONLINE, Fetching
from specmeter.numbers.estimates import above, bare, scaled
from specmeter.numbers.whole_answers import LEAST
from specmeter.record.measured import threads_beside
from specmeter.store import RunStore
from specmeter.store.locate import (
    ADVICE_NAME,
    ADVISED,
    RUNS_FOLDER,
    find_advice,
    find_folders,
    new_folder,
    sort_of,
)
from specmeter.text import counted, duration

if TYPE_CHECKING:
    from specmeter.advise.advice import Decision, LeftOutDraft
    from specmeter.advise.candidates import Candidates
    from specmeter.advise.confirm import Ruling
    from specmeter.advise.session import AdviseObserver
    from specmeter.experiments.file import LoadedExperiment
    from specmeter.experiments.schedule import Turn
    from specmeter.laboratory.run import Prepared
    from specmeter.record import Disturbance, ModelIdentity
    from specmeter.store import RunReader


def choose_folder(
    asked: AdviceQuestion, *, out: Path | None = None, new: bool = False, runs: Path = RUNS_FOLDER
) -> tuple[Path, bool]:
    """(folder, whether it is resumed): `out`, or the latest unfinished advice or schedule that was asked the
    same, whatever the budget, or a new folder. Raises `StoreError` where a `new` one is wanted in a folder that holds
    one, and for a folder of another question."""
    name = f"{'schedule' if asked.clients else 'advise'}-{name_of(asked.target or asked.from_file or 'advice')}"
    if out is not None:
        held = _held(out)
        if held is None:
            return out, False
        if new:
            raise StoreError(f"{out}: holds an advice already, and --new asks for another", fix="name another folder")
        if not _same_question(held().asked, asked):
            raise StoreError(
                f"{out}: holds the advice of another question",
                fix="repeat the command that it was begun with, or name another folder with --out",
            )
        return out, True
    for folder in (
        () if new else reversed(find_folders("schedule" if asked.clients else "advice", runs=runs, name=name))
    ):
        before = _readable(folder)
        if (
            before is not None
            and not before.finished
            and before.again_of is None
            and _same_question(before.asked, asked)
        ):
            return folder, True
    return new_folder(name, runs), False


def _held(folder: Path) -> Callable[[], Advice | Schedule] | None:
    """How to read what a folder holds; None where it holds neither an advice nor a schedule."""
    return partial(read_advised, folder, examine=False) if sort_of(folder) in ADVISED else None


def choose_again(
    before: str | None = None, *, out: Path | None = None, runs: Path = RUNS_FOLDER
) -> tuple[Path, Path, bool]:
    """(folder of an advice or a schedule, folder to confirm it in anew, whether that was begun): the one that is
    named, or the latest that was finished; an unfinished confirmation of it is resumed. Raises `StoreError` where
    there is none."""
    folders = sorted(find_folders(*ADVISED, runs=runs), key=lambda it: it.stat().st_mtime_ns)
    advices = {it: found for it in folders if (found := _readable(it)) is not None}
    if before is not None:
        older = find_advice(before, runs)
    else:
        older = next((it for it in reversed(advices) if advices[it].finished and advices[it].again_of is None), None)
        if older is None:
            raise StoreError(f"{runs}: holds no finished advice", fix="ask for one with `specmeter advise TARGET.gguf`")
    if out is not None:
        return older, out, _held(out) is not None
    name = f"again-{older.name}"
    for folder in reversed(find_folders(*ADVISED, runs=runs, name=name)):
        if folder in advices and not advices[folder].finished:
            return older, folder, True
    return older, new_folder(name, runs), False


def _readable(folder: Path) -> Advice | Schedule | None:
    held = _held(folder)
    try:
        return None if held is None else held()
    except UsageError:
        return None


def _same_question(one: AdviceQuestion, other: AdviceQuestion) -> bool:
    return one.model_copy(update={"budget_s": other.budget_s}) == other


def begun(asked: AdviceQuestion, grid: LoadedExperiment, folder: Path, left_out: Sequence[LeftOutDraft]) -> Advice:
    """The advice of a folder, or a new one in it."""
    if (folder / ADVICE_NAME).is_file():
        before = read_advice(folder)
        if not _same_question(before.asked, asked):
            raise StoreError(f"{folder}: holds the advice of another question", fix="name another folder with --out")
        return before if before.finished else before.model_copy(update={"asked": asked})
    advice = Advice(
        asked=asked,
        made_at=time.time(),
        finished=False,
        decision="undecided",
        basis="predicted",
        arm=None,
        speedup=None,
        verdict=None,
        left_out=tuple(left_out),
    )
    return beginning(advice, grid, folder)


def beginning(advice: Advice, grid: LoadedExperiment, folder: Path) -> Advice:
    """Begin an advice in a new folder, with its grid. Raises `StoreError` where that cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_inside(folder, GRID_NAME, grid.text.encode())
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be written ({error.strerror})", fix="name another folder with --out"
        ) from None
    write_advice(advice, folder)
    return advice


Holds = Literal["holds", "does-not-hold", "cannot-tell"]

NAME = "confirm"


def again(
    before: Path,
    folder: Path,
    observer: AdviseObserver,
    *,
    fetching: Fetching = ONLINE,
) -> Advice:
    """Confirm the advice in the folder `before` anew, into `folder`; or go on with that.

    Ctrl-C ends it like `advise`. Raises `UsageError` for an advice that was not finished, `ModelError` where its models
    are gone, `StoreError`, and `EngineError` where nothing can be measured.
    """
    old = examined(read_advice(before), before)
    arm = old.best
    confirmation = next((it for it in reversed(old.stages) if it.folder == old.confirmation), None)
    if old.why_undecided == "changed":
        raise UsageError(
            f"{before}: is not what was measured: its numbers are not those of its confirmation, or that was changed",
            fix="ask anew; `specmeter check` names what was changed in a stage's folder",
        )
    if not old.finished or arm is None or confirmation is None or old.decision == "undecided":
        raise UsageError(
            f"{before}: this advice decided nothing that could hold again",
            fix="finish it with the command that it was begun with, or ask anew",
        )
    advice = _begun(old, before, folder, confirmation.certificate_sha256)
    if advice.finished:
        return examined(advice, folder)
    ledger = AdviseSession(advice, folder, observer, fetching=fetching)
    with RunStore.open(before / confirmation.folder, readonly=True) as store:
        experiment = parse(store.experiment_yaml)
        turns, blocks = experiment.only.turns, experiment.design.blocks
        plan = StagePlan(
            "confirm",
            NAME,
            (*ledger.with_baselines([arm]), arm),
            tuple(prompt.id for prompt in store.prompts()),
            (
                f"design.blocks={blocks if turns else least_units(1)}",
                "design.probe=off",
                "design.controls=false",
                *(ledger.keeping if turns else (ledger.warming,)),
                f"only.turns={json.dumps(turns)}",
                f"generation.max_tokens={experiment.generation.max_tokens}",
            ),
        )
    try:
        if turns:
            found = found_of(ledger, measure(ledger, plan), [arm], before / "screen", place=NAME)[arm].told
        else:
            ledger.carry_out(plan, thorough=True)
            found = confirmed(read_run(folder / NAME), NAME, arm, old.asked.goal, looks=1)
        _finish_again(ledger, old, found)
        certify_advice(ledger.advice, folder)
    except KeyboardInterrupt:
        ledger.interrupted()
    finally:
        ledger.servers.close()
    return ledger.advice


def _begun(old: Advice, before: Path, folder: Path, certificate: str | None) -> Advice:
    if (folder / ADVICE_NAME).is_file():
        there = read_advice(folder)
        if there.again_of != certificate:
            raise StoreError(f"{folder}: holds another advice", fix="name another folder with --out")
        return there
    fates: list[Fate] = [it for it in old.fates if it.confirmed is not None]
    advice = Advice(
        asked=old.asked,
        made_at=time.time(),
        finished=False,
        decision="undecided",
        basis="confirmed",
        arm=None,
        speedup=None,
        verdict=None,
        settings=old.settings,
        fates=tuple(it.model_copy(update={"confirmed": None}) for it in fates),
        again_of=certificate,
    )
    return beginning(advice, load(str(before / GRID_NAME)), folder)


def _finish_again(ledger: AdviseSession, old: Advice, found: Confirmed) -> None:
    decision = DECISIONS.get(found.ruling, "undecided")
    ledger.set_fates(
        [
            it.model_copy(update={"confirmed": found.speedup, "code": "winner" if decision in DRAFTS else "open"})
            for it in ledger.advice.fates
            if it.arm_id == found.arm_id
        ]
    )
    ledger.answer(
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
            changed=tuple(changes(old, ledger.advice, _draft(old, ledger))),
        ),
    )


def holds(decision: Decision, ruling: Ruling) -> Holds:
    """Whether what was decided is what is found now."""
    now = DECISIONS.get(ruling)
    return "cannot-tell" if now is None else "holds" if (now in DRAFTS) == (decision in DRAFTS) else "does-not-hold"


def _draft(old: Advice, ledger: AdviseSession) -> ModelIdentity | None:
    """The draft model of the arm that was advised, as it is now."""
    return None if old.arm is None else ledger.whole.work.models.get(old.arm.draft or "")


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


__all__ = ["Silent", "advise", "choose_folder"]

MOST_RACED = 3
"""Arms beside plain decoding, and one more where there are several kinds of text: most time of a race goes into arms
within a hair of one another."""


def advise(
    asked: AdviceQuestion,
    grid: LoadedExperiment,
    folder: Path,
    observer: AdviseObserver,
    *,
    left_out: Sequence[LeftOutDraft] = (),
    fetching: Fetching = ONLINE,
) -> Advice:
    """Find the best arm of a grid, or that none helps; or go on with it where `folder` was left.

    An advice that was begun keeps the grid that it was begun with. Ctrl-C ends it with the best answer so far, which
    says that it is interrupted. Raises `UsageError` for a budget that is too small, `ExperimentError`, `ModelError`,
    `StoreError` for a folder that does not belong to this question or to these models, and `EngineError` where plain
    decoding does not work.
    """
    if not (folder / ADVICE_NAME).is_file():
        refuse_small_budget(asked, grid, offline=fetching.offline)
    advice = begun(asked, grid, folder, left_out)
    if advice.finished:
        return examined(advice, folder)
    wide = asked.wide and not advice.settings
    changes = to_try(folder) if wide else ()
    ledger = AdviseSession(advice, folder, observer, changes=changes, fetching=fetching)
    try:
        if wide:
            settle(ledger)
            ledger.servers.close()
            ledger = AdviseSession(ledger.advice, folder, observer, fetching=fetching)
        if ledger.whole_answers:
            duel(ledger, screen_answers(ledger))
        else:
            _race_and_confirm(ledger)
        if ledger.advice.finished:  # otherwise more time would decide it, and the same command goes on
            certify_advice(ledger.advice, folder)
    except KeyboardInterrupt:
        ledger.interrupted()
    finally:
        ledger.servers.close()
    return ledger.advice


def _race_and_confirm(ledger: AdviseSession) -> None:
    """Text that is the same all along, or several clients: what is promising is raced, and the winner confirmed."""
    screen(ledger)
    raced = race(ledger)
    if not raced and any(it.stage == "race" for it in ledger.advice.stages):
        ledger.answer("undecided", "predicted", None, None, finished=True, why_undecided="busy")
    elif not raced and ledger.left() < reserved_s(ledger) and not RunStore.exists(ledger.folder / FIRST):
        by_prediction(ledger)
    else:
        confirm(ledger, raced)


def screen(ledger: AdviseSession) -> None:
    """Plain decoding on the prompts to search by, and what every arm of the grid is expected to gain on them."""
    whole = ledger.searched
    baselines = [arm.id for arm in whole.work.arms.values() if arm.role == "baseline"]
    plan = StagePlan(
        "screen",
        "screen",
        (*baselines, *pilots(whole)),
        ledger.halves.search,
        (
            "design.blocks=1",
            "design.disturbed=keep",
            "design.probe=off",
            "design.controls=false",
            *ledger.keeping,
        ),
    )

    def then(store: RunStore) -> None:
        refuse_failing(ledger, store)
        refuse_busy(ledger, store)
        price(ledger, whole, store)

    ledger.carry_out(plan, then=then)
    shortlist(ledger, whole)


def price(ledger: AdviseSession, whole: Prepared, store: RunStore) -> None:
    """What steps cost, and what draft models say of the answers, on record of a screen."""
    host = None if whole.work.simulated else whole.host
    explore(whole, store, host=host, budget_s=ledger.advice.asked.budget_s, tell=ledger.observer.looking_ahead)


SCREENED = 0.3
"""Share of the budget after which no further prompt is answered to search by."""
FEWEST_SCREENED = 2
MOST_SCREENED = 8
FEWEST_ANSWERS = FEWEST_SCREENED + 2 * LEAST
"""To search by, and of one configuration and its baseline."""
UNSURE = 1.5
"""How far an estimate of the time may be off, before anything was measured."""


def screen_answers(ledger: AdviseSession) -> float:
    """Write whole answers without speculation, one prompt of each type after the other, as many as a share of the
    budget allows, and price every configuration on them. Seconds that an answer takes, in the median."""
    prompts = in_turn([it for it in ledger.prompts if it.id in set(ledger.halves.search)])
    kinds = len({it.kind for it in ledger.prompts})
    prompts = prompts[: max(MOST_SCREENED, kinds)]
    whole = ledger.on(prompts)
    baselines = [arm.id for arm in whole.work.arms.values() if arm.role == "baseline"]
    plan = StagePlan(
        "screen",
        "screen",
        (*baselines, *(() if ledger.advice.asked.urls else pilots(whole))),
        tuple(prompts),
        (
            f"design.blocks={len(prompts)}",
            f"only.turns={json.dumps([[it] for it in prompts])}",
            "design.stopping=decided",
            "design.disturbed=keep",
            "design.probe=off",
            "design.controls=false",
            *ledger.keeping,
        ),
    )
    experiment = prepared_for(ledger.whole, plan, ledger.folder).work.experiment
    before = sum(it.seconds for it in ledger.advice.stages if it.stage == "settings")

    def then(store: RunStore) -> Sequence[Turn] | None:
        refuse_failing(ledger, store)
        block = max(turn.block for turn in store.cells()) + 1
        spent = ledger.spent() - before
        late = spent + spent / block > SCREENED * (ledger.advice.asked.budget_s - before)
        if block < experiment.design.blocks and (block < FEWEST_SCREENED or not late):
            return next_block(experiment, list(store.arms()), block)
        refuse_busy(ledger, store)
        price(ledger, ledger.on(answered(store)), store)
        return None

    ledger.carry_out(plan, then=then)
    with RunStore.open(ledger.folder / "screen", readonly=True) as store:
        names = answered(store)
        times = [row.wall_ms / 1000 for row in store.rows() if row.arm_id == ledger.baseline.id and row.wall_ms]
    shortlist(ledger, ledger.on(names))
    return median(times)


def answer_s(asked: AdviceQuestion, grid: LoadedExperiment, *, offline: bool) -> float | None:
    """Seconds that an answer is expected to take here, before anything was measured; None if answers are not whole, or
    nothing is known of the model."""
    if asked.urls or grid.experiment.generation.ignore_eos:
        return None
    drafting = {arm.id for arm in grid.experiment.expand() if arm.speculates}
    plain = make_plan(once(grid), offline=offline, leave_out=drafting)
    return None if plain.seconds is None or not plain.requests else plain.seconds / plain.requests


USUAL_S = 300.0
"""The budget of a question without one, for each number of clients."""


def with_budget(asked: AdviceQuestion, grid: LoadedExperiment, *, offline: bool) -> AdviceQuestion:
    """The question with a budget, if it has none (0): the usual one, or longer for a model that is slow here."""
    if asked.budget_s:
        return asked
    least = UNSURE * FEWEST_ANSWERS * (answer_s(asked, grid, offline=offline) or 0.0)
    each = max(USUAL_S, ROUNDS * least if asked.clients else least)
    return asked.model_copy(update={"budget_s": each * max(1, len(asked.clients))})


def refuse_small_budget(asked: AdviceQuestion, grid: LoadedExperiment, *, offline: bool) -> None:
    """Raise `UsageError` if even the fewest whole answers that decide anything would take much longer than the budget.
    Nothing is started for that."""
    each = 0.0 if asked.clients else answer_s(asked, grid, offline=offline) or 0.0
    least = FEWEST_ANSWERS * each
    if least > UNSURE * asked.budget_s:
        tokens = max(1, int(0.8 * min(grid.experiment.generation.max_tokens, TYPICAL_ANSWER) * asked.budget_s / least))
        raise UsageError(
            f"--budget {duration(asked.budget_s)}: too short; an answer takes about {duration(each)} here, and "
            f"{FEWEST_ANSWERS} are needed",
            fix=f"give --budget {math.ceil(least / 60)}m or more, or shorter answers (-n {tokens})",
        )


def answered(store: RunReader) -> list[str]:
    """Prompts that a screen has an answer to."""
    return list(dict.fromkeys(row.prompt_id for row in store.rows() if row.status == "ok"))


def shortlist(ledger: AdviseSession, whole: Prepared) -> None:
    """What is expected of every configuration by the screen, and which ones may win."""
    if ledger.advice.fates:
        return
    with RunStore.open(ledger.folder / "screen", readonly=True) as store:
        outlooks = look(whole, store, goal=ledger.advice.asked.goal)
    kinds = {kind for it in outlooks for kind in it.by_kind}
    choice = choose(outlooks, most=MOST_RACED + (len(kinds) > 1))
    known = {it.arm.id: it for it in outlooks}
    kept = [
        Fate(
            arm_id=it.arm.id,
            predicted=it.predicted,
            by_kind=dict(it.by_kind),
            basis=it.basis,
            acceptance=it.acceptance,
            code="open",
            stage="screen",
        )
        for it in (known[arm_id] for arm_id in choice.kept)
    ]
    ledger.set_fates([*kept, *choice.fates])
    best = next(iter(kept), None) or max(choice.fates, key=promise, default=None)
    best_of_many = (
        None if best is None or best.predicted is None else scaled(best.predicted, 1 / owed_to_luck(outlooks))
    )
    gains = bool(kept) and above(best_of_many, 1)
    decision: Decision = "speculate" if gains else "undecided" if kept else "off"
    told = known[best.arm_id] if best else None
    ledger.answer(
        decision,
        "predicted",
        best.arm_id if best else None,
        best_of_many,
        tau=None if told is None or told.tau is None else bare(told.tau, "tokens/forward", "expected by the screen"),
    )


def refuse_failing(ledger: AdviseSession, store: RunStore) -> None:
    """Raise `EngineError` where plain decoding does not work."""
    why = failed_arms(store.rows()).get(ledger.baseline.id)
    if why is not None:
        raise EngineError(
            f"plain decoding failed: {why.splitlines()[0]}",
            fix=f"see the logs in {store.folder}, and `specmeter doctor`",
        )


def refuse_busy(ledger: AdviseSession, store: RunStore) -> None:
    """Wait for calm where others disturbed the screen, which counts all the same: it only says what is worth a race.

    Raises `UsageError` that says who takes the machine, where that does not end.
    """
    host, found = ledger.advice.host, _others(ledger, store)
    if host is None or found is None:
        return
    who = str(found.what)
    ledger.observer.note(f"{who}; waiting for calm, {beyond(ledger)}")
    if not wait_for_calm(ledger.patience_s, gate_of(ledger.arms, list(store.sessions()), host)):
        now = max((it.engine.threads or host.logical_cores for it in ledger.arms.values()), default=None)
        threads = threads_beside(found.mean_percent, host, now) if found.cause == "others" else 0
        raise UsageError(
            f"busy machine: {who} while plain decoding was measured, and goes on",
            fix="wait until it ends and give the same command"
            + (f", or leave it its cores with -t {threads}" if threads else "")
            + ", or measure all the same with SPECMETER_DISTURBED=keep (the answer is suspect then)",
        )


def _others(ledger: AdviseSession, store: RunStore) -> Disturbance | None:
    """What disturbed the screen, where that is to be avoided."""
    host, design = ledger.advice.host, ledger.whole.work.experiment.design
    if host is None or design.disturbed == "keep":
        return None
    return disturbance(store, (0, 0), ledger.arms, host)


def beyond(ledger: AdviseSession) -> str:
    """What waiting and measuring again may add to a budget."""
    return f"up to {duration(ledger.patience_s)} beyond the budget of {duration(ledger.advice.asked.budget_s)}"


def advise_loads(
    asked: AdviceQuestion,
    candidates: Candidates,
    folder: Path,
    observer: AdviseObserver,
    *,
    fetching: Fetching = ONLINE,
) -> Schedule:
    """Find what is best at each of `asked.clients`, or go on with it where `folder` was left.

    Ctrl-C ends it with what is known so far. Raises as `advise` does, and says at how many clients; what was
    measured is kept then.
    """
    if (there := _finished(folder)) is not None:
        return there
    _begin(Schedule(asked=asked, made_at=time.time()), folder)
    spent = 0.0
    for number, clients in enumerate(asked.clients):
        share = max(1.0, (asked.budget_s - spent) / (len(asked.clients) - number))
        own = asked.model_copy(update={"load": clients, "budget_s": share})
        observer.load_starting(clients, share)
        with _told_of(clients):
            grid, place = grid_of(own, candidates), folder / folder_of(clients)
            found = advise(own, grid, place, observer, left_out=candidates.left_out, fetching=fetching)
        if _interrupted(found):
            break
        spent += found.seconds
    return _ended(folder)


def again_loads(
    before: Path,
    folder: Path,
    observer: AdviseObserver,
    *,
    fetching: Fetching = ONLINE,
) -> Schedule:
    """Confirm what a schedule decided anew, load by load, into `folder`; or go on with that. Loads at which nothing was
    decided are left out.

    Raises as `again.again` does, and `UsageError` for a schedule that decided nothing.
    """
    if (there := _finished(folder, before.resolve().name)) is not None:
        return there
    old = read_schedule(before)
    decided = [it for it in old.advices if it.finished and it.decision != "undecided"]
    if not decided:
        raise UsageError(
            f"{before}: this schedule decided nothing that could hold again",
            fix="finish it with the command that it was begun with, or ask anew",
        )
    asked = old.asked.model_copy(update={"clients": tuple(map(clients_of, decided))})
    _begin(Schedule(asked=asked, made_at=time.time(), again_of=before.resolve().name), folder)
    for it in decided:
        clients, name = clients_of(it), folder_of(clients_of(it))
        observer.load_starting(clients, it.asked.budget_s)
        with _told_of(clients):
            found = again(before / name, folder / name, observer, fetching=fetching)
        if _interrupted(found):
            break
    return _ended(folder)


def _finished(folder: Path, again_of: str | None = None) -> Schedule | None:
    """The schedule of a folder where it has come to its end: nothing of it is written anew. Raises `StoreError`."""
    if sort_of(folder) != "schedule":
        return None
    there = read_schedule(folder)
    if there.again_of != again_of:
        raise StoreError(f"{folder}: holds another schedule", fix="name another folder with --out")
    return there if there.finished else None


def _ended(folder: Path) -> Schedule:
    """The schedule as far as it has come, certified where that is the end."""
    certify_schedule(read_schedule(folder), folder)
    return read_schedule(folder)


def _begin(schedule: Schedule, folder: Path) -> None:
    """Begin a schedule in a folder, where it was not begun. Raises `StoreError`."""
    if sort_of(folder) == "schedule":
        schedule = schedule.model_copy(update={"made_at": read_schedule(folder, examine=False).made_at})
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be written ({error.strerror})", fix="name another folder with --out"
        ) from None
    write_schedule(schedule, folder)


@contextmanager
def _told_of(clients: int) -> Generator[None]:
    """Errors say at how many clients they arose."""
    try:
        yield
    except (UsageError, EngineError) as error:
        error.message = f"with {counted(clients, 'client')}: {error.message}"
        raise


def _interrupted(found: Advice) -> bool:
    return found.why_undecided == "interrupted"

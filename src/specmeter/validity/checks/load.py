"""Checks of cells under load: was the load the one that was asked for, and do counts close?

What a server counts over a cell belongs to no single request, since requests share forwards. So the conservation law is
tested for the cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING

from specmeter.measure.load import LATE, late_share
from specmeter.messages import Message
from specmeter.record import Arm, Load, LoadCell, Session
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import Check, not_applicable, not_checkable, of_arm, of_request
from specmeter.validity.checks.law import SMALLEST_BATCH, longest_draft
from specmeter.validity.checks.requests import Requests
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.checks.sessions import first_line, logs_of, used_sessions

if TYPE_CHECKING:
    from specmeter.analysis.load.figures import CellFigures

ROUNDED = 1e-5
"""Share by which a server's count of slot-forwards may be off: it is printed as a mean with six digits."""
SHORT_MS = 1000.0
"""A cell in which a single pause of a common scheduler, 20 ms, is what may be late."""
CLIENT = 0.02
"""Share of the machine that the clients may take."""
BUSY = 0.98
"""Share of the clients that have to be busy inside the window."""
PROMPTS = 0.5
"""Share of the requests' time that may go into prompts, inside the window."""
MIN_TOKENS = 16
"""Tokens of each client inside a window."""
BEHIND = 0.9
"""Share of the offered requests that an engine which keeps up answers inside the window. Of few requests chance decides
as much; so they also have to wait: more of them, on average, than the engine works on."""
_LONG_ENOUGH = 16
"""Tokens of a request in which a draft model drafts at least once."""


def _loaded(data: RunData) -> Iterator[tuple[Arm, Load, list[CellFigures]]]:
    """Arms that were measured under a load, and their cells that came to their end."""
    for arm in data.arms.values():
        if arm.load is not None and data.by_arm[arm.id]:
            cells = [it.figures for it in data.cells if it.figures.arm_id == arm.id and it.figures.complete]
            yield arm, arm.load, cells


def _of_loads(check: Check) -> Check:
    """The same, which has nothing to look at where no arm has a load."""

    @wraps(check.look)
    def look(data: RunData) -> Findings:
        if all(arm.load is None for arm in data.arms.values()):
            yield not_applicable(None, Message("unchecked.no_load"))
        else:
            yield from check.look(data)

    return replace(check, look=look)


# --- the conservation law, cell by cell ------------------------------------------------------------------------------


def cells_conserve(data: RunData, arm: Arm, requests: Requests) -> Findings:
    """Tokens of a cell = accepted + slot-forwards: each forward of a slot emits one token and the drafts it accepts,
    that of a prompt the first one. A prompt of several batches takes further ones."""
    sessions = {it.id: it for it in used_sessions(data, requests)}
    unanswered = data.requests.at(~data.requests.where("status", "ok") & data.requests.where("arm_id", arm.id))
    failed, by_session = set(unanswered.different("session_id")), list(requests.groups("session_id"))
    uncounted = 0
    for (session_id,), mine in by_session:
        cell = data.load_cells.get(session_id)
        busy = None if cell is None or not cell.complete else cell.counters.get("n_busy_slots_total")
        if cell is None or busy is None or session_id in failed:
            uncounted += 1
        else:
            yield from _cell_closes(arm, cell, busy, mine, sessions.get(session_id))
        yield from _steps_close(arm, mine, sessions.get(session_id))
    if uncounted:
        yield not_checkable(arm.id, Message("unchecked.cells_not_counted", uncounted=uncounted, cells=len(by_session)))


def _cell_closes(arm: Arm, cell: LoadCell, busy: float, mine: Requests, session: Session | None) -> Findings:
    fillers = cell.fillers
    tokens = mine.total("predicted_n") + sum(it.predicted_n for it in fillers)
    accepted = mine.total("draft_n_accepted") + sum(it.draft_n_accepted for it in fillers)
    draft = longest_draft(arm, session) if arm.speculates else 0
    further = _further_forwards(cell, mine, draft, session)
    restores = mine.total("restores") + sum(it.restores for it in fillers)
    ends = (*mine.values("draft_n", "stop_reason"), *((it.draft_n, it.stop_reason) for it in fillers))
    cut_off = sum(draft for drafted, reason in ends if drafted and reason != "limit")
    slack = max(0.5, ROUNDED * (busy + tokens))
    gap = tokens - accepted - busy
    if -further - restores - cut_off - slack <= gap <= slack:
        return
    yield of_arm(
        "invalid",
        arm.id,
        Message(
            "conservation.cell_extra" if gap > 0 else "conservation.cell_idle",
            at_least=gap if gap > 0 else -gap - further - restores - cut_off,
            block=cell.block,
            tokens=tokens,
            accepted=accepted,
            slot_forwards=busy,
        ),
        Message("conservation.fix_extra"),
        slot_forwards=round(busy),
        unexplained=round(gap),
    )


def _steps_close(arm: Arm, mine: Requests, session: Session | None) -> Findings:
    """A request's own slot-forwards, where its steps are on record: each emits one token and the drafts it accepts.

    Forwards without a draft may be missing among them, since a server logs those that verify one.
    """
    counted = mine.whole("predicted_n")
    emitted = mine.number("steps.number") + mine.whole("draft_n_accepted") - mine.whole("restores")
    for request in mine.at((counted != 0) & (emitted > counted - 1)):
        row, steps = request.row, request.steps.number if request.steps is not None else 0
        decoded, accepted = (row.predicted_n or 1) - 1, row.draft_n_accepted or 0
        cut_off = longest_draft(arm, session) if row.draft_n and row.stop_reason != "limit" else 0
        idle = steps + accepted - decoded - request.restores - cut_off
        if idle > 0:
            yield of_request(
                "invalid",
                request,
                Message("conservation.steps", at_least=idle, decoded=decoded, accepted=accepted, steps=steps),
                Message("conservation.fix_steps"),
                unexplained=-idle,
            )


def _further_forwards(cell: LoadCell, mine: Requests, draft: int, session: Session | None) -> int:
    """Most forwards that prompts may have taken beyond one each.

    A batch takes the prompts of several slots, and the steps of others. Only where all that can be in flight at once
    does not fit into it is a prompt cut, or made to wait by those before it.
    """
    prompts = sorted(mine.whole("prompt_n").tolist() + [it.prompt_n for it in cell.fillers], reverse=True)
    at_once = sum(prompts[: cell.slots]) + cell.slots * (1 + draft)
    batch = None if session is None else session.resolved.get("n_batch")
    batch = batch if isinstance(batch, int) and batch > 0 else SMALLEST_BATCH
    # The prompt before the cell was a single one: what it took beyond one forward, each other may take too.
    alone = 0 if session is None or session.prompt_forwards is None else max(0, session.prompt_forwards - 1)
    return len(prompts) * (alone + -(-at_once // batch) - 1)


# --- the load that was asked for -------------------------------------------------------------------------------------


def load_not_reached(data: RunData) -> Findings:
    """Cells in which fewer clients were busy than asked for, or which have no steady window.

    Assumes: a request is in flight from when it is sent until its last token arrives.
    Otherwise: an engine that holds answers back looks busier than it is.
    """
    for arm, load, cells in _loaded(data):
        if not cells:
            yield not_checkable(arm.id, Message("unchecked.no_cell"))
        without = [it for it in cells if it.no_window is not None and not _flooded(load, it)]
        if without:
            yield of_arm(
                "suspect",
                arm.id,
                Message(
                    "load-not-reached.no_window",
                    cells=len(without),
                    of=len(cells),
                    why=Message(f"no-window.{(without[0].no_window or '').replace(' ', '_')}"),
                ),
                Message("load-not-reached.fix_no_window"),
            )
        if load.clients is None:
            continue
        asked = load.clients
        idle = [it for it in cells if it.no_window is None and it.request_ms < BUSY * asked * it.window_ms]
        if idle:
            worst = min(idle, key=lambda it: it.request_ms / it.window_ms)
            yield of_arm(
                "suspect",
                arm.id,
                Message(
                    "load-not-reached.found",
                    cells=len(idle),
                    of=len(cells),
                    clients=asked,
                    busy=worst.request_ms / worst.window_ms,
                    block=worst.block,
                ),
                busy=round(worst.request_ms / worst.window_ms, 3),
            )


def requests_queued(data: RunData) -> Findings:
    """More clients than slots: the engine never works on as many requests as there are clients.

    Assumes: the engine reports how many requests it processes at once.
    Otherwise: if it processes more, the finding is wrong and the measurement is not.
    """
    for arm, load, cells in _loaded(data):
        fewest = min((it.slots for it in cells), default=None)
        if fewest is not None and load.clients is not None and fewest < load.clients:
            meant = data.experiment.load is not None and data.experiment.load.slots == fewest
            yield of_arm(
                "note" if meant else "suspect",
                arm.id,
                Message(
                    "requests-queued.found",
                    clients=load.clients,
                    slots=fewest,
                    waiting=load.clients - fewest,
                ),
            )


def overloaded(data: RunData) -> Findings:
    """Requests that arrived faster than the engine answered: what was reached is its limit, and waiting has no end.

    Assumes: more requests wait than the engine processes, while answers fall 10% behind arrivals.
    Otherwise: a burst at the end of a short measurement may look the same: suspect at most.
    """
    if all(arm.load is None or arm.load.rate is None for arm in data.arms.values()):
        yield not_applicable(None, Message("unchecked.no_rate"))
    for arm, load, cells in _loaded(data):
        if load.rate is None:
            continue
        known = [it for it in cells if it.window_ms > 0 or _flooded(load, it)]
        behind = [it for it in known if _fell_behind(load, it)]
        if 2 * len(behind) > len(known):
            done, ms = (sum(of) for of in zip(*map(_answered, known), strict=True))
            reached = 1000 * done / ms
            yield of_arm(
                "suspect",
                arm.id,
                Message("overloaded.found", rate=load.rate, reached=reached),
                cells=len(behind),
                reached=round(reached, 4),
            )


def _flooded(load: Load, cell: CellFigures) -> bool:
    """Every request of an open loop had arrived before the first was answered, and there were more than slots."""
    return load.rate is not None and cell.no_window == "too short" and cell.requests > cell.slots


def _answered(cell: CellFigures) -> tuple[float, float]:
    """Requests answered, and in which time: of the window, or of the whole cell where there is none."""
    return (cell.requests_done, cell.window_ms) if cell.window_ms > 0 else (cell.requests, max(cell.duration_ms, 1.0))


def _fell_behind(load: Load, cell: CellFigures) -> bool:
    done, ms = _answered(cell)
    waiting = _flooded(load, cell) or cell.request_ms > cell.slots * ms
    return waiting and 1000 * done < BEHIND * (load.rate or 0.0) * ms


def client_late(data: RunData) -> Findings:
    """Clients that sent their requests too late, or took a part of the machine that the engine lacked.

    A late client takes at most its share of the time from what a cell reached, so that one of several cells is told,
    and what all of them lost together is doubted. Cells that were measured again have to have been late.

    Assumes: clients that pause for 2% of their time are not the clients asked for.
    Otherwise: if the engine caused the pause by delaying the end of an answer, the load was as asked.
    """
    cores = max((host.logical_cores for host in data.hosts), default=None)
    for arm, load, cells in _loaded(data):
        shares = [(_late_share(it, load.clients), it) for it in cells]
        late = [(share, it) for share, it in shares if share > LATE]
        if late:
            worst, cell = max(late, key=lambda it: it[0])
            mean = sum(share for share, _ in shares) / len(shares)
            yield of_arm(
                "suspect" if mean > LATE else "note",
                arm.id,
                Message(
                    "client-late.found",
                    cells=len(late),
                    of=len(cells),
                    block=cell.block,
                    share=worst,
                    late_ms=cell.late_ms,
                    mean=mean,
                ),
                Message("client-late.fix_short", seconds=cell.duration_ms / 1000)
                if cell.duration_ms < SHORT_MS
                else Message("client-late.fix"),
                share=round(worst, 4),
                mean=round(mean, 4),
                late_ms=round(cell.late_ms, 1),
            )
        yield from _measured_again(data, arm, load)
        if cores is None or data.simulated:
            continue
        greedy = [it for it in cells if it.client_cores > CLIENT * cores]
        if greedy:
            most = max(it.client_cores for it in greedy)
            yield of_arm(
                "suspect",
                arm.id,
                Message("client-late.greedy", share=most / cores, cells=len(greedy), of=len(cells)),
                Message("client-late.fix_greedy"),
                share=round(most / cores, 4),
            )


def _measured_again(data: RunData, arm: Arm, load: Load) -> Findings:
    """Cells that were answered, do not count, and lie in no block that was excluded."""
    aside = {(it.invocation, it.block): it.ended_at for it in data.disturbances}
    again = [
        (late_share(data.late_before[it.session_id], 1000 * (it.ended_at - it.began_at), load.clients or 1), it)
        for it in data.load_cells.values()
        if it.arm_id == arm.id and it.complete and it.session_id in data.late_before
        if it.began_at > aside.get((it.invocation, it.block), -math.inf)
    ]
    early = [it for share, it in again if share <= LATE or load.clients is None]
    if early:
        said = Message("client-late.in_time", cells=len(early), block=early[0].block)
        yield of_arm("suspect", arm.id, said, Message("excluded-block.fix_replaced"), cells=len(early))
    elif again:
        said = Message("client-late.again", cells=len(again), share=max(share for share, _ in again))
        yield of_arm("note", arm.id, said, Message("client-late.fix"), cells=len(again))


def _late_share(cell: CellFigures, clients: int | None) -> float:
    """Share of the clients' time in a cell that passed between being due and being sent; in an open loop each request
    in flight is a client."""
    at_once = clients or (cell.request_ms / cell.window_ms if cell.window_ms > 0 else 1.0)
    return late_share(cell.late_sum_ms, cell.duration_ms, at_once)


def prompts_in_window(data: RunData) -> Findings:
    """Windows that are mostly about prompts, and windows that hold next to nothing.

    Assumes: the time before the first token goes into the prompt, or into waiting for it.
    Otherwise: an engine that sends its first token late spends less time on prompts than it seems.
    """
    for arm, load, cells in _loaded(data):
        known = [it for it in cells if it.counts]
        if not known or load.clients is None:
            continue
        time, decoding = sum(it.request_ms for it in known), sum(it.decode_ms for it in known)
        share = 1 - decoding / time if time else 0.0
        if share > PROMPTS:
            yield of_arm(
                "suspect",
                arm.id,
                Message("prompts-in-window.found", share=share),
                share=round(share, 4),
            )
        short = [it for it in known if it.tokens < MIN_TOKENS * load.clients]
        if short:
            yield of_arm(
                "suspect",
                arm.id,
                Message(
                    "prompts-in-window.short",
                    cells=len(short),
                    of=len(known),
                    needed=MIN_TOKENS,
                ),
                Message("prompts-in-window.fix_short"),
                tokens=min(it.tokens for it in short),
            )


# --- what slots do to one another ------------------------------------------------------------------------------------


def slot_without_drafts(data: RunData) -> Findings:
    """Requests that drafted nothing in an arm whose other requests did: a slot that silently decodes without
    speculation.

    Assumes: a draft model is asked for drafts at least once in 16 tokens.
    Otherwise: an engine that decides against drafts has a policy that the configuration should name.
    """
    for arm, _, _ in _loaded(data):
        drafters = data.traits.drafters(arm.methods)
        if not arm.speculates or not drafters or drafters & {"lookup", "unknown"} or arm.p_min or arm.policy:
            continue
        long = data.by_arm[arm.id].at(data.by_arm[arm.id].whole("predicted_n") >= _LONG_ENOUGH)
        silent = long.at(long.whole("draft_n") == 0)
        if silent and len(silent) < len(long):
            yield of_arm(
                "invalid",
                arm.id,
                Message("slot-without-drafts.found", requests=len(silent), of=len(long)),
                example_prompt=silent[0].row.prompt_id,
            )


def prompt_remembered(data: RunData) -> Findings:
    """Methods that remember earlier texts of their session, and meet a prompt in it again.

    Assumes: such methods keep their table as long as the engine runs, as it reports.
    Otherwise: if each slot has its own table, a repeated prompt may still be new to it.
    """
    for arm, _, _ in _loaded(data):
        keeping = [it for it in arm.methods if (method := data.traits.method(it)) is not None and method.remembers]
        again = _repeats(data, data.by_arm[arm.id]) if keeping else 0
        if again:
            yield of_arm(
                "suspect",
                arm.id,
                Message("prompt-remembered.found", method=keeping[0], requests=again),
            )


def _repeats(data: RunData, requests: Requests) -> int:
    """Requests whose prompt their session had met before, under whichever id."""
    places = requests.distinct("session_id", "prompt_id")[0]
    met = {(session_id, data.repeats.get(prompt_id, prompt_id)) for session_id, prompt_id in places}
    return len(requests) - len(met)


def context_short(data: RunData) -> Findings:
    """Requests that lost a part of their context, or waited for room in it: slots that take memory from each other.

    Assumes: the engine reports where a context was full, and logs when it makes room.
    Otherwise: if it makes room silently, only its forward passes show it, which `conservation` counts.
    """
    for arm, _, _ in _loaded(data):
        requests = data.by_arm[arm.id]
        full = requests.at(requests.where("stop_reason", "context"))
        if full:
            yield of_arm(
                "suspect",
                arm.id,
                Message("context-short.full", requests=len(full), of=len(requests)),
                example_prompt=full[0].row.prompt_id,
            )
        logs = logs_of(data, requests)
        shifted, short = logs.all("context_shifted"), logs.all("memory_short")
        if shifted:
            yield of_arm(
                "suspect",
                arm.id,
                Message("context-short.shifted", times=shifted.count),
                log=first_line(shifted),
            )
        if short:
            yield of_arm(
                "suspect",
                arm.id,
                Message("context-short.no_room", times=short.count),
                log=first_line(short),
            )


_CHECKS = (
    Check("load-not-reached", "suspect", load_not_reached, saw=("arms", "requests", "load-cells", "sendings")),
    Check("requests-queued", "suspect", requests_queued, saw=("arms", "experiment", "load-cells")),
    Check("overloaded", "suspect", overloaded, saw=("arms", "requests", "load-cells", "sendings")),
    Check(
        "client-late",
        "suspect",
        client_late,
        saw=("arms", "hosts", "requests", "load-cells", "sendings", "disturbances"),
    ),
    Check("prompts-in-window", "suspect", prompts_in_window, saw=("arms", "requests", "load-cells", "sendings")),
    Check("slot-without-drafts", "invalid", slot_without_drafts, saw=("arms", "requests"), needs=("drafts",)),
    Check("context-short", "suspect", context_short, saw=("arms", "requests", "logs")),
    Check("prompt-remembered", "suspect", prompt_remembered, saw=("arms", "prompts", "requests")),
)

CHECKS: tuple[Check, ...] = tuple(map(_of_loads, _CHECKS))

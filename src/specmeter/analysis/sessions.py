"""What a configuration does to recorded sessions: the time of their calls, by part, by depth, and weighted.

A call takes the time to read its prompt, then the time per token times the tokens of the recorded answer, then what is
left (waiting, sampling, parsing). So configurations whose texts differ in length compare, and a limit on the length
changes no answer. A call that was asked counts for those that it stands for (`Turn.weight`).

    R      = sum w B / sum w A           B, A: time of a call without speculation, and with it; means over blocks
    var(R) = n/(n-1) sum e^2 / (sum w A)^2,  e = w (B - R A), summed over the calls of a session

That is the ratio estimator with its variance by linearisation (Cochran, Sampling Techniques, chapter 6). Its units are
sessions if there are `LEAST_SESSIONS`, else calls; then the interval is for more calls of these sessions. A block
disturbs all calls of a configuration alike: the variance of ln R between blocks, over their number, is added.
Where a few sessions make up most of the time, the variance is at least that of their ratios with these shares:

    var(ln R) >= s^2 sum share^2         s^2: variance of ln (B / A) between units; share: of sum w A
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.numbers.estimates import bare, from_log
from specmeter.numbers.stats import STUDENT, degrees_of_freedom, log_bounds, log_half, t_critical
from specmeter.record import Estimate, Record
from specmeter.workloads.turns import depth_of, stratum_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from specmeter.record import Prompt
    from specmeter.store import RunReader

LEAST_SESSIONS = 3
PARTS = ("again", "new", "draft", "verify", "other")
"""Prompt tokens that were read before, new ones; making drafts, the target's forwards; the rest of a call."""


class SessionParts(Record):
    """Seconds of the calls, by part."""

    again: float
    """Reading what had been read before."""
    new: float
    """Reading what was new."""
    draft: float
    """Making drafts, as far as the engine reports it."""
    verify: float
    """Generating, besides that."""
    other: float
    """What is left of the calls."""

    @property
    def total(self) -> float:
        return self.again + self.new + self.draft + self.verify + self.other

    @property
    def generating(self) -> float:
        """Share that speculation can touch."""
        return (self.draft + self.verify) / self.total if self.total else 0.0


class AtDepth(Record):
    """Calls whose prompts have about as many tokens."""

    depth: int
    """Fewest tokens of the group."""
    calls: int
    """That were asked."""
    stands_for: float
    """Calls of the sessions."""
    speedup: Estimate | None
    """Of the time of these calls; None for baselines."""
    decoding: Estimate | None
    """Of the time per token alone."""
    acceptance: float | None
    """Accepted over drafted tokens."""
    reuse: float | None
    """Share of the prompts that was in the cache."""


class ArmSessions(Record):
    """A configuration on the sessions."""

    arm_id: str
    baseline_id: str | None
    calls: int
    sessions: int
    stands_for: float
    """Calls of the sessions."""
    parts: SessionParts
    """Of the sessions' calls, those included that these stand for."""
    plain_s: float
    """Seconds that the same calls take without speculation."""
    recorded_s: float | None
    """Seconds that they took when they were recorded, as far as all were timed."""
    speedup: Estimate | None
    """Time of the calls without speculation over that with it."""
    decoding: Estimate | None
    """The same of generating alone."""
    tokens: float
    """Of the recorded answers, those included that were not asked; where these were not counted, of our own."""
    depths: tuple[AtDepth, ...]


@dataclass(frozen=True)
class _Time:
    """A call of an arm: means over its blocks, in ms."""

    again: float
    new: float
    draft: float
    verify: float
    other: float
    tokens: float
    """Of the recorded answer, else of the one at hand."""

    @property
    def total(self) -> float:
        return self.again + self.new + self.draft + self.verify + self.other

    @property
    def generating(self) -> float:
        return self.draft + self.verify


@dataclass
class _Counts:
    asked: int = 0
    drafted: int = 0
    accepted: int = 0
    cached: int = 0
    read: int = 0


def session_report(run: RunReader, baselines: Mapping[str, str | None]) -> tuple[ArmSessions, ...]:
    """Every arm of `baselines` (arm id -> its baseline) that replayed recorded sessions; empty for other runs."""
    prompts = {it.id: it for it in run.prompts() if it.turn is not None}
    if not prompts:
        return ()
    calls, blocks, counts = _calls(run, prompts)
    found: list[ArmSessions] = []
    for arm_id, mine in calls.items():
        if arm_id not in baselines:
            continue
        base = calls.get(baselines.get(arm_id) or "", {})
        shared = reweighted([prompts[it] for it in mine if not base or it in base], prompts.values())
        if not shared:
            continue
        walls = [None if it.turn is None else it.turn.wall_ms for it in shared.values()]
        recorded = sum(_weight(it) * (wall or 0) for it, wall in zip(shared.values(), walls, strict=True)) / 1e3
        other = blocks.get(baselines.get(arm_id) or "", {})
        found.append(
            ArmSessions(
                arm_id=arm_id,
                baseline_id=baselines.get(arm_id),
                calls=len(shared),
                sessions=len({_session(it) for it in shared.values()}),
                stands_for=sum(map(_weight, shared.values())),
                parts=_parts(mine, shared),
                plain_s=_parts(base or mine, shared).total,
                recorded_s=None if None in walls else recorded,
                speedup=_ratio(base, mine, shared, _total, (other, blocks[arm_id])) if base else None,
                decoding=_ratio(base, mine, shared, _generating, (other, blocks[arm_id])) if base else None,
                tokens=sum(_weight(it) * mine[own].tokens for own, it in shared.items()),
                depths=tuple(_at_depth(arm_id, base, mine, shared, counts)),
            )
        )
    return tuple(found)


Times = Mapping[str, _Time]
"""Prompt id -> its time."""
Blocks = Mapping[tuple[int, int], Times]
"""(invocation, block) -> the same of it alone."""


def _calls(
    run: RunReader, prompts: Mapping[str, Prompt]
) -> tuple[dict[str, Times], dict[str, Blocks], dict[tuple[str, str], _Counts]]:
    """(arm id -> its calls, the same block by block, (arm id, prompt id) -> what was counted in them)."""
    from specmeter.store import RequestKey

    rows: dict[tuple[str, str], list[_Row]] = defaultdict(list)
    counts: dict[tuple[str, str], _Counts] = defaultdict(_Counts)
    query = "SELECT arm_id, prompt_id, prompt_n, prompt_ms, predicted_n, predicted_ms, cache_n, draft_n, "
    query += "draft_n_accepted, wall_ms, invocation, block, zlib_json FROM request JOIN reply ON request_id = id"
    for row in run.raw(f"{query} WHERE superseded = 0 AND status = 'ok' ORDER BY id"):
        arm_id, prompt_id, prompt_n, prompt_ms, predicted_n, predicted_ms, cache_n, drafted, accepted, wall_ms = row[
            :10
        ]
        if prompt_id not in prompts or predicted_n < 1:
            continue
        reply = run.reply(row[12], RequestKey(row[10], row[11], arm_id, prompt_id))
        again = min(prompt_n, max(0, (reply.get("known_n") or 0) - cache_n)) / prompt_n if prompt_n else 0.0
        rows[arm_id, prompt_id].append(
            _Row(
                block=(row[10], row[11]),
                again=again * prompt_ms,
                new=(1 - again) * prompt_ms,
                drafting=sum(it["begin_ms"] + it["generate_ms"] + it["accept_ms"] for it in reply.get("drafting", ())),
                decoding=predicted_ms if predicted_n > 1 else 0.0,
                tokens=predicted_n - 1,
                other=max(0.0, wall_ms - prompt_ms - predicted_ms),
            )
        )
        counted = counts[arm_id, prompt_id]
        counted.asked += 1
        counted.drafted += drafted or 0
        counted.accepted += accepted or 0
        counted.cached += cache_n or 0
        counted.read += prompt_n or 0
    calls: dict[str, dict[str, _Time]] = defaultdict(dict)
    blocks: dict[str, dict[tuple[int, int], dict[str, _Time]]] = defaultdict(lambda: defaultdict(dict))
    for (arm_id, prompt_id), found in rows.items():
        if (time := _time(found, prompts[prompt_id])) is None:
            continue
        calls[arm_id][prompt_id] = time
        for it in found:
            if (alone := _time([it], prompts[prompt_id])) is not None:
                blocks[arm_id][it.block][prompt_id] = alone
    return dict(calls), {arm_id: dict(it) for arm_id, it in blocks.items()}, counts


class _Row(NamedTuple):
    """A request, in ms."""

    block: tuple[int, int]
    again: float
    new: float
    drafting: float
    decoding: float
    tokens: int
    """Generated after the first one."""
    other: float


def _time(rows: Sequence[_Row], prompt: Prompt) -> _Time | None:
    """A call by its requests: an answer that ended early counts as little for the time per token as it is short. None
    where no token came after the first."""
    made = sum(it.tokens for it in rows)
    if not made:
        return None
    tokens = (_turn_tokens(prompt) or 1 + made / len(rows)) - 1
    decode = sum(it.decoding for it in rows) / made * tokens
    draft = min(decode, sum(it.drafting for it in rows) / made * tokens)
    again, new, other = (float(np.mean([getattr(it, name) for it in rows])) for name in ("again", "new", "other"))
    return _Time(again=again, new=new, draft=draft, verify=decode - draft, other=other, tokens=tokens + 1)


def reweighted(kept: Iterable[Prompt], drawn: Iterable[Prompt]) -> dict[str, Prompt]:
    """Id -> the prompts that are left of those drawn, each with the weight of the calls that it stands for now.

    Calls of a depth and kind of which none is left count for those of the same kind at the nearest depth, else for the
    nearest depth.
    """
    left = {it.id: it for it in kept}
    asked = Counter(map(stratum_of, left.values()))
    whole: dict[tuple[int, str], float] = defaultdict(float)
    for it in drawn:
        depth, kind = stratum_of(it)
        if asked:
            nearest = min(asked, key=lambda at: (at[1] != kind, abs(math.log((1 + at[0]) / (1 + depth)))))
            whole[nearest] += _weight(it)
    found: dict[str, Prompt] = {}
    for own, it in left.items():
        stratum = stratum_of(it)
        weight = whole[stratum] / asked[stratum]
        turn = None if it.turn is None else it.turn.model_copy(update={"weight": weight})
        found[own] = it.model_copy(update={"turn": turn})
    return found


def _parts(mine: Times, shared: Mapping[str, Prompt]) -> SessionParts:
    sums = {name: sum(_weight(it) * getattr(mine[own], name) for own, it in shared.items()) / 1e3 for name in PARTS}
    return SessionParts(**sums)


def _ratio(
    base: Times,
    mine: Times,
    shared: Mapping[str, Prompt],
    part: Callable[[_Time], float],
    blocks: tuple[Blocks, Blocks] = ({}, {}),
) -> Estimate | None:
    """Time of the baseline over that of the arm; `blocks` are those of both."""
    weights = [_weight(it) for it in shared.values()]
    theirs, ours = ([part(times[it]) for it in shared] for times in (base, mine))
    found = time_ratio(theirs, ours, weights, [_session(it) for it in shared.values()])
    if found is None:
        return None
    logs: list[float] = []
    for block in blocks[0].keys() & blocks[1].keys():
        plain, drafting = blocks[0][block], blocks[1][block]
        both = [(_weight(it), own) for own, it in shared.items() if own in plain and own in drafting]
        sums = [sum(weight * part(times[own]) for weight, own in both) for times in (plain, drafting)]
        if len(both) == len(shared) and min(sums) > 0:
            logs.append(math.log(sums[0] / sums[1]))
    return with_blocks(found, logs)


def with_blocks(found: Estimate, logs: Sequence[float]) -> Estimate:
    """The same with what differs between blocks; `logs` are the logarithms of the ratio in each."""
    if len(logs) < 2 or (half := log_half(found)) is None:
        return found
    df = degrees_of_freedom(found)
    calls, among = (half / t_critical(df, found.level)) ** 2, float(np.var(logs, ddof=1)) / len(logs)
    if among <= 0:
        return found
    # Satterthwaite's degrees of freedom of a sum of variances.
    df = max(1, int((calls + among) ** 2 / (calls**2 / df + among**2 / (len(logs) - 1))))
    low, high = log_bounds(math.log(found.point), t_critical(df, found.level) * math.sqrt(calls + among))
    return found.model_copy(update={"low": low, "high": high, "df": df, "method": f"{found.method}; with blocks"})


def time_ratio(plain: ArrayLike, drafting: ArrayLike, weights: ArrayLike, sessions: Sequence[str]) -> Estimate | None:
    """R of the calls: `plain` and `drafting` are their times, of one length each; `sessions` names that of each call.

    None where no time passed."""
    weight = np.asarray(weights, dtype=np.float64)
    theirs, ours = (weight * np.asarray(it, dtype=np.float64) for it in (plain, drafting))
    if ours.sum() <= 0 or theirs.sum() <= 0:
        return None
    ratio = float(theirs.sum() / ours.sum())
    clustered = len(set(sessions)) >= LEAST_SESSIONS
    units: dict[object, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for place, (one, other) in enumerate(zip(theirs, ours, strict=True)):
        unit = units[sessions[place] if clustered else place]
        unit[0] += one
        unit[1] += other
    sums = np.array(list(units.values()))
    n, of = len(sums), "sessions" if clustered else "calls"
    how = "time of calls without over with speculation, weighted"
    if n < 2:
        return bare(ratio, "x", f"{how}; no interval, one call", n=n, of=of)
    variance = n / (n - 1) * float(((sums[:, 0] - ratio * sums[:, 1]) ** 2).sum()) / float(theirs.sum()) ** 2
    if (sums > 0).all():
        between = float(np.var(np.log(sums[:, 0] / sums[:, 1]), ddof=1))
        variance = max(variance, between * float(((sums[:, 1] / ours.sum()) ** 2).sum()))
    return from_log(
        math.log(ratio),
        t_critical(n - 1, 0.95) * math.sqrt(variance),
        "x",
        f"{how}; {STUDENT}{of}, ratio estimator",
        n=n,
        of=of,
    )


def _total(time: _Time) -> float:
    return time.total


def _generating(time: _Time) -> float:
    return time.generating


def _at_depth(
    arm_id: str,
    base: Times,
    mine: Times,
    shared: Mapping[str, Prompt],
    counts: Mapping[tuple[str, str], _Counts],
) -> Iterable[AtDepth]:
    groups: dict[int, dict[str, Prompt]] = defaultdict(dict)
    for own, it in shared.items():
        counted = counts[arm_id, own]
        groups[depth_of((counted.cached + counted.read) / counted.asked)][own] = it
    for depth, here in sorted(groups.items()):
        sums = [counts[arm_id, own] for own in here]
        drafted, whole = sum(it.drafted for it in sums), sum(it.cached + it.read for it in sums)
        yield AtDepth(
            depth=depth,
            calls=len(here),
            stands_for=sum(_weight(it) for it in here.values()),
            speedup=_ratio(base, mine, here, _total) if base else None,
            decoding=_ratio(base, mine, here, _generating) if base else None,
            acceptance=sum(it.accepted for it in sums) / drafted if drafted else None,
            reuse=sum(it.cached for it in sums) / whole if whole else None,
        )


def _weight(prompt: Prompt) -> float:
    return prompt.turn.weight if prompt.turn is not None else 1.0


def _session(prompt: Prompt) -> str:
    return f"{prompt.workload}/{prompt.turn.session}" if prompt.turn is not None else prompt.id


def _turn_tokens(prompt: Prompt) -> int | None:
    return None if prompt.turn is None else prompt.turn.reply_tokens

"""Equations between the numbers of one row.

They serve twice. If one holds sharply, the numbers are likely read rightly (`Equation.info`); if one fails, the row
contradicts itself. Bounds are in `specmeter.audit.speedup` and `counters`: they say nothing about how a row is read.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from specmeter.audit.claim import ONE, Claim, Range, family_of, joined, length_binds, may_be_tree, printed
from specmeter.messages import Message, Value


@dataclass(frozen=True)
class Law:
    """An equation that rows keep."""

    near: float
    """Factor between the two sides up to which they agree."""
    far: float
    """Factor from which on they contradict each other. In between nothing is said: windows differ by as much."""
    of_means: float
    """`far`, if one of the numbers is said to be a mean."""
    learned: bool = False
    """Whether rows may break it: it counts only in a table whose other rows keep it sharply (`Claim.kept`)."""
    weight: float = 1.0
    """Of its evidence: more of counters, which are exact, less of what half of all numbers obey."""


LAWS = {
    "rate-of-token-time": Law(1.02, 1.12, 1.2, learned=True),
    "rate-within-token-time": Law(1.02, 1.3, 1.3),
    "rate-of-load": Law(1.015, 1.06, 1.1, learned=True),
    "rate-of-time": Law(1.015, 1.06, 1.25),
    "rate-of-run": Law(1.015, 1.06, 1.25, learned=True),
    "rate-of-counts": Law(1.015, 1.06, 1.25, learned=True),
    "token-time": Law(1.015, 1.06, 1.25),
    "rate-of-steps": Law(1.03, 1.12, 1.2),
    "acceptance-of-counts": Law(1.0, 1.0, math.inf, weight=1.2),
    "tau-of-counts": Law(1.012, 1.05, 1.28, weight=1.2),
    "tau-of-tokens": Law(1.03, 1.12, 1.28),
    "tau-of-acceptance": Law(1.015, 1.06, 1.1, learned=True),
    "length-is-whole": Law(1.012, 1.03, 1.05, learned=True, weight=0.3),
    "tau-of-positions": Law(1.012, 1.05, 1.08),
    "acceptance-of-positions": Law(1.012, 1.06, 1.1),
    "positions-fall": Law(1.0, 1.03, 1.03),
    "speedup-of-rates": Law(1.02, 1.05, 1.28),
    "speedup-of-token-times": Law(1.02, 1.05, 1.28),
    "speedup-of-decoding": Law(1.02, 1.05, 1.28),
    "speedup-of-run": Law(1.02, 1.05, 1.15),
    "speedup-within-rates": Law(1.0, 1.03, 1.15),
    "speedup-of-baseline": Law(1.005, 1.1, 1.1, learned=True),
    "rates-and-times": Law(1.02, 1.15, 1.25),
}


class Equation(NamedTuple):
    """One equation, with the numbers of a row put in."""

    law: str
    left: Range
    """A printed number."""
    right: Range
    """What the other numbers give for it."""
    fields: tuple[str, ...]
    """Names of the numbers, that of the left side first."""
    far: float
    gap: float
    """Least factor between the two sides, 1 or more."""
    known: Mapping[str, Range]
    more: Mapping[str, Value]
    """Terms of its line besides `left`, `right` and the known numbers."""

    @property
    def holds(self) -> bool:
        """Whether the two sides do not contradict each other."""
        return self.gap <= self.far

    @property
    def learned(self) -> bool:
        """Whether it need not hold so far, but for what the other rows of the table keep."""
        law = LAWS[self.law]
        return law.learned or (self.holds and self.far > law.far)

    def fails(self, kept: Collection[str]) -> bool:
        """Whether it contradicts its row. In a table whose other rows keep its law, being a mean is no excuse."""
        law = LAWS[self.law]
        return self.gap > law.far if self.law in kept else not (self.holds or law.learned)

    @property
    def of_speedup(self) -> bool:
        """Whether it is between speedups."""
        return self.law == "rates-and-times" or self.fields[0] == "speedup"

    @property
    def info(self) -> float:
        """Evidence in nats that the numbers are read rightly: sharp numbers that agree are unlikely to do so by chance.

        Below 0 if they do not quite agree. A law that is broken has 0: its cost is up to the caller.
        """
        law = LAWS[self.law]
        if self.gap > law.near:
            return -0.5 if self.holds else 0.0
        width = 0.004 + self.gap - 1
        for side in (self.left, self.right):
            width += (side.high - side.low) / 2 / max(side.value, 1e-9)
        return law.weight * max(0.0, min(4.5, -math.log(min(width, 1.0)) - 0.7))

    @property
    def line(self) -> Message:
        """The arithmetic."""
        terms = {name: self.known[name].value for name in self.fields[1:] if name in self.known}
        return Message(f"equation.{self.law}", left=self.left.value, right=self.right.value, **{**terms, **self.more})


def apart(a: Range, b: Range) -> float:
    """Least factor between two ranges, 1 where they meet."""
    low, high = (a.high, b.low) if a.high < b.low else (b.high, a.low)
    return 1.0 if low >= high else high / low if low > 0 else math.inf


def equations(
    known: Mapping[str, Range],
    *,
    positions: Sequence[Range] = (),
    averaged: Collection[str] = (),
    runs: int = 1,
    window: str = "unknown",
    speedup_of: str = "decoding",
    elsewhere: str = "",
    busy: bool = False,
    chain: bool = True,
    baseline: bool = False,
) -> Iterator[Equation]:
    """Every equation between these numbers.

    Keys of `known` are fields of `Claim`, `steps_per_s`, `baseline_token_ms` and `baseline_predicted_ms`.
    `positions` are acceptance per draft position, `averaged` the names of means, `runs` the generations summed up.
    `window`: definition of the rate, as in `Claim`. `elsewhere`: where a baseline of another row is. `busy`: several
    requests at once, though `concurrency` may not say how many. `chain`: drafts are chains of at most gamma tokens.
    `baseline`: the row itself is without speculation.
    """
    row = _Row({name: it for name, it in known.items() if it.value > 0 or name in _MAY_BE_ZERO}, averaged, runs)
    load = row.get("concurrency")
    busy = busy or (load is not None and load.value > 1)
    for field, each in (("decode_rate", "token_ms"), ("baseline_rate", "baseline_token_ms")):
        yield from _of_rate(row, field, each, busy)
    if not busy or window == "with prompt":
        yield from _of_time(row, busy, window)
    yield from _of_run(row)
    yield from _of_counts(row)
    if not busy:
        yield from _of_steps(row, baseline)
    yield from _of_shares(row)
    if chain:
        yield from _of_positions(row, positions)
    if not baseline:
        yield from _of_speedup(row, speedup_of, elsewhere, busy)
    elif (speedup := row.get("speedup")) is not None:
        yield row.equation("speedup-of-baseline", speedup, ONE, "speedup")


def equations_of(claim: Claim) -> tuple[Equation, ...]:
    """Every equation between the numbers of a claim."""
    known = {name: value for name in _NUMBERS if (value := printed(claim, name)) is not None}
    if claim.acceptance_of == "output":
        known.pop("acceptance", None)
    half = claim.rounding.get("positions", 0.0)
    means = set(claim.averaged)
    if claim.window == "with prompt":  # benchmarks that time whole runs print the ratio of their means
        means -= SPEEDS
    found = tuple(
        equations(
            known,
            positions=[Range(max(0.0, share - half), share, share + half) for share in claim.positions],
            averaged=means,
            runs=claim.runs or 1,
            window=window_of(claim),
            speedup_of=claim.speedup_of,
            elsewhere=claim.baseline_from or "",
            chain=length_binds(claim) and not may_be_tree(claim) and not joined(claim),
        )
    )
    if claim.engine == "llama.cpp" or claim.p_min or family_of(claim) == "lookup":  # drafts may end before gamma tokens
        return tuple(it for it in found if it.law != "acceptance-of-positions" or it.left.low <= it.right.high)
    return found


def window_of(claim: Claim) -> str:
    """How the source itself defines its rate; `unknown` for means, and for sums that no benchmark made."""
    one = claim.runs == 1 or (claim.window == "with prompt" and claim.runs and claim.decode_rate_sd is None)
    return claim.window if one else "unknown"


_NUMBERS = (
    *("decode_rate", "token_ms", "predicted_n", "predicted_ms", "wall_ms", "prompt_n", "prompt_ms", "step_ms"),
    *("baseline_rate", "baseline_predicted_ms", "baseline_wall_ms", "speedup", "concurrency"),
    *("gamma", "acceptance", "tau", "drafted", "accepted", "steps", "target_forwards"),
)


class _Row:
    """The numbers of a row."""

    def __init__(self, known: Mapping[str, Range], averaged: Collection[str], runs: int) -> None:
        self.known, self.get, self.averaged, self.runs = known, known.get, averaged, runs

    def equation(self, law: str, left: Range, right: Range, *fields: str, far: float = 0.0, **more: Value) -> Equation:
        """One equation."""
        terms = LAWS[law]
        means = self.averaged and not set(fields).isdisjoint(self.averaged)
        far = terms.of_means if means else far or terms.far
        return Equation(law, left, right, fields, far, apart(left, right), self.known, more)

    def tokens(self) -> list[Range]:
        """The tokens with and without the first of each generation; none if they are too few to say much."""
        count = self.get("predicted_n")
        if count is None or count.value <= _FEW:
            return []
        return [count, count.plus(-self.runs)] if count.low > self.runs else [count]


SPEEDS = frozenset({"speedup", "decode_rate", "baseline_rate"})
_MAY_BE_ZERO = frozenset({"accepted", "acceptance", "gamma", "prompt_n"})
_SERVED = 1.6
"""Factor above the rate of its time per token from which on a rate is that of several requests, if nothing says so."""
_FEW = 8
_LONGEST = 8.5
"""Draft length that an acceptance and a tau may show: nearly every longer one is near a whole number."""
_SHORTER = 1.15
"""Factor by which drafts that end early may lower tau where the other rows' drafts have full length."""
_ELSEWHERE = 1.08
"""`Law.far` of a speedup over a baseline of another row."""
TOLERANCE = 0.002
"""By which counts and times may miss a rate: clocks are read at slightly different moments."""
ROUNDED = 0.005
"""By which a share may miss its counts."""


def _of_rate(row: _Row, field: str, each_field: str, busy: bool) -> Iterator[Equation]:
    rate, each, load = row.get(field), row.get(each_field), row.get("concurrency")
    if rate is None or each is None:
        return
    made, fields, term = _per_s(ONE, each), (field, each_field), each.value
    if busy and load is not None:
        yield row.equation("rate-of-load", rate, made.by(load), *fields, "concurrency", each=term)
    elif not busy and (load is not None or rate.low < _SERVED * made.high):
        within = row.equation("rate-within-token-time", rate, Range(0.0, made.value, made.high), *fields, each=term)
        yield row.equation("rate-of-token-time", rate, made, *fields, each=term) if within.holds else within


def _of_time(row: _Row, busy: bool, window: str) -> Iterator[Equation]:
    """Tokens over time. A rate between that of decoding and that of the whole run may be of another part of it."""
    fields = ("decode_rate", "predicted_n", "predicted_ms", "wall_ms")
    rate, counts, decode, wall = row.get("decode_rate"), row.tokens(), row.get("predicted_ms"), row.get("wall_ms")
    each, prompt_n, prompt_ms = row.get("token_ms"), row.get("prompt_n"), row.get("prompt_ms")
    if each is not None and counts and decode is not None and not busy:
        made = min((decode.over(it) for it in counts), key=lambda it: apart(each, it))
        yield row.equation("token-time", each, made, "token_ms", *fields[1:3])
    open_window = window == "unknown"
    ways: list[tuple[Range, Range]] = []
    if decode is not None and window != "with prompt":
        ways += [(count, decode) for count in counts]
    whole = [wall] if wall is not None and (open_window or window == "with prompt") else []
    if decode is not None and prompt_ms is not None and open_window:
        whole.append(decode.plus(prompt_ms))
    for time in whole:
        ways += [(it, time) for it in (*counts[:1], *([counts[0].plus(prompt_n)] if counts and prompt_n else []))]
    if decode is None and wall is not None and prompt_ms is not None and wall.low > prompt_ms.high and open_window:
        left = Range(wall.low - prompt_ms.high, wall.value - prompt_ms.value, wall.high - prompt_ms.low)
        ways += [(count, left) for count in counts[:1]]
    if rate is None or not ways:
        return
    rates = [_per_s(tokens, time) for tokens, time in ways]
    nearest = min(range(len(ways)), key=lambda n: apart(rate, rates[n]))
    made, (tokens, time) = rates[nearest], ways[nearest]
    terms = {"tokens": tokens.value, "seconds": time.value / 1e3}
    if open_window and decode is None:
        yield row.equation("rate-of-run", rate, made, *fields[:2], "wall_ms", **terms)
        made = Range(min(it.low for it in rates), made.value, math.inf)
    elif open_window and apart(rate, made) > 1 + TOLERANCE:
        made = Range(min(it.low for it in rates), made.value, max(it.high for it in rates))
    yield row.equation("rate-of-time", rate, made, *fields, **terms)


def _of_run(row: _Row) -> Iterator[Equation]:
    """The tokens that counters give, with a step for every gamma drafts, over the time of the whole run."""
    fields = ("decode_rate", "accepted", "drafted", "gamma", "wall_ms")
    rate, accepted, drafted, gamma, wall = (row.get(it) for it in fields)
    if rate is None or accepted is None or drafted is None or gamma is None or wall is None or not gamma.value:
        return
    yield row.equation("rate-of-counts", rate, _per_s(accepted.plus(drafted.over(gamma)), wall), *fields)


def _of_counts(row: _Row) -> Iterator[Equation]:
    accepted, drafted, steps, forwards = (row.get(it) for it in ("accepted", "drafted", "steps", "target_forwards"))
    share, tau, tokens = row.get("acceptance"), row.get("tau"), row.tokens()
    if share is not None and accepted is not None and drafted is not None:
        made = accepted.over(drafted)
        made = Range(made.low - ROUNDED, made.value, made.high + ROUNDED)
        yield row.equation("acceptance-of-counts", share, made, "acceptance", "accepted", "drafted")
    if tau is None or steps is None:
        return
    if accepted is not None:
        made = accepted.over(steps).plus(1)
        if tokens and forwards is not None:  # some forwards may have had nothing to verify
            other = tokens[-1].over(forwards)
            made = Range(min(made.low, other.low), made.value, max(made.high, other.high))
        yield row.equation("tau-of-counts", tau, made, "tau", "accepted", "steps")
    elif tokens:
        made = min((it.over(steps) for it in tokens), key=lambda it: apart(tau, it))
        yield row.equation("tau-of-tokens", tau, made, "tau", "predicted_n", "steps")


def _of_steps(row: _Row, baseline: bool) -> Iterator[Equation]:
    rate, tau = row.get("decode_rate"), row.get("tau") or (ONE if baseline else None)
    for field in ("step_ms", "steps_per_s"):
        if rate is not None and tau is not None and (step := row.get(field)) is not None:
            made, each = (_per_s(tau, step), step.value) if field == "step_ms" else (tau.by(step), 1e3 / step.value)
            yield row.equation("rate-of-steps", rate, made, "decode_rate", field, "tau", tau=tau.value, each=each)


def _of_shares(row: _Row) -> Iterator[Equation]:
    """Tokens per step by acceptance. Trees may keep it too, if gamma counts their nodes."""
    tau, share, gamma = row.get("tau"), row.get("acceptance"), row.get("gamma")
    if tau is None or share is None:
        return
    if gamma is not None and gamma.value > 0:
        made = share.by(gamma).plus(1)
        found = row.equation("tau-of-acceptance", tau, made, "tau", "acceptance", "gamma")
        if tau.low > made.high or not LAWS[found.law].near < found.gap <= _SHORTER:
            yield found
    elif gamma is None and tau.low > 1 and share.low > 0:
        length = tau.plus(-1).over(share)
        if 1.5 < length.value < _LONGEST:
            whole = ONE.by(round(length.value))
            yield row.equation("length-is-whole", length, whole, "tau", "acceptance", tau=tau.value)


def _of_positions(row: _Row, positions: Sequence[Range]) -> Iterator[Equation]:
    tau, share, gamma = row.get("tau"), row.get("acceptance"), row.get("gamma")
    if len(positions) < 2:
        return
    first, later = max(pairwise(positions), key=lambda pair: pair[1].low / max(pair[0].high, 1e-9))
    yield row.equation("positions-fall", later, Range(0.0, first.value, first.high), "positions")
    total = Range(*(math.fsum(getattr(it, end) for it in positions) for end in ("low", "value", "high")))
    if gamma is not None and gamma.value != len(positions):
        return
    if tau is not None:
        found = row.equation("tau-of-positions", tau, total.plus(1), "tau", "positions")
        if found.holds or gamma is not None or tau.high < found.right.low:  # else further positions are not printed
            yield found
    if share is not None and gamma is not None:
        made = total.by(1 / len(positions))
        yield row.equation("acceptance-of-positions", share, made, "acceptance", "positions")


def _with_runs(row: _Row) -> _Row:
    """The row with the times of whole runs that it implies: of the prompt, and of the tokens at its rates."""
    prompt, count, known = row.get("prompt_ms"), row.get("predicted_n"), dict(row.known)
    for side, rate in (("", "decode_rate"), ("baseline_", "baseline_rate")):
        if prompt is not None and count is not None and rate in known and f"{side}wall_ms" not in known:
            decode = known.get(f"{side}predicted_ms") or count.over(known[rate]).by(1e3)
            known[f"{side}wall_ms"] = prompt.plus(decode)
    return _Row(known, row.averaged, row.runs)


def _of_speedup(row: _Row, speedup_of: str, elsewhere: str, busy: bool) -> Iterator[Equation]:
    speedup, ratios, of_run = row.get("speedup"), list[Equation](), None
    if speedup is not None and "prompt_ms" in row.known:
        row = _with_runs(row)
    for law, fast, slow in (
        ("speedup-of-rates", "decode_rate", "baseline_rate"),
        ("speedup-of-token-times", "token_ms", "baseline_token_ms"),
        ("speedup-of-decoding", "predicted_ms", "baseline_predicted_ms"),
        ("speedup-of-run", "wall_ms", "baseline_wall_ms"),
    ):
        with_drafts, without = row.get(fast), row.get(slow)
        if with_drafts is None or without is None:
            continue
        made = with_drafts.over(without) if fast == "decode_rate" else without.over(with_drafts)
        where = Message("audit.with_baseline", baseline=elsewhere) if elsewhere else ""
        far = _ELSEWHERE if elsewhere else 0.0
        found = row.equation(law, speedup or made, made, "speedup", fast, slow, far=far, where=where)
        if law == "speedup-of-run":
            of_run = found
        else:
            ratios.append(found)
    best = min(ratios, key=lambda found: found.gap, default=None)
    if speedup is not None and speedup_of == "run":
        if of_run is not None:
            yield of_run
        elif best is not None:  # the prompt takes the same time in both
            made = Range(min(1.0, best.right.low), best.right.value, max(1.0, best.right.high))
            yield row.equation("speedup-within-rates", speedup, made, *best.fields)
    elif speedup is not None and best is not None and (best.holds or of_run is None or not of_run.holds):
        yield best
    elif speedup is not None and best is None and of_run is not None:
        made = Range(min(1.0, of_run.right.low), of_run.right.value, math.inf)
        yield of_run._replace(right=made, gap=apart(speedup, made))
    for a, b in pairwise(ratios):
        found = row.equation("rates-and-times", a.right, b.right, *a.fields[1:], *b.fields[1:])
        if found.holds or not busy:
            yield found


def _per_s(count: Range, ms: Range) -> Range:
    """Counts over times in ms, per second."""
    return count.over(ms).by(1e3)

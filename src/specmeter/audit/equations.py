"""What ties the numbers of a record together. Each check says whether it holds, how sharply, and what a breach is worth."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .records import Iv, Record

RANK = {"possible": 0, "contradiction": 1, "implausible": 2, "impossible": 3}
BANDWIDTH = {  # GB/s, the makers' peaks (a production version takes specmeter's own list)
    "rtx 3090": 936,
    "rtx 4090": 1008,
    "rtx 5090": 1792,
    "rtx 3060": 360,
    "rtx 3080": 760,
    "rtx 4060": 272,
    "rtx 4070": 504,
    "a100": 2039,
    "h100": 3350,
    "h200": 4800,
    "p40": 347,
    "v100": 900,
    "l40s": 864,
    "l4": 300,
    "a6000": 768,
    "m1 max": 400,
    "m2 max": 400,
    "m3 max": 400,
    "m4 max": 546,
    "m1 ultra": 800,
    "m2 ultra": 800,
    "m3 ultra": 819,
    "m2 pro": 200,
    "m4 pro": 273,
    "m1 pro": 200,
    "m5 max": 614,
    "7900 xtx": 960,
    "ryzen ai max": 256,
    "strix halo": 256,
    "gb10": 273,
    "dgx spark": 273,
}
TREE = re.compile(r"tree|medusa|eagle|hydra|top-?k|topk", re.I)
NOT_IN_TURN = re.compile(
    r"pearl|amusd|parallel draft|dflash|medusa|eagle|n-?gram|suffix|lookup|pld|lookahead|remote|async", re.I
)


@dataclass(frozen=True)
class Check:
    law: str
    holds: bool
    info: float
    """Evidence for the reading in nats where it holds: a sharp agreement of precise numbers is worth more."""
    verdict: str = "possible"
    why: str = ""
    streams: tuple[int, ...] = ()
    identity: bool = False
    """Whether it is an equation: where that fails in many rows, the reading is wrong; a bound may be broken in all."""
    learned: bool = False
    """Whether it need not hold at all: it counts only in a table whose other rows keep it sharply."""

    @property
    def key(self) -> str:
        return f"{self.law} {self.streams[:1]}"


def gap(a: Iv, b: Iv) -> float:
    """How far two ranges lie apart, as a factor above 1 (1 where they meet)."""
    if a.lo <= b.hi and b.lo <= a.hi:
        return 1.0
    low, high = (a.hi, b.lo) if a.hi < b.lo else (b.hi, a.lo)
    return high / max(low, 1e-9) if low > 0 else 99.0


def same(
    law: str,
    a: Iv,
    b: Iv,
    why: str,
    verdict: str = "contradiction",
    near: float = 1.02,
    far: float = 1.08,
    weight: float = 1.0,
) -> Check | None:
    """An identity. Between `near` and `far` nothing is said: means and windows differ by as much."""
    apart = gap(a, b)
    if a.mean or b.mean:
        far = 1 + 1.6 * (far - 1)
    if apart <= near:
        width = (
            (a.hi - a.lo) / 2 / max(abs(a.value), 1e-9)
            + (b.hi - b.lo) / 2 / max(abs(b.value), 1e-9)
            + 0.004
            + (apart - 1)
        )
        return Check(
            law,
            True,
            weight * max(0.0, min(4.5, math.log(1 / max(width, 1e-4)) - 0.7)),
            "possible",
            why,
            (a.stream, b.stream),
        )
    if apart <= far:
        return Check(law, True, -0.5 * weight, "possible", why, (a.stream, b.stream))
    return Check(law, False, 0.0, verdict, f"{why}, {apart:.2f} times apart", (a.stream, b.stream), True)


def atmost(law: str, a: Iv, b: Iv, why: str, verdict: str, room: float = 1.0) -> Check:
    """A bound: a is no more than b."""
    over = a.lo / max(b.hi, 1e-9)
    if over <= room:
        return Check(law, True, 0.15, "possible", why, (a.stream, b.stream))
    return Check(law, False, 0.0, verdict, f"{why}, by {over:.2f}", (a.stream, b.stream))


def usual(law: str, a: Iv, b: Iv, why: str) -> Check:
    """An equation that many tables keep and some need not: a breach counts where the other rows keep it."""
    c = same(law, a, b, why, near=1.015, far=1.06)
    if c is None or c.holds:
        return c or Check(law, True, 0.0)
    return Check(
        law,
        False,
        0.0,
        "possible",
        f"{why}, {gap(a, b):.2f} times apart, though the other rows agree",
        (a.stream, b.stream),
        False,
        True,
    )


def f(iv: Iv) -> str:
    return f"{iv.value:.4g}"


def checks(rec: Record) -> Iterator[Check]:
    k = rec.known
    get = k.get
    conc = get("CONC")
    if re.search(
        r"one request at a time|single (request|stream|user)|concurrency (of )?1\b", rec.text, re.I
    ) and re.search(r"\b([2-9]|\d\d+) (parallel|concurrent|users|clients|streams|requests)", rec.text, re.I):
        rec.loads_differ = True
    busy = (
        conc is not None
        and conc.value > 1
        or bool(re.search(r"\b(?:parallel|concurren\w+|batch(?:ed)?|np)\b", rec.text, re.I))
        and conc is None
    )
    base_only = rec.role == "base"
    if rec.synthetic and rec.speedups:
        yield Check("synthetic acceptance", False, 0.0, "impossible", "acceptance was decided by dice")
    tree = bool(TREE.search(rec.text)) and not re.search(r"chain|vllm", rec.text, re.I)
    two_methods = len(
        {
            w
            for w in re.findall(
                r"\bmtp|ngram|n-gram|eagle|dflash|suffix|medusa", rec.text[: len(rec.label) + 40].lower()
            )
        }
    ) > 1 or bool(re.search(r"\w \+ (sd|spec)", rec.label, re.I))
    rooms = 1.06
    # --- times and rates of the same side
    for side in "bs":
        rate, each, wall, decode, count = (get(q + side) for q in ("R", "T", "W", "DT", "N"))
        if base_only and side == "s" or not base_only and side == "b" and rec.base_from != "cell":
            continue
        if rate and each and not busy:
            c = same(
                "rate x time per token",
                rate,
                Iv(1000 / each.value, 1000 / each.hi, 1000 / max(each.lo, 1e-9), each.mean, each.stream),
                f"{f(rate)} tok/s and {f(each)} ms per token",
                far=1.12,
            )
            if c and (c.holds or conc is not None):
                yield c
            elif c and not c.holds:
                yield Check(
                    c.law,
                    False,
                    0.0,
                    "contradiction"
                    if rate.value < 1000 / each.value * 0.85 or rate.value < 1.6 * 1000 / each.value
                    else "possible",
                    c.why,
                    c.streams,
                )
        if rate and each and conc is not None and conc.value > 1:
            yield usual(
                "rate = requests / time per token",
                rate,
                Iv(
                    1000 * conc.value / each.value,
                    1000 * conc.value / each.hi,
                    1000 * conc.value / max(each.lo, 1e-9),
                    False,
                    each.stream,
                ),
                f"{f(rate)} tok/s of {f(conc)} requests at {f(each)} ms",
            )
        per_s = get("PS" + side)
        if rate and per_s:
            per = (
                get("TAU" + side)
                or (get("TAU") or (get("TAUX").plus(1) if get("TAUX") else None) if side == "s" else None)
                or Iv(1, 1, 1)
            )  # type: ignore[union-attr]
            c = same(
                "rate = tau x steps per second",
                rate,
                per * per_s,
                f"{f(per)} tokens x {f(per_s)} steps/s, printed {f(rate)}",
                near=1.02,
                far=1.1,
            )
            if c:
                yield c
        count = count or get("Ns" if side == "s" else "Nb")
        if wall and decode and not wall.mean:
            yield atmost(
                "decoding <= wall", decode, wall, f"{f(decode)} ms of decoding in {f(wall)} ms", "impossible", 1.02
            )
        if rate and count and count.value > 8 and not busy:
            if decode:
                given = Iv(
                    count.value / decode.value * 1000,
                    (count.lo - 1) / decode.hi * 1000,
                    count.hi / max(decode.lo, 1e-9) * 1000,
                    False,
                    decode.stream,
                )
                c = same(
                    "tokens / time",
                    rate,
                    given,
                    f"{f(count)} tokens in {decode.value / 1000:.4g} s are {f(given)} tok/s, printed {f(rate)}",
                    "impossible",
                    near=1.015,
                    far=1.06,
                )
                if c:
                    yield c
            if wall:
                given = Iv(
                    count.value / wall.value * 1000,
                    (count.lo - 1) / wall.hi * 1000,
                    count.hi / max(wall.lo, 1e-9) * 1000,
                    False,
                    wall.stream,
                )
                yield atmost(
                    "tokens / wall",
                    given,
                    rate,
                    f"{f(count)} tokens in {wall.value / 1000:.4g} s are more than {f(rate)} tok/s",
                    "contradiction",
                    1.06,
                )
                if given.value > 0 and rate.value / given.value > 20:
                    yield Check("tokens / wall, far", True, -1.5)
    # --- counts
    drafted, accepted, steps, count = (get(q + "s") or get(q + "b") or get(q) for q in ("D", "K", "STEPS", "N"))
    gamma, share = get("GAMMA"), get("A")
    tau = get("TAU") or get("TAUs") or get("TAUb")
    taux = get("TAUX")
    if accepted and drafted and drafted.value > 0:
        with_own = (
            steps is not None
            and accepted.value > 0
            and accepted.value - steps.value <= drafted.value
            and (count is None or abs(count.value / accepted.value - 1) < 0.03)
        )
        if not with_own:
            yield atmost(
                "accepted <= drafted",
                accepted,
                drafted,
                f"{f(accepted)} accepted of {f(drafted)} drafted",
                "impossible",
            )
        if share:
            c = same(
                "acceptance = accepted / drafted",
                share,
                accepted / drafted,
                f"acceptance {f(share)}, its counts give {(accepted / drafted).value:.4g}",
                "impossible",
                near=1.012,
                far=1.04,
                weight=1.2,
            )
            if c:
                yield c
    if share:
        yield atmost("acceptance <= 1", share, Iv(1, 1, 1.0005), f"acceptance {f(share)}", "impossible")
        if share.value > 0.02:
            yield Check("acceptance in range", True, 0.2)
    if steps and accepted and steps.value > 0:
        per = accepted / steps
        if tau:
            c = same(
                "tau = 1 + accepted / steps",
                tau,
                per.plus(1),
                f"{f(tau)} tokens per step, its counts give {per.plus(1).value:.4g}",
                "impossible",
                near=1.012,
                far=1.05,
                weight=1.2,
            )
            if c:
                yield c
        if taux:
            c = same(
                "accepted per step",
                taux,
                per,
                f"{f(taux)} accepted per step, its counts give {per.value:.4g}",
                "impossible",
                near=1.012,
                far=1.05,
                weight=1.2,
            )
            if c:
                yield c
        if (
            count
            and count.value > 1
            and re.search("step|round|cycle", rec.text, re.I)
            or steps
            and count
            and rec.known.get("STEPSs")
        ):
            if count:
                top = Iv(accepted.value + steps.value, 0, 1.03 * (accepted.hi + steps.hi) + 2, False, steps.stream)
                yield atmost(
                    "tokens <= accepted + steps",
                    count,
                    top,
                    f"{f(count)} tokens from {f(accepted)} accepted and {f(steps)} steps",
                    "implausible",
                )
    if steps and drafted and gamma and gamma.value > 0:
        yield atmost(
            "drafted <= gamma x steps",
            drafted,
            gamma * steps,
            f"{f(drafted)} drafted in {f(steps)} steps of {f(gamma)}",
            "implausible",
        )
    if steps and count and tau and count.value > 8:
        c = same(
            "tau = tokens / steps",
            tau,
            count / steps,
            f"{f(tau)} tokens per step, {f(count)} tokens in {f(steps)} steps",
            near=1.03,
            far=1.12,
        )
        if c and (c.holds or not accepted):
            yield c
    if accepted and count and gamma and count.value > 20 and accepted.value > 0:
        yield atmost(
            "accepted <= tokens",
            accepted,
            count.plus(gamma.value),
            f"{f(accepted)} accepted, but {f(count)} tokens",
            "impossible",
            1.02,
        )
    if base_only:
        for _, speedup, _ in rec.speedups:
            if abs(speedup.value - 1) < 0.005:
                yield Check("a baseline has speedup 1", True, 1.5)
            elif rec.only_base and abs(math.log(max(speedup.value, 0.01))) > 0.1:
                yield Check(
                    "a baseline has speedup 1",
                    False,
                    0.0,
                    "contradiction",
                    f"the baseline has a speedup of {f(speedup)}",
                    (),
                    True,
                )
        return
    # --- tokens per step
    open_length = bool(re.search(r"pearl|svip|suffix|adaptive|dynamic|amusd", rec.text, re.I))
    if tau and gamma and gamma.value > 0 and not two_methods and not open_length:
        yield atmost(
            "tau <= gamma + 1",
            tau,
            gamma.plus(1),
            f"{f(tau)} tokens per step with drafts of {f(gamma)}",
            "impossible",
            1.005,
        )
    if taux and gamma and gamma.value > 0 and not two_methods and not open_length:
        yield atmost(
            "accepted per step <= gamma",
            taux,
            gamma,
            f"{f(taux)} accepted per step with drafts of {f(gamma)}",
            "impossible",
            1.005,
        )
    if len(rec.positions) > 1 and not tree:
        fall = all(b.lo <= a.hi * 1.03 for a, b in zip(rec.positions, rec.positions[1:]))
        yield Check(
            "positions fall",
            fall,
            0.5,
            "possible" if fall else "contradiction",
            "a later position is accepted more often than one before it",
        )
        total = Iv(
            sum(p.value for p in rec.positions), sum(p.lo for p in rec.positions), sum(p.hi for p in rec.positions)
        )
        per = tau or (taux.plus(1) if taux else None)
        if per and (gamma is None or gamma.value == len(rec.positions)):
            c = same(
                "tau = 1 + positions",
                per,
                total.plus(1),
                f"{f(per)} tokens per step, its positions give {total.plus(1).value:.4g}",
                near=1.012,
                far=1.05,
            )
            if c and (c.holds or gamma is not None or per.value < total.plus(1).lo):
                yield c
        if share and gamma is not None and gamma.value == len(rec.positions):
            c = same(
                "acceptance = mean of positions",
                share,
                total.times(1 / len(rec.positions)),
                f"acceptance {f(share)}, its positions give {total.value / len(rec.positions):.4g}",
                near=1.012,
                far=1.06,
            )
            if c:
                yield c
    if share and gamma and gamma.value > 0 and not tree and not two_methods:
        most = (share * gamma).plus(1)
        for iv, name in ((tau, "tau"), (taux.plus(1) if taux else None, "tau")):
            if iv:
                yield usual(
                    "tau = 1 + acceptance x gamma",
                    iv,
                    most,
                    f"{f(iv)} tokens per step, 1 + {f(share)} x {f(gamma)} = {most.value:.3g}",
                )
                if iv is tau or taux:
                    yield atmost(
                        "tau <= 1 + acceptance x gamma",
                        iv,
                        most,
                        f"{f(iv)} tokens per step, 1 + {f(share)} x {f(gamma)} = {most.value:.3g}",
                        "implausible",
                        1.05 if not iv.mean and not share.mean else 1.08,
                    )
    msps, rs, rb = get("MSPSs"), get("Rs"), get("Rb")
    if msps and rs and (tau or taux) and not busy:
        per = tau or taux.plus(1)  # type: ignore[union-attr]
        c = same(
            "rate = tau / time per step",
            rs,
            Iv(1000 * per.value / msps.value, 1000 * per.lo / msps.hi, 1000 * per.hi / msps.lo, False, msps.stream),
            f"{f(per)} tokens in {f(msps)} ms, printed {f(rs)} tok/s",
            near=1.03,
            far=1.12,
        )
        if c:
            yield c
    # --- speedups
    ratios: dict[str, list[Iv]] = {"rate": [], "time": []}
    for q, basis in (("R", "rate"), ("T", "rate"), ("DT", "rate"), ("W", "time")):
        s, b = get(q + "s"), get(q + "b")
        if s and b and s.value > 0 and b.value > 0:
            ratios[basis].append(s / b if q == "R" else b / s)
    gaps = 1.05 if rec.base_from == "cell" else 1.08
    for basis, speedup, beside in rec.speedups:
        against = ratios[basis]
        if against:
            best = min(against, key=lambda it: gap(it, speedup))
            c = same(
                f"speedup ({basis})",
                speedup,
                best,
                f"speedup {f(speedup)} beside rates that give {f(best)}",
                far=gaps,
                weight=1.0,
            )
            if c and not c.holds and rec.several and not beside:
                c = Check(c.law, False, 0.0, "contradiction", c.why, c.streams, True)
            if c:
                yield c
        elif basis == "time" and ratios["rate"]:
            best = ratios["rate"][0]
            inside = Iv(best.value, min(1.0, best.lo) * 0.97, max(1.0, best.hi) * 1.03)
            ok = speedup.hi >= inside.lo and speedup.lo <= inside.hi
            yield Check(
                "speedup end to end",
                ok,
                0.2,
                "possible" if ok else "contradiction",
                f"speedup {f(speedup)}, of decoding alone {f(best)}",
            )
        elif basis == "rate" and ratios["time"]:
            best = ratios["time"][0]
            ok = speedup.hi >= min(1.0, best.lo) * 0.97
            yield Check(
                "speedup of decoding beside wall times",
                ok,
                -2.5,
                "possible" if ok else "contradiction",
                f"speedup {f(speedup)}, of the whole {f(best)}",
            )
    for a, b in zip(ratios["rate"], ratios["rate"][1:]):
        c = same("rates and times", a, b, f"{f(a)} by one pair, {f(b)} by the other", far=1.15)
        if c and (c.holds or not busy):
            yield c
    if rec.other_machine:
        yield Check(
            "one machine", False, 0.0, "implausible", f"the baseline is of another machine: {rec.other_machine}"
        )
    # --- how fast drafts can make it
    fast = [iv for _, iv, _ in rec.speedups] + ratios["rate"]
    if not fast or rec.role == "?" or rec.loads_differ or rec.unsteady and not rec.speedups:
        pass
    else:
        top = max(fast, key=lambda it: it.lo)
        spread = 1.6 if any(iv.mean for _, iv, _ in rec.speedups) else 1.18 if share and share.mean else rooms
        bounds: list[tuple[Iv, str]] = []
        if tau and not two_methods:
            bounds.append((tau, f"tau {f(tau)}"))
        if taux:
            bounds.append((taux.plus(1), f"1 + {f(taux)} accepted per step"))
        if share and gamma and gamma.value > 0 and not tree and not two_methods:
            bounds.append(((share * gamma).plus(1), f"1 + {f(share)} x {f(gamma)}"))
        if gamma and gamma.value > 0 and not two_methods and not open_length:
            bounds.append((gamma.plus(1), f"drafts of {f(gamma)}"))
        if accepted and count and count.value > accepted.value + 1 and count.value > 20:
            bounds.append(
                (
                    Iv(
                        count.value / (count.value - accepted.value),
                        0,
                        count.hi / max(1.0, count.lo - accepted.hi - (gamma.value if gamma else 4)),
                    ),
                    f"{f(accepted)} accepted of {f(count)} tokens",
                )
            )
        for bound, words in bounds:
            yield atmost(
                f"speedup <= {words.split()[0]}", top, bound, f"speedup {f(top)} > {words}", "implausible", spread
            )
        drafter = get("RD")
        if drafter and rb and gamma and gamma.value > 0 and not NOT_IN_TURN.search(rec.text) and bounds:
            least = min(bounds, key=lambda it: it[0].hi)[0]
            limit = least.times(1 / (1 + gamma.value * rb.value / drafter.value))
            yield atmost(
                "cost of drafting",
                top,
                limit,
                f"speedup {f(top)} > {f(least)} / (1 + {f(gamma)} x {rb.value / drafter.value:.2f})",
                "implausible",
                spread,
            )
    drafter, decode = get("RD"), get("DTs") or get("Ws")
    if drafter and drafted and decode and not NOT_IN_TURN.search(rec.text):
        yield atmost(
            "time of drafting",
            Iv(drafted.value / drafter.value * 1000, drafted.lo / drafter.hi * 1000, 0),
            decode,
            f"{f(drafted)} drafts at {f(drafter)} tok/s take longer than the run",
            "implausible",
            1.05,
        )
    # --- memory
    size, rate = get("SIZE"), rb or rs
    if size and rate and not (rs and rec.role == "sd") and not rec.speedups:
        device = next((n for n in sorted(BANDWIDTH, key=len, reverse=True) if n in rec.text.lower()), None)
        moe = re.search(
            r"moe|a\d+(?:\.\d+)?b\b|\dx\d+b|oss|mixtral|deepseek|glm|scout|kimi|minimax|h-tiny|\d+e\b|expert|ernie|olmoe|lfm2|qwen3-next|maverick|llama-4",
            rec.text,
            re.I,
        )
        if device and not moe and size.value > 0.3:
            many = re.search(r"(\d)\s?x", rec.text)
            peak = BANDWIDTH[device] * (int(many[1]) if many else 1)
            yield atmost(
                "memory bandwidth",
                Iv(rate.value * size.value * 0.75, rate.lo * size.lo * 0.75, 0, rate.mean, rate.stream),
                Iv(peak, peak, peak),
                f"{f(rate)} tok/s x {f(size)} GB on {device} ({peak} GB/s)",
                "implausible",
                1.06,
            )

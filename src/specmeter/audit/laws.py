"""The bounds of the judge in one list: what each forbids, and on which assumptions it rests.

A bound without assumptions is arithmetic or counting: what breaks it is impossible, whatever the machine. A bound with
assumptions makes a claim implausible: it is as wrong as the assumption that fails least. The page on audits has both
tables from here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Law:
    """One bound."""

    name: str
    """By the names of the checks."""
    forbids: str
    assumes: tuple[str, ...] = ()
    """Names of assumptions; empty: arithmetic."""
    exact_where: str = ""
    """When a bound that has assumptions needs none of them."""


LAWS = (
    Law("synthetic-on", "a speedup of a run whose acceptance was decided by dice"),
    Law("target-decode-failed", "a rate of a run in which more than 1 % of the target's verifications failed"),
    Law(
        "conservation",
        "counters that do not add up: more accepted than drafted, an acceptance above 100 %, tokens that no successful "
        "forward stands behind",
        assumes=("one-request",),
        exact_where="a row is one run, or says how many requests were served at once, and for all but forwards",
    ),
    Law(
        "speedup-not-its-rates",
        "a printed speedup that the rates printed beside it do not give",
        assumes=("one-window", "pooled", "baseline"),
        exact_where=(
            "both rates stand in the row, no prompt explains it, and it is one run, or they are more than 1.5 times "
            "apart and none is said to be a mean"
        ),
    ),
    Law(
        "window-mismatch",
        "a rate that the row's own count and time do not give",
        assumes=("one-request", "one-window"),
        exact_where="the row is one run",
    ),
    Law("tau-not-its-acceptance", "of drafts that are chains for sure: tau > 1 + acceptance x gamma",
        assumes=("acceptance", "pooled")),
    Law("speedup-above-tau", "S > tau, tokens emitted per target forward, at most 1 + acceptance x gamma",
        assumes=("forward", "pooled", "acceptance", "baseline")),
    Law("draft-time-bound", "drafting alone, at the draft's own rate, takes longer than the run",
        assumes=("draft-rate",)),
    Law("speedup-above-cost-bound", "S > tau / (1 + g c) for g drafts per step, each costing c target forwards",
        assumes=("forward", "pooled", "acceptance", "full-length", "draft-rate", "baseline")),
    Law("bandwidth-bound", "weights read faster than the memory can deliver them",
        assumes=("bandwidth", "weights")),
)  # fmt: skip
"""The strongest first: what needs the fewest assumptions decides."""

STRENGTH = tuple(law.name for law in LAWS)


@dataclass(frozen=True)
class Assumed:
    """What bounds take for granted."""

    states: str
    fails: str
    """Where it is known to be false."""


ASSUMPTIONS = {
    "forward": Assumed(
        "a target forward over several tokens takes at least as long as one over a single token",
        "CPUs with weights in Q8_0, where two tokens were seen to take 0.67 of the time of one. There up to 0.5 is "
        "believed, and the row is `cannot tell`; `--cheapest-forward` takes what was measured",
    ),
    "pooled": Assumed(
        "the numbers of a row are of the same runs, and sums over all of them",
        "means: of the speedups of 25 prompts they exceed pooled tau by 4, 8 and 18 % where log tau spreads by 0.2, "
        "0.3 and 0.5, of acceptance they may understate tau twofold. Where a column says that it is a mean, that much "
        "is `cannot tell`",
    ),
    "acceptance": Assumed(
        "acceptance is accepted over drafted tokens",
        "tools that print which share of the output came from the draft. Of trees (Medusa, EAGLE) a share of their "
        "nodes is printed: there only tau or counts decide",
    ),
    "full-length": Assumed(
        "every draft has gamma tokens",
        "drafting that stops early (`p_min` above 0) or adapts its length: cheaper drafts, as many accepted",
    ),
    "draft-rate": Assumed(
        "each drafted token costs a forward of the draft at its own printed rate",
        "a draft that was measured elsewhere, in another state, or that drafts several tokens in a forward",
    ),
    "baseline": Assumed(
        "the baseline is plain decoding of the same target on the same machine",
        "baselines of another program or machine. Named only where the baseline does not stand in the row",
    ),
    "one-window": Assumed(
        "a row's rate is its tokens over its time, and its speedup is of the same part of the run",
        "means of several rates, which exceed the pooled rate by about the square of their relative spread; speedups "
        "end to end beside rates of decoding alone, which long prompts bring near to 1",
    ),
    "one-request": Assumed(
        "requests are served one at a time",
        "servers under load: a forward then emits tokens for each request, and a user's rate is not that of all",
    ),
    "bandwidth": Assumed(
        "memory delivers no more than its maker's peak",
        "weights that stay in a cache, or that lie in several memories",
    ),
    "weights": Assumed(
        "a forward reads these weights once",
        "a mixture of experts, which reads the active ones only; layers that are skipped",
    ),
}
"""Name -> what is taken for granted, and where it fails."""


def law(name: str) -> Law:
    """The bound of that name; raises `KeyError` for an unknown one."""
    return _BY_NAME[name]


_BY_NAME = {item.name: item for item in LAWS}

"""What decides about a speedup, in one sentence with its numbers.

Each thing that can go wrong is taken away in thought, everything else left as it was measured; the one whose absence
would help most is the reason:

    no drafts       every step had a draft, worth and costing what the steps with one were
    acceptance      every drafted token was accepted
    verification    verifying the drafts took as long as decoding one token
    drafting        drafts cost nothing
    restoring       rejected tokens were forgotten at no cost
    rest            choosing tokens and whatever else happens in a step took no longer than in plain decoding

All of them from means per step, which is exact: S = tau / cost, as in `theory.cost`. That S is the ratio of all tokens
over all time; the speedup of a run is the geometric mean over its units. And a replay is part of the step that it
repairs, where a run's tau counts it as a forward of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from specmeter.analysis.explain.experts import Experts
    from specmeter.record import Estimate

SAME = 1.05
"""A cause that falls short by less explains it all: forwards vary by as much."""
WORTH_TELLING = 0.1
"""Target forwards."""
ReasonName = Literal["no drafts", "acceptance", "verification", "drafting", "restoring", "rest"]


@dataclass(frozen=True)
class Round:
    """A mean round (all forwards but replays) of an arm; costs in plain tokens."""

    tau: float
    """Tokens emitted; above those per target forward where there are replays."""
    drafted: float
    accepted: float
    with_draft: float
    """Share of the rounds that had a draft."""
    draft: float
    verify: float
    restore: float
    rest: float
    """Sampling, the rest and what nothing accounts for."""
    unexplained: float = 0.0
    """What is left of a step and more than verification can cost; a part of `rest`."""
    replays: float = 0.0
    """Target forwards that replay what was accepted before a restored checkpoint."""

    @property
    def cost(self) -> float:
        """The whole round."""
        return self.draft + self.verify + self.restore + self.rest

    @property
    def speedup(self) -> float:
        """By these means."""
        return self.tau / self.cost

    @property
    def verified(self) -> float:
        """Tokens in a verification: the draft and one of the target's own."""
        return 1 + self.drafted / self.with_draft if self.with_draft > 0 else 1.0

    @property
    def verification(self) -> float:
        """Cost of a verification, plain forwards taken out at the price of a plain token."""
        return (self.verify - (1 - self.with_draft)) / self.with_draft if self.with_draft > 0 else 1.0


def without(it: Round) -> dict[ReasonName, float]:
    """The speedup that would be left with each trouble taken away; the greatest names the reason."""
    share = it.with_draft
    found: dict[ReasonName, float] = {
        "acceptance": (1 + it.drafted) / it.cost,
        "verification": it.tau / (it.cost - it.verify + min(it.verify, 1.0)),
        "drafting": it.tau / (it.cost - it.draft),
        "restoring": it.tau / (it.cost - it.restore),
        "rest": it.tau / (it.cost - max(0.0, it.rest)),
    }
    if 0 < share < 1:
        # What steps with a draft yield, at what they cost, which is one plain token at the least; the others are taken
        # out at one token and its price.
        emitted = 1 + it.accepted / share
        cost = max(1.0, (it.cost - (1 - share)) / share)
        found["no drafts"] = emitted / cost
    return found


def sentence(
    it: Round, experts: Experts | None, *, undivided: bool = False, measured: Estimate | None = None
) -> tuple[ReasonName | None, str]:
    """(what decides, the sentence); None where no single part does. `experts`: those of the target, None for a dense
    one; `undivided`: `verify` has drafting in it; `measured`: the speedup that stands beside it, a geometric mean."""
    head = f"{it.speedup:.2f}x"
    if measured is not None and f"{measured.point:.2f}" != f"{it.speedup:.2f}":
        head = f"{head} over all tokens (geometric mean over {measured.of or 'blocks'}: {measured.point:.2f}x)"
    if it.with_draft == 0 and it.tau > 1.01:
        return None, f"{head}: the engine does not tell its steps, so where the time went is not known"
    if it.with_draft == 0:
        return "no drafts", f"{head}: nothing was drafted; every token was decoded by itself"
    left = without(it)
    name = max(left, key=lambda key: left[key])
    tau, cost = _quotient(it)
    by_forward = f" (tau is {it.tau / (1 + it.replays):.2f}: it counts replays as forwards too)" if it.replays else ""
    head = f"{head}: each step emits {tau} tokens{by_forward} in the time of {cost} plain steps"
    if left[name] < 1.02 * it.speedup:
        return None, f"{head}; no single part limits it"
    why = _why(name, it, experts)
    both = undivided and name == "verification"
    return name, f"{head}; drafting and {why}" if both else f"{head}; {why}"


def _quotient(it: Round) -> tuple[str, str]:
    """Tokens and cost of a step with as many digits as their quotient needs to be the speedup as printed."""
    told: tuple[str, str] = ("", "")
    for digits in range(2, 8):
        told = f"{it.tau:.{digits}f}", f"{it.cost:.{digits}f}"
        if float(told[1]) > 0 and f"{float(told[0]) / float(told[1]):.2f}" == f"{it.speedup:.2f}":
            break
    return told


def _why(name: ReasonName, it: Round, experts: Experts | None) -> str:
    if name == "no drafts":
        with_one = without(it)["no drafts"]
        return f"only {it.with_draft:.0%} of the steps have a draft (those that do reach {with_one:.2f}x)"
    if name == "acceptance":
        rate = it.accepted / it.drafted
        full = 1 + it.drafted / it.with_draft
        return f"only {rate:.0%} of the drafted tokens are accepted; accepting all would emit {full:.1f} a step"
    if name == "verification":
        more = it.unexplained / it.with_draft
        beside = f"; {more:.1f} more a step are unexplained" if more >= WORTH_TELLING else ""
        costs = f"verifying {round(it.verified)} tokens costs {it.verification:.1f} target forwards"
        return costs + _because(it, experts) + beside
    if name == "drafting":
        each = it.draft / it.drafted if it.drafted else it.draft
        return f"drafting takes {it.draft / it.cost:.0%} of a step: a drafted token costs {each:.2f} target forwards"
    if name == "restoring":
        return f"restoring checkpoints and replaying takes {it.restore / it.cost:.0%} of a step"
    if it.unexplained > it.rest / 2:
        return f"{it.unexplained / it.cost:.0%} of a step is unexplained: more than drafting and verification can cost"
    return f"{it.rest / it.cost:.0%} of a step is neither drafting nor verification"


def _because(it: Round, experts: Experts | None) -> str:
    """Why several tokens cost more than one, as far as that explains it."""
    if experts is None:
        most, cause = it.verified, "extra tokens add compute"
    else:
        more, measured = experts.more(it.verified)
        most = experts.most(it.verified)
        cause = f"{more:.0%} more experts are read ({experts.told(it.verified)})"
        cause = cause if measured else f"up to {cause}"
    if it.verification <= SAME * most:
        return f" because {cause}"
    return f"; that {cause} explains at most {most:.1f} of them; the rest is unexplained"

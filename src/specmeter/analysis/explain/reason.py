"""What decides about a speedup, in one sentence with its numbers.

Each thing that can go wrong is taken away in thought, everything else left as it was measured. The one whose absence
would help most is the reason:

    no drafts       every step had a draft, worth and costing what the steps with one were
    acceptance      every drafted token was accepted
    verification    verifying the drafts took as long as decoding one token
    drafting        drafts cost nothing
    restoring       rejected tokens were forgotten at no cost
    rest            choosing tokens and whatever else happens in a step took no longer than in decoding without
    speculation

All of them from means per step, which is exact: S = tau / cost, as in `theory.cost`. That S is the ratio of all tokens
over all time; the speedup of a run is the geometric mean over its units. A replay is part of the step that it repairs,
where a run's tau counts it as a forward of its own.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from specmeter.analysis.explain.experts import ExpertUse
from specmeter.messages import Message
from specmeter.record import Estimate, Record

SAME = 1.05
"""A cause that falls short by less explains it all: forwards vary by as much."""
WORTH_TELLING = 0.1
"""Target forwards."""
ReasonName = Literal["no drafts", "acceptance", "verification", "drafting", "restoring", "rest"]


class MeanRound(Record):
    """A mean step of an arm, all forwards but replays; costs in plain tokens, the baseline's time per token being 1."""

    tau: float
    """Tokens emitted. A replay is part of its step, so the arm's tau (tokens per target forward) is
    tau / (1 + replays)."""
    drafted: float
    accepted: Annotated[float, Field(exclude=True)]
    with_draft: float
    """Share of the steps that had a draft."""
    draft: float
    verify: float
    restore: float
    rest: float
    """Sampling, the rest and what nothing accounts for."""
    unexplained: Annotated[float, Field(exclude=True)] = 0.0
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


def without(it: MeanRound) -> dict[ReasonName, float]:
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
    it: MeanRound,
    experts: ExpertUse | None,
    *,
    undivided: bool = False,
    measured: Estimate | None = None,
    priced: tuple[float, Message] | None = None,
) -> tuple[ReasonName | None, Message]:
    """(what decides, the sentence); None where no single part does. `experts`: those of the target, None for a dense
    one; `undivided`: `verify` has drafting in it; `measured`: the speedup that stands beside it, a geometric mean;
    `priced`: what a verification of its length costs, and by what measurement."""
    speedup: float | Message = it.speedup
    if measured is not None and f"{measured.point:.2f}" != f"{it.speedup:.2f}":
        of = Message("unit.invocations" if measured.of == "invocations" else "unit.blocks")
        speedup = Message("account.all_tokens", speedup=it.speedup, of=of, mean=measured.point)
    if it.with_draft == 0 and it.tau > 1.01:
        return None, Message("account.no_steps", speedup=speedup)
    if it.with_draft == 0:
        return "no drafts", Message("account.idle", speedup=speedup)
    left = without(it)
    name = max(left, key=lambda key: left[key])
    tau, cost = _quotient(it)
    by_forward = Message("account.by_forward", tau=it.tau / (1 + it.replays)) if it.replays else ""
    step = Message("account.step", speedup=speedup, tau=tau, by_forward=by_forward, cost=cost)
    if left[name] < 1.02 * it.speedup:
        return None, Message("account.unlimited", step=step)
    why = _why(name, it, "" if undivided or name != "verification" else _because(it, experts), priced)
    if undivided and name == "verification":
        return name, Message("account.undivided", step=step, drafted=round(it.verified) - 1, why=why)
    return name, Message("account.limited", step=step, why=why)


def _quotient(it: MeanRound) -> tuple[str, str]:
    """Tokens and cost of a step with as many digits as their quotient needs to be the speedup as printed."""
    told: tuple[str, str] = ("", "")
    for digits in range(2, 8):
        told = f"{it.tau:.{digits}f}", f"{it.cost:.{digits}f}"
        if float(told[1]) > 0 and f"{float(told[0]) / float(told[1]):.2f}" == f"{it.speedup:.2f}":
            break
    return told


def _why(name: ReasonName, it: MeanRound, because: Message | str, priced: tuple[float, Message] | None) -> Message:
    if name == "no drafts":
        return Message("account.no_drafts", with_draft=it.with_draft, reached=without(it)["no drafts"])
    if name == "acceptance":
        full = 1 + it.drafted / it.with_draft
        reached = without(it)["acceptance"]
        still = Message("account.still", reached=reached) if reached < 1 else ""
        return Message("account.acceptance", rate=it.accepted / it.drafted, full=full, still=still)
    if name == "verification":
        more = it.unexplained / it.with_draft
        return Message(
            "account.verification",
            tokens=round(it.verified),
            forwards=it.verification,
            probed="" if priced is None else Message("account.probed", forwards=priced[0], source=priced[1]),
            because=because,
            beside=Message("account.beside", more=more) if more >= WORTH_TELLING else "",
        )
    if name == "drafting":
        each = it.draft / it.drafted if it.drafted else it.draft
        return Message("account.drafting", share=it.draft / it.cost, each=each)
    if name == "restoring":
        return Message("account.restoring", share=it.restore / it.cost)
    if it.unexplained > it.rest / 2:
        return Message("account.unexplained", share=it.unexplained / it.cost)
    return Message("account.rest", share=it.rest / it.cost)


def _because(it: MeanRound, experts: ExpertUse | None) -> Message:
    """Why several tokens cost more than one, as far as that explains it: each token is computed on its own, and may
    read experts that no other token read."""
    compute = Message("account.compute")
    if it.verification > SAME * it.verified:
        return Message("account.beyond", cause=compute, most=it.verified)
    if experts is None:
        return Message("account.because", cause=compute)
    more, measured = experts.more(it.verified)
    code = "account.experts" if measured else "account.experts_at_most"
    cause, most = Message(code, more=more, known=experts.message_for(it.verified)), experts.most(it.verified)
    if it.verification > SAME * most:
        return Message("account.partly", cause=cause, most=most)
    return Message("account.because" if measured else "account.could", cause=cause)

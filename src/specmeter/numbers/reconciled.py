"""One account of a generation for all engines: tokens proposed, evaluated, accepted, corrected.

Engines count different things under the name of acceptance (docs/explanation/acceptance.md). Here is what each told,
and what follows from that by arithmetic alone; what neither says stays None. After the first token, each token comes
from a draft, or from a forward of the target, so that

    steps     = corrected + bonus               a verification emits one token of the target's own: one that corrects
                                                the first rejected token, or one more if all were accepted
    evaluated = accepted + corrected            what lies behind a rejected token was computed and never looked at
    emitted   = accepted + steps + plain        plain: decoded without a draft, the first token among them
    proposed >= evaluated >= accepted

The third line closes up to the tokens of the last round that lie beyond a stop or the token limit.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from specmeter.record import Record, Reply

VERIFIED = "spec_decode_num_drafts_total"
"""The counter of steps that verified a draft."""


class Reconciled(Record):
    """The token counts of one reply; None: neither reported nor derivable."""

    proposed: int | None
    """Draft tokens passed to the target."""
    evaluated: int | None
    """Of these, the accepted ones and the first rejected one of each step."""
    accepted: int | None
    """Draft tokens accepted."""
    corrected: int | None
    """Tokens of the target that replace the first rejected one (one per step with a rejection)."""
    bonus: int | None
    """Tokens of the target after fully accepted drafts."""
    plain: int | None
    """Tokens generated without a draft, including the first."""
    steps: int | None
    """Steps that verified draft tokens."""
    emitted: int
    """Tokens of the output."""


def reconciled(reply: Reply) -> Reconciled:
    """What a reply says of its drafts, in the same words for every engine."""
    timings, drafts = reply.timings, [step for step in reply.steps if step.drafted]
    proposed, accepted = timings.draft_n, timings.draft_n_accepted
    counted = reply.counters.get(VERIFIED)
    steps = None if counted is None else round(counted)
    bonus = None
    if reply.steps and sum(step.drafted for step in drafts) == proposed:
        steps = len(drafts)
        bonus = sum(step.accepted == step.drafted for step in drafts)
    elif proposed == 0:
        steps = bonus = 0
    elif steps and proposed is not None and proposed % steps == 0:
        bonus = _whole(reply, proposed // steps, steps)
    corrected = None if bonus is None or steps is None else steps - bonus
    plain = None if steps is None or accepted is None else max(0, timings.predicted_n - accepted - steps)
    return Reconciled(
        proposed=proposed,
        evaluated=None if corrected is None or accepted is None else accepted + corrected,
        accepted=accepted,
        corrected=corrected,
        bonus=bonus,
        plain=plain,
        steps=steps,
        emitted=timings.predicted_n,
    )


def _whole(reply: Reply, longest: int, steps: int) -> int | None:
    """Drafts of an engine's own histogram that were accepted whole, where all were as long as can be."""
    said = reply.raw_timings
    counts = [said.get(f"acceptance_histogram.{at}") for at in range(longest + 1)]
    if said.get("num_spec_tokens") != longest or not all(isinstance(it, int | float) for it in counts):
        return None
    return round(counts[longest] or 0) if round(sum(it or 0 for it in counts)) == steps else None


def acceptance_record(reply: Reply) -> dict[str, Any] | None:
    """The same as the per-request record of NVIDIA's AIPerf, which vLLM's replies are read into; None where the steps
    are not known."""
    told = reconciled(reply)
    if not told.steps or told.accepted is None:
        return None
    found: dict[str, Any] = {
        "mean_acceptance_length": 1 + told.accepted / told.steps,
        "num_accepted_draft_tokens": told.accepted,
        "num_spec_steps": told.steps,
    }
    if told.proposed:
        found |= {"num_draft_tokens": told.proposed, "draft_acceptance_rate": told.accepted / told.proposed}
    if drafts := [step for step in reply.steps if step.drafted]:
        lengths = Counter(step.accepted for step in drafts)
        found["acceptance_histogram"] = {str(at): lengths[at] for at in range(max(it.drafted for it in drafts) + 1)}
    return found

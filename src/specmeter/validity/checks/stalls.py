"""Whether single requests were held up: what an interval over a few blocks cannot know."""

from __future__ import annotations

from specmeter.numbers.margin import MARGIN
from specmeter.text import percent
from specmeter.validity.checks.check import Check
from specmeter.validity.checks.evidence import SHARED, not_applicable, unseen
from specmeter.validity.checks.run_data import RunData
from specmeter.verdicts import Findings, about_arm


def stalls(data: RunData) -> Findings:
    """Requests that took half again as long as the same prompt of the same arm in other blocks (`analysis.stalls`).

    Suspect where they cost 2 % of the arm's decode time or more, else a note. Nothing is seen where no prompt was
    repeated. Never `invalid`: a stall may be what the machine always does.
    """
    arms = {arm.arm_id: arm for arm in (*data.summary.arms, *data.summary.controls)}
    for arm_id, requests in data.by_arm.items():
        if data.arms[arm_id].load is not None:
            yield not_applicable(arm_id, SHARED)
            continue
        blocks = {(it.row.invocation, it.row.block) for it in requests}
        if len(blocks) < 2:
            yield unseen(arm_id, "no prompt was repeated in another block")
            continue
        if len({it.row.prompt_id for it in requests}) < 2:
            yield unseen(arm_id, "with one prompt, a stalled request looks like a slow block")
            continue
        found = arms[arm_id].stalls
        if found is None:
            continue
        yield about_arm(
            "stalls",
            "suspect" if found.share >= MARGIN else "note",
            arm_id,
            f"{found.requests} of {found.of} requests stalled: they took up to {found.slowest:.1f} times as long "
            f"as the same request in other blocks, {percent(found.share, 1)} of the arm's decode time; an "
            f"interval over {len(blocks)} blocks is too narrow for that",
            "end other programs, give the engine the cores it needs, and measure again with more blocks",
            stalled=found.requests,
            requests=found.of,
            slowest_times_usual=round(found.slowest, 2),
            lost_percent_of_decode_time=round(100 * found.share, 2),
            blocks=len(blocks),
        )


CHECKS: tuple[Check, ...] = (
    Check(
        id="stalls",
        threat="single requests stalled, and the interval does not show it",
        severity="suspect",
        look=stalls,
        saw=("arms", "requests"),
        assumes="a prompt takes an arm the same time in every block, but for noise",
        otherwise="texts that are sampled differ in length and cost, and their spread is allowed for; suspect at most",
    ),
)

"""The check of tool calls: does a model call the same functions with the same arguments as without speculation?"""

from __future__ import annotations

from collections.abc import Iterable

from specmeter.messages import Message
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import Check, answered, not_applicable, not_checkable, of_arm
from specmeter.validity.checks.output import REAL, answers_of, where_texts_part
from specmeter.validity.checks.request_data import RequestData
from specmeter.validity.checks.run_data import RunData


def tool_calls_differ(data: RunData) -> Findings:
    """Calls of tools are not those that the target makes without speculation, or their arguments are no JSON.

    Assumes: without speculation the same prompt in the same block brought arguments that are JSON, so the model and the
    server can.
    Otherwise: where both parted at a near tie, or sampled, the broken call may be the target's own: suspect.
    """
    if not any(prompt.tools for prompt in data.prompts.values()):
        return
    greedy, answers = data.experiment.generation.temperature == 0, answers_of(data)
    for arm, _ in answered(data):
        if arm.baseline_id is None or arm.synthetic_rates:
            continue
        both = data.beside_baseline[arm.id]
        pairs = both.at(~both.own.where("calls", ()) | ~both.base.where("calls", ()))
        if not pairs:
            yield (not_applicable if data.beside_baseline[arm.id] else not_checkable)(
                arm.id, Message("unchecked.no_calls")
            )
            continue
        # Blocks repeat a call: what counts is the call of the session, not how often it was asked.
        other = [it for it, base in pairs if it.calls != base.calls] if greedy else []
        broken = [it for it, base in pairs if _broken(it) and not _broken(base)]
        sure = [it for it in (*other, *broken) if where_texts_part(data, answers, arm, it) == REAL]
        compared, wrong = len(_prompts(it for it, _ in pairs)), _prompts(broken) & _prompts(sure)
        if other or broken:
            counted = {"differ": len(_prompts(other)), "compared": compared, "broken": len(_prompts(broken))}
            counted["sure"] = len(_prompts(sure))
            status = "invalid" if wrong and greedy else "suspect" if sure or broken else "note"
            yield of_arm(status, arm.id, Message("tool-calls-differ.found", **counted), **counted)
        elif greedy:
            said = Message("tool-calls-differ.none", compared=compared, most=1 - 0.05 ** (1 / compared))
            yield of_arm("note", arm.id, said, compared=compared, differ=0, broken=0)
        else:
            yield of_arm("note", arm.id, Message("tool-calls-differ.whole", compared=compared), compared=compared)


def _broken(it: RequestData) -> bool:
    """Its arguments are no JSON, though it came to its end."""
    return it.row.stop_reason not in ("limit", "context") and any(not arguments for _, arguments in it.calls)


def _prompts(requests: Iterable[RequestData]) -> set[str]:
    return {it.row.prompt_id for it in requests}


CHECKS: tuple[Check, ...] = (
    Check(
        "tool-calls-differ",
        "invalid",
        tool_calls_differ,
        saw=("experiment", "arms", "prompts", "requests", "replies", "margins"),
    ),
)

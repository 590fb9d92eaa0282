"""Checks whether all sampled texts of an arm together are draws from the target's distribution."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import answered, not_applicable, not_checkable, of_arm
from specmeter.validity.checks.request_data import BUCKETS
from specmeter.validity.checks.requests import Requests
from specmeter.validity.checks.run_data import RunData

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Counts = NDArray[np.float64]
    Pairs = list[tuple[Counts, Counts]]


LEVEL = 0.01
"""So often any arm of a run is suspected though nothing is wrong with one."""
MIN_ARRANGEMENTS = 1000
"""With fewer ways to call a text the one arm's or the other's, no p-value could be small."""
MAX_DRAWN = 9_999
"""Assignments of texts to arms that are tried."""
MAX_TEXTS = 1_000
"""Of an arm; more would tell little, and cost seconds."""


def sampled_distribution(data: RunData) -> Findings:
    """At a temperature above 0, texts with speculation come from another distribution than those without.

    Assumes: outputs are independent samples, given the prompt.
    Otherwise: dependent samples can give small p-values by chance: suspect at most.
    """
    if data.experiment.generation.temperature == 0:
        yield not_applicable(None, Message("unchecked.greedy"))
        return
    comparable: dict[str, Pairs] = {}
    for arm, requests in answered(data):
        if arm.synthetic_rates:
            yield not_applicable(arm.id, Message("unchecked.synthetic"))
        elif arm.baseline_id is None:
            yield not_applicable(arm.id, Message("unchecked.is_baseline"))
        else:
            plain = data.by_arm.get(arm.baseline_id, requests[:0])
            pairs = _pairs(requests, plain)
            reason = _too_little(pairs, plain)
            if reason is None:
                comparable[arm.id] = pairs
            else:
                yield not_checkable(arm.id, reason)
    yield from _other_distributions(comparable)


def _other_distributions(comparable: dict[str, Pairs]) -> Findings:

    from specmeter.numbers.distributions import Assignments, holm, p_value

    assignments = Assignments()
    most = min(MAX_DRAWN, max(1999, round(2 * len(comparable) / LEVEL)))
    p_values = {arm_id: p_value(pairs, assignments, most) for arm_id, pairs in comparable.items()}
    for arm_id, adjusted in holm(p_values).items():
        if adjusted <= LEVEL:
            pairs = comparable[arm_id]
            yield of_arm(
                "suspect",
                arm_id,
                Message("sampled-distribution.found", adjusted_p_value=adjusted, arms_tested=len(comparable)),
                p_value=p_values[arm_id],
                prompts=len(pairs),
                texts=sum(len(one) for one, _ in pairs),
                baseline_texts=sum(len(other) for _, other in pairs),
                tokens_apart=_apart(pairs),
            )


def _pairs(requests: Requests, plain: Requests) -> Pairs:
    """Counts of tokens of arm and baseline for each prompt that both have answered at least twice."""
    own, others = _by_prompt(requests), _by_prompt(plain)
    both = [name for name in own if len(own[name]) >= 2 and len(others.get(name, ())) >= 2]
    most = max(4, MAX_TEXTS // max(1, len(both)))
    return [(_counts(own[name][:most]), _counts(others[name][:most])) for name in both]


def _by_prompt(requests: Requests) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = defaultdict(list)
    for prompt_id, histogram in requests.values("prompt_id", "histogram"):
        if histogram:
            found[prompt_id].append(histogram)
    return found


def _counts(histograms: Sequence[bytes]) -> Counts:
    import numpy as np

    return np.frombuffer(b"".join(histograms), dtype=np.uint8).reshape(-1, BUCKETS).astype(np.float64)


def _too_little(pairs: Pairs, plain: Requests) -> Message | None:
    """Why nothing can be said about the distribution; None when something can."""
    from specmeter.numbers.distributions import arrangements

    if not any(plain.different("histogram")):
        return Message("unchecked.no_token_ids") if plain else Message("unchecked.baseline_no_answer")
    if arrangements((len(one), len(other)) for one, other in pairs) < MIN_ARRANGEMENTS:
        return Message("unchecked.few_outputs")
    texts: dict[str, set[bytes]] = defaultdict(set)
    for prompt_id, output in plain.distinct("prompt_id", "output")[0]:
        texts[prompt_id].add(output)
    if all(len(different) == 1 for different in texts.values()):
        return Message("unchecked.same_outputs")
    return None


def _apart(pairs: Pairs) -> float:
    """Total variation distance between all tokens of the arm and all of the baseline, 0 to 1; chance is in it."""
    import numpy as np

    own = np.concatenate([one for one, _ in pairs]).sum(axis=0)
    other = np.concatenate([plain for _, plain in pairs]).sum(axis=0)
    return float(np.abs(own / own.sum() - other / other.sum()).sum() / 2)

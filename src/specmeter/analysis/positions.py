"""Which drafted tokens are accepted, by position in the draft; and where greedy outputs differ from the baseline's.

*Positions* are counted from the steps on record, over all blocks. A step that drafted d tokens and accepted k says

    position i was drafted     d >= i
    position i was reached     d >= i and k >= i - 1: every token before it was accepted
    position i was accepted    k >= i

    conditional                accepted / reached
    unconditional              accepted / all drafts, those too short included: falls with i
    accepted lengths           k of every step that drafted anything

Greedy text repeats itself from block to block, so prompts are the units of intervals (`shares`). If drafts end because
the draft model doubts (`p_min`), conditional rates hold for the tokens that it dared to draft.

*Outputs.* A request is compared with its *reference*: that of an arm with the answer of its baseline to the same prompt
in the same block, that of a baseline with its own first answer. Arms with synthetic acceptance are left out. Under
load, an arm is compared with its baseline under the same load, and the baseline with plain decoding by one client: the
control says what the load alone does to outputs. An output that merely continues after the other ends does not differ,
and a token whose id the engine never sent does not count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from specmeter.analysis.requests import Tallies, read_tallies
from specmeter.experiments.cells import first_id
from specmeter.experiments.names import id_without_load
from specmeter.messages import Message
from specmeter.numbers.stats import over_prompts
from specmeter.record import UNKNOWN_TOKEN, Arm, Estimate, Prompt, Record
from specmeter.store import RequestKey
from specmeter.store.integrity import output_digest

if TYPE_CHECKING:
    from specmeter.store import RunReader


ALL = "all"
"""Stands for all kinds of text together."""
MOST_LENGTHS = 17
"""Accepted lengths that are shown by themselves, from 0; what is longer is added to the last of them."""

Counts = Counter[tuple[int, int]]
"""(drafted, accepted) -> steps."""


class PositionRate(Record):
    """Acceptance of one position of an arm's drafts."""

    position: int
    """Place of the token in its draft, from 1."""
    drafted: int
    """Steps whose draft was so long."""
    reached: int
    """Those of them in which every token before it was accepted."""
    accepted: int
    """Those in which it was accepted, too."""
    conditional: Estimate | None
    """Accepted / reached; None where no step got so far."""
    unconditional: Estimate
    """Accepted / all drafts; a draft too short for it did not have it accepted."""


class AcceptedLength(Record):
    """Steps of an arm that accepted just so many tokens of their draft."""

    accepted: int
    """Tokens accepted, from 0."""
    steps: int
    """Steps that did so, of all that had a draft."""
    share: Estimate
    """Of the steps that had a draft."""


class ArmPositions(Record):
    """An arm on the prompts of one kind, or on all of them."""

    arm_id: str
    """The arm."""
    kind: str
    """Kind of text; `all` for all together."""
    prompts: int = 0
    """Prompts behind it."""
    drafts: int = 0
    """Steps that had a draft."""
    positions: tuple[PositionRate, ...] = ()
    lengths: tuple[AcceptedLength, ...] = ()
    missing: Message | None = None
    """Why there is nothing, where there is nothing: the engine shows no steps."""


def positions(run: RunReader, tallies: Tallies | None = None) -> tuple[ArmPositions, ...]:
    """Every arm that drafted, over all prompts, then by kind where there are several; `tallies` are those of the run,
    where they were read before. Raises `StoreError`."""
    tallies = read_tallies(run) if tallies is None else tallies
    drafted: Counter[str] = Counter()
    for row in run.rows():
        drafted[row.arm_id] += row.draft_n or 0
    kinds = {prompt.id: prompt.kind for prompt in run.prompts()}
    found: list[ArmPositions] = []
    for arm_id in dict.fromkeys((*(arm.id for arm in run.arms()), *drafted)):
        counts: dict[str, Counts] = {}
        for cell, tally in tallies.get(arm_id, {}).items():
            own = counts.setdefault(cell.prompt_id, Counter())
            own.update({pair: steps for pair, steps in tally.by_counts.items() if pair[0]})
        counts = {prompt: steps for prompt, steps in counts.items() if steps}
        if counts:
            found += _of_arm(arm_id, counts, kinds)
        elif drafted[arm_id]:
            found.append(ArmPositions(arm_id=arm_id, kind=ALL, missing=Message("positions.no_steps")))
    return tuple(found)


def _of_arm(arm_id: str, counts: Mapping[str, Counts], kinds: Mapping[str, str]) -> Iterator[ArmPositions]:
    yield counted(arm_id, ALL, list(counts.values()))
    groups: dict[str, list[Counts]] = {}
    for prompt, steps in counts.items():
        groups.setdefault(kinds.get(prompt, ""), []).append(steps)
    for kind, group in groups.items() if len(groups) > 1 else ():
        yield counted(arm_id, kind, group)


def counted(arm_id: str, kind: str, prompts: Sequence[Counts]) -> ArmPositions:
    """An arm from the steps of each of its prompts."""
    longest = max(drafted for steps in prompts for drafted, _ in steps)
    return ArmPositions(
        arm_id=arm_id,
        kind=kind,
        prompts=len(prompts),
        drafts=sum(steps.total() for steps in prompts),
        positions=tuple(_position(place, prompts) for place in range(1, longest + 1)),
        lengths=tuple(_length(accepted, prompts) for accepted in range(longest + 1)),
    )


def _position(place: int, prompts: Sequence[Counts]) -> PositionRate:
    reached = [_sum(steps, lambda d, k: d >= place and k >= place - 1) for steps in prompts]
    accepted = [_sum(steps, lambda _, k: k >= place) for steps in prompts]
    return PositionRate(
        position=place,
        drafted=sum(_sum(steps, lambda d, _: d >= place) for steps in prompts),
        reached=sum(reached),
        accepted=sum(accepted),
        conditional=_share(accepted, reached) if any(reached) else None,
        unconditional=_share(accepted, [steps.total() for steps in prompts]),
    )


def _length(length: int, prompts: Sequence[Counts]) -> AcceptedLength:
    steps = [_sum(of_prompt, lambda _, k: k == length) for of_prompt in prompts]
    return AcceptedLength(
        accepted=length, steps=sum(steps), share=_share(steps, [of_prompt.total() for of_prompt in prompts])
    )


def _sum(steps: Counts, wanted: Callable[[int, int], bool]) -> int:
    return sum(count for (drafted, accepted), count in steps.items() if wanted(drafted, accepted))


def _share(parts: Sequence[int], wholes: Sequence[int]) -> Estimate:
    pairs = [(float(part), float(whole)) for part, whole in zip(parts, wholes, strict=True) if whole]
    return over_prompts(pairs, unit="1", ceiling=1.0)


_AT_ONCE = 500
"""Replies read by one statement."""


class Divergence(NamedTuple):
    """A request whose text leaves that of its reference."""

    key: RequestKey
    reference: RequestKey
    position: int
    """First generated token that differs, from 0."""
    reference_token: int
    token: int
    before: tuple[int, ...]
    """Generated tokens before it, the same in both."""

    @property
    def can_be_asked(self) -> bool:
        """Every token before the difference is known."""
        return UNKNOWN_TOKEN not in self.before


def find_divergences(run: RunReader, arms: Mapping[str, Arm], texts: Mapping[RequestKey, bytes]) -> list[Divergence]:
    """All differences among the answered requests `texts`, in their order; each different text is read once.

    `texts` has the digest of each text's token ids, empty for a text without any.
    """
    pairs: dict[str, list[tuple[RequestKey, RequestKey]]] = defaultdict(list)
    for key, reference in references(arms, run.prompts(), texts):
        if texts[key] != texts[reference]:
            pairs[key.prompt_id].append((key, reference))
    rows = _rows_of(run, {key for of_prompt in pairs.values() for pair in of_prompt for key in pair})
    found: dict[RequestKey, Divergence] = {}
    for of_prompt in pairs.values():
        ids = _read_token_ids(run, {texts[key]: rows[key] for pair in of_prompt for key in pair})
        for key, reference in of_prompt:
            difference = _compare(key, reference, ids[texts[key]], ids[texts[reference]])
            if difference is not None:
                found[key] = difference
    return [found[key] for key in texts if key in found]


def _rows_of(run: RunReader, keys: Collection[RequestKey]) -> dict[RequestKey, int]:
    """Where the requests lie in the database."""
    if not keys:
        return {}
    rows = run.raw("SELECT id, invocation, block, arm_id, prompt_id FROM request WHERE superseded = 0")
    return {key: row_id for row_id, *values in rows if (key := RequestKey(*values)) in keys}


def read_texts(run: RunReader) -> dict[RequestKey, bytes]:
    """Digests of all answered requests that count, in the order of measurement. Reads every reply."""
    query = "SELECT invocation, block, arm_id, prompt_id, zlib_json FROM request JOIN reply ON request_id = id"
    rows = run.raw(f"{query} WHERE superseded = 0 AND status = 'ok' ORDER BY id")
    keyed = ((RequestKey(*key), bulk) for *key, bulk in rows)
    return {key: output_digest(_token_ids(run, key, bulk)) for key, bulk in keyed}


def first_divergence(one: Sequence[int], other: Sequence[int]) -> int | None:
    """First place where both have a token and these are known and differ."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b and UNKNOWN_TOKEN not in (a, b):
            return place
    return None


def alone(arms: Mapping[str, Arm]) -> dict[str, str]:
    """Baseline under a load of several clients, or a rate -> the baseline that decodes the same for one client."""
    plain = [(arm, arm.load) for arm in arms.values() if arm.baseline_id is None and arm.load is not None]
    by_one = {(id_without_load(arm), load.depth): arm.id for arm, load in plain if load.clients == 1}
    places = ((arm.id, (id_without_load(arm), load.depth)) for arm, load in plain if load.clients != 1)
    return {arm_id: by_one[place] for arm_id, place in places if place in by_one}


def references(
    arms: Mapping[str, Arm], prompts: Iterable[Prompt], keys: Mapping[RequestKey, object]
) -> Iterator[tuple[RequestKey, RequestKey]]:
    """(request, the one whose text it should equal) for each of the answered requests `keys` that has one."""
    by_one, named = alone(arms), {prompt.id: first_id(prompt) for prompt in prompts if prompt.of is not None}
    first: dict[tuple[str, str], RequestKey] = {}
    for key in sorted(keys):
        first.setdefault((key.arm_id, named.get(key.prompt_id, key.prompt_id)), key)
    for key in keys:
        arm = arms.get(key.arm_id)
        if arm is None or arm.synthetic_rates:
            continue
        prompt_id = named.get(key.prompt_id, key.prompt_id)
        if arm.baseline_id is not None:
            reference = key._replace(arm_id=arm.baseline_id)
        elif arm.id in by_one:
            reference = key._replace(arm_id=by_one[arm.id], prompt_id=prompt_id)
        else:
            reference = first[arm.id, prompt_id]
        if reference != key and reference in keys:
            yield key, reference


def _compare(key: RequestKey, reference: RequestKey, ids: Sequence[int], others: Sequence[int]) -> Divergence | None:
    at = first_divergence(ids, others)
    if at is None:
        return None
    before = tuple(b if a == UNKNOWN_TOKEN else a for a, b in zip(ids[:at], others[:at], strict=True))
    return Divergence(key, reference, at, others[at], ids[at], before)


def _read_token_ids(run: RunReader, wanted: Mapping[bytes, int]) -> dict[bytes, list[int]]:
    """Token ids of some texts, found by one request each."""
    outputs = {request_id: output for output, request_id in wanted.items()}
    found: dict[bytes, list[int]] = {output: [] for output in wanted}
    ids = list(outputs)
    for at in range(0, len(ids), _AT_ONCE):
        listed = ", ".join(map(str, ids[at : at + _AT_ONCE]))
        query = "SELECT id, invocation, block, arm_id, prompt_id, zlib_json FROM request JOIN reply ON request_id = id"
        for request_id, *key, bulk in run.raw(f"{query} WHERE id IN ({listed})"):
            found[outputs[request_id]] = _token_ids(run, RequestKey(*key), bulk)
    return found


def _token_ids(run: RunReader, key: RequestKey, bulk: bytes) -> list[int]:
    ids: list[int] = run.reply(bulk, key).get("token_ids", [])
    return ids

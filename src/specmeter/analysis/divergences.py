"""Where greedy outputs leave those that they should equal, read from the token ids of a run.

A request is compared with its *reference*: that of an arm with the answer of its baseline to the same prompt in the
same block, that of a baseline with its own first answer. Arms with synthetic acceptance are left out. Under load, an
arm is compared with its baseline under the same load, and the baseline with no speculation by one client: the control
says what the load alone does to outputs. An output that merely continues after the other ends does not differ, and a
token whose id the engine never sent does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.experiments.cells import first_id
from specmeter.experiments.names import id_without_load
from specmeter.record import UNKNOWN_TOKEN, Arm, Prompt
from specmeter.store import RequestKey
from specmeter.store.columns import columns_of
from specmeter.store.database import unreadable
from specmeter.store.integrity import output_digest

if TYPE_CHECKING:
    from specmeter.numbers.stats import Ints
    from specmeter.store import RunReader
    from specmeter.store.columns import RequestColumns


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


def find_divergences(
    run: RunReader, arms: Mapping[str, Arm], read: RequestColumns, answered: Ints | None = None
) -> list[Divergence]:
    """All differences among the `answered` requests (by default all), in their order; each different text is read once.

    The column `output` has the digest of each text's token ids, empty for a text without any.
    """
    references = References(arms, run.prompts())
    texts = _told_apart(arms, references, read, np.arange(len(read)) if answered is None else answered)
    pairs: dict[str, list[tuple[RequestKey, RequestKey]]] = defaultdict(list)
    for key, reference in references.pairs(texts):
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


def _told_apart(
    arms: Mapping[str, Arm], references: References, read: RequestColumns, answered: Ints
) -> dict[RequestKey, bytes]:
    """Texts of prompts to which a target gave several answers: mostly there are none."""
    first, which = read.distinct(("arm_id", "prompt_id", "output"), answered)
    asked: list[tuple[str | None, str | None]] = []
    outputs: dict[tuple[str | None, str | None], set[bytes]] = defaultdict(set)
    for arm_id, prompt_id, output in read.of(("arm_id", "prompt_id", "output"), first):
        of = (arms[arm_id].target if arm_id in arms else None, references.named.get(prompt_id, prompt_id))
        asked.append(of)
        outputs[of].add(output)
    several = answered[np.array([len(outputs[of]) > 1 for of in asked], dtype=bool)[which]]
    return {RequestKey(*key): output for *key, output in read.of((*RequestKey._fields, "output"), several)}


def read_texts(run: RunReader) -> RequestColumns:
    """Digests of all answered requests that count, in the order of measurement. Reads every reply."""
    query = "SELECT invocation, block, arm_id, prompt_id, zlib_json FROM request JOIN reply ON request_id = id"
    rows = run.raw(f"{query} WHERE superseded = 0 AND status = 'ok' ORDER BY id")
    names = (*RequestKey._fields, "output")
    told = ((*key, output_digest(_token_ids(run, RequestKey(*key), bulk))) for *key, bulk in rows)
    try:
        return columns_of(told, names, names)
    except ValueError as error:
        raise unreadable(run.path, "a row of the table request", error) from None


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


class References:
    """Which request's text each one should equal; both are of one prompt, or of its repeats under load."""

    def __init__(self, arms: Mapping[str, Arm], prompts: Iterable[Prompt]) -> None:
        self._arms, self._by_one = arms, alone(arms)
        self.named = {prompt.id: first_id(prompt) for prompt in prompts if prompt.of is not None}
        """Repeat -> the first prompt with its text."""

    def pairs(self, keys: Mapping[RequestKey, object]) -> Iterator[tuple[RequestKey, RequestKey]]:
        """(request, the one whose text it should equal) for each of the answered requests `keys` that has one; of a
        prompt all or none are among them."""
        arms, by_one, named = self._arms, self._by_one, self.named
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

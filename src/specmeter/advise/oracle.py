"""What the oracle would have taken in a run: the best draft length at every step, at that run's own costs.

Texts are those that the run generated and its draft has read (`profile.run`); costs are learnt from its fixed lengths
(`profile.oracle.fit_costs`), in plain tokens of the same block and text. The oracle's lengths are chosen at the costs
of all blocks together, so that no block's luck is chosen by, and then paid at each block's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from specmeter.errors import UsageError
from specmeter.numbers.stats import Pair, Pool, geometric_speedup, speedup_over_invocations, with_doubt
from specmeter.probe.draft_lengths import best_walk, fit_costs, fixed_walk, match_lengths
from specmeter.probe.replay import digest, key_of, limits_of, wanted_key, why_not

if TYPE_CHECKING:
    from specmeter.analysis.requests import RequestTable
    from specmeter.numbers.stats import Floats, Ints
    from specmeter.probe.replay import Limits
    from specmeter.record import Arm, Estimate, Generation
    from specmeter.store import RunReader


@dataclass(frozen=True)
class OracleTimes:
    """Decode times of plain decoding, a controller and its oracle: blocks x prompts, in ms."""

    longest: int
    """Longest draft that the oracle may choose."""
    probed: bool
    """Whether costs between the measured lengths have the shape of a step probe; else they lie on straight lines."""
    variance: float
    """Of the logarithm by which the time of one text differs from what the costs say."""
    df: int
    """Degrees of freedom of that."""
    cells: tuple[tuple[int, int], ...]
    """(invocation, block) of each block: those that hold all arms on all prompts."""
    kinds: Ints
    """Number of the kind of text of each prompt."""
    tokens: Floats
    """Tokens after the first of each prompt's text."""
    plain_ms: Floats
    controller_ms: Floats
    oracle_ms: Floats

    def ceiling(self, kind: int | None) -> Estimate:
        """Decode rate of the oracle over that of plain decoding, on a kind of text or on all."""
        return self._ratio(self.oracle_ms, self.plain_ms, kind)

    def reached(self, kind: int | None) -> Estimate:
        """Decode rate of the controller over that of the oracle."""
        return self._ratio(self.controller_ms, self.oracle_ms, kind)

    def _ratio(self, mine: Floats, theirs: Floats, kind: int | None) -> Estimate:
        there = np.ones(len(self.kinds), dtype=bool) if kind is None else self.kinds == kind
        tokens = float(self.tokens[there].sum())
        pairs: dict[int, list[Pair]] = {}
        for (invocation, _), ours, others in zip(
            self.cells, mine[:, there].sum(axis=1), theirs[:, there].sum(axis=1), strict=True
        ):
            pairs.setdefault(invocation, []).append((Pool(tokens, float(ours)), Pool(tokens, float(others))))
        if len(pairs) > 1:
            found = speedup_over_invocations(list(pairs.values())).estimate
        else:
            found = geometric_speedup([pair for blocks in pairs.values() for pair in blocks])
        return with_doubt(found, self.variance / int(there.sum()), self.df)


def oracle_times(
    store: RunReader,
    table: RequestTable,
    numbers: Mapping[str, int],
    prompts: Ints,
    controller: Arm,
    fixed: Sequence[Arm],
) -> OracleTimes | str:
    """The oracle beside a controller and its `fixed` lengths, on these prompts of the table; or why there is none, in
    words for a sentence. `numbers` are those of the arms. Raises `StoreError`."""
    traits = store.traits()
    generation = store.experiment().generation
    if (reason := why_not(fixed[0], traits=traits, generation=generation)) is not None:
        return reason
    if controller.methods != ("draft-simple",):
        return "drafts do not come from a draft model alone"
    if generation.temperature > 0:
        return "texts are sampled and differ from block to block"
    off = controller.baseline_id or ""
    read = _read(store, generation, [off, *(arm.id for arm in fixed), controller.id], fixed[0])
    lengths = [read.get(table.prompts[int(prompt)]) for prompt in prompts]
    known = [it for it in lengths if it is not None]
    if len(known) < len(lengths):
        said, missing = store.profiled(), len(lengths) - len(known)
        if said is not None and said.reason:
            return f"the draft has not read {missing} of {len(lengths)} texts: {said.reason}"
        return f"the draft has not read {missing} of {len(lengths)} texts"
    sides = [off, controller.id, *(arm.id for arm in fixed)]
    cells, ms = _whole_blocks(table, [numbers[it] for it in sides], prompts, [len(text) for text, _ in known])
    if not cells:
        return "no block holds all arms with texts of one length"
    plain_ms, controller_ms, fixed_ms = ms[0], ms[1], ms[2:]
    tokens = np.array([len(text) for text, _ in known], dtype=np.float64)
    relative = fixed_ms / (plain_ms / tokens)
    gammas = [arm.gamma or 1 for arm in fixed]
    walks = [fixed_walk(text, gamma, limits, longest=max(gammas)) for gamma in gammas for text, limits in known]
    shape = _shape(store, fixed[0], max(gammas))
    try:
        typical = np.exp(np.log(relative).mean(axis=1))
        whole = fit_costs(walks, typical.ravel().tolist(), gammas, shape)
        each = (relative[:, block].ravel().tolist() for block in range(len(cells)))
        of_blocks = [fit_costs(walks, times, gammas, shape) for times in each]
    except UsageError:
        return "too little was measured to learn what steps cost"
    best = [best_walk(text, whole.costs, limits) for text, limits in known]
    paid = np.array([[walk.cost(fit.costs) for walk in best] for fit in of_blocks])
    kinds = np.zeros(len(table.prompts), dtype=np.int64)
    kinds[table.prompt] = table.kind
    return OracleTimes(
        longest=max(gammas),
        probed=shape is not None,
        variance=whole.variance,
        df=max(1, len(walks) - whole.unknowns),
        cells=tuple(table.cells[cell] for cell in cells),
        kinds=kinds[prompts],
        tokens=tokens,
        plain_ms=plain_ms,
        controller_ms=controller_ms,
        oracle_ms=paid * plain_ms / tokens,
    )


def _read(
    store: RunReader, generation: Generation, arm_ids: Sequence[str], like: Arm
) -> dict[str, tuple[list[int], Limits]]:
    """Prompt -> (tokens that agree from every place of its text, what ends drafts there), as far as the draft has read
    a text of one of these arms, the first arm's first. `like` drafts as they all do."""
    traits = store.traits()
    profiles = {key_of(profile): profile for profile in store.profiles()}
    models = {model.name: model for model in store.models()}
    header = models[like.target].header
    prompts = {it.prompt_id: it.token_ids for it in store.prompt_tokens() if it.target == like.target}
    most = {prompt.id: prompt.max_tokens or generation.max_tokens for prompt in store.prompts()}
    resolved = next((it.resolved for it in store.sessions() if it.arm_id == like.id), dict[str, Any]())
    found: dict[str, tuple[int, list[int], Limits]] = {}
    for arm_id, prompt_id, text in _texts(store, arm_ids):
        rank = arm_ids.index(arm_id)
        prompt = prompts.get(prompt_id)
        if prompt is None or (prompt_id in found and found[prompt_id][0] <= rank):
            continue
        draft = models[like.draft or ""]
        key = wanted_key(digest(prompt), digest(text), like, draft, traits=traits, generation=generation)
        if (profile := profiles.get(key)) is not None:
            limits = limits_of(
                resolved,
                traits=traits,
                max_tokens=most[prompt_id],
                prompt_tokens=len(prompt),
                recurrent=header is not None and header.recurrent,
            )
            found[prompt_id] = (rank, match_lengths(profile.matches), limits)
    return {prompt_id: (lengths, limits) for prompt_id, (_, lengths, limits) in found.items()}


def _shape(store: RunReader, like: Arm, longest: int) -> list[float] | None:
    """What steps of 0 .. `longest` drafts cost over a plain token, by the run's own probe; None without one.

    Rounds beside a busy machine serve where there are no others: a session has steps of all lengths, and only their
    proportions count.
    """
    for probe in store.probes():
        if (probe.baseline_id, probe.draft, probe.engine) != (like.baseline_id, like.draft, like.engine):
            continue
        rounds = [it for it in (probe.rounds or probe.left_out) if set(range(1, longest + 1)) <= it.step_ms.keys()]
        if rounds:
            return [1.0, *(median(it.step_ms[d] / it.plain_ms for it in rounds) for d in range(1, longest + 1))]
    return None


def _texts(store: RunReader, arm_ids: Sequence[str]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    for request in store.requests():
        if request.arm_id in arm_ids and request.reply is not None and len(request.reply.token_ids) > 1:
            yield request.arm_id, request.prompt_id, request.reply.token_ids


def _whole_blocks(
    table: RequestTable, arms: Sequence[int], prompts: Ints, tokens: Sequence[int]
) -> tuple[list[int], Floats]:
    """(cells that hold all arms on all prompts with texts so long, decode ms of arms x cells x prompts)."""
    ms = np.full((len(arms), len(table.cells), len(table.prompts)), np.nan)
    wanted = np.zeros(len(table.prompts))
    wanted[prompts] = tokens
    for place, arm in enumerate(arms):
        rows = table.of_arm(arm)
        rows = rows[table.decoded[rows] & (table.tokens[rows] == wanted[table.prompt[rows]])]
        ms[place, table.cell[rows], table.prompt[rows]] = table.ms[rows]
    ms = ms[:, :, prompts]
    whole = np.isfinite(ms).all(axis=(0, 2))
    return np.flatnonzero(whole).tolist(), ms[:, whole]

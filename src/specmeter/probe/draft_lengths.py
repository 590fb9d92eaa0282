"""What a run's profiles say about draft lengths that it did not measure: acceptance, tau and match lengths by kind.

Everything is counted on the texts that the run generated, one answer to each prompt: exact for these texts, and no
more than a sample of others. Rates by position and tau come from replays of full drafts (no `p_min`), match lengths
from every place of a text.

The oracle: the best draft length at every step of a text, by one who knows where the draft will agree.

With L(i) the tokens of the draft that agree after i tokens (`profile`), c(d) what a step of d drafts costs and V(i)
what is still to be paid, both in plain tokens,

    V(i) = min over d = 0 .. min(D, room) of   c(d) + V(i + a + 1)             a = min(L(i), d), the tokens accepted
                                               c(d) + r(a) + V(i + a + 2)      where the target cannot forget and a < d

and V is 0 at the end of the text. On a target that cannot forget (recurrent, hybrid) a rejection is followed by a
forward that replays what was accepted, costs r(a) and emits one token more. The programme looks at every length at
every place once, so its walk is the cheapest of all, every fixed length's among them; no controller that drafts up to
D tokens can pay less at these costs.

What steps cost is learnt from fixed lengths that were measured beside plain decoding (`fit_costs`): the replay says how
many steps of each length a fixed length took on each text, the clock says what they took together, and c and r are the
non-negative least squares solution, with c(0) = 1 by definition. So whatever a step holds beside forwards is in its
cost, as it is when drafts are accepted, in the same minutes. Between the measured lengths c follows the shape of a step
probe, where there is one: kernels are made for some numbers of rows, and four may be cheaper than three. What lies on
straight lines there is c over that shape, else c itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specmeter.errors import UsageError
from specmeter.numbers.special import non_negative_fit
from specmeter.probe.replay import PLAIN, Limits, Round, digest, key_of, wanted_key, why_not
from specmeter.record import MatchProfile, Record

if TYPE_CHECKING:
    from specmeter.numbers.stats import Floats
    from specmeter.probe.replay import ProfileKey
    from specmeter.store import RunReader


LONGEST = 32
"""Longest draft that is replayed."""
ALL = "all"
"""Stands for all kinds of text together."""


class DraftLength(Record):
    """One draft length of one draft for one target on one kind of text."""

    target: str
    """Name of the target in the experiment."""
    draft: str
    """Name of the draft in the experiment."""
    kind: str
    """Kind of text; `all` for all together."""
    texts: int
    """Texts behind it, one for each prompt."""
    gamma: int
    """Most tokens of a draft."""
    tau: float
    """Tokens per target forward with drafts of this length, by replay."""
    acceptance: float | None
    """Accepted / drafted with drafts of this length, by replay; None where nothing would be drafted."""
    reached: float | None
    """Share of drafts so long whose token at this position is accepted, of drafts of 32; None without such drafts."""
    accepted: float | None
    """The same where all tokens before it were accepted."""
    places: int
    """Places of the texts from which exactly so many tokens of the draft agree; of 32, so many or more."""


def draft_lengths(run: RunReader) -> tuple[DraftLength, ...]:
    """Every draft length up to 32, by target, draft and kind of text; empty for a run without profiles.

    Raises `StoreError`.
    """
    profiles = {key_of(profile): profile for profile in run.profiles()}
    if not profiles:
        return ()
    recurrent = {model.name for model in run.models() if model.header is not None and model.header.recurrent}
    by_pair: dict[tuple[str, str], dict[str, list[MatchProfile]]] = defaultdict(lambda: defaultdict(list))
    for target, draft, kind, profile in _first_texts(run, profiles):
        by_pair[target, draft][kind].append(profile)
        by_pair[target, draft][ALL].append(profile)
    rows: list[DraftLength] = []
    for (target, draft), kinds in by_pair.items():
        single = len(kinds) == 2
        for kind in [ALL] if single else [*sorted(kinds.keys() - {ALL}), ALL]:
            rows += _rows(target, draft, kind, kinds[kind], replays=target in recurrent)
    return tuple(rows)


def _first_texts(
    run: RunReader, profiles: Mapping[ProfileKey, MatchProfile]
) -> Iterator[tuple[str, str, str, MatchProfile]]:
    """(target, draft, kind, profile) of the first answer to each prompt, until all are found."""
    traits, generation = run.traits(), run.experiment().generation
    arms = {
        arm.id: arm
        for arm in run.arms()
        if "draft-simple" in arm.methods and arm.draft and why_not(arm, traits=traits, generation=generation) is None
    }
    models = {model.name: model for model in run.models()}
    prompts = {(it.target, it.prompt_id): digest(it.token_ids) for it in run.prompt_tokens()}
    wanted = {(arm.target, arm.draft, it) for arm in arms.values() for target, it in prompts if target == arm.target}
    for request in run.requests():
        arm = arms.get(request.arm_id)
        if not wanted:
            return
        if arm is None or request.reply is None or (arm.target, arm.draft, request.prompt_id) not in wanted:
            continue
        prompt, text = prompts[arm.target, request.prompt_id], digest(request.reply.token_ids)
        key = wanted_key(prompt, text, arm, models[arm.draft or ""], traits=traits, generation=generation)
        if (profile := profiles.get(key)) is not None:
            wanted.discard((arm.target, arm.draft, request.prompt_id))
            yield arm.target, arm.draft or "", request.kind, profile


def _rows(
    target: str, draft: str, kind: str, profiles: Sequence[MatchProfile], *, replays: bool
) -> Iterator[DraftLength]:
    lengths = [match_lengths(profile.matches) for profile in profiles]
    places = Counter(min(length, LONGEST) for of_text in lengths for length in of_text)
    longest = [step for of_text in lengths for step in full_drafts(of_text, LONGEST, replays=replays)]
    for gamma in range(LONGEST + 1):
        steps = [step for of_text in lengths for step in full_drafts(of_text, gamma, replays=replays)]
        made, accepted = sum(it.drafted for it in steps), sum(it.accepted for it in steps)
        long_enough = [it.accepted for it in longest if gamma and it.drafted >= gamma]
        reached = sum(it >= gamma for it in long_enough)
        tried = sum(it >= gamma - 1 for it in long_enough)
        yield DraftLength(
            target=target,
            draft=draft,
            kind=kind,
            texts=len(profiles),
            gamma=gamma,
            tau=(accepted + len(steps)) / len(steps) if steps else 1.0,
            acceptance=accepted / made if made else None,
            reached=reached / len(long_enough) if long_enough else None,
            accepted=reached / tried if tried else None,
            places=places[gamma],
        )


def full_drafts(lengths: Sequence[int], gamma: int, *, replays: bool = False) -> list[Round]:
    """`replay` of drafts as long as gamma allows, from how many tokens agree at each place after the first token: a
    hundred times as fast."""
    steps: list[Round] = []
    at, end = 0, len(lengths)
    while at < end:
        drafted = min(gamma, end - at - 1)
        accepted = min(lengths[at], drafted)
        steps.append(Round(drafted, accepted))
        at += accepted + 1
        if replays and accepted < drafted:
            steps.append(PLAIN)
            at += 1
    return steps


def match_lengths(matches: str) -> list[int]:
    """From every place after the first token, how many tokens of the draft agree in a row."""
    lengths: list[int] = []
    row = 0
    for match in reversed(matches[1:]):
        row = row + 1 if match == "1" else 0
        lengths.append(row)
    return lengths[::-1]


# --- the oracle ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LengthCosts:
    """What steps cost, in plain tokens."""

    step: Floats
    """c(d) for d = 0 .. D drafted tokens. Shape (D + 1,)."""
    again: Floats | None = None
    """r(a) for a = 0 .. D accepted tokens; None: the target forgets at no cost. Shape (D + 1,)."""

    @property
    def longest(self) -> int:
        """D."""
        return len(self.step) - 1


@dataclass(frozen=True)
class Walk:
    """A way through a text."""

    rounds: tuple[Round, ...]
    """Its steps; a forward that a rejection makes necessary belongs to the step that was rejected."""
    drafted: Floats
    """How many steps drafted 0 .. D tokens. Shape (D + 1,)."""
    again: Floats
    """How many replays followed a step that accepted 0 .. D tokens. Shape (D + 1,)."""

    def cost(self, costs: LengthCosts) -> float:
        """All of it, in plain tokens. Raises `UsageError` where a step is longer than any whose cost is known."""
        if self.drafted[costs.longest + 1 :].any():
            raise UsageError("a step is longer than any whose cost is known", fix="measure longer drafts")
        length = min(len(self.drafted), len(costs.step))
        replays = 0.0 if costs.again is None else float(self.again[:length] @ costs.again[:length])
        return float(self.drafted[:length] @ costs.step[:length]) + replays


def best_walk(lengths: Sequence[int], costs: LengthCosts, limits: Limits | None = None) -> Walk:
    """The cheapest way through a text, of those that draft up to `costs.longest` tokens; among equals, short drafts.

    `lengths` are the tokens that agree from every place after the first token on (`figures.match_lengths`).
    """
    end, limits = len(lengths), limits or Limits(len(lengths) + 1)
    drafts = np.arange(costs.longest + 1)
    again = np.zeros(costs.longest + 1) if costs.again is None else costs.again
    left_to_pay = np.zeros(end + 1)
    chosen = [0] * end
    for at in range(end - 1, -1, -1):
        tried = drafts[: _most(at, costs.longest, limits) + 1]
        accepted = np.minimum(tried, min(lengths[at], end - at - 1))
        after = at + accepted + 1
        pay = costs.step[: len(tried)]
        if limits.replays:
            replayed = (accepted < tried) & (after < end)
            after = after + replayed
            pay = pay + np.where(replayed, again[accepted], 0.0)
        total = pay + left_to_pay[after]
        chosen[at] = int(total.argmin())
        left_to_pay[at] = total[chosen[at]]
    return _walk(lengths, chosen, costs.longest, limits)


def fixed_walk(lengths: Sequence[int], gamma: int, limits: Limits | None = None, *, longest: int | None = None) -> Walk:
    """The way through a text where every step drafts `gamma` tokens, or as many as there is room for; `longest` is the
    D that its counts reach to, at least gamma."""
    return _walk(lengths, [gamma] * len(lengths), max(gamma, longest or 0), limits or Limits(len(lengths) + 1))


def _most(at: int, longest: int, limits: Limits) -> int:
    """Most tokens to draft in a step that starts `at` tokens after the first."""
    return max(0, min(longest, limits.most(at + 1)))


def _walk(lengths: Sequence[int], wanted: Sequence[int], longest: int, limits: Limits) -> Walk:
    rounds: list[Round] = []
    drafted, again = np.zeros(longest + 1), np.zeros(longest + 1)
    at, end = 0, len(lengths)
    while at < end:
        length = _most(at, wanted[at], limits)
        accepted = min(length, lengths[at], end - at - 1)
        rounds.append(Round(length, accepted))
        drafted[length] += 1
        at += accepted + 1
        if limits.replays and accepted < length and at < end:
            again[accepted] += 1
            at += 1
    return Walk(tuple(rounds), drafted, again)


# --- costs from fixed lengths ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LengthFit:
    """Costs, and how well they explain what they were learnt from."""

    costs: LengthCosts
    residuals: Floats
    """Logarithm of measured over explained time of each text of each fixed length. Shape (walks,)."""
    unknowns: int

    @property
    def variance(self) -> float:
        """Of the logarithm by which one text's time differs from what the costs say."""
        return float(self.residuals @ self.residuals) / max(1, len(self.residuals) - self.unknowns)


def fit_costs(
    walks: Sequence[Walk], measured: Sequence[float], gammas: Sequence[int], shape: Sequence[float] | None = None
) -> LengthFit:
    """c, and r where there are replays, from what `walks` of fixed lengths `gammas` took: `measured`, in plain tokens.

    `shape` is c(d) for d = 0 .. D up to a factor that changes slowly with d. r is a straight line in the tokens
    accepted. Relative errors are made small, so long texts count no more than short ones. Raises `UsageError` where
    there are fewer walks than unknowns.
    """
    knots = np.unique([0, *gammas]).astype(np.float64)
    length = len(walks[0].drafted) if walks else 0
    steps = np.arange(length, dtype=np.float64)
    weights = np.stack([np.interp(steps, knots, unit) for unit in np.eye(len(knots))], axis=1)
    if shape is not None:
        weights = weights * np.array(shape)[:, np.newaxis]
    counts = np.array([walk.drafted for walk in walks]).reshape(len(walks), length)
    replays = np.array([walk.again for walk in walks]).reshape(len(walks), length)
    times = np.array(measured, dtype=np.float64)
    columns = [counts @ weights[:, 1:]]
    if replays.any():
        columns += [replays.sum(axis=1, keepdims=True), (replays @ steps)[:, np.newaxis]]
    matrix = np.concatenate(columns, axis=1)
    if len(walks) < matrix.shape[1] or not (times > 0).all():
        raise UsageError("costs of steps: too little was measured", fix="measure more fixed lengths or prompts")
    plain = counts @ weights[:, 0]
    found = non_negative_fit(matrix / times[:, np.newaxis], (times - plain) / times)
    known = np.concatenate([[1.0], found[: len(knots) - 1]])
    again = found[len(knots) - 1] + found[len(knots)] * steps if replays.any() else None
    residuals = np.log(times / (matrix @ found + plain))
    return LengthFit(LengthCosts(weights @ known, again), residuals, matrix.shape[1])

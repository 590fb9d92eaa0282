"""What a run's profiles say about draft lengths that it did not measure: acceptance, tau and match lengths by kind.

Everything is counted on the texts that the run generated, one answer to each prompt: exact for these texts, and no
more than a sample of others. Rates by position and tau come from replays of full drafts (no `p_min`), match lengths
from every place of a text.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from specmeter.probe.replay import PLAIN, Round, digest, key_of, wanted_key, why_not
from specmeter.record import MatchProfile, Record

if TYPE_CHECKING:
    from specmeter.probe.replay import ProfileKey
    from specmeter.store import RunReader


LONGEST = 32
"""Longest draft that is replayed."""
ALL = "all"
"""Stands for all kinds of text together."""


class DraftLength(Record):
    """One draft length of one draft for one target on one kind of text."""

    target: str
    """Name of the target model in the experiment."""
    draft: str
    """Name of the draft model in the experiment."""
    kind: str
    """Prompt type; `all` for all together."""
    texts: int
    """Number of outputs, one per prompt."""
    gamma: int
    """Draft length."""
    tau: float
    """Tokens per forward pass of the target at this draft length, by replay."""
    acceptance: float | None
    """Accepted / drafted at this draft length, by replay; None if nothing would be drafted."""
    reached: float | None
    """Share of 32-token drafts whose token at this position is accepted; None without such drafts."""
    accepted: float | None
    """The same, given that all earlier tokens were accepted."""
    places: int
    """Positions in the outputs from which exactly this many draft tokens match (for 32: at least)."""


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

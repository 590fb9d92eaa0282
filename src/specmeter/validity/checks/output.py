"""Checks of outputs: is it the target's text, is it text at all, and is it as long as it should be?

If a greedy text differs from the one it should equal, the target has been asked how sure it was there
(`specmeter.validity.losslessness`). A gap is the natural logarithm of how many times likelier one token is than
another: the difference of their logits.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from specmeter.analysis.divergences import References, alone
from specmeter.messages import Message
from specmeter.numbers.stats import t_interval
from specmeter.record import Arm, Finding, Margin
from specmeter.record.verdict import Findings
from specmeter.store import RequestKey
from specmeter.validity.checks.check import Check, answered, not_applicable, not_checkable, of_arm, of_request
from specmeter.validity.checks.request_data import NGRAM, RequestData
from specmeter.validity.checks.requests import Pairs, Requests
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.checks.sampled import LEVEL, sampled_distribution

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]


NEAR_TIE = 0.3
"""Gap up to which either token is the target's. Batch size alone moves the gap between the two best tokens: at 2,100
places where it is below 1, by at most 0.01 with weights in F16, 0.06 in BF16, 0.16 in Q8_0, 0.27 in Q4_0. Where that
made the other token the best one, it led by at most 0.15; this is twice as much
(`benchmarks/near_ties.py`). It costs little: at 95 of 100 places a wrong token would be further off."""
REAL_NEAR_TIE = 0.6
"""The same of a model file that is not one of ours: Qwen2.5-Coder-1.5B in Q4_K_M turned at gaps of up to 0.29."""
WIDEST_NEAR_TIE = 1.0
"""Beyond this no arithmetic is an excuse: the one token is 2.7 times as likely."""
SWAY = 2.0
"""How many times the largest gap between own token and another that a target shows when it is asked again still counts
as a near tie."""
LOOPS = 0.4
"""A text repeats so much more of its runs of 8 tokens than the baseline's on the same prompt: it loops. Of 101 pairs of
texts that parted for good reasons (another quantization, another target) no two differ by more than 0.32."""
HALF_A_LOOP = 0.5
"""Share of repeated runs from which plain text is called a loop itself."""
SAME_LENGTH = 0.1
"""Sampled texts differ in length by chance; all of an arm's together should not by more than this share."""

_SYNTHETIC = Message("unchecked.synthetic")
_SAMPLED = Message("unchecked.sampled")
_NO_BASELINE = Message("unchecked.no_output_of_baseline")


# --- output-differs --------------------------------------------------------------------------------------------------


class _Departure(NamedTuple):
    """A request whose text leaves that of its reference."""

    key: RequestKey
    position: int
    margin: Margin | None
    """What the target said about it; None where it was not asked."""

    @property
    def gap(self) -> float | None:
        """From the target's best token down to the less likely of the two; None: unknown, or beyond what is listed."""
        margin = self.margin
        if margin is None or margin.best_logprob is None or margin.arm_logprob is None:
            return None
        return (
            None
            if margin.baseline_logprob is None
            else margin.best_logprob - min(margin.baseline_logprob, margin.arm_logprob)
        )

    @property
    def against_baseline(self) -> bool:
        """The target would rather say the arm's token than the baseline's."""
        margin = self.margin
        if margin is None or margin.arm_logprob is None:
            return False
        return margin.baseline_logprob is None or margin.arm_logprob > margin.baseline_logprob


@dataclass(frozen=True)
class Answers:
    """What the targets of a run said."""

    margins: Mapping[RequestKey, Margin]
    departures: Mapping[str, Sequence[_Departure]]
    """By arm; arms whose texts all are as they should be are missing."""
    near_ties: Mapping[str, float]
    """Baseline id -> gap up to which its target is taken to be undecided, where that is not the usual one."""

    def near_tie(self, arm: Arm) -> float:
        return self.near_ties.get(arm.baseline_id or arm.id, NEAR_TIE)


@dataclass(frozen=True)
class _Texts:
    """How an arm's texts compare with those they should equal."""

    arm: Arm
    compared: int
    """Requests that have a reference, both with token ids."""
    departures: tuple[_Departure, ...]
    near_tie: float
    """Gap up to which this target is taken to be undecided."""
    beside_one: bool = False
    """They should equal those of plain decoding for one client: the control of a load."""

    @cached_property
    def asked(self) -> list[_Departure]:
        return [it for it in self.departures if it.margin is not None]

    @cached_property
    def near(self) -> list[float]:
        """Gaps where the target was undecided."""
        return [it.gap for it in self.asked if it.gap is not None and it.gap <= self.near_tie]

    @cached_property
    def real(self) -> list[_Departure]:
        """Where the target was sure."""
        return [it for it in self.asked if it.gap is None or it.gap > self.near_tie]

    @property
    def not_asked(self) -> int:
        return len(self.departures) - len(self.asked)


def output_differs(data: RunData) -> Findings:
    """Greedy text with speculation is not the text without. Near ties are legal: batch size changes the last digits.

    Assumes: greedy decoding of one target gives one output, apart from near ties, whose width was measured per number
    format.
    Otherwise: another machine's arithmetic may have wider ties: suspect at most.
    """
    if data.experiment.generation.temperature > 0:
        yield not_applicable(None, _SAMPLED)
        return
    answers, compared = answers_of(data), _compared(data)
    texts = {arm.id: _texts(data, arm, compared[arm.id], answers) for arm, _ in answered(data)}
    for arm_id, told in texts.items():
        if _lacks_control(told):
            yield not_checkable(arm_id, Message("unchecked.no_single_client"))
        if told.arm.synthetic_rates:
            yield not_applicable(arm_id, _SYNTHETIC)
        elif told.compared == 0:
            plain = told.arm.baseline_id is None
            yield not_checkable(arm_id, Message("unchecked.no_prompt_twice") if plain else _NO_BASELINE)
        elif told.departures:
            yield from _different(told, texts.get(told.arm.baseline_id or ""))


def _compared(data: RunData) -> Counter[str]:
    """Arm -> its requests that have a reference, both with token ids."""
    found, asked = Counter[str](), data.requests.at(data.requests.where("status", "ok"))
    of = References(data.arms, data.prompts.values())
    prompts, which = asked.distinct("prompt_id")
    names = [of.named.get(prompt_id, prompt_id) for (prompt_id,) in prompts]
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    # Prompt by prompt, since a dictionary of all requests would fill the memory.
    for requests in asked.split(np.array([places[name] for name in names], dtype=np.int64)[which]):
        keyed = {RequestKey(*key): bool(output) for *key, output in requests.values(*RequestKey._fields, "output")}
        found.update(key.arm_id for key, other in of.pairs(keyed) if keyed[key] and keyed[other])
    return found


def _texts(data: RunData, arm: Arm, compared: int, answers: Answers) -> _Texts:
    departures = tuple(answers.departures.get(arm.id, ()))
    return _Texts(arm, compared, departures, answers.near_tie(arm), beside_one=arm.id in alone(data.arms))


def _lacks_control(texts: _Texts) -> bool:
    arm = texts.arm
    return arm.baseline_id is None and arm.load is not None and arm.load.clients != 1 and not texts.beside_one


def answers_of(data: RunData) -> Answers:
    """Margins of the places where texts part now (a retried request may have left older ones), and near ties.

    Asked again, a target may prefer the very token that plain decoding did not say. That gap is the work of its
    arithmetic alone, and says how far this reaches in this model on this machine.
    """
    keyed = ((RequestKey(it.invocation, it.block, it.arm_id, it.prompt_id), it) for it in data.margins)
    margins = {key: it for key, it in keyed if data.left_at.get(key) == it.position and it.arm_id in data.arms}
    departures: dict[str, list[_Departure]] = defaultdict(list)
    for key, position in data.left_at.items():
        departures[key.arm_id].append(_Departure(key, position, margins.get(key)))
    sway: dict[str, float] = {}
    for it in margins.values():
        if it.arm_logprob is not None and it.baseline_logprob is not None:
            name = data.arms[it.arm_id].baseline_id or it.arm_id
            sway[name] = max(sway.get(name, 0.0), it.arm_logprob - it.baseline_logprob)
    near_ties: dict[str, float] = {}
    for arm in data.arms.values():
        name, target = arm.baseline_id or arm.id, data.models.get(arm.target)
        usual = REAL_NEAR_TIE if target is not None and target.origin in ("path", "hf") else NEAR_TIE
        near_ties[name] = min(WIDEST_NEAR_TIE, max(usual, SWAY * sway.get(name, 0.0)))
    return Answers(margins, departures, near_ties)


REAL = "real"
"""Where texts part, the target was sure."""


def where_texts_part(data: RunData, answers: Answers, arm: Arm, request: RequestData) -> Literal["", "near", "real"]:
    """What the target said where a request's text leaves that of its baseline; empty where it does not, or was not
    asked."""
    margin = answers.margins.get(request.key)
    if margin is None or request.key not in data.left_at:
        return ""
    gap = _Departure(request.key, margin.position, margin).gap
    return "near" if gap is not None and gap <= answers.near_tie(arm) else "real"


def _different(texts: _Texts, plain: _Texts | None) -> Findings:
    arm, real = texts.arm, texts.real
    if texts.not_asked:
        yield not_checkable(arm.id, Message("unchecked.not_asked", places=texts.not_asked))
    first = (real or texts.departures)[0]
    gaps = [it.gap for it in texts.asked if it.gap is not None]
    yield of_arm(
        "suspect" if real or texts.not_asked else "note",
        arm.id,
        Message(
            "output-differs.found",
            differ=len(texts.departures),
            compared=texts.compared,
            reference=_reference(texts),
            how=_how(texts),
            beside=_beside(plain),
        ),
        _remedy(texts),
        share=len(texts.departures) / texts.compared,
        near_ties=len(texts.near),
        real=len(real),
        not_asked=texts.not_asked,
        largest_gap=max(gaps, default=None),
        near_tie_up_to=texts.near_tie,
        target_prefers_the_arms=sum(it.against_baseline for it in texts.asked),
        first_position=min(it.position for it in texts.departures),
        median_position=median(it.position for it in texts.departures),
        example_prompt=first.key.prompt_id,
        example_block=first.key.block,
        example_position=first.position,
        plain_repeats=plain.compared if plain else None,
        plain_repeats_differ=len(plain.departures) if plain else None,
    )


def _reference(texts: _Texts) -> Message:
    if texts.beside_one:
        return Message("output-differs.one_client")
    return Message("output-differs.earlier") if texts.arm.baseline_id is None else Message("output-differs.baseline")


def _how(texts: _Texts) -> list[Message]:
    parts: list[Message] = []
    if texts.near:
        parts.append(Message("output-differs.near", outputs=len(texts.near), gap=max(texts.near)))
    if texts.real:
        gaps = [it.gap for it in texts.real]
        far = (
            Message("output-differs.unlisted")
            if None in gaps
            else Message("output-differs.up_to", gap=max(gap or 0.0 for gap in gaps))
        )
        parts.append(Message("output-differs.sure", outputs=len(gaps), gap=far))
    if texts.not_asked:
        parts.append(Message("output-differs.not_asked", outputs=texts.not_asked))
    return parts


def _beside(plain: _Texts | None) -> Message | Literal[""]:
    if plain is None or plain.compared == 0:
        return ""
    if plain.beside_one:
        differ = len(plain.departures)
        return Message("output-differs.load", differ=differ, compared=plain.compared)
    if not plain.departures:
        return Message("output-differs.steady")
    return Message("output-differs.unsteady", differ=len(plain.departures), compared=plain.compared)


def _remedy(texts: _Texts) -> Message:
    if not texts.real and not texts.not_asked:
        return Message("output-differs.fix_ties")
    if not texts.real:
        return Message("output-differs.fix_not_asked")
    if texts.beside_one:
        return Message("output-differs.fix_load")
    if texts.arm.baseline_id is None:
        return Message("output-differs.fix_plain")
    if 2 * sum(it.against_baseline for it in texts.real) > len(texts.real):
        return Message("output-differs.fix_baseline")
    return Message("output-differs.fix")


# --- output-degenerate -----------------------------------------------------------------------------------------------


def output_degenerate(data: RunData) -> Findings:
    """Garbage or loops where plain decoding writes text: fast, well accepted, and worthless.

    Assumes: where the outputs diverged, the target rated another token at least 2.7 times as likely, which arithmetic
    cannot explain.
    Otherwise: after a closer decision, or if the target was not asked, the loop may be its own: suspect.
    """
    answers, usual = answers_of(data), _usual_repetition(data)
    for arm, requests in answered(data):
        if arm.synthetic_rates:
            yield not_applicable(arm.id, _SYNTHETIC)
        elif not any(lengths := requests.different("tokens")):
            yield not_checkable(arm.id, Message("unchecked.no_token_ids"))
        elif max(lengths) < 2 * NGRAM:
            yield not_applicable(arm.id, Message("unchecked.short_outputs", tokens=2 * NGRAM))
        elif arm.baseline_id is None:
            yield from _plain_loops(arm, requests)
        else:
            pairs = data.beside_baseline[arm.id]
            if not pairs:
                yield not_checkable(arm.id, _NO_BASELINE)
            yield from _loops(arm, pairs, answers, usual)


_Usual = Mapping[tuple[str, str], float]
"""(baseline id, prompt id) -> the most that its texts there repeat."""


def _usual_repetition(data: RunData) -> _Usual:
    most: dict[tuple[str, str], float] = {}
    for arm, requests in answered(data):
        if arm.baseline_id is None:
            for prompt_id, repeated in requests.values("prompt_id", "repeated"):
                place = (arm.id, prompt_id)
                most[place] = max(most.get(place, 0.0), repeated)
    return most


def _loops(arm: Arm, pairs: Pairs, answers: Answers, usual: _Usual) -> Findings:
    """A loop after a near tie is the target's own. Where the target was sure beyond all arithmetic, the arm's text is
    not the target's, and a loop cannot be an answer: false. Otherwise a loop is only strange, how often it may come."""
    own, plain = pairs.own.number("repeated"), pairs.base.number("repeated")
    alone = pairs.at(_worse(arm, pairs, usual))
    plain_alone = int((plain > own + LOOPS).sum())
    for it, base in alone:
        departure = _Departure(it.key, 0, answers.margins.get(it.key))
        tie = departure.gap is not None and departure.gap <= answers.near_tie(arm)
        certain = departure.margin is not None and (departure.gap is None or departure.gap > WIDEST_NEAR_TIE)
        yield of_request(
            "invalid" if certain else "suspect",
            it,
            Message(
                "output-degenerate.found" if it.answered else "output-degenerate.blank",
                repeated=it.repeated,
                baseline_repeated=base.repeated,
                tie=Message("output-degenerate.tie") if tie else "",
            ),
            Message("output-degenerate.fix_certain") if certain else Message("output-degenerate.fix"),
            blank=not it.answered,
            near_tie=tie,
            loops_of_the_arm_alone=len(alone),
            loops_of_the_baseline_alone=plain_alone,
        )


def _worse(arm: Arm, pairs: Pairs, usual: _Usual) -> Bools:
    own, base = pairs.own, pairs.base
    blank = (own.whole("tokens") >= 2 * NGRAM) & base.where("answered", True)
    blank &= own.where("answered", False) & own.where("reasoned", False)
    prompts, which = own.distinct("prompt_id")
    known = np.array([usual.get((arm.baseline_id or "", prompt_id), np.nan) for (prompt_id,) in prompts])[which]
    most = np.where(np.isnan(known), base.number("repeated"), known)
    return blank | (own.number("repeated") >= most + LOOPS)


def _plain_loops(arm: Arm, requests: Requests) -> Findings:
    repeated = requests.number("repeated")
    looping = int((repeated >= HALF_A_LOOP).sum())
    if looping > len(requests) / 2:
        yield of_arm(
            "note",
            arm.id,
            Message("output-degenerate.plain", looping=looping, texts=len(requests)),
            Message("output-degenerate.fix_plain"),
            median_repeated=float(np.median(repeated)),
        )


# --- length-mismatch -------------------------------------------------------------------------------------------------


def length_mismatch(data: RunData) -> Findings:
    """Arm and baseline generated different numbers of tokens, or ended differently.

    Assumes: outputs of one target have one length. An output that diverged may end elsewhere (see `output-differs`);
    sampled outputs, and outputs without token ids, may differ in length by chance.
    Otherwise: a near tie can change the length: suspect at most.
    """
    generation = data.experiment.generation
    by_themselves = not generation.ignore_eos
    for arm, _ in answered(data):
        if arm.baseline_id is None:
            yield not_applicable(arm.id, Message("unchecked.is_baseline"))
            continue
        if arm.synthetic_rates:
            yield not_applicable(arm.id, _SYNTHETIC)
            continue
        pairs = data.beside_baseline[arm.id]
        if not pairs:
            yield not_checkable(arm.id, _NO_BASELINE)
            continue
        chance = generation.temperature > 0 or (by_themselves and not any(pairs.own.different("tokens")))
        ends = (it.values("predicted_n", "stop_reason") for it in (pairs.own, pairs.base))
        differ = pairs.at([at for at, (one, other) in enumerate(zip(*ends, strict=True)) if one != other])
        if by_themselves:
            keys = (RequestKey(*key) for key in differ.own.values(*RequestKey._fields))
            differ = differ.at([at for at, key in enumerate(keys) if key not in data.left_at])
        own, plain = pairs.own.total("predicted_n"), pairs.base.total("predicted_n")
        if (abs(own - plain) > SAME_LENGTH * plain and _beyond_chance(pairs)) if chance else differ:
            yield _lengths(arm, pairs, differ, own, plain)


def _beyond_chance(pairs: Pairs) -> bool:
    """Whether the lengths of two samples differ by more than the draws explain."""
    more = (pairs.own.whole("predicted_n") - pairs.base.whole("predicted_n")).astype(np.float64)
    if len(more) < 2:
        return False
    _, low, high = t_interval(more, 1 - LEVEL)
    return not low <= 0 <= high


def _lengths(
    arm: Arm,
    pairs: Pairs,
    differ: Pairs,
    own: int,
    plain: int,
) -> Finding:
    it, base = differ[0] if differ else pairs[0]
    return of_arm(
        "suspect",
        arm.id,
        Message("length-mismatch.found", differ=len(differ), compared=len(pairs), tokens=own, baseline_tokens=plain),
        example_prompt=it.row.prompt_id,
        example_tokens=it.row.predicted_n,
        example_stop=it.row.stop_reason,
        example_baseline_tokens=base.row.predicted_n,
        example_baseline_stop=base.row.stop_reason,
    )


# --- thinking-truncated ----------------------------------------------------------------------------------------------


def thinking_truncated(data: RunData) -> Findings:
    """The cap fell inside the reasoning: no answer was measured.

    Assumes: an answer is what follows the reasoning, by the engine's own marks.
    Otherwise: a model without such marks is skipped.
    """
    thinking = False
    for arm, requests in answered(data):
        reasoned = requests.at(requests.where("reasoned", True))
        thinking = thinking or bool(reasoned)
        cut = reasoned.at(reasoned.where("answered", False) & reasoned.where("stop_reason", "limit", "context"))
        if cut:
            yield of_arm(
                "suspect",
                arm.id,
                Message("thinking-truncated.found", cut=len(cut), requests=len(requests)),
                example_prompt=cut[0].row.prompt_id,
                example_tokens=cut[0].row.predicted_n,
            )
    if not thinking:
        yield not_applicable(None, Message("unchecked.no_reasoning"))


# --- thinking-differs -------------------------------------------------------------------------------------------------


def thinking_differs(data: RunData) -> Findings:
    """The model reasoned although thinking was switched off, or did not although it was switched on.

    Assumes: reasoning is marked by the usual marks or the engine's own.
    Otherwise: a model may skip reasoning on an easy prompt, so it is reported only if no answer has any.
    """
    asked = {it.id: it.thinking for it in data.prompts.values() if it.thinking is not None}
    thinking, not_thinking = ({name for name, it in asked.items() if it is wanted} for wanted in (True, False))
    for arm, requests in answered(data):
        on, off = (requests.at(requests.where("prompt_id", *of)) for of in (thinking, not_thinking))
        reasoned = off.at(off.where("reasoned", True))
        if reasoned:
            yield of_arm(
                "suspect",
                arm.id,
                Message("thinking-differs.off", reasoned=len(reasoned), requests=len(off)),
                example_prompt=reasoned[0].row.prompt_id,
            )
        if on and not on.where("reasoned", True).any():
            yield of_arm("suspect", arm.id, Message("thinking-differs.on", requests=len(on)))
    if not asked:
        yield not_applicable(None, Message("unchecked.thinking_not_set"))


# --- all of them -----------------------------------------------------------------------------------------------------

CHECKS: tuple[Check, ...] = (
    Check("output-differs", "suspect", output_differs, saw=("experiment", "arms", "requests", "replies", "margins")),
    Check(
        "output-degenerate", "invalid", output_degenerate, saw=("experiment", "arms", "requests", "replies", "margins")
    ),
    Check("length-mismatch", "suspect", length_mismatch, saw=("experiment", "arms", "requests")),
    Check("thinking-truncated", "suspect", thinking_truncated, saw=("arms", "requests", "replies")),
    Check("thinking-differs", "suspect", thinking_differs, saw=("prompts", "arms", "requests", "replies")),
    Check("sampled-distribution", "suspect", sampled_distribution, saw=("experiment", "arms", "requests", "replies")),
)

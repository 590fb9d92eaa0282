"""rtx3090-19: what was measured, what the document rules out as a cause, and whether its mechanism explains the rest.

What decides is an interval (over blocks, else from the configurations that were run twice) or an exact count. What was
found invalid supports nothing: neither the configuration that is compared with an unlike baseline, nor the draft that
never drafted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from specmeter.analysis.explain.experts import union_at
from specmeter.engines.llama_cpp.spec import DRAFT_MODEL_METHODS
from specmeter.messages import Message
from specmeter.numbers.dip import DIP_LIMIT, dip
from specmeter.numbers.estimates import above, below
from specmeter.numbers.margin import MARGIN
from specmeter.theory.roofline import expected_union
from specmeter_studies.library.rtx3090_19.lines import (
    F16,
    LONGER,
    OTHER_VOCABULARY,
    Line,
    Lines,
    blind,
    change,
    drafting,
    lines,
    named,
    noise,
    percent,
    ratio,
)
from specmeter_studies.library.rtx3090_19.mechanism import (
    SPARSITY,
    THRESHOLD,
    UNEXPLAINED,
    beyond_bound,
    budget,
    budgets_of_requests,
    gamma,
    of_model,
    saturation,
)
from specmeter_studies.study import Found, RulingWord, StudyData
from specmeter_studies.telling import by_counts, decided, quoted, where_any

if TYPE_CHECKING:
    from specmeter.record import Estimate

HALF = 0.5
"""Of the baseline's rate; the tail as printed lies at 43 to 49 %."""
MIN_FOR_DIP = 8
"""Fewer requests have a dip that says nothing."""


def no_gain(data: StudyData) -> Found:
    """None of the configurations is faster than the baseline; one that drafted nothing, by a counter that tells, did
    what the baseline does, and no interval around 1 would ever decide it."""
    known = lines(data)
    compared = drafting(known)
    idle = [] if blind(known) else [line for line in compared if line.sums and not line.sums.drafted]
    compared = [line for line in compared if line not in idle]
    ratios = {line.name: ratio(known, line) for line in compared}
    strict = {line.name: ratio(known, line, among=len(compared)) for line in compared}
    faster = [line for line in compared if above(strict[line.name], 1)]
    slower = [line for line in compared if below(ratios[line.name], 1)]
    open_ = [line for line in compared if line not in slower and line not in faster]
    ruling = decided(supported=bool(compared and not open_), contradicted=bool(faster))
    best = max(compared, key=lambda line: found.point if (found := ratios[line.name]) else 0.0, default=None)
    out = [line for line in known.values() if line.drafts and not line.believable]
    return ruling, Message(
        "rtx3090-19.no_gain",
        slower=len(slower),
        compared=len(compared),
        faster=where_any("rtx3090-19.faster", n=len(faster), arms=[_change(it, strict[it.name]) for it in faster[:4]]),
        open=where_any("rtx3090-19.open", n=len(open_), names=named(open_)),
        best=""
        if best is None or faster
        else Message("rtx3090-19.best", name=best.name, change=percent(ratios[best.name])),
        left_out=where_any("rtx3090-19.left_out", n=len(out), names=named(out)),
        idle=where_any("rtx3090-19.idle", n=len(idle), names=named(idle)),
        repeats=_repeats(known),
    )


def _change(line: Line, found: Estimate | None) -> Message:
    return Message("rtx3090-19.arm", name=line.name, change=percent(found))


def tail(data: StudyData) -> Found:
    """Every configuration with drafts has requests at about half the baseline's rate."""
    known = lines(data)
    asked = [line for line in known.values() if line.drafts and line.sums is not None and _base(known, line)]
    slow = [line for line in asked if _lowest(known, line) <= HALF]
    rest = [line for line in asked if line not in slow]
    piles = [(line, found) for line in asked if (found := _dip(known, line)) is not None]
    humps = [line for line, found in piles if found > DIP_LIMIT]
    ruling: RulingWord = "cannot tell"
    if asked:
        ruling = "supported" if not rest and len(humps) == len(asked) else "contradicted" if rest else "cannot tell"
    others, dips = "", ""
    if rest:
        lowest = [_lowest(known, line) for line in rest]
        others = Message("rtx3090-19.tail.others", names=named(rest), low=min(lowest), high=max(lowest))
    if piles:
        dips = Message(
            "rtx3090-19.tail.dips",
            humps=len(humps),
            piles=len(piles),
            worst=max(found for _, found in piles),
            limit=DIP_LIMIT,
        )
    told = Message("rtx3090-19.tail", slow=len(slow), asked=len(asked), others=others, dips=dips)
    return by_counts(ruling, told)


def full_acceptance(data: StudyData) -> Found:
    """Whether 100 % acceptance is one."""
    known = lines(data)
    counted = [line for line in drafting(known) if line.sums and line.sums.drafted]
    partial = [line for line in counted if line.sums and line.sums.accepted < line.sums.drafted]
    ruling: RulingWord = "cannot tell"
    told = Message("rtx3090-19.none_counted")
    if partial:
        ruling = "contradicted"
        shares = [line.acceptance for line in partial]
        told = Message(
            "rtx3090-19.rejected",
            partial=len(partial),
            counted=len(counted),
            low=min(shares),
            high=max(shares),
            names=named(sorted(partial, key=lambda line: line.acceptance)),
        )
    elif counted:
        counts = [line.sums.drafted / line.sums.generated for line in counted if line.sums]
        over = [line for line in counted if beyond_bound(known, line)]
        requests = [found for line in counted for _, found in budgets_of_requests(known, line)]
        ruling = "cannot tell" if over else "supported"
        beyond, single = "", ""
        if over:
            beyond = Message(
                "rtx3090-19.beyond",
                over=len(over),
                names=named(over),
                share=UNEXPLAINED,
                any=sum((found := budget(known, line)) is not None and found.unexplained > 0 for line in counted),
                counted=len(counted),
            )
        if over and requests:
            so_did = sum(it.unexplained > UNEXPLAINED for it in requests)
            single = Message("rtx3090-19.beyond.requests", beyond=so_did, requests=len(requests))
        told = Message(
            "rtx3090-19.all_accepted",
            counted=len(counted),
            low=min(counts),
            high=max(counts),
            beyond=beyond,
            requests=single,
        )
    return by_counts(ruling, told)


def _repeats(known: Lines) -> Message:
    repeated = noise(known)
    if repeated is None:
        return Message("rtx3090-19.not_repeated")
    return Message("rtx3090-19.repeated", n=repeated.n, share=math.expm1(repeated.sd))


def _base(known: Lines, line: Line) -> Line | None:
    base = known.get(line.reference)
    return base if base is not None and base is not line and base.pooled else None


def _lowest(known: Lines, line: Line) -> float:
    """The slowest request over the baseline's pooled rate."""
    base = _base(known, line)
    assert base is not None
    assert base.pooled is not None
    assert line.sums is not None
    return line.sums.lowest_rate / base.pooled


def _dip(known: Lines, line: Line) -> float | None:
    """sqrt(n) times the dip of the requests' log rates, each over the baseline's on its prompt where that is known."""
    base = known.get(line.reference)
    usual = {(it.prompt, it.repeat): it.decode_rate for it in base.results if it.decode_rate} if base else {}
    logs = [
        math.log(it.decode_rate / usual.get((it.prompt, it.repeat), 1.0) if usual else it.decode_rate)
        for it in line.results
        if it.decode_rate and (not usual or (it.prompt, it.repeat) in usual)
    ]
    if len(logs) < MIN_FOR_DIP:
        return None
    return dip(np.array(logs)) * math.sqrt(len(logs))


def kv_quantization(data: StudyData) -> Found:
    """Whether f16 KV loses as q8_0 does, against a baseline of f16."""
    known = lines(data)
    line, quantized = known.get(F16), known.get("ngram-cache")
    ruling: RulingWord = "cannot tell"
    told = Message("rtx3090-19.kv.not_measured")
    if line is not None and not line.believable and (requests := _by_request(known, line)) is not None:
        return by_counts("supported", requests)
    if line is not None and not line.believable:
        within = ""
        if line.sums and quantized and quantized.sums:
            within = Message(
                "rtx3090-19.kv.within",
                f16=line.sums.lowest_rate / line.sums.median_rate,
                q8_0=quantized.sums.lowest_rate / quantized.sums.median_rate,
            )
        told = _no_baseline(line.arm.claimed_speedup, within)
    elif line is not None:
        own, other = ratio(known, line), ratio(known, quantized) if quantized else None
        told = Message("rtx3090-19.kv", own=percent(own), other=percent(other))
        if below(own, 1):
            ruling = "supported"
        elif below(other, 1) and own is not None and (above(own, 1) or _near(own.low, own.high)):
            ruling = "contradicted"
    return ruling, told


def _by_request(known: Lines, line: Line) -> Message | None:
    """Requests that drafted nothing decode without speculation with the same KV: what those that drafted are compared
    with.

    None unless each that drafted is slower than each that did not, by more than prompts make decoding without
    speculation differ, and there are three of either: two requests show nothing.
    """
    drafted = [it.decode_rate for it in line.results if it.drafted and it.decode_rate]
    plain = [it.decode_rate for it in line.results if it.drafted == 0 and it.decode_rate]
    base = known.get("baseline")
    others = base.rates if base else []
    if min(len(drafted), len(plain)) < 3 or not others or max(drafted) * max(others) / min(others) >= min(plain):
        return None
    return Message(
        "rtx3090-19.kv.requests",
        plain=len(plain),
        low=min(plain),
        high=max(plain),
        drafted=len(drafted),
        slowest=min(drafted),
        fastest=max(drafted),
        prompts=max(others) / min(others) - 1,
    )


def _no_baseline(claimed: float | None, within: Message | str) -> Message:
    """What was claimed of f16 KV over a baseline of another type."""
    if claimed is None:
        return Message("rtx3090-19.kv.no_size", within=within)
    code = "rtx3090-19.kv.loss" if claimed < 1 else "rtx3090-19.kv.ratio"
    return Message(code, change=100 * (claimed - 1), within=within)


def output_length(data: StudyData) -> Found:
    """Whether longer answers lose as well."""
    known = lines(data)
    pairs = _lengths(known)
    lost = [longer for longer, _ in pairs if below(ratio(known, longer), 1)]
    gaining = [longer for longer, _ in pairs if above(ratio(known, longer, among=len(pairs)), 1)]
    ruling = decided(supported=bool(pairs and len(lost) == len(pairs)), contradicted=bool(gaining))
    told = [
        Message(
            "rtx3090-19.lengths.of",
            name=shorter.name,
            short=percent(ratio(known, shorter)),
            tokens=shorter.max_tokens,
            long=percent(ratio(known, longer)),
            more_tokens=longer.max_tokens,
        )
        for longer, shorter in pairs
    ]
    return ruling, Message("rtx3090-19.lengths", lengths=told, texts="") if told else _ONE_LENGTH


_ONE_LENGTH = Message("rtx3090-19.one_length")


def length_unchanged(data: StudyData) -> Found:
    """Whether the change is the same at both lengths."""
    known = lines(data)
    changes = [(longer, shorter, change(known, longer, shorter)) for longer, shorter in _lengths(known)]
    far = [
        longer.name
        for longer, _, found in changes
        if found and (below(found, 1 / (1 + MARGIN)) or above(found, 1 + MARGIN))
    ]
    near = [longer.name for longer, _, found in changes if found and _near(found.low, found.high)]
    ruling = decided(supported=bool(changes and len(near) == len(changes)), contradicted=bool(far))
    told = [
        Message("rtx3090-19.lengths.change", longer=longer.name, shorter=shorter.name, change=percent(found))
        for longer, shorter, found in changes
    ]
    tokens = {line.name: line.sums.generated for pair in _lengths(known) for line in pair[:1] if line.sums}
    base, texts = known.get("baseline-1000tok"), ""
    if base and base.sums and any(count != base.sums.generated for count in tokens.values()):
        counts = [Message("study.count", n=count) for count in tokens.values()]
        texts = Message("rtx3090-19.other_texts", tokens=base.sums.generated, counts=counts)
    return ruling, Message("rtx3090-19.lengths", lengths=told, texts=texts) if told else _ONE_LENGTH


def silent_failure(data: StudyData) -> Found:
    """Whether the draft of another vocabulary decodes without speculation without a word."""
    known = lines(data)
    line = known.get(OTHER_VOCABULARY)
    base = known.get(line.reference) if line else None
    if line is None or line.sums is None or base is None or not base.pooled or not line.pooled:
        return "cannot tell", Message("rtx3090-19.vocabulary.not_measured")
    speed, repeated = line.pooled / base.pooled, noise(known)
    told = Message(
        "rtx3090-19.silent",
        drafted=line.sums.drafted,
        requests=line.arm.requests,
        change=100 * (speed - 1),
        why=line.arm.why or Message("rtx3090-19.no_objection"),
    )
    if line.sums.drafted:
        return by_counts("contradicted", told)
    plain = repeated is not None and abs(math.log(speed)) <= max(5 * repeated.sd, math.log1p(MARGIN))
    return by_counts("supported" if plain and not line.believable else "cannot tell", told)


def draft_choice(data: StudyData) -> Found:
    """Whether several drafts that really draft lose alike."""
    known = lines(data)
    of_draft: dict[str, list[Line]] = {}
    for line in drafting(known):
        if line.arm.draft and line.sums and line.sums.drafted and DRAFT_MODEL_METHODS & set(line.arm.method.split("+")):
            of_draft.setdefault(line.arm.draft, []).append(line)
    lost = {draft for draft, own in of_draft.items() if all(below(ratio(known, line), 1) for line in own)}
    won = {draft for draft, own in of_draft.items() if any(above(ratio(known, line), 1) for line in own)}
    ruling = decided(supported=len(of_draft) > 1 and len(lost) == len(of_draft), contradicted=bool(lost and won))
    refuted = [line for line in known.values() if not line.believable and line.sums and line.sums.drafted]
    refuted = [line for line in refuted if line.arm.draft and line.arm.draft not in of_draft]
    more = ""
    if refuted:
        more = Message("rtx3090-19.drafts.invalid", names=named(refuted))
    elif len(of_draft) == 1:
        more = Message("rtx3090-19.drafts.one")
    told = [
        Message("rtx3090-19.drafts.of", draft=draft, arms=[_change(line, ratio(known, line)) for line in own])
        for draft, own in of_draft.items()
    ]
    return ruling, Message("rtx3090-19.drafts", drafts=told or [Message("rtx3090-19.drafts.none")], more=more)


def _near(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and low > 1 / (1 + MARGIN) and high < 1 + MARGIN


def _lengths(known: Lines) -> list[tuple[Line, Line]]:
    """(longer, shorter) of what was measured, and can be believed, with both lengths."""
    return [
        (known[longer], known[shorter])
        for longer, shorter in LONGER.items()
        if longer in known and shorter in known and known[longer].believable and known[shorter].believable
    ]


FULL = 0.95
"""Acceptance that counts as full where the question is what full acceptance brings."""
SATURATED = 0.95
"""Share of the experts that the document calls saturated."""
NINE = 9
"""A draft of eight and the token before it."""


def threshold(data: StudyData) -> Found:
    """Whether drafts lie below the number of tokens that touch nearly all experts.

    The formula holds for uniform routing; what text chooses has to be measured, at that many tokens.
    """
    known = lines(data)
    found = saturation(data)
    gammas = sorted({value for line in drafting(known) if (value := gamma(line)) is not None})
    if found is None or not gammas:
        return "cannot tell", Message("rtx3090-19.no_experts")
    union = found.model.union and union_at(found.model.union, found.threshold)
    ruling = decided(
        supported=above(union, SATURATED * found.experts),
        contradicted=any(value + 1 >= found.threshold for value in gammas) or below(union, SATURATED * found.experts),
    )
    told = Message(
        "rtx3090-19.threshold",
        used=found.used,
        experts=found.experts,
        sparsity=found.sparsity,
        tokens=found.tokens,
        threshold=found.threshold,
        printed=THRESHOLD,
        at=SPARSITY,
        gammas=gammas,
        read=quoted(union) if union else Message("rtx3090-19.threshold.not_read"),
    )
    return ruling, told


def explains(data: StudyData) -> Found:
    """Whether the union of experts below the threshold can be what the time went into."""
    known = lines(data)
    found = saturation(data)
    under = [line for line in drafting(known) if found and (value := gamma(line)) and value + 1 < found.threshold]
    under = [line for line in under if line.sums and line.sums.drafted]
    if found is None or not under:
        return "cannot tell", Message("rtx3090-19.none_below")
    counted = not blind(known)
    gaining = [line for line in under if above(ratio(known, line, among=len(under)), 1)]
    losing = [line for line in under if below(ratio(known, line), 1)]
    over = {line.name: it for line in losing if (it := beyond_bound(known, line))}
    beyond = [line for line in losing if counted and line.name in over]
    longer, unseen, full_anyway = "", "", ""
    if beyond:
        shares = [over[line.name] for line in beyond]
        longer = Message(
            "rtx3090-19.explains.longer",
            beyond=len(beyond),
            losing=len(losing),
            low=min(it.low or 0.0 for it in shares),
            high=max(it.high or 1.0 for it in shares),
            names=named(beyond),
        )
    if over and not counted:
        unseen = Message(
            "rtx3090-19.explains.blind",
            over=len(over),
            losing=len(losing),
            share=UNEXPLAINED,
            names=named([known[it] for it in over]),
        )
    gain = [_change(line, ratio(known, line)) for line in gaining[:4]]
    full = [line for line in losing if line.acceptance >= FULL]
    if counted and not beyond and not gaining:
        full_anyway = Message("rtx3090-19.explains.full", full=len(full), losing=len(losing), share=FULL)
    ruling = decided(
        supported=bool(counted and full and len(full) == len(losing)), contradicted=bool(beyond or gaining)
    )
    return ruling, Message(
        "rtx3090-19.explains",
        tokens=NINE,
        most=min(found.experts, NINE * found.used),
        experts=found.experts,
        union=expected_union(NINE, found.experts, found.used),
        longer=longer,
        blind=unseen,
        gaining=where_any("rtx3090-19.explains.gaining", n=len(gaining), arms=gain),
        full=full_anyway,
    )


def active_parameters(data: StudyData) -> Found:
    """Whether a model with more active parameters lies above the threshold."""
    own = saturation(data)
    others = [found for model in data.models if own and model.name != own.model.name and (found := of_model(model))]
    larger = [
        found
        for found in others
        if own and (found.model.active_parameters or 0) > (own.model.active_parameters or math.inf)
    ]
    ruling: RulingWord = "cannot tell"
    if own is None or not larger:
        return ruling, Message("rtx3090-19.no_second")
    ruling = "supported" if all(found.threshold < own.threshold for found in larger) else "contradicted"
    told = [
        Message(
            "rtx3090-19.larger.of",
            name=found.model.name,
            used=found.used,
            experts=found.experts,
            tokens=found.threshold,
            own=own.model.name,
            own_used=own.used,
            own_experts=own.experts,
            own_tokens=own.threshold,
        )
        for found in larger
    ]
    return by_counts(ruling, Message("rtx3090-19.larger", models=told))


def gain_of_larger(_: StudyData) -> Found:
    """Whether a larger mixture gains 15 to 45 %: quoted by the document from elsewhere, without numbers of its own."""
    return "cannot tell", Message("rtx3090-19.quoted")

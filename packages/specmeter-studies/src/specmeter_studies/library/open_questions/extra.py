"""open-questions: what the document expects where it did not measure, ruled from our runs.

    open-gamma        drafts of 32 and 64 tokens
    open-contexts     prompts of 4,096 to 32,768 tokens
    open-greedy       temperature 0, and
    open-sampled      temperature 0.8 on the same prompts
    open-moe-drafts   mixtures of experts that draft for a mixture of experts

What every part tells besides: the memory of its drafts, and the energy of its tokens where that can be read. Each
question has a part of its own, so its rule looks at that part alone; the arms of two parts are compared by their
intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from specmeter.messages import Message
from specmeter.numbers.estimates import above, below
from specmeter.record import Estimate
from specmeter_studies.library.moe_306.lines import (
    MIN_EXACT,
    SMALL,
    acceptances,
    believable,
    best_first,
    label,
    listed,
    named,
    percent,
)
from specmeter_studies.library.moe_306.ratios import faster
from specmeter_studies.library.moe_306.rulings import ruled, together, unanimous
from specmeter_studies.rules import lies
from specmeter_studies.study import ArmResult, Found, RulingWord, StudyCell, StudyData
from specmeter_studies.telling import by_counts, quoted, several

GAMMA, CONTEXTS, GREEDY, SAMPLED, MIXTURES = (
    "open-gamma",
    "open-contexts",
    "open-greedy",
    "open-sampled",
    "open-moe-drafts",
)
LONGEST_OF_PAPER = 16
CONTEXT_OF_PAPER = 1024
"""The longest prompts of the paper, in tokens."""
GIGABYTE = 1e9
_PRINTED = "printed by the engine"
"""How memory is known that needs no interval."""


def part(data: StudyData, name: str) -> StudyData:
    """One part on its own: arms of different parts have the same names."""
    return replace(
        data,
        arms=tuple(line for line in data.arms if line.suite == name),
        results=tuple(row for row in data.results if row.suite == name),
    )


def drafting(data: StudyData) -> tuple[ArmResult, ...]:
    """Lines over all prompts that speculate."""
    return tuple(line for line in data.whole if line.speculates)


# --- gamma -----------------------------------------------------------------------------------------------------------


def longer_drafts(data: StudyData) -> Found:
    """Whether any length beyond the paper's gains more than its longest."""
    data = part(data, GAMMA)
    curves = [curve for curve in by_target(believable(drafting(data))) if len(curve) > 1]
    pairs = [
        (short, longer)
        for curve in curves
        for short in curve
        if short.gamma == LONGEST_OF_PAPER
        for longer in curve
        if (longer.gamma or 0) > LONGEST_OF_PAPER
    ]
    if not pairs:
        return "cannot tell", Message("open-questions.not_measured", part=GAMMA)
    gaining = [longer for short, longer in pairs if faster(data, longer, short, among=len(pairs))]
    losing = [longer for short, longer in pairs if faster(data, short, longer, among=len(pairs))]
    found: RulingWord = "supported" if gaining else "contradicted" if len(losing) == len(pairs) else "cannot tell"
    shown = [
        Message(
            "open-questions.curve",
            target=label(curve[0].target),
            points=[Message("moe-306.curve.at", gamma=line.gamma, speedup=quoted(line.speedup, "x")) for line in curve],
        )
        for curve in curves
    ]
    return found, Message(
        "open-questions.longer_drafts",
        pairs=len(pairs),
        gamma=LONGEST_OF_PAPER,
        gaining=len(gaining),
        losing=len(losing),
        curves=shown,
    )


def by_target(lines: Sequence[ArmResult]) -> list[tuple[ArmResult, ...]]:
    """Lines of each pair of target and draft, by draft length."""
    pairs = dict.fromkeys((line.target, line.draft) for line in lines)
    return [
        tuple(
            sorted(
                (line for line in lines if (line.target, line.draft) == pair and line.gamma is not None),
                key=lambda line: line.gamma or 0,
            )
        )
        for pair in pairs
    ]


def gamma_memory(data: StudyData) -> Found:
    """Whether caches grow with the draft length: counted by the engine, so no interval is needed."""
    gammas = {line.config: line.gamma or 0 for line in drafting(part(data, GAMMA))}
    prices = [
        price for name, price in data.memory if name == GAMMA and price.means == _PRINTED and price.arm_id in gammas
    ]
    told: list[Message] = []
    grown: list[bool] = []
    for target, draft in dict.fromkeys((price.target, price.draft) for price in prices):
        lengths = {gammas[it.arm_id]: it for it in prices if (it.target, it.draft) == (target, draft)}
        if len(lengths) < 2:
            continue
        shortest, longest = min(lengths), max(lengths)
        first, last = lengths[shortest], lengths[longest]
        grown.append(last.kv_bytes > first.kv_bytes)
        more = last.buffers_bytes + last.target_bytes - first.buffers_bytes - first.target_bytes
        told.append(
            Message(
                "open-questions.cache",
                target=label(target),
                draft=label(draft),
                first=_size(first.kv_bytes),
                shortest=shortest,
                last=_size(last.kv_bytes),
                longest=longest,
                more=_size(more),
            )
        )
    if not told:
        return "cannot tell", Message("open-questions.no_buffers")
    found: RulingWord = "supported" if all(grown) else "cannot tell" if any(grown) else "contradicted"
    why = "" if any(grown) else Message("open-questions.whole_context")
    return by_counts(found, Message("open-questions.caches", caches=told, why=why))


# --- contexts --------------------------------------------------------------------------------------------------------


def beyond(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Lines of prompts that are longer than the paper's, by target and length."""
    lines = [it for it in part(data, CONTEXTS).arms if it.speculates and (it.prompt_tokens or 0) > CONTEXT_OF_PAPER]
    for line in sorted(lines, key=lambda it: (it.target, it.prompt_tokens or 0)):
        yield {
            "line": line,
            "name": Message("open-questions.tokens", target=label(line.target), tokens=line.prompt_tokens),
        }


def longer_contexts(data: StudyData) -> Found:
    """Whether drafts gain on every prompt that is longer than the paper's."""
    return lies(
        beyond(data),
        "line.speedup",
        low=1,
        unit="x",
        empty=Message("open-questions.no_long_prompt"),
    )


# --- temperature -----------------------------------------------------------------------------------------------------


def sampling(data: StudyData) -> Found:
    """Whether acceptance or speedup differ between the two temperatures."""
    greedy, sampled = part(data, GREEDY), part(data, SAMPLED)
    plain = {line.config: line for line in believable(drafting(greedy))}
    pairs = [(plain[line.config], line) for line in believable(drafting(sampled)) if line.config in plain]
    if not pairs:
        return "cannot tell", Message("open-questions.neither_measured", part=GREEDY, other=SAMPLED)
    differ = [apart(a.acceptance, b.acceptance) or apart(a.speedup, b.speedup) for a, b in pairs]
    found: RulingWord = "supported" if any(differ) else "cannot tell"
    shown = [
        Message(
            "open-questions.both",
            name=named(cold),
            greedy=_percent(cold.acceptance),
            sampled=_percent(warm.acceptance),
            greedy_speedup=quoted(cold.speedup, "x"),
            sampled_speedup=quoted(warm.speedup, "x"),
        )
        for cold, warm in pairs
    ]
    return found, Message("open-questions.sampling", differ=sum(differ), pairs=len(pairs), shown=shown)


def apart(first: Estimate | None, second: Estimate | None) -> bool:
    """Whether two intervals do not touch."""
    if first is None or second is None:
        return False
    ends = (first.low, first.high, second.low, second.high)
    if any(end is None for end in ends):
        return False
    return below(first, second.low or 0) or above(first, second.high or 0)


# --- mixtures that draft ---------------------------------------------------------------------------------------------


def mixtures(data: StudyData) -> Found:
    """Acceptance and speedup of drafts that are mixtures themselves."""
    data = part(data, MIXTURES)
    experts = {model.name for model in data.models if model.experts}
    lines = believable(line for line in drafting(data) if line.draft in experts and line.target in experts)
    if not lines:
        return "cannot tell", Message("open-questions.mixture_not_measured", part=MIXTURES)
    accepted = unanimous(lines, lambda line: accepts_half(data, line), lambda line: below(line.acceptance, 0.5))
    fast = unanimous(lines, lambda line: above(line.speedup, 3), lambda line: below(line.speedup, 3))
    both = together([accepted, fast])
    counted = both == accepted and any(line.acceptance is None or line.acceptance.low is None for line in lines)
    told = Message(
        "open-questions.mixtures",
        accepted=ruled(accepted),
        acceptances=acceptances(lines),
        fast=ruled(fast),
        arms=listed(best_first(lines), 4),
    )
    return by_counts(both, told) if counted else (both, told)


def accepts_half(data: StudyData, line: ArmResult) -> bool:
    """More than half of the drafts: by the interval, or, where there is none, by the counts of every generation."""
    shares = [row.acceptance for row in data.results if row.config == line.config and row.acceptance is not None]
    exact = len(shares) >= MIN_EXACT and all(share > 0.5 for share in shares)
    bare = line.acceptance is not None and line.acceptance.low is None
    return above(line.acceptance, 0.5) or (bare and exact)


# --- memory and energy -----------------------------------------------------------------------------------------------


def draft_memory(data: StudyData) -> Found:
    """What the paper's draft takes, and what it would buy."""
    from specmeter.analysis.explain.memory_price import sentence

    price = max(
        (price for _, price in data.memory if price.draft == SMALL), key=lambda it: it.total_bytes, default=None
    )
    if price is None:
        return "cannot tell", Message("open-questions.no_draft")
    text = Message(
        "open-questions.memory",
        size=_size(price.total_bytes),
        means=Message("open-questions.printed" if price.means == _PRINTED else "open-questions.from_header"),
        share=price.share,
        target=label(price.target),
        sentence=sentence(price),
    )
    near = 0.8 * GIGABYTE <= price.total_bytes <= 1.25 * GIGABYTE
    return by_counts("supported" if near else "contradicted", text)


def free_energy(data: StudyData) -> Found:
    """Energy per token over the baseline's, where it was read."""
    lines = [line for line in drafting(data) if line.energy is not None and line.energy.ratio is not None]
    if not lines:
        reasons = dict.fromkeys(
            why for host in data.hosts if host.power_meter is not None for why in host.power_meter.unread
        )
        return "cannot tell", Message(
            "open-questions.no_energy", reasons=[*reasons] or [Message("open-questions.not_reported")]
        )

    def ratio(line: ArmResult) -> Estimate | None:
        return line.energy.ratio if line.energy is not None else None

    found = unanimous(lines, lambda line: below(ratio(line), 1), lambda line: above(ratio(line), 1))
    sources = " + ".join(lines[0].energy.sources) if lines[0].energy is not None else ""
    each = several(
        (
            Message("open-questions.energy.of", part=it.suite, name=named(it), ratio=quoted(ratio(it), "x"))
            for it in lines
        ),
        6,
    )
    return found, Message("open-questions.energy", sources=sources, arms=each)


def _percent(estimate: Estimate | None) -> Message:
    return Message("open-questions.none") if estimate is None else percent(estimate)


def _size(size_bytes: float) -> Message:
    if abs(size_bytes) >= 0.1 * GIGABYTE:
        return Message("study.gb", gb=size_bytes / GIGABYTE)
    return Message("study.mb", mb=size_bytes / 1e6)


# --- rows of tables and figures --------------------------------------------------------------------------------------


def _row(line: ArmResult) -> Mapping[str, object]:
    ratio = line.energy.ratio if line.energy else None
    plain = "-" if line.speculates else Message("cell.baseline")
    return {
        "line": line,
        "name": line.config,
        "target": label(line.target),
        "draft": label(line.draft or "-"),
        "tokens": f"{line.prompt_tokens:,}" if line.prompt_tokens else "-",
        "speedup": StudyCell(text=plain, value=line.speedup),
        "is_false": line.of_rate == "invalid",
        "energy_ratio": StudyCell(text=plain, value=ratio, struck=line.comparison_only),
    }


def _whole(data: StudyData, name: str) -> list[Mapping[str, object]]:
    return [_row(line) for line in sorted(part(data, name).whole, key=_by_models)]


def _by_models(line: ArmResult) -> tuple[str, str, int, int]:
    return line.target, line.draft or "", line.prompt_tokens or 0, line.gamma or 0


def gammas(data: StudyData) -> list[Mapping[str, object]]:
    return _whole(data, GAMMA)


def contexts(data: StudyData) -> list[Mapping[str, object]]:
    lines = (it for it in part(data, CONTEXTS).arms if it.prompt_tokens is not None)
    return [_row(line) for line in sorted(lines, key=_by_models)]


def greedy(data: StudyData) -> list[Mapping[str, object]]:
    return _whole(data, GREEDY)


def sampled(data: StudyData) -> list[Mapping[str, object]]:
    return _whole(data, SAMPLED)


def mixed(data: StudyData) -> list[Mapping[str, object]]:
    return _whole(data, MIXTURES)


def drafting_gammas(data: StudyData) -> list[Mapping[str, object]]:
    """In the order of the data, for the figure."""
    return [_row(line) for line in drafting(part(data, GAMMA))]


def drafting_contexts(data: StudyData) -> list[Mapping[str, object]]:
    """The shortest prompts first."""
    lines = sorted(part(data, CONTEXTS).arms, key=lambda line: line.prompt_tokens or 0)
    return [_row(line) for line in lines if line.speculates and line.prompt_tokens is not None]


def energy(data: StudyData) -> list[Mapping[str, object]]:
    """Arms of all parts whose energy was read."""
    return [_row(line) for line in data.whole if line.energy is not None and line.energy.per_token]


def prices(data: StudyData) -> Iterator[Mapping[str, object]]:
    """What drafts of all parts take, and what the same bytes would buy."""
    lengths = {(line.suite, line.config): line.gamma for line in drafting(data)}
    for name, it in data.memory:
        buys = "-"
        if it.bits_now is not None and it.bits_for_it is not None:
            better = it.buys.name if it.buys else Message("open-questions.nothing_better")
            buys = Message("open-questions.buys", now=it.bits_now, bits=it.bits_for_it, better=better)
        models = {"target": label(it.target), "draft": label(it.draft)}
        yield {"part": name, "price": it, "gamma": lengths.get((name, it.arm_id)), "buys": buys, **models}

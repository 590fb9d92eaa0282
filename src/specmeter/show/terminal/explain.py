"""Prints why arms are as fast as they are: parts of their time, what was predicted, which drafted tokens are accepted,
what other draft lengths would yield, which experts are read, and what drafts take in memory.

Prints predictions: the speedup for each draft length, and for every acceptance.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from specmeter.analysis.explain.memory_price import sentence as memory_sentence
from specmeter.analysis.explain.parts import RESIDUAL
from specmeter.analysis.positions import ALL, MOST_LENGTHS
from specmeter.analysis.prediction.forecast import accuracy, as_data, crossover_outcomes
from specmeter.messages import words
from specmeter.numbers.stats import LEAST_PROMPTS
from specmeter.show.names import Names
from specmeter.show.table import Cell, Column, Row, Table, estimate_cell, numbers, row, text
from specmeter.show.terminal.console import Screen, output
from specmeter.text import brackets, counted, percent, ratio, size
from specmeter.theory.roofline import expected_union

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specmeter.analysis.explain.account import Account, ArmAccount, PartName
    from specmeter.analysis.explain.memory_price import MemoryPrice
    from specmeter.analysis.load.crossover import Crossover
    from specmeter.analysis.positions import ArmPositions
    from specmeter.analysis.prediction.forecast import PredictionOutcome
    from specmeter.analysis.prediction.speedup import ExpectedCrossover, LoadForecast, Predicted, Surface
    from specmeter.analysis.reading import RunReport
    from specmeter.messages import Message
    from specmeter.probe.draft_lengths import DraftLength
    from specmeter.record import Estimate, TextRouting


def print_prediction(found: Predicted, whole: Surface, *, by_model: bool) -> None:
    """The best draft length, where that comes from, and both tables."""
    screen = output()
    screen.say((best_line(found), "strong"))
    screen.line()
    screen.say("costs       ", found.cost)
    screen.say("acceptance  ", found.acceptance)
    screen.line()
    screen.table(_by_gamma(found, whole))
    if any(at.extrapolated for at in found.by_gamma):
        screen.say("* longer than was measured: rates and costs go on from shorter drafts", tone="faint")
    if found.recurrent:
        screen.say(
            "The target has a recurrent state: a step that rejects a token restores it, and verifies again what it "
            "accepted. That is in rest, and the token that it emits in tokens/step.",
            tone="faint",
        )
    screen.line()
    screen.table(_surface(whole, by_model=by_model), caption=True)
    screen.line()
    screen.say(
        "Costs in target forwards of one token. [low, high]: 95% of the draws of everything uncertain.", tone="faint"
    )


def _by_gamma(found: Predicted, whole: Surface) -> Table:
    rows = [
        row(
            f"{at.gamma}{'*' if at.extrapolated else ''}",
            estimate_cell(at.speedup, 2),
            f"{at.tau:.2f}",
            f"{at.parts.total:.2f}",
            f"{at.parts.draft:.2f}",
            f"{at.parts.verify:.2f}",
            f"{at.parts.restore + at.parts.rest:.2f}",
            "none suffices" if line is None else estimate_cell(line, 2),
        )
        for at, line in zip(found.by_gamma, whole.break_even, strict=True)
    ]
    titles = ("gamma", "speedup", "tokens/step", "cost/step", "draft", "verify", "rest", "break-even alpha")
    return Table("predicted", numbers(*titles), rows)


def print_loads(found: LoadForecast) -> None:
    """The speedup over clients and draft lengths, the best length for each, and where speculation stops paying."""
    screen = output()
    rows: list[Row] = []
    for at in found.loads:
        best = at.best
        cells = (estimate_cell(it.speedup, 2) for it in at.by_gamma)
        rows.append(row(str(at.clients), *cells, "none" if best is None else str(best.gamma)))
    titles = ("clients", *(f"gamma {it.gamma}" for it in found.loads[0].by_gamma), "best gamma")
    screen.line()
    screen.table(Table("loads", numbers(*titles), rows, "speedup by requests at once, while decoding"), caption=True)
    screen.line()
    screen.say((f"speculation {crossing(found.best_crossover)}", "strong"))
    screen.say("costs       ", found.cost, tone="faint")


def crossing(found: ExpectedCrossover | Crossover) -> str:
    """At how many clients speculation stops paying, or starts to; what follows `speculation`."""
    if found.clients is not None:
        does = "stops paying" if found.course == "stops" else "starts to pay"
        return f"{does} at {found.clients.point:.1f} clients {brackets(found.clients, 1)}"
    if found.course == "pays":
        return "pays at all of these numbers of clients"
    if found.course == "never":
        return "pays at none of these numbers of clients"
    return "gains and loses by turns" if found.course == "mixed" else "is not shown to cross 1"


def best_line(found: Predicted) -> str:
    """Whether to speculate, and with how many tokens."""
    best = found.best
    if best is None:
        top = max(found.by_gamma, key=lambda at: at.speedup.point)
        tokens = counted(top.gamma, "draft token")
        return f"do not speculate: no draft length is faster; the best, {tokens}, is {ratio(top.speedup.point)} as fast"
    low = best.speedup.low
    sure = "" if low is not None and low > 1 else ", though a loss is not ruled out"
    tokens = counted(best.gamma, "draft token")
    return f"{ratio(best.speedup.point)} as fast with {tokens} per step {brackets(best.speedup, 2)}{sure}"


def _surface(whole: Surface, *, by_model: bool) -> Table:
    """Speedup over gamma and alpha: gains in bold."""
    rows: list[Row] = []
    for gamma, speedups in zip(whole.gammas, whole.speedups, strict=True):
        cells = (Cell(f"{value:.2f}", tone="strong" if value > 1 else "") for value in speedups)
        rows.append(row(str(gamma), *cells))
    rows.append(row("best", *(str(gamma) if gamma else "none" for gamma in whole.best), tone="faint"))
    title = "speedup by alpha, drafts of full length" + ("" if by_model else " in every step")
    return Table("surface", numbers("gamma", *(f"{alpha:g}" for alpha in whole.alphas)), rows, title)


_PARTS: tuple[PartName, ...] = ("draft", "verify", "restore", "sample", "rest", "remainder")
_MEANS = {
    "steps": "every part of every step was measured by the engine",
    "cost curve": "drafting by the server's statistics, forwards by the probe's cost curve, in units of the baseline",
    "step times": "drafting by the server's statistics, verification is what a step leaves, up to its possible cost",
    "undivided": "no statistics of drafting on record: it stands under verification",
    "difference": "drafting by the server's statistics, verification is what is left, up to its possible cost",
}
_BAR = 20
"""Characters of the widest bar."""
_POSITIONS = (1, 2, 4, 8)
"""Positions of a replayed draft that are shown."""
_GAMMAS = (1, 2, 4, 8, 16)
"""Draft lengths that are shown."""
_TOKENS = (1, 2, 3, 5, 9, 17, 33)
"""Tokens of a forward whose experts are shown."""


def document(
    account: Account, lengths: Sequence[DraftLength], prices: Sequence[MemoryPrice], routing: Sequence[TextRouting]
) -> dict[str, Any]:
    """Everything, for `--json`."""
    found = accuracy(arm.prediction for arm in account.arms if arm.prediction is not None)
    return {
        "name": account.name,
        "probe": account.probe,
        "arms": [
            {
                **arm.model_dump(mode="json"),
                "prediction": None if arm.prediction is None else as_data(arm.prediction),
                "by_curve_error": arm.by_curve_error,
            }
            for arm in account.arms
        ],
        "draft_lengths": [it.model_dump(mode="json") for it in lengths],
        "memory": [{**price.model_dump(mode="json"), "total_bytes": price.total_bytes} for price in prices],
        "accuracy": None if found is None else found.model_dump(mode="json"),
        "routing": [it.model_dump(mode="json") for it in routing],
    }


def print_account(
    account: Account,
    lengths: Sequence[DraftLength],
    prices: Sequence[MemoryPrice],
    routing: Sequence[TextRouting],
    report: RunReport,
) -> None:
    """Sentences and a table for each target, then the other methods' results."""
    screen, names = output(), Names(report.arms)
    for baseline in (arm for arm in account.arms if arm.baseline_id is None):
        group = [baseline, *(arm for arm in account.arms if arm.baseline_id == baseline.arm_id)]
        for arm in group:
            if arm.sentence is not None:
                doubt = "" if arm.verdict == "valid" else f"; {arm.verdict or 'not checked'}"
                screen.say((names.in_full(arm.arm_id), "strong"), f" ({arm.arm_id}{doubt})")
                screen.say(arm.sentence, indent=2)
        screen.line()
        screen.table(_parts(group, report, names))
        screen.line()
    if any(arm.verdict in ("suspect", "invalid") for arm in account.arms):
        screen.say("`specmeter check` explains suspect and invalid verdicts")
        screen.line()
    _print_lengths(screen, lengths)
    _print_routing(screen, routing)
    _print_memory(screen, prices)
    _print_means(screen, account)
    outcomes = [arm.prediction for arm in account.arms if arm.prediction is not None]
    print_accuracy(screen, outcomes)
    _print_sources(screen, outcomes)


def _parts(group: list[ArmAccount], report: RunReport, named: Names) -> Table:
    target = {arm.id: arm.target for arm in report.arms}[group[0].arm_id]
    used = {part.name for arm in group for part in arm.parts if abs(part.share) >= 0.0005}
    names = [name for name in _PARTS if name in used]
    rows: list[Row] = []
    for arm in group:
        parts = {part.name: part for part in arm.parts}
        outcome = arm.prediction
        speedup = Cell("invalid") if arm.verdict == "invalid" else estimate_cell(arm.speedup, 2)
        told = row(
            named[arm.arm_id],
            f"{arm.ms_per_token.point:.2f}",
            *(f"{parts[name].ms_per_token.point:.2f}" if name in parts else "-" for name in names),
            "baseline" if arm.baseline_id is None else speedup,
            estimate_cell(outcome.prediction.speedup if outcome is not None else None, 2),
            "-" if outcome is None or outcome.error is None else percent(outcome.error, 1, signed=True),
        )
        rows.append(told)
    columns = (*text(f"{target}: ms per token"), *numbers("all", *names, "speedup", "predicted", "error"))
    return Table("parts", columns, rows)


def _print_means(screen: Screen, account: Account) -> None:
    """How the parts were obtained, how much of the time they account for, and how well the curve fits."""
    for means, told in _MEANS.items():
        arms = [arm for arm in account.arms if arm.means == means and arm.baseline_id is not None]
        if not arms:
            continue
        shares = [arm.accounted for arm in arms if arm.accounted is not None]
        least = f"; at least {percent(min(shares))} of the decode time is accounted for" if shares else ""
        if shares and means in RESIDUAL:
            least += " by other means (drafting, restoring, a plain forward for each step)"
        screen.say(f"{counted(len(arms), 'arm')}: {told}{least}", tone="faint")
    errors = [abs(arm.by_curve_error) for arm in account.arms if arm.by_curve_error is not None]
    if errors:
        screen.say(
            f"by the curves of {account.probe} and the measured acceptance, speedups are off by at most "
            f"{percent(max(errors), 1)}",
            tone="faint",
        )
    elif account.probe is None:
        screen.say(
            "no probe of these models was found: `specmeter probe` measures what their forwards cost", tone="faint"
        )


# --- predictions -----------------------------------------------------------------------------------------------------


def print_accuracy(screen: Screen, outcomes: Sequence[PredictionOutcome], crossovers: Sequence[Crossover] = ()) -> None:
    """One line about all predictions of a run, one for each crossover that was foreseen, and one for each reason why
    there was no prediction."""
    found = accuracy(outcomes)
    if found is not None:
        screen.say(
            f"predicted before measuring: {counted(found.arms, 'arm')}, off by {percent(found.median_error, 1)} in the "
            f"median and {percent(found.worst_error, 1)} at worst; {found.inside} within the predicted interval",
            tone="faint",
        )
    for it in crossover_outcomes(crossovers, outcomes):
        where = f"{it.arm}, {it.depth} tokens deep" if it.depth else it.arm
        told = f"predicted {crossing(it.predicted)}; measured {crossing(it.measured)}"
        screen.say(f"{where}: {told}", tone="faint")
    for reason, count in Counter(it.prediction.reason for it in outcomes if it.prediction.speedup is None).items():
        screen.say(f"not predicted ({count}): ", reason or "?", tone="faint")


def _print_sources(screen: Screen, outcomes: Sequence[PredictionOutcome]) -> None:
    """Where predictions took their costs and their acceptance from, each source once."""
    told = [it.prediction for it in outcomes if it.prediction.speedup is not None]
    for name in ("cost", "acceptance"):
        sources: Counter[Message | None] = Counter(getattr(it, name) for it in told)
        for source, count in sources.items():
            share = "" if count == len(told) else f" ({count} of {len(told)})"
            screen.say(f"  {name}{share}: ", source or "?", tone="faint", wrap=False)


# --- drafts ----------------------------------------------------------------------------------------------------------


def print_positions(screen: Screen, found: Sequence[ArmPositions]) -> None:
    """Which drafted tokens are accepted: by position, beside a histogram of accepted lengths, for each arm that
    drafted; the reason where its engine shows no steps."""
    shown = [it for it in found if it.kind == ALL]
    if not shown:
        screen.say("no arm drafted anything")
        return
    for arm in shown:
        if arm.missing is not None:
            screen.say((arm.arm_id, "strong"), ": no acceptance by position, ", arm.missing)
        else:
            counts = f": {counted(arm.drafts, 'draft')} on {counted(arm.prompts, 'prompt')}"
            screen.say((arm.arm_id, "strong"), counts)
            screen.table(_positions(arm))
        screen.line()
    screen.say(
        "if reached: share of the drafts whose tokens before it were all accepted; of all: share of all drafts, those "
        "too short included. Accepted: share of the drafts of which just so many tokens were. 95% intervals over "
        f"prompts, [?] where there is none (fewer than {LEAST_PROMPTS} prompts, or nothing that varies); kinds of "
        "text: `specmeter export --table positions`, `--table accepted_lengths`.",
        tone="faint",
    )


def _positions(arm: ArmPositions) -> Table:
    def share_of(estimate: Estimate | None) -> Cell:
        return estimate_cell(estimate, 0, scale=100)

    last = min(len(arm.lengths), MOST_LENGTHS) - 1
    beyond = sum(it.share.point for it in arm.lengths[last + 1 :])
    widest = max(it.share.point for it in arm.lengths) or 1.0
    rows: list[Row] = []
    for place, length in enumerate(arm.lengths[: last + 1]):
        rate = arm.positions[place - 1] if place else None
        cut = bool(beyond) and place == last
        share = length.share.point + (beyond if cut else 0.0)
        told = row(
            "none" if rate is None else f"{place}+" if cut else str(place),
            share_of(rate.conditional if rate else None),
            share_of(rate.unconditional if rate else None),
            Cell(f"{100 * share:.0f}") if cut else share_of(length.share),
            "█" * round(_BAR * share / widest),
        )
        rows.append(told)
    columns = numbers("token", "if reached, %", "of all, %", "accepted, %")
    return Table("positions", (*columns, Column("", title=" ")), rows)


def _print_lengths(screen: Screen, found: Sequence[DraftLength]) -> None:
    """Acceptance by position and tau by gamma, for each draft and kind of text, by replay of the run's own texts."""
    groups: dict[tuple[str, str, str], list[DraftLength]] = {}
    for it in found:
        groups.setdefault((it.target, it.draft, it.kind), []).append(it)
    if not groups:
        return
    rows = [
        row(
            " · ".join(key),
            str(lengths[0].texts),
            *(_whole_percent(lengths[place].accepted) for place in _POSITIONS),
            *(f"{lengths[it].tau:.2f}" for it in _GAMMAS),
        )
        for key, lengths in groups.items()
    ]
    ordinals = (f"{place}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(place, 'th') }, %" for place in _POSITIONS)
    columns = numbers("texts", *ordinals, *(f"tau g{it}" for it in _GAMMAS))
    screen.table(Table("lengths", (*text("replayed on the run's texts"), *columns), rows))
    screen.say(
        "1st, 2nd, ...: share of a draft's tokens at that position that are accepted, where all before them were. "
        "tau: tokens per target forward with drafts of that length. All lengths: `specmeter export --table profiles`.",
        tone="faint",
    )
    screen.line()


def _whole_percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}"


# --- what else costs -------------------------------------------------------------------------------------------------


def _print_routing(screen: Screen, found: Sequence[TextRouting]) -> None:
    """For each MoE target, experts of a layer that n tokens choose, by layer at most and at least, beside uniform
    routing; nothing for runs without."""
    for routing in found:
        if (union := routing.union) is None:
            why = routing.failure or "?"
            screen.say(f"{routing.target}: its experts could not be read (", why, ")", tone="faint")
            screen.line()
            continue
        rows: list[Row] = []
        for place, point in enumerate(union.points):
            if point.tokens not in _TOKENS:
                continue
            layers = [unions[place] for unions in routing.layers.values()]
            ends = f" {brackets(point.union, 1)}" if point.tokens > 1 else ""
            told = row(
                counted(point.tokens, "token"),
                f"{point.union.point:.1f}{ends}",
                f"{min(layers):.1f} to {max(layers):.1f}" if layers else "-",
                f"{expected_union(float(point.tokens), union.experts, union.used):.1f}",
            )
            rows.append(told)
        columns = (*text(routing.target), *numbers("experts of a layer", "layer by layer", "if uniform"))
        screen.table(Table("routing", columns, rows))
        screen.say(
            f"{union.used} of {union.experts} experts a token, {counted(len(routing.layers), 'layer')}; "
            f"{counted(routing.tokens, 'token')} of {counted(routing.texts, 'text')} of {routing.baseline_id}. "
            "Consecutive tokens: what accepted drafts are; a rejected draft token is another one.",
            tone="faint",
        )
        screen.line()


def _print_memory(screen: Screen, prices: Sequence[MemoryPrice]) -> None:
    """What each draft model takes, and a sentence for what that would buy; nothing where none is used."""
    if not prices:
        return
    rows = [
        row(
            f"{price.target} · {price.draft}",
            size(price.weights_bytes),
            size(price.kv_bytes),
            size(price.buffers_bytes) if price.means == "printed by the engine" else "not told",
            size(price.target_bytes),
            size(price.total_bytes),
            percent(price.share),
        )
        for price in prices
    ]
    columns = numbers("weights", "KV cache", "buffers", "target's own", "in all", "of the target")
    screen.table(Table("memory", (*text("memory of a draft"), *columns), rows))
    screen.say_all(dict.fromkeys(map(memory_sentence, prices)), indent=2)
    english = words()
    told = english.listed(english(f"memory-price.{means}") for means in sorted({price.means for price in prices}))
    screen.say(
        f"memory: {told}; target's own: what its caches and buffers take beyond those of its baseline. "
        "Bits of types are those on Llama-3.1-8B.",
        tone="faint",
    )
    if not any(price.measured for price in prices):
        screen.say(
            "what a better quantization is good for: `specmeter quality` on the target and its better quantizations, "
            "then `specmeter explain --quality REPORT`",
            tone="faint",
        )
    screen.line()

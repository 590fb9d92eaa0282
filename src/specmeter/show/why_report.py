"""Why arms are as fast as they are: parts of their time, what was predicted, which drafted tokens are accepted, what
other draft lengths would yield, which experts are read, and what drafts take in memory.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from specmeter.analysis.explain.memory_price import sentence as memory_sentence
from specmeter.analysis.explain.parts import RESIDUAL
from specmeter.analysis.load.crossover import crossover_outcomes
from specmeter.analysis.positions import ALL, MAX_LENGTHS
from specmeter.analysis.prediction.outcomes import accuracy, as_data
from specmeter.messages import Message
from specmeter.numbers.stats import MIN_PROMPTS
from specmeter.probe.draft_lengths import ALL as ALL_KINDS
from specmeter.show import run_tables
from specmeter.show.crossover_words import foreseen_sentence
from specmeter.show.report import Facts, Report, Section, Tabled, Text
from specmeter.show.table import Cell, Column, Row, Table, counted, estimate_cell, row
from specmeter.text import quoted
from specmeter.theory.roofline import expected_union

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from specmeter.analysis.explain.account import ArmAccount
    from specmeter.analysis.load.crossover import Crossover
    from specmeter.analysis.positions import ArmPositions
    from specmeter.analysis.prediction.outcomes import PredictionOutcome
    from specmeter.probe.draft_lengths import DraftLength
    from specmeter.record import Estimate, TextRouting
    from specmeter.show.names import Names
    from specmeter.show.page.document import Document
    from specmeter.show.report import Block


_BAR = 20
"""Characters of the widest bar."""
_POSITIONS = (1, 2, 4, 8)
"""Positions of a replayed draft that are shown."""
_GAMMAS = (1, 2, 4, 8, 16)
"""Draft lengths that are shown."""
_TOKENS = (1, 2, 3, 5, 9, 17, 33)
"""Tokens of a forward whose experts are shown."""


def report(document: Document) -> Report:
    """Of a run that was read with its account."""
    certificate = document.run.certificate
    return Report(
        target=document.run.name,
        document=lambda: _data(document),
        answer=[
            Text(
                Message("why.head", name=document.run.name),
                "strong",
                verdict=certificate.verdict if certificate else "unchecked",
                simulated=document.run.simulated,
            )
        ],
        sections=[
            Section("why", it) for it in (time(document), drafts(document), memory(document), method_notes(document))
        ],
    )


def _data(document: Document) -> dict[str, Any]:
    account, certificate = document.account, document.run.certificate
    arms = account.arms if account else ()
    found = accuracy(arm.prediction for arm in arms if arm.prediction is not None)
    return {
        "folder": str(document.run.folder),
        "verdict": certificate.verdict if certificate else None,
        "name": document.run.name,
        "probe": account.probe if account else None,
        "arms": [
            {
                **arm.model_dump(mode="json"),
                "prediction": None if arm.prediction is None else as_data(arm.prediction),
                "by_curve_error": arm.by_curve_error,
            }
            for arm in arms
        ],
        "draft_lengths": [it.model_dump(mode="json") for it in document.lengths],
        "memory": [{**it.model_dump(mode="json"), "total_bytes": it.total_bytes} for it in document.memory],
        "accuracy": None if found is None else found.model_dump(mode="json"),
        "routing": [it.model_dump(mode="json") for it in document.routing],
    }


# --- where the time went ---------------------------------------------------------------------------------------------


def time(document: Document, but: Collection[str] = ()) -> list[Block]:
    """What decides for each arm `but` some, the parts of its time, and what was predicted."""
    arms = document.account.arms if document.account else ()
    if not arms:
        return [Text(Message("why.large"), "faint")] if document.is_large else []
    check = Text(Message("why.check", folder=quoted(str(document.run.folder))), "faint")
    doubted = [check] if any(arm.verdict in ("suspect", "invalid") for arm in arms) else []
    outcomes = [arm.prediction.prediction for arm in arms if arm.prediction is not None]
    predicted = [Tabled(run_tables.predictions(document))] if any(it.speedup for it in outcomes) else []
    told = [(_who(document, arm), arm.sentence) for arm in arms if arm.sentence and arm.arm_id not in but]
    return [
        *([Facts(told, Message("page.others" if but else "why.sentences"), "everywhere")] if told else []),
        Tabled(run_tables.parts(document)),
        *doubted,
        *predicted,
    ]


def _who(document: Document, arm: ArmAccount) -> Message:
    doubt = (
        "" if arm.verdict == "valid" else Message("why.doubt", verdict=Message(f"verdict.{arm.verdict or 'unchecked'}"))
    )
    return Message("why.arm", name=document.names.in_full(arm.arm_id), doubt=doubt)


def method_notes(document: Document) -> list[Text]:
    """How the parts were obtained, how well predictions met what was measured, and what these rest on."""
    account = document.account
    if account is None:
        return []
    outcomes = [arm.prediction for arm in account.arms if arm.prediction is not None]
    lines = [
        *_means(account.arms),
        *_curves(account.probe, account.arms),
        *foretold(outcomes, document.run.crossovers, document.names),
        *_sources(outcomes),
    ]
    return [Text(it, "faint", "details") for it in lines]


def _means(arms: Sequence[ArmAccount]) -> Iterator[Message]:
    by_means: dict[str, list[ArmAccount]] = {}
    for arm in arms:
        if arm.baseline_id is not None:
            by_means.setdefault(arm.means, []).append(arm)
    for means, found in by_means.items():
        shares = [arm.accounted for arm in found if arm.accounted is not None]
        other = "_otherwise" if means in RESIDUAL else ""
        share = Message(f"why.accounted{other}", share=min(shares)) if shares else ""
        yield Message("why.means", arms=len(found), how=Message(f"means.{means}"), accounted=share)


def _curves(probe: str | None, arms: Sequence[ArmAccount]) -> Iterator[Message]:
    errors = [abs(arm.by_curve_error) for arm in arms if arm.by_curve_error is not None]
    if errors:
        yield Message("why.curve", probe=probe, error=max(errors))
    elif not any(arm.priced for arm in arms):
        yield Message("why.none")


def foretold(outcomes: Sequence[PredictionOutcome], crossovers: Sequence[Crossover], names: Names) -> Iterator[Message]:
    """A line about all predictions of a run, one for each crossover that was foreseen, and one for each reason for
    having none."""
    found = accuracy(outcomes)
    if found is not None:
        errors = {"median": found.median_error, "worst": found.worst_error}
        yield Message("why.accuracy", arms=found.arms, inside=found.inside, **errors)
    for it in crossover_outcomes(crossovers, outcomes):
        yield foreseen_sentence(it, names)
    for reason, count in Counter(it.prediction.reason for it in outcomes if it.prediction.speedup is None).items():
        yield Message("why.not_predicted", count=count, reason=reason)


def _sources(outcomes: Sequence[PredictionOutcome]) -> Iterator[Message]:
    """Where predictions took their costs and their acceptance from, each source once."""
    told = [it.prediction for it in outcomes if it.prediction.speedup is not None]
    for name in ("cost", "acceptance"):
        sources: Counter[Message | None] = Counter(getattr(it, name) for it in told)
        for source, count in sources.items():
            yield Message(f"why.source.{name}", source=source, count=count, of=len(told))


# --- drafts ----------------------------------------------------------------------------------------------------------


def drafts(document: Document) -> list[Block]:
    """What every draft length would yield by replay of the run's own texts, and which experts such forwards read."""
    lengths = [Tabled(_lengths(document.lengths)), Text(Message("why.lengths"), "faint")] if document.lengths else []
    blocks: list[Block] = [*lengths]
    for it in document.routing:
        if it.union is None:
            blocks.append(Text(Message("why.no_routing", target=it.target, reason=it.failure or "?"), "faint"))
        else:
            blocks.append(Tabled(_routing(it)))
            counts = {"layers": len(it.layers), "tokens": it.tokens, "texts": it.texts}
            experts = {"used": it.union.used, "experts": it.union.experts}
            blocks.append(Text(Message("why.routing", arm=it.baseline_id, **counts, **experts), "faint"))
    return blocks


def _lengths(found: Sequence[DraftLength]) -> Table:
    """Acceptance by position and tau by draft length, for each draft and kind of text."""
    groups: dict[tuple[str, str, str], list[DraftLength]] = {}
    for it in found:
        groups.setdefault((it.target, it.draft, it.kind), []).append(it)
    rows = [
        row(
            target,
            draft,
            Message("certify.all") if kind == ALL_KINDS else kind,
            counted(lengths[0].texts),
            *(_percent(lengths[place].accepted) for place in _POSITIONS),
            *(Cell(f"{lengths[it].tau:.2f}", lengths[it].tau) for it in _GAMMAS),
        )
        for (target, draft, kind), lengths in groups.items()
    ]
    columns = (
        *(Column("target"), Column("draft"), Column("kind"), Column("texts", "number")),
        *(Column(f"accepted_{it}", "number", Message("column.accepted_at", place=it)) for it in _POSITIONS),
        *(Column(f"tau_{it}", "number", Message("column.tau_of", count=it)) for it in _GAMMAS),
    )
    return Table("replayed", columns, rows)


def _percent(share: float | None) -> Cell:
    return Cell("-") if share is None else Cell(f"{100 * share:.0f}", share)


def _routing(routing: TextRouting) -> Table:
    """Experts of a layer that n tokens choose, by layer at most and at least, beside uniform routing."""
    union = routing.union
    assert union is not None
    rows: list[Row] = []
    for place, point in enumerate(union.points):
        if point.tokens not in _TOKENS:
            continue
        layers = [unions[place] for unions in routing.layers.values()]
        uniform = expected_union(float(point.tokens), union.experts, union.used)
        read = (
            estimate_cell(point.union, 1) if point.tokens > 1 else Cell(f"{point.union.point:.1f}", point.union.point)
        )
        span = f"{min(layers):.1f} - {max(layers):.1f}" if layers else "-"
        rows.append(row(counted(point.tokens), read, span, Cell(f"{uniform:.1f}", uniform)))
    columns = (Column(key, "number") for key in ("tokens", "experts_read", "experts_by_layer", "experts_uniform"))
    return Table(f"routing-{routing.target}", tuple(columns), rows, Message("table.routing", target=routing.target))


def positions(found: Sequence[ArmPositions], names: Names) -> list[Block]:
    """Which drafted tokens are accepted: by position, beside a histogram of accepted lengths, for each arm that
    drafted; the reason where its engine shows no steps."""
    shown = [it for it in found if it.kind == ALL]
    if not shown:
        return [Text(Message("why.no_drafts"))]
    blocks: list[Block] = []
    for arm in shown:
        if arm.missing is not None:
            blocks.append(Text(Message("why.no_steps", arm=arm.arm_id, why=arm.missing)))
        else:
            blocks.append(Tabled(_positions(arm, names)))
    return [*blocks, Text(Message("why.positions", least=MIN_PROMPTS), "faint")]


def _positions(arm: ArmPositions, names: Names) -> Table:
    def share_of(estimate: Estimate | None) -> Cell:
        return estimate_cell(estimate, 0, scale=100)

    last = min(len(arm.lengths), MAX_LENGTHS) - 1
    beyond = sum(it.share.point for it in arm.lengths[last + 1 :])
    widest = max(it.share.point for it in arm.lengths) or 1.0
    rows: list[Row] = []
    for place, length in enumerate(arm.lengths[: last + 1]):
        rate = arm.positions[place - 1] if place else None
        cut = bool(beyond) and place == last
        share = length.share.point + (beyond if cut else 0.0)
        told = row(
            Message("cell.none") if rate is None else f"{place}+" if cut else str(place),
            share_of(rate.conditional if rate else None),
            share_of(rate.unconditional if rate else None),
            Cell(f"{100 * share:.0f}") if cut else share_of(length.share),
            "█" * round(_BAR * share / widest),
        )
        rows.append(told)
    columns = (Column(key, "number") for key in ("position", "if_reached", "of_all", "accepted_length"))
    counts = {"drafts": arm.drafts, "prompts": arm.prompts}
    title = Message("table.positions_of", arm=names.in_full(arm.arm_id), **counts)
    return Table(f"positions-{arm.arm_id}", (*columns, Column("", title=" ")), rows, title)


# --- what else costs -------------------------------------------------------------------------------------------------


def memory(document: Document) -> list[Block]:
    """What each draft model takes, and a sentence for what that would buy; nothing where none is used."""
    prices = document.memory
    if not prices:
        return []
    means = [Message(f"memory-price.{it}") for it in sorted({price.means for price in prices})]
    unmeasured = [] if any(price.measured for price in prices) else [Text(Message("why.quality"), "faint", "details")]
    told = [it for it in dict.fromkeys(map(memory_sentence, prices)) if it.code != "memory-price.unknown"]
    return [
        Tabled(run_tables.memory(document)),
        *map(Text, told),
        Text(Message("why.memory", means=means), "faint", "details"),
        *unmeasured,
    ]

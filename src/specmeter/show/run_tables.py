"""The tables of a run: results, results by kind of text and by prompt, checks, and what it was measured with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from specmeter.messages import Message, Value
from specmeter.show.load_tables import load_table
from specmeter.show.page.arms import filed
from specmeter.show.report import judged
from specmeter.show.run_figures import PARTS, part_name
from specmeter.show.run_words import looks_for, why_suspect
from specmeter.show.table import Cell, Column, Row, Table, counted, estimate_cell, made, sized
from specmeter.store.environment import private
from specmeter.text import percent, printable

if TYPE_CHECKING:
    from specmeter.analysis.explain.memory_price import MemoryPrice
    from specmeter.analysis.prediction.outcomes import PredictionOutcome
    from specmeter.analysis.summary import ArmSummary, KindSummary
    from specmeter.record import CheckOutcome, Estimate, ModelIdentity, Verdict
    from specmeter.show.page.document import Document


_TEXT_SHOWN = 160


def _results(document: Document) -> tuple[Column, ...]:
    """Numbers of an arm: those over blocks (or invocations) with their count, then those over prompts with theirs."""
    return (
        Column("decode_rate", "number", narrow="point"),
        Column("speedup", "number"),
        Column("with_prompt", "number", narrow="drop"),
        Column("pooled", "number", narrow="drop"),
        replace(_repeated(document), narrow="drop"),
        Column("acceptance", "number", narrow="point"),
        Column("tau", "number", narrow="drop"),
        Column("on_prompts", "number", narrow="drop"),
    )


def _repeated(document: Document) -> Column:
    """What the units of rates and speedups are."""
    return Column("invocations" if document.run.summary.invocations > 1 else "blocks", "number")


def all_tables(document: Document) -> dict[str, Table]:
    """Every table of a run by name, those without rows included."""
    makers = (results, controls, kinds, prompts, texts, checks, models, parts, predictions, energy, memory)
    return {table.name: table for table in (*(make(document) for make in makers), load_table(document.run))}


def results(document: Document) -> Table:
    """Every arm of every target, baselines included; the numbers of invalid arms are struck out."""
    columns = (Column("target"), Column("arm"), *_results(document), Column("requests", "number", narrow="drop"))
    rows = [
        Row(
            (
                Cell(_target(document, arm.arm_id)),
                _arm_cell(document, arm),
                *_numbers(document, arm, arm),
                _requests(arm),
                verdict_cell(document, arm.arm_id, always=True),
            ),
            verdict(document, arm.arm_id),
            filed=filed(document, arm.arm_id),
            why=why_suspect(document.run, arm.arm_id),
        )
        for group in document.targets()
        for arm in group
    ]
    how = document.run.made
    return Table("results", (*columns, Column("verdict")), rows, about="" if how is None else how.line)


def kinds(document: Document) -> Table:
    """Every arm on every kind of text."""
    columns = (Column("target"), Column("arm"), Column("kind"), *_results(document), Column("verdict"))
    rows = [
        Row(
            (
                Cell(_target(document, arm.arm_id)),
                document.named(arm.arm_id),
                Cell(kind),
                *_numbers(document, arm, part),
                verdict_cell(document, arm.arm_id),
            ),
            verdict(document, arm.arm_id),
            filed=filed(document, arm.arm_id, kind),
            why=why_suspect(document.run, arm.arm_id),
        )
        for group in document.targets()
        for arm in group
        for kind, part in arm.kinds.items()
    ]
    return Table("kinds", columns, rows)


def prompts(document: Document) -> Table:
    """The speedup of every arm on every prompt; without rows where the run has too many prompts."""
    found = [
        (prompt_id, arm.arm_id, speedup)
        for arm in document.run.summary.arms
        for prompt_id, speedup in (arm.prompts or {}).items()
    ]
    kinds = {prompt.id: prompt.kind for prompt in document.prompts.values()}
    return made(
        "prompts",
        found,
        ("prompt", "text", lambda it: Cell(it[0], code=True)),
        ("kind", "text", lambda it: kinds.get(it[0], "-")),
        ("target", "text", lambda it: _target(document, it[1])),
        ("arm", "text", lambda it: document.named(it[1])),
        ("speedup", "number", lambda it: estimate_cell(it[2], 2)),
        (_repeated(document).key, "number", lambda it: counted(it[2].n)),
        ("verdict", "text", lambda it: verdict_cell(document, it[1])),
        verdict=lambda it: verdict(document, it[1]),
        why=lambda it: why_suspect(document.run, it[1]),
        filed=lambda it: filed(document, it[1], kinds.get(it[0], "")),
    )


def texts(document: Document) -> Table:
    """The beginning of every prompt."""
    return made(
        "texts",
        document.prompts.values(),
        ("prompt", "text", lambda prompt: Cell(prompt.id, code=True)),
        ("kind", "text", lambda prompt: prompt.kind),
        ("text", "text", lambda prompt: _beginning(prompt.text)),
        filed=lambda prompt: {"kind": printable(prompt.kind)},
    )


def parts(document: Document) -> Table:
    """Decode time per token of every arm, by part, and what decides."""
    accounts = document.account.arms if document.account else ()
    found = [{part_name(arm, part.name): part.ms_per_token for part in arm.parts} for arm in accounts]
    used = [name for name in PARTS if any(name in parts for parts in found)]
    columns = (
        Column("target"),
        Column("arm"),
        Column("ms_per_token", "number", narrow="point"),
        *(Column(f"part_{name}", "number", narrow="point") for name in used),
        Column("reason", narrow="drop"),
        Column("means", narrow="drop"),
    )
    rows: list[Row] = []
    for arm, parts in zip(accounts, found, strict=True):
        struck = arm.arm_id in document.run.invalid
        cells = (
            Cell(_target(document, arm.arm_id)),
            document.named(arm.arm_id),
            ms_per_token(arm.ms_per_token, struck=struck),
            *(estimate_cell(parts.get(name), 2, struck=struck) for name in used),
            Cell(Message(f"reason.{arm.reason}")) if arm.reason and not struck else Cell("-"),
            Cell(Message(f"means.{arm.means}")),
        )
        why = why_suspect(document.run, arm.arm_id)
        rows.append(Row(cells, verdict(document, arm.arm_id), filed=filed(document, arm.arm_id), why=why))
    return Table("parts", columns, rows)


def ms_per_token(found: Estimate | None, *, struck: bool) -> Cell:
    """A time per token; too noisy where its interval is wider than tenfold."""
    if found is not None and found.low is not None and found.high is not None and found.high > 10 * found.low:
        return Cell(Message("cell.too_noisy"), tone="doubtful")
    return estimate_cell(found, 2, struck=struck)


def energy(document: Document) -> Table:
    """What a token costs in electric energy, where that was read; without rows elsewhere."""

    def over_baseline(arm: ArmSummary, ratio: Estimate | None) -> Cell:
        return Cell(Message("cell.baseline")) if arm.role == "baseline" else estimate_cell(ratio, 2)

    read = [(arm, arm.energy) for group in document.targets() for arm in group if arm.energy is not None]
    return made(
        "energy",
        read,
        ("target", "text", lambda it: _target(document, it[0].arm_id)),
        ("arm", "text", lambda it: document.named(it[0].arm_id)),
        ("j_per_token", "number", lambda it: estimate_cell(it[1].per_token, 3)),
        ("energy_ratio", "number", lambda it: over_baseline(it[0], it[1].ratio)),
        ("j_decoding", "number", lambda it: estimate_cell(it[1].decoding, 3)),
        ("ratio_decoding", "number", lambda it: over_baseline(it[0], it[1].ratio_decoding)),
        ("power_w", "number", lambda it: decimal(it[1].power_w)),
        ("above_idle", "number", lambda it: estimate_cell(it[1].above_idle, 3)),
        ("ratio_above_idle", "number", lambda it: over_baseline(it[0], it[1].ratio_above_idle)),
        ("energy_why", "text", lambda it: it[1].why or "-"),
        verdict=lambda it: verdict(document, it[0].arm_id),
        why=lambda it: why_suspect(document.run, it[0].arm_id),
        filed=lambda it: filed(document, it[0].arm_id),
    )


def memory(document: Document) -> Table:
    """What each draft model takes, and what quantization of the target the same bytes would hold."""

    def bits(price: MemoryPrice) -> str:
        now, then = price.bits_now, price.bits_for_it
        return "-" if now is None or then is None else f"{now:.2f} / {then:.2f}"

    return made(
        "memory",
        document.memory,
        ("target", "text", lambda price: price.target),
        ("draft", "text", lambda price: price.draft),
        ("memory_weights", "number", lambda price: sized(price.weights_bytes)),
        ("memory_kv", "number", lambda price: sized(price.kv_bytes)),
        ("memory_buffers", "number", lambda price: sized(price.buffers_bytes)),
        ("memory_target", "number", lambda price: sized(price.target_bytes)),
        ("memory_all", "number", lambda price: sized(price.total_bytes)),
        ("memory_share", "number", lambda price: Cell(percent(price.share, 1), price.share)),
        ("memory_bits", "text", bits),
        ("memory_buys", "text", lambda it: f"{it.buys.name} ({it.buys.bits_per_weight:.2f})" if it.buys else "-"),
        filed=lambda price: {"target": printable(price.target)},
    )


def predictions(document: Document) -> Table:
    """What was predicted before the measurement, beside what was measured."""

    def error(outcome: PredictionOutcome) -> Cell:
        found = outcome.error
        return Cell("-") if found is None else Cell(percent(found, 1, signed=True), found)

    def inside(outcome: PredictionOutcome) -> str | Message:
        return "-" if outcome.inside is None else Message("cell.yes" if outcome.inside else "cell.no")

    return made(
        "predictions",
        document.run.predictions,
        ("target", "text", lambda it: _target(document, it.prediction.arm_id)),
        ("arm", "text", lambda it: document.named(it.prediction.arm_id)),
        ("predicted", "number", lambda it: estimate_cell(it.prediction.speedup, 2)),
        ("speedup", "number", lambda it: estimate_cell(it.measured, 2)),
        ("error", "number", error),
        ("inside", "text", inside),
        verdict=lambda it: verdict(document, it.prediction.arm_id),
        why=lambda it: why_suspect(document.run, it.prediction.arm_id),
        filed=lambda it: filed(document, it.prediction.arm_id),
    )


def controls(document: Document) -> Table:
    """Arms that test the measurement itself."""
    columns = (Column("target"), Column("arm"), *_results(document), Column("verdict"))
    rows = [
        Row(
            (
                Cell(_target(document, arm.arm_id)),
                document.named(arm.arm_id),
                *_numbers(document, arm, arm),
                verdict_cell(document, arm.arm_id),
            ),
            verdict(document, arm.arm_id),
            filed=filed(document, arm.arm_id),
            why=why_suspect(document.run, arm.arm_id),
        )
        for arm in document.run.summary.controls
    ]
    return Table("controls", columns, rows)


def checks(document: Document) -> Table:
    """Every check, what it looks for and how it ended."""
    certificate = document.run.certificate
    return made(
        "checks",
        certificate.checks if certificate else (),
        ("check", "text", lambda it: Cell(it.check, code=True)),
        ("threat", "text", lambda it: looks_for(it.check) or "-"),
        ("status", "text", lambda it: Message(f"status.{_status(it)}")),
        ("unchecked", "text", _reasons),
        verdict=lambda it: "invalid" if it.invalid else "suspect" if it.suspect else None,
    )


def models(document: Document) -> Table:
    """The model files."""

    def experts(model: ModelIdentity) -> str:
        header = model.header
        return f"{header.experts_used} / {header.experts}" if header and header.experts else "-"

    return made(
        "models",
        document.run.models,
        ("model", "text", lambda model: model.name),
        ("reference", "text", lambda model: Cell(private(model.reference), code=True)),
        ("size", "number", lambda model: sized(model.size_bytes)),
        ("bytes_per_token", "number", lambda model: sized(model.header.bytes_per_token if model.header else None)),
        ("experts", "text", experts),
        ("sha256", "text", lambda model: Cell(model.sha256, code=True)),
    )


def verdict(document: Document, arm_id: str) -> Verdict | None:
    """Of an arm; None in a run that was not checked."""
    certificate = document.run.certificate
    return certificate.arms.get(arm_id) if certificate else None


def verdict_cell(document: Document, arm_id: str, *, always: bool = False) -> Cell:
    """The verdict of an arm, with the checks that explain it where it is invalid (or `always`)."""
    found = verdict(document, arm_id)
    because = tuple(finding.check for finding in document.because(arm_id)) if always or found == "invalid" else ()
    return judged(found, simulated=document.run.simulated, checks=because)


def _numbers(document: Document, arm: ArmSummary, part: KindSummary) -> tuple[Cell, ...]:
    """The cells of `_results`."""
    invalid = verdict(document, arm.arm_id) == "invalid"
    speedup = estimate_cell(document.run.cited(arm) if part is arm else part.speedup, 2)
    if arm.role == "baseline":
        speedup = Cell(Message("cell.baseline"))
    elif invalid:
        withheld = document.run.withheld.get(arm.arm_id) if part is arm else None
        speedup = estimate_cell(withheld, 2, struck=True) if withheld else Cell(Message("verdict.invalid"))
    over_prompts = part.acceptance or part.tau
    return (
        estimate_cell(part.decode_rate, 1, struck=invalid),
        speedup,
        estimate_cell(part.gain.with_prompt if part.gain else None, 2),
        estimate_cell(part.gain.pooled if part.gain else None, 2),
        counted(_units(part)),
        estimate_cell(part.acceptance, 1, scale=100, struck=invalid),
        estimate_cell(part.tau, 2, struck=invalid),
        counted(over_prompts.n if over_prompts else None),
    )


def _arm_cell(document: Document, arm: ArmSummary) -> Cell:
    cell = document.named(arm.arm_id)
    if arm.cost_probe is None:
        return cell
    why = Message(f"probe.{arm.cost_probe}")
    return replace(cell, text=Message("cell.cost_probe", arm=cell.text, why=why))


def _units(part: KindSummary) -> int | None:
    estimate = part.speedup or part.decode_rate
    return estimate.n if estimate else None


def _requests(arm: ArmSummary) -> Cell:
    if not arm.requests_failed:
        return counted(arm.requests_ok)
    values: dict[str, Value] = {"ok": arm.requests_ok, "failed": arm.requests_failed}
    return Cell(Message("cell.failed", **values), float(arm.requests_ok))


def _target(document: Document, arm_id: str) -> str:
    return document.arms[arm_id].target if arm_id in document.arms else "-"


def _beginning(text: str) -> str:
    line = " ".join(text[: 4 * _TEXT_SHOWN].split())
    return line if len(line) <= _TEXT_SHOWN else line[:_TEXT_SHOWN] + "..."


def _reasons(outcome: CheckOutcome) -> str | Message:
    """What could not be checked; of a check that does not apply, why."""
    idle = _status(outcome) == "idle"
    reasons = tuple(dict.fromkeys(gap.reason for gap in outcome.unchecked if gap.applies or idle))
    return Message("check.reasons", reasons=reasons) if reasons else ""


def _status(outcome: CheckOutcome) -> str:
    idle = outcome.status == "skipped" and not any(gap.applies for gap in outcome.unchecked)
    return "idle" if idle else outcome.status


def decimal(value: float | None) -> Cell:
    return Cell("-") if value is None else Cell(f"{value:.1f}", value)

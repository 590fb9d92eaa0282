"""The tables of a run: results, results by kind of text and by prompt, checks, and what it was measured with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.show.run_figures import PARTS
from specmeter.show.sentence import label
from specmeter.show.table import Cell, Column, Phrase, Row, Table, counted, estimated, numbers, text
from specmeter.show.words import words
from specmeter.store.environment import private
from specmeter.text import percent, size

if TYPE_CHECKING:
    from specmeter.analysis.reading import RunReport
    from specmeter.analysis.summary import ArmSummary, KindSummary
    from specmeter.record import Outcome, Verdict
    from specmeter.show.page.document import Document
    from specmeter.show.table import Mark

_TEXT_SHOWN = 160


def _results(document: Document) -> tuple[Column, ...]:
    """Numbers of an arm: those over blocks (or invocations) with their count, then those over prompts with theirs."""
    return (
        Column("decode_rate", "number"),
        Column("speedup", "number"),
        Column("with_prompt", "number"),
        Column("pooled", "number"),
        _repeated(document),
        Column("acceptance", "number"),
        Column("tau", "number"),
        Column("on_prompts", "number"),
    )


def _repeated(document: Document) -> Column:
    """What the units of rates and speedups are."""
    return Column("invocations" if document.run.summary.invocations > 1 else "blocks", "number")


def all_tables(document: Document) -> dict[str, Table]:
    """Every table of a run by name, those without rows included."""
    makers = (results, controls, kinds, prompts, texts, checks, models, parts, predictions, energy, memory)
    return {table.name: table for table in (make(document) for make in makers)}


def results(document: Document) -> Table:
    """Every arm of every target, baselines included; the numbers of invalid arms are struck out."""
    columns = (Column("target"), Column("arm"), *_results(document), Column("requests", "number"))
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
        )
        for group in document.targets()
        for arm in group
    ]
    return Table("results", (*columns, Column("verdict")), rows)


def kinds(document: Document) -> Table:
    """Every arm on every kind of text."""
    columns = (Column("target"), Column("arm"), Column("kind"), *_results(document), Column("verdict"))
    rows = [
        Row(
            (
                Cell(_target(document, arm.arm_id)),
                Cell(label(arm.arm_id), code=True),
                Cell(kind),
                *_numbers(document, arm, part),
                verdict_cell(document, arm.arm_id),
            ),
            verdict(document, arm.arm_id),
        )
        for group in document.targets()
        for arm in group
        for kind, part in arm.kinds.items()
    ]
    return Table("kinds", columns, rows)


def prompts(document: Document) -> Table:
    """The speedup of every arm on every prompt; without rows where the run has too many prompts."""
    columns = (
        Column("prompt"),
        Column("kind"),
        Column("target"),
        Column("arm"),
        Column("speedup", "number"),
        _repeated(document),
        Column("verdict"),
    )
    rows = [
        Row(
            (
                Cell(prompt_id, code=True),
                Cell(document.prompts[prompt_id].kind if prompt_id in document.prompts else "-"),
                Cell(_target(document, arm.arm_id)),
                Cell(label(arm.arm_id), code=True),
                estimated(speedup, 2),
                counted(speedup.n),
                verdict_cell(document, arm.arm_id),
            ),
            verdict(document, arm.arm_id),
        )
        for arm in document.run.summary.arms
        for prompt_id, speedup in (arm.prompts or {}).items()
    ]
    return Table("prompts", columns, rows)


def texts(document: Document) -> Table:
    """The beginning of every prompt."""
    columns = (Column("prompt"), Column("kind"), Column("text"))
    rows = [
        Row((Cell(prompt.id, code=True), Cell(prompt.kind), Cell(_beginning(prompt.text))))
        for prompt in document.prompts.values()
    ]
    return Table("texts", columns, rows)


def parts(document: Document) -> Table:
    """Decode time per token of every arm, by part, and what decides."""
    accounts = document.account.arms if document.account else ()
    used = [name for name in PARTS if any(part.name == name for arm in accounts for part in arm.parts)]
    columns = (
        Column("target"),
        Column("arm"),
        Column("ms_per_token", "number"),
        *(Column(f"part_{name}", "number") for name in used),
        Column("reason"),
        Column("means"),
    )
    rows: list[Row] = []
    for arm in accounts:
        struck = arm.arm_id in document.run.invalid
        found = {part.name: part.ms_per_token for part in arm.parts}
        cells = (
            Cell(_target(document, arm.arm_id)),
            Cell(label(arm.arm_id), code=True),
            estimated(arm.ms_per_token, 2, struck=struck),
            *(estimated(found.get(name), 2, struck=struck) for name in used),
            Cell(Phrase(f"reason.{arm.reason}")) if arm.reason and not struck else Cell("-"),
            Cell(Phrase(f"means.{arm.means}")),
        )
        rows.append(Row(cells, verdict(document, arm.arm_id)))
    return Table("parts", columns, rows)


def energy(document: Document) -> Table:
    """What a token costs in electric energy, where that was read; without rows elsewhere."""
    columns = (
        Column("target"),
        Column("arm"),
        Column("j_per_token", "number"),
        Column("energy_ratio", "number"),
        Column("power_w", "number"),
        Column("above_idle", "number"),
        Column("ratio_above_idle", "number"),
        Column("energy_why"),
    )
    rows: list[Row] = []
    for arm in (arm for group in document.targets() for arm in group):
        used = arm.energy
        if used is None:
            continue
        cells = (
            Cell(_target(document, arm.arm_id)),
            Cell(label(arm.arm_id), code=True),
            estimated(used.per_token, 3),
            Cell(Phrase("cell.baseline")) if arm.role == "baseline" else estimated(used.ratio, 2),
            Cell("-") if used.power_w is None else Cell(f"{used.power_w:.1f}", used.power_w),
            estimated(used.above_idle, 3),
            Cell(Phrase("cell.baseline")) if arm.role == "baseline" else estimated(used.ratio_above_idle, 2),
            Cell(used.why or "-"),
        )
        rows.append(Row(cells, verdict(document, arm.arm_id)))
    return Table("energy", columns, rows)


def memory(document: Document) -> Table:
    """What each draft model takes, and what quantization of the target the same bytes would hold."""
    columns = (
        Column("target"),
        Column("draft"),
        *(Column(f"memory_{name}", "number") for name in ("weights", "kv", "buffers", "target", "all", "share")),
        Column("memory_bits"),
        Column("memory_buys"),
    )
    rows = [
        Row(
            (
                Cell(price.target),
                Cell(price.draft),
                *(
                    Cell(size(value), float(value))
                    for value in (
                        price.weights_bytes,
                        price.kv_bytes,
                        price.buffers_bytes,
                        price.target_bytes,
                        price.total_bytes,
                    )
                ),
                Cell(percent(price.share, 1), price.share),
                Cell(f"{price.bits_now:.2f} / {price.bits_for_it:.2f}")
                if price.bits_now is not None and price.bits_for_it is not None
                else Cell("-"),
                Cell(f"{price.buys.name} ({price.buys.bits_per_weight:.2f})" if price.buys else "-"),
            )
        )
        for price in document.memory
    ]
    return Table("memory", columns, rows)


def predictions(document: Document) -> Table:
    """What was predicted before the measurement, beside what was measured."""
    columns = (
        Column("target"),
        Column("arm"),
        Column("predicted", "number"),
        Column("speedup", "number"),
        Column("error", "number"),
        Column("inside"),
    )
    rows: list[Row] = []
    for outcome in document.run.predictions:
        arm_id = outcome.prediction.arm_id
        error, inside = outcome.error, outcome.inside
        cells = (
            Cell(_target(document, arm_id)),
            Cell(label(arm_id), code=True),
            estimated(outcome.prediction.speedup, 2),
            estimated(outcome.measured, 2),
            Cell("-") if error is None else Cell(percent(error, 1, signed=True), error),
            Cell("-") if inside is None else Cell(Phrase("cell.yes" if inside else "cell.no")),
        )
        rows.append(Row(cells, verdict(document, arm_id)))
    return Table("predictions", columns, rows)


def controls(document: Document) -> Table:
    """Arms that test the measurement itself."""
    columns = (Column("target"), Column("arm"), *_results(document), Column("verdict"))
    rows = [
        Row(
            (
                Cell(_target(document, arm.arm_id)),
                Cell(label(arm.arm_id), code=True),
                *_numbers(document, arm, arm),
                verdict_cell(document, arm.arm_id),
            ),
            verdict(document, arm.arm_id),
        )
        for arm in document.run.summary.controls
    ]
    return Table("controls", columns, rows)


def checks(document: Document) -> Table:
    """Every check, what it looks for and how it ended."""
    certificate = document.run.certificate
    outcomes = certificate.checks if certificate else ()
    rows = [
        Row(
            (
                Cell(outcome.check, code=True),
                Cell(_threat(outcome)),
                Cell(Phrase(f"status.{_status(outcome)}")),
                Cell("; ".join(dict.fromkeys(gap.reason for gap in outcome.unchecked))),
            ),
            "invalid" if outcome.invalid else "suspect" if outcome.suspect else None,
        )
        for outcome in outcomes
    ]
    return Table("checks", (Column("check"), Column("threat"), Column("status"), Column("unchecked")), rows)


def models(document: Document) -> Table:
    """The model files."""
    rows = [
        Row(
            (
                Cell(model.name),
                Cell(private(model.reference), code=True),
                Cell(size(model.size_bytes), float(model.size_bytes)),
                _size_or_dash(model.header.bytes_per_token if model.header else None),
                Cell(f"{model.header.experts_used} / {model.header.experts}")
                if model.header and model.header.experts
                else Cell("-"),
                Cell(model.sha256, code=True),
            )
        )
        for model in document.run.models
    ]
    columns = (
        Column("model"),
        Column("reference"),
        Column("size", "number"),
        Column("bytes_per_token", "number"),
        Column("experts"),
        Column("sha256"),
    )
    return Table("models", columns, rows)


def verdict(document: Document, arm_id: str) -> Verdict | None:
    """Of an arm; None in a run that was not checked."""
    certificate = document.run.certificate
    return certificate.arms.get(arm_id) if certificate else None


def verdict_cell(document: Document, arm_id: str, *, always: bool = False) -> Cell:
    """The verdict of an arm, with the checks that explain it where it is invalid (or `always`)."""
    found = verdict(document, arm_id)
    because = tuple(finding.check for finding in document.because(arm_id)) if always or found == "invalid" else ()
    return Cell(Phrase(f"verdict.{found or 'unchecked'}"), checks=because)


def _numbers(document: Document, arm: ArmSummary, part: KindSummary) -> tuple[Cell, ...]:
    """The cells of `_results`."""
    invalid = verdict(document, arm.arm_id) == "invalid"
    speedup = estimated(part.speedup, 2)
    if arm.role == "baseline":
        speedup = Cell(Phrase("cell.baseline"))
    elif invalid:
        withheld = document.run.withheld.get(arm.arm_id) if part is arm else None
        speedup = estimated(withheld, 2, struck=True) if withheld else Cell(Phrase("verdict.invalid"))
    over_prompts = part.acceptance or part.tau
    return (
        estimated(part.decode_rate, 1, struck=invalid),
        speedup,
        estimated(part.gain.with_prompt if part.gain else None, 2),
        estimated(part.gain.pooled if part.gain else None, 2),
        counted(_units(part)),
        estimated(part.acceptance, 1, scale=100, struck=invalid),
        estimated(part.tau, 2, struck=invalid),
        counted(over_prompts.n if over_prompts else None),
    )


def _arm_cell(document: Document, arm: ArmSummary) -> Cell:
    workloads = next((one.workloads for one in document.run.arms if one.id == arm.arm_id), ())
    shown = label(arm.arm_id)
    if arm.cost_probe:
        return Cell(Phrase("cell.cost_probe", {"arm": shown, "why": Phrase(f"probe.{arm.cost_probe}")}), code=True)
    if workloads and arm.role != "baseline":
        return Cell(Phrase("cell.only", {"arm": shown, "workloads": ", ".join(workloads)}), code=True)
    return Cell(shown, code=True)


def _units(part: KindSummary) -> int | None:
    estimate = part.speedup or part.decode_rate
    return estimate.n if estimate else None


def _requests(arm: ArmSummary) -> Cell:
    if not arm.requests_failed:
        return counted(arm.requests_ok)
    values: dict[str, object] = {"ok": arm.requests_ok, "failed": arm.requests_failed}
    return Cell(Phrase("cell.failed", values), float(arm.requests_ok))


def _target(document: Document, arm_id: str) -> str:
    return next((arm.target for arm in document.run.arms if arm.id == arm_id), "-")


def _beginning(text: str) -> str:
    line = " ".join(text[: 4 * _TEXT_SHOWN].split())
    return line if len(line) <= _TEXT_SHOWN else line[:_TEXT_SHOWN] + "..."


def _threat(outcome: Outcome) -> str | Phrase:
    """Checks of other versions have no words here but their own."""
    key = f"threat.{outcome.check}"
    return Phrase(key, {"threat": outcome.threat}) if key in words("en").text else outcome.threat


def _status(outcome: Outcome) -> str:
    idle = outcome.status == "skipped" and not any(gap.applies for gap in outcome.unchecked)
    return "idle" if idle else outcome.status


def _size_or_dash(size_bytes: int | None) -> Cell:
    return Cell("-") if size_bytes is None else Cell(size(size_bytes), float(size_bytes))


# --- in brief, for terminals and notebooks ---------------------------------------------------------------------------


def brief(report: RunReport, *, by_kind: bool = False) -> list[Table]:
    """For each target its baseline and what is compared with it; prompts where the report has them."""
    arms = report.summary.arms
    return [
        _brief(report, [base, *(arm for arm in arms if arm.baseline_id == base.arm_id)], by_kind=by_kind)
        for base in arms
        if base.role == "baseline"
    ]


def _brief(report: RunReport, group: list[ArmSummary], *, by_kind: bool) -> Table:
    arms = {arm.id: arm for arm in report.arms}
    metered = any(arm.energy is not None and arm.energy.per_token is not None for arm in group)
    rows: list[Row] = []
    for arm in group:
        limited = arms[arm.arm_id].workloads if arm.role != "baseline" else ()
        where = f" (only {', '.join(limited)})" if limited else ""
        probe = f" [cost probe: {arm.cost_probe}]" if arm.cost_probe else ""
        count = f"{arm.requests_ok}" + (f" ({arm.requests_failed} failed)" if arm.requests_failed else "")
        found = report.certificate.arms.get(arm.arm_id) if report.certificate else None
        joules = _joules(arm) if metered else ()
        empty = (Cell(""),) * (len(joules) + 1)
        is_baseline = arm.role == "baseline"
        cells = _briefly(arm, is_baseline, found)
        rows.append(Row((Cell(label(arm.arm_id) + where + probe), *cells, *joules, Cell(count))))
        for kind, part in arm.kinds.items() if by_kind else ():
            rows.append(Row((Cell(f"  {kind}"), *_briefly(part, is_baseline, found), *empty), tone="faint"))
        for prompt, speedup in (arm.prompts or {}).items():
            shown = estimated(speedup, 2, mark=_mark(found))
            rows.append(Row((Cell(f"  {prompt}"), Cell(""), shown, Cell(""), Cell(""), *empty), tone="faint"))
    rate = Column("tok/s", "number", "tok/s", narrow="point")
    energy = ("J/token", "energy") if metered else ()
    columns = (*text(arms[group[0].arm_id].target), rate, *numbers("speedup", "accepted", "tau", *energy, "requests"))
    return Table("results", columns, rows)


def _mark(verdict: Verdict | None) -> Mark | None:
    return "suspect" if verdict == "suspect" else None


def _briefly(part: KindSummary, is_baseline: bool, verdict: Verdict | None) -> tuple[Cell, ...]:
    if is_baseline:
        speedup = Cell("baseline invalid" if verdict == "invalid" else "baseline", mark=_mark(verdict))
    else:
        speedup = Cell("invalid") if verdict == "invalid" else estimated(part.speedup, 2, mark=_mark(verdict))
    return (
        estimated(part.decode_rate, 1),
        speedup,
        Cell("-" if part.acceptance is None else percent(part.acceptance.point)),
        Cell("-" if part.tau is None else f"{part.tau.point:.2f}"),
    )


def _joules(arm: ArmSummary) -> tuple[Cell, Cell]:
    """Joules per token, and with an interval over the baseline's."""
    used = arm.energy
    if used is None or used.per_token is None:
        return Cell("-"), Cell("-")
    return Cell(f"{used.per_token.point:.3g}"), Cell("baseline") if arm.role == "baseline" else estimated(used.ratio, 2)

"""`specmeter explain`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from specmeter.analysis.explain.account import Account, ArmAccount, PartName
    from specmeter.analysis.explain.memory import MemoryPrice
    from specmeter.analysis.reading import RunReport
    from specmeter.probe import Probe
    from specmeter.profile.figures import DraftLength
    from specmeter.record import TextRouting
    from specmeter.store import RunReader


@click.command(name="explain")
@click.argument("run", default="latest")
@click.option(
    "--probe",
    "probe_files",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Take what forwards cost from this probe; repeatable. Default: the newest of the run's models, if any.",
)
@click.option(
    "--quality",
    "reports",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Say what a better quantization of the target is good for, by this report of `specmeter quality`; repeatable. "
    "Default: kept ones that hold a target of the run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(run: str, probe_files: tuple[Path, ...], reports: tuple[Path, ...], as_json: bool) -> int:
    """Explain why each arm of RUN is as fast as it is.

    The time of every token is split into drafting, verification, checkpoints and replays, sampling and the rest, by the
    engine's own step times where it has them, else by the server's statistics and a probe's cost curve. One sentence
    per arm names what decides. The speedup stands beside what was predicted before the measurement.

    Where a draft model read the run's texts, a table says what every draft length would yield on them, by replay.
    Another says what each draft takes in memory, and what better quantization of the target the same bytes would hold.
    Where a mixture of experts read the texts, a third says how many experts n tokens of them choose, beside uniform
    routing.

    RUN is a run folder, the name of one under specmeter-runs/, or `latest` (the default).

    \b
    Examples:
      specmeter explain
      specmeter explain latest --probe probe.json
      specmeter explain latest --quality report.json
      specmeter explain latest --json | jq '.arms[].sentence'

    \b
    Exit codes: 0 valid, suspect or not checked yet, 1 invalid (`specmeter check` says why), 2 no such run or probe.
    """
    from specmeter.analysis.explain.account import explain
    from specmeter.analysis.explain.memory import memory_prices
    from specmeter.analysis.reading import read_run
    from specmeter.laboratory.run import find_run
    from specmeter.profile.figures import draft_lengths
    from specmeter.quality.files import kept_reports, load_report
    from specmeter.store import RunStore

    folder = find_run(run)
    report = read_run(folder)
    with RunStore.open(folder, readonly=True) as store:
        probes, name = _probes(probe_files, store, report)
        account = explain(store, report, probes, name)
        lengths, routing = draft_lengths(store), store.routing()
        targets = {arm.target for arm in report.arms}
        hashes = {model.sha256 for model in report.models if model.name in targets}
        kept = tuple(map(load_report, reports)) or kept_reports(hashes)
        models = {model.name: model for model in report.models}
        prices = memory_prices(report.arms, models, store.sessions(), kept)
    verdict = report.certificate.verdict if report.certificate else None
    if as_json:
        data = _json(account, lengths, prices, verdict, folder)
        data["routing"] = [it.model_dump(mode="json") for it in routing]
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        _print(account, lengths, prices, routing, report)
    return 1 if verdict == "invalid" else 0


def _probes(named: tuple[Path, ...], store: RunReader, report: RunReport) -> tuple[dict[str, Probe], str | None]:
    """(arm id -> its probe, what they are called): the one that was named, or the newest that fit."""
    from specmeter.analysis.explain.account import probes_by_arm
    from specmeter.probe.files import find_probe, load_probe, probes_folder
    from specmeter.show.terminal.probe import warn_of_suspect

    models = {model.name: model for model in report.models}
    found: dict[str, Probe] = {}
    for file in reversed(named):
        probe = load_probe(file)
        warn_of_suspect(probe, file.name)
        found |= probes_by_arm(probe, file.name, report.arms, models)
    if named:
        return found, ", ".join(file.name for file in named)
    names: set[str] = set()
    engine = next((session.engine for session in store.sessions()), None)
    hosts = store.hosts()
    if engine is None or store.traits().simulated or not hosts:
        return {}, None
    by_pair: dict[tuple[str, str | None], tuple[Path, Probe] | None] = {}
    for arm in report.arms:
        pair = (arm.target, arm.draft)
        if pair not in by_pair:
            draft = models[arm.draft] if arm.draft else None
            by_pair[pair] = find_probe(models[arm.target], draft, engine, probes_folder(), host=hosts[0])
        if (probe := by_pair[pair]) is not None:
            found[arm.id] = probe[1]
            names.add(probe[0].name)
    return found, ", ".join(sorted(names)) or None


def _json(
    account: Account,
    lengths: Sequence[DraftLength],
    prices: Sequence[MemoryPrice],
    verdict: str | None,
    folder: Path,
) -> dict[str, Any]:
    from specmeter.analysis.prediction.outcomes import accuracy, as_data
    from specmeter.show.terminal.memory import as_data as memory_as_data
    from specmeter.show.terminal.profile import as_data as lengths_as_data

    arms: list[dict[str, Any]] = []
    for arm in account.arms:
        data = arm.model_dump(mode="json")
        data["prediction"] = None if arm.prediction is None else as_data(arm.prediction)
        arms.append({**data, "by_curve_error": arm.by_curve_error})
    found = accuracy(arm.prediction for arm in account.arms if arm.prediction is not None)
    return {
        "folder": str(folder),
        "name": account.name,
        "verdict": verdict,
        "probe": account.probe,
        "arms": arms,
        "draft_lengths": lengths_as_data(lengths),
        "memory": memory_as_data(prices),
        "accuracy": None if found is None else found.model_dump(mode="json"),
    }


def _print(
    account: Account,
    lengths: Sequence[DraftLength],
    prices: Sequence[MemoryPrice],
    routing: Sequence[TextRouting],
    report: RunReport,
) -> None:
    from rich.markup import escape
    from rich.padding import Padding

    from specmeter.show.terminal.memory import print_memory
    from specmeter.show.terminal.prediction import print_accuracy, print_sources
    from specmeter.show.terminal.profile import print_draft_lengths
    from specmeter.show.terminal.routing import print_routing
    from specmeter.show.terminal.text import output_console, printable

    console = output_console()
    baselines = [arm for arm in account.arms if arm.baseline_id is None]
    for baseline in baselines:
        group = [baseline, *(arm for arm in account.arms if arm.baseline_id == baseline.arm_id)]
        console.print(_table(group, report))
        console.print()
        for arm in group:
            if arm.sentence:
                doubt = "" if arm.verdict == "valid" else f" ({arm.verdict or 'not checked'})"
                console.print(f"[bold]{escape(_label(arm.arm_id))}[/bold]{doubt}", highlight=False)
                console.print(Padding(escape(printable(arm.sentence)), (0, 0, 0, 2), expand=False), highlight=False)
        console.print()
    if any(arm.verdict in ("suspect", "invalid") for arm in account.arms):
        console.print("`specmeter check` says what speaks against suspect and invalid arms\n", highlight=False)
    print_draft_lengths(console, lengths)
    print_routing(console, routing)
    print_memory(console, prices)
    _print_means(console, account)
    outcomes = [arm.prediction for arm in account.arms if arm.prediction is not None]
    print_accuracy(console, outcomes)
    print_sources(console, outcomes)


def _table(group: list[ArmAccount], report: RunReport) -> Table:
    from rich.markup import escape
    from rich.table import Table

    from specmeter.show.terminal.prediction import percent
    from specmeter.show.terminal.run import interval

    target = {arm.id: arm.target for arm in report.arms}[group[0].arm_id]
    used = {part.name for arm in group for part in arm.parts if abs(part.share) >= 0.0005}
    names = [name for name in _PARTS if name in used]
    table = Table(box=None, pad_edge=False)
    table.add_column(f"{escape(target)}: ms per token", overflow="fold", header_style="bold")
    for column in ("all", *names, "speedup", "predicted", "error"):
        table.add_column(column, justify="right", no_wrap=True)
    for arm in group:
        parts = {part.name: part for part in arm.parts}
        outcome = arm.prediction
        predicted = outcome.prediction.speedup if outcome is not None else None
        speedup = "invalid" if arm.verdict == "invalid" else interval(arm.speedup, 2)
        table.add_row(
            escape(_label(arm.arm_id)),
            f"{arm.ms_per_token.point:.2f}",
            *(f"{parts[name].ms_per_token.point:.2f}" if name in parts else "-" for name in names),
            "baseline" if arm.baseline_id is None else speedup,
            interval(predicted, 2),
            percent(outcome.error) if outcome is not None else "-",
        )
    return table


def _print_means(console: Console, account: Account) -> None:
    """How the parts were obtained, how much of the time they account for, and how well the curve fits."""
    from rich.markup import escape

    from specmeter.analysis.explain.parts import RESIDUAL
    from specmeter.show.terminal.prediction import percent

    for means, told in _MEANS.items():
        arms = [arm for arm in account.arms if arm.means == means and arm.baseline_id is not None]
        if not arms:
            continue
        shares = [arm.accounted for arm in arms if arm.accounted is not None]
        least = f"; at least {min(shares):.0%} of the decode time is accounted for" if shares else ""
        if shares and means in RESIDUAL:
            least += " by other means (drafting, restoring, a plain forward for each step)"
        arms_told = f"{len(arms)} arm" + ("s" if len(arms) > 1 else "")
        console.print(f"{arms_told}: {told}{least}", style="dim", highlight=False)
    errors = [abs(arm.by_curve_error) for arm in account.arms if arm.by_curve_error is not None]
    if errors:
        console.print(
            escape(f"by the curves of {account.probe} and the measured acceptance, speedups are off by at most ")
            + percent(max(errors), signed=False),
            style="dim",
            highlight=False,
        )
    elif account.probe is None:
        console.print(
            "no probe of these models was found: `specmeter probe` measures what their forwards cost",
            style="dim",
            highlight=False,
        )


_PARTS: tuple[PartName, ...] = ("draft", "verify", "restore", "sample", "rest", "remainder")
_MEANS = {
    "steps": "every part of every step was measured by the engine",
    "cost curve": "drafting by the server's statistics, forwards by the probe's cost curve, in units of the baseline",
    "step times": "drafting by the server's statistics, verification is what a step leaves, up to its possible cost",
    "undivided": "no statistics of drafting on record: it stands under verification",
    "difference": "drafting by the server's statistics, verification is what is left, up to its possible cost",
}


def _label(arm_id: str) -> str:
    """An arm's id without its target."""
    return arm_id.partition("/")[2]

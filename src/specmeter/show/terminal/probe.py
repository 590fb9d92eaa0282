"""Prints a probe, or a text's routing (`specmeter probe`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape
from rich.table import Table

from specmeter.numbers.estimates import above, below
from specmeter.show.terminal.text import output_console, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specmeter.probe import Probe
    from specmeter.probe.routing import RandomTokens, RoutingSummary
    from specmeter.record import Estimate, ModelIdentity
    from specmeter.theory.fitting import CostFit


def print_probe(probe: Probe, path: Path, *, as_json: bool) -> None:
    """The probe, the models that fit it and what it means."""
    from specmeter.probe import reading
    from specmeter.probe.gate import suspicions

    models = reading.fits(probe)
    if as_json:
        verification = [
            probe.target_ms.verification_estimate(point.tokens - 1).model_dump(mode="json")
            for point in probe.target_ms.points
        ]
        answer = {
            "file": str(path),
            "suspicions": list(suspicions(probe)),
            "probe": probe.model_dump(mode="json"),
            "verification": verification,
            "fits": [
                {"model": fit.model, "parameters": fit.parameters, "residuals": fit.residuals, "rms": fit.rms}
                for fit in models
            ],
            "sentence": reading.sentence(probe),
        }
        click.echo(json.dumps(answer, indent=2))
        return
    console = output_console()
    threads = f"{probe.settings.threads} threads" if probe.settings.threads else "all physical cores"
    how = "measured directly" if probe.source == "libllama" else "estimated through a server"
    console.print(
        f"[bold]{escape(printable(probe.target.reference))}[/bold] on {escape(printable(probe.host.cpu))}, {threads}, "
        f"{probe.depth} tokens in memory; {how} by {escape(printable(probe.engine.version))}\n",
        highlight=False,
    )
    console.print(_curve(probe, models))
    if probe.draft_ms is not None and probe.draft is not None:
        points = ", ".join(f"{point.tokens}: {_interval(point.ms, 3)}" for point in probe.draft_ms.points)
        console.print(f"\ndraft {escape(printable(probe.draft.reference))}, ms by tokens: {points}", highlight=False)
    if probe.overhead_ms is not None:
        console.print(f"rest of a step: {_interval(probe.overhead_ms, 3)} ms", highlight=False)
    if probe.union is not None:
        points = ", ".join(f"{point.tokens}: {point.union.point:.1f}" for point in probe.union.points)
        console.print(
            f"experts of {probe.union.experts} that n tokens read, {probe.union.used} each: {points}", highlight=False
        )
    if models:
        console.print()
        console.print(_models(models))
        if not reading.told_apart(models):
            console.print("the first two models fit equally well (their AICc differ by less than 2)", highlight=False)
    console.print(f"\n{reading.sentence(probe)}", highlight=False)
    for doubt in suspicions(probe):
        console.print(f"[bold]suspect[/bold]: {escape(doubt)}", highlight=False, soft_wrap=True)
    if suspicions(probe):
        console.print("Predictions do not use it unless it is named; probe again when the machine is idle.")
    console.print(f"kept in {escape(printable(str(path)))}", highlight=False, soft_wrap=True)


def warn_of_suspect(probe: Probe, name: str) -> None:
    """Say on standard error what speaks against a probe that was named; it is used all the same."""
    from specmeter.probe.gate import suspicions

    for doubt in suspicions(probe):
        click.echo(f"warning: {printable(name)}: a suspect probe: {doubt}", err=True)


def print_routing(model: ModelIdentity, summary: RoutingSummary, path: Path, *, as_json: bool) -> None:
    """Unions beside uniform routing, overlap and balance."""
    if as_json:
        click.echo(json.dumps({"file": str(path), "routing": summary.model_dump(mode="json")}, indent=2))
        return
    console = output_console()
    console.print(
        f"[bold]{escape(printable(model.reference))}[/bold]: {summary.experts} experts, {summary.used} per token, "
        f"{summary.layers} layers; {summary.tokens} tokens of text in {summary.segments} segments\n",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("n", "experts read", "95 % interval", "if uniform", "share"):
        table.add_column(heading, justify="right")
    random = summary.random
    if random is not None:
        table.add_column("random tokens", justify="right")
    for place, (point, uniform) in enumerate(zip(summary.union.points, summary.uniform, strict=True)):
        union = point.union
        share = f"{union.point / uniform:.0%}"
        cells = [str(point.tokens), f"{union.point:.2f}", _ends(union, 2), f"{uniform:.2f}", share]
        if random is not None:
            cells.append(f"{random.union.points[place].union.point:.2f}")
        table.add_row(*cells)
    console.print(table)
    meanings = {
        "draws": "each further token acts as {:.2f} of an independent one",
        "power": "unions grow as n to the power of {:.2f}",
    }
    console.print()
    for fit in summary.overlaps:
        meaning = meanings[fit.model].format(fit.parameter)
        console.print(f"overlap ({fit.model}): {meaning}; residuals {fit.rms:.1%}", highlight=False)
    console.print(
        f"a token shares {summary.shared:.0%} of its experts with the one before it ({summary.neighbours:.0%} of the "
        "experts of either)",
        highlight=False,
    )
    entropies = [load.entropy for load in summary.loads]
    console.print(
        f"balance: entropy of the loads {min(entropies):.2f} to {max(entropies):.2f} of the most possible, "
        f"the hottest expert of a layer has {min(load.largest for load in summary.loads):.1f} to "
        f"{max(load.largest for load in summary.loads):.1f} times the mean load, "
        f"{sum(load.unused for load in summary.loads)} of {summary.experts * summary.layers} are never chosen",
        highlight=False,
    )
    hottest = ", ".join(f"layer {hot.layer} expert {hot.expert} ({hot.load:.1f}x)" for hot in summary.hottest)
    console.print(f"hottest: {hottest}", highlight=False)
    if summary.random is not None:
        console.print(f"\n{_on_random_tokens(summary, summary.random)}", highlight=False)
    console.print(f"kept in {escape(printable(str(path)))}", highlight=False, soft_wrap=True)


def _on_random_tokens(summary: RoutingSummary, random: RandomTokens) -> str:
    """What random tokens choose and how fast they are, in sentences."""
    words = (
        f"Random tokens, which llama-bench decodes: the first 128 choose {_range(random.chosen)} of {summary.experts} "
        f"experts of a layer (text: {_range(random.chosen_by_text)}); a token shares {random.shared:.0%} with the one "
        f"before it (text: {summary.shared:.0%})."
    )
    if random.faster is None or random.text_ms is None or random.random_ms is None:
        return f"{words} The text is too short to time both."
    rate = random.faster
    words += f" Single tokens take {random.random_ms.point:.2f} ms, of text {random.text_ms.point:.2f} ms: "
    if above(rate, 1.0):
        return f"{words}rates on random tokens are {_interval(rate, 2)} times those on text."
    if below(rate, 1.0):
        return f"{words}rates on random tokens are only {_interval(rate, 2)} times those on text."
    return f"{words}no difference is shown ({_interval(rate, 2)} times the rate on text)."


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _curve(probe: Probe, models: tuple[CostFit, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("n", "T(n) ms", "95 % interval", "v = T(n)/T(1)", "interval", "ms per token"):
        table.add_column(heading, justify="right")
    for model in models[:1]:
        table.add_column(f"{model.model} fit", justify="right")
    for place, point in enumerate(probe.target_ms.points):
        v = probe.target_ms.verification_estimate(point.tokens - 1)
        cells = [
            str(point.tokens),
            f"{point.ms.point:.2f}",
            _ends(point.ms, 2),
            f"{v.point:.2f}",
            _ends(v, 2),
            f"{point.ms.point / point.tokens:.2f}",
        ]
        cells += [f"{model.residuals[place]:+.1%}" for model in models[:1]]
        table.add_row(*cells)
    return table


def _models(models: tuple[CostFit, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("model", "T(n) in ms", "typical residual", "largest", "AICc"):
        table.add_column(heading, justify="left" if heading in ("model", "T(n) in ms") else "right")
    for model in models:
        largest = max(model.residuals, key=abs)
        table.add_row(model.model, _formula(model), f"{model.rms:.1%}", f"{largest:+.1%}", f"{model.aicc:.1f}")
    return table


def _formula(model: CostFit) -> str:
    parameters = {name: f"{value:.3g}" for name, value in model.parameters.items()}
    if model.model == "roofline":
        return "{floor} + {slope} max(0, n - {knee})".format(**parameters)
    if model.model == "experts":
        return "{floor} + {slope} n + {expert} U(n)".format(**parameters)
    return "{floor} + {slope} n".format(**parameters)


def _interval(estimate: Estimate, digits: int) -> str:
    ends = _ends(estimate, digits)
    return f"{estimate.point:.{digits}f}" + (f" {ends}" if ends else "")


def _ends(estimate: Estimate, digits: int) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return escape(f"[{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]")

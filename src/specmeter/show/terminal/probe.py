"""Prints a probe, or a text's routing (`specmeter probe`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.numbers.estimates import above, below
from specmeter.probe import batch_sentence, fits, sentence, surface_fits, surface_of, suspicions, told_apart
from specmeter.show.table import Row, Table, numbers, row, text
from specmeter.show.terminal.console import errors, output, say_json
from specmeter.text import brackets, estimated, milliseconds, percent

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from specmeter.probe import Probe
    from specmeter.probe.routing import RandomTokens, RoutingSummary
    from specmeter.record import Estimate, ModelIdentity
    from specmeter.show.terminal.console import Screen
    from specmeter.theory.curves import CostFit, CostSurface, SurfaceFit


def print_probe(probe: Probe, path: Path, *, as_json: bool) -> None:
    """What the probe means, then its numbers and the models that fit them."""
    models, doubts = fits(probe), suspicions(probe)
    if as_json:
        curve = probe.target_ms
        answer: dict[str, object] = {
            "file": str(path),
            "suspicions": list(doubts),
            "probe": probe.model_dump(mode="json"),
            "verification": [
                curve.verification_estimate(point.tokens - 1).model_dump(mode="json") for point in curve.points
            ],
            "fits": [_as_json(fit) for fit in models],
            "sentence": sentence(probe),
        }
        if (surface := surface_of(probe)) is not None:
            answer["surface"] = {
                "sentence": batch_sentence(surface),
                "target_efficiency": [
                    {
                        "sequences": point.sequences,
                        "tokens": point.tokens,
                        **surface.target_efficiency(point.sequences, point.tokens - 1).model_dump(mode="json"),
                    }
                    for point in probe.batches
                ],
                "fits": [_as_json(fit) for fit in surface_fits(probe)],
            }
        say_json(answer)
        return
    screen = output()
    threads = f"{probe.settings.threads} threads" if probe.settings.threads else "all physical cores"
    how = "measured directly" if probe.source == "libllama" else "estimated through a server"
    screen.say((sentence(probe), "strong"))
    screen.line()
    screen.say(
        (probe.target.reference, "strong"),
        f" on {probe.host.cpu}, {threads}, {probe.depth} tokens in memory; {how} by {probe.engine.version}",
    )
    screen.line()
    screen.table(_curve(probe, models))
    if probe.draft_ms is not None and probe.draft is not None:
        points = ", ".join(f"{it.tokens}: {estimated(it.ms, 3, exact=True)}" for it in probe.draft_ms.points)
        screen.line()
        screen.say(f"draft {probe.draft.reference}, ms by tokens: {points}")
    if probe.overhead_ms is not None:
        screen.say(f"rest of a step: {estimated(probe.overhead_ms, 3, ' ms', exact=True)}")
    if probe.union is not None:
        points = ", ".join(f"{point.tokens}: {point.union.point:.1f}" for point in probe.union.points)
        screen.say(f"experts of {probe.union.experts} that n tokens read, {probe.union.used} each: {points}")
    if models:
        screen.line()
        screen.table(_models(models))
        if not told_apart(models):
            screen.say("the first two models fit equally well (their AICc differ by less than 2)")
    if (surface := surface_of(probe)) is not None:
        _say_surface(screen, probe, surface)
    if doubts:
        screen.line()
    for doubt in doubts:
        screen.say(("suspect", "strong"), ": ", doubt, wrap=False)
    if doubts:
        screen.say("Predictions do not use it unless it is named; probe again when the machine is idle.")
    screen.say(f"kept in {path}", wrap=False)


def warn_of_suspect(probe: Probe, name: str) -> None:
    """Warn on standard error about a named probe that is suspect; it is used all the same."""
    for doubt in suspicions(probe):
        errors().say(f"warning: {name}: a suspect probe: ", doubt, wrap=False)


def print_routing(model: ModelIdentity, summary: RoutingSummary, path: Path, *, as_json: bool) -> None:
    """Unions beside uniform routing, overlap and balance."""
    if as_json:
        say_json({"file": str(path), "routing": summary.model_dump(mode="json")})
        return
    screen = output()
    screen.say(
        (model.reference, "strong"),
        f": {summary.experts} experts, {summary.used} per token, {summary.layers} layers; {summary.tokens} tokens of "
        f"text in {summary.segments} segments",
    )
    screen.line()
    random = summary.random
    rows: list[Row] = []
    for place, (point, uniform) in enumerate(zip(summary.union.points, summary.uniform, strict=True)):
        union = point.union
        cells = [str(point.tokens), f"{union.point:.2f}", _ends(union), f"{uniform:.2f}"]
        cells += [percent(union.point / uniform)]
        cells += [] if random is None else [f"{random.union.points[place].union.point:.2f}"]
        rows.append(row(*cells))
    more = () if random is None else ("random tokens",)
    screen.table(Table("routing", numbers("n", "experts read", "95% interval", "if uniform", "share", *more), rows))
    meanings = {
        "draws": "each further token acts as {:.2f} of an independent one",
        "power": "unions grow as n to the power of {:.2f}",
    }
    screen.line()
    for fit in summary.overlaps:
        meaning = meanings[fit.model].format(fit.parameter)
        screen.say(f"overlap ({fit.model}): {meaning}; residuals {percent(fit.rms, 1)}")
    screen.say(
        f"a token shares {percent(summary.shared)} of its experts with the one before it "
        f"({percent(summary.neighbours)} of the experts of either)"
    )
    entropies = [load.entropy for load in summary.loads]
    screen.say(
        f"balance: entropy of the loads {min(entropies):.2f} to {max(entropies):.2f} of the most possible, "
        f"the hottest expert of a layer has {min(load.largest for load in summary.loads):.1f} to "
        f"{max(load.largest for load in summary.loads):.1f} times the mean load, "
        f"{sum(load.unused for load in summary.loads)} of {summary.experts * summary.layers} are never chosen"
    )
    hottest = ", ".join(f"layer {hot.layer} expert {hot.expert} ({hot.load:.1f}x)" for hot in summary.hottest)
    screen.say(f"hottest: {hottest}")
    if random is not None:
        screen.line()
        screen.say(_on_random_tokens(summary, random))
    screen.say(f"kept in {path}", wrap=False)


def _on_random_tokens(summary: RoutingSummary, random: RandomTokens) -> str:
    """What random tokens choose and how fast they are, in sentences."""
    words = (
        f"Random tokens, which llama-bench decodes: the first 128 choose {_range(random.chosen)} of {summary.experts} "
        f"experts of a layer (text: {_range(random.chosen_by_text)}); a token shares {percent(random.shared)} with the "
        f"one before it (text: {percent(summary.shared)})."
    )
    if random.faster is None or random.text_ms is None or random.random_ms is None:
        return f"{words} The text is too short to time both."
    rate = random.faster
    words += (
        f" Single tokens take {milliseconds(random.random_ms.point)}, of text {milliseconds(random.text_ms.point)}: "
    )
    if above(rate, 1.0):
        return f"{words}rates on random tokens are {estimated(rate, 2, exact=True)} times those on text."
    if below(rate, 1.0):
        return f"{words}rates on random tokens are only {estimated(rate, 2, exact=True)} times those on text."
    return f"{words}no difference is shown ({estimated(rate, 2, exact=True)} times the rate on text)."


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _curve(probe: Probe, models: tuple[CostFit, ...]) -> Table:
    rows: list[Row] = []
    for place, point in enumerate(probe.target_ms.points):
        v = probe.target_ms.verification_estimate(point.tokens - 1)
        cells = [str(point.tokens)]
        for number in (point.ms, v):
            cells += [f"{number.point:.2f}", _ends(number)]
        cells.append(f"{point.ms.point / point.tokens:.2f}")
        cells += [percent(model.residuals[place], 1, signed=True) for model in models[:1]]
        rows.append(row(*cells))
    fits = (f"{model.model} fit" for model in models[:1])
    titles = ("n", "T(n) ms", "95% interval", "v = T(n)/T(1)", "interval", "ms per token", *fits)
    return Table("curve", numbers(*titles), rows)


def _models(models: tuple[CostFit, ...]) -> Table:
    rows = [
        row(
            model.model,
            _formula(model),
            percent(model.rms, 1),
            percent(max(model.residuals, key=abs), 1, signed=True),
            f"{model.aicc:.1f}",
        )
        for model in models
    ]
    return Table("fits", (*text("model", "T(n) in ms"), *numbers("typical residual", "largest", "AICc")), rows)


def _formula(model: CostFit) -> str:
    parameters = {name: f"{value:.3g}" for name, value in model.parameters.items()}
    if model.model == "roofline":
        return "{floor} + {slope} max(0, n - {knee})".format(**parameters)
    if model.model == "experts":
        return "{floor} + {slope} n + {expert} U(n)".format(**parameters)
    return "{floor} + {slope} n".format(**parameters)


def _say_surface(screen: Screen, probe: Probe, surface: CostSurface) -> None:
    """T(b, n): a row for each b, with what verification then costs, and the models that fit."""
    counts = sorted({point.tokens for point in probe.batches})
    unions = {(point.sequences, point.tokens): point.union for point in probe.batches}
    memory = "one memory for all" if probe.kv_unified else "a stream of memory each"
    screen.line()
    screen.say(
        ("Several sequences in one forward", "strong"), f" (consecutive numbers, {memory}, {surface.depth} tokens deep)"
    )
    screen.say(batch_sentence(surface))
    screen.line()
    times: list[Row] = []
    shares: list[Row] = []
    read: list[Row] = []
    for b, _ in surface.curves:
        measured = [n for n in counts if surface.covers(b, n)]
        blank = [""] * (len(counts) - len(measured))
        found = [surface.estimate(b, n) for n in measured]
        times.append(row(str(b), *(estimated(ms, 1) for ms in found), *blank, f"{1000 * b / found[0].point:.1f}"))
        efficiencies = [surface.target_efficiency(b, n - 1) for n in measured[1:]]
        shares.append(row(str(b), *(estimated(it, 2) for it in efficiencies), *blank))
        read.append(row(str(b), *(f"{it.point:.1f}" if (it := unions[b, n]) else "" for n in measured), *blank))
    ms = [f"T(b, {n}) ms" for n in counts]
    screen.table(Table("batches", numbers("b", *ms, "tokens/s, plain"), times))
    screen.line()
    screen.say("target efficiency T(b, 1) / T(b, n): 1 is verification for nothing, 1/n is no better than one by one")
    screen.table(Table("efficiency", numbers("b", *(f"n = {n}" for n in counts[1:])), shares))
    if any(unions.values()):
        screen.line()
        screen.say("experts of a layer that such a forward reads")
        screen.table(Table("unions", numbers("b", *(f"n = {n}" for n in counts)), read))
    if models := surface_fits(probe):
        screen.line()
        screen.table(_surface_models(models))
        if not told_apart(models):
            screen.say("the first two models fit equally well (their AICc differ by less than 2)")


def _surface_models(models: tuple[SurfaceFit, ...]) -> Table:
    rows = [
        row(
            fit.model,
            ", ".join(f"{name} {value:.3g}" for name, value in fit.parameters.items()),
            percent(fit.rms, 1),
            percent(max(fit.residuals, key=abs), 1, signed=True),
            f"{fit.aicc:.1f}",
        )
        for fit in models
    ]
    return Table(
        "surface", (*text("model", "T(b, n), parameters"), *numbers("typical residual", "largest", "AICc")), rows
    )


def _as_json(fit: CostFit | SurfaceFit) -> dict[str, object]:
    return {"model": fit.model, "parameters": fit.parameters, "residuals": fit.residuals, "rms": fit.rms}


def _ends(estimate: Estimate) -> str:
    return "" if estimate.low is None or estimate.high is None else brackets(estimate, 2)

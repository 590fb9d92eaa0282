"""`specmeter predict`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from specmeter.analysis.prediction.costs import Costs
    from specmeter.analysis.prediction.drafts import Acceptance
    from specmeter.probe import Probe


@click.command(name="predict")
@click.option(
    "--probe", "probe_file", type=click.Path(dir_okay=False, path_type=Path), help="Costs: a probe of this machine."
)
@click.option("--device", help="Costs: a device of the catalogue, with --model and --format.")
@click.option("--model", help="Target, by its name in the catalogue.")
@click.option("--format", "number_format", default="Q4_K_M", show_default=True, help="Number format of the target.")
@click.option("--draft-model", help="Draft model, by its name in the catalogue; without one, drafts cost nothing.")
@click.option("--draft-format", help="Number format of the draft. Default: that of the target.")
@click.option("--context", type=int, default=512, show_default=True, help="Tokens in the context (catalogue only).")
@click.option("--gamma", "gammas", metavar="N,N,...", help="Draft lengths. Default: 1, 2, 3, 4, 6, 8, 12, 16.")
@click.option("--alpha", type=float, help="Acceptance: one probability for every position.")
@click.option("--rates", metavar="A,A,...", help="Acceptance: P(accepted | all before it were), by position.")
@click.option("--acceptance-from", "run", metavar="RUN", help="Acceptance: as measured in a run.")
@click.option("--kind", help="Only prompts of this kind (with --acceptance-from).")
@click.option("--arm", "arm_id", help="Only this arm (with --acceptance-from).")
@click.option("--no-draft", is_flag=True, help="Predict n-gram drafting, although the probe has a draft model.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(
    probe_file: Path | None,
    device: str | None,
    model: str | None,
    number_format: str,
    draft_model: str | None,
    draft_format: str | None,
    context: int,
    gammas: str | None,
    alpha: float | None,
    rates: str | None,
    run: str | None,
    kind: str | None,
    arm_id: str | None,
    no_draft: bool,
    as_json: bool,
) -> int:
    """Predict the speedup for each draft length, with its uncertainty; measure nothing.

    Costs come from a probe (`--probe`) or from the catalogue alone (`--device`, `--model`, `--format`). Acceptance is
    given (`--alpha`, `--rates`), as measured in a run (`--acceptance-from`), or an assumed range. Beside the prediction
    stand the speedup for every alpha, the best draft length and the alpha at which nothing is gained.

    \b
    Examples:
      specmeter predict --probe probe.json --acceptance-from latest --kind code
      specmeter predict --probe probe.json --alpha 0.7 --gamma 2,4,8
      specmeter predict --device "RTX 3090" --model Qwen3.5-35B-A3B --format Q4_K_M \\
          --draft-model Qwen3.5-0.8B --draft-format Q8_0 --alpha 0.7

    \b
    Exit codes: 0 predicted, 2 unknown names, impossible numbers, or no such probe or run.
    """
    from specmeter.analysis.prediction.sources import doubling
    from specmeter.analysis.prediction.speedup import predict, surface
    from specmeter.errors import UsageError
    from specmeter.show.terminal.console import say_json
    from specmeter.show.terminal.predict import print_prediction

    if context < 1:
        raise UsageError(f"--context {context}: must be at least 1", fix="give the tokens that came before")
    if no_draft and (draft_model is not None or draft_format is not None):
        raise UsageError(
            "--no-draft contradicts --draft-model and --draft-format",
            fix="leave out one or the other: n-grams need no draft",
        )
    wanted = _whole(gammas) if gammas is not None else doubling(16)
    probe = _probe(probe_file)
    costs = _costs(probe, probe_file, device, model, number_format, draft_model, draft_format, context)
    by_model = costs.has_draft and not no_draft
    acceptance = _acceptance(alpha, rates, run, kind, arm_id, by_model, probe)
    found = predict(acceptance, costs, wanted, by_model=by_model)
    whole = surface(costs, wanted, _ALPHAS, by_model=by_model)
    if as_json:
        document = {
            "cost": found.cost,
            "acceptance": found.acceptance,
            "drafting": "model" if by_model else "n-gram",
            "recurrent_target": found.recurrent,
            "by_gamma": [at.model_dump(mode="json") for at in found.by_gamma],
            "best_gamma": found.best.gamma if found.best is not None else 0,
            "surface": whole.model_dump(mode="json"),
        }
        say_json(document)
    else:
        print_prediction(found, whole, by_model=by_model)
    return 0


_ALPHAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_MOST_VALUES = 128


def _probe(file: Path | None) -> Probe | None:
    from specmeter.probe.files import load_probe
    from specmeter.show.terminal.probe import warn_of_suspect

    if file is None:
        return None
    probe = load_probe(file)
    warn_of_suspect(probe, file.name)
    return probe


def _costs(
    probe: Probe | None,
    file: Path | None,
    device: str | None,
    model: str | None,
    number_format: str,
    draft_model: str | None,
    draft_format: str | None,
    context: int,
) -> Costs:
    from specmeter.analysis.prediction.costs import probed
    from specmeter.analysis.prediction.sources import catalogued
    from specmeter.errors import UsageError

    if (probe is None) == (device is None and model is None):
        raise UsageError(
            "costs come from a probe or from the catalogue, one of the two",
            fix="give --probe FILE, or --device NAME --model NAME --format FORMAT",
        )
    if probe is not None and file is not None:
        if draft_model is not None:
            raise UsageError("--draft-model belongs to the catalogue", fix="probe the target together with its draft")
        draft = f" with {probe.draft.reference}" if probe.draft is not None else ""
        return probed(probe, f"probe {file.name}: {probe.target.reference}{draft}")
    if device is None or model is None:
        missing = "--device" if device is None else "--model"
        raise UsageError(f"{missing} is missing", fix="the catalogue needs --device and --model")
    return catalogued(device, model, number_format, draft_model, draft_format, context)


def _acceptance(
    alpha: float | None,
    rates: str | None,
    run: str | None,
    kind: str | None,
    arm_id: str | None,
    by_model: bool,
    probe: Probe | None,
) -> Acceptance:
    from specmeter.analysis.prediction import sources
    from specmeter.analysis.prediction.drafts import Given
    from specmeter.errors import UsageError
    from specmeter.theory.arguments import probabilities

    if sum(source is not None for source in (alpha, rates, run)) > 1:
        raise UsageError("acceptance is given more than once", fix="give one of --alpha, --rates and --acceptance-from")
    if run is None and (kind is not None or arm_id is not None):
        raise UsageError("--kind and --arm choose from a run", fix="give --acceptance-from RUN with them")
    if alpha is not None:
        return Given.alpha(probabilities("--alpha", alpha))
    if rates is not None:
        values = tuple(float(value) for value in _numbers("--rates", rates, "0.8,0.7,0.6"))
        probabilities("--rates", values)
        return Given(values, basis="rates by position, as given")
    if run is None:
        return sources.assumed(by_model=by_model)
    from specmeter.laboratory.run import find_run
    from specmeter.store import RunStore

    with RunStore.open(find_run(run), readonly=True) as store:
        return sources.of_run(store, by_model=by_model, kind=kind, arm_id=arm_id, probe=probe)


def _whole(text: str) -> list[int]:
    from specmeter.errors import UsageError

    values = _numbers("--gamma", text, "2,4,8")
    if not all(float(value).is_integer() and value >= 1 for value in values):
        raise UsageError(
            f"--gamma {text[:80]}: draft lengths are whole numbers of at least 1", fix="write --gamma 2,4,8"
        )
    return [int(value) for value in values]


def _numbers(flag: str, text: str, example: str) -> list[float]:
    from specmeter.errors import UsageError
    from specmeter.theory.arguments import numbers

    parts = text.split(",")
    try:
        if len(parts) > _MOST_VALUES:
            raise ValueError
        values = [float(part) for part in parts]
    except ValueError:
        raise UsageError(f"{flag} {text[:80]}: is no list of numbers", fix=f"write {flag} {example}") from None
    numbers(flag, values)
    return values

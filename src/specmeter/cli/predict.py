"""The command `specmeter predict`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from specmeter.advise.schedule import find_single_run
from specmeter.analysis.prediction.at_clients import over_clients, probed_at
from specmeter.analysis.prediction.costs import Costs
from specmeter.analysis.prediction.sources import HEADS, acceptance_of, costs_of, doubling
from specmeter.analysis.prediction.speedup import predict, surface
from specmeter.cli.settings import flag
from specmeter.cli.usage import Number
from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.probe.files import load_probe
from specmeter.probe.record import Probe
from specmeter.show import prediction_report, probe_report
from specmeter.show.terminal.console import errors
from specmeter.show.terminal.report import print_report
from specmeter.store import RunStore
from specmeter.theory.arguments import numbers


@click.command(name="predict")
@click.option("--probe", "probe_file", type=click.Path(dir_okay=False, path_type=Path), help="Costs from this probe.")
@click.option("--device", metavar="NAME", help="Costs from this device of the catalogue, with --model and --format.")
@click.option("--model", metavar="NAME", help="Target model in the catalogue.")
@click.option(
    "--format", "number_format", default="Q4_K_M", metavar="FORMAT", show_default=True, help="Its number format."
)
@click.option("--draft-model", metavar="NAME", help="Draft model in the catalogue. Default: drafting costs nothing.")
@click.option("--heads", type=click.Choice(HEADS), help="Draft with heads on the target's states, with --model.")
@click.option("--draft-format", metavar="FORMAT", help="Its number format. Default: the target's.")
@click.option("--context", type=Number(), default=512, show_default=True, help="Tokens in the context, with --device.")
@click.option("--gamma", "gammas", metavar="N,N,...", help="Draft lengths. Default: 1, 2, 3, 4, 6, 8, 12, 16.")
@click.option("--clients", metavar="N,N,...", help="Numbers of clients; needs a probe with --batch.")
@click.option("--alpha", type=Number(whole=False), help="Acceptance rate, the same at every position.")
@click.option("--rates", metavar="A,A,...", help="Acceptance rate by position, given that all before were accepted.")
@click.option("--acceptance-from", "run", metavar="RUN", help="Acceptance measured in this run.")
@click.option("--kind", metavar="KIND", help="Only prompts of this type, with --acceptance-from.")
@click.option("--arm", "arm_id", metavar="ID", help="Only this configuration, with --acceptance-from.")
@click.option("--no-draft", is_flag=True, help="Predict n-grams, even if the probe has a draft model.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    probe_file: Path | None,
    device: str | None,
    model: str | None,
    number_format: str,
    draft_model: str | None,
    heads: str | None,
    draft_format: str | None,
    context: int,
    gammas: str | None,
    clients: str | None,
    alpha: float | None,
    rates: str | None,
    run: str | None,
    kind: str | None,
    arm_id: str | None,
    no_draft: bool,
    as_json: bool,
) -> int:
    """Predict the speedup of each draft length without measuring.

    Costs come from a probe (--probe) or the catalogue (--device, --model, --format). Acceptance is given (--alpha,
    --rates), measured in a run (--acceptance-from), or an assumed range. A second table has the speedup for every
    alpha, the best draft length, and the alpha below which speculation loses; with --clients a third one has the
    speedup for each number of clients, and where speculation stops paying.

    \b
    Examples:
      specmeter predict --probe probe.json --acceptance-from latest --kind code
      specmeter predict --probe probe.json --alpha 0.7 --gamma 2,4,8
      specmeter predict --probe probe.json --alpha 0.7 --clients 1,2,4,8
      specmeter predict --device "RTX 3090" --model Qwen3.5-35B-A3B --format Q4_K_M \\
          --draft-model Qwen3.5-0.8B --draft-format Q8_0 --alpha 0.7
    """
    wanted = _whole("--gamma", gammas, "draft lengths") if gammas is not None else doubling(16)
    at_once = _whole("--clients", clients, "numbers of clients") if clients is not None else []
    probe = _probe(probe_file)
    if at_once and probe is None:
        raise UsageError(
            "--clients: needs a probe", fix="run `specmeter probe MODEL --batch 1,2,4,8`, and add --probe FILE"
        )
    named = Message("costs.probe", name="" if probe_file is None else probe_file.name)
    costs = costs_of(
        probe,
        named,
        device,
        model,
        number_format,
        draft_model,
        draft_format,
        context,
        no_draft=no_draft,
        heads=heads,
        flag=flag,
    )
    by_model = costs.has_draft and not no_draft
    given = _numbers("--rates", rates, "0.8,0.7,0.6") if rates is not None else None
    with RunStore.open(find_single_run(run), readonly=True) if run is not None else nullcontext() as store:
        acceptance = acceptance_of(alpha, given, store, kind, arm_id, by_model=by_model, probe=probe, flag=flag)
    found = predict(acceptance, costs, wanted, by_model=by_model)
    whole = surface(costs, wanted, _ALPHAS, by_model=by_model)
    loads = None
    if at_once and probe is not None:

        def costs_at(count: int, probe: Probe = probe) -> Costs:
            return probed_at(probe, named, count)

        loads = over_clients(acceptance, costs_at, wanted, at_once, by_model=by_model)
    print_report(prediction_report.report(found, whole, loads, by_model=by_model), as_json=as_json)
    return 0


_ALPHAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_MAX_VALUES = 128


def _probe(file: Path | None) -> Probe | None:
    if file is None:
        return None
    probe = load_probe(file)
    errors().say_all(probe_report.warnings(probe, file.name), wrap=False)
    return probe


def _whole(option: str, text: str, what: str) -> list[int]:
    values = _numbers(option, text, "2,4,8")
    if not all(float(value).is_integer() and value >= 1 for value in values):
        raise UsageError(f"{option} {text[:80]}: {what} are whole numbers, 1 or more", fix=f"write {option} 2,4,8")
    return [int(value) for value in values]


def _numbers(option: str, text: str, example: str) -> list[float]:
    parts = text.split(",")
    try:
        if len(parts) > _MAX_VALUES:
            raise ValueError
        values = [float(part) for part in parts]
    except ValueError:
        raise UsageError(f"{option} {text[:80]}: not a list of numbers", fix=f"write {option} {example}") from None
    numbers(option, values)
    return values

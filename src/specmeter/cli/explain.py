"""`specmeter explain`."""

from __future__ import annotations

from pathlib import Path

import click

from specmeter.analysis.explain.account import explain, probes_of
from specmeter.analysis.explain.memory_price import memory_prices
from specmeter.analysis.quality import kept_reports, load_report
from specmeter.analysis.reading import read_run
from specmeter.probe import load_probe
from specmeter.probe.draft_lengths import draft_lengths
from specmeter.show.terminal.console import say_json
from specmeter.show.terminal.explain import document, print_account
from specmeter.show.terminal.probe import warn_of_suspect
from specmeter.store import RunStore
from specmeter.store.locate import find_run


@click.command(name="explain")
@click.argument("run", default="latest")
@click.option(
    "--probe",
    "probe_files",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Take the cost of forwards from this probe; repeatable. Default: the newest of the run's models.",
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

    The time of every token is split into drafting, verification, checkpoints and replays, sampling and the rest: from
    the engine's own step times where it has them, otherwise from the server's statistics and a probe's cost curve. One
    sentence per arm names what limits it. The speedup is shown beside the prediction made before the measurement.

    Further tables show what every draft length would yield on the run's texts (by replay, where a draft model read
    them), what each draft takes in memory and which better quantization of the target would fit in the same bytes, and,
    for a mixture of experts, how many experts n tokens choose.

    RUN is a run folder, the name of one under specmeter-runs/, or `latest` (the default).

    \b
    Examples:
      specmeter explain
      specmeter explain latest --probe probe.json
      specmeter explain latest --quality report.json
      specmeter explain latest --json | jq '.arms[].sentence.text'

    \b
    Exit codes: 0 valid, suspect or not checked yet, 1 invalid (`specmeter check` says why), 2 no such run or probe.
    """
    named = [(file.name, load_probe(file)) for file in probe_files]
    for file_name, probe in named:
        warn_of_suspect(probe, file_name)
    folder = find_run(run)
    report = read_run(folder)
    with RunStore.open(folder, readonly=True) as store:
        probes, name = probes_of(store, report, named)
        account = explain(store, report, probes, name)
        lengths, routing = draft_lengths(store), store.routing()
        targets = {arm.target for arm in report.arms}
        hashes = {model.sha256 for model in report.models if model.name in targets}
        kept = tuple(map(load_report, reports)) or kept_reports(hashes)
        models = {model.name: model for model in report.models}
        prices = memory_prices(report.arms, models, store.sessions(), kept)
    verdict = report.certificate.verdict if report.certificate else None
    if as_json:
        say_json({"folder": str(folder), "verdict": verdict, **document(account, lengths, prices, routing)})
    else:
        print_account(account, lengths, prices, routing, report)
    return 1 if verdict == "invalid" else 0

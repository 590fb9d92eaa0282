"""The command `specmeter explain`."""

from __future__ import annotations

from pathlib import Path

import click

from specmeter.advise.schedule import runs_of
from specmeter.analysis.quality import kept_reports, load_report
from specmeter.probe.files import load_probe
from specmeter.show import probe_report
from specmeter.show.page.document import read_document
from specmeter.show.terminal.console import errors
from specmeter.show.terminal.report import print_reports
from specmeter.show.why_report import report
from specmeter.store import RunStore
from specmeter.store.locate import find_run


@click.command(name="explain")
@click.argument("run", default="latest")
@click.option(
    "--probe",
    "probe_files",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Take costs from this probe; repeatable. Default: the newest of the run's models.",
)
@click.option(
    "--quality",
    "reports",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Take the quality of quantizations from this report of `specmeter quality`; repeatable. Default: earlier ones "
    "on the run's target models.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str, probe_files: tuple[Path, ...], reports: tuple[Path, ...], as_json: bool) -> int:
    """Show where each configuration of RUN spends its time.

    The time per token is split into drafting, verification, checkpoints and replays, sampling and the rest, from the
    engine's own step times if it has them, otherwise from the server's statistics and a probe. One sentence per
    configuration names what limits it. The prediction made before measuring is shown next to the speedup.

    Further tables: the yield of every draft length (by replay, if a draft model read the outputs), the memory each
    draft model takes and the better quantization of the target that would fit instead, and for an MoE model the number
    of experts that n tokens use.

    RUN is a folder, the name of one under specmeter-runs/, or `latest` (the default). Of an advice, a schedule or a
    study, all runs behind its answer are explained.

    \b
    Examples:
      specmeter explain
      specmeter explain latest --probe probe.json
      specmeter explain latest --quality report.json
      specmeter explain latest --json | jq '.arms[].sentence.text'
    """
    named = [(file.name, load_probe(file)) for file in probe_files]
    for file_name, probe in named:
        errors().say_all(probe_report.warnings(probe, file_name), wrap=False)
    quality = tuple(map(load_report, reports))
    documents = {
        str(folder): read_document(folder, named=named, quality=quality or kept_reports(_targets(folder)), whole=True)
        for folder in runs_of(find_run(run))
    }
    print_reports({name: report(document) for name, document in documents.items()}, as_json=as_json)
    certificates = [document.run.certificate for document in documents.values()]
    return 1 if any(it is not None and it.verdict == "invalid" for it in certificates) else 0


def _targets(folder: Path) -> set[str]:
    """SHA-256 of the target models of a run."""
    with RunStore.open(folder, readonly=True) as store:
        targets = {arm.target for arm in store.arms()}
        return {model.sha256 for model in store.models() if model.name in targets}

"""Time, memory and size of `specmeter report`: a run of 306 requests, and one of 100,000.

    uv run python benchmarks/report_speed.py [--prompts 5000] [--run FOLDER] [--parts]

Both on the mock engine; `--run` reports on a run at hand instead of the large one. `--parts` then says where the time
goes. The targets: at most 2 s for 306 requests; at most 10 s, 500 MB and 3 MB of HTML for 100,000. The start of Python
and all imports are part of it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from check_speed import timed
from large_run import watched, write_experiment
from specmeter.analysis.explain.account import explain
from specmeter.analysis.reading import read_run
from specmeter.show.page.document import read_document
from specmeter.show.page.page import run_page
from specmeter.store import RunStore

STUDY = """
name: study
targets: {dense: "mock:dense", moe: "mock:moe"}
drafts: {small: "mock:small"}
workloads: [{source: bench, kinds: [fact, code, reason], per_kind: 1}]
arms: [{draft: small, gamma: [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16]}, {method: ngram-simple, gamma: [2, 4, 8, 16]}]
design: {blocks: 3}
engine: {kind: mock}
generation: {max_tokens: 256}
"""
"""2 targets of 17 arms, 3 prompts, 3 blocks: 306 requests."""


def report(scratch: Path, folder: Path) -> None:
    with RunStore.open(folder, readonly=True) as run:
        requests = run.state().ok
    out = scratch / "report.html"
    seconds, peak = watched(scratch, "report", str(folder.absolute()), "--out", str(out))
    size = out.stat().st_size / 1e6
    print(f"report of {requests:,} requests: {seconds:6.2f} s, peak {peak / 1e6:.0f} MB, {size:.2f} MB of HTML")


def print_parts(folder: Path) -> None:
    run = timed("reading and summarising", lambda: read_run(folder))
    with RunStore.open(folder, readonly=True) as store:
        timed("explaining", lambda: explain(store, run))
    document = timed("all that a page tells", lambda: read_document(folder))
    timed("the page", lambda: run_page(document))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=5000)
    parser.add_argument("--run", type=Path, help="report on this run instead of making a large one")
    parser.add_argument("--parts", action="store_true", help="where the time goes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "study.yaml").write_text(STUDY, encoding="utf-8")
        watched(folder, "run", "study.yaml", "--out", "study", codes=(0, 1))
        report(folder, folder / "study")
        large: Path = args.run or folder / "large"
        if args.run is None:
            write_experiment(folder, args.prompts)
            watched(folder, "run", "large.yaml", "--out", "large", codes=(0, 1))
        report(folder, large)
        if args.parts:
            print_parts(large)


if __name__ == "__main__":
    main()

"""What merging, checking and comparing costs the head, for 10 to 1,000 simulated devices of 1,000 requests each.

    uv run python benchmarks/fleet_scale.py 10 100 1000

One invocation is measured with the mock engine; the others are copies with numbers of their own. Prints seconds of the
processor for merging, certifying and the spread, and the largest memory of the process, which is a new one for each
size.
"""

from __future__ import annotations

import json
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from specmeter.experiments.file import load_text
from specmeter.laboratory.run import prepare, run
from specmeter.show.terminal.console import errors
from specmeter.show.terminal.progress import RunProgress
from specmeter.store import RunStore
from specmeter.store.environment import environment_of
from specmeter.validity.inspection import issue
from specmeter_fleet.merge import Part, merge

TEXT = """
name: scale
targets: {{dense: "mock:dense"}}
drafts: {{small: "mock:small"}}
arms: [{{method: draft-simple, draft: small, gamma: [1, 2, 4, 8]}}]
workloads: [{{source: bench, kinds: [code, edit, reason, fact], per_kind: 5}}]
design: {{blocks: 10, invocations: {count}}}
engine: {{kind: mock}}
generation: {{max_tokens: 32}}
"""


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(int(sys.argv[2]))))
        return
    for count in map(int, sys.argv[1:] or ("10", "100", "1000")):
        subprocess.run([sys.executable, __file__, "--one", str(count)], check=True)


def one(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        folder = Path(name)
        parts = [Part(it, f"device-{number:04d}", number) for number, it in enumerate(_parts(folder, count))]
        loaded = load_text(TEXT.format(count=count), "scale", folder)
        found: dict[str, float] = {"devices": count}
        began = time.process_time()
        merge(
            parts,
            folder / "merged",
            experiment_yaml=loaded.text,
            experiment_json=loaded.experiment.model_dump_json(),
        )
        found["merge_s"] = round(time.process_time() - began, 1)
        began = time.process_time()
        with RunStore.open(folder / "merged") as store:
            found["requests"] = store.state().ok
            store.write_environment(environment_of(store))
            found["verdict"] = issue(store, measured_now=True).certificate.verdict  # pyright: ignore[reportArgumentType]
        found["certify_s"] = round(time.process_time() - began, 1)
        from specmeter_fleet.spread import spreads

        began = time.process_time()
        spreads(folder / "merged")
        found["spread_s"] = round(time.process_time() - began, 1)
        found["bytes"] = (folder / "merged" / "run.sqlite").stat().st_size
        found["peak_mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return found


def _parts(folder: Path, count: int) -> list[Path]:
    first = folder / "0"
    loaded = load_text(TEXT.format(count=count), "scale", folder, ["only.invocations=[0]"])
    run(prepare(loaded), first, RunProgress(first, errors(quiet=True)), thorough=False)
    found = [first]
    for number in range(1, count):
        place = folder / str(number)
        shutil.copytree(first, place)
        db = sqlite3.connect(place / "run.sqlite")
        db.execute("PRAGMA foreign_keys = OFF")
        for table in ("plan", "request"):
            db.execute(f"UPDATE {table} SET invocation = ?", (number,))
        db.execute("UPDATE session SET json = json_set(json, '$.invocation', ?), id = id || ?", (number, f"-{number}"))
        db.execute("UPDATE session SET json = json_set(json, '$.id', id)")
        db.execute("UPDATE request SET session_id = session_id || ?", (f"-{number}",))
        db.commit()
        db.close()
        found.append(place)
    return found


if __name__ == "__main__":
    main()

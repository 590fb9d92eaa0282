"""kill -9 at random moments: every acknowledged request is there, none twice."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from specmeter.store import RunStore

WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from conftest import request_record
from specmeter.store import RunStore
folder, plan = Path(sys.argv[1]), [(0, block, "a", f"p{i}") for block in range(100) for i in range(100)]
if RunStore.exists(folder):
    store = RunStore.open(folder)
else:
    store = RunStore.create(folder, experiment_yaml="x", experiment_json="{}", plan=plan)
print("open", flush=True)
for key in store.missing():
    store.add_request(request_record(key))
    print(key[1] * 100 + int(key[3][1:]), flush=True)
"""


def test_a_killed_writer_loses_and_doubles_nothing(tmp_path: Path, times: int):
    folder = tmp_path / "run"
    rng = random.Random(7)
    acknowledged: list[int] = []
    command = [sys.executable, "-c", WRITER, str(folder), str(Path(__file__).parent)]
    for _ in range(10 * times):
        lines: list[str] = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            if rng.random() < 0.8:
                lines = [writer.stdout.readline() for _ in range(rng.randint(1, 12))]  # a busy machine takes its time
            else:
                time.sleep(rng.uniform(0.2, 0.8))
            writer.kill()
            lines += writer.stdout.read().splitlines(keepends=True)
        acknowledged += [int(line) for line in lines if line.endswith("\n") and line != "open\n"]
    assert len(acknowledged) == len(set(acknowledged)) > 20
    with RunStore.open(folder) as store:
        store.check()
        stored = [key.block * 100 + int(key.prompt_id[1:]) for key in (row.key for row in store.rows(superseded=True))]
        assert len(stored) == len(set(stored))
        assert set(acknowledged) <= set(stored)
        # One request per kill may be stored whose acknowledgement did not come through.
        assert len(stored) - len(acknowledged) <= 10 * times
        assert len(list(store.requests())) == len(stored)

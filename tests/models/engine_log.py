"""What the embedded engine logs while it loads models, for tests that hold specmeter's reading against it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

_LOAD = """
import sys, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.port, p.n_ctx, p.n_parallel, p.verbosity = sys.argv[1], 0, 1024, 1, 4
p.fit_params, p.ui, p.warmup, p.n_gpu_layers, p.cpuparams.n_threads = False, False, False, 0, 1
if len(sys.argv) > 2:
    p.speculative.draft.mparams.path = sys.argv[2]
    p.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
server = xllamacpp.Server(p)
print("READY", flush=True)
sys.stdin.read()
"""


def loading_log(folder: Path, *models: Path) -> str:
    """The log of loading a target, or a target and a draft, with a context of 1024 tokens."""
    log = folder / "engine.log"
    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, "-c", _LOAD, *map(str, models)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        ) as child,
    ):
        try:
            assert child.stdout
            assert b"READY" in child.stdout.readline(), log.read_text(errors="replace")
            deadline = time.monotonic() + 30  # the log is written by a thread of its own
            while "all slots are idle" not in log.read_text(errors="replace") and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            child.kill()  # an orderly end can hang when it comes this early
    return log.read_text(errors="replace")

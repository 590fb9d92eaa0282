"""How fast bench models are made, what limits it, and how much memory it takes.

    uv run python benchmarks/inflate.py [--size 2GiB] [--folder DIR]

Every build runs in a process of its own, into an empty cache that is removed afterwards. Three figures per model: bytes
made and thrown away (the generator alone), bytes made and written, and bytes written with `fsync` (the disk alone).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_MODELS = ("dense?quant=Q8_0", "dense?quant=F16", "dense?quant=Q4_0", "moe?quant=Q8_0", "moe?quant=Q4_0")

_CHILD = """
import io, json, sys, time
from specmeter.models import bench, inflate, tensors

class Sink(io.RawIOBase):
    def write(self, data): return memoryview(data).nbytes

def peak_bytes():
    import psutil
    if sys.platform == "win32": return psutil.Process().memory_info().peak_wset
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

spec = bench.parse(sys.argv[1])
core = inflate.CoreFile.read(bench.shipped()[spec.core].path)
recipe = inflate.fit(core, spec.quant, spec.size_bytes)
start = time.perf_counter()
tensors.write_gguf(Sink(), inflate.metadata(core, recipe, "0" * 64), inflate.inflated(core, recipe))
made = time.perf_counter() - start
cpu, start = time.process_time(), time.perf_counter()
path = bench.build(spec)
built = time.perf_counter() - start
print(json.dumps({"size": path.stat().st_size, "made_s": made, "built_s": built, "cpu_s": time.process_time() - cpu,
                  "peak_bytes": peak_bytes()}))
"""


def _build(reference: str, cache: Path) -> dict[str, Any]:
    environment = {**os.environ, "SPECMETER_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, reference], env=environment, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def _disk(folder: Path, size: int) -> float:
    """Bytes per second of plain writing with `fsync` at the end."""
    block = os.urandom(8 << 20)
    start = time.perf_counter()
    with (folder / "plain").open("wb") as file:
        for _ in range(size // len(block)):
            file.write(block)
        os.fsync(file.fileno())
    seconds = time.perf_counter() - start
    (folder / "plain").unlink()
    return size // len(block) * len(block) / seconds


def main() -> None:
    """Measures and prints one line per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="2GiB")
    parser.add_argument("--folder", type=Path, help="where to build (default: the system's temporary folder)")
    arguments = parser.parse_args()
    print(
        f"{'model':20} {'MB':>7} {'made MB/s':>10} {'built MB/s':>11} {'CPU s/GB':>9} {'disk MB/s':>10} {'peak MB':>8}"
    )
    for model in _MODELS:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            found = _build(f"bench:{model}&size={arguments.size}", Path(folder))
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            disk = _disk(Path(folder), found["size"])
        megabytes = found["size"] / 1e6
        print(
            f"{model:20} {megabytes:7.0f} {megabytes / found['made_s']:10.0f} {megabytes / found['built_s']:11.0f} "
            f"{found['cpu_s'] / megabytes * 1e3:9.2f} {disk / 1e6:10.0f} {found['peak_bytes'] / 1e6:8.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

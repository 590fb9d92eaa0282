"""How fast engine logs are read: a log of 400 KB as a user meets it, and a large one in a bounded process.

    python benchmarks/audit_speed.py [--megabytes 1000]

The small log is one run of llama-speculative with 819 refused batches (tests/data/audit), timed in a fresh process
from import to claims. The large one repeats a server's log of requests with traced steps and a share of noise.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

CHILD = """\
import resource, sys, time
start = time.perf_counter()
from pathlib import Path
{work}
seconds = time.perf_counter() - start
print(count, seconds, time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * {unit})
"""
CLAIMS = """\
from specmeter.audit.reading import importer
count = sum(1 for _ in importer("{name}").read(Path(sys.argv[1])))
"""
SIGNS = """\
from specmeter.engines.llama_cpp.log_signs import scan
from specmeter.engines.log_lines import log_lines
count = scan(log_lines(Path(sys.argv[1]))).lines
"""
LINES = """\
from specmeter.engines.log_lines import log_lines
count = sum(1 for _ in log_lines(Path(sys.argv[1])))
"""


def timed(work: str, path: Path) -> tuple[int, float, float, float]:
    """(count, seconds, processor seconds with the start of Python, peak bytes) of a fresh process."""
    unit = 1 if sys.platform == "darwin" else 1024
    program = CHILD.format(work=work, unit=unit)
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    count, seconds, processor, peak = done.stdout.split()
    return int(count), float(seconds), float(processor), float(peak)


def large_log(path: Path, megabytes: int) -> None:
    """Requests of a server, 30 traced steps each, with what else a server prints."""
    task = 0
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < megabytes * 1_000_000:
            lines: list[str] = []
            for _ in range(200):
                task += 1
                slot = f"0.10.{task % 1000:03}.123 I slot   operator(): id  {task % 4} | task {task} | "
                lines.append(f"{slot}processing task, is_child = 0")
                lines += [f"{slot}accepted  {step % 5}/ 4 draft tokens" for step in range(30)]
                lines += ["0.10.001.124 D que    start_loop: waiting for new tasks, and more of the same"] * 20
                lines.append(
                    f"{slot}prompt eval time =      15.61 ms /    34 tokens (    0.46 ms per token,  2178.09 )"
                )
                lines.append(
                    f"{slot}       eval time =     112.19 ms /    48 tokens (    2.39 ms per token,   418.93 )"
                )
                lines.append(f"{slot}draft acceptance = 0.50000 (   60 accepted /   120 generated), mean len =  3.00")
                lines.append(f"{slot}stop processing: n_tokens = 81, truncated = 0")
            file.write("\n".join(lines) + "\n")


def report(what: str, path: Path, work: str) -> None:
    count, seconds, processor, peak = timed(work, path)
    size = path.stat().st_size / 1e6
    times = f"{seconds:8.2f} {processor:8.2f} s {size / processor:7.1f} MB/s"
    print(f"{what:34} {size:7.1f} MB {times} {peak / 1e6:5.0f} MB {count:>11,}")


def main() -> None:
    """Print one line per measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200, help="size of the large log")
    arguments = parser.parse_args()
    from refused_batches import excerpt

    print(f"{'':34} {'size':>10} {'wall':>8} {'CPU':>10} {'per CPU s':>12} {'peak':>8} {'count':>11}")
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.log", Path(folder) / "large.log"
        small.write_text(excerpt("apple_9b"), encoding="utf-8")
        report("400 KB: lines, import included", small, LINES)
        report("400 KB: signs, import included", small, SIGNS)
        report(
            "400 KB: claims, import included",
            small,
            CLAIMS.format(name="llama-speculative"),
        )
        start = time.perf_counter()
        large_log(large, arguments.megabytes)
        print(f"(large log written in {time.perf_counter() - start:.0f} s)")
        report("large: lines", large, LINES)
        report("large: signs", large, SIGNS)
        report("large: claims", large, CLAIMS.format(name="llama-server"))
    print(f"own peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()

"""What a user waits for: how long each command on a demo takes, and what an installation takes on the disk.

    uv run python benchmarks/commands.py [--run FOLDER] [--times 7]        `--run`: a demo at hand
    uv run python benchmarks/commands.py --install                         into an environment of its own

Each command is a process of its own; after one start that is not counted the median counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from large_run import watched

ROOT = Path(__file__).resolve().parent.parent
TABLE = "model,gamma,tok/s,baseline tok/s,speedup,acceptance\n" + "MoE Q4,16,69.7,55.3,1.26,0.2%\n" * 20
MEASURING = ("gguf", "xllamacpp", "huggingface-hub", "hf-xet", "nvidia-ml-py")
"""Packages that auditing, showing and reporting need nothing of."""


def print_times(run: Path, times: int, scratch: Path) -> None:
    (scratch / "table.csv").write_text(TABLE, encoding="utf-8")
    page = str(scratch / "report.html")
    for name, *arguments in (
        ("--help", "--help"),
        ("show", "show", str(run)),
        ("check", "check", str(run)),
        ("explain", "explain", str(run)),
        ("report", "report", str(run), "--out", page),
        ("audit", "audit", "table.csv"),
    ):
        found = [watched(scratch, *arguments, codes=(0, 1, 4)) for _ in range(times + 1)][1:]
        seconds = [took for took, _ in found]
        print(
            f"{name:8} {statistics.median(seconds) * 1000:7.0f} ms (from {min(seconds) * 1000:.0f}), "
            f"peak {max(peak for _, peak in found) / 1e6:.0f} MB",
            flush=True,
        )


def print_sizes(scratch: Path) -> None:
    """On the disk, compiled modules included, as `du` counts them."""
    python = scratch / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, str(scratch / "env")], check=True)
    install = ["uv", "pip", "install", "--quiet", "--compile-bytecode", "--link-mode", "copy", "--python", str(python)]
    subprocess.run([*install, str(ROOT)], check=True, cwd=ROOT)
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip())
    print(f"installed {told(packages):.0f} MB")
    subprocess.run(["uv", "pip", "uninstall", "--quiet", "--python", str(python), *MEASURING], check=True)
    (scratch / "table.csv").write_text(TABLE, encoding="utf-8")
    audit = subprocess.run(
        [str(python), "-m", "specmeter", "audit", "table.csv"], cwd=scratch, check=False, stdout=subprocess.DEVNULL
    )
    if audit.returncode not in (0, 1, 4):
        raise SystemExit("without them, nothing is audited")
    print(f"for audit, show and report alone {told(packages):.0f} MB")


def told(packages: Path) -> float:
    """MB of all, the largest by name."""
    sizes = Counter[str]()
    for path in packages.rglob("*"):
        if path.is_file() and not path.is_symlink():
            sizes[path.relative_to(packages).parts[0].removesuffix(".libs")] += -(-path.stat().st_size // 4096) * 4096
    print(", ".join(f"{name} {size / 1e6:.0f}" for name, size in sizes.most_common(10)))
    return sizes.total() / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a run folder, of the demo")
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--install", action="store_true", help="what an installation takes, instead")
    args = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # with it every start compiles all that it imports
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        if args.install:
            print_sizes(scratch)
            return
        if args.run is None:
            watched(scratch, "run", "demo", "--out", "demo", codes=(0, 1))
        print_times((args.run or scratch / "demo").resolve(), args.times, scratch)


if __name__ == "__main__":
    main()

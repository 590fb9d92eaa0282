"""What a user waits for: how long each command on a demo takes, and what an installation takes on the disk.

    uv run python benchmarks/commands.py [--run FOLDER] [--times 7]        `--run`: a demo at hand
    uv run python benchmarks/commands.py --install                         into environments of their own
    uv run python benchmarks/commands.py --first [--demo]                  the README's first command, in an empty home

Each command is a process of its own; after one start that is not counted the median counts.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from large_run import watched

ROOT = Path(__file__).resolve().parent.parent
TABLE = "model,gamma,tok/s,baseline tok/s,speedup,acceptance\n" + "MoE Q4,16,69.7,55.3,1.26,0.2%\n" * 20
READING = ("click", "jinja2", "numpy", "psutil", "pydantic", "pyyaml", "rich")
"""What audit, show, check and report need, as docs/how-to/audit.md says."""
FIRST = re.compile(r"^pip install uv && (uv run .*)$", re.MULTILINE)


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
    whole = _installed(scratch / "whole", [str(ROOT)])
    print(f"installed {told(whole):.0f} MB")
    light = _installed(scratch / "light", ["--no-deps", str(ROOT)], list(READING))
    print(f"for audit, show and report alone {told(light):.0f} MB")


def _installed(env: Path, *packages: list[str]) -> Path:
    """The folder of packages of a new environment in which a table can be audited."""
    python = env / ("Scripts" if os.name == "nt" else "bin") / "python"
    subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, str(env)], check=True)
    for asked in packages:
        install = ["uv", "pip", "install", "--quiet", "--compile-bytecode", "--link-mode", "copy"]
        subprocess.run([*install, "--python", str(python), *asked], check=True, cwd=ROOT)
    (env / "table.csv").write_text(TABLE, encoding="utf-8")
    audit = [str(python), "-m", "specmeter", "audit", "table.csv"]
    if subprocess.run(audit, cwd=env, check=False, stdout=subprocess.DEVNULL).returncode not in (0, 1, 4):
        raise SystemExit("nothing can be audited there")
    return _packages(env)


def _packages(env: Path) -> Path:
    return next(env.rglob("site-packages"))


def print_first(scratch: Path, *, demo: bool) -> None:
    """A clone, the README's first command, and nothing else: no settings, no cache, nothing downloaded before. Without
    `demo` it ends when specmeter is installed."""
    clone, home = scratch / "clone", scratch / "home"
    home.mkdir()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    found = FIRST.search((clone / "README.md").read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit("README.md has no first command")
    own = {name: it for name, it in os.environ.items() if not name.startswith(("UV_", "VIRTUAL_ENV", "SPECMETER_"))}
    own |= {"HOME": str(home), "USERPROFILE": str(home), "UV_CACHE_DIR": str(home / "uv")}
    command = found[1] if demo else found[1].replace(" run demo", " --version")
    started = time.perf_counter()
    subprocess.run(shlex.split(command), check=True, cwd=clone, env=own)
    seconds = time.perf_counter() - started
    packages = _packages(clone / ".venv")
    count = len(list(packages.glob("*.dist-info")))
    print(
        f"first command: {count} packages, {told(packages):.0f} MB, {seconds:.0f} s{' with the demo' if demo else ''}"
    )


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
    parser.add_argument("--first", action="store_true", help="what the README's first command takes, instead")
    parser.add_argument("--demo", action="store_true", help="with --first: to the end of the demo")
    args = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # with it every start compiles all that it imports
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        if args.install or args.first:
            print_sizes(scratch) if args.install else print_first(scratch, demo=args.demo)
            return
        if args.run is None:
            watched(scratch, "run", "demo", "--out", "demo", codes=(0, 1))
        print_times((args.run or scratch / "demo").resolve(), args.times, scratch)


if __name__ == "__main__":
    main()

"""How often `specmeter gate` errs: gates of equal builds, gates with a planted loss, and a simulation from their noise.

    uv run python benchmarks/gate.py --gates 5 [--loss 5] [--keep gates.jsonl] [-- OPTIONS OF specmeter gate]
    uv run python benchmarks/gate.py --simulate 4000 [--keep gates.jsonl]

--gates N measures N gates of the installed wheel against itself and N against a copy that a helper stops for the given
share of the time (SIGSTOP, so not on Windows). Every gate is a line of --keep; what is there counts as well.
--simulate draws gates from the ratios of blocks in that file, each around its gate's mean: of every loss how many fail,
pass and cannot tell, and after how many blocks. With --noise it draws normal noise of these standard deviations.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median, stdev
from typing import Any

import numpy as np

from specmeter.gate.ruling import LOOKS, ratio_of, ruled

PLANTED = """
def _stop_now_and_then(share, period=0.02):
    import os, subprocess, sys
    if "--identify" in sys.argv:
        return
    code = '''
import os, signal, sys, time
pid, share, period = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
begun, stopped = time.monotonic(), 0.0
try:
    while os.getppid() == pid:
        time.sleep(period)
        missing = share * (time.monotonic() - begun) - stopped
        if missing > 0.0005:
            os.kill(pid, signal.SIGSTOP)
            at = time.monotonic()
            time.sleep(min(missing, 0.1))
            os.kill(pid, signal.SIGCONT)
            stopped += time.monotonic() - at
finally:
    os.kill(pid, signal.SIGCONT)
'''
    subprocess.Popen([sys.executable, "-I", "-c", code, str(os.getpid()), str(share), str(period)])


_stop_now_and_then({share})
"""
"""What a slower copy of the wheel runs when it is imported: all that it does takes 1 / (1 - share) of its time."""
EQUAL = "equal"


def builds(folder: Path, loss: float) -> tuple[Path, Path]:
    """(the installed wheel, its slower copy)."""
    spec = find_spec("xllamacpp")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    found: list[Path] = []
    for name in ("wheel", "slower"):
        shutil.copytree(package, folder / name / "xllamacpp")
        libraries = package.with_name("xllamacpp.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, folder / name / libraries.name)
        found.append(folder / name)
    with (found[1] / "xllamacpp" / "__init__.py").open("a", encoding="utf-8") as file:
        file.write(PLANTED.format(share=loss))
    return found[0], found[1]


def measured(base: Path, head: Path, folder: Path, options: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "specmeter", "gate", "--base", str(base), "--head", str(head)]
    began = time.monotonic()
    done = subprocess.run(
        [*command, "--quiet", "--json", "--new", *options], cwd=folder, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode not in (0, 1, 4):
        raise SystemExit(f"the gate ended with {done.returncode}")
    return {**json.loads(done.stdout), "exit_code": done.returncode, "wall_s": time.monotonic() - began}


def read(keep: Path | None) -> list[dict[str, Any]]:
    if keep is None or not keep.exists():
        return []
    return [json.loads(line) for line in keep.read_text(encoding="utf-8").splitlines()]


def tell(gates: Sequence[dict[str, Any]]) -> None:
    """What was measured: rulings, time, blocks, and the noise of a block."""
    for planted in dict.fromkeys(gate["planted"] for gate in gates):
        mine = [gate for gate in gates if gate["planted"] == planted]
        count = Counter(gate["ruling"] for gate in mine)
        whole = len(mine)
        said = ", ".join(f"{name} {count[name]}" for name in ("pass", "fail", "cannot tell"))
        longest = max(gate["wall_s"] for gate in mine) / 60
        print(f"{planted}: {whole} gates: {said}; longest {longest:.1f} min; blocks {[it['blocks'] for it in mine]}")
        if planted == EQUAL:
            print(f"  false alarms {count['fail'] / whole:.3f}")
        else:
            print(f"  found {count['fail'] / whole:.3f}")
        because = Counter(gate["because"] for gate in mine if gate["ruling"] == "cannot tell")
        if because:
            print(f"  could not tell because of: {dict(because)}")
    by_arm: dict[str, list[float]] = {}
    for gate in gates:
        for row in gate["rows"]:
            if len(row["ratios"]) > 2:
                by_arm.setdefault(row["arm_id"], []).append(stdev(map(math.log, row["ratios"])))
    for arm, sds in by_arm.items():
        print(f"  {arm}: standard deviation of a block's ratio, median {median(sds):.3f}, largest {max(sds):.3f}")


def residuals(gates: Sequence[dict[str, Any]]) -> np.ndarray:
    """Ratios of blocks (blocks x configurations) as logarithms around their gate's mean, spread as if that were
    known."""
    found: list[np.ndarray] = []
    for gate in gates:
        logs = np.log(np.array([row["ratios"] for row in gate["rows"]], dtype=np.float64).T)
        n = len(logs)
        if n > 2:
            found.append((logs - logs.mean(axis=0)) * math.sqrt(n / (n - 1)))
    if not found:
        raise SystemExit("--keep has no gates with three blocks or more")
    return np.concatenate(found)


Draw = Callable[[np.random.Generator, int], np.ndarray]


def simulated(draw: Draw, rate: float, tolerance: float, count: int, most: int, rng: np.random.Generator) -> str:
    """How gates of a head with this rate end: the rule itself, block by block."""
    rulings, blocks = Counter[str](), list[int]()
    looks = [it for it in LOOKS if it <= most] or [most]
    for _ in range(count):
        ratios = rate * np.exp(draw(rng, max(looks)))
        for blocks_now in looks:
            each = [ruled(ratio_of(column.tolist(), ratios.shape[1]), tolerance) for column in ratios[:blocks_now].T]
            ruling = "fail" if "fail" in each else "pass" if set(each) == {"pass"} else "cannot tell"
            if ruling != "cannot tell":
                break
        rulings[ruling] += 1
        blocks.append(blocks_now)
    shares = ", ".join(f"{it} {rulings[it] / count:.4f}" for it in ("pass", "fail", "cannot tell"))
    return f"rate {rate:.3f}, tolerance {tolerance:.0%}: {shares}; blocks {np.mean(blocks):.1f} on average"


def needed(sd: float, loss: float, count: int, rng: np.random.Generator) -> int | None:
    """Blocks with which 90% of gates find a loss, with a tolerance of three fifths of it, and 90% of gates of equal
    builds pass; two configurations, normal noise. None if the most blocks of a gate are too few."""
    for blocks in LOOKS:
        ends = [
            simulated(lambda rng, n: rng.normal(0, sd, (n, 2)), rate, 0.6 * loss, count, blocks, rng)
            for rate in (1 - loss, 1.0)
        ]
        found, passed = (
            float(end.split(f"{word} ")[1].split(",")[0].split(";")[0])
            for end, word in zip(ends, ("fail", "pass"), strict=True)
        )
        if found >= 0.9 and passed >= 0.9:
            return blocks
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gates", type=int, default=0)
    parser.add_argument("--loss", type=float, default=5.0, help="percent")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--simulate", type=int, default=0)
    parser.add_argument("--noise", default="", help="percent, such as 1,2,3,5")
    parser.add_argument("options", nargs="*")
    args = parser.parse_args()
    gates = read(args.keep)
    with tempfile.TemporaryDirectory(prefix="specmeter-gate-") as name:
        folder = Path(name)
        base, slower = builds(folder, args.loss / 100) if args.gates else (folder, folder)
        for number in range(args.gates):
            for head, planted in ((base, EQUAL), (slower, f"{args.loss:g}% loss")):
                gates.append({"planted": planted, **measured(base, head, folder, args.options)})
                if args.keep is not None:
                    with args.keep.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(gates[-1]) + "\n")
                print(f"{number + 1} of {args.gates}, {planted}: {gates[-1]['ruling']}", flush=True)
    if gates:
        tell(gates)
    rng = np.random.default_rng(1)
    if args.simulate and not args.noise:
        rest = residuals(gates)
        print(f"{args.simulate} gates each, drawn from {len(rest)} measured blocks")
        for rate in (1.0, 0.99, 0.985, 0.97, 0.95, 0.9):
            drawn = simulated(
                lambda rng, n: rest[rng.integers(len(rest), size=n)], rate, 0.03, args.simulate, LOOKS[-1], rng
            )
            print(f"  {drawn}")
    for noise in args.noise.split(",") if args.noise else ():
        told = []
        for loss in (0.02, 0.05, 0.1):
            blocks = needed(float(noise) / 100, loss, args.simulate or 500, rng)
            told.append(f"{loss:.0%}: {blocks or f'more than {LOOKS[-1]}'}")
        print(f"block noise {noise}%: blocks to find a loss of " + ", ".join(told), flush=True)


if __name__ == "__main__":
    main()

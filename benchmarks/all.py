"""All claims of speed and accuracy, with goals and comparisons, in one table: benchmarks/RESULTS.md.

    uv run python benchmarks/all.py                      list what was measured and what was not
    uv run python benchmarks/all.py --only NAME ...      measure these, and rewrite the page
    uv run python benchmarks/all.py --within MINUTES     measure what fits, oldest first

`claims.toml` has the claims: a script, its options, and where in its output the figure is. `results.jsonl` has the
results, one line each with date and machine; all are kept. Rows of one script come from one run of it. Measure on an
idle machine: a row says so if other programs used a tenth of a core.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specmeter.host.machine import read_host
from specmeter.host.programs import OtherPrograms

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.jsonl"
PAGE = HERE / "RESULTS.md"
HEAD = """# Results

All claims of speed and accuracy, with their goals. `uv run python benchmarks/all.py --only NAME` measures a row again
and rewrites this page. [NOTEBOOK.md](NOTEBOOK.md) says what the figures mean, and what was tried.
"""
OF: dict[str, Callable[[Sequence[float]], float]] = {
    "first": lambda found: found[0],
    "least": min,
    "most": max,
    "sum": sum,
}


def reaches(value: float, goal: str) -> bool:
    """Whether a figure is as it is wanted."""
    low, to, high = goal.partition(" to ")
    if to:
        return float(low) <= value <= float(high)
    sign, limit = goal.split()
    return value <= float(limit) if sign == "<=" else value >= float(limit)


def output_of(commands: str | list[str], folder: Path) -> str:
    """What the scripts print, shown as they print it; they end with 0 or, where something is amiss, with 1."""
    printed: list[str] = []
    for command in [commands] if isinstance(commands, str) else commands:
        name, *options = shlex.split(command.replace("{folder}", str(folder)))
        start = ["-m", name] if name in ("specmeter", "pytest") else [str(HERE / name)]
        child = subprocess.Popen(
            [sys.executable, "-u", *start, *options], cwd=HERE.parent, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for line in child.stdout:
            print("    " + line, end="", flush=True)
            printed.append(line)
        if child.wait() not in (0, 1):
            raise SystemExit(f"{command} ended with {child.returncode}")
    return "".join(printed)


def figures(claim: dict[str, Any], output: str) -> dict[str, float]:
    """The figure of a claim and, if it is measured too, that of the program it is compared with."""
    values = [float(it) for it in re.findall(claim["found"], output)]
    if not values or (len(values) > 1 and "of" not in claim):
        raise SystemExit(f"{claim['name']}: {claim['found']!r} is {len(values)} times in the output")
    found = {"value": OF[claim.get("of", "first")](values)}
    if "peer_found" in claim:
        found["peer"] = float(re.findall(claim["peer_found"], output)[0])
    return found


def machine() -> str:
    host = read_host(load_sample_s=0)
    graphics = f", {host.gpus[0].name}" if host.gpus else ""
    return f"{host.cpu}, {host.usable_cores:g} cores, {host.memory_bytes / 1e9:.0f} GB{graphics}, {host.os}"


def measure(measurement: dict[str, Any], claims: Sequence[dict[str, Any]]) -> None:
    """Run it, and add the figures of these claims to the results."""
    folder = Path(tempfile.gettempdir()) / "specmeter-benchmarks" / claims[0]["name"]
    folder.parent.mkdir(exist_ok=True)
    others = OtherPrograms()
    others.taken()
    output = output_of(measurement["run"], folder)
    busy = others.taken()
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    where = {"at": at, "machine": machine(), "busy": busy}
    rows = [{"name": claim["name"]} | figures(claim, output) | where for claim in claims]
    with RESULTS.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def row_of(measurement: dict[str, Any], claim: dict[str, Any], results: list[dict[str, Any]], places: list[str]) -> str:
    """A line of the table."""
    goal, peer = claim.get("goal", ""), claim.get("peer", measurement.get("peer", ""))
    name, what = f"`{claim['name']}`", claim["what"]
    if not results:
        minutes = measurement["minutes"]
        return f"| {name} | {what} | not measured ({minutes} min) | {goal} | {peer} | |"
    last = results[-1]
    reached = "" if not goal else ", reached" if reaches(last["value"], goal) else ", **missed**"
    busy = ", with other programs running" if last["busy"] else ""
    before = "; ".join(f"{it['value']:g} on {it['at'][:10]}" for it in results[-2:-5:-1])
    if "peer" in last:
        peer = f"{peer}: {last['peer']:g}"
    when = f"{last['at'][:10]} [{places.index(last['machine']) + 1}]{busy}" + (f"; before: {before}" if before else "")
    return f"| {name} | {what} | {last['value']:g}{reached} | {goal} | {peer} | {when} |"


def page(measurements: Sequence[dict[str, Any]], results: Sequence[dict[str, Any]]) -> str:
    names = [claim["name"] for it in measurements for claim in it["claim"]]
    known = [it for it in results if it["name"] in names]
    places = list(dict.fromkeys(it["machine"] for it in known))
    lines = [HEAD.rstrip()]
    for measurement in measurements:
        if "title" in measurement:
            lines += [f"\n## {measurement['title']}\n"]
            lines += ["| name | what | measured | goal | compared with | when, where |", "|---|---|---|---|---|---|"]
        for claim in measurement["claim"]:
            own = [it for it in known if it["name"] == claim["name"]]
            lines.append(row_of(measurement, claim, own, places))
    measured = {it["name"]: it["value"] for it in known}
    goals = {claim["name"]: claim["goal"] for it in measurements for claim in it["claim"] if "goal" in claim}
    held = [reaches(value, goals[name]) for name, value in measured.items() if name in goals]
    lines.append(f"\n{len(measured)} of {len(names)} rows were measured; {sum(held)} of {len(held)} goals are reached.")
    lines += [f"\n[{number}] {place}" for number, place in enumerate(places, start=1)]
    return "\n".join(lines) + "\n"


def main() -> None:
    measurements: list[dict[str, Any]] = tomllib.loads((HERE / "claims.toml").read_text("utf-8"))["measurement"]
    names = [claim["name"] for it in measurements for claim in it["claim"]]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--within", type=float, metavar="MINUTES", help="all that takes no longer, together")
    args = parser.parse_args()

    def results() -> list[dict[str, Any]]:
        return [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()] if RESULTS.is_file() else []

    latest = {it["name"]: it["at"] for it in results()}
    left: float = args.within or 0.0
    for measurement in sorted(measurements, key=lambda it: min(latest.get(one["name"], "") for one in it["claim"])):
        if args.only:
            claims = [it for it in measurement["claim"] if it["name"] in args.only]
        else:
            claims = measurement["claim"] if measurement["minutes"] <= left else []
            left -= measurement["minutes"] if claims else 0
        if claims:
            print(measurement["run"], flush=True)
            try:
                measure(measurement, claims)
            except SystemExit as failed:  # the others can be measured all the same
                print(failed, file=sys.stderr)
            PAGE.write_text(page(measurements, results()), encoding="utf-8")
    PAGE.write_text(page(measurements, results()), encoding="utf-8")
    print(PAGE.read_text("utf-8"))


if __name__ == "__main__":
    main()

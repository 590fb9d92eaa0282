"""What differs between servers of one configuration, beside what differs between their requests.

    uv run python benchmarks/servers_differ.py [--target dense-100m] [--servers 8] [--rounds 8] [--threads 1]

Servers of plain decoding are started and kept, and asked for the same text in turn. Printed are standard deviations of
the logarithm: of a request within its server, of the servers' means, and of what servers alone contribute (the
variance of the means without what requests bring into it). CPU time (Linux) is hardly moved by other programs; wall
time is.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path
from statistics import fmean, stdev, variance

import psutil

from specmeter import workloads
from specmeter.engines import EngineSession, Launch, load_engine
from specmeter.experiments.file import load
from specmeter.models.reference import resolve

TOKENS = 48
CHARACTERS = 60


def cpu_ms(session: EngineSession) -> float:
    """What the threads of a server have run for."""
    seen = 0.0
    for pid in session.facts.pids:
        for thread in psutil.Process(pid).threads():
            told = Path(f"/proc/{pid}/task/{thread.id}/schedstat")
            seen += int(told.read_text().split()[0]) / 1e6
    return seen


def told(name: str, rows: list[list[float]]) -> None:
    servers, rounds = len(rows), len(rows[0])
    middle = [fmean(row[number] for row in rows) for number in range(rounds)]
    apart = [[value - middle[number] for number, value in enumerate(row)] for row in rows]
    within = math.sqrt(fmean(variance(row) for row in apart) * servers / (servers - 1))
    means = [fmean(row) for row in apart]
    alone = math.sqrt(max(0.0, variance(means) - within**2 / rounds))
    print(f"{name}: a request {within:.1%}, means of servers {stdev(means):.1%}, servers alone {alone:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="dense-100m")
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    reference = f"bench:{args.target}"
    model = resolve("target", reference, base_dir=Path.cwd())
    plain = {"target": reference, "arms": [{"method": "none"}], "engine": {"threads": args.threads}}
    experiment = load(plain).experiment
    (arm,) = experiment.expand()
    prompt = workloads.load(experiment.workloads, base_dir=Path.cwd())[0]
    prompt = prompt.model_copy(update={"text": prompt.text[:CHARACTERS]})
    generation = experiment.generation.model_copy(update={"max_tokens": TOKENS})
    engine, cpu, wall = load_engine("embedded"), list[list[float]](), list[list[float]]()
    with tempfile.TemporaryDirectory() as folder:
        sessions = [engine.start(Launch(arm, model, None, Path(folder) / f"{it}.log")) for it in range(args.servers)]
        try:
            for number in range(args.rounds + 1):  # the first warms up
                before = [cpu_ms(it) for it in sessions]
                replies = [it.generate(prompt, generation) for it in sessions]
                if number:
                    cpu.append([math.log(cpu_ms(it) - was) for it, was in zip(sessions, before, strict=True)])
                    wall.append([math.log(it.timings.predicted_ms) for it in replies])
        finally:
            for session in sessions:
                session.close()
    told("CPU time", [list(row) for row in zip(*cpu, strict=True)])
    told("wall time", [list(row) for row in zip(*wall, strict=True)])


if __name__ == "__main__":
    main()

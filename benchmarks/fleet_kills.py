"""Kills by seed in a fleet: a Ray cluster of three nodes as processes, of which workers, nodes, runs and the head die.

    uv run python benchmarks/fleet_kills.py --kills 100 --seed 1

Prints how often which kind of victim was killed, and at the end: requests lost, doubled, and processes left over.
Needs Ray (`pip install 'specmeter[fleet]'`) and Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}

EXPERIMENT = """
name: kills
targets: {dense: "bench:dense"}
drafts: {small: "bench:draft-small"}
arms: [{method: draft-simple, draft: small, gamma: 4}]
workloads: [{source: bench, kinds: [code], per_kind: 2}]
design: {blocks: 4, invocations: 6, warmup: short, probe: "off", disturbed: keep}
engine: {kind: embedded, context: 1024, threads: 1}
generation: {max_tokens: 32}
"""
PLANNED = 6 * 4 * 2 * 2
NODES = ("n0", "n1", "n2")
VICTIMS = ("worker", "worker", "run", "node", "head")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=100)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--most-s", type=float, default=540.0, help="Stop after so many seconds, at the end of a run.")
    asked = options.parse_args()
    rng, killed, until = random.Random(asked.seed), Counter[str](), time.monotonic() + asked.most_s
    found: Counter[str] = Counter()
    while sum(killed.values()) < asked.kills and time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="kills-") as name:
            killed += one_run(Path(name), rng, min(20, asked.kills - sum(killed.values())), found)
        print(json.dumps({"killed": dict(killed), **found}), flush=True)


def one_run(folder: Path, rng: random.Random, kills: int, found: Counter[str]) -> Counter[str]:
    """One fleet run to its end, with kills on the way."""
    from ray.cluster_utils import Cluster

    (folder / "kills.yaml").write_text(EXPERIMENT, encoding="utf-8")
    devices = ", ".join(f"{{name: {name}}}" for name in NODES)
    (folder / "fleet.yaml").write_text(f"devices: [{devices}]\n", encoding="utf-8")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    nodes = {name: cluster.add_node(num_cpus=2, resources={f"specmeter-{name}": 1}) for name in NODES}
    env = {**os.environ, "RAY_ADDRESS": cluster.address}
    words = [sys.executable, "-m", "specmeter", "fleet", "run", "kills.yaml", "--on", "fleet.yaml", "--out", "out"]
    log = (folder / "head.log").open("ab")

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(words, cwd=folder, env=env, stdout=log, stderr=log)

    head, killed = start(), Counter[str]()
    try:
        while head.poll() is None:
            time.sleep(rng.uniform(1.0, 8.0))
            if sum(killed.values()) >= kills or head.poll() is not None:
                continue
            victim = rng.choice(VICTIMS)
            if victim == "head":
                head.kill()
                head.wait()
                head = start()
            elif victim == "node":
                name = rng.choice(NODES)
                cluster.remove_node(nodes[name], allow_graceful=False)
                nodes[name] = cluster.add_node(num_cpus=2, resources={f"specmeter-{name}": 1})
            elif (process := _measuring(victim, rng)) is None:
                continue
            else:
                process.send_signal(signal.SIGKILL)
            killed[victim] += 1
    finally:
        head.kill()
        cluster.shutdown()
    log.close()
    found["runs"] += 1
    found["unfinished"] += head.returncode not in (0, 1)
    if head.returncode not in (0, 1):
        print((folder / "head.log").read_text()[-3000:], flush=True)
    _count(folder / "out", found)
    time.sleep(6)
    left = [it for it in psutil.process_iter(["cmdline"]) if _is_a_part(it)]
    found["orphans"] += len(left)
    return killed


def _is_a_part(process: psutil.Process) -> bool:
    words = process.info["cmdline"] or ()
    return "--out" in words and any("/fleet/" in word and word.endswith("/asked.yaml") for word in words)


def _measuring(victim: str, rng: random.Random) -> psutil.Process | None:
    """A process of a run that is measured now, or the Ray worker that started it."""
    runs = [it for it in psutil.process_iter(["cmdline"]) if _is_a_part(it)]
    try:
        run = rng.choice(runs) if runs else None
        if run is None or victim == "run":
            return run
        guard = run.parent()
        return None if guard is None else guard.parent()
    except psutil.Error:
        return None


def _count(out: Path, found: Counter[str]) -> None:
    from specmeter.store import RunStore

    with RunStore.open(out, readonly=True) as store:
        rows = list(store.rows())
        done = store.done_keys()
        found["lost"] += PLANNED - len(done)
        found["doubled"] += len(rows) - len({it.key for it in rows})
        found["refused by the certificate"] += (store.certificate() or None) is None


if __name__ == "__main__":
    main()

"""Recorded sessions: does a replay take as long as the session took, and does advice on a part of it hold for all?

    uv run python benchmarks/sessions.py record --model FILE --out s.jsonl       an agent on a server, recorded
    uv run python benchmarks/sessions.py fidelity s.jsonl --model FILE         wanted: replay within 5 % of the record
    uv run python benchmarks/sessions.py advice s.jsonl --model FILE [--draft FILE] --budget 10m
                                                        wanted: within 3 % of the best of a replay of all calls
    uv run python benchmarks/sessions.py kills --kills 200                     wanted: no call lost, none torn

The server is the embedded one, started as a user would start llama-server, with one thread. Measure on a quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, web
from aiohttp.test_utils import unused_port

from specmeter.advise.advice import Advice, ArmOutcome, read_advice
from specmeter.analysis.reading import read_run
from specmeter.analysis.sessions import ArmSessions
from specmeter.engines.llama_cpp import child
from specmeter.experiments.described import of_sessions
from specmeter.record import PARAMETERS, Arm
from specmeter.recorder.proxy import HOST
from specmeter.workloads.sessions import read_sessions, session_path

AGENT = Path(__file__).parents[1] / "scripts" / "agent.py"
CONTEXT = 8192
SPECMETER = [sys.executable, "-m", "specmeter"]
OTHERS = 3
"""Configurations of an advice that are replayed next to the advised one."""


@contextmanager
def process(command: list[str], address: str, given: str = "") -> Iterator[subprocess.Popen[str]]:
    """A server that is ready, ended afterwards."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as found:
        assert found.stdin is not None
        found.stdin.write(given)
        found.stdin.close()
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"{address}/health", timeout=2).close()
                    break
                except (urllib.error.URLError, OSError):
                    time.sleep(0.1)
            yield found
        finally:
            found.terminate()


def recorder(to: str, port: int, out: Path) -> list[str]:
    return [*SPECMETER, "record", "--to", to, "--port", str(port), "--out", str(out)]


def record(model: str, out: Path, tasks: int | None) -> None:
    """Let the agent of `scripts/agent.py` work on the model, and record it."""
    behind, port = unused_port(), unused_port()
    threads = {"cpuparams.n_threads": 1, "cpuparams_batch.n_threads": 1}
    params = {
        "model.path": model,
        "n_ctx": CONTEXT,
        "n_parallel": 1,
        "hostnames": [HOST],
        "port": behind,
        **threads,
    }
    server, own = f"http://{HOST}:{behind}", f"http://{HOST}:{port}"
    with (
        process([sys.executable, "-P", child.__file__], server, json.dumps({**params, "use_jinja": True})),
        process(recorder(server, port, out), own),
    ):
        subprocess.run([sys.executable, str(AGENT), own, *([str(tasks)] if tasks else [])], check=True)
        time.sleep(0.5)


def context_of(model: str) -> list[str]:
    """Options for a context that a session fits into; bench models have one of their own."""
    return [] if model.startswith("bench:") else ["-c", str(CONTEXT)]


def replayed(folder: Path, model: str, session: str, *more: str) -> tuple[ArmSessions, ...]:
    """What a run of all calls says."""
    settings = ["--threads", "1", *context_of(model), "--set", "design.blocks=3", "--set", "design.disturbed=keep"]
    command = [*SPECMETER, "run", model, "--sessions", session, "--out", str(folder)]
    subprocess.run([*command, *settings, *more], check=False)
    return read_run(folder).sessions


def fidelity(model: str, session: str) -> None:
    """Time of the calls in a replay without speculation over that in the recording."""
    recorded = sum(it.wall_ms or 0 for it in read_sessions([Path(session)]).calls) / 1e3
    with tempfile.TemporaryDirectory() as folder:
        base = next(it for it in replayed(Path(folder) / "run", model, session) if it.baseline_id is None)
    took = base.parts.total
    print(f"{session}: recorded {recorded:.1f} s, replayed {took:.1f} s: {took / recorded - 1:+.1%}")


def advice(model: str, session: str, draft: str | None, budget: str, folder: Path, blocks: int) -> None:
    """The advised flags in a replay of all calls, next to the others that came close."""
    drafts = ["--draft", draft, "--no-find"] if draft else ["--no-find"]
    ask = [*SPECMETER, "advise", model, "--sessions", session, "--budget", budget]
    settings = ["--threads", "1", *context_of(model), "--out", str(folder / "advice")]
    subprocess.run([*ask, *drafts, *settings], check=False)
    told: Advice = read_advice(folder / "advice")
    print(f"advice took {told.seconds:.0f} s: {told.decision}, {told.best}, {told.speedup and told.speedup.point:.3f}x")
    close = [it.arm_id for it in sorted(told.outcomes, key=_expected, reverse=True) if it.code != "failed"][:OTHERS]
    wanted = dict.fromkeys([*([told.arm.id] if told.arm else []), *close])
    arms = [_keys(it) for name in wanted for it in told.arms if it.id == name]
    calls = read_sessions([session_path(session, Path())])
    experiment = {
        "name": "all-calls",
        "targets": {"m": model},
        **({"drafts": {"d": draft}} if draft else {}),
        **of_sessions([session], len(calls.calls)),
        "arms": arms,
        "design": {"blocks": blocks, "disturbed": "keep"},
    }
    experiment["engine"] |= {"threads": 1, **({"context": CONTEXT} if context_of(model) else {})}
    (folder / "all.yaml").write_text(json.dumps(experiment), encoding="utf-8")
    subprocess.run([*SPECMETER, "run", str(folder / "all.yaml"), "--out", str(folder / "all")], check=False)
    run = read_run(folder / "all")
    measured = {it.id: it for it in run.arms}
    found = sorted(run.sessions, key=lambda it: it.parts.total)
    for it in found:
        print(f"  {it.arm_id}: {it.parts.total:.1f} s, {it.speedup.point if it.speedup else 1:.3f}x")
    mine = next(it for it in found if _alike(measured[it.arm_id], told.arm))
    print(f"{session}: the advice takes {mine.parts.total / found[0].parts.total - 1:+.1%} of the best of these")


def _expected(outcome: ArmOutcome) -> float:
    found = outcome.confirmed or outcome.raced or outcome.predicted
    return found.point if found else 0.0


def _alike(arm: Arm, advised: Arm | None) -> bool:
    return not arm.speculates if advised is None else arm.speculates and _keys(arm) == _keys(advised)


def _keys(arm: Arm) -> dict[str, Any]:
    """The arm as an experiment has it."""
    keys: dict[str, Any] = {"method": arm.methods}
    if arm.draft is not None:
        keys["draft"] = "d"
    names = (*PARAMETERS, "draft_sampling")
    return keys | {it: value for it in names if (value := getattr(arm, it, None)) is not None}


async def _answer(_: web.Request) -> web.Response:
    await asyncio.sleep(random.random() * 0.01)
    return web.json_response(
        {"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}
    )


async def _ask(port: int, number: int, ended: list[int]) -> None:
    body = {"messages": [{"role": "user", "content": f"call {number}"}]}
    async with ClientSession() as client, client.post(f"http://{HOST}:{port}/v1/chat/completions", json=body) as reply:
        await reply.json()
        ended.append(number)


async def _kills(kills: int, out: Path) -> None:
    """Clients ask one after the other while the recorder is killed and started again."""
    behind, port = unused_port(), unused_port()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", _answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, HOST, behind).start()
    chance, number, lost = random.Random(1), 0, 0
    for _ in range(kills):
        ended: list[int] = []
        found = subprocess.Popen(recorder(f"http://{HOST}:{behind}", port, out), stderr=subprocess.DEVNULL)
        asked_for = time.monotonic() + 20
        until: float | None = None
        while time.monotonic() < (until or asked_for):
            try:
                await _ask(port, number, ended)
            except (ClientError, OSError):
                await asyncio.sleep(0.02)
                continue
            number += 1
            until = until or time.monotonic() + chance.uniform(0.0, 0.15)
        found.send_signal(signal.SIGKILL)
        found.wait()
        text = out.read_bytes().decode()
        lost += sum(f'"call {it}"' not in text for it in ended)
    calls = len(read_sessions([out]).calls)
    torn = sum(not it.endswith(b"\n") for it in out.read_bytes().splitlines(keepends=True))
    await runner.cleanup()
    print(f"{kills} kills of the recorder, {number} calls answered, {calls} recorded, {lost} lost, {torn} torn")


def _replay_kills(kills: int, folder: Path) -> None:
    """A replay on simulated models is killed and resumed; in the end it has each call once, and passes its check."""
    experiment = {
        "name": "killed",
        "targets": {"dense": "mock:dense"},
        "drafts": {"small": "mock:small"},
        "workloads": [{"source": "sessions", "paths": ["bundled:coder-agent"]}],
        "arms": [{"draft": "small", "gamma": [2, 4, 8]}],
        "design": {"blocks": 200},
        "engine": {"kind": "mock", "context": CONTEXT, "prompt_cache": True},
    }
    (folder / "killed.yaml").write_text(json.dumps(experiment), encoding="utf-8")
    command = [*SPECMETER, "run", str(folder / "killed.yaml"), "--out", str(folder / "run")]
    chance, killed = random.Random(1), 0
    while True:
        found = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            found.wait(chance.uniform(0.8, 2.5) if killed < kills else None)
            break
        except subprocess.TimeoutExpired:
            found.send_signal(signal.SIGKILL)
            killed += found.wait() < 0
    (sessions,) = {it.calls for it in read_run(folder / "run").sessions}
    code = subprocess.run([*SPECMETER, "check", str(folder / "run")], stdout=subprocess.DEVNULL, check=False).returncode
    print(f"{killed} kills of a replay: {sessions} of 18 calls in each configuration, check ends with {code}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("record", "fidelity", "advice", "kills"))
    parser.add_argument("session", nargs="?")
    parser.add_argument("--model")
    parser.add_argument("--draft")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tasks", type=int)
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--blocks", type=int, default=2, help="of the replay of all calls that an advice is held to")
    parser.add_argument("--kills", type=int, default=200)
    given: Any = parser.parse_args()
    if given.what == "kills":
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_kills(given.kills // 2, Path(folder) / "s.jsonl"))
            _replay_kills(given.kills // 2, Path(folder))
    elif given.what == "record":
        record(given.model, given.out, given.tasks)
    elif given.what == "fidelity":
        fidelity(given.model, given.session)
    else:
        advice(
            given.model, given.session, given.draft, given.budget, given.out or Path(tempfile.mkdtemp()), given.blocks
        )


if __name__ == "__main__":
    main()

"""The real engine, for tests: the embedded server in a process of its own, asked on loopback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

_SERVE = """
import sys, time, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.port, p.n_ctx, p.n_parallel = sys.argv[1], 0, 1024, 1
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
p.fit_params, p.ui, p.warmup, p.cache_prompt, p.cache_ram_mib = False, False, False, False, 0
p.n_ctx_checkpoints = 0
server = xllamacpp.Server(p)
print("ADDRESS", server.listening_address, flush=True)
sys.stdin.read()
"""


@contextmanager
def serve(model: Path) -> Iterator[httpx.Client]:
    """A client of a server that has `model` loaded; the server ends with the block."""
    log = subprocess.DEVNULL
    child = subprocess.Popen(
        [sys.executable, "-c", _SERVE, str(model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
    )
    assert child.stdin
    assert child.stdout
    try:
        address = next((line.split()[1] for line in child.stdout if line.startswith("ADDRESS ")), None)
        assert address, f"the server did not load {model}: exit code {child.wait(10)}"
        with httpx.Client(base_url=address, timeout=120) as client:
            yield client
    finally:
        child.stdin.close()
        child.stdout.close()
        child.kill()
        child.wait(30)


def generate(model: Path, prompts: Sequence[str], tokens: int = 256, probabilities: int = 4) -> list[dict[str, Any]]:
    """Greedy text, token ids and log-probabilities for each prompt."""
    with serve(model) as client:
        replies: list[dict[str, Any]] = []
        for prompt in prompts:
            reply = client.post(
                "/completion",
                json={
                    "prompt": prompt,
                    "n_predict": tokens,
                    "temperature": 0,
                    "ignore_eos": True,
                    "n_probs": probabilities,
                    "return_tokens": True,
                },
            )
            reply.raise_for_status()
            body = reply.json()
            replies.append(
                {key: body[key] for key in ("content", "tokens", "completion_probabilities", "timings") if key in body}
            )
        return replies

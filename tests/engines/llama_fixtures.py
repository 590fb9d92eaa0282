"""What the tests of llama.cpp's engines share: models, launches, and servers that misbehave."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from engines.stand_in import BUILD
from programs import write_program
from specmeter.engines import Launch
from specmeter.engines.llama_cpp.tools import BINARY_VARIABLE, Program, builds, find_program
from specmeter.models.bench import shipped
from specmeter.record import Arm, EngineSettings, Generation, ModelIdentity, Prompt

HERE = Path(__file__).parent
TEXT = "The people of the valley built a bridge. The people of the valley built"


def core(name: str) -> ModelIdentity:
    entry = shipped()[name]
    return ModelIdentity(
        name=name,
        reference=f"bench:{name}",
        path=str(entry.path),
        sha256=entry.sha256,
        size_bytes=entry.path.stat().st_size,
        origin="bench",
    )


def arm(**changes: Any) -> Arm:
    settings = EngineSettings(context=512, threads=1).model_copy(update=changes.pop("engine", {}))
    return Arm(**({"id": "test", "target": "dense", "engine": settings} | changes))


def launch(
    tmp_path: Path,
    arm: Arm,
    *,
    target: str = "dense",
    draft: str | None = None,
    idle_s: float = 60.0,
    start_s: float = 60,
) -> Launch:
    return Launch(
        arm=arm,
        target=core(target),
        draft=core(draft) if draft else None,
        log_path=tmp_path / "logs" / "engine.log",
        start_timeout_s=start_s,
        idle_timeout_s=idle_s,
    )


def prompt(text: str = TEXT, **changes: Any) -> Prompt:
    plain = Prompt(id="p", workload="w", kind="fact", text=text, sha256="0" * 64)
    return plain.model_copy(update=changes)


def greedy(max_tokens: int = 32, **changes: Any) -> Generation:
    return Generation(max_tokens=max_tokens, **{"ignore_eos": True, **changes})


FAULTY_FLAGS = "--model --ctx-size --parallel --threads --threads-batch --metrics --slots --host --port --spec-type"
ACTING_FLAGS = """
--model --ctx-size --batch-size --ubatch-size --parallel --threads --threads-batch --cache-type-k --cache-type-v
--flash-attn --gpu-layers --device --load-mode --spec-draft-model --spec-draft-threads --spec-draft-threads-batch
--spec-draft-ngl --spec-draft-device --spec-type --spec-draft-n-max --spec-draft-n-min --spec-draft-p-min
--spec-synth-rates --metrics --slots --cache-prompt --no-cache-prompt --cache-ram --ctx-checkpoints --no-ui --fit
--verbosity --log-prefix --log-timestamps --log-colors --host --port
"""


def faulty_binary(folder: Path, fault: str) -> Path:
    """A "llama-server" that misbehaves in the way `fault` names (see `faulty_server.py`)."""
    binary = folder / f"llama-server-{fault}"
    if fault == "no-server":
        _write_program(binary, "echo 'cat: invalid option'")
    else:
        _write_program(binary, f'exec "{sys.executable}" "{HERE / "faulty_server.py"}" {fault} "$@"', FAULTY_FLAGS)
    return binary


def acting_binary(
    folder: Path, *, speculative: dict[str, Any] | None = None, plain: dict[str, Any] | None = None, note: str = ""
) -> Path:
    """A "llama-server" that serves whole runs, with what goes wrong by `FAULTS` in `acting_server.py`.

    `note` changes the bytes of the binary and nothing else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script, binary = folder / "script.json", folder / "llama-server"
    script.write_text(json.dumps({"speculative": speculative or {}, "plain": plain or {}}), encoding="utf-8")
    command = f'exec "{sys.executable}" "{HERE / "acting_server.py"}" "{script}" "$@"'
    _write_program(binary, f"{command}\n# {note}", ACTING_FLAGS, (plain or {}).get("build", BUILD))
    return binary


def _write_program(path: Path, command: str, flags: str = "", version: str = "1 (fake)") -> None:
    """A shell script: it says by itself which flags it has and which version it is, where it has any."""
    options = "\n".join(f"{flag} N    an option" for flag in flags.split())
    known = f"""case "$1" in
--help) echo '{options}'; exit ;;
--version) echo 'version: {version}'; echo 'built with nothing for nowhere'; exit ;;
esac
"""
    write_program(path, f"#!/bin/sh\n{known if flags else ''}{command}\n")


def alive(pids: tuple[int, ...] | list[int]) -> list[int]:
    def lives(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return [pid for pid in pids if lives(pid)]


def gone_within(pids: tuple[int, ...] | list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pids)


def native(program: Program) -> Path | None:
    """One of llama.cpp's programs, where SPECMETER_LLAMA_SERVER names its server or `specmeter engines build` made it.

    One that merely lies on PATH may be of any age.
    """
    return find_program(program) if os.environ.get(BINARY_VARIABLE) or builds() else None


NATIVE = native("llama-server")
"""A real native llama-server, where the machine has one."""
NO_NATIVE = "there is no native llama-server (`specmeter engines build` makes one)"

"""What a device does: say what it is, or measure one part of an experiment, in a process of its own.

Ray only brings the order here. The process is `specmeter run` on an ordinary run folder, under the guard that every
engine has: it ends when this worker does, however that ends. Orders and answers are plain data, so that even another
version understands that it is another one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from specmeter import __version__
from specmeter.cache import cache_dir
from specmeter.engines.process import EngineProcess
from specmeter.errors import SpecmeterError
from specmeter.files import open_inside
from specmeter.store import RunStore
from specmeter.store.database import DATABASE_FILES
from specmeter.store.guarded import is_written
from specmeter.store.run import ENVIRONMENT_NAME, EXPERIMENT_NAME, LOGS_NAME

Order = dict[str, Any]
Answer = dict[str, Any]
Said = Mapping[str, Any]
"""How far a part has come: requests `done` of those `planned`, seconds `left`, `said`: what its run told since."""

EXPERIMENT = "asked.yaml"
_ASKED = ".asked"
"""How the folder beside a part's run folder ends that has its experiment, its prompts and what it said."""
SENT = (*DATABASE_FILES[:2], EXPERIMENT_NAME, ENVIRONMENT_NAME, "certificate.json")
MAX_SENT = 4 * 2**30
_LOOK_S = 1.0
_WIND_DOWN_S = 30.0
"""How long what a lost worker left running is waited for."""
_LAST = 4_000
_FREE_BYTES = 256 * 2**20


def clock() -> float:
    """Seconds since the epoch, as this machine has them."""
    return time.time()


def greet(order: Order) -> Answer:
    """What this device is, and whether it can measure: version, machine, engine, models by their checksums."""
    if order["specmeter"] != __version__:
        return {"specmeter": __version__}
    try:
        folder = _laid_out(order)
        free = shutil.disk_usage(folder).free
        if free < _FREE_BYTES:
            return {"specmeter": __version__, "error": f"{folder}: the disk is full ({free >> 20} MiB left)"}
        argv = ["specmeter_fleet.worker", str(folder / EXPERIMENT)]
        code = _run_child(order, argv, folder / "greeting.log", lambda _: None)
    except OSError as error:
        return {"specmeter": __version__, "error": f"{error.filename or 'the folder'}: {error.strerror}"}
    except SpecmeterError as error:
        return {"specmeter": __version__, "error": error.message}
    log = _last(folder / "greeting.log")
    with contextlib.suppress(ValueError, IndexError):
        said: object = json.loads(log.strip().splitlines()[-1])
        if isinstance(said, dict):
            return {"specmeter": __version__, **cast("Answer", said)}
    return {"specmeter": __version__, "error": f"its process ended with {code}: {log[-400:].strip()}"}


def measure(order: Order, say: Callable[[Said], None]) -> Answer:
    """Measure a part, or continue with it where it was left; what came of it, with its files where they are wanted."""
    try:
        folder = _laid_out(order)
        run = folder.with_name(order["part"])
        until = time.monotonic() + _WIND_DOWN_S
        while is_written(run) and time.monotonic() < until:
            time.sleep(_LOOK_S)
        argv = ["specmeter", "run", str(folder / EXPERIMENT), "--out", str(run), "--progress", "json", "--json"]
        code = _run_child(order, argv, folder / "run.log", say)
        return {"code": code, "error": _error(folder / "run.log", code), "files": _files(run) if order["send"] else {}}
    except OSError as error:
        return {"code": 2, "error": f"{error.filename or 'the folder'}: {error.strerror}", "files": {}}
    except SpecmeterError as error:
        return {"code": error.exit_code, "error": error.message, "files": {}}


def _laid_out(order: Order) -> Path:
    """A folder with the experiment and the prompts that came along; the run folder lies beside it."""
    base = Path(order["folder"]) if order["folder"] else cache_dir() / "fleet" / order["fleet"]
    folder = base / (order["part"] + _ASKED)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {EXPERIMENT: order["experiment"].encode(), **order["prompts"]}.items():
        place = (folder / name).resolve()
        if not place.is_relative_to(folder.resolve()):
            raise OSError(0, "is outside the folder", name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return folder


def _run_child(order: Order, argv: list[str], log: Path, say: Callable[[Said], None]) -> int:
    """Run a module of Python on the device's cores; its exit code."""
    pinned = ["taskset", "-c", order["cores"]] if order["cores"] and shutil.which("taskset") else []
    child = EngineProcess([*pinned, sys.executable, "-P", "-m", *argv], env=environment(order["env"]), log_path=log)
    try:
        while (ended := child.wait(_LOOK_S)) is None:
            if (done := _progress(log)) is not None:
                say(done)
        return ended
    finally:
        child.close()


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """Ray hides all GPUs from a task that claims none by number, and tells it to use one thread. Neither is for what is
    measured: a device's `own` environment says what it has."""
    kept = {
        it: value for it, value in os.environ.items() if it != "OMP_NUM_THREADS" and (value or "_VISIBLE_" not in it)
    }
    return {**kept, **own, "PYTHONUNBUFFERED": "1"}


def _progress(log: Path) -> Said | None:
    """How far the run has come, by the last line that says so, and what it told since: that it waits for calm."""
    said = ""
    for line in reversed(_last(log).splitlines()):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            document = json.loads(line)
            if document["event"] == "progress":
                done, planned, left = (document[it] for it in ("done", "planned", "seconds_left"))
                return {"done": int(done), "planned": int(planned), "left": left, "said": said}
            said = said or str(document["text"])[:_LAST]
    return None


def _last(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - 16 * _LAST))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _error(log: Path, code: int) -> str:
    """What the run said last, where it could not continue."""
    if code in (0, 1):
        return ""
    lines = _last(log).splitlines()
    if told := [number for number, line in enumerate(lines) if line.startswith("error: ")]:
        return " ".join(it.strip() for it in lines[told[-1] :])[7:_LAST]
    return "" if code == 3 else f"its process ended with {code}"


def _files(run: Path) -> dict[str, bytes]:
    """What lies in a run folder, to be sent."""
    if not RunStore.exists(run):
        return {}
    names = [*SENT, *(f"{LOGS_NAME}/{log.name}" for log in sorted((run / LOGS_NAME).glob("*.log")))]
    found: dict[str, bytes] = {}
    for name in names:
        with contextlib.suppress(FileNotFoundError), open_inside(run, name) as file:
            found[name] = file.read()
    if (total := sum(map(len, found.values()))) > MAX_SENT:
        raise OSError(0, f"has {total >> 20} MiB, too much to send; use a shared folder", str(run))
    return found


def greeting(experiment: str) -> Answer:
    """Everything that has to be the same on all devices, and the machine. Raises `SpecmeterError`."""
    from specmeter.experiments.file import load
    from specmeter.laboratory.run import prepare

    prepared = prepare(load(experiment))
    work, engine = prepared.work, prepared.identity
    prompts = sorted({f"{it.id} {it.sha256}" for them in work.prompts.values() for it in them})
    return {
        "same": {
            "engine": f"{engine.kind} {engine.version} ({engine.build})",
            "engine program": engine.binary_sha256[:16],
            **{f"model {name}": model.sha256[:16] for name, model in work.models.items()},
            "prompts": hashlib.sha256("\n".join(prompts).encode()).hexdigest()[:16],
            "arms": ", ".join(work.arms),
        },
        "host": prepared.host.model_dump(mode="json"),
    }


if __name__ == "__main__":  # in the process of its own, with the device's cores and environment
    try:
        said = greeting(sys.argv[1])
    except SpecmeterError as error:
        said = {"error": f"{error.message} (fix: {error.fix})"}
    print(json.dumps(said), flush=True)

"""SHA-256 of every part of a run's data, so that any later change of it is noticed.

Covered are all tables of `run.sqlite` but those of the certificate itself, every log, and the documents that specmeter
writes beside them before it certifies: `FILES`.
"""

from __future__ import annotations

import errno
import hashlib
from array import array
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.errors import StoreError
from specmeter.files import NotPlainError, is_link, open_inside
from specmeter.store.run import ENVIRONMENT_NAME, EXPERIMENT_NAME, LOGS_NAME
from specmeter.text import size

if TYPE_CHECKING:
    from specmeter.store import RunReader

_TABLES = {
    "experiment": "SELECT specmeter, experiment_yaml, experiment_json FROM run",
    "plan": "SELECT invocation, block, arm_id, prompt_id FROM plan ORDER BY seq",
    "hosts": "SELECT json FROM host ORDER BY id",
    "arms": "SELECT id, json FROM arm ORDER BY seq",
    "prompts": "SELECT id, json FROM prompt ORDER BY seq",
    "models": "SELECT name, json FROM model ORDER BY seq",
    "pairs": "SELECT json FROM pair ORDER BY seq",
    "engines": "SELECT id, json FROM engine ORDER BY id",
    "sessions": "SELECT id, engine_id, json FROM session ORDER BY seq",
    "requests": "SELECT * FROM request ORDER BY id",
    "replies": "SELECT request_id, zlib_json FROM reply ORDER BY request_id",
    "telemetry": "SELECT at, json FROM telemetry ORDER BY id",
    "margins": "SELECT json FROM margin ORDER BY id",
    "predictions": "SELECT arm_id, json FROM prediction ORDER BY seq",
    "prompt-tokens": "SELECT target, prompt_id, zlib_json FROM prompt_tokens ORDER BY seq",
    "step-probes": "SELECT json FROM step_probe ORDER BY seq",
    "profiles": "SELECT zlib_json FROM profile ORDER BY seq",
    "profiled": "SELECT json FROM profiled",
    "energy": "SELECT json FROM energy ORDER BY seq",
    "routing": "SELECT target, json FROM routing ORDER BY seq",
    "load-cells": "SELECT json FROM load_cell ORDER BY seq",
    "sendings": "SELECT * FROM sending ORDER BY request_id",
    "run": "SELECT created_at, started_at, finished_at, interrupted, reason, state FROM run",
}
FILES = (EXPERIMENT_NAME, ENVIRONMENT_NAME)
"""Documents beside the database that are certified with it."""
MOST_BYTES = 64 * 2**20
"""Of such a document."""
MOST_BYTES_OF_LOG = 8 * 2**30
PARTS = (*_TABLES, *FILES, LOGS_NAME)
"""Parts that checks name; each log has a hash of its own, `logs/NAME`."""


def hash_data(run: RunReader) -> dict[str, str]:
    """Part -> SHA-256, computed from what lies in the run folder now. Raises `StoreError` when it is damaged."""
    hashes = {part: _hash_rows(run, query) for part, query in _TABLES.items()}
    names = list(FILES)
    logs = run.folder / LOGS_NAME
    if logs.is_dir() and not is_link(logs):
        names += sorted(f"{LOGS_NAME}/{path.name}" for path in logs.iterdir())
    return hashes | {name: digest for name in names if (digest := _hash_file(run.folder, name))}


def changed(was: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Parts that differ, appeared or are gone, in order."""
    return [part for part in dict.fromkeys((*was, *now)) if was.get(part) != now.get(part)]


def _hash_rows(run: RunReader, query: str) -> str:
    """Of the values with their types and lengths, so that no two different tables look alike."""
    digest = hashlib.sha256()
    for row in run.raw(query):
        blobs = [value for value in row if isinstance(value, bytes)]
        plain = tuple(len(value) if isinstance(value, bytes) else value for value in row) if blobs else row
        digest.update(f"{plain!r}{len(blobs)}\n".encode())
        for blob in blobs:
            digest.update(blob)
    return digest.hexdigest()


def _hash_file(folder: Path, name: str) -> str | None:
    """None where there is no plain file of that name. Raises `StoreError` where it is too large, or cannot be read."""
    most = MOST_BYTES_OF_LOG if name not in FILES else MOST_BYTES
    try:
        with open_inside(folder, name) as file:
            if file.seek(0, 2) > most:
                raise OSError(errno.EFBIG, f"is larger than {size(most)}")
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotPlainError):
        return None
    except OSError as error:
        raise StoreError(
            f"{folder / name}: cannot be read: {error.strerror}", fix="check its permissions, or move it elsewhere"
        ) from None


def output_digest(token_ids: Sequence[int]) -> bytes:
    """12 bytes that are equal for equal token ids; empty where there are none."""
    return blake2b(array("q", token_ids).tobytes(), digest_size=12).digest() if token_ids else b""

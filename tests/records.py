"""Records for tests that care about few of their fields."""

from __future__ import annotations

from typing import Any

from specmeter.record import EngineIdentity, ModelHeader, ModelIdentity, Prompt, Request, Session

ENGINE = EngineIdentity(kind="libllama", version="1", build="1", binary="/x", binary_sha256="e" * 64)


def header(**changes: Any) -> ModelHeader:
    counts = dict.fromkeys(("layers", "parameters", "bytes_per_token", "active_parameters"), 1)
    named = {"architecture": "a", "quantization": "", "recurrent": False}
    given = {"experts": 0, "experts_used": 0, "kv_bytes_per_token": None, **counts, **named}
    return ModelHeader.model_validate(given | changes)


def identity(name: str, size_bytes: int = 1, **changes: Any) -> ModelIdentity:
    given = {"reference": name, "path": f"/{name}", "sha256": name[0] * 64, "origin": "path"}
    return ModelIdentity.model_validate({"name": name, "size_bytes": size_bytes, **given} | changes)


def session(arm_id: str, **changes: Any) -> Session:
    where = {"id": "s", "arm_id": arm_id, "invocation": 0, "block": 0, "position": 0}
    return Session.model_validate({**where, "argv": (), "engine": ENGINE, "started_at": 0.0, "ready_ms": 1.0} | changes)


def request(arm_id: str, prompt: Prompt, **changes: Any) -> Request:
    where = {"invocation": 0, "block": 0, "position": 0, "item": 0, "arm_id": arm_id, "session_id": "s"}
    of = {"prompt_id": prompt.id, "prompt_sha256": prompt.sha256, "kind": prompt.kind}
    return Request.model_validate({**where, **of, "started_at": 0.0, "status": "ok"} | changes)

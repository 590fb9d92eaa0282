"""The embedded engine's own process: llama.cpp's server from the xllamacpp wheel. Run by `EmbeddedEngine`.

Reads one JSON object from standard input: `CommonParams` path -> value, enumerations by the names of their members.
With `--identify` it prints what the wheel says about itself, as JSON, and ends.
"""

from __future__ import annotations

import enum
import importlib
import json
import sys
import threading
from typing import Any


def _wheel() -> Any:
    """The wheel's module, which has no type information."""
    return importlib.import_module("xllamacpp")


def assign(params: object, path: str, value: Any) -> None:
    """Set the field at dotted `path`, turning names into enumeration members where the field holds such.

    Raises `AttributeError` when there is no such field or no such member.
    """
    *owners, name = path.split(".")
    for owner in owners:
        params = getattr(params, owner)
    present: Any = getattr(params, name)
    if isinstance(present, enum.Enum):
        value = getattr(type(present), value)
    elif isinstance(present, list) and present and isinstance(present[0], enum.Enum):
        kind: Any = type(present[0])
        value = [getattr(kind, item) for item in value]
    setattr(params, name, value)


def serve(fields: dict[str, Any]) -> int:
    """Serve until the process is ended; 2 when a field cannot be set, 1 when the server does not come up."""
    xllamacpp = _wheel()
    params = xllamacpp.CommonParams()
    if "hostnames" in fields and not hasattr(params, "hostnames"):  # older wheels take a single address
        (fields["hostname"],) = fields.pop("hostnames")
    for path, value in fields.items():
        try:
            assign(params, path, value)
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            print(f"error: this version of xllamacpp cannot set {path} to {value!r}: {error}", file=sys.stderr)
            return 2
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    threading.Event().wait()
    del server
    return 0


def identify() -> int:
    """Print version, build, CPU features and devices as one line of JSON."""
    xllamacpp = _wheel()
    build = xllamacpp.BUILD_INFO
    compiled = f"{build['compiler']} for {build['build_target']}"
    devices = [{"name": device["name"], "description": device["description"]} for device in xllamacpp.get_device_info()]
    print(
        json.dumps(
            {
                "version": xllamacpp.__version__,
                "build": f"{build['build_number']} ({build['commit']}) with {compiled}",
                "system_info": xllamacpp.get_system_info().strip(" |"),
                "devices": devices,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(identify() if sys.argv[1:] == ["--identify"] else serve(json.load(sys.stdin)))

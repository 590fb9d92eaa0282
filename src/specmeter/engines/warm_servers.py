"""Keeps servers running between sessions, so that the next session of an arm need not load and warm up again.

A server is kept if its arm's requests leave nothing behind, and as long as memory holds it next to the others (models,
caches and buffers against what is available). The one that waited longest is ended first.

Its output goes to a file of its own. What belongs to a session is written into that session's log as it comes: what
the server said while it loaded, and then the lines of the session's own requests.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from specmeter.engines.session import Engine, EngineSession, Launch
from specmeter.errors import EngineError, EngineStartError
from specmeter.host.gpus import Nvml
from specmeter.host.limits import memory_available_bytes
from specmeter.record import Arm, EngineIdentity

if TYPE_CHECKING:
    from specmeter.engines.llama_cpp.server import LlamaSession

Key = tuple[object, ...]


class _Server(NamedTuple):
    """One that runs."""

    session: LlamaSession
    size_bytes: int
    pids: tuple[int, ...]


class WarmServerPool(Engine):
    """An engine whose sessions continue with servers of earlier ones. End it with `close`."""

    def __init__(self, engine: Engine, lasting: Callable[[Arm], bool], *, prompts_mib: int = 0) -> None:
        """`lasting`: whether requests of an arm leave nothing behind that changes later ones; `prompts_mib`: the room
        that each server has for prompts."""
        self.engine = engine
        self.prompts_mib = prompts_mib
        self._lasting = lasting
        self._running: dict[Key, _Server] = {}
        self._waiting: dict[Key, None] = {}
        """Those without a session, the one that waited longest first."""
        self._scratch = tempfile.TemporaryDirectory(prefix="specmeter-servers-", ignore_cleanup_errors=True)
        self._started = 0

    def identify(self) -> EngineIdentity:
        return self.engine.identify()

    def clock(self) -> float:
        return self.engine.clock()

    def start(self, launch: Launch) -> EngineSession:
        """A session of a server that waits, or else of a new one. Raises what the engine's `start` raises."""
        key, alone = _key(launch, self.engine.identify()), replace(launch, reuse=False)
        if key in self._waiting:
            del self._waiting[key]
            try:
                self._running[key].session.again(launch)
                return self._lent(key)
            except EngineError:  # it died while it waited
                self._end(key)
        self._make_room(_files_bytes(launch))
        if not self._lasting(launch.arm) or key in self._running:
            return self.engine.start(alone)
        from specmeter.engines.llama_cpp.server import LlamaSession

        self._started += 1
        log_path = Path(self._scratch.name) / f"{self._started}.log"
        try:
            session = self.engine.start(replace(launch, log_path=log_path, kept_prompts_mib=self.prompts_mib))
        except EngineStartError:
            # Once more without the others, and with the log where it belongs.
            self._make_room(None)
            return self.engine.start(alone)
        if not isinstance(session, LlamaSession):
            session.close()
            return self.engine.start(alone)
        session.log_to(launch)
        session.facts = replace(session.facts, server=uuid.uuid4().hex)
        devices = (*session.facts.devices, *session.facts.draft_devices)
        buffers_bytes = sum(it.kv_buffer_bytes + it.compute_buffer_bytes for it in devices)
        size_bytes = _files_bytes(launch) + buffers_bytes + self.prompts_mib * 2**20
        self._running[key] = _Server(session, size_bytes, session.facts.pids)
        return self._lent(key)

    def _lent(self, key: Key) -> EngineSession:
        session = self._running[key].session
        # What a server still does when its session has ended is nothing that other programs do.
        session.facts = replace(session.facts, pids=tuple(pid for it in self._running.values() for pid in it.pids))

        def keep() -> None:
            if session.sound:
                self._waiting[key] = None
            else:
                self._end(key)

        session.keeper = keep
        return session

    def _make_room(self, needed: int | None) -> None:
        """End servers that wait until this many bytes are free beside the others; all of them for None."""
        while self._waiting and (needed is None or self._held() + needed > self._room()):
            self._end(next(iter(self._waiting)))

    def _held(self) -> int:
        return sum(it.size_bytes for it in self._running.values())

    def _room(self) -> int:
        """Bytes for all servers together, cautiously: those that run may have taken theirs already. Where it is not
        known how much a GPU has left, there is none."""
        room = memory_available_bytes()
        facts = [it.session.facts for it in self._running.values()]
        devices = {use.device for it in facts for use in (*it.devices, *it.draft_devices)}
        if sys.platform == "darwin" or all(device.startswith("CPU") for device in devices):
            return room
        with contextlib.closing(Nvml()) as nvml:
            sizes = {gpu.index: gpu.memory_bytes or 0 for gpu in nvml.gpus()}
            left = [sizes.get(it.index, 0) - (it.memory_used_bytes or sizes.get(it.index, 0)) for it in nvml.samples()]
        return min([room, *left]) if left else 0

    def _end(self, key: Key) -> None:
        self._waiting.pop(key, None)
        session = self._running.pop(key).session
        session.keeper = None
        session.close()

    def renew(self) -> None:
        """End every server, so that the next sessions have new ones."""
        for key in tuple(self._running):
            self._end(key)

    def close(self) -> None:
        """End every server for good; safe to call twice."""
        self.renew()
        self._scratch.cleanup()


def _key(launch: Launch, engine: EngineIdentity) -> Key:
    """What sessions of one server have in common: everything but names, and the build at this moment."""
    arm = launch.arm.model_copy(update={"id": "", "baseline_id": None})
    draft = None if launch.draft is None else (launch.draft.path, launch.draft.sha256)
    return arm.model_dump_json(), launch.target.path, launch.target.sha256, draft, engine.model_dump_json()


def _files_bytes(launch: Launch) -> int:
    return launch.target.size_bytes + (launch.draft.size_bytes if launch.draft is not None else 0)

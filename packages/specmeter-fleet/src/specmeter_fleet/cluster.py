"""All that is asked of Ray: a task that has a device to itself, is never started again on its own, and can be lost."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from specmeter.errors import SpecmeterError, UsageError
from specmeter.extensions import installing
from specmeter_fleet import worker
from specmeter_fleet.spec import Device, Fleet

INSTALL = installing("ray", "specmeter-fleet")
_STORE_BYTES = 200 * 2**20
_CLOCK_ASKED = 5


class Lost(Exception):  # noqa: N818
    """A worker, its node or the way to it is gone; what it measured may be left on its disk."""


class Gone(SpecmeterError):  # noqa: N818
    """The cluster itself."""


class Clock(NamedTuple):
    """How far a device's clock is ahead of this machine's, and how far off that may be, in seconds."""

    offset_s: float
    within_s: float


def refuse_no_ray() -> None:
    """Raises `UsageError` with the line that installs it. It is not imported: it reads its token when it is."""
    with suppress(ValueError):
        if find_spec("ray") is not None:
            return
    raise UsageError("fleet: Ray is not installed", fix=INSTALL)


def _ray_module(*, own: bool) -> Any:
    """Ray; of a cluster of our `own` on the loopback, with a token: nothing else may give it orders."""
    if own:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        # Whatever its name: without, Ray takes 127.0.0.1 for the address of this machine and listens on all of them.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    # It would carry the folder of `uv run` to the workers, which have a specmeter of their own.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return import_module("ray")


class Cluster:
    """A cluster that this process drives; `close` it. One of its own ends with it."""

    def __init__(self, address: str, local: Fleet | None = None) -> None:
        """Connect to `address`, or start one for the devices of `local`. Raises `SpecmeterError`."""
        self._own = address == "local"
        self._ray = _ray_module(own=self._own)
        try:
            if local is not None and self._own:
                self._scratch = tempfile.TemporaryDirectory(prefix="smfleet-", ignore_cleanup_errors=True)
                self._ray.init(
                    num_cpus=max(2, len(local.devices)),
                    resources={device.claimed: 1 for device in local.devices},
                    include_dashboard=False,
                    log_to_driver=False,
                    object_store_memory=_STORE_BYTES,
                    _temp_dir=self._scratch.name,
                    logging_level="error",
                )
            else:
                self._ray.init(address, log_to_driver=False, logging_level="error")
        except Exception as error:
            self.close()
            raise SpecmeterError(
                f"--on {address}: no Ray cluster answers ({_first_line(error)})",
                fix="close other programs and run again"
                if self._own
                else "start it with `ray start --head`, open its port, and use its token (`ray get-auth-token`)",
            ) from None
        self._board = self._ray.remote(num_cpus=0)(_Board).remote()
        self._greet = self._task(worker.greet)
        self._measure = self._task(_measured)
        self._clock = self._task(worker.clock)

    def _task(self, function: Callable[..., Any]) -> Any:
        # A lost measurement is not Ray's to repeat: half of it lies on a disk, and is gone on with.
        return self._ray.remote(num_cpus=0, max_retries=0)(function)

    def close(self) -> None:
        """Safe to call twice."""
        self._ray.shutdown()
        if self._own:
            self._scratch.cleanup()

    def resources(self) -> Mapping[str, float]:
        """What nodes that are alive have. Raises `SpecmeterError` where the cluster is gone."""
        try:
            return dict(self._ray.cluster_resources())
        except Exception as error:
            raise _gone(error) from None

    def greet(self, device: Device, order: worker.Order) -> Any:
        """Begin to ask a device what it is; for `result`."""
        return self._greet.options(resources={device.claimed: 1}).remote(order)

    def measure(self, device: Device, order: worker.Order) -> Any:
        """Begin to measure a part on a device; for `result`."""
        return self._measure.options(resources={device.claimed: 1}).remote(order, self._board)

    def clock(self, device: Device) -> Clock:
        """The device's clock against this one's: of several answers that which came fastest. Raises `Lost`."""
        found: list[Clock] = []
        for _ in range(_CLOCK_ASKED):
            before = time.time()
            theirs = self.result(self._clock.options(resources={device.claimed: 1}).remote())
            after = time.time()
            found.append(Clock(theirs - (before + after) / 2, (after - before) / 2))
        return min(found, key=lambda it: it.within_s)

    def ended(self, tasks: Sequence[Any], wait_s: float) -> Collection[Any]:
        """Those of some tasks that have ended, or were lost; after `wait_s` at the latest."""
        try:
            done, _ = self._ray.wait(list(tasks), num_returns=1, timeout=wait_s)
            return set(done)
        except Exception as error:
            raise _gone(error) from None

    def result(self, task: Any) -> Any:
        """What a task that has ended returned. Raises `Lost`, or `SpecmeterError` where its worker cannot do it."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(task)
        except errors.RayTaskError as error:
            raise SpecmeterError(
                f"the worker there cannot do this ({_first_line(error.cause or error)})",
                fix=f"install the same version of specmeter there: {INSTALL}",
            ) from None
        except errors.RayError as error:
            raise Lost(_first_line(error)) from None
        except ConnectionError as error:
            raise _gone(error) from None

    def progress(self) -> Mapping[str, worker.Said]:
        """Part -> how far it has come, as far as is known."""
        try:
            return self._ray.get(self._board.read.remote(), timeout=5)
        except Exception:
            return {}


class _Board:
    """Where workers say how far they have come."""

    def __init__(self) -> None:
        self.said: dict[str, worker.Said] = {}

    def say(self, part: str, done: worker.Said) -> None:
        self.said[part] = done

    def read(self) -> dict[str, worker.Said]:
        return self.said


def _measured(order: worker.Order, board: Any) -> worker.Answer:
    """What runs on a worker."""
    last: dict[str, worker.Said] = {}

    def say(done: worker.Said) -> None:
        if last.get("said") != done:
            last["said"] = done
            board.say.remote(order["part"], done)

    return worker.measure(order, say)


def _first_line(error: BaseException) -> str:
    return next((it.strip() for it in str(error).splitlines() if it.strip()), type(error).__name__)[:300]


def _gone(error: BaseException) -> Gone:
    return Gone(
        f"the connection to the Ray cluster was lost ({_first_line(error)}); everything collected so far is kept",
        fix="restart the cluster, then run the same command to resume",
    )

"""Stands between specmeter and an engine so that no engine outlives it, not even after `kill -9`.

Run as a script of its own (standard library only, nothing of specmeter imported): it reads one line of JSON
(`{"argv": [...], "stdin": "..."}`) from its standard input, starts that command, and then waits for whichever comes
first: the command ends (the guard ends with its exit code), or the input ends, which happens when specmeter closes it
or dies. Then the whole process group is ended, first politely, then by force.

On Linux the engine also asks the kernel to die with the guard, and on Windows both are in one job object that ends
with the guard, so that killing the guard itself leaves nothing behind either. Windows and macOS were not tried.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

GRACE_S = 3.0
"""How long an engine may take to end when asked politely."""


def main() -> int:
    line = sys.stdin.buffer.readline()
    if not line:  # specmeter ended before it could say what to start
        return 0
    order = json.loads(line)
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        # A handler and not SIG_IGN, which the engine would inherit.
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _stay)
    job = _windows_job() if os.name == "nt" else None
    try:
        engine = subprocess.Popen(order["argv"], stdin=subprocess.PIPE, preexec_fn=_die_with_guard())
    except OSError as error:
        print(f"guard: cannot start {order['argv'][0]}: {error.strerror}", file=sys.stderr, flush=True)
        return 127
    threading.Thread(target=_watch_lifeline, args=(engine,), daemon=True).start()
    with contextlib.suppress(OSError):
        assert engine.stdin is not None
        engine.stdin.write(order["stdin"].encode())
        engine.stdin.close()
    code = engine.wait()
    _signal_group("SIGTERM")
    del job
    return code if code >= 0 else 128 - code


def _stay(*_: object) -> None:
    """A signal to the whole group is for the engine; the guard sees it to its end."""


def _watch_lifeline(engine: subprocess.Popen[bytes]) -> None:
    # Not through `sys.stdin.buffer`, whose lock the interpreter would want at exit.
    while os.read(0, 4096):
        pass
    _signal_group("SIGTERM")
    if os.name == "nt":
        engine.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        engine.wait(GRACE_S)
    _signal_group("SIGKILL")
    os._exit(137)


def _signal_group(name: str) -> None:
    if os.name != "nt":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(0, getattr(signal, name))


def _die_with_guard() -> Callable[[], None] | None:
    """What the engine does between fork and exec: on Linux, ask for SIGKILL when the guard ends."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    guard = os.getpid()

    def before_exec() -> None:
        prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != guard:
            os._exit(1)

    return before_exec


def _windows_job() -> object:
    """A job object that holds this process and its children and ends them all when its handle closes."""
    import ctypes
    from ctypes import wintypes

    class BasicLimits(ctypes.Structure):
        _fields_ = (
            ("per_process_time", ctypes.c_int64),
            ("per_job_time", ctypes.c_int64),
            ("flags", wintypes.DWORD),
            ("minimum_working_set", ctypes.c_size_t),
            ("maximum_working_set", ctypes.c_size_t),
            ("active_processes", wintypes.DWORD),
            ("affinity", ctypes.c_size_t),
            ("priority", wintypes.DWORD),
            ("scheduling", wintypes.DWORD),
        )

    class ExtendedLimits(ctypes.Structure):
        _fields_ = (
            ("basic", BasicLimits),
            ("io_counters", ctypes.c_uint64 * 6),
            ("memory", ctypes.c_size_t * 4),
        )

    kernel: object = getattr(ctypes, "WinDLL")("kernel32", use_last_error=True)  # noqa: B009
    create, configure, assign, current = (
        getattr(kernel, name)
        for name in ("CreateJobObjectW", "SetInformationJobObject", "AssignProcessToJobObject", "GetCurrentProcess")
    )
    create.restype = current.restype = wintypes.HANDLE
    configure.argtypes = (wintypes.HANDLE, ctypes.c_int, ctypes.c_void_p, wintypes.DWORD)
    assign.argtypes = (wintypes.HANDLE, wintypes.HANDLE)
    job = create(None, None)
    limits = ExtendedLimits()
    limits.basic.flags = 0x2000  # JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
    configure(job, 9, ctypes.byref(limits), ctypes.sizeof(limits))  # JobObjectExtendedLimitInformation
    assign(job, current())
    return job


if __name__ == "__main__":
    sys.exit(main())

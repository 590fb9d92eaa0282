"""How many files a process may have open: each connection is one, here and in the server."""

from __future__ import annotations

import sys


def allow_open_files(wanted: int) -> int:
    """Raise the soft limit to `wanted` where it is lower and the hard one allows it; the number that is allowed now, at
    least `wanted` where there is no such limit. Processes that are started later inherit it."""
    if sys.platform == "win32":
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    except (ValueError, OSError):
        return soft
    return max(soft, most)

"""A machine for tests that do not care which."""

from __future__ import annotations

from specmeter.record import Host

HOST = Host(
    hostname_sha256="aa",
    os="Linux",
    os_version="1",
    kernel="6",
    machine="x86_64",
    python="3.11",
    specmeter="0",
    cpu="c",
    physical_cores=2,
    logical_cores=2,
    memory_bytes=1,
    memory_available_bytes=1,
)

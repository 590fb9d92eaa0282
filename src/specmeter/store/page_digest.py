"""Seals: a digest at the end of a page that tells whether the page is as it was written, and of which certificate.

A report is written after the run was certified, so no certificate can cover it. It covers itself: its last line names
the certificate.json that it was made from, and hashes all that comes before. A seal finds edits; an editor can also
seal the page anew. What is certain is only what the certificate covers: `specmeter report` makes the page from that.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

_SEAL = re.compile(rb"\n<!-- sealed by specmeter: certificate ([0-9a-f]{64}|none), page ([0-9a-f]{64}) -->\s*\Z")
_MARK = b"<!-- sealed by specmeter: "


class Seal(NamedTuple):
    """What a page says about itself."""

    intact: bool
    """The page is as it was written."""
    certificate: str | None
    """SHA-256 of the certificate.json that it was made from; None where there was none, or the page was edited."""


def sealed(page: bytes, certificate: str | None) -> bytes:
    """The page with a seal at its end."""
    line = f"\n<!-- sealed by specmeter: certificate {certificate or 'none'}, page "
    return page + line.encode() + _digest(page, certificate or "none").encode() + b" -->\n"


def read_seal(page: bytes) -> Seal | None:
    """The seal of a page; None where it has none."""
    found = _SEAL.search(page)
    if found is None:
        return Seal(intact=False, certificate=None) if _MARK in page else None
    certificate, digest = (group.decode() for group in found.groups())
    intact = digest == _digest(page[: found.start()], certificate)
    return Seal(intact, certificate if intact and certificate != "none" else None)


def _digest(page: bytes, certificate: str) -> str:
    return hashlib.sha256(page + b"\n" + certificate.encode()).hexdigest()

"""The text that a perplexity is of: a file of the user's, or the one that comes with specmeter."""

from __future__ import annotations

import hashlib
from pathlib import Path

from specmeter.analysis.quality import TextIdentity
from specmeter.errors import UsageError
from specmeter.files import read_named
from specmeter.text import size
from specmeter.workloads.texts import PROMPTS, held_out_text, natural_text

MAX_BYTES = 64 * 2**20
BUNDLED = "bench held-out text"


def read_text(path: Path | None) -> tuple[str, TextIdentity]:
    """The text and what it is; None: the held-out text of the bench language; `PROMPTS`: those for real models.

    The bytes are taken as they are, save for one line break at the very end, which `llama-perplexity --file` drops too.
    Raises `UsageError` when the file is missing, too large, empty or not UTF-8.
    """
    if path is None:
        return _identified(held_out_text(), BUNDLED, bundled=True)
    if path == Path(PROMPTS):
        return _identified(natural_text(), PROMPTS, bundled=False)
    try:
        raw = read_named(path, MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--text {path}: cannot be read ({error.strerror or error})", fix="pass a text file") from None
    if len(raw) > MAX_BYTES:
        raise UsageError(f"--text {path}: longer than {size(MAX_BYTES)}", fix="use a shorter text")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"--text {path}: is not UTF-8: byte {raw[error.start]:#04x} at position {error.start}",
            fix="save the file as UTF-8",
        ) from None
    if not text.strip():
        raise UsageError(f"--text {path}: is empty", fix="give a few pages of text")
    return _identified(text, path.name, bundled=False)


def _identified(text: str, name: str, *, bundled: bool) -> tuple[str, TextIdentity]:
    text = text.removesuffix("\n")
    raw = text.encode()
    sha256 = hashlib.sha256(raw).hexdigest()
    return text, TextIdentity(name=name, sha256=sha256, size_bytes=len(raw), bundled=bundled)

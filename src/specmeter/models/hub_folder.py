"""Models that are folders on a hub (`hf:OWNER/REPO[@REVISION]`), as MLX's are: configuration and safetensors files.

huggingface_hub fetches them into its own cache, where `mlx_lm` would look for them too.
"""

from __future__ import annotations

import re
from pathlib import Path

from specmeter.errors import ModelError

PREFIX = "hf:"
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_REFERENCE = re.compile(rf"(?P<repo>{_NAME}/{_NAME})(?:@(?P<revision>[A-Za-z0-9._/-]{{1,200}}))?")
_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
"""No code: what a repository's own Python files would do is not run."""


def fetch_folder(reference: str, *, offline: bool = False) -> Path:
    """The folder on this machine, downloaded first if need be; with `offline` only what is there already.

    Raises `ModelError` for a malformed reference and where the folder cannot be had.
    """
    from huggingface_hub import snapshot_download  # pyright: ignore[reportUnknownVariableType]
    from huggingface_hub.utils import disable_progress_bars

    match = _REFERENCE.fullmatch(reference.removeprefix(PREFIX))
    if match is None or ".." in reference:
        raise ModelError(f"{reference!r} does not name a repository on a hub", fix="write hf:OWNER/REPO[@REVISION]")
    disable_progress_bars()
    try:
        found: str = snapshot_download(
            match["repo"], revision=match["revision"], allow_patterns=_FILES, local_files_only=offline
        )
    except Exception as error:  # huggingface_hub lets the exceptions of whichever HTTP library it uses pass
        said = str(error).partition("\n")[0][:300]
        raise ModelError(
            f"{reference}: cannot be had ({type(error).__name__}: {said})",
            fix="check owner, name and network; or download it yourself and name the folder",
        ) from error
    return Path(found)

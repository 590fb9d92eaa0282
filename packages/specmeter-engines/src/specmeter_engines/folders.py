"""Models as folders of Hugging Face's form; bench models are exported into the cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from specmeter.cache import cache_dir, file_sha256
from specmeter.errors import ModelError
from specmeter.extensions import installing
from specmeter.models.bench import PREFIX
from specmeter.models.export import export_hf
from specmeter.models.reference import locate
from specmeter.record import ModelIdentity
from specmeter_engines.installed import ALONE

_WEIGHTS = "*.safetensors"
_WHOLE = "config.json", "genai_config.json", "openvino_model.xml"
"""What is written last into a folder, by its form."""
_PATIENCE_S = 1800.0
_SAYS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


def folder_model(options: object, name: str, reference: str) -> ModelIdentity:  # noqa: ARG001
    """The model in a folder, by a digest of its weights and of what says how they are used. Raises `ModelError`."""
    exported = reference.startswith(PREFIX)
    folder = folder_of_bench(reference, "hf", export_hf) if exported else Path(reference).expanduser().absolute()
    weights = sorted(folder.glob(_WEIGHTS))
    if not weights or not (folder / "config.json").is_file():
        raise ModelError(
            f"model {name}: {reference[:300]}: not a folder with config.json and {_WEIGHTS}",
            fix="pass such a folder, or make one: `specmeter models export bench:dense --out FOLDER`",
        )
    return folder_identity(name, reference, folder, weights, _SAYS)


def folder_identity(
    name: str, reference: str, folder: Path, weights: Sequence[Path], says: Sequence[str]
) -> ModelIdentity:
    """The model in a folder, by a digest of its weights and of the files that say how they are used."""
    files = [*weights, *(folder / it for it in says if (folder / it).is_file())]
    sums = {it.name: file_sha256(it) for it in files}
    return ModelIdentity(
        name=name,
        reference=reference,
        path=str(folder),
        sha256=hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest(),
        size_bytes=sum(it.stat().st_size for it in weights),
        origin="engine",
    )


def convert(
    source: Path, folder: Path, whole: str, engine: str, command: Callable[[Path], tuple[Sequence[str | Path], Path]]
) -> None:
    """Write the model of a GGUF file into `folder`, by an engine's own converter.

    `command` is given a folder for the time being and says what is run, and where it leaves the model; `whole` is the
    file that says that a model is all there, and is moved last. Raises `ModelError`.
    """
    if (folder / whole).exists():
        raise ModelError(f"{folder}: already contains a model", fix="choose another folder, or remove this one")
    with tempfile.TemporaryDirectory(prefix=f"{engine}-", dir=cache_dir(), ignore_cleanup_errors=True) as scratch:
        argv, made = command(Path(scratch))
        ran = [sys.executable, "-P", *map(str, argv)]
        done = subprocess.run(ran, capture_output=True, timeout=_PATIENCE_S, check=False, env=os.environ | ALONE)
        if done.returncode or not (made / whole).is_file():
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise ModelError(
                f"{source}: the converter of {engine} failed ({' '.join(said)[:300]})",
                fix=installing(engine, "specmeter-engines"),
            )
        folder.mkdir(parents=True, exist_ok=True)
        for it in sorted(made.iterdir(), key=lambda it: it.name == whole):
            if not it.is_symlink():
                shutil.move(it, folder / it.name)


def folder_of_bench(reference: str, form: str, export: Callable[[Path, Path], None]) -> Path:
    """Where a bench model lies in a form, which it is exported to first."""
    source = locate(reference, base_dir=Path())
    folder = cache_dir() / "exported" / f"{source.stem}-{form}-{file_sha256(source)[:16]}"
    if not any((folder / it).is_file() for it in _WHOLE):
        export(source, folder)
    return folder

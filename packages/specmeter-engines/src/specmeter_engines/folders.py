"""Models as folders of Hugging Face's form; bench models are exported into the cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from specmeter.errors import ModelError
from specmeter.files import cache_dir, file_sha256
from specmeter.models.bench import PREFIX
from specmeter.models.export import export_hf
from specmeter.models.reference import locate
from specmeter.record import ModelIdentity

_WEIGHTS = "*.safetensors"
_WHOLE = "config.json", "genai_config.json", "openvino_model.xml"
"""What is written last into a folder, by its form."""
_SAYS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


def folder_model(options: object, name: str, reference: str) -> ModelIdentity:  # noqa: ARG001
    """The model in a folder, by a digest of its weights and of what says how they are used. Raises `ModelError`."""
    exported = reference.startswith(PREFIX)
    folder = folder_of_bench(reference, "hf", export_hf) if exported else Path(reference).expanduser().absolute()
    weights = sorted(folder.glob(_WEIGHTS))
    if not weights or not (folder / "config.json").is_file():
        raise ModelError(
            f"model {name}: {reference[:300]}: no folder with config.json and {_WEIGHTS}",
            fix="name such a folder, or make one: specmeter models export bench:dense --out FOLDER",
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


def folder_of_bench(reference: str, form: str, export: Callable[[Path, Path], None]) -> Path:
    """Where a bench model lies in a form, which it is exported to first."""
    source = locate(reference, base_dir=Path())
    folder = cache_dir() / "exported" / f"{source.stem}-{form}-{file_sha256(source)[:16]}"
    if not any((folder / it).is_file() for it in _WHOLE):
        export(source, folder)
    return folder

"""Models as onnxruntime-genai reads them: folders with `genai_config.json`, made of Hugging Face's by its builder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from specmeter.errors import ModelError
from specmeter.files import cache_dir
from specmeter.models.bench import PREFIX
from specmeter.models.export import export_hf
from specmeter.record import ModelIdentity
from specmeter_engines.folders import folder_identity, folder_of_bench
from specmeter_engines.hosted import ALONE

CONFIG = "genai_config.json"
_PATIENCE_S = 1800.0


def onnx_model(options: object, name: str, reference: str) -> ModelIdentity:  # noqa: ARG001
    """The model in a folder, by a digest of all that is in it. Raises `ModelError`."""
    if reference.startswith(PREFIX):
        folder = folder_of_bench(reference, "onnx", export_onnx)
    else:
        folder = Path(reference).expanduser().absolute()
    if not (folder / CONFIG).is_file():
        raise ModelError(
            f"model {name}: {reference[:300]}: no folder with {CONFIG}",
            fix="make one with `python -m onnxruntime_genai.models.builder`, or of a bench model: specmeter models "
            "export bench:dense --format onnx --out FOLDER",
        )
    return folder_identity(name, reference, folder, sorted(folder.glob("*.onnx*")), (CONFIG, "tokenizer.json"))


def export_onnx(source: Path, folder: Path) -> None:
    """Write the model of a GGUF file into `folder`, in 32 bits, by onnxruntime-genai's own builder. Raises
    `ModelError`."""
    if (folder / CONFIG).exists():
        raise ModelError(f"{folder} holds a model already", fix="name another folder, or remove it")
    with tempfile.TemporaryDirectory(prefix="onnx-", dir=cache_dir(), ignore_cleanup_errors=True) as scratch:
        made = Path(scratch) / "made"
        export_hf(source, Path(scratch) / "hf")
        asked = {"-i": Path(scratch) / "hf", "-o": made, "-p": "fp32", "-e": "cpu", "-c": Path(scratch) / "cache"}
        argv = [sys.executable, "-P", "-m", "onnxruntime_genai.models.builder"]
        done = subprocess.run(
            [*argv, *(str(it) for pair in asked.items() for it in pair)],
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
            env=os.environ | ALONE,
        )
        if done.returncode or not (made / CONFIG).is_file():
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise ModelError(
                f"{source}: onnxruntime-genai's builder made no model of it ({' '.join(said)[:300]})",
                fix="pip install 'specmeter-engines[onnxruntime]'",
            )
        folder.mkdir(parents=True, exist_ok=True)
        for it in sorted(made.iterdir(), key=lambda it: it.name == CONFIG):  # what says that it is whole comes last
            shutil.move(it, folder / it.name)

"""Models as onnxruntime-genai reads them: folders with `genai_config.json`, made of Hugging Face's by its builder."""

from __future__ import annotations

from pathlib import Path

from specmeter.errors import ModelError
from specmeter.models.bench import PREFIX
from specmeter.models.export import export_hf
from specmeter.record import ModelIdentity
from specmeter_engines.folders import convert, folder_identity, folder_of_bench

CONFIG = "genai_config.json"


def onnx_model(options: object, name: str, reference: str) -> ModelIdentity:  # noqa: ARG001
    """The model in a folder, by a digest of all that is in it. Raises `ModelError`."""
    if reference.startswith(PREFIX):
        folder = folder_of_bench(reference, "onnx", export_onnx)
    else:
        folder = Path(reference).expanduser().absolute()
    if not (folder / CONFIG).is_file():
        raise ModelError(
            f"model {name}: {reference[:300]}: not a folder with {CONFIG}",
            fix="make one with `python -m onnxruntime_genai.models.builder`, or from a bench model: `specmeter "
            "models export bench:dense --format onnx --out FOLDER`",
        )
    return folder_identity(name, reference, folder, sorted(folder.glob("*.onnx*")), (CONFIG, "tokenizer.json"))


def export_onnx(source: Path, folder: Path) -> None:
    """Write the model of a GGUF file into `folder`, in 32 bits, by onnxruntime-genai's own builder. Raises
    `ModelError`."""

    def command(scratch: Path) -> tuple[list[str | Path], Path]:
        export_hf(source, scratch / "hf")
        argv: list[str | Path] = ["-m", "onnxruntime_genai.models.builder", "-p", "fp32", "-e", "cpu"]
        return [*argv, "-i", scratch / "hf", "-o", scratch / "made", "-c", scratch / "cache"], scratch / "made"

    convert(source, folder, CONFIG, "onnxruntime", command)

"""Models as OpenVINO GenAI reads them: GGUF files, or folders with its own form, which it makes of them."""

from __future__ import annotations

from pathlib import Path

from specmeter.errors import ModelError
from specmeter.models.bench import PREFIX
from specmeter.record import ModelIdentity
from specmeter_engines.folders import convert, folder_identity, folder_of_bench

MODEL = "openvino_model.xml"
_SAVE = """
import sys, openvino_genai
openvino_genai.LLMPipeline(sys.argv[1], "CPU", enable_save_ov_model=True)
"""


def openvino_model(options: object, name: str, reference: str) -> ModelIdentity:  # noqa: ARG001
    """The model of a GGUF file or of a folder, by a digest of its files. Raises `ModelError`."""
    if reference.startswith(PREFIX):
        path = folder_of_bench(reference, "openvino", export_openvino)
    else:
        path = Path(reference).expanduser().absolute()
    if path.is_file() and path.suffix == ".gguf":
        found = folder_identity(name, reference, path.parent, [path], ())
        return found.model_copy(update={"path": str(path)})
    if not (path / MODEL).is_file():
        raise ModelError(
            f"model {name}: {reference[:300]}: neither a GGUF file nor a folder with {MODEL}",
            fix="pass one (a draft model must be a folder: `specmeter models export FILE.gguf --format openvino "
            "--out FOLDER`)",
        )
    return folder_identity(
        name, reference, path, sorted(path.glob("*.bin")), sorted(it.name for it in path.glob("*.xml"))
    )


def export_openvino(source: Path, folder: Path) -> None:
    """Write the model of a GGUF file into `folder` as OpenVINO GenAI converts it. Raises `ModelError`."""

    def command(scratch: Path) -> tuple[list[str | Path], Path]:
        given = scratch / "model.gguf"
        given.symlink_to(source.absolute())
        return ["-c", _SAVE, given], scratch

    convert(source, folder, MODEL, "openvino", command)

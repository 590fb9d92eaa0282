"""Folders in MLX's format, made by hand, and packages that stand in for MLX."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {"model_type": "qwen3", "vocab_size": 100, "quantization": {"group_size": 64, "bits": 4}}
TENSORS: dict[str, tuple[str, list[int]]] = {
    "model.embed_tokens.weight": ("F16", [100, 64]),
    "model.layers.0.up.weight": ("U32", [128, 8]),
    "model.layers.0.up.scales": ("F16", [128, 1]),
    "model.layers.0.up.biases": ("F16", [128, 1]),
    "model.norm.weight": ("F16", [64]),
}
"""8,192 weights of 4 bit in 128 x 8 words, with a scale and a bias for each 64."""


def folder(path: Path, config: object = None, tensors: object = None) -> Path:
    """A model's folder; the numbers themselves are left out."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(CONFIG if config is None else config), encoding="utf-8")
    entries = tensors
    if entries is None:
        entries = {
            name: {"dtype": kind, "shape": shape, "data_offsets": [0, 0]} for name, (kind, shape) in TENSORS.items()
        }
    raw = json.dumps(entries).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw)
    return path


def stand_in(site: Path, *, tokens: int = 10**9, fails: str = "") -> None:
    """Packages `mlx` and `mlx_lm` with the functions that are used: the documented names and arguments, and
    `generate_step` that reads prompts at 1 ms per token and makes at most `tokens` tokens at 2 ms each."""
    files = {
        "mlx/__init__.py": "",
        "mlx/core.py": "def array(values):\n    return list(values)\n",
        "mlx_lm/__init__.py": "",
        "mlx_lm/models/__init__.py": "",
        "mlx_lm/models/cache.py": "def make_prompt_cache(model, max_kv_size=None):\n    return []\n",
        "mlx_lm/utils.py": (
            "from pathlib import Path\n"
            "def load_model(model_path, lazy=False, strict=True):\n"
            f"    if {fails!r}:\n        raise ValueError({fails!r})\n"
            "    assert isinstance(model_path, Path)\n"
            "    return object(), {}\n"
        ),
        "mlx_lm/generate.py": (
            "import time\n"
            "def generate_step(prompt, model, *, max_tokens=256, prompt_cache=None):\n"
            "    assert prompt and all(0 <= token < 100 for token in prompt)\n"
            "    prompt_cache.extend(prompt)\n"
            "    time.sleep(0.001 * len(prompt))\n"
            f"    for number in range(min(max_tokens, {tokens})):\n"
            "        if number:\n            time.sleep(0.002)\n"
            "        yield number, None\n"
        ),
    }
    for name, text in files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

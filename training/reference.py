"""What torch and the tokenizer say: `python reference.py` writes the data that the parity tests read.

The weights are read back from the shipped GGUF files, so that rounding to F16 or Q8_0 is the same on both sides and
only the arithmetic differs. Each sequence is the beginning of a held-out prompt continued greedily by torch itself.
"""

from __future__ import annotations

import json

import gguf
import numpy as np
import torch

from cores import BY_NAME, Core
from export import SHIPPED, gguf_name
from model import Model
from oddstrings import odd_strings
from prompts import OUT as PROMPTS
from tokenizer import load
from train import WORK

DATA = SHIPPED.parents[3] / "tests" / "data" / "cores"
COMPARED = ("dense", "moe", "draft-large", "draft-small")
SEQUENCES, GIVEN, GREEDY = 200, 32, 32
SAMPLE = 32
STRINGS = 10_000


def as_shipped(core: Core) -> Model:
    """The torch model with the weights of the shipped file."""
    reader = gguf.GGUFReader(SHIPPED / f"{core.name}.gguf")
    stored = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    model = Model(core.shape, core.seed)
    model.load_state_dict(
        {
            name: torch.from_numpy(stored[gguf_name(name)].astype(np.float32)).view(weight.shape)
            for name, weight in model.state_dict().items()
        }
    )
    return model.eval()


def beginnings() -> torch.Tensor:
    """The first tokens of 200 held-out prompts, the kinds taking turns."""
    tokenizer = load(WORK / "tokenizer-2048.json")
    files = [PROMPTS / f"{kind}.jsonl" for kind in ("fact", "code", "reason", "zh", "edit")]
    columns = [[json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()] for path in files]
    texts = [text for row in zip(*columns, strict=True) for text in row][:SEQUENCES]
    return torch.tensor([tokenizer.encode(text).ids[:GIVEN] for text in texts])


def write_tokenization() -> None:
    """Ten thousand strings and their token ids; character 1 separates the strings and occurs in none."""
    texts = list(odd_strings(STRINGS))
    encodings = load(WORK / "tokenizer-2048.json").encode_batch(texts)
    np.savez_compressed(
        DATA / "tokenization.npz",
        texts=np.frombuffer("\x01".join(texts).encode(), np.uint8),
        counts=np.array([len(encoding.ids) for encoding in encodings], np.uint16),
        ids=np.array([token for encoding in encodings for token in encoding.ids], np.uint16),
    )


@torch.no_grad()
def write_logits() -> None:
    """Greedy tokens, margins and a sample of logits of each compared core."""
    start = beginnings()
    columns = np.random.default_rng(0).choice(2048, SAMPLE, replace=False).astype(np.uint16)
    for name in COMPARED:
        model = as_shipped(BY_NAME[name])
        tokens = start
        for _ in range(GREEDY):
            tokens = torch.cat((tokens, model(tokens)[0][:, -1].argmax(-1, keepdim=True)), 1)
        logits = model(tokens)[0]
        best = logits.topk(2, -1)
        np.savez_compressed(
            DATA / f"{name}.npz",
            tokens=tokens.numpy().astype(np.uint16),
            best=best.indices[..., 0].numpy().astype(np.uint16),
            margin=(best.values[..., 0] - best.values[..., 1]).numpy().astype(np.float16),
            columns=columns,
            logits=logits[:, -1, columns.astype(np.int64)].numpy(),
            given=np.array(GIVEN),
        )
        print(f"{name}: {len(tokens)} sequences of {tokens.shape[1]} tokens")


def main() -> None:
    torch.set_num_threads(1)
    DATA.mkdir(parents=True, exist_ok=True)
    write_tokenization()
    write_logits()


if __name__ == "__main__":
    main()

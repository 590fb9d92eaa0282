"""Time and memory of reading the facts of a model with a vocabulary of 248,320 tokens, against the upstream package.

    uv run python benchmarks/gguf_header.py [--runs 5]

Each reading is a process of its own. The targets: at most 1 s and 100 MB.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf

TOKENS = 248_320
READERS = {
    "specmeter": "from pathlib import Path; from specmeter.models.facts import read_facts as read",
    "gguf.GGUFReader": "from pathlib import Path; from gguf import GGUFReader as read",
}
CHILD = """
import psutil, sys, time
{reader}
start = time.perf_counter()
kept = read(Path(sys.argv[1]))
print(time.perf_counter() - start, psutil.Process().memory_info().rss)
"""


def write_model(path: Path) -> None:
    """A header with a large vocabulary and one small tensor."""
    import numpy as np

    writer = gguf.GGUFWriter(path, "qwen3")
    tokens = [f"{number * 2_654_435_761 % 2**32:x}-token" for number in range(TOKENS)]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * TOKENS)
    writer.add_token_merges([f"{one} {other}" for one, other in itertools.pairwise(tokens)])
    writer.add_tensor("token_embd.weight", np.zeros((32, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "large.gguf"
        write_model(path)
        for name, reader in READERS.items():
            command = [sys.executable, "-c", CHILD.format(reader=reader), str(path)]
            outputs = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(runs)]
            seconds, memory = zip(*([float(word) for word in output.split()] for output in outputs), strict=True)
            print(f"{name:16} median {statistics.median(seconds):6.2f} s   {statistics.median(memory) / 1e6:6.0f} MB")


if __name__ == "__main__":
    main()

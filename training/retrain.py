"""Make everything again, from the text to the shipped files: `python retrain.py` (see README.md).

Two trainings run at a time, one per core of the processor; each is a process of its own with one thread, which is
faster than one training with two threads and gives the same weights whatever else the machine does.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cores import CORES
from heads import SEEDS

HERE = Path(__file__).parent
AT_ONCE = 2


def script(name: str, *arguments: str) -> None:
    """Run one of the scripts beside this one, and stop if it fails."""
    subprocess.run([sys.executable, str(HERE / f"{name}.py"), *arguments], check=True)


def main() -> None:
    script("prepare")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for finished in [pool.submit(script, "train", core.name) for core in CORES]:
            finished.result()
    script("export")
    script("hybrid")
    for name in SEEDS:
        script("heads", "train", name)
    script("heads", "export")
    script("prompts")
    script("reference")


if __name__ == "__main__":
    main()

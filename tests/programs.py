"""Programs that a test writes and starts at once."""

from __future__ import annotations

import subprocess
from pathlib import Path


def write_program(path: Path, text: str) -> None:
    """A shell writes it. If this process had it open while another thread forks, the child would keep it open, and
    starting it would fail with "Text file busy"."""
    order = ["/bin/sh", "-c", 'cat > "$0" && chmod +x "$0"', str(path)]
    subprocess.run(order, input=text, encoding="utf-8", check=True, env={"PATH": "/usr/bin:/bin"})

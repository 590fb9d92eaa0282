"""Plain English, and counts that agree with the code.

Words that make a sentence read as translated stay out of everything that is read: documentation, docstrings, messages.
Numbers that the documentation states about specmeter itself are counted here.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
READ = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *(path for folder in ("src", "tests", "scripts", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))),
    *sorted((ROOT / "src").rglob("*.yaml")),
]

AVOIDED = {
    "nobody, somebody, whoever, whom": r"\b(?:nobody|somebody|whoever|whom)\b",
    "for certain": r"\bfor certain\b",
    "is no X (say: is not a X)": r"(?<!there )\bis no\b(?! (?:longer|more|less|better|worse|larger|smaller)\b)",
    "of no use": r"\bof no use\b",
    "speaks against": r"\bspeaks? against\b",
    "really achieved": r"\breally achieved\b",
    "could not look": r"\bcould not look\b",
    "to be had": r"\b(?:can(?:not)?|could|to) be had\b",
}
"""What is avoided -> the pattern that finds it, in text whose white space was made single spaces."""


@pytest.mark.parametrize("path", READ, ids=lambda path: str(path.relative_to(ROOT)))
def test_prose_is_plain(path: Path) -> None:
    if path == Path(__file__).resolve():
        return
    text = re.sub(r"\s+(?:#\s+)?", " ", path.read_text(encoding="utf-8"))
    found = [
        f"{what}: ...{text[max(0, hit.start() - 60) : hit.end() + 40]}..."
        for what, pattern in AVOIDED.items()
        for hit in re.finditer(pattern, text, re.IGNORECASE)
    ]
    assert found == []

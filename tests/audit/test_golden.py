"""Golden acceptance lengths: whose they are, and how many are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from specmeter.audit.read.golden import GOLDEN
from specmeter.errors import UsageError

TEXT = """# Measured on first (B300, vLLM MTP), per num_speculative_tokens.
first:
  on:
    1: 1.79
"second model":
  on:
    1: 3.50
- 7
    2: 9.00
"""


def test_lengths_are_those_of_the_model_above_them(tmp_path: Path) -> None:
    """Whatever way YAML writes its name; what stands below something else has no model."""
    (file := tmp_path / "golden.yaml").write_text(TEXT, encoding="utf-8")
    assert [(it.target, it.gamma) for it in GOLDEN.read(file)] == [("first", 1), ("second model", 1)]


def test_a_file_of_very_many_lengths_is_refused(tmp_path: Path) -> None:
    (file := tmp_path / "many.yaml").write_text(TEXT + "first:\n  on:\n" + "    1: 1.79\n" * 20_001, encoding="utf-8")
    with pytest.raises(UsageError, match="more than 20,000"):
        list(GOLDEN.read(file))

"""The simulated worlds of `benchmarks/coverage.py`, for tests of the same intervals."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_FILE = Path(__file__).parent.parent / "benchmarks" / "coverage.py"
_SPEC = importlib.util.spec_from_file_location("coverage_benchmark", _FILE)
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = _MODULE
_SPEC.loader.exec_module(_MODULE)

covered_by_prompts = _MODULE.covered_by_prompts
covered_shares = _MODULE.covered_shares
stalled_runs = _MODULE.stalled_runs

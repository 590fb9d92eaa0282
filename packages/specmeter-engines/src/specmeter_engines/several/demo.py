"""`specmeter run engines-demo`: one target, one draft, one set of prompts, by every engine that is installed here."""

from __future__ import annotations

import os
from importlib.util import find_spec

from specmeter.engines.registry import spec_of
from specmeter.errors import EngineStartError
from specmeter_engines.hosted import PARTS
from specmeter_engines.installed import needed
from specmeter_engines.vllm.spec import PYTHON

_TEXT = """\
# One target, one draft, one set of prompts: every engine that is installed here, each beside its own plain decoding in
# every block. Which engines these are is looked up whenever this is read.
description: What does speculative decoding gain in each engine, and do they count the same?
targets: {{{targets}}}
drafts: {{small: "bench:draft-small"}}
arms:
  - {{method: draft, draft: small, gamma: 4}}
  - {{method: lookup, gamma: 4, ngram_n: 3, target: [{lookups}]}}
workloads:
  - {{source: bench, kinds: [fact, code], per_kind: 2}}
generation: {{max_tokens: 64, ignore_eos: true}}
design: {{blocks: 3, probe: "off", controls: false}}
engine:
  kind: several
  threads: 1
  context: 2048
  options:
    engines: [{engines}]
    settings:
      vllm: {{context: 2048, threads: 1, extra_flags: [--dtype, float32, --enforce-eager]}}
      openvino: {{context: 2048, options: {{precision: f32}}}}
variants:
  quick: {{design: {{blocks: 1, warmup: short}}}}
"""


def text() -> str:
    """The experiment, as a file would have it."""
    engines = [name for name in ("embedded", "vllm", *PARTS) if _is_here(name)]
    lookups = [it for it in engines if any(method.drafter == "lookup" for method in spec_of(it).traits.methods)]
    targets = ", ".join(f'{name}: "{name}:bench:dense"' for name in engines)
    return _TEXT.format(targets=targets, lookups=", ".join(lookups), engines=", ".join(engines))


def _is_here(name: str) -> bool:
    if name == "vllm":
        return PYTHON in os.environ or find_spec("vllm") is not None
    try:
        return name not in PARTS or bool(needed(name, *PARTS[name].packages))
    except EngineStartError:
        return False

"""The page of studies, docs/studies.md: by document, what is known first, then every claim with its rulings.

Claims come from each `study.yaml`, rulings on published numbers are computed, the rest is in `studies.toml`.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import specmeter_studies
from specmeter_studies.study import FINDINGS, ClaimRuling

TOLD: dict[str, Any] = tomllib.loads(Path(__file__).with_name("studies.toml").read_text(encoding="utf-8"))
MARKS = dict(zip(FINDINGS, ("✓", "✗", "?", "–"), strict=True))
"""`supported`, `contradicted`, `cannot tell`, `does not apply here` -> the mark in tables."""
HEAD = """# Studies

A study repeats a published document and rules on its claims: from the document's own *numbers*, and from runs on
[*bench* models](bench-models.md), which show whether a claim can be decided.

✓ supported, ✗ contradicted, ? undecided, – does not apply here (it names models or machines, others were measured)

```sh
specmeter study list
specmeter report --published NAME            # the document's numbers: each ruling with its reason, tables, figures
specmeter study run NAME --variant bench     # measure with models that come with specmeter; moesd: without --variant
```

A ruling rests on intervals that lie wholly on one side, on exact counts, or on all values of a printed table.
Impossible, implausible ([audit](how-to/audit.md)) and suspect numbers support nothing. Claims are shortened here.
[Repeat a study](how-to/studies.md), or [write one](how-to/write-a-study.md).
"""


def studies_page() -> str:
    """Every study, under its document."""
    named = [name for document in TOLD["document"] for name in document["studies"]]
    if sorted(named) != sorted(specmeter_studies.names()) or sorted(TOLD["bench"]) != sorted(named):
        raise ValueError("studies.toml: name each study once in a document and once in bench")
    parts = [HEAD]
    for document in TOLD["document"]:
        title = f"[{document['title']}]({document['link']})" if "link" in document else document["title"]
        parts += [f"## {title}\n\n{document['found']}\n", *map(_study, document["studies"])]
    return "\n".join(parts)


def _study(name: str) -> str:
    study = specmeter_studies.find(name)
    data = study.published()
    printed = {} if data is None else {it.id: it for it in specmeter_studies.findings(name, data).claims}
    bench: dict[str, Any] = dict(TOLD["bench"][name])
    run = bench.pop("run")
    claims = study.form.claims
    if list(bench) != [claim.id for claim in claims]:
        raise ValueError(f"studies.toml: bench.{name} has other claims than its study.yaml, or another order")
    rows = (f"{_short(claim.claim)} | {_marked(printed, claim.id)}{MARKS[bench[claim.id]]}" for claim in claims)
    heads = "claim | numbers | bench\n---|---|---" if printed else "claim | bench\n---|---"
    title = study.title if study.title.endswith("?") else f"{study.title}."
    return "\n".join([f"### {name}\n\n{title} Bench: {run}.\n", heads, *rows, ""])


def _short(claim: str) -> str:
    """Without what stands in brackets (those of formulas stay), and, of a long one, without its explanation."""
    bare = re.sub(r"(?<!/) \([^)]*\)", "", claim).rstrip(".")
    return bare if len(bare.split()) <= 25 else bare.split(": ")[0]


def _marked(printed: dict[str, ClaimRuling], claim: str) -> str:
    return f"{MARKS[printed[claim].ruling]} | " if printed else ""

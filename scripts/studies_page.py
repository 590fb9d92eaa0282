"""The page of studies, docs/studies.md: by document, what is known first, then every claim with its rulings.

Rulings on published numbers are computed; claims in a few words and rulings of runs are in `studies.toml`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import specmeter_studies
from specmeter_studies.study import FINDINGS

TOLD: dict[str, Any] = tomllib.loads(Path(__file__).with_name("studies.toml").read_text(encoding="utf-8"))
MARKS = dict(zip(FINDINGS, ("✓", "✗", "?", "–"), strict=True))
"""`supported`, `contradicted`, `cannot tell`, `does not apply here` -> the mark in tables."""
HEAD = """# Studies

A study repeats a published document and rules on its claims: from the document's own *numbers*, and on
[*bench* models](bench-models.md), which show whether a claim can be decided, and some on small *real* models.

✓ supported, ✗ contradicted, ? undecided, – does not apply (other models or machines were measured)

```sh
uv run specmeter study list
uv run specmeter report --published NAME            # each ruling with its reason, tables, figures
uv run specmeter study run NAME --variant bench     # measure; moesd: without --variant
uv run specmeter study run NAME --variant real      # on small real models, some studies
```

A ruling needs intervals entirely on one side, exact counts, or all values of a printed table. Impossible,
[implausible](how-to/audit.md) and suspect numbers do not count. Claims are abridged.
[Repeat or write a study](how-to/studies.md).
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
    run, on = bench.pop("run"), bench.pop("on", "bench")
    if list(bench) != [claim.id for claim in study.form.claims]:
        raise ValueError(f"studies.toml: bench.{name} has other claims than its study.yaml, or another order")
    real: dict[str, Any] = dict(TOLD.get("real", {}).get(name, {}))
    heads = ["claim", *(["numbers"] if printed else []), on, *(["real"] if real else [])]
    rows: list[str] = []
    apart: list[str] = []
    for claim, said in bench.items():
        ruling, told = said.split(": ", 1)
        ruled = [*([printed[claim].ruling] if printed else []), ruling, *([real[claim]] if real else [])]
        rows.append("|".join([told, *(MARKS[it] for it in ruled)]))
        if real and {ruling, real[claim]} == {"supported", "contradicted"}:
            apart.append(told)
    title = study.title if study.title.endswith("?") else f"{study.title}."
    head = [f"### {name}\n\n{title} {on.capitalize()}: {run}.\n", "|".join(heads), "|".join("---" for _ in heads)]
    return "\n".join([*head, *rows, "", *(_on_real(real, apart) if real else ())])


def _on_real(real: dict[str, Any], apart: list[str]) -> list[str]:
    """What small real models say beside bench models: where the two disagree, and every configuration."""
    found = f"disagree on: {'; '.join(apart)}" if apart else "contradict each other on no claim"
    return [
        f"Real: {real['run']}. Real and bench models {found}. Speedup and acceptance rate (bench: {real['bench']}):\n",
        "configuration|bench|real",
        "---|---|---",
        *("|".join(row) for row in real["arms"]),
        "",
    ]

"""Write docs/reference/ from the code itself: commands, keys of experiment files, columns, checks, the Python face.

docs/studies.md comes from there too; so do the tables in docs/reference/engines.md and docs/reference/audit.md.

uv run python scripts/make_reference.py            write the pages
uv run python scripts/make_reference.py --check    exit 1 if a page is out of date
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import click
from api_page import api_page
from studies_page import studies_page

from specmeter.audit.equations import LAWS
from specmeter.audit.judge import BOUNDS
from specmeter.audit.read.options import meanings
from specmeter.cli import root
from specmeter.experiments.experiment import Experiment
from specmeter.messages import words
from specmeter.record import TRUTHS, EngineTraits, MethodTraits, Record
from specmeter.record.base import descriptions
from specmeter.show.export.tables import TABLES
from specmeter.validity.checks.registry import CHECKS

DOCS = Path(__file__).resolve().parent.parent / "docs"
ENGINES, AUDIT = "reference/engines.md", "reference/audit.md"
BEGIN, END = "<!-- Written by scripts/make_reference.py; do not edit. -->\n", "<!-- Up to here. -->\n"
NOTE = "<!-- Written by scripts/make_reference.py; do not edit. -->\n\n"


def commands_page() -> str:
    """Every command with its help text; an option that several have is explained once."""
    commands = [(command, path, _context(command, path)) for command, path in _walk(root, "specmeter")]
    explained: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for command, _, context in commands:
        for option in _options(command, context):
            if (record := option.get_help_record(context)) is not None:
                explained.setdefault(tuple(option.opts), []).append(record)
    common = {opts: Counter(told).most_common(1)[0][0] for opts, told in explained.items() if _is_common(opts, told)}
    parts = [
        "# Commands\n",
        "`specmeter COMMAND --help` prints the same, with examples.\n",
        "## Options of several commands\n",
        "| option | meaning |\n|---|---|",
        *("| `{}` | {} |".format(*(_cell(it) for it in record)) for opts, record in common.items() if "-h" not in opts),
        "",
    ]
    for command, path, context in commands:
        also = [f"`{opts[0]}`" for it in _options(command, context) if (opts := tuple(it.opts)) in common]
        parts.append(f"## `{path}`\n\n```text\n{_help(command, context, common)}\n```\n")
        if len(also) > 1:
            parts.append(f"Also {', '.join(it for it in also if it != '`-h`')}.\n")
    return NOTE + "\n".join(parts)


EVERYWHERE = {("--json",), ("--offline",)}
"""Options that mean one thing wherever they are, in slightly other words."""


def _is_common(opts: tuple[str, ...], told: list[tuple[str, str]]) -> bool:
    return opts in EVERYWHERE or (len(told) > 1 and len(set(told)) == 1)


def _context(command: click.Command, path: str) -> click.Context:
    names = root.context_settings["help_option_names"]
    return click.Context(command, info_name=path, max_content_width=96, terminal_width=96, help_option_names=names)


def _options(command: click.Command, context: click.Context) -> list[click.Option]:
    return [it for it in command.get_params(context) if isinstance(it, click.Option)]


def _help(command: click.Command, context: click.Context, common: Mapping[tuple[str, ...], object]) -> str:
    """A command's help without its examples and without the options that are explained for all."""
    formatter = context.make_formatter()
    usage = (it for it in command.collect_usage_pieces(context) if it != "[OPTIONS]")
    formatter.write_usage(context.command_path, " ".join(usage), "")
    command.format_help_text(context, formatter)
    own = [it for it in _options(command, context) if tuple(it.opts) not in common]
    records = {it.name: record for it in own if (record := it.get_help_record(context)) is not None}
    for heading, names in getattr(command, "groups", {}).items():
        rows = [records.pop(name) for name in names if name in records]
        if rows:
            with formatter.section(heading):
                formatter.write_dl(rows)
    if records:
        with formatter.section("Other options" if hasattr(command, "groups") else "Options"):
            formatter.write_dl(list(records.values()))
    command.format_epilog(context, formatter)
    return re.sub(r"\n *Examples?:\n(?: +\S.*\n)+", "", formatter.getvalue()).strip()


def _walk(command: click.Command, path: str) -> list[tuple[click.Command, str]]:
    found = [(command, path)]
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                found += _walk(child, f"{path} {name}")
    return found


def experiment_page() -> str:
    """Every key of an experiment file, object by object; keys that another object has as well are not repeated."""
    schema = Experiment.model_json_schema()
    definitions: dict[str, Any] = schema.get("$defs", {})
    objects = {name: definitions[name] for name in sorted(definitions) if "properties" in definitions[name]}
    rows = {name: _rows(found) for name, found in {"experiment": schema, **objects}.items()}
    workloads = [set(rows[name]) for name in rows if name.endswith("Workload")]
    shared = set.intersection(*workloads)
    parts = [
        "# Keys of experiment files\n",
        "The same as `specmeter run --schema`, for reading. Unknown keys are errors.\n",
    ]
    for name, found in {"experiment": schema, **objects}.items():
        also = next((other for other in rows if other != name and set(rows[other]) < set(rows[name])), None)
        own = [row for row in rows[name] if row not in rows.get(also or "", ())]
        if name.endswith("Workload"):
            also, own = None, [row for row in rows[name] if row not in shared]
        about = _first(found.get("description", ""))
        if also:
            about += f" Also has the keys of [{also}](#{also.lower()})."
        parts.append("\n".join([f"## {name}\n", f"{about}\n", *own, ""]))
    every = [row for row in rows["FileWorkload"] if row in shared]
    parts.append("\n".join(["## Workload\n", "Keys of every workload.\n", *every, ""]))
    return NOTE + "\n".join(parts)


def _rows(schema: dict[str, Any]) -> list[str]:
    required = set(schema.get("required", []))
    rows: list[str] = []
    for key, value in cast("dict[str, dict[str, Any]]", schema["properties"]).items():
        kind, default = _type(value), value.get("default")
        if key in required:
            kind += ", required"
        elif default is not None and _json(default) != _LONG:
            kind += f", default `{_json(default)}`"
        rows.append(f"- `{key}` ({kind}): {' '.join(str(value.get('description', '')).split())}".removesuffix(": "))
    return rows


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = str(schema["$ref"]).rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            kinds = dict.fromkeys(_type(option) for option in schema[key] if option.get("type") != "null")
            return " or ".join(kinds)
    if schema.get("type") == "array":
        inner = schema.get("items") or next(iter(schema.get("prefixItems", [])), {})
        return f"list of {_type(inner)}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"mapping to {_type(schema['additionalProperties'])}"
    return "mapping" if schema.get("type") == "object" else str(schema.get("type", "any"))


def _json(value: object) -> str:
    import json

    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else _LONG


_LONG = "see there"
"""Instead of a default that is an object of its own."""


def _first(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def columns_page() -> str:
    """Every column of every export table."""
    parts = [
        "# Columns of exports\n",
        "What `specmeter export --table TABLE` writes and `specmeter.load(RUN).table(TABLE)` gives. Any "
        "value may be missing. `integers` and `numbers` are lists, `json` is nested data: plain data in Python and "
        "JSON Lines, JSON as text elsewhere (in Arrow and Parquet, lists of numbers are lists).\n",
    ]
    first: dict[str, str] = {}
    for name, table in TABLES.items():
        rows: list[str] = []
        above: dict[str, list[str]] = {}
        for it in table.columns:
            row = f"- `{it.name}` ({it.type}): {it.description}"
            if first.setdefault(row, name) == name:
                rows.append(row)
            else:
                above.setdefault(first[row], []).append(f"`{it.name}`")
        rows[:0] = [f"- as in [{other}](#{other}): {', '.join(names)}" for other, names in above.items()]
        parts.append("\n".join([f"## {name}\n", *rows, ""]))
    return NOTE + "\n".join(parts)


def checks_page() -> str:
    """Every validity check, with what it assumes."""
    parts = [
        "# Validity checks\n",
        "What `specmeter check` looks for, and how serious a finding can be: `invalid` (the number is false), "
        "`suspect` (doubtful: do not publish it) or `note`. *Assumes*: what must be true for the most serious finding. "
        "*Otherwise*: the consequence if it is not. [Why you can trust the numbers](../explanation/trust.md) explains "
        "the verdicts.\n",
    ]
    english = words()
    parts += [
        f"## {it.id}\n\n{it.severity}{', also before the run' if it.before else ''}: {english(f'threat.{it.id}')}.\n\n"
        f"Assumes: {it.assumes}. Otherwise: {it.otherwise}.\n"
        for it in CHECKS
    ]
    parts.append(f"## data-changed\n\ninvalid: {english('threat.data-changed')}. It reads all data of the run.\n")
    return NOTE + "\n".join(parts)


def engines_page() -> str:
    """What engines state about themselves, in the middle of its page."""
    tells = "\n".join(f"- `{truth}`: {meaning}" for truth, meaning in TRUTHS.items())
    parts = (_fields(EngineTraits), "Each of `methods`:", _fields(MethodTraits), "Values of `tells`:", tells)
    return _filled(ENGINES, "\n\n".join(parts))


def _fields(record: type[Record]) -> str:
    rows: list[str] = []
    meanings = descriptions(record)
    for name, field in record.model_fields.items():
        default = f" (default `{_json(field.default)}`)" if not field.is_required() and field.default else ""
        rows.append(f"- `{name}`{default}: {' '.join(meanings.get(name, '').split())}")
    return "\n".join(rows)


_FORBIDDEN = {
    "synthetic-on": ("a speedup measured with simulated acceptance", ""),
    "target-decode-failed": ("a rate, if more than 1% of the target's verifications failed", ""),
    "conservation": (
        "counts that do not add up: more accepted than drafted, more tokens than forward passes can give",
        "the row is one run or states its concurrency, and always for counts of draft tokens",
    ),
    "speedup-not-its-rates": (
        "a printed speedup that is not the ratio of the row's rates",
        "the row is one run, or is off by more than 1.5 times without being a mean",
    ),
    "window-mismatch": ("a rate that is not the row's tokens over its time", "the row is one run"),
    "tau-not-its-acceptance": ("tau > 1 + acceptance x gamma, if drafts are chains", ""),
    "speedup-above-tau": ("speedup > tau", ""),
    "draft-time-bound": ("drafting alone takes longer than the run", ""),
    "speedup-above-cost-bound": (
        "speedup > tau / (1 + gamma x draft cost), costs in forward passes of the target",
        "",
    ),
    "bandwidth-bound": ("weights read faster than the memory's peak", ""),
}
"""Bound -> what it forbids, and when it needs none of its assumptions."""
_FAILS = {
    "forward": (
        "CPUs with Q8_0 weights: rows that need 0.5 or more are undecided there. "
        "`--cheapest-forward` sets your own measurement"
    ),
    "pooled": "means, which exceed tau by up to 18% (undecided if the heading says mean)",
    "acceptance": "shares of the output, and trees (Medusa, EAGLE)",
    "full-length": "drafting that stops early (`p_min`) or adapts its length",
    "in-turn": "PEARL, AMUSD and other methods that draft in parallel",
    "draft-rate": "draft models measured elsewhere, or drafting several tokens per pass",
    "baseline": "baselines of another program or machine",
    "one-window": "means of rates, and end-to-end speedups next to decode rates",
    "one-request": "servers under load",
    "same-load": "servers whose users come and go",
    "one-method": "two methods combined, if the numbers are of one",
    "last-draft": "adaptive draft lengths that no name mentions",
    "bandwidth": "weights in a cache, or in several memories",
    "weights": "MoE models, which read only the active experts, and skipped layers",
}
"""Assumption -> where it is known to fail."""


def audit_page() -> str:
    """Bounds of audits, what they assume, equations, and meanings of columns, each in its place of the page."""
    laws = ["| bound | cannot be | rests on |", "|---|---|---|"]
    for bound, assumed in BOUNDS.items():
        forbidden, where = _FORBIDDEN[bound]
        rests = ", ".join(f"`{name}`" for name in assumed) or "arithmetic"
        laws.append(f"| `{bound}` | {forbidden} | {rests}{where and f'; arithmetic if {where}'} |")
    fails = [f"- `{name}`: {words()(f'assumption.{name}')}. *Fails for* {what}." for name, what in _FAILS.items()]
    equations: list[str] = []
    for name, law in LAWS.items():
        mean = f", of means {law.of_means - 1:.0%}" if law.far < law.of_means < math.inf else ""
        kept = ", if the other rows keep it" if law.learned else ""
        equations.append(f"- `{name}`: {f'{law.far - 1:.0%}' if law.far > 1 else 'rounding'}{mean}{kept}")
    known = meanings()
    columns = [f"- `{name}`: {meaning}" for name, meaning in known.items() if meaning]
    columns.append("- as named: " + ", ".join(f"`{name}`" for name, meaning in known.items() if not meaning))
    return _filled(AUDIT, *("\n".join(table) for table in (laws, fails, equations, columns)))


def _filled(name: str, *tables: str) -> str:
    """A page with these tables where it has a place for each."""
    before, *places = (DOCS / name).read_text(encoding="utf-8").split(BEGIN)
    filled = (f"{BEGIN}\n{table}\n\n{END}{rest.split(END)[1]}" for table, rest in zip(tables, places, strict=True))
    return before + "".join(filled)


PAGES = {
    AUDIT: audit_page,
    "reference/checks.md": checks_page,
    "reference/commands.md": commands_page,
    "reference/experiment.md": experiment_page,
    "reference/columns.md": columns_page,
    "reference/api.md": lambda: NOTE + api_page(),
    "studies.md": lambda: NOTE + studies_page(),
    ENGINES: engines_page,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale: list[str] = []
    for name, page in PAGES.items():
        path, text = DOCS / name, page().rstrip() + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="\n")
    print("\n".join(f"{'out of date' if check else 'written'}: {name}" for name in stale) or "up to date")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

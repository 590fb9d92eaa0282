"""Write docs/reference/ from the code itself: commands, keys of experiment files, columns, checks, the Python face.

docs/studies.md, and the table of what checks assume in docs/explanation/validity.md, come from there too.

uv run python scripts/make_reference.py            write the pages
uv run python scripts/make_reference.py --check    exit 1 if a page is out of date
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import click
from api_page import api_page
from studies_page import studies_page

from specmeter.audit.judge import ASSUMPTIONS, BOUNDS
from specmeter.audit.read.columns import COLUMNS
from specmeter.cli import root
from specmeter.experiments.experiment import Experiment
from specmeter.record import TRUTHS, EngineTraits, MethodTraits, Record
from specmeter.record.base import descriptions
from specmeter.show.export.tables import TABLES
from specmeter.validity.checks import CHECKS
from specmeter.validity.checks.check import Check

DOCS = Path(__file__).resolve().parent.parent / "docs"
VALIDITY = "explanation/validity.md"
ENGINES = "reference/engines.md"
AUDIT = "how-to/audit.md"
BEGIN, END = "<!-- Written by scripts/make_reference.py; do not edit. -->\n", "<!-- Up to here. -->\n"
NOTE = "<!-- Written by scripts/make_reference.py; do not edit. -->\n\n"


def commands_page() -> str:
    """Every command with its help text."""
    parts = ["# Commands\n"]
    for command, path in _walk(root, "specmeter"):
        names = root.context_settings["help_option_names"]
        context = click.Context(
            command, info_name=path, max_content_width=96, terminal_width=96, help_option_names=names
        )
        parts.append(f"## `{path}`\n\n```text\n{command.get_help(context)}\n```\n")
    return NOTE + "\n".join(parts)


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
    """Every key of an experiment file, object by object."""
    schema = Experiment.model_json_schema()
    definitions: dict[str, Any] = schema.get("$defs", {})
    parts = [
        "# Keys of experiment files\n",
        "The same as `specmeter run --schema`, for reading. Unknown keys are errors.\n",
        _object("experiment", schema),
    ]
    parts += [_object(name, definitions[name]) for name in sorted(definitions) if "properties" in definitions[name]]
    return NOTE + "\n".join(parts)


def _object(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", []))
    lines = [f"## {name}\n", f"{_first(schema.get('description', ''))}\n", "| key | type | default | meaning |"]
    lines.append("|---|---|---|---|")
    for key, value in cast("dict[str, dict[str, Any]]", schema["properties"]).items():
        default = "required" if key in required else f"`{_json(value['default'])}`" if "default" in value else ""
        meaning = " ".join(str(value.get("description", "")).split()).replace("|", "\\|")
        lines.append(f"| `{key}` | {_type(value)} | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


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
    return text if len(text) <= 60 else "see there"


def _first(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def columns_page() -> str:
    """Every column of every export table."""
    parts = [
        "# Columns of exports\n",
        "What `specmeter export --table TABLE` writes and `specmeter.load(RUN).table(TABLE)` gives, in this order. Any "
        "value may be missing. `integers` and `numbers` are lists, `json` is nested data: plain data in Python and "
        "JSON Lines, JSON as text elsewhere (in Arrow and Parquet, lists of numbers are lists).\n",
    ]
    for name, table in TABLES.items():
        parts.append(f"## {name}\n\n| column | type | meaning |\n|---|---|---|")
        rows = (f"| `{it.name}` | {it.type} | {it.description} |" for it in table.columns)
        parts.append("\n".join(rows) + "\n")
    return NOTE + "\n".join(parts)


def checks_page() -> str:
    """Every validity check."""
    parts = [
        "# Validity checks\n",
        "What `specmeter check` looks for, and what a finding makes of the number it is about at most: `invalid` (it "
        "is false), `suspect` (it may not mean what it says) or a `note`. How verdicts follow from findings is told in "
        "[Can the numbers be trusted?](../explanation/validity.md).\n",
        "| check | looks for | at most | also before the run | reads |\n|---|---|---|---|---|",
    ]
    for check in CHECKS:
        reads = ", ".join(check.saw)
        parts.append(
            f"| `{check.id}` | {check.threat} | {check.severity} | {'yes' if check.before else ''} | {reads} |"
        )
    parts.append(f"\n## What each check assumes\n\n{_assumptions(CHECKS)}")
    parts.append(
        "\n`data-changed` comes on top: the data was changed after it was certified (`invalid`, reads everything)."
    )
    return NOTE + "\n".join(parts)


def _assumptions(checks: Iterable[Check]) -> str:
    """A table: what has to hold for a check's heaviest finding, and what follows where it does not."""
    rows = [f"| `{check.id}` | {check.severity} | {check.assumes} | {check.otherwise} |" for check in checks]
    return "\n".join(["| check | at most | assumes | where that fails |\n|---|---|---|---|", *rows])


def validity_page() -> str:
    """The explanation of validity with its table of the checks that can find a number false."""
    return _filled(VALIDITY, _assumptions(check for check in CHECKS if check.severity == "invalid"))


def engines_page() -> str:
    """What engines state about themselves, in the middle of its page."""
    tables = [f"{_fields(EngineTraits)}\n\nEach of `methods` has\n\n{_fields(MethodTraits)}\n\n`tells` names these:\n"]
    tables += [
        "| truth | it tells |",
        "|---|---|",
        *(f"| `{truth}` | {meaning} |" for truth, meaning in TRUTHS.items()),
    ]
    return _filled(ENGINES, "\n".join(tables))


def _fields(record: type[Record]) -> str:
    rows = ["| trait | default | meaning |", "|---|---|---|"]
    told = descriptions(record)
    for name, field in record.model_fields.items():
        default = "required" if field.is_required() else f"`{_json(field.default)}`"
        rows.append(f"| `{name}` | {default} | {' '.join(told.get(name, '').split())} |")
    return "\n".join(rows)


def audit_page() -> str:
    """The how-to on audits with its tables of bounds, of what they assume, and of the columns that are read."""
    laws = ["| bound | what cannot be | rests on |", "|---|---|---|"]
    for item in BOUNDS:
        rests = ", ".join(f"`{name}`" for name in item.assumes) or "arithmetic"
        exact = f"; arithmetic where {item.exact_where}" if item.exact_where else ""
        laws.append(f"| `{item.name}` | {item.forbids} | {rests}{exact} |")
    assumed = ["| assumption | what is taken for granted | known to fail |", "|---|---|---|"]
    assumed += [f"| `{name}` | {item.states} | {item.fails} |" for name, item in ASSUMPTIONS.items()]
    columns = ["| column | also | meaning |", "|---|---|---|"]
    for column in COLUMNS:
        also = ", ".join(f"`{alias}`" for alias in column.aliases)
        columns.append(f"| `{column.name}` | {also} | {column.meaning} |")
    return _filled(AUDIT, "\n".join(laws), "\n".join(assumed), "\n".join(columns))


def _filled(name: str, *tables: str) -> str:
    """A page with these tables where it has a place for each."""
    before, *places = (DOCS / name).read_text(encoding="utf-8").split(BEGIN)
    filled = (f"{BEGIN}\n{table}\n\n{END}{rest.split(END)[1]}" for table, rest in zip(tables, places, strict=True))
    return before + "".join(filled)


PAGES = {
    "reference/checks.md": checks_page,
    "reference/commands.md": commands_page,
    "reference/experiment.md": experiment_page,
    "reference/columns.md": columns_page,
    "reference/api.md": lambda: NOTE + api_page(),
    "studies.md": lambda: NOTE + studies_page(),
    VALIDITY: validity_page,
    ENGINES: engines_page,
    AUDIT: audit_page,
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

"""`specmeter models`: list, build, inspect and compare models."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specmeter.show.terminal.text import printable

if TYPE_CHECKING:
    from specmeter.models.compare import Comparison
    from specmeter.models.facts import ModelFacts

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, with sizes in bytes.")
_OFFLINE = click.option("--offline", is_flag=True, help="Use only what is on this machine; download nothing.")
_STATUS_STYLE = {"ok": "green", "warning": "yellow", "refused": "bold red"}
_CACHE_LIMIT = 1000
_CELL_LIMIT = 500


@click.group(name="models")
def command() -> None:
    """List, build, inspect and compare models.

    \b
    A model is named by a REFERENCE:
      models/qwen3.gguf                        a file
      bench:moe-900m                           a bench model that comes with specmeter
      bench:dense?size=2GiB&quant=Q8_0         the same with another size or number format
      hf:OWNER/REPO/FILE.gguf                  a file on a hub, downloaded once
      hf:OWNER/REPO/FILE.gguf@REVISION         the same, pinned to a branch, tag or commit

    \b
    Examples:
      specmeter models list
      specmeter models inspect models/qwen3.gguf
      specmeter models compare models/qwen3.gguf models/qwen3-draft.gguf
    """


@command.command(name="list")
@_JSON
def list_models(as_json: bool) -> None:
    """List bench models and the files in the cache.

    \b
    Examples:
      specmeter models list
      specmeter models list --json | jq '.bench[].reference'
    """
    bench, cached = _bench_models(), _cached_files()
    if as_json:
        click.echo(json.dumps({"bench": bench, "cached": cached}, indent=2))
        return
    _table(
        ("reference", "architecture", "size", "parameters", "state"),
        [
            (
                model["reference"],
                model["architecture"],
                _bytes(model["size_bytes"]),
                _count(model["parameters"]),
                ("ready" if model["present"] else "made on first use")
                + (", timing only" if model["timing_only"] else ""),
            )
            for model in bench
        ],
        right=(2, 3),
    )
    if cached:
        click.echo()
        _table(
            ("file in the cache", "size"), [(file["path"], _bytes(file["size_bytes"])) for file in cached], right=(1,)
        )


@command.command()
@click.argument("references", nargs=-1, required=True, metavar="REFERENCE...")
@_OFFLINE
@_JSON
def build(references: tuple[str, ...], offline: bool, as_json: bool) -> None:
    """Make or download models now, so that a run does not have to.

    Prints the path of each model file, or with --json its identity (SHA-256, size).

    \b
    Examples:
      specmeter models build bench:dense-400m bench:moe-400m
      specmeter models build 'bench:moe?size=2GiB&quant=Q4_0'
      specmeter models build hf:OWNER/REPO/FILE.gguf
    """
    from specmeter.models.reference import resolve
    from specmeter.show.terminal.progress import error_console, model_progress

    with model_progress(error_console()) as bar:
        models = [
            resolve(name, name, base_dir=Path(), offline=offline, progress=partial(bar, name)) for name in references
        ]
    if as_json:
        click.echo(json.dumps([model.model_dump(mode="json", exclude={"name"}) for model in models], indent=2))
    else:
        for model in models:
            click.echo(printable(model.path))


@command.command()
@click.argument("model", metavar="FILE|REFERENCE")
@click.option("--kv-type-k", default="f16", show_default=True, help="Type of the K cache that sizes are given for.")
@click.option("--kv-type-v", default="f16", show_default=True, help="Type of the V cache that sizes are given for.")
@_OFFLINE
@_JSON
def inspect(model: str, kv_type_k: str, kv_type_v: str, offline: bool, as_json: bool) -> None:
    """Say what a model file is, and how many bytes one token costs.

    Only the header is read. A bench model that is not there yet is made first, a hub's is downloaded.

    \b
    Examples:
      specmeter models inspect bench:moe
      specmeter models inspect qwen3-30b-a3b.gguf --kv-type-k q8_0 --kv-type-v q8_0
      specmeter models inspect model.gguf --json | jq .weights
    """
    from specmeter.engines.llama_cpp.kinds import KV_TYPES
    from specmeter.errors import UsageError
    from specmeter.models.facts import read_facts

    for flag, kind in (("--kv-type-k", kv_type_k), ("--kv-type-v", kv_type_v)):
        if kind not in KV_TYPES:
            raise UsageError(f"{flag}: unknown type {kind!r}", fix=f"use one of {', '.join(KV_TYPES)}")
    facts = read_facts(_located(model, offline))
    kv_bytes = facts.kv_bytes_per_token(kv_type_k, kv_type_v)
    if as_json:
        derived = {"weight_bytes_per_token": facts.weights.bytes_per_token, "kv_bytes_per_token": kv_bytes}
        click.echo(json.dumps({**facts.model_dump(mode="json"), **derived}, indent=2))
    else:
        _pairs(_described(facts, f"K {kv_type_k}, V {kv_type_v}", kv_bytes))


@command.command()
@click.argument("target")
@click.argument("draft")
@_OFFLINE
@_JSON
@click.pass_context
def compare(ctx: click.Context, target: str, draft: str, offline: bool, as_json: bool) -> None:
    """Say whether DRAFT can draft for TARGET, and if not, why.

    The conditions are llama.cpp's; warnings are about what it does not check. A refused draft does not stop its
    server, which goes on without speculation. Ends with exit code 1 when a condition is refused.

    \b
    Examples:
      specmeter models compare bench:dense bench:draft-small
      specmeter models compare target.gguf draft.gguf --json | jq .accepted
    """
    from specmeter.models.compare import compare as compare_models

    comparison = compare_models(_located(target, offline), _located(draft, offline))
    if as_json:
        click.echo(json.dumps({"accepted": comparison.accepted, **comparison.model_dump(mode="json")}, indent=2))
    else:
        _show(comparison)
    ctx.exit(0 if comparison.accepted else 1)


def _located(reference: str, offline: bool) -> Path:
    from specmeter.models.reference import locate
    from specmeter.show.terminal.progress import error_console, model_progress

    with model_progress(error_console()) as bar:
        return locate(reference, base_dir=Path(), offline=offline, progress=partial(bar, reference))


def _bench_models() -> list[dict[str, Any]]:
    from specmeter.models import bench

    plans = [bench.describe(bench.parse(bench.PREFIX + name)) for name in bench.names()]
    return [
        {
            "reference": plan.reference,
            "architecture": plan.architecture,
            "size_bytes": plan.size_bytes,
            "parameters": plan.parameters,
            "present": plan.path.is_file(),
            "timing_only": plan.timing_only,
        }
        for plan in plans
    ]


def _cached_files() -> list[dict[str, Any]]:
    from itertools import islice

    from specmeter.cache import cache_dir

    found = (path for folder in ("models", "hub") for path in sorted((cache_dir() / folder).rglob("*.gguf")))
    return [{"path": str(path), "size_bytes": path.stat().st_size} for path in islice(found, _CACHE_LIMIT)]


def _described(facts: ModelFacts, kv_types: str, kv_bytes: int | None) -> Iterable[tuple[str, str]]:
    weights, vocabulary, memory = facts.weights, facts.vocabulary, facts.memory
    split = f" in {len(facts.files)} files" if len(facts.files) > 1 else ""
    yield "name", _or_unknown(facts.name)
    yield "architecture", _or_unknown(facts.architecture)
    yield "size", f"{_bytes(facts.file_bytes)}{split}"
    yield "parameters", f"{_count(weights.parameters)}, {_count(weights.active_parameters)} of them active"
    yield "layers", _or_unknown(facts.layers) + (f" + {facts.draft_head_layers} MTP" if facts.draft_head_layers else "")
    yield "hidden", _or_unknown(facts.hidden)
    yield "heads", f"{_or_unknown(facts.heads)}, {_or_unknown(facts.kv_heads)} for K and V"
    yield "head size", f"K {_or_unknown(facts.head_dim_k)}, V {_or_unknown(facts.head_dim_v)}"
    yield "feed-forward", _or_unknown(facts.ffn)
    if facts.experts:
        shared = f", {facts.experts_shared} shared" if facts.experts_shared else ""
        yield "experts", f"{facts.experts}, {facts.experts_used} used{shared}, width {_or_unknown(facts.expert_ffn)}"
    yield "context", _or_unknown(facts.context_length)
    yield (
        "quantization",
        ", ".join(
            f"{share.type} {100 * share.size_bytes / max(weights.size_bytes, 1):.1f} % ({share.tensors} tensors)"
            for share in weights.quantization
        ),
    )
    yield "bytes per token", _bytes(weights.bytes_per_token)
    yield "  always read", _bytes(weights.always_read_bytes + weights.lookup_bytes)
    if facts.experts:
        yield "  one expert", f"{_bytes(weights.expert_bytes)} over all layers"
        yield "  chosen experts", _bytes(weights.active_expert_bytes)
    yield "KV per token", "unknown" if kv_bytes is None else f"{kv_bytes:,} bytes ({kv_types})"
    if memory is not None and memory.sliding_layers:
        yield (
            "  sliding window",
            f"{memory.window} tokens in {memory.sliding_layers} layers, {memory.full_layers} see all",
        )
    if memory is not None and memory.recurrent_layers:
        state = memory.recurrent_state_bytes
        size = "of unknown size" if state is None else _bytes(state)
        yield "recurrent state", f"{size} in {memory.recurrent_layers} layers, {memory.full_layers} attend"
    yield "vocabulary", f"{_or_unknown(vocabulary.size)} tokens, {vocabulary.model} / {vocabulary.pre}"
    yield "  fingerprint", (vocabulary.sha256 or "unknown")[:16]
    specials = {name: getattr(vocabulary, name) for name in ("bos", "eos", "eot", "pad")}
    yield "  special tokens", ", ".join(f"{name} {'none' if at is None else at}" for name, at in specials.items())
    added = [name for name, added in (("bos", vocabulary.add_bos), ("eos", vocabulary.add_eos)) if added]
    yield "  added to text", ", ".join(added) or "none"
    template = vocabulary.chat_template
    yield "chat template", "none" if template is None else f"{len(template)} characters"


def _show(comparison: Comparison) -> None:
    _table(
        ("condition", "status", "target", "draft", ""),
        [(c.name, c.status, c.target, c.draft, "" if c.status == "ok" else c.why) for c in comparison.conditions],
        styles=_STATUS_STYLE,
    )
    click.echo()
    if comparison.accepted:
        click.echo(f"llama.cpp accepts this draft ({comparison.method})")
    else:
        click.echo("llama.cpp refuses this draft: its server would go on without speculation")


def _pairs(pairs: Iterable[tuple[str, str]]) -> None:
    for name, value in pairs:
        click.echo(f"{name:<17} {printable(_shortened(value))}")


def _table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    styles: dict[str, str] | None = None,
) -> None:
    """A table on a terminal; padded columns, whole and uncoloured, elsewhere."""
    rows = [[printable(_shortened(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
        for row in (header, *rows):
            cells = (
                cell.rjust(width) if column in right else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            click.echo("  ".join(cells).rstrip())
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, title in enumerate(header):
        table.add_column(title, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=(styles or {}).get(cell, "")) for cell in row))
    Console(emoji=False).print(table)


def _shortened(text: str) -> str:
    return text if len(text) <= _CELL_LIMIT else text[:_CELL_LIMIT] + "..."


def _or_unknown(value: object) -> str:
    return "unknown" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _bytes(size: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:,.2f} {unit}"
    return f"{size:.0f} bytes"


def _count(number: int) -> str:
    for unit, scale in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= scale:
            return f"{number / scale:,.2f} {unit}"
    return str(number)

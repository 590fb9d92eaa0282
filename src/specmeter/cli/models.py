"""`specmeter models`: list, build, inspect and compare models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import click

from specmeter.cache import cache_dir
from specmeter.cli.usage import Number, joined
from specmeter.engines.llama_cpp.spec import KV_TYPES
from specmeter.engines.registry import installed, spec_of
from specmeter.errors import ExperimentError, UsageError
from specmeter.messages import Message
from specmeter.models import bench
from specmeter.models import twin as twins
from specmeter.models.export import export_hf
from specmeter.models.facts import MAX_EXPERTS, ModelFacts, read_facts, read_header
from specmeter.models.memory import state_slots
from specmeter.models.preflight import Compatibility
from specmeter.models.preflight import compare as compare_models
from specmeter.models.reference import Fetching, locate, resolve
from specmeter.models.routers import RANDOM, ROUTERS
from specmeter.models.twin import MAX_COPIES
from specmeter.probe.make import read_experts
from specmeter.probe.routing import RoutingSummary, summarize
from specmeter.record import EngineSettings
from specmeter.show.probe_report import unions
from specmeter.show.table import Cell, Table, Tone, numbers, row, text
from specmeter.show.terminal.console import errors, output, say_json
from specmeter.show.terminal.progress import model_progress, part_progress
from specmeter.text import amount, percent, size
from specmeter.workloads.texts import halves

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, sizes in bytes.")
_OFFLINE = click.option("--offline", is_flag=True, help="Use only models on this machine.")
_WINDOWS = (1, 2, 5, 9, 17)
_UNION_TOKENS = 2048
_CACHE_LIMIT = 1000
_CELL_LIMIT = 500
_ENDLESS = 10_000
"""Width off a terminal."""


@click.group(name="models")
def command() -> None:
    """List, build, inspect and compare models.

    \b
    REFERENCE names a model:
      models/qwen3.gguf                        a file
      bench:moe-900m                           a bundled bench model
      bench:dense?size=2GB&quant=Q8_0          the same in another size or number format
      hf:OWNER/REPO/FILE.gguf                  a file on a hub, downloaded once
      hf:OWNER/REPO/FILE.gguf@REVISION         the same, pinned to a branch, tag or commit
      twin:16x2:REFERENCE                      an MoE made of a dense model: 16 experts, 2 active
      twin:16x2?router=uniform:REFERENCE       the same with another router
      twin:dense2:REFERENCE                    its dense control: 2 copies side by side, no router
      quant:Q4_0:REFERENCE                     a model in another type of llama-quantize

    \b
    Examples:
      specmeter models list
      specmeter models inspect models/qwen3.gguf
      specmeter models compare models/qwen3.gguf models/qwen3-draft.gguf
    """


@command.command(name="list")
@_JSON
def list_models(as_json: bool) -> None:
    """List bench models and cached files.

    \b
    Examples:
      specmeter models list
      specmeter models list --json | jq '.bench[].reference'
    """
    models, cached = _bench_models(), _cached_files()
    if as_json:
        say_json({"bench": models, "cached": cached})
        return
    rows = [
        row(
            model["reference"],
            model["architecture"],
            size(model["size_bytes"]),
            amount(model["parameters"]),
            ("ready" if model["present"] else "made on first use") + (", timing only" if model["timing_only"] else ""),
        )
        for model in models
    ]
    columns = (*text("reference", "architecture"), *numbers("size", "parameters"), *text("state"))
    _print_table(Table("models", columns, rows))
    if cached:
        output().line()
        files = [row(file["path"], size(file["size_bytes"])) for file in cached]
        _print_table(Table("files", (*text("file in the cache"), *numbers("size")), files))


@command.command()
@click.argument("references", nargs=-1, required=True, metavar="REFERENCE...")
@_OFFLINE
@_JSON
def build(references: tuple[str, ...], offline: bool, as_json: bool) -> None:
    """Make or download models before a run.

    Prints the path of each file; with --json also its SHA-256 and size.

    \b
    Examples:
      specmeter models build bench:dense-400m bench:moe-400m
      specmeter models build 'bench:moe?size=2GB&quant=Q4_0'
      specmeter models build hf:OWNER/REPO/FILE.gguf
    """
    with model_progress(errors()) as bar:
        models = [resolve(name, name, base_dir=Path(), fetching=Fetching(offline, bar)) for name in references]
    if as_json:
        say_json([model.model_dump(mode="json", exclude={"name"}) for model in models])
    else:
        output().say_all((model.path for model in models), wrap=False)


@command.command()
@click.argument("model", metavar="FILE|REFERENCE")
@click.option("--kv-type-k", default="f16", show_default=True, help="Type of the K cache.")
@click.option("--kv-type-v", default="f16", show_default=True, help="Type of the V cache.")
@_OFFLINE
@_JSON
def inspect(model: str, kv_type_k: str, kv_type_v: str, offline: bool, as_json: bool) -> None:
    """Show what a model file contains and how many bytes one token reads.

    Only the header is read. A missing model is made or downloaded first.

    \b
    Examples:
      specmeter models inspect bench:moe
      specmeter models inspect qwen3-30b-a3b.gguf --kv-type-k q8_0 --kv-type-v q8_0
      specmeter models inspect model.gguf --json | jq .weights
    """
    for flag, kind in (("--kv-type-k", kv_type_k), ("--kv-type-v", kv_type_v)):
        if kind not in KV_TYPES:
            raise UsageError(f"{flag} {kind[:80]}: no such type", fix=f"use {joined(KV_TYPES)}")
    facts = read_facts(_located(model, offline))
    kv_bytes = facts.kv_bytes_per_token(kv_type_k, kv_type_v)
    if as_json:
        derived = {"weight_bytes_per_token": facts.weights.bytes_per_token, "kv_bytes_per_token": kv_bytes}
        say_json({**facts.model_dump(mode="json"), **derived})
    else:
        for name, value in _described(facts, f"K {kv_type_k}, V {kv_type_v}", kv_bytes):
            output().say(f"{name:<17} {_shortened(value)}", wrap=False)


@command.command()
@click.argument("target")
@click.argument("draft")
@_OFFLINE
@_JSON
@click.pass_context
def compare(ctx: click.Context, target: str, draft: str, offline: bool, as_json: bool) -> None:
    """Check whether DRAFT can draft for TARGET, and if not, why.

    The conditions are llama.cpp's; warnings cover what it does not check. If llama.cpp refuses a draft model, its
    server continues without speculation. Exit code 1: a condition fails.

    \b
    Examples:
      specmeter models compare bench:dense bench:draft-small
      specmeter models compare target.gguf draft.gguf --json | jq .accepted
    """
    comparison = compare_models(_located(target, offline), _located(draft, offline))
    if as_json:
        say_json({"accepted": comparison.accepted, **comparison.model_dump(mode="json")})
    else:
        _show(comparison)
    ctx.exit(0 if comparison.accepted else 1)


@command.command()
@click.argument("model", metavar="DENSE")
@click.option("--experts", type=Number(1, MAX_EXPERTS), help="Copies of each feed-forward network.")
@click.option("--active", type=Number(1, MAX_EXPERTS), default=1, show_default=True, help="Copies that a token reads.")
@click.option("--dense", "copies", type=Number(2, MAX_COPIES), help="Copies side by side instead, without a router.")
@click.option(
    "--router",
    type=click.Choice(list(ROUTERS)),
    default=RANDOM,
    show_default=True,
    help="random directions; uniform: even loads; qwen3.6-35b-a3b: even loads, neighbours share experts as there.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="File to write.")
@_OFFLINE
@_JSON
def twin(
    model: str,
    experts: int | None,
    active: int,
    copies: int | None,
    router: str,
    out: Path,
    offline: bool,
    as_json: bool,
) -> None:
    """Make an MoE that computes what a dense model computes.

    Each feed-forward network becomes copies of itself behind a router. Text and accepted drafts stay the same until two
    texts part at a near tie. A difference in speed is that of choosing experts and of the larger file. Prints how many
    experts 1, 2, 5, 9 and 17 consecutive tokens choose. With --dense no router is added: the copies stand side by side,
    and each token reads all of them.

    Experiments name twins by twin:16x2:DENSE, and `specmeter run DENSE --twin 16x2` makes and measures both.

    \b
    Examples:
      specmeter models twin model.gguf --experts 16 --active 2 --out model-16x2.gguf
      specmeter models twin model.gguf --experts 16 --router uniform --out model-16x1.gguf
      specmeter models twin model.gguf --dense 2 --out model-wide.gguf
    """
    if (experts is None) == (copies is None):
        raise UsageError("models twin: needs either --experts or --dense", fix="give one of them, such as --experts 16")
    spec = twins.of(model, f"dense{copies}" if copies else f"{experts}x{active}", router)
    if out.exists():
        raise UsageError(f"--out {out}: exists", fix="give another file, or remove it")
    screen = errors()
    parent = _located(model, offline)
    with model_progress(screen) as bar:
        twins.build(spec, parent, out=out.absolute(), progress=Fetching(progress=bar).progress_of(out.name))
    made = resolve(out.name, str(out.absolute()), base_dir=Path())
    made = made.model_copy(update={"header": read_header(out)})
    found: RoutingSummary | None = None
    if not as_json:
        output().say(str(out), wrap=False)
    if experts is not None:
        with part_progress(screen) as progress:
            _, text = halves(bench=model.startswith(bench.PREFIX))
            read = read_experts(made, EngineSettings(), text, _UNION_TOKENS, progress)
        found = summarize(read, _WINDOWS)
    if as_json:
        routing = None if found is None else found.model_dump(mode="json")
        say_json({**made.model_dump(mode="json", exclude={"name"}), "routing": routing})
        return
    if found is not None:
        _print_table(unions(found))


@command.command()
@click.argument("reference")
@click.option(
    "--format",
    "form",
    metavar="FORMAT",
    default="hf",
    show_default=True,
    help="Format of the folder: hf, or one of an installed engine (onnx, openvino).",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write.")
@_OFFLINE
def export(reference: str, form: str, out: Path, offline: bool) -> None:
    """Write a bench model for engines that do not read GGUF.

    The Hugging Face format is read by transformers, vLLM, SGLang and mlx-lm; other formats are made from it. All have
    the same weights, in 32 bits, and the same token ids.

    \b
    Examples:
      specmeter models export bench:dense --out dense
      specmeter models export bench:dense --format onnx --out dense-onnx
    """
    forms: dict[str, Callable[[Path, Path], None]] = {"hf": export_hf}
    for name in () if form in forms else installed():
        with suppress(ExperimentError):
            forms.update(spec_of(name).forms)
    if form not in forms:
        raise UsageError(f"--format {form[:80]}: no such format", fix=f"use {joined(list(forms))}")
    forms[form](_located(reference, offline), out)
    output().say(str(out), wrap=False)


def _located(reference: str, offline: bool) -> Path:
    with model_progress(errors()) as bar:
        return locate(reference, base_dir=Path(), fetching=Fetching(offline, bar))


def _bench_models() -> list[dict[str, Any]]:
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
    found = (path for folder in ("models", "hub") for path in sorted((cache_dir() / folder).rglob("*.gguf")))
    return [{"path": str(path), "size_bytes": path.stat().st_size} for path in islice(found, _CACHE_LIMIT)]


def _described(facts: ModelFacts, kv_types: str, kv_bytes: int | None) -> Iterable[tuple[str, str]]:
    weights, vocabulary, memory = facts.weights, facts.vocabulary, facts.memory
    split = f" in {len(facts.files)} files" if len(facts.files) > 1 else ""
    yield "name", _or_unknown(facts.name)
    yield "architecture", _or_unknown(facts.architecture)
    if facts.twin is not None:
        router = f", router {facts.twin.router}" if facts.twin.router else ""
        yield "twin", f"{facts.twin.form} of {facts.twin.parent}{router} (SHA-256 {facts.twin.parent_sha256[:16]})"
    yield "size", f"{size(facts.file_bytes)}{split}"
    yield "parameters", f"{amount(weights.parameters)}, {amount(weights.active_parameters)} of them active"
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
            f"{share.type} {percent(share.size_bytes / max(weights.size_bytes, 1), 1)} ({share.tensors} tensors)"
            for share in weights.quantization
        ),
    )
    yield "bytes per token", size(weights.bytes_per_token)
    yield "  always read", size(weights.always_read_bytes + weights.lookup_bytes)
    if facts.experts:
        yield "  one expert", f"{size(weights.expert_bytes)} over all layers"
        yield "  chosen experts", size(weights.active_expert_bytes)
    yield "KV per token", "unknown" if kv_bytes is None else f"{kv_bytes:,} bytes ({kv_types})"
    if memory is not None and memory.sliding_layers:
        yield (
            "  sliding window",
            f"{memory.window} tokens in {memory.sliding_layers} layers, {memory.full_layers} see all",
        )
    if memory is not None and memory.recurrent_layers:
        state = memory.recurrent_state_bytes
        told = "of unknown size" if state is None else size(state)
        heads = "; heads keep one more per draft token" if state_slots(facts.architecture, ("draft-mtp",), 1) else ""
        yield "recurrent state", f"{told} in {memory.recurrent_layers} layers, {memory.full_layers} attend{heads}"
    yield "vocabulary", f"{_or_unknown(vocabulary.size)} tokens, {vocabulary.model} / {vocabulary.pre}"
    yield "  fingerprint", (vocabulary.sha256 or "unknown")[:16]
    specials = {name: getattr(vocabulary, name) for name in ("bos", "eos", "eot", "pad")}
    yield "  special tokens", ", ".join(f"{name} {'none' if at is None else at}" for name, at in specials.items())
    added = [name for name, added in (("bos", vocabulary.add_bos), ("eos", vocabulary.add_eos)) if added]
    yield "  added to text", ", ".join(added) or "none"
    template = vocabulary.chat_template
    yield "chat template", "none" if template is None else f"{len(template)} characters"


def _show(comparison: Compatibility) -> None:
    tones: dict[str, Tone] = {"ok": "good", "warning": "doubtful", "refused": "bad"}
    rows = [
        row(c.name, Cell(c.status, tone=tones[c.status]), c.target, c.draft, "" if c.status == "ok" else c.why)
        for c in comparison.conditions
    ]
    _print_table(Table("conditions", text("condition", "status", "target", "draft", " "), rows))
    screen = output()
    screen.line()
    if comparison.accepted:
        screen.say(f"llama.cpp accepts this draft model ({comparison.method})")
    else:
        screen.say("llama.cpp refuses this draft model: its server would continue without speculation")


def _print_table(table: Table) -> None:
    """Whole off a terminal, where programs want a row to be a line; long cells are cut."""
    short = [replace(row, cells=tuple(replace(it, text=_shortened(it.text)) for it in row.cells)) for row in table.rows]
    output(_ENDLESS).table(replace(table, rows=short))


def _shortened(text: str | Message) -> str | Message:
    return text if not isinstance(text, str) or len(text) <= _CELL_LIMIT else text[:_CELL_LIMIT] + "..."


def _or_unknown(value: object) -> str:
    return "unknown" if value is None else f"{value:,}" if isinstance(value, int) else str(value)

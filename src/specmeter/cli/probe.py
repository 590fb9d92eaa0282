"""The command `specmeter probe`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from specmeter.cli.usage import Number
from specmeter.errors import UsageError
from specmeter.host.machine import read_host
from specmeter.models.facts import read_header
from specmeter.models.reference import Fetching, resolve
from specmeter.probe import make
from specmeter.probe.files import plain_name, probes_folder, save_probe
from specmeter.probe.make import refuse_size
from specmeter.probe.routing import RoutingSummary, save_routing, summarize
from specmeter.probe.sweep import MAX_SEQUENCES, MAX_TOKENS
from specmeter.record import EngineSettings, ModelIdentity
from specmeter.show import probe_report
from specmeter.show.terminal.console import Screen, errors
from specmeter.show.terminal.progress import model_progress, part_progress
from specmeter.show.terminal.report import print_report


@click.command(name="probe")
@click.argument("target")
@click.option("--draft", metavar="MODEL", help="Also measure this draft model.")
@click.option(
    "--source",
    type=click.Choice(["libllama", "server"]),
    default="libllama",
    show_default=True,
    help="Time forward passes directly, or estimate them from a server with synthetic acceptance.",
)
@click.option(
    "--tokens",
    metavar="N,N..M",
    help="Values of n, such as 1..9,17,33. Default: 1..33; server: 1,2,3,5,8,9,17.",
)
@click.option(
    "--depth",
    type=Number(1, 1_000_000),
    help="Tokens already in the context. Default: 128; server: 256.",
)
@click.option("--repeats", type=Number(1, 1000), help="Rounds over all n. Default: 9; server: 6.")
@click.option(
    "--batch",
    metavar="B,B..M",
    help="Also measure T(b, n), over b sequences of n tokens each, such as 1,2,4,8,16,32.",
)
@click.option("--threads", type=Number(1, 1024), help="Threads. Default: all physical cores.")
@click.option("--gpu-layers", type=Number(0, 100_000), help="Layers on the GPU. Default: the engine decides.")
@click.option("--binary", metavar="FILE", help="Your own llama-server, with --source server.")
@click.option("--text", "text_file", type=click.Path(path_type=Path), help="Text to read. Default: a bundled text.")
@click.option("--routing", is_flag=True, help="Record which experts the text and random tokens use, instead of timing.")
@click.option("--routing-tokens", type=Number(2, 10_000_000), default=4096, show_default=True, help="Tokens to read.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write. Default: where `run`, `explain` and `predict` look for it.",
)
@click.option("--offline", is_flag=True, help="Use only models on this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    target: str,
    draft: str | None,
    source: Literal["libllama", "server"],
    tokens: str | None,
    depth: int | None,
    repeats: int | None,
    batch: str | None,
    threads: int | None,
    gpu_layers: Any,
    binary: str | None,
    text_file: Path | None,
    routing: bool,
    routing_tokens: int,
    out: Path | None,
    offline: bool,
    as_json: bool,
) -> None:
    """Measure T(n), the time of a forward pass of TARGET over n tokens: the cost of verifying n tokens.

    All n are measured in rounds, each at another place of a real text. The result shows T(n) / T(1), the cost models
    that fit, and the acceptance at which a draft model pays. It is kept for predictions. For an MoE model the experts
    that consecutive tokens use are recorded too. TARGET and --draft are models (see `specmeter models`).

    --batch also times several sequences at once: the cost of verifying while other requests share the machine, for n of
    --tokens or 1,2,3,5,9, and up to 512 tokens in all.

    --routing times nothing. It writes the experts of every token and layer to a file, and compares their number,
    overlap and balance with those of random tokens, which llama-bench decodes.

    \b
    Examples:
      specmeter probe bench:dense-400m --draft bench:draft-small
      specmeter probe bench:moe-400m --batch 1,2,4,8
      specmeter probe qwen3-30b-a3b.gguf --tokens 1..9,17,33 --depth 1024
      specmeter probe model.gguf --source server --binary ~/llama.cpp/build/bin/llama-server
      specmeter probe bench:moe-400m --routing --text my-prompts.txt
      specmeter probe bench:moe-400m --json | jq '.probe.target_ms.points[] | [.tokens, .ms.point]'
    """
    text = None if text_file is None else make.read_text(text_file)
    counts = parse_numbers(tokens, "--tokens", MAX_TOKENS) if tokens is not None else ()
    sequences = parse_numbers(batch, "--batch", MAX_SEQUENCES) if batch is not None else ()
    settings = EngineSettings(threads=threads, gpu_layers=gpu_layers, draft_gpu_layers=gpu_layers if draft else None)
    screen = errors()
    if routing:
        for flag, given in (
            ("--draft", draft),
            ("--tokens", tokens),
            ("--binary", binary),
            ("--repeats", repeats),
            ("--batch", batch),
        ):
            if given is not None:
                raise UsageError(
                    f"{flag}: not with --routing, which times nothing", fix=f"leave out {flag} or --routing"
                )
        if source != "libllama":
            raise UsageError("--source server: does not report experts", fix="leave it out")
        model = _model("target", target, offline, screen)
        path, summary = _read_routing(model, settings, text, routing_tokens, out, screen)
        print_report(probe_report.routing(model, summary, path), as_json=as_json)
        return

    host = read_host()
    if host.busy_processes:
        busy = ", ".join(host.busy_processes)
        screen.say(f"warning: other programs are busy ({busy}); times will be too long", wrap=False)
    request = make.ProbeSpec(
        target=_model("target", target, offline, screen),
        draft=_model("draft", draft, offline, screen) if draft is not None else None,
        source=source,
        tokens=counts,
        depth=depth,
        rounds=repeats,
        settings=settings,
        text=text,
        binary=binary,
        batches=sequences,
    )
    with part_progress(screen) as progress:
        probe = make.make_probe(request, host, progress)
    if missing := sorted(set(counts or make.TOKENS[source]) - {point.tokens for point in probe.target_ms.points}):
        shown = ", ".join(map(str, missing))
        screen.say(
            f"left out: n = {shown}; no draft of that length was accepted whole; use --source libllama", wrap=False
        )
    if sequences and (large := [b for b in sequences if b not in {point.sequences for point in probe.batches}]):
        shown = ", ".join(map(str, large))
        screen.say(f"left out: b = {shown}; more tokens than llama.cpp computes at once", wrap=False)
    print_report(probe_report.report(probe, save_probe(probe, out)), as_json=as_json)


def parse_numbers(given: str, flag: str, most: int) -> tuple[int, ...]:
    """`1..9,17,33` as numbers up to `most`, ascending. Raises `UsageError`, naming the flag, for anything else."""
    found: set[int] = set()
    for part in given.split(",") if len(given) <= 1000 else [given]:
        first, dots, last = part.strip().partition("..")
        ends = (first, last if dots else first)
        if not all(end.isascii() and end.isdecimal() and len(end) <= 6 for end in ends):
            raise UsageError(f"{flag} {part.strip()[:40]}: not a number or a range", fix="write 1..9,17,33")
        low, high = map(int, ends)
        if not 1 <= low <= high <= most:
            raise UsageError(f"{flag} {part.strip()}: not an ascending range within 1..{most}", fix="write 1..9,17,33")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def _model(name: str, reference: str, offline: bool, screen: Screen) -> ModelIdentity:
    refuse_size(reference, offline=offline)
    with model_progress(screen) as bar:
        model = resolve(name, reference, base_dir=Path(), fetching=Fetching(offline, bar))
    return model.model_copy(update={"header": read_header(Path(model.path))})


def _read_routing(
    model: ModelIdentity, settings: EngineSettings, text: str | None, most: int, out: Path | None, screen: Screen
) -> tuple[Path, RoutingSummary]:
    make.refuse(make.ProbeSpec(model), settings)
    with part_progress(screen) as progress:
        given = text if text is not None else make.text_for(model)
        routing = make.read_experts(model, settings, given, most, progress, random=True)
    path = out or probes_folder() / f"{plain_name(model.reference)}-{model.sha256[:8]}-routing.npz"
    save_routing(routing, path)
    return path, summarize(routing)

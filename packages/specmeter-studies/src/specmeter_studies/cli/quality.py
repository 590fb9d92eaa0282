"""`specmeter quality`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from specmeter.cli.usage import Number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specmeter.analysis.quality import QualityReport, SpeedTest
    from specmeter.record import ModelIdentity
    from specmeter.show.terminal.console import Screen

_MAX_DEPTHS = 20


@click.command(name="quality")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--plan", metavar="NAME|FILE", help="Measure a plan (bundled, or a YAML file) instead of MODELs.")
@click.option(
    "--variant", "variants", multiple=True, metavar="NAME", help="Apply this variant of the plan; repeatable."
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a key of the plan; repeatable.")
@click.option(
    "--text",
    "text_file",
    type=click.Path(path_type=Path),
    help="Text to score. Default: a bundled text for bench models.",
)
@click.option("--context", type=Number(16, 1_000_000), default=512, show_default=True, help="Tokens per window.")
@click.option(
    "--stride", type=Number(0, 1_000_000), default=0, help="Tokens from one window to the next. Default: no overlap."
)
@click.option("--no-perplexity", is_flag=True, help="Skip perplexity, with --rates.")
@click.option("--rates", is_flag=True, help="Also measure prompt processing and generation speed.")
@click.option("--depths", default="0", show_default=True, metavar="N,N", help="Tokens already in the context.")
@click.option(
    "--prompt-tokens", type=Number(0, 1_000_000), default=512, show_default=True, help="As llama-bench -p; 0: none."
)
@click.option(
    "--generate-tokens", type=Number(0, 1_000_000), default=128, show_default=True, help="As llama-bench -n; 0: none."
)
@click.option("--repeats", type=Number(1, 1000), default=6, show_default=True, help="Blocks of --rates.")
@click.option("--threads", type=Number(1, 1024), help="Threads. Default: all physical cores.")
@click.option("--gpu-layers", type=Number(0, 100_000), help="Layers on the GPU. Default: the engine decides.")
@click.option("--native-perplexity", metavar="FILE|auto", help="Score with this llama-perplexity.")
@click.option("--native-bench", metavar="FILE|auto", help="Time with this llama-bench.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write. Default: in the cache folder."
)
@click.option("--offline", is_flag=True, help="Use only models on this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    models: tuple[str, ...],
    plan: str | None,
    variants: tuple[str, ...],
    overrides: tuple[str, ...],
    text_file: Path | None,
    context: int,
    stride: int,
    no_perplexity: bool,
    rates: bool,
    depths: str,
    prompt_tokens: int,
    generate_tokens: int,
    repeats: int,
    threads: int | None,
    gpu_layers: int | None,
    native_perplexity: str | None,
    native_bench: str | None,
    out: Path | None,
    offline: bool,
    as_json: bool,
) -> None:
    """Measure the perplexity of each MODEL, and with --rates its speed.

    Windows, stride and `+-` are those of llama-perplexity. The interval in brackets is safer: it treats windows, not
    tokens, as independent. Changes are relative to the first MODEL. A model is on the front if no other is as small, as
    good and as fast. The bundled text says nothing about models other than bench models. MODEL: see `specmeter models`.

    Rates are llama-bench's pp and tg at each depth. The models take turns in balanced blocks, each in a fresh process.

    A plan is a file with models, text and tests; it makes quantizations as llama-quantize does, and leaves out missing
    models with the reason. Bundled: apple-quant-ladder, qat-vs-ptq, hardware-comparison, quant-perplexity. With --out,
    an interrupted plan continues.

    \b
    Examples:
      specmeter quality bench:dense 'bench:dense?quant=Q8_0' 'bench:dense?quant=Q4_0'
      specmeter quality model-f16.gguf model-q8_0.gguf model-q4_k_m.gguf --text wiki.test.raw --rates
      specmeter quality model.gguf --no-perplexity --rates --depths 0,4096,16384
      specmeter quality model.gguf --text book.txt --context 2048 --stride 512
      specmeter quality model.gguf --text wiki.test.raw --native-perplexity auto --native-bench auto --rates
      specmeter quality a.gguf b.gguf --text t.txt --json | jq '.comparison[] | [.reference, .change.point]'
      specmeter quality --plan apple-quant-ladder --variant bench --out ladder.json
      specmeter quality --plan apple-quant-ladder --set models.F16.reference=model-f16.gguf --set text=wiki.test.raw
    """
    if plan is not None:
        _refuse_beside_plan(ctx)
        _measure_plan(plan, variants, overrides, out, offline=offline, as_json=as_json)
        return
    from specmeter.analysis.quality import default_path, save_report
    from specmeter.errors import UsageError
    from specmeter.host.machine import read_host
    from specmeter.record import EngineSettings
    from specmeter.show.terminal.console import errors
    from specmeter.show.terminal.progress import part_progress
    from specmeter_studies.quality.measure import QualitySpec, measure
    from specmeter_studies.quality.native import find_tool
    from specmeter_studies.quality.text import read_text
    from specmeter_studies.show.quality import print_report

    if not models:
        raise UsageError("quality: no model given", fix="give a MODEL, or a --plan")
    if variants or overrides:
        raise UsageError("--variant, --set: only with --plan", fix="add --plan NAME, or leave them out")
    if no_perplexity and not rates:
        raise UsageError("--no-perplexity: nothing left to measure", fix="add --rates")
    if native_bench is not None and not rates:
        raise UsageError("--native-bench: only with --rates", fix="add --rates, or leave --native-bench out")
    if native_perplexity is not None and no_perplexity:
        raise UsageError("--native-perplexity: not with --no-perplexity", fix="leave one of them out")
    text, identity = read_text(text_file)
    tests = speed_tests(prompt_tokens, generate_tokens, parse_depths(depths)) if rates else ()
    screen = errors()
    scorer = None if native_perplexity is None else find_tool("llama-perplexity", native_perplexity)
    bench = None if native_bench is None else find_tool("llama-bench", native_bench)
    request = QualitySpec(
        models=_models(models, offline, screen),
        text=text,
        text_identity=identity,
        context=context,
        stride=stride,
        score=not no_perplexity,
        tests=tests,
        blocks=repeats,
        settings=EngineSettings(threads=threads, gpu_layers=gpu_layers),
        native_perplexity=scorer,
        native_bench=bench,
    )
    path = out

    def keep(report: QualityReport) -> None:
        nonlocal path
        path = path or default_path(report)
        save_report(report, path)

    with part_progress(screen) as progress:
        report = measure(request, read_host(), progress, keep)
    keep(report)
    assert path is not None
    print_report(report, path, as_json=as_json)


_BESIDE_PLAN = frozenset({"plan", "variants", "overrides", "out", "offline", "as_json"})


def _refuse_beside_plan(ctx: click.Context) -> None:
    """Raise `UsageError` for flags that say what the plan says."""
    from click.core import ParameterSource

    from specmeter.errors import UsageError

    for parameter in ctx.command.params:
        name = parameter.name or ""
        given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name not in _BESIDE_PLAN and ctx.params.get(name) != ():
            shown = parameter.opts[0] if parameter.opts[0].startswith("-") else "MODEL"
            raise UsageError(f"{shown}: not with --plan", fix="use --set KEY=VALUE, or change the plan's file")


def _measure_plan(
    name: str,
    variants: Sequence[str],
    overrides: Sequence[str],
    out: Path | None,
    *,
    offline: bool,
    as_json: bool,
) -> None:
    from specmeter.analysis.quality import default_path, load_report, save_report
    from specmeter.models.reference import Fetching
    from specmeter.show.terminal.console import errors
    from specmeter.show.terminal.progress import model_progress, part_progress
    from specmeter_studies.quality.plan import load_plan
    from specmeter_studies.quality.planned import carry_out, prepare
    from specmeter_studies.show.quality import print_report

    loaded = load_plan(name, overrides, variants=variants)
    earlier = load_report(out) if out is not None and out.exists() else None
    screen = errors()
    with model_progress(screen) as bar:
        request = prepare(loaded, Fetching(offline, bar))
    path = out

    def keep(report: QualityReport) -> None:
        nonlocal path
        path = path or default_path(report)
        save_report(report, path)

    with part_progress(screen) as progress:
        report = carry_out(
            request, progress=progress, keep=keep, earlier=None if earlier is None or earlier.complete else earlier
        )
    assert path is not None
    print_report(report, path, as_json=as_json)


def parse_depths(given: str) -> tuple[int, ...]:
    """`0,4096` as numbers, ascending, each once. Raises `UsageError` for anything else."""
    from specmeter.errors import UsageError

    parts = [part.strip() for part in given[:1000].split(",")]
    if len(given) > 1000 or not all(part.isascii() and part.isdecimal() and len(part) <= 7 for part in parts):
        raise UsageError(f"--depths {given[:40]}: not a list of whole numbers", fix="write 0,4096,16384")
    depths = tuple(sorted({int(part) for part in parts}))
    if len(depths) > _MAX_DEPTHS:
        raise UsageError(f"--depths: {len(depths)} values", fix=f"give {_MAX_DEPTHS} at most")
    return depths


def speed_tests(prompt: int, generate: int, depths: Sequence[int]) -> tuple[SpeedTest, ...]:
    """What is timed: at each depth a prompt and a generation, either left out where it has no tokens."""
    from specmeter.analysis.quality import SpeedTest
    from specmeter.errors import UsageError

    found: list[SpeedTest] = []
    for depth in depths:
        found += [SpeedTest(kind="prompt", tokens=prompt, depth=depth)] if prompt else []
        found += [SpeedTest(kind="generate", tokens=generate, depth=depth)] if generate else []
    if not found:
        raise UsageError("--rates: no tokens to time", fix="set --prompt-tokens or --generate-tokens above 0")
    return tuple(found)


def _models(references: Sequence[str], offline: bool, screen: Screen) -> list[ModelIdentity]:
    from specmeter.models.facts import read_header
    from specmeter.models.reference import Fetching, resolve
    from specmeter.probe.files import plain_name
    from specmeter.show.terminal.progress import model_progress

    with model_progress(screen) as bar:
        found = [resolve(plain_name(it), it, base_dir=Path(), fetching=Fetching(offline, bar)) for it in references]
    return [model.model_copy(update={"header": read_header(Path(model.path))}) for model in found]

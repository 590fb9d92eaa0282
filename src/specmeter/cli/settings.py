"""Options that several commands share: languages of pages, and settings of the engine and of generation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import reduce
from typing import Any, TypeVar, get_args

import click
from pydantic.fields import FieldInfo

from specmeter.cli.usage import Number, Numbers, name_typed
from specmeter.engines.url.spec import KEY, address
from specmeter.errors import ExperimentError, UsageError
from specmeter.messages import LANGUAGES
from specmeter.record import SAMPLING, EngineSettings, Generation, Record
from specmeter.text import seconds_of

_F = TypeVar("_F", bound=Callable[..., Any])


def _chosen_languages(_context: click.Context, _option: click.Parameter, chosen: str) -> Sequence[str]:
    return LANGUAGES if chosen == "all" else (chosen,)


language_option = click.option(
    "--lang",
    "languages",
    type=click.Choice([*LANGUAGES, "all"]),
    default="all",
    show_default=True,
    callback=_chosen_languages,
    help="Language of the page; all: both, with a switch.",
)
"""Of commands that write pages."""
MODEL_HELP = "The target model; the same as TARGET."
OUT_HELP = "Folder to write; resumes an unfinished one. Default: a new one under specmeter-runs/."
prompts_option = click.option(
    "--prompts",
    multiple=True,
    metavar="FILE",
    help="Your prompts: .txt (one per line), .csv with a header, .jsonl or .json (also chats); repeatable.",
)
sessions_option = click.option(
    "--sessions",
    multiple=True,
    metavar="FILE",
    help="Recorded sessions (see `record`), asked again call by call; repeatable. Also chat logs with tools.",
)
turns_option = click.option(
    "--turns",
    type=Number(1, 100_000),
    help="With --sessions: ask only so many calls, which stand for all of them. Default: 32.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done, and what it needs.")
new_option = click.option("--new", is_flag=True, help="Start over, even if an unfinished run of this command exists.")
offline_option = click.option("--offline", is_flag=True, help="Use only models on this machine.")
quiet_option = click.option("--quiet", is_flag=True, help="Print only results and errors, no progress.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
variant_option = click.option(
    "--variant", "variants", multiple=True, metavar="NAME", help="Apply this variant; repeatable, later ones win."
)

_SETTINGS = {
    "blocks": "design.blocks",
    "max_tokens": "generation.max_tokens",
    "ignore_eos": "generation.ignore_eos",
    "temp": "generation.temperature",
    **{name: f"generation.{name}" for name in SAMPLING},
    "engine": "engine.kind",
    "binary": "engine.binary",
    "ctx_size": "engine.context",
    "threads": "engine.threads",
    "gpu_layers": "engine.gpu_layers",
    "draft_gpu_layers": "engine.draft_gpu_layers",
    "n_cpu_moe": "engine.cpu_moe_layers",
    "spec_draft_n_cpu_moe": "engine.draft_cpu_moe_layers",
    "override_tensor": "engine.override_tensors",
    "batch_size": "engine.batch",
    "ubatch_size": "engine.ubatch",
    "kv_unified": "engine.kv_unified",
    "flash_attn": "engine.flash_attention",
    "cache_type_k": "engine.kv_type_k",
    "cache_type_v": "engine.kv_type_v",
}
"""Option -> the key that it sets."""
_ARM_KEYS = {
    "spec-draft-n-min": "arms.0.gamma_min",
    "draft-min": "arms.0.gamma_min",
    "draft-n-min": "arms.0.gamma_min",
    "spec-draft-p-min": "arms.0.p_min",
    "draft-p-min": "arms.0.p_min",
    "spec-ngram-size-n": "arms.0.ngram_n",
    "spec-ngram-size-m": "arms.0.gamma",
    "spec-ngram-min-hits": "arms.0.ngram_min_hits",
    "spec-synth-rates": "arms.0.synthetic_rates",
}
"""llama.cpp's options that change how an arm drafts -> the key of the first arm."""


class Heading(StrEnum):
    """Headings of options in the help of commands."""

    QUESTION = "Question"
    CANDIDATES = "Candidates"
    EXPERIMENT = "Experiment file"
    PROMPTS = "Prompts"
    AMOUNT = "Amount"
    LOAD = "Load"
    SERVERS = "Running servers"
    SAMPLING = "Sampling"
    ENGINE = "Engine"
    FOLDER = "Output folder"
    DISPLAY = "Display"
    OTHER = "Other options"


ENGINE_GROUP = {
    Heading.SAMPLING: ("ignore_eos", "stop", "temp", *(name for name in SAMPLING if name != "stop")),
    Heading.ENGINE: (
        *("engine", "binary", "ctx_size", "threads", "gpu_layers", "draft_gpu_layers", "flash_attn"),
        *("cache_type_k", "cache_type_v", "batch_size", "ubatch_size", "kv_unified"),
        *("n_cpu_moe", "cpu_moe", "spec_draft_n_cpu_moe", "override_tensor"),
    ),
}


class GroupedCommand(click.Command):
    """A command with many options: its help lists them by `groups` (heading -> names of parameters).

    Says what llama.cpp's options are called here, where they have another name.
    """

    def __init__(self, *arguments: Any, groups: Mapping[str, Sequence[str]], **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [it for it in self.get_params(ctx) if isinstance(it, click.Option)]
        records = {it.name: record for it in options if (record := it.get_help_record(ctx)) is not None}
        for heading, names in self.groups.items():
            with formatter.section(heading):
                formatter.write_dl([records.pop(name) for name in names])
        with formatter.section(Heading.OTHER):
            formatter.write_dl(list(records.values()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            instead = self.instead_of(error.option_name)
            if instead is None:
                raise
            raise UsageError(f"{error.option_name}: no such option of `specmeter {self.name}`", fix=instead) from None

    def instead_of(self, option: str) -> str | None:
        """What to write instead of an option of llama.cpp's; None for any other."""
        from specmeter.engines.llama_cpp.options import OPTIONS
        from specmeter.record import EngineSettings

        if option.startswith(("--spec-draft-hf", "--hf-repo-draft")):
            return "use --draft hf:OWNER/REPO/FILE.gguf"
        keys = {
            flag: f"engine.{name}"
            for name in EngineSettings.model_fields
            if name in OPTIONS
            for flag in OPTIONS[name].flags
        }
        if option in keys:
            return f"use --set {keys[option]}=VALUE"
        return self.instead_of_drafting(option)

    def instead_of_drafting(self, option: str) -> str | None:
        """The same for an option of drafting."""
        key = _ARM_KEYS.get(option.removeprefix("--"))
        if key is not None:
            return f"use --set {key}=VALUE"
        if option.startswith(("--draft-", "--spec-")):
            return (
                "use --gamma for draft lengths, --draft for the draft model, --set KEY=VALUE for anything else "
                "(`specmeter run --schema` lists the keys)"
            )
        return None


_MS = Number(0, 1e9, whole=False, above=True, name="MS")
_LOADS: tuple[tuple[str, Any, str], ...] = (
    (
        "--clients -np --parallel",
        Numbers(Number(1, 10_000), "1,2,4,8"),
        "Numbers of clients, such as 1,2,4,8. Each sends its next request when the last one is answered.",
    ),
    (
        "--rate",
        Numbers(Number(0.0001, 100_000, whole=False), "0.5,1", "R,R,..."),
        "Requests per second, such as 0.5,1, whether or not earlier ones are answered.",
    ),
    ("--depth", Numbers(Number(0, 16_777_216), "0,2048"), "Tokens of filler before each prompt, such as 0,2048."),
    ("--slo-ttft", _MS, "Goodput counts requests whose first token comes within MS."),
    ("--slo-tpot", _MS, "Goodput counts requests whose other tokens take MS each at most."),
)


def load_options(function: _F) -> _F:
    """Options that say under which loads is measured; `load_by` reads them."""
    for name, kind, text in reversed(_LOADS):
        function = click.option(*name.split(), type=kind, help=text)(function)
    return function


def load_by(settings: dict[str, Any]) -> dict[str, Any]:
    """The keys of `load` that the options of `load_options` stand for, which are taken out of `settings`."""
    given = {name: settings.pop(name) for name in ("clients", "rate", "depth", "slo_ttft", "slo_tpot")}
    keys = {
        name: value[0] if len(value) == 1 else list(value)
        for name in ("clients", "rate", "depth")
        if (value := given[name]) is not None
    }
    slo = {f"{name}_ms": given[f"slo_{name}"] for name in ("ttft", "tpot") if given[f"slo_{name}"] is not None}
    if slo and not keys:
        raise UsageError("--slo-ttft, --slo-tpot: no load is given", fix="add --clients 1,2,4,8 or --rate 1")
    return {**keys, **({"slo": slo} if slo else {})}


hub_option = click.option("-hf", "--hf-repo", "hub", hidden=True, multiple=True)


def refuse_hub(repositories: Sequence[str]) -> None:
    """Raise `UsageError` for llama.cpp's `-hf`, which names a repository."""
    if repositories:
        raise UsageError(f"-hf {repositories[0]}: a repository, not a file", fix="write hf:OWNER/REPO/FILE.gguf")


def draft_option(text: str) -> Callable[[_F], _F]:
    """`--draft`, by all its names."""
    names = ("-md", "--draft", "--model-draft", "--spec-draft-model")
    return click.option(*names, "drafts", multiple=True, metavar="MODEL", help=text)


def url_options(what: str) -> Callable[[_F], _F]:
    """`--url` and `--baseline-url`; `what` is done with the servers."""
    both = (
        click.option(
            "--url",
            "urls",
            multiple=True,
            metavar="URL",
            help=f"{what}, such as http://127.0.0.1:8080; repeatable. With --url, TARGET is the model name on that "
            f"server. The API key is read from the environment variable {KEY}.",
        ),
        click.option("--baseline-url", metavar="URL", help="A server with the same model, without speculation."),
    )
    return lambda function: reduce(lambda inner, option: option(inner), reversed(both), function)


def addresses(urls: Sequence[str], option: str = "--url") -> list[str]:
    """URLs as they are kept. Raises `UsageError` for what is none, and for one that is named twice."""
    found: list[str] = []
    for url in urls:
        try:
            found.append(address(url))
        except ValueError as error:
            raise UsageError(f"{option}: {error}", fix="write it as http://HOST:PORT") from None
        if found[-1] in found[:-1]:
            raise UsageError(f"{option} {url}: given twice", fix="give each server once")
    return found


def _number(record: type[Record], name: str, metavar: str = "N") -> Number:
    """A number between the limits that a field of a record has."""
    field = record.model_fields[name]
    annotated = (getattr(it, "__metadata__", ()) for it in get_args(field.annotation))
    fields = (field, *(it for found in annotated for it in found if isinstance(it, FieldInfo)))
    limits = [limit for it in fields for limit in it.metadata]
    low, high = ([getattr(it, end) for it in limits if hasattr(it, end)] for end in ("ge", "le"))
    above = [it.gt for it in limits if hasattr(it, "gt")]
    whole = "float" not in str(field.annotation)
    return Number(*(above or low or [-math.inf]), *(high or [math.inf]), whole=whole, above=bool(above), name=metavar)


_LAYERS = _number(EngineSettings, "gpu_layers", "N|all")
_ENGINE: tuple[tuple[tuple[str, ...], Any, str], ...] = (
    (("--engine",), str, "Engine (`specmeter engines` lists them)."),
    (("--binary",), str, "Your own llama-server; implies --engine native."),
    (("-c", "--ctx-size"), _number(EngineSettings, "context"), "Context length in tokens."),
    (("-t", "--threads"), _number(EngineSettings, "threads"), "Threads."),
    (("-ngl", "--gpu-layers", "--n-gpu-layers"), _LAYERS, "Layers of the target model on the GPU."),
    (("-ngld", "--gpu-layers-draft", "draft_gpu_layers"), _LAYERS, "Layers of the draft model on the GPU."),
    (("-fa", "--flash-attn"), click.Choice(["on", "off", "auto"]), "Flash attention."),
    (("-ctk", "--cache-type-k"), str, "Type of the K cache."),
    (("-ctv", "--cache-type-v"), str, "Type of the V cache."),
    (("-b", "--batch-size"), _number(EngineSettings, "batch"), "Logical batch size in tokens."),
    (("-ub", "--ubatch-size"), _number(EngineSettings, "ubatch"), "Physical batch size in tokens."),
    (("-ncmoe", "--n-cpu-moe"), _LAYERS, "Keep the experts of the first N layers in the CPU's memory."),
    (("--spec-draft-n-cpu-moe",), _LAYERS, "The same of the draft model."),
)
_METAVARS = {"--engine": "NAME", "--binary": "FILE", "--cache-type-k": "TYPE", "--cache-type-v": "TYPE"}
_GENERATION: tuple[tuple[tuple[str, ...], Any, str], ...] = (
    (
        ("--max-tokens", "-n", "--predict"),
        _number(Generation, "max_tokens"),
        "Longest output per prompt, in tokens. Default: 1024.",
    ),
    (("--temp",), _number(Generation, "temperature"), "Temperature. Default: 0, greedy decoding."),
    (
        ("--top-k",),
        _number(Generation, "top_k"),
        "As in llama.cpp. Default of this and the next five: the engine's own value.",
    ),
    (("--top-p",), _number(Generation, "top_p"), "As in llama.cpp."),
    (("--min-p",), _number(Generation, "min_p"), "As in llama.cpp."),
    (("--repeat-penalty",), _number(Generation, "repeat_penalty"), "As in llama.cpp."),
    (("--presence-penalty",), _number(Generation, "presence_penalty"), "As in llama.cpp."),
    (("--frequency-penalty",), _number(Generation, "frequency_penalty"), "As in llama.cpp."),
)
_BLOCKS = (("--blocks",), Number(1, 1000), "Repetitions of all measurements; more give narrower intervals.")


def setting_options(*, repeats: bool) -> Callable[[_F], _F]:
    """Options that set single keys; `set_by` reads them. With `repeats` also those of the design."""
    options = (*((_BLOCKS,) if repeats else ()), *_GENERATION, *_ENGINE)
    decorators = [
        click.option(*names, type=kind, metavar=_METAVARS.get(names[-1]), help=text) for names, kind, text in options
    ]
    decorators += [
        click.option("-cmoe", "--cpu-moe", "cpu_moe", is_flag=True, help="Keep all experts in the CPU's memory."),
        click.option("-kvu", "--kv-unified", "kv_unified", is_flag=True, help="One KV cache for all slots."),
        click.option(
            *("-ot", "--override-tensor"), multiple=True, metavar="PATTERN=DEVICE", help="As in llama.cpp; repeatable."
        ),
        click.option("--ignore-eos", is_flag=True, help="Generate --max-tokens tokens even if the model ends earlier."),
        click.option("--stop", multiple=True, metavar="TEXT", help="End outputs at this text; repeatable."),
    ]
    return lambda function: reduce(lambda found, option: option(found), reversed(decorators), function)


def set_by(settings: Mapping[str, Any]) -> Iterator[str]:
    """What the options of `setting_options` set, as `--set` would."""
    if settings["binary"] is not None and settings["engine"] is None:
        yield "engine.kind=native"
    if settings.get("cpu_moe"):
        yield "engine.cpu_moe_layers=all"
    for option, key in _SETTINGS.items():
        value = settings.get(option)
        if value is not None and value is not False and value != ():
            yield f"{key}={json.dumps(value)}"


@contextmanager
def naming_options(settings: Mapping[str, Any], overrides: Sequence[str]) -> Generator[None]:
    """Errors in keys that options have set, and no `--set` behind them, name the options as they were typed."""
    try:
        yield
    except ExperimentError as error:
        ctx = click.get_current_context()
        given = {
            key: name_typed(it, ctx.obj or ())
            for it in ctx.command.params
            if isinstance(it, click.Option)
            and (key := _SETTINGS.get(it.name or "")) is not None
            and settings.get(it.name or "") not in (None, False, ())
            and not any(override.startswith(f"{key}=") for override in overrides)
        }
        lines = [line.removeprefix("  - ") for line in error.message.splitlines()]
        told = [
            f"{option}{line[len(key) :]}"
            for line in lines
            for key, option in given.items()
            if line.startswith((f"{key}:", f"{key}."))
        ]
        if not told or len(told) < len(lines) - 1:
            raise
        fix = "correct it, or leave it out" if len(lines) > 1 else error.fix
        raise UsageError("; ".join(told), fix=fix) from None


_LONGEST_S = 7 * 24 * 3600.0


class Budget(click.ParamType[float]):
    """A duration, seconds."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ARG002
        try:
            seconds = seconds_of(str(value))
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= _LONGEST_S:
            raise UsageError(
                f"--budget {str(value)[:80]}: not a duration",
                fix="write 90s, 10m, 1h or 1h30m (a week at most)",
            )
        return seconds


def flag(name: str) -> str:
    """How the command line writes the name of an argument: `--draft-rate` for `draft_rate`."""
    return f"--{name.replace('_', '-')}"

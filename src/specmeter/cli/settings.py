"""Options that several commands share: languages of pages, and settings of the engine and of generation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, TypeVar

import click

from specmeter.engines.url.spec import KEY, address
from specmeter.errors import UsageError
from specmeter.messages import LANGUAGES
from specmeter.record import SAMPLING
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
    help="Language; all: switch on the page.",
)
"""Of commands that write pages."""

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


class Lengths(click.ParamType[tuple[int, ...]]):
    """Draft lengths, or other whole numbers to try one after the other."""

    name = "N,N,..."

    def __init__(self, low: int | None = None, high: int | None = None) -> None:
        self._low, self._high = low, high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        try:
            found = tuple(int(it) for it in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of whole numbers such as 2,4,8", param, ctx)
        _within(self, found, self._low, self._high, param, ctx)
        return found


class Rates(click.ParamType[tuple[float, ...]]):
    """Requests per second."""

    name = "R,R,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        try:
            found = tuple(float(it) for it in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 0.5,1", param, ctx)
        _within(self, found, 0.0001, 100_000, param, ctx)
        return found


def _within(
    kind: click.ParamType[Any],
    values: Sequence[float],
    low: float | None,
    high: float | None,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> None:
    """Refuse a value beyond either end, and one that is listed twice, by the option's name."""
    for value in values:
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            kind.fail(f"{value:g} is not between {low:g} and {high:g}", param, ctx)
        if values.count(value) > 1:
            kind.fail(f"{value:g} is listed twice", param, ctx)


class _Layers(click.ParamType[Any]):
    """As llama.cpp has it: a number, or `all`."""

    name = "N|all"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == "all":
            return value
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor `all`", param, ctx)


ENGINE_GROUP = {
    "How answers are made": ("ignore_eos", "stop", "temp", *(name for name in SAMPLING if name != "stop")),
    "Engine": (
        *("engine", "binary", "ctx_size", "threads", "gpu_layers", "draft_gpu_layers", "flash_attn"),
        *("cache_type_k", "cache_type_v"),
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
        with formatter.section("Other options"):
            formatter.write_dl(list(records.values()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            instead = self.instead_of(error.option_name)
            if instead is None:
                raise
            raise UsageError(f"{error.option_name}: not an option of `specmeter {self.name}`", fix=instead) from None

    def instead_of(self, option: str) -> str | None:
        """What to write instead of an option of llama.cpp's; None for any other."""
        from specmeter.engines.llama_cpp.options import OPTIONS
        from specmeter.record import EngineSettings

        if option.startswith(("--spec-draft-hf", "--hf-repo-draft")):
            return "write --draft hf:OWNER/REPO/FILE.gguf"
        keys = {
            flag: f"engine.{name}"
            for name in EngineSettings.model_fields
            if name in OPTIONS
            for flag in OPTIONS[name].flags
        }
        if option in keys:
            return f"write --set {keys[option]}=VALUE"
        return self.instead_of_drafting(option)

    def instead_of_drafting(self, option: str) -> str | None:
        """The same for an option that says how drafts are made."""
        key = _ARM_KEYS.get(option.removeprefix("--"))
        if key is not None:
            return f"write --set {key}=VALUE"
        if option.startswith(("--draft-", "--spec-")):
            return (
                "write --gamma for draft lengths, --draft for the draft model, or --set KEY=VALUE for anything else "
                "(`specmeter run --schema` prints the keys)"
            )
        return None


class Finite(click.FloatRange):
    """A range that `nan` is not in, which compares with nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


_ABOVE_0 = Finite(0, 1e9, min_open=True)
_LOADS: tuple[tuple[str, Any, str], ...] = (
    (
        "--clients -np --parallel",
        Lengths(1, 10_000),
        "Numbers of clients at once, such as 1,2,4,8: each sends its next request once answered.",
    ),
    ("--rate", Rates(), "Requests per second, such as 0.5,1, that come whether or not others were answered."),
    ("--depth", Lengths(0, 16_777_216), "Tokens of other text before each prompt, such as 0,2048."),
    ("--slo-ttft", _ABOVE_0, "Limit on time to first token, in ms, for goodput."),
    ("--slo-tpot", _ABOVE_0, "Limit on time per further token, in ms, for goodput."),
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
        raise UsageError("--slo-ttft, --slo-tpot: there is no load", fix="add --clients 1,2,4,8 or --rate 1")
    return {**keys, **({"slo": slo} if slo else {})}


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
            help=f"{what}, such as http://127.0.0.1:8080; repeatable. TARGET is then what it calls a model. Its key is "
            f"read from {KEY}.",
        ),
        click.option("--baseline-url", metavar="URL", help="The same model without speculation, by another server."),
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
            raise UsageError(f"{option} {url}: is named twice", fix="name each server once")
    return found


_ENGINE: tuple[tuple[tuple[str, ...], Any, str], ...] = (
    (("--engine",), str, "Engine that measures (`specmeter engines` lists them)."),
    (("--binary",), str, "A llama-server of your own; implies --engine native."),
    (("-c", "--ctx-size"), int, "Context length in tokens."),
    (("-t", "--threads"), int, "Threads."),
    (("-ngl", "--gpu-layers", "--n-gpu-layers"), _Layers(), "Layers of the target on the GPU."),
    (("-ngld", "--gpu-layers-draft", "draft_gpu_layers"), _Layers(), "Layers of the draft model on the GPU."),
    (("-fa", "--flash-attn"), click.Choice(["on", "off", "auto"]), "Flash attention."),
    (("-ctk", "--cache-type-k"), str, "Type of the K cache."),
    (("-ctv", "--cache-type-v"), str, "Type of the V cache."),
)
_GENERATION: tuple[tuple[tuple[str, ...], Any, str], ...] = (
    (("--max-tokens", "-n", "--predict"), int, "Most tokens generated for each prompt; default: 1024."),
    (("--temp",), float, "Temperature; 0, the default, is greedy decoding."),
    (("--top-k",), int, "Only the K likeliest tokens. Default, as below: the engine's own, or the server's."),
    (("--top-p",), float, "Only the likeliest tokens that together have this probability."),
    (("--min-p",), float, "Only tokens at least this likely, as a share of the likeliest."),
    (("--repeat-penalty",), float, "Divides the scores of tokens that came before."),
    (("--presence-penalty",), float, "Lowers the scores of tokens that came before."),
    (("--frequency-penalty",), float, "The same, each time that they came."),
)
_BLOCKS = (("--blocks",), int, "Repetitions of everything; more make intervals narrower.")


def setting_options(*, repeats: bool) -> Callable[[_F], _F]:
    """Options that set single keys; `set_by` reads them. With `repeats` also those of the design."""
    options = (*((_BLOCKS,) if repeats else ()), *_GENERATION, *_ENGINE)
    decorators = [click.option(*names, type=kind, help=text) for names, kind, text in options]
    decorators += [
        click.option("--ignore-eos", is_flag=True, help="Go on behind the end of an answer, up to the most tokens."),
        click.option("--stop", multiple=True, metavar="TEXT", help="A text at which an answer ends; repeatable."),
    ]
    return lambda function: reduce(lambda found, option: option(found), reversed(decorators), function)


def set_by(settings: Mapping[str, Any]) -> Iterator[str]:
    """What the options of `setting_options` set, as `--set` would."""
    if settings["binary"] is not None and settings["engine"] is None:
        yield "engine.kind=native"
    for option, key in _SETTINGS.items():
        value = settings.get(option)
        if value is not None and value is not False and value != ():
            yield f"{key}={json.dumps(value)}"


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
                f"--budget {str(value)[:80]}: is not a time to measure in",
                fix="write 90s, 10m, 1h or 1h30m (a week at most)",
            )
        return seconds


def flag(name: str) -> str:
    """How the command line writes the name of an argument: `--draft-rate` for `draft_rate`."""
    return f"--{name.replace('_', '-')}"

"""click's own errors in the two lines that all errors have: what is wrong, with its value, and what to write instead;
types of options whose errors name their own fix."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import click

from specmeter.errors import UsageError

_VALUE = re.compile(r"(?:\w+ )?(?:'(?P<quoted>.*?)'|(?P<bare>\S+)) (?:is|does) ", re.DOTALL)
"""How click's messages of a bad value begin."""
_LARGE = 1e5
"""A limit that nobody meets by accident."""
_SHOWN = 80


class BadValue(click.BadParameter):
    """A value that an option does not take, and what to write instead."""

    def __init__(
        self, value: object, wrong: str, fix: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> None:
        super().__init__(wrong, ctx, param)
        self.value, self.fix = str(value), fix


class Number(click.ParamType[Any]):
    """A number between two limits, the lower one excluded with `above`; or a word of its name, as of `N|all`."""

    def __init__(
        self,
        low: float = -math.inf,
        high: float = math.inf,
        *,
        whole: bool = True,
        above: bool = False,
        name: str = "N",
    ) -> None:
        self.name = name
        self._low, self._high, self._whole, self._above = low, high, whole, above
        self._words = tuple(name.split("|")[1:])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in self._words:
            return value
        try:
            found = (int if self._whole else float)(value)
        except ValueError:
            found = math.nan
        if math.isnan(found):
            raise BadValue(value, f"not a {'whole ' * self._whole}number", self._fix(), param, ctx)
        self.refuse_outside(found, value, param, ctx)
        return found

    def refuse_outside(
        self, found: float, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> None:
        """Raise `BadValue` for a number beyond either limit."""
        if found < self._low or (self._above and found == self._low):
            raise BadValue(value, "too small", self._fix(), param, ctx)
        if found > self._high:
            raise BadValue(value, "too large", self._fix(), param, ctx)

    def _fix(self) -> str:
        kind = "whole number" if self._whole else "number"
        if self._high >= _LARGE:
            low = (
                "" if math.isinf(self._low) else f" above {self._low:g}" if self._above else f", {self._low:g} or more"
            )
        elif self._above:
            low = f" above {self._low:g}, up to {self._high:g}"
        else:
            low = f" from {self._low:g} to {self._high:g}"
        return f"use {joined([*self._words, f'a {kind}{low}'])}"


class Numbers(click.ParamType[tuple[Any, ...]]):
    """Numbers with commas between them, none of them twice."""

    def __init__(self, one: Number, example: str, name: str = "N,N,...") -> None:
        self.name, self._one, self._example = name, one, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        if isinstance(value, tuple):
            return value  # pyright: ignore[reportUnknownVariableType]
        fix = f"give numbers such as {self._example}"
        try:
            found = tuple(self._one.convert(it, param, ctx) for it in str(value).split(","))
        except BadValue as error:
            wrong = f"{error.value or 'nothing'} is {error.message}" if "," in str(value) else error.message
            raise BadValue(value, wrong, fix, param, ctx) from None
        if twice := [it for it in found if found.count(it) > 1]:
            raise BadValue(value, f"{twice[0]:g} is listed twice", fix, param, ctx)
        return found


def joined(words: Sequence[str]) -> str:
    """`fact, code or zh`."""
    return " or ".join([*([", ".join(words[:-1])] if words[:-1] else []), *words[-1:]])


def explained(error: click.UsageError, argv: Sequence[str]) -> UsageError | None:
    """A usage error of click's as one of specmeter's; None for what is not an error, such as help without arguments."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return None
    ctx = error.ctx
    command = "" if ctx is None else ctx.command_path.partition(" ")[2]
    see = f"see `specmeter {command} --help`".replace("  ", " ")
    match error:
        case click.NoSuchOption():
            from difflib import get_close_matches

            option = _whole_word(error.option_name, argv)
            near = joined(get_close_matches(option, error.possibilities or (), cutoff=0.75))
            return UsageError(
                f"{option}: no such option of `specmeter{f' {command}' if command else ''}`",
                fix=f"use {near}" if near else see,
            )
        case click.BadOptionUsage():
            if "requires" in error.message:
                return UsageError(f"{error.option_name}: no value given", fix="write one after it, or leave it out")
            return UsageError(f"{error.option_name}: takes no value", fix=f"write {error.option_name} alone")
        case click.MissingParameter() if error.param is not None and ctx is not None:
            metavar = error.param.make_metavar(ctx)
            if isinstance(error.param, click.Option):
                name = f"{error.param.opts[0]} {metavar}"
                return UsageError(f"{command}: {name} is missing", fix=f"add {name}; {see}")
            return UsageError(f"{command}: {metavar} is missing", fix=f"write `{_usage(ctx, command)}`")
        case BadValue():
            return UsageError(f"{_place(error, error.value, argv)}: {error.message}", fix=error.fix)
        case click.BadParameter():
            return _bad_value(error, argv, see)
        case _:
            pass
    text = error.message.rstrip(".")
    if extra := re.match(r"Got unexpected extra arguments? \((.*)\)", text):
        return UsageError(f"{extra[1][:_SHOWN]}: more than `specmeter {command}` takes", fix=see)
    if unknown := re.match(r"No such command '(.*?)'", text):
        known = list(ctx.command.list_commands(ctx)) if ctx is not None and isinstance(ctx.command, click.Group) else []
        return UsageError(f"{command} {unknown[1][:_SHOWN]}: no such command", fix=f"use {joined(known)}")
    return UsageError(text, fix=see)


def _bad_value(error: click.BadParameter, argv: Sequence[str], see: str) -> UsageError:
    """A value that one of click's own types refused."""
    kind, found = None if error.param is None else error.param.type, _VALUE.match(error.message)
    value = "" if found is None else (found["quoted"] if found["quoted"] is not None else found["bare"])
    place = _place(error, value, argv)
    if isinstance(kind, click.Choice):
        return UsageError(f"{place}: no such value", fix=f"use {joined([str(it) for it in kind.choices])}")
    if isinstance(kind, click.Path):
        wrong = "no such file" if kind.dir_okay is False else "no such folder"
        wrong = "a folder, not a file" if "is a directory" in error.message else wrong
        wrong = "a file, not a folder" if "is a file" in error.message else wrong
        return UsageError(f"{place}: {wrong}", fix="check the path")
    return UsageError(f"{place}: {error.message.rstrip('.')}", fix=see)


def _place(error: click.BadParameter, value: str, argv: Sequence[str]) -> str:
    """A value behind its option, by the name that was typed; of an argument the value alone."""
    name = f"{name_typed(error.param, argv)} " if isinstance(error.param, click.Option) else ""
    return f"{name}{value[:_SHOWN] or '(nothing)'}"


def name_typed(option: click.Option, argv: Sequence[str]) -> str:
    """Which of an option's names was typed."""
    names = (*option.opts, *option.secondary_opts)
    given = (*(it.partition("=")[0] for it in argv), *(it[:2] for it in argv))
    return next((it for it in given if it in names), option.opts[0])


def _whole_word(option: str, argv: Sequence[str]) -> str:
    """What was typed, of which click tells only the letter that is no option: `-hf`, not `-f`."""
    if len(option) != 2 or option in argv:
        return option
    return next((it for it in argv if it[:1] == "-" != it[1:2] and option[1] in it), option)


def _usage(ctx: click.Context, command: str) -> str:
    pieces = [it for it in ctx.command.collect_usage_pieces(ctx) if it != "[OPTIONS]"]
    return " ".join(["specmeter", command, *pieces])

"""Reading experiment files: YAML text, `--set` overrides, validation, and errors that name the field.

The text is untrusted: only plain YAML (no tags that construct objects), bounded in size and in what its aliases
expand to, without duplicate keys.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, cast, get_args

import yaml
from pydantic import BaseModel, ValidationError

from specmeter.errors import ExperimentError
from specmeter.experiment import Experiment

MAX_BYTES = 1_000_000
MAX_NODES = 100_000
MAX_DEPTH = 64


@dataclass(frozen=True)
class LoadedExperiment:
    """An experiment with the text it came from."""

    experiment: Experiment
    text: str
    """The YAML as it was run: the file's own text, or, with overrides, what it became."""
    source: str
    """Path of the file, or `bundled:NAME`."""
    base_dir: Path
    """Relative model and prompt files are looked up from here."""


def bundled() -> dict[str, str]:
    """Name -> description of the experiments that ship with specmeter."""
    found: dict[str, str] = {}
    for entry in resources.files("specmeter.experiments").iterdir():
        if entry.name.endswith(".yaml"):
            data = _parse(entry.read_text(encoding="utf-8"), entry.name)
            found[entry.name.removesuffix(".yaml")] = str(data.get("description", "")).strip()
    return dict(sorted(found.items()))


def load(reference: str, overrides: Sequence[str] = ()) -> LoadedExperiment:
    """Read a bundled experiment by name, or a file by path, and apply `a.b=c` overrides.

    Raises `ExperimentError` for a missing file, bad YAML, unknown keys, wrong types and bad overrides.
    """
    text, source, base_dir = _read(reference)
    data = _parse(text, source)
    for override in overrides:
        _apply(data, override)
    experiment = _validate(data, source)
    if overrides:
        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    return LoadedExperiment(experiment, text, source, base_dir)


def _read(reference: str) -> tuple[str, str, Path]:
    path = Path(reference).expanduser()
    looks_like_path = path.suffix in {".yaml", ".yml"} or path.parent != Path()
    if not looks_like_path and not path.is_file():
        names = bundled()
        if reference in names:
            entry = resources.files("specmeter.experiments") / f"{reference}.yaml"
            return entry.read_text(encoding="utf-8"), f"bundled:{reference}", Path.cwd()
        near = difflib.get_close_matches(reference, names, n=2)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise ExperimentError(
            f"{reference!r} is neither a file nor a bundled experiment",
            fix=f"{hint}`specmeter list` shows the bundled ones; a file needs its path",
        )
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ExperimentError(f"{path}: larger than {MAX_BYTES:,} bytes", fix="an experiment file is a short text")
        raw = path.read_bytes()
    except OSError as error:
        raise ExperimentError(
            f"{path}: cannot be read ({error.strerror})", fix="check the path; `specmeter list` shows bundled ones"
        ) from None
    try:
        return raw.decode("utf-8-sig"), str(path), path.resolve().parent
    except UnicodeDecodeError as error:
        raise ExperimentError(f"{path}: not UTF-8 text (byte {error.start})", fix="save it as UTF-8") from None


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses duplicate keys: the second one would silently win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen and key.value != "<<":
                    raise yaml.MarkedYAMLError(problem=f"duplicate key {key.value!r}", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        data: object = yaml.load(text, Loader=_Loader)  # noqa: S506  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        raise ExperimentError(f"{where}: {error.problem or 'not valid YAML'}", fix="correct the YAML there") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ExperimentError(f"{source}: not valid YAML ({error})", fix="correct the YAML") from None
    if not isinstance(data, dict):
        raise ExperimentError(
            f"{source}: an experiment is a mapping of keys, this is {type(data).__name__}",
            fix="start from `specmeter schema --example`",
        )
    mapping = cast("dict[str, Any]", data)
    _bounded(mapping, source)
    return mapping


def _bounded(data: object, source: str) -> None:
    """Refuse aliases that expand to something huge or circular, before anything walks over them."""
    count = 0
    stack: list[Iterator[object]] = [iter([data])]
    while stack:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
            continue
        count += 1
        if count > MAX_NODES or len(stack) > MAX_DEPTH:
            raise ExperimentError(
                f"{source}: more than {MAX_NODES:,} values or {MAX_DEPTH} levels", fix="remove nested YAML aliases"
            )
        if isinstance(node, dict):
            stack.append(iter(v for v in cast("dict[object, object]", node).values() if v is not None))
        elif isinstance(node, list):
            stack.append(iter(v for v in cast("list[object]", node) if v is not None))


def _apply(data: dict[str, Any], override: str) -> None:
    path, separator, raw = override.partition("=")
    keys = path.strip().split(".")
    if not separator or not all(keys):
        raise ExperimentError(
            f"--set {override!r}: not of the form a.b=c",
            fix="for example --set design.blocks=5 --set arms.0.gamma=[4,8]",
        )
    try:
        value: Any = yaml.load(raw, Loader=_Loader)  # noqa: S506  # a SafeLoader
    except yaml.YAMLError:
        raise ExperimentError(f"--set {override!r}: the value is not valid YAML", fix="quote it") from None
    _bounded(value, f"--set {path}")
    node: Any = data
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        if isinstance(node, list):
            items = cast("list[Any]", node)
            if not key.isdecimal() or int(key) >= len(items):
                raise ExperimentError(
                    f"--set {path}: {'.'.join(keys[:depth])} is a list of {len(items)}",
                    fix=f"use a number from 0 to {len(items) - 1}",
                )
            if last:
                items[int(key)] = value
            else:
                node = items[int(key)]
        elif isinstance(node, dict):
            mapping = cast("dict[str, Any]", node)
            if last:
                mapping[key] = value
            else:
                node = mapping.setdefault(key, {})
        else:
            raise ExperimentError(
                f"--set {path}: {'.'.join(keys[:depth])} is a single value and has no {key!r}",
                fix="shorten the path",
            )


def _validate(data: dict[str, Any], source: str) -> Experiment:
    try:
        return Experiment.model_validate(data)
    except ValidationError as error:
        problems = [_problem(item) for item in error.errors()]
        shown = problems[:10] + ([f"... and {len(problems) - 10} more"] if len(problems) > 10 else [])
        raise ExperimentError(
            f"{source}:\n" + "\n".join(f"  - {line}" for line in shown),
            fix="`specmeter schema` prints every key with its meaning",
        ) from None


def _problem(item: Any) -> str:
    location: tuple[Any, ...] = item["loc"]
    where = ".".join(str(part) for part in location) or "file"
    if item["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(location[-1]), _all_keys(), n=1)
        return f"{where}: unknown key" + (f"; did you mean {near[0]!r}?" if near else "")
    if item["type"] == "missing":
        return f"{where}: missing"
    message = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] == "value_error" and not location:
        return message
    given = repr(item["input"])
    return f"{where}: {message}" + (f" (given: {given[:80]})" if item["type"] != "value_error" else "")


def _all_keys() -> list[str]:
    found: dict[str, None] = {}
    seen: set[type[BaseModel]] = set()
    queue: list[Any] = [Experiment]
    while queue:
        kind = queue.pop()
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if kind in seen:
                continue
            seen.add(kind)
            for name, field in kind.model_fields.items():
                found[name] = None
                queue.append(field.annotation)
        else:
            queue.extend(get_args(kind))
    return list(found)

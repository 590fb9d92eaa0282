"""Reading experiment files: YAML text, variants, `--set` overrides, validation, and errors that name the field.

Other files of the same kind (quality plans) are read by the same code: `FileKind` says what differs.

The text is untrusted: only plain YAML (no tags that construct objects), bounded in size and in what its aliases
expand to, without duplicate keys.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from specmeter import extensions
from specmeter.errors import ExperimentError
from specmeter.experiments.experiment import ON_RECORD, Experiment, Variants
from specmeter.experiments.faults import problems, shown
from specmeter.files import read_named

MAX_BYTES = 1_000_000
MAX_NODES = 100_000
MAX_DEPTH = 64
MAX_INTEGER_BITS = 256
"""Of any whole number in a file; far beyond that, Python refuses even to print it."""
_SHOWN = 160
"""Characters of a value that a message quotes."""


class Bundled(NamedTuple):
    """An experiment that ships with specmeter."""

    description: str
    variants: tuple[str, ...]


Kind = TypeVar("Kind", bound=BaseModel)


@dataclass(frozen=True)
class FileKind(Generic[Kind]):
    """A kind of file, and how messages speak of it."""

    kind: type[Kind]
    """With the fields `variants` and `applied`."""
    shelf: str
    """Package that the bundled ones lie in."""
    word: str
    """`experiment`."""
    listing: str
    """Where the bundled ones are listed."""
    keys: str
    """Where its keys are explained."""
    start: str
    """How to begin one."""


@dataclass(frozen=True)
class Loaded(Generic[Kind]):
    """What a file holds, with the text it came from."""

    value: Kind
    text: str
    """The YAML as it is used: the file's own text, or, with variants or overrides, what it became."""
    source: str
    """Path of the file, or `bundled:NAME`."""
    base_dir: Path
    """Relative files are looked up from here."""
    variants: tuple[str, ...] = ()
    """Variants that the file offers; the value's `applied` says which of them were chosen."""


class LoadedExperiment(Loaded[Experiment]):
    """An experiment with the text it came from."""

    @property
    def experiment(self) -> Experiment:
        return self.value


_EXPERIMENT = FileKind(
    kind=Experiment,
    shelf="specmeter.experiments",
    word="experiment",
    listing="`specmeter list` shows the bundled ones",
    keys="correct these keys; `specmeter run --schema` explains them all",
    start="start from `specmeter run --example`",
)


def bundled() -> dict[str, Bundled]:
    """The experiments that ship with specmeter, by name."""
    return bundled_of(_EXPERIMENT)


def bundled_of(form: FileKind[Kind]) -> dict[str, Bundled]:
    """The files of a kind that ship with specmeter, by name."""
    found: dict[str, Bundled] = {}
    for name, entry in _on_shelf(form).items():
        data = _parse(entry.read_text(encoding="utf-8"), entry.name, form)
        found[name] = Bundled(str(data.get("description", "")).strip(), tuple(_variants(data, entry.name)))
    return found


class _Shelved(Protocol):
    """A file on a shelf."""

    @property
    def name(self) -> str: ...
    def read_text(self, encoding: str) -> str: ...


class _Made(NamedTuple):
    """One that another package writes when it is read."""

    name: str
    place: str

    def read_text(self, encoding: str) -> str:  # noqa: ARG002
        return extensions.load(self.place)()


def _on_shelf(form: FileKind[Kind]) -> dict[str, _Shelved]:
    """Name -> bundled file; experiments of other packages come with them."""
    studies = extensions.studies() if form.shelf == _EXPERIMENT.shelf else None
    shelves = [form.shelf, *([] if studies is None else [studies.EXPERIMENTS])]
    entries: list[_Shelved] = [entry for shelf in shelves for entry in resources.files(shelf).iterdir()]
    if form.shelf == _EXPERIMENT.shelf:
        entries += [_Made(f"{name}.yaml", place) for name, place in extensions.experiments().items()]
    files = {entry.name.removesuffix(".yaml"): entry for entry in entries}
    return {name: files[name] for name in sorted(files) if files[name].name.endswith(".yaml")}


def load(
    reference: str | Path | Experiment | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    variants: Sequence[str] = (),
) -> LoadedExperiment:
    """Read a bundled experiment by name, a file by path, or one built in Python (or its keys alone); merge `variants`
    into it, then apply `a.b=c` overrides.

    The experiment has no `variants` any more, and says in `applied` which of them it is made of.

    Raises `ExperimentError` for a missing file, bad YAML, unknown keys, wrong types, unknown variants and bad
    overrides.
    """
    if isinstance(reference, Experiment | Mapping):
        made = isinstance(reference, Experiment)
        text = text_of(reference) if made else written(reference)
        source = "Experiment" if made else "the experiment that the options describe"
        found = _load_text(_EXPERIMENT, text, source, Path.cwd(), overrides, variants)
    else:
        found = load_form(_EXPERIMENT, str(reference), overrides, variants=variants)
    return LoadedExperiment(**vars(found))


def load_text(text: str, source: str, base_dir: Path, overrides: Sequence[str] = ()) -> LoadedExperiment:
    """As `load`, for text that is at hand; messages call it `source`."""
    return LoadedExperiment(**vars(_load_text(_EXPERIMENT, text, source, base_dir, overrides, ())))


def parse(text: str) -> Experiment:
    """The experiment that a run's own text describes: no file is read, and its variants are chosen already.

    Raises `ExperimentError`.
    """
    data = _parse(text, "experiment.yaml", _EXPERIMENT)
    data.pop("variants", None)
    return _validate(data, "experiment.yaml", _EXPERIMENT, ON_RECORD)


def parse_form(form: FileKind[Kind], text: str, source: str) -> Kind:
    """What the text of a file says, read as untrusted; messages call it `source`. Raises `ExperimentError`."""
    return _validate(_parse(text, source, form), source, form)


def load_form(
    form: FileKind[Kind], reference: str, overrides: Sequence[str] = (), *, variants: Sequence[str] = ()
) -> Loaded[Kind]:
    """As `load`, for any kind of file."""
    return _load_text(form, *read_form(reference, form), overrides, variants)


def text_of(experiment: Experiment) -> str:
    """An experiment as YAML: what it says, without what is usual."""
    return written(experiment.model_dump(mode="json", exclude_unset=True))


def written(keys: Mapping[str, Any]) -> str:
    """The keys of a file as YAML."""
    return yaml.safe_dump(dict(keys), sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)


def _load_text(
    form: FileKind[Kind], text: str, source: str, base_dir: Path, overrides: Sequence[str], variants: Sequence[str]
) -> Loaded[Kind]:
    data = _parse(text, source, form)
    offered = _variants(data, source)
    data.pop("variants", None)
    chosen = tuple(dict.fromkeys(variants))
    rest = offered
    for name in chosen:
        changes = _chosen(name, rest, source)
        data = _merged(data, {key: change for key, change in changes.items() if key != "variants"})
        rest = _merged(rest, changes.get("variants") or {})
    if chosen:
        _bounded(data, source)
        before: object = data.get("applied")
        data["applied"] = [*(cast("list[object]", before) if isinstance(before, list) else []), *chosen]
    for override in overrides:
        _apply(data, override)
    value = _validate(data, source, form)
    if chosen or overrides:
        text = written(data)
    return Loaded(value, text, source, base_dir, tuple(offered))


_FIXED = {"applied", "variants"}
_VARIANTS: TypeAdapter[dict[str, dict[str, Any]]] = TypeAdapter(Variants)


def _variants(data: dict[str, Any], source: str) -> dict[str, dict[str, Any]]:
    """The file's variants; what one has as `variants` changes those that are chosen after it.

    Raises `ExperimentError` for anything but a mapping of names to mappings.
    """
    try:
        found = _VARIANTS.validate_python({} if data.get("variants") is None else data["variants"])
    except ValidationError as error:
        lines = problems(error, {"variants": data.get("variants")}, "variants", kind=Experiment)
        raise _refusal(source, lines) from None
    for name, changes in found.items():
        if "applied" in changes:
            raise _refusal(source, [f"variants.{name}.applied: a variant cannot change this key"])
        later: object = changes.get("variants", {})
        each = cast("dict[object, object]", later) if isinstance(later, dict) else {None: None}
        if not all(key in found and isinstance(it, dict) and not _FIXED & it.keys() for key, it in each.items()):
            raise _refusal(source, [f"variants.{name}.variants: has to have changes to {', '.join(found)}"])
    return found


def _chosen(name: str, offered: dict[str, dict[str, Any]], source: str) -> dict[str, Any]:
    if name not in offered:
        raise ExperimentError(
            f"{source}: no such variant {name[:80]!r}",
            fix=f"use one of: {', '.join(offered)}" if offered else "leave the option out: it has no variants",
        )
    return offered[name]


def _merged(data: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`data` with `changes`: mappings are merged, anything else is replaced, and None removes a key."""
    merged = dict(data)
    for key, change in changes.items():
        if change is None:
            merged.pop(key, None)
        elif isinstance(change, dict):
            known: object = merged.get(key)
            base = cast("dict[str, Any]", known) if isinstance(known, dict) else {}
            merged[key] = _merged(base, cast("dict[str, Any]", change))
        else:
            merged[key] = change
    return merged


def read_form(reference: str, form: FileKind[Kind]) -> tuple[str, str, Path]:
    """(text, source, folder) of a bundled file by name or of a file by path. Raises `ExperimentError`."""
    path = Path(reference).expanduser()
    looks_like_path = path.suffix in {".yaml", ".yml"} or path.parent != Path()
    if path.is_dir():
        raise ExperimentError(
            f"{path}: is a folder, not an {form.word}",
            fix="pass a file in it; `specmeter list` shows the runs in this folder",
        )
    if not looks_like_path and not path.is_file():
        shelf = _on_shelf(form)
        if (entry := shelf.get(reference)) is not None:
            return entry.read_text(encoding="utf-8"), f"bundled:{reference}", Path.cwd()
        near = difflib.get_close_matches(reference, shelf, n=2)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        apart = f"; experiments of studies: {extensions.INSTALL}" if extensions.studies() is None else ""
        raise ExperimentError(
            f"{reference!r} is neither a file nor a bundled {form.word}",
            fix=f"{hint}{form.listing}; for a file, give its path{apart}",
        )
    try:
        raw = read_named(path, MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise ExperimentError(f"{path}: cannot be read ({why})", fix=f"check the path; {form.listing}") from None
    if raw.startswith(b"GGUF"):
        raise ExperimentError(
            f"{path}: is a model, not an {form.word}",
            fix="use `specmeter run MODEL --draft DRAFT`; in a file or in Python, make it a `target`",
        )
    if len(raw) > MAX_BYTES:
        raise ExperimentError(
            f"{path}: larger than {MAX_BYTES:,} bytes", fix=f"check the path: an {form.word} is a short file"
        )
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

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        try:
            value = super().construct_yaml_int(node)
        except ValueError:
            value = None
        if value is None or value.bit_length() > MAX_INTEGER_BITS:
            raise yaml.MarkedYAMLError(problem="a number with too many digits", problem_mark=node.start_mark)
        return value


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def _parse(text: str, source: str, form: FileKind[Kind]) -> dict[str, Any]:
    try:
        data: object = yaml.load(text, Loader=_Loader)  # noqa: S506  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        raise ExperimentError(f"{where}: {error.problem or 'not valid YAML'}", fix="fix the YAML there") from None
    except RecursionError:
        raise ExperimentError(f"{source}: nested too deeply", fix="fix the YAML") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ExperimentError(f"{source}: not valid YAML ({error})", fix="fix the YAML") from None
    if not isinstance(data, dict):
        what = "it is empty" if data is None else "this is a list" if isinstance(data, list) else "this is a value"
        raise ExperimentError(
            f"{source}: the {form.word} must be a mapping of keys; {what}",
            fix=form.start,
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
    if len(keys) > MAX_DEPTH:
        raise ExperimentError(f"--set {path[:80]}...: more than {MAX_DEPTH} levels", fix="shorten the path")
    if keys[0] in ("variants", "applied"):
        raise ExperimentError(f"--set {path}: a variant cannot be set like this", fix="use --variant NAME")
    if not separator or not all(keys):
        raise ExperimentError(
            f"--set {override!r}: not a.b=c",
            fix="write for example --set design.blocks=5 --set arms.0.gamma=[4,8]",
        )
    try:
        value: Any = yaml.load(raw, Loader=_Loader)  # noqa: S506  # a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError):
        shown = override if len(override) <= _SHOWN else f"{override[:_SHOWN]}..."
        raise ExperimentError(f"--set {shown!r}: the value is not valid YAML", fix="quote the value") from None
    _bounded(value, f"--set {path}")
    node: Any = data
    depth = 0
    while depth < len(keys):
        end = _end_of_name(node, keys, depth)
        key, last = ".".join(keys[depth:end]), end == len(keys)
        if isinstance(node, list):
            items = cast("list[Any]", node)
            if not key.isdecimal() or int(key) >= len(items):
                last_one = f"from 0 to {len(items) - 1}" if len(items) > 1 else "0"
                raise ExperimentError(
                    f"--set {path}: {'.'.join(keys[:depth])} is a list of {len(items)}", fix=f"use {last_one}"
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
        depth = end


def _end_of_name(node: Any, keys: Sequence[str], start: int) -> int:
    """Where the key that begins at `start` ends: names may hold dots, so the longest that is there is meant."""
    if isinstance(node, dict):
        for end in range(len(keys), start + 1, -1):
            if ".".join(keys[start:end]) in node:
                return end
    return start + 1


def _validate(data: dict[str, Any], source: str, form: FileKind[Kind], context: str | None = None) -> Kind:
    try:
        value = form.kind.model_validate(data, context=context)
    except ValidationError as error:
        raise _refusal(source, problems(error, data, kind=form.kind), form.keys) from None
    if context != ON_RECORD and (wrong := list(_taken_for_numbers(data, value))):
        raise _refusal(source, wrong, form.keys)
    return value


def _taken_for_numbers(data: object, value: object, *place: str) -> Iterator[str]:
    """A line for each true and false of `data` that became a number in `value`."""
    if isinstance(data, bool):
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{'.'.join(place)}: must be a number (given: {str(data).lower()})"
    elif isinstance(data, Mapping):
        known: object = dict(value) if isinstance(value, BaseModel) else value
        for key, it in cast("Mapping[str, object]", data).items() if isinstance(known, Mapping) else ():
            yield from _taken_for_numbers(it, cast("Mapping[str, object]", known).get(key), *place, str(key))
    elif isinstance(data, list) and isinstance(value, tuple):
        for number, pair in enumerate(zip(cast("list[object]", data), cast("tuple[object, ...]", value), strict=False)):
            yield from _taken_for_numbers(*pair, *place, str(number))


def refusal(error: ValidationError, keys: Mapping[str, Any], source: str) -> ExperimentError:
    """What is wrong with the keys of an experiment, in the words of files."""
    return _refusal(source, problems(error, keys, kind=Experiment))


def _refusal(source: str, lines: Sequence[str], keys: str = _EXPERIMENT.keys) -> ExperimentError:
    return ExperimentError(f"{source}:\n{shown(lines)}", fix=keys)

"""Models of an experiment that are not on this machine: all of them at once, with sizes and how to get each."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from specmeter.errors import ModelError
from specmeter.models.reference import check_path, origin_of
from specmeter.record import Record
from specmeter.text import size

_SHOWN = 300
"""Characters of a reference: it comes from a file that anybody may have written."""
_YOURS = "/path/to/model.gguf"


class AbsentModel(Record):
    """A model that is not here."""

    key: str
    """`targets.NAME` or `drafts.NAME`."""
    reference: str
    size_bytes: int | None
    """None where it is unknown."""
    about: bool = False
    """Whether the size is the experiment's own statement, because the hub could not be asked."""
    why: str | None
    """Why it is unavailable; None where a run would download it."""

    @property
    def commands(self) -> tuple[str, ...]:
        """What brings it here, or makes a run use another file."""
        own = f"--set {shlex.quote(f'{self.key}={_YOURS}')}"
        if origin_of(self.reference) != "hf":
            return (own,)
        return f"specmeter models build {shlex.quote(self.reference)}", own


def absent_models(
    references: Mapping[str, str],
    *,
    base_dir: Path,
    offline: bool = False,
    ask: bool = True,
    sizes: Mapping[str, float] | None = None,
) -> tuple[AbsentModel, ...]:
    """Those of the models (by their keys) that are not here; bench models are made when they are needed.

    `sizes` (bytes, by the same keys) are used for models on a hub that cannot be asked.
    With `offline` a model on a hub is unavailable unless it is here. A hub is asked for sizes, unless `offline` or not
    to `ask`; then models on it are not looked at. Raises `ModelError` for a reference that is malformed.
    """
    found: list[AbsentModel] = []
    for key, reference in references.items():
        origin = origin_of(reference)
        if origin == "path":
            found += _file(key, reference, base_dir)
        elif origin == "hf" and (offline or ask):
            found += _on_hub(key, reference, offline=offline)
    return tuple(_sized(model, (sizes or {}).get(model.key)) for model in found)


def refuse_absent(models: Sequence[AbsentModel]) -> None:
    """Raise one `ModelError` about all of them when one of them is unavailable."""
    lacking = [model for model in models if model.why is not None]
    if not lacking:
        return
    there = [model for model in models if model.why is None]
    count = f"{len(lacking)} models are" if len(lacking) > 1 else "a model is"
    lines = [f"{count} not on this machine:", *(line for model in lacking for line in _described(model))]
    if there:
        lines += ["a run would also download:", *(f"  {_named(model)}" for model in there)]
    sizes = [model.size_bytes for model in models if model.size_bytes is not None]
    if len(sizes) > 1:
        about = "about " * any(model.about for model in models)
        lines.append(f"together {about}{size(sum(sizes))}" + ("" if len(sizes) == len(models) else ", as far as known"))
    own = "name files of your own with --set"
    on_hub = any(origin_of(model.reference) == "hf" for model in lacking)
    raise ModelError("\n".join(lines), fix=f"get them with these commands, or {own}" if on_hub else own)


def _sized(model: AbsentModel, size: float | None) -> AbsentModel:
    if model.size_bytes is not None or size is None or origin_of(model.reference) != "hf":
        return model
    return model.model_copy(update={"size_bytes": int(size), "about": True})


def _file(key: str, reference: str, base_dir: Path) -> Iterator[AbsentModel]:
    try:
        check_path(reference, base_dir)
    except ModelError as error:
        why = f"{error.message}; {error.fix}"
        yield AbsentModel(key=key, reference=reference, size_bytes=None, why=why)


def _on_hub(key: str, reference: str, *, offline: bool) -> Iterator[AbsentModel]:
    from specmeter.models import hub

    file = hub.parse(reference)
    try:
        size, present = hub.peek(file, offline=offline)
    except ModelError as error:
        why = f"{error.message.removeprefix(f'{file}: ')}; {error.fix}"
        yield AbsentModel(key=key, reference=reference, size_bytes=None, why=why)
        return
    if present:
        return
    why = None
    if offline:
        why = "not downloaded yet, and --offline forbids it"
    elif size is None:
        why = "not downloaded yet, and the hub cannot be reached"
    yield AbsentModel(key=key, reference=reference, size_bytes=size, why=why)


def _described(model: AbsentModel) -> Iterator[str]:
    yield f"  {_named(model)}: {model.why}"
    for command in model.commands:
        yield f"      {command}"


def _named(model: AbsentModel) -> str:
    told = "size unknown" if model.size_bytes is None else "about " * model.about + size(model.size_bytes)
    shown = model.reference if len(model.reference) <= _SHOWN else model.reference[:_SHOWN] + "..."
    return f"{model.key} = {shown} ({told})"

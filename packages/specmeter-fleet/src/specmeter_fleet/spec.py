"""Which devices measure, and how they are reached: `--on`, and the keys of fleet.yaml."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from specmeter.errors import ExperimentError, UsageError
from specmeter.experiments.file import FileKind, parse_form
from specmeter.files import read_named
from specmeter.record import Record
from specmeter.record.base import NAME_PATTERN

PREFIX = "specmeter-"
"""How resources of a Ray cluster are called that are devices."""
MAX_DEVICES = 2_000
_MAX_BYTES = 1_000_000
_MAX_LOCAL = 64

Cores = Annotated[str, Field(coerce_numbers_to_str=True, pattern=r"^\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*$")]


class Device(Record):
    """What one measurement has to itself: a GPU, some cores, a whole machine."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    """What it is called in everything that is told."""
    resource: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}$")] | None = None
    """The custom resource of its Ray node, of which there is one: `ray start --resources='{"specmeter-NAME": 1}'`.
    Default: `specmeter-NAME`."""
    cores: Cores | None = None
    """Cores that its processes are pinned to, as `taskset` writes them (`0-7,16`); Linux only."""
    env: Annotated[dict[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")], str], Field(max_length=32)] = {}
    """Environment of its processes: `CUDA_VISIBLE_DEVICES: "0"`."""
    labels: Annotated[dict[str, str], Field(max_length=32)] = {}
    """What tables say of it besides: `{kind: "RTX 3090", room: b}`."""

    @property
    def claimed(self) -> str:
        """The resource that one measurement takes."""
        return self.resource or PREFIX + self.name


class Fleet(Record):
    """A file for `--on`."""

    address: Annotated[str, Field(pattern=r"^(auto|local|ray://[A-Za-z0-9._\[\]:-]{1,200})$")] = "auto"
    """The cluster: `ray://HEAD:10001`, `auto` (the one that this machine is part of), or `local`: one is started here
    for this run alone."""
    shared: str | None = None
    """A folder that this machine and all workers have under the same path. Parts are then measured there, and can be
    watched; default: each worker keeps its own, and sends them when they have ended."""
    devices: Annotated[tuple[Device, ...], Field(min_length=1, max_length=MAX_DEVICES)]
    """Each measures one invocation at a time."""

    @model_validator(mode="after")
    def _once_each(self) -> Fleet:
        called = {"the name": [it.name for it in self.devices], "the resource": [it.claimed for it in self.devices]}
        for what, values in called.items():
            if twice := [value for number, value in enumerate(values) if value in values[:number]]:
                raise ValueError(
                    f"devices: {what} {twice[0]!r} is listed twice, so two measurements would share a device"
                )
        return self


_FORM = FileKind(
    kind=Fleet,
    shelf="",
    word="fleet",
    listing="",
    keys="correct these keys; docs/how-to/fleet.md explains every key",
    start="begin with `devices:`, a list of names",
)


def read_fleet(on: str) -> Fleet | str:
    """What `--on` names: a fleet, or the address of a cluster whose devices are to be asked for.

    Raises `UsageError`.
    """
    if found := re.fullmatch(r"local:(\d{1,4})", on):
        return _local(int(found[1]))
    if on == "auto" or on.startswith("ray://"):
        return on
    if not on.endswith((".yaml", ".yml")):
        raise UsageError(f"--on {on}: not a fleet", fix="use a fleet.yaml, ray://HEAD:10001, auto, local:2 or slurm")
    try:
        text = read_named(Path(on), _MAX_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "it is not UTF-8"
        raise ExperimentError(f"{on}: cannot be read ({why})", fix="check the path") from None
    return parse_form(_FORM, text, on)


def of_cluster(address: str, resources: Mapping[str, float]) -> Fleet:
    """The devices that a cluster has by the names of its resources. Raises `UsageError` where there are none."""
    names = sorted(it.removeprefix(PREFIX) for it in resources if re.fullmatch(PREFIX + NAME_PATTERN[1:], it))
    if not names:
        raise UsageError(
            f"{address}: no node of this cluster offers a device",
            fix=f"start its workers with --resources='{{\"{PREFIX}NAME\": 1}}', or name resources in a fleet.yaml",
        )
    return Fleet(address=address, devices=tuple(Device(name=name) for name in names[:MAX_DEVICES]))


def _local(count: int) -> Fleet:
    """This many devices on this machine, which have its cores in equal parts."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    if not 1 <= count <= min(_MAX_LOCAL, len(cores)):
        raise UsageError(
            f"--on local:{count}: this machine has {len(cores)} cores", fix=f"write local:1 to local:{len(cores)}"
        )
    each = len(cores) // count
    devices = [
        Device(name=f"local-{number}", cores=",".join(map(str, cores[number * each : (number + 1) * each])))
        for number in range(count)
    ]
    return Fleet(address="local", devices=tuple(devices))

"""The head: gives each device a part, collects what comes, and keeps what it knows where a kill leaves it.

A part is a whole invocation (all arms, all blocks), or in a survey the whole experiment. It is measured by one device
from its first request to its last. Where a worker is lost, its part continues there, in the folder that it left; where
that device is gone as well, another one begins it again in a folder of its own. Two folders are never one part.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from specmeter import __version__
from specmeter.errors import ExperimentError, SpecmeterError, StoreError, UsageError
from specmeter.experiments.file import LoadedExperiment, load_text
from specmeter.files import fix_for, read_named, write_inside
from specmeter.record import Host, Record
from specmeter.record.base import first_fault
from specmeter.store import RunStore
from specmeter.validity.inspection import refuse_changed_data
from specmeter.workloads.spec import FileWorkload
from specmeter_fleet import worker
from specmeter_fleet.cluster import Clock, Cluster, Gone, Lost
from specmeter_fleet.spec import Device, Fleet

Design = Literal["replicate", "survey"]
RECORD = "fleet.json"
PARTS = "parts"
_MAX_PROMPTS = 256 * 2**20
_MAX_RECORD = 256 * 2**20
MAX_LOSSES = 10
"""Times that a part may be lost before it is given up."""
_KILLED = 128
"""Exit codes above say which signal ended a process."""
_PAUSE_S = 5.0
"""After a loss, before its device is asked for again: what was left running there ends within three seconds."""
_NODE_S = 30.0
"""How long a device whose node is gone may take to come back before another one begins its part again."""
_SENT = re.compile(r"(logs/)?(?!\.)[A-Za-z0-9._-]{1,200}")


class Seen(Record):
    """A device that greeted."""

    name: str
    labels: dict[str, str] = {}
    host: Host
    offset_s: float
    """How far its clock is ahead of the head's; times of two devices are never compared closer than that."""
    within_s: float


class Attempt(Record):
    """A device's work on a part."""

    device: str
    folder: str
    """Below the folder of parts: of each attempt its own."""
    losses: int = 0
    ended: bool = False
    code: int | None = None
    error: str = ""


class FleetPart(Record):
    """A part of the run."""

    name: str
    invocation: int | None
    """None: the whole experiment, of a survey."""
    attempts: tuple[Attempt, ...] = ()

    @property
    def done(self) -> Attempt | None:
        """The attempt that counts."""
        return next((it for it in self.attempts if it.ended and it.code in (0, 1, 3) and not it.error), None)

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None


class FleetRecord(Record):
    """What the head knows: `fleet.json`."""

    id: str
    specmeter: str
    design: Design
    shared: str | None = None
    """The folder that parts are measured in, where the fleet shares one."""
    experiment: str
    """As all devices measure it, but for which of it."""
    devices: tuple[Seen, ...] = ()
    refused: dict[str, str] = {}
    """Devices that measure nothing, and why."""
    parts: tuple[FleetPart, ...]
    told: Annotated[tuple[str, ...], Field(max_length=100_000)] = ()
    """What happened, with times."""

    def base(self, folder: Path) -> Path:
        """Where run folders of parts lie, of the fleet run whose own folder this is."""
        return (folder / PARTS).absolute() if self.shared is None else Path(self.shared) / self.id

    def places(self, folder: Path) -> dict[str, Path]:
        """Part -> its run folder, of parts that are done."""
        base = self.base(folder)
        return {part.name: base / part.done.folder for part in self.parts if part.done is not None}


def shipped(loaded: LoadedExperiment, invocations: int) -> tuple[LoadedExperiment, dict[str, bytes]]:
    """The experiment as it is sent, and the prompts that go along. Models named by a path are expected at that path on
    every device; their checksums are compared. Raises `ExperimentError`."""
    experiment, base = loaded.experiment, loaded.base_dir
    if experiment.design.stopping == "decided":
        raise ExperimentError(
            "design.stopping: decided: a fleet needs a fixed number of blocks", fix="set design.stopping to planned"
        )
    if experiment.only.invocations:
        raise ExperimentError("only.invocations: a fleet always measures all invocations", fix="leave it out")
    changes = [f"design.invocations={invocations}"]
    for kind, models in (("targets", experiment.targets), ("drafts", experiment.drafts)):
        for name, reference in models.items():
            if not re.match(r"[a-z]{2,}:", reference) and not Path(reference).expanduser().is_absolute():
                changes.append(f"{kind}.{name}={json.dumps(str((base / reference).absolute()))}")
    prompts: dict[str, bytes] = {}
    for spec in experiment.workloads:
        for name in spec.paths if isinstance(spec, FileWorkload) else ():
            if Path(name).is_absolute():
                continue
            if ".." in PurePosixPath(name).parts:
                raise ExperimentError(
                    f"{name}: prompt files outside the experiment's folder cannot be sent to the devices",
                    fix="copy them into the folder of the experiment, or use a path that exists on every machine",
                )
            try:
                prompts[name] = read_named(base / name, _MAX_PROMPTS)
            except OSError as error:
                raise ExperimentError(f"{name}: cannot be read ({error.strerror})", fix="check the path") from None
    if sum(map(len, prompts.values())) >= _MAX_PROMPTS:
        raise ExperimentError(
            "prompts: more than the limit of 256 MiB", fix="put them in a path that exists on every machine"
        )
    return load_text(loaded.text, loaded.source, base, changes), prompts


def begun(folder: Path, design: Design, loaded: LoadedExperiment, fleet: Fleet) -> FleetRecord:
    """The record of a folder, to continue with, or a new one. Raises `StoreError` for that of another experiment."""
    count = loaded.experiment.design.invocations
    names = [it.name for it in fleet.devices] if design == "survey" else [f"{it:04d}" for it in range(count)]
    parts = tuple(
        FleetPart(name=name, invocation=None if design == "survey" else number) for number, name in enumerate(names)
    )
    new = FleetRecord(
        id=secrets.token_hex(8),
        specmeter=__version__,
        design=design,
        shared=fleet.shared,
        experiment=loaded.text,
        parts=parts,
    )
    kept = read_record(folder)
    if kept is None:
        return new
    same = ("specmeter", "design", "shared", "experiment")
    if others := [name for name in same if getattr(kept, name) != getattr(new, name)]:
        raise StoreError(
            f"{folder}: contains a different fleet run (differs in: {', '.join(others)})",
            fix="choose another folder with --out, or run the command that started it",
        )
    if design == "survey":
        known = {it.name for it in kept.parts}
        return kept.model_copy(update={"parts": (*kept.parts, *(it for it in parts if it.name not in known))})
    return kept


def read_record(folder: Path) -> FleetRecord | None:
    """What the head kept in a folder; None where there is nothing. Raises `StoreError`."""
    try:
        return FleetRecord.model_validate_json(read_named(folder / RECORD, _MAX_RECORD))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        why = error.strerror if isinstance(error, OSError) else first_fault(error, "record")
        raise StoreError(f"{folder / RECORD}: cannot be read ({why})", fix="choose another folder with --out") from None


@dataclass
class Head:
    """One start of a fleet run."""

    cluster: Cluster
    fleet: Fleet
    loaded: LoadedExperiment
    prompts: Mapping[str, bytes]
    folder: Path
    record: FleetRecord
    say: Callable[[str], None]
    usable: dict[str, Device] = field(default_factory=dict[str, Device])
    """Devices that greeted and were not refused since."""
    _resting: dict[str, float] = field(default_factory=dict[str, float])

    def greet(self) -> None:
        """Ask all devices what they are. Raises `UsageError` where they are not alike in what has to be, or none can
        measure."""
        here = self.cluster.resources()
        tasks: dict[Any, Device] = {}
        refused: dict[str, str] = {}
        answers: dict[str, worker.Answer] = {}
        clocks: dict[str, Clock] = {}
        for device in self.fleet.devices:
            if (count := here.get(device.claimed, 0)) == 1:
                tasks[self.cluster.greet(device, self._order(device, f"greeting-{device.name}"))] = device
            else:
                refused[device.name] = f"the cluster has {count:g} of the resource {device.claimed!r} instead of 1"
        while tasks:
            for task in self.cluster.ended(list(tasks), 1.0):
                device = tasks.pop(task)
                try:
                    answer = self.cluster.result(task)
                    clocks[device.name] = self.cluster.clock(device)
                except Lost as error:
                    refused[device.name] = f"its worker was lost ({error})"
                except SpecmeterError as error:
                    refused[device.name] = error.message
                else:
                    kept = refused if "error" in answer else answers
                    kept[device.name] = answer.get("error", answer)
        self._refuse_unlike(answers)
        self.usable = {device.name: device for device in self.fleet.devices if device.name in answers}
        seen = tuple(
            Seen(
                name=name,
                labels=device.labels,
                host=Host.model_validate(answers[name]["host"]),
                **clocks[name]._asdict(),
            )
            for name, device in self.usable.items()
        )
        if not seen:
            whys = {why: name for name, why in refused.items()}  # a model that is missing is so on all of them
            told = "\n".join(f"{name}: {why}" if len(whys) > 1 else why for why, name in whys.items())
            raise UsageError(f"no device can measure: {told}", fix="fix this, then run the command again")
        for name, why in refused.items():
            self.tell(f"{name} is left out: {why}")
        self._keep(devices=seen, refused=refused)

    def _refuse_unlike(self, answers: Mapping[str, worker.Answer]) -> None:
        others = [f"{name} has {it.get('specmeter')}" for name, it in answers.items() if "same" not in it]
        if others:
            raise UsageError(
                f"this machine has specmeter {__version__}, {', '.join(others[:5])}",
                fix=f"install specmeter {__version__} on every device",
            )
        first: tuple[str, Mapping[str, str]] | None = None
        for name, answer in answers.items():
            same: Mapping[str, str] = answer["same"]
            if first is None:
                first = name, same
            for what in {**first[1], **same}:
                if first[1].get(what) != same.get(what):
                    raise UsageError(
                        f"{what} differs between devices: {first[1].get(what)} on {first[0]}, "
                        f"{same.get(what)} on {name}",
                        fix="use the same files and versions on every device",
                    )

    def measure(self, progress: Callable[[Mapping[str, worker.Said]], None]) -> None:
        """Measure all parts that are not done, as long as there is a device that can."""
        running: dict[Any, tuple[FleetPart, Device]] = {}
        todo = deque(part for part in self.record.parts if part.done is None or part.done.code == 3)
        missed: dict[str, float] = {}
        while todo or running:
            self._hand_out(todo, running, missed)
            if self.record.design == "survey":
                todo = deque(part for part in todo if part.name in self.usable)
            if not running and todo and not self.usable:
                self.tell(f"no device is left for {len(todo)} parts; fix that and run the same command to continue")
                return
            if not running:
                time.sleep(1.0)
                continue
            for task in self.cluster.ended(list(running), 1.0):
                part, device = running.pop(task)
                try:
                    self._collect(part, device, self.cluster.result(task))
                except Lost as error:
                    self._lost(part, device, str(error))
                except Gone:
                    raise
                except SpecmeterError as error:
                    self._failed(part, device, error.message)
                part = next(it for it in self.record.parts if it.name == part.name)
                if part.done is None and sum(it.losses for it in part.attempts) < MAX_LOSSES:
                    todo.append(part)
                elif part.done is None:
                    self.tell(f"part {part.name} was lost {MAX_LOSSES} times; giving up on it")
            progress(self.cluster.progress())

    def _hand_out(
        self, todo: deque[FleetPart], running: dict[Any, tuple[FleetPart, Device]], missed: dict[str, float]
    ) -> None:
        """Give parts to devices that have nothing to do: to each first what it has started."""
        here: Mapping[str, float] = self.cluster.resources() if todo else {}
        now = time.monotonic()
        for name, device in list(self.usable.items()):
            if here.get(device.claimed):
                missed.pop(name, None)
            elif todo and now - missed.setdefault(name, now) > _NODE_S:
                del self.usable[name]
                self.tell(f"{name} did not come back; its part starts again on another device")
        busy = {device.name for _, device in running.values()}
        for name, device in self.usable.items():
            if name in busy or name in missed or now < self._resting.get(name, 0.0):
                continue
            part = self._next(todo, name)
            if part is not None:
                todo.remove(part)
                part = self._attempted(part, device)
                order = self._order(device, part.last.folder if part.last else "", part)
                running[self.cluster.measure(device, order)] = (part, device)

    def _next(self, todo: Sequence[FleetPart], name: str) -> FleetPart | None:
        names = [it.name for it in self.fleet.devices]
        mine = (it for it in todo if it.last is not None and not it.last.ended and it.last.device == name)
        if (begun := next(mine, None)) is not None:
            return begun
        for part in todo:
            last = part.last
            if last is not None and not last.ended and last.device in self.usable:
                continue  # waits for its own device
            if part.invocation is None and part.name != name:
                continue
            own = names[part.invocation % len(names)] if part.invocation is not None else name
            if own == name or own not in self.usable:
                return part
        return None

    def _attempted(self, part: FleetPart, device: Device) -> FleetPart:
        mine = [it for it in part.attempts if it.device == device.name]
        if mine:  # it continues in the folder that it left; the last attempt is the one at hand
            again = mine[-1].model_copy(update={"ended": False, "error": "", "code": None})
            said = f"part {part.name} continues on {device.name}"
            return self._attempts(part, said, *(it for it in part.attempts if it is not mine[-1]), again)
        place = f"{part.name}-{device.name}" if part.invocation is not None else part.name
        attempt = Attempt(device=device.name, folder=f"{place}-{len(part.attempts)}" if part.attempts else place)
        said = f"part {part.name} starts{' again' if part.attempts else ''} on {device.name}"
        return self._attempts(part, said, *part.attempts, attempt)

    def _order(self, device: Device, folder: str, part: FleetPart | None = None) -> worker.Order:
        only = [] if part is None or part.invocation is None else [f"only.invocations=[{part.invocation}]"]
        text = load_text(self.loaded.text, self.loaded.source, self.loaded.base_dir, only).text
        return {
            "specmeter": __version__,
            "fleet": self.record.id,
            "part": folder,
            "folder": str(self.record.base(self.folder)) if self.shared else None,
            "experiment": text,
            "prompts": dict(self.prompts),
            # What the file leaves to the environment is this machine's to say, at each start again.
            "env": {**device.env, "SPECMETER_DISTURBED": self.loaded.experiment.design.disturbed},
            "cores": device.cores,
            "send": not self.shared,
        }

    @property
    def shared(self) -> bool:
        """Whether parts are measured where this machine has them, too."""
        return self.fleet.address == "local" or self.fleet.shared is not None

    def _collect(self, part: FleetPart, device: Device, answer: worker.Answer) -> None:
        code, error = int(answer["code"]), str(answer["error"])
        if code > _KILLED:
            self._lost(part, device, f"its process was killed ({code - _KILLED})")
            return
        if code not in (0, 1, 3) or error:
            self._failed(part, device, error or f"its run ended with {code}")
            return
        last = part.last
        assert last is not None
        run = self.record.base(self.folder) / last.folder
        if not self.shared:
            self._write(run, answer["files"])
        with RunStore.open(run, readonly=True) as store:
            refuse_changed_data(store)
            state = store.state()
        failed = f", {state.failed} failed" if state.failed else ""
        said = f"part {part.name} finished on {device.name}: {state.ok} of {state.planned} requests{failed}"
        self._attempts(part, said, *part.attempts[:-1], last.model_copy(update={"ended": True, "code": code}))

    def _write(self, run: Path, files: Mapping[str, bytes]) -> None:
        """Keep what a worker sent: the database last, so that what is there is whole."""
        try:
            shutil.rmtree(run, ignore_errors=True)  # what came of it before it was tried again
            (run / "logs").mkdir(parents=True)
            for name, content in sorted(files.items(), key=lambda it: it[0].startswith("run.sqlite")):
                if not _SENT.fullmatch(name):
                    raise StoreError(
                        f"{run}: a worker sent a file with the invalid name {name[:80]!r}",
                        fix="install this version of specmeter on that device",
                    )
                write_inside(run, name, content)
        except OSError as error:
            raise StoreError(f"{error.filename or run}: {error.strerror}", fix=fix_for(error)) from None

    def _lost(self, part: FleetPart, device: Device, why: str) -> None:
        last = part.last
        assert last is not None
        self._resting[device.name] = time.monotonic() + _PAUSE_S
        said = f"{device.name} was lost while measuring part {part.name} ({why})"
        self._attempts(part, said, *part.attempts[:-1], last.model_copy(update={"losses": last.losses + 1}))

    def _failed(self, part: FleetPart, device: Device, why: str) -> None:
        """A device that cannot measure: it gets nothing more, and its part goes to another."""
        last = part.last
        assert last is not None
        ended = last.model_copy(update={"ended": True, "error": why[:2_000] or "failed"})
        self.usable.pop(device.name, None)
        self.record = self.record.model_copy(update={"refused": {**self.record.refused, device.name: why[:2_000]}})
        said = f"{device.name} could not continue part {part.name} and gets no more parts: {why}"
        self._attempts(part, said, *part.attempts[:-1], ended)

    def _attempts(self, part: FleetPart, said: str, *attempts: Attempt) -> FleetPart:
        """The part with these attempts at it, kept at once with what is said of it."""
        changed = part.model_copy(update={"attempts": attempts})
        self.tell(said, parts=tuple(changed if it.name == part.name else it for it in self.record.parts))
        return changed

    def tell(self, what: str, **changes: Any) -> None:
        """Say what happened, and keep it, with what it changed."""
        self._keep(told=(*self.record.told, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {what}"), **changes)
        self.say(what)

    def _keep(self, **changes: Any) -> None:
        self.record = self.record.model_copy(update=changes)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_inside(self.folder, RECORD, self.record.model_dump_json(indent=1).encode())
        except OSError as error:
            raise StoreError(f"{self.folder}: cannot be written ({error.strerror})", fix=fix_for(error)) from None

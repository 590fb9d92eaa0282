"""What a log of llama.cpp says of models, device, methods of drafting and command line, whatever the program."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from itertools import pairwise

from specmeter.engines.llama_cpp.log_formats import METHOD, PARAMETER, PARAMETERS, loaded_model
from specmeter.engines.log_lines import sample
from specmeter.messages import Message

_GIB = 1024**3
_MAX_MODELS = 8
_MAX_ARGUMENTS = 400

_MODEL_SIZE = re.compile(r"(?:print_info: file size|llm_load_print_meta: model size) += *(\d{1,9}\.\d{1,4}) (MiB|GiB)")
_EXPERTS = re.compile(r"(?:print_info|llm_load_print_meta): n_expert +=+ *(\d{1,9})\s*$")
_USED_DEVICE = re.compile(r"using device \S+ \(([^)]{1,100})\)")
_CUDA_DEVICE = re.compile(r"^\s+Device \d+: ([^,]{1,100}),")
_COMMAND = re.compile(
    r"(?:^|[\s/\\=])(?:llama-(?:server|speculative(?:-simple)?)|server|speculative)(?:\.exe)? +(-.*)$"
)
_SPAWNED = re.compile(r"srv +load: {2,}(\S.{0,2000})$")

_FLAGS = {
    "target": ("-m", "--model", "-hf", "-hfr", "--hf-repo"),
    "draft": ("-md", "--model-draft", "--spec-draft-model", "-hfd", "--spec-draft-hf", "--hf-repo-draft"),
    "gamma": ("--draft", "--draft-max", "--draft-n", "--spec-draft-n-max", "--spec-ngram-mod-n-max"),
    "gamma_min": ("--draft-min", "--draft-n-min", "--spec-draft-n-min"),
    "p_min": ("--draft-p-min", "--spec-draft-p-min"),
    "method": ("--spec-type",),
    "temperature": ("--temp", "--temperature"),
    "synthetic": ("--spec-synth-len", "--spec-synth-rates"),
}
_TUNED = "--spec-autotune"
"""ik_llama.cpp changes draft lengths while it runs."""
_MEANING = {flag: name for name, flags in _FLAGS.items() for flag in flags}


def _may_be_setup(line: str) -> bool:
    """Whether a line has any of the texts that the expressions below need; most lines of a log have none."""
    return (
        "llama-s" in line or "meta data" in line or "file size" in line or "model size" in line or "n_expert" in line
        or "device" in line or "  Device " in line or "implementation" in line or ": - " in line or "load: " in line
        or "/server " in line or "/speculative" in line
    )  # fmt: skip


@dataclass
class LoadedModel:
    """One model file as it was loaded."""

    path: str
    size_bytes: float | None = None
    size_error_bytes: float = 0.0
    """Half a unit of the last digit that was printed."""
    experts: int | None = None
    """0 for a dense model."""

    @property
    def name(self) -> str:
        """File name without folder and suffix."""
        name = re.split(r"[/\\]", self.path)[-1]
        return name.removesuffix(".gguf")


@dataclass
class Setup:
    """Filled while the lines of a log pass by."""

    models: list[LoadedModel] = field(default_factory=list[LoadedModel])
    """In order of loading: the target first."""
    device: str | None = None
    methods: list[str] = field(default_factory=list[str])
    """Methods of drafting that the engine says it uses."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    """`n_max`, `n_min`, `p_min`, ... of those methods, the first value of each."""
    flags: dict[str, str] = field(default_factory=dict[str, str])
    """From an echoed command line, by the names of `_FLAGS`."""
    _spawned: list[str] = field(default_factory=list[str])

    def feed(self, line: str) -> None:
        """Take the next line."""
        if _may_be_setup(line):
            self._read(line)

    def _read(self, line: str) -> None:
        if path := sample(loaded_model(line)):
            if len(self.models) < _MAX_MODELS and (not self.models or self.models[-1].path != path):
                self.models.append(LoadedModel(path))
        elif found := _MODEL_SIZE.search(line):
            self._size(found.group(1), _GIB if found.group(2) == "GiB" else 1024**2)
        elif (found := _EXPERTS.search(line)) and self.models:
            self.models[-1].experts = int(found.group(1))
        elif found := _USED_DEVICE.search(line) or _CUDA_DEVICE.search(line):
            self.device = self.device or sample(found.group(1))
        elif found := METHOD.search(line):
            if found.group(1) not in self.methods and len(self.methods) < _MAX_MODELS:
                self.methods.append(found.group(1))
        elif self.methods and (found := PARAMETERS.search(line)):
            for name, value in PARAMETER.findall(found.group(1)):
                self.parameters.setdefault(name, value)
        elif found := _SPAWNED.search(line):
            if len(self._spawned) < _MAX_ARGUMENTS:
                self._spawned.append(found.group(1).strip())
                self._read_flags(self._spawned[-2:])
        elif found := _COMMAND.search(line):
            self._read_flags(_command_words(found.group(1)))

    def _size(self, number: str, unit: int) -> None:
        if self.models and self.models[-1].size_bytes is None and float(number) > 0:
            self.models[-1].size_bytes = float(number) * unit
            self.models[-1].size_error_bytes = 0.5 * 10.0 ** -len(number.partition(".")[2]) * unit

    def _read_flags(self, words: list[str]) -> None:
        if _TUNED in words:
            self.flags["autotune"] = "on"
        for flag, value in pairwise(words):
            meaning = _MEANING.get(flag)
            if meaning is not None and meaning not in self.flags:
                self.flags[meaning] = sample(value)
                if meaning == "method":
                    self._read_stage(value)

    def _read_stage(self, value: str) -> None:
        """The method of ik_llama.cpp with its settings: `mtp:n_max=3,p_min=0.0` (its docs/speculative.md)."""
        name, separator, settings = value.partition(":")
        if separator:
            self.flags["method"] = sample(name)
            for key, number in PARAMETER.findall(settings[:400]):
                self.parameters.setdefault(key, number)

    # --- what it amounts to ------------------------------------------------------------------------------------------

    @property
    def gamma(self) -> int | None:
        """Most draft tokens per step: as the engine resolved it, or as it was asked for; None where it is tuned."""
        if "autotune" in self.flags:
            return None
        for text in (self.parameters.get("n_max"), self.parameters.get("n_draft"), self.flags.get("gamma")):
            if text is not None and re.fullmatch(r"\d{1,6}", text):
                return int(text)
        return None

    @property
    def p_min(self) -> float | None:
        """Certainty below which drafting stops early, where the log says it."""
        text = self.parameters.get("p_min") or self.flags.get("p_min") or ""
        return min(1.0, float(text)) if re.fullmatch(r"\d(?:\.\d{1,9})?", text) else None

    @property
    def method(self) -> str | None:
        """How drafts are made, where the log says it."""
        if self.methods:
            return "+".join(self.methods)
        return self.flags.get("method") or ("draft-simple" if self.draft_name else None)

    @property
    def target_name(self) -> str | None:
        """Name of the target's file."""
        return self.models[0].name if self.models else LoadedModel(self.flags.get("target", "")).name or None

    @property
    def draft_name(self) -> str | None:
        """Name of the draft's file."""
        return self.models[1].name if len(self.models) > 1 else LoadedModel(self.flags.get("draft", "")).name or None

    @property
    def notes(self) -> tuple[Message | str, ...]:
        """Settings that a reader should know."""
        settings = {**self.flags, **self.parameters}
        named = {
            "p_min": settings.get("p_min"),
            "n_min": settings.get("n_min") or settings.get("gamma_min"),
            "temperature": settings.get("temperature"),
            "synthetic acceptance": settings.get("synthetic"),
        }
        text = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
        tuned = (Message("read.autotuned"),) if "autotune" in self.flags else ()
        return ((text,) if text else ()) + tuned


def _command_words(text: str) -> list[str]:
    text = text[:4000]
    try:
        return shlex.split(text)[:_MAX_ARGUMENTS]
    except ValueError:
        return text.split()[:_MAX_ARGUMENTS]

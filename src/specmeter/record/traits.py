"""What an engine states about itself: what it can be asked, what it can tell, and whose rules its drafts follow.

Every question that depends on the engine is answered by a trait, and by nothing else: neither plan nor check knows an
engine by its name. Traits are stored with the engine's identity, so that a run is judged by what its engine said, on a
machine where that engine is not installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from specmeter.record.base import NAME_PATTERN, Record

MethodName = Annotated[str, Field(pattern=NAME_PATTERN)]
"""How draft tokens are made, by the engine's own name; `none` is plain decoding, for every engine."""

PLAIN = "none"

PARAMETERS: Mapping[str, str] = {
    "gamma": "g",
    "gamma_min": "min",
    "p_min": "p",
    "ngram_n": "n",
    "ngram_min_hits": "hits",
}
"""Fields of an arm that say how it drafts -> what ids of arms write before their values. This is the one list of them:
a new one is a field of `Arm`, of `experiments.spec.ArmSpec` and `Exclusion`, and whatever an engine does with it."""

Truth = Literal[
    "drafts",
    "forwards",
    "steps",
    "step-times",
    "tokens",
    "arrivals",
    "candidates",
    "settings",
    "activation",
    "memory",
    "log",
    "identity",
    "processes",
    "experts",
]

TRUTHS: Mapping[Truth, str] = {
    "drafts": "how many tokens each request drafted, and how many of them were accepted",
    "forwards": "how many target forwards each request took, counted separately from its drafts",
    "steps": "what each step drafted and accepted",
    "step-times": "the time of every part of each step",
    "tokens": "the token ids of prompts and answers",
    "arrivals": "when each token arrived",
    "candidates": "the target's candidate tokens and their probabilities",
    "settings": "which settings are in force",
    "activation": "whether it speculates",
    "memory": "what is placed on which device",
    "log": "errors, in a log that specmeter can read",
    "identity": "its own bytes, by SHA-256",
    "processes": "its own processes",
    "experts": "which experts each step reads",
}
"""What an engine may be able to tell: "it tells ...". A check that needs a truth says so, and is not passed without."""


class MethodTraits(Record):
    """One way of drafting that an engine knows."""

    name: MethodName
    """Name for `method` in experiments."""
    drafter: Literal["model", "lookup", "states"]
    """What drafts: a model that reads the text, a lookup in the text, or heads or a model that read the target's own
    states."""
    draft_model: Literal["needed", "allowed", "none"] = "none"
    """Whether it takes a separate draft model."""
    parameters: tuple[str, ...] = ()
    """Fields of `Arm` that it honours: `gamma`, `gamma_min`, `p_min`, `ngram_n`, `ngram_min_hits`."""
    remembers: bool = False
    """Drafts from texts of earlier requests of its session."""


class EngineTraits(Record):
    """What an engine states about itself. The defaults promise nothing."""

    simulated: bool = False
    """Time is virtual: nothing is measured, and there is no machine to watch."""
    model_formats: tuple[str, ...] = ()
    """Formats of model files it reads, among those that specmeter reads too (`gguf`). Empty: the engine has its own
    names for models and describes them itself (`EngineSpec.model`)."""
    methods: tuple[MethodTraits, ...] = ()
    """Drafting methods, without `none`."""
    combines_methods: bool = False
    """An arm may have several methods."""
    policies: tuple[str, ...] = ()
    """Policies that may set the length of drafts (`Arm.policy`)."""
    rules: tuple[str, ...] = ()
    """Rules for verifying drafts at temperature > 0 (`Arm.rule`), the default first; empty where there is no choice."""
    settings: tuple[str, ...] = ()
    """Fields of `EngineSettings` that it honours; setting any other is an error."""
    kv_types: tuple[str, ...] = ()
    """KV cache types, by the engine's names."""
    draft_options: tuple[str, ...] = ()
    """Its own options that do not affect plain decoding: arms that differ only in them share a baseline."""
    synthetic: Literal["none", "dice", "planted"] = "none"
    """What `synthetic_rates` do: nothing, synthetic acceptance (the text is meaningless), or errors planted into the
    target's own continuation (the text keeps its meaning)."""
    compares_drafts: bool = False
    """Compares the vocabularies of target and draft, and decodes plainly where they do not fit; other engines refuse
    such a pair before it starts."""
    drafting: Literal["llama-server", "specmeter"] | None = None
    """Whose rules its drafts follow to the token, so that they can be replayed on a text; None: rules of its own."""
    pinned: bool = False
    """It is the llama.cpp that comes with specmeter, so its rules, arithmetic and devices are known."""
    tells: tuple[Truth, ...] = ()
    """What it can tell of every session and request. What it cannot, no check takes as passed."""

    def method(self, name: str) -> MethodTraits | None:
        """The way of drafting of that name; None where the engine knows none."""
        return next((method for method in self.methods if method.name == name), None)

    def parameters(self, name: str) -> tuple[str, ...]:
        """Fields of an arm that a method honours."""
        return method.parameters if (method := self.method(name)) is not None else ()

    def drafters(self, methods: tuple[str, ...]) -> set[str]:
        """Who drafts in an arm of these methods, as far as they are known."""
        return {found.drafter for name in methods if (found := self.method(name)) is not None}

    def by_rejection(self, rule: str | None) -> bool:
        """Whether drafts are verified by rejection sampling where an arm has this rule."""
        return (rule or next(iter(self.rules), None)) == "rejection"

"""What people call an arm: `draft model small, 4 draft tokens`, told from its record and unique among the arms of its
target.

Ids stay what data has: files, `--json`, Python. A name says how drafts are made, every parameter that was set, of
workloads and the engine's settings those by which the arms of a target differ, and the load. Methods and parameters are
called as the engine calls them. A name that the user gave stands behind.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

from specmeter.engines.url.spec import SERVED, UrlOptions, places
from specmeter.messages import Message, Value
from specmeter.record import PLAIN, Arm, EngineSettings, Load, network_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from specmeter.messages import Words

METHODS = {
    "draft-mtp": "MTP",
    "draft-eagle3": "EAGLE-3",
    "draft-dflash": "DFlash",
    "draft-dspark": "DSpark",
}
"""What methods are called in every language; others are called as their engine calls them."""
PARAMETERS = ("ngram_n", "ngram_min_hits", "gamma_min", "p_min")
"""What else says how an arm drafts (`arm.PARAMETER`)."""
SETTINGS = tuple(name for name in EngineSettings.model_fields if name != "options")
"""`setting.NAME`, of a switch `setting.NAME.on` and `.off`."""


Name = str | Message
"""What an arm is called; put into words by `Words.render`."""


class Names:
    """The names of a run's arms by their ids; unknown ids are shown without their target."""

    def __init__(self, arms: Iterable[Arm] = ()) -> None:
        by_target: dict[str, list[Arm]] = {}
        for arm in arms:
            by_target.setdefault(arm.target, []).append(arm)
        self._targets = {arm.id: target for target, among in by_target.items() for arm in among}
        self._one_target = len(by_target) == 1
        self._names: dict[str, Name] = {}
        self._without_load: dict[str, Name] = {}
        for among in by_target.values():
            at_load: dict[str, list[Arm]] = {}
            for arm in among:
                at_load.setdefault(arm.load.label if arm.load else "", []).append(arm)
            for group in at_load.values():
                self._without_load |= _named(group)
            self._names |= {arm.id: under_load(self._without_load[arm.id], arm) for arm in among}

    def __getitem__(self, arm_id: str) -> Name:
        """An arm's name, to be told in the reader's language."""
        return self._names.get(arm_id) or label(arm_id)

    def render(self, arm_id: str, words: Words) -> str:
        """An arm's name in words."""
        return words.render(self[arm_id])

    def alone(self, arm_id: str) -> Name:
        """An arm's name without its load, for what is told of one load: `draft model small, 4 draft tokens`."""
        return self._without_load.get(arm_id) or label(arm_id)

    def in_full(self, arm_id: str) -> Name:
        """The same with its target, where there is more than one: `moe: draft model small, 4 draft tokens`."""
        if self._one_target:
            return self[arm_id]
        return _word("of", target=self._targets.get(arm_id, arm_id.partition("/")[0]), name=self[arm_id])


def under_load(name: Name, arm: Arm) -> Name:
    """A name with the load of its arm: `draft model small, 4 draft tokens, 8 clients`."""
    return name if arm.load is None else _listed([name, load_name(arm.load)])


def load_name(load: Load) -> Name:
    """`8 clients`, `0.5 requests/s`, and how deep in the context they begin."""
    at = _word("rate", rate=load.rate or 0.0) if load.clients is None else clients_name(load.clients)
    return _listed([at, _word("depth", count=load.depth)]) if load.depth else at


def clients_name(count: int) -> Name:
    """`8 clients`."""
    return _word("clients", count=count)


def label(arm_id: str) -> str:
    """An arm's id without its target."""
    return arm_id.partition("/")[2] or arm_id


def method(arm: Arm) -> Name:
    """How an arm drafts, whatever the length: `draft model small`, `ngram-mod + draft model small`."""
    drafters = [_drafter(arm, it) for it in arm.methods]
    return drafters[0] if len(drafters) == 1 else _word("methods", methods=drafters)


def _served(arms: Sequence[Arm]) -> dict[str, Name]:
    """Names of servers that were found: what each serves, and its port where there are several."""
    urls = {arm.id: (own.url if arm.speculates else own.baseline_url) or "" for arm in arms if (own := _options(arm))}
    told = places(dict.fromkeys(urls.values()))
    names: dict[str, Name] = {}
    for arm in arms:
        place = told[urls[arm.id]]
        model = label(arm.id).partition("/")[0].removesuffix(f"-{place.lstrip(':')}") if _is_given(arm) else arm.target
        parts = [model, *([place] if len(told) > 1 else [])]
        names[arm.id] = _listed(parts) if arm.speculates else _word("given", name=_word("none"), given=_listed(parts))
    return names


def _options(arm: Arm) -> UrlOptions:
    return UrlOptions.model_validate(arm.engine.options)


def _named(arms: Sequence[Arm]) -> dict[str, Name]:
    """Names of all arms of one target at one load, by id, without that load."""
    if any(arm.methods == (SERVED,) for arm in arms):
        return _unique(_served(arms))
    drafting = {arm.id: _listed([_head(arm), *_asked(arm, arms)]) for arm in arms}
    alike: dict[Name, list[Arm]] = {}
    for arm in arms:
        alike.setdefault(drafting[arm.id], []).append(arm)
    of_baselines = _differing([arm for arm in arms if arm.role == "baseline"])
    differing = {name: _differing(group) | of_baselines for name, group in alike.items()}
    partly = any(arm.workloads != arms[0].workloads for arm in arms)
    names: dict[str, Name] = {}
    for arm in arms:
        parts = [drafting[arm.id]]
        # Which draft, where the method alone does not tell it from another's.
        if arm.draft is not None and any(it.draft != arm.draft for it in alike[drafting[arm.id]]):
            parts.append(_called(arm.draft))
        parts += _settings(arm, differing[drafting[arm.id]])
        if partly and arm.workloads:
            parts.append(_word("only", workloads=", ".join(arm.workloads)))
        if arm.role == "control" and arm.id == f"{arm.baseline_id}/again":
            parts.append(_word("again"))
        name = _listed(parts)
        names[arm.id] = _word("given", name=name, given=label(arm.id)) if _is_given(arm) else name
    return _unique(names)


def _head(arm: Arm) -> Name:
    """How drafts are made, and how long they are."""
    if arm.gamma is None or not arm.speculates:
        return method(arm)
    looks_up = any(it.startswith("ngram-") for it in arm.methods)
    shorter = len(arm.methods) > 1 or looks_up or arm.gamma_min or arm.p_min
    length = "adaptive" if arm.policy else "n_max" if shorter else "tokens"
    return _listed([method(arm), _word(length, count=arm.gamma)])


def _drafter(arm: Arm, name: str) -> Name:
    if name == PLAIN:
        return _word("none")
    if name == "draft-simple":
        return _word("model") if arm.draft in (None, "draft") else _called(arm.draft)
    return METHODS.get(name, name)


def _called(draft: str) -> Name:
    """`draft model small`, or the name alone where it says so itself."""
    return draft if "draft" in draft.lower() else _word("draft", draft=draft)


def _asked(arm: Arm, arms: Sequence[Arm]) -> list[Name]:
    """Parameters of drafting that were set (of a lookup only where others look up otherwise), and where the draft lies
    if it is not here."""
    asked: list[Name] = []
    for it in PARAMETERS:
        value = getattr(arm, it)
        others = (getattr(other, it) != value for other in arms if other.methods == arm.methods)
        if value is not None and (not it.startswith("ngram_") or any(others)):
            asked.append(_word(it, value=value))
    if arm.policy is not None and arm.policy != "adaptive":  # which the head says
        asked.append(arm.policy)
    if arm.rule is not None:
        asked.append(_word("rule", rule=arm.rule))
    if arm.draft_sampling is not None:
        asked.append(_word("draft_sampling", how=arm.draft_sampling))
    if rates := arm.synthetic_rates:
        sort = "all" if min(rates) == 1 else "nothing" if max(rates) == 0 else "some"
        asked.append(_word(f"synthetic.{sort}", rates=" ".join(f"{rate:g}" for rate in rates)))
    if arm.speculates and arm.engine.rpc:
        asked.append(_word("remote_at", where=", ".join(map(_network, arm.engine.rpc))))
    elif arm.speculates and any(device.startswith("RPC") for device in arm.engine.draft_devices):
        asked.append(_word("remote"))
    return asked


def _network(address: str) -> str:
    """A machine by its address, one behind a relay by its network: `0.5 ms, 1000 Mbit/s`."""
    if (network := network_of(address)) is None:
        return address
    rate = "" if network.mbit_per_s is None else f", {network.mbit_per_s:g} Mbit/s"
    return f"{network.rtt_ms:g} ms{rate}"


def _differing(arms: Sequence[Arm]) -> set[str]:
    """Settings by which arms differ, and the engine's own options."""
    names = {*SETTINGS, *(f"options.{name}" for arm in arms for name in arm.engine.options)}
    return {name for name in names if any(_value(arm, name) != _value(arms[0], name) for arm in arms)}


def _value(arm: Arm, name: str) -> object:
    own = name.removeprefix("options.")
    return getattr(arm.engine, name) if own == name else arm.engine.options.get(own)


def _settings(arm: Arm, differing: set[str]) -> list[Name]:
    """Those of some settings that are not the default."""
    usual = EngineSettings()
    found: list[Name] = []
    for name in (*SETTINGS, *(f"options.{name}" for name in arm.engine.options)):
        value = _value(arm, name)
        if name not in differing or value == getattr(usual, name, None):
            continue
        if name.startswith("options."):
            found.append(_word("option", name=name.removeprefix("options."), value=str(value)))
        elif isinstance(value, bool):
            found.append(Message(f"setting.{name}.{'on' if value else 'off'}"))
        elif not (name in ("rpc", "draft_devices") and arm.speculates and arm.engine.rpc):  # told as remote
            shown = " ".join(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value
            found.append(Message(f"setting.{name}", value=str(shown)))
    return found


def _is_given(arm: Arm) -> bool:
    """Whether the user named the arm: its id then does not begin with its methods, nor with its baseline's id."""
    made = arm.role == "control" and arm.id.startswith(f"{arm.baseline_id}/")
    return not made and label(arm.id).partition("/")[0] != "+".join(arm.methods)


def _unique(names: Mapping[str, Name]) -> dict[str, Name]:
    """Arms that are still called the same have their ids behind their names, and then numbers."""
    found, beside = dict(names), {arm_id: label(arm_id) for arm_id in names}
    while True:
        counts = Counter(found.values())
        clash = [arm_id for arm_id, name in found.items() if counts[name] > 1]
        if not clash:
            return found
        found |= {arm_id: _word("given", name=found[arm_id], given=beside[arm_id]) for arm_id in clash}
        beside = {arm_id: str(number) for number, arm_id in enumerate(names, start=1)}


def _listed(parts: Sequence[Name]) -> Name:
    """`one, other, third` as the language writes it."""
    return parts[0] if len(parts) == 1 else _word("parts", parts=parts)


def _word(word: str, /, **values: Value) -> Message:
    return Message(f"arm.{word}", **values)

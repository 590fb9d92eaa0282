"""A question, and what it comes to before anything is measured: what would be tried and needed, prompts that do not
fit.

Which prompts an advice is looked for on, and on which others it is confirmed.

What is best on the prompts by which it was chosen is a little too good on them. So the prompts of each kind are dealt
out in two halves: screen and race have one, the confirmation the other. A kind of a single prompt is in both.

The user's prompts are often of one kind, `user`, and differ in length, which matters to what a step costs. Where the
longest of a kind has `APART` times the characters of the shortest, its short and long prompts are kinds of their own.

The grid: an experiment whose arms are all that is worth trying for a target.

For every draft model its lengths, with and without ends where the draft doubts (`p_min`, `gamma_min`); for every
n-gram method that the engine knows its lengths by what it looks up. An engine whose drafts cannot be replayed gets the
lengths alone: whatever else its arms have in common is measured once (a pilot), and the lengths follow from that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from specmeter import workloads
from specmeter.advise.advice import MOST_CLIENTS, MOST_LOADS, AdviceQuestion, LeftOutDraft
from specmeter.engines.llama_cpp.draft_rules import NGRAM_CACHE_GAMMA
from specmeter.engines.registry import spec_of
from specmeter.engines.url.spec import ANY
from specmeter.errors import UsageError
from specmeter.experiments.experiment import (
    LOOKUP,
    Described,
    file_workload,
    refuse_absent_prompts,
    refuse_engine,
)
from specmeter.experiments.file import LoadedExperiment, bundled, load, load_text
from specmeter.laboratory.plan import make_plan
from specmeter.models.reference import absolute
from specmeter.record import Prompt, Record
from specmeter.workloads.spec import ALL_KINDS
from specmeter.workloads.texts import Folder

if TYPE_CHECKING:
    from specmeter.advise.advice import Goal
    from specmeter.advise.candidates import Candidates
    from specmeter.record import EngineTraits, MethodTraits


class TriedDraft(Record):
    """A draft model that would be tried."""

    reference: str
    method: str
    size_bytes: int | None


class Outline(Record):
    """What `specmeter advise --dry-run` prints."""

    targets: tuple[str, ...]
    """Model references."""
    target_bytes: int | None
    drafts: tuple[TriedDraft, ...]
    left_out: tuple[LeftOutDraft, ...]
    configurations: dict[str, int]
    """Method -> how many would be priced."""
    prompts: dict[str, int]
    """Kind of text -> how many prompts of it."""
    clients: tuple[int, ...] = ()
    """Loads at which all of it would be asked; none: one request after the other."""
    max_tokens: int
    """Generated for each prompt."""
    budget_s: float
    answer_s: float | None
    """Rough time of an answer without speculation; None if a size is unknown."""
    memory_bytes: int | None
    """Of target and largest draft with their KV caches; None where a size is unknown."""
    memory_free_bytes: int
    disk_bytes: int
    """To be written: models that are not here yet, and what is measured."""
    problems: tuple[str, ...]
    """Why it would be refused, or fail here."""


def ask(
    target: str = "",
    *,
    drafts: Sequence[str] = (),
    find_drafts: bool | None = None,
    prompts: Sequence[str] = (),
    kinds: Sequence[str] = (),
    from_file: str | None = None,
    urls: Sequence[str] = (),
    budget_s: float,
    goal: Goal = "throughput",
    clients: Sequence[int] = (),
    wide: bool = False,
    max_tokens: int | None = None,
    settings: Sequence[str] = (),
) -> AdviceQuestion:
    """The question, with paths from the root. Drafts are looked for where `find_drafts`, or none is named; of servers
    that run (`urls`) the first decodes plainly.

    Raises `UsageError` for what does not go together, and `ModelError` for what is not a reference.
    """
    if from_file is not None:
        options = {
            "TARGET": target,
            "--draft": drafts,
            "--find": find_drafts is not None,
            "--prompts": prompts,
            "--kind": kinds,
            "--wide": wide,
            "--url": urls,
        }
        if named := [option for option, value in options.items() if value]:
            raise UsageError(
                f"{', '.join(named)}: {from_file} says that itself",
                fix="leave --from out, or change the file with --set",
            )
    elif urls:
        options = {"--draft": drafts, "--find": find_drafts, "--wide": wide}
        if named := [option for option, value in options.items() if value]:
            raise UsageError(f"{', '.join(named)}: servers that run draft as they were started", fix="leave it out")
    elif not target:
        raise UsageError("advise: no target is named", fix="name a GGUF file (`specmeter advise big.gguf`)")
    if prompts and kinds:
        raise UsageError(
            "--kind: goes with the prompts of specmeter, and --prompts names yours", fix="leave one of them out"
        )
    if unknown := [it for it in kinds if it not in ALL_KINDS]:
        raise UsageError(f"--kind {unknown[0][:80]}: unknown", fix=f"choose of {', '.join(ALL_KINDS)}")
    refuse_absent_prompts(prompts)
    if clients:
        _refuse_clients(clients, goal, wide=wide)
    if target and not urls:
        references = [target, *drafts]
        described = {"target": absolute(target), "arms": [{"method": LOOKUP}]}
        refuse_engine(load(described, settings).experiment.engine.kind, references)
    return AdviceQuestion(
        target=(target or ANY) if urls else absolute(target) if target else "",
        urls=tuple(urls),
        drafts=tuple(absolute(it) for it in dict.fromkeys(drafts)),
        find_drafts=not (drafts or urls) if find_drafts is None else find_drafts,
        prompts=tuple(str(Path(it).absolute()) for it in prompts),
        kinds=tuple(dict.fromkeys(kinds)),
        from_file=from_file if from_file is None or from_file in bundled() else str(Path(from_file).absolute()),
        budget_s=budget_s,
        goal=goal,
        clients=tuple(sorted(clients)),
        wide=wide,
        max_tokens=max_tokens,
        settings=tuple(settings),
    )


def _refuse_clients(clients: Sequence[int], goal: Goal, *, wide: bool) -> None:
    """Raise `UsageError` for numbers of clients that cannot be asked about, and for what does not go with them."""
    if out := [it for it in clients if not 1 <= it <= MOST_CLIENTS]:
        raise UsageError(f"--clients {out[0]}: is not between 1 and {MOST_CLIENTS}", fix="write --clients 1,2,4,8")
    if len(set(clients)) < len(clients) or len(clients) > MOST_LOADS:
        raise UsageError(
            f"--clients: {', '.join(map(str, clients[:20]))}: lists a number twice, or more than {MOST_LOADS} of them",
            fix="write --clients 1,2,4,8",
        )
    if goal != "throughput":
        raise UsageError(
            f"--goal {goal}: with --clients, total tokens per second are compared, prompts included",
            fix="leave --goal out; `specmeter run --clients` shows latencies at each load",
        )
    if wide:
        raise UsageError(
            "--wide: does not go with --clients",
            fix="find the settings first (`specmeter advise --wide`), then give them with --clients",
        )


def grid_of(asked: AdviceQuestion, candidates: Candidates) -> LoadedExperiment:
    """The configurations to choose from; what is wrong with them or with the prompts is said here.

    Raises `ExperimentError`, and what reading the prompts raises.
    """

    loaded = grid(asked, candidates.references, candidates.heads)
    workloads.count(loaded.experiment.workloads, base_dir=loaded.base_dir)
    return loaded


def outline(asked: AdviceQuestion, candidates: Candidates, grid: LoadedExperiment, *, offline: bool = False) -> Outline:
    """What would be tried, and what that needs; builds, downloads and starts nothing.

    Raises `ExperimentError` or `ModelError` for what would be refused as well, as far as it can be seen from here.
    """
    arms = grid.experiment.expand()
    baselines = {arm.id for arm in arms if arm.role == "baseline"}
    one_of_each = {arm.id for arm in {arm.draft: arm for arm in arms if arm.draft is not None}.values()}
    first_load = arms[0].load
    needs = make_plan(grid, offline=offline, leave_out={arm.id for arm in arms} - baselines - one_of_each)
    plain = make_plan(once(grid), offline=offline, leave_out={arm.id for arm in arms} - baselines)
    return Outline(
        targets=tuple(grid.experiment.targets.values()),
        target_bytes=candidates.target_bytes,
        drafts=tuple(
            TriedDraft(reference=it.reference, method=it.method, size_bytes=it.size_bytes) for it in candidates.drafts
        ),
        left_out=candidates.left_out,
        configurations=dict(Counter("+".join(it.methods) for it in arms if it.speculates and it.load == first_load)),
        prompts=_kinds(grid),
        clients=asked.clients,
        max_tokens=grid.experiment.generation.max_tokens,
        budget_s=asked.budget_s,
        answer_s=None if plain.seconds is None or not plain.requests else plain.seconds / plain.requests,
        memory_bytes=needs.memory_bytes,
        memory_free_bytes=needs.memory_available_bytes,
        disk_bytes=needs.disk_bytes,
        problems=(*needs.problems, *(() if candidates.looked else ("drafts are looked for once the target is here",))),
    )


def once(grid: LoadedExperiment) -> LoadedExperiment:
    """The same, with each prompt asked once."""
    design = grid.experiment.design.model_copy(update={"blocks": 1, "invocations": 1})
    return replace(grid, experiment=grid.experiment.model_copy(update={"design": design}))


def _kinds(grid: LoadedExperiment) -> dict[str, int]:
    """Kind of text -> prompts; those of an exact length, which need a tokenizer, by the names of their workloads."""

    specs = grid.experiment.workloads
    told = [spec for spec in specs if not workloads.needs_tokenizer(spec)]
    others = [spec for spec in specs if workloads.needs_tokenizer(spec)]
    kinds = Counter(prompt.kind for prompt in workloads.load(told, base_dir=grid.base_dir))
    return dict(kinds) | (workloads.count(others) if others else {})


MOST_PROMPTS = 16
"""Of a half, unless there are more kinds: each kind has one at least."""
MOST_OF_KIND = 8
"""Prompts of a kind in a half: with fewer, what differs between prompts has hardly a bound (Student's t of 4: 3.2, of
8: 2.4 standard errors), and more take time from blocks."""
MOST_LOADED = 4
"""Of a half under load, unless there are more clients: prompts share the machine, and blocks are the units."""
MOST_KINDS = 8
APART = 8.0
_LEAST_APART = 4
"""Prompts of a kind that are told apart by length."""


class Halves(NamedTuple):
    """Ids of prompts, in the order of the workloads."""

    search: tuple[str, ...]
    other: tuple[str, ...]
    held_out: bool
    """Whether no prompt is in both."""


def split(prompts: Sequence[Prompt], *, most: int = MOST_PROMPTS) -> Halves:
    """Two halves of the prompts, alike in kinds, of `most` at most."""
    by_kind: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_kind.setdefault(prompt.kind, []).append(prompt)
    told = sorted(by_kind, key=lambda kind: -len(by_kind[kind]))[:MOST_KINDS]
    each = max(1, min(MOST_OF_KIND, most // max(1, len(told))))
    search, other, held_out = set[str](), set[str](), True
    for kind in told:
        # By their digests: an order that has nothing to do with what they say.
        drawn = [prompt.id for prompt in sorted(by_kind[kind], key=lambda prompt: (prompt.sha256, prompt.id))]
        held_out &= len(drawn) > 1
        search.update(drawn[0::2][:each])
        other.update((drawn[1::2] or drawn)[:each])
    ids = [prompt.id for prompt in prompts]
    return Halves(tuple(it for it in ids if it in search), tuple(it for it in ids if it in other), held_out)


def kinds_by_length(prompts: Sequence[Prompt]) -> dict[str, str]:
    """Prompt id -> kind, `user-short` or `user-long` where the prompts of a kind differ much in length."""
    by_kind: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_kind.setdefault(prompt.kind, []).append(prompt)
    found: dict[str, str] = {}
    for kind, of_kind in by_kind.items():
        lengths = {prompt.id: sum(len(it["content"]) for it in prompt.messages) for prompt in of_kind}
        shortest, longest = max(1, min(lengths.values())), max(lengths.values())
        middle = math.sqrt(shortest * longest)
        for prompt in of_kind:
            name = f"{kind}-{'long' if lengths[prompt.id] > middle else 'short'}"
            found[prompt.id] = name if len(of_kind) >= _LEAST_APART and longest >= APART * shortest else kind
    return found


LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
"""Draft lengths of models."""
DOUBTS = (0.3, 0.5, 0.75)
"""`p_min`: drafting ends where the model is less sure of its token."""
LEAST = 2
"""`gamma_min`: a single token that the model was sure of is not worth a step."""
LOOKED_UP = (2, 3, 4, 6, 8)
"""Tokens of an n-gram."""
CONTINUED = (2, 3, 4, 6, 8, 12, 16, 24)
"""Tokens that are drafted after one."""
HASHED = (6, 8, 12, 16)
"""The same of `ngram-mod`, which looks up a hash: of few tokens it finds much that does not fit."""
HITS = (1, 2)
"""How often `ngram-map-k4v` must have seen an n-gram."""
_FILLED_BY_ALL = frozenset({"ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"})
"""Their tables are filled by all requests of a server, so what they draft under load is chance: it cannot be replayed,
and a session of each would take the time of the race."""
HEAD_LENGTHS = (1, 2, 3, 4)
"""Tokens that the target's own head drafts."""
ROUNDS = 2
"""Under load: requests of each client, at least."""
MOST_AT_ONCE = 8
"""Clients that each have a prompt of their own, as far as there are so many."""
MOST_PER_KIND: Mapping[Folder, int] = {"bench": 48, "studies": 16}
"""Prompts of each kind that there are."""
BENCH_TOKENS = 48
"""Generated for each prompt by models whose text is the same all along: bench models, and simulated ones."""
_FIXED = ("design.blocks=1", "design.probe=off", "design.controls=false")


def grid(asked: AdviceQuestion, drafts: Sequence[str] = (), heads: Sequence[str] = ()) -> LoadedExperiment:
    """The arms for a question; `drafts` are references of models that can draft for its target, `heads` methods by
    which it drafts for itself. They are those at the load that is asked about; of a whole schedule, at each load.

    Of `from_file` the arms are that file's, and so is everything else that `settings` do not change. Raises
    `ExperimentError`.
    """
    settings = (*_FIXED, *asked.settings)
    if asked.max_tokens is not None:
        settings = (*settings, f"generation.max_tokens={asked.max_tokens}")
    clients = [asked.load] if asked.load is not None else list(asked.clients)
    if asked.from_file is not None:
        at_loads = (f"load.clients={clients}", "load.rate=[]") if clients else ()
        return load(asked.from_file, (*settings, *at_loads))
    keys: dict[str, Any] = {"target": asked.target}
    if asked.urls:
        plain, first, *others = asked.urls
        servers = {"url": first, "others": others, "baseline_url": plain}
        keys = Described(() if asked.target == ANY else (asked.target,), servers=servers).keys()
    stationary = asked.target.startswith(("bench:", "mock:"))
    keys["generation"] = {"max_tokens": BENCH_TOKENS, "ignore_eos": True} if stationary else {"ignore_eos": False}
    if drafts:
        keys["draft"] = list(drafts)
    if clients:
        keys["load"] = {"clients": clients, "rounds": ROUNDS}
    if asked.prompts:
        keys["workloads"] = [file_workload(asked.prompts)]
    else:
        kinds = {"kinds": list(asked.kinds)} if asked.kinds else {}
        source: Folder = "bench" if asked.target.startswith("bench:") else "studies"
        keys["workloads"] = [{"source": source, "per_kind": _per_kind(asked, source), **kinds}]
    if asked.urls:
        return load(keys, settings)
    plain = load({**keys, "arms": [{"method": "none"}]}, settings).experiment
    traits = spec_of(plain.engine.kind).traits
    return load({**keys, "arms": list(_arms(traits, heads, has_drafts=bool(drafts), alone=not clients))}, settings)


def _per_kind(asked: AdviceQuestion, source: Folder) -> int:
    """Prompts of each kind, for both halves: as many as `split` takes, for clients so many that few of them are at the
    same text."""
    kinds = len(asked.kinds) or len(ALL_KINDS)
    of_half = max(1, -(-prompts_of_half(asked) // kinds) if asked.clients else min(MOST_OF_KIND, MOST_PROMPTS // kinds))
    return min(2 * of_half, MOST_PER_KIND[source])


def prompts_of_half(asked: AdviceQuestion) -> int:
    """Most prompts of a half."""
    clients = min(max(asked.clients, default=0), MOST_AT_ONCE)
    return max(MOST_LOADED, clients) if clients else MOST_PROMPTS


def changed(loaded: LoadedExperiment, *settings: str) -> LoadedExperiment:
    """The same experiment with further settings, as `--set` takes them. Raises `ExperimentError`."""
    found = load_text(loaded.text, loaded.source, loaded.base_dir, settings)
    return replace(found, variants=loaded.variants)


def _arms(traits: EngineTraits, heads: Sequence[str], *, has_drafts: bool, alone: bool) -> Iterator[dict[str, Any]]:
    """Lines of arms, as an experiment has them; `alone`: of one request after the other."""
    for method in traits.methods:
        if method.drafter == "model" and has_drafts:
            yield from _by_model(method, traits)
        elif method.drafter == "lookup" and (alone or method.name not in _FILLED_BY_ALL):
            yield from _by_lookup(method, traits)
        elif method.name in heads:
            yield {"method": method.name, "gamma": list(HEAD_LENGTHS)}


def _by_model(method: MethodTraits, traits: EngineTraits) -> Iterator[dict[str, Any]]:
    yield {"method": method.name, "gamma": list(LENGTHS)}
    if traits.drafting is None or "p_min" not in method.parameters:
        return
    longer = [gamma for gamma in LENGTHS if gamma > 1]
    yield {"method": method.name, "gamma": longer, "p_min": list(DOUBTS)}
    if "gamma_min" in method.parameters:
        longer = [gamma for gamma in LENGTHS if gamma > LEAST]
        yield {"method": method.name, "gamma": longer, "p_min": list(DOUBTS), "gamma_min": LEAST}


def _by_lookup(method: MethodTraits, traits: EngineTraits) -> Iterator[dict[str, Any]]:
    name = method.name
    if name == "ngram-cache":
        yield {"method": name, "gamma": NGRAM_CACHE_GAMMA}
    elif traits.drafting is None:
        yield {"method": name, "gamma": list(LENGTHS)}
    elif name == "ngram-mod":
        longer = [gamma for gamma in CONTINUED if gamma > LEAST]
        yield {"method": name, "ngram_n": list(HASHED), "gamma": longer, "gamma_min": LEAST}
    elif name == "ngram-map-k4v":
        yield {"method": name, "ngram_n": list(LOOKED_UP), "gamma": list(CONTINUED), "ngram_min_hits": list(HITS)}
    else:
        for n in LOOKED_UP:
            # `ngram-simple` throws away what is shorter than what it looked up.
            yield {"method": name, "ngram_n": n, "gamma": [gamma for gamma in CONTINUED if gamma >= n]}

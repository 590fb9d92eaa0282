"""The grid: an experiment whose arms are all that is worth trying for a target.

For every draft model its lengths, with and without ends where the draft doubts (`p_min`, `gamma_min`); for every
n-gram method that the engine knows its lengths by what it looks up. An engine whose drafts cannot be replayed gets the
lengths alone: whatever else its arms have in common is measured once (a pilot), and the lengths follow from that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specmeter import workloads
from specmeter.advise.advice import AdviceQuestion
from specmeter.advise.halves import MAX_OF_KIND, MAX_PROMPTS, prompts_of_half
from specmeter.engines.llama_cpp.draft_rules import NGRAM_CACHE_GAMMA
from specmeter.engines.llama_cpp.spec import SAMPLED_DRAFTS
from specmeter.engines.registry import spec_of
from specmeter.engines.url.spec import ANY
from specmeter.experiments.described import Described, file_workload, of_sessions
from specmeter.experiments.file import LoadedExperiment, load
from specmeter.models.reference import made_of
from specmeter.record import PROBABILISTIC
from specmeter.workloads.spec import ALL_KINDS
from specmeter.workloads.texts import Folder

if TYPE_CHECKING:
    from specmeter.advise.candidates import Candidates
    from specmeter.record import EngineTraits, MethodTraits


def grid_of(asked: AdviceQuestion, candidates: Candidates) -> LoadedExperiment:
    """The configurations to choose from; what is wrong with them or with the prompts is said here.

    Raises `ExperimentError`, and what reading the prompts raises.
    """

    loaded = grid(asked, candidates.references, candidates.heads)
    workloads.count(loaded.experiment.workloads, base_dir=loaded.base_dir)
    return loaded


LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
"""Draft lengths of models."""
DOUBTS = (0.3, 0.5, 0.75)
"""`p_min`: drafting ends where the model is less sure of its token."""
MIN_GAMMA = 2
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
MAX_PER_KIND: Mapping[Folder, int] = {"bench": 48, "studies": 16}
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
    stationary = made_of(asked.target).startswith(("bench:", "mock:"))
    keys["generation"] = {"max_tokens": BENCH_TOKENS, "ignore_eos": True} if stationary else {"ignore_eos": False}
    if drafts:
        keys["draft"] = list(drafts)
    if clients:
        keys["load"] = {"clients": clients, "rounds": ROUNDS}
    if asked.sessions:
        keys |= of_sessions(asked.sessions, 2 * MAX_PROMPTS)
    elif asked.prompts:
        keys["workloads"] = [file_workload(asked.prompts)]
    else:
        kinds = {"kinds": list(asked.kinds)} if asked.kinds else {}
        source: Folder = "bench" if made_of(asked.target).startswith("bench:") else "studies"
        keys["workloads"] = [{"source": source, "per_kind": _per_kind(asked, source), **kinds}]
    if asked.urls:
        return load(keys, settings)
    plain = load({**keys, "arms": [{"method": "none"}]}, settings).experiment
    traits = spec_of(plain.engine.kind).traits
    arms = list(_arms(traits, heads, has_drafts=bool(drafts), alone=not clients))
    if plain.generation.temperature > 0 and PROBABILISTIC in traits.draft_samplings:
        drawn = [it for it in arms if it["method"] in SAMPLED_DRAFTS]
        arms += [{**it, "draft_sampling": PROBABILISTIC} for it in drawn]
    return load({**keys, "arms": arms}, settings)


def _per_kind(asked: AdviceQuestion, source: Folder) -> int:
    """Prompts of each kind, for both halves: as many as `split` takes, for clients so many that few of them are at the
    same text."""
    kinds = len(asked.kinds) or len(ALL_KINDS)
    of_half = max(1, -(-prompts_of_half(asked) // kinds) if asked.clients else min(MAX_OF_KIND, MAX_PROMPTS // kinds))
    return min(2 * of_half, MAX_PER_KIND[source])


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
        longer = [gamma for gamma in LENGTHS if gamma > MIN_GAMMA]
        yield {"method": method.name, "gamma": longer, "p_min": list(DOUBTS), "gamma_min": MIN_GAMMA}


def _by_lookup(method: MethodTraits, traits: EngineTraits) -> Iterator[dict[str, Any]]:
    name = method.name
    if name == "ngram-cache":
        yield {"method": name, "gamma": NGRAM_CACHE_GAMMA}
    elif traits.drafting is None:
        yield {"method": name, "gamma": list(LENGTHS)}
    elif name == "ngram-mod":
        longer = [gamma for gamma in CONTINUED if gamma > MIN_GAMMA]
        yield {"method": name, "ngram_n": list(HASHED), "gamma": longer, "gamma_min": MIN_GAMMA}
    elif name == "ngram-map-k4v":
        yield {"method": name, "ngram_n": list(LOOKED_UP), "gamma": list(CONTINUED), "ngram_min_hits": list(HITS)}
    else:
        for n in LOOKED_UP:
            # `ngram-simple` throws away what is shorter than what it looked up.
            yield {"method": name, "ngram_n": n, "gamma": [gamma for gamma in CONTINUED if gamma >= n]}

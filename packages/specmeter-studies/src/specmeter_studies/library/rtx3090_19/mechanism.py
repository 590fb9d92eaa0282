"""rtx3090-19: what the document makes responsible, in numbers: experts, the saturation threshold, and where time went.

The document's mechanism: below the saturation threshold each drafted token brings experts of its own, so that a
verification pays for the union of all. That bounds what a verification costs. One token reads K experts per layer, and
a forward over n tokens the union of their choices, never more than n K, at any number of tokens below or above the
threshold. So, per request, with the baseline's time t for one token,

    time of decoding  <=  t x (tokens + rejected)  +  time of drafting,

because the forwards of verification hold one position for every token that comes out and one for every rejected draft.
Drafting is bounded by t per drafted token where a model drafts (it reads less than the target), and taken as nothing
for look-ups. Time beyond this bound went elsewhere: into states saved and restored, into drafts that no counter shows.
"""

from __future__ import annotations

from dataclasses import dataclass

from specmeter.engines.llama_cpp.draft_rules import NGRAM_CACHE_GAMMA
from specmeter.engines.llama_cpp.spec import DRAFT_MODEL_METHODS
from specmeter.numbers.estimates import above, bare, between
from specmeter.record import Estimate
from specmeter.theory.roofline import saturation_threshold, saturation_tokens
from specmeter_studies.library.rtx3090_19.lines import Line, Lines, ratio
from specmeter_studies.study import ModelUsed, PromptResult, StudyData

THRESHOLD, SPARSITY = 94, 0.031
"""What the document prints."""
UNEXPLAINED = 0.05
"""Share of the time beyond the bound that rates of decoding without speculation, which vary by some percent, do not
explain."""


@dataclass(frozen=True)
class Saturation:
    """The threshold of a mixture of experts."""

    model: ModelUsed
    experts: int
    used: int

    @property
    def sparsity(self) -> float:
        """Share of the experts that a token uses."""
        return self.used / self.experts

    @property
    def tokens(self) -> float:
        """Tokens after which uniform routing has touched 95 % of the experts; not rounded."""
        return saturation_tokens(self.experts, self.used)

    @property
    def threshold(self) -> int:
        """The same, rounded up."""
        return saturation_threshold(self.experts, self.used)


def saturation(data: StudyData) -> Saturation | None:
    """Of the target; None for a dense one, or where its experts are not known."""
    targets = {line.target for line in data.arms}
    return next((found for model in data.models if model.name in targets and (found := of_model(model))), None)


def of_model(model: ModelUsed) -> Saturation | None:
    """Of a model; None for a dense one, or where its experts are not known."""
    if not model.experts or not model.experts_used or model.experts_used >= model.experts:
        return None
    return Saturation(model, model.experts, model.experts_used)


def gamma(line: Line) -> int | None:
    """Most draft tokens per step."""
    if line.arm.gamma is None and line.arm.method == "ngram-cache":
        return NGRAM_CACHE_GAMMA
    return line.arm.gamma


@dataclass(frozen=True)
class Budget:
    """Time that a configuration (or request) took, beside the most that its counted drafts explain."""

    spent_ms: float
    most_ms: float
    plain_ms: float
    """Of the same number of tokens without drafts."""

    @property
    def unexplained(self) -> float:
        """Share of the time spent that lies beyond the bound; negative where there is none."""
        return 1 - self.most_ms / self.spent_ms


def budget(known: Lines, line: Line) -> Budget | None:
    """Of all its requests together; None without a reference or without counts."""
    base = known.get(line.reference)
    if base is None or base is line or base.sums is None or line.sums is None:
        return None
    sums = line.sums
    plain = _per_token(base.sums.generated - base.arm.requests, base.sums.decode_ms)
    tokens = sums.generated - line.arm.requests
    if plain is None or tokens <= 0 or sums.decode_ms <= 0:
        return None
    return _budget(line, plain, tokens, sums.drafted, sums.accepted, sums.decode_ms)


def unexplained(known: Lines, line: Line) -> Estimate | None:
    """Share of its time beyond the bound, with the interval of its ratio: what it drafted and accepted is counted."""
    spent, gained = budget(known, line), ratio(known, line)
    if spent is None or gained is None:
        return None
    allowed = spent.most_ms / spent.plain_ms
    point = 1 - allowed * gained.point
    if gained.low is None or gained.high is None:
        return bare(point, "1", gained.method)
    return between(point, 1 - allowed * gained.high, 1 - allowed * gained.low, "1", gained.method, n=gained.n)


def beyond_bound(known: Lines, line: Line) -> Estimate | None:
    """The same where it is more than the baseline's rates explain, and than the run shows where there is nothing."""
    found = unexplained(known, line)
    return found if above(found, max(UNEXPLAINED, line.arm.least_effect)) else None


def budgets_of_requests(known: Lines, line: Line) -> list[tuple[PromptResult, Budget]]:
    """Of each request that drafted and has one of its reference on the same prompt."""
    base = known.get(line.reference)
    found: list[tuple[PromptResult, Budget]] = []
    if base is None or base is line:
        return found
    plain = {(it.prompt, it.repeat): it for it in base.results}
    for result in line.results:
        other = plain.get((result.prompt, result.repeat))
        if not result.drafted or other is None or not result.generated or not result.decode_ms:
            continue
        per_token = _per_token((other.generated or 0) - 1, other.decode_ms or 0.0)
        if per_token is not None:
            tokens, accepted = result.generated - 1, result.accepted or 0
            made = _budget(line, per_token, tokens, result.drafted, accepted, result.decode_ms)
            found.append((result, made))
    return found


def _budget(line: Line, plain: float, tokens: int, drafted: int, accepted: int, spent: float) -> Budget:
    by_model = bool(DRAFT_MODEL_METHODS & set(line.arm.method.split("+")))
    positions = tokens + drafted - accepted + (drafted if by_model else 0)
    return Budget(spent_ms=spent, most_ms=plain * positions, plain_ms=plain * tokens)


def _per_token(tokens: int, ms: float) -> float | None:
    return ms / tokens if tokens > 0 and ms > 0 else None

"""moe-306 as published: 306 rows and the tables made from them, with what the audit rules about each.

The lines of suites A to D are rows of the paper's Tables 4 and 5; rates get intervals over the three repeats, which the
paper's standard deviation over prompts and repeats together cannot give. Suite F is in none of the tables; its lines
are made from its rows, where a baseline and a speculative run of the same length and repeat follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache
from statistics import fmean

from specmeter.audit import published as tables
from specmeter.audit.reading import counts
from specmeter.messages import Message
from specmeter.numbers.estimates import student_mean
from specmeter.numbers.stats import Pool, geometric_speedup
from specmeter.record import Estimate
from specmeter_studies import from_claims
from specmeter_studies.apple_published import raw_logs
from specmeter_studies.library.moe_306 import lines
from specmeter_studies.study import ArmResult, ModelUsed, PromptResult, Ran, StudyData

_TABLES, _RUNS = "moe-306/tables.csv", "moe-306/runs.csv"
_KINDS = {"short_factual": "fact", "code_gen": "code", "long_reasoning": "reason", "chinese": "zh"}
"""The paper's names of prompts -> ours."""

_COUNTS, _NEARLY = range(256, 256 + 17), 1e-9
"""Tokens that a run may have emitted: 256, and what the last of its steps adds. A whole number is that near to one."""

_RANDOM = "random tokens"
"""What llama-bench decodes."""

_MODELS = (
    ("moe_q4", "Qwen3.5-35B-A3B", "UD-Q4_K_XL", 35.0, 3.0),
    ("moe_q8", "Qwen3.5-35B-A3B", "UD-Q8_K_XL", 35.0, 3.0),
    ("draft_0.8b", "Qwen3.5-0.8B", "UD-Q8_K_XL", 0.8, 0.8),
    ("draft_2b", "Qwen3.5-2B", "UD-Q8_K_XL", 2.0, 2.0),
    ("dense_0.8b", "Qwen3.5-0.8B", "BF16", 0.8, 0.8),
    ("dense_2b", "Qwen3.5-2B", "UD-Q8_K_XL", 2.0, 2.0),
    ("dense_4b", "Qwen3.5-4B", "Q8_0", 4.0, 4.0),
    ("dense_9b", "Qwen3.5-9B", "BF16", 9.0, 9.0),
)
"""Table 2: id, model, quantization of the file (`discovered_paths.json`), total and active parameters in 1e9."""

_EXPERTS, _EXPERTS_USED = 256, 8
"""Of Qwen3.5-35B-A3B, by its published configuration; the paper says 128 and 2."""

_ALL_ACCEPTED = Message("study.because", name="acceptance-by-construction", why=Message("moe-306.all_accepted"))

NOTES = (
    Message("moe-306.note.drafts"),
    Message("moe-306.note.baselines"),
    Message("moe-306.note.experts"),
    Message("moe-306.note.prompts"),
)


@cache
def published() -> StudyData:
    """The paper's numbers."""
    runs = tuple(_results())
    swept = [run for run in runs if _is_swept(run)]
    rows = tuple(_table_lines(runs))
    return StudyData(
        study="moe-306",
        origin="published",
        title=Message("moe-306.published"),
        results=runs,
        arms=(*rows, *_swept_lines(swept), *_kind_lines(runs), *_length_lines(swept)),
        models=tuple(_model(*model) for model in _MODELS),
        machine="Apple M2 Ultra, 192 GB",
        bandwidth_bytes_per_s=next(
            claim.bandwidth_bytes_per_s for claim in tables.table(_RUNS) if claim.bandwidth_bytes_per_s
        ),
        parts=(Ran(part="moe-306", status="measured"),),
        lead=tuple(_lead(rows)),
        notes=(_root_cause(), *NOTES, Message("moe-306.note.audited", tally=from_claims.tally("moe-306"))),
    )


def _lead(rows: Sequence[ArmResult]) -> Iterator[Message]:
    """Whether the paper shows what its title asks, why not, and how many of its rows cannot be right."""
    drafted = [line for line in rows if line.speculates]
    yield Message("moe-306.lead.answer", wrong=sum(not line.stands for line in drafted), of=len(drafted))
    share = [it.failed / it.asked for it in raw_logs()]
    yield Message("moe-306.lead.cause", low=min(share), high=max(share))
    counted = counts(from_claims.rulings("moe-306"))
    false = {"implausible": counted["implausible"], "impossible": counted["impossible"]}
    yield Message("moe-306.lead.rows", rows=sum(counted.values()), **false)


def _root_cause() -> Message:
    """What the same author's raw logs prove by counting; of this study's own runs no log was published."""
    logs = raw_logs()
    log = next(it for it in logs if "35B-A3B" in it.models and "0.8B" in it.models)
    share = [it.failed / it.asked for it in logs]
    took = [it.took_place for it in logs]
    return Message(
        "moe-306.note.root_cause",
        logs=len(logs),
        least=min(took),
        most=max(took),
        low=min(share),
        high=max(share),
        rate=log.rate,
        acceptance=100 * log.acceptance,
        failed=log.failed,
        asked=log.asked,
    )


def swept_words() -> dict[int, int]:
    """Length that suite F asks for -> words of the prompt that its script cuts from one text for it."""
    rows = [it for it in tables.cells(_RUNS) if it["suite"] == "F" and it["prompt_words"]]
    return {int(it["prompt_n"]): int(it["prompt_words"]) for it in rows}


def whole_times() -> tuple[int, int]:
    """(rows with drafts whose printed time per token makes a whole number of milliseconds for some count, all of them).

    So does the program's line for the tokens it decoded, which begins after the prompt; its counters have fractions.
    """
    times = [float(it["eval_ms_per_token"]) for it in tables.cells(_RUNS) if it["method"] != "none"]
    whole = [any(abs(n * time - round(n * time)) < _NEARLY for n in _COUNTS) for time in times]
    return sum(whole), len(times)


# --- runs ------------------------------------------------------------------------------------------------------------


def _results() -> Iterator[PromptResult]:
    runs = list(from_claims.rulings("moe-306", _RUNS))
    drafted = [it.claim for it in runs if it.claim.conditions["suite"] == "F" and it.claim.method != "none"]
    constructed = all(claim.acceptance == 1 for claim in drafted)
    for ruling in runs:
        claim = ruling.claim
        swept, kind = claim.conditions["suite"] == "F", claim.conditions["prompt"]
        unnamed = _RANDOM if kind == "bench" else f"length-{claim.prompt_n}"
        config = _config(claim.target or "", claim.draft, claim.gamma, swept=swept)
        made = from_claims.result(ruling, config=config, prompt=_KINDS.get(kind, unnamed))
        if swept and made.method != "none" and constructed and made.verdict is None:
            made = made.model_copy(update={"verdict": "suspect", "why": _ALL_ACCEPTED})
        yield made


def _config(target: str, draft: str | None, gamma: int | None, *, swept: bool) -> str:
    if swept:
        return f"{target}/lengths" if gamma is None else f"{target}/lengths-g{gamma}"
    return f"{target}/none" if gamma is None else f"{target}/draft-simple/{draft}/g{gamma}"


def _is_swept(run: PromptResult) -> bool:
    """Whether a run belongs to suite F."""
    return "/lengths" in run.config


# --- lines -----------------------------------------------------------------------------------------------------------


def _table_lines(runs: Sequence[PromptResult]) -> Iterator[ArmResult]:
    """Rows of Tables 4 and 5."""
    for ruling in from_claims.rulings("moe-306", _TABLES):
        claim = ruling.claim
        config = _config(claim.target or "", claim.draft, claim.gamma, swept=False)
        measured = [run for run in runs if run.config == config]
        line = from_claims.arm(ruling, config=config, requests=len(measured))
        yield line.model_copy(update={"suite": lines.suite(line), **_measured(measured)})


def _swept_lines(swept: Sequence[PromptResult]) -> Iterator[ArmResult]:
    """Suite F over all lengths."""
    for group in _grouped(swept, lambda run: run.config):
        yield _line(group, swept)


def _length_lines(swept: Sequence[PromptResult]) -> Iterator[ArmResult]:
    """Suite F by length."""
    for group in _grouped(swept, lambda run: (run.config, run.prompt_tokens)):
        length = group[0].prompt_tokens
        same = [run for run in swept if run.prompt_tokens == length]
        yield _line(group, same).model_copy(update={"prompt_tokens": length})


def _kind_lines(runs: Sequence[PromptResult]) -> Iterator[ArmResult]:
    """Suites B and D by prompt; the baseline is that of the paper: other prompts, another program."""
    drafted = [run for run in runs if run.method != "none" and not _is_swept(run)]
    for group in _grouped(drafted, lambda run: (run.config, run.prompt)):
        first = group[0]
        plain = [run for run in runs if run.target == first.target and run.prompt == _RANDOM]
        claimed = fmean(map(_rate, group)) / fmean(map(_rate, plain))
        yield _line(group, ()).model_copy(update={"prompt": first.prompt, "claimed_speedup": claimed})


def _line(group: Sequence[PromptResult], same: Sequence[PromptResult]) -> ArmResult:
    """A line made from runs, as good as the worst of them, with its speedup over the plain runs among `same`."""
    order = ("invalid", "implausible", "suspect", None)
    worst = min(group, key=lambda run: order.index(run.verdict))
    line = ArmResult(
        config=worst.config,
        target=worst.target,
        draft=worst.draft,
        method=worst.method,
        gamma=worst.gamma,
        requests=len(group),
        verdict=worst.verdict,
        why=worst.why,
    )
    line = line.model_copy(update={"suite": lines.suite(line), **_measured(group)})
    plain = [run for run in same if run.method == "none"]
    if not line.speculates or not plain or not line.stands:
        return line
    ours, theirs = _by_repeat(group), _by_repeat(plain)
    pairs = [(Pool(ours[repeat], 1000.0), Pool(theirs[repeat], 1000.0)) for repeat in sorted(ours) if repeat in theirs]
    return line.model_copy(update={"speedup": geometric_speedup(pairs)})


def _measured(group: Sequence[PromptResult]) -> dict[str, Estimate | None]:
    """Rate over repeats; acceptance over prompts, since greedy text repeats itself."""
    drafted = [run for run in group if run.acceptance is not None]
    by_prompt = [
        fmean(run.acceptance or 0.0 for run in runs)
        for runs in _grouped(drafted, lambda run: (run.prompt, run.prompt_tokens))
    ]
    return {
        "decode_rate": _mean(list(_by_repeat(group).values()), "tok/s", "mean of runs; Student t over repeats"),
        "acceptance": _mean(by_prompt, "1", "mean of runs; Student t over prompts") if by_prompt else None,
    }


def _mean(values: Sequence[float], unit: str, method: str) -> Estimate:
    """No interval where values are one or all alike: copies tell nothing about the next one."""
    alone = f"{method}; no interval, no variation"
    return student_mean(values, unit, method, alone=alone, least=0.0)


def _by_repeat(group: Sequence[PromptResult]) -> dict[int, float]:
    """Repeat -> mean rate of its runs."""
    return {runs[0].repeat: fmean(map(_rate, runs)) for runs in _grouped(group, lambda run: run.repeat)}


def _rate(run: PromptResult) -> float:
    return run.decode_rate or 0.0


def _grouped(runs: Sequence[PromptResult], key: Callable[[PromptResult], Hashable]) -> list[list[PromptResult]]:
    found: dict[Hashable, list[PromptResult]] = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return list(found.values())


# --- models ----------------------------------------------------------------------------------------------------------


def _model(name: str, reference: str, quantization: str, total: float, active: float) -> ModelUsed:
    """A model of the paper; the sizes are those that the audit has from there."""
    mixture = active < total
    claim = next((claim for claim in tables.table(_TABLES) if claim.target == name), None)
    size, one = (claim.size_bytes, claim.bytes_per_token) if claim is not None else (None, None)
    return ModelUsed(
        name=name,
        reference=reference,
        size_bytes=size,
        parameters=total * 1e9,
        active_parameters=active * 1e9,
        bytes_per_token=one or size,
        experts=_EXPERTS if mixture else 0,
        experts_used=_EXPERTS_USED if mixture else 0,
        quantization=quantization,
    )

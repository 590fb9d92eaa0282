"""moe-306 as published: 306 rows and the tables made from them, with what the audit rules about each.

The lines of suites A to D are rows of the paper's Tables 4 and 5; rates get intervals over the three repeats, which the
paper's standard deviation over prompts and repeats together cannot give. Suite F is in none of the tables; its lines
are made from its rows, where a baseline and a speculative run of the same length and repeat follow each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from specmeter.audit.claim import VERDICTS
from specmeter.audit.published.table import Row, rows
from specmeter.numbers.stats import Pool, geometric_speedup, t_interval
from specmeter.record import Estimate
from specmeter.studies import from_claims
from specmeter.studies.apple_published import raw_logs
from specmeter.studies.study import ArmResult, ModelUsed, Ran, Result, StudyData

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specmeter.audit.claim import Ruling

_KINDS = {"short_factual": "fact", "code_gen": "code", "long_reasoning": "reason", "chinese": "zh"}
"""The paper's names of prompts -> ours."""

_MODELS = (
    ("moe_q4", "Qwen3.5-35B-A3B", "Q4_K_M", 35.0, 3.0),
    ("moe_q8", "Qwen3.5-35B-A3B", "Q8_0", 35.0, 3.0),
    ("draft_0.8b", "Qwen3.5-0.8B", "Q8_0", 0.8, 0.8),
    ("draft_2b", "Qwen3.5-2B", "Q8_0", 2.0, 2.0),
    ("dense_0.8b", "Qwen3.5-0.8B", "BF16", 0.8, 0.8),
    ("dense_2b", "Qwen3.5-2B", "Q8_0", 2.0, 2.0),
    ("dense_4b", "Qwen3.5-4B", "Q8_0", 4.0, 4.0),
    ("dense_9b", "Qwen3.5-9B", "BF16", 9.0, 9.0),
)
"""Table 2: id, model, quantization, total and active parameters in 1e9."""

_EXPERTS, _EXPERTS_USED = 256, 8
"""Of Qwen3.5-35B-A3B, by its published configuration; the paper says 128 and 2."""

_ALL_ACCEPTED = (
    "acceptance-by-construction: every run of this suite says that exactly 100 % of the drafts were accepted, where "
    "the same models have under 6 % in the other suites"
)

NOTES = (
    "The speedups of all 18 speculative configurations do not go with the acceptance printed beside them: a step that "
    "accepts hardly anything emits one token and costs at least one forward. They support nothing.",
    "Drafts are priced by the rates of Table 4, which has the 0.8B model in BF16; as a draft it ran in Q8_0, at most "
    "1.88 times as fast by its bytes. Rulings say what follows with that, too.",
    "Baselines come from another program (llama-bench, random tokens) than the speculative runs (llama-speculative, "
    "text), and from another time: no speedup of suites B and D has a baseline of its own prompts.",
    "The paper names 128 experts with 2 chosen; the model has 256 and chooses 8.",
)


@cache
def published() -> StudyData:
    """The paper's numbers."""
    runs = list(zip(rows("moe306_runs.csv"), from_claims.rulings("moe-306", "moe-306/runs.csv"), strict=True))
    suspect = _all_accepted(runs)
    sizes = _sizes()
    return StudyData(
        study="moe-306",
        origin="published",
        title="published by AtomGradient, March 2026, measured on an Apple M2 Ultra",
        results=tuple(_result(row, ruling, suspect) for row, ruling in runs),
        arms=(*_table_lines(runs), *_swept_lines(runs, suspect), *_kind_lines(runs), *_length_lines(runs, suspect)),
        models=tuple(_model(*model, sizes) for model in _MODELS),
        machine="Apple M2 Ultra, 192 GB",
        bandwidth_bytes_per_s=next(
            ruling.claim.bandwidth_bytes_per_s for _, ruling in runs if ruling.claim.bandwidth_bytes_per_s
        ),
        parts=(Ran(part="moe-306", status="measured"),),
        notes=(_root_cause(), *NOTES, _audited()),
    )


def _root_cause() -> str:
    """What the same author's raw logs prove by counting; of this study's own runs no log was published."""
    logs = raw_logs()
    log = next(it for it in logs if "35B-A3B" in it.models)
    share = [it.failed / it.asked for it in logs]
    return (
        f"Root cause, proved by raw logs of the same author and program: verifications failed. Of these very runs no "
        f"log was published; of the same author's other document there are {len(logs)}. In each {log.took_place} "
        f"verifications took place, and {min(share):.0%} to {max(share):.0%} of those asked for failed, whose stale "
        f"results were read as tokens. The "
        f"one of 35B-A3B with a 0.8B draft and gamma 4 prints {log.rate:.1f} tok/s at {100 * log.acceptance:.1f} % "
        f"accepted, with {log.failed} of {log.asked} verifications failed; Table 5 prints 63.4 tok/s at 2.6 %."
    )


def _audited() -> str:
    return f"`specmeter audit --published moe-306` rules the document's own {from_claims.tally('moe-306')}."


def prompts_timed() -> tuple[int, int]:
    """(rows of suite F with drafts that print how long the prompt took, rows of suite F with drafts)."""
    drafted = [row for row in rows("moe306_runs.csv") if row["job_id"].startswith("F_sd_")]
    return sum(bool(row["prompt_eval_ms"]) for row in drafted), len(drafted)


Runs = Sequence[tuple[Row, "Ruling"]]


def _names(row: Row) -> from_claims.Names:
    suite = row["job_id"][0]
    drafted = row["draft_model"] != "none"
    gamma = int(row["draft_len"]) if drafted else None
    return {
        "config": _config(suite, row["target_model"], row["draft_model"], gamma),
        "target": row["target_model"],
        "draft": row["draft_model"] if drafted else None,
        "method": "draft-simple" if drafted else "none",
        "gamma": gamma,
    }


def _config(suite: str, target: str, draft: str, gamma: int | None) -> str:
    if suite == "F":
        return f"{target}/lengths" if gamma is None else f"{target}/lengths-g{gamma}"
    return f"{target}/none" if gamma is None else f"{target}/draft-simple/{draft}/g{gamma}"


def _result(row: Row, ruling: Ruling, suspect: frozenset[str]) -> Result:
    unnamed = "random tokens" if row["prompt_key"] == "bench" else f"length-{row['n_prompt']}"
    names = _names(row)
    names["prompt"] = _KINDS.get(row["prompt_key"], unnamed)
    names["prompt_tokens"] = int(row["n_prompt"])
    names["repeat"] = _repeat(row)
    names["max_tokens"] = int(row["n_predict"])
    made = from_claims.result(ruling, **names)
    if row["job_id"] in suspect and made.verdict is None:
        return made.model_copy(update={"verdict": "suspect", "why": _ALL_ACCEPTED})
    return made


def _all_accepted(runs: Runs) -> frozenset[str]:
    """Speculative runs of suite F, if each of them says that everything was accepted."""
    drafted = [row for row, _ in runs if row["job_id"].startswith("F_") and row["draft_model"] != "none"]
    if any(float(row["draft_acceptance_rate"]) < 1 for row in drafted):
        return frozenset()
    return frozenset(row["job_id"] for row in drafted)


# --- lines -----------------------------------------------------------------------------------------------------------


def _table_lines(runs: Runs) -> Iterator[ArmResult]:
    """Rows of Tables 4 and 5."""
    grouped = _grouped(runs, lambda row: "" if row["job_id"].startswith("F_") else _key(row))
    rulings = from_claims.rulings("moe-306", "moe-306/tables.csv")
    for row, ruling in zip(rows("moe306_tables.csv"), rulings, strict=True):
        gamma = int(row["gamma"]) if row["gamma"] else None
        draft = row["draft"]
        measured = grouped[f"{row['target']} {draft} {row['gamma'] or 0}"]
        line = from_claims.arm(
            ruling,
            config=_config("", row["target"], draft, gamma),
            target=row["target"],
            draft=draft if gamma else None,
            suite=_suite(row["target"], gamma),
            requests=len(measured),
        )
        yield line.model_copy(update=_measured(measured))


def _swept_lines(runs: Runs, suspect: frozenset[str]) -> Iterator[ArmResult]:
    """Suite F over all lengths."""
    of_suite = [(row, ruling) for row, ruling in runs if row["job_id"].startswith("F_")]
    for group in _grouped(of_suite, _key).values():
        yield _line(group, of_suite, suspect, suite="F")


def _length_lines(runs: Runs, suspect: frozenset[str]) -> Iterator[ArmResult]:
    """Suite F by length."""
    of_suite = [(row, ruling) for row, ruling in runs if row["job_id"].startswith("F_")]
    for group in _grouped(of_suite, lambda row: f"{_key(row)} {row['n_prompt']}").values():
        length = int(group[0][0]["n_prompt"])
        same = [(row, ruling) for row, ruling in of_suite if int(row["n_prompt"]) == length]
        yield _line(group, same, suspect, suite="F").model_copy(update={"prompt_tokens": length})


def _kind_lines(runs: Runs) -> Iterator[ArmResult]:
    """Suites B and D by prompt; the baseline is that of the paper: other prompts, another program."""
    baselines = _grouped([item for item in runs if item[0]["prompt_key"] == "bench"], lambda row: row["target_model"])
    drafted = [item for item in runs if item[0]["job_id"][0] in "BD"]
    for group in _grouped(drafted, lambda row: f"{_key(row)} {row['prompt_key']}").values():
        row = group[0][0]
        line = _line(group, (), frozenset(), suite=row["job_id"][0])
        base = fmean(float(other["tokens_per_sec"]) for other, _ in baselines[row["target_model"]])
        claimed = fmean(float(other["tokens_per_sec"]) for other, _ in group) / base
        yield line.model_copy(update={"prompt": _KINDS[row["prompt_key"]], "claimed_speedup": claimed})


def _line(group: Runs, same: Runs, suspect: frozenset[str], *, suite: str) -> ArmResult:
    """A line made from rows, with its speedup over the plain rows among `same`, unless a row breaks a bound."""
    row = group[0][0]
    broken = min((ruling for _, ruling in group if ruling.broken), key=_worst, default=None)
    if broken is not None:
        verdict, why = from_claims.verdict_of(broken)
    elif row["job_id"] in suspect:
        verdict, why = "suspect", _ALL_ACCEPTED
    else:
        verdict, why = None, ""
    fields = {"suite": suite, "requests": len(group), "verdict": verdict, "why": why}
    line = ArmResult.model_validate({**_names(row), **fields})
    line = line.model_copy(update=_measured(group))
    plain = [item for item in same if item[0]["draft_model"] == "none"]
    if not line.speculates or not plain or broken is not None:
        return line
    ours, theirs = _by_repeat(group), _by_repeat(plain)
    pairs = [(Pool(ours[repeat], 1000.0), Pool(theirs[repeat], 1000.0)) for repeat in sorted(ours) if repeat in theirs]
    return line.model_copy(update={"speedup": geometric_speedup(pairs)})


def _worst(ruling: Ruling) -> int:
    return VERDICTS.index(ruling.verdict)


def _measured(group: Runs) -> dict[str, Estimate | None]:
    """Rate over repeats; acceptance over prompts, since greedy text repeats itself."""
    by_repeat = list(_by_repeat(group).values())
    shares: defaultdict[str, list[float]] = defaultdict(list)
    for row, _ in group:
        if row["draft_acceptance_rate"]:
            shares[f"{row['prompt_key']} {row['n_prompt']}"].append(float(row["draft_acceptance_rate"]))
    by_prompt = [fmean(values) for values in shares.values()]
    return {
        "decode_rate": _mean(by_repeat, "tok/s", "mean of runs; Student t over repeats"),
        "acceptance": _mean(by_prompt, "1", "mean of runs; Student t over prompts") if by_prompt else None,
    }


def _mean(values: Sequence[float], unit: str, method: str) -> Estimate:
    """No interval where values are one or all alike: copies tell nothing about the next one."""
    if len(values) < 2 or max(values) - min(values) <= 1e-9 * max(values):
        return Estimate(point=fmean(values), n=len(values), unit=unit, method=f"{method}; no interval, no variation")
    mean, low, high = (float(value) for value in t_interval(np.asarray(values)))
    return Estimate(point=mean, low=max(0.0, low), high=high, n=len(values), unit=unit, method=method)


def _by_repeat(group: Runs) -> Mapping[int, float]:
    """Repeat -> mean rate of its rows."""
    found: defaultdict[int, list[float]] = defaultdict(list)
    for row, _ in group:
        found[_repeat(row)].append(float(row["tokens_per_sec"]))
    return {repeat: fmean(values) for repeat, values in found.items()}


def _grouped(runs: Runs, key: Callable[[Row], str]) -> dict[str, list[tuple[Row, Ruling]]]:
    found: defaultdict[str, list[tuple[Row, Ruling]]] = defaultdict(list)
    for row, ruling in runs:
        found[key(row)].append((row, ruling))
    return found


def _repeat(row: Row) -> int:
    """From the end of the row's name: `..._r2`."""
    return int(row["job_id"].rpartition("_r")[2])


def _key(row: Row) -> str:
    return f"{row['target_model']} {row['draft_model']} {row['draft_len']}"


def _suite(target: str, gamma: int | None) -> str:
    if target.startswith("moe"):
        return "B" if gamma else "A"
    return "D" if gamma else "C"


# --- models ----------------------------------------------------------------------------------------------------------


def _sizes() -> dict[str, tuple[float | None, float | None]]:
    """Target -> (bytes of its file, bytes that one token reads), as the audit has them from the paper."""
    table = zip(rows("moe306_tables.csv"), from_claims.rulings("moe-306", "moe-306/tables.csv"), strict=True)
    return {row["target"]: (ruling.claim.size_bytes, ruling.claim.bytes_per_token) for row, ruling in table}


def _model(
    name: str,
    reference: str,
    quantization: str,
    total: float,
    active: float,
    sizes: Mapping[str, tuple[float | None, float | None]],
) -> ModelUsed:
    mixture = active < total
    size, one = sizes.get(name, (None, None))
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

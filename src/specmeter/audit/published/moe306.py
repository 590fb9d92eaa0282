"""306 runs of Qwen3.5-35B-A3B and dense siblings on one M2 Ultra: speculation said to gain at under 4 % acceptance.

Rows of the runs say no counts, but these can be recovered exactly. A run of `llama-speculative` prints its decode time
in whole milliseconds and its acceptance to five digits; the data hold that time divided by the tokens. So the number
of tokens is the one that makes the time a whole number of milliseconds, and accepted tokens A follow from

    A / (gamma R) = acceptance,    n = R + A + 1        (each of R rounds drafts gamma tokens and emits A / R + 1)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from specmeter.audit.claim import Claim
from specmeter.audit.published.table import Row, half_digit, rows

_DEVICE: dict[str, Any] = {"device": "M2 Ultra", "bandwidth_bytes_per_s": 800e9}


@dataclass(frozen=True)
class _Model:
    """A model as the paper describes it."""

    name: str
    parameters: float
    """In units of 1e9, to one decimal."""
    bytes_each: float
    """BF16: 2; Q8_0: 34 bytes per 32 weights."""
    file_bytes: tuple[float, float] | None = None
    """(size, half a unit of its last digit), where the paper names it."""
    experts: int = 0
    active: float | None = None
    """Parameters that a token uses, where not all."""

    def fields(self) -> dict[str, Any]:
        """Size and bytes per token, with how far they may be off."""
        size, error = self.file_bytes or (self.parameters * self.bytes_each * 1e9, 0.05 * self.bytes_each * 1e9)
        fields: dict[str, Any] = {"size_bytes": size, "experts": self.experts, "rounding": {"size_bytes": error}}
        if self.active is not None:
            share = self.active / self.parameters
            fields["bytes_per_token"] = size * share
            fields["rounding"]["bytes_per_token"] = error * share + size * 0.05 / self.parameters
        return fields


_Q8_0 = 34 / 32
_MODELS = {
    "dense_0.8b": _Model("Dense 0.8B", 0.8, 2),
    "dense_2b": _Model("Dense 2B", 2.0, _Q8_0),
    "dense_4b": _Model("Dense 4B", 4.0, _Q8_0),
    "dense_9b": _Model("Dense 9B", 9.0, 2),
    "moe_q4": _Model("MoE Q4", 35.0, 0, (20.6e9, 0.05e9), experts=256, active=3.0),
    "moe_q8": _Model("MoE Q8", 35.0, 0, (38.7e9, 0.05e9), experts=256, active=3.0),
}
_DRAFTS = {"draft_0.8b": ("dense_0.8b", "0.8B draft"), "draft_2b": ("dense_2b", "2B draft")}


def claims() -> Iterator[Claim]:
    """Tables of the paper, its section 5.2, the summary and all runs."""
    yield from _tables()
    yield from _section_5_2()
    yield from _summary()
    yield from _runs()


def _tables() -> Iterator[Claim]:
    table = rows("moe306_tables.csv")
    baselines = {row["target"]: row["tok_s"] for row in table if row["draft"] == "none"}
    number: dict[str, int] = {}
    for row in table:
        place = row["place"]
        number[place] = number.get(place, 0) + 1
        values = _common(row["target"], row["draft"], row["gamma"])
        values["rounding"] |= {"decode_rate": half_digit(row["tok_s"])}
        if row["draft"] != "none":
            baseline, draft = baselines[row["target"]], baselines[_DRAFTS[row["draft"]][0]]
            values |= {
                "speedup": float(row["speedup"]),
                "acceptance": float(row["acceptance_percent"]) / 100,
                "baseline_rate": float(baseline),
                "draft_rate": float(draft),
            }
            values["rounding"] |= {
                "speedup": half_digit(row["speedup"]),
                "acceptance": half_digit(row["acceptance_percent"], 0.01),
                "baseline_rate": half_digit(baseline),
                "draft_rate": half_digit(draft),
            }
        where = f"{place}, row {number[place]}"
        yield Claim(source="moe-306/tables.csv", row=where, decode_rate=float(row["tok_s"]), **values)


def _section_5_2() -> Iterator[Claim]:
    """The paper's own reckoning of memory traffic and rounds, in running text."""
    values = _common("moe_q4", "none", "")
    values["rounding"] |= {"claimed_bandwidth_bytes_per_s": 0.5e9, "decode_rate": 0.05}
    yield Claim(
        source="moe-306/paper",
        row="section 5.2, baseline",
        decode_rate=55.3,
        claimed_bandwidth_bytes_per_s=1138e9,
        **values,
    )
    values = _common("moe_q4", "draft_0.8b", "16")
    values["rounding"] |= {"decode_rate": 0.05, "baseline_rate": 0.05, "predicted_ms": 5.0}
    values["notes"] = (
        "about 16 verification rounds for 256 tokens, most drafts rejected; 0.2 % of 16 x 16 drafts is half a token, "
        "taken as one",
    )
    yield Claim(
        source="moe-306/paper",
        row="section 5.2, gamma 16",
        decode_rate=69.7,
        baseline_rate=55.3,
        runs=1,
        predicted_n=256,
        predicted_ms=3670.0,
        steps=16,
        target_forwards=16,
        drafted=256,
        accepted=1,
        **values,
    )


def _summary() -> Iterator[Claim]:
    table = rows("moe306_summary.csv")
    rates = {row["target_model"]: float(row["mean_tps"]) for row in table if row["draft_model"] == "none"}
    for number, row in enumerate(table, start=1):
        values = _common(row["target_model"], row["draft_model"], row["draft_len"])
        if row["draft_model"] != "none":
            values |= {
                "speedup": float(row["mean_speedup"]),
                "acceptance": float(row["mean_acceptance"]),
                "baseline_rate": rates[row["target_model"]],
                "draft_rate": rates[_DRAFTS[row["draft_model"]][0]],
            }
        runs = int(row["n_runs"])
        values["notes"] = (f"mean of {runs} runs, standard deviation {float(row['std_tps']):.2f} tok/s",)
        rate = float(row["mean_tps"])
        yield Claim(
            source="moe-306/summary.csv", row=f"summary, line {number + 1}", decode_rate=rate, runs=runs, **values
        )


def _runs() -> Iterator[Claim]:
    table = rows("moe306_runs.csv")
    rates = {
        target: fmean(_rate(row) for row in table if row["target_model"] == target and row["prompt_key"] == "bench")
        for target in _MODELS
    }
    swept = {
        length: fmean(_rate(row) for row in table if row["job_id"].startswith(f"F_base_np{length}_"))
        for length in {row["n_prompt"] for row in table if row["job_id"].startswith("F_base")}
    }
    for row in table:
        values = _common(row["target_model"], row["draft_model"], row["draft_len"])
        values["label"] += f", {row['prompt_key']}"
        values["rounding"] |= {"decode_rate": half_digit(row["tokens_per_sec"])}
        if row["draft_model"] == "none":
            prompt_ms = float(row["prompt_eval_ms"])
            values |= {"prompt_n": int(row["n_prompt"]), "prompt_ms": prompt_ms}
        else:
            values |= _speculative(row, values["rounding"])
            values["draft_rate"] = rates[_DRAFTS[row["draft_model"]][0]]
            values["baseline_rate"] = (
                swept[row["n_prompt"]] if row["job_id"].startswith("F_") else rates[row["target_model"]]
            )
        yield Claim(source="moe-306/runs.csv", row=row["job_id"], decode_rate=_rate(row), runs=1, **values)


def _rate(row: Row) -> float:
    return float(row["tokens_per_sec"])


def _speculative(row: Row, rounding: dict[str, float]) -> dict[str, Any]:
    """Acceptance as printed, and the counts that it and the time determine."""
    gamma, printed = int(row["draft_len"]), row["draft_acceptance_rate"]
    acceptance, ms_each = float(printed), float(row["eval_ms_per_token"])
    rounding["acceptance"] = 0.5e-5
    values: dict[str, Any] = {"acceptance": acceptance, "window": "all tokens"}
    tokens = _whole_ms(ms_each, int(row["n_predict"]), gamma)
    if tokens is None:
        return values
    # A / (gamma (n - 1 - A)) = acceptance, solved for A.
    accepted = round(acceptance * gamma * (tokens - 1) / (1 + acceptance * gamma))
    rounds = tokens - 1 - accepted
    if abs(accepted / (gamma * rounds) - acceptance) > 1.5e-5:
        return values
    rounding["predicted_ms"] = 0.5
    return values | {
        "predicted_n": tokens,
        "predicted_ms": float(round(tokens * ms_each)),
        "steps": rounds,
        "drafted": gamma * rounds,
        "accepted": accepted,
        "notes": ("tokens, rounds and accepted tokens are recovered from the time per token and the acceptance",),
    }


def _whole_ms(ms_each: float, limit: int, gamma: int) -> int | None:
    """Tokens that make the decode time a whole number of milliseconds; None where several do, or none.

    A run stops at the first round that takes it beyond `limit`.
    """
    found = [n for n in range(limit + 1, limit + gamma + 2) if abs(n * ms_each - round(n * ms_each)) < 1e-6]
    return found[0] if len(found) == 1 else None


def _common(target: str, draft: str, gamma: str) -> dict[str, Any]:
    model = _MODELS[target]
    if draft == "none":
        return {"label": model.name, "method": "none", **_DEVICE, **model.fields()}
    label = f"{model.name}, {_DRAFTS[draft][1]}, gamma {gamma}"
    return {"label": label, "method": "draft-simple", "gamma": int(gamma), **_DEVICE, **model.fields()}

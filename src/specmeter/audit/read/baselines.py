"""Rows of a table find their baseline in the same table: the row without speculation that is otherwise like them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from specmeter.audit.claim import Claim
from specmeter.audit.read.chinese import in_english
from specmeter.audit.read.columns import CONDITIONS, OTHER

_PLAIN = re.compile(
    r"none|no|off|disabled|base|baselines?(?: (?:ar|decoding|\d+|rerun|run \d+))?|reference|plain(?: decoding)?"
    r"|vanilla(?: ar| decoding| autoregressive)?|target only|only target|original"
    r"|ar|auto ?regressive(?: decoding)?|nosd|nospec"
    r"|(?:n a )?(?:no|without|wihtout|non) (?:sd|spec\w*|drafts?|mtp|eagle ?\d?|speculative decoding|drafting)"
    r"|(?:spec|speculation|speculative decoding|sd|mtp|eagle ?\d?|drafts?|drafting) (?:off|disabled)"
)
"""What a method, draft or label is called where nothing is drafted."""

_ALIKE = ("target", "quant", "device", "engine", "group")
"""A baseline that differs in one of these is the baseline of something else."""


def is_plain(text: str) -> bool:
    """Whether a method, draft or label says that nothing is drafted."""
    text = re.sub(r"\([^()]*\)", " ", in_english(text[:160].lower()))
    text = re.sub(r"\bw/o\b", "without", text)
    last = text.rpartition("/")[2]  # `target/none`: an arm of a run
    return any(_PLAIN.fullmatch(" ".join(re.findall(r"[a-z0-9]+", part))) for part in (text, last))


@dataclass
class ClaimRow:
    """A claim with the texts of its row, by column."""

    claim: Claim
    texts: dict[str, str] = field(default_factory=dict[str, str])
    length: float | None = None
    """The printed acceptance length, where nothing says yet whether it counts the target's own token."""


def pair_with_baselines(rows: Sequence[ClaimRow]) -> None:
    """Give rows the rate of their baseline, and of their draft where the table has it as a target of its own.

    Where several baselines fit (repeats, prompts), their mean is taken, and the rounding covers them all.
    """
    plain = [row for row in rows if row.claim.method == "none" and row.claim.decode_rate is not None]
    by_label: dict[str, list[ClaimRow]] = {}
    for row in rows:
        if row.claim.decode_rate is not None and row.claim.label:
            by_label.setdefault(row.claim.label.lower(), []).append(row)
    groups: dict[tuple[object, ...], list[ClaimRow]] = {}
    targets: dict[tuple[str, str], list[ClaimRow]] = {}
    for row in plain:
        groups.setdefault(_key(row), []).append(row)
        if row.texts.get("target"):
            targets.setdefault((row.texts["target"].lower(), row.texts.get("device", "").lower()), []).append(row)
    parts: Parts = {}
    means: dict[int, _Mean] = {}
    """By the identity of the list: thousands of rows may share one."""

    def mean(found: list[ClaimRow]) -> _Mean:
        if id(found) not in means:
            means[id(found)] = _together(found)
        return means[id(found)]

    for row in rows:
        if row.claim.method == "none" or row.claim.problem is not None:
            continue
        update: dict[str, object] = {}
        rounding = dict(row.claim.rounding)
        notes = list(row.claim.notes)
        if row.claim.baseline_rate is None:
            reference = row.texts.get("reference", "").lower()
            group = groups.get(_key(row), [])
            found = by_label.get(reference, []) if reference else _nearest(row, group, parts)
            if found:
                update, rounding["baseline_rate"] = _baseline(row, found, mean(found))
                if len(found) > 1:
                    notes.append(f"baseline: mean of {len(found)} rows")
        draft = row.texts.get("draft", "").lower()
        if row.claim.draft_rate is None and draft:
            found = targets.get((draft, row.texts.get("device", "").lower()), [])
            if found:
                update["draft_rate"], rounding["draft_rate"] = mean(found).rate, mean(found).half
        if update:
            row.claim = row.claim.model_copy(update={**update, "rounding": rounding, "notes": tuple(notes)})


def _key(row: ClaimRow) -> tuple[object, ...]:
    return (*(row.texts.get(name, "").lower() for name in _ALIKE), row.claim.concurrency)


Parts = dict[tuple[int, str], dict[str | None, list[ClaimRow]]]
"""(identity of a list of rows, name of a text) -> the rows of that list by this text, each made once."""


def _nearest(row: ClaimRow, baselines: list[ClaimRow], parts: Parts) -> list[ClaimRow]:
    """Those measured under the same conditions, as far as any of them was."""
    for name in (*CONDITIONS, *(name for name in row.texts if name.startswith(OTHER))):
        if name in row.texts and baselines:
            if (id(baselines), name) not in parts:
                by_text = parts[id(baselines), name] = {}
                for baseline in baselines:
                    by_text.setdefault(baseline.texts.get(name), []).append(baseline)
            baselines = parts[id(baselines), name].get(row.texts[name]) or baselines
    return baselines


@dataclass(frozen=True)
class _Mean:
    """Of the rates of some rows."""

    rate: float
    half: float
    """How far from it any of them may lie, rounding included."""
    sd: float | None


def _baseline(row: ClaimRow, found: list[ClaimRow], mean: _Mean) -> tuple[dict[str, object], float]:
    """(fields about the baseline, half of its rounding)."""
    update: dict[str, object] = {
        "baseline_rate": mean.rate,
        "baseline_from": found[0].claim.row if len(found) == 1 else f"mean of {len(found)} rows",
    }
    if mean.sd is not None:
        update["baseline_rate_sd"] = mean.sd
    elif found[0].claim.decode_rate_sd is not None:
        update["baseline_rate_sd"] = found[0].claim.decode_rate_sd
    device = found[0].claim.device
    if device and row.claim.device and device.lower() != row.claim.device.lower():
        update["baseline_device"] = device
    return update, mean.half


def _together(rows: list[ClaimRow]) -> _Mean:
    rates = [row.claim.decode_rate or 0.0 for row in rows]
    mean = fmean(rates)
    halves = [row.claim.rounding.get("decode_rate", 0.0) for row in rows]
    half = max(abs(rate - mean) + half for rate, half in zip(rates, halves, strict=True))
    return _Mean(mean, half, stdev(rates) if len(rates) > 1 else None)

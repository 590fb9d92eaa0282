"""Rows of a table find their baseline in the same table: the row without speculation that is otherwise like them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specmeter.audit.claim import Claim
from specmeter.importers.columns import CONDITIONS

BASELINE_WORDS = frozenset(
    {"none", "no", "off", "baseline", "base", "reference", "vanilla", "plain", "autoregressive", "ar", "no sd", "no-sd",
     "nosd", "no speculation", "no speculative decoding", "without sd", "without speculation", "no draft"}
)  # fmt: skip
"""What a method, draft or label is called where nothing is drafted."""

_ALIKE = ("target", "device", "engine")
"""A baseline that differs in one of these is the baseline of something else."""


@dataclass
class Row:
    """A claim with the texts of its row, by column."""

    claim: Claim
    texts: dict[str, str] = field(default_factory=dict[str, str])


def pair_with_baselines(rows: Sequence[Row]) -> None:
    """Give rows the rate of their baseline, and of their draft where the table has it as a target of its own.

    Where several baselines fit (repeats, prompts), their mean is taken, and the rounding covers them all.
    """
    plain = [row for row in rows if row.claim.method == "none" and row.claim.decode_rate is not None]
    by_label: dict[str, list[Row]] = {}
    for row in rows:
        if row.claim.decode_rate is not None and row.claim.label:
            by_label.setdefault(row.claim.label.lower(), []).append(row)
    groups: dict[tuple[object, ...], list[Row]] = {}
    targets: dict[tuple[str, str], list[Row]] = {}
    for row in plain:
        groups.setdefault(_key(row), []).append(row)
        if row.texts.get("target"):
            targets.setdefault((row.texts["target"].lower(), row.texts.get("device", "").lower()), []).append(row)
    for row in rows:
        if row.claim.method == "none" or row.claim.problem is not None:
            continue
        update: dict[str, object] = {}
        rounding = dict(row.claim.rounding)
        notes = list(row.claim.notes)
        if row.claim.baseline_rate is None:
            reference = row.texts.get("reference", "").lower()
            found = by_label.get(reference, []) if reference else _nearest(row, groups.get(_key(row), []))
            if found:
                update["baseline_rate"], rounding["baseline_rate"] = _together(found)
                if len(found) > 1:
                    notes.append(f"baseline: mean of {len(found)} rows")
        draft = row.texts.get("draft", "").lower()
        if row.claim.draft_rate is None and draft:
            found = targets.get((draft, row.texts.get("device", "").lower()), [])
            if found:
                update["draft_rate"], rounding["draft_rate"] = _together(found)
        if update:
            row.claim = row.claim.model_copy(update={**update, "rounding": rounding, "notes": tuple(notes)})


def _key(row: Row) -> tuple[object, ...]:
    return (*(row.texts.get(name, "").lower() for name in _ALIKE), row.claim.concurrency)


def _nearest(row: Row, baselines: list[Row]) -> list[Row]:
    """Those measured under the same conditions, as far as any of them was."""
    for name in CONDITIONS:
        if name in row.texts:
            same = [baseline for baseline in baselines if baseline.texts.get(name) == row.texts[name]]
            baselines = same or baselines
    return baselines


def _together(rows: list[Row]) -> tuple[float, float]:
    """Mean rate, and how far from it any of them may lie."""
    rates = [row.claim.decode_rate or 0.0 for row in rows]
    mean = sum(rates) / len(rates)
    halves = [row.claim.rounding.get("decode_rate", 0.0) for row in rows]
    return mean, max(abs(rate - mean) + half for rate, half in zip(rates, halves, strict=True))

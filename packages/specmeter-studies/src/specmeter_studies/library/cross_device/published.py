"""What the Apple document printed about drafts on other machines, twice: first with drafts that ran at home."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from specmeter.audit import published as tables
from specmeter.messages import Message
from specmeter_studies.from_claims import counted_tau, mean_line, printed_rate, result, rulings, tally
from specmeter_studies.library.cross_device.costs import WITHDRAWN
from specmeter_studies.study import ArmResult, DraftPlace, ModelUsed, StudyData

if TYPE_CHECKING:
    from specmeter.audit.claim import Ruling
    from specmeter_studies.study import PromptResult

TARGET, DRAFT = "9B_Q8", "0.8B_Q8"
BASELINE = f"{TARGET}/none"

_AGAIN, _FIRST, _BENCH, _LOGS = "apple/cross_again.csv", "apple/cross_first.csv", "apple/bench.csv", "apple/logs.csv"
_NAMES = {"local": "local", "103_M1Max": "M1 Max", "104_M2Pro": "M2 Pro"}
_ALONE = {"M1 Max": 86.62, "M2 Pro": 62.94}
"""The draft on its own on the machines, as printed [tok/s]."""
_NOT_REACHED = "Failed to connect"
_VOCABULARY = 248_320
"""Tokens of both models, as the raw log lists them."""

Runs = dict[str, list[tuple["PromptResult", "Ruling"]]]
"""Configuration -> its runs."""


def published() -> StudyData:
    """Nine runs that the document stands by, and the seven it withdrew."""
    again, first = _by_config(_AGAIN, ""), _by_config(_FIRST, " (first)")
    alone = next(claim for claim in tables.table(_BENCH) if claim.target == TARGET and claim.decode_rate is not None)
    return StudyData(
        study="cross-device",
        origin="published",
        title=Message("apple.published"),
        results=tuple(row for rows in (*again.values(), *first.values()) for row, _ in rows),
        arms=(
            ArmResult(config=BASELINE, target=TARGET, requests=alone.runs or 1, decode_rate=printed_rate(alone)),
            *(_line(rows) for rows in again.values()),
            *(_line(rows).model_copy(update={"suite": WITHDRAWN}) for rows in first.values()),
        ),
        models=(
            ModelUsed(name=TARGET, reference="Qwen3.5-9B-UD-Q8_K_XL", experts=0),
            ModelUsed(name=DRAFT, reference="Qwen3.5-0.8B-UD-Q8_K_XL", experts=0),
        ),
        places=(
            *(_place(config, rows) for config, rows in again.items()),
            *(_place(config, rows, stayed=True) for config, rows in first.items()),
        ),
        machine=Message("cross-device.machines"),
        bandwidth_bytes_per_s=800e9,
        notes=(
            Message("cross-device.runs"),
            Message("cross-device.log"),
            Message("cross-device.audited", tally=tally("apple", _AGAIN, _FIRST)),
        ),
    )


def _by_config(source: str, suffix: str) -> Runs:
    found: Runs = {}
    for ruling in rulings("apple", source):
        config = f"{TARGET}/{_NAMES[ruling.claim.conditions['rpc_backend']]}{suffix}"
        row = result(ruling, config=config)
        if (tau := counted_tau(ruling.claim)) is not None:
            row = row.model_copy(update={"tau": tau})
        found.setdefault(config, []).append((row, ruling))
    return found


def _line(rows: Sequence[tuple[PromptResult, Ruling]]) -> ArmResult:
    """The mean over prompts that the page prints, over the baseline that it takes."""
    baseline = next((ruling.claim.baseline_rate for _, ruling in rows if ruling.claim.baseline_rate), None)
    return mean_line([row for row, _ in rows], baseline)


def _place(config: str, rows: Sequence[tuple[PromptResult, Ruling]], *, stayed: bool = False) -> DraftPlace:
    name = config.rpartition("/")[2].partition(" (")[0]
    if name == "local":
        return DraftPlace(config=config, vocabulary=_VOCABULARY)
    rate = next((ruling.claim.draft_rate for _, ruling in rows if ruling.claim.draft_rate), None)
    return DraftPlace(
        config=config,
        machine=name,
        held_by=tuple(_told_by_logs(name)) if stayed else (),
        block_ms=(1000 / rate,) if rate and not stayed else (),
        alone_rate=None if stayed else _ALONE[name],
        vocabulary=_VOCABULARY,
    )


def _told_by_logs(name: str) -> Iterator[str]:
    """What raw logs say of the place of a draft that was asked onto a machine."""
    asked = next(place for place, machine in _NAMES.items() if machine == name)
    for log in tables.table(_LOGS):
        if log.row.startswith(f"crossdevice_{asked}_{DRAFT}_"):
            yield from (note for note in map(str, log.notes) if note.startswith(_NOT_REACHED))

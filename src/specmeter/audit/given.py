"""What a user says on the command line about a foreign result, read like the numbers of its tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specmeter.audit.read import numbers
from specmeter.audit.read.numbers import BYTES, RATES
from specmeter.errors import UsageError

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim

_SPEEDS = {"": 1e9, **{f"{unit}/s": factor for unit, factor in BYTES.items()}}
"""A bandwidth without a unit is in GB/s, as data sheets have it."""


@dataclass(frozen=True)
class Given:
    """What the user says about rows that do not say it themselves; field of a claim -> value."""

    values: dict[str, float | int | str] = field(default_factory=dict[str, float | int | str])
    rounding: dict[str, float] = field(default_factory=dict[str, float])

    def complete(self, claim: Claim) -> Claim:
        """The claim with what it lacked. A baseline is given nothing about drafting."""
        if claim.problem is not None:
            return claim
        plain = claim.method == "none"
        missing = {
            name: value
            for name, value in self.values.items()
            if getattr(claim, name) is None and not (plain and name in _OF_DRAFTING)
        }
        if not missing:
            return claim
        rounding = claim.rounding | {name: half for name, half in self.rounding.items() if name in missing}
        update: dict[str, object] = {**missing, "rounding": rounding}
        if "baseline_rate" in missing:
            update["baseline_from"] = "--baseline-rate"
        return claim.model_copy(update=update)


_OF_DRAFTING = frozenset({"baseline_rate", "draft_rate", "gamma", "cheapest_forward"})


def from_options(
    *,
    baseline_rate: str | None = None,
    draft_rate: str | None = None,
    gamma: int | None = None,
    device: str | None = None,
    bandwidth: str | None = None,
    bytes_per_token: str | None = None,
    cheapest_forward: float | None = None,
) -> Given:
    """What was given. Raises `UsageError` naming the option for a number that is none, or has the wrong unit."""
    given = Given()
    for name, option, text, units in (
        ("baseline_rate", "--baseline-rate", baseline_rate, RATES),
        ("draft_rate", "--draft-rate", draft_rate, RATES),
        ("bandwidth_bytes_per_s", "--bandwidth", bandwidth, _SPEEDS),
        ("bytes_per_token", "--bytes-per-token", bytes_per_token, BYTES),
    ):
        if text is not None:
            given.values[name], given.rounding[name] = _quantity(option, text, units)
    if cheapest_forward is not None:
        if not 0 < cheapest_forward <= 1:  # nan passes through every comparison that refuses
            raise UsageError(
                f"--cheapest-forward {cheapest_forward:g} is not a number from 0 to 1", fix="give T(n) / T(1)"
            )
        given.values["cheapest_forward"] = cheapest_forward
    if gamma is not None:
        given.values["gamma"] = gamma
    if device is not None:
        _known_device(device)
        given.values["device"] = device
    return given


def noise_share(text: str | None) -> float | None:
    """Timing noise as a share, from percent; None where nothing is given, and the source itself says it.

    Raises `UsageError` for anything that is not between 0 and 50 %.
    """
    if text is None:
        return None
    value, _ = _quantity("--noise", text, {"": 0.01, "%": 0.01}, lowest=0.0)
    if value > 0.5:
        raise UsageError(f"--noise {text}: more than 50 %", fix="give the percentage by which repeated timings differ")
    return value


def _quantity(option: str, text: str, units: dict[str, float], lowest: float | None = None) -> tuple[float, float]:
    try:
        number = numbers.parse(text)
    except ValueError as error:
        raise UsageError(f"{option} {text[:60]!r} {error}", fix="give one number, with its unit if you like") from None
    if number is None or number.value < 0 or (lowest is None and number.value == 0):
        raise UsageError(f"{option} {text[:60]!r} is not above 0", fix="give the value that was measured")
    if number.unit not in units:
        known = ", ".join(unit or "none" for unit in units)
        said = f"has the unit {number.unit!r}" if number.unit else "has no unit"
        raise UsageError(f"{option} {text[:60]!r} {said}", fix=f"use one of these units: {known}")
    return number.value * units[number.unit], number.half * units[number.unit]


def _known_device(name: str) -> None:
    from specmeter.theory import catalogue

    if catalogue.peak(name) is not None:
        return
    import difflib

    names = [device.name for device in catalogue.devices()]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(
        f"--device {name[:60]!r} is not in the catalogue of devices",
        fix=f"{hint}give its peak memory bandwidth with --bandwidth instead",
    )

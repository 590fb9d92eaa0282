"""Percent or fraction, where a table does not say: the reading that does not accuse the table.

An acceptance of 0.59 may be 59 % or 0.59 %. As percent it permits far less, so every row that is false as a fraction
is false as percent. Where several rows would be false as percent alone, the column is fractions: one false row is an
error, a column of them is a misreading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from specmeter.audit.judge import judge

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim
    from specmeter.audit.noise import Noise

FALSE = frozenset({"impossible", "implausible"})
SEVERAL = 2
"""Rows, at least, that a wrong unit must make false."""


def settle(claims: Sequence[Claim], noise: Noise) -> list[Claim]:
    """The claims, those with an acceptance of unsaid unit settled where their table shows which it is."""
    unsaid = [claim for claim in claims if _is_open(claim)]
    as_fraction = sum(_is_false(claim, 1.0, noise) for claim in unsaid)
    as_percent = sum(_is_false(claim, 0.01, noise) for claim in unsaid)
    if as_percent - as_fraction < SEVERAL or 2 * as_fraction > as_percent:
        return list(claims)
    note = f"acceptance is read as a fraction: as percent, {as_percent} rows would be false"
    return [_settled(claim, note) if _is_open(claim) else claim for claim in claims]


def _is_open(claim: Claim) -> bool:
    """Whether it has an acceptance that may be in percent or a fraction."""
    return "acceptance" in claim.unit_unsaid and claim.acceptance is not None


def _is_false(claim: Claim, factor: float, noise: Noise) -> bool:
    share = {"acceptance": (claim.acceptance or 0.0) * factor}
    rounding = claim.rounding | {"acceptance": claim.rounding.get("acceptance", 0.0) * factor}
    return judge(_said(claim, share | {"rounding": rounding}), noise=noise.of(claim)).verdict in FALSE


def _settled(claim: Claim, note: str) -> Claim:
    return _said(claim, {"notes": (*claim.notes, note)})


def _said(claim: Claim, update: Mapping[str, object]) -> Claim:
    unsaid = tuple(name for name in claim.unit_unsaid if name != "acceptance")
    return claim.model_copy(update={**update, "unit_unsaid": unsaid})

"""Predictions of a speedup, with their uncertainty: from what steps cost (`costs`) and what they yield (`drafts`).

    S(gamma) = tau / (sum over d of P(a step drafts d tokens) x cost of such a step),   costs in plain tokens

Every input is a set of `DRAWS` seeded values, the first one its point; everything is computed for all of them, and the
interval holds 95 % of the results. docs/explanation/prediction.md says what is drawn.
"""

from __future__ import annotations

DRAWS = 2_000
"""Values per uncertain input; the first is the point, the others are drawn."""
LEVEL = 0.95
SEED = 1
LONGEST = 128
"""Longest draft that is predicted."""

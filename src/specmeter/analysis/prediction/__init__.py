"""Predictions of a speedup, with their uncertainty: from what steps cost (`costs`) and what they yield (`drafts`).

    S(gamma) = tau / (sum over d of P(a step drafts d tokens) x cost of such a step),   costs in plain tokens

It is an identity between means over steps (`theory.cost`) when yields and costs are those of the run itself, and a
prediction as far as they were known before: from a probe or from bytes, from other prompts or other arms.

Uncertainty is carried by drawing: every input is a set of `DRAWS` values (the first one is its point), everything is
computed for all of them, and the interval holds 95 % of the results. So no formula has to be linearised, a range of
acceptance may be as wide as it is, and inputs that belong together stay together. Draws are seeded: the same inputs
give the same interval on every machine.
"""

from __future__ import annotations

DRAWS = 2_000
"""Values per uncertain input; the first is the point, the others are drawn."""
LEVEL = 0.95
SEED = 1
LONGEST = 128
"""Longest draft that is predicted."""

"""hardware-comparison: the same models on several machines, and whether memory sets their pace.

    utilisation = rate x bytes of weights that one token reads / bandwidth

is the share of the time that reading the weights at full bandwidth would take. Where it is above one half, most of the
time goes into reading; where it is below, something else takes most of it, whatever that is. If memory alone set the
pace, rates would go with bandwidths from machine to machine, and every model on one machine would move as many bytes
per second as the others.
"""

from __future__ import annotations

from specmeter.studies import apple_published
from specmeter.studies.hardware.claims import claims
from specmeter.studies.hardware.published import published
from specmeter.studies.hardware.table import of_machines
from specmeter.studies.hardware.view import figures, tables

__all__ = ["PARTS", "SOURCE", "TITLE", "claims", "figures", "of_machines", "published", "tables"]

TITLE = "The same models on three Apple machines: rates, bandwidth utilisation, ratios"
SOURCE = apple_published.SOURCE
PARTS = ("hardware-comparison",)

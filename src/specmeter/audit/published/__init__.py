"""Claims of published studies of speculative decoding: every row of their tables and data.

Each published table is one CSV file in `data/`, read like any other table (`specmeter audit data/moe-306/tables.csv`
says the same); `data/SOURCES.md` tells where its numbers come from, and how those that are derived were.
"""

from specmeter.audit.published.tables import cells, claims, names, table

__all__ = ["cells", "claims", "names", "table"]

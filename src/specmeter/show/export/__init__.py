"""The tables of a run: one list of them, with typed and described columns, for Python, files and the documentation.

columns     what a column is; columns from the fields of records
tables      TABLES: every table, its columns, and where its rows are found in a run folder
formats     rows as CSV, JSON Lines, Parquet and Arrow
run_table   a table of one run: to be read, written, or turned into a data frame
"""

from __future__ import annotations

from typing import Literal

TableName = Literal[
    "requests",
    "sessions",
    "steps",
    "telemetry",
    "prompts",
    "findings",
    "energy",
    "margins",
    "predictions",
    "profiles",
    "positions",
    "accepted_lengths",
    "routing",
    "load",
    "sendings",
]
FormatName = Literal["csv", "jsonl", "parquet"]

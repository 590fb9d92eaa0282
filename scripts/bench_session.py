"""Writes the bundled session for bench models: an agent that keeps one table, in 20 turns with a tool.

    uv run python scripts/bench_session.py > src/specmeter/workloads/recordings/bench-agent.jsonl

Its tables and tasks are like those that the bench models were trained on (`training/`), so that they draft and accept
as real models do on edits. It is made, not recorded: lengths of answers are those of the tables.
"""

from __future__ import annotations

import json
import random
from typing import Any

TURNS = 20
PLACES = ("Westad", "Rimholm", "Holgate", "Branmere", "Cordale", "Eldwick", "Falmere", "Gilton", "Havburg", "Iskdale")
FIRMS = ("Nerve", "Luth", "Ene", "Brisk", "Rana", "Quill", "Lind", "Isar", "Arvo", "Orsa", "Kem", "Ushe")
GOODS = ("oil", "cloth", "rope", "tiles", "paper", "cheese", "wine", "pots", "salt", "wool", "knives")
PEOPLE = ("Berta", "Mira", "Vera", "Bruno", "David", "Walter", "Yann", "Hanna", "Carl", "Julia", "Otto", "Tilda")
TOOL = {
    "type": "function",
    "function": {
        "name": "write_table",
        "description": "Replace the table.",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    },
}


def main() -> None:
    chance = random.Random(7)
    table = [[place, chance.choice(FIRMS), chance.choice(GOODS), chance.choice(PEOPLE)] for place in PLACES]
    messages: list[dict[str, Any]] = [{"role": "system", "content": f"Table 1:\n{_shown(table)}"}]
    for number in range(2, TURNS + 2):
        row, column = chance.randrange(len(table)), chance.choice((1, 3))
        old, names = table[row][column], FIRMS if column == 1 else PEOPLE
        table[row][column] = chance.choice([it for it in names if it != old])
        task = f"Task: in {table[row][0]}, {old} becomes {table[row][column]}.\nTable {number}:\n"
        call = {"name": "write_table", "arguments": json.dumps({"number": number})}
        messages += [
            {"role": "user", "content": task},
            {
                "role": "assistant",
                "content": _shown(table),
                "tool_calls": [{"id": f"call-{number}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"call-{number}", "content": "written"},
        ]
    print(json.dumps({"id": "bench-agent", "tools": [TOOL], "messages": messages[:-1]}))


def _shown(table: list[list[str]]) -> str:
    return "\n".join(" ".join(row) for row in table)


main()

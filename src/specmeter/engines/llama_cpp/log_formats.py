"""The lines of llama.cpp's logs, from 2023 on, as regular expressions: the only place that knows their form.

What a request prints at its end, over the generations of the server:

    2023        llama_print_timings:        eval time = T ms / N runs         (one request at a time)
    2023-24     print_timings: generation eval time = T ms / N runs           with slot and task in JSON or `key=value`
    2024-26     slot print_timing: id S | task K |   and the times on lines of their own
    2026        the same on every line, with a stamp `minutes.seconds.ms.us`

and, where it drafted, `draft acceptance rate = a (A accepted / G generated)`, later `draft acceptance = a (...), mean
acceptance length = L` or `mean len = L`, with L = 1 + A / verified drafts. With LLAMA_TRACE each draft that was
verified prints `accepted a/n draft tokens`. Slots interleave; lines without slot or task belong to the request that
printed last.

All numbers and names are bounded, since logs are untrusted.
"""

from __future__ import annotations

import re

INT = r"(\d{1,12})"
NUMBER = r"(\d{1,12}(?:\.\d{1,9})?)"

# --- one request -----------------------------------------------------------------------------------------------------

STAMP = re.compile(r"(\d{1,9})\.(\d\d)\.(\d{3})\.(\d{3}) ")
"""Minutes, seconds, ms and us since the log began."""
SLOT_AND_TASK = re.compile(r"\bid +(-?\d{1,9}) \| task +(-?\d{1,12})")
TASK = re.compile(r"\| task +(-?\d{1,12}) \|")
BEGIN = re.compile(r"processing task")
END = re.compile(r"stop processing|slot released|released the slot")
PROMPT_TIME = re.compile(rf"prompt eval time += +{NUMBER} ms / +{INT} tokens")
DECODE_TIME = re.compile(
    rf"(?<!prompt )\beval time += +{NUMBER} ms / +{INT} (?:tokens|runs)"
    rf"(?: *\( *{NUMBER} ms per token, +{NUMBER} )?"
)
"""Its ms, its tokens, and where they are printed ms per token and tokens per second."""
ACCEPTANCE = re.compile(
    rf"draft acceptance(?: rate)? = +(?:{NUMBER}|\S{{1,20}}) \( *{INT} accepted / +{INT} generated\)"
)
"""The printed rate (none where nothing was drafted: `nan`), accepted and drafted tokens."""
STEP = re.compile(rf"accepted +{INT}/ *{INT} draft tokens( \(restore checkpoint\))?")
STATISTICS = re.compile(
    rf"statistics +([\w-]{{1,60}}): #calls\(b,g,a\) = +{INT} +{INT} +{INT}"
    rf"(?:.*dur\(b,g,a\) = *{NUMBER}, *{NUMBER}, *{NUMBER} ms)?"
)
"""A method's calls and ms to begin, to generate, to accept, since the server started."""

# --- loading ---------------------------------------------------------------------------------------------------------

METHOD = re.compile(r"adding speculative implementation '([\w-]{1,60})'")
PARAMETERS = re.compile(r": - (\w+=.{1,300})$")
PARAMETER = re.compile(r"(\w{1,40})=([^,\s]{1,300})")
BUILD = re.compile(r"\bbuild_info: *(\S.*)$|\bbuild(?:: | = | )(\d{1,9} \([^)]{0,80}\).*)$")


def loaded_model(line: str) -> str:
    """Path of the model file that a line says is being loaded; empty where it says none."""
    _, _, rest = line.partition("loaded meta data with ")
    return rest.partition(" from ")[2].partition(" (version ")[0]


def log_time_ms(line: str) -> float | None:
    """Milliseconds since the log began, by the stamp of a line; None where it has none."""
    stamp = STAMP.match(line)
    if stamp is None:
        return None
    minutes, seconds, ms, us = map(int, stamp.groups())
    return (minutes * 60 + seconds) * 1000.0 + ms + us / 1000.0

"""Spec-Bench (hemingkx/Spec-Bench, evaluation/speed.py and eval.py, fd2c1cd): what it prints, and its answer files.

Printed, per task and `overall`:

    ============================== Task:  mt_bench ==============================
    #Mean accepted tokens:  4.35
    Tokens per second:  84.2
    Tokens per second for the baseline:  38.1
    Speedup ratio:  2.21

or, over several runs, `Tokens per second: Mean result: 84.2, Std result: 0.4`. Its accepted tokens are those of a step
with the target's own (1 for plain decoding). Its rates are means over prompts of each prompt's rate, the time of the
prompt included, and its speedup is the ratio of these means; the baseline's tokens are counted by tokenizing its text
again.

Answer files (JSON Lines) have a line per question: `choices[0]` with `new_tokens` and `wall_time` (seconds) of each
turn, and `accept_lengths`, one per step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from specmeter.audit.claim import Claim, claim_of
from specmeter.audit.read import numbers
from specmeter.audit.read.document import read_objects, read_text, text
from specmeter.audit.read.log_lines import log_lines
from specmeter.audit.read.serving import claims_of

_MOST = 100_000
"""Steps of one answer."""
_TASK = re.compile(r"={3,80} {0,9}Task: {1,9}([\w .-]{1,60}?) {0,9}={3,80}")
_NUMBER = r"([0-9.eE+-]{1,30})"
_LINES = (
    ("tau", re.compile(rf"#Mean accepted tokens: *{_NUMBER}\s*$")),
    ("decode_rate", re.compile(rf"Tokens per second: *(?:Mean result: *)?{_NUMBER}(?:, Std result: *{_NUMBER})?\s*$")),
    (
        "baseline_rate",
        re.compile(
            rf"Tokens per second (?:for the baseline|\(baseline\)): *(?:Mean result: *)?{_NUMBER}"
            rf"(?:, Std result: *{_NUMBER})?\s*$"
        ),
    ),
    ("speedup", re.compile(rf"Speedup ratio: *(?:Mean result: *)?{_NUMBER}(?:, Std result: *{_NUMBER})?\s*$")),
)
_SPREADS = {"decode_rate": "decode_rate_sd", "baseline_rate": "baseline_rate_sd"}


def sniff(head: str) -> bool:
    """Its own words, or the keys of an answer file."""
    if head.lstrip("\ufeff \t\r\n").startswith("{"):
        keys = set(re.findall(r'"([a-z_]{3,40})"\s*:', head))
        return {"choices", "new_tokens", "wall_time", "accept_lengths"} <= keys
    return "#Mean accepted tokens" in head and re.search(r"^Speedup ratio:", head, re.M) is not None


def read(path: Path) -> Iterator[Claim]:
    """One claim per task, or per question. Raises `UsageError` for a file that cannot be read."""
    with_objects = next(log_lines(path), "").lstrip("\ufeff \t").startswith(("{", "["))
    if with_objects:
        return claims_of(read_objects(read_text(path), path), path, _answer)
    return _printed(path)


def _printed(path: Path) -> Iterator[Claim]:
    place, task = "line 1", ""
    values: dict[str, Any] = {}
    rounding: dict[str, float] = {}
    found = False
    for number, line in enumerate(log_lines(path), start=1):
        if "Task:" in line and (heading := _TASK.search(line)) is not None:
            if values:
                yield _task(path, place, task, values, rounding)
                found = True
            place, task, values, rounding = f"line {number}", heading.group(1), {}, {}
            continue
        for name, pattern in _LINES:
            if (match := pattern.search(line)) is not None:
                values[name], rounding[name] = _parse(match.group(1))
                if match.lastindex == 2 and name in _SPREADS:
                    values[_SPREADS[name]] = _parse(match.group(2))[0]
    if values or not found:
        yield _task(path, place, task, values, rounding)


def _parse(printed: str) -> tuple[float, float]:
    try:
        number = numbers.parse(printed)
    except ValueError:
        number = None
    return (0.0, 0.0) if number is None else (number.value, number.half)


def _task(path: Path, place: str, task: str, values: dict[str, Any], rounding: dict[str, float]) -> Claim:
    if "speedup" not in values and "decode_rate" not in values:
        return Claim(
            source=str(path), row=place, label=task, problem="a task without its numbers: the output is cut off"
        )
    conditions = {"task": task} if task else {}
    return claim_of(
        source=str(path),
        row=place,
        label=task,
        conditions=conditions,
        averaged=("speedup", "decode_rate", "baseline_rate"),
        pooled=("tau",),
        rounding=rounding,
        window="with prompt",
        **values,
    )


# --- answer files ----------------------------------------------------------------------------------------------------


def _answer(item: Mapping[str, object]) -> dict[str, Any]:
    choices = item.get("choices")
    listed = cast("list[object]", choices) if isinstance(choices, list) else []
    found_choices = [cast("dict[str, object]", one) for one in listed[:1] if isinstance(one, dict)]
    if not found_choices:
        raise ValueError("no `choices`: not an answer of Spec-Bench")
    choice = found_choices[0]
    tokens = sum(_numbers(choice, "new_tokens"))
    seconds = sum(_numbers(choice, "wall_time"))
    lengths = _numbers(choice, "accept_lengths")
    if tokens <= 0 or seconds <= 0:
        raise ValueError("no new tokens, or no time for them")
    category, question = text(item, "category"), str(item.get("question_id", ""))[:20]
    found: dict[str, Any] = {
        "label": " ".join(part for part in (text(item, "model_id"), category, question) if part)[:160],
        "conditions": {key: value for key, value in (("category", category), ("prompt", question)) if value},
        "predicted_n": int(tokens),
        "wall_ms": 1e3 * seconds,
        "decode_rate": tokens / seconds,
        "window": "with prompt",
        "runs": max(1, len(_numbers(choice, "new_tokens"))),
    }
    if lengths:
        found |= {"steps": len(lengths), "tau": sum(lengths) / len(lengths)}
        if all(length == 1 for length in lengths):
            found["method"] = "none"
    return found


def _numbers(choice: Mapping[str, object], key: str) -> list[float]:
    values = choice.get(key)
    listed = cast("list[object]", values)[:_MOST] if isinstance(values, list) else []
    for value in listed:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < numbers.LARGEST:
            raise ValueError(f"{key} holds {str(value)[:40]}: it must be a number, 0 or more")
    return cast("list[float]", listed)

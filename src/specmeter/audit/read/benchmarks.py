"""What benchmarks of single requests write: `llama-bench`, SPEED-Bench, ik_llama.cpp's spec bench, and Spec-Bench.

*llama-bench* of llama.cpp, in all its forms: `-o csv`, `json`, `jsonl`, `md` and `sql`. Every row is decoding without
speculation (`tg`), prompt processing (`pp`), or both (`pg`): `avg_ts` is the mean rate of its repetitions. `model_size`
is the sum of all tensors in bytes. The tokens are random ones, which an MoE model may decode faster than text.

*llama-spec-bench* of ik_llama.cpp, `--output-format jsonl` (examples/spec-bench, 8337e4c, August 2026): a line per
attempt, compact or with `--output-details`, and a summary line. Tokens are counted with the first one, times from after
the prompt.

*SPEED-Bench*, llama.cpp's client: `speed_bench.py --output` (tools/server/bench/speed-bench, May 2026). `summary` has a
row per category and one for all: the mean over requests of the server's decode rate, and sums of draft tokens.
`results` has the requests themselves.

*Spec-Bench* (hemingkx/Spec-Bench, evaluation/speed.py and eval.py, fd2c1cd): what it prints per task and `overall`
(`#Mean accepted tokens:  4.35`, `Tokens per second:  84.2`, or `Tokens per second: Mean result: 84.2, Std result: 0.4`
over several runs), and its answer files. Its accepted tokens are those of a step with the target's own. Its rates are
means over prompts of each prompt's rate, the time of the prompt included, and its speedup is the ratio of these means.
Answer files (JSON Lines) have a line per question: `choices[0]` with `new_tokens` and `wall_time` (seconds) of each
turn, and `accept_lengths`, one per step.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import Any, cast

from specmeter.audit.claim import Claim, UnreadableError, claim_of, mixture_of_experts
from specmeter.audit.read.cells import numbers
from specmeter.audit.read.document import (
    LARGEST,
    MAX_LIST,
    Importer,
    claims_of,
    count,
    inner,
    is_json,
    json_keys,
    listed,
    objects,
    parse_json,
    positive,
    read_benchmarks,
    read_objects,
    read_text,
    text,
)
from specmeter.audit.read.grids import csv_grids, grids
from specmeter.engines.log_lines import log_lines
from specmeter.errors import UsageError
from specmeter.messages import Message

# --- llama-bench ------------------------------------------------------------------------------------------------------

_MARKDOWN = re.compile(r"^\|\s*model\s*\|(?:[^\n]*\|)?\s*test\s*\|\s*t/s\s*\|", re.MULTILINE)
_INSERT = re.compile(r"INSERT INTO (?:llama_bench|test) \(([^()]{1,4000})\) VALUES \((.{1,20000})\);")
_TEST = re.compile(r"(?:pp ?(?P<pp>\d+))?\+?(?:tg ?(?P<tg>\d+))?(?:\s*@\s*d\d+)?")
_DEVICE = re.compile(r"^\s*Device (\d+): ([^,\n]{3,80}),|GPU name:\s+([^\n]{3,80}?)\s*$", re.MULTILINE)
_LIBRARIES = frozenset({"accelerate", "blas", "openblas", "mkl", "blis"})


def sniff_llama_bench(head: str) -> bool:
    """The field names that all of its forms but Markdown print, or the headings of its Markdown table."""
    fields = {"avg_ts", "avg_ns", "n_gen", "model_type", "build_commit"} <= set(
        re.findall(r"[a-z_]{5,14}", head[:65536])
    )
    return fields or _MARKDOWN.search(head) is not None


def read_llama_bench(path: Path) -> Iterator[Claim]:
    """One claim per test. Raises `UsageError` for a file that cannot be read or holds no test."""
    return claims_of(_tests(read_text(path), path), path, _fields_of_test)


def _tests(content: str, path: Path) -> Iterator[tuple[str, Mapping[str, object] | Message]]:
    """(place, fields of a test by their names in CSV and JSON, or why there are none)."""
    if _INSERT.search(content):
        yield from _from_sql(content)
        return
    if is_json(content):
        yield from read_objects(content, path)
        return
    printed = _DEVICE.findall(content[:200_000])  # (number, CUDA's name, Metal's name), as often as the backends say it
    devices = ", ".join(cuda or metal for _, cuda, metal in dict.fromkeys(printed))
    found = False
    csv_from = max(0, content.find("build_commit,"))  # the backends print before it when the streams are mixed
    for grid in grids(content, path) if _MARKDOWN.search(content) else csv_grids(content[csv_from:], path):
        if "test" in grid.head or "avg_ts" in grid.head:
            found = True
            yield from ((place, why) for place, why in grid.faults if why.values.get("cells") != 1)
            for place, cells in zip(grid.places, grid.rows, strict=True):
                yield place, dict(zip(grid.head, cells, strict=True)) | ({"devices": devices} if devices else {})
    if not found:
        raise UsageError(f"{path}: contains no llama-bench test", fix="give the output of llama-bench -o csv")


LLAMA_BENCH = Importer(sniff_llama_bench, read_llama_bench)


def _from_markdown(cells: Mapping[str, object]) -> dict[str, object]:
    test = _TEST.fullmatch(str(cells["test"]).strip())
    if test is None:
        raise UnreadableError("unread.llama_bench_test", test=str(cells["test"])[:40])
    rate, _, spread = str(cells["t/s"]).partition("±")
    amount, _, unit = str(cells.get("size", "")).strip().lower().partition(" ")
    size, half = _printed_number(amount)
    factor = {"gib": 2**30, "mib": 2**20, "kib": 2**10}.get(unit, 0)
    fields: dict[str, object] = {
        "model_type": cells.get("model"),
        "backends": cells.get("backend"),
        "n_gpu_layers": cells.get("ngl"),
        "gpu_info": cells.get("devices"),
        "n_prompt": test["pp"] or 0,
        "n_gen": test["tg"] or 0,
        "avg_ts": rate.strip(),
        "stddev_ts": spread.strip() or None,
    }
    if size and factor:
        fields |= {"model_size": size * factor, "size_half": half * factor}
    return fields


def _from_sql(content: str) -> Iterator[tuple[str, dict[str, object]]]:
    for match in _INSERT.finditer(content):
        names = [name.strip() for name in match[1].split(",")]
        values = next(csv.reader([match[2]], quotechar="'", skipinitialspace=True))
        if len(names) == len(values):
            yield f"line {content.count(chr(10), 0, match.start()) + 1}", dict(zip(names, values, strict=True))


def _fields_of_test(fields: Mapping[str, object]) -> dict[str, Any]:
    if "test" in fields:
        fields = _from_markdown(fields)
    rate, time_ns = positive(fields, "avg_ts"), positive(fields, "avg_ns")
    prompt, generated = count(fields, "n_prompt") or 0, count(fields, "n_gen") or 0
    if rate is None:
        raise UnreadableError("unread.missing", name="avg_ts")
    if prompt + generated == 0:
        raise UnreadableError("unread.nothing_measured")
    time_ms = None if time_ns is None else time_ns / 1e6
    spread = fields.get("stddev_ts")
    size = positive(fields, "model_size")
    half = fields.get("size_half")
    file_name = PureWindowsPath(text(fields, "model_filename")).name
    mixture = mixture_of_experts(f"{text(fields, 'model_type')} {file_name}")
    found: dict[str, Any] = {
        "label": " ".join(filter(None, (text(fields, "model_type"), _test_name(fields)))),
        "method": "none",
        "device": _device_of_test(fields),
        "size_bytes": size,
        "mixture": mixture,
        "rounding": {"size_bytes": half} if isinstance(half, float) else {},
    }
    if generated == 0:
        return found | {"prompt_n": prompt, "prompt_ms": time_ms, "notes": (Message("read.prompt_only"),)}
    found |= {"samples": _samples_of_test(fields)}
    found |= {"decode_rate": rate, "decode_rate_sd": None if spread in (None, "") else abs(float(str(spread)))}
    found["rounding"] |= {"decode_rate": _printed_number(fields["avg_ts"])[1]}
    notes = (Message("read.random_tokens"),) if mixture else ()
    if prompt:
        tokens = {"prompt_n": prompt, "predicted_n": generated, "wall_ms": time_ms, "window": "with prompt"}
        return found | tokens | {"notes": (Message("read.prompt_and_generated"), *notes)}
    return found | {"predicted_n": generated, "predicted_ms": time_ms, "window": "all tokens", "notes": notes}


def _samples_of_test(fields: Mapping[str, object]) -> tuple[float, ...]:
    """The rates that were averaged, tokens per second; none where the form of the output has none."""
    values = listed(fields, "samples_ts")
    rates = [float(value) for value in values if isinstance(value, (int, float)) and 0 < value < LARGEST]
    return tuple(rates) if len(rates) == len(values) else ()


def _printed_number(printed: object) -> tuple[float, float]:
    """A number and half a unit of its last digit; zeros where there is none."""
    found = numbers(str(printed)[:60])
    return (found[0].value, found[0].hi - found[0].value) if len(found) == 1 else (0.0, 0.0)


def _device_of_test(fields: Mapping[str, object]) -> str | None:
    """The GPU, or the processor where no layer was given to a GPU."""
    gpu, cpu = text(fields, "gpu_info"), text(fields, "cpu_info")
    on_cpu = str(fields.get("n_gpu_layers")).strip() == "0" or text(fields, "backends") in {"CPU", "BLAS"}
    if gpu and not on_cpu:
        return gpu
    return ", ".join(part for part in map(str.strip, cpu.split(",")) if part.lower() not in _LIBRARIES) or None


def _test_name(fields: Mapping[str, object]) -> str:
    prompt, generated = str(fields.get("n_prompt") or 0), str(fields.get("n_gen") or 0)
    parts = [f"pp{prompt}" if prompt != "0" else "", f"tg{generated}" if generated != "0" else ""]
    depth = str(fields.get("n_depth") or 0)
    return "+".join(filter(None, parts))[:60] + (f" @ d{depth[:12]}" if depth != "0" else "")


# --- llama-spec-bench -------------------------------------------------------------------------------------------------

_GAMMA = re.compile(r"\bn_max=(\d{1,6})\b")


def sniff_ik_spec_bench(head: str) -> bool:
    """Lines with a `row_type`, and rates or stages."""
    keys = json_keys(head)
    return "row_type" in keys and bool(keys & {"decode_tps", "stages"})


def _fields_of_attempt(item: Mapping[str, object]) -> dict[str, Any]:
    error = item.get("error")
    if item.get("ok") is False or error:
        raise UnreadableError("unread.attempt_failed", error=str(error)[:80])
    kind = text(item, "row_type")
    timing, tokens, variant = inner(item, "timing"), inner(item, "tokens"), inner(item, "variant")
    seconds = positive(timing or item, "decode_s")
    spec = inner(item, "speculative")
    stages = objects(spec or item, "stages")
    drafts, drafted, accepted = _totals(spec, stages)
    chain = text(variant, "stage_chain")
    task = text(item, "task") or text(item, "task_name") or kind
    found: dict[str, Any] = {
        "label": task,
        "conditions": {"task": task} if kind == "attempt" else {},
        "engine": "ik_llama.cpp",
        "decode_rate": positive(timing or item, "decode_tps"),
        "predicted_n": count(tokens or item, "generated"),
        "predicted_ms": None if seconds is None else 1e3 * seconds,
        "prompt_n": count(tokens, "prompt"),
        "runs": count(item, "successes") or 1,
        "tree": False,
        "acceptance_of": "drafted",
        "pooled": ("acceptance", "tau"),
        "gamma": int(gamma.group(1)) if (gamma := _GAMMA.search(chain)) else None,
        "window": "all tokens",
    }
    names = "+".join(name for stage in stages if (name := text(stage, "type")))
    if not stages or variant.get("is_baseline") is True:
        return found | {"method": "none"}
    found |= {"method": names or None, "steps": drafts or None, "drafted": drafted, "accepted": accepted}
    if drafted and accepted is not None:
        found["acceptance"] = accepted / drafted
    if drafts and accepted is not None:
        found["tau"] = 1 + accepted / drafts
    return found


IK_SPEC_BENCH = Importer(sniff_ik_spec_bench, partial(read_benchmarks, fields_of=_fields_of_attempt))


def _totals(
    spec: Mapping[str, object], stages: list[Mapping[str, object]]
) -> tuple[int | None, int | None, int | None]:
    """(drafts, drafted tokens, accepted tokens), summed over stages where no sum is given."""
    if "num_drafts" in spec:
        return count(spec, "num_drafts"), count(spec, "draft_tokens"), count(spec, "accepted_tokens")
    sums: list[int | None] = []
    for key, other in (("drafts", "num_drafts"), ("draft_tokens", "draft_tokens"), ("accepted", "accepted_tokens")):
        values = [count(stage, key if key in stage else other) for stage in stages]
        sums.append(sum(value or 0 for value in values) if values else None)
    return sums[0], sums[1], sums[2]


# --- SPEED-Bench ------------------------------------------------------------------------------------------------------


def sniff_speed_bench(head: str) -> bool:
    """The keys that the client's file has, in any order."""
    keys = json_keys(head)
    return {"completed_samples", "config"} <= keys or {"avg_pred_t_s", "accept_rate"} <= keys


def read_speed_bench(path: Path) -> Iterator[Claim]:
    """One claim per category and request. Raises `UsageError` for a file that cannot be read."""
    whole = parse_json(read_text(path))
    if not isinstance(whole, dict):
        reason = whole if isinstance(whole, Message) else "a list"
        raise UsageError(
            f"{path}: not JSON from speed_bench.py: {reason}", fix="give the complete file that --output wrote"
        )
    document = cast("dict[str, object]", whole)
    config = inner(document, "config")

    def rows() -> Iterator[tuple[str, Mapping[str, object] | Message]]:
        for name in ("summary", "results"):
            for number, row in enumerate(listed(document, name, MAX_LIST + 1), start=1):
                if number > MAX_LIST:
                    raise UsageError(f"{path}: more than {MAX_LIST:,} {name}", fix="split the file")
                place = f"{name}, row {number}"
                no_object = Message("unread.json.no_object")
                yield place, cast("Mapping[str, object]", row) if isinstance(row, dict) else no_object

    return claims_of(rows(), path, lambda item: _fields_of_category(item, config))


SPEED_BENCH = Importer(sniff_speed_bench, read_speed_bench)


def _fields_of_category(item: Mapping[str, object], config: Mapping[str, object]) -> dict[str, Any]:
    category = text(item, "category")
    drafted = count(item, "draft_n")
    accepted = count(item, "accepted" if "accepted" in item else "draft_n_accepted")
    found: dict[str, Any] = {
        "label": category,
        "target": text(config, "model") or None,
        "conditions": {"category": category} if category else {},
        "concurrency": count(config, "concurrency") or None,
        "drafted": drafted or None,
        "accepted": accepted if drafted else None,
        "acceptance": accepted / drafted if drafted and accepted is not None else None,
        "acceptance_of": "drafted",
        "pooled": ("acceptance",),
        "engine": "llama.cpp",
    }
    if drafted == 0:
        found["method"] = "none"
    if "avg_pred_t_s" in item:
        requests = count(item, "requests")
        if requests == 0:
            raise UnreadableError("unread.no_success", name="requests")
        return found | {
            "decode_rate": positive(item, "avg_pred_t_s"),
            "runs": requests,
            "averaged": ("decode_rate",),
        }
    if item.get("ok") is False:
        raise UnreadableError("unread.request_failed_by", error=text(item, "error")[:80])
    return found | {
        "label": " ".join(part for part in (category, text(item, "id")[:20]) if part),
        "conditions": found["conditions"] | ({"prompt": text(item, "id")} if text(item, "id") else {}),
        "decode_rate": positive(item, "predicted_per_second"),
        "predicted_ms": positive(item, "predicted_ms"),
        "prompt_ms": positive(item, "prompt_ms"),
        "predicted_n": count(item, "completion_tokens"),
        "prompt_n": count(item, "prompt_tokens"),
        "runs": max(1, count(item, "turns") or 1),
    }


# --- Spec-Bench -------------------------------------------------------------------------------------------------------

_MAX_STEPS = 100_000
"""Steps of one answer."""
_TASK_HEADING = re.compile(r"={3,80} {0,9}Task: {1,9}([\w .-]{1,60}?) {0,9}={3,80}")
_NUMBER = r"([0-9.eE+-]{1,30})"
_MEAN = rf" *(?:Mean result: *)?{_NUMBER}(?:, Std result: *{_NUMBER})?\s*$"
_LINES = {
    "tau": re.compile(rf"#Mean accepted tokens: *{_NUMBER}\s*$"),
    "decode_rate": re.compile(rf"Tokens per second:{_MEAN}"),
    "baseline_rate": re.compile(rf"Tokens per second (?:for the baseline|\(baseline\)):{_MEAN}"),
    "speedup": re.compile(rf"Speedup ratio:{_MEAN}"),
}
_SPREADS = {"decode_rate": "decode_rate_sd", "baseline_rate": "baseline_rate_sd"}


def sniff_spec_bench(head: str) -> bool:
    """Its own words, or the keys of an answer file."""
    if keys := json_keys(head):
        return {"choices", "new_tokens", "wall_time"} <= keys and bool(keys & {"accept_lengths", "idxs"})
    return "#Mean accepted tokens" in head and re.search(r"^Speedup ratio:", head, re.M) is not None


def read_spec_bench(path: Path) -> Iterator[Claim]:
    """One claim per task, or per question. Raises `UsageError` for a file that cannot be read."""
    with_objects = next(log_lines(path), "").lstrip("\ufeff \t").startswith(("{", "["))
    if with_objects:
        return claims_of(read_objects(read_text(path), path), path, _fields_of_answer)
    return _printed_tasks(path)


SPEC_BENCH = Importer(sniff_spec_bench, read_spec_bench)


def _printed_tasks(path: Path) -> Iterator[Claim]:
    place, task = "line 1", ""
    values: dict[str, Any] = {}
    rounding: dict[str, float] = {}
    found = False
    for number, line in enumerate(log_lines(path), start=1):
        if "Task:" in line and (heading := _TASK_HEADING.search(line)) is not None:
            if values:
                yield _claim_of_task(path, place, task, values, rounding)
                found = True
            place, task, values, rounding = f"line {number}", heading.group(1), {}, {}
            continue
        for name, pattern in _LINES.items():
            if (match := pattern.search(line)) is not None:
                values[name], rounding[name] = _printed_number(match.group(1))
                if match.lastindex == 2 and name in _SPREADS:
                    values[_SPREADS[name]] = _printed_number(match.group(2))[0]
    if values or not found:
        yield _claim_of_task(path, place, task, values, rounding)


def _claim_of_task(path: Path, place: str, task: str, values: dict[str, Any], rounding: dict[str, float]) -> Claim:
    if "speedup" not in values and "decode_rate" not in values:
        return claim_of(source=str(path), row=place, label=task, problem=Message("unread.cut_task"))
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


def _fields_of_answer(item: Mapping[str, object]) -> dict[str, Any]:
    choice = next(iter(objects(item, "choices", 1)), None)
    if choice is None:
        raise UnreadableError("unread.no_spec_bench")
    tokens = sum(_numbers_of_turns(choice, "new_tokens"))
    seconds = sum(_numbers_of_turns(choice, "wall_time"))
    lengths = _numbers_of_turns(choice, "accept_lengths")
    steps = int(sum(last + 1 for last in _numbers_of_turns(choice, "idxs")))
    plain = steps > 0 and tokens == 0 and not lengths  # EAGLE counts no tokens of its baselines, a step each
    tokens = tokens or (steps if plain else 0)
    if tokens <= 0 or seconds <= 0:
        raise UnreadableError("unread.no_tokens")
    category, question = text(item, "category"), str(item.get("question_id", ""))[:20]
    found: dict[str, Any] = {
        "label": " ".join(part for part in (text(item, "model_id"), category, question) if part)[:160],
        "conditions": {key: value for key, value in (("category", category), ("prompt", question)) if value},
        "predicted_n": int(tokens),
        "wall_ms": 1e3 * seconds,
        "decode_rate": tokens / seconds,
        "window": "with prompt",
        "runs": max(1, len(_numbers_of_turns(choice, "new_tokens"))),
    }
    if lengths:
        found |= {"steps": len(lengths), "tau": sum(lengths) / len(lengths)}
        if all(length == 1 for length in lengths):
            found["method"] = "none"
    elif plain:
        found["method"] = "none"
    elif steps:
        found |= {"steps": steps, "tau": max(1.0, tokens / steps)}
    return found


def _numbers_of_turns(choice: Mapping[str, object], key: str) -> list[float]:
    values = listed(choice, key, _MAX_STEPS)
    for value in values:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < LARGEST:
            raise UnreadableError("unread.holds", name=key, value=str(value)[:40])
    return cast("list[float]", values)

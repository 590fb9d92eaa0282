"""Output of llama.cpp's `llama-bench`, in all its forms: `-o csv`, `json`, `jsonl`, `md` and `sql`.

Every row is plain decoding (`tg`), prompt processing (`pp`), or both (`pg`), averaged over repetitions: `avg_ts` is the
mean of their rates, tokens per second; `avg_ns` the mean of their times. `model_size` is the sum of all tensors in
bytes, which every token reads only where the model is dense: a mixture of experts is told by its name
(`qwen3moe 30B.A3B`). The tokens are random ones, which such a model may decode faster than text.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any, cast

from specmeter.audit.claim import Claim, claim_of
from specmeter.audit.methods import mixture_of_experts
from specmeter.audit.read import numbers
from specmeter.audit.read.document import count, is_json, positive, read_objects, read_text, text
from specmeter.audit.read.grid import Grid
from specmeter.audit.read.pages import read_grids
from specmeter.errors import UsageError

_MARKDOWN = re.compile(r"^\|\s*model\s*\|(?:[^\n]*\|)?\s*test\s*\|\s*t/s\s*\|", re.MULTILINE)
_INSERT = re.compile(r"INSERT INTO (?:llama_bench|test) \(([^()]{1,4000})\) VALUES \((.{1,20000})\);")
_TEST = re.compile(r"(?:pp ?(?P<pp>\d+))?\+?(?:tg ?(?P<tg>\d+))?(?:\s*@\s*d\d+)?")
_DEVICE = re.compile(r"^\s*Device (\d+): ([^,\n]{3,80}),|GPU name:\s+([^\n]{3,80}?)\s*$", re.MULTILINE)
_RANDOM_TOKENS = (
    "llama-bench decodes random tokens, for which a mixture of experts may read fewer different experts than for text: "
    "its rate on text may be lower"
)
_LIBRARIES = frozenset({"accelerate", "blas", "openblas", "mkl", "blis"})


def sniff(head: str) -> bool:
    """The field names that all of its forms but Markdown print, or the headings of its Markdown table."""
    fields = {"avg_ts", "avg_ns", "n_gen", "model_type", "build_commit"} <= set(
        re.findall(r"[a-z_]{5,14}", head[:65536])
    )
    return fields or _MARKDOWN.search(head) is not None


def read(path: Path) -> Iterator[Claim]:
    """One claim per test. Raises `UsageError` for a file that cannot be read or holds no test."""
    content = read_text(path)
    if _INSERT.search(content):
        yield from (_claim(path, place, fields) for place, fields in _from_sql(content))
        return
    if is_json(content):
        for place, item in read_objects(content, path):
            if isinstance(item, str):
                yield Claim(source=str(path), row=place, problem=f"cannot be read: {item}")
            else:
                yield _claim(path, place, item)
        return
    markdown = _MARKDOWN.search(content) is not None
    printed = _DEVICE.findall(content[:200_000])  # (number, CUDA's name, Metal's name), as often as the backends say it
    devices = ", ".join(cuda or metal for _, cuda, metal in dict.fromkeys(printed))
    found = False
    for grid in read_grids(content if markdown else _from_header(content), path, as_json=False):
        if "test" not in grid.headings and "avg_ts" not in grid.headings:
            continue
        found = True
        yield from _from_grid(grid, path, devices)
    if not found:
        raise UsageError(f"{path}: no test of llama-bench in it", fix="give the output of llama-bench -o csv")


def _from_header(content: str) -> str:
    """CSV from its header on: the backends print lines of their own before it when the streams are mixed."""
    start = content.find("build_commit,")
    return content[max(0, start) :]


def _from_grid(grid: Grid, path: Path, devices: str) -> Iterator[Claim]:
    for place, why in grid.faults:
        if not why.startswith("1 cell"):
            yield Claim(source=str(path), row=place, problem=f"cannot be read: {why}")
    for place, cells in grid.rows:
        fields: dict[str, object] = dict(zip(grid.headings, cells, strict=True))
        if "test" in fields:
            try:
                fields = _from_markdown(fields) | ({"gpu_info": devices} if devices else {})
            except ValueError as error:
                yield Claim(source=str(path), row=place, label=text(fields, "model"), problem=str(error))
                continue
        yield _claim(path, place, fields)


def _from_markdown(cells: Mapping[str, object]) -> dict[str, object]:
    test = _TEST.fullmatch(str(cells["test"]).strip())
    if test is None:
        raise ValueError(f"test {str(cells['test'])[:40]!r} is none of pp, tg and pp+tg")
    rate, _, spread = str(cells["t/s"]).partition("±")
    size = numbers.parse(str(cells.get("size", "")))
    unit = {"gib": 2**30, "mib": 2**20, "kib": 2**10}.get(size.unit if size else "", 0)
    fields: dict[str, object] = {
        "model_type": cells.get("model"),
        "backends": cells.get("backend"),
        "n_gpu_layers": cells.get("ngl"),
        "n_prompt": test["pp"] or 0,
        "n_gen": test["tg"] or 0,
        "avg_ts": rate.strip(),
        "stddev_ts": spread.strip() or None,
    }
    if size is not None and unit:
        fields |= {"model_size": size.value * unit, "size_half": size.half * unit}
    return fields


def _from_sql(content: str) -> Iterator[tuple[str, dict[str, object]]]:
    for match in _INSERT.finditer(content):
        names = [name.strip() for name in match[1].split(",")]
        values = next(csv.reader([match[2]], quotechar="'", skipinitialspace=True))
        if len(names) == len(values):
            yield f"line {content.count(chr(10), 0, match.start()) + 1}", dict(zip(names, values, strict=True))


def _claim(path: Path, place: str, fields: Mapping[str, object]) -> Claim:
    label = " ".join(filter(None, (text(fields, "model_type"), _test_name(fields))))
    try:
        values = _fields(fields)
    except ValueError as error:
        return Claim(source=str(path), row=place, label=label, problem=str(error))
    return claim_of(source=str(path), row=place, label=label, **values)


def _fields(fields: Mapping[str, object]) -> dict[str, Any]:
    rate, time_ns = positive(fields, "avg_ts"), positive(fields, "avg_ns")
    prompt, generated = count(fields, "n_prompt") or 0, count(fields, "n_gen") or 0
    if rate is None:
        raise ValueError("avg_ts is missing")
    if prompt + generated == 0:
        raise ValueError("n_prompt and n_gen are both 0: nothing was measured")
    time_ms = None if time_ns is None else time_ns / 1e6
    spread = fields.get("stddev_ts")
    size = positive(fields, "model_size")
    half = fields.get("size_half")
    file_name = PureWindowsPath(text(fields, "model_filename")).name
    mixture = mixture_of_experts(f"{text(fields, 'model_type')} {file_name}")
    found: dict[str, Any] = {
        "method": "none",
        "device": _device(fields),
        "size_bytes": size,
        "mixture": mixture,
        "rounding": {"size_bytes": half} if isinstance(half, float) else {},
    }
    if generated == 0:
        return found | {"prompt_n": prompt, "prompt_ms": time_ms, "notes": ("prompt processing only",)}
    found |= {"samples": _samples(fields)}
    found |= {"decode_rate": rate, "decode_rate_sd": None if spread in (None, "") else abs(float(str(spread)))}
    found["rounding"] |= {"decode_rate": _half(fields["avg_ts"])}
    notes = (_RANDOM_TOKENS,) if mixture else ()
    if prompt:
        tokens = {"prompt_n": prompt, "predicted_n": generated, "wall_ms": time_ms, "window": "with prompt"}
        return found | tokens | {"notes": ("prompt and generated tokens over the time of both", *notes)}
    return found | {"predicted_n": generated, "predicted_ms": time_ms, "window": "all tokens", "notes": notes}


def _samples(fields: Mapping[str, object]) -> tuple[float, ...]:
    """The rates that were averaged, tokens per second; none where the form of the output has none."""
    raw = fields.get("samples_ts")
    values = cast("list[object]", raw)[:1_000] if isinstance(raw, list) else []
    rates = [float(value) for value in values if isinstance(value, (int, float)) and 0 < value < numbers.LARGEST]
    return tuple(rates) if len(rates) == len(values) else ()


def _half(rate: object) -> float:
    number = numbers.parse(str(rate))
    return number.half if number is not None else 0.0


def _device(fields: Mapping[str, object]) -> str | None:
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

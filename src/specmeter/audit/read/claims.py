"""Records -> claims: the numbers of a row under one reading, with what its words and the text above say of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from specmeter.audit.claim import (
    Claim,
    Range,
    claim_of,
    drafts_of_vllm,
    family_by_name,
    least_certainty,
    mixture_of_experts,
)
from specmeter.audit.read.frame import Frame
from specmeter.audit.read.readings import OF_SPEEDUP
from specmeter.audit.read.records import REPEAT, Record, drafts
from specmeter.audit.read.words import in_english, is_plain, known_column, load, norm, requests_at_once
from specmeter.messages import Message
from specmeter.theory.catalogue import devices as catalogue

_LABEL, _NOTE = 160, 500
_COUNTS = frozenset({
    "gamma", "drafted", "accepted", "steps", "predicted_n", "prompt_n", "runs", "repeat", "experts",
    "target_forwards", "failed_forwards", "failed_draft_forwards",
})  # fmt: skip
_ONE_RUN = frozenset({"prompt_n", "predicted_n", "predicted_per_second"})
"""Headings of the timings that llama-server gives of one request."""
_ONE_REQUEST = frozenset({"arm_id", "prompt_id"})
"""Headings of the requests that specmeter exports."""
_FEW = 50
"""A mean of counts below this is not rounded to a count."""
_FRACTION = 16
"""Tokens of a run per draft token from which on `3/5` is a fraction, and no count of the run."""
_OF_RATES = frozenset({"decode_rate", "token_ms", "predicted_ms", "wall_ms"})
_NOT_IN_LABEL = frozenset({
    "source_document", "source_place", "claim_notes", "rate_window", "reference", "architecture",
})  # fmt: skip
_NO_CONDITION = _NOT_IN_LABEL | {"label", "target", "draft", "method", "device", "engine", "quant"}
_METHODS = {
    **dict.fromkeys(("draft", "draft model", "draft_model", "draft-model"), "draft-simple"),
    **dict.fromkeys(("eagle3", "eagle-3"), "draft-eagle3"),
    "mtp": "draft-mtp",
    "dflash": "draft-dflash",
}
_NAMED = re.compile(
    r"\b(?:mtp|eagle[- ]?\d?|medusa|hydra|d-?flash|d-?spark|n-?gram|lookahead|prompt lookup|pld|nextn|suffix|pearl"
    r"|draft model|tree)\b",
    re.I,
)
_SAMPLING = re.compile(r"greedy|(?:random |nucleus )?sampling|top-?[kp].*|beam.*|temp.*", re.I)
"""Under `decoding`, a word of how tokens are chosen."""
_SYNTHETIC = re.compile(
    r"(?:synth\w*|simulated|dummy|forced)[ _-](?:acc\w*|draft accept\w*)|acc\w*[ _](?:synth|simul)\w*", re.I
)
_DEPTH = re.compile(r"num[-_ ]steps", re.I)
_OF_POSITION = re.compile(r"\baccept\w* (?:rate )?is [^.|\n]{0,40}\bpos(?:ition|\.)? ?#?\d", re.I)
"""A text that says that acceptance is that of one draft position."""
_YES = re.compile(r"(?:1|true|yes|y|on)\b", re.I)
_CPU = re.compile(r"\bcpu(?:-only)?\b|xeon|epyc|ryzen \d|threadripper", re.I)
_POOLED = re.compile(r"\bpooled|aggregat|\boverall\b|\btotal\b", re.I)
_SPEEDS = frozenset({"speedup", "decode_rate", "token_ms", "predicted_ms"})
_AVERAGED = {"speedup", "acceptance", "tau", "decode_rate", "baseline_rate"}


def claim_from(record: Record, frame: Frame, texts: Mapping[str, str], **given: Any) -> Claim:
    """The claim of a record. `texts`: name of a column of texts -> cell; `given`: source, row, notes and the like."""
    fields = _numbers(record, frame, given.get("kept", ()))
    words, context = frame.label[record.row], frame.grid.context
    said = " ".join([words, *record.headings, record.group])
    label = _label(texts, frame, record)
    method = _method(record, texts, texts.get("label") or words, context)
    if method is not None:
        fields["method"] = method
    everything = " ".join([said, *frame.grid.head, context])
    width = fields.pop("tree_width", None)
    if width is not None:
        fields["tree"] = width > 1
    elif family_by_name(method) == "tree" and drafts_of_vllm(f"{texts.get('engine', '')} {everything}"):
        fields["tree"] = False
    elif family_by_name(method) == "tree" and _DEPTH.search(everything):
        fields["tree"] = True  # its steps are the depth of the tree
    if method == "none":
        fields.pop("gamma", None)
    elif "p_min" not in fields and (least := least_certainty(said)) is not None:
        fields["p_min"] = least
    if _SYNTHETIC.search(context) or _is_synthetic(frame, record.row):
        fields["synthetic"] = method != "none"
    if _YES.match(texts.get("draft_elsewhere", "")):
        fields["draft_elsewhere"] = True
    if "experts" not in fields:
        names = (texts.get("architecture"), texts.get("target"), words, context)
        fields["mixture"] = next((m for name in names if name and (m := mixture_of_experts(name)) is not None), None)
    if "concurrency" not in fields and (served := _served(record.group, context)) is not None:
        fields["concurrency"] = served
    window = texts.get("rate_window") or "unknown"
    if _ONE_RUN.issubset(frame.grid.head):
        fields["runs"] = 1
    if _ONE_REQUEST.issubset(frame.grid.head):
        fields["runs"], window = 1, "all but the first"
    device = texts.get("device") or _machine(said) or _machine(context)
    if (many := fields.pop("devices", None)) and device and many > 1:
        device = ", ".join([device] * min(64, int(many)))
    its = _headings_of(record, frame, "decode_rate"), _headings_of(record, frame, "baseline_rate")
    if record.baselines:
        its = words, frame.label[record.baselines[0]]
    own, plain = map(_machine, its)
    if record.elsewhere is not None:
        fields["baseline_device"], device = record.elsewhere
    elif own and plain and own.lower() != plain.lower():
        fields["baseline_device"], device = plain, own
    if _OF_POSITION.search(context):
        fields.pop("acceptance", None)
    draft = texts.get("draft")
    notes = [*given.pop("notes", ()), *_notes(record)]
    notes += [note.strip()[:_NOTE] for note in texts.get("claim_notes", "").split(" | ") if note.strip()]
    return claim_of(
        label=label, target=texts.get("target"), draft=None if draft is None or is_plain(draft) else draft,
        engine=texts.get("engine"), device=device, document=texts.get("source_document"),
        conditions=_conditions(frame, record, texts), notes=tuple(dict.fromkeys(notes)),
        positions=tuple(it.value for it in record.positions), speedup_of=record.speedup_of,
        window=window, baseline_from=_from(record, frame, fields), **fields, **given,
    )  # fmt: skip


def _headings_of(record: Record, frame: Frame, name: str) -> str:
    return frame.streams[record.origin[name]].heading if name in record.origin else ""


def _numbers(record: Record, frame: Frame, kept: Collection[str]) -> dict[str, Any]:
    """Fields of a claim with their rounding."""
    streams = frame.streams
    known = dict(record.known)
    if record.tentative and OF_SPEEDUP.isdisjoint(kept):
        known = {name: it for name, it in known.items() if name in record.own or not name.startswith("baseline_")}
    if record.apart and OF_SPEEDUP.isdisjoint(kept):
        known = {name: it for name, it in known.items() if name not in _OF_RATES and not name.startswith("baseline_")}
    known.pop("speedup_again", None)
    if (per_s := known.pop("steps_per_s", None)) is not None and "step_ms" not in known and per_s.low > 0:
        known["step_ms"] = Range(1e3 / per_s.high, 1e3 / per_s.value, 1e3 / per_s.low)
    for plain, each, name in (
        (False, known.get("token_ms"), "decode_rate"),
        (True, known.pop("baseline_token_ms", None), "baseline_rate"),
    ):
        if each is not None and name not in known and each.low > 0:
            known[name] = Range(1e3 / each.high, 1e3 / each.value, 1e3 / each.low)
            if not plain:
                del known["token_ms"]
    decoding, its = known.get("predicted_ms"), known.get("baseline_predicted_ms")
    if its is not None and decoding is not None and not {"speedup", "decode_rate", "predicted_n"} & known.keys():
        known["speedup"] = its.over(decoding)
    walls = known.get("baseline_wall_ms"), known.get("wall_ms")
    if walls[0] is not None and walls[1] is not None and not _SPEEDS & known.keys():
        known["speedup"] = walls[0].over(walls[1])
        record.speedup_of = "run"
    if "predicted_n" in known and known["predicted_n"].high < 1:
        known.pop("decode_rate", None)  # of a prompt
    drafted, accepted, tokens = (known.get(name) for name in ("drafted", "accepted", "predicted_n"))
    many = tokens.value / _FRACTION if frame.grid.kind == "prose" and tokens is not None else 0.0
    if drafted is not None and accepted is not None and 0 < drafted.value < many:
        del known["drafted"], known["accepted"]  # 3/5 is a share, beside hundreds of tokens
        known.setdefault("acceptance", accepted.over(drafted))
    fields: dict[str, Any] = {}
    rounding: dict[str, float] = {}
    for name, value in known.items():
        if name in _COUNTS:
            if value.value != int(value.value) and value.value < _FEW:
                continue
            fields[name] = round(value.value)
        else:
            fields[name] = max(1.0, value.value) if name == "tau" else value.value
            rounding[name] = max(value.high - value.value, value.value - value.low)
    rounding.pop("bandwidth_bytes_per_s", None)  # a maker's figure, not a measured one
    if "acceptance" not in fields and known.get("drafted") and "accepted" in known and known["drafted"].value > 0:
        fields["acceptance"] = known["accepted"].value / known["drafted"].value
    fields["rounding"] = rounding
    means = {name for name, i in record.origin.items() if frame.mean[i]}
    fields["averaged"] = tuple(name for name in known if name in means & _AVERAGED)
    fields["pooled"] = tuple(
        name for name in ("acceptance", "tau", "speedup")
        if name in record.origin and _POOLED.search(streams[record.origin[name]].heading)
    )  # fmt: skip
    return fields


def _label(texts: Mapping[str, str], frame: Frame, record: Record) -> str:
    said = texts.get("label")
    if not said:
        shown = dict.fromkeys(text for name, text in texts.items() if name not in _NOT_IN_LABEL)
        said = " / ".join(shown) or frame.label[record.row]
    return " / ".join(part for part in (said, record.group) if part)[:_LABEL]


def _method(record: Record, texts: Mapping[str, str], label: str, context: str) -> str | None:
    """How drafts were made, by the first of these that says so; `none` for a baseline."""
    if record.role == "base":
        return "none"
    named = " ".join(in_english(texts.get("method", "")).lower().split())
    if named and not _SAMPLING.fullmatch(named):
        return _METHODS.get(named, named) if not is_plain(named) else "none" if not drafts(record.known) else None
    for text in (label, record.group):
        if family_by_name(text) not in {"unknown", "none"}:
            return _METHODS.get(text.lower(), text.lower())
    for text in (" ".join(record.headings), context):
        names = dict.fromkeys(name.strip().lower() for name in _NAMED.findall(text))
        if names:
            return " + ".join(names) if len(names) > 1 else _METHODS.get(next(iter(names)), next(iter(names)))
    return None


def _conditions(frame: Frame, record: Record, texts: Mapping[str, str]) -> dict[str, str]:
    """What says under which conditions the row was measured, to know its repeats by."""
    r = record.row
    found = {name: text for name, text in texts.items() if name not in _NO_CONDITION}
    for c, cells in enumerate(frame.words):
        column = known_column(frame.grid.head[c])
        names_rows = len(set(cells.values())) == len(cells) or (column is not None and column.name in _NO_CONDITION)
        if r in cells and c not in frame.method and not names_rows:
            found.setdefault(frame.grid.head[c][:40] or "row", cells[r])
    settings = {it.column for it in frame.streams if it.own and it.candidates[0].quantity == "condition"}
    for c, head in enumerate(frame.grid.head):
        if frame.grid.rows[r][c] and (head in load().conditions or (c in settings and not REPEAT.search(head))):
            found.setdefault(head[:40], frame.grid.rows[r][c])
    if r < len(frame.grid.sections) and frame.grid.sections[r]:
        found["section"] = frame.grid.sections[r]
    if record.group:
        found["group"] = record.group
    named = {texts.get(name) for name in _NO_CONDITION}
    return {name: text for name, text in found.items() if text not in named}


def _from(record: Record, frame: Frame, fields: Mapping[str, Any]) -> str | None:
    if not record.baselines or "baseline_rate" in record.own or "baseline_rate" not in fields:
        return None
    if len(record.baselines) == 1:
        return frame.grid.places[record.baselines[0]]
    return f"mean of {len(record.baselines)} rows"


def _served(group: str, context: str) -> int | None:
    """How many requests are served at once, by the name of the group or the text right above."""
    if (alone := requests_at_once(group)) is not None:
        return alone
    last = re.split(r"^#.*$", context, flags=re.M)[-1]
    for part in re.split(r"[,;.\n]", last[-500:]):
        served = requests_at_once(re.sub(r"^\s*(?:with|at|for)\b", "", part.strip(" :()"), flags=re.I))
        if served is not None and served > 1:
            return served
    return None


def _notes(record: Record) -> list[Message | str]:
    return [Message("read.mean_baseline", rows=len(record.baselines))] if len(record.baselines) > 1 else []


def _is_synthetic(frame: Frame, r: int) -> bool:
    """Whether a column says of the row that its acceptance was simulated."""
    heads = (c for c, head in enumerate(frame.grid.head) if _SYNTHETIC.search(norm(head).replace("_", " ")))
    return any(_YES.match(frame.grid.rows[r][c]) for c in heads)


@cache
def _machines() -> re.Pattern[str]:
    names = sorted((device.name for device in catalogue.devices()), key=len, reverse=True)
    return re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, names)) + r")(?!\w)", re.I)


def _machine(text: str) -> str | None:
    """The one machine that a text names, by the catalogue; or that it is a CPU."""
    found = {name.lower(): name for name in _machines().findall(text[:2_000])}
    if len(found) == 1:
        return next(iter(found.values()))
    cpu = None if found else _CPU.search(text[:2_000])
    return cpu[0] if cpu else None

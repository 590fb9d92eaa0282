"""Audits a file: finds its format, reads its claims, adds what the user says about it, and asks the judge."""

from __future__ import annotations

import difflib
import importlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmeter.audit.across import TimingNoise, noise_of, notes_across
from specmeter.audit.claim import VERDICTS, AuditVerdict, Claim, ColumnRead, Ruling
from specmeter.audit.judge import in_words, rule_claim
from specmeter.audit.published import claims as published_claims
from specmeter.audit.read.cells import numbers
from specmeter.audit.read.document import Importer, read_head, refuse_binary
from specmeter.audit.read.grids import grids
from specmeter.audit.read.meaning import streams_of
from specmeter.audit.read.table import read_table, read_table_file
from specmeter.audit.read.words import IGNORE
from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.theory.catalogue import devices as catalogue

if TYPE_CHECKING:
    from specmeter.audit.read.options import TableOptions

FORMATS = {
    "llama-bench": "benchmarks:LLAMA_BENCH",
    "aiperf": "serving:AIPERF",
    "vllm": "serving:VLLM",
    "sglang": "serving:SGLANG",
    "speed-bench": "benchmarks:SPEED_BENCH",
    "spec-bench": "benchmarks:SPEC_BENCH",
    "ik-spec-bench": "benchmarks:IK_SPEC_BENCH",
    "golden-al": "golden:GOLDEN",
    "vllm-log": "serving_log:VLLM_LOG",
    "sglang-log": "serving_log:SGLANG_LOG",
    "llama-speculative": "llama_speculative:LLAMA_SPECULATIVE",
    "llama-server": "llama_server_log:LLAMA_SERVER",
    "table": "table:TABLE",
}
"""Name -> module of `specmeter.audit.read` and its `Importer`, in the order in which a file is held against them;
`table` takes what no other format claims."""
LOGS = ("vllm-log", "sglang-log", "llama-speculative", "llama-server")
"""Formats that are known by words that may also stand in a page with tables."""
_WRITTEN_BY_ANOTHER = {"llama-speculative": "llama-server", "llama-server": "llama-speculative"}
"""Logs of llama.cpp look alike from their beginnings."""


def importer(name: str) -> Importer:
    """The importer of that format, its module imported only now. Raises `UsageError` for an unknown name."""
    if name not in FORMATS:
        raise UsageError(f"{name!r}: no such format", fix=f"use one of {', '.join(FORMATS)}")
    module, _, attribute = FORMATS[name].partition(":")
    return getattr(importlib.import_module(f"specmeter.audit.read.{module}"), attribute)


def detect(path: Path) -> str:
    """The format of a file, by how it begins. Raises `UsageError` when it cannot be read."""
    head = read_head(path)
    sniffed = (name for name in FORMATS if importer(name).sniff(head))
    names = (name for name in sniffed if name not in LOGS or not _has_table(head, path))
    return next(names, "table")  # also what begins with many empty lines


_MARKED = frozenset({"markdown", "html", "latex", "csv"})
_CLEAR = 4.0
"""Points of evidence that make the meaning of a heading clear."""


def _has_table(head: str, path: Path) -> bool:
    """Whether a page has a table of results, which an engine's log has not."""
    try:
        marked = [grid for grid in grids(head, path) if grid.kind in _MARKED]
    except UsageError:
        return False
    best = ([stream.candidates[0] for stream in streams_of(grid)] for grid in marked)
    return any(sum(it.quantity != IGNORE and it.points >= _CLEAR for it in found) >= 2 for found in best)


def read_claims(path: Path, format_name: str | None, options: TableOptions) -> tuple[str, Iterator[Claim]]:
    """(format, claims) of a file; the format is found by how the file begins where it is not named.

    Raises `UsageError`, here or while the claims are read, for a file that cannot be read.
    """
    refuse_binary(path)
    name = format_name or detect(path)
    others = [_WRITTEN_BY_ANOTHER[name]] if name in _WRITTEN_BY_ANOTHER else []
    if format_name is None and name in LOGS:
        others.append("table")  # a page with lines that were pasted from a log
    return name, _claims(path, name, others, options)


def _claims(path: Path, name: str, others: Iterable[str], options: TableOptions) -> Iterator[Claim]:
    """The claims of a file in that format; if it begins with none that could be read, those of the first other format
    in which there is one. Raises `UsageError` where there are none."""
    claims = _read_as(path, name, options)
    first = next(claims, None)
    for other in others if first is None or first.problem is not None else ():
        try:
            found = list(_read_as(path, other, options))
        except UsageError:
            continue
        if any(claim.problem is None for claim in found):
            yield from found
            return
    if first is None and name != "table":
        raise UsageError(f"{path}: contains no {name} result", fix="leave --format out, or use another format")
    yield from () if first is None else (first,)
    yield from claims


def _read_as(path: Path, name: str, options: TableOptions) -> Iterator[Claim]:
    return read_table_file(path, options) if name == "table" else importer(name).read(path)


def read_rows(rows: Iterable[Mapping[str, Any]], options: TableOptions) -> Iterator[Claim]:
    """Claims of rows that are at hand, read like those of a table in JSON. Raises `UsageError` as `read_claims`."""
    plain = [{str(name): None if value != value else value for name, value in row.items()} for row in rows]  # no nan
    return read_table(json.dumps(plain, default=_plain), Path("rows"), options)


def _plain(value: Any) -> Any:
    """A number of a numeric library as one of Python's; anything else as text."""
    return value.item() if hasattr(value, "item") else str(value)


# --- what the user says ----------------------------------------------------------------------------------------------

_RATES: dict[str, float] = dict.fromkeys(
    ("", "tok/s", "toks/s", "t/s", "tokens/s", "tps", "token/s", "tokens/sec", "tok/sec", "toks/sec"), 1.0
)
_BYTES: dict[str, float] = {
    **dict.fromkeys(("b", "byte", "bytes"), 1.0),
    **{f"{letter}b": 1000.0**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024.0**power for power, letter in enumerate("kmgt", 1)},
}
_SPEEDS = {"": 1e9, **{f"{unit}/s": factor for unit, factor in _BYTES.items()}}
"""A bandwidth without a unit is in GB/s, as data sheets have it."""


@dataclass(frozen=True)
class RowDefaults:
    """What the user says about rows that do not say it themselves; field of a claim -> value."""

    values: dict[str, float | int | str] = field(default_factory=dict[str, float | int | str])
    rounding: dict[str, float] = field(default_factory=dict[str, float])

    def complete(self, claim: Claim) -> Claim:
        """The claim, and its other readings, with what they lacked. A baseline is given nothing about drafting."""
        if claim.problem is not None or not self.values:
            return claim
        if claim.rivals:
            rivals = tuple(tuple(self.complete(it) for it in rival) for rival in claim.rivals)
            claim = claim.model_copy(update={"rivals": rivals})
        plain = claim.method == "none"
        unsaid = (it for it in self.values if getattr(claim, it) is None and not (plain and it in _OF_DRAFTING))
        missing = {name: self.values[name] for name in unsaid}
        if not missing:
            return claim
        rounding = claim.rounding | {name: half for name, half in self.rounding.items() if name in missing}
        update: dict[str, object] = {**missing, "rounding": rounding}
        if "baseline_rate" in missing:
            update["baseline_from"] = "--baseline-rate"
        return claim.model_copy(update=update)


_OF_DRAFTING = frozenset({"baseline_rate", "draft_rate", "gamma", "cheapest_forward"})


def row_defaults(
    *,
    baseline_rate: str | None = None,
    draft_rate: str | None = None,
    gamma: int | None = None,
    device: str | None = None,
    bandwidth: str | None = None,
    bytes_per_token: str | None = None,
    cheapest_forward: float | None = None,
    flag: Callable[[str], str] = str,
) -> RowDefaults:
    """What was given. Raises `UsageError` naming the argument, as `flag` writes it, for a number that is none, or has
    the wrong unit."""
    given = RowDefaults()
    for name, option, text, units in (
        ("baseline_rate", "baseline_rate", baseline_rate, _RATES),
        ("draft_rate", "draft_rate", draft_rate, _RATES),
        ("bandwidth_bytes_per_s", "bandwidth", bandwidth, _SPEEDS),
        ("bytes_per_token", "bytes_per_token", bytes_per_token, _BYTES),
    ):
        if text is not None:
            given.values[name], given.rounding[name] = _number_of_option(flag(option), text, units)
    if cheapest_forward is not None:
        if not 0 < cheapest_forward <= 1:  # nan passes through every comparison that refuses
            option = flag("cheapest_forward")
            raise UsageError(f"{option} {cheapest_forward:g} not between 0 and 1", fix="give the ratio T(n) / T(1)")
        given.values["cheapest_forward"] = cheapest_forward
    if gamma is not None:
        given.values["gamma"] = gamma
    if device is not None:
        _refuse_unknown(device, flag)
        given.values["device"] = device
    return given


def noise_share(text: str | None) -> float | None:
    """Timing noise as a share, from percent; None where nothing is given, and the source itself says it.

    Raises `UsageError` for anything that is not between 0 and 50 %.
    """
    if text is None:
        return None
    value, _ = _number_of_option("--noise", text, {"": 0.01, "%": 0.01}, lowest=0.0)
    if value > 0.5:
        raise UsageError(f"--noise {text}: more than 50%", fix="give the percentage by which repeated timings differ")
    return value


def _number_of_option(
    option: str, text: str, units: dict[str, float], lowest: float | None = None
) -> tuple[float, float]:
    given = _NUMBER_AND_UNIT.fullmatch(text[:60])
    found = numbers(given[1]) if given is not None else []
    if given is None or len(found) != 1:
        raise UsageError(f"{option} {text[:60]!r} is not a number", fix="give one number, optionally with its unit")
    number, unit = found[0], given[2].replace(" ", "").lower()
    if number.value < 0 or (lowest is None and number.value == 0):
        raise UsageError(f"{option} {text[:60]!r} not above 0", fix="give the measured value")
    if unit not in units:
        known = ", ".join(name or "none" for name in units)
        said = f"has the unit {unit!r}" if unit else "has no unit"
        raise UsageError(f"{option} {text[:60]!r} {said}", fix=f"use one of these units: {known}")
    return number.value * units[unit], (number.hi - number.value) * units[unit]


_NUMBER_AND_UNIT = re.compile(r"\s*([-+~±.,\d ]*\d(?:e[+-]?\d{1,3})?\.?)\s*([a-zµ%/ ]*)", re.I | re.ASCII)


def _refuse_unknown(name: str, flag: Callable[[str], str]) -> None:
    if catalogue.peak(name) is not None:
        return
    near = difflib.get_close_matches(name, [device.name for device in catalogue.devices()], n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(
        f"{flag('device')} {name[:60]!r} is not in the catalogue of devices",
        fix=f"{hint}give its peak memory bandwidth with {flag('bandwidth')} instead",
    )


# --- rulings ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Audit:
    """A source with its rulings, in order."""

    source: str
    """The file, or `rows`."""
    format: str
    """Format it was read as (names of `specmeter audit --format`)."""
    rulings: tuple[Ruling, ...]
    """One per row of a table, or per run of a log."""
    noise: TimingNoise
    """Assumed timing noise."""
    notes: tuple[Message, ...] = ()
    """Observations about the whole source; never a verdict."""

    def __repr__(self) -> str:
        return f"<Audit of {self.source}, {tally(self.rulings)}>"

    @property
    def contradicted(self) -> int:
        """Rows whose own numbers contradict each other."""
        return sum(bool(ruling.contradictions) for ruling in self.rulings)

    @property
    def columns(self) -> tuple[ColumnRead, ...]:
        """How the columns of its tables were read; none for logs of engines and output of benchmarks."""
        tables = {id(it): it for it in (ruling.claim.columns for ruling in self.rulings)}
        return tuple(column for table in tables.values() for column in table)

    @property
    def summary(self) -> Message:
        """Rulings by verdict, and columns of speeds that were not read."""
        notes = dict.fromkeys(note for ruling in self.rulings for note in ruling.claim.notes)
        left = (it.values["columns"] for it in notes if isinstance(it, Message) and it.code == "read.rates_left")
        unread = dict.fromkeys(str(name) for names in left if isinstance(names, (list, tuple)) for name in names)
        unread |= dict.fromkeys(it.name for it in self.columns if not it.is_read and it.is_speed)
        counted = tally(self.rulings)
        if self.contradicted:
            counted = Message("audit.with_contradictions", told=counted, rows=self.contradicted)
        return Message("audit.unread_speeds", told=counted, columns=[*unread][:4]) if unread else counted

    @property
    def asked(self) -> dict[tuple[str, ...], int]:
        """Missing fields -> number of undecided rows that they would decide.

        One number where one will do, else two of them.
        """
        found: Counter[tuple[str, ...]] = Counter()
        for claim in (it.claim for it in self.rulings[:_MAX_ASKED] if it.verdict == "cannot tell"):
            if claim.problem is not None or claim.drafted_nothing or not claim.speculates:
                continue
            rate, plain = claim.decode_rate or 0.0, claim.baseline_rate or 1.0
            guesses = {"gamma": (4,), "baseline_rate": (rate, rate / 2), "draft_rate": (5 * plain, 100 * plain)}
            lacking = [name for name, values in guesses.items() if values[0] and getattr(claim, name) is None]
            for names in (*combinations(lacking, 1), *combinations(lacking, 2)):
                given = (dict(zip(names, values, strict=True)) for values in product(*(guesses[it] for it in names)))
                if all(self._decides(RowDefaults({**numbers}).complete(claim)) for numbers in given):
                    found[names] += 1
                    break
        return dict(found)

    def _decides(self, claim: Claim) -> bool:
        return rule_claim(claim, noise=self.noise.of(claim)).verdict != "cannot tell"

    def count(self, verdict: str) -> int:
        """How many rulings have that verdict."""
        return sum(ruling.verdict == verdict for ruling in self.rulings)


_MAX_ASKED = 1_000
"""Rulings that are tried with numbers that they lack."""


def counts(rulings: Iterable[Ruling]) -> dict[AuditVerdict, int]:
    """Verdict -> rulings, the worst first."""
    found = Counter(ruling.verdict for ruling in rulings)
    return {verdict: found[verdict] for verdict in VERDICTS}


def tally(rulings: Iterable[Ruling]) -> Message:
    """`24 rows: 18 implausible, 5 possible, 1 not read`."""
    found = Counter(called(ruling) for ruling in rulings)
    order = (*map(in_words, VERDICTS), Message("audit.not_read"))
    parts = [Message("audit.count", count=found[it], verdict=it) for it in order if found[it]]
    return Message("audit.tally" if parts else "audit.rows", rows=sum(found.values()), counts=parts)


def called(ruling: Ruling) -> Message:
    """What a ruling is called: its verdict, unless its row could not be read."""
    return Message("audit.not_read") if ruling.claim.problem is not None else in_words(ruling.verdict)


def rule(
    claims: Iterable[Claim], source: str, format_name: str, given: RowDefaults | None = None, noise: float | None = None
) -> Audit:
    """All claims of a source, completed and judged, with `noise` (a share) or the one that the source itself shows."""
    given = given or RowDefaults()
    whole = [given.complete(claim) for claim in claims]
    timing = noise_of(whole) if noise is None else TimingNoise(noise, Message("audit.noise_given"))
    rulings = tuple(rule_claim(claim, noise=timing.of(claim)) for claim in whole)
    return Audit(source, format_name, rulings, timing, notes_across(whole))


@cache
def published(name: str) -> Audit:
    """A published data set that comes with specmeter, judged. Raises `UsageError` for an unknown name.

    Its pages and `specmeter audit --published` both have their verdicts from here.
    """
    return rule(published_claims(name), name, "published")

"""Which experts of an MoE model a text chooses, read from llama.cpp's graph; and rates on random tokens next to text.

The text is decoded in segments, each from an empty memory. For every token and layer the ids of the chosen experts are
kept, one byte each up to 256 experts, two beyond. From them:

    unions      U(n): distinct experts of a layer in windows of n consecutive tokens, mean over windows and layers
    uniform     what uniform independent routing would touch (`theory.roofline.expected_union`)
    overlap     the parameters of `theory.roofline` that fit these unions
    balance     how evenly experts are used: entropy of their loads over ln E, and the largest load over the mean
    shared      share of a token's experts that the token before it chose, too

Segments are the units of intervals: windows of one segment overlap.

*Random tokens.* An MoE model may send random tokens to fewer experts than words, and what the token before has read may
still lie in a cache. So its rates on random tokens, which `llama-bench` measures, need not be its rates on text. The
same is read on as many random tokens of the whole vocabulary, and single tokens of both are timed in turn
(`time_both`): `DEPTH` tokens are put into memory, then `TIMED` are decoded one by one, of the text and of random
tokens, each in the first place every other time.
"""

from __future__ import annotations

import io
import math
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from specmeter.errors import UsageError
from specmeter.files import write_whole
from specmeter.llama_binding.context import Context, RoutingTap
from specmeter.llama_binding.model import Model
from specmeter.numbers.estimates import student_mean
from specmeter.numbers.stats import median_estimate
from specmeter.record import EngineSettings, Estimate, ExpertUnion, Record, UnionPoint
from specmeter.theory.roofline import expected_union, fit_union

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.llama_binding.context import Context

if TYPE_CHECKING:
    Ids = NDArray[np.unsignedinteger[Any]]
    Whole = NDArray[np.int64]
    Floats = NDArray[np.float64]


WINDOWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 25, 33)
"""n of the union curve."""
SEGMENT = 512
"""Tokens of a segment."""
_CHUNK = 64
"""Tokens of one forward while experts are read: all their logits must be asked for, and those of a large vocabulary
take a megabyte per token."""
_FIRST = 128
_HOTTEST = 5
_MAX_FILE_BYTES = 2**32
MAX_EXPERTS = 65_536


class RoutingOrder(Record):
    """What is to be read; `specmeter.probe.make` does it."""

    target: str
    """Path of the model file."""
    settings: EngineSettings
    experts: Annotated[int, Field(ge=1, le=MAX_EXPERTS)]
    """Experts of a layer, as the file's header has it."""
    text: str
    most_tokens: Annotated[int, Field(ge=1)]
    """Longer texts are cut there."""
    random: bool = False
    """Whether random tokens are looked at beside the text."""


class ContinuationsOrder(Record):
    """The experts of texts that were generated are to be read; `specmeter.probe.make` does it."""

    target: str
    """Path of the model file."""
    settings: EngineSettings
    experts: Annotated[int, Field(ge=1, le=MAX_EXPERTS)]
    """Experts of a layer, as the file's header has it."""
    texts: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    """Token ids of (prompt, what was generated after it)."""
    limit_s: float
    """Seconds after which no further text is started, the first one excepted."""


@dataclass(frozen=True)
class Routing:
    """The experts of every token."""

    experts: int
    """E: experts of a layer to choose from."""
    layers: tuple[int, ...]
    """Numbers of the layers that have experts."""
    ids: Ids
    """Shape (layers, tokens, experts used), likeliest first; segments one after the other."""
    segments: tuple[int, ...]
    """Tokens of each segment."""
    random: Ids | None = None
    """The same of as many random tokens, in the same segments; None where none were looked at."""
    times: TokenTimes | None = None
    """Of single tokens of both; None where they were not taken, or the text is too short."""

    @property
    def used(self) -> int:
        """K: experts of a token."""
        return self.ids.shape[2]

    @property
    def tokens(self) -> int:
        """Tokens of all segments."""
        return self.ids.shape[1]


class ExpertBalance(Record):
    """How evenly the experts of one layer are used."""

    layer: int
    entropy: float
    """Of the experts' shares, over ln E: 1 when all are used alike, 0 when only one is."""
    largest: float
    """Load of the hottest expert over the mean load."""
    unused: int
    """Experts that no token chose."""


class Hot(Record):
    """One of the experts that are used most."""

    layer: int
    expert: int
    load: float
    """Over the mean load of the layer."""


class Overlap(Record):
    """One model of `theory.roofline` for the measured unions."""

    model: str
    parameter: float
    rms: float
    """Root mean square of the relative residuals."""


class RandomTokens(Record):
    """What random tokens choose, and how fast they are, beside the text."""

    union: ExpertUnion
    shared: float
    """Share of a token's experts that the token before it chose, too."""
    chosen: tuple[int, ...]
    """Experts of each layer that any of the first 128 tokens chose, or of fewer where there are no more."""
    chosen_by_text: tuple[int, ...]
    """The same of the text."""
    text_ms: Estimate | None = None
    """A single token of the text; None where no times were taken, as for the next two."""
    random_ms: Estimate | None = None
    """A single random token."""
    faster: Estimate | None = None
    """Rate of random tokens over that of the text's."""


class RoutingSummary(Record):
    """What a text's routing comes to."""

    experts: int
    used: int
    layers: int
    tokens: int
    segments: int
    union: ExpertUnion
    uniform: tuple[float, ...]
    """Expected unions under uniform routing, point by point."""
    overlaps: tuple[Overlap, ...]
    """Empty where every token uses all experts, or the text is too short."""
    neighbours: float
    """Mean Jaccard index of two consecutive tokens' experts: those in both over those in either."""
    shared: float
    """Share of a token's experts that the token before it chose, too."""
    loads: tuple[ExpertBalance, ...]
    hottest: tuple[Hot, ...]
    random: RandomTokens | None = None
    """The same of random tokens; None where none were looked at."""


# --- reading ----------------------------------------------------------------------------------------------------------


def read_routing(order: RoutingOrder, done: Callable[[int], None]) -> Routing:
    """Decode the text and keep its experts; calls `done` with the number of segments that are complete.

    Raises `UsageError` for a text of fewer than two tokens or a model without experts, `EngineError` when llama.cpp
    fails.
    """
    tap = RoutingTap()
    settings = order.settings.model_copy(update={"context": max(order.settings.full_context, SEGMENT)})
    threads = settings.threads or 1
    with Model(Path(order.target), gpu_layers=settings.gpu_layers, devices=settings.devices) as model:
        text = model.tokenize(order.text, add_special=False, parse_special=False)[: order.most_tokens]
        if len(text) < 2:
            raise UsageError(f"the text has {len(text)} tokens", fix="give a longer text with --text")
        segments = [text[start : start + SEGMENT] for start in range(0, len(text), SEGMENT)]
        if len(segments) > 1 and len(segments[-1]) < SEGMENT:
            segments.pop()  # segments of one length weigh alike
        lengths = tuple(map(len, segments))
        drawn = draw(model.vocabulary_size, sum(lengths)) if order.random else []
        starts: list[int] = np.cumsum((0, *lengths[:-1])).tolist() if drawn else []
        segments += [drawn[start : start + length] for start, length in zip(starts, lengths, strict=False)]
        parts: list[dict[int, Any]] = []
        with Context(model, settings, threads=threads, rows=_CHUNK, tap=tap) as context:
            for index, segment in enumerate(segments):
                context.cut(0)
                for start in range(0, len(segment), _CHUNK):
                    context.decode(segment[start : start + _CHUNK], "all")
                parts.append(tap.take())
                done(index + 1)
        times = None
        if drawn:
            with Context(model, settings, threads=threads, rows=1) as context:
                times = time_both(context, text, drawn)
    layers, ids = _stacked(order, parts)
    ids, of_random = np.split(ids, [sum(lengths)], axis=1)
    return Routing(order.experts, layers, ids, lengths, of_random if drawn else None, times)


def read_continuations(order: ContinuationsOrder, done: Callable[[int], None]) -> Routing:
    """Decode prompts and what was generated after them, and keep the experts of the latter: a segment for each text.

    Calls `done` with the number of texts that are complete. Raises `UsageError` for a model without experts,
    `EngineError` when llama.cpp fails.
    """
    tap, settings = RoutingTap(), order.settings
    parts: list[dict[int, Any]] = []
    with (
        Model(Path(order.target), gpu_layers=settings.gpu_layers, devices=settings.devices) as model,
        Context(model, settings, threads=settings.threads or 1, rows=_CHUNK, tap=tap) as context,
    ):
        ends_at = time.monotonic() + order.limit_s  # loading does not count
        for prompt, text in order.texts:
            if parts and time.monotonic() > ends_at:
                break
            context.cut(0)
            context.extend(prompt)
            tap.take()
            size = min(_CHUNK, context.batch_size)
            for start in range(0, len(text), size):
                context.decode(text[start : start + size], "all")
            parts.append(tap.take())
            done(len(parts))
    layers, ids = _stacked(order, parts)
    return Routing(order.experts, layers, ids, tuple(len(text) for _, text in order.texts[: len(parts)]))


def _stacked(order: RoutingOrder | ContinuationsOrder, parts: Sequence[dict[int, Any]]) -> tuple[tuple[int, ...], Ids]:
    """(numbers of the layers that have experts, the experts of all segments)."""
    layers = tuple(sorted(parts[0]))
    if not layers:
        raise UsageError(f"{order.target}: this model has no layers with experts", fix="use an MoE model")
    ids = np.stack([np.concatenate([part[layer] for part in parts]) for layer in layers])
    if int(ids.max()) >= order.experts:
        raise UsageError(
            f"{order.target}: chose expert {int(ids.max())}, and its header says {order.experts} experts",
            fix="check the file with `specmeter models inspect`",
        )
    return layers, ids.astype(np.uint8 if order.experts <= 256 else np.uint16)


# --- files ------------------------------------------------------------------------------------------------------------


def save_routing(routing: Routing, path: Path) -> None:
    """Write `ids`, `layers`, `segments` and `experts` as a compressed NumPy archive, whole or not at all; with random
    tokens also `random`, of the shape of `ids`, and `times_ms` of shape (2, rounds): of the text, of random tokens.
    """
    buffer = io.BytesIO()
    more: dict[str, Any] = {} if routing.random is None else {"random": routing.random}
    if routing.times is not None:
        more["times_ms"] = np.array([routing.times.text, routing.times.random])
    np.savez_compressed(
        buffer,
        **more,
        ids=routing.ids,
        layers=np.array(routing.layers, dtype=np.uint16),
        segments=np.array(routing.segments, dtype=np.uint32),
        experts=np.array(routing.experts, dtype=np.uint32),
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, buffer.getvalue())
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror})", fix="choose another file with --out"
        ) from None


def load_routing(path: Path) -> Routing:
    """Read what `save_routing` wrote. Raises `UsageError` for anything else."""
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ValueError("it is too large")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            ids, layers, segments = archive["ids"], archive["layers"], archive["segments"]
            experts = int(archive["experts"])
            random = archive.get("random")
            times = archive.get("times_ms")
        if ids.ndim != 3 or ids.dtype not in (np.uint8, np.uint16) or 0 in ids.shape:
            raise ValueError(f"ids have shape {ids.shape} and type {ids.dtype}")
        if len(layers) != ids.shape[0] or int(segments.sum()) != ids.shape[1] or int(ids.max()) >= experts:
            raise ValueError("its parts contradict each other")
        if random is not None and (
            random.shape != ids.shape or random.dtype != ids.dtype or int(random.max()) >= experts
        ):
            raise ValueError("its random tokens do not match its text")
        if times is not None and times.shape[:1] != (2,):
            raise ValueError(f"times have shape {times.shape}")
        taken = None if times is None else TokenTimes(text=tuple(times[0].tolist()), random=tuple(times[1].tolist()))
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{path}: not a routing file of specmeter ({str(error)[:200]})",
            fix="make one with `specmeter probe TARGET --routing`",
        ) from None
    return Routing(experts, tuple(map(int, layers)), ids, tuple(map(int, segments)), random, taken)


# --- what follows -----------------------------------------------------------------------------------------------------


def summarize(routing: Routing, windows: Sequence[int] = WINDOWS) -> RoutingSummary:
    """Unions, overlap, balance. Windows longer than the shortest segment are left out."""
    total, used = routing.experts, routing.used
    able = [n for n in windows if n <= min(routing.segments)]
    union = _union(routing, routing.ids, able)
    measured = [point.union.point for point in union.points]
    overlaps: tuple[Overlap, ...] = ()
    if used < total and max(able) > 1:
        fits = (fit_union(able, measured, total, used, model) for model in ("draws", "power"))
        overlaps = tuple(Overlap(model=fit.model, parameter=fit.parameter, rms=fit.rms) for fit in fits)
    shares = _shares(routing)
    shared = _shared(routing, routing.ids)
    return RoutingSummary(
        experts=total,
        used=used,
        layers=len(routing.layers),
        tokens=routing.tokens,
        segments=len(routing.segments),
        union=union,
        uniform=tuple(float(expected_union(float(n), total, used)) for n in able),
        overlaps=overlaps,
        neighbours=float((shared / (2 - shared)).mean()),
        shared=float(shared.mean()),
        loads=tuple(_load(layer, share) for layer, share in zip(routing.layers, shares, strict=True)),
        hottest=_hottest(routing.layers, shares * total),
        random=None if routing.random is None else _random_tokens(routing, routing.random, able),
    )


def _random_tokens(routing: Routing, ids: Ids, windows: Sequence[int]) -> RandomTokens:
    times: dict[str, Estimate] = {}
    if (taken := routing.times) is not None:
        ratios = [text / random for text, random in zip(taken.text, taken.random, strict=True)]
        times = {
            "text_ms": median_estimate(taken.text, unit="ms", of="rounds"),
            "random_ms": median_estimate(taken.random, unit="ms", of="rounds"),
            "faster": median_estimate(ratios, unit="x", of="rounds"),
        }
    return RandomTokens(
        union=_union(routing, ids, windows),
        shared=float(_shared(routing, ids).mean()),
        chosen=_chosen(ids),
        chosen_by_text=_chosen(routing.ids),
        **times,
    )


def _chosen(ids: Ids) -> tuple[int, ...]:
    """Different experts of each layer among those of the first tokens: as many as llama-bench decodes by default."""
    return tuple(len(np.unique(layer[:_FIRST])) for layer in ids)


def _union(routing: Routing, ids: Ids, windows: Sequence[int]) -> ExpertUnion:
    means = np.stack([unions(part, windows) for part in _segments(routing, ids)])  # (segments, windows)
    points = tuple(UnionPoint(tokens=n, union=_estimate(means[:, place])) for place, n in enumerate(windows))
    return ExpertUnion(experts=routing.experts, used=routing.used, points=points)


def text_unions(routing: Routing, windows: Sequence[int] = WINDOWS) -> tuple[ExpertUnion, dict[int, tuple[float, ...]]]:
    """(U(n) over texts of any lengths, number of a layer -> the same of that layer alone).

    Each n over the texts that are so long, which weigh alike; an n that is longer than all texts is left out.
    """
    parts = _segments(routing, routing.ids)
    able = [n for n in windows if n <= max(routing.segments)]
    # (texts, layers, windows), NaN where a text is shorter than a window.
    found = np.full((len(parts), len(routing.layers), len(able)), np.nan)
    for text, ids in enumerate(parts):
        here = [n for n in able if n <= ids.shape[1]]
        for layer in range(len(routing.layers)):
            found[text, layer, : len(here)] = unions(ids[layer : layer + 1], here)
    means = found.mean(axis=1)
    points = tuple(
        UnionPoint(tokens=n, union=_estimate(column[np.isfinite(column)], "texts"))
        for n, column in zip(able, means.T, strict=True)
    )
    layers = np.nanmean(found, axis=0).round(4)
    by_layer = {number: tuple(row) for number, row in zip(routing.layers, layers.tolist(), strict=True)}
    return ExpertUnion(experts=routing.experts, used=routing.used, points=points), by_layer


def unions(ids: Ids, windows: Sequence[int]) -> Floats:
    """Mean distinct experts in all windows of n consecutive tokens, over layers too, for each n of `windows`.

    `ids` of one segment, shape (layers, tokens, used). Instead of looking at windows, each choice is asked in how many
    of them it is the first of its expert: those that begin after the expert's last choice before it.
    """
    layers, length, used = ids.shape
    layer = np.repeat(np.arange(layers, dtype=np.int64), length * used)
    token: Whole = np.tile(np.repeat(np.arange(length, dtype=np.int64), used), layers)
    expert: Whole = layer * MAX_EXPERTS + ids.ravel()
    # Choices of one expert of one layer stand together, in the order of their tokens.
    order = np.lexsort((token, expert))
    expert, token = expert[order], token[order]
    before: Whole = np.full(len(token), -1, dtype=np.int64)
    same = expert[1:] == expert[:-1]
    before[1:][same] = token[:-1][same]
    result = np.empty(len(windows))
    for place, n in enumerate(windows):
        first = np.maximum(np.maximum(before + 1, token - n + 1), 0)
        last = np.minimum(token, length - n)
        result[place] = np.maximum(0, last - first + 1).sum() / (layers * (length - n + 1))
    return result


def _segments(routing: Routing, ids: Ids) -> Sequence[Ids]:
    ends = np.cumsum(routing.segments)[:-1]
    return np.split(ids, ends, axis=1)


def _estimate(means: Floats, of: str = "segments") -> Estimate:
    """Mean over segments (or texts), with Student's interval where there are two that differ."""
    what = f"{len(means)} segments of text" if of == "segments" else f"{len(means)} {of}"
    method = f"mean over {what}, their windows and layers"
    return student_mean(means, "experts", f"{method}; Student t over {of}", alone=f"{method}; no interval", of=of)


def _shares(routing: Routing) -> Floats:
    """Share of all choices that each expert has. Shape (layers, experts)."""
    counts = [np.bincount(ids.ravel(), minlength=routing.experts) for ids in routing.ids]
    return np.stack(counts) / (routing.tokens * routing.used)


def _load(layer: int, share: Floats) -> ExpertBalance:
    chosen = share[share > 0]
    entropy = float(-(chosen * np.log(chosen)).sum())
    return ExpertBalance(
        layer=layer,
        entropy=entropy / math.log(len(share)) if len(share) > 1 else 1.0,
        largest=float(share.max()) * len(share),
        unused=int((share == 0).sum()),
    )


def _hottest(layers: Sequence[int], loads: Floats) -> tuple[Hot, ...]:
    order: list[int] = np.argsort(-loads, axis=None, kind="stable")[:_HOTTEST].tolist()
    places = (divmod(place, loads.shape[1]) for place in order)
    return tuple(Hot(layer=layers[row], expert=column, load=float(loads[row, column])) for row, column in places)


def _shared(routing: Routing, ids: Ids) -> Floats:
    """Share of its experts that each token has in common with the one before it, one value per pair and layer; 1 where
    no segment has two tokens."""
    shares: list[Floats] = []
    for part in _segments(routing, ids):
        left, right = part[:, :-1], part[:, 1:]
        both = (left[:, :, :, np.newaxis] == right[:, :, np.newaxis, :]).sum(axis=(2, 3))
        shares.append((both / routing.used).ravel())
    found = np.concatenate(shares)
    return found if len(found) else np.ones(1)


# --- random tokens beside those of the text --------------------------------------------------------------------------

DEPTH = 64
"""Tokens in memory before those that are timed."""
TIMED = 24
"""Tokens of a round that are timed, of each sort."""
ROUNDS = 10
"""Rounds that are kept; one before them warms up."""
SEED = 1

_Times = tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...]


class TokenTimes(Record):
    """Mean ms of a single token, round by round; the places of both belong together."""

    text: _Times
    random: _Times


def draw(vocabulary: int, count: int) -> list[int]:
    """Random tokens, each of the vocabulary as likely as any other; always the same ones."""
    return [int(token) for token in np.random.default_rng(SEED).integers(vocabulary, size=count)]


def time_both(context: Context, text: Sequence[int], random: Sequence[int]) -> TokenTimes | None:
    """Decode both in turn; None where either is shorter than a round."""
    needed = DEPTH + TIMED
    if min(len(text), len(random)) < needed:
        return None
    times: dict[str, list[float]] = {"text": [], "random": []}
    sorts = [("text", text), ("random", random)]
    for index in range(ROUNDS + 1):
        for name, tokens in sorts if index % 2 else sorts[::-1]:
            start = (len(tokens) - needed) * index // ROUNDS
            context.cut(0)
            context.extend(tokens[start : start + DEPTH])
            ms = _one_by_one(context, tokens[start + DEPTH : start + needed])
            if index:
                times[name].append(ms)
    return TokenTimes(text=tuple(times["text"]), random=tuple(times["random"]))


def _one_by_one(context: Context, tokens: Sequence[int]) -> float:
    started = time.perf_counter()
    for token in tokens:
        context.decode([token])
    return 1e3 * (time.perf_counter() - started) / len(tokens)

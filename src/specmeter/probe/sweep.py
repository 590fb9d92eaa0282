"""Times forwards over n tokens of real text, of one sequence or several, through llama.cpp's C interface.

A round is a place in the text: `depth` tokens before it are put into memory, then for every n, in a new random order,
forwards over n tokens run one after the other along the text, and all is cut back. So a slow minute of the machine
meets every n, and each n meets every place.

The first forward of each n is not timed: llama.cpp builds its graph again whenever n changes. A sample is the mean of
one round's timed forwards. The draft's T(1) is taken as drafting meets it: after a forward of the target, which has
thrown the draft's weights out of the caches. What a step costs beside its forwards is timed on the same logits.

*Several sequences*: T(b, n) is one forward over b sequences of n tokens each, each at a place of its own in the text.
From round to round other sequences take part. They lie in streams of their own, as in a server with several slots.
llama.cpp joins them in one forward only if their numbers are consecutive and they have equally many tokens. (T(2, 1) of
a bench model took 66.7 ms with scattered numbers and 27.6 ms with consecutive ones.)
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from specmeter.engines.libllama.verification import greedy
from specmeter.errors import UsageError
from specmeter.llama_binding.context import Context, Forward
from specmeter.llama_binding.model import Model
from specmeter.numbers.estimates import student_mean
from specmeter.numbers.stats import median_estimate
from specmeter.record import BatchPoint, EngineSettings, Record

if TYPE_CHECKING:
    from specmeter.llama_binding.context import Checkpoint, Context, TokenSequence
    from specmeter.llama_binding.model import Model
    from specmeter.probe.routing import Routing
    from specmeter.record import Estimate


MAX_TOKENS = 256
"""Tokens of one forward that are still called a verification."""
DRAFT_TOKENS = (1, 2, 3, 5, 9)
"""n of the draft's curve: one token at a time while it drafts, some more while it catches up with the target."""
DRAFTED_IN_A_ROW = 4
OVERHEAD_TOKENS = 5
"""n that the overhead of a step is taken at: gamma 4."""

Times = dict[int, list[float]]
"""n -> ms of each round."""


class Sweep(Record):
    """What is to be measured; `specmeter.probe.make` reads it."""

    target: str
    """Path of the model file."""
    draft: str | None = None
    settings: EngineSettings
    tokens: tuple[Annotated[int, Field(ge=1, le=MAX_TOKENS)], ...]
    depth: Annotated[int, Field(ge=1)]
    rounds: Annotated[int, Field(ge=1)]
    seed: int
    text: str


class Samples(Record):
    """What was measured."""

    target_ms: Times
    draft_ms: Times
    """Empty without a draft."""
    overhead_ms: list[float]
    """Of each round."""
    text_tokens: int
    """Length of the text."""


def longest_chain(tokens: Sequence[int]) -> int:
    """Tokens behind `depth` that a sweep puts into memory at most."""
    return max(max(n * (1 + _timed(n)) for n in tokens), 2 + DRAFTED_IN_A_ROW, 3 * max(DRAFT_TOKENS))


def sweep(order: Sweep, done: Callable[[int], None]) -> Samples:
    """Measure; calls `done` with the number of rounds that are complete.

    Raises `UsageError` for a text that is too short, `EngineError` when llama.cpp fails.
    """
    settings = order.settings
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(Model(Path(order.target), gpu_layers=settings.gpu_layers, devices=settings.devices))
        text = model.tokenize(order.text, add_special=False, parse_special=False)
        places = _places(len(text), order)
        target, draft = _contexts(order, model, stack)
        measured = _Measured({n: [] for n in order.tokens}, {}, [])
        if draft is not None:
            measured.draft = {n: [] for n in DRAFT_TOKENS if n <= max(order.tokens)}
        rng = np.random.default_rng(order.seed)
        for index, place in enumerate(places):
            before = text[place : place + order.depth]
            ahead = text[place + order.depth : place + order.depth + longest_chain(order.tokens)]
            for context in filter(None, (target, draft)):
                context.cut(0)
                context.extend(before)
            _round(target, draft, ahead, rng, measured, warm=index > 0)
            done(index)
    return Samples(
        target_ms=measured.target, draft_ms=measured.draft, overhead_ms=measured.overhead, text_tokens=len(text)
    )


@dataclass
class _Measured:
    target: Times
    draft: Times
    overhead: list[float]


def _round(
    target: Context, draft: Context | None, ahead: list[int], rng: np.random.Generator, into: _Measured, *, warm: bool
) -> None:
    """All n once, in an order of this round's own; with `warm` false nothing is kept."""
    here = Place(target)
    for n in rng.permutation(list(into.target)).tolist():
        ms = _chain(target, ahead, n)
        here.go_back()
        if warm:
            into.target[n].append(ms)
    overhead = _overhead(here, target, ahead, min(OVERHEAD_TOKENS, max(into.target)))
    if draft is None:
        if warm:
            into.overhead.append(overhead)
        return
    there = Place(draft)
    drafts: dict[int, float] = {}
    for n in rng.permutation(list(into.draft)).tolist():
        if n == 1:
            draft.decode(ahead[:1])
            target.decode(ahead[:1])
            drafts[n] = _timed_forwards(draft, ahead[1:], 1, DRAFTED_IN_A_ROW)
            here.go_back()
        else:
            drafts[n] = _chain(draft, ahead, n)
        there.go_back()
    draft.decode(ahead[:1])
    started = time.perf_counter()
    there.go_back()
    overhead += 1e3 * (time.perf_counter() - started)
    if warm:
        for n, ms in drafts.items():
            into.draft[n].append(ms)
        into.overhead.append(overhead)


def _chain(context: Context, ahead: list[int], n: int) -> float:
    """ms of a forward over n tokens, after one of the same n that is not timed."""
    context.decode(ahead[:n], "all")
    return _timed_forwards(context, ahead[n:], n, _timed(n))


def _timed_forwards(context: Context, ahead: list[int], n: int, count: int) -> float:
    """Mean ms of `count` forwards over n tokens each, logits of all of them read."""
    total = 0.0
    for index in range(count):
        tokens = ahead[index * n : (index + 1) * n]
        started = time.perf_counter()
        context.decode(tokens, "all")
        total += time.perf_counter() - started
    return 1e3 * total / count


def _timed(n: int) -> int:
    """Forwards of one round that are timed."""
    return 3 if n <= 4 else 2 if n <= 8 else 1


def _overhead(here: Place, target: Context, ahead: list[int], n: int) -> float:
    """ms that a step over n tokens takes beside its forward: choosing and comparing tokens, going back."""
    saving = here.again()
    rows = target.decode(ahead[:n], "all")
    started = time.perf_counter()
    greedy(ahead[1:n], rows)
    here.go_back()
    return saving + 1e3 * (time.perf_counter() - started)


class Place:
    """Where a sequence is now, to come back to."""

    def __init__(self, context: TokenSequence) -> None:
        self._context = context
        self._length = context.length
        self._checkpoint: Checkpoint | None = None
        self.again()

    def again(self) -> float:
        """Save what cannot be cut; ms that it took."""
        started = time.perf_counter()
        if not self._context.can_cut:
            self._checkpoint = self._context.save()
        return 1e3 * (time.perf_counter() - started)

    def go_back(self) -> None:
        if self._checkpoint is not None:
            self._context.restore(self._checkpoint)
        else:
            self._context.cut(self._length)


def _contexts(order: Sweep, model: Model, stack: contextlib.ExitStack) -> tuple[Context, Context | None]:
    settings, threads = order.settings, order.settings.threads or 1
    target = stack.enter_context(Context(model, settings, threads=threads, rows=max(order.tokens)))
    if order.draft is None:
        return target, None
    other = stack.enter_context(
        Model(Path(order.draft), gpu_layers=settings.draft_gpu_layers, devices=settings.draft_devices)
    )
    return target, stack.enter_context(Context(other, settings, threads=threads, draft=True, rows=max(DRAFT_TOKENS)))


def _places(length: int, order: Sweep) -> list[int]:
    """Where rounds begin in the text, evenly spread; the first one warms up and is not kept."""
    needed = order.depth + longest_chain(order.tokens)
    if length < needed:
        raise UsageError(
            f"the text has {length} tokens, but {needed} are needed (--depth {order.depth}, plus forward passes over "
            f"up to {max(order.tokens)} tokens)",
            fix="give a longer text with --text, or lower --depth or --tokens",
        )
    return [int(place) for place in np.linspace(0, length - needed, order.rounds + 1)]


# --- forwards over several sequences ---------------------------------------------------------------------------------

MAX_SEQUENCES = 256
"""llama.cpp's own limit."""
TOKENS = (1, 2, 3, 5, 9)
"""n that are timed with every b, unless others are asked for."""
_UBATCH = 512
"""Tokens that llama.cpp computes at once unless told otherwise; longer forwards are several, and not measured."""
_DRAWS = 12
"""Forwards that a union of experts is the mean over."""
_CELLS = 256

Shape = tuple[int, int]
"""(b, n)"""


class BatchSweep(Record):
    """What is to be measured; `specmeter.probe.make` reads it."""

    target: str
    """Path of the model file."""
    settings: EngineSettings
    """Its context is that of one sequence."""
    sequences: tuple[Annotated[int, Field(ge=1, le=MAX_SEQUENCES)], ...]
    tokens: tuple[Annotated[int, Field(ge=1, le=MAX_TOKENS)], ...]
    depth: Annotated[int, Field(ge=1)]
    rounds: Annotated[int, Field(ge=1)]
    seed: int
    text: str


class BatchSamples(Record):
    """What was measured."""

    shapes: tuple[Shape, ...]
    ms: tuple[tuple[float, ...], ...]
    """Of each shape, ms of each round."""
    unified: bool
    """Whether all sequences lay in one memory."""


def shapes(sequences: Sequence[int], tokens: Sequence[int], ubatch: int | None) -> list[Shape]:
    """(b, n) that llama.cpp computes at once, ascending."""
    most = ubatch or _UBATCH
    return [(b, n) for b in sorted(set(sequences)) for n in sorted(set(tokens)) if b * n <= most]


def sweep_batches(order: BatchSweep, done: Callable[[int], None]) -> BatchSamples:
    """Measure; calls `done` with the number of rounds that are complete.

    Raises `UsageError` for a text that is too short or shapes that are too large, `EngineError` when llama.cpp fails.
    """
    asked = shapes(order.sequences, order.tokens, order.settings.ubatch)
    if not asked:
        raise UsageError("no combination of sequences and tokens fits in one forward pass", fix="lower --batch")
    most, longest = max(b for b, _ in asked), 2 * max(n for _, n in asked)
    rows = max(b * n for b, n in asked)
    each = -(-(order.depth + longest) // _CELLS) * _CELLS
    settings = order.settings.model_copy(
        update={"context": most * each, "batch": max(rows, order.settings.batch or 2048, order.depth)}
    )
    times: dict[Shape, list[float]] = {shape: [] for shape in asked}
    rng = np.random.default_rng(order.seed)
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(Model(Path(order.target), gpu_layers=settings.gpu_layers, devices=settings.devices))
        text = model.tokenize(order.text, add_special=False, parse_special=False)
        needed = order.depth + longest
        if len(text) < needed:
            raise UsageError(
                f"the text has {len(text)} tokens, but each sequence needs {needed}",
                fix="give a longer text with --text, or lower --depth or --tokens",
            )
        memory = stack.enter_context(
            Context(model, settings, threads=settings.threads or 1, rows=rows, sequences=most, unified=False)
        )
        starts = [int(at) for at in np.linspace(0, len(text) - needed, most)]
        for sequence, start in zip(memory.sequences, starts, strict=True):
            sequence.extend(text[start : start + order.depth])
        places = [Place(sequence) for sequence in memory.sequences]
        ahead = [text[start + order.depth : start + needed] for start in starts]
        for index in range(order.rounds + 1):
            turns: list[int] = rng.permutation(len(asked)).tolist()
            for b, n in (asked[turn] for turn in turns):
                first = index * b % (most - b + 1)
                ms = _timed_together(memory, range(first, first + b), ahead, n)
                for number in range(first, first + b):
                    places[number].go_back()
                if index:
                    times[b, n].append(ms)
            done(index)
        unified = memory.unified
    return BatchSamples(shapes=tuple(asked), ms=tuple(tuple(times[shape]) for shape in asked), unified=unified)


def _timed_together(memory: Context, numbers: Sequence[int], ahead: Sequence[Sequence[int]], n: int) -> float:
    """ms of a forward over n tokens of each of these sequences, after one that is not timed."""
    took = 0.0
    for start in (0, n):
        forwards = [Forward(memory.sequences[it], ahead[it][start : start + n], "all") for it in numbers]
        started = time.perf_counter()
        memory.decode_together(forwards)
        took = time.perf_counter() - started
    return 1e3 * took


def batch_points(samples: BatchSamples, depth: int, routing: Routing | None) -> tuple[BatchPoint, ...]:
    """What was measured, each b with its n ascending; with unions where the experts of a text are given."""
    unions: Mapping[Shape, Estimate] = {} if routing is None else batch_unions(routing, samples.shapes)
    return tuple(
        BatchPoint(
            sequences=b,
            tokens=n,
            depth=depth,
            ms=median_estimate(ms, unit="ms", of="rounds"),
            union=unions.get((b, n)),
        )
        for (b, n), ms in zip(samples.shapes, samples.ms, strict=True)
    )


def batch_unions(routing: Routing, asked: Sequence[Shape], seed: int = 1) -> dict[Shape, Estimate]:
    """Distinct experts of a layer that forwards over b texts of n tokens each read, mean over layers.

    Windows are drawn from all segments, each within one; the text is short beside what many sequences read, so large
    shapes share tokens from draw to draw, and their intervals are too narrow. Windows longer than a segment are left
    out.
    """
    rng = np.random.default_rng(seed)
    begins = np.cumsum((0, *routing.segments[:-1]))
    found: dict[Shape, Estimate] = {}
    for b, n in asked:
        able = [(int(at), length) for at, length in zip(begins, routing.segments, strict=True) if length >= n]
        if not able:
            continue
        # Windows that begin a whole number of windows apart do not overlap; only where these run out they come again.
        windows = np.array([at + n * place for at, length in able for place in range(length // n)])
        means: list[float] = []
        for _ in range(_DRAWS):
            starts = rng.choice(windows, size=b, replace=b > len(windows))
            tokens = (starts[:, np.newaxis] + np.arange(n)).ravel()
            means.append(float(np.mean([len(np.unique(layer[tokens])) for layer in routing.ids])))
        method = f"mean over {_DRAWS} draws of {b} places of the text, and layers"
        found[b, n] = student_mean(
            means, "experts", f"{method}; Student t over draws", alone=f"{method}; no interval", of="draws"
        )
    return found

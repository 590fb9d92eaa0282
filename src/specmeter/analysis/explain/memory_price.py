"""What a draft costs in memory, and what the same bytes would buy: a better quantization, or context.

A draft takes its weights, a KV cache of its own for the whole context, and the buffers of its graphs; a target that
verifies several tokens at once may need larger buffers too. All of it is what the engine printed for an arm's first
session, less what it printed for its baseline's. If it printed nothing, the file's size and the header's arithmetic
are taken, without buffers.

With P parameters in a target of F bytes, a draft of D bytes is worth 8 D / P more bits per weight. Which type of
llama.cpp that would be goes by the bits that its quantization has on Llama-3.1-8B; other models differ by a few
hundredths. A report of `specmeter quality` that holds this target next to others of as many parameters gives the change
of perplexity and of the rate.

Source of the bits: tools/quantize/README.md of llama.cpp (read at commit 311c2c9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from specmeter.analysis.quality import ModelQuality, QualityReport
from specmeter.analysis.quality_comparison import perplexity_change, speed_change
from specmeter.messages import Message
from specmeter.models.gguf import TYPE_BY_NAME
from specmeter.record import Arm, DeviceUse, Estimate, KvType, ModelIdentity, Record, Session

TYPES: Mapping[str, float] = {
    "Q2_K": 3.1593, "Q3_K_S": 3.6429, "Q3_K_L": 4.2979, "IQ4_XS": 4.4597, "Q4_K_S": 4.6672, "Q4_K_M": 4.8944,
    "Q5_K_S": 5.5704, "Q5_K_M": 5.7036, "Q6_K": 6.5633, "Q8_0": 8.5008, "F16": 16.0005,
}  # fmt: skip
"""Bits per weight of llama.cpp's usual types, few to many."""
_BETTER = 1.02
"""A type that holds this many times the bits is another one, not the same with other rows."""


class OtherQuantization(Record):
    """The target in another quantization."""

    name: str
    bits_per_weight: float
    more_bytes: int
    """Than the target's file."""
    perplexity: Estimate | None = None
    """Over the target's own; below 1 is better. None where it was not measured."""
    speed: Estimate | None = None
    """Rate of plain generation over the target's own; None where it was not measured."""


class MemoryPrice(Record):
    """What one draft of one target takes, and what that would buy."""

    arm_id: str
    """The arm."""
    target: str
    draft: str
    means: Literal["printed by the engine", "from the header"]
    weights_bytes: int
    kv_bytes: int
    """KV cache of the draft, for the whole context."""
    buffers_bytes: int
    """Buffers of the draft's graphs; 0 where the engine printed none."""
    target_bytes: int
    """By how much the target's own caches and buffers are larger than its baseline's."""
    share: float
    """Of the size of the target's file."""
    context_tokens: int | None = None
    """Tokens that the target's KV cache would hold in these bytes; None where its layout is not known."""
    bits_now: float | None = None
    """Bits per weight of the target's file; None where the header is not on record."""
    bits_for_it: float | None = None
    """The same with the draft's bytes spent on the target."""
    buys: OtherQuantization | None = None
    """The best usual type that fits into these bytes; None where none does."""
    lacks: OtherQuantization | None = None
    """Where none fits: the next better one."""
    measured: tuple[OtherQuantization, ...] = ()
    """Better quantizations of this target that fit, as they were measured; the largest last."""

    @property
    def total_bytes(self) -> int:
        """Everything that the draft takes."""
        return self.weights_bytes + self.kv_bytes + self.buffers_bytes + self.target_bytes


def memory_prices(
    arms: Iterable[Arm],
    models: Mapping[str, ModelIdentity],
    sessions: Iterable[Session],
    reports: Sequence[QualityReport] = (),
) -> tuple[MemoryPrice, ...]:
    """One price for every pair of a target and a draft model, that of the arm which takes the most."""
    found: dict[tuple[str, str], MemoryPrice] = {}
    for price in arm_prices(arms, models, sessions, reports):
        known = found.get((price.target, price.draft))
        if known is None or price.total_bytes > known.total_bytes:
            found[price.target, price.draft] = price
    return tuple(found.values())


def arm_prices(
    arms: Iterable[Arm],
    models: Mapping[str, ModelIdentity],
    sessions: Iterable[Session],
    reports: Sequence[QualityReport] = (),
) -> tuple[MemoryPrice, ...]:
    """One price for every arm with a draft model whose models are on record."""
    first: dict[str, Session] = {}
    for session in sessions:
        first.setdefault(session.arm_id, session)
    return tuple(
        _with_uses(
            _price(arm, models[arm.target], models[arm.draft], first.get(arm.id), first.get(arm.baseline_id or "")),
            arm,
            models[arm.target],
            reports,
        )
        for arm in arms
        if arm.draft is not None and {arm.draft, arm.target} <= models.keys()
    )


def _price(
    arm: Arm, target: ModelIdentity, draft: ModelIdentity, session: Session | None, baseline: Session | None
) -> MemoryPrice:
    uses = session.draft_devices if session else ()
    printed = any(use.model_buffer_bytes for use in uses)
    header = draft.header
    kv = 0 if header is None else _kv_bytes(header.kv_bytes_per_token, arm, draft=True) * arm.engine.full_context
    grown = 0
    if session and baseline and printed:
        grown = max(0, _beside_weights(session.devices) - _beside_weights(baseline.devices))
    weights = sum(use.model_buffer_bytes for use in uses) if printed else draft.size_bytes
    kv = sum(use.kv_buffer_bytes for use in uses) if printed else round(kv)
    buffers = sum(use.compute_buffer_bytes for use in uses)
    return MemoryPrice(
        arm_id=arm.id,
        target=arm.target,
        draft=draft.name,
        means="printed by the engine" if printed else "from the header",
        weights_bytes=weights,
        kv_bytes=kv,
        buffers_bytes=buffers,
        target_bytes=grown,
        share=(weights + kv + buffers + grown) / max(1, target.size_bytes),
    )


def _with_uses(price: MemoryPrice, arm: Arm, target: ModelIdentity, reports: Sequence[QualityReport]) -> MemoryPrice:
    """The price with what its bytes would buy."""
    header, more = target.header, price.total_bytes
    if header is None or not header.parameters:
        return price
    per_token = _kv_bytes(header.kv_bytes_per_token, arm, draft=False)
    now, then = (8 * size / header.parameters for size in (target.size_bytes, target.size_bytes + more))
    better = [
        OtherQuantization(
            name=name, bits_per_weight=bits, more_bytes=round(bits * header.parameters / 8) - target.size_bytes
        )
        for name, bits in TYPES.items()
        if bits > _BETTER * now
    ]
    fitting = [rung for rung in better if rung.more_bytes <= more]
    return price.model_copy(
        update={
            "context_tokens": int(more / per_token) if per_token else None,
            "bits_now": now,
            "bits_for_it": then,
            "buys": fitting[-1] if fitting else None,
            "lacks": better[0] if better and not fitting else None,
            "measured": _measured(target, more, reports),
        }
    )


def _measured(target: ModelIdentity, more: int, reports: Sequence[QualityReport]) -> tuple[OtherQuantization, ...]:
    """Other quantizations of the target that fit, from reports in which it stands itself; the first report counts."""
    found: dict[str, OtherQuantization] = {}
    for report in reports:
        own = next((model for model in report.models if model.model.sha256 == target.sha256), None)
        if own is None:
            continue
        for other in report.models:
            gained = other.model.size_bytes - own.model.size_bytes
            if 0 < gained <= more and _is_same_model(own, other):
                found.setdefault(
                    other.model.sha256,
                    OtherQuantization(
                        name=other.model.name or other.model.reference,
                        bits_per_weight=other.bits_per_weight,
                        more_bytes=gained,
                        perplexity=perplexity_change(other, own),
                        speed=speed_change(other, own),
                    ),
                )
    return tuple(sorted(found.values(), key=lambda rung: rung.more_bytes))


def _is_same_model(own: ModelQuality, other: ModelQuality) -> bool:
    """Of one architecture and as many parameters: another quantization, as far as headers can tell."""
    ours, theirs = own.model.header, other.model.header
    if ours is None or theirs is None:
        return False
    return (ours.architecture, ours.parameters) == (theirs.architecture, theirs.parameters)


def _kv_bytes(in_16_bit: int | None, arm: Arm, *, draft: bool) -> float:
    """Bytes of the KV cache for one more token, in the types that the arm asks for; 0 where the layout is not known.

    A type that is not one of llama.cpp's is taken for 16 bits.
    """
    engine = arm.engine
    types: tuple[KvType | None, ...] = (
        (engine.draft_kv_type_k, engine.draft_kv_type_v) if draft else (engine.kv_type_k, engine.kv_type_v)
    )
    block = 256
    shares = [TYPE_BY_NAME.get(kind or "f16", TYPE_BY_NAME["f16"]).row_bytes(block) / (2 * block) for kind in types]
    return (in_16_bit or 0) * sum(shares) / 2


def _beside_weights(uses: Iterable[DeviceUse]) -> int:
    return sum(use.kv_buffer_bytes + use.compute_buffer_bytes for use in uses)


# --- in words --------------------------------------------------------------------------------------------------------


def sentence(price: MemoryPrice) -> Message:
    """What the bytes would buy, in a sentence or two."""
    context = None
    if price.context_tokens:
        context = Message("memory-price.context", draft=price.draft, tokens=price.context_tokens)
    if price.bits_now is None or price.bits_for_it is None:
        unknown = Message("memory-price.unknown")
        return unknown if context is None else Message("memory-price.context_only", context=context)
    weights = Message("memory-price.bits", target=price.target, bits=price.bits_for_it, now=price.bits_now)
    held = (
        Message("memory-price.weights", draft=price.draft, weights=weights)
        if context is None
        else Message("memory-price.either", context=context, weights=weights)
    )
    types = [_type(rung) for rung in price.measured]
    measured = Message("memory-price.measured", types=types) if types else ""
    if (rung := price.buys or price.lacks) is None:
        return Message("memory-price.best", held=held, measured=measured)
    code = "memory-price.fits" if price.buys is not None else "memory-price.lacks"
    return Message(code, held=held, name=rung.name, bits=rung.bits_per_weight, measured=measured)


def _type(rung: OtherQuantization) -> list[Message]:
    """`Q6_K (6.56 bits per weight), perplexity 0.981x, plain speed 0.794x`."""
    told = [Message("memory-price.type", name=rung.name, bits=rung.bits_per_weight)]
    if rung.perplexity is not None:
        told.append(Message("memory-price.perplexity", times=_times(rung.perplexity)))
    if rung.speed is not None:
        told.append(Message("memory-price.speed", times=_times(rung.speed)))
    return told


def _times(estimate: Estimate) -> str:
    ends = "" if estimate.low is None or estimate.high is None else f" [{estimate.low:.3f}, {estimate.high:.3f}]"
    return f"{estimate.point:.3f}x{ends}"

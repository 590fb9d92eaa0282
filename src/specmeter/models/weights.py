"""What a model's tensors weigh, and how much of that the engine reads for one token."""

from __future__ import annotations

import re
from collections.abc import Iterable

from specmeter.models.gguf_header import Tensor
from specmeter.record import Record

_LAYER = re.compile(r"^blk\.(\d+)\.")
_STACKED_EXPERTS = re.compile(r"^blk\.\d+\.ffn_\w*exps\.(?:weight|bias|scale)$")
_SINGLE_EXPERT = re.compile(r"^blk\.\d+\.ffn_(?:gate|up|down)\.\d+\.weight$")
"""Files of early 2024 keep each expert in a tensor of its own."""
_LOOKUP_TABLES = frozenset({"token_embd.weight", "per_layer_token_embd.weight", "position_embd.weight"})


class QuantizationShare(Record):
    """The part of a model that is stored in one number format."""

    type: str
    tensors: int
    parameters: int
    size_bytes: int


class Weights(Record):
    """Parameters and bytes of a model, split by when they are read."""

    parameters: int
    active_parameters: int
    """Used for one token: without the experts that are not chosen and without draft heads (MTP)."""
    size_bytes: int
    quantization: tuple[QuantizationShare, ...]
    """Largest share first."""
    always_read_bytes: int
    """Read for every token: all but embedding tables, experts and draft heads; tied embeddings are read as output."""
    lookup_bytes: int
    """One row of each embedding table."""
    expert_bytes: int
    """One expert in every mixture-of-experts layer."""
    active_expert_bytes: int
    """The experts chosen for one token, in every layer."""
    draft_head_bytes: int = 0
    """Multi-token-prediction layers, which plain decoding does not read."""

    @property
    def bytes_per_token(self) -> int:
        """Bytes of weights read to decode one token by itself."""
        return self.always_read_bytes + self.lookup_bytes + self.active_expert_bytes

    def bytes_per_forward(self, tokens: int, experts: float) -> float:
        """Bytes of weights read by a forward of `tokens` tokens that touches `experts` distinct experts per layer."""
        return self.always_read_bytes + tokens * self.lookup_bytes + experts * self.expert_bytes


def weigh(tensors: Iterable[Tensor], layers: int | None, experts: int, experts_used: list[int] | None) -> Weights:
    """Weigh a model's tensors.

    `layers` is the number of layers without draft heads (None: not known), `experts` the number of experts per layer
    and `experts_used` how many of them each layer chooses for a token (None: not known, all).
    """
    tensors = tuple(tensors)
    tied = all(tensor.name != "output.weight" for tensor in tensors)
    always = lookup = one_expert = chosen = draft_heads = 0.0
    inactive_parameters = 0.0
    shares: dict[str, list[int]] = {}
    for tensor in tensors:
        share = shares.setdefault(tensor.type.name, [0, 0, 0])
        for index, amount in enumerate((1, tensor.elements, tensor.bytes)):
            share[index] += amount
        match = _LAYER.match(tensor.name)
        layer = int(match[1]) if match else None
        if layer is not None and layers is not None and layer >= layers:
            draft_heads += tensor.bytes
            inactive_parameters += tensor.elements
        elif experts and (
            _SINGLE_EXPERT.match(tensor.name) or (_STACKED_EXPERTS.match(tensor.name) and tensor.shape[-1] == experts)
        ):
            used = experts_used[layer] if experts_used is not None and layer is not None else experts
            one_expert += tensor.bytes / experts
            chosen += tensor.bytes * used / experts
            inactive_parameters += tensor.elements * (experts - used) / experts
        elif tensor.name in _LOOKUP_TABLES:
            lookup += tensor.type.row_bytes(tensor.shape[0])
            always += tensor.bytes if tied and tensor.name == "token_embd.weight" else 0
        else:
            always += tensor.bytes
    parameters = sum(tensor.elements for tensor in tensors)
    mix = sorted(shares.items(), key=lambda item: -item[1][2])
    return Weights(
        parameters=parameters,
        active_parameters=round(parameters - inactive_parameters),
        size_bytes=sum(tensor.bytes for tensor in tensors),
        quantization=tuple(
            QuantizationShare(type=name, tensors=count, parameters=elements, size_bytes=size)
            for name, (count, elements, size) in mix
        ),
        always_read_bytes=round(always),
        lookup_bytes=round(lookup),
        expert_bytes=round(one_expert),
        active_expert_bytes=round(chosen),
        draft_head_bytes=round(draft_heads),
    )

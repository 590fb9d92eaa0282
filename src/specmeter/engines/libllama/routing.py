"""Which experts a forward reads: taken from llama.cpp's graph while it computes.

llama.cpp shows every tensor to a callback. Those named `ffn_moe_topk-LAYER` hold the ids of the experts chosen: a view
of all experts sorted by score, whose rows lie apart. Asking for them makes llama.cpp compute its graph in pieces, so
times of such forwards are not comparable with others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specmeter.engines.libllama import capi

ExpertIds = np.ndarray[Any, np.dtype[np.uint16]]
"""Experts of one layer, likeliest first. Shape (tokens, experts used)."""

_NAME = "ffn_moe_topk-"
_MOST_LAYERS = 10_000


class RoutingTap:
    """Collects the experts of every forward of the context that it is given to."""

    def __init__(self) -> None:
        self._lib = capi.library()
        self._found: dict[int, list[ExpertIds]] = {}
        self.callback = capi.EvalCallback(self._on_tensor)
        """For llama.cpp, which holds only its address: the tap must live as long as the context."""

    def take(self) -> dict[int, ExpertIds]:
        """Layer -> experts of all tokens since the last call, in their order; nothing for dense models.

        llama.cpp computes the last layer only for tokens whose logits are wanted; ask for all of them.
        """
        found = {layer: np.concatenate(parts) for layer, parts in sorted(self._found.items())}
        self._found = {}
        return found

    def _on_tensor(self, tensor: int, asking: bool, _: object) -> bool:
        name: bytes = self._lib.ggml_get_name(tensor) or b""
        layer = _layer(name.decode("utf-8", "replace"))
        if layer is None:
            return not asking
        if not asking:
            head = capi.TensorHead.from_address(tensor)
            ids = np.empty((head.ne[1], head.ne[0]), dtype=np.int32)
            for row in range(ids.shape[0]):
                self._lib.ggml_backend_tensor_get(tensor, ids[row].ctypes.data, row * head.nb[1], ids[row].nbytes)
            self._found.setdefault(layer, []).append(ids.astype(np.uint16))
        return True


def _layer(name: str) -> int | None:
    if not name.startswith(_NAME):
        return None
    number = name[len(_NAME) :]
    return int(number) if number.isdecimal() and int(number) < _MOST_LAYERS else None

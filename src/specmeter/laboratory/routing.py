"""Reads which experts a run's texts choose, with its MoE targets, when it has been measured.

Servers do not show their experts, and reading them slows forwards down, so they are read afterwards: prompts and the
texts that the baseline generated go through the target once more. A rejected draft token is another token, whose
experts are on record only if the engine itself recorded them (`engine.record_experts`).

It may take a twentieth of the time that the run took, or ten seconds. Nothing that goes wrong here fails the run.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.errors import EngineError, UsageError
from specmeter.messages import Message
from specmeter.probe.profile import allowed_s
from specmeter.probe.routing import MAX_EXPERTS, WINDOWS, ContinuationsOrder, load_routing, text_unions
from specmeter.record import UNKNOWN_TOKEN, Arm, TextRouting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specmeter.measure import Work
    from specmeter.store import RunStore


ROUTING_SHARE = 0.05
"""Of the time that the run took."""
MAX_TOKENS = 8192
"""Tokens of all prompts and texts: as much as tells a mean."""
SHORTEST = 2
"""Tokens of a text that says anything about windows."""
_LONG_WINDOWS = (49, 65)
"""Beyond those of probes: verifications of 48 and 64 drafted tokens."""
_LOADING_S = 120.0
_LONGEST_REASON = 300


def measure_routing(work: Work, store: RunStore) -> None:
    """Read the experts of every MoE target that the run does not know them of, and keep them; what failed is tried
    again when the run is resumed.

    Raises `StoreError`; Ctrl-C passes on.
    """

    if work.simulated:
        return
    known = {it.target for it in store.routing() if it.union is not None}
    headers = {name: model.header for name, model in work.models.items()}
    sparse = {name for name, it in headers.items() if it and MAX_EXPERTS >= it.experts > it.experts_used > 0} - known
    baselines = [it for it in work.arms.values() if it.role == "baseline" and it.target in sparse]
    wanted = {it.target: it for it in reversed(baselines)}
    left_s = allowed_s(store, ROUTING_SHARE)
    for arm in wanted.values():
        texts = list(_texts(arm, store))
        if texts:
            store.add_routing(_read(work, arm, texts, left_s / len(wanted)))


def _read(work: Work, arm: Arm, texts: list[tuple[tuple[int, ...], tuple[int, ...]]], limit_s: float) -> TextRouting:
    from specmeter.engines.process import default_threads
    from specmeter.probe.make import read_apart

    target = work.models[arm.target]
    own = {"threads": arm.engine.threads or default_threads()}
    # The library that reads may have been built for fewer devices than an engine of the user's.
    elsewhere = {} if work.traits.pinned else {"devices": (), "gpu_layers": None, "rpc": ()}
    order = ContinuationsOrder(
        target=target.path,
        settings=arm.engine.model_copy(update={**own, **elsewhere}),
        experts=target.header.experts if target.header else 1,
        texts=tuple(texts),
        limit_s=limit_s,
    )
    try:
        with tempfile.TemporaryDirectory(prefix="specmeter-routing-") as folder:
            routing = load_routing(read_apart(order, Path(folder), limit_s=2 * limit_s + _LOADING_S))
    except (EngineError, UsageError, OSError) as error:
        reason = str(error) if isinstance(error, OSError) else error.message
        failure = Message("text.outside", text=reason[:_LONGEST_REASON])
        return TextRouting(target=arm.target, baseline_id=arm.id, failure=failure)
    union, layers = text_unions(routing, (*WINDOWS, *_LONG_WINDOWS))
    return TextRouting(
        target=arm.target,
        baseline_id=arm.id,
        texts=len(routing.segments),
        tokens=routing.tokens,
        union=union,
        layers=layers,
    )


def _texts(arm: Arm, store: RunStore) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(prompt, text) of a baseline's first answer to each prompt, up to `MAX_TOKENS` in all."""
    prompts = {it.prompt_id: it.token_ids for it in store.prompt_tokens() if it.target == arm.target}
    left = MAX_TOKENS
    for request in store.requests():
        if request.arm_id != arm.id or request.reply is None:
            continue
        prompt, text = prompts.get(request.prompt_id), request.reply.token_ids
        if not prompt or len(text) < SHORTEST or UNKNOWN_TOKEN in text or len(prompt) + len(text) > left:
            continue
        del prompts[request.prompt_id]
        left -= len(prompt) + len(text)
        yield prompt, text

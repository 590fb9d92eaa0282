"""What a token drafted on another machine costs more than one drafted here, against latency and bandwidth.

    specmeter engines build                             # once: llama-server and ggml-rpc-server
    uv run python benchmarks/rpc_overhead.py [--rounds 4] [--tokens 64]
    uv run python benchmarks/rpc_overhead.py --target bench:shape/qwen3.5-2b --draft bench:shape/qwen3.5-0.8b \\
                                             --rounds 1 --tokens 16 --kinds fact

Linux and root: the other machine is a network namespace, and the network a relay that adds latency and limits
bandwidth. All networks take turns in every round, each with a fresh session and an excluded
warm-up. Two fits per round, with Student's interval over the rounds:

    ms per drafted token = a + k RTT         k: round trips that drafting waits for, per drafted token
    ms per drafted token = a + b / rate      b: bytes that drafting waits for, per drafted token

Commands are counted by the relay, which reads the protocol: how many graphs, inputs and outputs a drafted token takes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))


from engines.rpc.far_machine import far_machine, missing  # noqa: E402
from specmeter import workloads  # noqa: E402
from specmeter.engines import Launch  # noqa: E402
from specmeter.engines.llama_cpp.engine import NativeEngine  # noqa: E402
from specmeter.engines.llama_cpp.relay import Relay, relayed  # noqa: E402
from specmeter.models.reference import resolve  # noqa: E402
from specmeter.numbers.stats import t_interval  # noqa: E402
from specmeter.record import Arm, EngineSettings, Generation, ModelIdentity, Prompt  # noqa: E402
from specmeter.workloads.spec import BenchWorkload  # noqa: E402

GAMMA = 4


@dataclass(frozen=True)
class Network:
    """Between the two machines; None: no other machine, or no relay."""

    name: str
    rtt_ms: float | None = 0.0
    mbit_per_s: float | None = None
    remote: bool = True


@dataclass
class Cell:
    """One session's requests."""

    drafting_ms: float = 0.0
    decode_ms: float = 0.0
    drafted: int = 0
    commands: Counter[str] = field(default_factory=Counter[str])
    sent: int = 0
    received: int = 0
    texts: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])


def networks(rtts: Sequence[float], rates: Sequence[float]) -> list[Network]:
    here = [Network("drafted here", None, remote=False), Network("namespace, no relay", None)]
    slow = [Network(f"RTT {rtt:g} ms", rtt) for rtt in rtts]
    return [*here, *slow, *(Network(f"{rate:g} Mbit/s", 0.0, rate) for rate in rates)]


def measure(
    network: Network,
    far: tuple[str, int],
    models: tuple[ModelIdentity, ModelIdentity],
    texts: tuple[Prompt, ...],
    n: int,
) -> Cell:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        relay: Relay | None = None
        address = f"{far[0]}:{far[1]}"
        if network.rtt_ms is not None:
            bytes_per_s = None if network.mbit_per_s is None else network.mbit_per_s * 1e6 / 8
            relay = stack.enter_context(relayed(far, latency_s=network.rtt_ms / 2e3, bytes_per_s=bytes_per_s))
            address = relay.address
        remote = {"rpc": (address,), "draft_devices": ("RPC0",)} if network.remote else {}
        settings = EngineSettings(context=1024, threads=1, **remote)  # pyright: ignore[reportArgumentType]
        arm = Arm(id="arm", target="t", draft="d", methods=("draft-simple",), gamma=GAMMA, engine=settings)
        session = stack.enter_context(
            NativeEngine().start(Launch(arm, models[0], models[1], log_path=folder / "engine.log"))
        )
        generation = Generation(max_tokens=n)
        session.generate(texts[0], generation)
        if relay is not None:
            relay.reset()
        cell = Cell()
        for text in texts:
            reply = session.generate(text, generation)
            (drafting,) = reply.drafting
            cell.drafting_ms += drafting.generate_ms
            cell.decode_ms += reply.timings.predicted_ms
            cell.drafted += reply.timings.draft_n
            cell.texts.append(reply.token_ids)
        if relay is not None:
            relay.wait_until_quiet()
            cell.commands, cell.sent, cell.received = Counter(relay.commands), relay.sent, relay.received
        return cell


def rounds_of(planned: list[Network], count: int, *rest: object) -> Iterator[dict[str, Cell]]:
    for turn in range(count):
        order = planned[turn % len(planned) :] + planned[: turn % len(planned)]
        order = order[::-1] if turn % 2 else order
        yield {network.name: measure(network, *rest) for network in order}  # pyright: ignore[reportArgumentType]
        print(f"round {turn + 1} of {count}", file=sys.stderr, flush=True)


def shown(values: Sequence[float], digits: int = 2) -> str:
    if len(values) < 2:
        return f"{values[0]:.{digits}f}"
    mean, low, high = (float(it) for it in t_interval(np.asarray(values)))
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def slopes(found: list[dict[str, Cell]], points: list[tuple[str, float]], of: str) -> tuple[list[float], list[float]]:
    """(intercept, slope) of each round: ms per drafted token over x."""
    fits = [
        np.polyfit([x for _, x in points], [getattr(cells[name], of) / cells[name].drafted for name, _ in points], 1)
        for cells in found
    ]
    return [float(fit[1]) for fit in fits], [float(fit[0]) for fit in fits]


def report(planned: list[Network], found: list[dict[str, Cell]]) -> None:
    first = found[0]
    texts = {tuple(cell.texts) for cells in found for cell in cells.values()}
    print(f"texts: {'the same everywhere' if len(texts) == 1 else f'{len(texts)} different ones'}")
    print(f"\n{'network':<22}{'ms per drafted token: drafting':>36}{'all of decoding':>28}")
    for network in planned:
        cells = [it[network.name] for it in found]
        drafting = shown([cell.drafting_ms / cell.drafted for cell in cells], 3)
        print(f"{network.name:<22}{drafting:>36}{shown([cell.decode_ms / cell.drafted for cell in cells], 3):>28}")
    counted = next(cell for network in planned if network.rtt_ms is not None for cell in [first[network.name]])
    print(f"\nper drafted token ({counted.drafted} of them, both directions counted by the relay):")
    print(f"  {counted.sent / counted.drafted:,.0f} bytes out, {counted.received / counted.drafted:,.0f} bytes back")
    for name, count in counted.commands.most_common():
        print(f"  {count / counted.drafted:.2f} x {name}")
    latencies = [(it.name, it.rtt_ms) for it in planned if it.rtt_ms is not None and it.mbit_per_s is None]
    for of, what in (("drafting_ms", "drafting"), ("decode_ms", "all of decoding")):
        start, slope = slopes(found, latencies, of)
        print(f"\n{what}: {shown(start, 3)} ms + {shown(slope)} round trips x RTT, per drafted token")
        for name, rtt in latencies:
            residual = [
                cells[name].__dict__[of] / cells[name].drafted - a - k * rtt
                for cells, a, k in zip(found, start, slope, strict=True)
            ]
            print(f"  RTT {rtt:>5g} ms: residual {shown(residual, 3)} ms")
    unlimited = next(it.name for it in planned if it.rtt_ms == 0.0)
    rates = [(unlimited, 0.0)] + [(it.name, 8e3 / (it.mbit_per_s * 1e6)) for it in planned if it.mbit_per_s]
    if len(rates) > 1:
        start, slope = slopes(found, rates, "drafting_ms")
        print(f"\ndrafting: {shown(start, 3)} ms + {shown(slope, 0)} bytes / rate, per drafted token")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="bench:dense")
    parser.add_argument("--draft", default="bench:draft-small")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--kinds", nargs="+", default=["fact", "code", "reason"])
    parser.add_argument("--rtt", type=float, nargs="+", default=[0, 0.5, 1, 2, 5, 10], help="ms")
    parser.add_argument("--rates", type=float, nargs="*", default=[1000, 300, 100], help="Mbit/s")
    args = parser.parse_args()
    if why := missing():
        sys.exit(f"there can be no second machine here: {why}")
    models = tuple(resolve(name, name, base_dir=Path()) for name in (args.target, args.draft))
    texts = workloads.load([BenchWorkload(source="bench", name="text", kinds=args.kinds, per_kind=1)], base_dir=Path())
    planned = networks(args.rtt, args.rates)
    with tempfile.TemporaryDirectory() as name, far_machine(Path(name)) as far:
        found = list(rounds_of(planned, args.rounds, far, models, tuple(texts), args.tokens))
    report(planned, found)


if __name__ == "__main__":
    main()

"""How far T(n) moves from one probe to the next, beside the interval that each states; and what a server makes of it.

    uv run python benchmarks/probe_repeat.py bench:moe-400m [--times 4] [--server] [--tokens 1 2 5 9]

Rounds within a probe share its process, its memory layout and its minute: where probes differ by more than their
intervals allow, those intervals speak of this minute only. Printed are the median of the probes, the range of their
points over that median, the mean half width of their intervals, and how many of the intervals hold the median.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from specmeter.host.machine import read_host
from specmeter.models.facts import read_header
from specmeter.models.reference import resolve
from specmeter.probe.make import ProbeSpec, make_probe
from specmeter.record import ModelIdentity


def identify(name: str, reference: str) -> ModelIdentity:
    model = resolve(name, reference, base_dir=Path())
    return model.model_copy(update={"header": read_header(Path(model.path))})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", nargs="?", default="bench:moe-400m")
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--server", action="store_true")
    parser.add_argument("--tokens", type=int, nargs="*", default=[1, 2, 3, 5, 9, 17, 33])
    parser.add_argument("--depth", type=int, default=256)
    args = parser.parse_args()
    source = "server" if args.server else "libllama"
    request = ProbeSpec(identify("target", args.reference), source=source, tokens=args.tokens, depth=args.depth)
    host = read_host()
    probes = [make_probe(request, host, lambda *_: None) for _ in range(args.times)]
    print(f"{args.reference}, {source}, {args.times} probes, {args.depth} tokens in memory")
    print(f"{'n':>3} {'T(n) ms':>8} {'range':>7} {'half width':>10} {'hold it':>8} {'v(n)':>6} {'range':>7}")
    for n in args.tokens:
        found = [point.ms for probe in probes for point in probe.target_ms.points if point.tokens == n]
        if len(found) < args.times:
            print(f"{n:>3} not seen in every probe")
            continue
        points = np.array([each.point for each in found])
        middle = float(np.median(points))
        widths = [(each.high - each.low) / 2 / each.point for each in found if each.low and each.high]
        held = sum(each.low <= middle <= each.high for each in found if each.low and each.high)
        v = np.array([probe.target_ms.verification(n - 1.0) for probe in probes])
        half = f"{np.mean(widths):10.1%}" if widths else f"{'-':>10}"
        print(
            f"{n:>3} {middle:8.2f} {np.ptp(points) / middle:7.1%} {half} {held:>5}/{args.times} "
            f"{np.median(v):6.2f} {np.ptp(v) / np.median(v):7.1%}"
        )


if __name__ == "__main__":
    main()

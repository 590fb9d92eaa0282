"""Probes made up for tests: a host, an engine, models, and curves that follow a formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hosts import HOST
from records import identity
from specmeter.probe.record import Probe
from specmeter.record import EngineIdentity, EngineSettings, Estimate, ModelIdentity
from specmeter.theory.curves import CostCurve, CostPoint

ENGINE = EngineIdentity(kind="libllama", version="1", build="", binary="/usr/lib/libllama.so", binary_sha256="e" * 64)


def model(name: str = "target", sha256: str = "1" * 64) -> ModelIdentity:
    place = f"models/{name}.gguf"
    return identity(name, 10**8, reference=place, path=f"/{place}", sha256=sha256)


def curve(ms: Callable[[int], float], tokens: tuple[int, ...] = (1, 2, 3, 5, 9, 17, 33)) -> CostCurve:
    def at(n: int) -> Estimate:
        return Estimate(point=ms(n), low=0.98 * ms(n), high=1.02 * ms(n), n=12, unit="ms", method="made up")

    return CostCurve(points=tuple(CostPoint(tokens=n, ms=at(n)) for n in tokens))


def probe(**changes: Any) -> Probe:
    values: dict[str, Any] = {
        "made_at": 1_000_000.0,
        "source": "libllama",
        "host": HOST,
        "engine": ENGINE,
        "settings": EngineSettings(threads=1, context=512),
        "target": model(),
        "depth": 128,
        "target_ms": curve(lambda n: 10.0 + n),
        "plain_rounds_ms": (),
        "other_cpu_percent": (),
    }
    return Probe(**(values | changes))

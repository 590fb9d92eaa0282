"""The latency model of a run: fitted block by block, carried to other networks and vocabularies, told by a command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from specmeter.cli import invoke
from specmeter.errors import UsageError
from specmeter.record import Estimate, Network, network_of
from specmeter_studies.latency import DraftStep, LatencyModel
from specmeter_studies.library.cross_device.costs import Backend
from specmeter_studies.library.cross_device.fitting import at_least, break_even, fitted, forecast, step_of
from specmeter_studies.study import ArmResult, DraftPlace

TRUE = LatencyModel(1.9, 1.25, 40_000.0)
LOCAL_MS = (0.5, 0.52, 0.48)
VOCABULARY = 2048
NETWORKS = {
    "remote1": "relay:0.5ms@1000Mbit",
    "remote2": "relay:2ms@1000Mbit",
    "far": "relay:8ms@1000Mbit",
    "narrow": "relay:0.5ms@50Mbit",
}


def estimate(point: float, unit: str) -> Estimate:
    return Estimate(point=point, n=1, unit=unit, method="made up")


def line(name: str) -> ArmResult:
    return ArmResult(
        config=f"t/{name}",
        target="t",
        draft="d",
        method="draft-simple",
        gamma=4,
        requests=9,
        decode_rate=estimate(50.0, "tok/s"),
        acceptance=estimate(0.5, "1"),
        tau=estimate(3.0, "1"),
        verdict="valid",
    )


def places(
    networks: dict[str, str], noise: Sequence[float] = (0.0, 0.02, -0.02), *, counted: bool = True
) -> list[Backend]:
    local = Backend(line("local"), DraftPlace(config="t/local", block_ms=LOCAL_MS), None, ())
    found = [local]
    for name, machine in networks.items():
        network = network_of(machine) or Network(1.0, None)
        overhead = TRUE.overhead_ms(*network)
        place = DraftPlace(
            config=f"t/{name}",
            machine=machine,
            block_ms=tuple(here + overhead + more for here, more in zip(LOCAL_MS, noise, strict=True)),
            drafted=1000,
            forwards=1250,
            sent_bytes=30_000.0 * 1000 if counted else None,
            received_bytes=10_000.0 * 1000 if counted else None,
            vocabulary=VOCABULARY,
        )
        found.append(Backend(line(name), place, local, ()))
    return found


def test_blocks_are_joined_by_their_number() -> None:
    """One network drafted nothing in the first block: what is left of it is compared with the same blocks here."""
    found = places(NETWORKS, noise=(0.0, 0.0, 0.0))
    local, first, *others = found
    gap = {"block_ms": first.place.block_ms[1:], "blocks": ((0, 1), (0, 2))}
    first = replace(first, place=first.place.model_copy(update=gap))
    overhead = TRUE.overhead_ms(*Network(0.5, 1000.0))
    assert first.overhead_ms is not None
    assert first.overhead_ms.point == pytest.approx(overhead)
    model = fitted([local, first, *others])
    assert len(model.models) == 2
    assert model.estimate(lambda it: it.trips, "1").point == pytest.approx(1.25)


def test_the_model_of_relays() -> None:
    model = fitted(places(NETWORKS))
    assert model.fitted_bytes
    assert model.counted_bytes == 40_000
    trips = model.estimate(lambda it: it.trips, "1")
    assert trips.point == pytest.approx(1.25)
    assert trips.n == 3
    fixed = model.estimate(lambda it: it.fixed_ms, "ms")
    assert fixed.low is not None
    assert fixed.high is not None
    assert fixed.low < 1.9 < fixed.high


def test_where_bandwidth_did_not_vary_the_counted_bytes_are_taken() -> None:
    same = {name: NETWORKS[name] for name in ("remote1", "far")}
    model = fitted(places(same))
    assert not model.fitted_bytes
    assert model.models[0].bytes_ == 40_000
    assert model.models[0].trips == pytest.approx(1.25)
    uncounted = fitted(places(same, counted=False))
    assert uncounted.models[0].bytes_ == 1.25 * (4 * VOCABULARY + 8), "outputs cross in any case"


def test_a_machine_of_ones_own_needs_its_network_said() -> None:
    real = {"remote1": "10.0.0.2:50052", "remote2": "10.0.0.3:50052"}
    with pytest.raises(UsageError, match="over a known network"):
        fitted(places(real))
    with pytest.raises(UsageError, match="cannot determine 2 parameters"):
        fitted(places(real), {"remote1": Network(1.0, None)})


def test_other_vocabularies_move_other_outputs() -> None:
    model = fitted(places(NETWORKS))
    larger = model.for_vocabulary(VOCABULARY + 1000)
    assert larger.models[0].bytes_ - model.models[0].bytes_ == pytest.approx(1.25 * 4000)
    assert larger.counted_bytes == pytest.approx(45_000)


def test_forecasts_say_whether_they_are_extrapolated() -> None:
    model = fitted(places(NETWORKS))
    step = DraftStep(plain_ms=20.0, tau=3.0, drafted=4.0, rest=1.2, there_ms=0.5, here_ms=0.5)
    inside, outside = (forecast(model, Network(rtt, 1000.0), step) for rtt in (1.0, 30.0))
    assert (inside.extrapolated, outside.extrapolated) == (False, True)
    assert inside.overhead_ms.point == pytest.approx(1.9 + 1.25 + 0.32)
    assert inside.speedup is not None
    assert outside.speedup is not None
    assert inside.speedup.point > outside.speedup.point
    assert inside.over_here is not None
    assert inside.over_here.point < 1, "the same draft, and a network on top"


def test_how_far_away_a_draft_may_be() -> None:
    model = fitted(places(NETWORKS))
    at = break_even(model, 10.0, 1000.0)
    assert at is not None
    assert at.point == pytest.approx((10.0 - 1.9 - 0.32) / 1.25)
    assert break_even(model, 1.0, 1000.0) is None, "packing and sending alone take longer"
    assert break_even(at_least(4, VOCABULARY), 1.0, 1000.0) is not None


def test_a_step_from_what_was_measured() -> None:
    (local, *_) = places(NETWORKS)
    plain = line("none").model_copy(update={"method": "none", "decode_rate": estimate(40.0, "tok/s")})
    step = step_of(local, plain)
    assert step is not None
    assert step.drafted == 4.0, "two of four are accepted, and one token comes on top"
    assert step.speedup_here == pytest.approx(50 / 40)
    assert step_of(local, None) is None


def test_the_least_without_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    order = ["study", "latency", "--vocabulary", "248320", "--rtt", "0,10", "--bandwidth", "1000"]
    assert invoke([*order, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    near, far = (it["overhead_ms"]["point"] for it in told["forecasts"])
    assert near == pytest.approx(1.25 * (4 * 248_320 + 8) * 8 / 1e6)
    assert far == pytest.approx(near + 12.5)
    assert told["forecasts"][0]["speedup"] is None
    assert invoke([*order, "--plain-rate", "53.8", "--draft-ms", "11.5", "--alpha", "0.6"]) == 0
    assert "slower than no speculation at any distance" in capsys.readouterr().out
    assert invoke([*order, "--plain-rate", "10", "--draft-ms", "2", "--local-draft-ms", "40", "--alpha", "0.9"]) == 0
    shown = capsys.readouterr().out
    assert "faster than no speculation up to an RTT of at most" in shown
    assert "faster than drafting on this machine up to an RTT of at most" in shown


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "no --vocabulary"),
        (["--vocabulary", "10", "--network", "a=1ms"], "--network: only with a RUN"),
        (["--vocabulary", "10", "--rtt", "x"], "--rtt x: not a list of numbers"),
        (["--vocabulary", "10", "--bandwidth", "0"], "--bandwidth 0: out of range"),
        (["--vocabulary", "10", "--rtt=-1"], "--rtt -1: out of range"),
        (["--vocabulary", "10", "--plain-rate", "0"], "--plain-rate 0: out of range"),
        (["--vocabulary", "10", "--plain-rate", "1", "--draft-ms", "1", "--alpha", "2"], "--alpha is 2"),
        (["--vocabulary", "10", "--alpha", "0.5"], "add --plain-rate and --draft-ms"),
        (["--vocabulary", "10", "--plain-rate", "9", "--alpha", "0.5"], "add --draft-ms"),
        (["nowhere"], "nowhere"),
        (["nowhere", "--gamma", "3"], "given by the RUN"),
    ],
)
def test_what_cannot_be_said(capsys: pytest.CaptureFixture[str], flags: list[str], message: str) -> None:
    assert invoke(["study", "latency", *flags]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert "fix:" in told

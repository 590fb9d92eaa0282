"""`specmeter study latency`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import click

from specmeter.cli.usage import Number

if TYPE_CHECKING:
    from specmeter.record import Network
    from specmeter_studies.latency import DraftStep
    from specmeter_studies.library.cross_device.fitting import Fitted
    from specmeter_studies.study import StudyData

_MAX_REPEATS = 64
_STUDY = "cross-device"
_TIMES = (0.0, 1e6)
"""ms: from nothing to a quarter of an hour."""
_BANDWIDTHS = (1e-3, 1e9)
"""Mbit/s: from a kilobit per second to a petabit."""
_RATES = (1e-6, 1e9)
"""Of everything else: milliseconds, tokens, tokens per second."""


@click.command(name="latency")
@click.argument("folder", required=False, metavar="[RUN|STUDY]")
@click.option(
    "--rtt", default="0.1,0.5,1,2,5,10,30", show_default=True, metavar="MS,MS,...", help="Round-trip times, in ms."
)
@click.option(
    "--bandwidth", default="1000", show_default=True, metavar="MBIT,...", help="Bandwidth per direction, in Mbit/s."
)
@click.option("--vocabulary", type=Number(1, 10_000_000), help="Vocabulary of the draft model, in tokens.")
@click.option(
    "--draft-ms",
    type=Number(whole=False),
    metavar="MS",
    help="Time per draft token on the other machine, without the network.",
)
@click.option("--local-draft-ms", type=Number(whole=False), metavar="MS", help="Time per draft token on this machine.")
@click.option("--plain-rate", type=Number(whole=False), metavar="TOK/S", help="Rate without speculation.")
@click.option("--alpha", type=Number(whole=False), help="Acceptance rate, the same at every position.")
@click.option("--gamma", type=Number(1, 64), help="Draft length, without a RUN. Default: 4.")
@click.option(
    "--verify",
    type=Number(whole=False),
    metavar="TOKENS",
    help="Cost of a step without drafting, in single tokens. Default: 1.",
)
@click.option(
    "--network",
    "networks",
    multiple=True,
    metavar="ID=NETWORK",
    help="Network to a configuration's machine, such as remote1=relay:0.4ms@1000Mbit; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def latency(
    folder: str | None,
    rtt: str,
    bandwidth: str,
    vocabulary: int | None,
    draft_ms: float | None,
    local_draft_ms: float | None,
    plain_rate: float | None,
    alpha: float | None,
    gamma: int | None,
    verify: float | None,
    networks: tuple[str, ...],
    as_json: bool,
) -> int:
    """Estimate the cost of the network if the draft model runs on another machine: from a run, or as a lower bound.

    A draft token takes a + k RTT + bytes / bandwidth longer there. RUN must have the same draft model here and behind
    several networks; relays simulate them on one machine: `specmeter study run cross-device --variant bench --variant
    relay`. `latest` is the last such study, or the last run. a, k and the bytes are fitted to RUN; the speedup is for
    its models and acceptance unless options change them.

    Without RUN, k and the bytes are the least that llama.cpp's protocol needs, and a is 0. This needs --vocabulary, and
    for a speedup --plain-rate, --draft-ms and --alpha.

    \b
    Examples:
      specmeter study latency latest
      specmeter study latency latest --vocabulary 151936 --rtt 0.3,1,4 --bandwidth 1000,10000
      specmeter study latency latest --plain-rate 20 --draft-ms 6 --local-draft-ms 12 --alpha 0.7
      specmeter study latency --vocabulary 248320 --plain-rate 42.4 --draft-ms 11.5 --alpha 0.6 --bandwidth 1000
    """
    from specmeter.record import Network
    from specmeter.show.terminal.console import say_json
    from specmeter_studies.library.cross_device.fitting import at_least, forecast
    from specmeter_studies.show.latency import document, print_forecasts

    rates = _bounded("--bandwidth", bandwidth, "1000,10000", _BANDWIDTHS)
    times = _bounded("--rtt", rtt, "0.5,2,10", _TIMES)
    given = {"--draft-ms": draft_ms, "--local-draft-ms": local_draft_ms, "--plain-rate": plain_rate, "--verify": verify}
    _refuse_nonsense(given)
    measured: Fitted | None = None
    if folder is None:
        if vocabulary is None:
            _fail("study latency: no RUN and no --vocabulary", "give a RUN, or add --vocabulary N")
        if networks:
            _fail("--network: only with a RUN", "give a RUN, or use --rtt and --bandwidth")
        _refuse_half_a_step(given | {"--alpha": alpha})
        model, step = at_least(gamma or 4, vocabulary), _given_step(plain_rate, draft_ms, alpha, gamma or 4)
    else:
        if gamma is not None:
            _fail("--gamma: given by the RUN", "leave out --gamma or the RUN")
        measured, step = _measured(folder, networks, alpha)
        model = measured if vocabulary is None else measured.for_vocabulary(vocabulary)
    step = _with_flags(step, plain_rate, verify, draft_ms, local_draft_ms)
    found = [forecast(model, Network(time, rate), step) for rate in rates for time in times]
    if as_json:
        say_json(document(model, step, found, rates))
    else:
        print_forecasts(model, step, found, rates, measured=measured)
    return 0


def _measured(folder: str, networks: tuple[str, ...], alpha: float | None) -> tuple[Fitted, DraftStep | None]:
    from specmeter.theory.acceptance import tokens_per_step
    from specmeter.theory.arguments import probabilities
    from specmeter_studies.library.cross_device.costs import backends
    from specmeter_studies.library.cross_device.fitting import fitted, step_of

    data = _data(folder)
    places = backends(data)
    lengths = {(place.line.target, place.line.draft, place.line.gamma) for place in places}
    if len(lengths) > 1:
        _fail(
            f"{folder}: has {len(lengths)} combinations of target model, draft model and draft length",
            "measure one combination behind several networks",
        )
    model = fitted(places, dict(_network(text) for text in networks))
    local = next(place for place in places if not place.remote)
    plain = next((line for line in data.arms if not line.speculates and line.target == local.line.target), None)
    step = step_of(local, plain)
    if alpha is not None and step is not None and local.line.gamma:
        tau = tokens_per_step(probabilities("--alpha", alpha), local.line.gamma)
        step = replace(step, tau=tau, drafted=float(local.line.gamma))
    return model, step


def _data(folder: str) -> StudyData:
    """A study or a single run, whichever the name is of; `latest`: the study of remote drafts if there is one."""
    from specmeter.advise.schedule import find_single_run
    from specmeter.errors import StoreError
    from specmeter.store.locate import find_folders, find_study
    from specmeter_studies.folder import StudyFolder
    from specmeter_studies.measured import from_run

    if folder == "latest" and (studies := find_folders("study", name=_STUDY)):
        return StudyFolder(studies[-1]).data()
    try:
        return StudyFolder(find_study(folder)).data()
    except StoreError:
        return from_run(_STUDY, find_single_run(folder))


def _refuse_half_a_step(given: dict[str, float | None]) -> None:
    """Flags of a speedup are of use only where all that it needs are there."""
    missing = [flag for flag in ("--plain-rate", "--draft-ms", "--alpha") if given[flag] is None]
    here = [flag for flag, value in given.items() if value is not None]
    if missing and here:
        _fail(f"{', '.join(here)}: not enough for a speedup", f"add {' and '.join(missing)}")


def _given_step(plain_rate: float | None, draft_ms: float | None, alpha: float | None, gamma: int) -> DraftStep | None:
    from specmeter.theory.acceptance import tokens_per_step
    from specmeter.theory.arguments import probabilities
    from specmeter_studies.latency import DraftStep

    if plain_rate is None or draft_ms is None or alpha is None:
        return None
    tau = tokens_per_step(probabilities("--alpha", alpha), gamma)
    return DraftStep(plain_ms=1000 / plain_rate, tau=tau, drafted=gamma, rest=1.0, here_ms=None, there_ms=draft_ms)


def _with_flags(
    step: DraftStep | None,
    plain_rate: float | None,
    verify: float | None,
    draft_ms: float | None,
    local_draft_ms: float | None,
) -> DraftStep | None:
    if step is None:
        return None
    changes = {
        "plain_ms": None if plain_rate is None else 1000 / plain_rate,
        "rest": verify,
        "there_ms": draft_ms,
        "here_ms": local_draft_ms,
    }
    return replace(step, **{name: value for name, value in changes.items() if value is not None})


def _network(text: str) -> tuple[str, Network]:
    from specmeter.record import network_of

    name, _, told = text.partition("=")
    network = network_of(told if told.startswith("relay:") else f"relay:{told}")
    if not name or network is None:
        _fail(f"--network {text[:80]}: not ID=NETWORK", "write --network remote1=relay:0.4ms@1000Mbit")
    return name, network


def _bounded(flag: str, text: str, example: str, bounds: tuple[float, float]) -> list[float]:
    parts = text.split(",")
    try:
        values = [float(part) for part in parts]
    except ValueError:
        values = []
    if not values or len(values) > _MAX_REPEATS:
        _fail(f"{flag} {text[:80]}: not a list of numbers", f"write {flag} {example}")
    for value in values:
        _refuse_nonsense({flag: value}, bounds)
    return values


def _refuse_nonsense(given: dict[str, float | None], bounds: tuple[float, float] = _RATES) -> None:
    least, most = bounds
    for flag, value in given.items():
        if value is not None and not least <= value <= most:  # nor NaN
            _fail(f"{flag} {value:g}: out of range", f"use {least:.15g} to {most:.15g}")


def _fail(message: str, fix: str) -> NoReturn:
    from specmeter.errors import UsageError

    raise UsageError(message, fix=fix)

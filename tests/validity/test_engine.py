"""Checks of the engine: what was in force, whose bytes it was, where the target lay, and who else was served."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory import (
    BASE,
    BUILD,
    SD,
    experiment,
    found,
    run_data,
    simulated,
    unchecked,
    with_arms,
    with_logs,
    with_requests,
    with_sessions,
)
from factory import engine as identity
from mock_run import mock_run

from specmeter.engines.llama_cpp.log_signs import Sign
from specmeter.messages import Message
from specmeter.record import Arm, DeviceUse, MethodName
from specmeter.validity.checks.engine import memory_fit, server_shared, two_binaries
from specmeter.validity.checks.requests import in_columns
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.checks.settings import default_drift, flag_inert

CLEAN = run_data()
PROMPTS = tuple(f"text/edit-{number}" for number in range(6))


def arm(method: MethodName = "ngram-simple", **changes: Any) -> Arm:
    given = {"id": f"dense/{method}", "target": "dense", "methods": (method,), "gamma": 8, "baseline_id": BASE}
    return Arm.model_validate(given | changes)


def run_of(other: Arm, *, parameters: dict[str, Any] | None = None, **changes: Any) -> RunData:
    """A run of this arm beside its baseline, with what its method has in force."""
    data = run_data(arms=[CLEAN.arms[BASE], other], **changes)
    return with_sessions(data, other.id, resolved={"method_parameters": parameters or {}, "gamma": other.gamma})


# --- default-drift ---------------------------------------------------------------------------------------------------


def drafting(**values: Any) -> dict[str, Any]:
    return {"method_parameters": {"draft-simple": {"n_max": 4, "n_min": 0, "p_min": 0.0} | values}}


def test_a_default_that_changed_in_mid_run() -> None:
    data = with_sessions(CLEAN, SD, 2, resolved=drafting(p_min=0.75))
    (finding,) = found(default_drift, data)
    assert (finding.severity, finding.arm_id) == ("suspect", SD)
    assert finding.evidence == {
        "method_parameters.draft-simple.p_min": Message("check.differs", seen=0.75, expected=0.0)
    }


@pytest.mark.parametrize("value", [{"kv_type_k": "q8_0"}, {"n_batch": 512}, {"threads": 1}, {"load_mode": "none"}])
def test_any_value_in_force_counts(value: dict[str, Any]) -> None:
    (finding,) = found(default_drift, with_sessions(CLEAN, BASE, 1, resolved=value))
    assert (finding.arm_id, list(finding.evidence)) == (BASE, list(value))


def test_warnings_are_no_values() -> None:
    assert found(default_drift, with_sessions(CLEAN, SD, 1, resolved={"warnings": ["a", "b"]})) == []


@pytest.mark.parametrize(
    ("method", "asked", "parameters", "names"),
    [
        ("draft-simple", {"draft": "small"}, {"n_max": 3, "n_min": 0, "p_min": 0.0}, ["gamma of draft-simple"]),
        (
            "draft-simple",
            {"draft": "small", "gamma_min": 2, "p_min": 0.5},
            {"n_max": 8, "n_min": 0, "p_min": 0.75},
            ["gamma_min of draft-simple", "p_min of draft-simple"],
        ),
        (
            "ngram-simple",
            {"ngram_n": 6},
            {"size_n": 12, "size_m": 48},
            ["gamma of ngram-simple", "ngram_n of ngram-simple"],
        ),
        (
            "ngram-map-k",
            {"ngram_n": 6, "ngram_min_hits": 3},
            {"size_key": 6, "size_value": 8, "min_hits": 1},
            ["ngram_min_hits of ngram-map-k"],
        ),
        ("ngram-mod", {"gamma_min": 2}, {"n_match": 24, "n_max": 64, "n_min": 2}, ["gamma of ngram-mod"]),
    ],
)
def test_drafting_with_other_values(
    method: MethodName, asked: dict[str, Any], parameters: dict[str, Any], names: list[str]
) -> None:
    """It is a drift from what the arm says, and an option without effect."""
    data = run_of(arm(method, **asked), parameters={method: parameters})
    for look in (default_drift, flag_inert):
        (finding,) = found(look, data)
        assert sorted(finding.evidence) == names


@pytest.mark.parametrize("printed", [0.75, 0.75000001, 0.7])
def test_two_digits_are_enough(printed: float) -> None:
    asked = round(printed, 2) + 0.004
    data = run_of(
        arm("draft-simple", draft="small", p_min=asked), parameters={"draft-simple": {"n_max": 8, "p_min": printed}}
    )
    assert found(default_drift, data) == []


def test_what_the_arm_leaves_open_may_be_anything() -> None:
    other = arm("ngram-simple", gamma=None)
    assert found(default_drift, run_of(other, parameters={"ngram-simple": {"size_n": 12, "size_m": 48}})) == []


def test_each_method_has_its_own_values() -> None:
    both = arm(id="dense/both", methods=("ngram-mod", "draft-simple"), draft="small", gamma=8)
    good = {
        "ngram-mod": {"n_max": 8, "n_match": 24, "n_min": 0},
        "draft-simple": {"n_max": 8, "n_min": 0, "p_min": 0.0},
    }
    assert found(default_drift, run_of(both, parameters=good)) == []
    (finding,) = found(default_drift, run_of(both, parameters=good | {"draft-simple": {"n_max": 3}}))
    assert list(finding.evidence) == ["gamma of draft-simple"]


def test_the_mock_says_what_is_in_force(tmp_path: Path) -> None:
    data = mock_run(tmp_path)
    drifted = with_sessions(data, "dense/draft-simple/small/g4", resolved={"speculative.n_max": 3})
    (finding,) = found(default_drift, drifted)
    assert list(finding.evidence) == ["gamma of draft-simple"]


def test_nothing_was_read_back() -> None:
    sessions = {name: it.model_copy(update={"resolved": {}}) for name, it in CLEAN.sessions.items()}
    data = replace(CLEAN, sessions=sessions)
    for look in (default_drift, flag_inert):
        assert found(look, data) == []
        assert {gap.arm_id for gap in unchecked(look, data, applies=True)} == {BASE, SD}


# --- flag-inert ------------------------------------------------------------------------------------------------------


def asking(data: RunData = CLEAN, **settings: Any) -> RunData:
    for arm_id, it in data.arms.items():
        data = with_arms(data, arm_id, engine=it.engine.model_dump() | settings)
    return data


@pytest.mark.parametrize(
    ("asked", "in_force"),
    [
        ({"threads": 4}, {"threads": 2}),
        ({"context": 8192}, {"n_ctx": 4096}),
        ({"context": 512}, {"n_ctx": 4096}),
        ({"slots": 2}, {"total_slots": 1}),
        ({"kv_type_k": "q8_0"}, {"kv_type_k": "f16"}),
        ({"kv_type_v": "q8_0"}, {"kv_type_v": "f16"}),
        ({"draft_kv_type_k": "q8_0"}, {"draft_kv_type_k": "f16"}),
        ({"flash_attention": "on"}, {"flash_attention": "disabled"}),
        ({"flash_attention": "off"}, {"flash_attention": "enabled"}),
        ({"batch": 1024}, {"n_batch": 2048}),
        ({"ubatch": 256}, {"n_ubatch": 512}),
        ({"mmap": False}, {"load_mode": "mmap"}),
        ({"mmap": True}, {"load_mode": "none"}),
    ],
    ids=lambda value: "-".join(value),
)
def test_an_option_that_was_ignored(asked: dict[str, Any], in_force: dict[str, Any]) -> None:
    findings = found(flag_inert, with_sessions(asking(**asked), resolved=in_force))
    (name,) = asked
    assert {it.arm_id for it in findings} == ({SD} if name.startswith("draft_") else {BASE, SD})
    assert {it.severity for it in findings} == {"suspect"}
    assert name in findings[0].evidence


@pytest.mark.parametrize(
    ("asked", "in_force"),
    [
        ({"threads": 4}, {"threads": 4}),
        ({"context": 1000}, {"n_ctx": 1024}),
        ({"context": 1500, "slots": 4}, {"n_ctx": 2048, "total_slots": 4}),
        ({"flash_attention": "on"}, {"flash_attention": "1"}),
        ({"flash_attention": "auto"}, {"flash_attention": "disabled"}),
        ({"batch": 8192}, {"n_batch": 4096}),
        ({"batch": 256, "ubatch": 512}, {"n_batch": 256, "n_ubatch": 256}),
        ({"mmap": False}, {"load_mode": "none"}),
    ],
    ids=lambda value: "-".join(value),
)
def test_an_option_that_was_honoured_or_rounded(asked: dict[str, Any], in_force: dict[str, Any]) -> None:
    assert found(flag_inert, with_sessions(asking(**asked), resolved=in_force)) == []


GPU = (DeviceUse(device="CUDA0", model_buffer_bytes=400_000_000),)


def test_layers_that_stayed_behind() -> None:
    asked = asking(gpu_layers=99)
    (base, _) = found(flag_inert, asked)
    assert base.evidence == {"gpu_layers": Message("check.differs", seen=0, expected=99)}, (
        "there is no GPU, and the engine says nothing of it"
    )
    offloaded = with_sessions(asked, devices=GPU, layers_offloaded=(33, 33))
    assert found(flag_inert, offloaded) == []
    fewer = with_sessions(offloaded, SD, layers_offloaded=(20, 33))
    (finding,) = found(flag_inert, fewer)
    assert finding.evidence == {"gpu_layers": Message("check.differs", seen=20, expected=33)}


def test_a_device_that_holds_nothing() -> None:
    assert found(flag_inert, with_sessions(asking(devices=("CUDA0",)), devices=GPU)) == []
    remote = (DeviceUse(device="RPC0[10.0.0.2:50052]", model_buffer_bytes=1),)
    assert found(flag_inert, with_sessions(asking(devices=("RPC0",)), devices=remote)) == []
    (finding,) = found(flag_inert, asking(draft_devices=("RPC0",)))
    assert (finding.arm_id, finding.evidence) == (
        SD,
        {"draft_devices": Message("check.differs", seen="CPU", expected="RPC0")},
    )


def test_remote_devices_are_numbered_anew_on_each_machine() -> None:
    two = {"rpc": ("10.0.0.2:50052", "10.0.0.3:50052"), "draft_devices": ("RPC1",)}
    held = (DeviceUse(device="RPC0[10.0.0.3:50052]", model_buffer_bytes=1),)
    assert found(flag_inert, with_sessions(asking(**two), SD, draft_devices=held)) == []
    (finding,) = found(flag_inert, asking(**two))
    assert finding.evidence == {"draft_devices": Message("check.differs", seen="CPU", expected="RPC1")}


def test_behind_relays_devices_carry_the_address_that_was_connected_to() -> None:
    two = {"rpc": ("relay:1ms", "relay:2ms@100Mbit"), "draft_devices": ("RPC1",)}
    held = (DeviceUse(device="RPC0[127.0.0.1:4002]", model_buffer_bytes=1),)
    argv = ("llama-server", "--rpc", "127.0.0.1:4001,127.0.0.1:4002", "--port", "1")
    assert found(flag_inert, with_sessions(asking(**two), SD, draft_devices=held, argv=argv)) == []


def test_no_device_is_the_processor() -> None:
    assert found(flag_inert, asking(devices=("none",))) == []
    base, sd = found(flag_inert, with_sessions(asking(devices=("none",)), devices=GPU))
    assert {base.arm_id, sd.arm_id} >= {SD}


def test_a_method_that_was_not_started() -> None:
    both = arm(id="dense/both", methods=("ngram-mod", "draft-simple"), draft="small")
    data = run_of(both, parameters={"draft-simple": {"n_max": 8}})
    (finding,) = found(flag_inert, with_sessions(data, both.id, resolved={"methods": ["draft-simple"]}))
    assert list(finding.evidence) == ["method ngram-mod"]


def test_a_parameter_that_is_not_mentioned_beside_others_that_are() -> None:
    data = run_of(arm("ngram-simple", ngram_n=6), parameters={"ngram-simple": {"size_m": 8}})
    (finding,) = found(flag_inert, data)
    assert finding.evidence == {
        "ngram_n of ngram-simple": Message("check.differs", seen=Message("flag-inert.not_mentioned"), expected=6)
    }


def test_dice_that_were_not_thrown() -> None:
    synthetic = with_arms(CLEAN, SD, synthetic_rates=(0.5,) * 4)
    (finding,) = found(flag_inert, synthetic)
    assert "synthetic_rates" in finding.evidence
    assert found(flag_inert, with_logs(synthetic, SD, synthetic=Sign(1, ("synthetic acceptance is enabled",)))) == []
    assert found(flag_inert, simulated(synthetic)) == []
    (gap,) = unchecked(flag_inert, replace(synthetic, logs={}))
    assert gap.reason == Message("unchecked.values_unknown", names=["synthetic_rates"])


def test_what_the_engine_is_silent_about_is_a_gap() -> None:
    data = asking(threads=2, extra_flags=("--no-warmup",))
    silent = with_sessions(data, resolved={"threads": None, "method_parameters": {}})
    assert found(flag_inert, silent) == []
    gaps = {gap.arm_id: gap.reason for gap in unchecked(flag_inert, silent, applies=True)}
    assert gaps[BASE] == Message("unchecked.values_unknown", names=["extra_flags", "threads"])
    assert gaps[SD] == Message("unchecked.values_unknown", names=["extra_flags", "gamma", "threads"])


# --- two-binaries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"binary_sha256": "zz"}, Message("two-binaries.binaries", first="aa", second="zz")),
        ({"libraries": {"libggml.so": "zz"}}, Message("two-binaries.library", name="libggml.so")),
        (
            {"libraries": {"libggml.so": "bb", "libggml-cpu.so": "cc"}},
            Message("two-binaries.library", name="libggml-cpu.so"),
        ),
        (
            {"build": "11550 (aaaaaaaaa)"},
            Message("two-binaries.builds", first=BUILD, second="11550 (aaaaaaaaa)"),
        ),
    ],
    ids=["binary", "library", "one-more", "build"],
)
@pytest.mark.parametrize("mock", [False, True])
def test_two_engines_in_a_run(changes: dict[str, Any], what: Message, mock: bool) -> None:
    data = with_sessions(CLEAN, None, 3, engine=identity(**changes))
    finding = found(two_binaries, simulated(data) if mock else data)[0]
    assert (finding.severity, finding.scope, finding.evidence["engines"]) == ("suspect", "run", 2)
    assert finding.message == Message("two-binaries.found", engines=2, difference=what)


@pytest.mark.parametrize(
    "build", ["11549 (0c1e57098) with GNU 12.2.0 for Linux x86_64", "b11549-0c1e570", "version: 11549 (0c1e5709)"]
)
def test_one_build_in_many_words(build: str) -> None:
    assert found(two_binaries, with_logs(CLEAN, build=build)) == []
    assert found(two_binaries, with_sessions(CLEAN, resolved={"build": build})) == []


@pytest.mark.parametrize("build", ["11550 (0c1e57098)", "b11549-aaaaaaa", "11548 (1d2e3f4) with clang"])
def test_a_log_of_another_build(build: str) -> None:
    for data in (with_logs(CLEAN, SD, 1, build=build), with_sessions(CLEAN, SD, 1, resolved={"build": build})):
        (finding,) = found(two_binaries, data)
        assert (finding.severity, finding.scope) == ("suspect", "run")
        assert (finding.evidence["sessions"], finding.evidence["build_of_engine"]) == (1, BUILD)


@pytest.mark.parametrize("build", ["0 (unknown) with GNU 10.2.1", "b0-unknown", "0 (0c1e570)", "made by hand", ""])
def test_builds_that_say_nothing_agree(build: str) -> None:
    data = with_logs(with_sessions(CLEAN, resolved={"build": build}), build=build)
    assert found(two_binaries, data) == []


def test_logs_that_name_no_build() -> None:
    data = replace(with_sessions(CLEAN, resolved={"build": None}), logs={})
    assert [gap.reason.code for gap in unchecked(two_binaries, data, applies=True)] == ["unchecked.no_build_in_log"]


# --- memory-fit ------------------------------------------------------------------------------------------------------


def on(device: str, model: int = 400_000_000, kv: int = 50_000_000, compute: int = 1) -> DeviceUse:
    return DeviceUse(device=device, model_buffer_bytes=model, kv_buffer_bytes=kv, compute_buffer_bytes=compute)


OFFLOADED = with_sessions(CLEAN, devices=(on("CUDA0"), on("CPU", 10_000_000, 0)), layers_offloaded=(33, 33))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"layers_offloaded": (20, 33)}, "layers not on a device"),
        ({"layers_offloaded": None}, "layers on a device"),
        ({"resolved": {"n_ctx": 2048}}, "n_ctx"),
        ({"resolved": {"slot_context": 2048}}, "slot_context"),
        ({"devices": (on("CUDA0", 250_000_000), on("CPU", 160_000_000, 0))}, "weights on CUDA0 in bytes"),
        ({"devices": (on("CUDA0", kv=25_000_000), on("CPU", 10_000_000, 0))}, "KV cache on CUDA0 in bytes"),
        ({"devices": (on("CPU", 410_000_000),)}, "weights on CUDA0 in bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("block", [None, 1])
def test_a_target_that_lies_elsewhere(changes: dict[str, Any], name: str, block: int | None) -> None:
    findings = found(memory_fit, with_sessions(OFFLOADED, SD, block, **changes))
    (finding,) = (it for it in findings if it.severity != "note")
    assert (finding.severity, finding.arm_id) == ("suspect", SD)
    assert name in finding.evidence


@pytest.mark.parametrize(
    "changes",
    [
        {"devices": (on("CUDA0", 400_900_000), on("CPU", 10_900_000, 0))},
        {"devices": (on("CUDA0", compute=90_000_000), on("CPU", 10_000_000, 0))},
        {"resolved": {"n_rs_seq": 4}, "devices": (on("CUDA0", kv=99_000_000), on("CPU", 10_000_000, 0))},
        {"draft_layers_offloaded": (1, 9)},
    ],
    ids=["rounding", "compute", "snapshots", "draft"],
)
def test_differences_that_do_not_matter(changes: dict[str, Any]) -> None:
    assert found(memory_fit, with_sessions(OFFLOADED, SD, **changes)) == []


def test_a_gpu_that_holds_some_layers_only_is_noted() -> None:
    """As `-ngl 99` does with 150 layers: seen at 29 tokens a second, on a GPU."""
    notes = found(memory_fit, with_sessions(OFFLOADED, layers_offloaded=(20, 33)))
    assert {(it.severity, it.arm_id, it.message.code) for it in notes if isinstance(it.message, Message)} == {
        ("note", arm_id, "memory-fit.partly") for arm_id in (BASE, SD)
    }
    assert not found(memory_fit, with_sessions(OFFLOADED, layers_offloaded=(0, 33))), "no GPU was asked for"


def test_drafting_heads_are_part_of_the_target() -> None:
    heads = arm("draft-mtp", gamma=2)
    data = with_sessions(run_of(heads), devices=(on("CUDA0"),), layers_offloaded=(33, 33))
    more = with_sessions(data, heads.id, devices=(on("CUDA0", 430_000_000),), layers_offloaded=(34, 34))
    assert found(memory_fit, more) == []
    assert found(memory_fit, with_sessions(more, heads.id, layers_offloaded=(30, 34)))


def test_what_memory_fit_cannot_see() -> None:
    silent = with_sessions(CLEAN, SD, devices=())
    assert [gap.arm_id for gap in unchecked(memory_fit, silent, applies=True)] == [SD]
    mixed = with_sessions(OFFLOADED, SD, devices=(on("CUDA0", 420_000_000),), draft_devices=())
    assert found(memory_fit, mixed) == []
    assert unchecked(memory_fit, mixed, applies=True)
    assert unchecked(memory_fit, simulated(CLEAN), applies=False)
    assert unchecked(memory_fit, run_data(arms=[CLEAN.arms[BASE]]), applies=False)


# --- server-shared ---------------------------------------------------------------------------------------------------


def test_more_than_one_slot() -> None:
    findings = found(server_shared, with_sessions(CLEAN, resolved={"total_slots": 4}))
    assert {it.arm_id for it in findings} == {BASE, SD}
    assert findings[0].evidence == {"slots": Message("server-shared.slots", slots=4)}
    asked = with_sessions(asking(slots=2), resolved={"total_slots": None})
    assert len(found(server_shared, asked)) == 2, "where the engine does not say, what was asked for counts"


def test_prompt_tokens_from_a_cache() -> None:
    (finding,) = found(server_shared, with_requests(CLEAN, lambda row: row.arm_id == SD and row.item > 0, cache_n=80))
    assert (finding.severity, finding.arm_id) == ("suspect", SD)
    assert finding.evidence == {"cached": Message("server-shared.cached", cached=8, requests=12, tokens=80)}


def test_prompts_that_a_run_reads_once_on_purpose() -> None:
    cached = with_requests(CLEAN, cache_n=80)
    design = CLEAN.experiment.design.model_copy(update={"session": "run", "warmup": "prompts"})
    asked = replace(cached, experiment=CLEAN.experiment.model_copy(update={"design": design}))
    (finding,) = found(server_shared, asked)
    assert (finding.severity, finding.message.code) == ("note", "server-shared.read_once")


def test_a_prompt_cache_that_is_on() -> None:
    assert len(found(server_shared, asking(prompt_cache=True))) == 2


@pytest.mark.parametrize("where", [{"block": 1}, {"invocation": 1}, {"arm_id": BASE}])
def test_a_session_that_served_others(where: dict[str, Any]) -> None:
    sessions = {
        name: it.model_copy(update=where) if it.arm_id == SD and it.block == 0 else it
        for name, it in CLEAN.sessions.items()
    }
    (finding,) = found(server_shared, replace(CLEAN, sessions=sessions))
    assert finding.evidence == {"sessions": Message("server-shared.strangers", requests=3)}


def test_a_table_that_lives_as_long_as_the_server() -> None:
    mod = run_of(arm("ngram-mod"), parameters={"ngram-mod": {"n_max": 8, "n_match": 24, "n_min": 0}})
    (finding,) = found(server_shared, mod)
    assert (finding.severity, finding.message.code) == ("note", "server-shared.remembers")
    (finding,) = found(server_shared, with_sessions(mod, arm("ngram-mod").id, server="one"))
    assert (finding.severity, list(finding.evidence)) == ("suspect", ["table"])
    fresh = with_requests(mod, change=lambda it: {"session_id": f"{it.row.session_id}-{it.row.prompt_id}"})
    sessions = {
        f"{name}-{prompt}": it.model_copy(update={"id": f"{name}-{prompt}"})
        for name, it in mod.sessions.items()
        for prompt in mod.prompts
    }
    assert found(server_shared, replace(fresh, sessions=sessions)) == []
    assert found(server_shared, run_of(arm("ngram-simple"), parameters={"ngram-simple": {"size_m": 8}})) == []


def rising(method: MethodName, per_place: float) -> RunData:
    """Each request of a session accepts so many tokens more than the one before it."""
    data = run_data(
        experiment(design={"blocks": 4, "seed": 2}), arms=[CLEAN.arms[BASE], arm(method)], prompt_ids=PROMPTS
    )
    order = {(b, p): (number * 5 + b * 2) % 6 for b in range(4) for number, p in enumerate(PROMPTS)}
    items = {(it.row.block, it.row.prompt_id): it for it in data.by_arm[arm(method).id]}
    mine = [items[key] for key in sorted(items, key=lambda key: (key[0], order[key]))]
    others = [it for it in data.requests if it.row.arm_id == BASE]
    data = replace(data, requests=in_columns((*others, *mine)))

    def more(it: Any) -> dict[str, Any]:
        place = order[it.row.block, it.row.prompt_id]
        return {"draft_n_accepted": round(it.row.draft_n_accepted - 30 + per_place * 64 * place)}

    return with_requests(data, arm(method).id, more)


def test_acceptance_that_rises_over_a_session() -> None:
    (finding,) = found(server_shared, rising("ngram-cache", 0.05))
    assert list(finding.evidence) == ["rise"]
    (rise,) = finding.evidence.values()
    assert isinstance(rise, Message)
    assert rise.values["rise"] == pytest.approx(0.255, abs=0.005)
    assert found(server_shared, simulated(rising("ngram-cache", 0.05))), "numbers of a mock are judged as well"


def test_acceptance_that_rises_from_block_to_block_of_a_server_that_is_kept() -> None:
    """Within each session it is level: only who knows that they share a server sees it."""
    method = arm("ngram-cache")
    data = with_requests(
        rising("ngram-cache", 0.0),
        method.id,
        lambda it: {"draft_n_accepted": (it.row.draft_n_accepted or 0) + round(0.05 * 64 * it.row.block)},
    )
    assert found(server_shared, data) == []
    (finding,) = found(server_shared, with_sessions(data, method.id, server="one"))
    assert list(finding.evidence) == ["rise"]


@pytest.mark.parametrize("per_place", [0.0, -0.05])
def test_acceptance_that_does_not_rise(per_place: float) -> None:
    assert found(server_shared, rising("ngram-cache", per_place)) == []


def test_a_draft_model_remembers_nothing() -> None:
    assert found(server_shared, rising("draft-mtp", 0.05)) == []


def test_greedy_text_repeats_itself_on_the_mock(tmp_path: Path) -> None:
    data = mock_run(tmp_path, arms=[{"method": "ngram-simple"}], design={"blocks": 6})
    assert found(server_shared, data) == []

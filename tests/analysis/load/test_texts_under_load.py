"""Texts under load: an arm beside its baseline at the same load, and that beside plain decoding for one client."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specmeter.engines.llama_cpp.log_signs import LogSigns, Sign, scan
from specmeter.messages import Message
from specmeter.record import Finding, Unchecked
from specmeter.store import RequestKey, RunStore
from specmeter.validity.checks.baseline import baseline_unstable
from specmeter.validity.checks.load import context_short, prompt_remembered
from specmeter.validity.checks.output import output_differs
from specmeter.validity.checks.registry import CHECKS
from specmeter.validity.checks.requests import in_columns
from specmeter.validity.checks.run_data import RunData, read_run_data
from validity.test_losslessness import BASE, SD, ask, differences, forge, found, measured, replaced

LOAD = {"clients": [1, 2], "rounds": 4}
"""One pass over the four prompts for one client, two for two."""


def read(folder: Path) -> RunData:
    with RunStore.open(folder / "run", readonly=True) as store:
        return read_run_data(store)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    folder = tmp_path_factory.mktemp("loaded")
    measured(folder, load=LOAD, generation={"max_tokens": 96})
    return read(folder)


def test_who_is_compared_with_whom_under_load(tmp_path: Path) -> None:
    measured(tmp_path, load=LOAD)
    assert differences(tmp_path) == [], "a repeated prompt is the same prompt"
    prompt_id = min(read(tmp_path).requests.different("prompt_id"))
    for arm_id in (f"{BASE}/c2", f"{SD}/c2"):
        forge(tmp_path, RequestKey(0, 1, arm_id, f"{prompt_id}#2"), replaced(3, 256 + len(arm_id)))
    assert {it.key.arm_id: it.reference for it in differences(tmp_path)} == {
        f"{BASE}/c2": RequestKey(0, 1, f"{BASE}/c1", prompt_id),
        f"{SD}/c2": RequestKey(0, 1, f"{BASE}/c2", f"{prompt_id}#2"),
    }


def test_the_target_is_asked_once_for_all_loads(tmp_path: Path) -> None:
    """Both loads part at one place: one question, to the target alone."""
    prepared = measured(tmp_path, load=LOAD)
    prompt_id = min(read(tmp_path).requests.different("prompt_id"))
    for arm_id, token in ((f"{BASE}/c2", 300), (f"{SD}/c1", 300), (f"{SD}/c2", 301)):
        forge(tmp_path, RequestKey(0, 1, arm_id, prompt_id), replaced(3, token))
    asked, margins = ask(tmp_path, prepared)
    assert (asked, len(margins)) == (1, 3)
    assert ask(tmp_path, prepared)[0] == 0, "what is known is not asked again"
    findings = found(tmp_path)
    control, loaded = findings[f"{BASE}/c2"], findings[f"{SD}/c2"]
    assert control.message.values["reference"] == Message("output-differs.one_client")
    assert loaded.message.values["beside"] == Message("output-differs.load", differ=1, compared=16)
    assert (loaded.evidence["plain_repeats"], loaded.evidence["plain_repeats_differ"]) == (16, 1)


def test_without_one_client_the_control_is_missing(tmp_path: Path) -> None:
    measured(tmp_path, load={"clients": [2], "rounds": 4})
    gaps = [it for it in output_differs(read(tmp_path)) if isinstance(it, Unchecked)]
    assert [(it.arm_id, it.applies) for it in gaps if it.reason.code == "unchecked.no_single_client"] == [
        (f"{BASE}/c2", True)
    ]


def test_a_clean_run_under_load_raises_no_alarm(clean: RunData) -> None:
    """Nothing beyond a note, whatever the check was written for; and what times of single requests would say is
    said to be unknown."""
    found = [it for check in CHECKS for it in check.look(clean) if isinstance(it, Finding)]
    assert [(it.check, it.arm_id, it.message) for it in found if it.severity != "note"] == []
    for name in ("stalls", "bimodal", "pooled-vs-mean"):
        check = next(it for it in CHECKS if it.id == name)
        gaps = {it.arm_id for it in check.look(clean) if isinstance(it, Unchecked) and not it.applies}
        assert gaps == set(clean.arms)


def test_contexts_that_run_short(clean: RunData) -> None:
    assert list(context_short(clean)) == []
    full = [
        replace(it, row=it.row._replace(stop_reason="context")) if it.row.arm_id == f"{SD}/c2" else it
        for it in clean.requests
    ]
    (finding,) = context_short(replace(clean, requests=in_columns(full)))
    assert isinstance(finding, Finding)
    assert (finding.arm_id, finding.severity, finding.evidence["requests"]) == (f"{SD}/c2", "suspect", 16)
    logs = dict.fromkeys(clean.sessions, LogSigns(context_shifted=Sign(2, ("shift",)), memory_short=Sign(1, ("no",))))
    found = [it for it in context_short(replace(clean, logs=logs)) if isinstance(it, Finding)]
    assert {it.arm_id for it in found} == set(clean.arms)
    assert {it.evidence["log"] for it in found} == {"shift", "no"}


def test_what_a_server_writes_of_contexts() -> None:
    """Lines of llama.cpp build 11549, as its binary has their formats."""
    signs = scan(
        [
            "slot   update_slots: id  1 | task 7 | slot context shift, n_keep = 0, n_left = 511, n_discard = 255",
            "srv    update_slots: failed to find free space in the KV cache, retrying with smaller batch size, "
            "off = 0, n_batch = 2, ret = 1",
            "srv  try_clear_idle: purging slot 2 with 260 tokens",
            "slot print_timing: id  1 | task 7 | stop processing: n_tokens = 90, truncated = 0",
        ]
    )
    assert (signs.context_shifted.count, signs.memory_short.count, signs.failed_decodes.count) == (1, 2, 0)


def test_a_hash_in_a_name_is_not_a_repeat(clean: RunData) -> None:
    assert list(prompt_remembered(clean)) == [], "a draft model remembers nothing"
    keeping = clean.arms[f"{SD}/c2"].model_copy(update={"methods": ("ngram-mod",), "draft": None})
    data = replace(clean, arms={**clean.arms, keeping.id: keeping})
    (finding,) = prompt_remembered(data)
    assert isinstance(finding, Finding)
    assert finding.evidence["requests"] == 8, "the second pass of two blocks"
    named = {name: it.model_copy(update={"of": None}) for name, it in clean.prompts.items()}
    assert list(prompt_remembered(replace(data, prompts=named))) == []


def test_a_baseline_under_load_is_as_steady_as_its_cells(clean: RunData) -> None:
    """Requests beside one another take unlike times; cells are what repeats."""
    assert [it for it in baseline_unstable(clean) if isinstance(it, Finding)] == []
    slowed = [
        it._replace(figures=it.figures.model_copy(update={"window_ms": it.figures.window_ms * 1.5}))
        if (it.figures.arm_id, it.figures.block) == (f"{BASE}/c2", 1)
        else it
        for it in clean.cells
    ]
    found = [it for it in baseline_unstable(replace(clean, cells=slowed)) if isinstance(it, Finding)]
    assert [(it.arm_id, it.severity) for it in found] == [(f"{BASE}/c2", "note"), (f"{SD}/c2", "suspect")]

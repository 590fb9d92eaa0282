"""Probes as files: names, what is refused, and which probe holds for a measurement."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hosts import HOST
from probe.probes import ENGINE, curve, model, probe
from specmeter.errors import UsageError
from specmeter.probe.files import file_name, find_probe, load_probe, plain_name, probes_folder, save_probe
from specmeter.record import EngineIdentity, Host, ModelIdentity


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    made = probe(draft=model("draft", "2" * 64), draft_ms=curve(lambda n: 0.1 * n))
    path = save_probe(made, tmp_path / "deep" / "it.json")
    assert load_probe(path) == made
    assert [entry.name for entry in path.parent.iterdir()] == ["it.json"]


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("bench:dense-400m", "dense-400m"),
        ("bench:dense?size=2GiB&quant=Q8_0", "dense-size-2GiB-quant-Q8_0"),
        ("hf:someone/some-model-GGUF/model.Q4_K_M.gguf@main", "model.Q4_K_M.gguf-main"),
        ("../../etc/passwd", "passwd"),
        ("C:\\models\\x.gguf", "x"),
        ("a\x1b[31m\nb\u202e.gguf", "a-31m-b"),
        ("...", "model"),
        ("x" * 500, "x" * 80),
    ],
)
def test_references_become_harmless_names(reference: str, name: str) -> None:
    assert plain_name(reference) == name


def test_a_probe_without_a_place_gets_one_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path))
    made = probe(target=model("../mo\x1b[31mdel"))
    path = save_probe(made)
    assert path.parent == probes_folder()
    assert path.name == "mo-31mdel-11111111-1000000000.json"
    assert save_probe(probe(made_at=2.0)) != path
    assert file_name(probe(draft=model("draft", "2" * 64))) == "target-11111111+draft-22222222-1000000000"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format"),
        ({"target_ms": {"points": []}}, "has no points"),
        ({"target_ms": None}, "target_ms"),
        ({"surprise": 1}, "surprise"),
        ({"settings": {"depth": "deep"}}, "depth"),
    ],
)
def test_malformed_probes_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    content = json.loads(probe().model_dump_json()) | change
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        load_probe(path)


def test_other_files_are_no_probes(tmp_path: Path) -> None:
    large, others = tmp_path / "large", {"empty": b"", "list": b"[]", "bytes": b"\xff\xdc"}
    large.write_bytes(b" " * (10 * 2**20 + 1))
    for name, content in others.items():
        (tmp_path / name).write_bytes(content)
    for path in (tmp_path / "missing", large, tmp_path, *(tmp_path / name for name in others)):
        with pytest.raises(UsageError, match="specmeter probe"):
            load_probe(path)


def test_a_place_that_cannot_be_written_to_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="--out"):
        save_probe(probe(), tmp_path / "file" / "it.json")


def test_the_newest_probe_that_fits_is_found(tmp_path: Path) -> None:
    draft = model("draft", "2" * 64)
    save_probe(probe(made_at=1.0), tmp_path / "z.json")
    save_probe(probe(made_at=2.0, draft=draft, draft_ms=curve(lambda n: 0.1 * n)), tmp_path / "b.json")
    save_probe(probe(made_at=3.0), tmp_path / "a.json")
    save_probe(probe(made_at=4.0, host=HOST.model_copy(update={"cpu": "another"})), tmp_path / "c.json")
    (tmp_path / "no-probe.json").write_text("{}", encoding="utf-8")

    def made_at(
        draft: ModelIdentity | None = None,
        engine: EngineIdentity = ENGINE,
        target: ModelIdentity | None = None,
        host: Host | None = None,
    ) -> float | None:
        found = find_probe(target or model(), draft, engine, tmp_path, host=host)
        return found[1].made_at if found else None

    assert made_at() == 4.0
    assert made_at(host=HOST) == 3.0
    assert made_at(draft) == 2.0
    assert made_at(model("other", "3" * 64)) is None
    assert made_at(target=model("other", "3" * 64)) is None
    newer = ENGINE.model_copy(update={"version": "2"})
    assert made_at(engine=newer) == 4.0
    assert made_at(engine=newer.model_copy(update={"binary_sha256": "0" * 64})) is None
    assert find_probe(model(), None, ENGINE, tmp_path / "nowhere") is None


@pytest.mark.parametrize("points", ["reversed", float("nan"), float("inf"), 0.0, -1.0])
def test_malformed_points_and_times_are_refused(tmp_path: Path, points: str | float) -> None:
    content = json.loads(probe().model_dump_json())
    if points == "reversed":
        content["target_ms"]["points"].reverse()
    else:
        content["target_ms"]["points"][2]["ms"]["point"] = points
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UsageError, match=r"bad\.json"):
        load_probe(path)

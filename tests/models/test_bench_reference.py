from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmeter.errors import ModelError
from specmeter.models import bench
from specmeter.models.bench import build, describe, names, parse, reference_of
from specmeter.models.gguf import Metadata, read_header
from specmeter.models.weights import CONVERTIBLE

pytestmark = pytest.mark.usefixtures("own_cache")


def test_every_listed_name_is_a_reference() -> None:
    assert {"dense", "moe", "dense-200m", "moe-400m", "shape/qwen3-30b-a3b"} <= set(names())
    for name in names():
        assert reference_of(parse(f"bench:{name}")) == f"bench:{name}"


@pytest.mark.parametrize(
    ("text", "size"),
    [("400MB", 400_000_000), ("2GiB", 2 << 30), ("1.5gb", 1_500_000_000), ("30000000", 30_000_000), ("64kib", 65_536)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert parse(f"bench:dense?size={text}").size_bytes == size


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("dense", "not a bench model"),
        ("bench:dens", "dense"),
        ("bench:", "unknown bench model"),
        ("bench:nope", f"use one of: {', '.join(names())}"),
        ("bench:shape/qwen3-30b", "qwen3-30b-a3b"),
        ("bench:dens-100m", "did you mean dense-100m"),
        ("bench:dense?siz=1GB", "did you mean size"),
        ("bench:dense?size", "bad query field"),
        ("bench:dense?size=", "size=''"),
        ("bench:dense?size=0MB", "not a size"),
        ("bench:dense?size=1XB", "not a size"),
        ("bench:dense?size=1MB&size=2MB", "repeated"),
        ("bench:dense?quant=Q8_1", "Q8_0"),
        ("bench:dense?quant=Q4_K", "Q4_K_S or Q4_K_M"),
        ("bench:dense?layers=0", "1 to 500"),
        ("bench:dense?layers=²", "1 to 500"),
        ("bench:dense-400m?size=1GB", "use one of: quant"),
        ("bench:shape/olmoe-1b-7b?scale=0", "up to 1"),
        ("bench:shape/olmoe-1b-7b?scale=nan", "up to 1"),
        ("bench:shape/olmoe-1b-7b?size=1GB", "scale"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_hint(reference: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse(reference)
    assert message in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_parses_or_is_refused(text: str) -> None:
    for reference in (text, f"bench:{text}", f"bench:dense?{text}"):
        try:
            parse(reference)
        except ModelError:
            continue


@given(
    st.sampled_from(["dense", "moe", "draft-small"]),
    st.none() | st.integers(1, 10**12),
    st.none() | st.integers(1, 500),
    st.none() | st.sampled_from(CONVERTIBLE),
)
def test_a_reference_says_all_of_a_spec(name: str, size: int | None, layers: int | None, quant: str | None) -> None:
    given_values = {"size": size, "layers": layers, "quant": quant}
    query = "&".join(f"{key}={value}" for key, value in given_values.items() if value is not None)
    spec = parse(f"bench:{name}?{query}" if query else f"bench:{name}")
    assert parse(reference_of(spec)) == spec


def test_a_core_is_used_where_it_lies() -> None:
    plan = describe(parse("bench:dense"))
    assert plan.in_place
    assert plan.path == build(parse("bench:dense?quant=f16"))
    assert plan.path.stat().st_size == plan.size_bytes
    assert plan.layers == plan.core_layers


@pytest.mark.parametrize("core", ["dense", "moe"])
@pytest.mark.parametrize("quant", CONVERTIBLE)
@pytest.mark.parametrize("size", ["200MB", "30GB"])
def test_sizes_are_met(core: str, quant: str, size: str) -> None:
    spec = parse(f"bench:{core}?size={size}&quant={quant}")
    plan = describe(spec)
    assert spec.size_bytes
    assert abs(plan.size_bytes / spec.size_bytes - 1) <= 0.02
    assert plan.core_layers <= plan.layers <= 500


def test_dense_and_moe_of_one_number_weigh_the_same() -> None:
    presets = [name for name in names() if name.startswith("dense-")]
    assert presets
    for name in presets:
        dense, moe = (describe(parse(f"bench:{other}")) for other in (name, name.replace("dense", "moe")))
        assert abs(dense.size_bytes / moe.size_bytes - 1) < 0.02


@pytest.mark.parametrize("core", ["dense", "moe"])
def test_width_comes_before_layers(core: str) -> None:
    small, large = (describe(parse(f"bench:{core}?size={size}&quant=Q8_0")) for size in ("400MB", "10GB"))
    assert small.layers <= 3 * small.core_layers
    # Beyond what the engine can hold as activations of a batch, layers are added.
    assert large.layers > small.layers
    assert large.feed_forward * large.experts_used <= 40_000


def test_the_built_file_is_what_was_described() -> None:
    spec = parse("bench:dense?size=20MB&quant=Q8_0&layers=9")
    plan = describe(spec)
    seen: list[tuple[int, int]] = []
    path = build(spec, progress=lambda done, total: seen.append((done, total)))
    assert path == plan.path == build(spec)
    assert path.stat().st_size == plan.size_bytes
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {plan.size_bytes}
    facts = Metadata(read_header(path))
    assert facts.integer(".block_count") == plan.layers == 9
    assert facts.integer(".feed_forward_length") == plan.feed_forward
    assert "nflated" in (facts.text("general.description") or "")
    assert sum(t.elements for t in facts.header.tensors) == plan.parameters


def test_the_same_reference_gives_the_same_bytes() -> None:
    spec = parse("bench:moe?size=40MB&quant=Q4_0")
    first = build(spec)
    digest = hashlib.sha256(first.read_bytes()).hexdigest()
    first.unlink()
    assert hashlib.sha256(build(spec).read_bytes()).hexdigest() == digest


def test_another_core_is_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = parse("bench:dense?size=1GB")
    before = describe(spec).path
    monkeypatch.setattr(bench, "file_sha256", lambda _: "0" * 64)
    assert describe(spec).path != before


def test_less_than_the_core_is_refused() -> None:
    with pytest.raises(ModelError, match="at least"):
        describe(parse("bench:dense?size=1MB"))
    with pytest.raises(ModelError, match="cannot become 1 layers"):
        describe(parse("bench:dense?layers=1"))

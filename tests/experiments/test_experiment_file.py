"""Reading experiment files: what is refused, and how it is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from specmeter.errors import ExperimentError
from specmeter.experiments.file import bundled, load

MINIMAL = """
name: mine
targets: {a: some.gguf}
arms: [{method: ngram-simple}]
workloads: [{source: bench}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(MINIMAL, encoding="utf-8")
    return path


def test_a_file_keeps_its_own_text_and_folder(file: Path) -> None:
    loaded = load(str(file))
    assert loaded.text == MINIMAL
    assert loaded.base_dir == file.parent.resolve()
    assert loaded.experiment.design.blocks == 3


def test_overrides_reach_into_lists_and_new_keys(file: Path) -> None:
    loaded = load(str(file), ["design.blocks=7", "arms.0.gamma=[4, 8]", "engine.threads=2"])
    assert loaded.experiment.design.blocks == 7
    assert loaded.experiment.arms[0].gamma == (4, 8)
    assert yaml.safe_load(loaded.text)["engine"] == {"threads": 2}


def test_overrides_reach_names_with_dots(tmp_path: Path) -> None:
    path = tmp_path / "dots.yaml"
    path.write_text(MINIMAL.replace("{a: some.gguf}", "{qwen-0.8b: some.gguf}"), encoding="utf-8")
    loaded = load(str(path), ["targets.qwen-0.8b=mine.gguf"])
    assert loaded.experiment.targets["qwen-0.8b"] == "mine.gguf"


def test_bundled_experiments_are_valid_and_described() -> None:
    for name in bundled():
        loaded = load(name)
        assert loaded.experiment.description, name
        assert len(loaded.experiment.expand()) > 1, name


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("design.blocks", "not a.b=c"),
        ("=3", "not a.b=c"),
        ("arms.5.gamma=1", "list of 1"),
        ("name.x=1", "single value"),
        ("design.blocks=[", "not valid YAML"),
        ("design.bloks=3", "design.bloks: unknown key; did you mean 'blocks'"),
        ("design.blocks=many", "design.blocks"),
        ("description=2020-13-45", "not valid YAML"),
        (f"design.seed={'9' * 20_000}", "not valid YAML"),
        (f"design.seed={'[' * 20_000}", "not valid YAML"),
        ("a." * 20_000 + "b=1", "more than 64 levels"),
    ],
)
def test_bad_overrides_name_themselves(file: Path, override: str, message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        load(str(file), [override])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", r"mine\.yaml:\d+:\d+"),
        ("- a\n- b\n", "mapping of keys; this is a list"),
        ("", "mapping of keys; it is empty"),
        ("name: " + "[" * 20_000, "nested too deeply"),
        (f"name: 0x{'f' * 20_000}", r"mine\.yaml:1:7: a number with too many digits"),
        (f"name: {'9' * 20_000}", r"mine\.yaml:1:7: a number with too many digits"),
        ("name: a\nname: b\n", "duplicate key 'name'"),
        ("x: !!python/object/apply:os.system [echo]\n", "could not determine a constructor"),
        (MINIMAL + "enginge: {}\n", "enginge: unknown key; did you mean 'engine'"),
        (MINIMAL.replace("name: mine", "name: '../x'"), "name"),
        ("name: mine\n", "targets: missing"),
        (MINIMAL + "generation: {temperature: .nan}\n", "generation.temperature"),
        ("&a [*a]\n", "mapping of keys"),
        ("x: &a {y: *a}\n", "YAML"),
    ],
)
def test_bad_files_name_the_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ExperimentError, match=message):
        load(str(path))


def test_aliases_that_explode_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ExperimentError, match="aliases"):
        load(str(path))


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="No such file"):
        load(str(tmp_path / "none.yaml"))
    with pytest.raises(ExperimentError, match="did you mean demo"):
        load("demos")
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"name: \xe9\n")
    with pytest.raises(ExperimentError, match="not UTF-8"):
        load(str(latin))
    huge = tmp_path / "huge.yaml"
    huge.write_bytes(b"#" * 1_000_001)
    with pytest.raises(ExperimentError, match="larger than"):
        load(str(huge))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs an endless device file")
def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(ExperimentError, match="is not a regular file"):
        load("/dev/zero")


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("arms.0.gama=3", "arms.0.gama: unknown key; did you mean 'gamma'?"),
        ("arms.0.blocks=3", "arms.0.blocks: unknown key; did you mean design.blocks?"),
        ("arms.0.gamma=[1, x]", "arms.0.gamma.1: "),
        ("workloads.0.path=x", "workloads.0.path: "),
        ("workloads.0.per_kind=0", "workloads.0.per_kind: "),
        ("workloads=[{}]", "workloads.0: "),
        ("workloads=[{source: x}]", "workloads.0: "),
        *((place, f"{place.partition('=')[0]}: ") for place in ("arms=[]", "design=5", "design.order=sideways")),
        *((place, f"{place.partition('=')[0]}: ") for place in ("targets=null", "name=a b", "arms.0.gamma=1.5")),
    ],
)
def test_a_wrong_place_is_told_once_and_as_the_file_calls_it(file: Path, override: str, told: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        load(str(file), [override])
    lines = [line.removeprefix("  - ") for line in str(caught.value).splitlines() if line.startswith("  - ")]
    assert [line[: len(told)] for line in lines] == [told]

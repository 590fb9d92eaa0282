"""Quality plans: what a file may say, what is found or made, what is left out, and going on after an interruption."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from quality.cores import short_text
from specmeter.analysis.quality import QualityReport, SpeedTest, load_report, save_report
from specmeter.cli import invoke
from specmeter.errors import ExperimentError, UsageError
from specmeter_studies.quality import mlx, plan, planned
from specmeter_studies.quality.plan import LoadedPlan, QualityPlan, bundled_plans, load_plan
from specmeter_studies.quality.planned import measure_plan, names, prepare

SMALL = {
    "name": "small",
    "models": {
        "full": {"reference": "bench:draft-small", "bits": 16, "label": "16 bit"},
        "eight": {"made_from": "full", "type": "Q8_0", "bits": 8},
        "mixed": {"made_from": "full", "type": "Q4_K_M", "bits": 4},
    },
    "windows": 2,
    "tests": ["tg4"],
    "repeats": 2,
    "threads": 1,
}


def written(folder: Path) -> Path:
    (folder / "text.txt").write_text(short_text(), encoding="utf-8")
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump({**SMALL, "text": "text.txt"}, sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path)


def interrupted(loaded: LoadedPlan) -> QualityReport:
    """What is kept of a plan that is stopped after one block of rates."""
    kept: list[QualityReport] = []

    def stop_after_one_block(report: QualityReport) -> None:
        kept.append(report)
        if report.models[0].rates:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_plan(loaded, progress=quiet, keep=stop_after_one_block)
    return kept[-1]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, QualityReport]:
    """A plan, and what was measured of it before it was interrupted."""
    file = written(tmp_path_factory.mktemp("begun"))
    return file, interrupted(load_plan(str(file), ["score=false"]))


def quiet(*_: object) -> None:
    """Progress that is not shown."""


def test_bundled_plans_load_in_every_variant() -> None:
    offered = bundled_plans()
    assert set(offered) >= {"apple-quant-ladder", "qat-vs-ptq"}
    for name, bundled in offered.items():
        assert bundled.description
        for variant in bundled.variants:
            chosen = tuple(dict.fromkeys(("bench", variant)))
            assert load_plan(name, variants=chosen).value.applied == chosen


def test_the_ladder_is_the_document_s() -> None:
    ladder = load_plan("apple-quant-ladder").value
    assert list(ladder.models) == ["F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K"]
    assert [test.name for test in ladder.tests] == ["pp512", "tg128"]
    assert (ladder.context, ladder.windows) == (512, 10)


def test_two_families_at_four_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "missing", lambda: "")
    families = load_plan("qat-vs-ptq").value
    assert families.engine == "mlx"
    assert sorted((model.training, model.bits) for model in families.models.values()) == sorted(
        (training, bits) for training in ("qat", "ptq") for bits in (3, 4, 6, 8)
    )


def test_without_mlx_the_same_families_as_gguf_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "missing", lambda: "mlx not installed")
    loaded = load_plan("qat-vs-ptq").value
    assert (loaded.engine, loaded.applied) == ("libllama", ("gguf",))
    assert loaded.models["qwen3-8b-3bit"].type == "Q3_K_M"
    assert loaded.models["qwen3-8b-3bit"].family == "Qwen3-8B"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"models": {"a": {"made_from": "b", "type": "Q8_0"}}}, "'b' is not another model of the plan"),
        ({"models": {"a": {"type": "Q8_0"}}}, "give a `reference`"),
        (
            {"models": {"a": {"reference": "x", "type": "../x"}}},
            "cannot be made here; use one of F16, BF16, Q8_0, Q6_K",
        ),
        ({"models": {"a": {"reference": "x", "only_source": True}}}, "nothing would be measured"),
        ({"models": {}}, "models"),
        ({"tests": ["tg"]}, "is not a test; write pp512"),
        ({"tests": ["tg128 @ d99999999999"]}, "is not a test"),
        ({"score": False, "tests": []}, "nothing to measure"),
        ({"engine": "mlx"}, "MLX models cannot be made here"),
        ({"engine": "mlx", "models": {"a": "x"}}, "perplexity of MLX models cannot be measured"),
        ({"windws": 3}, "did you mean 'windows'"),
    ],
)
def test_plans_that_cannot_be(tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **change}), encoding="utf-8")
    with pytest.raises(ExperimentError) as caught:
        load_plan(str(path))
    assert said in caught.value.message
    assert caught.value.fix


def test_an_empty_plan_is_told_how_plans_begin(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("", encoding="utf-8")
    with pytest.raises(ExperimentError, match="the quality plan must be a mapping of keys; it is empty") as caught:
        load_plan(str(path))
    assert "quality.md" in str(caught.value)


def test_tests_are_named_as_llama_bench_names_them() -> None:
    made = QualityPlan.model_validate({"name": "a", "models": {"m": "x"}, "tests": ["pp512", "tg128 @ d4096"]})
    assert made.tests == (
        SpeedTest(kind="prompt", tokens=512),
        SpeedTest(kind="generate", tokens=128, depth=4096),
    )
    assert [test.name for test in made.tests] == ["pp512", "tg128 @ d4096"]
    assert made.models["m"].reference == "x"


def test_a_missing_text_says_where_it_can_be_had() -> None:
    with pytest.raises(ExperimentError) as caught:
        prepare(load_plan("apple-quant-ladder", ["text=absent.raw"]))
    assert "WikiText-2" in caught.value.fix


def test_no_model_at_all_names_every_reason(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    models = {"a": "absent.gguf", "b": {"made_from": "a", "type": "Q8_0"}}
    path.write_text(yaml.safe_dump({**SMALL, "models": models}), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        prepare(load_plan(str(path)))
    assert "absent.gguf" in caught.value.message


def test_models_that_do_not_fit_are_left_out(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_plan: object, model: object) -> None:
        if getattr(model, "name", "") == "eight":
            raise UsageError("too large", fix="more memory")

    monkeypatch.setattr(planned, "_refuse_too_large", refuse)
    request = prepare(load_plan(str(file)))
    assert [model.name for model in request.models] == ["full", "mixed"]
    assert [item.name for item in request.skipped] == ["eight"]


def test_a_given_file_is_not_made(file: Path) -> None:
    request = prepare(load_plan(str(file), ["models.mixed.reference=bench:draft-small?quant=Q4_1"]))
    assert [model.name for model in request.models] == ["full", "eight", "mixed"]
    assert [origin.made for origin in request.origins] == ["", "specmeter to Q8_0 from F16", ""]


@pytest.mark.slow
def test_an_interrupted_plan_goes_on(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_plan(str(file))
    earlier = interrupted(loaded)
    assert not earlier.complete
    assert [len(model.rates[0].ms) for model in earlier.models] == [1, 1, 1]

    def never(*_: object, **__: object) -> None:
        raise AssertionError("scored again")

    monkeypatch.setattr("specmeter_studies.quality.measure.score_apart", never)
    report = measure_plan(loaded, progress=quiet, keep=quiet, earlier=earlier)
    assert report.complete
    assert [len(model.rates[0].ms) for model in report.models] == [2, 2, 2]
    assert [model.rates[0].ms[0] for model in report.models] == [model.rates[0].ms[0] for model in earlier.models]
    assert report.models[0].perplexity == earlier.models[0].perplexity
    assert list(names(report)) == ["16 bit", "eight", "mixed"]
    assert report.models[2].tensor_types == {"Q5_0": 12, "Q8_0": 3, "F32": 9}
    deviation = report.models[0].rates[0].deviation
    ms = report.models[0].rates[0].ms
    assert deviation == pytest.approx(abs(4000 / ms[0] - 4000 / ms[1]) / 2**0.5)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("context=256", "setting, context"),
        ("windows=3", "number of windows"),
        ("tests=[tg5]", "set of tests"),
        ("models.mixed.reference=bench:draft-large", "set of models"),
    ],
)
def test_an_earlier_report_of_something_else_is_refused(
    begun: tuple[Path, QualityReport], override: str, said: str
) -> None:
    file, earlier = begun
    changed = load_plan(str(file), ["score=false", override])
    with pytest.raises(UsageError, match=said):
        measure_plan(changed, progress=quiet, keep=quiet, earlier=earlier)


def test_the_command_measures_a_plan_and_says_what_is_missing(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    lost = ["--set", "models.lost.reference=absent.gguf"]
    assert invoke(["quality", "--plan", str(file), "--set", "tests=[]", *lost, "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert "16 bit" in shown.out
    assert "mixed: 3 Q8_0, 12 Q5_0, 9 F32; made by specmeter to Q4_K_M from F16" in shown.out
    assert "not measured: lost: " in shown.err
    assert load_report(out).plan == "small"


def test_the_command_goes_on_with_an_interrupted_report(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.json"
    assert invoke(["quality", "--plan", str(file), "--set", "tests=[]", "--out", str(out)]) == 0
    before = load_report(out)
    save_report(before.model_copy(update={"complete": False}), out)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("scored again")

    monkeypatch.setattr("specmeter_studies.quality.measure.score_apart", never)
    assert invoke(["quality", "--plan", str(file), "--set", "tests=[]", "--out", str(out), "--json"]) == 0
    assert [model.perplexity for model in load_report(out).models] == [model.perplexity for model in before.models]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bench:dense", "--plan", "qat-vs-ptq"], "MODEL: not with --plan"),
        (["--plan", "qat-vs-ptq", "--context", "64"], "--context: not with --plan"),
        (["--plan", "qat-vs-pt"], "did you mean qat-vs-ptq"),
        (["--plan", "qat-vs-ptq", "--variant", "absent"], "no such variant"),
        (["bench:dense", "--variant", "bench"], "--variant, --set: only with --plan"),
        ([], "no model given"),
    ],
)
def test_flags_that_do_not_go_together(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["quality", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_json_carries_roles_and_what_was_skipped(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["quality", "--plan", str(file)]
    for change in ("tests=[]", "windows=1", "models.lost.reference=absent.gguf"):
        arguments += ["--set", change]
    assert invoke([*arguments, "--out", str(tmp_path / "o.json"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert report["models"][0]["role"] == {"label": "16 bit", "family": "", "training": "", "bits": 16.0}
    assert [item["name"] for item in report["skipped"]] == ["lost"]
    assert report["models"][0]["perplexity"]["windows"] == 1


def test_mlx_says_why_it_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlx, "find_spec", lambda _name: None)
    assert mlx.missing().startswith("mlx and mlx_lm not installed")

"""`specmeter quality` as a user meets it, on the real library and small cores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.quality.reports import quality
from quality.cores import short_text
from specmeter.analysis.quality import load_report
from specmeter.cli import invoke
from specmeter.errors import EngineError, UsageError
from specmeter.record import EngineSettings
from specmeter_studies.quality import measure
from specmeter_studies.quality.scoring import Scores, Scoring
from specmeter_studies.quality.text import read_text

SMALL, SMALLER = "bench:draft-small", "bench:draft-small?quant=Q8_0"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(short_text(), encoding="utf-8")
    return file


def test_a_ladder(tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "ladder.json"
    flags = [
        "--rates",
        "--depths",
        "0,40",
        "--prompt-tokens",
        "32",
        "--generate-tokens",
        "4",
        "--repeats",
        "2",
        "--threads",
        "1",
    ]
    assert invoke(["quality", SMALL, SMALLER, "--text", str(text), *flags, "--out", str(out), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    report = load_report(out)
    assert shown["report"] == json.loads(report.model_dump_json())
    assert report.complete
    first, second = report.models
    assert first.perplexity is not None
    assert second.perplexity is not None
    assert first.perplexity.estimate.point == pytest.approx(2.1603, rel=0.002)
    assert (first.perplexity.windows, first.perplexity.scored) == (7, 7 * 255)
    assert first.bits_per_weight > 16 > second.bits_per_weight > 8
    names = ["pp32", "tg4", "pp32 @ d40", "tg4 @ d40"]
    assert [[rate.test.name for rate in model.rates] for model in report.models] == [names, names]
    assert all(len(rate.ms) == 2 for model in report.models for rate in model.rates)
    comparison = shown["comparison"]
    assert comparison[0]["change"] is None
    expected = second.perplexity.estimate.point / first.perplexity.estimate.point
    assert comparison[1]["change"]["point"] == pytest.approx(expected, rel=1e-6)
    assert comparison[1]["speedup"]["unit"] == "x"
    assert comparison[1]["on_front"] in (True, False)


def test_the_table(tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "one.json"
    assert invoke(["quality", SMALL, SMALLER, "--text", str(text), "--context", "128", "--out", str(out)]) == 0
    shown = capsys.readouterr()
    for word in ("perplexity", "bits/weight", "change", "front", "windows of 128 tokens"):
        assert word in shown.out
    assert f"saved in {out}" in shown.err


@pytest.mark.slow
def test_a_real_model_on_the_bundled_text_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from specmeter.models.bench import shipped

    path = str(shipped()["draft-small"].path)
    assert invoke(["quality", path, "--context", "8192", "--out", str(tmp_path / "o.json"), "--threads", "1"]) == 0
    assert "--text" in capsys.readouterr().err
    report = load_report(tmp_path / "o.json")
    assert any("--text" in warning for warning in report.models[0].warnings)


def test_windows_longer_than_the_model_was_trained_for(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = measure.score_apart

    def trained_for_less(order: Scoring, heard: object) -> Scores:
        return plain(order, heard).model_copy(update={"train_context": 100})  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(measure, "score_apart", trained_for_less)
    flags = ["--text", str(text), "--context", "128", "--out", str(tmp_path / "o.json")]
    assert invoke(["quality", SMALL, *flags]) == 0
    assert "windows of 128 tokens are longer" in capsys.readouterr().err


def test_what_was_complete_is_kept_when_an_engine_fails(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = measure.score_apart

    def fails_on_the_second(order: Scoring, heard: object) -> Scores:
        if "Q8_0" in order.model:
            raise EngineError("llama.cpp fell over", fix="try again")
        return plain(order, heard)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(measure, "score_apart", fails_on_the_second)
    out = tmp_path / "o.json"
    assert invoke(["quality", SMALL, SMALLER, "--text", str(text), "--out", str(out)]) == 3
    assert f"error: {SMALLER}: llama.cpp fell over" in capsys.readouterr().err
    kept = load_report(out)
    assert not kept.complete
    assert kept.models[0].perplexity is not None
    assert kept.models[1].perplexity is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--no-perplexity"], "nothing left to measure"),
        (["--native-bench", "auto"], "only with --rates"),
        (["--native-perplexity", "auto", "--no-perplexity", "--rates"], "leave one of them out"),
        (["--native-perplexity", "/absent"], "not an executable file"),
        (["--rates", "--prompt-tokens", "0", "--generate-tokens", "0"], "no tokens to time"),
        (["--rates", "--depths", "0,x"], "not a list of whole numbers"),
        (["--rates", "--depths", ""], "not a list of whole numbers"),
        (["--rates", "--depths", ",".join(map(str, range(30)))], "give 20 at most"),
        (["--context", "8192", "--text", "TEXT"], "one window needs 8192"),
        (["--text", "TEXT.absent"], "cannot be read"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], said: str, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [it.replace("TEXT", str(text)) for it in arguments]
    code = invoke(["quality", SMALL, *arguments])
    shown = capsys.readouterr().err
    assert code == (3 if "/absent" in arguments else 2)
    assert said in shown
    assert "fix: " in shown


def test_random_weights_have_no_perplexity(text: Path) -> None:
    content, about = read_text(text)
    random = quality("random", 100).model.model_copy(update={"timing_only": True})
    request = measure.QualitySpec(models=[random], text=content, text_identity=about)
    with pytest.raises(UsageError, match="random weights"):
        measure.refuse(request, EngineSettings())

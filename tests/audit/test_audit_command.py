"""`specmeter audit` as a user types it: tables, logs, standard input, exit codes, and what a terminal gets to see."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from specmeter.cli import audit, invoke
from specmeter.messages import Message

ROOT = Path(__file__).resolve().parents[2]
TABLE = """| Target | Draft | γ | tok/s | Speedup | Acceptance |
|---|---|---|---|---|---|
| MoE Q4 | none | 0 | 55.3 | | |
| ★ MoE Q4 | 0.8B | 16 | 69.7 | **1.26×** | 0.2% |
| MoE Q4 | 2B | 4 | 56.6 | 1.03× | 4.0% |
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.md").write_text(TABLE, encoding="utf-8")
    (tmp_path / "honest.csv").write_text("speedup,gamma,acceptance\n1.9,4,70%\n", encoding="utf-8")
    return tmp_path


def test_exit_codes_tell_what_cannot_be_from_what_assumptions_refute(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["audit", "table.md"]) == 4
    out = capsys.readouterr().out
    assert "speedup 1.26 > tau = 1 + 0.0025 x 16 = 1.04" in out
    assert "3 rows: 1 implausible, 1 possible, 1 undecided" in out
    assert invoke(["audit", "honest.csv"]) == 0
    assert "1 row: 1 possible" in capsys.readouterr().out
    Path("false.csv").write_text("speedup,baseline_rate,tok_s\n2.50x,40,60\n", encoding="utf-8")
    assert invoke(["audit", "table.md", "false.csv"]) == 1
    assert invoke(["audit", "table.md", "missing.csv"]) == 2


def test_a_row_that_contradicts_itself_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    Path("table.csv").write_text("config,tok_s,baseline_tok_s,speedup\nodd,60,40,1.7\n", encoding="utf-8")
    assert invoke(["audit", "table.csv"]) == 1
    assert "but the rates give 60 / 40" in capsys.readouterr().out


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Types that on a terminal."""

    def type_in(text: str) -> None:
        for stream in (keys := io.StringIO(text)), sys.stdout:
            monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("sys.stdin", keys)

    return type_in


def test_on_a_terminal_the_number_that_would_decide_is_asked_for(
    typed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("open.csv").write_text("speedup,acceptance\n2.9,20%\n1.8,70%\n", encoding="utf-8")
    typed("four\n4\n")
    assert invoke(["audit", "open.csv"]) == 4
    out = capsys.readouterr().out
    assert out.count("--gamma (Enter to skip)") == 2, "words are asked for again"
    assert out.index("2 undecided") < out.index("--gamma (Enter") < out.index("1 implausible, 1 possible")


@pytest.mark.parametrize("keys", ["\n", ""], ids=["Enter", "the end"])
def test_a_question_may_be_skipped(keys: str, typed: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    Path("open.csv").write_text("speedup,acceptance\n1.9,20%\n", encoding="utf-8")
    typed(keys)
    assert invoke(["audit", "open.csv"]) == 0
    assert capsys.readouterr().out.count("1 undecided") == 1


@pytest.mark.parametrize("options", [["--json"], ["--gamma", "4"]])
def test_nothing_is_asked_of_programs_or_twice(
    options: list[str], typed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("open.csv").write_text("speedup,acceptance\n1.9,20%\n", encoding="utf-8")
    typed("4\n")
    invoke(["audit", "open.csv", *options])
    assert "Enter to skip" not in capsys.readouterr().out


def test_forwards_that_were_measured_to_be_cheap_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    Path("cpu.csv").write_text("speedup,accepted,steps,gamma\n1.90,70,100,1\n", encoding="utf-8")
    assert invoke(["audit", "cpu.csv"]) == 4
    assert invoke(["audit", "cpu.csv", "--cheapest-forward", "0.67"]) == 0
    assert invoke(["audit", "cpu.csv", "--cheapest-forward", "nan"]) == 2
    assert "speedup 1.9 <= tau / cheapest pass = 1.7 / 0.67 = 2.537" in capsys.readouterr().out


def test_several_files_are_counted_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["audit", "table.md", "honest.csv"]) == 4
    assert "all together: 4 rows: 1 implausible, 2 possible, 1 undecided" in capsys.readouterr().out
    assert invoke(["audit", "honest.csv", "missing.csv"]) == 2
    captured = capsys.readouterr()
    assert "1 possible" in captured.out
    assert "missing.csv: cannot be read" in captured.err


def test_json_is_alone_on_stdout_and_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["audit", "table.md", "--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert document["counts"] == {"impossible": 0, "implausible": 1, "possible": 1, "cannot tell": 1}
    source = document["sources"][0]
    assert (source["source"], source["format"]) == ("table.md", "table")
    ruling = source["rulings"][1]
    assert (ruling["verdict"], ruling["bound"]) == ("implausible", "speedup-above-tau")
    assert ruling["claim"]["baseline_rate"] == 55.3
    assert [item["name"] for item in ruling["rests_on"]] == ["forward", "pooled", "baseline"]
    assert set(document["assumptions"]) >= {"forward", "pooled"}
    assert source["noise"] == {"share": 0.06, "origin": Message("audit.noise_usual", unsteady="").to_json()}
    assert (source["counts"], source["notes"]) == (document["counts"], [])


def test_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TABLE.encode())))
    assert invoke(["audit", "-"]) == 4
    out = capsys.readouterr().out
    assert "standard input" in out
    assert "specmeter-audit-" not in out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert invoke(["audit", "-"]) == 2


def test_what_rows_lack_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rates.csv").write_text("tok_s,gamma,acceptance\n61.4,4,3.2%\n", encoding="utf-8")
    assert invoke(["audit", "rates.csv"]) == 0
    assert invoke(["audit", "rates.csv", "--baseline-rate", "42.4 tok/s"]) == 4
    out = " ".join(capsys.readouterr().out.split())
    assert "speedup 61.4 / 42.4 = 1.448 > tau" in out
    Path("plain.csv").write_text("method,tok_s,gamma\nnone,55.3,\nsd,69.7,\n", encoding="utf-8")
    options = ["--bytes-per-token", "20.6 GB", "--device", "Apple M2 Ultra", "--gamma", "4", "--json"]
    assert invoke(["audit", "plain.csv", *options]) == 4
    plain, speculative = json.loads(capsys.readouterr().out)["sources"][0]["rulings"]
    assert (plain["bound"], plain["claim"].get("gamma")) == ("bandwidth-bound", None)
    assert speculative["claim"]["gamma"] == 4
    assert invoke(["audit", "plain.csv", "--bytes-per-token", "20.6GB", "--bandwidth", "2000"]) == 0


def test_units_of_shares_can_be_given() -> None:
    Path("share.csv").write_text("speedup,gamma,draft_acceptance\n1.13,4,0.04\n", encoding="utf-8")
    assert invoke(["audit", "share.csv"]) == 0
    assert invoke(["audit", "share.csv", "--column", "draft_acceptance=acceptance"]) == 0
    assert invoke(["audit", "share.csv", "--column", "draft_acceptance=acceptance_percent"]) == 4


def test_noise_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    Path("near.csv").write_text("speedup,gamma,acceptance\n1.16,16,0.90%\n", encoding="utf-8")
    assert invoke(["audit", "near.csv"]) == 0
    assert "6.0%" in capsys.readouterr().out
    assert invoke(["audit", "near.csv", "--noise", "0"]) == 4
    assert invoke(["audit", "near.csv", "--noise", "3%"]) == 0


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "no file given"),
        (["missing.csv"], "cannot be read"),
        (["."], "cannot be read"),
        (["table.md", "--format", "nonsense"], "nonsense"),
        (["table.md", "--device", "RTX 3091"], "did you mean RTX 3090"),
        (["table.md", "--bandwidth", "800 MHz"], "has the unit 'mhz'"),
        (["table.md", "--bytes-per-token", "1.9"], "has no unit"),
        (["table.md", "--baseline-rate", "0"], "not above 0"),
        (["table.md", "--draft-rate", "fast"], "is not a number"),
        (["table.md", "--gamma", "-1"], "--gamma"),
        (["table.md", "--noise", "80"], "more than 50%"),
        (["table.md", "--column", "Speedup"], "--column 'Speedup': not of the form HEADING=MEANING"),
        (["table.md", "--column", "Speedup=speed"], "did you mean speed_ratio or speedup"),
        (["table.md", "--column", "speedup=Speedup"], "put the heading first: Speedup=speedup"),
        (["--published", "nonsense"], "--published nonsense: no such data set"),
    ],
)
def test_usage_errors(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["audit", *argv]) == 2
    assert words in capsys.readouterr().err


def test_published_data_sets_are_listed_and_audited(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["audit", "--published", "list"]) == 0
    names = capsys.readouterr().out.split()
    assert names
    assert invoke(["audit", "--published", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"published": names}
    assert invoke(["audit", "--published", names[0], "--json"]) in {0, 1, 4}
    assert json.loads(capsys.readouterr().out)["sources"][0]["source"] == names[0]


def test_text_from_files_can_do_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Path("evil.csv").write_text(
        'label,speedup,gamma,acceptance,"\x1b[2Jx"\n"[red]a[/red] \x1b[31mb\u202e",1.3,4,50%,\n"[/bold]",x,4,50%,\n',
        encoding="utf-8",
    )
    assert invoke(["audit", "evil.csv", "--details"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "[red]a[/red]" in out
    assert "[/bold]" in out


def test_a_log_with_more_accepted_than_drafted_is_ruled_by_counting(capsys: pytest.CaptureFixture[str]) -> None:
    log = (ROOT / "tests" / "data" / "audit" / "apple_9b.txt").read_text(encoding="utf-8")
    assert "n_accept  = 23" in log
    Path("run.log").write_text(log.replace("n_accept  = 23", "n_accept  = 823"), encoding="utf-8")
    assert invoke(["audit", "run.log"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "823 accepted > 708 drafted" in out
    assert "input" not in out.lower(), "no words of a validator"


# --- what is not a file of results -----------------------------------------------------------------------------------

needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")


@needs_pipes
def test_a_pipe_is_read_once_and_called_by_its_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(folder / "pipe")
    for text, code in ((TABLE, 4), ("nothing of use\n", 2)):
        writer = threading.Thread(target=(folder / "pipe").write_text, args=(text,))
        writer.start()
        assert invoke(["audit", "pipe"]) == code
        writer.join()
        captured = capsys.readouterr()
        assert (captured.out or captured.err.removeprefix("error: ")).startswith("pipe")
        assert "specmeter-audit-" not in captured.err


@needs_pipes
def test_a_pipe_without_a_writer_and_a_device_do_not_hang(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specmeter.files.SILENCE_S", 0.05)
    os.mkfifo(folder / "pipe")
    assert invoke(["audit", "pipe"]) == 2
    assert "pipe: this pipe delivered nothing" in capsys.readouterr().err
    assert invoke(["audit", "/dev/zero"]) == 2
    assert "/dev/zero: a device" in capsys.readouterr().err


def test_standard_input_is_bounded_and_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MAX_PIPED", 100)
    for content, why in ((b"0" * 101, "save a long log to a file"), (b"[1, 2", "error: standard input: ")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert invoke(["audit", "-"]) == 2
        error = capsys.readouterr().err
        assert why in error
        assert "specmeter-audit-" not in error


@pytest.mark.parametrize("flags", [[], ["--format", "llama-server"], ["--format", "table"]], ids=str)
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\0" * 5000, "holds only nul bytes"),
        (b"PK\x03\x04\x14\0", "is a compressed or binary file"),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 60, "is a compressed or binary file"),
        (bytes(range(1, 32)) * 20, "is a compressed or binary file"),
    ],
    ids=["empty", "blank", "nul", "zip", "elf", "control"],
)
def test_what_is_not_text_is_said_to_be_that(
    capsys: pytest.CaptureFixture[str], flags: list[str], content: bytes, why: str
) -> None:
    Path("odd.csv").write_bytes(content)
    assert invoke(["audit", "odd.csv", *flags]) == 2
    assert f"odd.csv: {why}" in capsys.readouterr().err


def test_a_format_that_finds_nothing_is_refused() -> None:
    Path("other.json").write_text('{"a": {"b": 1}}', encoding="utf-8")
    assert invoke(["audit", "other.json", "--format", "speed-bench"]) == 2


def test_a_heading_that_is_not_there_cannot_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["audit", "honest.csv", "--column", "nope=speedup"]) == 2
    error = capsys.readouterr().err
    assert "honest.csv: --column nope=speedup: no such heading" in error
    assert "fix: use one of 'speedup', 'gamma', 'acceptance'" in error
    assert invoke(["audit", "honest.csv", "--column", "speed=speedup"]) == 2
    assert "fix: use one of 'speedup'\n" in capsys.readouterr().err, "the one that is like it"
    assert invoke(["audit", "honest.csv", "--column", "speedup=speedup", "--column", "gamma=gamma"]) == 0


def test_meanings_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["audit", "--column", "list"]) == 0
    assert "acceptance: accepted / drafted tokens\n" in capsys.readouterr().out
    assert invoke(["audit", "--column", "list", "--json"]) == 0
    assert {"decode_rate", "baseline_rate", "ignore"} <= set(json.loads(capsys.readouterr().out)["meanings"])


def test_a_key_that_is_said_twice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("twice.json").write_text('[{"speedup": 1.2, "speedup": 0.5, "gamma": 4}]', encoding="utf-8")
    assert invoke(["audit", "twice.json"]) == 2
    assert "'speedup' appears twice" in capsys.readouterr().err
    Path("twice.json").write_text('[{"speedup": 1.2, "speedup": 1.2, "gamma": 4}]', encoding="utf-8")
    assert invoke(["audit", "twice.json"]) == 0


def test_a_table_far_down_a_page_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    Path("long.md").write_text("Words of prose.\n" * 6000 + "\n" + TABLE, encoding="utf-8")
    assert invoke(["audit", "long.md"]) == 4
    assert "long.md (table)" in capsys.readouterr().out


def test_a_ratio_that_is_no_number() -> None:
    assert invoke(["audit", "honest.csv", "--cheapest-forward", "nan"]) == 2


def test_a_page_that_speaks_of_logs_is_still_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    words = "`llama-server` logged `draft acceptance = 0.5 (1 accepted / 2 generated)` and n_drafted = 2\n\n"
    Path("page.md").write_text(words + TABLE, encoding="utf-8")
    assert invoke(["audit", "page.md", "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["sources"][0]["format"] == "table"

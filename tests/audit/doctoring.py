"""Rules by which true tables and logs are made false, each named, each applied to several of them.

A rule changes one row or line (or one column), as an author would who wants a better number, or made an ordinary
mistake. What must come of it is said with the rule: `impossible` where counting or arithmetic breaks, `implausible`
where a bound with assumptions does, `note` where the numbers stay possible and only look odd.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from audit.sheets import Sheet

Word = Literal["impossible", "implausible", "note"]
STRENGTH: tuple[Word, ...] = ("note", "implausible", "impossible")


@dataclass(frozen=True)
class Columns:
    """Which heading of a table holds what; empty where it has none."""

    rate: str = ""
    baseline: str = ""
    speedup: str = ""
    acceptance: str = ""
    drafted: str = ""
    accepted: str = ""
    gamma: str = ""
    tau: str = ""
    steps: str = ""
    forwards: str = ""
    ms: str = ""
    count: str = ""
    wall: str = ""
    draft_rate: str = ""
    deviation: str = ""


REQUESTS = Columns("decode_tok_s", "", "", "acceptance", "draft_n", "draft_n_accepted", "", "tau", "",
                   "target_forwards", "predicted_ms", "predicted_n", "wall_ms")  # fmt: skip
COLUMNS = {
    "own/table-drafts.md": Columns("Spec t/s", "Baseline t/s", "Speedup", "Acceptance", gamma="n-max", tau="τ"),
    "own/table-per-prompt.md": Columns(
        "With draft tok/s", "Baseline tok/s", "Speedup", drafted="Drafted", accepted="Accepted", gamma="γ"
    ),
    "own/table-chinese.md": Columns("投机解码 (tok/s)", "基线 (tok/s)", "加速比", "接受率", gamma="草稿长度"),
    "own/table-german.csv": Columns("tok_s", "baseline_tok_s", "speedup", "acceptance_pct", gamma="gamma"),
    "own/table-ngram.csv": Columns("t/s", "no spec", "", "", "drafted", "accepted", "n_max"),
    "own/arms.json": Columns("tok_s", "baseline_tok_s", "speedup", "", "drafted", "accepted", "gamma", "", "",
                             "target_forwards", "predicted_ms", "predicted_n"),
    "own/requests-001-dense-f16-draft-small-g16.csv": REQUESTS,
    "own/requests-009-dense-100m-q4_0-draft-small-g4.csv": REQUESTS,
    "own/requests-023-moe-100m-q4_0-draft-small-g8.csv": REQUESTS,
    "own/requests-058-moe-400m-f16-draft-small-g16.csv": REQUESTS,
    "own/requests-042.jsonl": REQUESTS,
    "published/mtp-vllm-6000.md": Columns("With flag", "Baseline", "", "Acceptance", gamma="n-max"),
    "published/mtp-community.md": Columns("With flag", "Baseline", "", "Acceptance", gamma="n-max"),
    "published/spec-bench-3090.md": Columns(speedup="Overall", tau="#Mean Accepted Tokens"),
    "published/spec-bench-a100-33b.md": Columns(speedup="Overall", tau="#Mean Accepted Tokens"),
    "published/rapid-mlx-473.md": Columns("DFlash", "Baseline", "Speedup", "Accept"),
    "published/dflash-mlx-readme.md": Columns("DFlash", "Baseline", "Speedup", "Acceptance"),
    "published/dflash-mlx-2-lengths.md": Columns(
        "DFlash BF16 tok/s", "MLX-LM BF16 tok/s", "Speedup", tau="Avg acceptance"
    ),
    "published/vllm-24243.md": Columns(
        speedup="speedup", drafted="draft tokens", accepted="accepted tokens", steps="num_drafts",
        tau="mean acceptance length",
    ),
    "simulated/draft-rates.md": Columns(
        "Spec t/s", "Baseline t/s", "Speedup", "Acceptance", gamma="n_max", draft_rate="draft t/s"
    ),
    "simulated/merged-cells.md": Columns("toks/s", "", "Speedup", "Acceptance", gamma="n_max"),
    "simulated/adaptive-lengths.csv": Columns(
        "tps", "baseline_tps", "", "", "drafted", "accepted", "draft_max", "", "rounds", "", "", "generated_tokens"
    ),
    "simulated/repeats.csv": Columns("tok_s", "", "", "", "drafted", "accepted"),
    "simulated/deviations.csv": Columns("tok_s", "", "", "acceptance", gamma="gamma", deviation="std_tok_s"),
    "simulated/trees.md": Columns(speedup="Speedup", tau="tokens/step"),
    "simulated/spec-bench.md": Columns(speedup="Overall", tau="#Mean Accepted Tokens"),
}  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """One way to make a true file false."""

    name: str
    what: str
    must: Word
    apply: Callable[[str, str], str]
    """(name of the true file, its text) -> the doctored text."""
    files: tuple[str, ...]
    """True files that it is applied to."""
    says: str = ""
    """What a note must hold, as an expression; empty where a word is asked for."""


@dataclass(frozen=True)
class Doctored:
    """A true file after a rule."""

    rule: Rule
    file: str
    text: str


def doctored(rule: Rule, file: str, text: str) -> Doctored:
    """The file after the rule. Raises `ValueError` where the rule changes nothing."""
    after = rule.apply(file, text)
    if after == text:
        raise ValueError(f"{rule.name} leaves {file} as it is")
    return Doctored(rule, file, after)


# --- rules for tables ------------------------------------------------------------------------------------------------


def _speculative(sheet: Sheet, columns: Columns) -> Iterator[int]:
    """Rows that drafted something."""
    for row in range(len(sheet.rows)):
        signs = [columns.accepted, columns.acceptance, columns.speedup, columns.tau]
        if any(sign and (sheet.get(row, sign) or 0) > 0 for sign in signs):
            if columns.drafted and not sheet.get(row, columns.drafted):
                continue
            yield row


def _best(sheet: Sheet, columns: Columns) -> int:
    """The speculative row with the most speed, whose speed would be improved first."""
    key = columns.speedup or columns.rate
    return max(_speculative(sheet, columns), key=lambda row: sheet.get(row, key) or 0)


def _on_best(change: Callable[[Sheet, Columns, int], None]) -> Callable[[str, str], str]:
    def apply(file: str, text: str) -> str:
        sheet, columns = Sheet.parse(text), COLUMNS[file]
        change(sheet, columns, _best(sheet, columns))
        return sheet.text()

    return apply


def _scale(sheet: Sheet, row: int, heading: str, factor: float) -> None:
    value = sheet.get(row, heading) if heading else None
    if value is not None:
        sheet.put(row, heading, value * factor)


_GAIN_BESIDE = re.compile(r"\(\+(\d+)%\)")


def _gained(factor: float, found: re.Match[str]) -> str:
    return f"(+{100 * ((1 + int(found[1]) / 100) * factor - 1):.0f}%)"


def _faster(factor: float) -> Callable[[Sheet, Columns, int], None]:
    """Speedup and rate together, and the time where it is there: nothing contradicts but acceptance."""

    def change(sheet: Sheet, columns: Columns, row: int) -> None:
        _scale(sheet, row, columns.speedup, factor)
        _scale(sheet, row, columns.rate, factor)
        _scale(sheet, row, columns.ms, 1 / factor)
        sheet.rows[row] = [_GAIN_BESIDE.sub(partial(_gained, factor), cell) for cell in sheet.rows[row]]

    return change


def _accepted_above_drafted(sheet: Sheet, columns: Columns, row: int) -> None:
    sheet.put(row, columns.accepted, (sheet.get(row, columns.drafted) or 0) + 3)


def _acceptance_halved(sheet: Sheet, columns: Columns, row: int) -> None:
    for heading in (columns.acceptance, columns.accepted):
        _scale(sheet, row, heading, 0.5)
    if columns.tau:
        sheet.put(row, columns.tau, 1 + ((sheet.get(row, columns.tau) or 1) - 1) / 2)


def _rate_alone(sheet: Sheet, columns: Columns, row: int) -> None:
    _scale(sheet, row, columns.rate, 1.4)


def _speedup_alone(sheet: Sheet, columns: Columns, row: int) -> None:
    _scale(sheet, row, columns.speedup, 1.6)


def _acceptance_108(sheet: Sheet, columns: Columns, row: int) -> None:
    share = sheet.get(row, columns.acceptance) or 0
    sheet.put(row, columns.acceptance, 108.0 if share > 1 else 1.08)


def _percent_twice(sheet: Sheet, columns: Columns, row: int) -> None:
    _scale(sheet, row, columns.acceptance, 0.01)


def _one_token_less(sheet: Sheet, columns: Columns, row: int) -> None:
    sheet.put(row, columns.forwards, (sheet.get(row, columns.forwards) or 0) - 1)


def _gamma_below_tau(sheet: Sheet, columns: Columns, row: int) -> None:
    tau = sheet.get(row, columns.tau) if columns.tau else None
    speedup = sheet.get(row, columns.speedup) if columns.speedup else None
    if speedup is None and columns.baseline:
        speedup = (sheet.get(row, columns.rate) or 0) / (sheet.get(row, columns.baseline) or 1)
    sheet.put(row, columns.gamma, max(1, int((tau or speedup or 2) - 1.01)))


def _free_draft(sheet: Sheet, columns: Columns, row: int) -> None:
    """The speedup that drafts would give if they cost nothing, beside the rate of the draft that they cost."""
    gamma, share = sheet.get(row, columns.gamma) or 1, (sheet.get(row, columns.acceptance) or 0) / 100
    tau = 1 + 0.98 * share * gamma
    sheet.put(row, columns.speedup, tau)
    sheet.put(row, columns.rate, tau * (sheet.get(row, columns.baseline) or 1))


def _tau_inflated(sheet: Sheet, columns: Columns, row: int) -> None:
    _scale(sheet, row, columns.tau, 1.6)


def _drafts_beyond_steps(sheet: Sheet, columns: Columns, row: int) -> None:
    steps, gamma = sheet.get(row, columns.steps) or 0, sheet.get(row, columns.gamma) or 6
    sheet.put(row, columns.drafted, steps * gamma + 5)


def _wall_below_decode(sheet: Sheet, columns: Columns, row: int) -> None:
    sheet.put(row, columns.wall, 0.6 * (sheet.get(row, columns.ms) or 0))


def _prompt_counted(sheet: Sheet, columns: Columns, row: int) -> None:
    tokens = (sheet.get(row, "prompt_n") or 0) + (sheet.get(row, columns.count) or 0)
    time = (sheet.get(row, "prompt_ms") or 0) + (sheet.get(row, columns.ms) or 0)
    sheet.put(row, columns.rate, 1e3 * tokens / time)


def _best_repeat(file: str, text: str) -> str:
    """Of the speculative repeats only the fastest is shown."""
    sheet, columns = Sheet.parse(text), COLUMNS[file]
    rows = [row for row in range(len(sheet.rows)) if sheet.rows[row][0] == "draft"]
    best = max(rows, key=lambda row: sheet.get(row, columns.rate) or 0)
    sheet.rows = [cells for row, cells in enumerate(sheet.rows) if row not in rows or row == best]
    return sheet.text()


def _sd_zero(file: str, text: str) -> str:
    sheet, columns = Sheet.parse(text), COLUMNS[file]
    for row in range(len(sheet.rows)):
        sheet.put(row, columns.deviation, 0.0)
    return sheet.text()


def _fives(file: str, text: str) -> str:
    """Every rate a multiple of five, as rates that were made up often are."""
    sheet, columns = Sheet.parse(text), COLUMNS[file]
    for row in range(len(sheet.rows)):
        for heading in (columns.rate, columns.baseline):
            value = sheet.get(row, heading) if heading else None
            if value is not None:
                sheet.put(row, heading, max(5.0, 5 * round(value / 5)))
    if columns.speedup and columns.baseline:
        for row in _speculative(sheet, columns):
            sheet.put(
                row, columns.speedup, (sheet.get(row, columns.rate) or 0) / (sheet.get(row, columns.baseline) or 1)
            )
    return sheet.text()


def _copied_times(file: str, text: str) -> str:
    """One request's times in every other request of the same arm and prompt."""
    sheet, columns = Sheet.parse(text), COLUMNS[file]
    first: dict[tuple[str, str], int] = {}
    for row, cells in enumerate(sheet.rows):
        key = (cells[sheet.headings.index("arm_id")], cells[sheet.headings.index("prompt_id")])
        source = first.setdefault(key, row)
        for heading in (columns.rate, columns.ms, columns.wall, "prompt_ms", "ttft_ms"):
            at = sheet.headings.index(heading)
            cells[at] = sheet.rows[source][at]
    return sheet.text()


def _copied_rates(file: str, text: str) -> str:
    """The first repeat's rate in all repeats of its arm."""
    sheet, columns = Sheet.parse(text), COLUMNS[file]
    first: dict[str, str] = {}
    at = sheet.headings.index(columns.rate)
    for cells in sheet.rows:
        cells[at] = first.setdefault(cells[0], cells[at])
    return sheet.text()


def _other_machine(file: str, text: str) -> str:
    """The fastest machine's speculative row is compared with the slowest machine's plain row."""
    del file
    sheet = Sheet.parse(text)
    at = sheet.headings.index("compared_with")
    sheet.rows[1][at] = sheet.rows[-1][at]
    return sheet.text()


def _unsaid_machine(file: str, text: str) -> str:
    """Baselines of a slower machine, and nothing says so."""
    sheet, columns = Sheet.parse(text), COLUMNS[file]
    for row in range(len(sheet.rows)):
        _scale(sheet, row, columns.baseline, 0.8)
        _scale(sheet, row, columns.speedup, 1 / 0.8)
    return sheet.text()


def _change_of_sign(file: str, text: str) -> str:
    return (
        re.sub(r"-(\d+\.\d)%", r"+\1%", text)
        if file.endswith("csv")
        else re.sub(r"[-−](\d+\.\d%)", r"+\1", text, count=1)
    )


# --- rules for logs and results --------------------------------------------------------------------------------------


def _substituted(pattern: str, change: Callable[[re.Match[str]], str], count: int = 1) -> Callable[[str, str], str]:
    def apply(file: str, text: str) -> str:
        del file
        return re.sub(pattern, change, text, count=count)

    return apply


def _number(factor: float, group: int = 2, digits: int = 2) -> Callable[[re.Match[str]], str]:
    """The match with one of its groups multiplied; groups cover the whole match."""

    def change(found: re.Match[str]) -> str:
        parts = list(found.groups())
        width = len(parts[group - 1])
        parts[group - 1] = f"{float(parts[group - 1]) * factor:.{digits}f}".rjust(width)
        return "".join(parts)

    return change


def _failed_verifications(file: str, text: str) -> str:
    """Forty verifications refused, as llama.cpp reports it; their tokens are missing where the target counts them."""
    del file
    failed = "decode: failed to initialize batch\nllama_decode: failed to decode, ret = -1\n"
    at = re.search(r"^.*(?:print_timing.*prompt eval time|decoded +\d+ tokens).*$", text, re.MULTILINE)
    assert at is not None
    text = text[: at.start()] + failed * 40 + text[at.start() :]
    gamma = re.search(r"n_draft   = (\d+)", text)
    lost = 40 * (int(gamma[1]) + 1) if gamma else 0
    counted = r"(target:[\s\S]{0,200}?prompt eval time = +[\d.]+ ms / +)(\d+)( tokens)"
    return re.sub(counted, lambda m: f"{m[1]}{int(m[2]) - lost}{m[3]}", text, count=1)


def _synthetic(file: str, text: str) -> str:
    del file
    return "common_speculative_init: synthetic speculative acceptance enabled, rates = 0.9\n" + text


def _synthetic_column(file: str, text: str) -> str:
    sheet = Sheet.parse(text)
    del file
    sheet.headings.append("synthetic_acceptance")
    for row in sheet.rows:
        row.append("true" if sheet.form.startswith("json") else "yes")
    sheet.rule += "---|" if sheet.rule else ""
    return sheet.text()


def _accept_above_draft_log(file: str, text: str) -> str:
    del file
    drafted = re.search(r"n_drafted = (\d+)", text)
    if drafted is not None:
        return re.sub(r"n_accept  = \d+", f"n_accept  = {int(drafted[1]) + 3}", text, count=1)
    return re.sub(
        r"\( *\d+ accepted / +(\d+) generated", lambda m: f"({int(m[1]) + 3} accepted / {m[1]} generated", text, count=1
    )


_TABLES = ("own/table-drafts.md", "own/table-chinese.md", "own/table-german.csv", "simulated/draft-rates.md")
_COUNTED = ("own/table-per-prompt.md", "own/table-ngram.csv", "own/arms.json", "simulated/adaptive-lengths.csv")
_REQUESTS = tuple(name for name, columns in COLUMNS.items() if columns is REQUESTS)
_SPEC_LOGS = ("published/llamacpp-5877.log", "published/llamacpp-10455.log", "simulated/llama-speculative.log")
_SERVER_LOGS = ("own/server-034-draft-g16.log", "own/server-075-draft-g4.log", "simulated/llama-server.log",
                "published/llamacpp-24536-server.log")  # fmt: skip

RULES = (
    Rule("speedup x1.5", "speedup and rate of the best row times 1.5, same acceptance", "implausible",
         _on_best(_faster(1.5)), (*_TABLES, "published/mtp-vllm-6000.md", "published/spec-bench-3090.md")),
    Rule("speedup x3", "the same, times 3", "implausible", _on_best(_faster(3.0)),
         (*_TABLES, "own/table-per-prompt.md", "own/arms.json", "published/mtp-vllm-6000.md",
          "published/mtp-community.md", "published/spec-bench-3090.md", "published/spec-bench-a100-33b.md",
          "published/dflash-mlx-2-lengths.md", "published/rapid-mlx-473.md", "simulated/merged-cells.md",
          "simulated/trees.md", "simulated/spec-bench.md")),
    Rule("accepted above drafted", "three more accepted than drafted", "impossible", _on_best(_accepted_above_drafted),
         (*_COUNTED, "published/vllm-24243.md", _REQUESTS[0], "own/requests-042.jsonl")),
    Rule("accepted above drafted in a log", "three more accepted than drafted", "impossible", _accept_above_draft_log,
         (*_SPEC_LOGS, *_SERVER_LOGS)),
    Rule("acceptance halved", "half the acceptance, same speed", "implausible",
         _on_best(_acceptance_halved),
         (*_TABLES, "own/arms.json", "own/table-per-prompt.md", "published/mtp-vllm-6000.md",
          "published/vllm-24243.md", _REQUESTS[1])),
    Rule("rate alone", "a rate by 1.4, its count and time kept", "implausible", _on_best(_rate_alone),
         (*_REQUESTS[:3], "own/arms.json", "own/requests-042.jsonl")),
    Rule("rate alone in a log", "a printed rate by 1.4, its count and time kept", "impossible",
         _substituted(r"(decoded +\d+ tokens in +[\d.]+ seconds, speed: +|ms per token, +)([\d.]+)( t/s| tokens per)",
                      _number(1.4, digits=3), count=0),
         (*_SPEC_LOGS, *_SERVER_LOGS)),
    Rule("speedup alone", "a printed speedup by 1.6 beside rates that give another", "impossible",
         _on_best(_speedup_alone),
         (*_TABLES, "own/table-per-prompt.md", "own/arms.json", "published/rapid-mlx-473.md",
          "published/dflash-mlx-readme.md")),
    Rule("sign of a change", "a loss printed as a gain beside rates that show the loss", "impossible", _change_of_sign,
         ("own/table-ngram.csv", "published/llamacpp-10664.md")),
    Rule("acceptance 108 %", "more accepted than drafted", "impossible", _on_best(_acceptance_108),
         (*_TABLES, "published/mtp-vllm-6000.md", "published/rapid-mlx-473.md")),
    Rule("percent taken twice", "an acceptance of 62 % printed as 0.62 %", "implausible", _on_best(_percent_twice),
         ("own/table-drafts.md", "own/table-chinese.md", "simulated/draft-rates.md", "simulated/merged-cells.md")),
    Rule("one forward less", "a token without a forward", "impossible", _on_best(_one_token_less),
         (*_REQUESTS, "own/arms.json")),
    Rule("gamma below tau", "a draft length too short for the speedup", "implausible",
         _on_best(_gamma_below_tau),
         ("own/table-drafts.md", "own/table-german.csv", "simulated/draft-rates.md", "published/mtp-community.md",
          "own/arms.json")),
    Rule("draft for nothing", "the speedup of drafts that cost nothing, beside the draft's rate", "implausible",
         _on_best(_free_draft), ("simulated/draft-rates.md",)),
    Rule("tokens per step x1.6", "tokens per step that contradict the counts", "note",
         _on_best(_tau_inflated), ("published/vllm-24243.md", *_REQUESTS[:2]), "equation.tau-of-counts"),
    Rule("drafts beyond steps", "more drafted than the draft length times the steps", "impossible",
         _on_best(_drafts_beyond_steps), ("simulated/adaptive-lengths.csv",)),
    Rule("wall below decoding", "the whole run takes less than its decoding", "impossible",
         _on_best(_wall_below_decode), (*_REQUESTS[:2], "own/requests-042.jsonl")),
    Rule("failed verifications", "forwards refused while the run went on", "impossible", _failed_verifications,
         ("own/server-034-draft-g16.log", "own/server-075-draft-g4.log", "simulated/llama-server.log",
          "published/llamacpp-5877.log", "simulated/llama-speculative.log")),
    Rule("synthetic acceptance", "acceptance simulated at random, as the log says", "impossible", _synthetic,
         ("own/server-034-draft-g16.log", "simulated/llama-server.log", "simulated/llama-speculative.log")),
    Rule("synthetic column", "acceptance simulated at random, as a column says", "impossible", _synthetic_column,
         ("own/table-drafts.md", "own/arms.json", "own/table-german.csv")),
    Rule("AIPerf: accepted above drafted", "three more accepted than drafted", "impossible",
         _substituted(r'("num_accepted_draft_tokens": )(\d+)(, "num_draft_tokens": )(\d+)',
                      lambda m: f"{m[1]}{int(m[4]) + 3}{m[3]}{m[4]}"),
         ("simulated/aiperf-records.jsonl", "simulated/vllm-responses.jsonl")),
    Rule("AIPerf: longer steps", "a mean length that its own counts do not give", "impossible",
         _substituted(r'("mean_acceptance_length": )([\d.]+)()', _number(1.6, digits=6)),
         ("simulated/aiperf-records.jsonl", "simulated/vllm-responses.jsonl",
          "published/vllm-acceptance-metrics.json")),
    Rule("vLLM: longer steps", "a mean length that its own counts do not give", "impossible",
         _substituted(r'("spec_decode_acceptance_length": )([\d.]+)()', _number(1.6, digits=6)),
         ("simulated/vllm-serve-eagle3.json",)),
    Rule("vLLM: rate alone", "a throughput by 1.4, its count and time kept", "impossible",
         _substituted(r'("output_throughput": )([\d.]+)()', _number(1.4, digits=6)),
         ("simulated/vllm-serve-eagle3.json", "simulated/vllm-serve-plain.json", "simulated/sglang-serving.jsonl")),
    Rule("bandwidth exceeded", "plain decoding three times as fast as the memory delivers", "implausible",
         _substituted(r"(\| tg128 \| )([\d.]+)( ±)", _number(3.0), count=0), ("simulated/llama-bench.md",)),
    Rule("tree: length beyond its depth", "more tokens per step than the tree is deep", "impossible",
         _substituted(r'("accept_length": )([\d.]+)()', _number(2.5, digits=4), count=0),
         ("simulated/sglang-serving.jsonl",)),
    Rule("copied to the microsecond", "one request's times in all its repeats", "note", _copied_times, _REQUESTS[:4],
         "audit.copies"),
    Rule("copied rates", "one repeat's rate in all repeats", "note", _copied_rates, ("simulated/repeats.csv",),
         "audit.copies"),
    Rule("deviation of nothing", "a standard deviation of 0 over several runs", "note", _sd_zero,
         ("simulated/deviations.csv",), "audit.still|audit.copies"),
    Rule("longer drafts, fewer tokens", "tokens per step of two draft lengths exchanged", "note",
         _substituted(r"( 4: )([\d.]+)(\s+5: )([\d.]+)", lambda m: f"{m[1]}{m[4]}{m[3]}{m[2]}", count=0),
         ("published/golden-al.yaml",), r"audit.curve_(falls|bends).*\b(4|5), "),
    Rule("prompt counted as output", "a rate of prompt and output together", "note", _on_best(_prompt_counted),
         _REQUESTS[:2], "prompt_n"),
    Rule("best repeat", "the fastest of five repeats, all repeats of the baseline", "note", _best_repeat,
         ("simulated/repeats.csv",), "best|fastest|single"),
    Rule("multiples of five", "every rate a multiple of five", "note", _fives,
         ("own/table-drafts.md", "own/table-per-prompt.md", "published/mtp-community.md"), "audit.round_digits"),
    Rule("baseline of another machine", "a baseline that says it is from another machine", "note", _other_machine,
         ("simulated/machines.csv",), "audit.baseline_elsewhere"),
    Rule("slower machine, unsaid", "baselines of a slower machine, unmarked", "note", _unsaid_machine,
         ("own/table-drafts.md", "published/mtp-community.md"), "audit.speedup_elsewhere"),
)  # fmt: skip
"""All of them; what each must bring about is the weakest word that counts as found."""


def all_doctored(true: dict[str, str]) -> Iterator[Doctored]:
    """Every rule on every file it is for; `true` holds the texts of true files by name."""
    for rule in RULES:
        for file in rule.files:
            yield doctored(rule, file, true[file])

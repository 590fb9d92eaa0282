"""Faults planted into the source: each must make a test fail.

    uv run python benchmarks/planted_faults.py [--only WORD ...] [--results FILE] [--jobs N] [--wide] [--list]

A fault is what a careless change could leave behind: a comparison turned round, a quantile of the wrong level, a lock
that is not taken, a check that finds nothing. It is written as a function, a piece of its text and what stands there
instead, and names the tests that are to see it. Functions and tests are found by their names wherever they lie, and
line breaks do not matter, so faults outlive files that are moved or merged.

Faults are planted into a copy of the tree, one after the other, and taken out again; before that, the tests named must
pass there. `caught`: a test fails. `missed`: none does. `gone`: the function, its text or all of the tests are not
there any more; then the fault is to be written anew. With `--wide`, what is missed or has no tests is tried on all
tests that mention the function's module too, which takes minutes for each. `--results` keeps what came out, and goes on
from there: what was tried with the same source and the same tests is not tried again.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 300
"""For the tests of one fault; more is a fault that makes something wait for ever, and so caught."""
COPIED = ("src", "packages", "tests", "docs", "benchmarks", "scripts", "pyproject.toml", "uv.lock", "README.md",
          "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "conftest.py")  # fmt: skip
"""What tests may read of the tree."""


@dataclass(frozen=True)
class Fault:
    """One fault."""

    name: str
    """The part of specmeter that it is in, and what is wrong with it."""
    where: str
    """Function, `Class.method` or class; where several have that name, the one that has the text."""
    old: str
    new: str
    tests: tuple[str, ...]
    """Names of test functions that are to see it."""


FAULTS = (
    Fault(
        "numbers: one-sided quantile",
        "t_critical",
        "(1 + level) / 2",
        "level",
        ("test_critical_values_are_those_of_the_tables",),
    ),
    Fault(
        "numbers: variance over n",
        "t_interval",
        "ddof=1",
        "ddof=0",
        ("test_a_mean_of_values_that_are_all_alike_has_no_interval",),
    ),
    Fault(
        "numbers: interval of one unit fewer",
        "_over_units",
        "float(logs.std(ddof=1)) / math.sqrt(n)",
        "float(logs.std(ddof=1)) / math.sqrt(n - 1)",
        ("test_speedup_agrees_with_scipy", "test_speedup_is_the_paired_t_test_on_logarithms"),
    ),
    Fault(
        "numbers: best of several as if alone",
        "simultaneous",
        "(1 - estimate.level) / among",
        "(1 - estimate.level)",
        ("test_simultaneous_intervals_share_the_error", "test_what_the_choice_costs"),
    ),
    Fault(
        "numbers: arm and baseline exchanged",
        "_log_ratios",
        "rates[:, 0] - rates[:, 1]",
        "rates[:, 1] - rates[:, 0]",
        ("test_speedup_agrees_with_scipy", "test_speedup_is_the_paired_t_test_on_logarithms"),
    ),
    Fault(
        "numbers: equivalence at the level of a difference",
        "compare",
        "2 * estimate.level - 1",
        "estimate.level",
        ("test_equivalence_is_two_one_sided_tests", "test_equivalence_of_the_best_of_several_arms_keeps_its_level"),
    ),
    Fault(
        "numbers: the smaller of two errors",
        "_Fit.__init__",
        "np.maximum(self.own, self.pooled)",
        "np.minimum(self.own, self.pooled)",
        (
            "test_of_arms_that_are_alike_the_simplest_is_left_and_plain_decoding_is_not_called_slower",
            "test_an_arm_that_is_behind_is_out_once_it_cannot_be_ahead_by_more_than_the_margin",
        ),
    ),
    Fault(
        "numbers: quantile of too few",
        "quantile_over",
        "sum(map(len, used)) < least_values(share)",
        "sum(map(len, used)) + 1 < least_values(share)",
        ("test_a_quantile_is_between_its_sections",),
    ),
    Fault(
        "numbers: covariance lost",
        "_within",
        "first - 2 * across + second",
        "first + second",
        (
            "test_the_interval_holds_what_a_test_at_the_crossing_does_not_exclude",
            "test_speculation_pays_for_as_long_as_any_way_does",
        ),
    ),
    Fault(
        "numbers: p-values not corrected for their number", "holm", "p * (len(p_values) - rank)", "p", ("test_holm",)
    ),
    Fault(
        "numbers: first token in the rate",
        "decode_rate",
        "timings.predicted_n - 1",
        "timings.predicted_n",
        ("test_first_token_is_free", "test_no_decode_rate_from_nothing"),
    ),
    Fault(
        "numbers: a step emits only what it accepted",
        "target_forwards",
        "step.accepted + 1",
        "step.accepted",
        ("test_plain_decoding_has_tau_one", "test_tau_from_steps_counts_plain_decodes_that_left_no_line"),
    ),
    Fault(
        "validity: a bound that finds nothing",
        "speedup_above_tau",
        "elif excess.above",
        "elif False",
        ("test_forwards_cheaper_than_was_ever_seen_are_doubtful",),
    ),
    Fault(
        "validity: conservation off by one",
        "conservation",
        "gap[0] > 0",
        "gap[0] > 1",
        ("test_tokens_that_no_forward_stands_behind", "test_a_long_prompt_takes_one_forward_per_batch"),
    ),
    Fault(
        "validity: first token in the law",
        "gap",
        "request.row.predicted_n - 1 -",
        "request.row.predicted_n -",
        ("test_a_clean_run_is_left_alone", "test_a_clean_run_is_valid"),
    ),
    Fault(
        "validity: drafts cut off at the limit",
        "idle_forwards",
        'request.row.stop_reason != "limit"',
        'request.row.stop_reason == "limit"',
        ("test_forwards_that_emit_nothing", "test_a_few_tokens_too_many_that_count_as_accepted"),
    ),
    Fault(
        "validity: baseline of another block",
        "beside_baseline",
        "plain.get((row.invocation, row.block, row.prompt_id))",
        "plain.get((row.invocation, 0, row.prompt_id))",
        ("test_a_point_above_tau_that_noise_may_explain",),
    ),
    Fault(
        "validity: clocks differ one way only",
        "_ClockGap.off",
        "abs(excess)",
        "excess",
        ("test_arrivals_that_span_another_time",),
    ),
    Fault(
        "validity: predictions made afterwards",
        "_late_predictions",
        "at > first",
        "at < first",
        ("test_a_prediction_that_was_made_afterwards",),
    ),
    Fault(
        "validity: token ids fewer than tokens",
        "_problem",
        "request.tokens != row.predicted_n",
        "request.tokens > row.predicted_n",
        ("test_a_request_that_is_changed_in_one_place",),
    ),
    Fault(
        "validity: prompt's text not held against its hash",
        "records_differ",
        "prompt.digest() != prompt.sha256",
        "False",
        ("test_a_prompt_whose_text_is_another",),
    ),
    Fault(
        "validity: two levels without the dip",
        "two_levels",
        "if dip(x) * math.sqrt(n) > DIP_LIMIT else None",
        "",
        ("test_one_level_is_seldom_taken_for_two",),
    ),
    Fault(
        "validity: drift from too little",
        "drift",
        "freedom < _FREEDOM",
        "freedom < 1",
        ("test_drift_cannot_be_told_from_arms_that_never_take_turns",),
    ),
    Fault(
        "validity: unbalanced by one block",
        "_leaning",
        "abs(sum(offsets)) < _LEANS",
        "abs(sum(offsets)) <= 2 * _LEANS",
        ("test_the_same_order_in_every_block",),
    ),
    Fault(
        "analysis: baseline of another block",
        "meet",
        "_grid(table, base, cells, names)",
        "tuple(np.roll(it, 1, axis=0) for it in _grid(table, base, cells, names))",
        ("test_speedup_is_that_of_stats_over_blocks", "test_speedups_by_prompt_are_those_of_stats"),
    ),
    Fault(
        "analysis: gaps filled the wrong way",
        "_complete",
        "plain_ms / np.exp(speedups)",
        "plain_ms * np.exp(speedups)",
        ("test_an_arm_that_fails_on_its_slow_prompt_is_no_faster_for_it",),
    ),
    Fault(
        "analysis: three blocks for ten arms",
        "least_units",
        "among <= 2",
        "among <= 10",
        ("test_more_arms_need_more_blocks", "test_speculate_is_seldom_said_of_requests_at_two_speeds"),
    ),
    Fault(
        "analysis: token at the end of a window",
        "inside",
        "times.arrivals <= window.end",
        "times.arrivals < window.end",
        ("test_a_steady_stream_is_counted_exactly", "test_one_rhythm_is_exact"),
    ),
    Fault(
        "analysis: window begins with the first client",
        "steady_window",
        "max(first, float(begun.max()))",
        "min(first, float(begun.max()))",
        ("test_one_rhythm_is_exact", "test_ramp_and_drain_do_not_move_it"),
    ),
    Fault(
        "analysis: open end at the other load",
        "_crossover",
        "crossed.high == counts[-1]",
        "crossed.high == counts[0]",
        ("test_a_loss_that_is_not_shown_leaves_the_interval_open",),
    ),
    Fault(
        "analysis: first tokens counted as decoding",
        "cell_figures",
        "(arrived - firsts).sum()",
        "arrived.sum()",
        ("test_one_rhythm_is_exact",),
    ),
    Fault(
        "analysis: cells that do not count",
        "counting",
        "if it.figures.counts",
        "if True",
        ("test_a_cell_without_a_window_does_not_count_and_is_told",),
    ),
    Fault(
        "analysis: replay of one token fewer",
        "tally_of",
        "confirmed + 2",
        "confirmed + 1",
        ("test_replays_are_no_rounds",),
    ),
    Fault(
        "analysis: forward over the drafts alone",
        "split",
        "{n + 1: count for n, count in unit.lengths.items()}",
        "{n: count for n, count in unit.lengths.items()}",
        (
            "test_a_cost_curve_prices_every_forward_in_units_of_the_baseline",
            "test_statistics_of_the_server_come_before_the_curve_of_the_draft",
        ),
    ),
    Fault(
        "analysis: what verification takes at most",
        "split",
        "min(left, at_most)",
        "left",
        (
            "test_what_verification_cannot_cost_is_left_unexplained",
            "test_by_difference_a_verification_takes_no_longer_than_the_runs_own_steps",
        ),
    ),
    Fault(
        "analysis: unknown tokens differ",
        "first_divergence",
        "a != b and UNKNOWN_TOKEN not in (a, b)",
        "a != b",
        ("test_the_first_difference", "test_unknown_tokens_cannot_be_asked_about"),
    ),
    Fault(
        "store: resume forgets the block",
        "missing",
        "AND r.block = p.block",
        "",
        ("test_a_retry_supersedes_a_failure_and_keeps_it",),
    ),
    Fault(
        "store: failed requests count as done",
        "done_keys",
        "AND status = 'ok'",
        "",
        ("test_a_retry_supersedes_a_failure_and_keeps_it",),
    ),
    Fault(
        "store: every attempt is the first",
        "add_request",
        "earlier[1] + 1 if earlier else 1",
        "1",
        ("test_a_retry_supersedes_a_failure_and_keeps_it",),
    ),
    Fault(
        "store: measured twice", "add_request", 'if earlier[2] == "ok"', "if False", ("test_nothing_is_stored_twice",)
    ),
    Fault(
        "store: half a transaction stays",
        "_transaction",
        'self._db.execute("ROLLBACK")',
        'self._db.execute("COMMIT")',
        ("test_parts_of_the_run_can_be_set_again", "test_an_interrupt_inside_a_transaction_stores_nothing"),
    ),
    Fault(
        "store: lock not taken",
        "RunLock.__init__",
        "_lock_patiently(self._file)",
        "pass",
        ("test_readers_look_on_while_a_run_is_written", "test_create_needs_an_empty_folder"),
    ),
    Fault(
        "store: a writer goes unnoticed",
        "is_written",
        "return True",
        "return False",
        ("test_readers_look_on_while_a_run_is_written",),
    ),
    Fault(
        "store: a failed start keeps the lock",
        "RunStore.open",
        "lock.release(clean=False)",
        "pass",
        ("test_a_file_that_is_not_sqlite", "test_damage_that_a_kill_left_is_found_before_anything_is_added"),
    ),
    Fault(
        "store: a kill looks like an end",
        "RunStore.open",
        "lock.release(clean=False)",
        "lock.release()",
        ("test_damage_that_a_kill_left_is_found_before_anything_is_added",),
    ),
    Fault(
        "store: no end is partial",
        "state",
        '"failed" if ended else "partial"',
        '"partial"',
        ("test_state_is_counted_and_stored",),
    ),
    Fault(
        "store: cell superseded twice",
        "add_load",
        "UPDATE request SET superseded = 1",
        "UPDATE request SET superseded = 0",
        (
            "test_an_engine_that_dies_breaks_the_cell_off_and_loses_nothing",
            "test_ctrl_c_in_a_cell_keeps_what_was_in_flight_as_failed",
        ),
    ),
    Fault(
        "store: predicted afterwards",
        "add_prediction",
        "measured is not None and",
        "measured is None and",
        (
            "test_predictions_are_written_once_and_before_the_measurement",
            "test_a_changed_prediction_changes_the_hash_of_the_run_and_a_run_without_any_has_none",
        ),
    ),
    Fault(
        "store: unfinished files stay",
        "_replacing",
        "os.unlink(temporary, dir_fd=at)",
        "pass",
        ("test_a_file_is_replaced_at_the_end_or_not_at_all",),
    ),
    Fault(
        "measure: resume measures everything",
        "measure",
        "prompts[index].id) not in done",
        "prompts[index].id) not in set()",
        (
            "test_ctrl_c_keeps_what_was_measured_and_the_rest_is_resumed",
            "test_failed_requests_are_tried_again_on_resume",
        ),
    ),
    Fault(
        "measure: one start more",
        "measure",
        "failures == START_FAILURES",
        "failures > START_FAILURES",
        ("test_an_engine_that_never_starts_ends_the_run",),
    ),
    Fault(
        "measure: sessions without an end",
        "_session",
        'self.store.update_session(record.model_copy(update={"ended_at": self.engine.clock()}))',
        "pass",
        (
            "test_a_run_measures_every_planned_request_once",
            "test_ctrl_c_keeps_what_was_measured_and_the_rest_is_resumed",
        ),
    ),
    Fault(
        "measure: failed request not kept",
        "_measure",
        "self._keep(request_of(cell, session_id, item, prompt, started_at, error), _drain(samples))",
        "pass",
        ("test_an_engine_that_dies_costs_one_request", "test_failed_requests_are_tried_again_on_resume"),
    ),
    Fault(
        "measure: broken off and complete",
        "serve",
        "complete = death is None",
        "complete = True",
        ("test_an_engine_that_dies_breaks_the_cell_off_and_loses_nothing",),
    ),
    Fault(
        "measure: half a cell is lost",
        "serve",
        "keep(kept)",
        "keep(kept) if complete else None",
        (
            "test_an_engine_that_dies_breaks_the_cell_off_and_loses_nothing",
            "test_ctrl_c_in_a_cell_keeps_what_was_in_flight_as_failed",
        ),
    ),
    Fault(
        "measure: requests in flight are forgotten",
        "give_up",
        "yield Told(*flying, min(flying.due_at, now), error)",
        "continue",
        ("test_clients_ask_again_when_they_were_answered", "test_arrivals_are_drawn_per_block_and_shared_by_its_arms"),
    ),
    Fault(
        "measure: arms meet prompts in another order",
        "item_order",
        "items:{seed}:{invocation}:{block}",
        "items:{seed}:{invocation}",
        ("test_all_arms_of_a_block_meet_the_prompts_in_the_same_order",),
    ),
    Fault(
        "audit: rounding forgotten",
        "printed",
        "value - half, value + half",
        "value, value",
        ("test_the_famous_row_is_implausible_even_with_rounding_in_its_favour", "test_rounding_may_save_a_row"),
    ),
    Fault(
        "audit: the higher of two speedups",
        "speedup_range",
        "min(said.low, rates.low), min(said.value, rates.value)",
        "max(said.low, rates.low), max(said.value, rates.value)",
        ("test_of_two_speedups_the_lower_one_is_judged",),
    ),
    Fault(
        "audit: rounding against the claim",
        "_compare",
        "speedup.low > limit.value * (1 + noise)",
        "speedup.high > limit.value * (1 + noise)",
        ("test_of_two_speedups_the_lower_one_is_judged", "test_counts_bound_more_sharply_than_a_rate_of_acceptance"),
    ),
    Fault(
        "audit: noise forgotten",
        "_compare",
        "limit.value * (1 + noise)",
        "limit.value",
        ("test_an_excess_that_noise_explains_is_not_called_impossible",),
    ),
    Fault(
        "audit: assumptions lost",
        "_compare",
        "tuple(needs(claim, speedup.low, limit))",
        "()",
        ("test_the_famous_row_is_implausible_even_with_rounding_in_its_favour", "test_rounding_may_save_a_row"),
    ),
    Fault(
        "audit: shortest of the times",
        "check_drafting_time",
        "max(times, key",
        "min(times, key",
        ("test_drafting_alone_takes_longer_than_the_run",),
    ),
    Fault(
        "audit: everything accepted is too much",
        "check_conservation",
        "accepted > drafted",
        "accepted >= drafted",
        ("test_rows_that_drafted_nothing_compare_noise", "test_a_counter_that_can_only_say_all"),
    ),
    Fault("audit: no cut draft at the end", "_law", "-gap > cut", "-gap > 0", ("test_the_conservation_law",)),
    Fault(
        "audit: implausible is impossible",
        "impossible",
        "not self.rests_on",
        "True",
        ("test_the_famous_row_is_implausible_even_with_rounding_in_its_favour", "test_rounding_may_save_a_row"),
    ),
    Fault("audit: dice not seen", "_outcomes", "if claim.synthetic", "if False", ("test_dice_are_no_speedup",)),
    Fault(
        "audit: half a unit too narrow",
        "parse_number",
        "0.5 * 10.0 ** (exponent - decimals)",
        "0.05 * 10.0 ** (exponent - decimals)",
        ("test_numbers",),
    ),
    Fault(
        "audit: percent taken for a share",
        "infer_percent",
        "not (fractions and max(above) <= _JUST_ABOVE_ALL)",
        "False",
        ("test_percent_or_fraction",),
    ),
)


# --- where it is -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a fault goes."""

    path: Path
    """Relative to the tree."""
    start: int
    end: int
    """Of the text that is replaced."""


class Tree:
    """The source and the tests of a tree, by name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sources = [path for top in ("src", "packages") for path in sorted((root / top).rglob("*.py"))]
        self.test_files = [path for top in ("tests", "packages") for path in sorted((root / top).rglob("test_*.py"))]

    @cache  # noqa: B019
    def text(self, path: Path) -> str:
        """A file as it is, without faults."""
        return path.read_text(encoding="utf-8")

    def place(self, fault: Fault) -> Place | None:
        """Where the fault goes; None where its function or its text is not there, or is there more than once."""
        last = fault.where.rpartition(".")[2]
        text = _flexible(fault.old)
        found: list[Place] = []
        for path in self.sources:
            source = self.text(path)
            if last not in source:
                continue
            for start, end in _scopes(source, fault.where):
                matches = list(text.finditer(source, start, end))
                found += [Place(path.relative_to(self.root), it.start(), it.end()) for it in matches]
        return found[0] if len(found) == 1 else None

    def tests(self, names: Sequence[str]) -> list[str]:
        """Ids of the tests that have these names, for pytest."""
        found: list[str] = []
        for path in self.test_files:
            text = self.text(path)
            found += [f"{path.relative_to(self.root)}::{name}" for name in names if _defines(text, name)]
        return found

    def widely(self, place: Place) -> list[str]:
        """Test files that mention the module."""
        module = ".".join(place.path.with_suffix("").parts[-2:])
        return [str(path.relative_to(self.root)) for path in self.test_files if module in self.text(path)]


def _defines(text: str, name: str) -> bool:
    return re.search(rf"^def {name}\(", text, re.MULTILINE) is not None


def _flexible(old: str) -> re.Pattern[str]:
    """The text, whatever spaces and line breaks the formatter put into it."""
    pieces = re.findall(r"\w+|[^\w\s]", old)
    pattern = re.escape(pieces[0])
    for before, piece in pairwise(pieces):
        between = r"\s+" if re.match(r"\w", before[-1]) and re.match(r"\w", piece) else r"\s*"
        comma = r"(?:,\s*)?" if piece in ")]}" and before != "," else ""
        pattern += between + comma + re.escape(piece)
    edges = (r"(?<!\w)" if re.match(r"\w", pieces[0]) else "", r"(?!\w)" if re.match(r"\w", pieces[-1]) else "")
    return re.compile(pattern.join(edges))


def _scopes(source: str, where: str) -> Iterator[tuple[int, int]]:
    """Start and end of everything in a file that is called so."""
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    wanted = where.split(".")

    def walk(node: ast.AST, names: list[str]) -> Iterator[tuple[int, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                own = [*names, child.name]
                if own[-len(wanted) :] == wanted:
                    assert child.end_lineno is not None
                    yield lines[child.lineno - 1], lines[child.end_lineno]
                else:
                    yield from walk(child, own)
            else:
                yield from walk(child, names)

    yield from walk(ast.parse(source), [])


# --- trying it -------------------------------------------------------------------------------------------------------


class Bench:
    """A copy of the tree, one fault in it at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(".venv", ".*_cache"))
            elif (ROOT / name).is_file():
                shutil.copy2(ROOT / name, folder / name)
        paths = [str(path) for path in (folder / "src", *folder.glob("packages/*/src")) if path.is_dir()]
        self._env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"}

    def run(self, tests: Sequence[str], *flags: str) -> tuple[str, str]:
        """(`passed`, `failed`, `slow` or `broken`, the last lines that pytest printed)."""
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", "--no-header", *flags]
        try:
            done = subprocess.run(
                [*command, *tests], cwd=self.folder, env=self._env, capture_output=True, text=True, timeout=PATIENCE_S,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "slow", f"not over after {PATIENCE_S} s"
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        return {0: "passed", 1: "failed"}.get(done.returncode, "broken"), said

    def planted(self, place: Place, new: str, tests: Sequence[str]) -> tuple[str, str]:
        """What the tests say of the tree with this text in that place."""
        path = self.folder / place.path
        before, times = path.read_text(encoding="utf-8"), path.stat()
        self._count += 1
        try:
            path.write_text(before[: place.start] + new + before[place.end :], encoding="utf-8")
            # Bytecode goes by a file's size and the second of its change.
            os.utime(path, (times.st_atime, times.st_mtime + 2 * self._count))
            ast.parse(path.read_text(encoding="utf-8"))
            return self.run(tests, "-x")
        finally:
            path.write_text(before, encoding="utf-8")
            os.utime(path, (times.st_atime, times.st_mtime))


def tried(fault: Fault, tree: Tree, bench: Bench, *, wide: bool) -> dict[str, object]:
    """What came of a fault."""
    began = time.monotonic()
    place, tests = tree.place(fault), tree.tests(fault.tests)
    if place is None:
        return {"result": "gone", "why": f"no such text in {fault.where}, or several"}
    result, said = bench.planted(place, fault.new, tests) if tests else ("none", "")
    if result in ("passed", "none") and wide:
        result, said = bench.planted(place, fault.new, tree.widely(place))
    word = {"failed": "caught", "slow": "caught", "passed": "missed", "none": "gone"}.get(result, result)
    by = re.search(r"^FAILED (\S+)|^ERROR (\S+)", said, re.MULTILINE)
    return {
        "result": word,
        "by": (by[1] or by[2]) if by else "",
        "why": "none of its tests is there" if result == "none" else said if word == "broken" else "",
        "file": str(place.path),
        "seconds": round(time.monotonic() - began, 1),
    }


def seen(fault: Fault, tree: Tree) -> str:
    """What a result rests on: another one may come of another source or of other tests."""
    place, tests = tree.place(fault), tree.tests(fault.tests)
    files = {*([] if place is None else [str(place.path)]), *(it.partition("::")[0] for it in tests)}
    texts = [fault.where, fault.old, fault.new, *tests, *(tree.text(tree.root / name) for name in sorted(files))]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def print_results(faults: Sequence[Fault], results: dict[str, dict[str, object]]) -> int:
    """A table of them, and how many were not caught."""
    print("| fault | result | test | s |\n| --- | --- | --- | --- |")
    for fault in faults:
        one = results[fault.name]
        print(f"| {fault.name} | {one['result']} | {one.get('by') or one.get('why')} | {one.get('seconds', '')} |")
    caught = sum(results[fault.name]["result"] == "caught" for fault in faults)
    print(f"\n{len(faults)} planted, {caught} caught, {len(faults) - caught} not")
    return len(faults) - caught


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=(), help="faults that have one of these words in their names")
    parser.add_argument("--results", type=Path, help="keep results in this file, and go on from there")
    parser.add_argument("--jobs", type=int, default=1, help="copies of the tree that are tried at once")
    parser.add_argument("--wide", action="store_true", help="try what is missed on all tests of the module")
    parser.add_argument("--list", action="store_true", help="only say where each fault goes and which tests it has")
    args = parser.parse_args()
    faults = [fault for fault in FAULTS if not args.only or any(word in fault.name for word in args.only)]
    tree = Tree(ROOT)
    if args.list:
        for fault in faults:
            place = tree.place(fault)
            print(f"{fault.name}: {'gone' if place is None else place.path} <- {', '.join(tree.tests(fault.tests))}")
        return
    results: dict[str, dict[str, object]] = {}
    if args.results and args.results.is_file():
        results = json.loads(args.results.read_text(encoding="utf-8"))
    now = {fault.name: seen(fault, tree) for fault in faults}
    left = [fault for fault in faults if results.get(fault.name, {}).get("seen") != now[fault.name]]
    with tempfile.TemporaryDirectory() as scratch:
        benches: SimpleQueue[Bench] = SimpleQueue()
        for number in range(args.jobs if left else 0):
            benches.put(Bench(Path(scratch) / f"{number}"))

        def one(fault: Fault) -> None:
            bench = benches.get()
            try:
                found = tried(fault, tree, bench, wide=args.wide)
            finally:
                benches.put(bench)
            results[fault.name] = {**found, "seen": now[fault.name]}
            if args.results:
                args.results.write_text(json.dumps(results, indent=1), encoding="utf-8")
            print(f"{found['result']}: {fault.name} ({found.get('seconds', 0)} s)", file=sys.stderr, flush=True)

        if left:
            clean = benches.get()
            named = sorted({test for fault in left for test in tree.tests(fault.tests)})
            result, said = clean.run(named)
            if result != "passed":
                sys.exit(f"without any fault the tests do not pass ({result}):\n{said}")
            benches.put(clean)
        with ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(one, left))
    sys.exit(1 if print_results(faults, results) else 0)


if __name__ == "__main__":
    main()

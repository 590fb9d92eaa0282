"""Fit the points of evidence in `meanings.toml` to labelled columns, and show how often the best meaning is right.

    uv run --group dev python scripts/fit_meanings.py            what the present points are worth
    uv run --group dev python scripts/fit_meanings.py --fit      the same after a fit, held out by file
    uv run --group dev python scripts/fit_meanings.py --write    fit on all files, write the points back if better
    uv run --group dev python scripts/fit_meanings.py --wrong    the columns whose best meaning is wrong
    uv run --group dev python scripts/fit_meanings.py --sharp    the log loss by nats per point

The labels are in `tests/data/audit/columns.tsv`: file, number of the grid, kind, text above it, heading, meaning of
each stream (`first=rate.sd; %=acceptance`; `a|b`: either), and some cells. The probability of a meaning is the softmax
of its points; the fit shrinks them to the present ones, keeps their signs, and is judged on files it has not seen.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from specmeter.audit.read.grid import Grid
from specmeter.audit.read.meaning import Facts, Page, allowed, evidence, streams_of, tally
from specmeter.audit.read.words import Rule, load

ROOT = Path(__file__).resolve().parent.parent
LABELS = ROOT / "tests/data/audit/columns.tsv"
DATA = ROOT / "src/specmeter/audit/read/meanings.toml"
SHRINK = 0.3
"""Nats that a change of one point costs."""
MISSED = 1e-4
"""Probability of a meaning that no evidence names."""
FOLDS = 10


@dataclass
class Case:
    """A labelled stream: its candidates, what speaks for each, and which are right."""

    file: str
    heading: str
    cell: str
    right: frozenset[str]
    side: str | None
    """The side that the label names, None where it names none."""
    told: str
    """The side that the words tell."""
    candidates: list[str]
    counts: list[dict[tuple[int, str], float]]
    """Of each candidate: (rule, quantity) -> weight."""
    weight: float = 1.0


def grids_of(path: Path) -> Iterator[tuple[str, Grid, list[dict[str, str]]]]:
    """(file, grid, labels of each column by stream) of the labelled columns."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault((row["file"], row["grid"]), []).append(row)
    for (name, _), columns in groups.items():
        cells = [[cell.strip() for cell in column["cells"].split(" ¦ ")] for column in columns]
        height = max(map(len, cells))
        body = [[column[r] if r < len(column) else "" for column in cells] for r in range(height)]
        labels = [
            dict(part.split("=", 1) for part in column["meaning"].split("; ") if "=" in part) for column in columns
        ]
        head = [column["heading"] for column in columns]
        grid = Grid(head, body, [], context=columns[0]["above"], kind=columns[0]["kind"], sections=[""] * height)
        yield name, grid, labels


def cases(path: Path = LABELS) -> list[Case]:
    """The labelled streams."""
    index = {id(rule): n for n, rule in enumerate(rules())}
    found: list[Case] = []
    for name, grid, labels in grids_of(path):
        page = Page(grid)
        streams = streams_of(grid)
        for stream in streams:
            label = labels[stream.column].get(stream.slot)
            if label is None or stream.known is not None:
                continue
            facts = Facts(stream, page, slots={it.slot: it.values for it in streams if it.column == stream.column})
            held = evidence(facts)
            score = tally(held, allowed(facts, tally(held)))
            score.setdefault("ignore", 1.0)
            counts: list[dict[tuple[int, str], float]] = []
            for quantity in score:
                mine: dict[tuple[int, str], float] = {}
                for rule, weight in held:
                    if quantity in rule.points:
                        key = (index.get(id(rule), -1), quantity)
                        mine[key] = mine.get(key, 0.0) + weight
                counts.append(mine or {(-1, "ignore"): 1.0})
            either = label.split("|")
            sides = {it.partition(".")[2] for it in either}
            right = frozenset(it.partition(".")[0] for it in either)
            side = sides.pop() if len(sides) == 1 else ""
            cell = next(iter(row[stream.column] for row in grid.rows if row[stream.column]), "")
            found.append(Case(name, stream.heading, cell, right, side or None, facts.side, list(score), counts))
    alike = Counter((it.file, re.sub(r"\d+", "", it.heading), it.right) for it in found)
    for it in found:
        it.weight = 1.0 / alike[it.file, re.sub(r"\d+", "", it.heading), it.right]
    return found


def rules() -> tuple[Rule, ...]:
    """All rules, in the order of the file."""
    book = load()
    return (*book.words, *book.rules, *book.checks)


class Model:
    """Points of (rule, quantity), and nats per point."""

    def __init__(self) -> None:
        self.keys = [(n, quantity) for n, rule in enumerate(rules()) for quantity in rule.points]
        self.place = {key: n for n, key in enumerate(self.keys)}
        self.start = np.array([rules()[n].points[quantity] for n, quantity in self.keys], dtype=float)
        self.points, self.sharp = self.start.copy(), load().sharp

    def matrix(self, case: Case) -> np.ndarray:
        """Candidate x key, and the constant of `ignore` in the last column."""
        out = np.zeros((len(case.candidates), len(self.keys) + 1))
        for row, counts in enumerate(case.counts):
            for key, weight in counts.items():
                out[row, self.place.get(key, len(self.keys))] += weight
        return out

    def fit(self, data: Sequence[tuple[Case, np.ndarray]], shrink: float) -> None:
        """Points that make the labels likely, near the present ones and of their signs."""
        starts = np.cumsum([0, *(len(case.candidates) for case, _ in data)])
        stacked = csr_matrix(np.vstack([matrix for _, matrix in data]))
        right = np.concatenate([[it in case.right for it in case.candidates] for case, _ in data])
        weights = np.array([case.weight for case, _ in data])
        owner = np.repeat(np.arange(len(data)), np.diff(starts))

        def loss(points: np.ndarray) -> tuple[float, np.ndarray]:
            z = self.sharp * (stacked @ np.append(points, 1.0))
            top = np.maximum.reduceat(z, starts[:-1])
            e = np.exp(z - top[owner])
            total, good = np.add.reduceat(e, starts[:-1]), np.add.reduceat(e * right, starts[:-1])
            known = good > 0
            value = -float(np.sum(weights[known] * np.log(good[known] / total[known])))
            slope = np.where(
                known[owner], weights[owner] * (e / total[owner] - e * right / np.maximum(good, 1e-300)[owner]), 0
            )
            gradient = self.sharp * (stacked.T @ slope)[:-1]
            change = points - self.start
            return value + shrink * float(change @ change), gradient + 2 * shrink * change

        bounds = [(0.1, 14.0) if it > 0 else (-20.0, -0.1) if it < 0 else (0, 0) for it in self.start]
        self.points = minimize(loss, self.points, jac=True, method="L-BFGS-B", bounds=bounds).x

    def shares(self, matrix: np.ndarray) -> np.ndarray:
        """Probability of each candidate."""
        z = self.sharp * (matrix @ np.append(self.points, 1.0))
        e = np.exp(z - z.max())
        return e / e.sum()

    def right(self, case: Case, matrix: np.ndarray) -> float:
        """Probability of what the label says."""
        shares = self.shares(matrix)
        return max(MISSED, float(sum(p for p, it in zip(shares, case.candidates, strict=True) if it in case.right)))


@dataclass
class Outcome:
    """How a stream was told by a model that had not seen its file."""

    case: Case
    best: str
    certainty: float
    probability: float

    @property
    def correct(self) -> bool:
        """Whether the likeliest meaning is the label's."""
        return self.best in self.case.right


def judge(model: Model, data: Sequence[tuple[Case, np.ndarray]]) -> list[Outcome]:
    """What a model says of cases."""
    out: list[Outcome] = []
    for case, matrix in data:
        shares = model.shares(matrix)
        best = int(shares.argmax())
        out.append(Outcome(case, case.candidates[best], float(shares[best]), model.right(case, matrix)))
    return out


def held_out(data: Sequence[tuple[Case, np.ndarray]], shrink: float) -> list[Outcome]:
    """Each file by a fit on the others."""
    files = sorted({case.file for case, _ in data})
    fold = {file: n % FOLDS for n, file in enumerate(np.random.default_rng(7).permutation(files))}
    out: list[Outcome] = []
    for n in range(FOLDS):
        model = Model()
        model.fit([it for it in data if fold[it[0].file] != n], shrink)
        out += judge(model, [it for it in data if fold[it[0].file] == n])
    return out


def log_loss(outcomes: Sequence[Outcome]) -> float:
    """Nats per stream, repeated headings of a file counted once."""
    whole = sum(it.case.weight for it in outcomes)
    return sum(it.case.weight * -math.log(it.probability) for it in outcomes) / whole


def report(name: str, outcomes: Sequence[Outcome]) -> None:
    """Log loss, accuracy and the table of certainties."""
    whole = sum(it.case.weight for it in outcomes)
    right = sum(it.case.weight for it in outcomes if it.correct)
    named = sum(bool(it.case.right & set(it.case.candidates)) for it in outcomes)
    print(
        f"{name}: {len(outcomes)} streams, log loss {log_loss(outcomes):.3f}, right {100 * right / whole:.1f}%", end=""
    )
    print(f", the meaning is a candidate in {100 * named / len(outcomes):.1f}%")
    print("  certainty      streams   mean   right")
    edges = (0.0, 0.5, 0.7, 0.9, 0.97, 1.001)
    for low, high in pairwise(edges):
        some = [it for it in outcomes if low <= it.certainty < high]
        if weight := sum(it.case.weight for it in some):
            mean = sum(it.case.weight * it.certainty for it in some) / weight
            share = sum(it.case.weight for it in some if it.correct) / weight
            print(f"  {low:4.2f} to {min(high, 1):4.2f}  {len(some):6}   {mean:5.3f}   {share:5.3f}")
    sides = [it.case for it in outcomes if it.case.side]
    print(f"  sides: {sum(it.side == it.told for it in sides)} of {len(sides)} as labelled")


def write(model: Model) -> None:
    """Put the points back into the data, in the order of its rules."""
    lines, n, inside = DATA.read_text(encoding="utf-8").split("\n"), -1, False
    for at, line in enumerate(lines):
        if line.startswith("["):
            inside = line in {"[[words]]", "[[rules]]", "[[checks]]"}
            n += inside
        elif inside and line.startswith("points = "):
            points = ", ".join(
                f"{quantity} = {round(model.points[model.place[n, quantity]], 1):g}" for quantity in rules()[n].points
            )
            lines[at] = f"points = {{ {points} }}"
    DATA.write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit the points of evidence in meanings.toml to labelled columns.")
    parser.add_argument("--fit", action="store_true", help="Fit, held out by file.")
    parser.add_argument("--write", action="store_true", help="Write the points back if they are better.")
    parser.add_argument("--wrong", action="store_true", help="Show the streams whose best meaning is wrong.")
    parser.add_argument("--sharp", action="store_true", help="Log loss by nats per point.")
    parser.add_argument("--shrink", type=float, default=SHRINK, help="Cost of changing a point. Default: %(default)s.")
    options = parser.parse_args()
    present = Model()
    data = [(case, present.matrix(case)) for case in cases()]
    before = judge(present, data)
    report("present points", before)
    if options.wrong:
        for it in sorted(before, key=lambda it: it.probability):
            if not it.correct or not it.case.right & set(it.case.candidates):
                said = f"{it.best} {it.certainty:.2f}, not {'|'.join(sorted(it.case.right))} {it.probability:.4f}"
                print(f"  {it.case.file[:34]:34} {it.case.heading[:44]:44} {it.case.cell[:22]:22} {said}")
        for it in before:
            if it.case.side and it.case.side != it.case.told:
                print(f"  {it.case.file[:34]:34} {it.case.heading[:44]:44} side {it.case.told!r}, not {it.case.side!r}")
    if options.sharp:
        for sharp in (0.6, 0.8, 1.0, 1.25, 1.5):
            present.sharp = sharp
            print(f"sharp {sharp:4.2f}: log loss {log_loss(judge(present, data)):.3f}")
    if options.fit or options.write:
        after = held_out(data, options.shrink)
        report("fitted, other files", after)
        if options.write and log_loss(after) < log_loss(before):
            model = Model()
            model.fit(data, options.shrink)
            write(model)
            print(f"written: {np.abs(model.points - model.start).max():.1f} points at most")


if __name__ == "__main__":
    main()

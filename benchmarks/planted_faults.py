"""Faults planted into the source: each must make a test fail.

    uv run python benchmarks/planted_faults.py [--only WORD ...] [--results FILE] [--jobs N] [--wide] [--list]

A fault is what a careless change could leave behind: a comparison turned round, a quantile of the wrong level, a lock
that is not taken, a check that finds nothing. It is written as a function, a piece of its text and what stands there
instead, and names the tests that are to see it: a line each in `planted_faults.jsonl`. Functions and tests are found by
their names wherever they lie, and line breaks do not matter, so faults outlive files that are moved or merged.

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
    tests: Sequence[str]
    """Names of test functions that are to see it."""


FAULTS = [Fault(**json.loads(line)) for line in Path(__file__).with_suffix(".jsonl").read_text("utf-8").splitlines()]


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
        options = ("-m", "", "-n", "0", "-q", "-p", "no:cacheprovider", "--no-header")
        command = [sys.executable, "-m", "pytest", *options, *flags]
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

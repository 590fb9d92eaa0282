"""Prints the measures of the house: its size, its arrows, and how far a run, an advice and an audit walk through it.

    uv run python scripts/house.py            # size and structure, from the source alone
    uv run python scripts/house.py --walk     # as well what a mock run, an advice and an audit of three rows enter

A *room* is a folder or a module at the top of `specmeter`; an *arrow* leads from a room to another that it imports
from, anywhere in a file; a *circle* is a group of modules that reach each other. A file is *entered* where one of its
functions runs; the *depth* is the most frames of ours on one stack.
"""

from __future__ import annotations

import argparse
import ast
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).parents[1]
CORE = ROOT / "src" / "specmeter"
STUDIES, ENGINES, FLEET = (
    ROOT / "packages" / f"specmeter-{it}" / "src" / f"specmeter_{it}" for it in ("studies", "engines", "fleet")
)


def modules(*folders: Path) -> dict[str, Path]:
    """Every module below these packages by its full name."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            parts = [folder.name, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, tree: ast.Module, known: Iterable[str]) -> Iterator[str]:
    """Modules among `known` that a module imports, anywhere in its file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module or name


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Groups of more than one module that reach each other."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen, todo = set[str](), [start]
        while todo:
            for other in graph[todo.pop()]:
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        reach[start] = seen
    groups: list[set[str]] = []
    for name, seen in reach.items():
        if name in seen and not any(name in group for group in groups):
            groups.append({other for other in seen if name in reach[other]})
    return [group for group in groups if len(group) > 1]


def imports_in_functions(tree: ast.Module) -> int:
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found |= {id(it) for it in ast.walk(node) if isinstance(it, ast.Import | ast.ImportFrom)}
    return len(found)


def structure() -> list[tuple[str, object]]:
    core, studies, engines = modules(CORE), modules(STUDIES), modules(ENGINES, FLEET)
    both = core | studies | engines
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in both.items()}
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in both.items()}
    graph = {name: set(imported(name, tree, both)) - {name, "specmeter"} for name, tree in trees.items()}
    graph["specmeter"] = set()  # rooms ask it for the version alone

    def room(name: str) -> str:
        return name.split(".")[1] if "." in name else ""

    arrows = {(room(a), room(b)) for a in core for b in graph[a] if room(a) and room(b) and room(a) != room(b)}
    classes = Counter(node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return [
        ("lines, core", sum(lines[name] for name in core)),
        ("lines, studies", sum(lines[name] for name in studies)),
        ("lines, engines", sum(lines[name] for name in engines)),
        ("files, core", len(core)),
        ("files, studies", len(studies)),
        ("files in all", len(both)),
        ("files below 60 lines", sum(it < 60 for it in lines.values())),
        ("lines of the median and the longest file", f"{statistics.median(lines.values()):.0f}, {max(lines.values())}"),
        ("rooms of the core", len({room(name) for name in core} - {"", "__main__"})),
        ("arrows between rooms of the core", len(arrows)),
        ("circles", len(circles(graph))),
        ("imports inside functions", sum(map(imports_in_functions, trees.values()))),
        ("class names defined twice or more", sum(times > 1 for times in classes.values())),
    ]


class Walk:
    """What runs of our source while it is told to look."""

    def __init__(self) -> None:
        self.entered: set[CodeType] = set()
        self.deepest = 0
        self.scans = 0
        """Reads of a run's whole table of requests."""
        self.reopened = 0
        """Openings of a run that is only read."""
        self._ours: dict[CodeType, bool] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:  # noqa: ARG002
        if event != "call" or frame.f_code.co_name.startswith("<") or not self._is_ours(frame.f_code):
            return
        self.entered.add(frame.f_code)
        self.scans += frame.f_code.co_qualname == "RunReader.rows"
        self.reopened += frame.f_code.co_qualname == "GuardedDatabase.__init__"
        depth, above = 0, frame
        while above is not None:
            depth += self._is_ours(above.f_code) and not above.f_code.co_name.startswith("<")
            above = above.f_back
        self.deepest = max(self.deepest, depth)

    def _is_ours(self, code: CodeType) -> bool:
        known = self._ours.get(code)
        if known is None:
            known = self._ours[code] = code.co_filename.startswith((str(CORE), str(STUDIES), str(ENGINES)))
        return known

    def told(self) -> str:
        files = {code.co_filename for code in self.entered}
        return (
            f"{len(files)} files, {len(self.entered)} functions, depth {self.deepest}, {self.scans} scans of requests, "
            f"{self.reopened} runs opened to read"
        )


def walked(*argv: str) -> str:
    """What one command enters, in this process and its threads."""
    from specmeter.cli import invoke

    walk = Walk()
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        code = invoke(list(argv))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]
    return f"{walk.told()} (exit code {code})"


def walks() -> Iterator[tuple[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.csv"
        rows.write_text(
            "arm,tok/s,speedup,acceptance\nbaseline,30,1.0,\na,45,1.5,0.7\nb,90,3.0,0.2\n", encoding="utf-8"
        )
        commands = {
            "mock run": ("run", "demo", "--set", "engine.kind=mock", "--out", f"{folder}/run"),
            "advise": ("advise", "mock:dense", "--draft", "mock:small", "--out", f"{folder}/advice"),
            "advise, an hour": (
                *("advise", "mock:dense", "--draft", "mock:small", "--budget", "60m", "--out", f"{folder}/longer"),
            ),
            "audit": ("audit", str(rows)),
        }
        for name, argv in commands.items():
            # A process each: what one command leaves loaded and cached does not shorten the next one's way.
            source = (
                f"import sys; sys.path[:0] = [{str(ROOT / 'scripts')!r}]; import house; t = house.walked(*{argv!r})"
            )
            done = subprocess.run(
                [sys.executable, "-c", f"{source}; print('\\n' + t)"],
                capture_output=True,
                text=True,
                cwd=folder,
                check=True,
            )
            yield f"entered by {name}", done.stdout.splitlines()[-1]


def help_ms(times: int = 15) -> str:
    """Milliseconds of `specmeter --help` as a process, beside an empty Python's."""

    # Where bytecode may not be written, each start would compile anew what an installed command finds compiled.
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def median(*argv: str) -> float:
        found: list[float] = []
        for _ in range(times):
            began = time.perf_counter()
            subprocess.run([sys.executable, *argv], stdout=subprocess.DEVNULL, check=True, env=compiled)
            found.append((time.perf_counter() - began) * 1000)
        return statistics.median(found)

    empty = median("-c", "pass")
    return f"{median('-m', 'specmeter', '--help') - empty:.0f} beyond the {empty:.0f} of an empty Python"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--walk", action="store_true", help="also run a mock run, an advice and an audit, traced")
    walk = parser.parse_args().walk
    parts: list[Callable[[], Iterable[tuple[str, object]]]] = [structure, lambda: [("--help, ms", help_ms())]]
    for part in (*parts, walks) if walk else parts:
        for name, value in part():
            print(f"{name:<42} {value}", flush=True)


if __name__ == "__main__":
    main()

"""The ground plan: rooms lie on floors, and imports point down.

A room is a folder or a module at the top of `specmeter`. It may import from rooms below it, on another floor; within a
room modules may import each other, but never in a circle. Imports within functions and for types alone count as well.
The other packages stand above the whole of it: their rooms are their folders, and one more are the modules at the top.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
ADDED = {"studies": "specmeter_studies", "engines": "specmeter_engines", "fleet": "specmeter_fleet"}
"""Packages besides the core, by what the page calls their rooms."""
SOURCES = (
    ROOT / "src" / "specmeter",
    *(ROOT / "packages" / it.replace("_", "-") / "src" / it for it in ADDED.values()),
)


def _floors(plan: str) -> list[list[str]]:
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", plan, re.MULTILINE)
    return [re.findall(r"`(\w+)`", rooms) for _, rooms in sorted(rows, key=lambda row: int(row[0]))]


PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
_CORE, *_ADDED = re.split(r"\n## Rooms of the (\w+)\n", PAGE)
FLOORS = [
    *_floors(_CORE),
    *(
        [room if room == ADDED[of] else f"{ADDED[of]}.{room}" for room in floor]
        for of, plan in zip(_ADDED[::2], _ADDED[1::2], strict=True)
        for floor in _floors(plan)
    ),
]
"""From the ground up, as the page about the architecture draws it. What runs the program (`specmeter` itself and
`__main__`) stands above all of them."""

RUNS_UP: dict[tuple[str, str], str] = {}
"""(module, module that it imports from above) -> why it has to be so."""

CIRCLES: dict[frozenset[str], str] = {}
"""Modules that import each other -> why they have to."""


def _name(path: Path, source: Path) -> str:
    parts = [source.name, *path.relative_to(source).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path, source): path for source in SOURCES for path in sorted(source.rglob("*.py"))}


@cache
def _trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def _imported(tree: ast.Module) -> Iterator[str]:
    """Modules of ours that are imported anywhere in a file, by their full names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module


@cache
def _imports() -> dict[str, set[str]]:
    """The package itself is left out: rooms ask it for the version, and it gets all else when it is asked for."""
    return {name: set(_imported(tree)) - {name, "specmeter"} for name, tree in _trees().items() if name != "specmeter"}


def _room(module: str) -> str:
    package, _, rest = module.partition(".")
    folder = rest.split(".")[0]
    if package == "specmeter":
        return folder
    is_room = folder and f"{package}.{folder}" in MODULES and MODULES[f"{package}.{folder}"].name == "__init__.py"
    return f"{package}.{folder}" if is_room else package


def test_every_room_has_a_floor() -> None:
    placed = [room for floor in FLOORS for room in floor]
    assert len(placed) == len(set(placed))
    assert {_room(module) for module in MODULES} - {"", "__main__"} == set(placed)


def test_imports_point_down() -> None:
    floor_of = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
    up = {
        (module, other)
        for module, others in _imports().items()
        for other in others
        if _room(module) in floor_of
        and _room(other) in floor_of
        and _room(module) != _room(other)
        and floor_of[_room(other)] >= floor_of[_room(module)]
    }
    assert up == set(RUNS_UP)


def test_no_room_is_larger_than_it_was() -> None:
    """Raising a room's lines in `house.toml` is a line of a commit, with its reason."""
    kept = tomllib.loads((Path(__file__).parent / "data" / "house.toml").read_text(encoding="utf-8"))["lines"]
    lines: Counter[str] = Counter()
    for module, path in MODULES.items():
        lines[_room(module) or "specmeter"] += len(path.read_text(encoding="utf-8").splitlines())
    assert {room: count for room, count in lines.items() if count > kept.get(room, 0)} == {}


def test_every_file_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"(?<![\w/])((?:[a-z_]+/)+[a-z_0-9]+\.py)", PAGE)) - {
        "tests/test_house.py",
        "scripts/house.py",
    }
    assert {name for name in named if not any((source / name).is_file() for source in SOURCES)} == set()


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert {frozenset(circle) for circle in _circles()} == set(CIRCLES)


def test_the_core_knows_nothing_of_fleets() -> None:
    core = [path for path in SOURCES[0].rglob("*") if path.suffix in (".py", ".json", ".html", ".js", ".yaml")]
    told = re.compile(r"fleet|\bray\b", re.IGNORECASE)
    assert [str(path) for path in core if told.search(path.read_text(encoding="utf-8"))] == []


def test_every_module_says_what_it_is() -> None:
    assert [name for name, tree in _trees().items() if not ast.get_docstring(tree)] == []


def _circles() -> list[list[str]]:
    """Groups of modules each of which reaches all others (Kosaraju)."""
    order: list[str] = []
    _visit(_imports(), list(_imports()), order)
    back: dict[str, set[str]] = {name: set() for name in _imports()}
    for name, others in _imports().items():
        for other in others:
            back[other].add(name)
    return [group for group in _visit(back, order[::-1], []) if len(group) > 1]


def _visit(graph: dict[str, set[str]], roots: list[str], left: list[str]) -> list[list[str]]:
    """What is reached from each root and from none before it; `left` gets nodes in the order in which they are done."""
    seen: set[str] = set()
    groups: list[list[str]] = []
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        group, path = [root], [(root, iter(graph[root]))]
        while path:
            node, others = path[-1]
            following = next((other for other in others if other not in seen), None)
            if following is None:
                left.append(node)
                path.pop()
            else:
                seen.add(following)
                group.append(following)
                path.append((following, iter(graph[following])))
        groups.append(group)
    return groups

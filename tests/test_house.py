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
_CORE, *_ADDED = re.split(r"\n## Layers of the (\w+)\n", PAGE)
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


def test_every_name_that_the_page_puts_in_a_file_is_there() -> None:
    named = re.findall(r"`(\w+)` (?:in|of) `((?:[a-z_]+/)+[a-z_0-9]+\.py)`", PAGE)
    texts = {
        name: path.read_text(encoding="utf-8")
        for source in SOURCES
        for _, name in named
        if (path := source / name).is_file()
    }
    assert len(named) > 5
    assert [
        it
        for it in named
        if not re.search(rf"^ *(?:(?:class|def) {it[0]}\b|{it[0]}\b.* =)", texts[it[1]], re.MULTILINE)
    ] == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert {frozenset(circle) for circle in _circles()} == set(CIRCLES)


def test_the_core_knows_nothing_of_fleets() -> None:
    core = [path for path in SOURCES[0].rglob("*") if path.suffix in (".py", ".json", ".html", ".js", ".yaml")]
    told = re.compile(r"fleet|\bray\b", re.IGNORECASE)
    assert [str(path) for path in core if told.search(path.read_text(encoding="utf-8"))] == []


def test_every_module_says_what_it_is() -> None:
    assert [name for name, tree in _trees().items() if not ast.get_docstring(tree)] == []


LONG: dict[str, str] = {
    "specmeter.measure.loop": "the only loop: its order is the order of a measurement",
    "specmeter.numbers.stats": "every statistic of a speedup, each tested against scipy",
}
"""Modules of more than `MAX_LINES` lines -> why they are not split."""

MAX_LINES = 600

FOREIGN = set(
    re.findall(
        r"\S+",
        """a.b.c avg_spec_accept_length bench_one_batch_server c4 draft_speeds fullfsync get_n_draft_max
        minutes.seconds.ms.us pg print_rows psys server_slot_stats speculative_num_draft_tokens speed_bench.py
        speed_bench_compare.py spmt tabulate tps_off _accepted_tokens _draft_tokens""",
    )
)
"""Names of other programs that docstrings mention."""

_FOREIGN_HEADS = {"gguf", "importlib", "mlx_lm", "pyarrow", "xllamacpp"}
_FOREIGN_STARTS = ("llama_", "ggml_", "common_", "tcpi_")
_FILE_ENDINGS = ("json", "jsonl", "yaml", "html", "svg", "md", "sqlite")

_TITLE = re.compile(r"(?:Whether|What|How|Which|Who|Where|From) ")
_CLAUSE = re.compile(r"[:;,] | (?:as|that|(?<!for )which|who|where|what|when|whose) ")
_VERB = re.compile(
    r"\b(?:is|are|was|were|be|has|have|had|can|cannot|may|must|do|does|says?|needs?|tries|depends?|assumes?|holds?|calls"
    r"|uses?|takes?|closes|divides|raises?|shares?|comes|find|belongs|names?|runs|counts|tells?|follows?|answers|reproduce)\b"
)


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """All texts that stand alone as a statement: docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


@cache
def _words_of_code() -> frozenset[str]:
    """Every name and every word of a string that code uses, the text of docstrings left out."""
    words: set[str] = set()
    for tree in _trees().values():
        prose = {id(text) for text in _docstrings(tree)}
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                    words.add(name)
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    words.add(name)
                case ast.alias(name=name):
                    words.update(name.split("."))
                case ast.Constant(value=str(text)) if id(node) not in prose:
                    words.update(re.findall(r"\w+(?:\.\w+)*", text))
                    words.update(re.findall(r"\w+", text))
                case _:
                    pass
    return frozenset(words | {part for module in MODULES for part in module.split(".")})


@cache
def _names_within(module: str) -> frozenset[str]:
    """What can be asked of a module by `module.NAME`: what it defines at any level or imports, and its own modules."""
    names = {name.rpartition(".")[2] for name in MODULES if name.rpartition(".")[0] == module}
    for node in ast.walk(_trees()[module]):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name) | ast.Name(id=name):
                names.add(name)
            case ast.alias(name=name, asname=other):
                names.add((other or name).split(".")[0])
            case _:
                pass
    return frozenset(names)


def _exists(name: str, module: str) -> bool:
    """Whether a name in the docstring of a module is there: a file, a word of the code, or a name within a module."""
    if name in FOREIGN:
        return True
    if re.fullmatch(r"[\w/.]+\.py", name):
        return "NAME" in name or (ROOT / name).is_file() or any((it / name).is_file() for it in SOURCES)
    if not re.fullmatch(r"_?[a-z_]\w*(?:\.[A-Za-z_]\w*)*", name):
        return True
    head, *rest = name.split(".")
    if not rest:
        return name in _words_of_code() or name.startswith(_FOREIGN_STARTS)
    if head in _FOREIGN_HEADS or rest[-1] in _FILE_ENDINGS or any(it.isupper() for it in rest):
        return True
    if name in _words_of_code():  # a key, such as `generation.max_tokens`
        return True
    if any(isinstance(node, ast.arg) and node.arg == head for node in ast.walk(_trees()[module])):
        return True  # a parameter
    within = [other for other in MODULES if other.rpartition(".")[2] == head]
    return any(rest[0] in _names_within(other) for other in within) or (not within and head in _names_within(module))


def test_names_in_docstrings_are_there() -> None:
    named = {
        (module, name.removesuffix("()"))
        for module, tree in _trees().items()
        for text in _docstrings(tree)
        for name in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", str(text.value))
        if not _exists(name.removesuffix("()"), module)
    }
    assert named == set()


def test_paths_in_the_settings_of_tools_are_there() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    patterns = [*tools["ruff"]["lint"]["per-file-ignores"], *tools["ruff"]["src"], *tools["pyright"]["extraPaths"]]
    assert [it for it in patterns if not any(ROOT.glob(it))] == []


def test_init_files_only_hand_names_on() -> None:
    """Imports, docstrings, `__all__`, a lazy `__getattr__` with its `__dir__`, and constants that nothing computes."""
    found = {
        name
        for name, tree in _trees().items()
        if MODULES[name].name == "__init__.py" and not all(map(_hands_on, tree.body))
    }
    assert found == set()


def _hands_on(node: ast.stmt) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.FunctionDef(name="__getattr__" | "__dir__"):
            return True
        case ast.Assign() | ast.AnnAssign():
            return not any(isinstance(it, ast.Lambda | ast.comprehension) for it in ast.walk(node))
        case _:
            return False


def test_long_files_have_a_reason() -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}
    assert {name: count for name, count in lengths.items() if count > MAX_LINES and name not in LONG} == {}


def test_a_module_has_one_subject() -> None:
    """A paragraph of one line without a verb is the title of a second subject."""
    found = {
        (name, line)
        for name, tree in _trees().items()
        for line in (ast.get_docstring(tree) or "").split("\n\n")[1:]
        if _is_title(line)
    }
    assert found == set()


def _is_title(paragraph: str) -> bool:
    if "\n" in paragraph.strip() or not re.match(r"(?!It |They |This |These )[A-Z`]", paragraph):
        return False
    if not paragraph.endswith("."):
        return False
    return not paragraph.startswith("Source") and bool(
        _TITLE.match(paragraph) or not _VERB.search(_CLAUSE.split(paragraph)[0])
    )


def test_titles_are_told_from_sentences() -> None:
    assert _is_title("The course of a schedule: one advice after the other, within one budget.")
    assert _is_title("Whether an older advice still holds.")
    assert not _is_title("The folder is untrusted: headers are bounded.")
    assert not _is_title("Source: Fieller 1954.")


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

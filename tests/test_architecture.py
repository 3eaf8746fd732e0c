"""The floors of the house: a room imports only lower floors (docs/architecture.md)."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "ctx"

# A module's floor is that of its longest listed prefix.
FLOORS = {
    "ctx": 1,
    "ctx.types": 1,
    "ctx.toml": 2,
    "ctx.errors": 1,
    "ctx.identity": 1,
    "ctx.clock": 1,
    "ctx.lean": 0,
    "ctx.text": 1,
    "ctx.files": 1,
    "ctx.bundled": 1,
    "ctx.onnx": 1,
    "ctx.config": 2,
    "ctx.formats": 2,
    "ctx.embed": 2,
    "ctx.models": 2,
    "ctx.analyze": 2,
    "ctx.kinds": 1,
    "ctx.ranking": 2,
    "ctx.rules": 2.3,  # what a search is made of: rules and snippets, then the passage that answers
    "ctx.snippet": 2.3,
    "ctx.evidence": 2.6,
    "ctx.agents": 2,
    "ctx.connectors": 2,
    "ctx.store": 2,
    "ctx.lua": 2,
    "ctx.indexing": 3,
    "ctx.search": 3,
    "ctx.memory": 3,
    "ctx.tools": 4,
    "ctx.extensions": 5,
    "ctx.packs": 6,
    "ctx.workspace": 7,
    "ctx.server": 8,
    "ctx.cli": 9,
    "ctx.__main__": 10,
}
# The sideways steps on floor 2: an engine expresses the analysis, which is defined once; the configuration is a TOML file.
SIDEWAYS = {("ctx.store", "ctx.analyze"), ("ctx.config", "ctx.toml")}


def _modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _room(module: str) -> str:
    parts = module.split(".")
    while ".".join(parts) not in FLOORS:
        parts.pop()
    return ".".join(parts)


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ctx":
            found.update(f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            found.update(name.name for name in node.names if name.name.split(".")[0] == "ctx")
    return found


def test_a_room_imports_only_lower_floors() -> None:
    wrong = []
    for module, path in _modules().items():
        room = _room(module)
        for target in _imports(path):
            other = _room(target)
            if other == room or other == "ctx":
                continue
            if FLOORS[other] >= FLOORS[room] and (room, other) not in SIDEWAYS:
                wrong.append(f"{module} (floor {FLOORS[room]}) imports {target} (floor {FLOORS[other]})")
    assert not wrong, "\n".join(wrong)


def test_every_module_has_a_floor_of_its_own() -> None:
    strays = [
        module for module in _modules() if _room(module) == "ctx" and module not in ("ctx", "ctx.__init__")
    ]
    assert not strays, f"give these a line in FLOORS: {strays}"

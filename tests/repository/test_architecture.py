"""The floors of the house: a room imports only lower floors.
The drawing of docs/architecture.md is read, and the code held to it.
"""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "ctx"
DRAWING = (ROOT / "docs" / "architecture.md").read_text()


def floors() -> dict[str, int]:
    """Room -> floor: the words of each line before its description, which stands apart."""
    block = re.search(r"```text\n(10 .*?)```", DRAWING, re.DOTALL)
    assert block is not None
    rooms = {"ctx": 1}
    floor = 0
    for line in block[1].splitlines():
        number, words = line[:3].strip(), re.split(r"  +", line[3:].strip())[0]
        floor = int(number) if number else floor
        rooms.update({f"ctx.{word.rstrip('/')}": floor for word in words.split()})
    return rooms


def side_steps() -> set[tuple[str, str]]:
    return {(f"ctx.{room}", f"ctx.{lower}") for room, lower in re.findall(r"`(\w+) -> (\w+)`", DRAWING)}


def modules() -> dict[str, Path]:
    paths = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


def room_of(module: str, rooms: dict[str, int]) -> str:
    """The room that a module lies in: its longest prefix that is drawn."""
    parts = module.split(".")
    while ".".join(parts) not in rooms:
        parts.pop()
    return ".".join(parts)


@functools.cache
def imports(path: Path) -> frozenset[str]:
    targets = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ctx":
            targets.update(f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            targets.update(name.name for name in node.names if name.name.split(".")[0] == "ctx")
    return frozenset(targets)


def test_lua_needs_of_the_house_only_errors_json_and_text() -> None:
    """It is a library in the house: what it is given to do is values and a host, so that it can be read and
    tested alone.
    """
    rooms, targets = floors(), set()
    for path in (PACKAGE / "lua").glob("*.py"):
        targets |= {room_of(target, rooms) for target in imports(path)} - {"ctx", "ctx.lua"}
    assert targets == {"ctx.errors", "ctx.types", "ctx.text"}


def test_a_room_imports_only_lower_floors() -> None:
    rooms, beside = floors(), side_steps()
    upward = []
    for module, path in modules().items():
        room = room_of(module, rooms)
        for target in imports(path):
            lower = room_of(target, rooms)
            if lower in (room, "ctx") or (room, lower) in beside:
                continue
            if rooms[lower] >= rooms[room]:
                upward.append(f"{module} (floor {rooms[room]}) imports {target} (floor {rooms[lower]})")
    assert not upward, "\n".join(upward)


def test_every_module_is_drawn_and_every_room_drawn_is_there() -> None:
    rooms, paths = floors(), modules()
    assert [module for module in paths if module != "ctx" and room_of(module, rooms) == "ctx"] == []
    assert [room for room in rooms if room not in paths] == []


def test_no_step_to_the_side_is_drawn_that_nobody_takes() -> None:
    rooms = floors()
    steps = {
        (room_of(module, rooms), room_of(target, rooms))
        for module, path in modules().items()
        for target in imports(path)
    }
    assert side_steps() - steps == set()

"""Search results as text: which definition a line is listed under, and the block of a long one."""

from pathlib import Path

import pytest
from kit import project, workspace

from ctx.models import Caller
from ctx.tools.markdown import search_text

FILLER = "".join(f"        step_{n} = advance(step_{n})\n" for n in range(45))
POND = f'''class Pond:
    """A pond where otters swim."""

    depth = 3

    def fill(self) -> None:
        pour(self.depth)

    def drain(self, otters: int) -> None:
{FILLER}
        if otters:
            warn(otters)
            for otter in range(otters):
                move_to_the_salmon_river(otter)
{FILLER}

def around(pond: Pond) -> None:
    def inside() -> None:
        pond.fill_with_trout()

    inside()
'''
CONFIG = """
[connectors.filesystem.code]
root = "./docs"
include_globs = ["**"]
[embedding]
provider = "disabled"
"""


def shown(folder: Path, query: str) -> list[str]:
    with workspace(project(folder, {"pond.py": POND}, CONFIG)) as space:
        space.indexer.run()
        reply = space.toolbox.call("search", {"query": query, "mode": "keyword"}, Caller("test"))
        return search_text(reply, query, space.searcher, space.catalog).splitlines()


def test_a_line_is_listed_once_under_its_innermost_definition(tmp_path: Path) -> None:
    lines = shown(tmp_path, "fill with trout")
    trout = [line for line in lines if "pond.fill_with_trout()" in line]
    assert len(trout) == 1
    assert lines[lines.index(trout[0]) - 1].endswith("around.inside")


def test_a_definition_around_another_is_listed_once(tmp_path: Path) -> None:
    text = "class Otter:\n    salmon_eaten = 1\n\n    def eat(self):\n        salmon_left()\n\n    salmon_rest = 2\n"
    with workspace(project(tmp_path, {"otter.py": text}, CONFIG)) as space:
        space.indexer.run()
        reply = space.toolbox.call("search", {"query": "salmon", "mode": "keyword"}, Caller("test"))
        lines = search_text(reply, "salmon", space.searcher, space.catalog).splitlines()
    assert [line.split("  ")[-1] for line in lines if "|" not in line] == [
        "otter.py",
        "class Otter",
        "method Otter.eat",
    ]


def test_a_long_definition_names_the_block_around_its_best_lines(tmp_path: Path) -> None:
    lines = shown(tmp_path, "move to the salmon river")
    first = POND.split("\n").index("        if otters:") + 1
    assert any(line.endswith(f"method Pond.drain  (block {first}-{first + 3})") for line in lines), lines


@pytest.mark.parametrize(
    ("name", "text", "hidden"),
    [
        ("a.py", 'def swim(\n    far: int,\n):\n    """Swim."""\n    return far\n', None),
        (
            "a.py",
            'def swim(far):\n    """Swim.\n\n' + "    Otters.\n" * 9 + '    """\n    return far\n',
            (5, 13),
        ),
        ("a.py", "def swim(far):\n    x = far\n    y = '''\n" + "otters\n" * 20 + "'''\n", None),
        ("a.go", "package a\n\n" + "// Swim swims.\n" * 9 + "func swim() {\n}\n", (6, 11)),
    ],
)
def test_a_long_comment_of_a_definition_is_shortened_for_models(
    tmp_path: Path, name: str, text: str, hidden: tuple[int, int] | None
) -> None:
    with workspace(project(tmp_path, {name: text}, CONFIG)) as space:
        space.indexer.run()
        arguments = {"path": f"{name}#swim", "format": "markdown"}
        lines = space.toolbox.call("get", arguments, Caller("test"))["text"].split("\n")[1:]
        whole = space.toolbox.call("get", {"path": f"{name}#swim"}, Caller("test"))
    first = whole["start_line"]
    numbered = [f"{number}| {line}" for number, line in enumerate(whole["body"].split("\n")[:-1], first)]
    if hidden:
        start, end = hidden
        numbered[start - first : end - first + 1] = [f"… lines {start}-{end}: the rest of the comment"]
    assert lines == numbered

"""`outline`, `symbol` and `get` with a name, lines or words, through the Toolbox."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import project, workspace

from ctx.errors import BadRequest, NotFound
from ctx.models import JSON, Caller
from ctx.workspace import Workspace

LONG = "".join(f"        step_{n} = advance(step_{n})\n\n" for n in range(60))
STORE = f'''"""A store."""
LIMIT = 3


class Store:
    """Keeps otters."""

    def find(self, name: str) -> str:
        """Finds one."""
        return lookup(name)

    def feed(self, food: int) -> None:
        # weigh the salmon first
{LONG}        weigh_salmon(food)
{LONG}

class Index:
    def find(self) -> int:
        return 1


def lookup(name: str) -> str:
    return name
'''
FILES = {
    "src/store.py": STORE,
    "src/app.py": "from store import Store, lookup\n\n\ndef main() -> None:\n    print(lookup('a'))\n",
    "tests/test_store.py": "from store import lookup\n\n\ndef test_lookup() -> None:\n    assert lookup('a')\n",
    "src/empty.py": "x\n",
    "docs/C#.md": "# Sharp\n\n## C# and F# (v1.2)\n\nText.\n\n## Last\n\nEnd.\n",
    "docs/guide.md": "# Guide\n\nIntro.\n\n## Install\n\nRun it.\n\n### On a Mac\n\nBrew.\n\n## Remove\n\nDelete lookup.\n",
}
CONFIG = """
[connectors.filesystem.code]
root = "./docs"
include_globs = ["**"]
[embedding]
provider = "disabled"
"""


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with workspace(project(tmp_path_factory.mktemp("project"), FILES, CONFIG)) as opened:
        opened.indexer.run()
        yield opened


def call(space: Workspace, tool: str, door: str = "cli", **arguments: JSON) -> JSON:
    return space.toolbox.call(tool, arguments, Caller(door))


def test_an_outline_lists_members_with_their_lines(space: Workspace) -> None:
    members = call(space, "outline", path="src/store.py")["members"]
    names = [member["name"] for member in members]
    assert names == ["LIMIT", "Store", "Store.find", "Store.feed", "Index", "Index.find", "lookup"]
    find = members[2]
    assert (find["kind"], find["start_line"], find["end_line"]) == ("method", 8, 10)
    assert find["signature"] == "def find(self, name: str) -> str"
    inside = call(space, "outline", path="src/store.py#Index")["members"]
    assert [member["name"] for member in inside] == ["Index", "Index.find"]
    assert call(space, "outline", path="src/store.py", query="feed")["members"] == [members[3]]


def test_the_outline_of_a_long_function_is_its_blocks_and_of_a_page_its_headings(space: Workspace) -> None:
    blocks = call(space, "outline", path="src/store.py#Store.feed")["members"]
    assert blocks[0]["name"] == "Store.feed"
    assert {block["kind"] for block in blocks[1:]} == {"block"}
    headings = call(space, "outline", path="guide.md")["members"]
    assert [(row["name"], row["start_line"], row["end_line"]) for row in headings][1:] == [
        ("Guide > Install", 5, 12),
        ("Guide > Install > On a Mac", 9, 12),
        ("Guide > Remove", 13, 15),
    ]


def test_an_outline_and_get_count_the_same_lines(space: Workspace) -> None:
    for path in ("src/store.py", "guide.md", "src/empty.py"):
        whole = call(space, "get", path=path)
        assert call(space, "outline", path=path)["total_lines"] == whole["total_lines"] == whole["end_line"]


def test_get_takes_a_symbol_a_heading_or_lines(space: Workspace) -> None:
    method = call(space, "get", path="src/store.py#Store.find")
    assert method["body"].strip().startswith("def find(self, name: str)")
    assert method["symbol"] == {"name": "Store.find", "kind": "method", "start_line": 8, "end_line": 10}
    assert call(space, "get", path="guide.md#Remove")["body"] == "## Remove\n\nDelete lookup.\n"
    lines = call(space, "get", path="./src/app.py:4-5")
    assert (lines["start_line"], lines["end_line"]) == (4, 5)
    assert call(space, "get", path="/somewhere/else/src/app.py")["source_id"] == "src/app.py"


def test_words_are_looked_for_in_all_of_a_long_page_and_the_parts_left_out_name_their_headings(
    tmp_path: Path,
) -> None:
    sections = [f"## Part {n}\n\n" + "Nothing of note.\n" * 30 for n in range(40)]
    sections[31] = "## Sturgeon\n\n" + "Nothing of note.\n" * 20 + "A sturgeon weighs a ton.\n\n"
    files = {"long.md": "# Fish\n\n" + "".join(sections)}
    with workspace(project(tmp_path, files, CONFIG)) as space:
        space.indexer.run()
        reply = call(space, "get", path="long.md", query="sturgeon weighs", max_tokens=400)
        assert "A sturgeon weighs a ton." in reply["body"]
        assert "Part 0, Part 1" in reply["body"]
        assert len(reply["body"]) <= 400 * 4


def test_objects_that_a_sphinx_page_describes_are_members_of_its_sections(tmp_path: Path) -> None:
    page = """Options
=======

.. note:: Nothing here.

.. confval:: html_theme

   The look of the pages.

.. py:class:: Builder(app)

   Builds.

   .. py:method:: finish(when)

      Ends.

Other
=====

Words.
"""
    with workspace(project(tmp_path, {"conf.rst": page}, CONFIG)) as space:
        space.indexer.run()
        members = call(space, "outline", path="conf.rst")["members"]
        assert [(row["name"], row["start_line"], row["end_line"]) for row in members] == [
            ("Options", 1, 17),
            ("Options > html_theme", 6, 9),
            ("Options > Builder", 10, 17),
            ("Options > Builder > finish", 14, 17),
            ("Other", 18, 21),
        ]
        assert members[3]["signature"] == ".. py:method:: finish(when)"
        body = call(space, "get", path="conf.rst#html_theme")["body"]
        assert body == ".. confval:: html_theme\n\n   The look of the pages.\n\n"


def test_a_source_is_named_without_its_type_and_a_note_says_that_none_is_called_so(space: Workspace) -> None:
    assert call(space, "symbol", name="lookup", source="code")["definition_count"] == 1
    reply = call(space, "symbol", name="lookup", source="cod")
    assert (reply["definition_count"], reply["reference_count"]) == (0, 0)
    assert reply["note"].startswith("no source is called 'cod' (known: filesystem:code")


def test_get_with_words_shows_the_parts_around_them_and_says_what_it_leaves_out(space: Workspace) -> None:
    reply = call(space, "get", path="src/store.py#Store", query="weigh salmon")
    assert "weigh_salmon(food)" in reply["body"]
    assert "step_30 =" not in reply["body"]
    assert "… lines " in reply["body"]
    lines = STORE.split("\n")
    shown = [lines[n - 1] for first, last in reply["parts"] for n in range(first, last + 1)]
    assert [
        line for line in reply["body"].rstrip("\n").split("\n") if not line.startswith("… lines")
    ] == shown


def test_a_module_before_a_name_is_left_out(space: Workspace) -> None:
    reply = call(space, "symbol", name="store.Store.find")
    assert [each["name"] for each in reply["definitions"]] == ["Store.find"]


def test_an_unclear_name_lists_its_candidates_and_an_unknown_path_what_is_near(space: Workspace) -> None:
    with pytest.raises(BadRequest, match=r"src/store\.py#Store\.find \(8-10\).*Index\.find"):
        call(space, "get", path="src/store.py#find")
    with pytest.raises(NotFound, match=r"no 'swim' in src/store\.py; it has LIMIT, Store"):
        call(space, "get", path="src/store.py#swim")
    with pytest.raises(NotFound, match=r"near it: src/store\.py"):
        call(space, "get", path="src/stores.py")
    with pytest.raises(NotFound, match=r"folder with 3 files: .*\bstore\.py"):
        call(space, "outline", path="src")


@pytest.mark.parametrize(
    "asked",
    [
        {"id": "src/store.py"},
        *({"path": "src\\store.py"}, {"path": "C:\\work\\src\\store.py"}),
        *({"path": "file:///work/src/store.py"}, {"path": "`src/store.py`"}),
        {"path": "src/store.py::lookup"},
    ],
)
def test_get_takes_a_path_as_id_and_as_windows_writes_it(space: Workspace, asked: dict[str, str]) -> None:
    assert call(space, "get", **asked)["source_id"] == "src/store.py"


def test_symbol_lists_definitions_then_references_tests_last(space: Workspace) -> None:
    reply = call(space, "symbol", name="lookup")
    (definition,) = reply["definitions"]
    assert (definition["path"], definition["name"]) == ("src/store.py", "lookup")
    places = [(row["path"], row["line"], row["within"]) for row in reply["references"]]
    assert places[:3] == [
        ("src/app.py", 1, None),
        ("src/app.py", 5, "main"),
        ("src/store.py", 10, "Store.find"),
    ]
    assert [path for path, _, _ in places[3:]] == [
        "docs/guide.md",
        "tests/test_store.py",
        "tests/test_store.py",
    ]
    assert reply["reference_count"] == len(places)
    assert call(space, "symbol", name="Store.find")["calls"] == ["lookup"]
    assert [row["name"] for row in call(space, "symbol", name="Index.find")["definitions"]] == ["Index.find"]
    assert len(call(space, "symbol", name="lookup", limit=2)["references"]) == 1
    assert "0 exact matches" in call(space, "symbol", name="absent")["note"]


def test_a_search_names_the_symbol_and_shows_its_lines_as_they_are(space: Workspace) -> None:
    result = call(space, "search", query="weigh_salmon")["results"][0]
    assert result["symbol"]["name"] == "Store.feed"
    shown = STORE.split("\n")[result["start_line"] - 1 : result["end_line"]]
    assert result["snippet"] == "\n".join(shown)
    assert "weigh_salmon(food)" in result["snippet"]
    text = call(space, "search", query="weigh_salmon", format="markdown")["text"]
    assert text.startswith("src/store.py\n  12-")
    assert "method Store.feed" in text
    assert "|         weigh_salmon(food)" in text


def test_arguments_sent_as_text_are_read_and_unknown_ones_named(space: Workspace) -> None:
    reply = call(
        space, "search", query="lookup", limit="1", source='["filesystem:code"]', filters='{"path": ""}'
    )
    assert len(reply["results"]) == 1
    assert "note" not in reply
    assert "wibble" in call(space, "search", query="lookup", wibble=1)["note"]
    with pytest.raises(BadRequest, match="wibble"):
        call(space, "search", door="script", query="lookup", wibble=1)


def test_an_error_names_the_arguments_that_it_does_not_know(space: Workspace) -> None:
    for tool, arguments, message in (
        ("search", {"q": "otter"}, "missing required parameter: query (unknown: q)"),
        ("symbol", {"symbol": "find"}, "missing required parameter: name (unknown: symbol)"),
    ):
        with pytest.raises(BadRequest) as caught:
            call(space, tool, "mcp", **arguments)
        assert caught.value.message == message


@pytest.mark.parametrize(
    ("place", "first", "last"),
    [
        ("docs/C#.md:3-5", 3, 5),
        ("docs/C#.md#L3-L5", 3, 5),
        ("docs/C#.md#L3", 3, 3),
        ("docs/C#.md#Last", 7, 9),
        ("docs/C#.md#C# and F# (v1.2)", 3, 6),
        ("docs/C#.md#Sharp > Last", 7, 9),
    ],
)
def test_names_of_files_and_headings_may_have_a_number_sign(
    space: Workspace, place: str, first: int, last: int
) -> None:
    reply = call(space, "get", path=place)
    assert (reply["source_id"], reply["start_line"], reply["end_line"]) == ("docs/C#.md", first, last)

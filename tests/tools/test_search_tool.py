"""The built-in tools `search` and `get`."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import project, workspace

from ctx.errors import BadRequest, NotFound
from ctx.models import JSON, Caller
from ctx.server.mcp_shapes import translated
from ctx.workspace import Workspace

FILES = {
    "guide/install.md": "# Install\n\nRun kubernetes with the operator.\n\n## Proxy\n\nSet the proxy before "
    "the start.\n",
    "guide/cafe.md": "# Lokale\n\nEin Café in München.\n",
    "src/app.py": 'class Blueprint:\n    """Holds routes."""\n\n    def get_user_name(self):\n        return '
    "1\n",
    "src/views.py": "from app import Blueprint\nBlueprint\nBlueprint\nBlueprint()\n",
    "tests/test_app.py": "from app import Blueprint\n\ndef test_blueprint():\n    assert Blueprint() and "
    "Blueprint\n",
    "data.json": '{"proxy": "blueprint"}',
    "log.md": "# Log\n\nThe disk sda1 is full since the snapshot ran.\n",
    "w.md": "# Work\n\nINFO says that the worker is idle.\n",
}
CONFIG = """
[connectors.filesystem.docs]
root = "./docs"
include_globs = ["**"]
[connectors.filesystem.notes]
root = "./notes"
[embedding]
provider = "disabled"
"""


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "notes").mkdir()
    (folder / "notes" / "a.md").write_text("# A\n\nBlueprint notes.\n")
    with workspace(project(folder, FILES, CONFIG)) as opened:
        opened.indexer.run()
        yield opened


def search(space: Workspace, query: str, **arguments: JSON) -> JSON:
    return space.toolbox.call("search", {"query": query, **arguments}, Caller("cli"))


def paths(reply: JSON) -> list[str]:
    return [result["source_id"] for result in reply["results"]]


def test_a_name_leads_to_its_definition_and_shows_it(space: Workspace) -> None:
    results = search(space, "Blueprint", filters={"type": "code"})["results"]
    assert [result["source_id"] for result in results] == ["src/app.py", "src/views.py", "tests/test_app.py"]
    assert "class Blueprint" in results[0]["snippet"]


def test_a_word_that_no_text_has_is_looked_for_with_one_letter_changed(space: Workspace) -> None:
    for query in ("kuberntes operator", "kubernetesx", "Kubrenetes"):
        reply = search(space, query)
        assert paths(reply)[0] == "guide/install.md"
        assert "'kubernetes' instead of" in reply["note"]
    assert "note" not in search(space, "kubernetes")


def test_a_name_in_quotes_that_is_not_there_finds_nothing(space: Workspace) -> None:
    for query in ('"kuberntes"', '"get_user_nmae"', '"operator kubernetes"'):
        reply = search(space, query)
        assert reply["results"] == []
        assert "without quotes" in reply["note"]
        assert "instead of" not in reply["note"]
    assert paths(search(space, '"get_user_name"')) == ["src/app.py"]


def test_an_unfinished_word_is_looked_for_by_its_beginning(space: Workspace) -> None:
    assert paths(search(space, "kuber", prefix=True)) == ["guide/install.md"]
    assert (
        paths(search(space, "set the prox", prefix=True, filters={"type": "prose"}))[0] == "guide/install.md"
    )
    assert "guide/install.md" in paths(search(space, "installin", prefix=True))
    assert paths(search(space, "installqqx", prefix=True)) == [], "no word that goes on so begins like this"
    assert paths(search(space, "kuber")) == ["guide/install.md"], "no text has that word"


def test_an_unfinished_word_is_never_corrected(space: Workspace) -> None:
    reply = search(space, "kubernetex", prefix=True)
    assert (reply["results"], "note" in reply) == ([], False)
    assert "'kubernetes' instead of" in search(space, "kuberntes operat", prefix=True)["note"]
    assert "'kubernetes' instead of" in search(space, "kubernetesx ", prefix=True)["note"]


def test_the_automatic_mode_is_hybrid_but_for_one_name_and_a_quoted_phrase(tmp_path: Path) -> None:
    config = CONFIG.replace('[embedding]\nprovider = "disabled"\n', "")
    (tmp_path / "notes").mkdir()
    with workspace(project(tmp_path, FILES, config)) as space:
        space.refresh([])

        def by_meaning(query: str) -> bool:
            reply = search(space, query, mode="auto", explain=True)
            return any(result["explain"].get("semantic") for result in reply["results"])

        queries = ("where is the proxy set", "install", "get_user_name", '"set the proxy"')
        assert [by_meaning(query) for query in queries] == [True, True, False, False]


def test_accented_words_are_marked(space: Workspace) -> None:
    (result,) = search(space, "munchen cafe")["results"]
    assert [result["snippet"][start:end] for start, end in result["highlights"]] == ["Café", "München"]


def test_paths_and_types_narrow_a_search(space: Workspace) -> None:
    assert set(paths(search(space, "blueprint", filters={"path": "src/**"}))) == {
        "src/app.py",
        "src/views.py",
    }
    assert set(paths(search(space, "blueprint", filters={"path": ["tests/*.py", "*.json"]}))) == {
        "tests/test_app.py",
        "data.json",
    }
    for folder in ("guide", "guide/", "./guide", "./guide/"):
        assert paths(search(space, "kubernetes", filters={"path": folder})) == ["guide/install.md"]
        assert paths(search(space, "blueprint", filters={"path": folder})) == []
    for everywhere in (".", "./", "/"):
        assert paths(search(space, "kubernetes", filters={"path": everywhere})) == ["guide/install.md"]
    assert paths(search(space, "blueprint", filters={"type": "prose"})) == ["a.md"]
    assert paths(search(space, "blueprint", filters={"type": "application/json"})) == ["data.json"]


@pytest.mark.parametrize("filters", ["abc", 5, "[1]"])
def test_filters_that_are_no_object_are_named_to_a_model(space: Workspace, filters: JSON) -> None:
    tool = next(tool for tool in space.toolbox.list() if tool.name == "search")
    arguments = translated(tool, {"query": "word", "filters": filters})
    with pytest.raises(BadRequest, match="'filters' must be of type 'object'"):
        space.toolbox.call("search", arguments, Caller("mcp"))


@pytest.mark.parametrize(
    ("query", "meant"), [(404, "404"), (["clang"], "clang"), (["a", "b"], ["a", "b"]), (True, True)]
)
def test_a_number_or_a_list_of_one_text_is_a_query_of_a_model(
    space: Workspace, query: JSON, meant: JSON
) -> None:
    tool = next(tool for tool in space.toolbox.list() if tool.name == "search")
    assert translated(tool, {"query": query})["query"] == meant


def test_a_path_or_type_that_no_document_has_is_told(space: Workspace) -> None:
    reply = search(space, "blueprint", filters={"path": ["nowhere/**", "sr"], "type": "prose"})
    assert reply == {
        "results": [],
        "note": "no document of type 'prose' has a path like 'nowhere/**' or 'sr': write paths as in results, "
        "from the root of their source",
    }
    assert "'/src/app.py.bak'" in search(space, "x", filters={"path": "/src/app.py.bak"})["note"]
    assert search(space, "x", filters={"type": "text/csv"})["note"] == "no document is of type 'text/csv'"
    assert "one language are a path: *.py" in search(space, "x", filters={"type": "python"})["note"]
    assert "note" not in search(space, "tables", filters={"path": "src/**"}), (
        "there are such, without the word"
    )


def test_a_name_with_accents_is_the_same_composed_or_not(tmp_path: Path) -> None:
    composed, decomposed = "Übersicht.md", "U\u0308bersicht.md"
    files = {
        f"mac/{decomposed}": "# Mac\n\nOtters.\n",
        f"both/{decomposed}": "1 apart\n",
        f"both/{composed}": "1 whole\n",
    }
    with workspace(project(tmp_path, files, CONFIG.replace("./notes", "./docs/mac"))) as space:
        space.indexer.run()
        for place in (f"mac/{composed}", f"mac/{decomposed}"):
            arguments = {"source": "filesystem:docs", "source_id": place}
            reply = space.toolbox.call("get", arguments, Caller("cli"))
            assert reply["source_id"] == f"mac/{decomposed}"
            assert paths(search(space, "otters", source="filesystem:docs", filters={"path": place})) == [
                f"mac/{decomposed}"
            ]
        for place in (f"both/{composed}", f"both/{decomposed}"):
            arguments = {"source": "filesystem:docs", "source_id": place}
            assert space.toolbox.call("get", arguments, Caller("cli"))["source_id"] == place


def test_until_a_day_is_until_its_end_however_it_is_written(tmp_path: Path) -> None:
    project(tmp_path, {"a.md": "An otter.\n"}, CONFIG.replace("./notes", "./docs"))
    moment_s = 1_769_860_800  # 2026-01-31T12:00:00Z
    os.utime(tmp_path / "docs" / "a.md", (moment_s, moment_s))
    with workspace(tmp_path / "ctx.toml") as space:
        space.indexer.run()
        for day in ("2026-01-31", "20260131", "2026-W05-6", "2026-01-31T12:00"):
            narrowed = {"source": "filesystem:docs", "until": day}
            assert paths(search(space, "otter", filters=narrowed)) == ["a.md"], day
        for earlier in ("20260130", "2026-W05-5", "2026-01-31T11:59", "2026-01-31T00:00"):
            narrowed = {"source": "filesystem:docs", "until": earlier}
            assert paths(search(space, "otter", filters=narrowed)) == [], earlier


def test_several_sources_narrow_a_search_and_an_unknown_one_is_told(space: Workspace) -> None:
    assert paths(search(space, "blueprint", source=["filesystem:notes", "git"])) == ["a.md"]
    assert (
        "no source is called 'git'" in search(space, "blueprint", source=["filesystem:notes", "git"])["note"]
    )
    assert len(paths(search(space, "blueprint", source="filesystem"))) == 5
    reply = search(space, "blueprint", source="filesystem:notes", filters={"source": "filesystem:docs"})
    assert reply == {"results": [], "note": "no source matches both source and filters.source"}


def test_the_next_page_goes_on_where_the_first_ended(space: Workspace) -> None:
    whole = paths(search(space, "blueprint", limit=100))
    assert paths(search(space, "blueprint", limit=2)) == whole[:2]
    assert paths(search(space, "blueprint", limit=2, offset=2)) == whole[2:4]
    assert paths(search(space, "blueprint", offset=100)) == []


def test_a_reply_that_would_be_too_long_says_what_was_cut(space: Workspace) -> None:
    whole = paths(search(space, "blueprint"))
    reply = search(space, "blueprint", max_tokens=100)
    assert paths(reply) == whole[:1]
    assert reply["cut"].startswith(f"{len(whole) - 1} of {len(whole)} results are left out")


def test_further_passages_of_a_document_are_shown_where_asked_for(tmp_path: Path) -> None:
    sections = "".join(f"## Part {n}\n\n{'The otter swims here. ' * 30}\n\n" for n in range(4))
    with workspace(project(tmp_path, {"a.md": f"# All\n\n{sections}"})) as opened:
        opened.indexer.run()
        (result,) = search(opened, "otter", per_document=3)["results"]
        assert len(result["passages"]) == 2
        starts = {result["start_line"], *(passage["start_line"] for passage in result["passages"])}
        assert len(starts) == 3
        assert "passages" not in search(opened, "otter")["results"][0]


def get(space: Workspace, **arguments: JSON) -> JSON:
    return space.toolbox.call("get", arguments, Caller("cli"))


def test_get_takes_an_id_or_a_place(space: Workspace) -> None:
    id = search(space, "kubernetes")["results"][0]["id"]
    whole = get(space, id=id)
    assert whole == get(space, source="filesystem:docs", source_id="guide/install.md")
    assert "chunks" not in whole
    assert "".join(chunk["text"] for chunk in get(space, id=id, chunks=True)["chunks"]).startswith(
        "# Install"
    )
    with pytest.raises(BadRequest, match="missing required parameter: id"):
        get(space, source="filesystem:docs")
    assert get(space, id=id, source="filesystem:docs") == whole
    with pytest.raises(NotFound, match="no document with id"):
        get(space, id=id, source="filesystem:elsewhere")
    with pytest.raises(NotFound, match=r"'b\.md' in source 'filesystem:docs'"):
        get(space, source="filesystem:docs", source_id="b.md")


def test_get_gives_the_lines_asked_for_and_says_which(space: Workspace) -> None:
    file = {"source": "filesystem:docs", "source_id": "guide/install.md"}
    part = get(space, **file, start_line=5, end_line=7)
    assert part["body"] == "## Proxy\n\nSet the proxy before the start.\n"
    assert (part["start_line"], part["end_line"], part["total_lines"]) == (5, 7, 7)
    assert get(space, **file, start_line=7, end_line=99)["end_line"] == 7
    for lines in ({"start_line": 9}, {"start_line": 3, "end_line": 2}):
        with pytest.raises(BadRequest):
            get(space, **file, **lines)


def test_get_stops_where_max_tokens_ends_and_says_how_to_go_on(tmp_path: Path) -> None:
    files = {"a.txt": "".join(f"line {n} of a long text\n" for n in range(1, 101)), "b.txt": "x" * 1000}
    with workspace(project(tmp_path, files)) as opened:
        opened.indexer.run()
        part = get(opened, source="filesystem:docs", source_id="a.txt", max_tokens=60)
        assert (part["start_line"], part["end_line"], part["total_lines"]) == (1, 10, 100)
        assert part["cut"] == "lines 11 to 100 are left out; continue with start_line = 11"
        long = get(opened, source="filesystem:docs", source_id="b.txt", max_tokens=60)
        assert len(long["body"]) == 240
        assert "line 1 is longer" in long["cut"]


def test_a_result_of_code_is_titled_by_its_path(space: Workspace) -> None:
    reply = space.toolbox.call("search", {"query": "get_user_name"}, Caller("cli"))
    assert reply["results"][0]["title"] == "src/app.py"
    reply = space.toolbox.call(
        "search", {"query": "blueprint", "filters": {"path": "src/views.py"}}, Caller("cli")
    )
    assert reply["results"][0]["title"] == "src/views.py"

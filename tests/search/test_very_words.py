"""Words that are found as they are written: names with signs, acronyms, quoted and inflected words."""

from pathlib import Path

import pytest

import ctx
from ctx.text import analyze

PAGES = {
    "cpp.md": "# Building with C++\n\nOur engine is written in C++ and compiled with clang.\n",
    "c.md": "# Building with C\n\nThe firmware is written in plain C and compiled with gcc.\n",
    "csharp.md": "# Building with C#\n\nThe desktop client is written in C# against .NET 8.\n",
    "fsharp.md": "# F# notebooks\n\nThe pricing model is written in F# for analysts.\n",
    "f.md": "# Column F\n\nColumn F of the sheet holds the price.\n",
    "net.md": "# The net budget\n\nThe net budget is what remains after tax.\n",
    "io.md": "# IO\n\nThe io module: io.read, io.write, io.close, io errors.\n",
    "ios.md": "# Mobile client\n\nOur mobile client supports iOS 17 and later versions only.\n",
    "id.md": "# Id\n\nEach id is an id of a user id. The id field.\n",
    "ids.md": "# Sensors\n\nThe IDS watches the perimeter and raises alarms to the operations desk.\n",
    "node.md": "# Runtime\n\nThe page is rendered by Node.js on the server.\n",
    "tree.md": "# Tree\n\nEach node of the tree has a parent.\n",
    "ru.md": "# Настройка\n\nЧтобы перезапустить серверы, спросите администратора.\n",
    "de.md": "# Buchhaltung\n\nRechnungen werden am Monatsende bezahlt.\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for name, text in PAGES.items():
        (folder / name).write_text(text, "utf-8")
    return folder


@pytest.fixture
def project(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ctx.Project:
    monkeypatch.setenv("HOME", str(tmp_path))
    project = ctx.open(folder)
    project.index(embed=False)
    return project


def found(project: ctx.Project, query: str) -> list[str]:
    return [result.source_id for result in project.search(query, mode="keyword").results]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("C++", "cpp.md"),
        ("how is the c++ engine compiled", "cpp.md"),
        ("C#", "csharp.md"),
        ("F#", "fsharp.md"),
        (".NET", "csharp.md"),
        ("nodejs", "node.md"),
        ("IDS", "ids.md"),
        ("iOS", "ios.md"),
        ("сервер", "ru.md"),
        ("Rechnung", "de.md"),
    ],
)
def test_a_name_is_found_as_it_is_written(project: ctx.Project, query: str, first: str) -> None:
    with project:
        assert found(project, query)[0] == first


@pytest.mark.parametrize(
    ("query", "only"),
    [
        ('"C++"', "cpp.md"),
        ('"C#"', "csharp.md"),
        ('"iOS"', "ios.md"),
        ('"IDS"', "ids.md"),
        ('".NET 8"', "csharp.md"),
    ],
)
def test_a_quoted_word_is_that_very_word(project: ctx.Project, query: str, only: str) -> None:
    with project:
        assert found(project, query) == [only]


@pytest.mark.parametrize(("query", "note"), [("вилка", "outside English only whole words"), ("spoon", None)])
def test_an_empty_answer_says_which_words_match_outside_english(
    project: ctx.Project, query: str, note: str | None
) -> None:
    with project:
        reply = project.search(query, mode="keyword")
    assert reply.results == []
    assert reply.note is None if note is None else note in str(reply.note)


@pytest.mark.parametrize("text", ["i++; page#top x.net .env C+ #1", "see example.com/a#b"])
def test_signs_elsewhere_make_no_names(text: str) -> None:
    assert not {"c\u1429", "\ua4f8net", "\ua4f8env"}.intersection(analyze.terms(text))


def test_signed_keeps_the_length() -> None:
    text = "C++17 and C#, F# on .NET"
    assert len(analyze.signed(text)) == len(text) != 0
    assert analyze.signed(text) != text

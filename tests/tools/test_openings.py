"""Which passage of a document a search shows."""

from pathlib import Path

import pytest

import ctx

FRONT = "---\ntitle: Kestrel handbook\n---\n\n"
FILLING = "What is said here is said at length, since nobody reads what is short and all want it. "
INTRODUCTION = "The daemon reads one file at its start and refuses what it does not know. "


def section(name: str, times: int) -> str:
    return f"## {name}\n\n{FILLING * times}\n\n"


HANDBOOK = (
    f"{FRONT}# Configuring the kestrel daemon\n\n{INTRODUCTION * 12}\n\n"
    + "".join(section(name, 14) for name in ("Ports", "Logging", "Users", "Storage"))
    + "## Limits\n\nShort words on limits.\n\n"
    + f"# Appendix\n\n{FILLING * 40}\n\nAt last.\n"
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ctx.Project:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "kestrel.md").write_text(HANDBOOK)
    (folder / "other.md").write_text(f"# Other\n\n{FILLING * 3}\n")
    project = ctx.open(folder)
    project.index(embed=False)
    return project


@pytest.mark.parametrize(
    ("query", "heading", "words"),
    [
        ("configuring kestrel daemon", "Configuring the kestrel daemon", "The daemon reads one file"),
        ("handbook", "Configuring the kestrel daemon", "The daemon reads one file"),
        ("limits", "Configuring the kestrel daemon > Limits", "Short words on limits"),
        ("kestrel limits", "Configuring the kestrel daemon > Limits", "Short words on limits"),
        ("kestrel storage", "Configuring the kestrel daemon > Storage", "What is said here"),
        ("refuses", "Configuring the kestrel daemon", "refuses what it does not know"),
    ],
)
def test_the_passage_begins_where_its_section_does(
    project: ctx.Project, query: str, heading: str, words: str
) -> None:
    with project:
        (result,) = project.search(query).results
        assert (result.heading, words in result.snippet) == (heading, True), result.snippet
        assert words in project.passage(result)


def test_of_a_long_section_its_beginning_is_shown(project: ctx.Project) -> None:
    with project:
        (result,) = project.search("appendix").results
        heading_line = HANDBOOK.count("\n", 0, HANDBOOK.index("# Appendix")) + 1
        assert heading_line <= result.start_line <= heading_line + 2


def test_an_option_is_the_words_it_is_made_of_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "openssl.md").write_text("# verify\n\nTo verify a chain, verify each. No more.\n")
    (tmp_path / "notes" / "git.md").write_text(
        f"# commit\n\n{FILLING * 4}\n\nWith --no-verify the hook is left out. {FILLING}\n"
    )
    with ctx.open(tmp_path / "notes") as project:
        project.index(embed=False)
        assert next(result.source_id for result in project.search("--no-verify").results) == "git.md"


SOCKETS = "\n\n".join(
    [
        "# Sockets",
        "A socket has a timeout. The timeout of a socket is in seconds; a socket may lack a timeout. " * 9,
        FILLING * 6 + "Where nothing is said the socket timeouts are ten seconds. " + FILLING * 3,
        "A timeout ends what the socket does. " * 12,
    ]
)


@pytest.mark.parametrize("query", ['"socket timeouts"', '"Socket Timeout" seconds', "„socket timeouts“"])
def test_words_in_quotes_stand_side_by_side_in_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "sockets.md").write_text(SOCKETS)
    with ctx.open(tmp_path / "notes") as project:
        project.index(embed=False)
        (result,) = project.search(query).results
        assert "socket timeouts are ten" in result.snippet
        assert "socket timeouts are ten" in project.passage(result)
        marked = {result.snippet[start:end] for start, end in result.highlights}
        assert {"socket", "timeouts"} <= marked

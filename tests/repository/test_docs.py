"""The documentation matches the code: keys, commands, flags and links."""

import json
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
import tomli
from jsonschema_rs import Draft202012Validator
from kit import ROOT, ctx, project

from ctx import __version__
from ctx.cli import COMMANDS, OLDER
from ctx.connectors.defaults import BUILD_FOLDERS, SKIPPED_FOLDERS
from ctx.connectors.walk import CACHE_MARKERS

PAGES = sorted(
    [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPOSITORY = f"{PROJECT['urls']['Homepage']}/blob/main/"


def test_the_reference_the_example_and_the_schema_follow_from_the_declared_keys() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / ".ci" / "configuration.py", "--check"], capture_output=True, text=True
    )
    assert check.returncode == 0, check.stderr


def test_the_table_of_commands_follows_from_the_parsers() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / ".ci" / "manual.py", "--reference", "--check"],
        capture_output=True,
        text=True,
    )
    assert check.returncode == 0, check.stderr


def test_the_schema_takes_the_example_and_refuses_what_the_code_refuses() -> None:
    validator = Draft202012Validator(json.loads((ROOT / "config" / "ctx.schema.json").read_text()))
    example = (ROOT / "config" / "ctx.toml").read_text()
    assert list(validator.iter_errors(tomli.loads(example))) == []
    unnamed = "[connectors.web]\nurl = 'https://docs.example'\n[connectors.s3]\nbucket = 'b'"
    assert list(validator.iter_errors(tomli.loads(unnamed))) == []
    for text in ("[server]\nbnid = 1", "[retrieval]\nfinal_limit = 0", "[connectors.git.x]\nbranch = 'main'"):
        assert list(validator.iter_errors(tomli.loads(text))), text


def shown_commands() -> list[tuple[str, str]]:
    """(page, command line) of every `ctx ...` that a page shows as code."""
    commands = []
    for page in PAGES:
        text = page.read_text()
        fenced = "".join(re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL))
        lines = re.findall(r"`(ctx [^`\n]+)`", text) + re.findall(
            r"^(?:\$ )?(ctx [a-z][^\n#]*)", fenced, re.MULTILINE
        )
        commands += [(page.name, line.strip()) for line in lines]
    return commands


@cache
def help_of(command: str) -> str:
    process = ctx(*command.split(), "--help", cwd=Path("/"))
    assert process.returncode == 0, process.stderr
    return process.stdout


def mistakes(line: str) -> list[str]:
    """The command or flags of a command line that ctx does not have."""
    words = line.split()[1:]
    command = next((word for word in words if not word.startswith("-")), None)
    if command is None or not re.fullmatch(r"[a-z]+", command):
        return []
    if command not in COMMANDS and command not in OLDER:
        return [f"no command {command}"]
    text = help_of(command)
    action = next(iter(words[words.index(command) + 1 :]), "")
    if (
        re.fullmatch(r"[a-z][a-z-]*", action)
        and re.search(rf"[{{|, ]{action}[}}|,\s]", text)
        and "..." in text
    ):
        text += help_of(f"{command} {action}")
    flags = re.findall(r"(?<![\w-])--[a-z][a-z-]*", line.split("&&")[0])
    return [f"no flag {flag}" for flag in flags if flag not in text and flag not in ("--help", "--version")]


@pytest.mark.slow
def test_every_command_and_flag_in_the_docs_exists() -> None:
    commands = shown_commands()
    assert len(commands) > 20
    failures = [f"{page}: `{line}`: {reason}" for page, line in commands for reason in mistakes(line)]
    assert not failures, "\n".join(failures)


def test_links_between_the_pages_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            path = page.parent / target.split("#")[0]
            if target.startswith(REPOSITORY):
                path = ROOT / target.removeprefix(REPOSITORY).split("#")[0]
            elif "://" in target or target.startswith("#"):
                continue
            if not path.exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken, "\n".join(broken)


def test_the_site_has_every_page_and_no_page_leaves_it_by_a_relative_link() -> None:
    """Within the site links are relative; what lies outside docs/ has a whole address, or the site would lack
    it.
    """
    docs = ROOT / "docs"
    listed = re.findall(r'"([\w/.-]+\.md)"', (ROOT / ".ci" / "zensical.toml").read_text())
    assert sorted(listed) == sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))
    for page in docs.rglob("*.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)\s]+)\)", page.read_text()):
            assert (page.parent / target).resolve().is_relative_to(docs), f"{page.name}: {target}"


def test_the_repository_is_called_the_same_everywhere() -> None:
    owner, name = PROJECT["urls"]["Homepage"].removeprefix("https://github.com/").split("/")
    assert json.loads((ROOT / ".ci" / "server.json").read_text())["name"] == f"io.github.{owner}/{name}"
    assert all(
        address.startswith(f"https://github.com/{owner}/{name}") for address in PROJECT["urls"].values()
    )
    settings = tomllib.loads((ROOT / ".ci" / "zensical.toml").read_text())["project"]
    assert [place["link"] for place in settings["extra"]["social"]] == [PROJECT["urls"]["Homepage"]]
    assert "repo_url" not in settings  # the theme would ask its host about it


def test_the_folders_that_are_never_entered_are_all_named() -> None:
    page = (ROOT / "docs" / "formats.md").read_text()
    section = page.split("## Which files, by default")[1].split("\n## ")[0]
    (folders,) = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    assert set(folders.split()) == SKIPPED_FOLDERS
    names = {*CACHE_MARKERS, *BUILD_FOLDERS, *(name for names in BUILD_FOLDERS.values() for name in names)}
    assert names <= set(re.findall(r"`([^`\s]+)`", section))


# -- entries for MCP registries and clients -------------------------------------------------------------------


def test_the_registry_entry_names_this_package_and_version() -> None:
    entry = json.loads((ROOT / ".ci" / "server.json").read_text())
    package = entry["packages"][0]
    assert entry["version"] == package["version"] == __version__
    assert package["identifier"] == PROJECT["name"]
    assert package["identifier"] in PROJECT["scripts"]  # `uvx NAME` runs the program of that name
    assert package["packageArguments"][0]["value"] == "mcp"
    assert len(entry["description"]) <= 100
    assert f"mcp-name: {entry['name']}" in (ROOT / "README.md").read_text()


def test_the_checkouts_own_entry_is_what_connect_writes(tmp_path: Path) -> None:
    project(tmp_path, {"note.md": "# Note\n"})
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # of the command that the entry names
    completed = ctx(
        "connect",
        "claude-code",
        "--scope",
        "project",
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": path},
    )
    assert completed.returncode == 0, completed.stderr
    assert json.loads((tmp_path / ".mcp.json").read_text()) == json.loads((ROOT / ".mcp.json").read_text())


# -- pictures: each view of the page has a light and a dark one, the terminal has one ------------------------

IMAGES = ROOT / "docs" / "images"


def views() -> list[str]:
    text = (ROOT / ".ci" / "screenshots.py").read_text()
    return re.findall(r'^    "(\w+)": \("#/', text, re.MULTILINE)


def test_every_view_has_a_light_and_a_dark_picture_on_its_page_and_there_is_no_other() -> None:
    names = {f"{view}-{scheme}.webp" for view in views() for scheme in ("light", "dark")}
    page = (ROOT / "docs" / "page.md").read_text()
    assert len(names) == 16
    assert {path.name for path in IMAGES.iterdir()} == names | {"terminal.svg"}
    shown = re.findall(r"\(images/([\w.-]+-(light|dark)\.webp)#gh-(light|dark)-mode-only\)", page)
    assert {name for name, _, _ in shown} == names
    assert all(scheme == mode for _, scheme, mode in shown)  # the one that suits what is around it


def test_every_view_of_the_page_is_photographed() -> None:
    sections = re.findall(r'id="view-(\w+)"', (ROOT / "ctx" / "server" / "page" / "index.html").read_text())
    assert {"doc" if view == "document" else view for view in views()} == set(sections)

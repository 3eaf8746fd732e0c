"""The documentation is held to the code: its keys, its commands, its flags."""

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import tomli
from jsonschema import Draft202012Validator
from kit import ROOT, ctx

from ctx.cli import COMMANDS
from ctx.settings import NAMED_SECTIONS, SECTIONS

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()


def test_the_reference_the_example_and_the_schema_follow_from_the_declared_keys() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "scripts" / "configuration.py", "--check"], capture_output=True, text=True
    )
    assert check.returncode == 0, check.stderr


@pytest.mark.parametrize("table", [*SECTIONS, *NAMED_SECTIONS, "memory.llm"])
def test_every_table_has_its_place_in_the_reference(table: str) -> None:
    place = "tools.script" if table == "agents.script" else table
    assert f"<!-- keys: {place} -->" in CONFIGURATION


def test_the_schema_takes_the_example_and_refuses_what_the_code_refuses() -> None:
    validator = Draft202012Validator(json.loads((ROOT / "config" / "ctx.schema.json").read_text()))
    example = (ROOT / "config" / "ctx.toml").read_text()
    assert list(validator.iter_errors(tomli.loads(example))) == []
    for text in ("[server]\nbnid = 1", "[retrieval]\nfinal_limit = 0", "[connectors.git.x]\nbranch = 'main'"):
        assert list(validator.iter_errors(tomli.loads(text))), text


def told() -> list[tuple[str, str]]:
    """(page, command line) of every `ctx ...` that a page shows as code."""
    found = []
    for page in PAGES:
        text = page.read_text()
        fenced = "".join(re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL))
        lines = re.findall(r"`(ctx [^`\n]+)`", text) + re.findall(
            r"^(?:\$ )?(ctx [a-z][^\n#]*)", fenced, re.MULTILINE
        )
        found += [(page.name, line.strip()) for line in lines]
    return found


@cache
def help_of(command: str) -> str:
    said = ctx(*command.split(), "--help", cwd=Path("/"))
    assert said.returncode == 0, said.stderr
    return said.stdout


@pytest.mark.slow
def test_every_command_and_flag_in_the_docs_exists() -> None:
    assert len(told()) > 20
    wrong = []
    for page, line in told():
        words = line.split()[1:]
        command = next((word for word in words if not word.startswith("-")), None)
        if command is None or not re.fullmatch(r"[a-z]+", command):
            continue
        if command not in COMMANDS:
            wrong.append(f"{page}: `{line}`: no command {command}")
            continue
        about = help_of(command)
        after = words[words.index(command) + 1 :]
        action = (
            after[0]
            if after and re.fullmatch(r"[a-z]+", after[0]) and re.search(rf"[{{|, ]{after[0]}[}}|, ]", about)
            else None
        )
        if action and "..." in about:
            about += help_of(f"{command} {action}")
        flags = re.findall(r"(?<![\w-])--[a-z][a-z-]*", line)
        wrong += [
            f"{page}: `{line}`: no flag {flag}"
            for flag in flags
            if flag not in about and flag not in ("--help", "--version")
        ]
    assert not wrong, "\n".join(wrong)


def test_links_between_the_pages_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if "://" not in target and not target.startswith("#"):
                path = (page.parent / target.split("#")[0]).resolve()
                if not path.exists():
                    broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken, "\n".join(broken)

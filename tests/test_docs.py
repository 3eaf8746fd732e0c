"""The documentation is held to the code: its keys, its commands, its flags."""

import re
from functools import cache
from pathlib import Path

import pytest
from kit import ROOT, ctx

from ctx import config
from ctx.cli import COMMANDS

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()
EXAMPLE = (ROOT / "config" / "ctx.toml").read_text()


def keys() -> dict[str, set[str]]:
    """Table -> its keys, as the code has them."""
    found = {name: set(rules) for name, rules in config._SECTIONS.items()}
    found["connectors.filesystem"] = set(config._FILESYSTEM)
    found["connectors.git"] = set(config._GIT)
    found["connectors.script"] = set(config._SCRIPT_CONNECTOR)
    found["tools.script"] = set(config._SCRIPT)
    found["agents.inline"] = set(config._INLINE)
    found["memory.llm"] = set(config._LLM)
    return found


@pytest.mark.parametrize("table", sorted(keys()))
def test_every_key_is_in_the_reference(table: str) -> None:
    missing = [key for key in keys()[table] if not re.search(rf"[`. ,]{key}`", CONFIGURATION)]
    assert not missing, f"docs/configuration.md says nothing of [{table}] {missing}"


@pytest.mark.parametrize("table", sorted(config._SECTIONS))
def test_every_key_is_in_the_example(table: str) -> None:
    assert f"[{table}]" in EXAMPLE
    missing = [
        key for key in config._SECTIONS[table] if not re.search(rf"^(?:# )?{key} = ", EXAMPLE, re.MULTILINE)
    ]
    assert not missing, f"config/ctx.toml does not show [{table}] {missing}"


def test_the_reference_names_no_key_that_there_is_not() -> None:
    known = set().union(*keys().values()) | {"max_extract_bytes"}
    named = set()
    for row in re.findall(r"^\| (`.*?) \|", CONFIGURATION, re.MULTILINE):
        for cell in re.findall(r"`([^`]+)`", row):
            if re.fullmatch(r"[a-z_]+", cell):
                named.add(cell)
            elif found := re.fullmatch(r"\[([a-z.]+)\] ([a-z_]+)", cell):
                assert found[2] in keys().get(found[1], set()), f"[{found[1]}] {found[2]}"
    assert named - known == set()


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

"""What a registry offers: its manifest and its files, as a stranger may have written them.

A registry is a git repository with `registry.toml`, or without it the folders `tools/NAME/tool.lua`,
`connectors/NAME/connector.lua` and `agents/NAME/agent.lua`. Nothing of it is believed: an entry that is no
plain file of a plain name below the repository is left out, with a line that says why.
"""

import posixpath
import re
from collections.abc import Container, Iterator, Mapping
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from ctx.config.toml import tables_in
from ctx.errors import ConfigError, SourceError
from ctx.models import JSON, as_table
from ctx.text.strings import one_line
from ctx.tools.toolbox import NAME, NAME_RULE

KINDS = {"tools": "tool", "connectors": "connector", "agents": "agent"}
"""Folder, and table of the manifest -> the kind of script."""

MANIFEST = "registry.toml"
AGENT_SETTINGS = "agent.toml"  # of Context Harness, which lists such an agent and never serves it
MAX_SCRIPTS = 500
MAX_SCRIPT_FILES = 100  # of one script, its templates with it
MAX_PROBLEMS = 100
MAX_WORDS = 20  # of a list of tags, or of keys

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")  # of a path, the same file on every file system
_FILE_MODES = ("100644", "100755")
_MODES = {"120000": "a link", "160000": "a submodule, whose content is elsewhere"}


class Entry(NamedTuple):
    """A file of the repository: git's mode of it, and its object."""

    mode: str
    oid: str


class Offer(NamedTuple):
    """A script of a registry, and which files of the repository it consists of.

    `files`: its name when installed -> its path in the repository. The script itself is `KIND.lua`.
    """

    kind: str
    name: str
    description: str
    tags: tuple[str, ...]
    required_config: tuple[str, ...]
    files: Mapping[str, str]


class Contents(NamedTuple):
    """What a registry says it is, its scripts, and what is left out of it, a sentence each."""

    description: str
    offers: tuple[Offer, ...]
    problems: tuple[str, ...]


def _offer(kind: str, name: str, table: Mapping[str, JSON], files: Mapping[str, str]) -> Offer:
    description = one_line(str(table.get("description") or ""), 300)
    return Offer(
        kind, name, description, _words(table.get("tags")), _words(table.get("required_config")), files
    )


def contents(manifest: bytes | None, entries: Mapping[str, Entry]) -> Contents:
    """What the files of a repository (path -> entry) offer.
    Raises `SourceError` for a manifest that is none.
    """
    tables = _tables(manifest)
    problems: list[str] = []
    offers: dict[tuple[str, str], Offer] = {}
    for kind, name, path, table in _declared(tables, entries):
        label = f"{kind} '{one_line(name, 80)}'"
        if len(offers) >= MAX_SCRIPTS:
            problems.append(f"only the first {MAX_SCRIPTS} scripts are taken")
            break
        fault = _name_fault(name, (kind, name.lower()) in offers) or _settings_fault(name, path, entries)
        fault = fault or _path_fault(path, entries)
        files = {} if fault else _files(kind, path, entries)
        fault = fault or _files_fault(files, entries)
        if fault:
            problems.append(f"{label}: {fault}; it is left out")
        else:
            offers[kind, name.lower()] = _offer(kind, name, table, files)
    description = as_table(tables.get("registry")).get("description")
    ordered = sorted(offers.values(), key=attrgetter("kind", "name"))
    return Contents(one_line(str(description or ""), 300), tuple(ordered), tuple(problems[:MAX_PROBLEMS]))


def _tables(manifest: bytes | None) -> dict[str, JSON]:
    if manifest is None:
        return {}
    try:
        return tables_in(manifest, MANIFEST)
    except ConfigError as error:
        raise SourceError(f"its {one_line(error.message)}") from error


def _declared(
    tables: Mapping[str, JSON], entries: Mapping[str, Entry]
) -> Iterator[tuple[str, str, str, Mapping[str, JSON]]]:
    """(kind, name, path of the script, its table) of each script: as the manifest has it, else as it lies."""
    sections = {folder: tables[folder] for folder in KINDS if isinstance(tables.get(folder), dict)}
    if not sections:
        yield from ((kind, name, path, {}) for kind, name, path in _lying(entries))
    for folder, section in sections.items():
        for name, entry in section.items():
            table = as_table(entry)
            yield KINDS[folder], name, _script_path(folder, name, table), table


def _script_path(folder: str, name: str, table: Mapping[str, JSON]) -> str:
    path = table.get("path")
    path = path if isinstance(path, str) and path else f"{folder}/{name}"
    return path if path.endswith(".lua") else f"{path.rstrip('/')}/{KINDS[folder]}.lua"


def _lying(entries: Mapping[str, Entry]) -> Iterator[tuple[str, str, str]]:
    """(kind, name, path of the script) of each script where a registry without a manifest has it."""
    for path in sorted(entries):
        folder, *inner = path.split("/")
        if folder not in KINDS:
            continue
        # Alone there is a link or a submodule in the place of a script's folder.
        if inner[1:] == [f"{KINDS[folder]}.lua"] or (len(inner) == 1 and entries[path].mode in _MODES):
            yield KINDS[folder], inner[0], path
        elif folder == "agents" and inner[1:] == [AGENT_SETTINGS]:
            script = f"agents/{inner[0]}/agent.lua"
            if script not in entries:
                yield "agent", inner[0], script


def _name_fault(name: str, taken: bool) -> str | None:
    if not NAME.fullmatch(name):
        return NAME_RULE
    return "another has this name, but for upper and lower case" if taken else None


def _settings_fault(name: str, path: str, entries: Mapping[str, Entry]) -> str | None:
    """Why an agent that is settings, and no script, is not taken: what a registry brings is run after a look
    at it, and these belong in the user's own configuration.
    """
    folder = posixpath.dirname(path)
    settings = folder if folder.endswith(f"/{AGENT_SETTINGS}") else f"{folder}/{AGENT_SETTINGS}"
    if path in entries or settings not in entries or not _plain(settings):
        return None
    return (
        f"its {one_line(settings, 100)} holds settings and no script; copy description, tools and "
        f"system_prompt into [agents.inline.{name}] of your ctx.toml"
    )


def _path_fault(path: str, entries: Mapping[str, Entry]) -> str | None:
    """Why the script of this path is not taken; None where it is."""
    label = one_line(path, 100)
    if not _plain(path):
        return f"its path '{label}' is not one of plain names below the registry"
    folder = path
    while folder:
        entry = entries.get(folder)
        if entry is not None and entry.mode in _MODES:
            return f"'{label}' is {_MODES[entry.mode]}"
        folder = posixpath.dirname(folder)
    return None if path in entries else f"there is no file '{label}'"


def _plain(path: str) -> bool:
    return all(_PART.fullmatch(part) and not part.endswith(".") for part in path.split("/"))


def _files(kind: str, path: str, entries: Mapping[str, Entry]) -> dict[str, str]:
    """The files of a script: the folder with it where that is its own (`.../NAME/KIND.lua`), else it
    alone.
    """
    folder, base = posixpath.split(path)
    main = f"{kind}.lua"
    if base != main or "/" not in folder:
        return {main: path}
    prefix = folder + "/"
    return {name[len(prefix) :]: name for name in sorted(entries) if name.startswith(prefix)}


def _file_fault(name: str, mode: str, names: Container[str]) -> str | None:
    if mode not in _FILE_MODES:
        return _MODES.get(mode, "no plain file")
    if not _plain(name):
        return "no plain name"
    return "there twice, but for upper and lower case" if name.lower() in names else None


def _files_fault(files: Mapping[str, str], entries: Mapping[str, Entry]) -> str | None:
    if len(files) > MAX_SCRIPT_FILES:
        return f"it consists of {len(files):,} files, more than {MAX_SCRIPT_FILES}"
    names: set[str] = set()
    for name, path in files.items():
        fault = _file_fault(name, entries[path].mode, names)
        if fault is not None:
            return f"'{one_line(name, 100)}' is {fault}"
        names.add(name.lower())
    # A file in the place of a folder, where case does not count: `Data` beside `data/table.json`.
    if any(folder in names for name in names for folder in accumulate(name.split("/")[:-1], posixpath.join)):
        return "a file and a folder of it have the same name, but for upper and lower case"
    return None


def _words(value: JSON) -> tuple[str, ...]:
    listed = value if isinstance(value, list) else []
    return tuple(one_line(word, 80) for word in listed[:MAX_WORDS] if isinstance(word, str))

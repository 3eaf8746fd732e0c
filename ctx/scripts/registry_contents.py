"""Find the scripts that a registry offers, from its manifest and file names. A stranger may have written
them.

A registry is a git repository with `registry.toml`, or with the folders `tools/NAME/tool.lua`,
`connectors/NAME/connector.lua` and `agents/NAME/agent.lua`. A script that is not made of plain files with
plain names is left out, with a message that says why.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from ctx.config.toml import tables_in
from ctx.errors import ConfigError, SourceError
from ctx.models import JSON, as_table
from ctx.text.strings import one_line
from ctx.tools.toolbox import NAME, NAME_RULE

KINDS = {"tools": "tool", "connectors": "connector", "agents": "agent"}
"""Folder of a registry (also the name of the table in its manifest) -> kind of script."""

MANIFEST = "registry.toml"
AGENT_SETTINGS = "agent.toml"  # an agent without a script in Context Harness
MAX_SCRIPTS = 500
MAX_SCRIPT_FILES = 100  # per script, including its templates
MAX_PROBLEMS = 100
MAX_LIST = 20  # entries in `tags` and in `required_config`

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")  # part of a path, portable to every file system
_FILE_MODES = ("100644", "100755")
_OTHER_MODES = {"120000": "a link", "160000": "a submodule, whose content is elsewhere"}


class Entry(NamedTuple):
    """A file in the repository: its mode and its object id in git."""

    mode: str
    oid: str


class Offer(NamedTuple):
    """A script that a registry offers."""

    kind: str
    name: str
    description: str
    tags: tuple[str, ...]
    required_config: tuple[str, ...]
    files: Mapping[str, str]  # path when installed -> path in the repository; `KIND.lua` is the script


class Contents(NamedTuple):
    """A registry's description, the scripts it offers, and a message for each script that is left out."""

    description: str
    offers: tuple[Offer, ...]
    problems: tuple[str, ...]


def contents(manifest: bytes | None, entries: Mapping[str, Entry]) -> Contents:
    """The scripts that a repository offers. `entries` maps paths to entries. Raises `SourceError` for an
    invalid manifest.
    """
    try:
        tables = {} if manifest is None else tables_in(manifest, MANIFEST)
    except ConfigError as error:
        raise SourceError(f"its {one_line(error.message)}") from error
    problems: list[str] = []
    offers: dict[tuple[str, str], Offer] = {}
    for kind, name, path, table in _listed(tables, entries):
        if len(offers) >= MAX_SCRIPTS:
            problems.append(f"only the first {MAX_SCRIPTS} scripts are taken")
            break
        fault = _name_fault(name, (kind, name.lower()) in offers) or _path_fault(name, path, entries)
        files = {} if fault else _files(kind, path, entries)
        fault = fault or _files_fault(files, entries)
        if fault:
            problems.append(f"{kind} '{one_line(name, 80)}': {fault}; it is left out")
            continue
        tags, required = _texts(table.get("tags")), _texts(table.get("required_config"))
        offers[kind, name.lower()] = Offer(kind, name, _description(table), tags, required, files)
    ordered = sorted(offers.values(), key=attrgetter("kind", "name"))
    description = _description(as_table(tables.get("registry")))
    return Contents(description, tuple(ordered), tuple(problems[:MAX_PROBLEMS]))


def _listed(
    tables: Mapping[str, JSON], entries: Mapping[str, Entry]
) -> Iterator[tuple[str, str, str, Mapping[str, JSON]]]:
    """(kind, name, path, table) of each script in the manifest; if it lists none, of the scripts found by
    file names.
    """
    sections = {folder: as_table(tables[folder]) for folder in KINDS if isinstance(tables.get(folder), dict)}
    if not sections:
        yield from ((kind, name, path, {}) for kind, name, path in _found(entries))
    for folder, section in sections.items():
        for name, entry in section.items():
            table = as_table(entry)
            path = table.get("path")
            path = path if isinstance(path, str) and path else f"{folder}/{name}"
            script = path if path.endswith(".lua") else f"{path.rstrip('/')}/{KINDS[folder]}.lua"
            yield KINDS[folder], name, script, table


def _found(entries: Mapping[str, Entry]) -> Iterator[tuple[str, str, str]]:
    """(kind, name, path) of each script in the folders of a registry whose manifest lists none."""
    for path in sorted(entries):
        folder, *inner = path.split("/")
        if folder not in KINDS:
            continue
        # A link or a submodule in place of a script's folder is reported later.
        if inner[1:] == [f"{KINDS[folder]}.lua"] or (len(inner) == 1 and entries[path].mode in _OTHER_MODES):
            yield KINDS[folder], inner[0], path
        elif folder == "agents" and inner[1:] == [AGENT_SETTINGS]:
            script = f"agents/{inner[0]}/agent.lua"
            if script not in entries:
                yield "agent", inner[0], script


def _name_fault(name: str, taken: bool) -> str | None:
    if not NAME.fullmatch(name):
        return NAME_RULE
    return "another script has this name in upper or lower case" if taken else None


def _path_fault(name: str, path: str, entries: Mapping[str, Entry]) -> str | None:
    """The reason why the script at this path is left out; None if the path is fine."""
    label = one_line(path, 100)
    if not _plain(path):
        return f"its path '{label}' does not consist of plain names below the registry"
    for folder in accumulate(path.split("/"), posixpath.join):
        entry = entries.get(folder)
        if entry is not None and entry.mode in _OTHER_MODES:
            return f"'{label}' is {_OTHER_MODES[entry.mode]}"
    if path in entries:
        return None
    folder = posixpath.dirname(path)
    settings = folder if folder.endswith(f"/{AGENT_SETTINGS}") else f"{folder}/{AGENT_SETTINGS}"
    if settings in entries:
        return (
            f"its {one_line(settings, 100)} has settings and no script; copy description, tools and "
            f"system_prompt into [agents.inline.{name}] of your ctx.toml"
        )
    return f"there is no file '{label}'"


def _plain(path: str) -> bool:
    return all(_PART.fullmatch(part) and not part.endswith(".") for part in path.split("/"))


def _files(kind: str, path: str, entries: Mapping[str, Entry]) -> dict[str, str]:
    """The files of a script, path when installed -> path in the repository: its whole folder if it has its
    own (`.../NAME/KIND.lua`), else only the script.
    """
    folder, base = posixpath.split(path)
    main = f"{kind}.lua"
    if base != main or "/" not in folder:
        return {main: path}
    prefix = folder + "/"
    return {name[len(prefix) :]: name for name in sorted(entries) if name.startswith(prefix)}


def _files_fault(files: Mapping[str, str], entries: Mapping[str, Entry]) -> str | None:
    if len(files) > MAX_SCRIPT_FILES:
        return f"it has {len(files):,} files, more than {MAX_SCRIPT_FILES}"
    names: set[str] = set()
    for name, path in files.items():
        label, mode = one_line(name, 100), entries[path].mode
        if mode not in _FILE_MODES:
            return f"'{label}' is {_OTHER_MODES.get(mode, 'not a plain file')}"
        if not _plain(name):
            return f"'{label}' is not a plain name"
        if name.lower() in names:
            return f"'{label}' is there twice, in upper and lower case"
        names.add(name.lower())
    # On a file system that ignores case, `Data` and `data/table.json` conflict.
    if any(folder in names for name in names for folder in accumulate(name.split("/")[:-1], posixpath.join)):
        return "one of its files and one of its folders have the same name in upper or lower case"
    return None


def _description(table: Mapping[str, JSON]) -> str:
    return one_line(str(table.get("description") or ""), 300)


def _texts(value: JSON) -> tuple[str, ...]:
    entries = value if isinstance(value, list) else []
    return tuple(one_line(entry, 80) for entry in entries[:MAX_LIST] if isinstance(entry, str))

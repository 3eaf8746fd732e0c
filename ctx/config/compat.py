"""Reads configurations of Context Harness, converts them to ctx's format, and suggests the right key for a
wrong one.
"""

import os
import re
import sqlite3
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing

from ctx import files
from ctx.config.settings import NAMED_SECTIONS, SECTIONS, Llm
from ctx.config.toml import keys_of, toml_key, toml_value
from ctx.models import JSON, as_table, plain_entries
from ctx.text.strings import did_you_mean, nearest

Table = dict[str, JSON]

# A key of Context Harness (up to v0.8) that has no effect in ctx -> the reason, for a warning.
WITHOUT_EFFECT = {
    "vector_index": "the vector index needs no settings; delete the section",
    "registries": "`ctx registry install NAME URL` installs a registry; delete the section",
    "retrieval.group_by": "results are always grouped by document; delete the key",
    "retrieval.doc_agg": "the best chunk of a document decides; delete the key",
    "server.search_processes": "use `ctx serve --workers N`; delete the key",
}
RENAMED = {"connectors.filesystem.max_extract_bytes": "max_file_bytes"}

_ITS_TABLES = frozenset({"documents", "chunks"})  # SQL tables in a database of Context Harness

# The defaults of Context Harness. Its example file contains these values, so a value that equals its default
# is not counted as the user's choice.
_ITS_DEFAULTS = {
    "chunking.max_tokens": 700,
    "retrieval.final_limit": 12,
    "retrieval.hybrid_alpha": 0.6,
    "retrieval.candidate_k_keyword": 80,
    "retrieval.candidate_k_vector": 80,
}
_ITS_GLOBS = ["**/*.md", "**/*.txt"]
_UNUSED = {"chunking.overlap_tokens", "retrieval.max_chunks_per_doc"}  # Context Harness ignores these keys
_SERVICE_KEYS = ("model", "dims", "batch_size", "url", "max_retries", "timeout_secs")
_VARIABLE_READ = re.compile(r"""\benv\s*\.\s*get\s*\(?\s*["']([A-Za-z_][A-Za-z0-9_]*)["']""")

GENERAL = (
    "documents have new ids, which do not change from now on",
    "every run detects deleted and renamed files and changed dates; files in .gitignore are left out",
    "a search finds documents with any of its words; in Context Harness a passage needed all of them",
    "a server follows changes in its folders, so no timer needs to run `ctx sync`",
)
"""The differences between Context Harness and ctx that do not depend on a key."""


# -- wrong and foreign keys ----------------------------------------------------------------------------------

_MOST_TABLES = 3  # if more tables than this have the key, naming the tables does not help


def key_hint(key: str, table: Mapping[str, JSON], section: str, choices: Collection[str]) -> str:
    """A suggestion, such as `did you mean 'root'?`, for the unknown key or table `key` of a table.

    `section` is the table's name ("" for the top level), and `choices` are its allowed keys.
    """
    is_table = isinstance(table[key], dict) and not section
    groups = [name for name in NAMED_SECTIONS if name.endswith(f".{key}")] if is_table else []
    return f"did you mean [{'] or ['.join(groups)}]?" if groups else did_you_mean(key, choices)


def tables_with(key: str, table: Mapping[str, JSON], choices: Collection[str]) -> list[str]:
    """The names of the other tables that allow the unknown key `key`; empty if the key looks like a
    misspelling.
    """
    if isinstance(table[key], dict) or key == "name" or nearest(key, choices):
        return []
    tables = [
        *(name for name, section in {**SECTIONS, "memory.llm": Llm}.items() if key in keys_of(section)),
        *(f"{name}.NAME" for name, section in NAMED_SECTIONS.items() if key in keys_of(section)),
    ]
    return tables if len(tables) <= _MOST_TABLES else []


# -- files of Context Harness --------------------------------------------------------------------------------


def own_database(path: str) -> str:
    """The catalog's path if `[db] path` is `path`. This is `PATH.ctx` if a database of Context Harness is at
    `path`, else `path`.

    If a catalog at `PATH.ctx` exists, it is used even if the database of Context Harness was deleted. Writes
    nothing.
    """
    neighbour = f"{path}.ctx"
    return neighbour if os.path.isfile(neighbour) or _is_its_database(path) else path


def _is_its_database(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    try:  # with `immutable=1`, SQLite creates no lock file and no log next to the other program's database
        with closing(sqlite3.connect(files.sqlite_address(path, "immutable=1"), uri=True)) as connection:
            rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    except sqlite3.Error:
        return False
    tables = {name for (name,) in rows}
    # A file with the table `meta` is our own catalog, before its first checkpoint.
    return tables >= _ITS_TABLES and "meta" not in tables


def base_folder(tables: Table, root: str) -> str:
    """The folder to which the paths in a configuration are relative.

    This is the project's `root`, unless none of the paths exists there and all of them exist in a folder
    above it. (Paths of Context Harness are relative to the folder in which it was started.) Folders that
    everybody may write to, such as /tmp, are excluded. Call this only for a file that the user chose, because
    an untrusted file must not reach above its project.
    """
    paths = [path for path in _needed_paths(tables) if not os.path.isabs(path) and path[:1] not in ("~", "$")]
    if not paths or any(os.path.exists(os.path.join(root, path)) for path in paths):
        return root
    folder = os.path.dirname(root)
    while folder != os.path.dirname(folder) and not os.stat(folder).st_mode & stat.S_IWOTH:
        if all(os.path.exists(os.path.join(folder, path)) for path in paths):
            return folder
        folder = os.path.dirname(folder)
    return root


def _needed_paths(tables: Table) -> Iterator[str]:
    """The paths of the folders and scripts that a configuration names."""
    for group, kind, key in (
        ("connectors", "filesystem", "root"),
        ("connectors", "script", "path"),
        ("tools", "script", "path"),
        ("agents", "script", "path"),
    ):
        for _, table in _instances(tables, group, kind):
            path = table.get(key)
            if isinstance(path, str) and path and "\0" not in path:
                yield path


# -- conversion ----------------------------------------------------------------------------------------------


def converted(
    tables: Table, base: str, root: str, read_script: Callable[[str], str]
) -> tuple[str, list[str]]:
    """The text of a Context Harness configuration in ctx's format, and notes on what changed its meaning.

    The paths in `tables` are relative to the folder `base`, those in the text to `root`. `read_script(path)`
    returns the text of a script, or "" if it cannot be read. It is searched for the names of environment
    variables, which the new configuration allows the script to read.
    """
    blocks = ["# Made by `ctx import context-harness`; every key: docs/configuration.md\n"]
    notes: list[str] = []

    def add(name: str, entries: Table) -> None:
        if entries:
            lines = [f"{toml_key(key)} = {toml_value(value)}" for key, value in entries.items()]
            blocks.append("\n".join([f"[{name}]", *lines, ""]))

    if path := as_table(tables.get("db")).get("path"):
        notes.append(
            f"[db] path: {path} is not read and not changed; ctx builds .ctx/ctx.db from the sources"
        )
    for name in ("chunking", "retrieval"):
        add(name, _chosen(tables, name))
    if "max_tokens" in _chosen(tables, "chunking"):
        notes.append(
            "[chunking] max_tokens counts the model's tokens; Context Harness counts four bytes as one"
        )
    add("embedding", _embedding(as_table(tables.get("embedding"))))
    if bind := as_table(tables.get("server")).get("bind"):
        add("server", {"bind": bind})
    for full, section in NAMED_SECTIONS.items():
        group, _, kind = full.partition(".")
        for name, table in _instances(tables, group, kind):
            label, entries = f"{full}.{name}", dict(table)
            if kind == "script":
                notes += _script(entries, label, base, root, read_script)
            else:
                entries = {key: value for key, value in table.items() if key in keys_of(section)}
                notes += _source(entries, table, label, base, root) if group == "connectors" else ()
            add(f"{full}.{toml_key(name)}", entries)
    if any(as_table(tables.get(group)).get("script") for group in ("connectors", "tools", "agents")):
        notes.append(
            "scripts run in a sandbox without os, io and require of files; HTTP reaches the public internet "
            "and the hosts in `allow_hosts`"
        )
    return "\n".join(blocks), [*notes, *_ignored(tables), *GENERAL]


def _ignored(tables: Table) -> Iterator[str]:
    """Notes on the keys of Context Harness that have no effect in ctx."""
    for name, reason in WITHOUT_EFFECT.items():
        outer, _, inner = name.partition(".")
        if outer in tables and (not inner or inner in as_table(tables[outer])):
            label = f"[{outer}] {inner}" if inner else f"[{outer}]"
            yield f"{label} is left out: {reason.partition(';')[0]}"


def _instances(tables: Table, group: str, kind: str) -> Iterator[tuple[str, Table]]:
    """(name, table) of all tables of a kind. A table without a name gets the kind as its name."""
    table = as_table(as_table(tables.get(group)).get(kind))
    if unnamed := plain_entries(table):
        yield kind, unnamed
    yield from ((key, value) for key, value in table.items() if isinstance(value, dict))


def _chosen(tables: Table, name: str) -> Table:
    """The keys of a section that ctx also has and whose values differ from Context Harness's defaults."""
    chosen = {
        key: value
        for key, value in as_table(tables.get(name)).items()
        if key in keys_of(SECTIONS[name])
        if f"{name}.{key}" not in _UNUSED and value != _ITS_DEFAULTS.get(f"{name}.{key}")
    }
    if isinstance(limit := chosen.get("final_limit"), int):
        chosen["final_limit"] = min(100, limit)  # the maximum of ctx
    return chosen


def _embedding(table: Table) -> Table:
    provider = table.get("provider", "disabled")  # the default of Context Harness
    if provider in ("ollama", "openai"):
        entries = {"provider": provider} | {key: table[key] for key in _SERVICE_KEYS if key in table}
        return {**entries, "api_key_env": "OPENAI_API_KEY"} if provider == "openai" else entries
    model = table.get("model") if provider == "local" else None
    return {"provider": provider} | ({"model": model} if model else {})


def _moved(path: JSON, base: str, root: str) -> JSON:
    """A path from the old file, rewritten for the new file."""
    if not isinstance(path, str) or base == root or os.path.isabs(path) or path[:1] in ("~", "$"):
        return path
    relative = os.path.relpath(os.path.join(base, path), root)
    return relative if relative.startswith("..") else f"./{relative}"


def _script(
    entries: Table, label: str, base: str, root: str, read_script: Callable[[str], str]
) -> Iterator[str]:
    """Rewrites the path of a script, and allows it the environment variables in its text. Yields notes."""
    path = entries.get("path")
    if not isinstance(path, str):
        return
    entries["path"] = _moved(path, base, root)
    text = read_script(os.path.join(base, os.path.expanduser(path)))
    variables = sorted(set(_VARIABLE_READ.findall(text)))
    if variables and "env" not in entries:
        entries["env"] = variables
        yield f"[{label}] may read only these variables: {', '.join(variables)}"


def _source(entries: Table, table: Table, label: str, base: str, root: str) -> Iterator[str]:
    """Rewrites the keys of a source so that they mean the same in ctx. Yields notes."""
    entries.setdefault("include_globs", _ITS_GLOBS)
    if "root" in entries and label.startswith("connectors.filesystem."):
        entries["root"] = _moved(entries["root"], base, root)
    for key in ("include_globs", "exclude_globs"):
        globs = entries.get(key)
        if not isinstance(globs, list) or not all(isinstance(glob, str) for glob in globs):
            continue
        entries[key] = [_crossing(glob) for glob in globs]
        if entries[key] != globs:
            yield f"[{label}] {key}: `*` crossed folders in Context Harness; ctx needs `**/`"
    if "max_extract_bytes" in table:
        entries["max_file_bytes"] = table["max_extract_bytes"]
    if label.startswith("connectors.git."):
        entries.setdefault("branch", "main")
        if isinstance(url := entries.get("url"), str) and ":" not in url:
            entries["url"] = _moved(url, base, root)
        if entries.pop("cache_dir", None) is not None:
            yield f"[{label}] cache_dir is left out: clones are in your own cache folder"


def _crossing(glob: str) -> str:
    """The glob for ctx that matches the same files as in Context Harness, where `*` also matches `/`:
    `docs/**/*.md` for `docs/*.md`.
    """
    folder, slash, name = glob.rpartition("/")
    if not slash or "*" not in name or name == "**" or folder.endswith("**"):
        return glob
    return f"{folder}/**/{name}"

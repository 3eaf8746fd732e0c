"""List what a configuration needs the user's trust for (`ctx trust`).

A configuration that was found in a folder may come from a stranger, in a clone or an archive. Keys that
settings.py declares safe need no trust; guarded and unknown keys do. No variable is looked up and no file is
opened.
"""

import os
from collections.abc import Callable, Iterator

from ctx.config.compat import RENAMED, WITHOUT_EFFECT
from ctx.config.keys import Key, keys_of
from ctx.config.settings import (
    LOOPBACK_HOSTS,
    NAMED_SECTIONS,
    SECTIONS,
    Llm,
    PackSettings,
    Script,
    is_shipped_model,
)
from ctx.connectors.forges import is_path
from ctx.models import JSON, as_table, plain_entries

Table = dict[str, JSON]

CLOSED = (".git", ".ctx")  # folders of a project that hold keys and are not documents
_MAX_PATH = 4096  # characters
_READABLE = 200  # characters of a path; the question shows twice as many of a line

# What a guarded key does, after "it": `{0}` is its value, `{url}` the table's `url`, `{who}` the script.
_WORDS = {
    "db.path": "keeps its database at {0}",
    "memory.path": "keeps memories and keys at {0}",
    "store.url": "keeps the documents in the database {0}",
    "index.url": "gives the words and vectors of documents to the search engine {0}",
    "index.ca_file": "trusts the certificates in {0}",
    "embedding.provider": "sends the text of documents to the service of {0}",
    "embedding.model": "loads the model {0}",
    "embedding.url": "sends the text of documents to {0}",
    "embedding.api_key_env": "reads the environment variable {0}",
    "server.bind": "listens on {0}, for other machines too",
    "server.allowed_hosts": "opens the server to {0}",
    "server.allowed_origins": "opens the server to {0}",
    "server.api_key_env": "reads the environment variable {0}",
    "lua.tools_dir": "runs every script in the folder {0}",
    "memory.llm.api_key_env": "reads the environment variable {0}",
    "connectors.filesystem.root": "reads the folder {0}",
    "connectors.git.url": "reads the repository {0}",
    "connectors.git.cache_dir": "keeps copies of repositories in {0}",
    "connectors.git.submodules": "reads the submodules of {url}, whose addresses that repository chooses",
    "connectors.git.lfs": "runs `git lfs` to fetch the large files of {url}",
    "connectors.web.url": "reads the site {0}",
    "connectors.web.allow_hosts": "reaches {0}",
    "connectors.web.robots": "ignores robots.txt of {url}",
    "script.env": "reads the variables {0} (as the {who})",
    "script.allow_hosts": "reaches {0} (as the {who})",
    "script.fs": "reads the folders {0} (as the {who})",
    "script.calls": "calls the tools {0} (as the {who})",
    "script.memory_bank": "reads and changes the memories of the bank {0} (as the {who})",
    "pack.api_key_env": "reads the environment variable {0}",
}
# One line covers the whole table (`_memory`, `_bucket`, `_script`), and its guarded keys without words.
_WHOLE = ("memory.llm", "connectors.s3", "script")
_ONLY_OUTSIDE = {  # these paths need trust only outside the project, or in folders of these names
    "db.path": (".git",),
    "index.ca_file": (".git",),
    "connectors.filesystem.root": CLOSED,
}


def requests(tables: Table, root: str) -> list[str]:
    """What the configuration of the project at `root` does that needs trust, one line each."""
    lines = [f"reads the environment variable {name}" for name in sorted(set(variables(tables)))]
    for name, value in tables.items():
        table = as_table(value)
        if name in WITHOUT_EFFECT:
            continue
        if name in ("connectors", "tools", "agents"):
            for kind, entries in table.items():
                lines += _named(f"{name}.{kind}", as_table(entries), root)
        elif name == "packs":
            lines += _packs(table, root)
        elif name == "memory":
            lines += _memory(table, root)
        elif name in SECTIONS:
            lines += _keys(name, table, keys_of(SECTIONS[name]), root)
        else:
            lines += [f"sets [{name}] {key}" for key in table]
    return lines + led_out(tables, root) if lines else lines


def asked(content: bytes, tables: Table, root: str) -> bytes:
    """What the user trusts with a configuration: its text, and the targets of links out of the project.

    A pull can change the links without changing the text.
    """
    return b"\0".join([content, *(os.fsencode(line) for line in led_out(tables, root))])


def led_out(tables: Table, root: str) -> list[str]:
    """A line for each path with a link that leads out of the project or into one of its closed folders.

    Absolute paths are included: `/proc/self/cwd/docs` is a folder of the project until it becomes a link.
    """
    lines = []
    for text in sorted(set(_texts(tables))):
        path = os.path.normpath(os.path.join(root, os.path.expanduser(text)))
        exists = text and "\0" not in text and len(path) <= _MAX_PATH and os.path.lexists(path)
        if exists and not inside(text, root, CLOSED) and os.path.realpath(path) != path:
            lines.append(f"follows the link {text} to {os.path.realpath(path)}")
    return lines


def variables(value: JSON) -> Iterator[str]:
    """The names in `${NAME}` that the configuration replaces (`$${` is literal)."""
    for text in _texts(value):
        before, *pieces = text.split("${")
        for piece in pieces:
            name, brace, _ = piece.partition("}")
            if brace and name.isidentifier() and not before.endswith("$"):
                yield name
            before = piece


def inside(path: str, root: str, closed: tuple[str, ...]) -> bool:
    """Whether a path, with links resolved, is in the project and not in one of its `closed` folders."""
    if "\0" in path:
        return False  # reported when the configuration is checked
    target = os.path.realpath(os.path.normpath(os.path.join(root, os.path.expanduser(path))))
    parts = os.path.relpath(target, os.path.realpath(root)).split(os.sep)
    return parts[0] != ".." and not any(part.lower() in closed for part in parts)


def _texts(value: JSON) -> Iterator[str]:
    """Every string in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _texts(entry)


# -- tables --------------------------------------------------------------------------------------------------


def _keys(name: str, table: Table, keys: dict[str, Key], root: str, who: str = "") -> Iterator[str]:
    """The lines for the keys of a table. `name` is its name in `_WORDS`."""
    for key, value in table.items():
        full = f"{name}.{key}"
        rule = keys.get(RENAMED.get(full, key))
        if full in WITHOUT_EFFECT or (rule and rule.safe):
            continue
        if rule is None or (full not in _WORDS and name not in _WHOLE):
            yield f"sets [{name}] {key}"
        elif full in _WORDS and value not in ([], rule.default) and _matters(full, value, table, root):
            yield _WORDS[full].format(_readable(value, rule, root), url=_shown(table.get("url")), who=who)


def _matters(full: str, value: JSON, table: Table, root: str) -> bool:
    """Whether a guarded key needs trust with this value, which is not its default."""
    if closed := _ONLY_OUTSIDE.get(full):
        return isinstance(value, str) and not inside(value, root, closed)
    check = _MATTERS.get(full)
    return check is None or check(value, table)


def _is_local(url: JSON, table: Table) -> bool:
    """Whether a repository is on this machine. Even inside the project its `.git` file may point anywhere."""
    return isinstance(url, str) and (url.lower().startswith("file:") or is_path(url))


_MATTERS: dict[str, Callable[[JSON, Table], bool]] = {
    "embedding.provider": lambda value, table: not table.get("url") and value not in ("ollama", "disabled"),
    "embedding.model": lambda value, table: (
        table.get("provider", "local") == "local" and not is_shipped_model(str(value))
    ),
    "server.bind": lambda value, table: str(value).rpartition(":")[0] not in LOOPBACK_HOSTS,
    "connectors.git.url": _is_local,
}


def _named(name: str, table: Table, root: str) -> Iterator[str]:
    """`[connectors.git]` and all `[connectors.git.NAME]`."""
    section = NAMED_SECTIONS.get(name)
    group, _, kind = name.partition(".")
    if section is None:
        yield f"sets [{name}]"
    elif kind == "script":
        for script, entries in table.items():
            who = f"{'source' if group == 'connectors' else group.removesuffix('s')} {script}"
            yield from _script(as_table(entries), who, root)
    else:
        instances = [plain_entries(table), *(value for value in table.values() if isinstance(value, dict))]
        for entries in instances:
            yield from _keys(name, entries, keys_of(section), root)
            if kind == "s3" and "bucket" in entries:
                yield _bucket(entries)


def _script(table: Table, who: str, root: str) -> Iterator[str]:
    path = str(table.get("path"))
    yield f"runs the script {path if len(path) <= _READABLE else os.path.normpath(path)} as the {who}"
    # One line for each grant, so that a very long path cannot hide them.
    keys = keys_of(Script)
    yield from _keys("script", {key: table[key] for key in table if key in keys}, keys, root, who)


def _bucket(table: Table) -> str:
    endpoint = f" at {_shown(table['endpoint_url'])}" if table.get("endpoint_url") else ""
    keys = "" if table.get("anonymous") is True else " with your AWS keys"
    return f"reads the bucket {table['bucket']}{endpoint}{keys}"


def _memory(table: Table, root: str) -> Iterator[str]:
    if "llm" in table:
        llm = as_table(table["llm"])
        yield f"sends memories to {_shown(llm.get('base_url'))}"
        yield from _keys("memory.llm", llm, keys_of(Llm), root)
    plain = {key: table[key] for key in table if key != "llm"}
    yield from _keys("memory", plain, keys_of(SECTIONS["memory"]), root)


def _packs(table: Table, root: str) -> Iterator[str]:
    yield from _keys("packs", plain_entries(table), keys_of(SECTIONS["packs"]), root)
    for pack in table.values():
        yield from _keys("pack", as_table(pack), keys_of(PackSettings), root)


# -- readable values -----------------------------------------------------------------------------------------


def _readable(value: JSON, rule: Key, root: str) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    text = str(value)
    if rule.kind == "urls":
        return ",".join(_shown(url.strip()) for url in text.split(","))
    if "://" in text:
        return _shown(text)
    if len(text) <= _READABLE or "\0" in text:
        return text
    return os.path.realpath(os.path.join(root, os.path.expanduser(text)))  # too long: show its target


def _shown(url: JSON) -> str:
    """An address without secrets: no password, no token in place of a user, no query."""
    scheme, mark, after = str(url).partition("://")
    if not mark:
        return str(url)
    end = next((index for index, char in enumerate(after) if char in "/?#"), len(after))
    userinfo, separator, host = after[:end].rpartition("@")
    path, query, _ = after[end:].partition("?")
    user, password, _ = userinfo.partition(":")
    hidden = not password and scheme.lower() in ("http", "https")  # usually a token
    if "@" in path and not host.rpartition(":")[2].isdigit():  # may be a password with a slash
        host, path = host.partition(":")[0], "/..."
    return f"{scheme}://{'...' if separator and hidden else user}{separator}{host}{path}{query and '?...'}"

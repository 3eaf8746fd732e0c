"""How far a configuration reaches: what it asks for beyond reading its own folder.

A configuration that was found by looking around may come from a stranger, with a clone or an archive.
Whatever is listed here waits for the user's word (`ctx trust`). Keys pass because they are known to be
harmless, so a key that nobody has thought of yet asks. Read from the tables as they were written: no variable
is looked up and no path opened before the answer.
"""

import os
from collections.abc import Callable, Iterator

from ctx.settings import LOOPBACK_HOSTS, SECTIONS, WITHOUT_EFFECT, Filesystem, is_shipped_model
from ctx.types import JSON, as_table, plain_entries

Table = dict[str, JSON]

_ALSO_HARMLESS: dict[str, tuple[str, ...]] = {  # beside what the sections declare
    "connectors.filesystem": ("max_extract_bytes",),
    "pack": ("default_bank", "profile", "rate_limit_per_minute"),  # a pack's own settings
}

CLOSED = (".git", ".ctx")  # folders of a project that are no documents: they hold keys
_MAX_PATH = 4096  # characters
_READABLE = 200  # characters; what asks shows twice as many of a line


def requests(tables: Table, root: str) -> list[str]:
    """What the configuration of the project at `root` asks for, one sentence each; empty where nothing needs
    anybody's word.
    """
    lines = [f"reads the environment variable {name}" for name in sorted(set(variables(tables)))]
    for name, value in tables.items():
        if name in WITHOUT_EFFECT:
            continue
        judge = _SECTIONS.get(name)
        if judge is not None:
            lines += judge(as_table(value), root)
        else:
            lines += _others(name, as_table(value))
    return lines + led_out(tables, root) if lines else lines


def asked(content: bytes, tables: Table, root: str) -> bytes:
    """What the user trusts with a configuration: its text, and where the links lead that its paths name.

    Whoever pulls gets other links without another letter of the text. Where none leads out it is the text
    itself.
    """
    return b"\0".join([content, *(os.fsencode(line) for line in led_out(tables, root))])


def led_out(tables: Table, root: str) -> list[str]:
    """A sentence for each path that a link leads out of the project (or into a closed folder of it).

    Also of one that begins elsewhere: `/proc/self/cwd/docs` is a folder of the project, until that is a link.
    """
    lines = []
    for text in sorted(set(_texts(tables))):
        path = os.path.normpath(os.path.join(root, os.path.expanduser(text)))
        if _is_there(text, path) and not inside(text, root, CLOSED):
            target = os.path.realpath(path)
            if target != path:
                lines.append(f"follows the link {text} to {target}")
    return lines


def _is_there(text: str, path: str) -> bool:
    """Whether a text is a path, and that of something."""
    return bool(text) and "\0" not in text and len(path) <= _MAX_PATH and os.path.lexists(path)


def _texts(value: JSON) -> Iterator[str]:
    """Every text, under whichever key."""
    if isinstance(value, dict):
        for entry in value.values():
            yield from _texts(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _texts(entry)
    elif isinstance(value, str):
        yield value


def harmless(section: str, key: str) -> bool:
    """Whether a key gives nobody anything but the project's own files and remotes. The rest is judged below,
    or asks.
    """
    declared = Filesystem if section == "connectors.filesystem" else SECTIONS.get(section)
    if declared is None:
        from ctx.named_settings import NAMED_SECTIONS  # most projects have folders alone
        from ctx.served_settings import SERVED_SECTIONS

        declared = SERVED_SECTIONS.get(section) or NAMED_SECTIONS.get(section)
    if declared is not None and key in declared.keys and declared.keys[key][1].harmless:
        return True
    return key in _ALSO_HARMLESS.get(section, ())


def _others(section: str, table: Table, judged: tuple[str, ...] = ()) -> Iterator[str]:
    """The keys that are neither harmless nor judged by the caller."""
    for key in table:
        judged_elsewhere = key in judged or f"{section}.{key}" in WITHOUT_EFFECT
        if not judged_elsewhere and not harmless(section, key):
            yield f"sets [{section}] {key}"


def variables(value: JSON) -> Iterator[str]:
    """The names in `${NAME}`, as the configuration replaces them (`$${` is text)."""
    for text in _texts(value):
        before, *pieces = text.split("${")
        for piece in pieces:
            name, brace, _ = piece.partition("}")
            if brace and name.isidentifier() and not before.endswith("$"):
                yield name
            before = piece


# -- paths ---------------------------------------------------------------------------------------------------


def inside(path: str, root: str, closed: tuple[str, ...]) -> bool:
    """Whether a path, links followed, is the project's folder or below it, and not in one of its `closed`
    folders.
    """
    if "\0" in path:
        return False  # no path at all, which is said when it is read
    target = os.path.realpath(os.path.normpath(os.path.join(root, os.path.expanduser(path))))
    relative = os.path.relpath(target, os.path.realpath(root))
    parts = relative.split(os.sep)
    return parts[0] != ".." and not any(part.lower() in closed for part in parts)


def _outside(table: Table, key: str, root: str, verb: str, closed: tuple[str, ...]) -> Iterator[str]:
    path = table.get(key)
    if isinstance(path, str) and not inside(path, root, closed):
        yield f"{verb} {_readable(path, root)}"


def _readable(path: str, root: str) -> str:
    """A path as it was written; one that is too long to be read whole, where it leads."""
    if len(path) <= _READABLE or "\0" in path:
        return path
    return os.path.realpath(os.path.join(root, os.path.expanduser(path)))


def _is_local(url: str) -> bool:
    """Whether what git is to clone is a folder of this machine."""
    from ctx.connectors.forges import is_path  # 10 ms, for a git source alone

    return url.lower().startswith("file:") or is_path(url)


# -- sections ------------------------------------------------------------------------------------------------


def _db(table: Table, root: str) -> Iterator[str]:
    yield from _outside(table, "path", root, "keeps its database at", (".git",))
    yield from _others("db", table, ("path",))


def _store(table: Table, root: str) -> Iterator[str]:
    if table.get("url"):
        yield f"keeps the documents in the database {_shown(str(table['url']))}"
    yield from _others("store", table, ("url",))


def _index(table: Table, root: str) -> Iterator[str]:
    if table.get("url"):
        nodes = ",".join(_shown(url.strip()) for url in str(table["url"]).split(","))
        yield f"gives the words and vectors of documents to the search engine {nodes}"
    yield from _outside(table, "ca_file", root, "trusts the certificates in", (".git",))
    yield from _others("index", table, ("url", "ca_file", "api_key"))


def _shown(url: JSON) -> str:
    """An address as it may stand in a log: without a password, a token in the place of a user, and a query.

    The host is the one that is gone to, whatever stands behind it.
    """
    scheme, mark, after = str(url).partition("://")
    if not mark:
        return str(url)
    end = next((index for index, char in enumerate(after) if char in "/?#"), len(after))
    userinfo, separator, host = after[:end].rpartition("@")
    path, query, _ = after[end:].partition("?")
    user, password, _ = userinfo.partition(":")
    hidden = not password and scheme.lower() in ("http", "https")  # a token mostly stands so
    if "@" in path and not host.rpartition(":")[2].isdigit():  # a password with a slash of its own, perhaps
        host, path = host.partition(":")[0], "/..."
    return f"{scheme}://{'...' if separator and hidden else user}{separator}{host}{path}{query and '?...'}"


def _embedding(table: Table, root: str) -> Iterator[str]:
    provider, model = table.get("provider", "local"), table.get("model")
    if table.get("url"):
        yield f"sends the text of documents to {_shown(table['url'])}"
    elif provider not in ("local", "ollama", "disabled"):
        yield f"sends the text of documents to the service of {provider}"
    if provider == "local" and model and not is_shipped_model(str(model)):
        yield f"loads the model {model}"
    yield from _key(table)
    yield from _others("embedding", table, ("provider", "model", "url", "api_key_env"))


def _key(table: Table) -> Iterator[str]:
    if "api_key_env" in table:
        yield f"reads the environment variable {table['api_key_env']}"


def _server(table: Table, root: str) -> Iterator[str]:
    bind = table.get("bind")
    if isinstance(bind, str) and bind.rpartition(":")[0] not in LOOPBACK_HOSTS:
        yield f"listens on {bind}, for other machines too"
    for key in ("allowed_hosts", "allowed_origins"):
        if table.get(key):
            yield f"opens the server to {_listed(table[key])}"
    yield from _key(table)
    yield from _others("server", table, ("bind", "allowed_hosts", "allowed_origins", "api_key_env"))


def _lua(table: Table, root: str) -> Iterator[str]:
    if "tools_dir" in table:
        yield f"runs every script in the folder {table['tools_dir']}"
    yield from _others("lua", table, ("tools_dir",))


def _memory(table: Table, root: str) -> Iterator[str]:
    if "llm" in table:
        model = as_table(table["llm"])
        yield f"sends memories to {_shown(model.get('base_url'))}"
        yield from _key(model)
    yield from _others("memory", table, ("llm",))


def _packs(table: Table, root: str) -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _key(value)
            if "path" in value:
                yield f"runs the pack {name} from {value['path']}"
            if value.get("env"):
                yield f"reads the variables {_listed(value['env'])} (as the pack {name})"
            if "sessions_file" in value:
                yield f"writes the file {value['sessions_file']} in the home folder"
            yield from _others("pack", value, ("api_key_env", "env", "path", "sessions_file"))
        elif not harmless("packs", name):
            yield f"sets [packs] {name}"


def _connectors(table: Table, root: str) -> Iterator[str]:
    for kind, value in table.items():
        if kind == "script":
            yield from _scripts("source", as_table(value))
        elif kind in _SOURCES:
            for instance in _instances(as_table(value)):
                yield from _SOURCES[kind](instance, root)
        else:
            yield f"sets [connectors.{kind}]"


def _instances(table: Table) -> Iterator[Table]:
    """The unnamed source, whose keys are the table's own, and the named ones."""
    yield plain_entries(table)
    yield from (value for value in table.values() if isinstance(value, dict))


def _folder(table: Table, root: str) -> Iterator[str]:
    yield from _outside(table, "root", root, "reads the folder", CLOSED)
    yield from _others("connectors.filesystem", table, ("root",))


def _repository(table: Table, root: str) -> Iterator[str]:
    url = table.get("url")
    # Also one inside the project: its `.git` may be a file that leads anywhere.
    if isinstance(url, str) and _is_local(url):
        yield f"reads the repository {_shown(url) if '://' in url else _readable(url, root)}"
    if "cache_dir" in table:
        yield f"keeps copies of repositories in {table['cache_dir']}"
    if table.get("submodules"):
        yield f"reads the submodules of {_shown(url)}, which that repository names"
    if table.get("lfs"):
        yield f"has `git lfs` fetch the large files of {_shown(url)}"
    yield from _others("connectors.git", table, ("url", "cache_dir", "submodules", "lfs"))


def _site(table: Table, root: str) -> Iterator[str]:
    if "url" in table:
        yield f"reads the site {_shown(table['url'])}"
    if table.get("allow_hosts"):
        yield f"reaches {_listed(table['allow_hosts'])}"
    if table.get("robots") is False:
        yield f"does not ask {_shown(table.get('url'))} what it forbids robots"
    yield from _others("connectors.web", table, ("url", "allow_hosts", "robots"))


def _bucket(table: Table, root: str) -> Iterator[str]:
    if "bucket" in table:
        endpoint = f" at {_shown(table['endpoint_url'])}" if table.get("endpoint_url") else ""
        keys = "" if table.get("anonymous") is True else " with your AWS keys"
        yield f"reads the bucket {table['bucket']}{endpoint}{keys}"
    yield from _others("connectors.s3", table, ("bucket", "endpoint_url", "prefix", "region", "profile"))


_SOURCES: dict[str, Callable[[Table, str], Iterator[str]]] = {
    "filesystem": _folder,
    "git": _repository,
    "web": _site,
    "s3": _bucket,
}


def _tools(table: Table, root: str) -> Iterator[str]:
    yield from _scripts("tool", as_table(table.get("script")))
    yield from _others("tools", table, ("script",))


def _agents(table: Table, root: str) -> Iterator[str]:
    yield from _scripts("agent", as_table(table.get("script")))
    for value in as_table(table.get("inline")).values():
        yield from _others("agents.inline", as_table(value))
    yield from _others("agents", table, ("script", "inline"))


_GRANTS = (
    ("env", "reads the variables"),
    ("allow_hosts", "reaches"),
    ("fs", "reads the folders"),
    ("calls", "calls the tools"),
)


def _scripts(kind: str, table: Table) -> Iterator[str]:
    for name, value in table.items():
        script = as_table(value)
        path = str(script.get("path"))
        path = path if len(path) <= _READABLE else os.path.normpath(path)
        yield f"runs the script {path} as the {kind} {name}"
        # Each its own line: behind a path without end a grant would be cut off.
        for key, verb in _GRANTS:
            if script.get(key):
                yield f"{verb} {_listed(script[key])} (as the {kind} {name})"


def _listed(value: JSON) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


_SECTIONS: dict[str, Callable[[Table, str], Iterator[str]]] = {
    "db": _db,
    "store": _store,
    "index": _index,
    "embedding": _embedding,
    "server": _server,
    "lua": _lua,
    "memory": _memory,
    "packs": _packs,
    "connectors": _connectors,
    "tools": _tools,
    "agents": _agents,
}

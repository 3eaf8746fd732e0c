"""Reads the scripts that a registry offers, and fetches a registry from git. A stranger may have written it.

A registry is a git repository with `registry.toml`, or with the folders `tools/NAME/tool.lua`,
`connectors/NAME/connector.lua` and `agents/NAME/agent.lua`. A script that is not made of plain files with
plain names is left out, with a message that says why. Files are read from git's objects at one commit,
without a work tree.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import accumulate
from typing import NamedTuple

from ctx.config.settings import MAX_SCRIPT_BYTES, REGISTRY_PREFIX
from ctx.config.toml import tables_in
from ctx.config.trust import digest_of
from ctx.connectors.base import Progress, ScanLog
from ctx.connectors.copies import share
from ctx.connectors.forges import Remote, parse_remote
from ctx.connectors.gitcmd import QUICK_TIMEOUT_S, Blobs, GitFailed
from ctx.connectors.repository import Repository
from ctx.errors import BadRequest, ConfigError, SourceError
from ctx.models import JSON, as_table
from ctx.text.strings import one_line
from ctx.tools.toolbox import NAME, NAME_RULE

KINDS = {"tools": "tool", "connectors": "connector", "agents": "agent"}
"""Folder of a registry (also the name of the table in its manifest) -> kind of script."""

MANIFEST = "registry.toml"
MAX_SCRIPTS = 500
MAX_SCRIPT_FILES = 100  # files of one script, including its templates
MAX_PROBLEMS = 100
MAX_LIST = 20  # entries in `tags`, and entries in `required_config`

TIMEOUT_S = 300.0  # time limit for git; scripts are small
MAX_FILE_BYTES = MAX_SCRIPT_BYTES
MAX_BYTES = 20_000_000  # total size of all scripts of a registry
MAX_ENTRIES = 20_000  # files in the repository
_PARTIAL = f"blob:limit={MAX_FILE_BYTES + 1}"  # larger files are not fetched, if the remote supports it

# One part of a path; such names work on every file system.
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_FILE_MODES = ("100644", "100755")
_OTHER_MODES = {"120000": "a link", "160000": "a submodule, whose content is elsewhere"}


class Entry(NamedTuple):
    """A file in the repository: its mode and its object id in git."""

    mode: str
    oid: str


class RegistryScript(NamedTuple):
    """A script of a registry, with the hashes and sizes of its files."""

    registry: str
    kind: str
    name: str
    description: str
    tags: Sequence[str]
    required_config: Sequence[str]
    files: Mapping[str, str]  # path below the script's folder -> SHA-256
    sizes: Mapping[str, int]  # path below the script's folder -> bytes

    @property
    def path(self) -> str:
        """The script's folder, relative to the registry's folder."""
        return f"{self.kind}s/{self.name}"

    @property
    def reference(self) -> str:
        return f"{REGISTRY_PREFIX}{self.registry}/{self.path}"

    @property
    def digest(self) -> str:
        """The hash over the names and hashes of the script's files."""
        return digest_of(
            "".join(f"{digest}  {name}\n" for name, digest in sorted(self.files.items())).encode()
        )


class Registry(NamedTuple):
    """An installed registry: its address, the commit that is installed, and its scripts."""

    name: str
    url: str
    branch: str | None
    commit: str
    description: str
    scripts: tuple[RegistryScript, ...]


class Contents(NamedTuple):
    """A registry's description, the scripts it offers, and a message for each script that is left out."""

    description: str
    scripts: tuple[RegistryScript, ...]
    files: Mapping[str, Mapping[str, bytes]]  # script (`tools/NAME`) -> path of a file -> its content
    problems: tuple[str, ...]


def contents(registry: str, entries: Mapping[str, Entry], read: Callable[[str], bytes]) -> Contents:
    """The scripts that a repository offers. `entries` maps paths to entries. `read` returns the content of a
    path, and raises `SourceError` if it is too large. Raises `SourceError` for an invalid manifest, and if
    all scripts together are too large.
    """
    tables = _manifest(entries, read)
    problems: list[str] = []
    scripts: dict[tuple[str, str], RegistryScript] = {}
    files: dict[str, dict[str, bytes]] = {}
    bytes_left = MAX_BYTES
    for kind, name, path, table in _listed(tables, entries):
        if len(scripts) >= MAX_SCRIPTS:
            problems.append(f"only the first {MAX_SCRIPTS} scripts are taken")
            break
        try:
            if (kind, name.lower()) in scripts:
                raise SourceError("another script has this name in upper or lower case")
            data = _content(kind, name, path, entries, read)
        except SourceError as error:
            problems.append(f"{kind} '{one_line(name, 80)}': {error.message}; it is left out")
            continue
        sizes = {file: len(content) for file, content in data.items()}
        bytes_left -= sum(sizes.values())
        if bytes_left < 0:
            raise SourceError(f"its scripts are larger than {MAX_BYTES:,} bytes together")
        script = RegistryScript(
            registry=registry,
            kind=kind,
            name=name,
            description=_description(table),
            tags=_texts(table.get("tags")),
            required_config=_texts(table.get("required_config")),
            files={file: digest_of(content) for file, content in data.items()},
            sizes=sizes,
        )
        scripts[kind, name.lower()] = script
        files[script.path] = data
    ordered = sorted(scripts.values(), key=lambda script: (script.kind, script.name))
    description = _description(as_table(tables.get("registry")))
    return Contents(description, tuple(ordered), files, tuple(problems[:MAX_PROBLEMS]))


def _manifest(entries: Mapping[str, Entry], read: Callable[[str], bytes]) -> Mapping[str, JSON]:
    entry = entries.get(MANIFEST)
    if entry is None:
        return {}
    if entry.mode not in _FILE_MODES:
        raise SourceError(f"its {MANIFEST} is not a plain file")
    try:
        return tables_in(read(MANIFEST), MANIFEST)
    except ConfigError as error:
        raise SourceError(f"its {one_line(error.message)}") from error
    except SourceError as error:
        raise SourceError(f"its {MANIFEST} {error.message}") from error


def _content(
    kind: str, name: str, path: str, entries: Mapping[str, Entry], read: Callable[[str], bytes]
) -> dict[str, bytes]:
    """The files of a script: path when installed -> content. Raises `SourceError` if the script cannot be
    offered.
    """
    fault = None if NAME.fullmatch(name) else NAME_RULE
    fault = fault or _path_fault(path, entries)
    files = {} if fault else _files(kind, path, entries)
    fault = fault or _files_fault(files, entries)
    if fault:
        raise SourceError(fault)
    data = {}
    for file, source in files.items():
        try:
            data[file] = read(source)
        except SourceError as error:
            raise SourceError(f"'{one_line(source, 100)}' {error.message}") from error
    return data


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


def _path_fault(path: str, entries: Mapping[str, Entry]) -> str | None:
    """The reason why the script at this path is left out; None if the path is fine."""
    label = one_line(path, 100)
    if not _plain(path):
        return f"its path '{label}' does not consist of plain names below the registry"
    for folder in accumulate(path.split("/"), posixpath.join):
        entry = entries.get(folder)
        if entry is not None and entry.mode in _OTHER_MODES:
            return f"'{label}' is {_OTHER_MODES[entry.mode]}"
    return None if path in entries else f"there is no file '{label}'"


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
    for name, path in files.items():
        label, mode = one_line(name, 100), entries[path].mode
        if mode not in _FILE_MODES:
            return f"'{label}' is {_OTHER_MODES.get(mode, 'not a plain file')}"
        if not _plain(name):
            return f"'{label}' is not a plain name"
    # Some file systems ignore case: there, `Data` and `data/table.json` conflict too.
    names = [name.lower() for name in files]
    folders = {folder for name in names for folder in accumulate(name.split("/")[:-1], posixpath.join)}
    if len(set(names)) < len(names) or not folders.isdisjoint(names):
        return "two of its files or folders have the same name in upper or lower case"
    return None


def _description(table: Mapping[str, JSON]) -> str:
    return one_line(str(table.get("description") or ""), 300)


def _texts(value: JSON) -> tuple[str, ...]:
    entries = value if isinstance(value, list) else []
    return tuple(one_line(entry, 80) for entry in entries[:MAX_LIST] if isinstance(entry, str))


# -- fetching ------------------------------------------------------------------------------------------------


def remote_of(url: str) -> Remote:
    """The git remote for an address. Raises `BadRequest` if git must not use the address or if it contains a
    password.
    """
    try:
        remote = parse_remote(url)
    except ValueError as error:
        raise BadRequest(str(error)) from error
    if remote.confidential:
        raise BadRequest(
            "url: it holds a password, and ctx stores the address of a registry; give git a credential "
            "helper or an SSH key instead"
        )
    return remote


def fetch(
    registry: Registry, branch: str | None, progress: Progress | None = None
) -> tuple[Registry, Contents, bool | None]:
    """Fetch a registry at the newest commit of `branch`, which is a branch, a tag or a full commit id; None
    means the default branch. Returns the registry at that commit, its contents, and whether the installed
    commit is in its history (None if not installed). Raises `BadRequest`, `SourceError`.
    """
    name = registry.name
    repository = Repository(
        f"registry {name}",
        remote_of(registry.url),
        branch=branch,
        partial=_PARTIAL,
        timeout_s=TIMEOUT_S,
        kept="The installed scripts stay",
    )
    repository.git.check_version()
    with repository.copy.locked(TIMEOUT_S) as lock:
        tip = repository.updated(lock, ScanLog(progress))
        if tip is None:
            raise SourceError(f"registry {name}: the repository has no commits")
        share(lock)
        try:
            offered = _read(repository, name, _listing(repository, tip.oid))
        except SourceError as error:
            raise SourceError(f"registry {name}: {error.message}") from error
        follows = _follows(repository, registry.commit, tip.oid) if registry.commit else None
    newest = registry._replace(commit=tip.oid, description=offered.description, scripts=offered.scripts)
    return newest, offered, follows


def _listing(repository: Repository, commit: str) -> dict[str, Entry]:
    """The files of a commit: path -> entry. Names that are not UTF-8 are rejected later."""
    rows = repository.quick(["ls-tree", "-r", "-z", "--full-tree", commit]).split(b"\0")
    if len(rows) > MAX_ENTRIES:
        raise SourceError(f"it has {len(rows) - 1:,} files; a registry may have {MAX_ENTRIES:,}")
    listing = {}
    for row in rows[:-1]:
        head, _, path = row.partition(b"\t")
        mode, _, oid = head.decode().split(" ")
        listing[path.decode("utf-8", "surrogateescape")] = Entry(mode, oid)
    return listing


def _read(repository: Repository, name: str, entries: Mapping[str, Entry]) -> Contents:
    absent = repository.absent()
    with closing(Blobs(repository.git, repository.name)) as blobs:

        def read(path: str) -> bytes:
            oid = entries[path].oid
            if oid in absent:  # git would fetch the object in order to read it
                raise SourceError(f"is larger than {MAX_FILE_BYTES:,} bytes")
            return blobs.read(oid, QUICK_TIMEOUT_S, most=MAX_FILE_BYTES)

        return contents(name, entries, read)


def _follows(repository: Repository, old: str, new: str) -> bool:
    """Whether the old commit is in the history of the new one. If not, the branch was rewritten."""
    try:
        repository.git.run(["merge-base", "--is-ancestor", old, new], timeout_s=QUICK_TIMEOUT_S)
    except GitFailed:
        return False
    return True

"""Finds the folder of a project's memories, which is in the user's data folder and not in the work tree.

Each project has a folder `$XDG_DATA_HOME/ctx/projects/NAME-HASH/` with `memory.db` and `project.json`. NAME
and HASH are computed from the project's real path. `project.json` identifies the project by the first commit
of its repository, or by an id that is also in `.ctx/project-id`. So another project that is later at the same
path does not get these memories.
"""

import hashlib
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from ctx import files, git
from ctx.clock import DAY_MS, now_ms
from ctx.errors import BadRequest, NotFound, StoreError

logger = logging.getLogger(__name__)

MEMORY, KEYS, RECORD, ID = "memory.db", "keys.json", "project.json", "project-id"
_NAME_CHARS = 40
_HOW = "set [memory] path in ctx.toml to a file that ctx may write"


@dataclass(frozen=True)
class Record:
    """The content of `project.json`."""

    path: str
    folder: str
    """The folder of the project's catalog."""
    id: str
    root_commit: str | None = None
    remote: str | None = None
    seen_ms: int = 0


@dataclass(frozen=True)
class Project:
    """A project on disk."""

    root: str
    """The project's folder. If the project is in a linked work tree, the same folder in the main work
    tree.
    """
    here: str
    """The project's folder, which may be in a linked work tree."""
    folder: str
    """The folder of the project's catalog, which contains `project-id`."""
    key: str
    """The text from which HASH is computed: the real path, and the catalog's path if it is not the
    default.
    """

    @property
    def name(self) -> str:
        """The name of the project's folder in the data folder: NAME-HASH."""
        words = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(self.root)).strip("-.")[:_NAME_CHARS]
        return f"{words or 'project'}-{hashlib.sha256(os.fsencode(self.key)).hexdigest()[:12]}"

    def id(self) -> str | None:
        try:
            content = files.read_file(os.path.join(self.folder, ID), beneath=self.folder, most=100)
        except OSError:
            return None
        return content.decode("ascii", "replace").strip() or None

    def keep_id(self, id: str) -> None:
        """Writes the id to `project-id` in the catalog's folder, if this folder exists."""
        if self.id() == id or not os.path.isdir(self.folder):
            return
        try:
            files.replace(os.path.join(self.folder, ID), f"{id}\n".encode(), beneath=self.folder)
        except OSError as error:
            logger.info("the project's id cannot be written next to its catalog reason=%s", error.strerror)

    def root_commits(self, *revisions: str) -> list[str]:
        """The ids of the first commits of the project's repository; empty without a repository and in a
        shallow clone.
        """
        top = files.work_tree(self.here)
        if top is None or git_reply(top, "rev-parse", "--is-shallow-repository") != "false":
            return []
        return sorted((git_reply(top, "rev-list", "--max-parents=0", "HEAD", *revisions) or "").split())

    def remote(self) -> str | None:
        """A hash of the URL of the repository's remote; None if there is no remote. The URL itself may
        contain a password.
        """
        top = files.work_tree(self.here)
        url = git_reply(top, "config", "--get", "remote.origin.url") if top else None
        return hashlib.sha256(url.encode()).hexdigest()[:16] if url else None

    def owns(self, record: Record) -> bool:
        """Whether a record belongs to this project, and not to another project that was at the same path."""
        id = self.id()
        if id == record.id:
            return True
        root_commits = self.root_commits("--all")
        if root_commits and record.root_commit:
            return record.root_commit in root_commits
        remote = self.remote()
        if remote or record.remote:
            return remote == record.remote
        return id is None and not root_commits and record.root_commit is None

    def record(self, id: str) -> Record:
        """A new record of the project's current state."""
        root_commit = next(iter(self.root_commits()), None)
        return Record(self.root, self.folder, id, root_commit, self.remote(), now_ms())


@dataclass(frozen=True)
class Place:
    """The location of a project's memories and keys. `memory` is the path of `memory.db`."""

    memory: str
    project: Project | None = None
    """The project; None if the location is not in the data folder."""

    @property
    def folder(self) -> str:
        return os.path.dirname(self.memory)

    @property
    def keys(self) -> str:
        """The file in which earlier versions stored the keys."""
        return os.path.join(self.folder, KEYS)


def projects_folder(environ: Mapping[str, str]) -> str:
    """The folder that contains the data folders of all projects. Raises `StoreError` if neither HOME nor
    XDG_DATA_HOME is set.
    """
    data = environ.get("XDG_DATA_HOME") or ""
    if not os.path.isabs(data):
        home = environ.get("HOME") or ""
        if not os.path.isabs(home):
            raise StoreError(
                f"there is no folder for memories: neither HOME nor XDG_DATA_HOME is set; {_HOW}"
            )
        data = os.path.join(home, ".local", "share")
    return os.path.join(data, "ctx", "projects")


def project_of(root: str, database: str) -> Project:
    """The project in the folder `root` whose catalog is `database`."""
    folder, catalog = os.path.realpath(root), os.path.abspath(database)
    real = _in_main_tree(folder)
    inside = os.path.relpath(catalog, os.path.abspath(root))
    key = real if inside == os.path.join(".ctx", "ctx.db") else f"{real}\0{inside}"
    return Project(real, folder, os.path.dirname(catalog), key)


def find_place(
    root: str, database: str, named: str | None, environ: Mapping[str, str], *, make: bool = True
) -> Place:
    """The location of the memories of the project in `root`. `make` creates the folder if it is missing.

    `named` is `[memory] path`. Without it, the memories are next to the catalog if this is outside the
    project and outside any work tree, else in the user's data folder. Raises `StoreError`.
    """
    if named:
        return Place(os.path.abspath(named))
    if _is_elsewhere(root, database):
        return Place(os.path.join(os.path.dirname(os.path.abspath(database)), MEMORY))
    project = project_of(root, database)
    parent = projects_folder(environ)
    for number in range(1, 100):
        folder = os.path.join(parent, project.name if number == 1 else f"{project.name}-{number}")
        record = read_record(folder)
        if record is None or project.owns(record):
            if make:
                _claim(folder, project, record)
            return Place(os.path.join(folder, MEMORY), project)
    raise StoreError(
        f"too many different projects have used {project.root}: `ctx memory gone` lists their memories"
    )


def _is_elsewhere(root: str, database: str) -> bool:
    folder = os.path.realpath(os.path.dirname(os.path.abspath(database)))
    inside = os.path.commonpath([folder, os.path.realpath(root)]) == os.path.realpath(root)
    return not inside and files.work_tree(folder) is None


def _claim(folder: str, project: Project, record: Record | None) -> None:
    """Creates the folder and its record if they are missing, and updates a record that is a day old. Raises
    `StoreError`.
    """
    try:
        files.make_folder(folder, beneath=folder)
        if record is None:
            record = project.record(uuid.uuid4().hex)
            for hint in _others(folder, project, record):
                logger.warning("%s", hint)
            write_record(folder, record)
        elif record.seen_ms < now_ms() - DAY_MS:
            write_record(folder, project.record(record.id))
    except OSError as error:
        raise StoreError(
            f"the folder for memories, {folder}, cannot be used: {error.strerror}; {_HOW}"
        ) from error
    project.keep_id(record.id)


def _others(folder: str, project: Project, record: Record) -> Iterator[str]:
    """Hints for a new project, one sentence each: memories in another data folder that may be those of this
    project, because the project may have moved.
    """
    parent, name = os.path.split(folder)
    if name != project.name:
        yield (
            f"another project was at {project.root} before, so this one starts without memories; to use the "
            f"other project's, run `ctx memory adopt {project.name}`"
        )
    id = project.id()
    for entry in entries(parent):
        may_be_moved = entry.record.id == id or (
            record.root_commit and entry.record.root_commit == record.root_commit
        )
        if may_be_moved and entry.gone and entry.name != name:
            yield (
                f"this project may have moved here from {entry.record.path}; to use its memories, run "
                f"`ctx memory adopt {entry.name}`"
            )


def read_record(folder: str) -> Record | None:
    """The record in a project's data folder; None if there is no valid record."""
    try:
        values = json.loads(files.read_file(os.path.join(folder, RECORD), beneath=folder))
        return Record(**{name: values.get(name) for name in Record.__dataclass_fields__})
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def write_record(folder: str, record: Record) -> None:
    """Writes the record of a project's data folder. Raises `OSError`."""
    content = json.dumps(asdict(record), indent=1).encode("utf-8", "surrogateescape")
    files.replace(os.path.join(folder, RECORD), content, beneath=folder)


# -- other projects ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A project's data folder. `gone`: the project is no longer at its recorded path."""

    folder: str
    record: Record
    gone: bool

    @property
    def name(self) -> str:
        return os.path.basename(self.folder)

    @property
    def bytes(self) -> int:
        return sum(entry.stat().st_size for entry in os.scandir(self.folder) if entry.is_file())


def entries(parent: str) -> list[Entry]:
    """The data folders of all projects, sorted by name."""
    rows = []
    try:
        names = sorted(os.listdir(parent))
    except OSError:
        return []
    for name in names:
        folder = os.path.join(parent, name)
        if (record := read_record(folder)) is not None:
            project = Project(record.path, record.path, record.folder, "")
            rows.append(Entry(folder, record, not (os.path.isdir(record.path) and project.owns(record))))
    return rows


def entry_named(parent: str, name: str) -> Entry:
    """The data folder with this name or path. Raises `NotFound`."""
    for entry in entries(parent):
        if name.rstrip("/") in (entry.name, entry.folder):
            return entry
    raise NotFound(f"no project's memories are called '{name[:80]}'; `ctx memory gone` lists them")


def adopt(entry: Entry, place: Place) -> None:
    """Moves the memories in `entry` to the project of `place`, which must have no memories. (The data folder
    of `place` is replaced.) Raises `BadRequest`, `StoreError`.
    """
    project = place.project
    if project is None:
        raise BadRequest(
            "[memory] path names the file of this project's memories: copy the other file there yourself"
        )
    if not entry.gone:
        raise BadRequest(
            f"the project of '{entry.name}' is still at {entry.record.path}, so its memories were not moved"
        )
    try:
        if os.path.lexists(place.folder):
            shutil.rmtree(place.folder)
        os.rename(entry.folder, place.folder)
        write_record(place.folder, project.record(entry.record.id))
    except OSError as error:
        raise StoreError(f"the memories of '{entry.name}' cannot be moved: {error.strerror}") from error
    project.keep_id(entry.record.id)


def forget(entry: Entry) -> None:
    """Deletes the memories of a project that no longer exists. Raises `BadRequest`, `StoreError`."""
    if not entry.gone:
        raise BadRequest(
            f"the project of '{entry.name}' is still at {entry.record.path}: nothing was deleted"
        )
    try:
        shutil.rmtree(entry.folder)
    except OSError as error:
        raise StoreError(f"{entry.folder} cannot be deleted: {error.strerror}") from error


# -- git -----------------------------------------------------------------------------------------------------


def _in_main_tree(folder: str) -> str:
    """The same folder in the main work tree if `folder` is in a linked work tree, else `folder`.

    A `.git` file may be forged, so it is only used if git's own folder for the work tree names the same file.
    """
    top = files.work_tree(folder)
    if top is None or not os.path.isfile(os.path.join(top, ".git")):
        return folder
    own, common = git.own_folder(top), git.repository(top)
    if own is None or common is None or own == common:
        return folder
    try:
        back = os.path.realpath(os.path.join(own, git.first_line(os.path.join(own, "gitdir"))))
    except OSError:
        return folder
    if back != os.path.join(os.path.realpath(top), ".git"):
        return folder
    main = os.path.dirname(common) if os.path.basename(common) == ".git" else common
    return os.path.normpath(os.path.join(main, os.path.relpath(folder, top)))


def git_reply(top: str, *arguments: str) -> str | None:
    """The output of a git command as text, without surrounding white space; None if the command fails."""
    reply = git.ask(top, *arguments)
    return None if reply is None else reply.decode("utf-8", "surrogateescape").strip()

"""What Context Harness's files mean here: where their paths begin, and whose database one of them is."""

import os
import stat
from collections.abc import Iterable, Iterator

from ctx import files
from ctx.types import JSON, as_table

_SQLITE = b"SQLite format 3\0"
_APPLICATION_ID = slice(68, 72)  # of SQLite's header; zero in Context Harness's files, not in ours
_TABLES = frozenset({"documents", "chunks"})


def own_database(path: str) -> str:
    """Where the catalog is that `[db] path` names: there, or beside it as `PATH.ctx` where Context Harness's
    file stands.

    What was once begun beside it stays there, also when the other file has gone. Nothing is written.
    """
    neighbour = f"{path}.ctx"
    return neighbour if os.path.isfile(neighbour) or _context_harness_file(path) else path


def _context_harness_file(path: str) -> bool:
    if files.irregular(path):
        return False  # whoever opens it says so, and a pipe that an archive brought would be waited for
    try:
        with open(path, "rb") as file:
            header = file.read(100)
    except OSError:
        return False  # none, or none that may be read: whoever opens it says so
    if not header.startswith(_SQLITE) or any(header[_APPLICATION_ID]):
        return False
    names = _tables_of(path)
    return names >= _TABLES and "meta" not in names  # `meta` is ours, before its first checkpoint


def _tables_of(path: str) -> set[str]:
    """The names of a database's tables; none of a file that SQLite cannot read."""
    import sqlite3  # a file of another program is rare; `ctx search` has it loaded soon anyway
    from contextlib import closing

    # Immutable: neither a lock nor a log is laid beside a file that is not ours.
    try:
        with closing(sqlite3.connect(files.sqlite_address(path, "immutable=1"), uri=True)) as connection:
            rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    except sqlite3.Error:
        return set()
    return {name for (name,) in rows}


def base_folder(tables: dict[str, JSON], root: str) -> str:
    """The folder that the relative paths of a configuration are meant from, whose project is at `root`.

    That is `root`, unless nothing that it names is there and all of it is in one of the folders above:
    Context Harness takes paths from the folder it was started in. The nearest such folder counts. Only for a
    file that the user chose: a stranger's must not reach above its project by naming what is there. And no
    folder that everybody may write in, such as /tmp: what lies there is anyone's.
    """
    paths = [path for path in _needed_paths(tables) if not os.path.isabs(path) and path[:1] not in ("~", "$")]
    if not paths or any(_present(root, paths)):
        return root
    folder = os.path.dirname(root)
    while folder != os.path.dirname(folder) and not _is_everybodys(folder):
        if all(_present(folder, paths)):
            return folder
        folder = os.path.dirname(folder)
    return root


def _present(folder: str, paths: Iterable[str]) -> Iterator[bool]:
    """Whether each of these is in a folder."""
    return (os.path.exists(os.path.join(folder, path)) for path in paths)


def _is_everybodys(folder: str) -> bool:
    try:
        return bool(os.stat(folder).st_mode & stat.S_IWOTH)
    except OSError:
        return True


def _needed_paths(tables: dict[str, JSON]) -> Iterator[str]:
    """The paths that a configuration reads from: folders of documents, and scripts."""
    for group, kind, key in (
        ("connectors", "filesystem", "root"),
        ("connectors", "script", "path"),
        ("tools", "script", "path"),
        ("agents", "script", "path"),
    ):
        table = as_table(as_table(tables.get(group)).get(kind))
        for entries in (table, *table.values()):
            path = as_table(entries).get(key)
            if isinstance(path, str) and path and "\0" not in path:
                yield path

"""The folder that holds the catalog and the index (`.ctx`). It may have come with a clone: nothing in it may
lead to a file elsewhere.

It is checked before writing. A search only reads, and checks only that no link leads out of it.
"""

import os

from ctx import files
from ctx.errors import StoreError

_NAME = ".ctx"
JOURNAL = "-journal"  # suffix of the journal that SQLite creates beside a database
COPY = "backup.partial"  # a copy of a database, while a backup is written
PARTIAL = "restored.partial"  # a database that is being restored, until it is complete and checked
_MAGIC = bytes.fromhex("d9d505f920a163d7")  # ends a journal of SQLite that names another journal


def own_folder(database: str) -> None:
    """Makes and checks the folder of the catalog at `database`, for writing. Raises `StoreError`.

    A new folder gets 0700. It, and any called `.ctx`, gets a `.gitignore` that keeps the store out of git.
    """
    folder = os.path.dirname(os.path.abspath(database))
    name = os.path.basename(folder) or folder
    if os.path.islink(folder):
        raise StoreError(
            f"`{name}` is a link, and ctx keeps its store in none: remove it, or set [db] path to where it "
            "leads"
        )
    absent = not os.path.exists(folder)
    try:
        files.make_folder(folder, beneath=folder)
        if absent or name == _NAME:
            _hide(folder)
    except OSError as error:
        raise StoreError(
            f"the catalog cannot be made in the folder `{name}` ([db] path): {error.strerror}; make it, or "
            "name another"
        ) from error


def is_of_store(name: str, database: str) -> bool:
    """Whether this file or folder beside the catalog at `database` belongs to the store: the catalog with its
    log and copies, the index, the keys. The folder need not be called `.ctx`.
    """
    catalog = os.path.basename(database)
    begins = (f"{catalog}-", f"{catalog}.", COPY, PARTIAL)
    return name in (catalog, "index", "keys.json") or name.startswith(begins)


def check_journal(path: str) -> None:
    """Raises `StoreError` if the journal of a database names another file. SQLite would replay the journal
    when it opens the database, and delete the named file, which could be any file of the user's.

    Only transactions over several databases create such journals, and ctx uses none. The name is at the end,
    before the magic number. Source: https://www.sqlite.org/fileformat2.html#the_rollback_journal,
    `readSuperJournal` of pager.c.
    """
    folder = os.path.dirname(os.path.abspath(path))
    try:
        descriptor = files.open_file(path + JOURNAL, os.O_RDONLY, beneath=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"the catalog cannot be opened: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        file.seek(max(0, os.fstat(descriptor).st_size - len(_MAGIC)))
        if file.read() == _MAGIC:
            name = os.path.basename(path) + JOURNAL
            raise StoreError(
                f"`{name}` leads to another file, which ctx never writes and SQLite would delete: delete "
                f"{name}, and {os.path.basename(path)} too if you did not make it"
            )


def _hide(folder: str) -> None:
    path = os.path.join(folder, ".gitignore")
    if os.path.lexists(path) or not os.access(folder, os.W_OK):
        return
    try:
        descriptor = files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, beneath=folder)
    except FileExistsError:
        return  # another process was first
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write("# made by ctx: the store is this machine's own\n*\n")

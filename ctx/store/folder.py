"""The folder that holds the catalog and the index (`.ctx`). It may have come with a clone: nothing in it may
lead to a file elsewhere.

It is checked before writing. A search only reads, and checks only that no link leads out of it.
"""

import os

from ctx import files
from ctx.errors import StoreError
from ctx.store.schema import JOURNAL

_NAME = ".ctx"
COPY = "backup.partial"  # of the catalog, while a backup is written
PARTIAL = "restored.partial"  # a catalog that is restored, until it is whole and checked
_MAGIC = bytes.fromhex("d9d505f920a163d7")  # of a journal of SQLite's


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
    """Whether a file or folder of this name beside the catalog at `database` holds what the store does: the
    catalog with its log and its copies, the index, the keys. It need not lie in a `.ctx`.
    """
    catalog = os.path.basename(database)
    begins = (f"{catalog}-", f"{catalog}.", COPY, PARTIAL)
    return name in (catalog, "index", "keys.json") or name.startswith(begins)


def check_journal(path: str) -> None:
    """Raises `StoreError` where a journal beside a database names another one: SQLite plays the journal back
    whenever the file is opened, and deletes what it names then, any file of the user's.

    Only a change of several databases at once has such a journal, which ctx never makes. The name stands at
    its end, behind which is the mark of a journal.
    Source: https://www.sqlite.org/fileformat2.html#the_rollback_journal, `readSuperJournal` of pager.c.
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
        return  # another process came first
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write("# made by ctx: the store is this machine's own\n*\n")

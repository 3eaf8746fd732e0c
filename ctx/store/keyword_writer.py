"""Brings the keyword index up to date with the catalog, and checks its files.

Each rebuild uses a new tantivy folder. `keyword.state` names the current folder and the last seq that it has
applied. It is written after tantivy's commit. After a crash in between, the stored seq is too low, which is
harmless, because applying a document twice changes nothing.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ctx import files
from ctx.errors import StoreError
from ctx.store.base import Catalog
from ctx.store.folder import OPEN_TRIES, read_state, write_state
from ctx.store.tantivy import META, KeywordIndex, damage_reported, read_json

logger = logging.getLogger(__name__)

# The version of the fields and of the text analysis in tantivy.py. An index of another version is rebuilt.
KEYWORD_FORMAT = 10
OUTDATED = "is damaged or was made by another version of ctx"
STATE = "keyword.state"
FOLDER = "keyword-"  # the prefix of the names of tantivy's folders
_KINDS = ("fast", "fieldnorm", "idx", "pos", "store", "term")  # the suffixes of the files of every segment
_FOOTER_MAGIC = (1337).to_bytes(4, "little")

PUBLISH_EVERY_S = 3.0  # during a long catch-up; a commit takes 10 ms
# Tantivy merges this many segments of similar size into one, which takes a fifth less time to search. So a
# new index with more than `_LARGE` documents is published in so many pieces.
_MERGED, _LARGE = 8, 20_000

_ROOM_BYTES = 64 << 20  # with less free space on the disk, a write error may mean that it is full


class KeywordWriter:
    """Writes the keyword index at `path`, in the store's folder `beneath`. The caller must hold the
    `WriterLock`.

    A long catch-up publishes every `PUBLISH_EVERY_S`, but a new index at the end, or in a few large pieces.
    """

    def __init__(self, path: str, beneath: str) -> None:
        self._path = path
        self._beneath = beneath
        self._writer: KeywordIndex | None = None
        self._writer_folder = ""

    def close(self) -> None:
        """Waits for tantivy's merges, and closes the writer and drops its uncommitted changes, so that no
        later call commits them under a newer seq.
        """
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            except StoreError as error:
                logger.warning("keyword writer did not close reason=%s", error.message)

    def catch_up(self, catalog: Catalog, model: str, *, rebuild: bool) -> int:
        """Applies and publishes the catalog's new writes and returns the last seq applied. `model` is the
        name of the embedding model, or "". With `rebuild`, builds a new index. Raises `StoreError`.
        """
        target = catalog.seq()
        state = None if rebuild else self._continued(catalog)
        if state and (state["applied"], state.get("model")) == (target, model):
            return target
        try:
            self._apply(catalog, model, state, target)
        except StoreError as error:
            if state is None or not self._has_room():
                raise
            # The disk is not full, so the files are damaged.
            logger.warning("keyword index is rebuilt reason=%s cause=%s", error.message, error.__cause__)
            self._apply(catalog, model, None, target)
        return target

    def _has_room(self) -> bool:
        """Whether the disk has free space and the index is writable. If so, a write error has another
        cause.
        """
        try:
            return files.free_bytes(self._path) > _ROOM_BYTES and os.access(self._path, os.W_OK)
        except OSError:
            return False

    def _continued(self, catalog: Catalog) -> dict[str, Any] | None:
        """The state of the published index; None if the index must be rebuilt."""
        state = keyword_state(os.path.join(self._path, STATE))
        if state is None:
            return None
        if not state:
            reason = OUTDATED
        elif catalog.history(state["applied"]) != state["history"]:
            reason = "it belongs to another catalog"
        # Not checked while our own writer is open, because its merges replace the files.
        elif self._writer is None and not complete_files(os.path.join(self._path, state["folder"])):
            reason = "damaged"
        else:
            return state
        logger.warning("keyword index is rebuilt reason=%s", reason)
        return None

    def _fresh_folder(self) -> str:
        self.close()
        numbers = (name.removeprefix(FOLDER) for name in self._folders())
        return f"{FOLDER}{max(map(int, filter(str.isdecimal, numbers)), default=0) + 1}"

    def _folders(self) -> list[str]:
        """The names of the existing tantivy folders. Raises `StoreError` if the index was deleted
        meanwhile.
        """
        with files.writing("the index", StoreError):
            return [name for name in os.listdir(self._path) if name.startswith(FOLDER)]

    def _writer_of(self, folder: str) -> KeywordIndex:
        """The tantivy writer of a folder. It stays open until `close`, so that merges run between two
        calls.
        """
        if self._writer is None or self._writer_folder != folder:
            path = os.path.join(self._path, folder)
            with files.writing("the keyword index", StoreError):
                files.make_folder(path, beneath=self._beneath)
            self._writer = KeywordIndex(path, writable=True)
            self._writer_folder = folder
        return self._writer

    def _apply(self, catalog: Catalog, model: str, state: Mapping[str, Any] | None, target: int) -> None:
        """Adds the writes up to the seq `target` to the published index with this state, or to a new one, and
        publishes them.
        """
        folder, applied = (state["folder"], state["applied"]) if state else (self._fresh_folder(), 0)
        published_s, piece, added = time.monotonic(), 0, 0
        try:
            with damage_reported():
                if applied == 0:
                    self._writer_of(folder)  # creates the index even if there are no documents
                    count = catalog.stats()["documents"]
                    piece = count // (_MERGED if count > _LARGE else 1) + 1
                else:
                    for _, document_no in catalog.deletions_since(applied):
                        self._writer_of(folder).delete(document_no)
                for stored in catalog.documents_since(applied):
                    if stored.seq > target:
                        break  # it was written after this call began; the next call adds it
                    due = added >= piece if piece else time.monotonic() - published_s > PUBLISH_EVERY_S
                    if stored.seq > applied and due:
                        # All documents up to the seq `applied` are added.
                        self._publish(catalog, model, folder, applied)
                        published_s, added = time.monotonic(), 0
                    added += 1
                    self._writer_of(folder).add(stored)
                    applied = stored.seq
                self._publish(catalog, model, folder, target)
        except BaseException:
            self.close()
            raise

    def _publish(self, catalog: Catalog, model: str, folder: str, applied: int) -> None:
        if self._writer is not None:
            self._writer.commit()
        fields = {
            "format": KEYWORD_FORMAT,
            "folder": folder,
            "applied": applied,
            "history": catalog.history(applied) or "",
            "model": model,
        }
        with files.writing("the index", StoreError):
            write_state(os.path.join(self._path, STATE), fields)
        for name in self._folders():
            if name != folder:
                files.delete_folder(os.path.join(self._path, name))


# -- the files ---------------------------------------------------------------------------------------------


def keyword_state(path: str) -> dict[str, Any] | None:
    """The fields of `keyword.state`. None if the file does not exist; {} if it is damaged, of another version
    of ctx, or names a folder outside the index.
    """
    fields = read_state(path)
    if not fields:
        return fields
    folder = str(fields.get("folder"))
    number = folder.removeprefix(FOLDER)
    sound = number.isdecimal() and folder == FOLDER + number and isinstance(fields.get("applied"), int)
    return fields if sound and fields.get("format") == KEYWORD_FORMAT and "history" in fields else {}


def check_reachable(folder: str, beneath: str) -> None:
    """Raises `StoreError` if the path of `folder` has a link that leads out of the store's folder
    `beneath`.
    """
    try:
        files.check_folder(folder, beneath=beneath)
    except FileNotFoundError:
        pass  # a writer has replaced the folder, or the index is damaged: opening it raises the error
    except OSError as error:
        raise StoreError(f"the keyword index cannot be read: {error.strerror}") from error


def complete_files(folder: str) -> bool:
    """Whether every file of tantivy's current commit exists and ends with tantivy's footer.

    Tantivy itself does not notice some missing files: without the positions file, phrase searches give wrong
    results.
    """
    for _ in range(OPEN_TRIES):
        meta = files.stamp(os.path.join(folder, META))
        try:
            if all(_ends_in_footer(path) for path in _segment_files(folder)):
                return True
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        if files.stamp(os.path.join(folder, META)) == meta:
            return False
    return True  # the files keep changing through merges; opening the index reports damage, if any


def discard(path: str) -> None:
    """Deletes the state files of the index in the folder `path`, so that `catch_up` rebuilds it."""
    for name in (STATE, os.path.join("vectors", "state")):
        Path(path, name).unlink(missing_ok=True)


def _segment_files(folder: str) -> Iterator[str]:
    """The paths of the files of tantivy's current commit. Raises the errors of reading and parsing
    `meta.json`.
    """
    for segment in read_json(os.path.join(folder, META))["segments"]:
        name = os.path.join(folder, os.path.basename(segment["segment_id"].replace("-", "")))
        yield from (f"{name}.{kind}" for kind in _KINDS)
        if segment.get("deletes"):
            yield f"{name}.{segment['deletes']['opstamp']}.del"


def _ends_in_footer(path: str) -> bool:
    with open(path, "rb") as file:
        file.seek(-len(_FOOTER_MAGIC), os.SEEK_END)  # raises `OSError` if the file is shorter
        return file.read() == _FOOTER_MAGIC

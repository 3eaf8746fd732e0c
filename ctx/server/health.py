"""What `/health` answers: that the server is alive, and how fresh its index is."""

import os
import time
from contextlib import suppress

from ctx import __version__, files
from ctx.clock import iso_utc
from ctx.errors import StoreError
from ctx.models import JSON, oldest_pending_ms
from ctx.workspace import Workspace

_LEAST_FREE_BYTES = 256 << 10  # what one write of memories or documents may need


def health(workspace: Workspace) -> dict[str, JSON]:
    """The health of a workspace. A database or a search engine that does not answer makes it `degraded`, not
    dead.
    """
    answer: dict[str, JSON] = {
        "status": "ok",
        "version": __version__,
        "model": workspace.model,  # None: embeddings are disabled
        "pending": None,
        "index_behind": None,
        "oldest_pending_at": None,
    }
    problems: list[str] = []
    seq = None
    try:
        workspace.catalog.reach()
        answer |= _pending(workspace)
        seq = workspace.catalog.seq()
    except StoreError as error:
        problems.append(f"catalog: {error.message}")
    try:
        answer |= _of_index(workspace, seq, bool(answer["pending"]))
    except StoreError as error:
        problems.append(f"index: {error.message}")
    if missing := workspace.memory_loss():
        problems.append(f"memory: {missing}")
    problems += _full_disks(workspace)
    answer["uptime_s"] = round(time.monotonic() - workspace.started_s, 1)
    state = workspace.indexer_state()
    if state is not None:
        answer |= state["health"]
        problems = list(dict.fromkeys((*problems, *state["degraded"])))
    if state is not None or problems:
        answer["degraded"] = problems
    return answer


def _full_disks(workspace: Workspace) -> list[str]:
    """A sentence for each folder that ctx writes to and whose disk is full."""
    folders = [workspace.config.folder]
    if not workspace.config.store.url:
        with suppress(StoreError):
            folders.append(workspace.location.place.folder)
    lines = []
    for folder in folders:
        with suppress(OSError):
            if files.free_bytes(folder) < _LEAST_FREE_BYTES:
                lines.append(f"disk: the disk is full, nothing can be stored in {os.path.basename(folder)}")
    return lines


def _of_index(workspace: Workspace, seq: int | None, pending: bool) -> dict[str, JSON]:
    """How far the index is behind, and which model answers until the configured one has read as much."""
    answer: dict[str, JSON] = {}
    if seq is not None:
        workspace.index.reach()
        answer["index_behind"] = max(0, seq - workspace.index.applied_seq())
    answering = workspace.model_switch.answering() if pending else None
    if answering is not None and answering.model != workspace.model:
        answer["answering"] = answering.model
    return answer


def _pending(workspace: Workspace) -> dict[str, JSON]:
    """How many chunks wait for an embedding, and since when."""
    count = workspace.catalog.pending_count(workspace.model) if workspace.model else 0
    oldest_ms = oldest_pending_ms(workspace.statuses()) if count else None
    return {"pending": count, "oldest_pending_at": None if oldest_ms is None else iso_utc(oldest_ms)}

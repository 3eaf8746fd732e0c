"""What `/health` answers: that a server is alive, and how fresh what it answers is."""

import time

from ctx import __version__
from ctx.clock import iso_utc
from ctx.errors import StoreError
from ctx.lean import TYPE_CHECKING, Protocol
from ctx.types import JSON, SourceStatus, oldest_pending_ms

if TYPE_CHECKING:
    from ctx.indexing.indexer import Indexer
    from ctx.store.base import SearchIndex
    from ctx.store.postgres_catalog import PostgresCatalog
    from ctx.store.sqlite import SqliteCatalog
    from ctx.succession import Succession


class Serving(Protocol):
    """What is asked how it is: a workspace."""

    started_s: float  # on the monotonic clock

    @property
    def model(self) -> str | None: ...
    @property
    def catalog(self) -> "SqliteCatalog | PostgresCatalog": ...
    @property
    def index(self) -> "SearchIndex": ...
    @property
    def succession(self) -> "Succession": ...
    def statuses(self) -> list[SourceStatus]: ...


def health(workspace: Serving, indexer: "Indexer | None") -> dict[str, JSON]:
    """The health of a workspace; `indexer` None: nothing is indexed here.

    A database or a search engine that is away is told in `degraded`, and is no reason to be taken for dead.
    """
    answer: dict[str, JSON] = {
        "status": "ok",
        "version": __version__,
        "model": workspace.model,  # None: embeddings are disabled
        "pending": None,
        "index_behind": None,
        "oldest_pending_at": None,
    }
    ailments: list[str] = []
    seq = None
    try:
        workspace.catalog.reach()
        answer |= _pending(workspace)
        seq = workspace.catalog.seq()
    except StoreError as error:
        ailments.append(f"catalog: {error.message}")
    try:
        if seq is not None:
            answer["index_behind"] = max(0, seq - workspace.index.applied_seq())
        answering = workspace.succession.answering() if answer["pending"] else None
        if answering is not None and answering.model != workspace.model:
            answer["answering"] = answering.model  # until the configured one has read as much
    except StoreError as error:
        ailments.append(f"index: {error.message}")
    answer["uptime_s"] = round(time.monotonic() - workspace.started_s, 1)
    if indexer is not None:
        activity = indexer.activity
        answer |= activity.health()
        ailments += (line for line in activity.degraded if line not in ailments)
    if indexer is not None or ailments:
        answer["degraded"] = ailments
    return answer


def _pending(workspace: Serving) -> dict[str, JSON]:
    """How many chunks wait for an embedding, and since when."""
    count = workspace.catalog.pending_count(workspace.model) if workspace.model else 0
    oldest_ms = oldest_pending_ms(workspace.statuses()) if count else None
    return {"pending": count, "oldest_pending_at": None if oldest_ms is None else iso_utc(oldest_ms)}

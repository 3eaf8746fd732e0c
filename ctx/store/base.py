"""The two halves of a store: the catalog keeps documents, the index finds them.

Every write to the catalog takes the next `seq`. The index is derived: it remembers the last `seq` it has
applied and catches up from the catalog, so it can be deleted at any time.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Event
from typing import TYPE_CHECKING, Protocol, Self

from ctx.models import Filters, Hit
from ctx.store.documents import Documents
from ctx.store.embeddings import Embeddings

if TYPE_CHECKING:  # numpy takes 70 ms, and a keyword search does not need it
    import numpy as np

IndexTurn = Callable[[Callable[[], bool]], AbstractContextManager[bool]]
"""`turn(done)`: a block that one process runs at a time, with True; or with False once `done()`, because
another process did the work.
"""


class Catalog(Documents, Embeddings):
    """Documents, chunks and embeddings in a SQL database. Every method is one transaction and raises
    `StoreError`. Safe to use from several threads.

    `SqliteCatalog` and `ctx.cluster.catalog.PostgresCatalog` implement it.
    """

    def reach(self) -> None:
        """Raises `StoreError` if the database does not answer at once."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- several machines that share one catalog; a file belongs to one machine ------------------------------
    def identity(self) -> str | None:
        """The name of a shared database; None for a file."""
        return None

    def turn(self, source: str, stop: Event | None) -> AbstractContextManager[Event | None]:
        """A block in which no other machine indexes this source. It yields the event that ends the run early.
        Raises `Busy`.
        """
        return nullcontext(stop)

    def index_turn(self, name: str) -> IndexTurn | None:
        """The turn for writing a shared index; None if the lock of the store's folder is enough."""
        return None

    def elsewhere(self, source: str, source_ids: Sequence[str]) -> Mapping[str, str]:
        """source_id -> machine, for documents that another machine stored. They may exist there although this
        machine does not see them.
        """
        return {}

    def take_over(self, source: str) -> int:
        """Makes this machine and no configuration the owner of a source's documents, so that its next run may
        delete those that are gone. Returns how many belonged to another machine.
        """
        with self._writing() as write:
            write.connection.execute("UPDATE source SET configuration = NULL WHERE name = ?", (source,))
        return 0

    def server(self) -> tuple[bool, str] | None:
        """Whether the database server is healthy, and a line about it; None for a file."""
        return None

    # -- maintenance -----------------------------------------------------------------------------------------
    def check(self) -> list[str]:
        """Reads all tables; one line for each problem."""
        raise NotImplementedError

    def vacuum(self) -> None:
        """Returns the space of deleted rows to the file system, where the engine does not do that itself.

        Takes seconds per gigabyte, and meanwhile as much disk space again. Raises `Busy`, `StoreError`.
        """


class Projection(Protocol):
    """Something derived from the catalog, which can be rebuilt from it."""

    def catch_up(self, catalog: Catalog) -> int:
        """Applies what is new in the catalog, durably, and returns the seq applied. One writer at a time."""
        ...

    def feed(self, catalog: Catalog) -> None:
        """Starts to apply what is new without publishing it, so that the engine works during a long run.
        `catch_up` publishes.
        """
        ...

    def check(self) -> list[str]:
        """Reads all files; one line for each problem. The next `catch_up` rebuilds what is damaged."""
        ...

    def adopt(self) -> None:
        """Lets the next `catch_up` rebuild an index that belongs to another catalog."""
        ...

    def close(self) -> None: ...


class SearchIndex(Projection, Protocol):
    """Finds chunks. Searches may run in any thread and never wait for a writer."""

    def reach(self) -> None:
        """Raises `StoreError` if the engine does not answer at once."""
        ...

    def keyword(self, query: str, filters: Filters, k: int, *, prefix: bool = False) -> list[Hit]:
        """The k best chunks by words, best first. Any text is a valid query; raises only `StoreError`.

        A query that is one quoted phrase finds only text with these words side by side. With `prefix` the
        last word may be incomplete.
        """
        ...

    def vocabulary(self, terms: Sequence[str], names: Sequence[str]) -> tuple[dict[str, float], list[str]]:
        """BM25's idf of each term that occurs in the index, and which of the names are defined in code."""
        ...

    def resembling(self, words: Sequence[str]) -> str | None:
        """The most frequent of these words; None if none occurs."""
        ...

    def definitions(self, names: Sequence[str], filters: Filters, k: int) -> list[Hit]:
        """At most k passages whose code defines one of the names, by chunk number."""
        ...

    def semantic(
        self, vector: "np.ndarray", filters: Filters, k: int, *, model: str | None = None
    ) -> list[Hit]:
        """The k nearest chunks by cosine to a float32 unit vector, best first.

        `model` is the model of the vector, needed while another model takes over; None: the published one.
        """
        ...

    def both(
        self,
        query: str,
        vector: "Callable[[], np.ndarray]",
        filters: Filters,
        depths: tuple[int, int],
        *,
        prefix: bool = False,
        model: str | None = None,
    ) -> tuple[list[Hit], list[Hit]]:
        """The results of `keyword` and `semantic`, `depths` of each. `vector()` may take longer than
        the search. A remote engine gets one request.
        """
        ...

    def hold(self, model: str) -> bool:
        """Opens the vectors of this model, so that `semantic` can answer for it; False if there are none."""
        ...

    def applied_seq(self) -> int: ...

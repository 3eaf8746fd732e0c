"""The whole catalog in one SQLite file: what a search reads (sqlite.py), what indexing does, and the
embeddings.
"""

from ctx.store.documents import Documents
from ctx.store.embeddings import Embeddings
from ctx.store.sqlite import SqliteRecord


class SqliteCatalog(SqliteRecord, Documents, Embeddings):
    """The `Catalog` in a SQLite file; opened as a `SqliteRecord` is."""

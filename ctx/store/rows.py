"""The values that pass between a catalog, its indexes and who searches them (`base.py` has the shapes of
both; what else a catalog hands out stands in `bookkeeping.py`).
"""

from ctx.lean import NamedTuple


class ChunkRow(NamedTuple):
    """A chunk as a search needs it to answer: where it is, what it says and what document it is of."""

    chunk_no: int
    document_no: int
    ordinal: int
    start_line: int
    end_line: int
    heading: str
    text: str
    id: str
    source: str
    source_id: str
    title: str
    source_url: str | None
    updated_ms: int
    media_type: str


class Run(NamedTuple):
    """How the last index run of a source went."""

    finished_ms: int
    ok: bool
    note: str | None
    revision: str | None
    signature: str
    # The file of the configuration that it was run by, by its way from the store's folder; None: by none.
    configuration: str | None = None

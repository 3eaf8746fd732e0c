"""A project with one of the connectors that ship."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kit import workspace
from script_kit import configured

from ctx.models import Document
from ctx.workspace import Workspace


class Source:
    """A project with one source, whose connector ships with ctx."""

    def __init__(self, space: Workspace) -> None:
        self.space = space

    def index(self) -> dict[str, Any]:
        (report,) = self.space.refresh(["script:x"])
        return report

    def documents(self) -> dict[str, Document]:
        stored = (row.document for row in self.space.catalog.export())
        return {document.source_id: document for document in stored if document.source == "script:x"}


@contextmanager
def source(folder: Path, connector: str, settings: Sequence[str]) -> Iterator[Source]:
    table = ["[connectors.script.x]", f'path = "registry:ctx/connectors/{connector}"', *settings]
    with workspace(configured(folder, "\n".join(table))) as space:
        yield Source(space)

"""The Python API: `ctx.open(folder)` opens a project, to index and search it without a server
(docs/python.md).
"""

import os
from collections.abc import Sequence

from ctx.config import Config, default_config, load_config, read_config
from ctx.config.find import find_config, shown_path, trusted_as
from ctx.config.trust import TrustFile, asked, requests, trust_path
from ctx.errors import ConfigError, NotFound
from ctx.indexing.status import IndexReport
from ctx.models import AUTO, Document, SearchResult, SourceStatus
from ctx.search.searcher import SearchReply
from ctx.store.record import Closeable
from ctx.tools.places import place_of
from ctx.tools.search import found
from ctx.workspace import Workspace, open_workspace


class Hits(list[SearchResult]):
    """The results of a search, best first. `partial` is a sentence about results that may be missing (else
    None), and `note` says how the query was interpreted.
    """

    def __init__(self, query: str, reply: SearchReply) -> None:
        super().__init__(reply.results)
        self.query = query
        self.partial = reply.partial
        self.note = reply.note

    @property
    def results(self) -> list[SearchResult]:
        return list(self)

    def __repr__(self) -> str:
        rows = [f"<{len(self)} hits for {self.query!r}>", *map(repr, self)]
        return "\n  ".join(rows)


class Project(Closeable):
    """An opened project. Use it as a context manager, or close it. Safe to use from several threads.

    All errors are `ctx.CtxError`, with a message that says what to do.
    """

    def __init__(self, config: Config) -> None:
        self._workspace: Workspace = open_workspace(config)

    def __repr__(self) -> str:
        return f"<Project {self._workspace.config.root}>"

    def index(self, *sources: str, embed: bool = True) -> list[IndexReport]:
        """Updates the index for the named sources, or for all sources, and returns one report per source.

        A file that cannot be read does not raise an error but is listed in the report's `problems`. With
        `embed=False`, only keyword search finds the new chunks until they are embedded later.
        """
        reports = self._workspace.indexer.run(sources)
        if embed:
            self._workspace.indexer.embed()
        return reports

    def search(
        self,
        query: str,
        *,
        mode: str = AUTO,
        limit: int | None = None,
        source: str | Sequence[str] | None = None,
        path: str | Sequence[str] | None = None,
        type: str | Sequence[str] | None = None,
        since: str | None = None,
        until: str | None = None,
        offset: int = 0,
        per_document: int = 1,
    ) -> "Hits":
        """The documents that match best, best first, each with its best passage.

        `mode` is keyword, semantic or hybrid. By default `[retrieval] mode` decides, but a single identifier
        or a quoted phrase is searched by keyword. `limit` is 1 to 100, by default `[retrieval] final_limit`.
        The filters are the same as in REST: `source` is a name or type of a source, `path` a glob, `type` is
        prose, code or a media type, and `since` and `until` are dates. Raises `BadRequest`,
        `EmbeddingsDisabled`.
        """
        filters = {"source": source, "path": path, "type": type, "since": since, "until": until}
        arguments = {
            "query": query,
            "mode": mode,
            "limit": limit,
            "offset": offset,
            "per_document": per_document,
            "filters": {
                name: value if value is None or isinstance(value, str) else list(value)
                for name, value in filters.items()
            },
        }
        return Hits(query, found(self._workspace, self._workspace.toolbox.get("search").check(arguments)))

    def get(self, document: str, source: str | None = None) -> Document:
        """A whole document. `document` is the id of a search result or a path. Raises `NotFound`,
        `BadRequest`.
        """
        stored = self._workspace.catalog.document(document.strip().lower())
        return (stored or place_of(self._workspace, document, source).stored).document

    def passage(self, result: SearchResult) -> str:
        """The full text of a search result's passage: the lines from `start_line` to `end_line` of the
        document. Raises `NotFound`.
        """
        stored = self._workspace.catalog.document(result.id)
        if stored is None:
            raise NotFound(f"no document with id: {result.id[:80]}")
        lines = stored.document.body.split("\n")
        return "\n".join(lines[result.start_line - 1 : result.end_line])

    def sources(self) -> Sequence[SourceStatus]:
        """The status of each source: its health, its number of documents, and when it was last indexed."""
        return self._workspace.statuses()

    def close(self) -> None:
        """Closes the project. Safe to call twice."""
        self._workspace.close()


def open_project(path: "str | os.PathLike[str]" = ".") -> Project:
    """Opens the project at `path`, which is a configuration file or a folder.

    For a folder, the nearest `ctx.toml` in it or above it is used. If there is none, the folder's own files
    are indexed. A configuration file that `path` names needs no trust. A file that was found and does more
    than read its own folder must be trusted first (`ctx trust`), as on the command line. Raises
    `ConfigError`.
    """
    named = os.path.abspath(os.path.expanduser(os.fspath(path)))
    if os.path.isfile(named):
        return Project(load_config(named, os.environ))
    if not os.path.isdir(named):
        raise ConfigError(f"no such file or folder: {shown_path(named)}")
    # Ignores $CTX_CONFIG and the user's own configuration, because the program has named a folder.
    location = find_config(None, {"HOME": os.environ.get("HOME", "")}, named)
    if location is None or location.chosen:
        # the same source as `ctx init` writes
        return Project(default_config(named, {"connectors": {"filesystem": {"docs": {"root": "."}}}}))
    return Project(_found_configuration(location.path))


def _found_configuration(path: str) -> Config:
    """The configuration in a file that was found and not named. Raises `ConfigError`, also if the file is not
    trusted.
    """
    file = read_config(path)
    if requests(file.tables, file.root) and not TrustFile(trust_path(os.environ)).vouches(
        trusted_as(path), asked(file.content, file.tables, file.root)
    ):
        raise ConfigError(
            f"{file.label} asks for more than reading its own folder; review it, then run `ctx trust` in its "
            "folder, or name the file in ctx.open()"
        )
    return file.config(os.environ, chosen=False)

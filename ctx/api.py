"""ctx in a program of yours: `ctx.open(folder)` indexes and searches without a server (docs/python.md)."""

import os
from collections.abc import Sequence
from types import TracebackType

from ctx.config import Config, load_config, parse_config, read_config
from ctx.config.find import find_config, shown_path, trusted_as
from ctx.config.trust import asked, requests
from ctx.config.trust_file import TrustFile, trust_path
from ctx.errors import BadRequest, ConfigError, NotFound
from ctx.indexing.run import IndexReport
from ctx.items import Document, SourceStatus
from ctx.models import Filters, SearchResult
from ctx.search.searcher import SearchReply, resolve_sources, unknown_source
from ctx.workspace import Workspace, open_workspace

_FOLDER_ITSELF = {"connectors": {"filesystem": {"docs": {"root": "."}}}}  # what `ctx init` writes


class Project:
    """An opened project. Close it, or use it as a context manager. Safe from several threads.

    Whatever goes wrong is raised as a `ctx.CtxError` with a sentence that names the mend.
    """

    def __init__(self, config: Config) -> None:
        self._workspace: Workspace = open_workspace(config)

    def __enter__(self) -> "Project":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def index(self, *sources: str, embed: bool = True) -> list[IndexReport]:
        """Brings the index up to date, all sources or those named; one report a source.

        What cannot be read is in a report's `problems` and raises nothing. Without `embed` the new chunks are
        found by their words alone until somebody embeds them.
        """
        reports = self._workspace.indexer.run(sources)
        if embed:
            self._workspace.indexer.embed()
        return reports

    def search(
        self, query: str, *, mode: str = "keyword", limit: int | None = None, source: str | None = None
    ) -> SearchReply:
        """The best documents, best first, each with its best passage, in `results`; `partial` says what they
        may lack.

        `mode` is keyword, semantic or hybrid; `limit` 1 to 100, else `[retrieval] final_limit`; `source` a
        source's name or its type. Raises `BadRequest`, or `EmbeddingsDisabled` where the mode needs a model.
        """
        _check_type("query", query, str)
        _check_type("mode", mode, str)
        if limit is not None:
            _check_type("limit", limit, int)
        if source is not None:
            _check_type("source", source, str)
        names = self._workspace.searched_names() if source else []
        chosen = resolve_sources([source] if source else [], names)
        reply = self._workspace.searcher.search(query, mode, limit, Filters(sources=chosen))
        if source and not chosen:
            reply = reply._replace(note=unknown_source(source, names))
        return reply

    def get(self, id: str) -> Document:
        """The whole document that a result names. Raises `NotFound`."""
        _check_type("id", id, str)
        stored = self._workspace.catalog.document(id)
        if stored is None:
            raise NotFound(f"no document with id: {id[:80]}")
        return stored.document

    def passage(self, result: SearchResult) -> str:
        """The text that a result stands for, whole: its lines of the document. Raises `NotFound`."""
        _check_type("result", result, SearchResult)
        lines = self.get(result.id).body.split("\n")
        return "\n".join(lines[result.start_line - 1 : result.end_line])

    def sources(self) -> Sequence[SourceStatus]:
        """Each source: how healthy, how many documents, how fresh."""
        return self._workspace.statuses()

    def close(self) -> None:
        """Closes what is open. Safe to call twice."""
        self._workspace.close()


def open_project(path: "str | os.PathLike[str]" = ".") -> Project:
    """The project at `path`: a configuration file, or a folder.

    A folder means the `ctx.toml` in it or above it; where there is none, the folder's own files. A file that
    is named counts as written. One that was found and asks for more than reading its own folder has to be
    trusted first (`ctx trust`), as on the command line. Raises `ConfigError`.
    """
    if not isinstance(path, str | os.PathLike):
        raise BadRequest(f"path: must be str or a path, got {type(path).__name__}")
    named = os.path.abspath(os.path.expanduser(os.fspath(path)))
    if os.path.isfile(named):
        return Project(load_config(named, os.environ))
    if not os.path.isdir(named):
        raise ConfigError(f"no such file or folder: {shown_path(named)}")
    # Neither $CTX_CONFIG nor the user's own configuration: the program said which folder it means.
    location = find_config(None, {"HOME": os.environ.get("HOME", "")}, named)
    if location is None or location.chosen:
        tables = dict(_FOLDER_ITSELF)
        return Project(parse_config(tables, shown="the defaults", path=None, root=named, environ={}))
    return Project(_found_configuration(location.path))


def _check_type(name: str, value: object, kind: type) -> None:
    """Raises `BadRequest` where a caller without a type checker gives something else."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BadRequest(f"{name}: must be {kind.__name__}, got {type(value).__name__}")


def _found_configuration(path: str) -> Config:
    """The configuration in a file that nobody named. Raises `ConfigError`, also where it is not trusted."""
    file = read_config(path)
    if requests(file.tables, file.root) and not TrustFile(trust_path(os.environ)).vouches(
        trusted_as(path), asked(file.content, file.tables, file.root)
    ):
        raise ConfigError(
            f"{file.label} asks for more than reading its own folder; look at it, then trust it "
            "(`ctx trust` in its folder), or open the file by its name"
        )
    return file.config(os.environ, chosen=False)

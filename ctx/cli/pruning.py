"""Finding and dropping what a store no longer needs: embeddings of replaced models, and documents of sources
that are not configured.

Nothing is dropped unless the user asks: the model may come back, the documents may be another
configuration's.
"""

from collections.abc import Sequence
from typing import TypeVar

from ctx.errors import BadRequest, NotFound
from ctx.models import SourceStatus
from ctx.store.record import ModelShare
from ctx.workspace import Workspace

Unused = TypeVar("Unused")


def replaced_models(workspace: Workspace) -> list[ModelShare]:
    """The stored embeddings of models that are neither configured nor still answering. Empty if embeddings
    are off: then no model has replaced them.
    """
    if workspace.model is None:
        return []
    names = [name for name in (workspace.model, workspace.model_switch.published()) if name]
    return workspace.catalog.model_shares(names)


def prunable_models(workspace: Workspace, names: Sequence[str]) -> list[ModelShare]:
    """The replaced models of these names, or all. Raises `NotFound`, and `BadRequest` for one that may be in
    use: other machines that share a database may have another configuration.
    """
    shares = {share.model: share for share in replaced_models(workspace)}
    others = "use another model: name the models that no machine uses, `ctx embed prune NAME`"
    chosen = _named(workspace, shares, names, "not a replaced model", others)
    for share in chosen:
        if share.filling:
            raise BadRequest(f"another machine is using '{share.model}' now")
    return chosen


def prune_models(workspace: Workspace, names: Sequence[str]) -> list[ModelShare]:
    """Drops the embeddings of `prunable_models`, chosen while no one else writes, and frees their space.
    Returns what was dropped.
    """
    dropped: list[ModelShare] = []

    def chosen() -> list[str]:
        dropped.extend(prunable_models(workspace, names))
        return [share.model for share in dropped]

    workspace.indexer.forget_models(chosen)
    if dropped:
        workspace.catalog.vacuum()
    return dropped


def prunable_sources(workspace: Workspace, names: Sequence[str]) -> list[SourceStatus]:
    """The sources with documents that are not configured: those of these names, or all. Raises `NotFound`,
    and `BadRequest` if names are needed: other machines that share a database have sources of their own.
    """
    strays = {status.name: status for status in workspace.unconfigured()}
    others = "have other sources: name the sources that no machine uses, `ctx index --prune NAME`"
    return _named(workspace, strays, names, "no source that this configuration lacks", others)


def _named(
    workspace: Workspace, unused: dict[str, Unused], names: Sequence[str], fault: str, others: str
) -> list[Unused]:
    """The unused entries of these names, or all. Raises `NotFound` with the `fault` of an unknown name, and
    `BadRequest` if names are needed because of `others`.
    """
    for name in names:
        if name not in unused:
            raise NotFound(f"'{name}' is {fault} (those are: {', '.join(unused) or 'none'})")
    if unused and not names and workspace.config.store.url:
        raise BadRequest(f"machines that share this database may {others} ({', '.join(unused)})")
    return [unused[name] for name in dict.fromkeys(names)] if names else list(unused.values())


def drop_sources(workspace: Workspace, sources: Sequence[SourceStatus]) -> list[tuple[str, int]]:
    """Deletes the documents of sources. Returns (name, documents)."""
    return [(source.name, workspace.indexer.forget([source.name])) for source in sources]

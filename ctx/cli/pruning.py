"""What a store holds that no use is left for, and how it goes: embeddings of models that were replaced,
documents of sources that are gone.

Nothing goes unasked: the model may come back, the documents may be another configuration's.
"""

from collections.abc import Sequence
from typing import TypeVar

from ctx.errors import BadRequest, NotFound
from ctx.items import SourceStatus
from ctx.store.rows import ModelShare
from ctx.workspace import Workspace

Unused = TypeVar("Unused")


def replaced_models(workspace: Workspace) -> list[ModelShare]:
    """What the catalog holds of models that are neither configured nor answering until the configured one has
    read as much.

    None where embeddings are off: nothing has replaced them then.
    """
    if workspace.model is None:
        return []
    names = [name for name in (workspace.model, workspace.succession.published()) if name]
    return workspace.catalog.model_shares(names)


def prunable_models(workspace: Workspace, names: Sequence[str]) -> list[ModelShare]:
    """Those of `replaced_models` that go where these names are to go; all of them for none.

    Raises `NotFound`, and `BadRequest` for one that is in use, or may be: other machines that share a
    database may have another configuration.
    """
    shares = {share.model: share for share in replaced_models(workspace)}
    others = "use another model: name those that none uses, `ctx embed prune NAME`"
    chosen = _named(workspace, shares, names, "not a replaced model", others)
    for share in chosen:
        if share.filling:
            raise BadRequest(f"another machine is embedding with '{share.model}' just now")
    return chosen


def prune_models(workspace: Workspace, names: Sequence[str]) -> list[ModelShare]:
    """Drops the embeddings of `prunable_models`, looked at anew once nobody else writes, and gives their room
    back; what went.

    Raises as that does, and what the catalog raises.
    """
    dropped: list[ModelShare] = []

    def chosen() -> list[str]:
        dropped.extend(prunable_models(workspace, names))
        return [share.model for share in dropped]

    workspace.indexer.forget_models(chosen)
    if dropped:
        workspace.catalog.give_back()
    return dropped


def prunable_sources(workspace: Workspace, names: Sequence[str]) -> list[SourceStatus]:
    """The sources with documents that this configuration lacks: those of these names, or all.

    Raises `NotFound`, and `BadRequest` where names are needed: what machines that share a database index is
    theirs.
    """
    strays = {status.name: status for status in workspace.unconfigured()}
    others = "have sources of their own: name those that none has, `ctx index --prune NAME`"
    return _named(workspace, strays, names, "no source that this configuration lacks", others)


def _named(
    workspace: Workspace, unused: dict[str, Unused], names: Sequence[str], fault: str, others: str
) -> list[Unused]:
    """What of all that is unused these names mean; all of it for none.

    Raises `NotFound` with the `fault` of a name that means nothing, and `BadRequest` where names are needed:
    machines that share a database may do as `others` says.
    """
    for name in names:
        if name not in unused:
            raise NotFound(f"'{name}' is {fault} (those are: {', '.join(unused) or 'none'})")
    if unused and not names and workspace.config.store.url:
        raise BadRequest(f"machines that share this database may {others} ({', '.join(unused)})")
    return [unused[name] for name in dict.fromkeys(names)] if names else list(unused.values())


def drop_sources(workspace: Workspace, sources: Sequence[SourceStatus]) -> list[tuple[str, int]]:
    """Forgets the documents of sources; (name, documents)."""
    return [(source.name, workspace.indexer.forget([source.name])) for source in sources]

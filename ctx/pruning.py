"""What a store holds that no use is left for, and how it goes: embeddings of models that were replaced,
documents of sources that are gone.

Nothing goes unasked: the model may come back, the documents may be another configuration's.
"""

from collections.abc import Sequence

from ctx.errors import BadRequest, NotFound
from ctx.store.rows import ModelShare
from ctx.types import SourceStatus
from ctx.workspace import Workspace


def replaced_models(workspace: Workspace) -> list[ModelShare]:
    """What the catalog holds of models that are neither configured nor answering until the configured one has
    read as much.

    None where embeddings are off: nothing has replaced them then.
    """
    if workspace.model is None:
        return []
    names = [name for name in (workspace.model, workspace.succession.published()) if name]
    return workspace.catalog.model_shares(names)


def prunable_models(workspace: Workspace, names: Sequence[str] = ()) -> list[ModelShare]:
    """Those of `replaced_models` that go where these names are to go; all of them for none.

    Raises `NotFound`, and `BadRequest` for one that is in use, or may be: other machines that share a
    database may have another configuration.
    """
    shares = {share.model: share for share in replaced_models(workspace)}
    for name in names:
        if name not in shares:
            replaced = ", ".join(shares) or "none"
            raise NotFound(f"'{name}' is not a replaced model (those are: {replaced})")
    if shares and not names and workspace.config.store.url:
        raise BadRequest(
            "machines that share this database may use another model: name those that none uses, "
            f"`ctx embed prune NAME` ({', '.join(shares)})"
        )
    chosen = [shares[name] for name in dict.fromkeys(names)] if names else list(shares.values())
    for share in chosen:
        if share.filling:
            raise BadRequest(f"another machine is embedding with '{share.model}' just now")
    return chosen


def prune_models(workspace: Workspace, names: Sequence[str] = ()) -> list[ModelShare]:
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


def prunable_sources(workspace: Workspace, names: Sequence[str] = ()) -> list[SourceStatus]:
    """The sources with documents that this configuration lacks: those of these names, or all.

    Raises `NotFound`, and `BadRequest` where names are needed: what machines that share a database index is
    theirs.
    """
    strays = {status.name: status for status in workspace.unconfigured()}
    for name in names:
        if name not in strays:
            lacking = ", ".join(strays) or "none"
            raise NotFound(f"'{name}' is no source that this configuration lacks (those are: {lacking})")
    if strays and not names and workspace.config.store.url:
        raise BadRequest(
            "machines that share this database may have sources of their own: name those that none has, "
            f"`ctx index --prune NAME` ({', '.join(strays)})"
        )
    return [strays[name] for name in dict.fromkeys(names)] if names else list(strays.values())


def drop_sources(workspace: Workspace, sources: Sequence[SourceStatus]) -> list[tuple[str, int]]:
    """Forgets the documents of sources; (name, documents)."""
    return [(source.name, workspace.indexer.forget([source.name])) for source in sources]

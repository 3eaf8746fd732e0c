"""MCP over a workspace, and what each of its endpoints shows: all tools at `/mcp`, a bank's at
`/mcp/{bank}`, a pack's at `/packs/{pack}/mcp`, under the pack's own names.
"""

from collections.abc import Callable, Sequence
from functools import partial

from ctx.memory.dialects.pack import Pack
from ctx.models import Caller
from ctx.server.mcp import Auth, Context, McpServer, Profile, whole_toolbox
from ctx.server.mcp_shapes import Dialect
from ctx.server.work import Work
from ctx.tools.toolbox import Tool, Toolbox
from ctx.workspace import Workspace


def mcp_server(
    workspace: Workspace, work: Work, auth: Callable[[Context], Auth], notes: Sequence[str] = ()
) -> McpServer:
    """MCP over a workspace with its packs. `notes` are added to the instructions."""
    packs = workspace.packs
    return McpServer(
        workspace.toolbox,
        workspace.agents,
        lambda: workspace.catalog,
        work,
        auth=auth,
        profile=profiles(workspace.toolbox, packs) if packs else None,
        semantic=workspace.config.embedding.provider != "disabled",
        instructions=[*notes, *(pack.instructions for pack in packs)],
        methods=sorted({method for pack in packs for method in pack.dialect.methods}),
    )


def profiles(toolbox: Toolbox, packs: Sequence[Pack]) -> Callable[[Caller], Profile]:
    """A function from a caller to the profile of their endpoint."""
    whole = whole_toolbox(toolbox)
    of_packs = {pack.name: pack_profile(pack) for pack in packs}
    at_banks = [pack for pack in packs if pack.dialect.at_banks]
    of_banks = [tool for pack in at_banks for tool in pack.bank_tools]
    bank = Profile(
        tools=lambda: [(tool.name, without_bank(tool)) for tool in of_banks],
        # Any tool can be called by name: no argument can change the bank of the URL.
        resolve=whole.resolve,
        documents=False,
        packs=tuple(pack.name for pack in at_banks),
        about=_about(at_banks),
    )

    def choose(caller: Caller) -> Profile:
        if caller.pack in of_packs:
            return of_packs[caller.pack]
        return bank if caller.bank_fixed and of_banks else whole

    return choose


def pack_profile(pack: Pack) -> Profile:
    """One pack under the names its clients know, with its error codes and methods."""
    dialect = pack.dialect
    return Profile(
        tools=lambda: [(tool.name, tool) for tool in pack.tools.values()],
        resolve=pack.own_name,
        dialect=Dialect(**dialect.codes, details=dialect.details, pretty=dialect.pretty),
        methods={name: partial(pack.method_answer, name) for name in dialect.methods},
        documents=False,
        packs=(pack.name,),
        about=_about([pack]),
    )


def _about(packs: Sequence[Pack]) -> tuple[str, str]:
    """Description and instructions of an endpoint with these packs."""
    description = "; ".join(pack.dialect.description for pack in packs)
    return description, "\n\n".join(pack.instructions for pack in packs)


def without_bank(tool: Tool) -> Tool:
    """The tool without its `bank_id` parameter, for an endpoint whose URL names the bank."""
    properties = tool.parameters.get("properties", {})
    if "bank_id" not in properties:
        return tool
    kept_properties = {name: rule for name, rule in properties.items() if name != "bank_id"}
    required = [name for name in tool.parameters.get("required", ()) if name != "bank_id"]
    return tool._replace(parameters={**tool.parameters, "properties": kept_properties, "required": required})

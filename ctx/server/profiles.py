"""What each MCP endpoint shows: all tools at `/mcp`, a bank's at `/mcp/{bank}`, a pack's at
`/packs/{pack}/mcp`, under the pack's own names.
"""

from collections.abc import Callable, Sequence
from functools import partial

from ctx.packs.packs import Pack
from ctx.server.mcp import Profile, whole_toolbox
from ctx.server.mcp_shapes import Dialect
from ctx.server.policy import PackPolicy
from ctx.server.rest import PackRoute
from ctx.tools.base import Tool, Toolbox
from ctx.types import Caller


def profiles(toolbox: Toolbox, packs: Sequence[Pack]) -> Callable[[Caller], Profile]:
    """A function from a caller to the profile of their endpoint."""
    whole = whole_toolbox(toolbox)
    of_packs = {pack.name: pack_profile(pack) for pack in packs}
    at_banks = [pack for pack in packs if pack.manifest.at_banks]
    of_banks = [pack.tools[spec.name] for pack in at_banks for spec in pack.manifest.tools if spec.at_banks]
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
    manifest = pack.manifest
    return Profile(
        tools=lambda: [(tool.name, tool) for tool in pack.tools.values()],
        resolve=pack.own_name,
        dialect=Dialect(**manifest.codes, details=manifest.details, pretty=manifest.pretty),
        methods={name: partial(pack.answer_method, name) for name in manifest.methods},
        documents=False,
        packs=(pack.name,),
        about=_about([pack]),
    )


def _about(packs: Sequence[Pack]) -> tuple[str, str]:
    """Description and instructions of an endpoint with these packs."""
    manifests = [pack.manifest for pack in packs]
    description = "; ".join(manifest.description for manifest in manifests)
    return description, "\n\n".join(manifest.instructions for manifest in manifests)


def without_bank(tool: Tool) -> Tool:
    """The tool without its `bank_id` parameter, for an endpoint whose URL names the bank."""
    properties = tool.parameters.get("properties", {})
    if "bank_id" not in properties:
        return tool
    kept_properties = {name: rule for name, rule in properties.items() if name != "bank_id"}
    required = [name for name in tool.parameters.get("required", ()) if name != "bank_id"]
    return tool._replace(parameters={**tool.parameters, "properties": kept_properties, "required": required})


def pack_policies(packs: Sequence[Pack]) -> tuple[PackPolicy, ...]:
    """The access rules of each pack."""
    return tuple(
        PackPolicy(pack.name, pack.keys, pack.manifest.key_required, pack.manifest.at_banks) for pack in packs
    )


def pack_routes(toolbox: Toolbox, packs: Sequence[Pack]) -> list[PackRoute]:
    """The packs' own HTTP routes."""
    return [
        PackRoute(
            route.method,
            route.path,
            pack.name,
            pack.route_answer(route, toolbox),
            auth=route.auth,
            error_body=pack.envelope if pack.manifest.envelope else None,
        )
        for pack in packs
        for route in pack.manifest.routes
    ]

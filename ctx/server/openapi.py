"""Descriptions of the server for clients of REST: `/llms.txt`, and an OpenAPI 3.1 document with operations
for each registered tool and agent.

FastAPI describes the fixed endpoints. All other operations are generated from the registered tools and
agents, so they always match what the server offers.
"""

from collections.abc import Iterable, Sequence

from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from ctx import __version__
from ctx.models import AUTO, JSON
from ctx.text.strings import cut
from ctx.tools.toolbox import Agent, Tool

SUMMARY_CHARACTERS = 300  # longest summary that GPT actions accept
_EXAMPLES: dict[str, JSON] = {"search": {"query": "how to rotate the signing key", "limit": 5}}


def _object(**properties: JSON) -> dict[str, JSON]:
    """The JSON Schema of an object in which all of these properties are required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


_TEXT: JSON = {"type": "string"}
_OBJECT: JSON = {"type": "object"}
_ERROR = {
    **_object(error=_object(code=_TEXT, message=_TEXT)),
    "examples": [{"error": {"code": "bad_request", "message": "missing required parameter: query"}}],
}
FAILURES: dict[int | str, dict[str, JSON]] = {
    "default": {
        "description": "The request failed; the status and `code` say why",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
}
_PROMPT = _object(
    system=_TEXT, tools={"type": "array", "items": _TEXT}, messages={"type": "array", "items": _OBJECT}
)


def describe(
    tools: Sequence[Tool],
    agents: Sequence[Agent],
    fixed: Sequence[BaseRoute] = (),
    *,
    server_url: str = "/",
    key_needed: bool = False,
) -> dict[str, JSON]:
    """The OpenAPI document of the `fixed` endpoints (rest.py), `tools` and `agents`.

    `key_needed` says whether every request needs a key.
    """
    document: dict[str, JSON] = get_openapi(
        title="ctx",
        version=__version__,
        openapi_version="3.1.0",
        summary="Search and read the indexed documents, and call the tools of this server.",
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        servers=[{"url": server_url}],
        tags=[{"name": "tools"}, {"name": "agents"}, {"name": "server"}],
        routes=fixed,
    )
    schemas: dict[str, JSON] = {**document.pop("components", {}).get("schemas", {}), "Error": _ERROR}
    paths: dict[str, JSON] = document.pop("paths")
    paths |= {f"/tools/{tool.name}": _tool_path(tool, schemas) for tool in tools}
    paths |= {f"/agents/{agent.name}/prompt": {"post": _agent_operation(agent)} for agent in agents}
    return {
        **document,
        # `{}` means that requests without a key are allowed too.
        "security": [{"bearer": []}] if key_needed else [{}, {"bearer": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": schemas,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _tool_path(tool: Tool, schemas: dict[str, JSON]) -> JSON:
    """The operations for a tool. Adds the schemas of its parameters and its result to `schemas`."""
    name, result_name = f"{tool.name}_parameters", f"{tool.name}_result"
    sets = [{"required": list(names)} for names in tool.alternatives]
    schemas[name] = _rooted({**tool.parameters, **({"anyOf": sets} if sets else {})}, name)
    answer: JSON = _OBJECT if tool.bare else {}
    if tool.output_schema is not None:
        schemas[result_name] = _rooted(tool.output_schema, result_name)
        answer = {"$ref": f"#/components/schemas/{result_name}"}
    if not tool.bare:
        answer = _object(result=answer)
    summary = tool.title or tool.description or tool.name
    reading = _operation(tool.name, summary, "tools", "The tool's result", answer)
    reading["description"] = tool.description
    content: dict[str, JSON] = {"schema": {"$ref": f"#/components/schemas/{name}"}}
    required = bool(tool.parameters.get("required") or tool.alternatives)
    if tool.builtin and tool.name in _EXAMPLES:
        content["example"] = _EXAMPLES[tool.name]
    elif not required:
        content["example"] = {}
    operation = {**reading, "requestBody": _request_body(content, required)}
    if tool.name != "sources" or not tool.builtin:
        return {"post": operation}
    # `sources` accepts GET by specification (seed 003), and POST like every other tool.
    return {"get": reading, "post": {**operation, "operationId": "sources_post"}}


def _agent_operation(agent: Agent) -> JSON:
    # An argument may have any type, since the agent checks it. Null counts as absent.
    schema: dict[str, JSON] = {
        "type": "object",
        "properties": {
            name: {"description": description, **({"not": {"type": "null"}} if required else {})}
            for name, description, required in agent.arguments
        },
    }
    if needed := [argument.name for argument in agent.arguments if argument.required]:
        schema["required"] = needed
    summary = agent.description or agent.name
    operation = _operation(f"agent_{agent.name}", summary, "agents", "The agent's prompt", _PROMPT)
    return {**operation, "requestBody": _request_body({"schema": schema}, bool(needed))}


def _operation(id: str, summary: str, tag: str, reply: str, schema: JSON) -> dict[str, JSON]:
    """An OpenAPI operation. `reply` is the description of its reply, `schema` the JSON Schema of it."""
    first = summary.strip().partition("\n")[0]
    answered = {"description": reply, "content": {"application/json": {"schema": schema}}}
    return {
        "operationId": id,
        "summary": cut(first, SUMMARY_CHARACTERS, "..."),
        "tags": [tag],
        "responses": {"200": answered, **FAILURES},
    }


def _request_body(content: dict[str, JSON], required: bool) -> JSON:
    return {"required": required, "content": {"application/json": content}}


def _rooted(schema: JSON, name: str) -> JSON:
    # A reference such as `#/$defs/x` is relative to the root of the tool's schema. In the OpenAPI document,
    # that schema is a component, so the reference must name it.
    if isinstance(schema, list):
        return [_rooted(item, name) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _rooted(value, name) for key, value in schema.items()}
    reference = moved.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = f"#/components/schemas/{name}{reference[1:]}"
    return moved


# -- the tools as REST lists them ----------------------------------------------------------------------------


def listed_over_rest(tool: Tool, semantic: bool) -> Tool:
    """The tool as REST lists it. `search` lists no `auto` mode, and without embeddings only `keyword`."""
    properties = tool.parameters.get("properties", {})
    if not tool.builtin or "enum" not in properties.get("mode", {}):
        return tool
    unlisted = (AUTO,) if semantic else (AUTO, "semantic", "hybrid")
    mode = {**properties["mode"], "enum": [m for m in properties["mode"]["enum"] if m not in unlisted]}
    description = tool.description
    if not semantic:
        mode["description"] = "keyword: words and identifiers"
        description = description.replace("keyword, semantic, or hybrid query", "keyword")
    parameters = {**tool.parameters, "properties": {**properties, "mode": mode}}
    return tool._replace(description=description, parameters=parameters)


LLMS_TXT = """\
# ctx

> A context server: search the documents of this machine and its team, read them, and call tools.

Search with `POST /tools/search`, body `{"query": "...", "mode": "MODE"}`; read a
document with `POST /tools/get`, body `{"id": "..."}`. Every tool is `POST /tools/{name}` with a
JSON object, and an MCP tool at `/mcp`.

## Tools

TOOLS

## Descriptions

- [OpenAPI](/openapi.json): every tool with its parameters
- [Tools](/tools/list)
- [Sources](/tools/sources): what is indexed, and how fresh it is
"""


def llms_txt(tools: Iterable[Tool], semantic: bool) -> str:
    """The text of `/llms.txt`. `tools` are the tools as REST lists them (`listed_over_rest`)."""
    lines = [f"- `{tool.name}`: {' '.join(tool.description.split())}" for tool in tools]
    mode = "hybrid" if semantic else "keyword"
    return LLMS_TXT.replace("MODE", mode).replace("TOOLS", "\n".join(lines))

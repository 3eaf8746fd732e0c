"""The OpenAPI 3.1 description, with one operation for each registered tool and agent.

FastAPI describes the fixed endpoints. The rest is generated from the registered tools and agents, so it
always matches what the server offers.
"""

from collections.abc import Iterable, Sequence

from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from ctx import __version__
from ctx.models import JSON, as_table
from ctx.text.strings import cut
from ctx.tools.toolbox import Agent, Tool

SUMMARY_CHARACTERS = 300  # the limit of GPT actions
_EXAMPLES: dict[str, JSON] = {"search": {"query": "how to rotate the signing key", "limit": 5}}

_ERRORS = {
    400: "The request or its arguments are not valid",
    401: "A key is missing or wrong",
    403: "Web pages of this origin may not call this route",
    404: "No such tool, document or agent",
    405: "The path does not accept this method",
    408: "The script took too long",
    409: "The resource was changed or already exists",
    413: "The body is too large",
    421: "The server does not accept this Host",
    429: "Too many calls; see Retry-After",
    500: "The tool failed",
    503: "The server is busy or its store cannot answer; see Retry-After",
}
_READING = (401, 403, 405, 421, 429, 500, 503)


def _object(**properties: JSON) -> dict[str, JSON]:
    """The schema of an object that has all of these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


_TEXT: JSON = {"type": "string"}
_TEXTS: JSON = {"type": "array", "items": _TEXT}
_OBJECT: JSON = {"type": "object"}
_OBJECTS: JSON = {"type": "array", "items": _OBJECT}
_ERROR = {
    **_object(error=_object(code=_TEXT, message=_TEXT)),
    "examples": [{"error": {"code": "bad_request", "message": "missing required parameter: query"}}],
}
_PROMPT = _object(system=_TEXT, tools=_TEXTS, messages=_OBJECTS)


def describe(
    tools: Sequence[Tool],
    agents: Sequence[Agent],
    fixed: Sequence[BaseRoute] = (),
    *,
    server_url: str = "/",
    key_needed: bool = False,
) -> dict[str, JSON]:
    """The OpenAPI document of the `fixed` endpoints (rest.py), `tools` and `agents`.

    `key_needed`: every request needs a key.
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
    for operations in paths.values():
        for operation in operations.values():
            operation["responses"] = {"200": operation["responses"]["200"], **_failures(_READING)}
    paths |= {f"/tools/{tool.name}": _tool_path(tool, schemas) for tool in tools}
    paths |= {f"/agents/{agent.name}/prompt": {"post": _agent_operation(agent)} for agent in agents}
    return {
        **document,
        # `{}`: requests without a key are allowed too
        "security": [{"bearer": []}] if key_needed else [{}, {"bearer": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": schemas,
            "responses": {
                f"Error{status}": {
                    "description": text,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                }
                for status, text in _ERRORS.items()
            },
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _example(tool: Tool) -> JSON:
    """Example arguments for a tool.

    None if a required parameter has no example, default or list of values, or if the tool has alternative
    sets of parameters.
    """
    if tool.builtin and tool.name in _EXAMPLES:
        return _EXAMPLES[tool.name]
    arguments = {}
    for name in tool.parameters.get("required", ()):
        rule = as_table(as_table(tool.parameters.get("properties")).get(name))
        single = [rule[key] for key in ("example", "default", "const") if key in rule]
        values = rule.get("examples") or single or rule.get("enum")
        if not isinstance(values, list) or not values:
            return None
        arguments[name] = values[0]
    return arguments if not tool.alternatives else None


def _tool_path(tool: Tool, schemas: dict[str, JSON]) -> JSON:
    """The operations of a tool. Adds the schemas of its parameters and its result to `schemas`."""
    name, result_name = f"{tool.name}_parameters", f"{tool.name}_result"
    schemas[name] = _rooted(_with_nulls(tool.parameters) | _choices(tool.alternatives), name)
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
    if (arguments := _example(tool)) is not None:
        content["example"] = arguments
    required = bool(tool.parameters.get("required") or tool.alternatives)
    operation = {**reading, "requestBody": _request_body(content, required)}
    if tool.name != "sources" or not tool.builtin:
        return {"post": operation}
    # `sources` accepts GET by specification (seed 003), and POST like every other tool.
    return {"get": reading, "post": {**operation, "operationId": "sources_post"}}


def _agent_operation(agent: Agent) -> JSON:
    # Any type is allowed for an argument, since the agent checks it; but null counts as absent.
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
    """An operation. `reply` and `schema` describe its reply."""
    first = summary.strip().partition("\n")[0]
    answered = {"description": reply, "content": {"application/json": {"schema": schema}}}
    return {
        "operationId": id,
        "summary": cut(first, SUMMARY_CHARACTERS, "..."),
        "tags": [tag],
        "responses": {"200": answered, **_failures(_ERRORS)},
    }


def _failures(statuses: Iterable[int]) -> dict[str, JSON]:
    """The error replies of an operation."""
    return {str(status): {"$ref": f"#/components/responses/Error{status}"} for status in statuses}


def _request_body(content: dict[str, JSON], required: bool) -> JSON:
    return {"required": required, "content": {"application/json": content}}


def _choices(alternatives: Sequence[Sequence[str]]) -> dict[str, JSON]:
    """A JSON Schema that requires at least one of these sets of parameters. Null counts as absent."""
    absent: JSON = {"not": {"type": "null"}}
    sets = [{"required": list(names), "properties": dict.fromkeys(names, absent)} for names in alternatives]
    return {"anyOf": sets} if sets else {}


def _or_null(rule: dict[str, JSON]) -> dict[str, JSON]:
    notes: dict[str, JSON] = {key: rule[key] for key in ("title", "description", "default") if key in rule}
    rules = {key: value for key, value in rule.items() if key not in notes}
    return {**notes, "anyOf": [rules, {"type": "null"}]}


def _with_nulls(parameters: JSON) -> JSON:
    # The Toolbox accepts null for an optional parameter, so the schema allows null too.
    required = parameters.get("required", ())
    properties: dict[str, JSON] = {}
    for name, rule in parameters.get("properties", {}).items():
        inner = _with_nulls(rule) if isinstance(rule, dict) and rule.get("type") == "object" else rule
        properties[name] = inner if name in required or not isinstance(inner, dict) else _or_null(inner)
    return {**parameters, "properties": properties} if properties else parameters


def _rooted(schema: JSON, name: str) -> JSON:
    # `$ref: "#/$defs/x"` is relative to the root of the tool's schema, which is a component in this document.
    if isinstance(schema, list):
        return [_rooted(item, name) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _rooted(value, name) for key, value in schema.items()}
    reference = moved.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = f"#/components/schemas/{name}{reference[1:]}"
    return moved

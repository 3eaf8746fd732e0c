"""Tools, prompts and resources for the public MCP conformance suite. Only the tests serve them."""

import time
from typing import Any

import mcp_types as types

from ctx.errors import ToolError
from ctx.models import JSON, Caller
from ctx.server.mcp import Context, McpServer
from ctx.tools.toolbox import Agent, Agents, Prompt, Tool, Toolbox

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
NOTHING: dict[str, JSON] = {"type": "object", "additionalProperties": False}
SCHEMA_2020_12: dict[str, JSON] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def _text(text: str) -> dict[str, JSON]:
    return {"type": "text", "text": text}


def _resource(uri: str, text: str, media_type: str = "text/plain") -> dict[str, JSON]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": media_type, "text": text}}


IMAGE: dict[str, JSON] = {"type": "image", "data": PNG, "mimeType": "image/png"}
CONTENTS: dict[str, list[JSON]] = {
    "test_simple_text": [_text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    "test_embedded_resource": [
        _resource("test://embedded-resource", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        _text("Multiple content types test:"),
        IMAGE,
        _resource("test://mixed-content-resource", '{"test": "data", "value": 123}', "application/json"),
    ],
}
PROMPTS: dict[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
}


def _constant(content: list[JSON]) -> Any:
    return lambda arguments, caller: {"content": content}


def _fail(arguments: dict[str, JSON], caller: Caller) -> JSON:
    raise ToolError("This tool intentionally returns an error for testing")


def _steps(arguments: dict[str, JSON], caller: Caller) -> JSON:
    for process in (0, 50, 100):
        if caller.progress:
            caller.progress(process, 100, f"Completed step {process} of 100")
        time.sleep(0.02)  # the suite wants to see them one by one
    return {"content": [_text("done")]}


def add_tools(toolbox: Toolbox, agents: Agents) -> None:
    """Adds the tools that the suite calls."""

    def change_tools(arguments: dict[str, JSON], caller: Caller) -> JSON:
        toolbox.add(Tool(f"fresh_{time.monotonic_ns()}", "A fixture", NOTHING, _constant([_text("ok")])))
        return {"content": [_text("changed")]}

    def change_prompts(arguments: dict[str, JSON], caller: Caller) -> JSON:
        agents.add(Agent(f"fresh-{time.monotonic_ns()}", "A fixture", lambda a, c: Prompt("x")))
        return {"content": [_text("changed")]}

    toolbox.add(Tool("test_trigger_tool_change", "A fixture", NOTHING, change_tools))
    toolbox.add(Tool("test_trigger_prompt_change", "A fixture", NOTHING, change_prompts))
    toolbox.add(
        Tool("test_logging_tool", "A fixture", NOTHING, _constant([_text("nothing is logged to clients")]))
    )
    for name, content in CONTENTS.items():
        toolbox.add(Tool(name, "A fixture", NOTHING, _constant(content)))
    toolbox.add(Tool("test_error_handling", "A fixture", NOTHING, _fail))
    toolbox.add(Tool("test_tool_with_progress", "A fixture", {"type": "object"}, _steps))
    toolbox.add(Tool("json_schema_2020_12_tool", "A fixture", SCHEMA_2020_12, _constant([_text("ok")])))
    region = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    toolbox.add(
        Tool(
            "test_x_mcp_header",
            "A fixture",
            region,
            lambda a, c: {"content": [_text(f"region={a.get('region')}")]},
        )
    )


class ConformanceServer(McpServer):
    """The product's server, with the suite's prompts and resources before its own."""

    def __init__(self, toolbox: Toolbox, agents: Agents, *rest: Any, **named: Any) -> None:
        add_tools(toolbox, agents)
        super().__init__(toolbox, agents, *rest, **named)

    async def _list_prompts(self, context: Context, params: Any) -> types.ListPromptsResult:
        reference_list = await super()._list_prompts(context, params)
        fixtures = [
            types.Prompt(
                name=name,
                description="A fixture",
                arguments=[types.PromptArgument(name=argument, required=True) for argument in arguments],
            )
            for name, arguments in PROMPTS.items()
        ]
        return types.ListPromptsResult(prompts=[*reference_list.prompts, *fixtures])

    async def _get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        inputs = params.arguments or {}
        words: dict[str, list[dict[str, JSON]]] = {
            "test_simple_prompt": [_text("This is a simple prompt for testing.")],
            "test_prompt_with_arguments": [
                _text(f"Prompt with arguments: arg1='{inputs.get('arg1')}', arg2='{inputs.get('arg2')}'")
            ],
            "test_prompt_with_embedded_resource": [
                _resource(inputs.get("resourceUri", "test://x"), "Embedded resource content for testing."),
                _text("Please process the embedded resource above."),
            ],
            "test_prompt_with_image": [IMAGE, _text("Please analyze the image above.")],
        }
        if params.name not in words:
            return await super()._get_prompt(context, params)
        messages = [{"role": "user", "content": content} for content in words[params.name]]
        return types.GetPromptResult.model_validate({"description": params.name, "messages": messages})

    async def _list_resources(self, context: Context, params: Any) -> types.ListResourcesResult:
        names = {"test://static-text": "text/plain", "test://static-binary": "image/png"}
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=uri, name=uri, mime_type=media_type) for uri, media_type in names.items()
            ]
        )

    async def _list_templates(self, context: Context, params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            uri_template="test://template/{id}/data", name="template", mime_type="application/json"
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        contents: dict[str, JSON]
        if uri == "test://static-text":
            contents = {"mimeType": "text/plain", "text": "This is the content of the static text resource."}
        elif uri == "test://static-binary":
            contents = {"mimeType": "image/png", "blob": PNG}
        elif uri.startswith("test://template/"):
            number = uri.split("/")[3]
            text = f'{{"id":"{number}","templateTest":true,"data":"Data for ID: {number}"}}'
            contents = {"mimeType": "application/json", "text": text}
        else:
            return await super()._read_resource(context, params)
        return types.ReadResourceResult.model_validate({"contents": [{"uri": uri, **contents}]})

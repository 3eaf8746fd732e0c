"""What the server tells models about itself; it mentions only what this configuration can do."""

from collections.abc import Iterable
from typing import NamedTuple

from ctx.models import AUTO
from ctx.tools.toolbox import Tool

MODES_WITH_EMBEDDINGS = ("semantic", "hybrid")


class Advice(NamedTuple):
    """`semantic`: whether documents have embeddings, so that semantic and hybrid search work."""

    semantic: bool = True

    def instructions(self) -> str:
        """The MCP server instructions: which tool to use for what."""
        hybrid = ' (mode "hybrid" finds both words and meaning)' if self.semantic else ""
        return (
            f"Search the user's documents with `search`{hybrid}, read one with `get`, see what is "
            "indexed and how fresh it is with `sources`. Results carry a heading and line numbers; cite them."
        )

    def listed(self, tool: Tool) -> Tool:
        """The tool as lists show it: `search` has the modes of seed 003, less those that lack embeddings."""
        properties = tool.parameters.get("properties", {})
        if not tool.builtin or "enum" not in properties.get("mode", {}):
            return tool
        unlisted = (AUTO,) if self.semantic else (AUTO, *MODES_WITH_EMBEDDINGS)
        modes = [mode for mode in properties["mode"]["enum"] if mode not in unlisted]
        mode = {**properties["mode"], "enum": modes}
        description = tool.description
        if not self.semantic:
            mode["description"] = "keyword: words and identifiers"
            description = description.replace("keyword, semantic, or hybrid query", "keyword")
        return tool._replace(
            description=description,
            parameters={**tool.parameters, "properties": {**properties, "mode": mode}},
        )

    def words(self, tools: Iterable[Tool]) -> str:
        """The text of `/llms.txt`."""
        mode = "hybrid" if self.semantic else "keyword"
        return "\n".join(
            [
                "# ctx",
                "",
                "> A context server: search the documents of this machine and its team, read them, "
                "and call tools.",
                "",
                f'Search with `POST /tools/search`, body `{{"query": "...", "mode": "{mode}"}}`; read a',
                'document with `POST /tools/get`, body `{"id": "..."}`. Every tool is `POST /tools/{name}` '
                "with a",
                "JSON object, and an MCP tool at `/mcp`.",
                "",
                "## Tools",
                "",
                *(
                    f"- `{tool.name}`: {' '.join(tool.description.split())}"
                    for tool in map(self.listed, tools)
                ),
                "",
                "## Descriptions",
                "",
                "- [OpenAPI](/openapi.json): every tool with its parameters",
                "- [Tools](/tools/list)",
                "- [Sources](/tools/sources): what is indexed, and how fresh it is",
                "",
            ]
        )


FULL_ADVICE = Advice()

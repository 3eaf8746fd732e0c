"""Texts for models: the server's instructions, and the document tools as MCP shows them, with short schemas,
other defaults and Markdown answers.

REST and the command line use the same tools with their full schemas. Without embeddings (`semantic` false),
no text mentions semantic or hybrid search.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ctx.models import AUTO, JSON, SourceStatus
from ctx.text.filetypes import is_code
from ctx.text.strings import counted
from ctx.tools.schema import put_right
from ctx.tools.toolbox import Tool

MAX_TOKENS = 8_000  # of a document, by default; clients refuse replies of more than 25,000 tokens
FILES = 5  # in a search result by default
PASSAGES = 3  # per file in a search result
MAX_SOURCES = 8  # named in the instructions
MAX_NAMES = 6  # folders, and types, named in the instructions

MARKDOWN = "markdown"
_TEXT = {"type": "string"}
_FORMAT = {"type": "string", "enum": ["text", "json"]}


class View(NamedTuple):
    """The description and parameters of a tool as models see them, and its default arguments for models."""

    description: str
    properties: Mapping[str, JSON]
    required: tuple[str, ...] = ()
    defaults: Mapping[str, JSON] = {}

    @property
    def schema(self) -> dict[str, JSON]:
        return {"type": "object", "properties": dict(self.properties), "required": list(self.required)}


def _about(description: str, kind: str = "string") -> dict[str, JSON]:
    return {"type": kind, "description": description}


_PATH = _about("path, path:10-40 or path#Symbol")
VIEWS: Mapping[str, View] = {
    "search": View(
        "Find code and pages by words, names or meaning: paths, line ranges, symbols and the best lines.",
        {
            "query": _about("a question, words or an identifier; quotes for an exact phrase"),
            "path": _about("folder or glob: src, *.py"),
            "type": _about("code, prose or a media type"),
            "source": _about("source name"),
            "limit": _about(f"files, {FILES} by default", "integer"),
            "mode": {"type": "string", "enum": ["hybrid", "keyword", "semantic"]},
            "since": _about("ISO 8601"),
            "until": _about("ISO 8601"),
            "format": _FORMAT,
        },
        ("query",),
        {"limit": FILES, "per_document": PASSAGES},
    ),
    "get": View(
        "Read a file, one definition, one section or some lines. With a query, only the parts about it.",
        {
            "path": _PATH,
            "query": _about("show only the blocks around these words"),
            "source": _about("source name"),
            "id": _about("in place of path"),
            "start_line": {"type": "integer"},
            "end_line": {"type": "integer"},
            "max_tokens": _about(f"{MAX_TOKENS} by default", "integer"),
            "format": _FORMAT,
        },
        (),
        {"max_tokens": MAX_TOKENS},
    ),
    "outline": View(
        "List the definitions of a file, the members of path#Class, or a page's headings, with line ranges.",
        {"path": _PATH, "query": _about("only members with these words"), "source": _TEXT, "format": _FORMAT},
        ("path",),
    ),
    "symbol": View(
        "Where a name is defined, what it calls, and every line that refers to it.",
        {
            "name": _about("find or Store.find"),
            "path": _about("folder or glob"),
            "source": _TEXT,
            "limit": {"type": "integer"},
            "format": _FORMAT,
        },
        ("name",),
    ),
    "sources": View("List what is indexed and how fresh it is.", {"format": _FORMAT}),
}
_FILTERS = ("path", "type", "since", "until")


def view_of(tool: Tool) -> View | None:
    """The tool's view for models; None if all interfaces show the tool in the same way."""
    known = tool.parameters.get("properties", {})
    return VIEWS.get(tool.name) if tool.builtin and "format" in known else None


def listed(tool: Tool, semantic: bool) -> Tool:
    """The tool as MCP's `tools/list` shows it. Without embeddings, `search` has no `mode`."""
    view = view_of(tool)
    if view is None:
        return tool
    schema = view.schema
    if not semantic:
        schema["properties"].pop("mode", None)
    return tool._replace(description=view.description, parameters=schema, output_schema=None)


def _as_text(rule: JSON, value: JSON) -> JSON:
    """A value as text if the schema wants one and a model sent a number or a list of one text."""
    if (rule or {}).get("type") != "string":
        return value
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return value[0]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def translated(tool: Tool, arguments: Mapping[str, JSON]) -> dict[str, JSON]:
    """Converts the arguments of a model to the tool's own arguments.

    A tool with a view answers in the format `markdown`, unless the model wants JSON.
    """
    view = view_of(tool)
    if view is None:
        return dict(arguments)
    also = tuple(tool.parameters["properties"])
    texts = {name: _as_text(view.properties.get(name), value) for name, value in arguments.items()}
    passed, unknown = put_right(view.schema, texts, also, strict=False)
    as_json = passed.pop("format", None) == "json"
    passed |= {name: arguments[name] for name in unknown}  # the tool reports that it ignores them
    passed = {**view.defaults, **passed}
    if tool.name == "search":
        filters = put_right(tool.parameters, {"filters": passed.pop("filters", None)}, strict=False)[0]
        narrowed = filters.get("filters") or {}
        if isinstance(narrowed, dict):  # the later check reports other types
            narrowed |= {name: passed.pop(name) for name in _FILTERS if name in passed}
        if narrowed:
            passed["filters"] = narrowed
        passed.setdefault("mode", AUTO)
    if not as_json and not (tool.name == "get" and passed.get("chunks")):
        passed["format"] = MARKDOWN
    return passed


def index_instructions(
    statuses: list[SourceStatus], media_types: Mapping[str, int], folders: Counter[str], semantic: bool
) -> str:
    """The instructions that a model reads first: what is indexed, and how to use the tools."""
    filled = [status for status in statuses if status.doc_count]
    named = [f"{status.name} ({counted(status.doc_count, 'file')})" for status in filled[:MAX_SOURCES]]
    more = f" and {len(filled) - MAX_SOURCES} more sources" if len(filled) > MAX_SOURCES else ""
    kinds = [
        f"{count} {name.rpartition('/')[2].removeprefix('x-')}"
        for name, count in sorted(media_types.items(), key=lambda entry: -entry[1])[:MAX_NAMES]
    ]
    tops = [f"{name}/" for name, _ in folders.most_common(MAX_NAMES) if name]
    lines = [
        f"An index of {', '.join(named)}{more}." if named else "Nothing is indexed yet.",
        f"Files: {', '.join(kinds)}." if kinds else "",
        f"Folders: {', '.join(tops)}." if tops else "",
        "Use `search` instead of grep when you do not know the exact name or file"
        + (": it finds words and meaning." if semantic else ".")
        + " Ask with the words of the problem.",
        "Then read with `get` path#Symbol, or `get` with a query for only the parts about it;"
        if any(map(is_code, media_types))
        else "Then read with `get` path#Heading, or `get` with a query for only the parts about it;",
        "`outline` lists a file's members, `symbol` the definition and all uses of a name.",
    ]
    return "\n".join(filter(None, lines))


def short_instructions(semantic: bool) -> str:
    """Instructions that do not describe the index, for when it cannot be read."""
    hybrid = ' (mode "hybrid" finds both words and meaning)' if semantic else ""
    return (
        f"Search the user's documents with `search`{hybrid}, read one with `get`, see what is indexed and "
        "how fresh it is with `sources`. Results carry a heading and line numbers; cite them."
    )


# -- REST ----------------------------------------------------------------------------------------------------


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
    """The text of `/llms.txt`; `tools` are as REST lists them."""
    lines = [f"- `{tool.name}`: {' '.join(tool.description.split())}" for tool in tools]
    mode = "hybrid" if semantic else "keyword"
    return LLMS_TXT.replace("MODE", mode).replace("TOOLS", "\n".join(lines))

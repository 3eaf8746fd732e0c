"""Writes what follows from the declared keys: `python .ci/configuration.py [--check]`.

The tables of docs/configuration.md (between `<!-- keys: TABLE -->` and `<!-- end -->`), the commented
config/ctx.toml, and the JSON Schema for editors, config/ctx.schema.json. A test runs `--check`.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from ctx.config.settings import NAMED_SECTIONS, SECTIONS, Llm, PackSettings  # noqa: E402
from ctx.config.toml import Key, keys_of  # noqa: E402
from ctx.models import JSON  # noqa: E402

REFERENCE = ROOT / "docs" / "configuration.md"
EXAMPLE = ROOT / "config" / "ctx.toml"
SCHEMA = ROOT / "config" / "ctx.schema.json"
COLUMN = 36  # where the comments of the example begin

TABLES: dict[str, type[Any]] = {
    **SECTIONS,
    "packs.sekha": PackSettings,
    "memory.llm": Llm,
    **NAMED_SECTIONS,
}
SAMPLES = {
    "connectors.filesystem": "docs",
    "connectors.git": "platform",
    "connectors.web": "handbook",
    "connectors.s3": "archive",
    "connectors.script": "tickets",
    "tools.script": "create-ticket",
    "agents.inline": "reviewer",
    "agents.script": "planner",
}
RULE = "# ---- {} " + "-" * 100
HEAD = """\
# The configuration of ctx. Every key is shown; the commented ones have the value shown here by default,
# or none. Relative paths are relative to the folder that holds this file (or its parent, where that folder
# is called config or .ctx).
# "${NAME}" in any string is replaced by the environment variable NAME; an unset one is an error.
"""
GROUPS = {
    "Sources": (
        "connectors.filesystem",
        "connectors.git",
        "connectors.web",
        "connectors.s3",
        "connectors.script",
    ),
    "Store, text, embeddings, ranking": ("db", "store", "index", "chunking", "embedding", "retrieval"),
    "Server": ("server", "mcp", "watch"),
    "Lua: tools and agents of your own": ("lua", "tools.script", "agents.inline", "agents.script"),
    "Memory": ("packs", "packs.sekha", "memory", "memory.llm"),
}
PATHS = {"connectors.script": "./connectors/tickets.lua", "agents.script": "./agents/planner.lua"}
JSON_TYPES = {
    **dict.fromkeys(("str", "path", "url", "urls"), "string"),
    "int": "integer",
    "float": "number",
    "bool": "boolean",
}


def toml_value(value: JSON) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(entry) for entry in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:_g}" if isinstance(value, float) else f"{value:_}" if value >= 10_000 else str(value)
    return json.dumps(value)


def plain(note: str) -> str:
    """A note without the reference's markup."""
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", note).replace("`", "")


def default_cell(rule: Key) -> str:
    if rule.required:
        return "required"
    return rule.unset if rule.default is None else f"`{toml_value(rule.default)}`"


def reference_table(table: str) -> str:
    rows = [
        f"| `{name}` | {default_cell(rule)} | {rule.note} |" for name, rule in keys_of(TABLES[table]).items()
    ]
    return "\n".join(["| key | default | |", "|---|---|---|", *rows])


def reference(text: str) -> str:
    def fill(match: re.Match[str]) -> str:
        return f"<!-- keys: {match[1]} -->\n{reference_table(match[1])}\n<!-- end -->"

    return re.sub(r"<!-- keys: ([a-z0-9.]+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)


def commented(line: str, comment: str) -> str:
    return f"{line:<{COLUMN}}  # {comment}" if comment else line


def example_lines(table: str) -> list[str]:
    name = f"{table}.{SAMPLES[table]}" if table in SAMPLES else table
    lines = [f"[{name}]"]
    for key, rule in keys_of(TABLES[table]).items():
        value = rule.default if rule.shown is None or rule.default not in (None, (), "") else rule.shown
        if key == "path" and table in PATHS:
            value = PATHS[table]
        if value is not None:
            lines.append(commented(f"{key} = {toml_value(value)}", plain(rule.note)))
    if table == "connectors.filesystem":
        return [lines[0], lines[1].replace("  # ", "    # ", 1), *("# " + line for line in lines[2:])]
    if table == "connectors.script":
        lines.append(commented('project = "ACME"', "any other key goes to the script"))
    return ["# " + line for line in lines]


def example() -> str:
    parts = [HEAD]
    for title, tables in GROUPS.items():
        parts.append(RULE.format(title)[:118] + "\n")
        parts += ["\n".join(example_lines(table)) + "\n" for table in tables]
    return "\n".join(parts)


def schema_of(section: type[Any]) -> dict[str, JSON]:
    properties: dict[str, JSON] = {}
    for name, rule in keys_of(section).items():
        kind = JSON_TYPES.get(rule.kind)
        entry: dict[str, JSON] = {"type": kind} if kind else {"type": "array", "items": {"type": "string"}}
        entry["description"] = plain(rule.note)
        if rule.choices:
            entry["enum"] = list(rule.choices)
        if rule.within is not None:
            entry |= {"minimum": rule.within[0], "maximum": rule.within[1]}
        if rule.default is not None:
            entry["default"] = list(rule.default) if isinstance(rule.default, tuple) else rule.default
        properties[name] = entry
    required = [name for name, rule in keys_of(section).items() if rule.required]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def schema() -> str:
    tables: dict[str, JSON] = {
        name: schema_of(section) | {"additionalProperties": False} for name, section in SECTIONS.items()
    }
    tables["packs"]["additionalProperties"] = schema_of(PackSettings) | {"additionalProperties": False}
    tables["memory"]["properties"]["llm"] = schema_of(Llm) | {"additionalProperties": False}
    for table, section in NAMED_SECTIONS.items():
        group, _, kind = table.partition(".")
        entry = schema_of(section) | ({} if kind == "script" else {"additionalProperties": False})
        if group == "connectors" and kind != "script":  # the table itself may be the one source
            shape: JSON = {"anyOf": [entry, {"type": "object", "additionalProperties": entry}]}
        else:
            shape = {"type": "object", "additionalProperties": entry}
        parent = tables.setdefault(group, {"type": "object", "properties": {}, "additionalProperties": False})
        parent["properties"][kind] = shape
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ctx.toml",
        "type": "object",
        "properties": tables,
        "additionalProperties": False,
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def main(argv: list[str]) -> int:
    texts = {REFERENCE: reference(REFERENCE.read_text()), EXAMPLE: example(), SCHEMA: schema()}
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    if "--check" not in argv:
        for path in stale:
            path.write_text(texts[path])
        return 0
    for path in stale:
        print(
            f"{path.relative_to(ROOT)} is out of date: python .ci/configuration.py writes it",
            file=sys.stderr,
        )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Turns Lua scripts into tools and agents."""

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ctx import files
from ctx.config.settings import MAX_SCRIPT_BYTES
from ctx.config.trust import NotTrusted, Voucher
from ctx.errors import ConfigError, ToolError
from ctx.lua.pool import Job, Pool
from ctx.models import JSON, NO_METADATA, Caller, as_table
from ctx.text.strings import cut, nearest, one_line
from ctx.tools.schema import compile_output_check
from ctx.tools.toolbox import Agent, AgentArgument, Annotations, Prompt, Tool

if TYPE_CHECKING:  # these modules import httpcore and ssl, which takes 100 ms
    from ctx.lua.host import Policy
    from ctx.scripts.bridge import Bridge

logger = logging.getLogger(__name__)

GRANTS = frozenset({"http", "fs", "env", "context"})
FIELDS = {  # the same as METADATA in lua/prelude.lua
    "tool": ("name", "description", "parameters", "output", "annotations", "title", "failure"),
    "connector": ("name", "description", "config"),
    "agent": ("name", "description", "tools", "arguments"),
}
MEMORY = "memory"  # scripts with a memory bank follow the access rules of the pack of this name
MAX_DESCRIPTION = 10_000  # characters; limited because every client's model reads all descriptions
LOAD_S = 5.0  # limit for reading a script's fields, which takes milliseconds unless it loops
NO_CALLER = Caller("script")
_ARGUMENT_FIELDS = ("name", "description", "required")
TYPES = ("string", "integer", "number", "boolean", "array", "object")
_COPIED_KEYS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format"),
    *("items", "minItems", "maxItems", "uniqueItems", "properties", "additionalProperties"),
    *("title", "examples"),
)
_KEYS = ("name", "type", "required", "description", "default", "enum", *_COPIED_KEYS)


class ScriptFile(NamedTuple):
    """A script and its settings. `trust` is "operator" for scripts that the configuration names, else
    "untrusted".
    """

    name: str
    path: str
    timeout_s: float = 30.0
    env: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    fs: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    memory_bank: str | None = None  # the memory bank that the script uses as `context.memory`
    config: Mapping[str, JSON] = NO_METADATA
    trust: str = "operator"
    shown: str = ""  # the file's name in messages
    vouched_by: Voucher | None = None  # checks that the user trusts the text; None if no check is needed
    named: bool = True  # whether the configuration names the script; False if it was found in a folder

    @property
    def where(self) -> str:
        return self.shown or os.path.basename(self.path)

    def policy(self) -> "Policy":
        from ctx.lua.host import Policy  # takes 100 ms to import

        folder = os.path.dirname(os.path.abspath(self.path))
        return Policy(
            self.name,
            (folder, *self.fs),
            frozenset(self.env),
            frozenset(host.lower() for host in self.allow_hosts),
            frozenset(self.calls),
            self.memory_bank,
            # Another script that later gets this name must not see the stored values.
            f"{self.name} ({self.where})",
        )

    def source(self) -> bytes:
        """The script's text. Raises `ToolError`, and `NotTrusted` if the user does not trust it."""
        if files.irregular(self.path):
            raise ToolError(f"{self.where} is not a regular file")
        try:
            with open(self.path, "rb") as file:
                text = file.read(MAX_SCRIPT_BYTES + 1)
        except OSError as error:
            advice = "" if self.vouched_by is None else self.vouched_by.advice
            raise ToolError(f"{self.where} cannot be read: {error.strerror}{advice}") from error
        if len(text) > MAX_SCRIPT_BYTES:
            raise ToolError(f"{self.where} is larger than {MAX_SCRIPT_BYTES:,} bytes")
        if self.vouched_by is not None:
            refusal = self.vouched_by.refusal(self.path, text, self.where)
            if refusal is not None:
                raise NotTrusted(refusal)
        return text

    def stamp(self) -> tuple[int, ...] | None:
        """Numbers that change when the file or its trust changes; None if the file is gone."""
        stamp = files.stamp(self.path)
        if not any(stamp):
            return None
        return stamp if self.vouched_by is None else (*stamp, *self.vouched_by.stamp())


class Runner(NamedTuple):
    """Runs scripts: the sandbox, and the bridge that answers the scripts' host calls."""

    pool: Pool
    bridge: "Bridge"

    def job(
        self,
        script: ScriptFile,
        source: bytes,
        kind: str,
        entry: str,
        arguments: JSON,
        context: Mapping[str, JSON] = NO_METADATA,
    ) -> Job:
        bank = {} if script.memory_bank is None else {"bank": {"id": script.memory_bank}}
        return Job(
            name=script.name,
            source=source,
            entry=entry,
            arguments=json.dumps(arguments).encode(),
            context=json.dumps({"config": dict(script.config), **bank, **context}).encode(),
            grants=GRANTS if script.memory_bank is None else GRANTS | {"memory"},
            trust=script.trust,
            kind=kind,
        )

    def call(self, script: ScriptFile, job: Job, caller: Caller) -> JSON:
        """Runs a job for `caller`, and returns its result. Raises a `CtxError`."""
        job = job._replace(caller=caller.share, ends_s=caller.ends_s)
        with self.bridge.running(script.policy(), caller) as host:
            return self.pool.run(job, host, script.timeout_s)

    def metadata(self, script: ScriptFile, source: bytes, kind: str) -> dict[str, JSON]:
        """The fields of the Lua table that the script defines. Raises a `CtxError`, also if the script does
        not define the function for its kind.

        The script runs without grants, because loading it must not make requests.
        """
        host = self.bridge.host_for(script.policy(), NO_CALLER)
        timeout_s = min(script.timeout_s, LOAD_S)
        job = self.job(script, source, kind, "metadata", {})._replace(grants=frozenset())
        fields = self.pool.run(job, host, timeout_s)
        if not isinstance(fields, dict):
            raise ToolError(f"{script.where} defines no table '{kind}'")
        refuse_misspelt(fields, FIELDS[kind], f"{script.where}: {kind}")
        return fields


def load_tool(runner: Runner, script: ScriptFile) -> Tool:
    """The tool that a script defines, with the name from the configuration. Raises a `CtxError`."""
    source = script.source()
    fields = runner.metadata(script, source, "tool")
    schema = parameters_schema(fields.get("parameters"), script.where)
    output = with_lists(fields.get("output"))
    if not isinstance(output, dict | None):
        raise ToolError(f"{script.where}: output must be a JSON Schema")
    try:
        output_fault = compile_output_check(output or {})
    except ConfigError as error:
        raise ToolError(f"{script.where}: {error.message}") from error

    def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
        job = runner.job(script, source, "tool", "execute", arguments)
        result = runner.call(script, job._replace(output_schema=output), caller)
        fault = None if output is None else output_fault(result)
        if fault is not None:  # MCP clients would refuse the result without a useful message
            raise ToolError(f"{script.where}: the result does not match the tool's `output`: {fault}")
        return result

    title = fields.get("title")
    return Tool(
        name=script.name,
        title=title if isinstance(title, str) else None,
        description=_description(fields) or script.name,
        parameters=schema,
        run=run,
        output_schema=output,
        annotations=annotations(fields.get("annotations")),
        pack=MEMORY if script.memory_bank is not None else None,
        origin=script.where,
        named=script.named,
    )


def _description(fields: Mapping[str, JSON]) -> str:
    text = fields.get("description")
    return cut(text, MAX_DESCRIPTION, "...") if isinstance(text, str) else ""


def annotations(declared: JSON) -> Annotations:
    """The MCP annotations of a script's tool. Those that the script does not declare have their defaults."""
    declared = as_table(declared)
    names = (name for name in Annotations._fields if isinstance(declared.get(name), bool))
    flags = {name: declared[name] for name in names}
    if flags.get("read_only"):
        flags.setdefault("destructive", False)
    return Annotations(**flags)


def load_agent(runner: Runner, script: ScriptFile) -> Agent:
    """The agent that a script defines. Raises a `CtxError`."""
    source = script.source()
    fields = runner.metadata(script, source, "agent")
    arguments = tuple(agent_arguments(script, fields.get("arguments")))
    declared = _names(fields.get("tools"))

    def resolve(entries: dict[str, JSON], caller: Caller) -> Prompt:
        answer = runner.call(script, runner.job(script, source, "agent", "resolve", entries), caller)
        if not isinstance(answer, dict) or not isinstance(answer.get("system"), str):
            raise ToolError(
                f"agent '{script.name}': resolve must return a table with a string called 'system'"
            )
        tools = declared if answer.get("tools") is None else _names(answer["tools"])
        return Prompt(answer["system"], tools, _messages(script, answer.get("messages")))

    return Agent(
        script.name,
        _description(fields),
        resolve,
        declared,
        arguments,
        "lua",
        script.where,
        MEMORY if script.memory_bank is not None else None,
        named=script.named,
    )


def agent_arguments(script: ScriptFile, declared: JSON) -> Iterator[AgentArgument]:
    """The arguments that an agent's script declares. Raises `ToolError`."""
    for entry in _tables(declared):
        name = str(entry.get("name"))
        refuse_misspelt(entry, _ARGUMENT_FIELDS, f"{script.where}: argument '{one_line(name[:80])}'")
        if entry.get("name"):
            yield AgentArgument(name, str(entry.get("description") or ""), entry.get("required") is True)


def _tables(value: JSON) -> list[dict[str, JSON]]:
    """The tables in a list; empty if the value is not a list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _names(value: JSON) -> tuple[str, ...]:
    return tuple(entry for entry in value if isinstance(entry, str)) if isinstance(value, list) else ()


def _messages(script: ScriptFile, value: JSON) -> tuple[dict[str, str], ...]:
    return tuple(
        {"role": str(entry.get("role", "user")), "content": _content(script, entry.get("content", ""))}
        for entry in _tables(value)
    )


def _content(script: ScriptFile, content: JSON) -> str:
    """The text of a message, which is a string or MCP's `{type = "text", text = "..."}`."""
    if isinstance(content, dict) and content.get("type") == "text":
        content = content.get("text")
    if isinstance(content, dict | list):
        raise ToolError(f"agent '{script.name}': the content of a message must be a string")
    return str(content)


# -- declared parameters -------------------------------------------------------------------------------------


def parameters_schema(declared: JSON, where: str) -> JSON:
    """A JSON Schema from a script's `parameters`: a list `{{name=, type=, required=, description=, default=,
    enum=}, ...}`, a table by name, or a schema.

    Undeclared parameters are passed to the script, as in Context Harness. Raises `ToolError`.
    `ctx.tools.schema` checks the result.
    """
    if declared in (None, {}, []):
        return {"type": "object", "properties": {}}
    if isinstance(declared, dict):
        if declared.get("type") == "object":
            return with_lists(declared)
        # A table by name: `parameters = {query = {type = "string"}}`
        declared = [
            {"name": name, **rule} if isinstance(rule, dict) else {"name": name, "type": rule}
            for name, rule in declared.items()
        ]
    if not isinstance(declared, list):
        raise ToolError(f"{where}: parameters must be a list of tables or a JSON Schema")
    properties: dict[str, JSON] = {}
    required: list[str] = []
    for number, entry in enumerate(declared, 1):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
            raise ToolError(f"{where}: parameter {number} has no name")
        name = entry["name"]
        if name in properties:
            raise ToolError(f"{where}: two parameters are called '{name}'")
        label = f"{where}: parameter '{name}'"
        properties[name] = _rule(entry, label)
        demand = entry.get("required")
        if demand is True:
            required.append(name)
        elif isinstance(demand, list):  # a list has the names of required fields of an object
            properties[name]["required"] = demand
        elif demand not in (None, False, {}):
            raise ToolError(f"{label}: required must be true, false or a list of fields")
    return {"type": "object", "properties": properties, "required": required}


def _rule(entry: Mapping[str, JSON], what: str) -> dict[str, JSON]:
    refuse_misspelt(entry, _KEYS, what)
    kind = entry.get("type", "string")
    if kind not in TYPES:
        raise ToolError(f"{what} has the unknown type '{str(kind)[:80]}' (known: {', '.join(TYPES)})")
    rule: dict[str, JSON] = {"type": kind}
    if isinstance(entry.get("description"), str):
        rule["description"] = entry["description"]
    if entry.get("default") is not None:
        rule["default"] = [] if kind == "array" and entry["default"] == {} else entry["default"]
    if entry.get("enum"):
        if not isinstance(entry["enum"], list):
            raise ToolError(f"{what} has an enum that is not a list")
        rule["enum"] = entry["enum"]
    return rule | {key: with_lists(entry[key]) for key in _COPIED_KEYS if entry.get(key) is not None}


def refuse_misspelt(fields: Iterable[str], known: Sequence[str], what: str) -> None:
    """Raise `ToolError` for an unknown field that looks like a known field that is missing.

    Other unknown fields are allowed, as in Context Harness.
    """
    names = [name for name in fields if isinstance(name, str)]
    for name in names:
        match = None if name in known else nearest(name[:80], known, 0.75)
        if match is not None and match not in names:
            raise ToolError(f"{what} has the unknown field '{one_line(name[:80])}'; did you mean '{match}'?")


def with_lists(schema: JSON) -> JSON:
    """The schema with `[]` instead of `{}` where JSON Schema expects a list, because Lua cannot tell an empty
    list from an empty table.
    """
    if isinstance(schema, list):
        return [with_lists(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    entries = [(key, value) for key, value in schema.items() if key != "enum" or value != {}]
    whole = {key: with_lists(value) for key, value in entries}
    for key in ("required", "examples"):
        if whole.get(key) == {}:
            whole[key] = []
    if whole.get("type") == "array" and whole.get("default") == {}:
        whole["default"] = []
    return whole

"""Lua scripts as tools, connectors and agents."""

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import orjson

from ctx import files
from ctx.clock import iso_utc, now_ms
from ctx.config.settings import MAX_SCRIPT_BYTES
from ctx.config.trust_file import NotTrusted, Voucher
from ctx.connectors.base import ScanLog
from ctx.errors import ConfigError, CtxError, SourceError, ToolError
from ctx.formats.encoding import is_misread
from ctx.identity import digest, outline
from ctx.lua.jobs import ItemProblem
from ctx.lua.pool import Job, Pool
from ctx.models import JSON, NO_METADATA, Caller, Content, SourceItem, as_table, is_number
from ctx.scripts.parameters import parameters_schema, refuse_misspelt, with_lists
from ctx.text.strings import cut, one_line
from ctx.tools.schema import compile_output_check
from ctx.tools.toolbox import Agent, AgentArgument, Annotations, Prompt, Tool, name_fault

if TYPE_CHECKING:  # they import httpcore and ssl, 100 ms
    from ctx.lua.host import Policy
    from ctx.scripts.bridge import Bridge

logger = logging.getLogger(__name__)

GRANTS = frozenset({"http", "fs", "env", "context"})
MEMORY = "memory"  # a tool with a memory bank has the access rules of the memory packs
MAX_DESCRIPTION = 10_000  # characters: every client's model reads all descriptions
LOAD_S = 5.0  # for reading a script's fields; takes milliseconds unless the script loops
NO_CALLER = Caller("script")
_ARGUMENT_FIELDS = ("name", "description", "required")
_TEXT_FIELDS = ("title", "author", "content_type", "source_url", "url")
# Of an id, an address or an author, which search results show in full. Titles are shortened there.
_MAX_TEXT = 2000


class ScriptFile(NamedTuple):
    """A script and its settings. `trust` is "operator" for scripts of the configuration, else "untrusted"."""

    name: str
    path: str
    timeout_s: float = 30.0
    env: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    fs: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    memory_bank: str | None = None  # the bank of `context.memory`
    config: Mapping[str, JSON] = NO_METADATA
    trust: str = "operator"
    shown: str = ""  # the file's name in messages
    vouched_by: Voucher | None = None  # for scripts that run only if the user trusts their text
    named: bool = True  # in the configuration; False if it was found in a folder

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
            mend = "" if self.vouched_by is None else self.vouched_by.mend
            raise ToolError(f"{self.where} cannot be read: {error.strerror}{mend}") from error
        if len(text) > MAX_SCRIPT_BYTES:
            raise ToolError(f"{self.where} is larger than {MAX_SCRIPT_BYTES:,} bytes")
        if self.vouched_by is not None:
            refusal = self.vouched_by.refusal(self.path, text, self.where)
            if refusal is not None:
                raise NotTrusted(refusal)
        return text

    def stamp(self) -> tuple[int, ...] | None:
        """Changes when the file or its trust changes; None if the file is gone."""
        stamp = files.stamp(self.path)
        if not any(stamp):
            return None
        return stamp if self.vouched_by is None else (*stamp, *self.vouched_by.stamp())


class Runner(NamedTuple):
    """Runs scripts: the sandbox, and the bridge that answers their host calls."""

    pool: Pool
    bridge: "Bridge"

    def job(
        self,
        script: ScriptFile,
        source: bytes,
        kind: str,
        entry: str,
        arguments: JSON,
        context: Mapping[str, JSON],
        schema: JSON = None,
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
            output_schema=schema,
        )

    def metadata(self, script: ScriptFile, source: bytes, kind: str) -> dict[str, JSON]:
        """The fields the script declares, if it also defines its function. Raises a `CtxError`.

        The script runs without grants: loading it must not make requests.
        """
        host = self.bridge.host_for(script.policy(), NO_CALLER)
        timeout_s = min(script.timeout_s, LOAD_S)
        job = self.job(script, source, kind, "metadata", {}, {})._replace(grants=frozenset())
        fields = self.pool.run(job, host, timeout_s)
        if not isinstance(fields, dict):
            raise ToolError(f"{script.where} defines no table '{kind}'")
        names = self.pool.run(job._replace(entry="load_check"), host, timeout_s)
        refuse_misspelt(names["fields"], names["read"], f"{script.where}: {kind}")
        return fields


def load_tool(runner: Runner, script: ScriptFile) -> Tool:
    """The tool a script defines, with the name from the configuration. Raises a `CtxError`."""
    source = script.source()
    fields = runner.metadata(script, source, "tool")
    schema = parameters_schema(fields.get("parameters"), script.where)
    output = with_lists(fields.get("output"))
    output_fault = _output_check(script, output)
    policy = script.policy()

    def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
        job = runner.job(script, source, "tool", "execute", arguments, {}, output)._replace(
            caller=caller.share, ends_s=caller.ends_s
        )
        with runner.bridge.running(policy, caller) as host:
            result = runner.pool.run(job, host, script.timeout_s)
        fault = output_fault(result)
        if fault is not None:  # MCP clients would refuse it without a useful message
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


def _output_check(script: ScriptFile, output: JSON) -> Callable[[JSON], str | None]:
    """A function that says where a result does not match the declared schema.
    Raises `ToolError` for an invalid schema.
    """
    if output is None:
        return lambda result: None
    if not isinstance(output, dict):
        raise ToolError(f"{script.where}: output must be a JSON Schema")
    try:
        return compile_output_check(output)
    except ConfigError as error:
        raise ToolError(f"{script.where}: {error.message}") from error


def _description(fields: Mapping[str, JSON]) -> str:
    text = fields.get("description")
    return cut(text, MAX_DESCRIPTION, "...") if isinstance(text, str) else ""


def annotations(declared: JSON) -> Annotations:
    """A script's annotations, in ctx's or in MCP's spelling, with defaults for those it does not declare."""
    declared, default = as_table(declared), Annotations()

    def flag(name: str, mcp_name: str, otherwise: bool) -> bool:
        value = declared.get(name, declared.get(mcp_name))
        return value if isinstance(value, bool) else otherwise

    read_only = flag("read_only", "readOnlyHint", default.read_only)
    return Annotations(
        read_only=read_only,
        destructive=flag("destructive", "destructiveHint", default.destructive and not read_only),
        idempotent=flag("idempotent", "idempotentHint", default.idempotent),
        open_world=flag("open_world", "openWorldHint", default.open_world),
    )


def load_agent(runner: Runner, script: ScriptFile) -> Agent:
    """The agent a script defines. Raises a `CtxError`."""
    source = script.source()
    fields = runner.metadata(script, source, "agent")
    fault = name_fault("agent", script.name, script.where)
    if fault is not None:
        raise ConfigError(fault)
    arguments = tuple(agent_arguments(script, fields.get("arguments")))
    policy = script.policy()
    declared = _names(fields.get("tools"))

    def resolve(entries: dict[str, JSON], caller: Caller) -> Prompt:
        job = runner.job(script, source, "agent", "resolve", entries, {})._replace(
            caller=caller.share, ends_s=caller.ends_s
        )
        with runner.bridge.running(policy, caller) as host:
            answer = runner.pool.run(job, host, script.timeout_s)
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
    """The arguments an agent's script declares. Raises `ToolError`."""
    for entry in _tables(declared):
        name = str(entry.get("name"))
        refuse_misspelt(entry, _ARGUMENT_FIELDS, f"{script.where}: argument '{one_line(name[:80])}'")
        if entry.get("name"):
            yield AgentArgument(name, str(entry.get("description") or ""), entry.get("required") is True)


def _tables(value: JSON) -> list[dict[str, JSON]]:
    """The tables of a list; empty for another value."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _names(value: JSON) -> tuple[str, ...]:
    return tuple(entry for entry in value if isinstance(entry, str)) if isinstance(value, list) else ()


def _messages(script: ScriptFile, value: JSON) -> tuple[dict[str, str], ...]:
    return tuple(
        {"role": str(entry.get("role", "user")), "content": _content(script, entry.get("content", ""))}
        for entry in _tables(value)
    )


def _content(script: ScriptFile, content: JSON) -> str:
    """The text of a message: a string, or MCP's `{type = "text", text = "..."}`."""
    if isinstance(content, dict) and content.get("type") == "text":
        content = content.get("text")
    if isinstance(content, dict | list):
        raise ToolError(f"agent '{script.name}': the content of a message must be a string")
    return str(content)


class ScriptConnector:
    """A `Connector` that calls `connector.scan(config)`. A scan that fails deletes no documents."""

    def __init__(self, script: ScriptFile, runner: Callable[[], Runner]) -> None:
        self.script = script
        self.name = script.name
        self._runner = runner

    @property
    def signature(self) -> str:
        identity = (self.script.path, json.dumps(dict(self.script.config), sort_keys=True, default=str), 1)
        return outline(identity)

    def scan(self, known: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
        runner = self._runner()
        with runner.bridge.held() as (bridge, held):
            try:
                yield from self._items(runner, bridge, known, log)
            finally:
                log.stored = None if held is None else held.keep()

    def _items(
        self, runner: Runner, bridge: "Bridge", known: Mapping[str, str], log: ScanLog
    ) -> Iterator[SourceItem]:
        source_ids: set[str] = set()
        try:
            source = self.script.source()
            context = {"known": len(known)}
            job = runner.job(self.script, source, "connector", "scan", dict(self.script.config), context)
            host = bridge.host_for(self.script.policy(), NO_CALLER)
            for number, item in enumerate(runner.pool.scan(job, host, self.script.timeout_s), 1):
                if isinstance(item, dict) and item.get("partial") is True and "source_id" not in item:
                    log.news = True  # the script says that the scan does not list every item
                    log.withheld.append("")
                    continue
                source_item = _item(item, number, source_ids, log)
                if source_item is None:
                    continue
                if known.get(source_item.source_id) == source_item.fingerprint:
                    log.unchanged.add(source_item.source_id)
                else:
                    yield source_item
        except CtxError as error:
            # The items so far are kept. The others are unknown, so nothing is deleted.
            log.complete = False
            raise SourceError(error.message) from error


def _item(item: JSON, number: int, source_ids: set[str], log: ScanLog) -> SourceItem | None:
    """An item of a scan; None if it is invalid, which is reported in the log."""
    fault = _identity_fault(item, number)
    if fault is not None:
        log.problem(f"item {number}", fault)
        log.withheld.append("")  # it may be any item that seems to be missing: none is deleted this time
        return None
    source_id, body = str(item["source_id"]), item.get("body")
    if source_id in source_ids:
        log.problem(source_id, "appears twice; the first one is kept")
        return None
    text = body if isinstance(body, str) else ""
    if not text.strip() or is_misread(text):
        fault = "its body is not UTF-8 text" if text.strip() else "has no body"
        log.problem(source_id, f"{fault}; the indexed version stays")
        log.withheld.append(source_id)
        return None
    source_ids.add(source_id)
    metadata = _metadata(item, source_id, log)
    created_ms, updated_ms = (_date(item, name, source_id, log) for name in ("created_at", "updated_at"))
    for name in _TEXT_FIELDS:
        if not isinstance(item.get(name), str | None):
            log.note(source_id, f"{name} is not a string and is left out")
        elif name != "title" and len(item.get(name) or "") > _MAX_TEXT:
            log.note(source_id, f"{name} is longer than {_MAX_TEXT:,} characters and is left out")
    # The fingerprint covers only what the script returned: an item without a date must not seem to change.
    text_of_item = json.dumps(item, sort_keys=True, ensure_ascii=False)
    fingerprint = digest(text_of_item.encode("utf-8", "replace"), 32)
    content = Content(
        data=text,
        media_type=_text(item.get("content_type")) or "text/plain",
        title=_text(item.get("title"), None),
        author=_text(item.get("author")),
        created_ms=created_ms,
        updated_ms=updated_ms,
        source_url=_text(item.get("source_url")) or _text(item.get("url")),
        metadata=metadata,
    )
    return SourceItem(source_id, fingerprint, now_ms() if updated_ms is None else updated_ms, lambda: content)


def _identity_fault(item: JSON, number: int) -> str | None:
    """Why an item has no valid id; None if it has one."""
    if isinstance(item, ItemProblem):
        return item.message.removeprefix(f"item {number}: ")
    if not isinstance(item, dict):
        return "is not a table"
    source_id = item.get("source_id")
    if not is_number(source_id) and not (isinstance(source_id, str) and source_id):
        return "has no source_id"
    too_long = len(str(source_id)) > _MAX_TEXT
    return f"its source_id is longer than {_MAX_TEXT:,} characters" if too_long else None


def _date(item: Mapping[str, JSON], name: str, source_id: str, log: ScanLog) -> int | None:
    date = moment_ms(item.get(name))
    if date is None and item.get(name) not in (None, ""):
        log.note(source_id, f"{name} is not a date (ISO 8601, or seconds since 1970) and is left out")
    return date


def _metadata(item: Mapping[str, JSON], source_id: str, log: ScanLog) -> dict[str, JSON]:
    metadata = item.get("metadata")
    if isinstance(metadata, dict):
        return metadata
    if metadata not in (None, []):  # an empty table of Lua may be a list
        log.note(source_id, "metadata is not a table and is left out")
    try:
        loaded = orjson.loads(item.get("metadata_json") or "{}")  # unlike json, refuses lone surrogates
        json.dumps(loaded)  # the store uses this, which fails on deep nesting
    except (ValueError, TypeError, RecursionError):
        log.note(source_id, "metadata_json is not JSON and is left out")
        return {}
    return as_table(loaded)


def _text(value: JSON, most: int | None = _MAX_TEXT) -> str | None:
    fits = isinstance(value, str) and value.strip() and (most is None or len(value) <= most)
    return value if fits else None


def moment_ms(value: JSON) -> int | None:
    """A date as milliseconds since the epoch, from ISO 8601 or seconds since the epoch; None if invalid."""
    try:
        if is_number(value):
            moment = round(value * 1000)
            iso_utc(moment)  # raises if the calendar has no such date
            return moment
        text = str(value).strip()
        if text.replace(".", "", 1).isdigit() and len(text) > 8:
            # "1700000000.000200", as in chat systems. Eight digits are a date.
            return moment_ms(float(text))
        parsed = datetime.fromisoformat(text.replace(" ", "T", 1))
        parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
        return round(parsed.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None

"""A script as a tool, a connector or an agent of the server."""

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import orjson

from ctx import files
from ctx.clock import iso_utc, now_ms
from ctx.config.trust_file import NotTrusted, Voucher
from ctx.connectors.base import ScanLog
from ctx.errors import ConfigError, CtxError, SourceError, ToolError
from ctx.formats.encoding import is_misread
from ctx.identity import digest, outline
from ctx.items import Content, SourceItem
from ctx.lua.jobs import ItemProblem
from ctx.lua.pool import Job, Pool
from ctx.models import JSON, NO_METADATA, Caller, as_table, is_number
from ctx.scripts.parameters import parameters_schema, refuse_misspelt, with_lists
from ctx.text.strings import cut, one_line
from ctx.tools.agents import Agent, AgentArgument, Prompt
from ctx.tools.schema import compile_output_check
from ctx.tools.toolbox import Annotations, Tool, name_fault

if TYPE_CHECKING:  # they import httpcore and ssl, 100 ms
    from ctx.lua.host import Policy
    from ctx.scripts.bridge import Bridge

logger = logging.getLogger(__name__)

GRANTS = frozenset({"http", "fs", "env", "context"})
MEMORY = "memory"  # guards tools with a memory bank as it guards those of the packs
MAX_SCRIPT_BYTES = 1_000_000
MAX_DESCRIPTION = 10_000  # characters: every client's model reads all descriptions
LOAD_S = 5.0  # to say what it is: milliseconds, unless it loops; a start must not wait for that
NO_CALLER = Caller("script")
_ARGUMENT = ("name", "description", "required")  # what an agent says of an argument


class ScriptFile(NamedTuple):
    """A script and what the operator said of it.

    `trust` is "operator" for scripts the configuration names, else "untrusted".
    """

    name: str
    path: str
    timeout_s: float = 30.0
    env: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    fs: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    memory_bank: str | None = None  # that `context.memory` reads and writes
    config: Mapping[str, JSON] = NO_METADATA
    trust: str = "operator"
    shown: str = ""  # how messages name the file
    vouched_by: Voucher | None = None  # for scripts that run only where the user has trusted their text
    named: bool = True  # in the configuration; else it was found in a folder

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
            # Another script that takes the name later does not take the values too.
            f"{self.name} ({self.where})",
        )

    def _text(self) -> bytes:
        if files.irregular(self.path):
            raise ToolError(f"{self.where} is no file: put one there")
        try:
            with open(self.path, "rb") as file:
                return file.read(MAX_SCRIPT_BYTES + 1)
        except OSError as error:
            mend = "" if self.vouched_by is None else self.vouched_by.mend
            raise ToolError(f"{self.where} cannot be read: {error.strerror}{mend}") from error

    def source(self) -> bytes:
        """The script's text. Raises `ToolError`; `NotTrusted` where the user has not trusted it."""
        text = self._text()
        if len(text) > MAX_SCRIPT_BYTES:
            raise ToolError(f"{self.where} is larger than {MAX_SCRIPT_BYTES:,} bytes")
        if self.vouched_by is not None:
            refusal = self.vouched_by.refusal(self.path, text, self.where)
            if refusal is not None:
                raise NotTrusted(refusal)
        return text

    def stamp(self) -> tuple[int, ...] | None:
        """Changes when the file does, or what it is trusted by; None where it is gone."""
        stamp = files.stamp(self.path)
        if not any(stamp):
            return None
        return stamp if self.vouched_by is None else (*stamp, *self.vouched_by.stamp())


class Runner(NamedTuple):
    """The pool and the bridge, as every script needs them."""

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
        """The fields the script declares, once it is known to define its function too. Raises a `CtxError`.

        Read in the sandbox, under a deadline and without grants: a script must not call out merely because it
        was looked at.
        """
        host = self.bridge.host_for(script.policy(), NO_CALLER)
        timeout_s = min(script.timeout_s, LOAD_S)
        job = self.job(script, source, kind, "metadata", {}, {})._replace(grants=frozenset())
        fields = self.pool.run(job, host, timeout_s)
        if not isinstance(fields, dict):
            raise ToolError(f"{script.where}: defines no table called '{kind}'")
        names = self.pool.run(job._replace(entry="load_check"), host, timeout_s)
        refuse_misspelt(names["fields"], names["read"], f"{script.where}: {kind}")
        return fields


def load_tool(runner: Runner, script: ScriptFile) -> Tool:
    """The tool a script defines, under the name the configuration gives it. Raises a `CtxError`."""
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
        if fault is not None:  # MCP's clients refuse it, and do not say what to mend
            raise ToolError(f"{script.where}: the result does not fit the tool's `output`: {fault}")
        return result

    title = fields.get("title")
    return Tool(
        name=script.name,
        title=title if isinstance(title, str) else None,
        description=_described(fields) or script.name,
        parameters=schema,
        run=run,
        output_schema=output,
        annotations=annotations(fields.get("annotations")),
        pack=MEMORY if script.memory_bank is not None else None,
        origin=script.where,
        named=script.named,
    )


def _output_check(script: ScriptFile, output: JSON) -> Callable[[JSON], str | None]:
    """What says where a result does not fit what the script declares of it.
    Raises `ToolError` for what is no schema.
    """
    if output is None:
        return lambda result: None
    if not isinstance(output, dict):
        raise ToolError(f"{script.where}: output must be a JSON Schema")
    try:
        return compile_output_check(output)
    except ConfigError as error:
        raise ToolError(f"{script.where}: {error.message}") from error


def _described(fields: Mapping[str, JSON]) -> str:
    """The description, cut to what a list of tools can bear."""
    text = fields.get("description")
    if not isinstance(text, str):
        return ""
    return cut(text, MAX_DESCRIPTION, "...")


def annotations(declared: JSON) -> Annotations:
    """What a script promises of itself; silence promises nothing. MCP's own spelling is understood too."""
    declared, default = as_table(declared), Annotations()

    def flag(name: str, theirs: str, otherwise: bool) -> bool:
        value = declared.get(name, declared.get(theirs))
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
        _described(fields),
        resolve,
        declared,
        arguments,
        "lua",
        script.where,
        MEMORY if script.memory_bank is not None else None,
        named=script.named,
    )


def agent_arguments(script: ScriptFile, declared: JSON) -> Iterator[AgentArgument]:
    """What an agent's script says that it takes. Raises `ToolError`."""
    for entry in _tables(declared):
        name = str(entry.get("name"))
        refuse_misspelt(entry, _ARGUMENT, f"{script.where}: argument '{one_line(name[:80])}'")
        if entry.get("name"):
            yield AgentArgument(name, str(entry.get("description") or ""), entry.get("required") is True)


def _tables(value: JSON) -> list[dict[str, JSON]]:
    """The tables of a list; none of what is no list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _names(value: JSON) -> tuple[str, ...]:
    return tuple(entry for entry in value if isinstance(entry, str)) if isinstance(value, list) else ()


def _messages(script: ScriptFile, value: JSON) -> tuple[dict[str, str], ...]:
    return tuple(
        {"role": str(entry.get("role", "user")), "content": _content(script, entry.get("content", ""))}
        for entry in _tables(value)
    )


def _content(script: ScriptFile, content: JSON) -> str:
    """The text of a message, also as MCP writes it: `{type = "text", text = "..."}`."""
    if isinstance(content, dict) and content.get("type") == "text":
        content = content.get("text")
    if isinstance(content, dict | list):
        raise ToolError(f"agent '{script.name}': the content of a message must be a text")
    return str(content)


class ScriptConnector:
    """A `Connector` over `connector.scan(config)`.

    Items stream; a scan that did not end by itself deletes nothing.
    """

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
                if _tells_partial(item):
                    log.news = True
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
            # What the script had yielded is kept; what it had yet to say is unknown, so nothing is deleted.
            log.complete = False
            raise SourceError(error.message) from error


def _body_fault(text: str) -> str | None:
    """Why an item's body cannot be taken; None: it can."""
    if not text.strip():
        return "has no body"
    return "its body is no text in UTF-8" if is_misread(text) else None


def _note_odd_texts(item: dict[str, JSON], source_id: str, log: ScanLog) -> None:
    for name in _TEXTS:
        if not isinstance(item.get(name), str | None):
            log.note(source_id, f"{name} is no text, and is left out")
        elif name != "title" and len(item.get(name) or "") > _MAX_TEXT:
            log.note(source_id, f"{name} is longer than {_MAX_TEXT:,} characters, and is left out")


def _tells_partial(item: JSON) -> bool:
    """Whether a script says, in the place of an item, that it does not tell all."""
    return isinstance(item, dict) and item.get("partial") is True and "source_id" not in item


def _item(item: JSON, number: int, source_ids: set[str], log: ScanLog) -> SourceItem | None:
    """An item of a scan, or a line of the report where it is none."""
    fault = _identity_fault(item, number)
    if fault is not None:
        log.problem(f"item {number}", fault)
        log.withheld.append("")  # it may be any of those that seem to be missing: none is deleted this time
        return None
    source_id, body = str(item["source_id"]), item.get("body")
    if source_id in source_ids:
        log.problem(source_id, "comes twice; the first one is kept")
        return None
    text = body if isinstance(body, str) else ""
    fault = _body_fault(text)
    if fault is not None:
        log.problem(source_id, f"{fault}; what is indexed of it stays")
        log.withheld.append(source_id)
        return None
    source_ids.add(source_id)
    metadata = _metadata(item, source_id, log)
    created_ms, updated_ms = (_moment(item, name, source_id, log) for name in ("created_at", "updated_at"))
    _note_odd_texts(item, source_id, log)
    # The fingerprint is of what the script said: an item without a date is not new merely because time has
    # passed.
    wording = json.dumps(item, sort_keys=True, ensure_ascii=False)
    fingerprint = digest(wording.encode("utf-8", "replace"), 32)
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
    """Why nobody can say which item of a scan this is; None: it says so itself."""
    if isinstance(item, ItemProblem):
        return item.message.removeprefix(f"item {number}: ")
    if not isinstance(item, dict):
        return "is not a table"
    source_id = _source_id(item.get("source_id"))
    if source_id is None:
        return "has no source_id"
    return f"its source_id is longer than {_MAX_TEXT:,} characters" if len(source_id) > _MAX_TEXT else None


def _source_id(value: JSON) -> str | None:
    """The id of an item, also as a number; None where it is none."""
    if is_number(value):
        return str(value)
    return value if isinstance(value, str) and value else None


def _moment(item: Mapping[str, JSON], name: str, source_id: str, log: ScanLog) -> int | None:
    moment = moment_ms(item.get(name))
    if moment is None and item.get(name) not in (None, ""):
        log.note(source_id, f"{name} is no time (ISO 8601, or seconds since 1970), and is left out")
    return moment


def _metadata(item: Mapping[str, JSON], source_id: str, log: ScanLog) -> dict[str, JSON]:
    metadata = item.get("metadata")
    if isinstance(metadata, dict):
        return metadata
    if metadata not in (None, []):  # Lua's empty table is either
        log.note(source_id, "metadata is no table, and is left out")
    try:
        # Stricter than the library's: no lone surrogate, which no store takes.
        loaded = orjson.loads(item.get("metadata_json") or "{}")
        json.dumps(loaded)  # as the store will, which nothing nested too deep survives
    except (ValueError, TypeError, RecursionError):
        log.note(source_id, "metadata_json is not JSON, and is left out")
        return {}
    return as_table(loaded)


_TEXTS = ("title", "author", "content_type", "source_url", "url")
# Of an id, an address or an author: each result of a search says them whole. A title is shortened.
_MAX_TEXT = 2000


def _text(value: JSON, most: int | None = _MAX_TEXT) -> str | None:
    fits = isinstance(value, str) and value.strip() and (most is None or len(value) <= most)
    return value if fits else None


def moment_ms(value: JSON) -> int | None:
    """Milliseconds since the epoch of what a script calls a time: ISO 8601, or seconds since the epoch.

    None for anything else.
    """
    try:
        if is_number(value):
            moment = round(value * 1000)
            iso_utc(moment)  # beyond the calendar: as good as no date
            return moment
        text = str(value).strip()
        if text.replace(".", "", 1).isdigit() and len(text) > 8:
            # "1700000000.000200", as chat systems have it; eight digits are a date.
            return moment_ms(float(text))
        parsed = datetime.fromisoformat(text.replace(" ", "T", 1))
        parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
        return round(parsed.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None

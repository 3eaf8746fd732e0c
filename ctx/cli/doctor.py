"""`ctx doctor`: looks at everything that can be wrong, says how to mend it, and mends what can be mended by
itself.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from ctx.assemble import key_ring
from ctx.cli.common import configuration, plain, print_json, styled
from ctx.cli.embed import described
from ctx.cli.options import Parser, describe
from ctx.cli.running import at_address, of_project, servers, state_folder
from ctx.config import Config
from ctx.errors import CtxError, StoreError
from ctx.extensions.loader import ScriptStatus
from ctx.hosts import is_loopback
from ctx.items import SourceStatus
from ctx.pruning import replaced_models
from ctx.replies import Boundless, read_reply
from ctx.server.address import local
from ctx.server.policy import ServerSettings, setting_doubts, split_bind
from ctx.store.schema import COMPANIONS, is_damage
from ctx.text import counted, one_line
from ctx.types import JSON, Caller
from ctx.workspace import Workspace, open_workspace

if TYPE_CHECKING:
    import httpx

OK, WARNING, FAILED = "ok", "warning", "failed"
MAX_HEALTH_BYTES, HEALTH_S = 1 << 20, 5.0
ANSWER_S = 3.0  # of a database: whoever looks wants to know now, not whether a failover ends well


class Finding(NamedTuple):
    """One thing looked at. `detail` says what was found, and what to do where it is not well."""

    what: str
    state: str
    detail: str


def add_options(command: str, options: Parser) -> None:
    describe(
        options, "Check the installation, the store, the sources, the sandbox and the server.", json=True
    )
    options.add_argument(
        "--fix",
        action="store_true",
        help="mend what can be mended: rebuild the index; set a damaged catalog aside",
    )


def _marks() -> dict[str, str]:
    if styled():
        return {
            OK: "\x1b[32mok\x1b[0m     ",
            WARNING: "\x1b[33mwarning\x1b[0m",
            FAILED: "\x1b[31mfailed\x1b[0m ",
        }
    return {state: f"{state:<7}" for state in (OK, WARNING, FAILED)}


def run(command: str, args: Namespace) -> int:
    marks = _marks()
    findings: list[Finding] = []
    for row in examine(args.config, fix=args.fix):
        findings.append(row)
        if not args.json:
            print(f"{marks[row.state]}  {row.what:<14} {plain(row.detail)}", flush=True)
    failed = sum(row.state == FAILED for row in findings)
    if args.json:
        print_json({"healthy": not failed, "findings": [row._asdict() for row in findings]})
    elif failed:
        print(f"\n{failed} failed; each line says what mends it.", file=sys.stderr)
    return 1 if failed else 0


def examine(explicit: str | None, *, fix: bool) -> Iterator[Finding]:
    """Every finding, in the order in which one thing builds on another."""
    yield Finding("python", OK, f"{sys.version.split()[0]} on {sys.platform}")
    yield _git()
    try:
        config = configuration(explicit)
    except CtxError as error:
        for line in error.message.split("\n"):
            yield Finding("configuration", FAILED, line)
        return
    yield Finding("configuration", OK, config.path or "the defaults")
    faults = set()  # what keeps the store from being opened keeps it from each that looks into it
    unreached = _unreached(config)
    rows = (unreached, _permissions(config.folder, fix=fix)) if unreached else _store(config, fix=fix)
    for row in rows:
        faults.add(row.detail)
        yield row
    yield from _unlike(faults, _memory_file(config, fix=fix))
    # Each of the others would wait for it anew.
    looks = [] if unreached else [_index, _embedder, _sources, _memory]
    try:
        with open_workspace(config) as workspace:
            for look in (*looks, _extensions, _doors):
                yield from _unlike(faults, _guarded(look, workspace, fix))
    except CtxError as error:
        yield Finding("workspace", FAILED, error.message)
    yield from _server(config)


def _memory_file(config: Config, *, fix: bool) -> Iterator[Finding]:
    """Whether the file of the memories is sound and holds all that was acknowledged."""
    from ctx.cli.memory_location import findings  # 100 ms with the memories

    try:
        yield from (Finding(*row) for row in findings(config, fix=fix))
    except CtxError as error:
        yield Finding("memory", FAILED, error.message)


def _unlike(faults: set[str], findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings without failures that were told already; they are told now."""
    for row in findings:
        if row.state != FAILED or row.detail not in faults:
            faults.add(row.detail)
            yield row


def _guarded(
    look: Callable[[Workspace, bool], Iterator[Finding]], workspace: Workspace, fix: bool
) -> Iterator[Finding]:
    try:
        yield from look(workspace, fix)
    except CtxError as error:
        yield Finding(look.__name__.strip("_"), FAILED, error.message)


def _git() -> Finding:
    path = shutil.which("git")
    if path is None:
        return Finding("git", WARNING, "git is not on PATH: git sources cannot be read; install it")
    version = subprocess.run(
        [path, "--version"], capture_output=True, text=True, timeout=10, check=False
    ).stdout.strip()
    return Finding("git", OK, version)


def _unreached(config: Config) -> Finding | None:
    """What is told where the database of [store] url is away, or refuses."""
    try:
        if config.store.url:
            from ctx.cluster import check_database

            check_database(config.store.url, ANSWER_S)
    except CtxError as error:
        return Finding("catalog", FAILED, error.message)
    return None


def _store(config: Config, *, fix: bool) -> Iterator[Finding]:
    try:
        stored = config.stored
    except StoreError as error:
        yield Finding("catalog", FAILED, error.message)
        return
    if not stored:
        yield Finding("catalog", WARNING, "nothing is indexed yet; run `ctx index`")
        return
    yield _catalog(config, fix=fix)
    if config.store.url:
        yield from _database(config)
    yield _permissions(config.folder, fix=fix)


def _database(config: Config) -> Iterator[Finding]:
    """What the server of [store] url is, and whether a standby has what it has."""
    try:
        with Workspace(config) as workspace:
            server = workspace.catalog.server()
    except StoreError:
        return  # told of the catalog already
    if server is not None:
        healthy, line = server
        yield Finding("database", OK if healthy else WARNING, line)


def _search_engine(workspace: Workspace) -> Iterator[Finding]:
    """What answers by [index] url, and whether all of the index is on some node."""
    if workspace.plane.remote:
        healthy, line = workspace.plane.reader().server(workspace.catalog)
        yield Finding("search engine", OK if healthy else WARNING, line)


def _set_aside(path: str) -> str:
    """Moves a damaged catalog with what belongs to it; where it is now."""
    aside = f"{path}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    for suffix in ("", *COMPANIONS):
        if os.path.lexists(path + suffix):
            os.replace(path + suffix, aside + suffix)
    return aside


def _catalog(config: Config, *, fix: bool) -> Finding:
    """Whether every page of the catalog is sound; `fix` sets a damaged one aside."""
    try:
        with Workspace(config) as workspace:
            problems = workspace.catalog.check()
            stats = workspace.catalog.stats()
    except StoreError as error:
        if not is_damage(error):  # another program's file, a newer ctx's, one in use: nothing to set aside
            return Finding("catalog", FAILED, error.message)
        problems, stats = [error.message], {}
    if not problems:
        documents, chunks = counted(stats["documents"], "document"), counted(stats["chunks"], "chunk")
        size = f"{stats['size_bytes'] / 1e6:,.1f} MB"
        return Finding("catalog", OK, f"{documents}, {chunks}, {size}, every page sound")
    if config.store.url:
        return Finding("catalog", FAILED, problems[0])
    if not fix:
        return Finding(
            "catalog",
            FAILED,
            f"{problems[0]}. `ctx doctor --fix` sets the file aside and `ctx index` builds it anew",
        )
    aside = _set_aside(config.db.path)
    return Finding(
        "catalog",
        WARNING,
        f"was damaged ({problems[0]}); set aside as {os.path.basename(aside)}. "
        "`ctx index` builds the documents anew",
    )


def _permissions(folder: str, *, fix: bool) -> Finding:
    """Whether the store's files are closed to others; `fix` closes them."""
    loose = [
        name
        for name in _files(folder)
        if stat.S_IMODE(os.lstat(name).st_mode) & 0o077 and not os.path.islink(name)
    ]
    if not loose:
        return Finding("permissions", OK, "the store is its owner's alone")
    if not fix:
        detail = f"open to others: {counted(len(loose), 'file')} of the store; `ctx doctor --fix` closes them"
        return Finding("permissions", WARNING, detail)
    for name in loose:
        os.chmod(name, 0o700 if os.path.isdir(name) else 0o600)
    return Finding("permissions", OK, f"closed to others now: {counted(len(loose), 'file')} of the store")


def _files(folder: str) -> Iterator[str]:
    """What ctx laid in the folder of a store. A clone may have brought a link in the place of one of them."""
    index = os.path.join(folder, "index")
    if os.path.islink(folder):
        return
    for name in ("ctx.db", "ctx.db-wal", "ctx.db-shm", "ctx.db.moved", "lock"):
        if os.path.exists(os.path.join(folder, name)):
            yield os.path.join(folder, name)
    for parent, _, names in () if os.path.islink(index) else os.walk(index):
        yield parent
        yield from (os.path.join(parent, name) for name in names)


def _index(workspace: Workspace, fix: bool) -> Iterator[Finding]:
    yield from _search_engine(workspace)
    if not workspace.catalog.stats()["documents"]:
        return
    behind = workspace.behind()
    problems = workspace.indexer.mend(adopt=True) if fix else workspace.index.check()
    if fix and behind:
        workspace.indexer.repair()
    if problems and not fix:
        yield Finding("index", FAILED, f"{'; '.join(problems)}. `ctx doctor --fix` builds it anew")
    elif behind and not fix:
        yield Finding(
            "index",
            WARNING,
            f"{behind:,} writes behind the catalog; `ctx index` (or `ctx doctor --fix`) catches up",
        )
    else:
        _search_for_one(workspace)
        was = f"was not well ({'; '.join(problems)}) and has been built anew; " if problems else ""
        yield Finding("index", OK, was + "has applied everything, every file sound, and answers")


def _search_for_one(workspace: Workspace) -> None:
    """Searches for a document that is there. Raises a `CtxError` where that fails."""
    stored = next(iter(workspace.catalog.export()))
    title = stored.document.title or stored.document.source_id
    workspace.toolbox.call("search", {"query": title[:200]}, Caller("cli"))


def _embedder(workspace: Workspace, fix: bool) -> Iterator[Finding]:
    embedder = workspace.embedder
    if embedder is None:
        yield Finding("embeddings", OK, "disabled by the configuration: keyword search only")
        return
    began_s = time.perf_counter()
    embedder.embed_query("a test")
    took_ms = (time.perf_counter() - began_s) * 1000
    pending = workspace.catalog.pending_count(embedder.model)
    detail = f"{embedder.model}, {embedder.dim} dimensions, loaded and answered in {took_ms:.0f} ms"
    yield Finding(
        "embeddings",
        WARNING if pending else OK,
        detail + (f"; {counted(pending, 'chunk')} pending: `ctx embed pending`" if pending else ""),
    )
    for share in replaced_models(workspace):
        yield Finding(
            "embeddings",
            WARNING,
            f"{described(share)}, a model that was replaced: `ctx embed prune` drops them",
        )


def _sources(workspace: Workspace, fix: bool) -> Iterator[Finding]:
    statuses = workspace.statuses()
    if not any(status.configured for status in statuses):
        yield Finding(
            "sources", WARNING, "none is configured; add a [connectors.filesystem.NAME] to ctx.toml"
        )
    for status in statuses:
        if status.configured:
            yield _source(status)
        else:
            yield _stray(status, shared=bool(workspace.config.store.url))


def _source(status: SourceStatus) -> Finding:
    if not status.healthy:
        return Finding("source", FAILED, f"{status.name}: {status.note or 'never indexed'}")
    detail = f"{status.name}: {counted(status.doc_count, 'document')}"
    if status.note:
        return Finding("source", WARNING, f"{detail}; {status.note}")
    return Finding("source", OK, detail)


def _stray(status: SourceStatus, *, shared: bool) -> Finding:
    """Of a source that no configuration here names."""
    detail = f"{status.name}: not configured, {counted(status.doc_count, 'document')} kept"
    if not shared:
        return Finding("source", WARNING, f"{detail}; `ctx index --prune` drops them")
    detail += f", for it may be another machine's (`ctx index --prune {status.name}` drops them)"
    return Finding("source", OK, detail)


def _memory(workspace: Workspace, fix: bool) -> Iterator[Finding]:
    """Whether every memory, its words and its vector agree, and every pack loads."""
    banks = workspace.memory.banks() if _has_memories(workspace) else []
    if not banks and not workspace.config.packs.enabled:
        return
    problems = workspace.memory.check(deep=True)
    for problem in problems[:10]:
        yield Finding("memory", FAILED, f"{problem}; `ctx memory export` saves what can be read")
    if not problems:
        yield _sound_memory(workspace, banks, fix)
        for bank in banks:
            yield from _replaced_by_rule(workspace.memory.bank(bank).replaced_by_rule(), bank)
    yield from _packs(workspace)


def _has_memories(workspace: Workspace) -> bool:
    return bool(workspace.config.store.url) or os.path.isfile(workspace.location.memory)


def _replaced_by_rule(replaced: Sequence[JSON], bank: str) -> Iterator[Finding]:
    """The memories that earlier versions replaced by themselves, which this one does not do."""
    if not replaced:
        return
    lines = [
        f"'{one_line(memory['text'], 80)}': `ctx memory restore {memory['id']} --bank {bank}`"
        for memory in replaced
    ]
    yield Finding(
        "memory",
        OK,
        f"{counted(len(replaced), 'memory')} of bank '{bank}' were replaced by rules of an earlier version. "
        "Each holds again with its command: " + "; ".join(lines),
    )


def _sound_memory(workspace: Workspace, banks: Sequence[str], fix: bool) -> Finding:
    pending = workspace.memory.pending()
    if pending and fix:
        workspace.memory.embed_pending()
        pending = workspace.memory.pending()
    count = sum(workspace.memory.bank(bank).count(include_superseded=True) for bank in banks)
    detail = f"{counted(count, 'memory')} in {counted(len(banks), 'bank')}; rows, words and vectors agree"
    waiting = f"; {pending:,} not embedded yet: a server or `ctx doctor --fix` does it" if pending else ""
    return Finding("memory", WARNING if pending else OK, detail + waiting)


def _packs(workspace: Workspace) -> Iterator[Finding]:
    if workspace.packs:
        yield Finding(
            "packs",
            OK,
            ", ".join(f"{pack.name} ({counted(len(pack.tools), 'tool')})" for pack in workspace.packs),
        )
    for pack in workspace.packs:
        if pack.dialect.key_required and not pack.keys and not _server_keys(workspace):
            yield Finding(
                "pack", WARNING, f"{pack.name} is closed over HTTP until it has a key: `ctx key create NAME`"
            )


def _server_keys(workspace: Workspace) -> int:
    with closing(key_ring(workspace.config)) as ring:
        return len(ring.candidates())


def _failure(script: ScriptStatus) -> Finding:
    remark = "; the last version that worked answers" if script.serving else ""
    state = WARNING if str(script.error).endswith("`ctx trust`") else FAILED
    return Finding(script.kind, state, f"{script.name} ({script.where}): {script.error}{remark}")


def _extensions(workspace: Workspace, fix: bool) -> Iterator[Finding]:
    scripts = workspace.scripts.statuses()
    yield from _sandbox(workspace, bool(scripts or workspace.config.script_connectors))
    failed = [script for script in scripts if script.error is not None]
    yield from map(_failure, failed)
    if scripts and not failed:
        yield Finding("scripts", OK, f"{len(scripts)} loaded")
    for doubt in workspace.doubts():
        yield Finding("setting", WARNING, doubt)


def _sandbox(workspace: Workspace, needed: bool) -> Iterator[Finding]:
    """The layers that hold scripts in, each tried just now."""
    try:
        layers = workspace.pool.selftest()
    except CtxError as error:
        yield Finding("lua sandbox", FAILED if needed else WARNING, error.message)
        return
    for layer in layers:
        state, word = (OK, "holds") if layer.held else (WARNING, "missing")
        yield Finding("sandbox layer", state, f"{layer.name}: {word} ({layer.detail})")
    strict = workspace.pool.level == "strict"
    refused = "" if strict else "; scripts from .ctx/ and packs do not run"
    yield Finding("lua sandbox", OK if strict else WARNING, f"level {workspace.pool.level}{refused}")


def _doors(workspace: Workspace, fix: bool) -> Iterator[Finding]:
    from ctx.cli.serve import page_access  # 150 ms: the web server

    server = workspace.config.server
    settings = ServerSettings(
        bind=server.bind,
        cors_origins=tuple(server.cors_origins),
        cross_site_tools=server.cross_site_tools,
        api_keys=(server.api_key_env,) if server.api_key_env else (),  # whether there is any
    )
    yield Finding("web pages", OK, page_access(workspace, settings))
    for doubt in setting_doubts(server.allowed_hosts, server.cors_origins, server.allowed_origins):
        yield Finding("setting", WARNING, doubt)
    if (
        server.allowed_hosts
        and is_loopback(split_bind(server.bind)[0])
        and not (server.api_key_env or _server_keys(workspace))
    ):
        yield Finding(
            "keys",
            WARNING,
            "[server] allowed_hosts names this server to others, and there is no key: whoever comes through "
            "that name reads everything; `ctx key create NAME` makes one",
        )


def _whoever_answers(client: "httpx.Client", url: str) -> Iterator[Finding]:
    status, health = _health(client)
    if status == 200 and health == {"status": "ok"}:
        yield Finding("server", OK, f"answers at {url}, and asks for a key before it says more")
    elif status == 200 and isinstance(health, dict) and isinstance(health.get("version"), str):
        yield Finding("server", OK, f"version {health['version'][:40]} answers at {url}")
        yield _handshake(client)
    else:
        fault = f"something else answers at {url} (status {status}); choose another [server] bind"
        yield Finding("server", FAILED, fault)


def _server(config: Config) -> Iterator[Finding]:
    import httpx  # 90 ms, and only this command is a client

    rows = servers(state_folder(os.environ))
    own = of_project(rows, config.root)
    other = None if own else at_address(rows, config.server.bind)
    url = local(own.address if own else config.server.bind)
    if other is not None:
        from ctx.server.run import proposal  # 100 ms

        yield Finding(
            "server",
            WARNING,
            f"{url} is taken by the server of {other.root}, and this project is not served: give it a "
            f"[server] bind of its own in ctx.toml{proposal(config.server.bind)}",
        )
        return
    # Whatever else listens there, another user's program say, is not told the key.
    key = os.environ.get(config.server.api_key_env) if own and config.server.api_key_env else None
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=HEALTH_S, trust_env=False) as client:
            yield from _whoever_answers(client, url)
    except httpx.HTTPError:
        yield Finding("server", OK, f"not running at {url} (`ctx serve mcp` starts it)")


def _health(client: "httpx.Client") -> tuple[int, JSON]:
    """Status and content of what is answered as `/health`; None for what no ctx answers."""
    import httpx

    with client.stream("GET", "/health", headers={"Accept-Encoding": "identity"}) as reply:
        try:
            return reply.status_code, json.loads(read_reply(reply, MAX_HEALTH_BYTES, HEALTH_S))
        except (Boundless, TimeoutError, httpx.DecodingError, ValueError, RecursionError):
            return reply.status_code, None


def _handshake(client: "httpx.Client") -> Finding:
    """A real MCP client's first two requests."""
    client.headers["Accept"] = "application/json, text/event-stream"
    begin = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "ctx doctor", "version": "1"},
    }
    opened = client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin})
    if opened.status_code != 200:
        return Finding("mcp", FAILED, f"the handshake was answered {opened.status_code}: {opened.text[:200]}")
    client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    listed = client.post("/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
    if listed.status_code != 200 or '"search"' not in listed.text:
        return Finding("mcp", FAILED, f"tools/list was answered {listed.status_code}: {listed.text[:200]}")
    return Finding("mcp", OK, "handshake and tools/list answered")

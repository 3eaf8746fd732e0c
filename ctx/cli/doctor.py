"""`ctx doctor`: checks the installation and its data, explains how to fix problems, and fixes what it can."""

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass

from ctx.cli import Parser
from ctx.cli.configuration import configuration
from ctx.cli.index import replaced_models, share_line
from ctx.cli.output import plain, print_json, styled, warn
from ctx.cli.running import at_address, of_project, servers, tools_over_http
from ctx.cli.serve import page_access
from ctx.config import Config
from ctx.errors import ConfigError, CtxError, StoreError
from ctx.http import Boundless, Upstream, is_loopback, local, read_reply, split_bind
from ctx.memory.location import holds_old, locate, loss, problems
from ctx.models import JSON, Caller, as_table
from ctx.server.keys import key_ring
from ctx.server.policy import ServerSettings
from ctx.store.schema import COMPANIONS, is_damage
from ctx.text.strings import counted, one_line
from ctx.workspace import Workspace, open_workspace

OK, WARNING, FAILED = "ok", "warning", "failed"
_COLOURS = {OK: "\x1b[32m", WARNING: "\x1b[33m", FAILED: "\x1b[31m"}
MAX_HEALTH_BYTES, HEALTH_S = 1 << 20, 5.0
DATABASE_S = 3.0  # for a database to answer
_STORE_FILES = ("ctx.db", "ctx.db-wal", "ctx.db-shm", "ctx.db.moved", "lock")


@dataclass(frozen=True)
class Finding:
    """The result of one check. `state` is OK, WARNING or FAILED. `detail` says what was found, and how to fix
    a problem.
    """

    what: str
    state: str
    detail: str


Findings = Iterator[Finding]


def doctor_options(options: Parser) -> None:
    """Check the installation, the store, the sources, the sandbox and the server.

    ctx doctor
    ctx doctor --fix
    """
    fix = "fix what can be fixed: rebuild the index, move a damaged catalog aside"
    options.flag("--fix", fix)


def run_doctor(args: Namespace) -> int:
    findings: list[Finding] = []
    for row in _examine(args.config, fix=args.fix):
        if row.state == FAILED and row.detail in [reported.detail for reported in findings]:
            continue  # one problem can fail several checks
        findings.append(row)
        if not args.json:
            state = f"{row.state:<7}"
            state = f"{_COLOURS[row.state]}{state}\x1b[0m" if styled() else state
            print(f"{state}  {row.what:<14} {plain(row.detail)}", flush=True)
    failed = sum(row.state == FAILED for row in findings)
    if args.json:
        print_json({"healthy": not failed, "findings": [asdict(row) for row in findings]})
    elif failed:
        warn(f"\n{failed} failed; each line says how to fix it.")
    return 1 if failed else 0


def _examine(explicit: str | None, *, fix: bool) -> Findings:
    yield Finding("python", OK, f"{sys.version.split()[0]} on {sys.platform}")
    yield _git()
    try:
        config = configuration(explicit)
    except CtxError as error:
        for line in error.message.split("\n"):
            yield Finding("configuration", FAILED, line)
        return
    yield Finding("configuration", OK, config.path or "the defaults")
    unreached = False
    if config.store.url:
        from ctx.cluster import check_database

        try:
            check_database(config.store.url, DATABASE_S)
        except CtxError as error:
            unreached = True
            yield Finding("catalog", FAILED, error.message)
            yield _permissions(config.folder, fix=fix)
    if not unreached:
        yield from _checked("catalog", store_findings(config, fix=fix))
    yield from _checked("memory", _memory_file(config, fix=fix))
    store_checks = () if unreached else (_index, _embedder, _sources, _memory)
    try:
        with open_workspace(config) as workspace:
            for check in (*store_checks, _extensions, _web_pages):
                yield from _checked(check.__name__.strip("_"), check(workspace, fix))
    except CtxError as error:
        yield Finding("workspace", FAILED, error.message)
    yield from _server(config)


def _checked(what: str, findings: Findings) -> Findings:
    """Yields the findings of a check, and the error that ended it, if any."""
    try:
        yield from findings
    except CtxError as error:
        yield Finding(what, FAILED, error.message)


def _git() -> Finding:
    path = shutil.which("git")
    if path is None:
        return Finding("git", WARNING, "git is not on PATH: git sources cannot be read; install it")
    reply = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    return Finding("git", OK, reply.stdout.strip())


# -- the store -----------------------------------------------------------------------------------------------


def store_findings(config: Config, *, fix: bool) -> Findings:
    """Checks the catalog and the permissions of its files."""
    if not config.stored:
        yield Finding("catalog", WARNING, "nothing is indexed yet; run `ctx index`")
        return
    yield _catalog(config, fix=fix)
    yield _permissions(config.folder, fix=fix)


def _catalog(config: Config, *, fix: bool) -> Finding:
    """Checks the catalog for damage. `fix` renames a damaged file, so that `ctx index` can rebuild it."""
    try:
        with Workspace(config) as workspace:
            problems = workspace.catalog.check()
            stats = workspace.catalog.stats()
    except StoreError as error:
        if not is_damage(error):  # another program's file, a newer ctx's, or in use: not damaged
            return Finding("catalog", FAILED, error.message)
        problems, stats = [error.message], {}
    if not problems:
        documents, chunks = counted(stats["documents"], "document"), counted(stats["chunks"], "chunk")
        size = f"{stats['size_bytes'] / 1e6:,.1f} MB"
        return Finding("catalog", OK, f"{documents}, {chunks}, {size}, no damage found")
    if config.store.url:
        return Finding("catalog", FAILED, problems[0])
    if not fix:
        hint = "`ctx doctor --fix` moves the file aside, then `ctx index` rebuilds it"
        return Finding("catalog", FAILED, f"{problems[0]}. {hint}")
    path = config.db.path
    aside = f"{path}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    for suffix in ("", *COMPANIONS):
        if os.path.lexists(path + suffix):
            os.replace(path + suffix, aside + suffix)
    name = os.path.basename(aside)
    detail = f"was damaged ({problems[0]}); set aside as {name}. Run `ctx index` to rebuild it"
    return Finding("catalog", WARNING, detail)


def _permissions(folder: str, *, fix: bool) -> Finding:
    """Checks that only the owner can access the store's files. `fix` corrects their permissions."""
    # A link may have come with a clone and lead anywhere.
    linked, index = os.path.islink(folder), os.path.join(folder, "index")
    paths = [] if linked else [os.path.join(folder, name) for name in _STORE_FILES]
    for parent, _, names in () if linked or os.path.islink(index) else os.walk(index):
        paths += [parent, *(os.path.join(parent, name) for name in names)]
    own = [path for path in paths if os.path.exists(path) and not os.path.islink(path)]
    loose = [path for path in own if stat.S_IMODE(os.stat(path).st_mode) & 0o077]
    if not loose:
        return Finding("permissions", OK, "only the owner can read the store")
    files = f"{counted(len(loose), 'file')} of the store"
    if not fix:
        return Finding("permissions", WARNING, f"other users can read {files}; run `ctx doctor --fix`")
    for path in loose:
        os.chmod(path, 0o700 if os.path.isdir(path) else 0o600)
    return Finding("permissions", OK, f"other users can no longer read {files}")


def _index(workspace: Workspace, fix: bool) -> Findings:
    if database := workspace.catalog.server():
        yield Finding("database", OK if database[0] else WARNING, database[1])
    if workspace.plane.remote:
        healthy, line = workspace.plane.reader.server()
        yield Finding("search engine", OK if healthy else WARNING, line)
    if not workspace.catalog.stats()["documents"]:
        return
    behind = workspace.behind()
    problems = workspace.indexer.rebuild_damaged(adopt=True) if fix else workspace.index.check()
    if fix and behind:
        workspace.indexer.repair()
    if problems and not fix:
        yield Finding("index", FAILED, f"{'; '.join(problems)}. `ctx doctor --fix` rebuilds it")
    elif behind and not fix:
        hint = "`ctx index` (or `ctx doctor --fix`) catches up"
        yield Finding("index", WARNING, f"{behind:,} writes behind the catalog; {hint}")
    else:
        stored = next(iter(workspace.catalog.export()))
        title = stored.document.title or stored.document.source_id
        workspace.toolbox.call("search", {"query": title[:200]}, Caller("cli"))
        was = f"had problems ({'; '.join(problems)}) and was rebuilt; " if problems else ""
        yield Finding("index", OK, was + "up to date, no damage found, answers a search")


def _embedder(workspace: Workspace, fix: bool) -> Findings:
    embedder = workspace.embedder
    if embedder is None:
        yield Finding("embeddings", OK, "disabled by the configuration: keyword search only")
        return
    began_s = time.perf_counter()
    embedder.embed_query("a test")
    took_ms = (time.perf_counter() - began_s) * 1000
    pending = workspace.catalog.pending_count(embedder.model)
    detail = f"{embedder.model}, {embedder.dim} dimensions, loaded and answered in {took_ms:.0f} ms"
    if pending:
        detail += f"; {counted(pending, 'chunk')} pending: `ctx index` embeds them"
    yield Finding("embeddings", WARNING if pending else OK, detail)
    for share in replaced_models(workspace):
        detail = f"{share_line(share)}, from a replaced model: `ctx embed prune` drops them"
        yield Finding("embeddings", WARNING, detail)


def _sources(workspace: Workspace, fix: bool) -> Findings:
    statuses = workspace.statuses()
    if not any(status.configured for status in statuses):
        yield Finding("sources", WARNING, "none is configured; `ctx add FOLDER` adds one")
    for status in statuses:
        documents = counted(status.doc_count, "document")
        if status.configured and status.healthy:
            note = f"; {status.note}" if status.note else ""
            state = WARNING if note else OK
            yield Finding("source", state, f"{status.name}: {documents}{note}")
        elif status.configured:
            yield Finding("source", FAILED, f"{status.name}: {status.note or 'never indexed'}")
        elif workspace.config.store.url:
            hint = f"because another machine may use them (`ctx index --prune {status.name}` drops them)"
            yield Finding("source", OK, f"{status.name}: not configured, {documents} kept, {hint}")
        else:
            detail = f"{status.name}: not configured, {documents} kept; `ctx index --prune` drops them"
            yield Finding("source", WARNING, detail)


def _memory(workspace: Workspace, fix: bool) -> Findings:
    """Checks that each memory agrees with its words and its vector in the index, and reports on the packs."""
    memory = workspace.memory
    kept = bool(workspace.config.store.url) or os.path.isfile(workspace.location.memory)
    banks = memory.banks() if kept else []
    if not banks and not workspace.config.packs.enabled:
        return
    problems = memory.check(deep=True)
    for problem in problems[:10]:
        yield Finding("memory", FAILED, f"{problem}; `ctx memory export` saves what can be read")
    if not problems:
        if fix and memory.pending():
            memory.embed_pending()
        pending = memory.pending()
        count = sum(memory.bank(bank).count(include_superseded=True) for bank in banks)
        detail = f"{counted(count, 'memory')} in {counted(len(banks), 'bank')}; rows, words and vectors agree"
        if pending:
            detail += f"; {pending:,} not embedded yet: run a server or `ctx doctor --fix`"
        yield Finding("memory", WARNING if pending else OK, detail)
        for bank in banks:
            if replaced := memory.bank(bank).replaced_by_rule():
                commands = [
                    f"'{one_line(row['text'], 80)}': `ctx memory restore {row['id']} --bank {bank}`"
                    for row in replaced
                ]
                who = f"{counted(len(replaced), 'memory')} of bank '{bank}'"
                rule = "were replaced by rules of an earlier version. To restore one, run its command"
                yield Finding("memory", OK, f"{who} {rule}: {'; '.join(commands)}")
    if workspace.packs:
        names = [f"{pack.name} ({counted(len(pack.tools), 'tool')})" for pack in workspace.packs]
        yield Finding("packs", OK, ", ".join(names))
    for pack in workspace.packs:
        if pack.dialect.key_required and not pack.keys and not _keys(workspace):
            hint = "closed over HTTP until you make a key: `ctx key create NAME`"
            yield Finding("pack", WARNING, f"{pack.name} is {hint}")


def _memory_file(config: Config, *, fix: bool) -> Findings:
    """Checks where the memories are stored, whether that file is damaged, and whether memories are missing.
    `fix` restores what it can.
    """
    from ctx.memory.salvage import restore  # 100 ms: numpy

    if config.store.url:
        return
    location = locate(config, os.environ)
    memory = location.memory
    if location.waiting:
        detail = f"those in {config.folder} are not used: {location.waiting}"
        yield Finding("memory", WARNING, f"{detail}; `ctx memory adopt .ctx` takes them over")
    elif os.path.lexists(memory) and (old := holds_old(location.catalog)):
        count = counted(old, "memory")
        detail = f"{location.catalog} holds {count} of an earlier version, which are not used"
        yield Finding("memory", WARNING, detail)
    found = problems(memory)
    if not found and os.path.isfile(memory):
        yield Finding("memory", OK, f"kept in {memory}")
    if not found:
        return
    if not fix:
        for problem in found:
            detail = problem.removesuffix("; `ctx doctor` says more")
            hint = "`ctx doctor --fix` restores what it can from the copies and the file"
            yield Finding("memory", FAILED, f"{detail}. {hint}")
        return
    salvage = restore(memory)
    copied = f"{counted(salvage.from_copy, 'memory')} from the {salvage.copy}"
    unread = f"{counted(salvage.missing, 'memory')} could not be read anywhere"
    detail = f"had problems ({found[0]}); {copied if salvage.copy else 'there was no copy'}; "
    detail += f"{salvage.from_rows:,} more read from the file itself; "
    detail += unread if salvage.missing else "no memory is missing"
    detail += f"; the old file is {os.path.basename(salvage.aside)}" if salvage.aside else ""
    yield Finding("memory", WARNING, detail)
    if left := loss(memory):
        yield Finding("memory", FAILED, left)


def _keys(workspace: Workspace) -> int:
    with closing(key_ring(workspace.config)) as ring:
        return len(ring.candidates())


# -- scripts, web pages and the server -----------------------------------------------------------------------


def _extensions(workspace: Workspace, fix: bool) -> Findings:
    scripts = workspace.scripts.statuses()
    try:
        layers = workspace.pool.selftest()
    except CtxError as error:
        needed = bool(scripts or workspace.config.script_connectors)
        yield Finding("lua sandbox", FAILED if needed else WARNING, error.message)
    else:
        for layer in layers:
            state, word = (OK, "holds") if layer.held else (WARNING, "missing")
            yield Finding("sandbox layer", state, f"{layer.name}: {word} ({layer.detail})")
        strict = workspace.pool.level == "strict"
        refused = "" if strict else "; scripts from .ctx/ and packs do not run"
        yield Finding("lua sandbox", OK if strict else WARNING, f"level {workspace.pool.level}{refused}")
    failed = [script for script in scripts if script.error is not None]
    for script in failed:
        remark = "; the last working version is used" if script.serving else ""
        state = WARNING if str(script.error).endswith("`ctx trust`") else FAILED
        yield Finding(script.kind, state, f"{script.name} ({script.where}): {script.error}{remark}")
    if scripts and not failed:
        yield Finding("scripts", OK, f"{len(scripts)} loaded")
    yield from (Finding("setting", WARNING, warning) for warning in workspace.doubts())


def _web_pages(workspace: Workspace, fix: bool) -> Findings:
    server = workspace.config.server
    settings = ServerSettings(
        bind=server.bind,
        cors_origins=tuple(server.cors_origins),
        cross_site_tools=server.cross_site_tools,
        api_keys=(server.api_key_env,) if server.api_key_env else (),  # doctor checks only that it is set
    )
    every_page = "*" in server.cors_origins and not server.api_key_env
    hint = "; [server] cors_origins = [] closes it" if every_page else ""
    yield Finding("web pages", WARNING if every_page else OK, page_access(workspace, settings) + hint)
    near = is_loopback(split_bind(server.bind)[0])
    if server.allowed_hosts and near and not (server.api_key_env or _keys(workspace)):
        detail = (
            "[server] allowed_hosts opens this server to other machines, and without a key they can read "
            "everything. Make a key with `ctx key create NAME`"
        )
        yield Finding("keys", WARNING, detail)


def _server(config: Config) -> Findings:
    """Checks whether this project's server runs and answers."""
    import httpx  # 90 ms

    rows = servers()
    own = of_project(rows, config.root)
    url = local(own.address if own else config.server.bind)
    if own is None and (other := at_address(rows, config.server.bind)):
        from ctx.server.run import proposal  # 100 ms

        detail = f"the server of {other.root} uses {url}, so this project is not served: give this project "
        detail += f"its own [server] bind in ctx.toml{proposal(config.server.bind)}"
        yield Finding("server", WARNING, detail)
        return
    key = own.owner_key if own else None  # never sent to another program at this address
    headers = {"Accept-Encoding": "identity", **({"Authorization": f"Bearer {key}"} if key else {})}
    health: dict[str, JSON] = {}
    try:
        with (
            httpx.stream("GET", f"{url}/health", headers=headers, timeout=HEALTH_S, trust_env=False) as reply,
            suppress(Boundless, TimeoutError, httpx.DecodingError, ValueError, RecursionError),
        ):
            health = as_table(json.loads(read_reply(reply, MAX_HEALTH_BYTES, HEALTH_S)))
    except httpx.HTTPError:
        yield Finding("server", OK, f"not running at {url} (`ctx serve` starts it)")
        return
    status = reply.status_code
    if status != 200 or health.get("status") != "ok":
        detail = f"another program answers at {url} (status {status}); choose another [server] bind"
        yield Finding("server", FAILED, detail)
    elif not isinstance(health.get("version"), str):
        yield Finding("server", OK, f"answers at {url} and needs a key for details")
    else:
        yield Finding("server", OK, f"version {health['version'][:40]} answers at {url}")
        for problem in health.get("degraded") or ():
            yield Finding("server", WARNING, f"reports: {problem}")
        try:
            tools = tools_over_http(Upstream(f"{url}/mcp", key))
            yield Finding("mcp", OK, f"handshake and tools/list answered: {len(tools)} tools")
        except (ConfigError, ConnectionError) as error:
            yield Finding("mcp", FAILED, str(error))

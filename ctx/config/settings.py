"""Declares every key of `ctx.toml`: its type, default, range and purpose, and whether it needs trust.

These declarations are used to check a file (load.py), to ask for trust (trust.py), and to generate the
reference (docs/configuration.md), the example (config/ctx.toml) and the JSON Schema with
`python .ci/configuration.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ctx.config.toml import REQUIRED, Globs, Path, Strings, Url, Urls, guarded, safe
from ctx.connectors.defaults import MAX_FILE_BYTES
from ctx.models import JSON

REGISTRY_PREFIX = "registry:"
"""The prefix of the path of a script from an installed registry: `registry:NAME/tools/SCRIPT`."""

MAX_SCRIPT_BYTES = 1_000_000  # maximum size of a script file
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")  # this machine's host names, as written in an address

SHIPPED_MODEL = "all-MiniLM-L6-v2"
FULL_NAMES = {
    "bge-small-en-v1.5": "BAAI/bge-small-en-v1.5",
    "bge-base-en-v1.5": "BAAI/bge-base-en-v1.5",
    "bge-large-en-v1.5": "BAAI/bge-large-en-v1.5",
    "nomic-embed-text-v1": "nomic-ai/nomic-embed-text-v1",
    "nomic-embed-text-v1.5": "nomic-ai/nomic-embed-text-v1.5",
    "multilingual-e5-small": "intfloat/multilingual-e5-small",
    "multilingual-e5-base": "intfloat/multilingual-e5-base",
    "multilingual-e5-large": "intfloat/multilingual-e5-large",
}
"""Short model name, as in Context Harness -> full name of the model that can be downloaded."""

SHIPPED_PACKS = ("hindsight", "claude-recall", "sekha")

_SIZE = (1, 1_000_000_000)
_DAY_S, _WEEK_S, _YEAR_S = 86_400, 604_800, 31_536_000


def is_shipped_model(name: str) -> bool:
    """Whether `name` is the model that ships with ctx, with or without the prefix
    `sentence-transformers/`.
    """
    return name.lower().removeprefix("sentence-transformers/") == SHIPPED_MODEL.lower()


# -- tables that appear once ---------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Db:
    """The keys of `[db]`: the file of the catalog."""

    path: Path = guarded("./.ctx/ctx.db", "the catalog; index and caches are in the same folder")


@dataclass(kw_only=True)
class Store:
    """The keys of `[store]`: an optional database that several machines share."""

    url: Url | None = guarded(
        None,
        "a PostgreSQL database for several machines; `[db] path` then holds only this machine's index",
        shown="postgresql://ctx@db.example.com/ctx",
        unset="the file of `[db] path`",
    )


@dataclass(kw_only=True)
class Index:
    """The keys of `[index]`: the search engine."""

    engine: str = safe(
        "local",
        "`local`, an index in the store's folder, or [`opensearch`](cluster.md)",
        choices=("local", "opensearch"),
    )
    url: Urls | None = guarded(
        None,
        "the nodes of OpenSearch, separated by commas; it receives all words and vectors",
        shown="https://os1.example.com:9200,https://os2.example.com:9200",
        unset="needed for `opensearch`",
    )
    name: str = safe("ctx", "prefix of its indices; use another for each catalog")
    shards: int = safe(1, "shards of a new index: one per 10 to 30 GB", within=(1, 1024))
    replicas: int = safe(1, "copies of each shard in a new index", within=(0, 10))
    api_key: str | None = safe(None, "instead of a user and password in the `url`", shown="${CTX_SEARCH_KEY}")
    ca_file: Path | None = guarded(None, "CA certificate", shown="./ca.pem", unset="the system's")
    timeout_secs: float = safe(10.0, "seconds for an answer", within=(0.1, 3600))
    max_retries: int = safe(5, "further tries; about 3 s in all", within=(0, 20))


@dataclass(kw_only=True)
class Chunking:
    """The keys of `[chunking]`: how documents are cut into chunks."""

    max_tokens: int = safe(180, "longest chunk; the bundled model reads at most 256", within=(32, 8192))
    overlap_tokens: int = safe(0, "tokens that neighbouring chunks share", within=(0, 4096))


@dataclass(kw_only=True)
class Embedding:
    """The keys of `[embedding]`: the embedding model."""

    provider: str = guarded(
        "local",
        "`local` (in this process, offline), `ollama`, `openai` (any compatible server) or `disabled`",
        choices=("local", "ollama", "openai", "disabled"),
    )
    model: str | None = guarded(
        None,
        "for `local`: the bundled model, any fastembed model by name, or a folder",
        shown=SHIPPED_MODEL,
        unset=f"`{SHIPPED_MODEL}`",
    )
    dims: int | None = safe(
        None, "required for `ollama` and `openai`", within=(1, 65536), shown=384, unset="the model's"
    )
    batch_size: int = safe(32, "texts per request, for `ollama` and `openai`", within=(1, 2048))
    url: Url | None = guarded(
        None, "address of the server", shown="http://localhost:11434", unset="the provider's own"
    )
    api_key_env: str | None = guarded(
        None,
        "the environment variable that holds the provider's key",
        shown="OPENAI_API_KEY",
        unset="`OPENAI_API_KEY` for `openai` without a `url`",
    )
    timeout_secs: float = safe(30.0, "for `ollama` and `openai`", within=(0.1, 3600))
    max_retries: int = safe(5, "for `ollama` and `openai`", within=(0, 20))
    threads: int = safe(0, "threads that embed; 0: one per core", within=(0, 256))

    @property
    def key_variable(self) -> str | None:
        """The environment variable that holds the API key; None if no key is used. `OPENAI_API_KEY` is the
        default only if `url` is not set, so that this key is sent to no other server.
        """
        if self.api_key_env is None and self.provider == "openai" and self.url is None:
            return "OPENAI_API_KEY"
        return self.api_key_env


@dataclass(kw_only=True)
class Retrieval:
    """The keys of `[retrieval]`: how a search ranks and shows results."""

    mode: str = safe(
        "hybrid",
        "how to search by default (REST: `keyword`); names and quoted phrases are searched by keyword",
        choices=("keyword", "semantic", "hybrid"),
    )
    final_limit: int = safe(12, "results when a search names no limit", within=(1, 100))
    fusion: str = safe(
        "minmax",
        "how hybrid search combines its two rankings: `minmax`, `rrf` or `dbsf` ([ranking](ranking.md))",
        choices=("rrf", "minmax", "dbsf"),
    )
    hybrid_alpha: float | None = safe(
        None, "weight of the semantic ranking", within=(0, 1), shown=0.5, unset="by the kind of query"
    )
    candidate_k_keyword: int = safe(100, "passages taken from the keyword search", within=(1, 10_000))
    candidate_k_vector: int = safe(300, "chunks taken from the semantic search", within=(1, 10_000))
    max_chunks_per_doc: int = safe(5, "passages of one document that count", within=(1, 100))
    snippet_chars: int = safe(240, "approximate length of a snippet", within=(80, 2000))


@dataclass(kw_only=True)
class Server:
    """The keys of `[server]`: the HTTP server."""

    bind: str = guarded("127.0.0.1:7331", "where it listens; beyond this machine it needs a key")
    allowed_hosts: Strings = guarded((), "further names of the server; any other `Host` gets 421")
    cors_origins: Strings = safe(
        ("*",), "which web pages may call the document tools and the tools named in this file"
    )
    cross_site_tools: str = safe(
        "all", "`read_only`: no tools that write for pages of other sites", choices=("all", "read_only")
    )
    allowed_origins: Strings = guarded((), "which web pages may call MCP and the memory packs")
    api_key_env: str | None = guarded(
        None,
        "the environment variable that holds a key for every interface",
        shown="CTX_API_KEY",
    )
    rate_limit_per_minute: int = safe(0, "requests per minute and client; 0: no limit", within=(0, 1_000_000))
    max_body_bytes: int = safe(1_048_576, "a larger request gets 413", within=(1024, 1_073_741_824))
    metrics: bool = safe(False, "Prometheus metrics at `/metrics`")
    activity: bool = safe(True, "keep the last 10,000 searches and reads, for `ctx log` and the page")


@dataclass(kw_only=True)
class Mcp:
    """The keys of `[mcp]`: the MCP interface over HTTP."""

    enabled: bool = safe(True, "MCP at `/`, `/mcp` and `/mcp/BANK`")


@dataclass(kw_only=True)
class Watch:
    """The keys of `[watch]`: how a server follows changes of its sources."""

    enabled: bool = safe(True, "a server follows changes in its sources")
    debounce_ms: int = safe(
        50,
        "milliseconds to wait for further changes before indexing",
        within=(0, 60_000),
    )
    git_interval_s: float = safe(300.0, "seconds between fetches of git sources", within=(1, _WEEK_S))
    script_interval_s: float = safe(900.0, "seconds between runs of script sources", within=(1, _WEEK_S))


@dataclass(kw_only=True)
class Lua:
    """The keys of `[lua]`: the Lua scripts and their sandbox."""

    tools_dir: Path | None = guarded(None, "every `*.lua` in it is a tool", shown="./tools")
    sandbox: str = safe(
        "auto", "`strict`: run scripts only with the full sandbox", choices=("auto", "strict")
    )
    workers: int = safe(4, "worker processes kept ready", within=(1, 64))


@dataclass(kw_only=True)
class Packs:
    """The keys of `[packs]`: the enabled memory packs."""

    enabled: Strings = safe(
        (), "`hindsight`, `claude-recall`, `sekha` ([packs](packs.md))", shown=SHIPPED_PACKS
    )
    settings: Mapping[str, "PackSettings"] = field(default_factory=dict)  # enabled pack -> its keys


@dataclass(kw_only=True)
class PackSettings:
    """The keys of `[packs.NAME]`, a memory pack."""

    api_key_env: str | None = guarded(
        None, "the environment variable that holds the pack's key", shown="SEKHA_API_KEY"
    )
    default_bank: str | None = safe(None, "the bank of callers that name none", unset="`default`")
    profile: str | None = safe(
        None, "which tools it has ([profiles](packs.md#profiles))", shown="seed", unset="the pack's first"
    )
    rate_limit_per_minute: int | None = safe(
        None,
        "calls of each session, `0` for no limit",
        within=(0, 1_000_000_000),
        shown=100,
        unset="the pack's own",
    )


@dataclass(kw_only=True)
class Llm:
    """The keys of `[memory.llm]`: a language model for `reflect`. Without a model, `reflect` quotes
    memories.
    """

    provider: str = guarded(
        "openai",
        "`openai` (any compatible server) or `ollama`",
        choices=("openai", "ollama"),
    )
    base_url: Url = guarded(REQUIRED, "the address of the server", shown="http://localhost:11434/v1")
    model: str = guarded(REQUIRED, "the server's name for the model", shown="llama3.2")
    api_key_env: str | None = guarded(None, "the environment variable that holds its key")
    timeout_s: float = guarded(30.0, "seconds for an answer", within=(0.1, 600), name="timeout")
    allow_remote: bool = guarded(False, "allow a server on another machine, which then receives memories")
    consolidate: bool = guarded(False, "the model decides at each write which similar memories it replaces")


@dataclass(kw_only=True)
class Memory:
    """The keys of `[memory]`: where and how memories are stored."""

    path: Path | None = guarded(
        None,
        "the file for memories, keys and scripts' values",
        shown="/srv/ctx/memory.db",
        unset="in your [data folder](data.md)",
    )
    shared: bool = safe(False, "the packs share one bank ([packs](packs.md))")
    secrets: str = safe(
        "flag",
        "what a write does with passwords and keys: `flag`, `redact`, `refuse`, `off`",
        choices=("flag", "redact", "refuse", "off"),
    )
    llm: Llm | None = None


# -- sources -------------------------------------------------------------------------------------------------


def _globs(note: str, *shown: str, unset: str) -> Any:
    return safe(None, note, shown=shown, unset=unset)


@dataclass(kw_only=True)
class Filesystem:
    """The keys of `[connectors.filesystem.NAME]`, a folder of files.

    `name` is the full name of the source, as in all source tables: `filesystem` or `filesystem:NAME`.
    """

    name: str
    root: Path = guarded(REQUIRED, "the folder", shown="./docs")
    include_globs: Globs | None = _globs(
        "which files",
        "**/*.md",
        "**/*.py",
        unset="[text files and documents](formats.md#which-files-by-default)",
    )
    exclude_globs: Globs = safe(
        (),
        "files to leave out, in addition to ignore files",
    )
    follow_symlinks: bool = safe(False, "follow links that stay below `root`")
    max_file_bytes: int = safe(MAX_FILE_BYTES, "larger files are reported and left out", within=_SIZE)
    link: str | None = safe(
        None,
        "address of a result: a URL with `{path}`, or `file` for the file itself",
        shown="https://wiki.example.com/{path}",
    )
    gitignore: bool = safe(True, "obey `.gitignore` and `.ctxignore` files")


@dataclass(kw_only=True)
class Git:
    """The keys of `[connectors.git.NAME]`, a git repository."""

    name: str
    url: str = guarded(
        REQUIRED,
        "anything that `git clone` accepts; your own git credentials are used",
        shown="https://github.com/acme/platform.git",
    )
    branch: str | None = safe(
        None, "one branch, tag, or commit by its full id", shown="main", unset="the remote's default"
    )
    root: str = safe(".", "a folder inside the repository")
    include_globs: Globs | None = _globs("as for a folder", "**/*.md", unset="as for a folder")
    exclude_globs: Globs = safe((), "as for a folder")
    shallow: bool = safe(True, "fetch only the history needed for the files' dates")
    commits: bool = safe(False, "index commit messages too, as `@commits/ID`")
    since: str | None = safe(None, "only commits from this day on", shown="2026-01-01", unset="all commits")
    submodules: bool = guarded(False, "index submodules too, if they are on the repository's own host")
    lfs: bool = guarded(False, "index files kept in Git LFS too, if `git lfs` is installed")
    cache_dir: Path | None = guarded(
        None,
        "where clones are kept",
        shown="./clones",
        unset="`ctx/git` in `$XDG_CACHE_HOME` or `~/.cache`",
    )
    max_file_bytes: int = safe(MAX_FILE_BYTES, "as for a folder", within=_SIZE)
    timeout_s: float = safe(600.0, "seconds for each git command", within=(1, _DAY_S))
    interval_s: float | None = safe(
        None, "seconds between fetches", within=(1, _WEEK_S), shown=300, unset="`[watch] git_interval_s`"
    )


@dataclass(kw_only=True)
class Web:
    """The keys of `[connectors.web.NAME]`, a web site."""

    name: str
    url: Url = guarded(
        REQUIRED, "the first page, a sitemap, or an `llms.txt`", shown="https://docs.example.com/"
    )
    scope: Strings = safe(
        (), "allowed prefixes; empty: the folder of `url`", shown=("https://docs.example.com/en/",)
    )
    include_globs: Globs | None = _globs("which paths of the site", "/en/**", unset="all within `scope`")
    exclude_globs: Globs = safe(
        ("_sources/", "_modules/", "genindex*.html", "py-modindex.html", "search.html"),
        "paths to leave out; by default, pages that documentation builders generate",
    )
    depth: int | None = safe(
        None, "links to follow from `url`", within=(0, 100), shown=3, unset="8 from a page, 0 from a list"
    )
    max_pages: int = safe(5000, "largest number of pages", within=(1, 1_000_000))
    requests_per_second: float = safe(5.0, "at most; `Crawl-delay` may lower it", within=(0.01, 1000))
    robots: bool = guarded(True, "obey `robots.txt`; `false` is for your own sites")
    queries: bool = safe(False, "keep the part of an address after `?`")
    allow_hosts: Strings = guarded((), "private hosts it may reach", shown=("wiki.internal:8080",))
    max_file_bytes: int = safe(MAX_FILE_BYTES, "larger pages are reported and left out", within=_SIZE)
    timeout_s: float = safe(3600.0, "seconds for a whole crawl; the next one continues", within=(1, _DAY_S))
    interval_s: float = safe(86_400.0, "seconds between crawls", within=(60, _YEAR_S))


@dataclass(kw_only=True)
class S3:
    """The keys of `[connectors.s3.NAME]`, an S3 bucket."""

    name: str
    bucket: str = guarded(REQUIRED, "its name", shown="acme-handbook")
    prefix: str = guarded("", "only keys with this prefix")
    region: str | None = guarded(
        None,
        "the bucket's region",
        shown="eu-central-1",
        unset="from the environment or profile, else `us-east-1`",
    )
    endpoint_url: Url | None = guarded(
        None,
        "address of a store other than AWS (MinIO, R2, Ceph, ...)",
        shown="https://minio.example.com:9000",
        unset="AWS",
    )
    include_globs: Globs | None = _globs("as for a folder, on keys", "**/*.md", unset="as for a folder")
    exclude_globs: Globs = safe((), "as for a folder")
    profile: str | None = guarded(
        None,
        "a profile of `~/.aws` whose keys are used",
        shown="docs-reader",
        unset="AWS's usual chain",
    )
    anonymous: bool = safe(False, "for a public bucket: do not sign requests")
    max_file_bytes: int = safe(MAX_FILE_BYTES, "as for a folder", within=_SIZE)
    timeout_s: float = safe(3600.0, "seconds for a whole scan; the next one continues", within=(1, _DAY_S))
    interval_s: float = safe(3600.0, "seconds between listings", within=(10, _YEAR_S))


# -- scripts and agents --------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Script:
    """The keys of `[tools.script.NAME]` and `[agents.script.NAME]`: a Lua file that the operator named.

    `config` holds the keys that ctx does not know. They are passed to the script.
    """

    name: str
    path: Path = guarded(
        REQUIRED,
        "a [Lua](lua-api.md) file, or `registry:NAME/tools/SCRIPT` ([registries](registries.md))",
        shown="./tools/create-ticket.lua",
    )
    timeout_s: float = guarded(30.0, "seconds for a call", within=(0.01, _DAY_S), name="timeout")
    env: Strings = guarded((), "environment variables the script may read", shown=("TICKET_TOKEN",))
    allow_hosts: Strings = guarded((), "private hosts it may reach", shown=("tickets.internal",))
    fs: Strings = guarded((), "folders it may read, in addition to its own", shown=("./templates",))
    calls: Strings = guarded((), "other tools it may call with `context.call`", shown=("refresh",))
    memory_bank: str | None = guarded(None, "the memory bank of `context.memory`", shown="default")
    config: Mapping[str, JSON]


@dataclass(kw_only=True)
class ScriptConnector(Script):
    """The keys of `[connectors.script.NAME]`, a source that a Lua script reads."""

    timeout_s: float = guarded(300.0, "seconds for a whole scan", within=(0.01, _DAY_S), name="timeout")
    interval_s: float | None = guarded(
        None, "seconds between runs", within=(1, _WEEK_S), shown=900, unset="`[watch] script_interval_s`"
    )


@dataclass(kw_only=True)
class InlineAgent:
    """The keys of `[agents.inline.NAME]`, an agent that is defined in the configuration."""

    name: str
    description: str = safe("", "what it is for", shown="Reviews code against the team's documents")
    tools: Strings = safe((), "the tools it wants", shown=("search", "get"))
    system_prompt: str = safe(REQUIRED, "system prompt", shown="You review code. Search the documents first.")


SECTIONS: Mapping[str, type[Any]] = {
    section.__name__.lower(): section
    for section in (Db, Store, Index, Chunking, Embedding, Retrieval, Server, Mcp, Watch, Lua, Packs, Memory)
}
"""Table name -> class, for the tables that may appear only once."""

NAMED_SECTIONS: Mapping[str, type[Any]] = {
    "connectors.filesystem": Filesystem,
    "connectors.git": Git,
    "connectors.web": Web,
    "connectors.s3": S3,
    "connectors.script": ScriptConnector,
    "tools.script": Script,
    "agents.inline": InlineAgent,
    "agents.script": Script,
}
"""Table name -> class, for the tables that may appear many times, such as `[connectors.git.NAME]`."""

"""What can be configured: each section declares its keys once, with name, type, default, range and note.
What a server alone needs: ctx/served_settings.py. Sources that are no folders, scripts and agents:
ctx/named_settings.py.

The checks and defaults (ctx/config.py) follow from here, and what `python scripts/configuration.py` writes:
the reference (docs/configuration.md), the commented example (config/ctx.toml), the schema for editors.
"""

from collections.abc import Mapping

from ctx.declaration import Section, key

REGISTRY_PREFIX = "registry:"
"""Begins the path of a script that an installed registry has: `registry:NAME/tools/SCRIPT`."""

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")  # as an address names this machine alone

SHIPPED_MODEL = "all-MiniLM-L6-v2"  # what embeds where no other is named

MAX_FILE_BYTES = 10_000_000  # a larger text file is a log or a dump: a hundred thousand chunks of noise


def is_shipped_model(name: str) -> bool:
    """Whether a model of that name is the one that ctx brings along; its family may stand before it."""
    return name.lower().removeprefix("sentence-transformers/") == SHIPPED_MODEL.lower()


class Db(Section):
    path: str = key(
        "path", "./.ctx/ctx.db", "the catalog; the index (`index/`), the caches and the keys live beside it"
    )


class Store(Section):
    url: str | None = key(
        "str",
        None,
        "a PostgreSQL that holds all that is stored for several machines; `[db] path` is then where this "
        "one keeps what follows from it",
        shown="postgresql://ctx@db.example.com/ctx",
        unset="the file of `[db] path`",
    )


class Index(Section):
    engine: str = key(
        "str",
        "local",
        "what searches: `local`, an index in the store's folder, or [`opensearch`](operations.md)",
        choices=("local", "opensearch"),
        harmless=True,
    )
    url: str | None = key(
        "str",
        None,
        "the nodes of an OpenSearch 3 or newer, commas between; it gets all words and vectors",
        shown="https://os1.example.com:9200,https://os2.example.com:9200",
        unset="needed for `opensearch`",
    )
    name: str = key("str", "ctx", "its indices begin so: one name for each catalog", harmless=True)
    shards: int = key(
        "int", 1, "parts of an index when it is made: one per 10 to 30 GB", low=1, high=1024, harmless=True
    )
    replicas: int = key(
        "int", 1, "copies of each part on further nodes, when it is made", low=0, high=10, harmless=True
    )
    api_key: str | None = key(
        "str",
        None,
        "who ctx is there, in place of a user and password in the `url`",
        shown="${CTX_SEARCH_KEY}",
    )
    ca_file: str | None = key(
        "path",
        None,
        "the certificate of the authority that signed the nodes'",
        shown="./ca.pem",
        unset="the system's",
    )
    timeout_secs: float = key(
        "float", 10.0, "that a node has for an answer", low=0.1, high=3600, harmless=True
    )
    max_retries: int = key(
        "int",
        5,
        "further tries, of the next node each; a quarter of a minute in all",
        low=0,
        high=20,
        harmless=True,
    )


class Chunking(Section):
    max_tokens: int = key(
        "int",
        180,
        "how long a passage may be; the bundled model reads 256 tokens and scores best on short ones",
        low=32,
        high=8192,
        harmless=True,
    )
    overlap_tokens: int = key("int", 0, "how much neighbours share", low=0, high=4096, harmless=True)


class Embedding(Section):
    provider: str = key(
        "str",
        "local",
        "`local` (in this process, offline), `ollama`, `openai` (any compatible server) or `disabled`",
        choices=("local", "ollama", "openai", "disabled"),
    )
    model: str | None = key(
        "str",
        None,
        "for `local`: the bundled model, any fastembed model by name, or a folder",
        shown=SHIPPED_MODEL,
        unset=f"`{SHIPPED_MODEL}`",
    )
    dims: int | None = key(
        "int",
        None,
        "`ollama` and `openai` need it",
        low=1,
        high=65536,
        shown=384,
        unset="of the model",
        harmless=True,
    )
    batch_size: int = key(
        "int", 32, "texts a request, for `ollama` and `openai`", low=1, high=2048, harmless=True
    )
    url: str | None = key(
        "str", None, "where the server is", shown="http://localhost:11434", unset="the provider's own"
    )
    api_key_env: str | None = key(
        "str",
        None,
        "the environment variable that holds the provider's key",
        shown="OPENAI_API_KEY",
        unset="`OPENAI_API_KEY` for `openai` without a `url`",
    )
    timeout_secs: float = key("float", 30.0, "for `ollama` and `openai`", low=0.1, high=3600, harmless=True)
    max_retries: int = key("int", 5, "for `ollama` and `openai`", low=0, high=20, harmless=True)
    threads: int = key("int", 0, "threads that embed; 0: one per core", low=0, high=256, harmless=True)

    @property
    def key_variable(self) -> str | None:
        """The environment variable with the key: OpenAI's own, only ever for OpenAI itself."""
        if self.api_key_env is None and self.provider == "openai" and self.url is None:
            return "OPENAI_API_KEY"
        return self.api_key_env


class Retrieval(Section):
    final_limit: int = key("int", 12, "results when a search names no limit", low=1, high=100, harmless=True)
    fusion: str = key(
        "str",
        "minmax",
        "how hybrid joins its legs: `rrf`, `minmax` or `dbsf` ([ranking](ranking.md))",
        choices=("rrf", "minmax", "dbsf"),
        harmless=True,
    )
    hybrid_alpha: float | None = key(
        "float",
        None,
        "weight of the semantic leg; absent: chosen by the kind of query",
        low=0,
        high=1,
        shown=0.5,
        unset="by query",
        harmless=True,
    )
    candidate_k_keyword: int = key(
        "int",
        100,
        "passages taken from the keyword leg, whatever the `limit`",
        low=1,
        high=10_000,
        harmless=True,
    )
    candidate_k_vector: int = key(
        "int",
        300,
        "chunks taken from the semantic leg, whatever the `limit`",
        low=1,
        high=10_000,
        harmless=True,
    )
    max_chunks_per_doc: int = key(
        "int", 5, "passages of one document that count", low=1, high=100, harmless=True
    )
    snippet_chars: int = key("int", 240, "how long a snippet is, about", low=80, high=2000, harmless=True)


class Filesystem(Section):
    """`name` is the full name: filesystem or filesystem:NAME."""

    name: str
    root: str = key("path", None, "the folder", required=True, shown="./docs")
    include_globs: tuple[str, ...] | None = key(
        "glob",
        None,
        "which files; `**` crosses folders, a pattern without `/` matches anywhere",
        shown=("**/*.md", "**/*.py"),
        unset="prose, documents (PDF, Office, mail), notebooks, source code: `docs/formats.md`",
        harmless=True,
    )
    exclude_globs: tuple[str, ...] = key(
        "glob",
        (),
        "which not, on top of `.gitignore`, `.ctxignore` and folders such as `.git`, `node_modules`",
        harmless=True,
    )
    follow_symlinks: bool = key(
        "bool", False, "follow links, as long as they stay below `root`", harmless=True
    )
    max_file_bytes: int = key(
        "int",
        MAX_FILE_BYTES,
        "larger files are a line of the report",
        low=1,
        high=1_000_000_000,
        harmless=True,
    )
    link: str | None = key(
        "str",
        None,
        "where a result leads: an address with `{path}` for its path below `root`, or `file` for the file",
        shown="https://wiki.example.com/{path}",
        harmless=True,
    )
    gitignore: bool = key("bool", True, "obey `.gitignore` and `.ctxignore` files", harmless=True)


SECTIONS: Mapping[str, type[Section]] = {
    "db": Db,
    "store": Store,
    "index": Index,
    "chunking": Chunking,
    "embedding": Embedding,
    "retrieval": Retrieval,
}
"""The tables that stand once, by name, in the order of the example; behind them come `SERVED`."""

SERVED = ("server", "mcp", "watch", "lua", "packs", "memory")  # tables that stand once, too

# Keys of Context Harness v0.8 that do nothing here: a moved configuration is told why, and starts.
WITHOUT_EFFECT = {
    "vector_index": "the vector index needs no settings; delete the section",
    "registries": "a registry is brought by `ctx registry install NAME URL`; delete the section",
    "retrieval.group_by": "results are always grouped by document; delete the key",
    "retrieval.doc_agg": "the best chunk of a document decides; delete the key",
}

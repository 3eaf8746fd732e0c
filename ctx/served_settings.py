"""What can be configured of what a server alone needs: its doors, its following of sources, scripts, memory.

Declared as in ctx/settings.py. A search from the command line does without these fifty keys, unless the
configuration sets one.
"""

from collections.abc import Mapping

from ctx.declaration import Section, key
from ctx.settings import SERVED
from ctx.types import JSON

SHIPPED_PACKS = ("hindsight", "claude-recall", "sekha")


class Server(Section):
    bind: str = key("str", "127.0.0.1:7331", "where it listens; any host but this machine's needs a key")
    allowed_hosts: tuple[str, ...] = key(
        "strs", (), "further names the server is reached by; any other `Host` is answered 421"
    )
    cors_origins: tuple[str, ...] = key(
        "strs",
        ("*",),
        "which web pages may call the document tools and the tools named in this file",
        harmless=True,
    )
    cross_site_tools: str = key(
        "str",
        "all",
        '`"read_only"`: pages of other sites may not call tools that write',
        choices=("all", "read_only"),
        harmless=True,
    )
    allowed_origins: tuple[str, ...] = key("strs", (), "which web pages may call MCP and the memory packs")
    api_key_env: str | None = key(
        "str",
        None,
        "the environment variable that holds a key for every door; needed to bind beyond this machine",
        shown="CTX_API_KEY",
    )
    rate_limit_per_minute: int = key(
        "int", 0, "requests a minute and client; 0: no limit", low=0, high=1_000_000, harmless=True
    )
    max_body_bytes: int = key(
        "int", 1_048_576, "a larger request is answered 413", low=1024, high=1_073_741_824, harmless=True
    )
    metrics: bool = key("bool", False, "Prometheus metrics at `/metrics`", harmless=True)
    search_processes: int = key(
        "int",
        1,
        "processes that answer searches beside the server while many come; no more than cores to spare",
        low=0,
        high=16,
        harmless=True,
    )


class Mcp(Section):
    enabled: bool = key("bool", True, "MCP at `/`, `/mcp` and `/mcp/BANK`", harmless=True)


class Watch(Section):
    enabled: bool = key("bool", True, "a server follows its sources", harmless=True)
    debounce_ms: int = key(
        "int",
        50,
        "how long a burst of changes is gathered at least: a lone change waits for half of it to all of it",
        low=0,
        high=60_000,
        harmless=True,
    )
    git_interval_s: float = key(
        "float", 300.0, "how often git sources are asked", low=1, high=604_800, harmless=True
    )
    script_interval_s: float = key(
        "float", 900.0, "how often script sources are run", low=1, high=604_800, harmless=True
    )


class Lua(Section):
    tools_dir: str | None = key("path", None, "every `*.lua` in it is a tool", shown="./tools")
    sandbox: str = key(
        "str",
        "auto",
        '`"strict"`: refuse to run scripts where the strongest layers are missing',
        choices=("auto", "strict"),
        harmless=True,
    )
    workers: int = key("int", 4, "processes kept ready", low=1, high=64, harmless=True)


class Llm(Section):
    """`[memory.llm]`: an OpenAI-compatible completion for `reflect`, which quotes and counts without it."""

    base_url: str = key(
        "str", None, "an OpenAI-compatible server", required=True, shown="http://localhost:11434/v1"
    )
    model: str = key("str", None, "what it calls the model", required=True, shown="llama3.2")
    api_key_env: str | None = key("str", None, "the environment variable that holds its key")
    timeout_s: float = key("float", 30.0, "seconds for an answer", low=0.1, high=600, name="timeout")
    allow_remote: bool = key(
        "bool", False, "`true`: the server may be another machine, which is sent memories"
    )


class Memory(Section):
    shared: bool = key(
        "bool", False, "the packs use one bank instead of each its own ([packs](packs.md))", harmless=True
    )
    secrets: str = key(
        "str",
        "flag",
        "what a write does with passwords and keys: `flag`, `redact`, `refuse`, `off`",
        choices=("flag", "redact", "refuse", "off"),
        harmless=True,
    )
    llm: Llm | None = None


class Packs(Section):
    enabled: tuple[str, ...] = key(
        "strs",
        (),
        "`hindsight`, `claude-recall`, `sekha` ([packs](packs.md))",
        shown=("hindsight", "claude-recall", "sekha"),
        harmless=True,
    )
    settings: Mapping[str, Mapping[str, JSON]] = {}


SERVED_SECTIONS: Mapping[str, type[Section]] = dict(
    zip(SERVED, (Server, Mcp, Watch, Lua, Packs, Memory), strict=True)
)

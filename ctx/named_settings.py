"""What can be configured besides folders, and any number of times: other sources, scripts, agents.

Declared as in ctx/settings.py, which has the folders, `[connectors.filesystem]`, too: a project of nothing
else, as most are, does without the hundred keys of these.
"""

from collections.abc import Mapping

from ctx.declaration import Section, key
from ctx.settings import MAX_FILE_BYTES, Filesystem
from ctx.types import JSON


class Git(Section):
    name: str
    url: str = key(
        "str",
        None,
        "anything `git clone` takes, a local path too; your git's own credentials and SSH keys are used",
        required=True,
        shown="https://github.com/acme/platform.git",
    )
    branch: str | None = key(
        "str",
        None,
        "one branch, tag, or commit by its whole id",
        shown="main",
        unset="the remote's default",
        harmless=True,
    )
    root: str = key("str", ".", "a folder inside the repository", harmless=True)
    include_globs: tuple[str, ...] | None = key(
        "glob", None, "as for a folder", shown=("**/*.md",), unset="as for a folder", harmless=True
    )
    exclude_globs: tuple[str, ...] = key("glob", (), "as for a folder", harmless=True)
    shallow: bool = key("bool", True, "fetch as little history as the dates of the files need", harmless=True)
    commits: bool = key(
        "bool", False, "the messages of commits are documents too, as `@commits/ID`", harmless=True
    )
    since: str | None = key(
        "str",
        None,
        "of the commits only those from this day on",
        shown="2026-01-01",
        unset="all",
        harmless=True,
    )
    submodules: bool = key(
        "bool", False, "the files of submodules too, where those are on the repository's own host"
    )
    lfs: bool = key("bool", False, "the files that Git LFS keeps elsewhere too, where `git lfs` is installed")
    cache_dir: str | None = key(
        "path",
        None,
        "where the bare copies are kept; one there that ctx did not make for this user is refused",
        shown="./clones",
        unset="`ctx/git` in `$XDG_CACHE_HOME` or `~/.cache`",
    )
    max_file_bytes: int = key(
        "int", MAX_FILE_BYTES, "as for a folder", low=1, high=1_000_000_000, harmless=True
    )
    timeout_s: float = key("float", 600.0, "for each git command", low=1, high=86_400, harmless=True)
    interval_s: float | None = key(
        "float",
        None,
        "how often a server asks the remote",
        low=1,
        high=604_800,
        shown=300,
        unset="`[watch] git_interval_s`",
        harmless=True,
    )


class S3(Section):
    name: str
    bucket: str = key("str", None, "its name", required=True, shown="acme-handbook")
    prefix: str = key("str", "", "what keys must begin with; one that ends with `/` is left out of ids")
    region: str | None = key(
        "str",
        None,
        "where the bucket is",
        shown="eu-central-1",
        unset="of the environment or the profile, else `us-east-1`",
    )
    endpoint_url: str | None = key(
        "str",
        None,
        "the address of a store that is not AWS's (MinIO, R2, Ceph, ...)",
        shown="https://minio.example.com:9000",
        unset="AWS",
    )
    include_globs: tuple[str, ...] | None = key(
        "glob", None, "as for a folder, over keys", shown=("**/*.md",), unset="as for a folder", harmless=True
    )
    exclude_globs: tuple[str, ...] = key("glob", (), "as for a folder", harmless=True)
    profile: str | None = key(
        "str",
        None,
        "a profile of `~/.aws` whose keys are used",
        shown="docs-reader",
        unset="the usual chain: the environment, `$AWS_PROFILE`, the container's and the machine's role",
    )
    anonymous: bool = key("bool", False, "sign nothing: a public bucket", harmless=True)
    max_file_bytes: int = key(
        "int", MAX_FILE_BYTES, "as for a folder", low=1, high=1_000_000_000, harmless=True
    )
    timeout_s: float = key(
        "float", 3600.0, "seconds for a whole scan; the next one goes on", low=1, high=86_400, harmless=True
    )
    interval_s: float = key(
        "float", 3600.0, "how often a server lists the bucket", low=10, high=31_536_000, harmless=True
    )


class Web(Section):
    name: str
    url: str = key(
        "str",
        None,
        "where it begins: a page whose links are followed, a sitemap, or an llms.txt",
        required=True,
        shown="https://docs.example.com/",
    )
    scope: tuple[str, ...] = key(
        "strs",
        (),
        "what an address must begin with; none: the folder of `url`",
        shown=("https://docs.example.com/en/",),
        harmless=True,
    )
    include_globs: tuple[str, ...] | None = key(
        "glob", None, "which paths of the site", shown=("/en/**",), unset="all within `scope`", harmless=True
    )
    exclude_globs: tuple[str, ...] = key(
        "glob",
        ("_sources/", "_modules/", "genindex*.html", "py-modindex.html", "search.html"),
        "which not; these are what documentation builders add of their own",
        harmless=True,
    )
    depth: int | None = key(
        "int",
        None,
        "how many links from `url`",
        low=0,
        high=100,
        shown=3,
        unset="8 from a page, 0 from a list",
        harmless=True,
    )
    max_pages: int = key("int", 5000, "pages at most", low=1, high=1_000_000, harmless=True)
    requests_per_second: float = key(
        "float", 5.0, "how fast at most; a site's `Crawl-delay` is kept", low=0.01, high=1000, harmless=True
    )
    robots: bool = key("bool", True, "obey `robots.txt`; `false` is for sites of your own")
    queries: bool = key(
        "bool", False, "what follows `?` is a part of an address, not left out", harmless=True
    )
    allow_hosts: tuple[str, ...] = key(
        "strs", (), "hosts it may reach besides the public internet", shown=("wiki.internal:8080",)
    )
    max_file_bytes: int = key(
        "int",
        MAX_FILE_BYTES,
        "larger pages are a line of the report",
        low=1,
        high=1_000_000_000,
        harmless=True,
    )
    timeout_s: float = key(
        "float", 3600.0, "seconds for a whole crawl; the next one goes on", low=1, high=86_400, harmless=True
    )
    interval_s: float = key(
        "float", 86_400.0, "how often a server asks the site", low=60, high=31_536_000, harmless=True
    )


class Script(Section):
    """A Lua file that the operator named; `config`: the keys that are not ours, for the script."""

    name: str
    path: str = key(
        "path",
        None,
        "a Lua file, or `registry:NAME/tools/SCRIPT`; see [the Lua API](lua-api.md), "
        "[registries](registries.md)",
        required=True,
        shown="./tools/create-ticket.lua",
    )
    timeout_s: float = key("float", 30.0, "seconds for a call", low=0.01, high=86_400, name="timeout")
    reuse: bool = key(
        "bool", False, "keep the worker process for the next call (faster, for scripts you trust)"
    )
    env: tuple[str, ...] = key(
        "strs", (), "environment variables the script may read", shown=("TICKET_TOKEN",)
    )
    allow_hosts: tuple[str, ...] = key(
        "strs", (), "hosts it may reach besides the public internet", shown=("tickets.internal",)
    )
    fs: tuple[str, ...] = key("strs", (), "folders it may read besides its own", shown=("./templates",))
    calls: tuple[str, ...] = key("strs", (), "other tools it may call by `context.call`", shown=("refresh",))
    interval_s: float | None = None
    config: Mapping[str, JSON]


class ScriptConnector(Script):
    timeout_s: float = key("float", 300.0, "seconds for a whole scan", low=0.01, high=86_400, name="timeout")
    interval_s: float | None = key(
        "float",
        None,
        "how often a server runs it",
        low=1,
        high=604_800,
        shown=900,
        unset="`[watch] script_interval_s`",
    )


class InlineAgent(Section):
    name: str
    description: str = key(
        "str", "", "what it is for", shown="Reviews code against the team's documents", harmless=True
    )
    tools: tuple[str, ...] = key("strs", (), "the tools it wants", shown=("search", "get"), harmless=True)
    system_prompt: str = key(
        "str",
        None,
        "its system text",
        required=True,
        shown="You review code. Search the documents first.",
        harmless=True,
    )


NAMED_SECTIONS: Mapping[str, type[Section]] = {
    "connectors.filesystem": Filesystem,
    "connectors.git": Git,
    "connectors.web": Web,
    "connectors.s3": S3,
    "connectors.script": ScriptConnector,
    "tools.script": Script,
    "agents.inline": InlineAgent,
    "agents.script": Script,
}
"""The tables of which there are many, `[connectors.git.NAME]`."""

"""What a key of the configuration is called elsewhere: whoever writes that is told ours."""

from collections.abc import Collection, Mapping

from ctx.text import did_you_mean
from ctx.types import JSON

# Of several the first that the section has, and the user has not written yet: a git source's `path` may be
# meant for its url, or for its root.
_OURS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("sources", "source"), ("connectors",)),
    "search": ("retrieval",),
    "database": ("db",),
    **dict.fromkeys(("http", "https", "sites", "website", "crawl"), ("web", "server")),
    **dict.fromkeys(("file", "files"), ("filesystem", "include_globs")),
    **dict.fromkeys(("local", "folders"), ("filesystem",)),
    **dict.fromkeys(("github", "gitlab", "repos", "repositories"), ("git",)),
    **dict.fromkeys(("aws", "minio", "buckets"), ("s3",)),
    "lua": ("script",),
    **dict.fromkeys(("path", "paths"), ("url", "root", "bucket")),
    **dict.fromkeys(("dir", "directory", "folder", "base"), ("root", "prefix", "tools_dir", "path")),
    **dict.fromkeys(("remote", "repo", "repository", "uri", "address", "site"), ("url", "bind")),
    **dict.fromkeys(("ref", "tag", "commit", "revision"), ("branch",)),
    **dict.fromkeys(("include", "includes", "glob", "globs", "patterns"), ("include_globs",)),
    **dict.fromkeys(("exclude", "excludes", "ignore", "ignored"), ("exclude_globs",)),
    **dict.fromkeys(("port", "host", "listen"), ("bind",)),
    "endpoint": ("endpoint_url", "url", "base_url"),
    "base_url": ("url",),
    **dict.fromkeys(("api_key", "key", "token"), ("api_key_env",)),
    **dict.fromkeys(("limit", "top_k", "k"), ("final_limit",)),
    "alpha": ("hybrid_alpha",),
    **dict.fromkeys(("dimensions", "dimension"), ("dims",)),
    **dict.fromkeys(("timeout", "timeout_s", "timeout_seconds"), ("timeout_s", "timeout_secs", "timeout")),
    **dict.fromkeys(("chunk_size", "size"), ("max_tokens",)),
    **dict.fromkeys(("overlap", "chunk_overlap"), ("overlap_tokens",)),
}


def key_hint(key: str, table: Mapping[str, JSON], section: str, choices: Collection[str]) -> str:
    """The mend for an unknown key of a section's table: the key, or the whole table, that was meant."""
    ours = (name for name in _OURS.get(key.lower(), ()) if name in choices and name not in table)
    match = next(ours, None)
    if match is None:
        return did_you_mean(key, choices)
    if not isinstance(table[key], dict):
        return f"did you mean '{match}'?"
    if not section:
        return f"did you mean [{match}]?"
    inner = [name for name, value in table[key].items() if isinstance(value, dict)]
    return f"did you mean [{'.'.join((section, match, *inner[:1]))}]?"

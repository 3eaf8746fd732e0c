"""Helps to correct a configuration: suggests the right key, and finds the line of a mistake."""

import re
from collections.abc import Collection, Mapping

from ctx.config.keys import keys_of
from ctx.config.settings import NAMED_SECTIONS, SECTIONS, Llm
from ctx.models import JSON
from ctx.text.strings import did_you_mean, nearest

# A wrong or foreign name of a key -> our keys. The first of our keys that the table allows and the user has
# not set is suggested: `path` in a git source may mean its url or its root.
_SYNONYMS: Mapping[str, tuple[str, ...]] = {
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
_MOST_TABLES = 3  # if more tables have the key, naming them does not help


def key_hint(key: str, table: Mapping[str, JSON], section: str, choices: Collection[str]) -> str:
    """A suggestion, such as `did you mean 'root'?`, for the unknown key or table `key` of a table.

    `section` is the table's name ("" for the top level), and `choices` are its allowed keys.
    """
    candidates = (name for name in _SYNONYMS.get(key.lower(), ()) if name in choices and name not in table)
    match = next(candidates, None)
    if not isinstance(table[key], dict):
        return f"did you mean '{match}'?" if match else did_you_mean(key, choices)
    if match:
        inner = [name for name, value in table[key].items() if isinstance(value, dict)] if section else []
        return f"did you mean [{'.'.join((*filter(None, (section,)), match, *inner[:1]))}]?"
    groups = [] if section else [name for name in NAMED_SECTIONS if name.endswith(f".{key}")]
    return f"did you mean [{'] or ['.join(groups)}]?" if groups else did_you_mean(key, choices)


def tables_with(key: str, table: Mapping[str, JSON], choices: Collection[str]) -> list[str]:
    """The names of the other tables that allow the unknown key `key`; empty if the key looks like a
    misspelling.
    """
    if isinstance(table[key], dict) or key == "name" or key.lower() in _SYNONYMS or nearest(key, choices):
        return []
    tables = [
        *(name for name, section in {**SECTIONS, "memory.llm": Llm}.items() if key in keys_of(section)),
        *(f"{name}.NAME" for name, section in NAMED_SECTIONS.items() if key in keys_of(section)),
    ]
    return tables if len(tables) <= _MOST_TABLES else []


_NAME = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_DOTTED = rf"{_NAME}(?:[ \t]*\.[ \t]*{_NAME})*"
_STRING_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|' + r"'''.*?'''|'[^'\n]*'|#[^\n]*", re.DOTALL
)
_LINE = re.compile(rf"[ \t]*(?:\[\[?[ \t]*({_DOTTED})[ \t]*\]|({_DOTTED})[ \t]*=)")


def key_lines(text: str) -> dict[str, int]:
    """Dotted name -> line number (from 1) of each table and key in a TOML text. Keys inside inline tables are
    not included.
    """
    # Blank out multi-line strings and comments, which may look like keys. A one-line string may be a key.
    blanked = _STRING_OR_COMMENT.sub(
        lambda match: "\n" * match[0].count("\n") if match[0].startswith(('"""', "'''", "#")) else match[0],
        text,
    )
    lines: dict[str, int] = {}
    header = ""
    for number, line in enumerate(blanked.split("\n"), 1):
        if match := _LINE.match(line):
            name = ".".join(part.strip("\"'") for part in re.findall(_NAME, match[1] or match[2]))
            if match[1]:
                header = name
            else:
                name = f"{header}.{name}" if header else name
            lines.setdefault(name, number)
    return lines

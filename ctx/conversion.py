"""A configuration of Context Harness as one of ours, and what means something else here."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ctx.embed.local import FULL_NAMES
from ctx.named_settings import NAMED_SECTIONS
from ctx.settings import LOOPBACK_HOSTS, SECTIONS, WITHOUT_EFFECT
from ctx.toml import toml_key, toml_value
from ctx.types import JSON, as_table, plain_entries

Table = dict[str, JSON]

# What Context Harness takes where a key is missing; its example says the same, so that a value equal to these
# is no choice of the user's.
_ITS_DEFAULTS: Mapping[str, Mapping[str, JSON]] = {
    "chunking": {"max_tokens": 700},
    "retrieval": {
        "final_limit": 12,
        "hybrid_alpha": 0.6,
        "candidate_k_keyword": 80,
        "candidate_k_vector": 80,
    },
}
_ITS_GLOBS = ["**/*.md", "**/*.txt"]
_DEAD = {"chunking.overlap_tokens", "retrieval.max_chunks_per_doc"}  # read there, and used by nothing
_SERVICE_KEYS = ("model", "dims", "batch_size", "url", "max_retries", "timeout_secs")
_VARIABLE_READ = re.compile(r"""\benv\s*\.\s*get\s*\(?\s*["']([A-Za-z_][A-Za-z0-9_]*)["']""")

GENERAL = (
    "ids of documents are other ones, and stay the same from now on",
    "deleted, renamed and re-dated files are seen by every run; files named by .gitignore are left out",
    "a search matches any of its words, ranked; there every word had to be in one passage",
    "a server follows its folders by itself; no timer needs to start `ctx sync`",
)
"""What no key decides."""


class Conversion(NamedTuple):
    """A configuration of ours as text, and a sentence for each thing that changes meaning or is left out."""

    text: str
    notes: list[str]


class Paths(NamedTuple):
    """Where relative paths begin: those of the file that is read, and those of the one that is written."""

    base: str
    root: str

    def moved(self, path: str) -> str:
        """A path of the old file as the new one writes it."""
        if self.base == self.root or os.path.isabs(path) or path[:1] in ("~", "$"):
            return path
        relative = os.path.relpath(os.path.join(self.base, path), self.root)
        return relative if relative.startswith("..") else f"./{relative}"


def converted(tables: Table, paths: Paths, read_script: Callable[[str], str]) -> Conversion:
    """The configuration that these tables of Context Harness make here.

    `read_script(path)` gives the text of a script, "" where it cannot be read: the variables that it asks for
    are granted by name.
    """
    writer = _Writer(tables, paths, read_script)
    for section in (writer.database, writer.chunking, writer.retrieval, writer.embedding, writer.server):
        section()
    writer.folders()
    writer.repositories()
    writer.further_sources()
    writer.scripts()
    writer.inline_agents()
    writer.without_effect()
    return Conversion("\n".join(writer.blocks), [*writer.notes, *GENERAL])


class _Writer:
    """Writes table by table; `notes` gathers what is to be told."""

    def __init__(self, tables: Table, paths: Paths, read_script: Callable[[str], str]) -> None:
        self._tables = tables
        self._paths = paths
        self._read_script = read_script
        self.blocks: list[str] = [
            "# Made by `ctx import context-harness`; every key: docs/configuration.md\n"
        ]
        self.notes: list[str] = []

    # -- what stands once ------------------------------------------------------------------------------------

    def database(self) -> None:
        path = as_table(self._tables.get("db")).get("path")
        if path:
            self.notes.append(
                f"[db] path: {path} is not read and stays; ctx makes .ctx/ctx.db from the sources"
            )

    def chunking(self) -> None:
        chosen = self._chosen("chunking")
        if "max_tokens" in chosen:
            self.notes.append(
                "[chunking] max_tokens counts the model's tokens here; there one was four bytes"
            )
        elif "chunking" in self._tables:
            default = SECTIONS["chunking"].keys["max_tokens"][1].default
            self.notes.append(
                f"[chunking] is left out: passages have {default} tokens, as ctx's own model reads 256"
            )
        self._block("chunking", chosen)

    def retrieval(self) -> None:
        chosen = self._chosen("retrieval")
        limit = chosen.get("final_limit")
        if isinstance(limit, int) and limit > 100:
            chosen["final_limit"] = 100
            self.notes.append(f"[retrieval] final_limit: {limit} becomes 100, the most there is here")
        if "hybrid_alpha" not in chosen and "retrieval" in self._tables:
            self.notes.append(
                "[retrieval] hybrid_alpha is left out: the weight goes by the kind of query here"
            )
        self._block("retrieval", chosen)

    def _chosen(self, name: str) -> Table:
        """The keys of a section that are ours and say something other than Context Harness itself would."""
        table = as_table(self._tables.get(name))
        for key in table:
            if f"{name}.{key}" in _DEAD:
                self.notes.append(
                    f"[{name}] {key} is left out: it did nothing there, and would do something here"
                )
        return {
            key: value
            for key, value in table.items()
            if key in SECTIONS[name].keys
            and f"{name}.{key}" not in _DEAD
            and value != _ITS_DEFAULTS[name].get(key)
        }

    def embedding(self) -> None:
        table = as_table(self._tables.get("embedding"))
        provider = table.get("provider", "disabled")  # its default, and not ours
        entries: Table = {"provider": provider}
        if provider == "local" and isinstance(table.get("model"), str):
            entries["model"] = FULL_NAMES.get(table["model"].lower(), table["model"])
        elif provider in ("ollama", "openai"):
            entries |= {key: table[key] for key in _SERVICE_KEYS if key in table}
        if provider == "disabled":
            self.notes.append(
                '[embedding] stays disabled; provider = "local" is a model that ctx brings along'
            )
        elif provider == "openai":
            entries.setdefault("api_key_env", "OPENAI_API_KEY")
        self._block("embedding", entries)

    def server(self) -> None:
        bind = as_table(self._tables.get("server")).get("bind")
        if not isinstance(bind, str):
            return
        self._block("server", {"bind": bind})
        if bind.rpartition(":")[0] not in LOOPBACK_HOSTS:
            self.notes.append(
                f"[server] bind: {bind} serves other machines, which needs a key: [server] api_key_env"
            )

    # -- sources ---------------------------------------------------------------------------------------------

    def folders(self) -> None:
        for name, table in self._named("connectors", "filesystem"):
            entries = self._source(f"connectors.filesystem.{name}", table)
            if isinstance(table.get("root"), str):
                entries["root"] = self._paths.moved(table["root"])
            size = table.get("max_extract_bytes")
            if isinstance(size, int):
                entries["max_file_bytes"] = size
            self._block(f"connectors.filesystem.{toml_key(name)}", entries)

    def repositories(self) -> None:
        for name, table in self._named("connectors", "git"):
            self._repository(name, table)

    def _repository(self, name: str, table: Table) -> None:
        label = f"connectors.git.{name}"
        entries = self._source(label, table) | {"branch": table.get("branch", "main")}
        url = table.get("url")
        if isinstance(url, str) and "${" in url:
            self.notes.append(f"[{label}] url: its ${{VARIABLE}} is replaced here; there it stayed text")
        elif isinstance(url, str) and "://" not in url and ":" not in url:
            entries["url"] = self._paths.moved(url)
        if "cache_dir" in entries:
            del entries["cache_dir"]
            self.notes.append(f"[{label}] cache_dir is left out: copies are kept in your own cache")
        self._block(f"connectors.git.{toml_key(name)}", entries)

    def further_sources(self) -> None:
        """Kinds of sources that both have under one name, with the keys that both have."""
        for table_name in NAMED_SECTIONS:
            group, _, kind = table_name.partition(".")
            if group == "connectors" and kind not in ("filesystem", "git", "script"):
                for name, table in self._named(group, kind):
                    self._block(f"{table_name}.{toml_key(name)}", self._source(f"{table_name}.{name}", table))

    def _source(self, label: str, table: Table) -> Table:
        """The keys that folders and repositories share, with the globs meaning what they meant."""
        section = NAMED_SECTIONS[label.rpartition(".")[0]]
        entries = {key: value for key, value in table.items() if key in section.keys}
        entries.setdefault("include_globs", _ITS_GLOBS)
        for key in ("include_globs", "exclude_globs"):
            globs = entries.get(key)
            if (crossing := _all_crossing(globs)) != globs:
                entries[key] = crossing
                self.notes.append(f"[{label}] {key}: a `*` crossed folders there; here `**/` says so")
        return entries

    # -- scripts and agents ----------------------------------------------------------------------------------

    def _script(self, group: str, name: str, table: Table) -> None:
        entries = dict(table)
        path = table.get("path")
        if isinstance(path, str):
            entries["path"] = self._paths.moved(path)
            variables = self._variables(path)
            if variables and "env" not in table:
                entries["env"] = variables
                self.notes.append(
                    f"[{group}.script.{name}] may read {', '.join(variables)} and no other variable"
                )
        self._block(f"{group}.script.{toml_key(name)}", entries)

    def _variables(self, path: str) -> list[str]:
        """The environment variables that a script reads."""
        text = self._read_script(os.path.join(self._paths.base, os.path.expanduser(path)))
        return sorted(set(_VARIABLE_READ.findall(text)))

    def scripts(self) -> None:
        for group in ("connectors", "tools", "agents"):
            for name, table in self._named(group, "script"):
                self._script(group, name, table)
        if any(
            as_table(self._tables.get(group)).get("script") for group in ("connectors", "tools", "agents")
        ):
            self.notes.append(
                "scripts run in a sandbox: no os, io or require of files; HTTP reaches the public internet, "
                "and `allow_hosts` names what else"
            )

    def inline_agents(self) -> None:
        for name, table in self._named("agents", "inline"):
            section = NAMED_SECTIONS["agents.inline"]
            entries = {key: value for key, value in table.items() if key in section.keys}
            self._block(f"agents.inline.{toml_key(name)}", entries)

    def without_effect(self) -> None:
        for name, reason in WITHOUT_EFFECT.items():
            outer, _, inner = name.partition(".")
            table = self._tables.get(outer)
            if table is not None and (not inner or inner in as_table(table)):
                label = f"[{outer}] {inner}" if outer == "retrieval" else f"[{name}]"
                self.notes.append(f"{label} is left out: {reason.partition(';')[0]}")

    # -- writing ---------------------------------------------------------------------------------------------

    def _named(self, group: str, kind: str) -> Iterator[tuple[str, Table]]:
        """The named tables of a kind. A table that holds keys itself is one without a name, called by its
        kind.
        """
        table = as_table(as_table(self._tables.get(group)).get(kind))
        unnamed = plain_entries(table)
        if unnamed:
            yield kind, unnamed
        yield from ((key, value) for key, value in table.items() if isinstance(value, dict))

    def _block(self, name: str, entries: Table) -> None:
        if entries:
            lines = [f"{toml_key(key)} = {toml_value(value)}" for key, value in entries.items()]
            self.blocks.append("\n".join([f"[{name}]", *lines, ""]))


def _all_crossing(globs: JSON) -> JSON:
    """Globs as they were meant; what is no list of texts as it is."""
    if not isinstance(globs, list) or not all(isinstance(glob, str) for glob in globs):
        return globs
    return [_crossing(glob) for glob in globs]


def _crossing(glob: str) -> str:
    """A glob whose last `*` may cross folders, as Context Harness's may: `docs/**/*.md` for `docs/*.md`."""
    folder, slash, name = glob.rpartition("/")
    if not slash or "*" not in name or name == "**" or folder.endswith("**"):
        return glob
    return f"{folder}/**/{name}"

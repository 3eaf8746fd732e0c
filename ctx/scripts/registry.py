"""The registries that are installed: files in the user's own folder, and the record that they are held to.

A script of a registry runs where its folder holds the very files that were installed and the user has trusted
them (`ctx trust registry:NAME/tools/SCRIPT`). Trust is of the hash over all its files, so it outlives an
update that leaves the script as it was, and ends with one that does not.
"""

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from ctx import __version__, file_writing, files
from ctx.bundled import bundled_path
from ctx.config.settings import REGISTRY_PREFIX
from ctx.config.trust_file import TrustFile, digest_of, trust_path
from ctx.errors import BadRequest, ConfigError, NotFound
from ctx.scripts.registry_contents import KINDS, MANIFEST, Entry, contents
from ctx.scripts.registry_records import (
    SHIPPED,
    Registry,
    RegistryScript,
    offered_script,
    registry_of,
    row_of,
)
from ctx.scripts.scripts import ScriptFile
from ctx.text.strings import did_you_mean


def registries_folder(environ: Mapping[str, str]) -> str:
    """The folder of the user's registries, where no project can write."""
    return os.path.join(files.state_folder(environ), "registries")


_RECORD = "registries.json"
_SHIPPED_FOLDER = ("extensions", "connectors")


class Shelf:
    """The installed registries, in the order in which they were installed, which is that of look-ups."""

    def __init__(self, folder: str, trust: TrustFile) -> None:
        self.folder = folder
        self.trust = trust
        self._record = os.path.join(folder, _RECORD)
        self._trusted: tuple[tuple[int, ...], Mapping[str, str]] = ((), {})
        self._cached: tuple[tuple[int, ...], tuple[Registry, ...]] = ((), ())

    def registries(self) -> tuple[Registry, ...]:
        """What is installed. Raises `ConfigError` where the record is damaged."""
        stamp = files.stamp(self._record)
        if self._cached[0] != stamp:
            self._cached = (stamp, tuple(self._read()))
        return self._cached[1]

    def _read(self) -> Iterator[Registry]:
        try:
            record = json.loads(files.read_file(self._record))["registries"]
            yield from [registry_of(name, row) for name, row in record.items()]
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(
                f"the record of the installed registries cannot be read; delete {self._record} and "
                "install them again"
            ) from error

    def every(self) -> tuple[Registry, ...]:
        """What ships with ctx, and what is installed."""
        return (shipped(), *self.registries())

    def registry(self, name: str) -> Registry:
        """Raises `NotFound`."""
        installed = {registry.name: registry for registry in self.every()}
        if name not in installed:
            raise NotFound(f"no registry called '{name}' is installed; {did_you_mean(name, installed)}")
        return installed[name]

    def scripts(self, reference: str) -> Sequence[RegistryScript]:
        """What `NAME`, `NAME/tools/SCRIPT` or `tools/SCRIPT` stands for, `registry:` before it or not.

        Raises `NotFound`, and `BadRequest` where several registries have it.
        """
        words = reference.removeprefix(REGISTRY_PREFIX).split("/")
        if len(words) == 1:
            return self.registry(words[0]).scripts
        registries = self.every() if len(words) == 2 else (self.registry(words[0]),)
        every = [script for registry in registries for script in registry.scripts]
        inner = "/".join(words[-2:])
        matches = [script for script in every if script.inner == inner] if len(words) <= 3 else []
        if not matches:
            names = [script.inner for script in every]
            hint = did_you_mean(inner, names) if names else "`ctx registry list` lists what is"
            raise NotFound(f"no script '{reference}' is installed; {hint}")
        if len(matches) > 1:
            references = " or ".join(script.reference for script in matches)
            raise BadRequest(f"several registries have '{reference}': write {references}")
        return matches

    def trusted(self, script: RegistryScript) -> bool:
        """Whether the user has trusted these files of it, or it ships with ctx."""
        if script.registry == SHIPPED:
            return True
        return self._trusted_digests().get(script.reference) == script.digest

    def change(self, script: RegistryScript) -> str | None:
        """What to say where its files are not those that were installed; None where they are."""
        if script.registry == SHIPPED:
            return None
        change = _change(self.folder_of(script), script.files)
        if change is None:
            return None
        return (
            f"{script.reference} is not what was installed ({change}) and does not run; `ctx registry "
            f"install {script.registry}` puts it back, and `ctx registry override` copies it for changes of "
            "your own"
        )

    def runs(self, script: RegistryScript) -> bool:
        """Whether it is trusted, and still what was installed."""
        return self.trusted(script) and self.change(script) is None

    def absence(self, reference: str) -> str:
        """What to say of a script that the record does not have, behind its name."""
        registry, inner = reference.removeprefix(REGISTRY_PREFIX).split("/", 1)
        record = next((row for row in self.every() if row.name == registry), None)
        if record is None:
            return f"is not installed; `ctx registry install {registry} URL` brings it"
        names = [script.inner for script in record.scripts]
        hint = did_you_mean(inner, names) if names else f"`ctx registry list {registry}` lists what is"
        return f"is not in that registry (any more); {hint}"

    def _trusted_digests(self) -> Mapping[str, str]:
        stamp = self.trust.stamp()
        if self._trusted[0] != stamp:
            self._trusted = (stamp, self.trust.digests())
        return self._trusted[1]

    def path_of(self, script: RegistryScript, name: str) -> str:
        """Where a file of a script is."""
        if script.registry == SHIPPED:
            return shipped_path(script)
        return os.path.join(self.folder_of(script), name)

    def folder_of(self, script: RegistryScript) -> str:
        """The folder of a script that is installed."""
        return os.path.join(self.folder, script.registry, f"{script.kind}s", script.name)

    # -- running -----------------------------------------------------------------------------------

    def served(self, rank: int) -> Iterator[tuple[str, ScriptFile, int]]:
        """(kind, script, rank) of the tools and agents that the user has trusted, the ranks from `rank` up.

        One whose files have changed since is among them, and refused when it is loaded.
        """
        references = self._trusted_digests().keys()
        for number, registry in enumerate(self.registries()):
            for script in registry.scripts:
                if script.kind != "connector" and script.reference in references:
                    yield script.kind, self.script_file(script.reference, script.name), rank + number

    def script_file(self, reference: str, name: str) -> ScriptFile:
        """A script by its whole reference, to be run under this name; installed or not, that is seen then."""
        registry, folder, script = _parts(reference)
        if registry == SHIPPED:
            matches = [row for row in shipped().scripts if row.reference == reference]
            path = shipped_path(matches[0]) if matches else f"there is no {reference}"
            return ScriptFile(name, path, shown=reference, named=False)
        path = os.path.join(self.folder, registry, folder, script, f"{KINDS[folder]}.lua")
        vouched_by = _Installed(self, reference)
        return ScriptFile(name, path, trust="untrusted", shown=reference, vouched_by=vouched_by, named=False)

    def recorded(self, reference: str) -> RegistryScript | None:
        """The script that the record has by this name."""
        every = (script for registry in self.registries() for script in registry.scripts)
        return next((script for script in every if script.reference == reference), None)

    def stamp(self) -> tuple[int, ...]:
        """Changes with the record."""
        return files.stamp(self._record)

    # -- changing ----------------------------------------------------------------------------------

    def install(self, registry: Registry, contents: Mapping[str, Mapping[str, bytes]]) -> None:
        """Puts a registry in place of the one of its name: `contents` are its files by script (`tools/NAME`).

        Whoever is killed in between leaves the old one, or files that the record refuses. Raises
        `ConfigError`.
        """
        target = os.path.join(self.folder, registry.name)
        mark = secrets.token_hex(6)
        partial, former = f"{target}.{mark}.new", f"{target}.{mark}.old"
        try:
            with file_writing.writing(self.folder, ConfigError), file_writing.locked(self._record):
                _lay_out(partial, contents)
                if os.path.lexists(target):
                    os.rename(target, former)
                os.rename(partial, target)
                rows = {row.name: row for row in self.registries()} | {registry.name: registry}
                try:
                    self._write(rows)
                except OSError:  # a full disk: what the record speaks of comes back
                    os.rename(target, partial)
                    if os.path.lexists(former):
                        os.rename(former, target)
                    raise
        finally:
            file_writing.delete_folder(partial)
            file_writing.delete_folder(former)

    def remove(self, registry: Registry) -> None:
        """Takes a registry and what is trusted of it away. Raises `ConfigError`."""
        self.trust.record(dict.fromkeys(script.reference for script in registry.scripts))
        with file_writing.writing(self.folder, ConfigError), file_writing.locked(self._record):
            self._write({row.name: row for row in self.registries() if row.name != registry.name})
            file_writing.delete_folder(os.path.join(self.folder, registry.name))

    def _write(self, rows: Mapping[str, Registry]) -> None:
        record = {name: row_of(registry) for name, registry in rows.items()}
        file_writing.replace(self._record, json.dumps({"registries": record}, indent=1).encode())


class _Installed:
    """Vouches for one script of a registry, by the record and the user's trust as they are when asked."""

    def __init__(self, shelf: Shelf, reference: str) -> None:
        self._shelf = shelf
        self._reference = reference

    @property
    def mend(self) -> str:
        """What to do where the file is not there, behind what is said of it."""
        script = self._shelf.recorded(self._reference)
        if script is not None:
            return f"; `ctx registry install {script.registry}` puts it back"
        return f": it {self._shelf.absence(self._reference)}"

    def refusal(self, path: str, text: bytes, where: str) -> str | None:
        script = self._shelf.recorded(self._reference)
        if script is None:
            return f"{where} {self._shelf.absence(self._reference)}"
        change = self._shelf.change(script)
        if change is not None:
            return change
        if script.files[os.path.basename(path)] != digest_of(text):
            return f"{where} changes while it is read; try again"
        if not self._shelf.trusted(script):
            return f"{where} is not trusted and does not run; look at it, then `ctx trust {where}`"
        return None

    def stamp(self) -> tuple[int, ...]:
        script = self._shelf.recorded(self._reference)
        stamps = [self._shelf.trust.stamp(), self._shelf.stamp()]
        if script is not None:
            folder = self._shelf.folder_of(script)
            stamps += [files.stamp(os.path.join(folder, name)) for name in ("", *script.files)]
        return tuple(number for stamp in stamps for number in stamp)


def _names_below(folder: str) -> set[str]:
    """The files and links below a folder, by their paths in it."""
    names = set()
    for parent, folders, entries in os.walk(folder):
        inside = os.path.relpath(parent, folder)
        linked = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        names |= {os.path.normpath(os.path.join(inside, name)) for name in (*entries, *linked)}
    return names


def _lay_out(folder: str, contents: Mapping[str, Mapping[str, bytes]]) -> None:
    for inner, data in contents.items():
        for name, content in data.items():
            path = os.path.join(folder, inner, name)
            files.make_folder(os.path.dirname(path))
            file_writing.replace(path, content)
    files.make_folder(folder)


def _change(folder: str, hashes: Mapping[str, str]) -> str | None:
    """What is not as it was installed; None where all is."""
    names = _names_below(folder)
    strange = sorted(names ^ hashes.keys())
    if strange:
        return f"{strange[0]} is {'new' if strange[0] in names else 'gone'}"
    for name, digest in hashes.items():
        try:
            content = files.read_file(os.path.join(folder, name), beneath=folder)
        except OSError:
            return f"{name} cannot be read"
        if digest_of(content) != digest:
            return f"{name} has changed"
    return None


def shelf_of(environ: Mapping[str, str], trust: TrustFile | None = None) -> Shelf:
    """The user's registries; `trust` is what the user trusts, where that was read already."""
    return Shelf(registries_folder(environ), trust or TrustFile(trust_path(environ)))


def _parts(reference: str) -> tuple[str, str, str]:
    """(registry, folder of the kind, script). Raises `ConfigError`."""
    words = reference.removeprefix(REGISTRY_PREFIX).split("/")
    if (
        len(words) != 3
        or words[1] not in KINDS
        or not all(re.fullmatch(r"[A-Za-z0-9_-]+", word) for word in words)
    ):
        raise ConfigError(
            f"'{reference}' names no script of a registry; write {REGISTRY_PREFIX}NAME/tools/SCRIPT (or "
            "connectors, agents)"
        )
    return words[0], words[1], words[2]


@cache
def shipped() -> Registry:
    """The connectors that ship, as a registry that is always there (`registry:ctx/connectors/NAME`), read
    once. Its scripts are as trusted as the program they came with."""
    folder = bundled_path(*_SHIPPED_FOLDER)
    data = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            data[name] = file.read()
    entries = {name: Entry("100644", digest_of(content)) for name, content in data.items()}
    offered = contents(data[MANIFEST], entries)
    scripts = tuple(offered_script(SHIPPED, offer, data) for offer in offered.offers)
    return Registry(SHIPPED, "ships with ctx", None, f"v{__version__}", offered.description, scripts)


def shipped_path(script: RegistryScript) -> str:
    """Where the text of a script that ships is."""
    return bundled_path(*_SHIPPED_FOLDER, f"{script.name}.lua")

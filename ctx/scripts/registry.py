"""Installed registries (collections of scripts from git repositories): their files in the user's own folder,
and a record of what was installed.

A registry's script runs if its folder has exactly the files that were installed and the user trusts them
(`ctx trust registry:NAME/tools/SCRIPT`). Trust is bound to the hash over all files of a script, so it stays
after an update that changes none of them.
"""

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from ctx import __version__, files
from ctx.config.settings import REGISTRY_PREFIX
from ctx.config.trust import TrustFile, digest_of, trust_path
from ctx.errors import BadRequest, ConfigError, NotFound
from ctx.files import bundled_path
from ctx.models import JSON
from ctx.scripts.registry_contents import KINDS, Entry, Registry, RegistryScript, contents
from ctx.scripts.scripts import ScriptFile
from ctx.text.strings import did_you_mean

SHIPPED = "ctx"  # the registry of the connectors that come with ctx
REGISTRY_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_RECORD = "registries.json"
_SHIPPED_FOLDER = ("extensions", "connectors")


def new_registry(name: str, url: str, branch: str | None) -> Registry:
    """A registry without scripts. Raises `BadRequest` for an invalid name."""
    if not REGISTRY_NAME.fullmatch(name) or name == SHIPPED:
        raise BadRequest(
            f"'{name}' is not a valid registry name: use 1 to 40 of a-z 0-9 _ -, and not '{SHIPPED}'"
        )
    return Registry(name, url, branch, "", "", ())


class InstalledRegistries:
    """The installed registries, in the order of their installation. Scripts are looked up in this order."""

    def __init__(self, folder: str, trust: TrustFile) -> None:
        self.folder = folder
        self.trust = trust
        self._record = os.path.join(folder, _RECORD)
        self._stamp: tuple[int, ...] = ()
        self._registries: tuple[Registry, ...] = ()
        self._scripts: dict[str, RegistryScript] = {}  # reference (`registry:NAME/tools/SCRIPT`) -> script

    def registries(self) -> tuple[Registry, ...]:
        """The installed registries. Raises `ConfigError` if the record is damaged."""
        stamp = self.stamp()
        if self._stamp != stamp:
            self._registries = self._read()
            scripts = (script for registry in self._registries for script in registry.scripts)
            self._scripts = {script.reference: script for script in scripts}
            self._stamp = stamp
        return self._registries

    def _read(self) -> tuple[Registry, ...]:
        try:
            rows = json.loads(files.read_file(self._record))["registries"]
            return tuple(
                Registry(**{**row, "scripts": tuple(map(_recorded, row["scripts"]))}) for row in rows.values()
            )
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(
                f"the record of the installed registries cannot be read; delete {self._record} and "
                "install them again"
            ) from error

    def with_shipped(self) -> tuple[Registry, ...]:
        """The registry that comes with ctx, then the installed ones."""
        return (shipped(), *self.registries())

    def registry(self, name: str) -> Registry:
        """The registry with this name. Raises `NotFound`."""
        installed = {registry.name: registry for registry in self.with_shipped()}
        if name not in installed:
            raise NotFound(f"no registry called '{name}' is installed; {did_you_mean(name, installed)}")
        return installed[name]

    def scripts(self, reference: str) -> Sequence[RegistryScript]:
        """The scripts that a reference means: `NAME`, `NAME/tools/SCRIPT` or `tools/SCRIPT`, with or without
        `registry:`.

        Raises `NotFound`, and `BadRequest` if several registries have the script.
        """
        parts = reference.removeprefix(REGISTRY_PREFIX).split("/")
        if len(parts) == 1:
            return self.registry(parts[0]).scripts
        registries = self.with_shipped() if len(parts) == 2 else (self.registry(parts[0]),)
        scripts = [script for registry in registries for script in registry.scripts]
        path = "/".join(parts[-2:])
        matches = [script for script in scripts if script.path == path] if len(parts) <= 3 else []
        if not matches:
            names = [script.path for script in scripts]
            hint = did_you_mean(path, names) if names else "`ctx registry list` shows the installed ones"
            raise NotFound(f"no script '{reference}' is installed; {hint}")
        if len(matches) > 1:
            references = " or ".join(script.reference for script in matches)
            raise BadRequest(f"several registries have '{reference}': write {references}")
        return matches

    def trusted(self, script: RegistryScript) -> bool:
        """Whether the user trusts these files of the script, or the script comes with ctx."""
        if script.registry == SHIPPED:
            return True
        return self.trust.digests().get(script.reference) == script.digest

    def change(self, script: RegistryScript) -> str | None:
        """A message if the script's files differ from what was installed; None if not."""
        if script.registry == SHIPPED:
            return None
        change = _change(self.folder_of(script), script.files)
        if change is None:
            return None
        return (
            f"{script.reference} is not what was installed ({change}) and does not run; `ctx registry "
            f"install {script.registry}` restores it, and `ctx registry override` copies it for your own "
            "changes"
        )

    def runs(self, script: RegistryScript) -> bool:
        """Whether the script is trusted and unchanged."""
        return self.trusted(script) and self.change(script) is None

    def absence(self, reference: str) -> str:
        """The last part of an error message about a script that is not installed: the reason."""
        registry, path = reference.removeprefix(REGISTRY_PREFIX).split("/", 1)
        rows = (row for row in self.with_shipped() if row.name == registry)
        names = [script.path for row in rows for script in row.scripts]
        if not names:
            return f"is not installed; run `ctx registry install {registry} URL`"
        return f"is not in that registry; {did_you_mean(path, names)}"

    def path_of(self, script: RegistryScript, name: str) -> str:
        """The path of a file of a script."""
        if script.registry == SHIPPED:
            return _shipped_path(script)
        return os.path.join(self.folder_of(script), name)

    def folder_of(self, script: RegistryScript) -> str:
        """The folder of an installed script."""
        return os.path.join(self.folder, script.registry, script.path)

    # -- running -----------------------------------------------------------------------------------

    def served(self, rank: int) -> Iterator[tuple[str, ScriptFile, int]]:
        """(kind, script, rank) of each trusted tool and agent. The first registry gets the rank `rank`, the
        next `rank` + 1.

        Includes scripts whose files have changed since the installation; loading such a script raises an
        error.
        """
        references = self.trust.digests().keys()
        for number, registry in enumerate(self.registries()):
            for script in registry.scripts:
                if script.kind != "connector" and script.reference in references:
                    yield script.kind, self.script_file(script.reference, script.name), rank + number

    def script_file(self, reference: str, name: str) -> ScriptFile:
        """The script with this full reference, to run under the name `name`. It may not be installed yet."""
        registry, folder, script = _parts(reference)
        if registry == SHIPPED:
            matches = [row for row in shipped().scripts if row.reference == reference]
            path = _shipped_path(matches[0]) if matches else f"there is no {reference}"
            return ScriptFile(name, path, shown=reference, named=False)
        path = os.path.join(self.folder, registry, folder, script, f"{KINDS[folder]}.lua")
        check = _RegistryTrust(self, reference)
        return ScriptFile(name, path, trust="untrusted", shown=reference, vouched_by=check, named=False)

    def recorded(self, reference: str) -> RegistryScript | None:
        """The installed script with this reference; None if there is none."""
        self.registries()  # reads the record if it has changed
        return self._scripts.get(reference)

    def stamp(self) -> tuple[int, ...]:
        """Numbers that change when the record changes."""
        return files.stamp(self._record)

    # -- changing ----------------------------------------------------------------------------------

    def install(self, registry: Registry, contents: Mapping[str, Mapping[str, bytes]]) -> None:
        """Install or replace a registry. `contents`: script (`tools/NAME`) -> path of a file -> its content.

        If the process is killed meanwhile, either the old registry stays, or the new files do not match the
        record and do not run. Raises `ConfigError`.
        """
        target = os.path.join(self.folder, registry.name)
        suffix = secrets.token_hex(6)
        new_folder, old_folder = f"{target}.{suffix}.new", f"{target}.{suffix}.old"
        try:
            with files.writing(self.folder, ConfigError), files.locked(self._record):
                files.make_folder(new_folder)
                for inner, data in contents.items():
                    for name, content in data.items():
                        path = os.path.join(new_folder, inner, name)
                        files.make_folder(os.path.dirname(path))
                        files.replace(path, content)
                # Write the record first: if the disk is full, this fails and the old registry stays in use.
                self._write({row.name: row for row in self.registries()} | {registry.name: registry})
                if os.path.lexists(target):
                    os.rename(target, old_folder)
                os.rename(new_folder, target)
        finally:
            files.delete_folder(new_folder)
            files.delete_folder(old_folder)

    def remove(self, registry: Registry) -> None:
        """Remove a registry and the trust in its scripts. Raises `ConfigError`."""
        self.trust.record(dict.fromkeys(script.reference for script in registry.scripts))
        with files.writing(self.folder, ConfigError), files.locked(self._record):
            self._write({row.name: row for row in self.registries() if row.name != registry.name})
            files.delete_folder(os.path.join(self.folder, registry.name))

    def _write(self, rows: Mapping[str, Registry]) -> None:
        registries = {
            name: {**row._asdict(), "scripts": [script._asdict() for script in row.scripts]}
            for name, row in rows.items()
        }
        files.replace(self._record, json.dumps({"registries": registries}, indent=1).encode())


def _recorded(row: Mapping[str, JSON]) -> RegistryScript:
    """The script in a row of the record. Rows of older versions have more fields, which are ignored."""
    return RegistryScript(**{name: row[name] for name in RegistryScript._fields})


class _RegistryTrust:
    """Decides whether a registry's script may run, from the current record and the user's trust."""

    def __init__(self, installed: InstalledRegistries, reference: str) -> None:
        self._installed = installed
        self._reference = reference

    @property
    def advice(self) -> str:
        """What the error message for a missing script file advises."""
        script = self._installed.recorded(self._reference)
        if script is not None:
            return f"; `ctx registry install {script.registry}` restores it"
        return f": it {self._installed.absence(self._reference)}"

    def refusal(self, path: str, text: bytes, where: str) -> str | None:
        script = self._installed.recorded(self._reference)
        if script is None:
            return f"{where} {self._installed.absence(self._reference)}"
        change = self._installed.change(script)
        if change is not None:
            return change
        if script.files[os.path.basename(path)] != digest_of(text):
            return f"{where} changed while it was read; try again"
        if not self._installed.trusted(script):
            return f"{where} is not trusted and does not run; review it, then run `ctx trust {where}`"
        return None

    def stamp(self) -> tuple[int, ...]:
        script = self._installed.recorded(self._reference)
        stamps = [self._installed.trust.stamp(), self._installed.stamp()]
        if script is not None:
            folder = self._installed.folder_of(script)
            stamps += [files.stamp(os.path.join(folder, name)) for name in ("", *script.files)]
        return tuple(number for stamp in stamps for number in stamp)


def _change(folder: str, hashes: Mapping[str, str]) -> str | None:
    """A message with the first difference between a folder and what was installed; None without any."""
    names = set()
    for parent, folders, entries in os.walk(folder):
        below = os.path.relpath(parent, folder)
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        names |= {os.path.normpath(os.path.join(below, name)) for name in (*entries, *links)}
    if different := sorted(names ^ hashes.keys()):
        return f"{different[0]} is {'new' if different[0] in names else 'gone'}"
    for name, digest in hashes.items():
        try:
            content = files.read_file(os.path.join(folder, name), beneath=folder)
        except OSError:
            return f"{name} cannot be read"
        if digest_of(content) != digest:
            return f"{name} has changed"
    return None


def installed_registries(environ: Mapping[str, str], trust: TrustFile | None = None) -> InstalledRegistries:
    """The user's registries, in a folder that no project can write to. Pass `trust` if it was
    already read.
    """
    folder = os.path.join(files.state_folder(environ), "registries")
    return InstalledRegistries(folder, trust or TrustFile(trust_path(environ)))


def _parts(reference: str) -> tuple[str, str, str]:
    """(registry, folder of the kind, script name) of a reference. Raises `ConfigError`."""
    parts = reference.removeprefix(REGISTRY_PREFIX).split("/")
    if (
        len(parts) != 3
        or parts[1] not in KINDS
        or not all(re.fullmatch(r"[A-Za-z0-9_-]+", part) for part in parts)
    ):
        raise ConfigError(
            f"'{reference}' is not a script of a registry; write {REGISTRY_PREFIX}NAME/tools/SCRIPT (or "
            "connectors, agents)"
        )
    return parts[0], parts[1], parts[2]


@cache
def shipped() -> Registry:
    """The registry `ctx`, with the connectors that come with ctx. Its scripts need no trust."""
    folder = bundled_path(*_SHIPPED_FOLDER)
    data = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            data[name] = file.read()
    offered = contents(SHIPPED, dict.fromkeys(data, Entry("100644", "")), data.__getitem__)
    return Registry(SHIPPED, "ships with ctx", None, f"v{__version__}", offered.description, offered.scripts)


def _shipped_path(script: RegistryScript) -> str:
    return bundled_path(*_SHIPPED_FOLDER, f"{script.name}.lua")

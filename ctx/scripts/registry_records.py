"""What is written down of an installed registry: where it is from, its commit, its scripts and their
hashes.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from ctx.config.settings import REGISTRY_PREFIX
from ctx.config.trust_file import digest_of
from ctx.errors import BadRequest
from ctx.models import JSON
from ctx.scripts.registry_contents import Offer

SHIPPED = "ctx"  # the registry of what ships
REGISTRY_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class RegistryScript(NamedTuple):
    """A script as it was installed. `files`: name below its folder -> SHA-256; `sizes` likewise, in bytes."""

    registry: str
    kind: str
    name: str
    description: str
    tags: tuple[str, ...]
    required_config: tuple[str, ...]
    files: Mapping[str, str]
    sizes: Mapping[str, int]

    @property
    def inner(self) -> str:
        """Its folder below the registry's."""
        return f"{self.kind}s/{self.name}"

    @property
    def reference(self) -> str:
        return f"{REGISTRY_PREFIX}{self.registry}/{self.inner}"

    @property
    def digest(self) -> str:
        """The hash over the names and hashes of its files."""
        return digest_of(
            "".join(f"{digest}  {name}\n" for name, digest in sorted(self.files.items())).encode()
        )


class Registry(NamedTuple):
    """An installed registry: where it is from, the commit it is pinned to, and its scripts."""

    name: str
    url: str
    branch: str | None
    commit: str
    description: str
    scripts: tuple[RegistryScript, ...]


def blank_registry(name: str, url: str, branch: str | None, commit: str, description: str) -> Registry:
    """A registry without scripts. Raises `BadRequest` for a name that is none."""
    if not REGISTRY_NAME.fullmatch(name) or name == SHIPPED:
        raise BadRequest(f"'{name}': the name of a registry has 1 to 40 of a-z 0-9 _ -, and is not {SHIPPED}")
    return Registry(name, url, branch, commit, description, ())


def offered_script(registry: str, offer: Offer, data: Mapping[str, bytes]) -> RegistryScript:
    """An offer with the hashes of its files (`data`: path in the repository -> content)."""
    hashes = {name: digest_of(data[path]) for name, path in offer.files.items()}
    sizes = {name: len(data[path]) for name, path in offer.files.items()}
    return RegistryScript(registry, *offer[:-1], hashes, sizes)


def row_of(registry: Registry) -> JSON:
    """A registry as the record has it."""
    return {
        "url": registry.url,
        "branch": registry.branch,
        "commit": registry.commit,
        "description": registry.description,
        "scripts": [{**script._asdict(), "files": dict(script.files)} for script in registry.scripts],
    }


def registry_of(name: str, row: JSON) -> Registry:
    """The registry of such a row. Raises `LookupError`, `TypeError`, `ValueError`, `AttributeError` for
    another.
    """
    scripts = tuple(
        RegistryScript(
            name,
            str(entry["kind"]),
            str(entry["name"]),
            str(entry["description"]),
            tuple(map(str, entry["tags"])),
            tuple(map(str, entry["required_config"])),
            {str(file): str(digest) for file, digest in entry["files"].items()},
            {str(file): int(size) for file, size in entry["sizes"].items()},
        )
        for entry in row["scripts"]
    )
    branch = row["branch"]
    return Registry(
        name,
        str(row["url"]),
        None if branch is None else str(branch),
        str(row["commit"]),
        str(row["description"]),
        scripts,
    )

"""A pack's own settings: `[packs.NAME]` and the environment variables of the product whose dialect it
speaks.
"""

import os
from collections.abc import Mapping

from ctx.bundled import bundled_path
from ctx.errors import ConfigError
from ctx.packs.manifest import Manifest, read_manifest
from ctx.toml import toml_value
from ctx.types import JSON

SETTINGS = ("api_key_env", "default_bank", "env", "profile", "rate_limit_per_minute", "sessions_file", "path")
_NOT_TEXT = frozenset({"env", "rate_limit_per_minute"})


def check_settings(pack: str, settings: Mapping[str, JSON]) -> None:
    """Raises `ConfigError` for a key that is none, and for what is no text where text is needed: a pack whose
    key is named by anything else must not be served without one.
    """
    for key, value in settings.items():
        if key not in SETTINGS:
            raise ConfigError(f"[packs.{pack}] {key}: unknown key (known: {', '.join(SETTINGS)})")
        if key not in _NOT_TEXT and not isinstance(value, str):
            raise ConfigError(f"[packs.{pack}] {key}: text is needed, in quotation marks")
    granted = settings.get("env", [])
    if not isinstance(granted, list) or not all(isinstance(variable, str) for variable in granted):
        raise ConfigError(f"[packs.{pack}] env: a list of variables is needed")


def rate_limit(manifest: Manifest, settings: Mapping[str, JSON], environ: Mapping[str, str]) -> int:
    """Calls a minute for each session; 0 for no limit. Raises `ConfigError`."""
    value = settings.get("rate_limit_per_minute")
    origin = f"[packs.{manifest.name}] rate_limit_per_minute"
    if value is None:
        text = manifest.variable(environ, "rate_limit")
        if text is None:
            return manifest.rate_per_minute
        origin, value = manifest.names("rate_limit")[0], int(text) if text.strip().isdecimal() else text
    if type(value) is not int or value < 0:
        raise ConfigError(f"{origin}: a whole number of calls a minute is needed, 0 for no limit")
    return value


def keys(manifest: Manifest, settings: Mapping[str, JSON], environ: Mapping[str, str]) -> tuple[str, ...]:
    """The keys that open a pack. Raises `ConfigError` where one was demanded and is not set."""
    variable = settings.get("api_key_env")
    if variable is not None:
        key = environ.get(variable)
        if not key:
            raise ConfigError(
                f"[packs.{manifest.name}] api_key_env: the environment variable {variable} is not set; "
                "export it or delete the line"
            )
        return (key,)
    key = manifest.variable(environ, "api_key")
    demand = manifest.variable(environ, "key_demanded")
    if demand and not key:
        # Whoever asked for authentication must not get an open server because the key was forgotten.
        raise ConfigError(
            f"{manifest.names('key_demanded')[0]} is set, but {manifest.names('api_key')[0]} is not: set "
            "the key too"
        )
    return (key,) if key else ()


def served_manifest(name: str, settings: Mapping[str, JSON], root: str) -> Manifest:
    """What an enabled pack declares, in the profile that its settings ask for. Raises `ConfigError`."""
    check_settings(name, settings)
    manifest = read_manifest(pack_folder(name, settings, root))
    if manifest.name != name:
        raise ConfigError(f"[packs] enabled: the folder of '{name}' holds the pack '{manifest.name}'")
    if "path" in settings:
        _check_environ(manifest, settings)
    return manifest.served(settings.get("profile"))


def _check_environ(manifest: Manifest, settings: Mapping[str, JSON]) -> None:
    """Raises `ConfigError` where a pack that was brought names a variable that `env` does not grant it: what
    it calls the variable of a bank may hold a secret, and its scripts are told which bank is theirs.

    Refused and not passed over: without the variable of its key it would be served without one.
    """
    named = {variable for variables in manifest.environ.values() for variable in variables}
    granted = settings.get("env", [])
    if not named.issubset(granted):
        names = ", ".join(toml_value(variable) for variable in sorted(named.union(granted)))
        raise ConfigError(
            f"[packs.{manifest.name}] env: its pack.toml ([environ]) reads variables that it is not granted; "
            f"write env = [{names}] if it may have them all"
        )


def pack_folder(name: str, settings: Mapping[str, JSON], root: str) -> str:
    """Where an enabled pack lies: the folder its settings name, or with ctx itself."""
    if "path" in settings:
        return os.path.normpath(os.path.join(root, os.path.expanduser(settings["path"])))
    return bundled_path("extensions", name)

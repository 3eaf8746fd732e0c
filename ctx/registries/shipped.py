"""The connectors that ship with ctx, as a registry that is always there: `registry:ctx/connectors/NAME`."""

import os
from functools import cache

from ctx import __version__
from ctx.bundled import bundled_path
from ctx.extensions.trust import digest_of
from ctx.registries.contents import MANIFEST, Entry, contents
from ctx.registries.records import SHIPPED, Registry, RegistryScript, offered_script

_FOLDER = ("extensions", "connectors")


@cache
def shipped() -> Registry:
    """What ships, read once. Its scripts are as trusted as the program they came with."""
    folder = bundled_path(*_FOLDER)
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
    return bundled_path(*_FOLDER, f"{script.name}.lua")

"""Registries: folders of Lua tools, connectors and agents in git, pinned to a commit and held to their
hashes.
"""

import os
from collections.abc import Mapping

from ctx import files


def shelf_folder(environ: Mapping[str, str]) -> str:
    """Where the user's registries are: beside what else ctx remembers, where no project can lay anything."""
    return os.path.join(files.state_folder(environ), "registries")

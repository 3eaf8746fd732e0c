"""Files that ship with ctx outside the package: the example configuration, the packs, the documentation."""

import os

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def bundled_path(*parts: str) -> str:
    """The path of a shipped file: beside the package in a checkout, inside it (`_bundled/`) in a wheel."""
    installed = os.path.join(_PACKAGE, "_bundled", *parts)
    return installed if os.path.exists(installed) else os.path.join(os.path.dirname(_PACKAGE), *parts)

"""Whose each entry is that `ctx connect` wrote into a client's file: two projects may be called alike and
lead to one address, and the entry alone does not tell which of them it is.

Kept in the user's state folder. A record that is gone or cannot be written costs that distinction alone.
"""

import json
import logging
import os
from collections.abc import Mapping

from ctx import file_writing, files
from ctx.project import PLACES

logger = logging.getLogger(__name__)


def owner(path: str, name: str, environ: Mapping[str, str]) -> str | None:
    """The folder of the project that an entry was written for; None where nobody knows, or where that is no
    project any more.
    """
    root = _records(_record_path(environ)).get(_label(path, name))
    if root is None or not any(os.path.isfile(os.path.join(root, place)) for place in PLACES):
        return None
    return root


def record(path: str, name: str, root: str | None, environ: Mapping[str, str]) -> None:
    """Notes that an entry is that of the project in `root`, a real path; None: it was taken out."""
    record_path = _record_path(environ)
    label = _label(path, name)
    try:
        with file_writing.locked(record_path):
            records = _records(record_path)
            if records.get(label) == root:
                return
            changed = {**records, label: root}
            lasting = {key: value for key, value in sorted(changed.items()) if value is not None}
            file_writing.replace(record_path, json.dumps(lasting, indent=1).encode())
    except OSError as error:
        logger.info("whose entry this is was not noted path=%s reason=%s", record_path, error.strerror)


def _record_path(environ: Mapping[str, str]) -> str:
    return os.path.join(files.state_folder(environ), "connected.json")


def _label(path: str, name: str) -> str:
    return f"{path}#{name}"  # a name has no '#'


def _records(record_path: str) -> dict[str, str]:
    try:
        records = json.loads(files.read_file(record_path))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(records, dict):
        return {}
    return {label: root for label, root in records.items() if isinstance(root, str)}

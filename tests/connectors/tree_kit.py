"""A folder of files and a scan of it."""

from collections.abc import Mapping
from pathlib import Path

from ctx.connectors.base import ScanLog
from ctx.connectors.filesystem import FilesystemConnector
from ctx.connectors.walk import RACY
from ctx.models import SourceItem


def put(root: Path, path: str, text: str | bytes = "text") -> Path:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text if isinstance(text, bytes) else text.encode())
    return target


def items(connector: FilesystemConnector, indexed: Mapping[str, str] | None = None) -> dict[str, SourceItem]:
    return {item.source_id: item for item in connector.scan(indexed or {}, ScanLog())}


def settled(connector: FilesystemConnector) -> dict[str, str]:
    """The fingerprints that a run of a minute later would store: nothing in them is too young to trust."""
    return {source_id: item.fingerprint.replace(RACY, "") for source_id, item in items(connector).items()}


def rescan(connector: FilesystemConnector, indexed: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """(ids read again, ids gone)."""
    log = ScanLog()
    read = {item.source_id for item in connector.scan(indexed, log)}
    return read, set(indexed) - read - log.unchanged

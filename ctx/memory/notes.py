"""A memory as a Markdown file that a person reads and changes: front matter, and the text.

    ---
    id: "0a1b…"
    said: "2026-11-20T10:00:00Z"
    happened: "2026-11-18"
    contexts: ["work"]
    tags: []
    version: 3
    digest: "5e1c…"
    ---

    I prefer tabs.

The same memory is the same bytes. `version` is the memory's when the file was written; `digest` covers the
file without that line. Together they show whether the file, the memory, or both were changed since.
"""

import hashlib
import json
import os
import re
import uuid
from typing import NamedTuple

from ctx.errors import BadRequest
from ctx.formats.frontmatter import read_front_matter
from ctx.memory.columns import moment_ms
from ctx.models import JSON, is_whole

MAX_NOTE_CHARS = 1_100_000  # a memory's text with its front matter
_DIGEST = re.compile(r'^digest: "([0-9a-f]{16})"\n', re.MULTILINE)
_ESCAPED = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_SLUG_WORDS = 6
# The record's fields in the front matter, besides the id. `_ALWAYS` are written without a value too.
_FIELDS = ("said", "happened", "contexts", "tags", "type", "importance")
_ALWAYS = ("said", "contexts", "tags")
_USUAL = {"importance": 5}


class Note(NamedTuple):
    """A parsed file: `fields` are from its front matter; `edited` if it changed since ctx wrote it."""

    id: str | None
    version: int
    fields: dict[str, JSON]
    edited: bool


def to_note(record: JSON) -> str:
    """The file of a record."""
    lines = [_line("id", record["id"])]
    for name in _FIELDS:
        value = record[name]
        if name in _ALWAYS or value not in (None, "", [], _USUAL.get(name)):
            lines.append(_line(name, value))
    lines.append(_line("version", record["version"]))
    body = f"---\n\n{record['text']}\n"
    digest = _digest("---\n" + "".join(lines) + body)
    return "---\n" + "".join(lines) + _line("digest", digest) + body


def from_note(text: str) -> Note:
    """A file as a memory's fields. Raises `BadRequest` that says what is wrong with it."""
    if len(text) > MAX_NOTE_CHARS:
        raise BadRequest(f"more than {MAX_NOTE_CHARS:,} characters")
    edited = not _as_written(text)
    if edited:  # by a program that ends lines otherwise, it may be; a memory's own ends stay
        text = text.removeprefix("\ufeff").replace("\r\n", "\n")
        edited = not _as_written(text)
    front = read_front_matter(text)
    metadata = front.metadata
    body = text[front.end :].removeprefix("\n").removesuffix("\n")
    if not body.strip():
        raise BadRequest("the file has no text")
    version = metadata.get("version", 0)
    if not is_whole(version):
        raise BadRequest("version: must be a whole number")
    return Note(_id(metadata.get("id")), version, {"text": body, **_fields(metadata)}, edited)


def changes(note: Note, record: JSON) -> dict[str, JSON]:
    """What a file says otherwise than a record, as a patch of `update`; {} where both say the same."""
    differing = {
        name: value
        for name, value in note.fields.items()
        if _comparable(name, value) != _comparable(name, record[name])
    }
    return settings(differing)


def settings(fields: dict[str, JSON]) -> dict[str, JSON]:
    """A note's fields under the names that `put` and `update` have for them."""
    columns = {name: value for name, value in fields.items() if name not in ("said", "happened")}
    if "said" in fields:
        columns["timestamp"] = fields["said"]
    if "happened" in fields:
        columns["event_date"], columns["event_end"] = _span(str(fields["happened"] or ""))
    return columns


def _span(text: str) -> tuple[str | None, str | None]:
    first, _, last = map(str.strip, text.partition("/"))
    # A day is from its first moment to its last; a moment is no span.
    return first or None, last or (first if _DAY.fullmatch(first) else None)


def file_name(record: JSON) -> str:
    """The name of a memory's file where it has none yet: its first words, and enough of its id to be its
    own."""
    words = re.findall(r"[^\W_]+", record["text"][:200].lower())[:_SLUG_WORDS]
    slug = "-".join(words)[:60] or "memory"
    return f"{slug}-{record['id'][:8]}.md"


def _line(name: str, value: JSON) -> str:
    # JSON is YAML, so every value is one that needs no rules of quoting; but YAML ends lines, and refuses
    # characters, where JSON does not.
    quoted = json.dumps(value, ensure_ascii=False)
    escaped = _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)
    return f"{name}: {escaped}\n"


def _as_written(text: str) -> bool:
    """Whether a file is unchanged since `to_note` wrote it, according to its digest."""
    match = _DIGEST.search(text)
    return match is not None and match[1] == _digest(text[: match.start()] + text[match.end() :])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _id(value: JSON) -> str | None:
    if value is None:
        return None
    try:
        return str(uuid.UUID(value))
    except (ValueError, AttributeError, TypeError):
        raise BadRequest("id: not the id of a memory; leave it out for a new memory") from None


def _fields(metadata: dict[str, JSON]) -> dict[str, JSON]:
    """The front matter's part of a memory; keys of other programs are passed over."""
    fields = {name: metadata[name] for name in _FIELDS if name in metadata}
    return fields | {name: _listed(fields[name]) for name in ("contexts", "tags") if name in fields}


def _listed(names: JSON) -> JSON:
    """Names as a list, which a person may have left empty or written with commas."""
    if isinstance(names, str):
        return [part.strip() for part in names.split(",") if part.strip()]
    return [] if names is None else names


def _comparable(name: str, value: JSON) -> JSON:
    try:
        return moment_ms("said", value) if name == "said" else value
    except BadRequest:  # no moment: it is not what the record has, and is refused when it is to be stored
        return value


def note_paths(folder: str) -> list[str]:
    """The Markdown files in a folder and below, by their paths within it, in order; nothing hidden."""
    paths = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        notes = (name for name in names if name.endswith(".md") and not name.startswith("."))
        paths += [os.path.relpath(os.path.join(parent, name), folder) for name in notes]
    return sorted(paths)

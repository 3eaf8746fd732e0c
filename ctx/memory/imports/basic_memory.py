"""Reads notes of basic-memory: Markdown files with observations and relations, one per line.

    - [category] what is known #tag (context)
    - relation_type [[Other note]] (context)

Source: https://docs.basicmemory.com/concepts/knowledge-format and NOTE-FORMAT.md of the project (2026-11).
Each observation, each relation (as a sentence) and each other paragraph of a note becomes a memory.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from ctx import files
from ctx.errors import BadRequest
from ctx.formats.frontmatter import front_title, read_front_matter
from ctx.memory.columns import moment_ms
from ctx.memory.folder import note_paths
from ctx.memory.imports.replies import Item, Source, Unread, present
from ctx.memory.language import gist
from ctx.models import JSON

_OBSERVATION = re.compile(r"^\s*[-*]\s+\[(?P<category>[^\[\]()]{1,60})\](?!\()\s+(?P<text>\S.*)$")
_TASK = re.compile(r"^\s*[-*]\s+\[[ xX/-]\]\s")
# A possessive quantifier (`++`): without it, a line of blanks would take quadratic time.
_RELATION = re.compile(
    r"^\s*[-*]\s++(?P<kind>[^\[\]]{0,80}?)\s*\[\[(?P<target>[^\[\]]{1,200})\]\]\s*(?P<context>\(.*\))?\s*$"
)
_TRAILING_CONTEXT = re.compile(r"\((?P<context>[^()]{1,300})\)\s*$")
_TAG = re.compile(r"(?:^|\s)#(?P<tag>[^\s#]{1,100})")
_HEADING = re.compile(r"^#{1,6}\s")
MAX_NOTE_BYTES = 16 << 20


class _Note(NamedTuple):
    """The properties of a note that all its memories share."""

    path: str
    title: str
    permalink: str
    kind: str
    tags: tuple[str, ...]
    timestamp: str | None


def read(source: Source) -> Iterator[Item | Unread]:
    """The memories in a folder of notes, or in one note. Raises `BadRequest`."""
    if source.path is None:
        raise BadRequest("basic-memory keeps notes in a folder: name it, or one of its files")
    if not os.path.isdir(source.path):
        yield from _note_of_file(os.path.basename(source.path), source.content)
        return
    paths = note_paths(source.path)
    if not paths:
        raise BadRequest(f"no notes (*.md) in {source.path}")
    folder = os.path.realpath(source.path)
    for path in paths:
        try:  # `beneath`: a link in a folder from somebody else could point to a private file
            content = files.read_file(os.path.join(folder, path), beneath=folder, most=MAX_NOTE_BYTES + 1)
        except OSError as error:
            yield Unread(path, str(error.strerror))
            continue
        if len(content) > MAX_NOTE_BYTES:
            yield Unread(path, f"it holds more than {MAX_NOTE_BYTES >> 20} MB")
            continue
        yield from _note_of_file(path, content)


def _note_of_file(path: str, content: bytes) -> Iterator[Item | Unread]:
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        yield Unread(path, "it is not UTF-8")
        return
    front = read_front_matter(text)
    begin, metadata = front
    stem = os.path.splitext(os.path.basename(path))[0]
    note = _Note(
        path,
        front_title(front) or stem,
        str(metadata.get("permalink") or os.path.splitext(path)[0]),
        str(metadata.get("type") or "note"),
        tuple(_tags(metadata.get("tags"))),
        _moment(metadata),
    )
    first_line = text.count("\n", 0, begin) + 1
    yield from _items(note, text[begin:].split("\n"), first_line)


def _items(note: _Note, lines: list[str], first_line: int) -> Iterator[Item | Unread]:
    paragraph: list[str] = []
    begin = first_line
    fenced = False
    for number, line in enumerate([*lines, ""], first_line):
        fenced ^= line.lstrip().startswith("```")
        item = None if fenced else _listed(note, line, number)
        if item is None and line.strip() and not _HEADING.match(line):
            begin = begin if paragraph else number
            paragraph.append(line)
            continue
        if paragraph and not fenced:
            yield _item(note, f"{note.path} line {begin}", "\n".join(paragraph).strip(), note.kind, (), None)
            paragraph = []
        if item is not None:
            yield item


def _listed(note: _Note, line: str, number: int) -> Item | Unread | None:
    """The observation or relation in a line; None for other lines."""
    position = f"{note.path} line {number}"
    relation = _RELATION.match(line)
    if relation is not None:
        kind = (relation["kind"].strip(" :") or "relates_to").replace("_", " ")
        context = (relation["context"] or "").strip("()") or None
        return _item(note, position, f"{note.title} {kind} {relation['target']}", "relation", (), context)
    observation = None if _TASK.match(line) else _OBSERVATION.match(line)
    if observation is None:
        return None
    text = observation["text"]
    trailing = _TRAILING_CONTEXT.search(text)
    if trailing is not None:
        text = text[: trailing.start()]
    tags = tuple(match["tag"] for match in _TAG.finditer(text))
    statement = " ".join(_TAG.sub(" ", text).split())
    if not statement:
        return Unread(position, "an empty observation")
    context = trailing["context"] if trailing is not None else None
    return _item(note, position, statement, observation["category"].strip(), tags, context)


def _item(note: _Note, where: str, text: str, kind: str, tags: tuple[str, ...], context: str | None) -> Item:
    digest = hashlib.sha256(f"{kind} {gist(text)}".encode()).hexdigest()[:12]
    fields = {
        "text": text,
        "type": kind,
        "context": note.title,
        "tags": list(dict.fromkeys([*note.tags, *tags])),
        "metadata": present({"note": note.path, "context": context}),
        "document_id": note.permalink,
        "timestamp": note.timestamp,
    }
    return Item(where, f"basic-memory:{note.permalink[-150:]}#{digest}", present(fields))


def _tags(value: JSON) -> list[str]:
    tags = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return [str(tag).strip().lstrip("#") for tag in tags if str(tag).strip()]


def _moment(metadata: dict[str, JSON]) -> str | None:
    """The time of the last change of a note, according to its front matter; None if unknown."""
    for name in ("modified", "updated", "created", "date"):
        value = metadata.get(name)
        try:
            if isinstance(value, str) and moment_ms(name, value) is not None:
                return value
        except BadRequest:
            continue
    return None

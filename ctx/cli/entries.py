"""Entries in other programs' files: JSON, TOML and YAML that is edited as text, so that all else stays as
it is.

Only what parses as TOML or as strict JSON is edited, with comments and trailing commas where its program
allows them ("jsonc"), and only where reading the result again shows that it means what was meant.
"""

import json
import re
import tomllib
from collections.abc import Sequence

import yaml

from ctx.formats.frontmatter import yaml_depth
from ctx.toml import toml_value
from ctx.types import JSON, as_table

Entry = dict[str, JSON]

_MAX_DEPTH = 100  # of YAML: the library's time goes with the square, and an entry has four levels


def edited(form: str, key: str, text: str | None, name: str, entry: JSON) -> str | None:
    """The file with the entry under `key`; None where it cannot be edited safely."""
    if form == "yaml":  # the file is this entry's alone, and another's is left to them
        return _yaml(name, entry) if text is None or _holds_only(text, key, name) else None
    text = text or ""
    before = document(form, text)
    if before is None or not isinstance(present := before.get(key, {}), dict):
        return None
    if present.get(name) == entry:
        return text
    revised = (_put_toml if form == "toml" else _put_json)(text, key, name, entry)
    return _checked(form, revised, [{**before, key: {**present, name: entry}}])


def removed(form: str, key: str, text: str, name: str) -> str | None:
    """The file without the entry, "" where nothing else was in it; None where it cannot be edited safely."""
    if form == "yaml":
        return ""
    before = document(form, text) or {}
    present = before.get(key)
    if not isinstance(present, dict) or name not in present:
        return None
    remainder = {label: entry for label, entry in present.items() if label != name}
    meanings = [{**before, key: remainder}]
    if not remainder:
        meanings.append({table: rows for table, rows in before.items() if table != key})
    return _checked(form, (_cut_toml if form == "toml" else _cut_json)(text, key, name), meanings)


def _checked(form: str, revised: str | None, meanings: Sequence[JSON]) -> str | None:
    """A text that was edited, where reading it again shows that it means one of these; else None."""
    return revised if revised is not None and document(form, revised) in meanings else None


def entries(form: str, key: str, text: str | None) -> dict[str, JSON]:
    """The entries of a file by name; none where it cannot be read as what it should be."""
    table = (document(form, text) or {}).get(key)
    if form == "yaml":
        rows = [row for row in table if isinstance(row, dict)] if isinstance(table, list) else []
        return {str(row.get("name")): row for row in rows}
    return as_table(table)


def illegibility(form: str, text: str | None) -> str | None:
    """Why a file cannot be read as what it should be; None where it can, or is not there."""
    try:
        _parsed(form, text or "")
    except _Unread as error:
        return f"is {form.upper()} that is not read: {error}"
    except ValueError:
        return f"is not strict {form.upper()}" + (" (comments?)" if form == "json" else "")
    return None


def document(form: str, text: str | None) -> dict[str, JSON] | None:
    """The tables of a file; None where it is not of that form, or holds no tables."""
    try:
        tables = _parsed(form, text or "")
    except ValueError:
        return None
    return tables if isinstance(tables, dict) else None


class _Unread(ValueError):
    """A file that is of its form, and of a shape that no entry needs."""


def _parsed(form: str, text: str) -> JSON:
    """What a file says. Raises `ValueError`."""
    try:
        if form == "yaml":
            return _yaml_value(text)
        if form == "toml":
            return tomllib.loads(text)
        plain_json = strict(text) if form == "jsonc" else text
        return json.loads(plain_json if plain_json.strip() else "{}", object_pairs_hook=distinct)
    except RecursionError as error:
        raise _Unread("it is nested too deep") from error


_STRING = r'"(?:\\.|[^"\\])*+"'
_COMMENT = re.compile(_STRING + r"|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(_STRING + r"|,(?=\s*[}\]])")


def strict(text: str) -> str:
    """The same JSON with blanks where it has comments and trailing commas: each position stays what it is."""
    return _TRAILING_COMMA.sub(_blank, _uncommented(text))


def _uncommented(text: str) -> str:
    return _COMMENT.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else re.sub(r"\S", " ", match[0])


def _yaml_value(text: str) -> JSON:
    """What YAML says. A value that an alias repeats may hold itself, or be endless: it is not read.

    Raises `ValueError`.
    """
    try:
        depth = yaml_depth(text, yaml.SafeLoader, _MAX_DEPTH)
        if depth is None:
            raise _Unread("it has an alias (*name)")
        if depth > _MAX_DEPTH:
            raise _Unread("it is nested too deep")
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _holds_only(text: str, key: str, name: str) -> bool:
    """Whether YAML is a file as `_yaml` writes it, or empty."""
    return not text.strip() or entries("yaml", key, text).keys() == {name}


def _put_json(text: str, key: str, name: str, entry: JSON) -> str:
    text = text if strict(text).strip() else f"{text.rstrip()}\n{{}}\n".lstrip("\n")
    step = indent_of(text)
    bare = strict(text)
    tables, end = members_of(bare, bare.index("{"))
    span = tables.get(key)
    if span is None:
        value = json.dumps({name: entry}, indent=step, ensure_ascii=False)
        return inserted(text, bare.index("{"), end, bool(tables), key, value, step, 1)
    members, end = members_of(bare, span[0])
    value = json.dumps(entry, indent=step, ensure_ascii=False)
    if name in members:
        start, stop = members[name]
        return text[:start] + value.replace("\n", "\n" + step * 2) + text[stop:]
    return inserted(text, span[0], end, bool(members), name, value, step, 2)


def distinct(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name comes twice: which one counts is the client's own affair")
    return table


def indent_of(text: str) -> str:
    match = re.search(r"\n([ \t]+)\"", text)
    return match[1] if match else "  "


_SPACE = re.compile(r"[ \t\r\n]*")


def members_of(text: str, start: int) -> tuple[dict[str, tuple[int, int]], int]:
    """Where the value of each member of the object at `start` lies, and where its closing brace is. The text
    is known to be JSON.
    """
    decoder = json.JSONDecoder()
    spans: dict[str, tuple[int, int]] = {}
    position = _skipped(text, start + 1)
    while text[position] != "}":
        key, position = decoder.raw_decode(text, position)
        begin = _skipped(text, _skipped(text, position) + 1)  # behind the colon
        _, stop = decoder.raw_decode(text, begin)
        spans[key] = (begin, stop)
        position = _next_member(text, stop)
    return spans, position


def elements_of(text: str, start: int) -> tuple[list[tuple[int, int]], int]:
    """Where each element of the list at `start` lies, and where its closing bracket is. The text is known to
    be JSON.
    """
    decoder = json.JSONDecoder()
    spans: list[tuple[int, int]] = []
    position = _skipped(text, start + 1)
    while text[position] != "]":
        _, stop = decoder.raw_decode(text, position)
        spans.append((position, stop))
        position = _next_member(text, stop)
    return spans, position


def _next_member(text: str, position: int) -> int:
    """Where what follows a member or element begins: the next one, or the closing bracket."""
    position = _skipped(text, position)
    return _skipped(text, position + 1) if text[position] == "," else position


def _skipped(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def inserted(
    text: str, start: int, end: int, others: bool, key: str, value: str, step: str, depth: int
) -> str:
    """The text with one more member at the end of the object between the braces at `start` and `end`."""
    pad = "\n" + step * depth
    member = f"{json.dumps(key)}: {value}".replace("\n", pad)
    last = len(strict(text)[:end].rstrip()) if others else start + 1
    trailing = "," in _uncommented(text)[last:end]
    head = text[:last] + ("," if others and not trailing else "") + text[last:end].rstrip()
    return f"{head}{pad}{member}{',' if trailing else ''}\n{step * (depth - 1)}{text[end:]}"


def _put_toml(text: str, key: str, name: str, entry: Entry) -> str | None:
    table = f"[{key}.{name}]\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in entry.items())
    span = _toml_span(text, key, name)
    if span is None:
        return (text.rstrip("\n") + "\n\n" if text.strip() else "") + table
    if span == NOWHERE:
        return None
    following = text[span[1] :]
    return text[: span[0]] + table + ("\n" + following if following else "")


NOWHERE = (-1, -1)  # the tables of an entry stand apart from each other


def _toml_span(text: str, key: str, name: str) -> tuple[int, int] | None:
    """Where the tables of an entry begin and end; None where it has none, `NOWHERE` where others stand
    between.
    """
    lines = text.splitlines(keepends=True)
    heads = [index for index, line in enumerate(lines) if re.match(r"\s*\[", line)]
    ours = [
        index
        for index in heads
        if re.match(rf"\s*\[\s*{re.escape(key)}\s*\.\s*\"?{re.escape(name)}\"?\s*[\].]", lines[index])
    ]
    if not ours:
        return None
    after = next((index for index in heads if index > ours[-1]), len(lines))
    if [index for index in heads if ours[0] <= index < after] != ours:
        return NOWHERE
    return len("".join(lines[: ours[0]])), len("".join(lines[:after]))


def _cut_toml(text: str, key: str, name: str) -> str | None:
    span = _toml_span(text, key, name)
    if span is None or span == NOWHERE:
        return None
    head, tail = text[: span[0]], text[span[1] :]
    return head + tail if tail else head.rstrip("\n") + "\n" if head.strip() else ""


def _cut_json(text: str, key: str, name: str) -> str:
    """The text without one member of the object under `key`, and without that object where it held neither
    another nor a comment; "" where that was all.
    """
    bare = strict(text)
    start = bare.index("{")
    tables, _ = members_of(bare, start)
    table = tables[key][0]
    members, end = members_of(bare, table)
    entry, behind = members[name]
    if len(members) > 1 or _commented(text, table, entry) or _commented(text, behind, end):
        return _without(text, table, name)
    if len(tables) == 1 and not _commented(text, 0, len(text)):
        return ""
    revised = _without(text, start, key)
    # Braces stay behind comments alone: OpenCode does not start on a file without a value.
    return revised[:start] + re.sub(r"\A\{\s+\}", "{}", revised[start:])


def _commented(text: str, start: int, end: int) -> bool:
    """Whether a comment begins in that part of a text."""
    return _uncommented(text)[start:end] != text[start:end]


def _without(text: str, start: int, name: str) -> str:
    """The text without a member of the object at `start`, nor the comma that parted it from its neighbour;
    comments around it stay.
    """
    bare = strict(text)
    members, end = members_of(bare, start)
    names = list(members)
    position = names.index(name)
    begin = members[names[position - 1]][1] if position else start + 1
    stop = members[name][1]
    lead = len(bare[begin:]) - len(bare[begin:].lstrip(", \t\r\n"))  # up to its name
    if position + 1 < len(names):
        following = _skipped(text, bare.index(",", stop) + 1)
        return text[: begin + lead] + text[following:]
    before = text[begin : begin + lead]
    if not before.strip(", \t\r\n"):
        return text[:begin] + text[stop:]
    comma = _uncommented(text).find(",", stop, end)
    if comma >= 0:  # theirs may trail: the one before stays in its place
        return text[:begin] + before.rstrip() + text[comma + 1 :]
    parting = _uncommented(before).find(",")
    return text[:begin] + before[: max(parting, 0)] + before[parting + 1 :].rstrip() + text[stop:]


def _yaml(name: str, entry: Entry) -> str:
    # JSON is YAML, so every value is one that needs no rules of quoting.
    fields = "".join(f"    {key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in entry.items())
    return f"name: {name}\nversion: 0.0.1\nschema: v1\nmcpServers:\n  - name: {name}\n{fields}"

"""Entries in other programs' files: JSON, TOML and YAML that is edited as text, so that all else stays as
it is.

Only what parses as strict JSON or TOML is edited, and only where reading the result again shows that it means
what was meant.
"""

import json
import re

from ctx.toml import toml_value
from ctx.types import JSON

Entry = dict[str, JSON]


def edited(form: str, key: str, text: str | None, name: str, entry: JSON) -> str | None:
    """The file with the entry under `key`; None where it cannot be edited safely."""
    if form == "yaml":  # the file is this entry's alone, and another's is left to them
        return _yaml(name, entry) if text is None or _holds_only(text, key, name) else None
    edit = _edit_toml if form == "toml" else _edit_json
    return edit(text or "", key, name, entry)


def removed(form: str, key: str, text: str, name: str) -> str | None:
    """The file without the entry, "" where nothing else was in it; None where it cannot be edited safely."""
    if form == "yaml":
        return ""
    return (_cut_toml if form == "toml" else _cut_json)(text, key, name)


def entries(form: str, key: str, text: str | None) -> dict[str, JSON]:
    """The entries of a file by name; none where it cannot be read as what it should be."""
    try:
        document = _parsed(form, text or "")
    except ValueError:
        return {}
    table = document.get(key) if isinstance(document, dict) else None
    if form == "yaml":
        rows = [row for row in table if isinstance(row, dict)] if isinstance(table, list) else []
        return {str(row.get("name")): row for row in rows}
    return table if isinstance(table, dict) else {}


def legible(form: str, text: str | None) -> bool:
    """Whether a file parses as what it should be; one that is not there does."""
    try:
        _parsed(form, text or "")
    except ValueError:
        return False
    return True


def _parsed(form: str, text: str) -> JSON:
    """What a file says. Raises `ValueError`."""
    if form == "yaml":
        import yaml  # 20 ms, and one client has YAML

        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from error
    if form == "toml":
        import tomllib  # 8 ms, and one client in eight has TOML

        return tomllib.loads(text)
    try:
        return json.loads(text if text.strip() else "{}", object_pairs_hook=distinct)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _holds_only(text: str, key: str, name: str) -> bool:
    """Whether YAML is a file as `_yaml` writes it, or empty."""
    return not text.strip() or entries("yaml", key, text).keys() == {name}


def _edit_json(text: str, key: str, name: str, entry: JSON) -> str | None:
    before_text = text
    text = text if text.strip() else "{}\n"
    try:
        before = _parsed("json", text)
    except ValueError:
        return None
    if not isinstance(before, dict) or not isinstance(before.get(key, {}), dict):
        return None
    if before.get(key, {}).get(name) == entry:
        return before_text
    step = indent_of(text)
    tables, end = members_of(text, text.index("{"))
    span = tables.get(key)
    if span is None:
        value = json.dumps({name: entry}, indent=step, ensure_ascii=False)
        revised = inserted(text, text.index("{"), end, bool(tables), key, value, step, 1)
    else:
        members, end = members_of(text, span[0])
        value = json.dumps(entry, indent=step, ensure_ascii=False)
        if name in members:
            start, stop = members[name]
            revised = text[:start] + value.replace("\n", "\n" + step * 2) + text[stop:]
        else:
            revised = inserted(text, span[0], end, bool(members), name, value, step, 2)
    expected = {**before, key: {**before.get(key, {}), name: entry}}
    # The edit is of the text; that it means what was meant is seen by reading it again.
    return revised if json.loads(revised) == expected else None


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

    def skip(at: int) -> int:
        match = _SPACE.match(text, at)
        return match.end() if match else at

    position = skip(start + 1)
    while text[position] != "}":
        key, position = decoder.raw_decode(text, position)
        begin = skip(skip(position) + 1)  # behind the colon
        _, stop = decoder.raw_decode(text, begin)
        spans[key] = (begin, stop)
        position = skip(stop)
        if text[position] == ",":
            position = skip(position + 1)
    return spans, position


def inserted(
    text: str, start: int, end: int, others: bool, key: str, value: str, step: str, depth: int
) -> str:
    """The text with one more member at the end of the object between the braces at `start` and `end`."""
    pad = "\n" + step * depth
    member = f"{json.dumps(key)}: {value}".replace("\n", pad)
    head = text[:end].rstrip() if others else text[: start + 1]
    return f"{head}{',' if others else ''}{pad}{member}\n{step * (depth - 1)}{text[end:]}"


def _edit_toml(text: str, key: str, name: str, entry: Entry) -> str | None:
    import tomllib

    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    servers = before.get(key, {})
    if not isinstance(servers, dict):
        return None
    if servers.get(name) == entry:
        return text
    table = f"[{key}.{name}]\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in entry.items())
    span = _toml_span(text, key, name)
    if span is None:
        revised = (text.rstrip("\n") + "\n\n" if text.strip() else "") + table
    elif span == NOWHERE:
        return None
    else:
        following = text[span[1] :]
        revised = text[: span[0]] + table + ("\n" + following if following else "")
    try:
        after_edit = tomllib.loads(revised)
    except tomllib.TOMLDecodeError:
        return None
    return revised if after_edit == {**before, key: {**servers, name: entry}} else None


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
    import tomllib

    span = _toml_span(text, key, name)
    if span is None or span == NOWHERE:
        return None
    head, tail = text[: span[0]], text[span[1] :]
    revised = head + tail if tail else head.rstrip("\n") + "\n" if head.strip() else ""
    before = tomllib.loads(text)
    remainder = {label: entry for label, entry in before[key].items() if label != name}
    expected = (
        {**before, key: remainder}
        if remainder
        else {table: rows for table, rows in before.items() if table != key}
    )
    return revised if tomllib.loads(revised) in (expected, {**before, key: remainder}) else None


def _cut_json(text: str, key: str, name: str) -> str | None:
    """The text without one member of the object under `key`, and without that object where it held no
    other.
    """
    try:
        before = json.loads(text, object_pairs_hook=distinct)
    except ValueError:
        return None
    if not isinstance(before, dict) or name not in before.get(key, {}):
        return None
    remainder = {label: entry for label, entry in before[key].items() if label != name}
    tables, _ = members_of(text, text.index("{"))
    if remainder:
        revised, expected = _without(text, tables[key][0], name), {**before, key: remainder}
    else:
        revised = _without(text, text.index("{"), key)
        expected = {label: value for label, value in before.items() if label != key}
        if not expected:
            return ""
    return revised if json.loads(revised) == expected else None


def _without(text: str, start: int, name: str) -> str:
    """The text without a member of the object at `start`, nor the comma that parted it from its neighbour."""
    members, _ = members_of(text, start)
    names = list(members)
    position = names.index(name)
    if position + 1 < len(names):  # from where its name begins to where the next one does
        begin = members[names[position - 1]][1] if position else start + 1
        following = text.index('"', members[name][1])
        lead = len(text[begin:]) - len(text[begin:].lstrip(", \t\r\n"))
        return text[: begin + lead] + text[following:]
    begin = members[names[position - 1]][1] if position else start + 1
    return text[:begin] + text[members[name][1] :]


def _yaml(name: str, entry: Entry) -> str:
    # JSON is YAML, so every value is one that needs no rules of quoting.
    fields = "".join(f"    {key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in entry.items())
    return f"name: {name}\nversion: 0.0.1\nschema: v1\nmcpServers:\n  - name: {name}\n{fields}"

"""Arguments as models, clients and query strings send them, brought to what a schema asks for; nothing is
dropped in silence.

Only tools of packs and their routes are so lenient: a cold search needs none of this.
"""

import json
import math
from collections.abc import Iterable, Mapping

from ctx.errors import BadRequest
from ctx.models import JSON
from ctx.text.strings import did_you_mean, nearest

# How like a known name an unknown one is that was meant for it: 'importance' for 'importance_score'.
_MEANT = 0.75
_ABSENT = ("", "null", "none", "undefined")  # as models and clients spell it


def put_right(
    schema: JSON, arguments: dict[str, JSON], also: tuple[str, ...] = (), strict: bool = True
) -> tuple[dict[str, JSON], list[str]]:
    """The arguments of the schema, with text parsed where it expects a list, an object or a number, and the
    names of the other arguments.

    `also`: accepted names that are not in the schema. "", "null" and the like count as absent if the schema
    does not require the argument. With `strict`, a name that resembles a known one raises `BadRequest`.
    """
    properties: dict[str, JSON] = schema.get("properties", {})
    names = (*properties, *also)
    unknown = [name for name, value in arguments.items() if name not in names and value is not None]
    if strict:
        _refuse_misspelt(unknown, names)
    passed = {
        name: _parsed(properties.get(name), value)
        for name, value in arguments.items()
        if name in names
        and (name in schema.get("required", ()) or not _is_absent(value, properties.get(name), strict))
    }
    return passed, unknown


def _is_absent(value: JSON, rule: JSON, strict: bool) -> bool:
    """Whether a client means by it that there is no such argument. With `strict`, only a text where the rule
    wants no text means that.
    """
    if strict:
        typed = isinstance(rule, dict) and rule.get("type") not in (None, "string")
        return typed and isinstance(value, str) and value.strip().lower() in _ABSENT
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value is None or (isinstance(value, str) and value.strip().lower() in _ABSENT)


def _refuse_misspelt(unknown: Iterable[str], names: tuple[str, ...]) -> None:
    for name in unknown:
        match = nearest(name, names, cutoff=_MEANT)
        if match is not None:
            raise BadRequest(f"unknown parameter '{name[:80]}'; did you mean '{match}'?")


def refuse_unknown(schema: JSON, arguments: dict[str, JSON]) -> None:
    """Raises `BadRequest` for an argument that the schema does not name, with the nearest that it does."""
    properties = schema.get("properties", {})
    for name in arguments:
        if name not in properties:
            raise BadRequest(f"unknown parameter '{name[:80]}'; {did_you_mean(name, properties)}")


def without_absent(schema: JSON, value: JSON) -> JSON:
    """The value without nulls in known fields, for clients that send every field.

    Objects that the schema leaves open (metadata) are not changed.
    """
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        return [without_absent(schema.get("items"), entry) for entry in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    return {
        name: without_absent(properties.get(name), entry)
        for name, entry in value.items()
        if entry is not None
    }


def from_text(schema: JSON, texts: Mapping[str, list[str]]) -> dict[str, JSON]:
    """Arguments of a query string, converted to the types of the schema. If a name repeats and is not a list,
    the last value is used.

    A value that cannot be converted stays text; the later check reports it.
    """
    properties = schema.get("properties", {})
    return {name: _typed(properties.get(name), values) for name, values in texts.items()}


def _typed(rule: JSON, values: list[str]) -> JSON:
    kind = rule.get("type") if isinstance(rule, dict) else None
    if kind == "array":
        return values
    text = values[-1]
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.lower(), text)
    return _as_number(text, int if kind == "integer" else float) if kind in ("integer", "number") else text


def _as_number(text: str, kind: type[int] | type[float]) -> JSON:
    """The number that a text says; the text where it says none."""
    try:
        number = kind(text)
        return number if math.isfinite(number) else text
    except (ValueError, OverflowError):  # some hundred digits are more than a number can be
        return text


def _parsed(rule: JSON, value: JSON) -> JSON:
    kind = rule.get("type") if isinstance(rule, dict) else None
    if isinstance(value, str) and isinstance(rule, dict) and value.lower() in rule.get("enum", ()):
        return value.lower()
    if isinstance(value, str) and kind in ("integer", "number"):
        return _typed(rule, [value])
    if isinstance(value, str) and kind == "boolean":
        return {"true": True, "false": False}.get(value.lower(), value)
    if isinstance(rule, dict) and "anyOf" in rule and isinstance(value, str) and value[:1] == "[":
        kind = "array"  # a text or a list of them
    if not isinstance(value, str) or kind not in ("array", "object"):
        return _parsed_fields(rule, value)
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return _parsed_fields(rule, parsed) if isinstance(parsed, list if kind == "array" else dict) else value


def _parsed_fields(rule: JSON, value: JSON) -> JSON:
    """The fields of an object, read likewise, for a rule that names its fields; "" counts as absent."""
    fields = rule.get("properties") if isinstance(rule, dict) else None
    if not isinstance(value, dict) or not fields or rule.get("additionalProperties", True) is not False:
        return value
    required = rule.get("required", ())
    return {
        name: _parsed(fields.get(name), entry)
        for name, entry in value.items()
        if entry not in ("", None) or name in required or name not in fields
    }

"""Check arguments against a tool's JSON Schema (2020-12), fill in defaults and write the error messages.

Scripts write the schema, and anyone who may call the tool writes the arguments. So patterns run in linear
time, nothing outside the schema is read, and a schema that could take long to check is refused when its tool
is loaded.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from urllib.parse import unquote

import jsonschema_rs
from jsonschema_rs import ValidationError
from jsonschema_rs import ValidationErrorKind as Kind

from ctx.errors import BadParameter, BadRequest, ConfigError
from ctx.models import JSON, as_table
from ctx.text.strings import cut, did_you_mean, nearest, one_line, sound

Check = Callable[[dict[str, JSON]], dict[str, JSON]]

# Minimum similarity of an unknown name to a known one, such as 'importance' and 'importance_score'.
_LIKENESS = 0.75
_ABSENT = ("", "null", "none", "undefined")  # text that models and clients send for an absent argument
MAX_DEPTH = 64  # maximum levels of a schema with references expanded
MAX_NODES = 20_000  # maximum nodes of a schema with references expanded
_TABLES = frozenset(
    ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"]
)  # keywords whose value maps names to schemas
_DATA = frozenset(["const", "default", "enum", "examples"])  # keywords whose value is not a schema
_MOVING = frozenset(["$dynamicRef", "$id"])  # keywords that change the meaning of references
_LOCAL = "only references within the schema ('#/...') are followed"
_TYPE_NAMES = {
    bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"
}  # fmt: skip


def compile_check(schema: JSON) -> Check:
    """Returns a function that checks arguments: it returns them with defaults filled in, or raises
    `BadRequest`.

    `null` for an optional parameter counts as absent; 3.0 is the integer 3. Raises `ConfigError` if the
    schema is invalid, refers outside itself, or has a default that does not fit.
    """
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ConfigError("parameters must be a JSON Schema of type 'object'")
    compiled = _Compiled(schema)
    for name, rule in schema.get("properties", {}).items():
        default = rule.get("default") if isinstance(rule, dict) else None
        if default is not None and not compiled.fits(name, default):
            raise ConfigError(
                f"the default of parameter '{name}' does not match its schema: {_shown(default)}"
            )

    def check(arguments: dict[str, JSON]) -> dict[str, JSON]:
        present = _completed(schema, arguments)
        error = compiled.error(present)
        if error is not None:
            raise error
        return present

    return check


def compile_output_check(schema: JSON) -> Callable[[JSON], str | None]:
    """Returns a function that returns the reason why a result does not match the schema, or None if it does.

    The schema may be of any type, and may have `$defs`. Raises `ConfigError` as `compile_check` does.
    """
    keywords = {key: rule for key, rule in schema.items() if key != "$defs"}
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    try:
        compiled = _Compiled({"type": "object", "properties": {"result": keywords}, **shared})
    except ConfigError as error:
        raise ConfigError(error.message.replace("parameters are", "output is", 1)) from error

    def fault(result: JSON) -> str | None:
        error = compiled.error({"result": result})
        if error is None:
            return None
        reason = error.message.removeprefix("parameter ")
        return re.sub(r"\A(missing required|unknown) parameter", r"\1 field", reason)

    return fault


# -- arguments -----------------------------------------------------------------------------------------------


def _completed(schema: JSON, arguments: dict[str, JSON], depth: int = 0) -> dict[str, JSON]:
    """The arguments with defaults, without absent ones, and with integral floats (3.0) as integers."""
    properties = schema["properties"] if isinstance(schema.get("properties"), dict) else {}
    required = schema.get("required", ())
    is_open = schema.get("additionalProperties", True) is not False
    present = {}
    for name, value in arguments.items():
        rule = properties.get(name)
        # Within an object a null can be data, so it counts as absent only if the schema forbids null.
        is_absent = (is_open or name in properties) if depth == 0 else _forbids_null(rule)
        if value is not None or name in required or not is_absent:
            present[name] = _read(rule, value, depth)
    for name, rule in properties.items():
        if name not in present and isinstance(rule, dict) and "default" in rule:
            present[name] = deepcopy(rule["default"])
    return present


def _forbids_null(rule: JSON) -> bool:
    rule = as_table(rule)
    if "anyOf" in rule:
        return all(_forbids_null(choice) for choice in rule["anyOf"])
    types = rule.get("type", "null")
    return types != "null" and "null" not in types


def _read(rule: JSON, value: JSON, depth: int) -> JSON:
    if not isinstance(rule, dict):
        return value
    if rule.get("type") == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict) and "properties" in rule:
        return _completed(rule, value, depth + 1)
    if isinstance(value, list) and "items" in rule:
        return [_read(rule["items"], entry, depth + 1) for entry in value]
    return value


# -- schemas -------------------------------------------------------------------------------------------------


class _Compiled:
    """A schema that is ready to check arguments. Raises `ConfigError` if it is invalid."""

    def __init__(self, schema: dict[str, JSON]) -> None:
        # Always read the schema as 2020-12. A `$id` would change the base of its references.
        self._schema = {key: value for key, value in schema.items() if key not in ("$id", "$schema")}
        _check_size(self._schema)
        self._validator = _validator(self._schema)

    def fits(self, name: str, value: JSON) -> bool:
        """Whether a value fits the property with this name."""
        words = ("properties", "$defs", "definitions")
        return _validator({word: self._schema[word] for word in words if word in self._schema}).is_valid(
            {name: value}
        )

    def error(self, arguments: dict[str, JSON]) -> BadRequest | None:
        """The error for arguments that do not match the schema; None if they match."""
        try:
            return self._error(arguments)
        except UnicodeEncodeError:  # the arguments contain lone surrogates
            return self._error(json.loads(sound(json.dumps(arguments, ensure_ascii=False))))
        except ValueError as error:  # the arguments are nested too deep
            return BadRequest(f"the arguments cannot be checked: {cut(str(error), 300)}")

    def _error(self, arguments: dict[str, JSON]) -> BadRequest | None:
        if self._validator.is_valid(arguments):
            return None
        for name in self._schema.get("required", ()):
            if arguments.get(name) is None:
                return BadRequest(f"missing required parameter: {name}")
        try:
            self._validator.validate(arguments)
        except ValidationError as error:
            return _worded(error, self._schema)
        return None


def _validator(schema: JSON) -> jsonschema_rs.Draft202012Validator:
    try:
        return jsonschema_rs.Draft202012Validator(
            schema, retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions()
        )
    except ValidationError as error:
        if error.kind.name == "format":
            raise ConfigError(
                f"the pattern '{one_line(str(error.instance), 80)}' cannot be searched in linear time; write "
                "it without look-ahead, look-behind and back references, or check it in the tool"
            ) from error
        where = "/".join(map(str, error.instance_path)) or "the root"
        raise ConfigError(
            f"parameters are not a JSON Schema: {cut(error.message, 300)} at {cut(where, 200)}"
        ) from error
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigError(f"parameters are not a JSON Schema: {cut(str(error), 300)}") from error


def _refuse(uri: str) -> JSON:
    raise ValueError(_LOCAL)


def _check_size(schema: JSON) -> None:
    """Raises `ConfigError` for a schema that refers to itself or outside itself, or is too deep or too large
    with its references expanded.

    The library takes exponential time to check a schema whose references double at each level.
    """
    sizes: dict[int, int] = {}

    def measure(node: JSON, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise ConfigError(f"parameters are nested more than {MAX_DEPTH} deep, counting references")
        if not isinstance(node, dict):
            return 1
        if id(node) not in sizes:
            inner = [*_children(node)]
            if isinstance(node.get("$ref"), str):
                inner.append(_target(schema, node["$ref"]))
            sizes[id(node)] = 1 + sum(measure(child, depth + 1) for child in inner)
            if sizes[id(node)] > MAX_NODES:
                raise ConfigError(f"parameters hold more than {MAX_NODES:,} schemas, counting references")
        return sizes[id(node)]

    measure(schema, 1)


def _children(rule: dict[str, JSON]) -> Iterator[JSON]:
    """The schemas directly inside a schema, and values of other keywords. Raises `ConfigError` for keywords
    that are not supported.
    """
    for word, value in rule.items():
        if word in _MOVING:
            raise ConfigError(f"'{word}' is not supported; {_LOCAL}")
        if word in _TABLES and isinstance(value, dict):
            yield from value.values()
        elif word not in _DATA:
            yield from value if isinstance(value, list) else [value]


def _target(schema: JSON, reference: str) -> JSON:
    if reference != "#" and not reference.startswith("#/"):
        raise ConfigError(f"parameters refer to '{one_line(reference, 80)}': {_LOCAL}")
    parts = unquote(reference).split("/")[1:]
    node = _walk(schema, [part.replace("~1", "/").replace("~0", "~") for part in parts])
    if node is None:
        raise ConfigError(f"parameters refer to '{one_line(reference, 80)}', but there is no schema")
    return node


def _walk(node: JSON, path: Iterable[str | int]) -> JSON:
    """The value at a path in a schema; None if there is none."""
    for part in path:
        if isinstance(node, list) and str(part).isdecimal() and int(part) < len(node):
            node = node[int(part)]
        else:
            node = node.get(part) if isinstance(node, dict) else None
    return node


# -- lenient arguments ---------------------------------------------------------------------------------------


def put_right(
    schema: JSON, arguments: dict[str, JSON], also: tuple[str, ...] = (), strict: bool = True
) -> tuple[dict[str, JSON], list[str]]:
    """The arguments of a lenient tool in the types that its schema wants, and the names of the unknown
    arguments.

    Models send text in place of a list, an object or a number; such text is parsed. `also` are accepted names
    that are not in the schema. "", "null" and the other texts in `_ABSENT` count as absent if the schema does
    not require the argument. With `strict`, a name that resembles a known one raises `BadRequest`.
    """
    properties: dict[str, JSON] = schema.get("properties", {})
    names = (*properties, *also)
    unknown = [name for name, value in arguments.items() if name not in names and value is not None]
    for name in unknown if strict else ():
        match = nearest(name, names, cutoff=_LIKENESS)
        if match is not None:
            raise BadRequest(f"unknown parameter '{name[:80]}'; did you mean '{match}'?")
    passed = {
        name: _parsed(properties.get(name), value)
        for name, value in arguments.items()
        if name in names
        and (name in schema.get("required", ()) or not _is_absent(value, properties.get(name), strict))
    }
    return passed, unknown


def _is_absent(value: JSON, rule: JSON, strict: bool) -> bool:
    """Whether a value stands for an argument that is not given. With `strict`, a text stands for an absent
    argument only if the schema wants another type than text.
    """
    if strict:
        typed = as_table(rule).get("type") not in (None, "string")
        return typed and isinstance(value, str) and value.strip().lower() in _ABSENT
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value is None or (isinstance(value, str) and value.strip().lower() in _ABSENT)


def refuse_unknown(schema: JSON, arguments: dict[str, JSON]) -> None:
    """Raise `BadRequest` for an argument that the schema does not name. The message suggests the nearest
    name.
    """
    properties = schema.get("properties", {})
    for name in arguments:
        if name not in properties:
            raise BadRequest(f"unknown parameter '{name[:80]}'; {did_you_mean(name, properties)}")


def without_absent(schema: JSON, value: JSON) -> JSON:
    """The value without nulls in fields that the schema names, for clients that send every field.

    Objects whose fields the schema does not name (metadata) do not change.
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
    """The arguments in a query string, converted to the types of the schema. If an argument that is not a
    list occurs several times, its last value is used.

    A value that cannot be converted stays text, which the later check reports.
    """
    kinds = {name: as_table(rule).get("type") for name, rule in schema.get("properties", {}).items()}
    return {
        name: values if kinds.get(name) == "array" else _scalar(kinds.get(name), values[-1])
        for name, values in texts.items()
    }


def _scalar(kind: JSON, text: str) -> JSON:
    """The boolean or number in a text, if the schema wants one; otherwise the text itself."""
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind not in ("integer", "number"):
        return text
    try:
        number = int(text) if kind == "integer" else float(text)
        return number if math.isfinite(number) else text
    except (ValueError, OverflowError):  # a number with hundreds of digits is too large for a float
        return text


def _parsed(rule: JSON, value: JSON) -> JSON:
    """Parses a text into the type that its schema wants. In an object whose fields the schema names, the
    fields are parsed, and empty texts and nulls count as absent.
    """
    rule = as_table(rule)
    if isinstance(value, str):
        if value.lower() in rule.get("enum", ()):
            return value.lower()
        # The schema may allow a text or a list of texts.
        kind = "array" if "anyOf" in rule and value[:1] == "[" else rule.get("type")
        if kind not in ("array", "object"):
            return _scalar(kind, value.strip().removesuffix(".0") if kind == "integer" else value)
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return value
        if not isinstance(parsed, list if kind == "array" else dict):
            return value
        value = parsed
    fields = rule.get("properties")
    if not isinstance(value, dict) or not fields or rule.get("additionalProperties", True) is not False:
        return value
    required = rule.get("required", ())
    return {
        name: _parsed(fields.get(name), entry)
        for name, entry in value.items()
        if entry not in ("", None) or name in required or name not in fields
    }


# -- errors --------------------------------------------------------------------------------------------------


def _worded(error: ValidationError, schema: JSON) -> BadRequest:
    kind, value, name = error.kind, error.instance, _name(error.instance_path)
    within = f"{name}." if name else ""
    if isinstance(kind, Kind.Required):
        return BadRequest(f"missing required parameter: {within}{kind.property}")
    if isinstance(kind, Kind.AnyOf | Kind.OneOfNotValid):
        firsts = [errors[0] for errors in kind.context if errors]
        wrong_type = [first for first in firsts if _is_wrong_type(first, error)]
        if len(firsts) - len(wrong_type) == 1:  # the value has the type of exactly one choice
            return _worded(next(first for first in firsts if first not in wrong_type), schema)
        types = [kind for first in firsts if isinstance(first.kind, Kind.Type) for kind in first.kind.types]
        if name and firsts and len(wrong_type) == len(firsts):
            return BadParameter(name, _type_problem(types, value))
    if error.schema_path[-1:] == ["additionalProperties"] and isinstance(value, dict):
        unknown = kind.unexpected if isinstance(kind, Kind.AdditionalProperties) else list(value)
        rule = _walk(schema, error.schema_path[:-1])
        known = ", ".join(rule.get("properties", ())) if isinstance(rule, dict) else ""
        return BadRequest(f"unknown parameter '{within}{cut(unknown[0], 80)}' (known: {known or 'none'})")
    problem = _problem(kind, value) or f"does not fit: {cut(error.message, 300)}"
    return BadParameter(name, problem) if name else BadRequest(f"the arguments: {cut(error.message, 300)}")


def _is_wrong_type(error: ValidationError, choice: ValidationError) -> bool:
    return isinstance(error.kind, Kind.Type) and error.instance_path == choice.instance_path


def _name(path: Sequence[str | int]) -> str:
    """The place of a value in the arguments, such as `filters.since` or `tags[0]`."""
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return cut(name.removeprefix("."), 200)


def _problem(kind: Kind, value: JSON) -> str | None:
    match kind:
        case Kind.Type(types):
            return _type_problem(types, value)
        case Kind.Enum(options):
            choices = ", ".join(_shown(choice) for choice in options)
            return f"must be one of [{choices}], got {_shown(value)}"
        case Kind.Minimum(limit):
            return f"must be at least {limit}, got {_shown(value)}"
        case Kind.Maximum(limit):
            return f"must be at most {limit}, got {_shown(value)}"
        case Kind.MinLength(limit):
            return f"must have at least {limit} character{'s' if limit != 1 else ''}"
        case Kind.MaxLength(limit):
            return f"must have at most {limit} characters, got {len(value)}"
        case Kind.MaxItems(limit):
            return f"must have at most {limit} entries, got {len(value)}"
    return None


def _type_problem(types: Sequence[str], value: JSON) -> str:
    names = " or ".join(f"'{name}'" for name in types)
    return f"must be of type {names}, got {type_name(value)}"


def type_name(value: JSON) -> str:
    """The JSON name of a value's type."""
    return _TYPE_NAMES.get(type(value), "null")


def _shown(value: JSON) -> str:
    return cut(f'"{value}"' if isinstance(value, str) else str(value), 80, "...")

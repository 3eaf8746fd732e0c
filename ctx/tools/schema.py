"""JSON Schema for tool arguments: one check, one filling of defaults, one wording of errors.

A tool's parameters are usually a flat object of scalars. Those are checked here in a few microseconds; any
schema that says more goes to `jsonschema` (2020-12), which costs a tenth of a second to import and so is
imported when first needed.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ctx.errors import BadParameter, BadRequest
from ctx.text import cut
from ctx.types import JSON, is_number, is_whole

if TYPE_CHECKING:
    from ctx.tools.full_schema import FullCheck

Check = Callable[[dict[str, JSON]], dict[str, JSON]]

MAX_DEPTH = 64  # of a schema: deeper is not a tool's parameter but an attack on a parser

_ROOT_KEYS = frozenset(
    ["type", "properties", "required", "additionalProperties", "title", "description", "$schema", "examples"]
)
_FLAT_KEYS = frozenset(
    [
        *("type", "enum", "default", "description", "title", "minimum", "maximum", "minLength", "maxLength"),
        *("examples", "format"),
    ]
)
_CLASSES: dict[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool
}  # fmt: skip
_FLAT_TYPES = tuple(_CLASSES)  # looked up with what may be no text, so no set


def compile_check(schema: JSON) -> Check:
    """A function that gives the arguments back with defaults filled in, or raises `BadRequest` naming the
    parameter.

    `null` for an optional parameter counts as absent. Whole floats are integers, as JSON Schema has it.
    Raises `ConfigError` where the schema itself is wrong or refers outside itself.
    """
    if is_flat(schema):
        return flat_check(schema)
    from ctx.tools.full_schema import FullCheck  # 100 ms, and most tools never need it

    return partial(_check_full, FullCheck(schema), schema)


def flat_check(schema: JSON) -> Check:
    """`compile_check` of a schema that is known to be flat and well formed."""
    return partial(_check_flat, schema)


def compile_output_check(schema: JSON) -> Callable[[JSON], str | None]:
    """A function that says what of a result does not fit the schema, None where all does.

    A schema may be of any type; `$defs` are its own. Raises `ConfigError` as `compile_check` does.
    """
    from ctx.tools.full_schema import FullCheck

    keywords = {key: rule for key, rule in schema.items() if key != "$defs"}
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    full = FullCheck(
        {"type": "object", "properties": {"result": keywords}, "required": ["result"], **shared}, "output is"
    )

    def fault(result: JSON) -> str | None:
        error = full.error({"result": result})
        return None if error is None else _sentence(error, "")

    return fault


def is_flat(schema: JSON, depth: int = 0) -> bool:
    """Whether the schema is an object of scalars and of such objects: there null counts as absent at every
    depth.

    False as well for a schema with a mistake in it, which `jsonschema` can name.
    """
    if not isinstance(schema, dict) or schema.get("type") != "object" or depth > MAX_DEPTH:
        return False
    properties = schema.get("properties", {})
    return (
        schema.keys() <= _ROOT_KEYS
        and isinstance(schema.get("additionalProperties", True), bool)
        and _is_list_of_names(schema.get("required", []))
        and isinstance(schema.get("examples", []), list)
        and _has_texts(schema, ("title", "description"))
        and schema.get("$schema", _DIALECT) == _DIALECT
        and isinstance(properties, dict)
        and all(
            is_flat(rule, depth + 1) or _is_scalar(rule) or _is_one_or_more(rule)
            for rule in properties.values()
        )
    )


def _is_scalar(rule: JSON) -> bool:
    return (
        isinstance(rule, dict)
        and rule.keys() <= _FLAT_KEYS
        and rule.get("type") in _FLAT_TYPES
        and all(_is_number(rule[key]) for key in ("minimum", "maximum") if key in rule)
        and all(_is_count(rule[key]) for key in ("minLength", "maxLength") if key in rule)
        and all(isinstance(rule.get(key, []), list) for key in ("enum", "examples"))
        and all(_is_plain(choice) for choice in rule.get("enum", []))
        and _is_plain(rule.get("default"))
        and _has_texts(rule, ("title", "description", "format"))
        and (rule.get("default") is None or _fits(rule, rule["default"]))
    )


def _fits(rule: JSON, value: JSON) -> bool:
    try:
        _check_scalar("", rule, value)
    except BadRequest:
        return False
    return True


_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _has_texts(rule: JSON, keys: tuple[str, ...]) -> bool:
    return all(isinstance(rule.get(key, ""), str) for key in keys)


def _is_list_of_names(value: JSON) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(name, str) for name in value)
        and len(set(value)) == len(value)
    )


def _is_plain(value: JSON) -> bool:
    return value is None or isinstance(value, str | bool) or _is_number(value)


def _is_number(value: JSON) -> bool:
    # Infinity and what is no number at all stand in no JSON.
    return is_number(value) and value - value == 0


def _is_count(value: JSON) -> bool:
    return is_whole(value) and value >= 0


def _is_one_or_more(rule: JSON) -> bool:
    """Whether a rule says: a scalar, or a list of such."""
    if not isinstance(rule, dict) or rule.keys() - {"anyOf", "description"}:
        return False
    choices = rule.get("anyOf")
    if not isinstance(choices, list) or len(choices) != 2:
        return False
    single, several = choices
    return (
        _is_scalar(single)
        and isinstance(several, dict)
        and several.keys() == {"type", "items", "maxItems"}
        and several["type"] == "array"
        and several["items"] == single
        and _is_count(several["maxItems"])
    )


def _check_one_or_more(name: str, rule: JSON, value: JSON) -> JSON:
    single, several = rule["anyOf"]
    if not isinstance(value, list):
        return _check_scalar(name, single, value)
    if len(value) > several["maxItems"]:
        raise BadParameter(name, f"must have at most {several['maxItems']} entries, got {len(value)}")
    return [_check_scalar(f"{name}[{i}]", single, entry) for i, entry in enumerate(value)]


def _without_nulls(schema: JSON, arguments: dict[str, JSON]) -> dict[str, JSON]:
    required = schema.get("required", ())
    # An unknown name is unknown whatever its value.
    unknown = (
        set(arguments) - set(schema.get("properties", ()))
        if schema.get("additionalProperties", True) is False
        else ()
    )
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name in required or name in unknown
    }


def _check_flat(schema: JSON, arguments: dict[str, JSON], within: str = "") -> dict[str, JSON]:
    properties: dict[str, JSON] = schema.get("properties", {})
    present = _without_nulls(schema, arguments)
    for name in schema.get("required", ()):
        if present.get(name) is None:
            raise BadRequest(f"missing required parameter: {within}{name}")
    if schema.get("additionalProperties", True) is False:
        for name in present:
            if name not in properties:
                names = ", ".join(properties) or "none"
                raise BadRequest(f"unknown parameter '{within}{name[:80]}' (known: {names})")
    for name, rule in properties.items():
        if name in present:
            present[name] = _check_value(within + name, rule, present[name])
        elif "default" in rule:
            present[name] = rule["default"]
    return present


def _check_value(name: str, rule: JSON, value: JSON) -> JSON:
    if "anyOf" in rule:
        return _check_one_or_more(name, rule, value)
    if rule["type"] != "object":
        return _check_scalar(name, rule, value)
    if not isinstance(value, dict):
        raise BadParameter(name, f"must be of type 'object', got {type_name(value)}")
    if rule.keys() & {"properties", "required", "additionalProperties"}:
        return _check_flat(rule, value, f"{name}.")
    return value  # anything goes, and its nulls are data


def _is_among(value: JSON, choices: list[JSON]) -> bool:
    """Whether a value is one of some; true is not 1."""
    return any(choice == value and isinstance(choice, bool) == isinstance(value, bool) for choice in choices)


def _check_scalar(name: str, rule: JSON, value: JSON) -> JSON:
    kind = rule["type"]
    if kind == "integer" and type(value) is float and value.is_integer():
        value = int(value)
    if not _has_type(kind, value):
        raise BadParameter(name, f"must be of type '{kind}', got {type_name(value)}")
    if "enum" in rule and not _is_among(value, rule["enum"]):
        raise BadParameter(name, f"must be one of [{_choices(rule['enum'])}], got {_short(value)}")
    if kind == "string":
        _check_length(name, rule, len(value))
    elif kind != "boolean":
        _check_range(name, rule, value)
    return value


def _choices(values: JSON) -> str:
    return ", ".join(f'"{choice}"' if isinstance(choice, str) else str(choice) for choice in values)


def _check_range(name: str, rule: JSON, value: float) -> None:
    if "minimum" in rule and value < rule["minimum"]:
        raise BadParameter(name, f"must be at least {rule['minimum']}, got {_short(value)}")
    if "maximum" in rule and value > rule["maximum"]:
        raise BadParameter(name, f"must be at most {rule['maximum']}, got {_short(value)}")


def _check_length(name: str, rule: JSON, length: int) -> None:
    if "minLength" in rule and length < rule["minLength"]:
        least = rule["minLength"]
        raise BadParameter(name, f"must have at least {least} character{'s' if least != 1 else ''}")
    if "maxLength" in rule and length > rule["maxLength"]:
        raise BadParameter(name, f"must have at most {rule['maxLength']} characters, got {length}")


def _has_type(kind: str, value: JSON) -> bool:
    if isinstance(value, bool):  # to Python a number, too
        return kind == "boolean"
    return isinstance(value, _CLASSES[kind])


_TYPE_NAMES = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def type_name(value: JSON) -> str:
    """The JSON name of a value's type."""
    return _TYPE_NAMES.get(type(value), "null")


def _short(value: JSON) -> str:
    return cut(f'"{value}"' if isinstance(value, str) else str(value), 80, "...")


def _check_full(full: "FullCheck", schema: JSON, arguments: dict[str, JSON]) -> dict[str, JSON]:
    present = _without_nulls(schema, arguments)
    for name in full.required:
        if name not in present:
            raise BadRequest(f"missing required parameter: {name}")
    present = {**{name: value for name, value in full.defaults.items() if name not in present}, **present}
    error = full.error(present)
    if error is not None:
        raise BadRequest(_sentence(error))
    return present


def _sentence(error: JSON, noun: str = "parameter ") -> str:
    path = "/".join(str(part) for part in error.absolute_path)
    if error.validator == "type" and path:
        return f"{noun}'{path}' must be of type '{error.validator_value}', got {type_name(error.instance)}"
    if error.validator == "enum" and path:
        choices = _choices(error.validator_value)
        return f"{noun}'{path}' must be one of [{choices}], got {_short(error.instance)}"
    subject = f"{noun}'{path}': " if path else ""
    return subject + cut(error.message, 300, "...")

"""JSON Schema for tool arguments: one check, one filling of defaults, one wording of errors.

A tool's parameters are usually a flat object of scalars. Those are checked here in a few microseconds; any schema that says
more goes to `jsonschema` (2020-12), which costs a tenth of a second to import and so is imported when first needed.
"""

from collections.abc import Callable
from functools import partial

from ctx.errors import BadRequest, ConfigError
from ctx.types import JSON

Check = Callable[[dict[str, JSON]], dict[str, JSON]]

MAX_DEPTH = 64  # of arguments: deeper is not a tool's parameter but an attack on a parser

_ROOT_KEYS = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "title",
    "description",
    "$schema",
    "examples",
}
_FLAT_KEYS = {
    "type",
    "enum",
    "default",
    "description",
    "title",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "examples",
    "format",
}
_FLAT_TYPES = {"string", "integer", "number", "boolean"}


def compile_check(schema: JSON) -> Check:
    """A function that gives the arguments back with defaults filled in, or raises `BadRequest` naming the parameter.

    `null` for an optional parameter counts as absent. Whole floats are integers, as JSON Schema has it. Raises `ConfigError`
    where the schema itself is wrong or refers outside itself.
    """
    if is_flat(schema):
        return partial(_check_flat, schema)
    return _compile_full(schema)


def is_flat(schema: JSON) -> bool:
    """Whether the schema is an object of scalars and of such objects: there null counts as absent at every depth."""
    if not isinstance(schema, dict) or schema.get("type") != "object" or not set(schema) <= _ROOT_KEYS:
        return False
    if not isinstance(schema.get("additionalProperties", True), bool):
        return False
    for rule in schema.get("properties", {}).values():
        if not isinstance(rule, dict):
            return False
        if (rule.get("type") == "object" and is_flat(rule)) or _is_one_or_more(rule):
            continue
        if not set(rule) <= _FLAT_KEYS or rule.get("type") not in _FLAT_TYPES:
            return False
    return True


def _is_one_or_more(rule: JSON) -> bool:
    """Whether a rule says: a scalar, or a list of such."""
    if set(rule) - {"anyOf", "description"} or len(rule.get("anyOf", ())) != 2:
        return False
    single, several = rule["anyOf"]
    return (
        set(single) <= _FLAT_KEYS
        and single.get("type") in _FLAT_TYPES
        and several.get("type") == "array"
        and set(several) == {"type", "items", "maxItems"}
        and several["items"] == single
    )


def _check_one_or_more(name: str, rule: JSON, value: JSON) -> JSON:
    single, several = rule["anyOf"]
    if not isinstance(value, list):
        return _check_scalar(name, single, value)
    if len(value) > several["maxItems"]:
        raise BadRequest(
            f"parameter '{name}' must have at most {several['maxItems']} entries, got {len(value)}"
        )
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
    given = _without_nulls(schema, arguments)
    for name in schema.get("required", ()):
        if given.get(name) is None:
            raise BadRequest(f"missing required parameter: {within}{name}")
    if schema.get("additionalProperties", True) is False:
        for name in given:
            if name not in properties:
                known = ", ".join(properties) or "none"
                raise BadRequest(f"unknown parameter '{within}{name[:80]}' (known: {known})")
    for name, rule in properties.items():
        if name in given and "anyOf" in rule:
            given[name] = _check_one_or_more(within + name, rule, given[name])
        elif name in given and rule["type"] == "object":
            if not isinstance(given[name], dict):
                raise BadRequest(
                    f"parameter '{within}{name}' must be of type 'object', got {type_name(given[name])}"
                )
            given[name] = _check_flat(rule, given[name], f"{within}{name}.")
        elif name in given:
            given[name] = _check_scalar(within + name, rule, given[name])
        elif "default" in rule:
            given[name] = rule["default"]
    return given


def _check_scalar(name: str, rule: JSON, value: JSON) -> JSON:
    wanted = rule["type"]
    if wanted == "integer" and type(value) is float and value.is_integer():
        value = int(value)
    if not _has_type(wanted, value):
        raise BadRequest(f"parameter '{name}' must be of type '{wanted}', got {type_name(value)}")
    if "enum" in rule and value not in rule["enum"]:
        choices = ", ".join(
            f'"{choice}"' if isinstance(choice, str) else str(choice) for choice in rule["enum"]
        )
        raise BadRequest(f"parameter '{name}' must be one of [{choices}], got {_short(value)}")
    if "minimum" in rule and value < rule["minimum"]:
        raise BadRequest(f"parameter '{name}' must be at least {rule['minimum']}, got {_short(value)}")
    if "maximum" in rule and value > rule["maximum"]:
        raise BadRequest(f"parameter '{name}' must be at most {rule['maximum']}, got {_short(value)}")
    if "minLength" in rule and len(value) < rule["minLength"]:
        raise BadRequest(f"parameter '{name}' must have at least {rule['minLength']} characters")
    if "maxLength" in rule and len(value) > rule["maxLength"]:
        raise BadRequest(
            f"parameter '{name}' must have at most {rule['maxLength']} characters, got {len(value)}"
        )
    return value


def _has_type(wanted: str, value: JSON) -> bool:
    if wanted == "string":
        return isinstance(value, str)
    if wanted == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    return isinstance(value, int) if wanted == "integer" else isinstance(value, int | float)


def put_right(schema: JSON, arguments: dict[str, JSON]) -> dict[str, JSON]:
    """The arguments without those the schema does not know, and with JSON text parsed where a list or an object is wanted."""
    import json  # 3 ms; only tools of packs are lenient

    properties: dict[str, JSON] = schema.get("properties", {})
    right: dict[str, JSON] = {}
    for name, value in arguments.items():
        if name not in properties and name != "sessionId":
            continue
        wanted = properties.get(name, {}).get("type")
        if isinstance(value, str) and wanted in ("array", "object"):
            try:
                parsed = json.loads(value)
            except ValueError:
                parsed = value
            value = parsed if isinstance(parsed, list if wanted == "array" else dict) else value
        right[name] = value
    return right


def type_name(value: JSON) -> str:
    """The JSON name of a value's type."""
    for kind, name in (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
        (dict, "object"),
    ):
        if isinstance(value, kind):
            return name
    return "null"


def _short(value: JSON) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _compile_full(schema: JSON) -> Check:
    import jsonschema  # 100 ms, and most tools never need it

    _refuse_foreign_references(schema, 0)
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ConfigError(f"parameters are not a JSON Schema: {error.message} at {_place(error)}") from error
    if schema.get("type") != "object":
        raise ConfigError("parameters must be a JSON Schema of type 'object'")
    validator = jsonschema.Draft202012Validator(schema)

    def check(arguments: dict[str, JSON]) -> dict[str, JSON]:
        given = _without_nulls(schema, arguments)
        for name in schema.get("required", ()):
            if name not in given:
                raise BadRequest(f"missing required parameter: {name}")
        for name, rule in schema.get("properties", {}).items():
            if name not in given and isinstance(rule, dict) and "default" in rule:
                given[name] = rule["default"]
        error = jsonschema.exceptions.best_match(validator.iter_errors(given))
        if error is not None:
            raise BadRequest(_sentence(error))
        return given

    return check


def _refuse_foreign_references(schema: JSON, depth: int) -> None:
    # A `$ref` to a URL would make the validator fetch it: an open door out of the machine.
    if depth > MAX_DEPTH:
        raise ConfigError(f"parameters are nested more than {MAX_DEPTH} deep")
    if isinstance(schema, dict):
        reference = schema.get("$ref", schema.get("$dynamicRef"))
        if isinstance(reference, str) and not reference.startswith("#"):
            raise ConfigError(
                f"parameters refer to '{reference}': only references within the schema ('#/...') are followed"
            )
        for value in schema.values():
            _refuse_foreign_references(value, depth + 1)
    elif isinstance(schema, list):
        for value in schema:
            _refuse_foreign_references(value, depth + 1)


def _place(error: JSON) -> str:
    return "/".join(str(part) for part in error.absolute_path) or "the root"


def _sentence(error: JSON) -> str:
    place = _place(error)
    if error.validator == "type" and error.absolute_path:
        return (
            f"parameter '{place}' must be of type '{error.validator_value}', got {type_name(error.instance)}"
        )
    if error.validator == "enum" and error.absolute_path:
        choices = ", ".join(
            f'"{choice}"' if isinstance(choice, str) else str(choice) for choice in error.validator_value
        )
        return f"parameter '{place}' must be one of [{choices}], got {_short(error.instance)}"
    where = f"parameter '{place}': " if error.absolute_path else ""
    message: str = error.message
    return where + (message if len(message) <= 300 else message[:297] + "...")

"""Any JSON Schema (2020-12) as a check of arguments: what the quick check of schema.py does not know.

Scripts and packs write the schema and anybody who may call writes the arguments, so a schema is looked at
once, whole, when its tool is loaded, and a check of arguments costs a bounded number of steps whatever both
say. Imported when first needed: `jsonschema` costs a tenth of a second.
"""

import json
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from urllib.parse import unquote

import jsonschema

from ctx.errors import BadRequest, ConfigError
from ctx.text import cut
from ctx.tools.schema import MAX_DEPTH
from ctx.tools.schema_patterns import SearchPattern
from ctx.types import JSON

MAX_NODES = 20_000
MAX_AT_ONCE = 1000  # schemas that apply to one value
MAX_STEPS = 300_000
"""Of one check: a keyword applied is one, and so are `_PATTERN_STEPS` of the pattern engine. Some seconds at
the very most (24 microseconds each where schemas refer to themselves twice).
"""
_PATTERN_STEPS = 200
_MESSAGE_CHARS = 50  # of an error's message that cost as much as a step

_ONE = frozenset(
    [
        *("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames"),
        *("then", "unevaluatedItems", "unevaluatedProperties"),
    ]
)
_LIST = frozenset(["allOf", "anyOf", "oneOf", "prefixItems"])
_TABLE = frozenset(["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"])
_SAME_VALUE = frozenset(["allOf", "anyOf", "dependentSchemas", "else", "if", "not", "oneOf", "then"])

Keyword = Callable[[JSON, JSON, JSON, JSON], Iterator[JSON] | None]


class FullCheck:
    """A schema ready to check. Raises `ConfigError` where it is no schema, refers outside itself, or never
    ends.
    """

    def __init__(self, schema: JSON, subject: str = "parameters are") -> None:
        _refuse_what_is_no_json(schema)
        try:
            # Without a format checker, whose "regex" would compile patterns in Python's dialect.
            jsonschema.Draft202012Validator.check_schema(schema, format_checker=jsonschema.FormatChecker(()))
        except jsonschema.SchemaError as error:
            raise ConfigError(
                f"{subject} not a JSON Schema: {error.message[:300]} at {path_of(error)}"
            ) from error
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise ConfigError("parameters must be a JSON Schema of type 'object'")
        schema = deepcopy(schema)
        engines = {pattern: SearchPattern(pattern) for pattern in sorted(_Outline(schema).patterns)}
        self._steps = _Steps()
        words = _keywords(engines, self._steps)
        self._validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, words)(schema)
        self.required: list[str] = schema.get("required", [])
        self.defaults = dict(self._fitting_defaults(schema.get("properties", {})))

    def error(self, value: JSON, rule: JSON = None) -> JSON:
        """What is most wrong with a value, or None. Raises `BadRequest` where it takes too long to say."""
        self._steps.left = MAX_STEPS
        validator = self._validator if rule is None else self._validator.evolve(schema=rule)
        try:
            return jsonschema.exceptions.best_match(validator.iter_errors(value))
        except RecursionError as error:
            raise BadRequest("the arguments are nested too deep to be checked") from error
        except ArithmeticError as error:
            raise BadRequest("the arguments hold a number that is out of range") from error

    def _fitting_defaults(self, properties: Mapping[str, JSON]) -> Iterator[tuple[str, JSON]]:
        for name, rule in properties.items():
            if not isinstance(rule, dict) or "default" not in rule:
                continue
            try:
                error = self.error(rule["default"], rule)
            except BadRequest as problem:
                raise ConfigError(f"the default of parameter '{name}': {problem.message}") from problem
            if error is None:
                yield name, rule["default"]
            elif rule["default"] is not None:  # null says that there is none
                raise ConfigError(f"the default of parameter '{name}' does not fit: {error.message[:300]}")


def path_of(error: JSON) -> str:
    """Where an error lies, as names between slashes."""
    return "/".join(str(part) for part in error.absolute_path) or "the root"


# -- a look at the schema ------------------------------------------------------------------------------------


def _refuse_what_is_no_json(schema: JSON) -> None:
    """Raises `ConfigError` for what is too deep, too large, or stands in no JSON (infinity, keys that are no
    text).
    """
    waiting = [(schema, 1)]
    nodes = 0
    while waiting:
        value, depth = waiting.pop()
        nodes += 1
        if depth > MAX_DEPTH:
            raise ConfigError(f"parameters are nested more than {MAX_DEPTH} deep")
        if nodes > MAX_NODES:
            raise ConfigError(f"parameters hold more than {MAX_NODES:,} values")
        waiting += [(child, depth + 1) for child in _values_in(value)]


def _values_in(value: JSON) -> Iterable[JSON]:
    """What a value holds. Raises `ConfigError` for what stands in no JSON."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ConfigError("parameters hold a key that is not text")
        return value.values()
    if isinstance(value, list):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError("parameters hold a number that JSON has not")
    if value is not None and not isinstance(value, str | int | float):
        raise ConfigError(f"parameters hold a {type(value).__name__}, which JSON has not")
    return ()


class _Outline:
    """Every schema within a schema, by its JSON pointer, once it is known that references within it lead
    somewhere and end.

    `$schema` and `$id` are taken out of it: they would choose another validator, or another place to look.
    """

    def __init__(self, schema: JSON) -> None:
        self.patterns: set[str] = set()
        self._schemas: dict[str, JSON] = {}
        self._anchors: dict[str, str] = {}
        self._weights: dict[str, int | None] = {}
        words: set[str] = set()
        waiting = [("", schema)]
        while waiting:
            pointer, rule = waiting.pop()
            self._schemas[pointer] = rule
            if isinstance(rule, dict):
                self._take_in(pointer, rule)
                words.update(rule)
                waiting += _children(pointer, rule)
        if {"unevaluatedProperties", "patternProperties"} <= words:
            raise ConfigError(
                "unevaluatedProperties beside patternProperties is not read; write additionalProperties"
            )
        for pointer in self._schemas:
            self._weigh(pointer)

    def _take_in(self, pointer: str, rule: dict[str, JSON]) -> None:
        rule.pop("$schema", None)
        if rule.pop("$id", None) is not None and pointer:
            raise ConfigError("an '$id' within the parameters is not read; refer by '#/...'")
        if "$dynamicRef" in rule:
            raise ConfigError(
                "'$dynamicRef' is not read; only references within the schema ('#/...') are followed"
            )
        if "$anchor" in rule:
            self._anchors[rule["$anchor"]] = pointer
        if "pattern" in rule:
            self.patterns.add(rule["pattern"])
        self.patterns.update(rule.get("patternProperties", ()))

    def _applied(self, pointer: str) -> Iterator[str]:
        """The schemas that apply to a value because this one does."""
        rule = self._schemas[pointer]
        if isinstance(rule, dict):
            yield from (child for child, _ in _children(pointer, rule, _SAME_VALUE))
            if "$ref" in rule:
                yield self._target(rule["$ref"])

    def _weigh(self, pointer: str, depth: int = 0) -> int:
        """How many schemas apply to a value where this one does."""
        if depth > MAX_DEPTH:
            raise ConfigError(f"references lead on more than {MAX_DEPTH} times at '#{pointer}'")
        if pointer in self._weights:
            weight = self._weights[pointer]
            if weight is None:
                raise ConfigError(f"parameters refer to themselves without end at '#{pointer}'")
            return weight
        self._weights[pointer] = None
        weight = 1 + sum(self._weigh(inner, depth + 1) for inner in self._applied(pointer))
        if weight > MAX_AT_ONCE:
            raise ConfigError(f"more than {MAX_AT_ONCE:,} schemas apply to one value at '#{pointer}'")
        self._weights[pointer] = weight
        return weight

    def _target(self, reference: str) -> str:
        if not reference.startswith("#"):
            raise ConfigError(
                f"parameters refer to '{reference[:80]}': only references within the schema ('#/...') are "
                "followed"
            )
        pointer = unquote(reference[1:])
        pointer = self._anchors.get(pointer, pointer)
        if pointer not in self._schemas:
            raise ConfigError(f"parameters refer to '{reference[:80]}', where no schema is")
        return pointer


def _children(
    pointer: str, rule: Mapping[str, JSON], words: frozenset[str] = _ONE | _LIST | _TABLE
) -> Iterator[tuple[str, JSON]]:
    for word in words & rule.keys():
        value = rule[word]
        if word in _ONE:
            yield f"{pointer}/{word}", value
        elif word in _LIST:
            yield from ((f"{pointer}/{word}/{index}", child) for index, child in enumerate(value))
        else:
            for name, child in value.items():
                yield f"{pointer}/{word}/{name.replace('~', '~0').replace('/', '~1')}", child


# -- keywords of bounded cost --------------------------------------------------------------------------------


class _Steps(threading.local):
    """What is left of `MAX_STEPS` in the check that this thread makes."""

    left = MAX_STEPS

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise BadRequest(
                "the arguments take too long to check against the tool's parameters; shorten them"
            )


def _keywords(engines: Mapping[str, SearchPattern], steps: _Steps) -> dict[str, Keyword]:
    """The keywords of JSON Schema, each counted; those are ours that would use `re` or compare pairs."""
    words: dict[str, Keyword] = dict(jsonschema.Draft202012Validator.VALIDATORS)
    linear = _Linear(engines, steps)
    words |= {
        "pattern": linear.pattern,
        "patternProperties": linear.pattern_properties,
        "additionalProperties": linear.additional_properties,
        "uniqueItems": linear.unique_items,
    }
    return {word: _counted(check, steps) for word, check in words.items()}


class _Linear:
    """The keywords that take linear time here, whoever wrote the expressions and the texts."""

    def __init__(self, engines: Mapping[str, SearchPattern], steps: _Steps) -> None:
        self._engines = engines
        self._steps = steps

    def _fits(self, expression: str, text: str) -> bool:
        engine = self._engines[expression]
        self._steps.spend(1 + len(text) * engine.size // _PATTERN_STEPS)
        return engine.matches(text)

    def pattern(self, validator: JSON, expression: JSON, instance: JSON, schema: JSON) -> Iterator[JSON]:
        if isinstance(instance, str) and not self._fits(expression, instance):
            yield jsonschema.ValidationError(f"{_shortened(instance)} does not match {expression!r}")

    def pattern_properties(
        self, validator: JSON, rules: JSON, instance: JSON, schema: JSON
    ) -> Iterator[JSON]:
        if isinstance(instance, dict):
            for expression, rule in rules.items():
                for name, value in instance.items():
                    if self._fits(expression, name):
                        yield from validator.descend(value, rule, path=name, schema_path=expression)

    def additional_properties(
        self, validator: JSON, rule: JSON, instance: JSON, schema: JSON
    ) -> Iterator[JSON]:
        if not isinstance(instance, dict):
            return
        named = schema.get("properties", {})
        expressions = schema.get("patternProperties", ())
        for name, value in instance.items():
            if name in named or any(self._fits(expression, name) for expression in expressions):
                continue
            if rule is False:
                yield jsonschema.ValidationError(
                    f"Additional properties are not allowed ({_shortened(name)} was unexpected)"
                )
            else:
                yield from validator.descend(value, rule, path=name)

    def unique_items(self, validator: JSON, unique: JSON, instance: JSON, schema: JSON) -> Iterator[JSON]:
        if unique and isinstance(instance, list):
            texts = [json.dumps(_canonical(item), sort_keys=True) for item in instance]
            self._steps.spend(len(texts) + sum(map(len, texts)) // _MESSAGE_CHARS)
            if len(set(texts)) < len(texts):
                yield jsonschema.ValidationError(f"{_shortened(instance)} has non-unique elements")


def _counted(check: Keyword, steps: _Steps) -> Keyword:
    def counted(validator: JSON, value: JSON, instance: JSON, schema: JSON) -> Iterator[JSON]:
        steps.spend(1 + (len(value) // 10 if isinstance(value, list | dict) else 0))
        for error in check(validator, value, instance, schema) or ():
            steps.spend(len(error.message) // _MESSAGE_CHARS)
            yield error

    return counted


def _canonical(value: JSON) -> JSON:
    """The value with whole floats as integers: JSON Schema takes 1 and 1.0 for equal."""
    if isinstance(value, dict):
        return {name: _canonical(child) for name, child in value.items()}
    if isinstance(value, list):
        return [_canonical(child) for child in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _shortened(value: JSON) -> str:
    return cut(repr(value), 120, "...")

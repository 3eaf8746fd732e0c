"""Any ctx.toml is read or refused in our words, and whatever asks for more than its own folder is told.

The oracle is written from docs/configuration.md and SECURITY.md, without the tables of ctx/config/trust.py.
`CTX_FUZZ_SECONDS=600` for ten minutes of it.
"""

import json
from typing import Any

import pytest
import tomli
from fuzz import fuzz, patient
from hypothesis import given
from hypothesis import strategies as st
from kit import ROOT
from test_trust_requests import HOSTILE

from ctx.config import Config, parse_config
from ctx.config.keys import Key, keys_of
from ctx.config.settings import NAMED_SECTIONS, SECTIONS
from ctx.config.trust import requests
from ctx.errors import ConfigError
from ctx.toml import tables_in

EXAMPLE = (ROOT / "config" / "ctx.toml").read_bytes()
ENVIRON = {"HOME": "/home/you", "TOKEN": "t0ken"}

ODD_TEXT = (
    *(
        "",
        " ",
        ".",
        "..",
        "./docs",
        "../x",
        "/etc",
        "~",
        "~/.ssh",
        "~nobody/x",
        "docs/../..",
        "\0",
        "a\0b",
        "link",
    ),
    *(
        "${TOKEN}",
        "${HOME}/x",
        "$${TOKEN}",
        "${",
        "${}",
        "${1x}",
        "${UNSET_NAME}",
        "\u00b2",
        "\u2028",
        "\x1b[31m",
    ),
    *(
        "127.0.0.1:7331",
        "0.0.0.0:80",
        "localhost:\u00b2",
        "localhost:99999",
        ":1",
        "[::1]:1",
        "x:1_0",
        "localhost:",
    ),
    *(
        "local",
        "ollama",
        "openai",
        "disabled",
        "rrf",
        "strict",
        "https://h.example/x",
        "git@h.example:x",
        "file:///x",
    ),
    *("hindsight", "sekha", "claude-recall", "**/" * 30, "*a" * 40, "[", "a" * 5000, "127.0.0.1", "search"),
)
ODD_NUMBERS = (0, -1, 1 << 70, 0.5, -0.0, 1e308, float("inf"), float("nan"), 65536)
TEXT = st.sampled_from(ODD_TEXT) | st.text(st.characters(codec="utf-8"), max_size=8)
NUMBER = st.integers(-(1 << 70), 1 << 70) | st.integers(-3, 200) | st.floats()
SCALAR = (
    TEXT
    | NUMBER
    | st.booleans()
    | st.sampled_from(["1979-05-27", "07:32:00"]).map(lambda text: {"date": text})
)
VALUE: Any = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Both tables; where they differ the second counts."""
    both = dict(first)
    for name, value in second.items():
        mine = both.get(name)
        both[name] = _merged(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else value
    return both


STRANGE: Any = st.dictionaries(TEXT | st.sampled_from(["hook", "llm", "docs"]), VALUE, max_size=2)


def _fitting(rule: Key) -> Any:
    """Values of the kind that a key takes, and now and then one that it does not."""
    kinds: dict[str, Any] = {
        "int": st.integers(-1, 10_000),
        "float": st.floats(-1, 1e4),
        "bool": st.booleans(),
        "strs": st.lists(TEXT, max_size=3),
        "glob": st.lists(TEXT, max_size=3),
    }
    return st.one_of(*[kinds.get(rule.kind, TEXT)] * 4, *[st.sampled_from(rule.choices or ("x",))] * 4, VALUE)


def _section(section: type[Any]) -> Any:
    keys = {key: _fitting(rule) for key, rule in keys_of(section).items()}
    table = st.fixed_dictionaries({}, optional=keys)
    return st.one_of(table, table, table, st.builds(_merged, table, STRANGE), VALUE)


def _group(name: str) -> Any:
    sections = {full: section for full, section in NAMED_SECTIONS.items() if full.startswith(name)}
    kinds = {full.partition(".")[2]: _section(section) for full, section in sections.items()}
    tables = {
        kind: table | st.dictionaries(TEXT | st.just("a"), table, max_size=2) for kind, table in kinds.items()
    }
    return st.fixed_dictionaries({}, optional=tables) | st.builds(_merged, STRANGE, STRANGE)


TABLES: Any = st.builds(
    _merged,
    st.fixed_dictionaries({}, optional={name: _section(section) for name, section in SECTIONS.items()}),
    st.fixed_dictionaries(
        {}, optional={name: _group(name) for name in ("connectors", "tools", "agents")} | {"hooks": VALUE}
    ),
)
ALONE: Any = st.sampled_from(
    [(name, key, rule) for name, section in SECTIONS.items() for key, rule in keys_of(section).items()]
).flatmap(
    lambda entry: st.builds(lambda value: {entry[0]: {entry[1]: value}}, _fitting(entry[2]))
)  # one key by itself: what is checked only where nothing else is wrong


def toml(value: Any) -> str:
    """A value as TOML writes it, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        if value.keys() == {"date"} and isinstance(value["date"], str) and value["date"][:2] in ("19", "07"):
            return value["date"]
        return "{" + ", ".join(f"{_quoted(name)} = {toml(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read(data: bytes) -> Config | None:
    """The configuration these bytes are; None where they are refused as they should be."""
    try:
        return _parsed(tables_in(data, "ctx.toml"), data)
    except ConfigError:
        return None


def _parsed(tables: dict[str, Any], content: bytes = b"") -> Config | None:
    path = "/srv/clone/ctx.toml"
    try:
        return parse_config(
            tables, shown="ctx.toml", path=path, root="/srv/clone", environ=ENVIRON, content=content
        )
    except ConfigError:
        return None


@pytest.mark.parametrize("name", [*SECTIONS, *NAMED_SECTIONS])
def test_no_odd_value_of_a_key_is_more_than_a_mistake(name: str) -> None:
    section = SECTIONS.get(name) or NAMED_SECTIONS[name]
    for key in keys_of(section):
        for value in (*ODD_TEXT, *ODD_NUMBERS, [], ["\0"], {}, {"a": {}}, True):
            tables: dict[str, Any] = {key: value}
            for step in reversed(name.split(".") if name in SECTIONS else [*name.split("."), "a"]):
                tables = {step: tables}
            config = _parsed(tables)
            assert config is None or (value not in ("\0", "a\0b", float("inf")) and value == value)
            assert all(isinstance(line, str) for line in requests(tables, "/srv/clone"))


@patient
def test_whatever_the_tables_hold_they_are_read_or_refused_in_our_words() -> None:
    @given(tables=TABLES | ALONE | ALONE | ALONE)
    def check(tables: Any) -> None:
        text = "\n".join(f"{_quoted(name)} = {toml(value)}" for name, value in tables.items())
        parsed = tomli.loads(text)
        _read(text.encode())
        assert all(isinstance(line, str) for line in requests(parsed, "/srv/clone"))

    fuzz(check, share=0.25)


@patient
def test_whatever_happened_to_the_bytes_of_a_file_it_is_read_or_refused_in_our_words() -> None:
    @given(
        cuts=st.lists(
            st.tuples(st.integers(0, len(EXAMPLE)), st.integers(0, 40), st.binary(max_size=6)), max_size=4
        ),
        uncomment=st.booleans(),
    )
    def check(cuts: list[tuple[int, int, bytes]], uncomment: bool) -> None:
        data = EXAMPLE.replace(b"\n# ", b"\n") if uncomment else EXAMPLE
        for start, length, piece in cuts:
            data = data[:start] + piece + data[start + length :]
        _read(data)

    fuzz(check, share=0.25)


@patient
def test_no_table_hides_a_hostile_one() -> None:
    # A link needs a folder; of two reasons to send documents away the address is the one that is told, and a
    # model is loaded by the local provider alone.
    told_otherwise = "loads the model"
    cases = sorted(
        case
        for case, (_, words) in HOSTILE.items()
        if "-a-link" not in case and not words.startswith(told_otherwise) and case != "embedding-service"
    )

    @given(case=st.sampled_from(cases), tables=TABLES)
    def check(case: str, tables: Any) -> None:
        text, words = HOSTILE[case]
        lines = requests(_merged(tables, tomli.loads(text)), "/srv/clone")
        assert any(words in line for line in lines), (words, lines)

    fuzz(check, 100, share=0.25)

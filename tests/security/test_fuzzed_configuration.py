"""Any ctx.toml is read, or refused with an error of ours that names the mistake.

`CTX_FUZZ_SECONDS=600` for ten minutes of it.
"""

from typing import Any

import pytest
from fuzz import fuzz, patient
from hypothesis import given
from hypothesis import strategies as st
from kit import ROOT

from ctx.config import Config, ConfigFile
from ctx.config.settings import NAMED_SECTIONS, SECTIONS
from ctx.config.toml import keys_of, tables_in
from ctx.config.trust import requests
from ctx.errors import ConfigError

EXAMPLE = (ROOT / "config" / "ctx.toml").read_bytes()
ENVIRON = {"HOME": "/home/you", "TOKEN": "t0ken"}

PATHS = (".", "..", "./docs", "../x", "/etc", "~", "~/.ssh", "~nobody/x", "docs/../..", "\0", "a\0b", "link")
VARIABLES = ("${TOKEN}", "${HOME}/x", "$${TOKEN}", "${", "${}", "${1x}", "${UNSET_NAME}")
ADDRESSES = ("127.0.0.1:7331", "0.0.0.0:80", "localhost:\u00b2", "localhost:99999", ":1", "[::1]:1", "x:1_0")
WORDS = ("local", "ollama", "openai", "disabled", "rrf", "strict", "hindsight", "claude-recall", "search")
URLS = ("https://h.example/x", "git@h.example:x", "file:///x")
PATTERNS = ("**/" * 30, "*a" * 40, "[", "a" * 5000, "\u00b2", "\u2028", "\x1b[31m", "", " ")
ODD_TEXT = (*PATHS, *VARIABLES, *ADDRESSES, *WORDS, *URLS, *PATTERNS)
ODD_NUMBERS = (0, -1, 1 << 70, 0.5, -0.0, 1e308, float("inf"), float("nan"), 65536)


def _read(data: bytes) -> Config | None:
    """The configuration these bytes are; None where they are refused as they should be."""
    try:
        return _parsed(tables_in(data, "ctx.toml"), data)
    except ConfigError:
        return None


def _parsed(tables: dict[str, Any], content: bytes = b"") -> Config | None:
    path = "/srv/clone/ctx.toml"
    try:
        return ConfigFile("ctx.toml", "/srv/clone", tables, path, content).config(ENVIRON)
    except ConfigError:
        return None


@pytest.mark.parametrize("name", [*SECTIONS, *NAMED_SECTIONS])
def test_an_odd_value_is_read_or_refused(name: str) -> None:
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
def test_a_file_with_any_changed_bytes_is_read_or_refused() -> None:
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

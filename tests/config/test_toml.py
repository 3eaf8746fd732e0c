"""TOML files that cannot be read: the message names the file."""

from pathlib import Path

import pytest

from ctx.config.toml import read_toml
from ctx.errors import ConfigError


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a = ", "is not TOML"),
        (b"a = '\xff'", "is not UTF-8 (byte 5)"),
        (b"[server]\nmax_body_bytes = " + b"9" * 5_000, "a number of more than 4,300 digits"),
        (b"[server]\nmax_body_bytes = 0x" + b"f" * 5_000, "a number of more than 4,300 digits"),
        (b"a = 1\n#" + b" " * 1_000_000, "is larger than 1,000,000 bytes"),
        (None, "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_said_with_the_files_name(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "ctx.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_toml(str(file), "ctx.toml")
    assert caught.value.message.startswith("ctx.toml: ")
    assert words in caught.value.message

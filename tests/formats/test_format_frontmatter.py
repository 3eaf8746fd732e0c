"""Front matter in YAML, TOML and JSON."""

import json
import subprocess
import sys

import pytest

from ctx.formats.frontmatter import NO_FRONT_MATTER, read_front_matter
from ctx.models import JSON


def _metadata(text: str) -> dict[str, JSON] | None:
    front = read_front_matter(text)
    return front.metadata if front else None


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("key: plain words", "plain words"),
        ('key: "a \\"quoted\\" one: two"', 'a "quoted" one: two'),
        ("key: 12", 12),
        ("key: true", True),
        ("key: 2024-01-31", "2024-01-31"),
        ("key: 007", "007"),
        ("key: [a, 'b, c', 3]", ["a", "b, c", 3]),
        ("key:\n  - a\n  - b c", ["a", "b c"]),
        ("key: >\n  folded\n  text", "folded text"),
        ("key: |\n  line\n  line", "line\nline"),
        ("key:\n  sub: 1\n  other: x", {"sub": 1, "other": "x"}),
    ],
)
def test_simple_yaml_is_read(line: str, value: JSON) -> None:
    assert _metadata(f"---\n{line}\n---\nbody") == {"key": value}


def test_toml_and_json_are_read() -> None:
    assert _metadata('+++\ntitle = "T"\ndate = 2024-01-31\n[extra]\nx = [1, 2]\n+++\nbody') == {
        "title": "T",
        "date": "2024-01-31",
        "extra": {"x": [1, 2]},
    }
    assert _metadata('{\n"title": "T",\n"n": null}\nbody') == {"title": "T", "n": None}


@pytest.mark.parametrize(
    "text",
    ["---\nno key here\n---\n", "---\nkey: v\n", "--- \nkey: v\n---\n", '{"a": 1', '{"a": 1}', "text", ""],
)
def test_text_without_front_matter_is_left_alone(text: str) -> None:
    assert read_front_matter(text) is NO_FRONT_MATTER


@pytest.mark.parametrize(
    "text",
    [
        '---\n: : :\n- [\nkey: [a, "b\n  x: {\n!!python/object: y\n&a *b\n---\nbody',
        '---\nkey: "unclosed\n---\nbody',
        "+++\nnot toml =\n+++\nbody",
        "---\n" + "key: v\n" * 5000 + "---\nbody",
        "---\n\tkey: v\nother: x\n---\nbody",
    ],
)
def test_malformed_front_matter_does_not_fail(text: str) -> None:
    front = read_front_matter(text)
    assert front is not None
    assert text[front.end :] == "body"


def test_yaml_1_1_surprises_stay_text() -> None:
    block = "---\nat: 12:30\ncountry: no\nfrom: 2024-01-31T10:00:00Z\nnumber: 1_000\n---\nbody"
    assert _metadata(block) == {
        "at": "12:30",
        "country": "no",
        "from": "2024-01-31T10:00:00Z",
        "number": "1_000",
    }


def test_an_alias_bomb_is_treated_as_text() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{key}: &{key} [{', '.join([f'*{before}'] * 9)}]"
        for before, key in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    assert read_front_matter("---\n" + "\n".join(lines) + "\n---\nbody") is NO_FRONT_MATTER


@pytest.mark.parametrize("text", ["{", "[", "? ", "- ", "{a: "])
def test_a_block_nested_without_end_takes_no_process_along(text: str) -> None:
    """In a process of its own: what the library in C does there ends it (SIGSEGV), not a test."""
    code = (
        "import sys; from ctx.formats.frontmatter import read_front_matter;"
        "print(read_front_matter('---\\n' + sys.argv[1] * (65_000 // len(sys.argv[1])) + '\\n---\\nhello\\n'))"
    )
    reply = subprocess.run([sys.executable, "-c", code, text], capture_output=True, text=True, timeout=100)
    assert (reply.returncode, reply.stdout) == (0, f"{NO_FRONT_MATTER}\n")


@pytest.mark.parametrize(
    "number", ["9" * 5_000, "0x" + "f" * 5_000, "0b" + "1" * 20_000, f"[{{ b = 0x{'f' * 5_000} }}]"]
)
def test_a_number_of_more_digits_than_python_writes_is_no_number(number: str) -> None:
    """Who keeps metadata writes it down: one such document ended the run for all others."""
    front = read_front_matter(f"+++\na = {number}\n+++\nhello\n")
    assert front is not None
    assert len(json.dumps(front.metadata)) < 3_000

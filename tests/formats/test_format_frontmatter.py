"""Front matter in YAML, TOML and JSON."""

import json
import subprocess
import sys

import pytest

from ctx.formats.frontmatter import NO_FRONT_MATTER, front_title, read_front_matter
from ctx.types import JSON


def _metadata(text: str) -> dict[str, JSON] | None:
    front = read_front_matter(text)
    return front.metadata if front else None


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("key: plain words", "plain words"),
        ('key: "a \\"quoted\\" one: two"', 'a "quoted" one: two'),
        ("key: 'it''s'", "it's"),
        ("key: 12", 12),
        ("key: -1.5", -1.5),
        ("key: true", True),
        ("key: null", None),
        ("key:", None),
        ("key: 2024-01-31", "2024-01-31"),
        ("key: 1.2.3", "1.2.3"),
        ("key: 007", "007"),
        ("key: words # a comment", "words"),
        ("key: a#b", "a#b"),
        ("key: [a, 'b, c', 3]", ["a", "b, c", 3]),
        ("key: []", []),
        ("key:\n  - a\n  - b c", ["a", "b c"]),
        ("key:\n- a\n- b", ["a", "b"]),
        ("key: >\n  folded\n  text", "folded text"),
        ("key: |\n  line\n  line", "line\nline"),
        ("key: goes\n  on", "goes on"),
        ("key:\n  sub: 1\n  other: x", {"sub": 1, "other": "x"}),
    ],
)
def test_simple_yaml_is_read(line: str, value: JSON) -> None:
    assert _metadata(f"---\n{line}\n---\nbody") == {"key": value}


def test_the_text_begins_after_the_block() -> None:
    text = "---\na: b\n---\nbody"
    front = read_front_matter(text)
    assert front is not None
    assert text[front.end :] == "body"


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
def test_what_is_no_front_matter_is_text(text: str) -> None:
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


def test_values_are_bounded() -> None:
    metadata = _metadata("---\nkey: " + "x" * 10_000 + "\n---\n")
    assert metadata is not None
    assert len(str(metadata["key"])) <= 2000


def test_lists_of_mappings_and_flow_mappings_keep_their_values() -> None:
    block = (
        "---\nauthors:\n  - name: Ann\n    mail: ann@example.org\n  - {name: Bob, mail: null}\nbase: &x "
        "value\n---\nbody"
    )
    assert _metadata(block) == {
        "authors": [{"name": "Ann", "mail": "ann@example.org"}, {"name": "Bob", "mail": None}],
        "base": "value",
    }


def test_what_people_write_is_not_what_yaml_once_made_of_it() -> None:
    block = "---\nat: 12:30\ncountry: no\nfrom: 2024-01-31T10:00:00Z\nnumber: 1_000\n---\nbody"
    assert _metadata(block) == {
        "at": "12:30",
        "country": "no",
        "from": "2024-01-31T10:00:00Z",
        "number": "1_000",
    }


def test_a_block_that_is_not_quite_yaml_still_gives_its_title() -> None:
    assert (
        _metadata("---\ntitle: Caching: how and why\ntags: [a, b\n---\nbody")["title"]
        == "Caching: how and why"
    )


@pytest.mark.parametrize("title", ["[broken yaml", "{{ page.title }}: {", "{% block title: %}"])
def test_a_title_that_a_template_would_fill_or_yaml_cannot_read_is_none(title: str) -> None:
    front = read_front_matter(f"---\nauthor: Ann: Bo\ntitle: {title}\n---\n# After\n")
    assert front is not None
    assert front_title(front) is None
    assert front.metadata == {"author": "Ann: Bo"}


def test_a_block_that_repeats_itself_by_aliases_is_text() -> None:
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


def test_a_large_number_is_one() -> None:
    front = read_front_matter(f"+++\na = {10**40}\nb = 0xff\n+++\nhello\n")
    assert front is not None
    assert front.metadata == {"a": 10**40, "b": 255}

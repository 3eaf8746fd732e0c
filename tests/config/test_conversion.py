"""Converting a configuration of Context Harness."""

import tomllib

import pytest

from ctx.config.compat import converted
from ctx.models import JSON


def conversion(text: str, script: str = "") -> tuple[str, list[str]]:
    return converted(tomllib.loads(text), "/p", "/p", lambda path: script)


def tables(text: str, script: str = "") -> dict[str, JSON]:
    return tomllib.loads(conversion(text, script)[0])


def test_values_that_are_its_own_defaults_are_no_choice_and_others_are_kept() -> None:
    text = "[retrieval]\nfinal_limit = 12\nhybrid_alpha = 0.6\ncandidate_k_keyword = 80\n"
    assert "retrieval" not in tables(text)
    text = (
        "[retrieval]\nfinal_limit = 50\nhybrid_alpha = 0.3\n[chunking]\nmax_tokens = 400\noverlap_tokens = 9"
    )
    assert tables(text)["retrieval"] == {"final_limit": 50, "hybrid_alpha": 0.3}
    assert tables(text)["chunking"] == {"max_tokens": 400}
    notes = "\n".join(conversion(text)[1])
    assert "[chunking] max_tokens counts the model's tokens" in notes


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", {"provider": "disabled"}),
        (
            'provider = "local"\nmodel = "bge-small-en-v1.5"\ndims = 384',
            {"provider": "local", "model": "bge-small-en-v1.5"},
        ),
        (
            'provider = "openai"\nmodel = "text-embedding-3-small"\ndims = 1536',
            {
                "provider": "openai",
                "model": "text-embedding-3-small",
                "dims": 1536,
                "api_key_env": "OPENAI_API_KEY",
            },
        ),
        (
            'provider = "ollama"\nmodel = "nomic-embed-text"\ndims = 768\nurl = "http://localhost:11434"',
            {
                "provider": "ollama",
                "model": "nomic-embed-text",
                "dims": 768,
                "url": "http://localhost:11434",
            },
        ),
    ],
)
def test_a_provider_keeps_its_meaning(text: str, entries: JSON) -> None:
    assert tables(f"[embedding]\n{text}")["embedding"] == entries


@pytest.mark.parametrize(
    ("glob", "crossing"),
    [
        ("*.md", "*.md"),
        ("**/*.md", "**/*.md"),
        ("docs/*.md", "docs/**/*.md"),
        ("docs/**", "docs/**"),
        ("docs/**/*.md", "docs/**/*.md"),
        ("docs/guide.md", "docs/guide.md"),
    ],
)
def test_a_star_across_folders_is_converted(glob: str, crossing: str) -> None:
    text = f'[connectors.filesystem.docs]\nroot = "."\ninclude_globs = ["{glob}"]'
    assert tables(text)["connectors"]["filesystem"]["docs"]["include_globs"] == [crossing]
    assert any("crossed folders" in note for note in conversion(text)[1]) == (glob != crossing)


def test_what_was_taken_where_no_glob_was_named_is_still_all_that_is_taken() -> None:
    text = (
        '[connectors.filesystem]\nroot = "."\n[connectors.git.x]\nurl = "https://h/x.git"\ncache_dir = "./c"'
    )
    connectors = tables(text)["connectors"]
    assert connectors["filesystem"]["filesystem"]["include_globs"] == ["**/*.md", "**/*.txt"]
    assert connectors["git"]["x"] == {
        "url": "https://h/x.git",
        "include_globs": ["**/*.md", "**/*.txt"],
        "branch": "main",
    }


def test_the_variables_that_a_script_reads_are_granted_by_name() -> None:
    text = '[connectors.script.x]\npath = "./x.lua"\n[connectors.script.x.deep]\nsince = 2024-01-01'
    script = "local a = env.get('ONE')\nlocal b = env.get \"TWO\"\nlocal c = env.get(name)"
    entries = tables(text, script)["connectors"]["script"]["x"]
    assert entries["env"] == ["ONE", "TWO"]
    assert entries["deep"]["since"].isoformat() == "2024-01-01"

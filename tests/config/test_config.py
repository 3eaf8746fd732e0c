"""Reading ctx.toml, and errors that say how to fix it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ctx.config import Config, default_config, load_config
from ctx.config.toml import read_toml
from ctx.errors import ConfigError
from ctx.files import bundled_path


def written(folder: Path, text: str, name: str = "ctx.toml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def loaded(folder: Path, text: str, environ: dict[str, str] | None = None) -> Config:
    return load_config(str(written(folder, text)), environ or {})


def complaint(folder: Path, text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text, environ)
    return caught.value.message


def test_an_empty_file_is_a_whole_configuration(tmp_path: Path) -> None:
    config = loaded(tmp_path, "")
    assert replace(config, path=None, chosen=False) == default_config(str(tmp_path))
    assert config.db.path == str(tmp_path / ".ctx" / "ctx.db")
    assert config.server.bind == "127.0.0.1:7331"


def test_the_shipped_example_loads_as_it_stands(tmp_path: Path) -> None:
    config = loaded(tmp_path, Path(bundled_path("config", "ctx.toml")).read_text())
    assert [source.name for source in config.filesystems] == ["filesystem:docs"]


def test_an_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    assert complaint(tmp_path, "[server]\nbnid = 'x'").endswith(
        "[server] bnid: unknown key; did you mean 'bind'?"
    )
    assert "did you mean 'retrieval'?" in complaint(tmp_path, "[retreival]\nfinal_limit = 3")


def test_keys_of_context_harness_that_do_nothing_here_are_told_why_and_the_rest_starts(
    tmp_path: Path,
) -> None:
    config = loaded(
        tmp_path, "[vector_index]\nbackend = 'auto'\n[retrieval]\ndoc_agg = 'avg'\nfinal_limit = 7"
    )
    assert config.retrieval.final_limit == 7
    first, second = config.warnings
    assert "[vector_index] has no effect: the vector index needs no settings; delete the section" in first
    assert "[retrieval] doc_agg has no effect: the best chunk of a document decides" in second


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    message = complaint(
        tmp_path,
        "[server]\nbnid = 'x'\nmetrics = 1\n[connectors.git.x]\n[connectors.filesystem.d]\nroot = "
        "'${GONE}'\n[agent]\na = 1",
    )
    assert sorted(re.split(r"ctx\.toml:\d+: ", line)[1].split(": ")[0] for line in message.splitlines()) == [
        "[agent]",
        "[connectors.filesystem.d] root",
        "[connectors.git.x] url",
        "[server] bnid",
        "[server] metrics",
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("# bind\n\n[server]\n# bind = 1\nbind = 1", "ctx.toml:5: [server] bind"),
        (
            "[agents.inline.a]\nsystem_prompt = '''\ntools = 3\n'''\ntools = 3",
            "ctx.toml:5: [agents.inline.a] tools",
        ),
        ("x = 1\n[server]\nbind = 1", "ctx.toml:1: [x]: unknown key"),
        ("[ server ]\n'bind' = 1 # [x]", "ctx.toml:2: [server] bind"),
        ("server.bind = 1", "ctx.toml:1: [server] bind"),
        ('server = {"bind" = 1}', "ctx.toml:1: [server] bind"),
        ("[connectors.git.\"a.b\"]\nbranch = 'x'", "ctx.toml:1: [connectors.git.a.b] url: is required"),
        ("[agents.inline.a]\ntools = [\n  \"'''\",\n  '#', 3]", "ctx.toml:2: [agents.inline.a] tools"),
    ],
)
def test_a_mistake_names_its_line(tmp_path: Path, text: str, place: str) -> None:
    assert place in complaint(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[connectors.filesystem.notes]\nroot = '.'\nbind = '127.0.0.1:1'",
            "ctx.toml:3: `bind` belongs in [server], not in [connectors.filesystem.notes]",
        ),
        ("[db]\nenabled = true", "`enabled` belongs in [mcp] or [watch] or [packs], not in [db]"),
        ("[server]\nbranch = 'main'", "`branch` belongs in [connectors.git.NAME], not in [server]"),
        ("final_limit = 3", "`final_limit` belongs in [retrieval], not above all tables"),
        ("[filesystem.docs]\nroot = '.'", "[filesystem]: unknown key; did you mean [connectors.filesystem]?"),
    ],
)
def test_a_key_in_the_wrong_table_is_told_where_it_belongs(tmp_path: Path, text: str, words: str) -> None:
    assert words in complaint(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "complaint_words"),
    [
        ("[server]\nbind = 7331", "must be a string, got a whole number (7331)"),
        ("[server]\nbind = 'localhost'", "must be HOST:PORT"),
        ("[server]\nbind = '::1:7331'", "or [::1]:7331, got '::1:7331'"),
        ("[retrieval]\nfinal_limit = 0", "must be between 1 and 100, got 0"),
        ("[retrieval]\nfinal_limit = true", "must be a whole number, got a boolean"),
        ("[retrieval]\nhybrid_alpha = 1.5", "must be between 0 and 1"),
        ("[retrieval]\nfusion = 'max'", "must be one of rrf, minmax, dbsf, got 'max'"),
        ("[watch]\nenabled = 'yes'", "must be true or false"),
        ("[server]\ncors_origins = '*'", "must be a list of strings"),
        ("[connectors]\nfilesystem = 3", "must be a table"),
        (
            "[connectors.filesystem]\nroot = '.'\ninclude_globs = ['**', '!private/**']",
            "'!private/**' is not a path below the source's root; use exclude_globs to leave files out",
        ),
        (
            "[connectors.git]\nurl = 'https://e.x/a.git'\nexclude_globs = ['../private']",
            "exclude_globs: '../private' is not a path below",
        ),
        (
            "[connectors.filesystem]\nroot = '.'\nexclude_globs = [' ']",
            "exclude_globs: ' ' is not a path below",
        ),
        (
            "[connectors.filesystem]\nroot = '.'\ninclude_globs = []",
            "include_globs: is empty, so nothing would be",
        ),
        ("[connectors.filesystem]", "[connectors.filesystem] root: is required"),
        ("[connectors.filesytem]\nroot = '.'", "did you mean 'filesystem'?"),
        ("[connectors.git.x]\nbranch = 'main'", "[connectors.git.x] url: is required"),
        ("[chunking]\nmax_tokens = 100\noverlap_tokens = 80", "at most half"),
        ("[embedding]\nprovider = 'openai'", "needs model and dims"),
        ("[embedding]\nurl = 'http://localhost'", "has no effect with provider 'local'"),
        ("[tools.script.x]\npath = './gone.lua'", "no such file: ./gone.lua"),
        ("[packs.sekha]\napi_key_env = 'K'", 'add it: [packs] enabled = ["sekha"]'),
        ("[packs]\nenabled = ['sekah']", "did you mean 'sekha'?"),
        ("[packs]\nenabled = ['sekha']\n[packs.sekha]\nprofle = 'seed'", "did you mean 'profile'?"),
        ("[packs]\nenabled = ['sekha']\n[packs.sekha]\napi_key_env = 7", "must be a string"),
        ("[packs]\nenabled = ['sekha']\n[packs.sekha]\nrate_limit_per_minute = -1", "must be between 0"),
        ("a = [", "is not TOML"),
    ],
)
def test_wrong_values_are_named(tmp_path: Path, text: str, complaint_words: str) -> None:
    message = complaint(tmp_path, text)
    assert complaint_words in message
    assert re.search(r"ctx\.toml(:\d)?: ", message)


def test_variables_are_replaced_once(tmp_path: Path) -> None:
    config = loaded(tmp_path, "[connectors.git.x]\nurl = '${A}/x.git'", {"A": "https://${A}", "B": "no"})
    assert config.gits[0].url == "https://${A}/x.git"


def test_an_unset_variable_is_named_and_can_be_escaped(tmp_path: Path) -> None:
    assert "the environment variable TOKEN is not set" in complaint(
        tmp_path, "[connectors.git.x]\nurl = 'https://${TOKEN}@h/x'"
    )
    assert (
        loaded(tmp_path, "[connectors.git.x]\nurl = 'https://h/$${TOKEN}'").gits[0].url
        == "https://h/${TOKEN}"
    )


def test_named_and_unnamed_sources(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        "[connectors.filesystem]\nroot = 'a'\n[connectors.filesystem.docs]\nroot = "
        "'b'\n[connectors.git]\nurl = './r.git'",
    )
    assert [(source.name, Path(source.root).name) for source in config.filesystems] == [
        ("filesystem", "a"),
        ("filesystem:docs", "b"),
    ]
    assert (config.gits[0].name, config.gits[0].url) == ("git", str(tmp_path / "r.git"))


def test_a_link_is_an_address_with_the_path_in_it(tmp_path: Path) -> None:
    section = '[connectors.filesystem]\nroot = "."\nlink = '
    for link in ("file", "https://wiki.example/{path}", "vscode://file/{path}", "x-my.app+1://{path}"):
        assert loaded(tmp_path, f'{section}"{link}"').filesystems[0].link == link
    odd = (
        "javascript://%0aalert(1)/{path}",
        "JavaScript://{path}",
        "java\\tscript://{path}",
        "data://{path}",
    )
    for link in ("", "https://wiki.example/", "{path}", "://{path}", " https://a/{path}", *odd):
        assert "must be" in complaint(tmp_path, f'{section}"{link}"')


def test_other_keys_of_a_script_are_its_configuration(tmp_path: Path) -> None:
    written(tmp_path, "tool = {}", "t.lua")
    config = loaded(
        tmp_path,
        "[tools.script.t]\npath = 't.lua'\ntoken = '${T}'\nsince = 2026-01-31\nnested = {a = [1, 2.5]}",
        {"T": "s"},
    )
    assert config.script_tools[0].config == {"token": "s", "since": "2026-01-31", "nested": {"a": [1, 2.5]}}
    assert config.script_tools[0].timeout_s == 30


@pytest.mark.parametrize("place", ["ctx.toml", "config/ctx.toml", ".ctx/config.toml"])
def test_relative_paths_mean_the_project_from_wherever_the_file_lies(tmp_path: Path, place: str) -> None:
    path = written(tmp_path, "[connectors.filesystem]\nroot = './docs'", place)
    assert load_config(str(path), {}).filesystems[0].root == str(tmp_path / "docs")


@pytest.mark.parametrize(
    ("text", "complaint_words"),
    [
        ('engine = "opensearch"', "[index] url: is required for the engine 'opensearch'"),
        ('engine = "opensearch"\nurl = "os1:9200"', "[index] url: must be https://host:9200, or several"),
        (
            'url = "https://os1:9200"',
            '[index] url: has no effect with the local engine; delete it, or set engine = "opensearch"',
        ),
        ('engine = "elastic"', "[index] engine: must be one of local, opensearch, got 'elastic'"),
        (
            'engine = "opensearch"\nurl = "https://os1"\nname = "Ctx*"',
            "[index] name: must have 1 to 64 of a-z 0-9",
        ),
        (
            'engine = "opensearch"\nurl = "https://me:pw@os1"\napi_key = "k"',
            "[index] api_key: cannot be used together with a user and password in url",
        ),
    ],
)
def test_a_search_engine_is_told_what_it_lacks(tmp_path: Path, text: str, complaint_words: str) -> None:
    assert complaint_words in complaint(tmp_path, f"[index]\n{text}")


@pytest.mark.parametrize(
    "url", ["", "mysql://ctx@db/ctx", "host=db dbname=ctx", ".ctx/ctx.db", "postgresql:/db"]
)
def test_a_store_that_is_no_database_is_refused_before_anything_is_written(tmp_path: Path, url: str) -> None:
    text = f'[store]\nurl = "{url}"\n'
    assert "[store] url: must be postgresql://user@host/database" in complaint(tmp_path, text)
    unset = complaint(tmp_path, '[store]\nurl = "${CTX_DATABASE_URL}"\n', {"CTX_DATABASE_URL": url})
    assert "[store] url: must be" in unset
    assert "mysql" not in unset, "it may hold a password"


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

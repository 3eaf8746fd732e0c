"""A whole store moves to a database and back: the same ids, and the same replies to searches and recalls.

`CTX_SEARCHES` and `CTX_RECALLS` say how many are compared.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import ROOT, project, workspace

from ctx import cli
from ctx.config import load_config
from ctx.memory.records import Provenance
from ctx.models import JSON, Caller
from ctx.server.keys import key_ring
from ctx.workspace import Workspace

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SEARCHES = int(os.environ.get("CTX_SEARCHES", "60"))
RECALLS = int(os.environ.get("CTX_RECALLS", "30"))
DOCUMENTS = (
    "ranking.md",
    "configuration.md",
    "cluster.md",
    "data.md",
    "lua-api.md",
    "http-api.md",
    "packs.md",
)
CALLER = Caller("cli")
KEEP = """tool = {name = "keep", description = "keeps a count", parameters = {}}
function tool.execute(params, context) return {total = context.store.add("count", 1)} end
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with some of ctx's own documentation, a pack with sessions and a script that keeps
    something.
    """
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    texts = {name: (ROOT / "docs" / name).read_text() for name in DOCUMENTS}
    path = project(
        tmp_path / "project", texts, '[embedding]\nprovider = "local"\n[packs]\nenabled = ["claude-recall"]\n'
    )
    (tmp_path / "project" / "keep.lua").write_text(KEEP)
    path.write_text(path.read_text() + '[tools.script.keep]\npath = "./keep.lua"\n')
    monkeypatch.setenv("CTX_CONFIG", str(path))
    return path


def _sentences() -> list[str]:
    text = " ".join((ROOT / "docs" / name).read_text() for name in DOCUMENTS)
    prose = re.sub(r"[`*#|\[\]()]|https?:\S+", " ", text)
    return [
        sentence
        for part in re.split(r"(?<=[.:])\s+", prose)
        if 30 < len(sentence := " ".join(part.split())) < 300
    ]


def fill(space: Workspace) -> None:
    """Documents, memories of two banks, a key, a session, and a value that a script keeps."""
    space.load_extensions()
    space.refresh(space.source_names())
    space.indexer.embed()
    lots = random.Random(3)
    bank = space.memory.bank("alice", Provenance(session="s1"))
    sentences = _sentences()
    bank.put_many(
        [
            {"text": sentence, "kind": "fact"}
            for sentence in lots.sample(sentences, k=min(300, len(sentences)))
        ]
    )
    for number in range(20):
        bank.put(f"Anna's desk is on floor {number % 4} now", dedupe="exact")
    space.memory.bank("bruno").put("Bruno drinks tea")
    assert space.toolbox.call("keep", {}, CALLER)["total"] == 1


def replies(space: Workspace) -> Iterator[JSON]:
    """What searches and recalls answer: ids, in order, with their scores."""
    lots = random.Random(11)
    sentences = _sentences()
    for number in range(SEARCHES):
        words = lots.choice(sentences).split()
        query = " ".join(lots.sample(words, k=min(len(words), lots.randint(1, 6))))
        mode = ("keyword", "semantic", "hybrid")[number % 3]
        reply = space.toolbox.call("search", {"query": query, "mode": mode, "limit": 50}, CALLER)
        yield [(result["id"], round(result["score"], 4), result["snippet"]) for result in reply["results"]]
    bank = space.memory.bank("alice")
    for number in range(RECALLS):
        words = lots.choice(sentences).split()
        query = " ".join(lots.sample(words, k=min(len(words), lots.randint(2, 8))))
        reply = bank.search(
            query, limit=50, mode=("hybrid", "keyword")[number % 2], include_superseded=number % 3 == 0
        )
        yield [(result["record"], result["score"]) for result in reply["results"]]
    yield [bank.journal(limit=1000), list(bank.export(include_deleted=True)), space.memory.banks()]


def migrated(*values: str) -> int:
    return cli.main(["migrate", "--json", *values])


def test_a_store_moves_to_a_database_and_back_with_the_same_replies(
    config: Path, database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with workspace(config) as space:
        fill(space)
        expected = list(replies(space))
        [pack] = space.packs
        session = pack.sessions.open(place="/project")
    assert sum(map(len, expected)) > SEARCHES
    ring = key_ring(load_config(str(config), os.environ))
    key, record = ring.create("laptop", ["alice"])
    capsys.readouterr()

    assert migrated("--to", database_url) == 0
    forth = json.loads(capsys.readouterr().out)
    assert (forth["banks"], forth["keys"], forth["sessions"], forth["values"]) == (2, 1, 1, 1)
    text = config.read_text()
    config.write_text(f'[store]\nurl = "{database_url}"\n{text}')
    with workspace(config) as space:
        space.indexer.repair()
        assert list(replies(space)) == expected
        space.load_extensions()
        assert space.toolbox.call("keep", {}, CALLER)["total"] == 2
        [pack] = space.packs
        assert pack.sessions.open(place="/project") == session
    shared = key_ring(load_config(str(config), os.environ))
    assert shared.list() == [record]
    shared.revoke("laptop")
    shared.close()

    config.write_text(text)
    assert migrated("--from", database_url, "--to", str(tmp_path / "back" / "ctx.db")) == 0
    back = json.loads(capsys.readouterr().out)
    assert back["digest"] == forth["digest"]
    assert back["memory_digest"] == forth["memory_digest"]
    config.write_text(f'[db]\npath = "{tmp_path / "back" / "ctx.db"}"\n{text}')
    with workspace(config) as space:
        space.indexer.repair()
        assert list(replies(space)) == expected
        space.load_extensions()
        assert space.toolbox.call("keep", {}, CALLER)["total"] == 3
        assert space.packs[0].sessions.open(place="/project") == session
    assert [entry.revoked_ms is None for entry in key_ring(load_config(str(config), os.environ)).list()] == [
        False
    ]
    assert key


def test_a_store_is_not_moved_to_itself_by_another_name(
    tmp_path: Path, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = project(tmp_path, {"otter.md": "The otter sleeps.\n"})
    store = f'[store]\nurl = "{database_url}"\n'
    config.write_text(store + config.read_text())
    with workspace(config) as space:
        space.refresh(space.source_names())
    alias = f"{database_url}?application_name=mover"
    assert cli.main(["migrate", "--to", alias, "--replace", "--config", str(config)]) == 2
    assert "both are the same store" in capsys.readouterr().err
    with workspace(config) as space:
        assert space.catalog.stats()["documents"] == 1


def test_a_store_without_its_sources_is_found_in_after_the_move_and_an_index_run(
    tmp_path: Path, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = project(tmp_path, {"otter.md": "The otter sleeps.\n"})
    with workspace(config) as space:
        space.refresh(space.source_names())
    assert cli.main(["migrate", "--to", database_url, "--config", str(config)]) == 0
    other = project(tmp_path / "other", {}, '[embedding]\nprovider = "disabled"\n[db]\npath = "./ctx.db"\n')
    command = ["migrate", "--from", database_url, "--config", str(other)]
    assert cli.main(command) == 0
    assert "1 document, 1 chunk" in capsys.readouterr().out
    other.write_text(other.read_text().partition("[connectors")[0])
    assert cli.main(["index", "--config", str(other)]) == 0
    capsys.readouterr()
    assert cli.main(["search", "otter", "--config", str(other)]) == 0
    assert "The otter sleeps." in capsys.readouterr().out


MOVES_AND_DIES = """import os, signal, sys
from ctx.config import load_config
from ctx.cluster.migrate import migrate

def progress(step, count, total):
    if step == sys.argv[4]:
        assert count < total
        os.kill(os.getpid(), signal.SIGKILL)

migrate(load_config(sys.argv[1], os.environ), sys.argv[2], sys.argv[3], replace=False, progress=progress)
"""


def killed_move(config: Path, origin: str, target: str, step: str) -> None:
    """A move that ends by `kill -9` after the first part of a step."""
    command = [sys.executable, "-c", MOVES_AND_DIES, str(config), origin, target, step]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL


def refusals(config: Path) -> list[str]:
    """What each command says that would work with the store."""
    said = []
    for command in (
        ("search", "otter"),
        ("index",),
        ("serve", "mcp"),
        ("memory", "search", "tea"),
        ("doctor",),
    ):
        completed = subprocess.run(
            [sys.executable, "-m", "ctx", *command, "--config", str(config)],
            cwd=config.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert completed.returncode, command
        assert "Traceback" not in completed.stderr
        said.append(completed.stdout + completed.stderr)
    return said


@pytest.mark.parametrize("step", ["documents", "memories"])
def test_a_store_whose_move_was_killed_says_so_until_it_was_moved(
    tmp_path: Path, database_url: str, capsys: pytest.CaptureFixture[str], step: str
) -> None:
    texts = {f"{number}.md": f"# Otter {number}\n\nThe otter {number} sleeps.\n" for number in range(70)}
    config = project(tmp_path, texts)
    config.write_text(config.read_text() + '[server]\nbind = "127.0.0.1:0"\n')  # nobody else's
    text, first = config.read_text(), str(tmp_path / ".ctx" / "ctx.db")
    with workspace(config) as space:
        space.refresh(space.source_names())
        space.memory.bank("alice").put_many([{"text": f"Anna drinks tea {no}"} for no in range(510)])
    second = str(tmp_path / "second" / "ctx.db")
    for origin, target, stored, sign in (
        (first, database_url, f'[store]\nurl = "{database_url}"\n', "--from FILE"),
        (database_url, second, f'[db]\npath = "{second}"\n', "--from postgresql://"),
    ):
        killed_move(config, origin, target, step)
        config.write_text(stored + text)
        for reply in refusals(config):
            assert reply.count(f"ctx migrate {sign}") == 1
        assert cli.main(["migrate", "--from", origin, "--config", str(config)]) == 0
        assert "70 documents, 70 chunks" in capsys.readouterr().out
        with workspace(config) as space:
            space.indexer.repair()
            reply = space.toolbox.call("search", {"query": "otter", "limit": 100}, CALLER)
            assert len(reply["results"]) == 70
            assert space.memory.bank("alice").count() == 510
        config.write_text(text)

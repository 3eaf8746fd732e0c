"""A whole store moves to a database and back: the same ids, and the same replies to searches and recalls.

`CTX_SEARCHES` and `CTX_RECALLS` say how many are compared.
"""

import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import ROOT, project, workspace

from ctx import cli
from ctx.assemble import key_ring
from ctx.config import load_config
from ctx.memory import Provenance
from ctx.packs.sessions import FileSessions
from ctx.types import JSON, Caller
from ctx.workspace import Workspace

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SEARCHES = int(os.environ.get("CTX_SEARCHES", "60"))
RECALLS = int(os.environ.get("CTX_RECALLS", "30"))
DOCUMENTS = ("ranking.md", "configuration.md", "operations.md", "lua-api.md", "http-api.md", "packs.md")
CALLER = Caller(door="cli")
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
    assert sum(map(len, expected)) > SEARCHES
    ring = key_ring(load_config(str(config), os.environ))
    key, record = ring.create("laptop", ["alice"])
    path = str(tmp_path / "home" / ".claude-recall" / "sessions.json")
    sessions = FileSessions(path)
    session = sessions.open(None, place="/project")
    sessions.set(session, "seen", [1, 2])
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
        assert pack.sessions.open(None, place="/project") == session
        assert pack.sessions.get(session, "seen") == [1, 2]
        pack.sessions.set(session, "seen", 3)
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
    assert FileSessions(path).get(session, "seen") == 3
    assert [entry.revoked_ms is None for entry in key_ring(load_config(str(config), os.environ)).list()] == [
        False
    ]
    assert key

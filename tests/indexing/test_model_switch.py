"""Changing the embedding model: the old one answers until the new one has embedded as much."""

import os
import random
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import found as matches
from kit import project, workspace
from web_api import Api, Asked, Reply, serving_api

from ctx.cli.index import prune_models, replaced_models
from ctx.errors import BadRequest, CtxError, NotFound
from ctx.server.overview import health

PAGES = {f"{number}.md": f"# Page {number}\n\nThe word{number} stands here.\n" for number in range(12)}
DIMS = {"elder": 32, "younger": 48, "gone": 16}


class Service:
    """An OpenAI-compatible server of several models, which remembers what each was asked."""

    def __init__(self, api: Api) -> None:
        self.texts: dict[str, list[str]] = {model: [] for model in DIMS}
        self.url = f"{api.url}/v1"
        api.answer = self._reply

    def _reply(self, asked: Asked) -> Reply:
        model, texts = asked.json["model"], asked.json["input"]
        self.texts[model] += texts
        rows = [{"index": index, "embedding": vector(text, DIMS[model])} for index, text in enumerate(texts)]
        return Reply({"data": rows})

    def config(self, model: str) -> str:
        return (
            '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nprovider = "openai"\n'
            f'model = "{model}"\ndims = {DIMS[model]}\nurl = "{self.url}"\nmax_retries = 0\n'
        )


def vector(text: str, dims: int) -> list[float]:
    """A place for each word of a text, so that equal words are near."""
    places = [0.01] * dims
    for word in text.lower().split():
        places[zlib.crc32(word.encode()) % dims] += 1.0
    return places


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with serving_api() as api:
        yield Service(api)


def read_by(folder: Path, service: Service, model: str, files: dict[str, str] | None = None) -> Path:
    """A project that a model has read whole; its configuration."""
    config = project(folder, files, service.config(model))
    with workspace(config) as space:
        space.indexer.run()
        space.indexer.embed()
    return config


def answering(space: Any, service: Service) -> str:
    """The model that a question is put to, which finds the page it is about."""
    for texts in service.texts.values():
        texts.clear()
    assert matches(space, "word7", mode="semantic")[0]
    (model,) = [model for model, texts in service.texts.items() if "word7" in texts]
    return model


def test_the_old_model_answers_until_the_new_one_has_read_as_much(tmp_path: Path, service: Service) -> None:
    read_by(tmp_path, service, "elder", PAGES)
    config = project(tmp_path, config=service.config("younger"))
    with workspace(config) as space:
        space.indexer.run()
        assert answering(space, service) == "elder"
        assert len(matches(space, "word7", mode="semantic")[0]) == len(PAGES)
        state = health(space)
        assert str(state["answering"]).startswith("openai/elder@")
        assert str(state["model"]).startswith("openai/younger@")
        assert state["pending"] == len(PAGES)
        space.indexer.embed(limit=5)
        assert answering(space, service) == "elder"
        assert len(matches(space, "word7", mode="semantic")[0]) == len(PAGES)
        space.indexer.embed()
        assert answering(space, service) == "younger"
        assert len(matches(space, "word7", mode="semantic")[0]) == len(PAGES)
        assert "answering" not in health(space)
        assert space.index.check() == []


def test_search_answers_while_the_model_changes(tmp_path: Path, service: Service) -> None:
    read_by(tmp_path, service, "elder", PAGES)
    config = project(tmp_path, config=service.config("younger"))
    counts: list[int] = []
    failures: list[str] = []
    completion = threading.Event()

    def ask() -> None:
        with workspace(config) as reader:
            while not completion.is_set():
                try:
                    counts.append(len(matches(reader, "word7", mode="semantic")[0]))
                except CtxError as error:
                    failures.append(error.message)

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        for model in ("younger", "elder", "younger"):
            read_by(tmp_path, service, model)
    finally:
        completion.set()
        asker.join()
    assert failures == []
    assert set(counts) == {len(PAGES)}


def test_switching_back_embeds_nothing_again(tmp_path: Path, service: Service) -> None:
    read_by(tmp_path, service, "elder", PAGES)
    read_by(tmp_path, service, "younger")
    for texts in service.texts.values():
        texts.clear()
    config = read_by(tmp_path, service, "elder")
    assert service.texts["elder"] == []
    with workspace(config) as space:
        assert answering(space, service) == "elder"
        assert len(matches(space, "word7", mode="semantic")[0]) == len(PAGES)


def test_an_address_with_a_password_is_noted_nowhere(tmp_path: Path, service: Service) -> None:
    text = service.config("elder").replace("http://", "http://ana:secret@")
    config = project(tmp_path, {}, text)
    with workspace(config) as space:
        _ = space.indexer
    assert not (tmp_path / "state" / "ctx" / "embedders.json").exists()


@pytest.mark.slow
def test_a_process_that_is_killed_while_models_change_leaves_one_that_answers(
    tmp_path: Path, service: Service
) -> None:
    chance = random.Random(4)
    config = read_by(tmp_path, service, "elder", PAGES)
    for kill in range(5):
        config = project(tmp_path, config=service.config(("younger", "elder")[kill % 2]))
        process = subprocess.Popen(
            [sys.executable, "-m", "ctx", "index", "--no-progress"],
            cwd=tmp_path,
            env=os.environ | {"CTX_CONFIG": str(config)},
            stdout=subprocess.DEVNULL,
        )
        try:
            process.wait(chance.uniform(0.3, 1.5))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with workspace(config) as space:
            assert len(matches(space, "word7", mode="semantic")[0]) == len(PAGES)
    with workspace(config) as space:
        space.indexer.run()
        space.indexer.embed()
        assert answering(space, service) == "younger"
        assert space.index.check() == []


def test_neither_the_model_that_answers_nor_the_one_that_fills_is_dropped(
    tmp_path: Path, service: Service
) -> None:
    read_by(tmp_path, service, "gone", PAGES)
    read_by(tmp_path, service, "elder")
    config = project(tmp_path, config=service.config("younger"))
    with workspace(config) as space:
        space.indexer.embed(limit=5)
        models = {share.model.split("@")[0]: share.embeddings for share in space.catalog.model_shares()}
        assert models == {"openai/gone": 12, "openai/elder": 12, "openai/younger": 5}
        for share in space.catalog.model_shares()[1:]:
            with pytest.raises(NotFound, match="is not a replaced model"):
                prune_models(space, [share.model])
        assert [share.model.split("@")[0] for share in prune_models(space, [])] == ["openai/gone"]
        assert answering(space, service) == "elder"
        space.indexer.embed()
        assert answering(space, service) == "younger"


def test_where_machines_share_a_database_a_replaced_model_is_dropped_by_name_only(
    tmp_path: Path, service: Service, database_url: str
) -> None:
    folder = f'[store]\nurl = "{database_url}"\n'
    pages = {"a.md": PAGES["1.md"]}
    for model in ("elder", "younger"):
        config = project(tmp_path, pages, folder + service.config(model))
        with workspace(config) as space:
            space.indexer.run()
            space.indexer.embed()
    with workspace(config) as space:
        (share,) = replaced_models(space)
        with pytest.raises(BadRequest, match="ctx embed prune NAME"):
            prune_models(space, [])
        assert prune_models(space, [share.model]) == [share]
        assert [entry.model.split("@")[0] for entry in space.catalog.model_shares()] == ["openai/younger"]
        assert answering(space, service) == "younger"

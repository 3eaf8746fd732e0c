"""The LangChain and LlamaIndex retrievers of extensions/examples."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from kit import ROOT
from real_clients import missing

import ctx

pytestmark = [
    pytest.mark.clients,
    # theirs, not ours: what these libraries and their own dependencies warn of
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
EXAMPLES = ROOT / "extensions" / "examples"
NOTES = {
    "auth.md": "# Signing in\n\nTokens rotate every 30 days.\nAsk the platform team.\n",
    "ship.md": "# Releasing\n\nTag it, then wait.\n",
}


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "notes"
    folder.mkdir()
    for name, text in NOTES.items():
        (folder / name).write_text(text)
    with ctx.open(folder) as project:
        project.index(embed=False)
    return folder


def example(name: str, library: str) -> ModuleType:
    """An example as a module; skips the test where its framework is absent."""
    if importlib.util.find_spec(library) is None:
        missing(library.replace("_", "-"))
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic looks its class's module up
    spec.loader.exec_module(module)
    return module


def test_a_langchain_chain_retrieves_passages(notes: Path) -> None:
    retriever = example("langchain_retriever", "langchain_core").CtxRetriever(path=str(notes), mode="keyword")
    from langchain_core.runnables import RunnableLambda

    documents = retriever.invoke("tokens rotate")
    assert [document.metadata["source"] for document in documents] == ["auth.md"]
    assert "Tokens rotate every 30 days.\nAsk the platform team." in documents[0].page_content
    assert 0 < documents[0].metadata["score"] <= 1
    chain = retriever | RunnableLambda(lambda documents: "\n".join(entry.page_content for entry in documents))
    assert "Tag it" in chain.invoke("releasing tag")
    assert retriever.invoke("nothing-like-it") == []
    with pytest.raises(ctx.CtxError, match=r"mode.*must be one of"):
        retriever.model_copy(update={"mode": "magic"}).invoke("x")
    retriever.close()


def test_a_llamaindex_retriever_gives_nodes_with_scores(notes: Path) -> None:
    retriever = example("llamaindex_retriever", "llama_index").CtxRetriever(str(notes), mode="keyword", k=1)
    nodes = retriever.retrieve("tokens rotate")
    assert [node.metadata["source"] for node in nodes] == ["auth.md"]
    assert "Tokens rotate every 30 days.\nAsk the platform team." in nodes[0].get_content()
    assert 0 < nodes[0].score <= 1
    assert retriever.retrieve("nothing-like-it") == []
    retriever.close()

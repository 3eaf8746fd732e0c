"""A retriever for LangChain: `CtxRetriever(path="notes").invoke("how often do keys change?")`.

Needs `langchain-core` beside ctx. Copy this file into your program; a chain takes it like any retriever.
"""

from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import PrivateAttr

import ctx


class CtxRetriever(BaseRetriever):
    """Passages of the project at `path` (a folder, or a ctx.toml), best first; close it when done.

    `mode` is keyword, semantic or hybrid; `k` how many documents; `source` narrows to one source.
    """

    path: str = "."
    mode: str = "hybrid"
    k: int = 5
    source: str | None = None
    _project: Any = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        self._project = ctx.open(self.path)

    def close(self) -> None:
        self._project.close()

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        reply = self._project.search(query, mode=self.mode, limit=self.k, source=self.source)
        return [
            Document(
                id=result.id,
                page_content=self._project.passage(result),
                metadata={
                    "title": result.title,
                    "source": result.source_id,
                    "url": result.source_url,
                    "start_line": result.start_line,
                    "end_line": result.end_line,
                    "score": result.score,
                },
            )
            for result in reply.results
        ]

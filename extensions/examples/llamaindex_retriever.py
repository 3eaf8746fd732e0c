"""A retriever for LlamaIndex: `CtxRetriever("notes").retrieve("how often do keys change?")`.

Needs `llama-index-core` beside ctx. Copy this file into your program; a query engine takes it like any.
"""

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

import ctx


class CtxRetriever(BaseRetriever):
    """Passages of the project at `path` (a folder, or a ctx.toml), best first; close it when done.

    `mode` is keyword, semantic or hybrid; `k` how many documents; `source` narrows to one source.
    """

    def __init__(
        self, path: str = ".", *, mode: str = "hybrid", k: int = 5, source: str | None = None
    ) -> None:
        self._project = ctx.open(path)
        self._mode = mode
        self._k = k
        self._source = source
        super().__init__()

    def close(self) -> None:
        self._project.close()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        question = query_bundle.query_str
        reply = self._project.search(question, mode=self._mode, limit=self._k, source=self._source)
        return [
            NodeWithScore(
                node=TextNode(
                    id_=f"{result.id}:{result.start_line}",
                    text=self._project.passage(result),
                    metadata={
                        "title": result.title,
                        "source": result.source_id,
                        "url": result.source_url,
                        "start_line": result.start_line,
                        "end_line": result.end_line,
                    },
                ),
                score=result.score,
            )
            for result in reply.results
        ]

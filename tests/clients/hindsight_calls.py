"""Hindsight's own client, as it comes from its registry, makes its calls: `python hindsight_calls.py URL BANK
KEY`.

One line of JSON for each call: its name, and what the client made of the reply or of the refusal.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from hindsight_client import Hindsight
from hindsight_client_api.exceptions import ApiException
from hindsight_client_api.models.update_document_request import UpdateDocumentRequest
from hindsight_client_api.models.update_memory_request import UpdateMemoryRequest

Call = Callable[[], Awaitable[Any]]
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


async def tell(name: str, call: Call) -> Any:
    """Makes the call and prints what came of it; the reply, None for a refusal."""
    try:
        reply = await call()
    except ApiException as refusal:
        print(json.dumps({"call": name, "status": refusal.status, "body": refusal.body}))
        return None
    fields = reply.to_dict() if hasattr(reply, "to_dict") else reply
    print(json.dumps({"call": name, "reply": fields}, default=str))
    return reply


async def visit(client: Hindsight, bank: str) -> None:
    """Every call that a user of memories makes."""
    await fill(client, bank)
    await ask(client, bank)
    await change(client, bank)
    await keep_documents(client, bank)
    await tell("configure", lambda: client.aupdate_bank_config(bank, disposition_skepticism=5))
    await tell("profile", lambda: client.banks.get_bank_profile(bank))
    await tell("reset", lambda: client.areset_bank_config(bank))
    await tell("clear", lambda: client.memory.clear_bank_memories(bank, type="world"))
    await tell("delete", lambda: client.adelete_bank(bank))


async def fill(client: Hindsight, bank: str) -> None:
    await tell("version", client.aget_version)
    await tell("bank", lambda: client.acreate_bank(bank, name="Alice", mission="Art", disposition_empathy=4))
    await tell(
        "retain",
        lambda: client.aretain(
            bank,
            "Nora paints in watercolour",
            timestamp=NOON,
            context="art",
            metadata={"page": "3"},
            tags=["art"],
            document_id="diary",
            entities=[{"text": "Nora", "type": "person"}],
        ),
    )
    items = [{"content": "Tom bakes rye bread"}, {"content": "Tom lives in Ghent", "tags": ["home"]}]
    await tell("batch", lambda: client.aretain_batch(bank, items, document_tags=["tom"]))
    await tell("strategy", lambda: client.aretain(bank, "x", strategy="deep"))


async def ask(client: Hindsight, bank: str) -> None:
    question = "What does Nora paint with?"
    await tell("recall", lambda: client.arecall(bank, question))
    await tell(
        "recall narrowly",
        lambda: client.arecall(
            bank,
            "Tom",
            types=["world"],
            tags=["tom"],
            tags_match="all_strict",
            min_scores={"final": 0.1},
            trace=True,
            include_entities=True,
            query_timestamp="2026-06-01T00:00:00Z",
        ),
    )
    window = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-31T00:00:00Z"}
    await tell("recall in a window", lambda: client.arecall(bank, "Nora", temporal_window=window))
    await tell("reflect", lambda: client.areflect(bank, question, budget="mid", include_facts=True))
    await tell(
        "list",
        lambda: client.alist_memories(
            bank, search_query="Tom", tags=["tom", "home"], tags_match="all_strict"
        ),
    )
    await tell("list all", lambda: client.alist_memories(bank, limit=2, offset=1))


async def change(client: Hindsight, bank: str) -> None:
    [nora] = (await client.alist_memories(bank, search_query="Nora")).items
    memory = client.memory
    await tell("get", lambda: memory.get_memory(bank, nora.id))
    patch = UpdateMemoryRequest(text="Nora paints in oil")
    await tell("update", lambda: memory.update_memory(bank, nora.id, patch))
    invalid = UpdateMemoryRequest(state="invalidated", reason="wrong")
    await tell("invalidate", lambda: memory.update_memory(bank, nora.id, invalid))
    await tell("get the invalidated", lambda: memory.get_memory(bank, nora.id))
    await tell("list the invalidated", lambda: client.alist_memories(bank, state="invalidated"))
    valid = UpdateMemoryRequest(state="valid")
    await tell("validate", lambda: memory.update_memory(bank, nora.id, valid))


async def keep_documents(client: Hindsight, bank: str) -> None:
    documents, memory = client.documents, client.memory
    await tell("documents", lambda: documents.list_documents(bank, tags=["art"], limit=10))
    await tell("documents by words", lambda: documents.list_documents(bank, q="oil"))
    await tell("document", lambda: documents.get_document(bank, "diary"))
    await tell("no document", lambda: documents.get_document(bank, "novel"))
    await tell("chunks", lambda: documents.list_document_chunks(bank, "diary"))
    await tell(
        "tag", lambda: documents.update_document(bank, "diary", UpdateDocumentRequest(tags=["art", "oil"]))
    )
    await tell("tags", lambda: memory.list_tags(bank))
    await tell("tags like", lambda: memory.list_tags(bank, q="*I*"))
    await tell("stats", lambda: client.banks.get_agent_stats(bank))
    await tell("forget the document", lambda: documents.delete_document(bank, "diary"))
    await tell("stats without it", lambda: client.banks.get_agent_stats(bank))


async def main() -> None:
    client = Hindsight(sys.argv[1], api_key=sys.argv[3])
    try:
        await visit(client, sys.argv[2])
    finally:
        await client.aclose()


asyncio.run(main())

"""Many clients at once, in both eras: what one bank is told, no other hears."""

import asyncio
import threading
from collections import Counter
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp_doors import mcp_over
from serving import ANYTHING, Serve

from ctx.server.app import Services
from ctx.tools.base import Tool
from ctx.types import JSON, Caller

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BANKS = [f"bank-{number}" for number in range(8)]
CLIENTS_A_BANK = 8  # 64 in all, every other one in the older era
ROUNDS = 4


class Notes:
    """What was kept, by bank. Its tool tells its progress under the bank's name."""

    def __init__(self) -> None:
        self.by_bank: dict[str, list[str]] = {bank: [] for bank in BANKS}
        self._lock = threading.Lock()

    def keep(self, arguments: dict[str, JSON], caller: Caller) -> JSON:
        assert caller.bank is not None
        for step in range(1, 4):
            if caller.progress:
                caller.progress(step, 3, f"{caller.bank}/{arguments['note']}")
        with self._lock:
            self.by_bank[caller.bank].append(arguments["note"])
        return {"bank": caller.bank, "fixed": caller.bank_fixed, "note": arguments["note"]}


def test_nothing_crosses_between_64_clients_of_8_banks(serve: Serve, services: Services) -> None:
    notes = Notes()
    services.toolbox.add(Tool("keep", "Keeps a note", ANYTHING, notes.keep))
    served = serve(services._replace(mcp=mcp_over(services.toolbox, services.agents)))
    statuses: Counter[int] = Counter()

    async def one(bank: str, number: int) -> None:
        mode = ("legacy", "auto")[number % 2]
        path = f"/mcp/{bank}" + ("/" if number % 4 < 2 else "")
        async with Client(served.base + path, mode=mode) as client:
            for round_ in range(ROUNDS):
                note = f"{bank}-{number}-{round_}"
                reply: list[str | None] = []

                async def step(
                    progress: float, total: float | None, message: str | None, reply: Any = reply
                ) -> None:
                    reply.append(message)

                kept_one, identity = await asyncio.gather(
                    client.call_tool("keep", {"note": note}, progress_callback=step),
                    client.call_tool("whoami", {}),
                )
                assert kept_one.structured_content == {"bank": bank, "fixed": True, "note": note}
                assert identity.structured_content is not None
                assert identity.structured_content["bank"] == bank
                assert set(reply) <= {f"{bank}/{note}"}, reply
                statuses[200] += 2

    async def watch(over: asyncio.Event) -> None:
        # REST goes on meanwhile; a refusal of work would be 503.
        async with httpx.AsyncClient(base_url=served.base, timeout=30) as client:
            while not over.is_set():
                statuses[
                    (await client.post("/tools/search", json={"query": "authentication"})).status_code
                ] += 1

    async def everybody() -> None:
        over = asyncio.Event()
        watcher = asyncio.ensure_future(watch(over))
        try:
            await asyncio.gather(*(one(bank, number) for bank in BANKS for number in range(CLIENTS_A_BANK)))
        finally:
            over.set()
            await watcher

    asyncio.run(everybody())
    assert set(statuses) == {200}
    assert statuses[200] >= 64 * ROUNDS * 2
    for bank in BANKS:
        expected = [
            f"{bank}-{number}-{round_}" for number in range(CLIENTS_A_BANK) for round_ in range(ROUNDS)
        ]
        assert sorted(notes.by_bank[bank]) == sorted(expected)

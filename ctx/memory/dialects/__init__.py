"""Hindsight, Claude Recall and Sekha: their tools, routes and errors on the banks of `ctx.memory`.

Imports `ctx.memory`, `ctx.tools` and what is below them; nothing of `ctx.server`.
"""

from collections.abc import Callable, Mapping

from ctx.config.settings import PackSettings
from ctx.memory import MemoryStore
from ctx.memory.dialects.base import Dialect
from ctx.memory.dialects.claude_recall import CLAUDE_RECALL
from ctx.memory.dialects.hindsight_banks import HINDSIGHT
from ctx.memory.dialects.pack import Pack
from ctx.memory.dialects.sekha_rest import SEKHA
from ctx.tools.toolbox import Agents, Toolbox

DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (HINDSIGHT, CLAUDE_RECALL, SEKHA)}


def load_packs(
    enabled: Mapping[str, PackSettings],
    store: Callable[[], MemoryStore],
    toolbox: Toolbox,
    agents: Agents,
    *,
    shared: bool,
    environ: Mapping[str, str],
    database: str,
    rates: str | None = None,
) -> list[Pack]:
    """The enabled packs, their tools and prompts registered. Raises `ConfigError`."""
    packs = []
    for name, settings in enabled.items():
        pack = Pack(
            DIALECTS[name], settings, store, shared=shared, environ=environ, database=database, rates=rates
        )
        pack.load(toolbox, agents)
        packs.append(pack)
    return packs

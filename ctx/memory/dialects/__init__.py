"""Dialects: the tools, REST routes and errors of the memory products Hindsight, Claude Recall and Sekha, on
top of the memory banks of `ctx.memory`.

Must not import `ctx.server`.
"""

from collections.abc import Mapping

from ctx.memory.dialects.base import Dialect
from ctx.memory.dialects.claude_recall import CLAUDE_RECALL
from ctx.memory.dialects.hindsight_rest import HINDSIGHT
from ctx.memory.dialects.sekha_rest import SEKHA

DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (HINDSIGHT, CLAUDE_RECALL, SEKHA)}

"""One bank: everything that can be done to memories, and the rules by which it is done.

The rows keep; here it is decided: what counts as the same memory, what takes another's place, what a search
shows and in which order. The embedder reads before a transaction begins, so no write waits for a model.
"""

from ctx.memory.bank.move import Moving
from ctx.memory.bank.read import Reading
from ctx.memory.bank.search import Searching
from ctx.memory.bank.undo import Undoing
from ctx.memory.bank.write import Writing


class MemoryBank(Writing, Undoing, Reading, Searching, Moving):
    """One bank's handle. Nothing it does reads or changes another; `source` is written with every change."""


__all__ = ["MemoryBank"]

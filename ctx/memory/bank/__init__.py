"""One bank of memories, and the rules for it: what counts as the same memory, what replaces another, what a
search shows and in which order. The tables below only store.

Texts are embedded before a transaction begins, so that no write waits for a model.
"""

from ctx.memory.bank.change import Changing
from ctx.memory.bank.move import Moving
from ctx.memory.bank.put import Putting
from ctx.memory.bank.read import Reading


class MemoryBank(Putting, Changing, Reading, Moving):
    """One bank. Nothing it does reads or changes another; `source` is recorded with every change."""


__all__ = ["MemoryBank"]

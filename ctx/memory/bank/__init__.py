"""One bank of memories, with its rules: which memories are equal, which replace others, and which a search
shows in which order. The layers below only store data.

Texts are embedded before a transaction begins, so that no write waits for a model.
"""

from ctx.memory.bank.change import Changing
from ctx.memory.bank.move import Moving
from ctx.memory.bank.put import Putting
from ctx.memory.bank.read import Reading


class MemoryBank(Putting, Changing, Reading, Moving):
    """One bank. It changes no other bank, except in `absorb`. `source` is recorded with every change."""


__all__ = ["MemoryBank"]

"""Who holds how much of what there is too little of, so that nobody takes all of it."""

from collections import Counter

FEW = 4  # below that there is nothing to share out


class Shares:
    """Counts `total` places: one tool holds half of them at most, one caller three quarters.

    So one tool that hangs leaves half to the others, and one caller with several such tools a quarter to the
    other callers. The limits hold also while nobody else is there: whoever comes next finds a place, since no
    script gives one back before it ends. "" is a tool or a caller that is not counted. Not safe from several
    threads: its owner has a lock.
    """

    def __init__(self, total: int) -> None:
        self._per_tool = total if total < FEW else total // 2
        self._per_caller = total if total < FEW else total * 3 // 4
        self._tools: Counter[str] = Counter()
        self._callers: Counter[str] = Counter()

    def room(self, tool: str, caller: str) -> bool:
        """Whether both may hold one more."""
        return (not tool or self._tools[tool] < self._per_tool) and (
            not caller or self._callers[caller] < self._per_caller
        )

    def take(self, tool: str, caller: str) -> None:
        self._tools[tool] += 1
        self._callers[caller] += 1

    def give_back(self, tool: str, caller: str) -> None:
        for counts, name in ((self._tools, tool), (self._callers, caller)):
            counts[name] -= 1
            if not counts[name]:
                del counts[name]  # callers come and go: their names must not pile up

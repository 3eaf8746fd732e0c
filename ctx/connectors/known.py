"""Which of the known ids lie at or below a few paths."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

_FEW_TOPS = 100  # above that, one walk over all known ids is quicker than a question for each


@runtime_checkable
class _Indexed(Protocol):
    """Known ids that can tell what is below a few without being read all."""

    def below(self, tops: Iterable[str]) -> set[str]: ...


def known_below(known: Iterable[str], tops: set[str]) -> set[str]:
    """The ids that are one of `tops` or below one. One look at each id and one at each folder, however many
    tops there are.
    """
    if isinstance(known, _Indexed) and len(tops) <= _FEW_TOPS:
        return known.below(tops)
    inside: dict[str, bool] = {"": False}

    def within(folder: str) -> bool:
        verdict = inside.get(folder)
        if verdict is None:
            verdict = inside[folder] = folder in tops or within(folder.rpartition("/")[0])
        return verdict

    return {source_id for source_id in known if source_id in tops or within(source_id.rpartition("/")[0])}

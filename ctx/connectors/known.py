"""Which of the known ids lie at or below a few paths."""

from collections.abc import Callable, Iterable

_FEW_TOPS = 100  # above that, one walk over all known ids is quicker than a question for each


def known_below(known: Iterable[str], tops: set[str]) -> set[str]:
    """The ids that are one of `tops` or below one. One look at each id and one at each folder, however many
    tops there are.
    """
    below: Callable[[Iterable[str]], set[str]] | None = getattr(known, "below", None)
    if below is not None and len(tops) <= _FEW_TOPS:  # they can tell without being read all
        return below(tops)
    inside: dict[str, bool] = {"": False}

    def within(folder: str) -> bool:
        verdict = inside.get(folder)
        if verdict is None:
            verdict = inside[folder] = folder in tops or within(folder.rpartition("/")[0])
        return verdict

    return {source_id for source_id in known if source_id in tops or within(source_id.rpartition("/")[0])}

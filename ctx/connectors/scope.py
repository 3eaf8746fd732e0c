"""Which paths a source takes: include and exclude globs, and the ignore files of each folder."""

import os
from collections.abc import Callable, Iterable, Sequence

from ctx.connectors.defaults import SKIPPED_FOLDERS
from ctx.connectors.patterns import (
    MAX_WEIGHT,
    Group,
    Level,
    NameTest,
    Pattern,
    Rules,
    TooManyPatterns,
    name_test,
    parse_globs,
)
from ctx.identity import outline


class Scope:
    """What a source takes in one folder: `takes(name)` for its files, `enter(name)` for its folders.

    `ignores` are the levels of the ignore files in force, the deepest first. `tag` names what they ask of
    files in this folder: equal tags give equal answers, in any process; it is "" where they ask nothing.
    """

    __slots__ = ("exclude", "ignores", "include", "tag", "takes")

    def __init__(self, include: Level, exclude: Level, ignores: tuple[Level, ...]) -> None:
        self.include = include
        self.exclude = exclude
        self.ignores = ignores
        self.takes: NameTest = self._test()
        self.tag = _tag(ignores)

    @classmethod
    def top(
        cls, include_globs: Iterable[str], exclude_globs: Iterable[str], ignores: tuple[Level, ...] = ()
    ) -> "Scope":
        """The scope of a source's root. Raises `ConfigError` for a glob that is too long."""
        return cls(Rules(parse_globs(include_globs)).top(), Rules(parse_globs(exclude_globs)).top(), ignores)

    def with_rules(self, patterns: Sequence[Pattern]) -> "Scope":
        """This folder with the patterns of its own ignore files.

        Raises `TooManyPatterns` where these and the ones in force from above ask for more than `MAX_WEIGHT`
        together.
        """
        if not patterns:
            return self
        rules = Rules(patterns)
        if rules.weight + sum(level.weight for level in self.ignores) > MAX_WEIGHT:
            raise TooManyPatterns("the ignore files of this folder and those above it hold too many patterns")
        return Scope(self.include, self.exclude, (rules.top(), *self.ignores))

    def enter(self, name: str) -> "Scope | None":
        """The scope of a folder below, or None where nothing in it is wanted."""
        if (
            name in SKIPPED_FOLDERS
            or self.exclude.decide(name, folder=True)
            or self.ignored(name, folder=True)
        ):
            return None
        include = self.include.descend(name)
        if include.empty:
            return None
        exclude = self.exclude.descend(name)
        ignores = self.ignores
        if ignores:
            ignores = tuple(below for below in [level.descend(name) for level in ignores] if not below.empty)
        if include is self.include and exclude is self.exclude and ignores == self.ignores:
            return self
        return Scope(include, exclude, ignores)

    def ignored(self, name: str, *, folder: bool) -> bool:
        """Whether the ignore files in force rule a name of this folder out."""
        for level in self.ignores:
            verdict = level.decide(name, folder=folder)
            if verdict is not None:
                return verdict
        return False

    def _test(self) -> NameTest:
        included = _file_test(self.include.groups)
        contrary = [*self.exclude.groups, *(group for level in self.ignores for group in level.groups)]
        if not any(group.file_segments for group in contrary):
            return included
        if not any(group.negated for group in contrary):
            # Without negation the order does not matter: one test does for all.
            unwanted = _file_test(contrary)

            def wanted_at_once(name: str) -> bool:
                return included(name) and not unwanted(name)

            return wanted_at_once
        excluded = _file_test(self.exclude.groups)
        ignored = self.ignored

        def wanted_in_order(name: str) -> bool:
            return included(name) and not excluded(name) and not ignored(name, folder=False)

        return wanted_in_order


Ruled = Callable[[str, Scope], Scope | None]
"""`ruled(folder, scope)`: the scope with the rules of the folder's own ignore file; None leaves it out."""


class Scopes:
    """The scopes of the folders that listed paths lie in, each made once.

    For sources whose paths come as a list (git's trees, a bucket's keys) and are not walked.
    """

    def __init__(self, top: Scope, ruled: Ruled | None = None) -> None:
        self._ruled = ruled
        self._scopes: dict[str, Scope | None] = {"": ruled("", top) if ruled else top}

    def takes(self, path: str) -> bool:
        """Whether the source takes the file of this path."""
        folder, _, name = path.rpartition("/")
        scope = self.of(folder)
        return scope is not None and bool(scope.takes(name))

    def of(self, folder: str) -> Scope | None:
        """The scope of a folder, "" for the top; None where nothing in it is wanted."""
        steps: list[str] = []
        while folder not in self._scopes:
            steps.append(folder)
            folder = folder.rpartition("/")[0]
        scope = self._scopes[folder]
        for step in reversed(steps):
            scope = scope.enter(step.rpartition("/")[2]) if scope is not None else None
            if scope is not None and self._ruled is not None:
                scope = self._ruled(step, scope)
            self._scopes[step] = scope
        return scope


def misplaced(globs: Iterable[str], root: str) -> list[str]:
    """Those globs that begin with the path of the root, or with its name where nothing in it is called so:
    they begin below it, and so fit nothing.
    """
    name = os.path.basename(root)
    own_name = not os.path.lexists(os.path.join(root, name))
    return [
        text
        for text in globs
        if text.startswith(f"{root}/")
        or (own_name and "/" in text.rstrip("/") and text.lstrip("./").startswith(f"{name}/"))
    ]


def _file_test(groups: Iterable[Group]) -> NameTest:
    return name_test(list(dict.fromkeys(segment for group in groups for segment in group.file_segments)))


def _tag(ignores: tuple[Level, ...]) -> str:
    requests = [
        (group.negated, group.file_segments)
        for level in ignores
        for group in level.groups
        if group.file_segments
    ]
    if not requests:
        return ""
    return "." + outline(requests, 12)

"""Decide which paths a source includes, by include and exclude globs and the ignore files of each folder."""

import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field

from ctx.connectors.defaults import (
    BUILD_FOLDERS,
    SECRET,
    SKIPPED_FOLDERS,
    VENDOR_MANIFESTS,
    VENDORED,
    VENDORED_FOLDERS,
    left_out,
)
from ctx.connectors.patterns import MAX_WEIGHT, OWN_RULES, Level, Pattern, Rules, expand_braces, parse_globs
from ctx.errors import SourceError
from ctx.models import outline


@dataclass(eq=False, slots=True)
class Scope:
    """Decides what a source includes in one folder: `takes(name)` for its files, `enter(name)` for its
    folders.

    `ignores` are the levels of the ignore files, the deepest first. `named` are the include globs for files
    that are left out by default, such as `.env*`. `chosen`: the configuration has include globs. `tag`
    identifies the ignore rules for files in this folder, in any process; "" if there are none.
    """

    include: Level
    exclude: Level
    ignores: tuple[Level, ...]
    named: Level
    chosen: bool
    tag: str = field(init=False)

    def __post_init__(self) -> None:
        requests = [
            (group.negated, group.file_segments)
            for level in self.ignores
            for group in level.groups
            if group.file_segments
        ]
        self.tag = "." + outline(requests, 12) if requests else ""

    @classmethod
    def top(
        cls,
        include_globs: Sequence[str] | None,
        exclude_globs: Iterable[str],
        ignores: tuple[Level, ...] = (),
    ) -> "Scope":
        """The scope of a source's root. Without include globs, it has every file. Raises `ConfigError`."""
        include = Rules(parse_globs(("**/*",) if include_globs is None else include_globs)).top()
        texts = (text for glob in include_globs or () for text in expand_braces(glob))
        # `.env*` names files that are left out by default; `*` and `*.json` do not.
        naming = [text for text in texts if left_out(text.rpartition("/")[2].replace("*", ""))]
        named = Rules(parse_globs(naming)).top()
        return cls(
            include, Rules(parse_globs(exclude_globs)).top(), ignores, named, include_globs is not None
        )

    def takes(self, name: str) -> bool:
        """Whether the source includes a file of this folder. It never includes `.git`, which is a file in a
        linked work tree.
        """
        return name not in (".git", OWN_RULES) and self.wants(name) and self.left_out(name) is None

    def wants(self, name: str) -> bool:
        """Whether the globs include a file of this folder and no ignore file excludes it."""
        included = self.include.decide(name, folder=False)
        excluded = self.exclude.decide(name, folder=False) or self.ignored(name, folder=False)
        return bool(included) and not excluded

    def left_out(self, name: str) -> str | None:
        """The kind of a file that is left out by its name (`defaults.left_out`); None if it is not left
        out.
        """
        kind = left_out(name)
        if kind is None or (self.chosen and kind != SECRET) or self.named.decide(name, folder=False):
            return None
        return kind

    def with_rules(self, patterns: Sequence[Pattern]) -> "Scope":
        """Returns the scope with the patterns of this folder's own ignore files added.

        Raises `SourceError` if these and the ones of the folders above exceed `MAX_WEIGHT`.
        """
        if not patterns:
            return self
        rules = Rules(patterns)
        if rules.weight + sum(level.weight for level in self.ignores) > MAX_WEIGHT:
            raise SourceError("the ignore files of this folder and those above it hold too many patterns")
        return Scope(self.include, self.exclude, (rules.top(), *self.ignores), self.named, self.chosen)

    def enter(self, name: str, beside: Container[str] = ()) -> "Scope | None":
        """The scope of a subfolder; None if it is left out. `beside`: the names of all entries of this
        folder.
        """
        if (
            name in SKIPPED_FOLDERS
            or any(sibling in beside for sibling in BUILD_FOLDERS.get(name, ()))
            or self.vendored(name, beside)
            or self.exclude.decide(name, folder=True)
            or self.ignored(name, folder=True)
        ):
            return None
        include = self.include.descend(name)
        if include.empty:
            return None
        exclude, named = self.exclude.descend(name), self.named.descend(name)
        ignores = self.ignores
        if ignores:
            ignores = tuple(below for below in [level.descend(name) for level in ignores] if not below.empty)
        if (include, exclude, ignores, named) == (self.include, self.exclude, self.ignores, self.named):
            return self
        return Scope(include, exclude, ignores, named, self.chosen)

    def vendored(self, name: str, beside: Container[str]) -> bool:
        """Whether a folder holds other people's code, by its name and the names next to it."""
        if self.chosen:
            return False
        return name in VENDORED_FOLDERS or (
            name == "vendor" and any(manifest in beside for manifest in VENDOR_MANIFESTS)
        )

    def ignored(self, name: str, *, folder: bool) -> bool:
        """Whether the ignore files exclude a name in this folder."""
        for level in self.ignores:
            verdict = level.decide(name, folder=folder)
            if verdict is not None:
                return verdict
        return False


class Scopes:
    """Caches the scopes of folders, for sources that list paths (git's trees, a bucket's keys).

    `ruled(folder, scope)` returns the scope with the folder's own ignore file; None leaves the folder out.
    `paths` is the whole list, if known in advance. `left_out` counts files that are left out by name.
    """

    def __init__(
        self,
        top: Scope,
        left_out: "Counter[str]",
        ruled: Callable[[str, Scope], Scope | None] | None = None,
        paths: Container[str] = frozenset(),
    ) -> None:
        self._ruled = ruled
        self._paths = paths
        self._left_out = left_out
        self._scopes: dict[str, Scope | None] = {"": ruled("", top) if ruled else top}

    def takes(self, path: str) -> bool:
        """Whether the source includes the file at this path."""
        folder, _, name = path.rpartition("/")
        scope = self.of(folder)
        if scope is None or scope.takes(name):
            return scope is not None
        if scope.wants(name) and (kind := scope.left_out(name)):
            self._left_out[kind] += 1
        return False

    def of(self, folder: str) -> Scope | None:
        """The scope of a folder, "" for the top; None if it is left out."""
        steps: list[str] = []
        while folder not in self._scopes:
            steps.append(folder)
            folder = folder.rpartition("/")[0]
        scope = self._scopes[folder]
        for step in reversed(steps):
            above, _, name = step.rpartition("/")
            if scope is not None:
                beside = _Beside(above, self._paths)
                self._left_out[VENDORED] += scope.vendored(name, beside)
                scope = scope.enter(name, beside)
            if scope is not None and self._ruled is not None:
                scope = self._ruled(step, scope)
            self._scopes[step] = scope
        return scope


class _Beside:
    """A container of the names in a folder. It tests each name against a list of paths."""

    def __init__(self, folder: str, paths: Container[str]) -> None:
        self._prefix = f"{folder}/" if folder else ""
        self._paths = paths

    def __contains__(self, name: object) -> bool:
        return f"{self._prefix}{name}" in self._paths


def misplaced(globs: Iterable[str], root: str) -> list[str]:
    """The globs that begin with the root's path, or with the root's name if no entry of the root has that
    name. They match nothing, because globs are relative to the root.
    """
    name = os.path.basename(root)
    own_name = not os.path.lexists(os.path.join(root, name))
    return [
        text
        for text in globs
        if text.startswith(f"{root}/")
        or (own_name and "/" in text.rstrip("/") and text.lstrip("./").startswith(f"{name}/"))
    ]

"""Measures for each language how well ctx finds definitions in code, compared with the parser.

`python benchmarks/definitions.py REPOSITORY...`. Each argument is a git directory, whose HEAD is indexed for
keyword search. Three shares are measured:

- found: of the parser's nodes that define a named function, method or type, those that ctx has as a
  definition.
- named: of the chunks inside such a definition, those that have its name in their text or heading.
- first: of the names that are defined once, those for which a search shows the definition first.
"""

import argparse
import os
import random
import re
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from _common import check, finish, header

from ctx.code import grammars
from ctx.code.symbols import dialect
from ctx.config import load_config
from ctx.models import Filters
from ctx.store.record import StoredDocument
from ctx.workspace import Workspace, open_workspace

FOUND, NAMED, FIRST = 0.99, 0.98, 0.85
LEAST_CHARS = 4  # the shortest name that is searched
SAMPLE = 200  # names searched per language
LEAST = 50  # a language with fewer definitions is not judged
CONFIG = """
[embedding]
provider = "disabled"
"""
SOURCE = """
[connectors.filesystem.{name}]
root = "./repositories/{name}"
include_globs = ["**"]
gitignore = false
"""
# The types of the nodes that are definitions in the grammars. The field `name` of such a node has the name.
NODES = re.compile(
    r"(?:class|function|method|interface|struct|enum|trait|record|constructor|object|module|protocol|impl|union)"
    r"_(?:definition|declaration|item|spec|specifier)\Z|(?:class|module|method|singleton_method)\Z"
)


def checked_out(repository: Path, folder: Path) -> None:
    """Writes the files of a repository's HEAD to `folder`. Files whose git object is missing are skipped."""
    git = ["git", "--git-dir", str(repository)]
    listed = subprocess.run([*git, "ls-tree", "-r", "-z", "HEAD"], check=True, stdout=subprocess.PIPE).stdout
    entries = [entry.partition(b"\t") for entry in listed.split(b"\0") if entry.startswith(b"100")]
    ids = b"".join(about.split()[2] + b"\n" for about, _, _ in entries)
    blobs = subprocess.run(
        [*git, "cat-file", "--batch"], check=True, input=ids, stdout=subprocess.PIPE
    ).stdout
    position = 0
    for _, _, path in entries:
        about, _, _ = blobs[position : position + 200].partition(b"\n")
        position += len(about) + 1
        if about.endswith(b" missing"):
            continue
        size = int(about.split()[2])
        target = folder / path.decode("utf-8", "replace")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(blobs[position : position + size])
        position += size + 1


def parsed(stored: StoredDocument) -> Iterator[tuple[str, int, int]]:
    """(name, first line of the name, last line of the name) of each definition with a name that the parser
    finds in a document.
    """
    document = stored.document
    loaded = grammars.load(dialect(document.body, document.media_type))
    if loaded is None:
        return
    stack = [loaded[0].parse(document.body.encode("utf-8", "replace")).root_node]
    while stack:
        node = stack.pop()
        stack += node.children
        if not (node.is_named and NODES.match(node.type)) or node.has_error:
            continue
        if node.type.endswith("_specifier") and node.child_by_field_name("body") is None:
            continue  # in C, `struct name *variable` only uses `name`
        named = node.child_by_field_name("name")
        if named is not None and named.text:
            name = named.text.decode("utf-8", "replace")
            name = (
                name.strip("`'\"") if name[0] in "`'\"" else re.split(r"[.:]+", re.sub(r"<.*", "", name))[-1]
            )
            yield name, named.start_point.row + 1, named.end_point.row + 1


class Counts:
    """The results for one language. In the counters, True counts the successes and False the failures."""

    def __init__(self) -> None:
        self.found: Counter[bool] = Counter()
        self.named: Counter[bool] = Counter()
        self.first: Counter[bool] = Counter()
        self.missing: list[str] = []
        self.lost: list[str] = []  # names for which the search shows another place first
        # (source, name) -> [(path, first line, last line)] of its definitions
        self.places: dict[tuple[str, str], list[tuple[str, int, int]]] = defaultdict(list)

    def names(self) -> list[tuple[str, str]]:
        return [place for place, found in self.places.items() for _ in found]


def share(counter: "Counter[bool]") -> float:
    return counter[True] / max(1, counter.total())


def read(stored: StoredDocument, counts: Counts) -> None:
    """Compares a document's definitions with the parser's, and its chunks with its definitions. Adds the
    results to `counts`.
    """
    document = stored.document
    known = {(each.name, each.name_line) for each in document.definitions}
    for name, line, last in parsed(stored):
        found = any((name.removeprefix("r#"), number) in known for number in range(line, last + 1))
        counts.found[found] += 1
        if not found:
            counts.missing.append(f"{document.source_id}:{line} {name}")
    for each in document.definitions:
        if each.kind not in ("variable", "constant", "field", "property", "impl", "namespace", "macro"):
            counts.places[document.source, each.name].append(
                (document.source_id, each.start_line, each.end_line)
            )
    blocks = [each for each in document.definitions if each.kind in ("function", "method", "class")]
    for chunk in stored.chunks:
        around = [e for e in blocks if e.start_line <= chunk.start_line and chunk.end_line <= e.end_line]
        if around:
            inner = max(around, key=lambda each: (each.start_line, -each.end_line))
            text = document.body[chunk.start : chunk.end]
            counts.named[inner.name in text or inner.name in chunk.heading] += 1


def ask(workspace: Workspace, counts: Counts, defined: "Counter[tuple[str, str]]") -> None:
    """Searches each repository's code for names that it defines exactly once. Adds the results to `counts`.

    `defined` counts the definitions of each (source, name).
    """
    unique = sorted(place for place in counts.places if defined[place] == 1 and len(place[1]) >= LEAST_CHARS)
    for source, name in random.Random(1).sample(unique, min(SAMPLE, len(unique))):
        filters = workspace.searcher.resolved(Filters(sources=frozenset([source])), types=["code"])
        hit = next(iter(workspace.searcher.search(name, limit=1, filters=filters).results), None)
        path, first, last = counts.places[source, name][0]
        found = hit is not None and hit.source_id == path and hit.start_line <= last and hit.end_line >= first
        counts.first[found] += 1
        if not found:
            counts.lost.append(
                f"{name}: {path}:{first}, not {hit and hit.source_id}:{hit and hit.start_line}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("repository", type=Path, nargs="+", help="a git directory")
    parser.add_argument("--missing", type=int, default=0, metavar="N", help="show so many that ctx lacks")
    args = parser.parse_args()
    header("Definitions against the parser")
    languages: dict[str, Counts] = defaultdict(Counts)
    with tempfile.TemporaryDirectory(prefix="ctx-definitions-") as temporary:
        root = Path(temporary)
        names = [f"repository-{number}" for number, _ in enumerate(args.repository)]
        for name, repository in zip(names, args.repository, strict=True):
            checked_out(repository, root / "repositories" / name)
        (root / "ctx.toml").write_text(CONFIG + "".join(SOURCE.format(name=name) for name in names))
        with open_workspace(load_config(str(root / "ctx.toml"), os.environ)) as workspace:
            workspace.indexer.run()
            for listing in workspace.catalog.list_documents(None, 100_000):
                if listing.media_type in grammars.GRAMMARS:
                    stored = workspace.catalog.document(listing.id)
                    if stored is not None:
                        read(stored, languages[listing.media_type])
            defined = Counter(place for each in languages.values() for place in each.names())
            judged = {name: each for name, each in languages.items() if each.found.total() >= LEAST}
            for counts in judged.values():
                ask(workspace, counts, defined)
    for name, counts in sorted(judged.items()):
        print(f"{name:<20} {counts.found.total():>7} definitions, {counts.named.total():>6} chunks")
        for line in [*counts.missing[: args.missing], *counts.lost[: args.missing]]:
            print(f"    {line}")
    for name, counts in sorted(judged.items()):
        label = name.partition("/")[2].removeprefix("x-")
        for goal, counter, what in (
            (FOUND, counts.found, "definitions found"),
            (NAMED, counts.named, "chunks that name their definition"),
            (FIRST, counts.first, "defining chunk first"),
        ):
            check(f"{label}: {what}", 100 * share(counter), 100 * goal, at_most=False, unit=" %")
    finish()


if __name__ == "__main__":
    main()

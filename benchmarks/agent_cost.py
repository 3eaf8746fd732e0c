"""Compares how many characters an agent reads with ctx and with ripgrep before it sees the lines to change.

`python benchmarks/agent_cost.py SET [--source NAME] [--mode hybrid]`. SET is a folder that `history_set.py`
wrote. Each of its queries of the kind `commit` has a field `changed` with the lines that the commit changed.
Two scripted agents get the message of the commit:

- ctx: `search` with the message, `get PATH#Symbol` with the message for each hit in order, one `symbol` call
  for a defined name in the message, then the next page of results.
- ripgrep: `rg -n -i WORD` for the rarest words, showing the first lines of each, then `sed` around the
  densest matches in the files that have most of the words, best file first.

Both stop when a changed line was shown, or after `MAX_CHARS` characters. Commands and answers both count.
"""

import argparse
import json
import os
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _common import finish, header

from ctx.config import load_config
from ctx.errors import CtxError
from ctx.models import Caller
from ctx.text import analyze, filetypes
from ctx.workspace import Workspace, open_workspace

MAX_CHARS = 60_000  # an agent that has read this many characters gives up
MAX_QUERY = 2_000  # the number of characters of a message that are used as a query
RG_WORDS, RG_LINES, RG_FILES, RG_WINDOW = 4, 40, 8, 40
PAGES = 2
GOAL = 0.4  # ctx should need at most this share of ripgrep's characters
_HIT = re.compile(r"  (\d+)-(\d+)(?:  (\S+) (.+?))?(?:  \(block [\d-]+\))?\Z")
_NUMBERED = re.compile(r"\s*(\d+)\| ")

Lines = set[tuple[str, int]]


@dataclass
class Task:
    """A commit message, the source that the commit belongs to, and the changed lines as (path, line
    number).
    """

    text: str
    source: str
    changed: Lines


@dataclass
class Reading:
    """The number of characters that an agent has read so far, and whether it has seen a changed line."""

    task: Task
    characters: int = 0
    commands: int = 0
    found: bool = False
    seen: set[str] = field(default_factory=set)

    def read(self, command: str, answer: str, lines: Lines) -> bool:
        """Counts a command and its answer, which shows `lines`. Returns whether the agent can stop."""
        self.characters += len(command) + len(answer)
        self.commands += 1
        self.found = self.found or not lines.isdisjoint(self.task.changed)
        return self.found or self.characters >= MAX_CHARS


def tasks(folder: Path, only: str | None) -> list[Task]:
    queries = [json.loads(line) for line in (folder / "queries.jsonl").read_text("utf-8").splitlines()]
    return [
        Task(
            query["text"][:MAX_QUERY],
            query["source"],
            {(path, line) for path, first, last in query["changed"] for line in range(first, last + 1)},
        )
        for query in queries
        if query["kind"] == "commit" and query.get("changed") and only in (None, query["source"])
    ]


# -- ctx -----------------------------------------------------------------------------------------------------


class CtxAgent:
    """An agent that calls the tools of ctx."""

    def __init__(self, workspace: Workspace, mode: str) -> None:
        self._workspace = workspace
        self._mode = mode

    def _call(self, reading: Reading, tool: str, **arguments: Any) -> str:
        try:
            answer = self._workspace.toolbox.call(tool, {**arguments, "format": "markdown"}, Caller("cli"))[
                "text"
            ]
        except CtxError as error:
            answer = error.message
        return str(answer)

    def run(self, task: Task) -> Reading:
        reading = Reading(task)
        source = f"filesystem:{task.source}"
        for page in range(PAGES):
            filters = {"type": "code", "source": source}
            answer = self._call(
                reading, "search", query=task.text, mode=self._mode, limit=5, offset=5 * page, per_document=3,
                filters=filters,
            )  # fmt: skip
            command = f"search {task.text}" if page == 0 else f"search --offset {5 * page}"
            hits, lines = _hits(answer)
            if reading.read(command, answer, lines):
                return reading
            for path, first, last, name in hits:
                if self._get(reading, source, path, f"{path}#{name}" if name else f"{path}:{first}-{last}"):
                    return reading
            if page == 0 and self._symbol(reading, source):
                return reading
        return reading

    def _get(self, reading: Reading, source: str, path: str, place: str) -> bool:
        """Reads the parts of a hit that match the message. Returns whether the agent can stop."""
        if place in reading.seen:
            return False
        reading.seen.add(place)
        answer = self._call(
            reading, "get", path=place, query=reading.task.text, source=source, max_tokens=8000
        )
        return reading.read(f"get {place} -q", answer, _numbered(path, answer))

    def _symbol(self, reading: Reading, source: str) -> bool:
        """Looks up the first name in the message that code defines, and reads its definitions. Returns
        whether the agent can stop.
        """
        names = analyze.identifiers(reading.task.text)[:8]
        defined = self._workspace.index.vocabulary([], names)[1]
        if not defined:
            return False
        answer = self._call(reading, "symbol", name=defined[0], source=source)
        path, lines, places = "", set(), []
        for line in answer.splitlines():
            match = re.match(r"(\S+):(\d+)-(\d+)  \S+ ", line)
            if match:
                places.append((match[1], f"{match[1]}:{match[2]}-{match[3]}"))
            elif line and not line.startswith(" "):
                path = line
            elif match := re.match(r"  (\d+)(?: in [^|]+)?\| ", line):
                lines.add((path, int(match[1])))
        if reading.read(f"symbol {defined[0]}", answer, lines):
            return True
        return any(self._get(reading, source, path, place) for path, place in places[:2])


def _hits(answer: str) -> tuple[list[tuple[str, str, str, str | None]], Lines]:
    """([(path, first line, last line, symbol)] of the hits in a search answer, the lines that it shows)."""
    path, hits, lines = "", [], set()
    for line in answer.splitlines():
        if match := _HIT.match(line):
            hits.append((path, match[1], match[2], match[4]))
        elif match := _NUMBERED.match(line):
            lines.add((path, int(match[1])))
        elif line and not line.startswith(" "):
            path = line.rpartition(" ")[2]
    return hits, lines


def _numbered(path: str, answer: str) -> Lines:
    return {(path, int(match[1])) for line in answer.splitlines() if (match := _NUMBERED.match(line))}


# -- ripgrep -------------------------------------------------------------------------------------------------


class RipgrepAgent:
    """An agent that uses `rg` and `sed`, simulated on the texts in memory (source -> path -> lines)."""

    def __init__(self, texts: dict[str, dict[str, list[str]]]) -> None:
        self._texts = texts

    def run(self, task: Task) -> Reading:
        reading = Reading(task)
        texts = self._texts[task.source]
        words = dict.fromkeys(re.findall(r"[A-Za-z_][\w-]{2,}", task.text))
        lowered = {word.lower() for word in words if word.lower() not in analyze.STOP_WORDS}
        matches = {word: list(self._grep(texts, word)) for word in lowered}
        rarest = sorted(
            (word for word in matches if matches[word]), key=lambda word: (len(matches[word]), word)
        )
        weights: dict[str, Counter[int]] = defaultdict(Counter)  # path -> line -> weight
        for word in rarest[:RG_WORDS]:
            found = matches[word]
            shown = [f"{path}:{line}:{texts[path][line - 1]}" for path, line in found[:RG_LINES]]
            lines = set(found[:RG_LINES])
            if reading.read(f"rg -n -i '{word}' | head -{RG_LINES}", "\n".join(shown), lines):
                return reading
            for path, line in found:
                weights[path][line] += 1 / len(found)  # type: ignore[assignment]
        best = sorted(weights, key=lambda path: (-sum(weights[path].values()), path))
        for path in best[:RG_FILES]:
            for first, last in _windows(weights[path], len(texts[path])):
                answer = "\n".join(texts[path][first - 1 : last])
                lines = {(path, line) for line in range(first, last + 1)}
                if reading.read(f"sed -n {first},{last}p {path}", answer, lines):
                    return reading
        return reading

    def _grep(self, texts: dict[str, list[str]], word: str) -> Iterator[tuple[str, int]]:
        for path, lines in texts.items():
            yield from ((path, number) for number, line in enumerate(lines, 1) if word in line.lower())


def _windows(weights: "Counter[int]", total: int) -> list[tuple[int, int]]:
    """Up to two windows (first line, last line) around the densest matches in a file of `total` lines.
    `weights` is line -> weight of its matches.
    """
    spans: list[tuple[int, int]] = []
    centres = sorted(
        weights, key=lambda line: -sum(w for at, w in weights.items() if abs(at - line) <= RG_WINDOW)
    )
    for line in centres:
        first, last = max(1, line - RG_WINDOW), min(total, line + RG_WINDOW)
        if all(last < other_first or first > other_last for other_first, other_last in spans):
            spans.append((first, last))
        if len(spans) == 2:
            break
    return spans


# -- the comparison ------------------------------------------------------------------------------------------


def compare(folder: Path, only: str | None, mode: str) -> None:
    documents = [json.loads(line) for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines()]
    documents = [row for row in documents if only in (None, row["source"])]
    asked = tasks(folder, only)
    with tempfile.TemporaryDirectory(prefix="ctx-agent-") as temporary:
        root = Path(temporary)
        for row in documents:
            path = root / "documents" / row["source"] / row["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(row["text"], "utf-8")
        sources = sorted({row["source"] for row in documents})
        provider = "disabled" if mode == "keyword" else "local"
        lines = [f'[embedding]\nprovider = "{provider}"\n']
        lines += [
            f'[connectors.filesystem.{name}]\nroot = "./documents/{name}"\ninclude_globs = ["**"]\ngitignore = false\n'
            for name in sources
        ]
        (root / "ctx.toml").write_text("".join(lines))
        with open_workspace(load_config(str(root / "ctx.toml"), os.environ)) as workspace:
            workspace.indexer.run()
            if mode != "keyword":
                workspace.indexer.embed()
            texts: dict[str, dict[str, list[str]]] = defaultdict(dict)
            stored = {row.media_type: row for row in workspace.catalog.list_documents(None, 100_000)}
            code = frozenset(name for name in stored if filetypes.is_code(name))
            for row in workspace.catalog.list_documents(None, 100_000):
                if row.media_type in code:
                    text = (root / "documents" / row.source.partition(":")[2] / row.source_id).read_text(
                        "utf-8"
                    )
                    texts[row.source.partition(":")[2]][row.source_id] = text.split("\n")
            agents = (("ripgrep", RipgrepAgent(texts)), ("ctx", CtxAgent(workspace, mode)))
            rows = {name: [agent.run(task) for task in asked] for name, agent in agents}
    print(f"{len(asked)} messages of {len(sources)} repositories, {mode}\n")
    print(f"{'source':<36} {'':<8} {'characters':>10} {'commands':>9} {'found':>6}")
    for source in [*sources, None]:
        for name, readings in rows.items():
            chosen = [each for each in readings if source in (None, each.task.source)]
            print(
                f"{source or 'all':<36} {name:<8} {sum(each.characters for each in chosen):>10,} "
                f"{sum(each.commands for each in chosen):>9,} {sum(each.found for each in chosen):>6}"
            )
    pairs = [pair for pair in zip(*rows.values(), strict=True) if all(each.found for each in pair)]
    sums = [sum(each.characters for each in column) for column in zip(*pairs, strict=True)]
    print(f"\nof the {len(pairs)} that both found: {dict(zip(rows, sums, strict=False))} characters")
    spent = {name: sum(each.characters for each in readings) for name, readings in rows.items()}
    found = {name: sum(each.found for each in readings) for name, readings in rows.items()}
    ratio = spent["ctx"] / max(1, spent["ripgrep"])
    verdict = "PASS" if ratio <= GOAL and found["ctx"] >= found["ripgrep"] else "MISS"
    print(f"\n{verdict}  ctx reads {ratio:.2f} of ripgrep's characters (goal {GOAL}), finds {found}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("set", type=Path, help="a folder that history_set.py wrote")
    parser.add_argument("--source", help="only this repository")
    parser.add_argument("--mode", default="keyword", choices=("keyword", "hybrid"))
    args = parser.parse_args()
    header("What an agent reads until it sees the lines to change")
    compare(args.set, args.source, args.mode)
    finish()


if __name__ == "__main__":
    main()

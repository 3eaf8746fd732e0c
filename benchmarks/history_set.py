"""Makes two judged sets from the histories of public repositories: `python benchmarks/history_set.py CLONES
OUT`.

CLONES is a folder with a clone (or bare git directory) of each repository. Choose any repositories; ctx's own
figures are measured on others. Each repository provides its files at a snapshot, and two kinds of questions:

- `commit`: the message of a later commit. The answers are the source files that the commit changed.
- `heading`: a heading of a page, which is removed from the page. The answer is the page.

The repositories are sorted by the hash of their names and go alternately to OUT/tuning and OUT/check. Use the
first set to tune constants, and report figures of the second. The files have the format of `quality.py`. A
query of the kind `commit` also has a field `changed`, a list of [path, first line, last line] in the
snapshot.
"""

import argparse
import hashlib
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCE = frozenset(
    ".c .cc .cpp .cs .ex .go .h .hpp .java .js .jsx .kt .lua .mjs .php .py .rb .rs .scala .swift .ts .tsx .vue".split()
)
PAGES = frozenset((".md", ".rst", ".adoc", ".mdx"))
TEST = re.compile(
    r"(^|[/_.-])(tests?|specs?|__tests__|testing|fixtures|examples?|benchmarks?)([/_.-]|$)", re.IGNORECASE
)
CHANGES = re.compile(r"(^|/)(change(s|log)|history|news|releases?)\b", re.IGNORECASE)
TRAILER = re.compile(
    r"^(co-authored-by|signed-off-by|reviewed-by|change-id|\(cherry picked from|git-svn-id)", re.IGNORECASE
)
HEADING = re.compile(r"^(#{1,4} +(?P<atx>\S.*?) *#*|(?P<plain>\S.*)\n[=~^\"'-]{4,})$", re.MULTILINE)
ENTRY = re.compile(r"^100\d{3} blob (?P<blob>\w+) +(?P<size>\d+)\t(?P<path>.+)$", re.MULTILINE)
HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? ")

QUESTIONS = 36  # at most this many questions of each kind per repository
COMMITS = 1500  # the number of latest commits that are considered
MAX_FILES = 1500  # a repository with more files in its snapshot is left out
MAX_FILE_BYTES = 120_000
MAX_CHANGED_FILES = 4  # a commit that changes more source files has no clear answer
MIN_WORDS, MAX_WORDS = 4, 150  # of a commit message


@dataclass
class Commit:
    """A commit whose message is a question and whose changed source files are the answers."""

    id: str
    message: str
    files: list[str]


@dataclass
class JudgedSet:
    """The content of corpus.jsonl (`documents`), queries.jsonl and qrels.tsv."""

    documents: list[dict[str, str]] = field(default_factory=list)
    queries: list[dict[str, Any]] = field(default_factory=list)
    qrels: list[tuple[str, str]] = field(default_factory=list)

    def add(self, kind: str, source: str, text: str, paths: Iterable[str], **more: Any) -> None:
        identifier = f"{source}-{kind}-{sum(query['source'] == source for query in self.queries)}"
        self.queries.append({"id": identifier, "text": text, "source": source, "kind": kind, **more})
        self.qrels.extend((identifier, f"{source}/{path}") for path in paths)

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in (("corpus", self.documents), ("queries", self.queries)):
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
        (folder / "qrels.tsv").write_text(
            "".join(f"{query}\t{path}\t1\n" for query, path in self.qrels), encoding="utf-8"
        )


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def git(clone: Path, *arguments: str) -> str:
    """The output of a git command. Bytes that are not UTF-8 are replaced."""
    run = subprocess.run(["git", "-C", str(clone), *arguments], capture_output=True, check=True)
    return run.stdout.decode("utf-8", "replace")


def commits(clone: Path) -> Iterator[Commit]:
    """The commits, newest first, that change a few source files and have a message of suitable length."""
    log = git(
        clone, "log", f"-{COMMITS}", "--no-merges", "--no-renames", "--name-status", "--format=%x00%H%n%B%x01"
    )
    for entry in log.split("\0")[1:]:
        head, _, status = entry.partition("\1")
        identifier, _, body = head.partition("\n")
        message = "\n".join(line for line in body.splitlines() if not TRAILER.match(line)).strip()
        rows = [line.split("\t", 1) for line in status.strip().splitlines() if "\t" in line]
        files = [
            path
            for state, path in rows
            if state == "M" and Path(path).suffix in SOURCE and not TEST.search(path)
        ]
        if 0 < len(files) <= MAX_CHANGED_FILES and MIN_WORDS <= len(message.split()) <= MAX_WORDS:
            yield Commit(identifier, message, files)


def snapshot(clone: Path, revision: str) -> dict[str, str]:
    """path -> text of all text files at a revision."""
    tree = git(clone, "ls-tree", "-r", "-l", "--full-tree", revision)
    wanted = {
        row["path"]: row["blob"]
        for row in ENTRY.finditer(tree)
        if int(row["size"]) <= MAX_FILE_BYTES and not row["path"].startswith('"')
    }
    request = "".join(f"{blob}\n" for blob in wanted.values()).encode()
    run = subprocess.run(
        ["git", "-C", str(clone), "cat-file", "--batch"], input=request, capture_output=True, check=True
    )
    texts, at = {}, 0
    for path in wanted:
        end = run.stdout.index(b"\n", at)
        size = int(run.stdout[at:end].split()[2])
        data, at = run.stdout[end + 1 : end + 1 + size], end + size + 2
        if b"\0" not in data[:8000]:
            texts[path] = data.decode("utf-8", "replace").replace("\r\n", "\n")
    return texts


def changed_lines(clone: Path, commit: Commit, texts: dict[str, str]) -> list[list[Any]]:
    """[path, first line, last line] of the lines that a commit replaced, if the same lines occur exactly once
    in the snapshot. `texts` is path -> text of the snapshot.
    """
    places: list[list[Any]] = []
    for path in commit.files:
        old: list[str] = []
        diff = git(clone, "diff", "-U1", "--no-color", f"{commit.id}^", commit.id, "--", path).splitlines()
        for line in [*diff, "@@ -0 @@"]:
            if HUNK.match(line):
                block = "\n".join(old)
                if old and block.strip() and texts[path].count(block) == 1:
                    first = texts[path].count("\n", 0, texts[path].index(block)) + 1
                    places.append([path, first, first + len(old) - 1])
                old = []
            elif line[:1] in (" ", "-") and not line.startswith("---"):
                old.append(line[1:])
    return places


def headings(texts: dict[str, str]) -> Iterator[tuple[str, str, int, int]]:
    """(heading, path, start, end) of the headings that occur in only one page, sorted by their hash. `start`
    and `end` are character indexes in the page.
    """
    rows = []
    for path, text in texts.items():
        if Path(path).suffix in PAGES and not CHANGES.search(path):
            for match in HEADING.finditer(text):
                title = re.sub(r"[`*_]|\[([^\]]*)\]\([^)]*\)", r"\1", match["atx"] or match["plain"]).strip()
                if MIN_WORDS - 1 <= len(title.split()) <= 20:
                    rows.append((title, path, match.start(), match.end()))
    count = Counter(title.lower() for title, *_ in rows)
    yield from sorted((row for row in rows if count[row[0].lower()] == 1), key=lambda row: hash_of(row[0]))


def add_repository(judged: JudgedSet, name: str, clone: Path) -> int:
    """Adds a repository's files and questions. Returns the number of questions of the kind `commit`; 0 if the
    repository was left out.
    """
    candidates = list(commits(clone))[: QUESTIONS * 2]
    if len(candidates) < QUESTIONS // 2:
        return 0
    texts = snapshot(clone, candidates[-1].id + "^")
    if len(texts) > MAX_FILES:
        return 0
    later = [commit for commit in candidates if all(path in texts for path in commit.files)]
    for commit in sorted(later, key=lambda commit: hash_of(commit.id))[:QUESTIONS]:
        judged.add("commit", name, commit.message, commit.files, changed=changed_lines(clone, commit, texts))
    cut: dict[str, list[tuple[int, int]]] = {}
    for title, path, start, end in list(headings(texts))[:QUESTIONS]:
        judged.add("heading", name, title, [path])
        cut.setdefault(path, []).append((start, end))
    for path, text in texts.items():
        for start, end in sorted(cut.get(path, ()), reverse=True):
            text = text[:start] + text[end:]
        judged.documents.append({"id": f"{name}/{path}", "path": path, "source": name, "text": text})
    return min(len(later), QUESTIONS)


def clones(folder: Path) -> dict[str, Path]:
    """name -> clone or git directory, sorted by the hash of the name."""
    found = {}
    for path in folder.iterdir():
        for place in (path, path / "repo"):
            if (place / ".git").exists() or (place / "HEAD").is_file():
                found[re.sub(r"[^a-z0-9]+", "-", path.name.lower().removesuffix(".git")).strip("-")] = place
    return dict(sorted(found.items(), key=lambda item: hash_of(item[0])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clones", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    halves = {"tuning": JudgedSet(), "check": JudgedSet()}
    taken = 0
    for name, clone in clones(options.clones).items():
        half = ("tuning", "check")[taken % 2]
        count = add_repository(halves[half], name, clone)
        taken += count > 0
        print(
            f"{name}: {f'{count} commits, in {half}' if count else 'left out (too large, or too few commits)'}"
        )
    for half, judged in halves.items():
        judged.write(options.out / half)
        print(f"{half}: {len(judged.documents)} files, {len(judged.queries)} questions")


if __name__ == "__main__":
    main()

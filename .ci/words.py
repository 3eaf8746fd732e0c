"""Counts long sentences and words to avoid: `python .ci/words.py [FILE ...] [--show]`.

Reads pages, and the docstrings, comments and messages of Python files; without files, all of the repository.
A report for whoever edits next, not a test. `--show` prints each finding.
"""

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("ctx", "docs", ".ci", "tests", "benchmarks", "extensions")
LONG = 40  # words
# What made earlier texts hard to read, as patterns: words, turns of phrase, and metaphors used as names.
AVOID = (
    r"\banew\b",
    r"\blikewise\b",
    r"\bbesides\b",
    r"\bbeside\b",
    r"\bwhoever\b",
    r"\bmend(?:s|ed|ing)?\b",
    r"\bhangs? on\b",
    r"\bas far as\b",
    r"\b(?:is|are|was|were|be) (?:told|said)\b",
    r"\bstands? (?:in|on|beside|above|below|there)\b",
    r"\bof which\b",
    r"(?<!there )\b(?:is|are) no (?!longer\b)[a-z]+\b",
    r"\b(?:is|are) (?:dear|dearer)\b",
    r"\bthat is dear\b",
    r"\bof (?:its|their|a|one's) own word\b",
    r"\bas it is\b",
    r"\bwhere there is one\b",
    r"\bof ours\b",
    r"\b(?:doors?|legs?|lanes?|leads|shelf|nursery|rooms?)\b",
)
AVOIDED = re.compile("|".join(AVOID), re.IGNORECASE)
WORD = re.compile(r"[^\W_][\w'’-]*")


def prose_of_page(text: str) -> Iterator[str]:
    """Paragraphs, list items and table cells, without code."""
    text = re.sub(r"^(```|~~~).*?^\1\s*?$", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    text = re.sub(r"^\[[\w-]+\]: .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "X", text)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.|#+|\|) )", text):
        if block.lstrip().startswith("|"):
            yield from (cell for cell in block.split("|") if WORD.search(cell))
        else:
            yield block


def prose_of_code(text: str) -> Iterator[str]:
    """Docstrings, strings with a space, and comments."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield from re.split(r"\n\s*\n", node.value)
    comment: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if comment and token.start[0] != last + 1:
                yield " ".join(comment)
                comment = []
            comment.append(token.string.lstrip("# "))
            last = token.start[0]
    yield " ".join(comment)


def sentences(blocks: Iterator[str]) -> Iterator[str]:
    for block in blocks:
        for sentence in re.split(r"(?<=[.!?:;])\s+", " ".join(block.split())):
            if WORD.search(sentence):
                yield sentence


def files(names: list[str]) -> list[Path]:
    if names:
        return [Path(name) for name in names]
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    code = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted({*pages, *code})


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("files", nargs="*")
    options.add_argument("--show", action="store_true", help="print each finding")
    args = options.parse_args()
    totals = [0, 0, 0, 0]
    print(f"{'words':>7} {'sentences':>9} {'long':>5} {'avoid':>5}  file")
    for path in files(args.files):
        text = path.read_text(encoding="utf-8")
        parts = list(sentences(prose_of_page(text) if path.suffix == ".md" else prose_of_code(text)))
        long = [part for part in parts if len(WORD.findall(part)) > LONG]
        avoided = [(match[0], part) for part in parts for match in AVOIDED.finditer(part)]
        counts = (sum(len(WORD.findall(part)) for part in parts), len(parts), len(long), len(avoided))
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        if long or avoided or args.files:
            print(f"{counts[0]:>7} {counts[1]:>9} {counts[2]:>5} {counts[3]:>5}  {path}")
        if args.show:
            for part in long:
                print(f"          long: {part}")
            for word, part in avoided:
                print(f"          {word}: {part}")
    print(f"{totals[0]:>7} {totals[1]:>9} {totals[2]:>5} {totals[3]:>5}  in all")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

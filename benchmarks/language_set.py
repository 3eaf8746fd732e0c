"""A judged set in German, French, Spanish and Japanese: the manual pages that Debian has in all four.

    python benchmarks/language_set.py OUT
    cd OUT && ctx index && ctx eval de.jsonl      # fr, es, ja, and across: asked in one, answered in another

A question is what a page says the program does, in the line of its name, which is taken out of the page; its
answer is the page. Nothing is written by hand, so whoever has `apt-get` and `groff` can make the set again.
"""

import argparse
import gzip
import json
import re
import subprocess
import tempfile
from pathlib import Path

LANGUAGES = ("de", "es", "fr", "ja")
WIDE = ("-rLL=2000n", "-rHY=0")  # no line is broken, so no word is
_NAME_LINE = re.compile(r"^\s+\S.*? [-—–] (\S.*)$")
CONFIG = '[connectors.filesystem.{0}]\nroot = "./pages/{0}"\n'


def manual(language: str, folder: Path) -> dict[str, Path]:
    """The roff of a language's commands by name, fetched with apt-get."""
    subprocess.run(["apt-get", "download", "-qq", f"manpages-{language}"], cwd=folder, check=True)
    (package,) = folder.glob(f"manpages-{language}_*.deb")
    subprocess.run(["dpkg-deb", "-x", str(package), str(folder / language)], check=True)
    pages = folder / language / "usr" / "share" / "man" / language / "man1"
    return {path.name.removesuffix(".1.gz"): path for path in pages.glob("*.1.gz") if not path.is_symlink()}


def page(path: Path, chars: int) -> tuple[str, str] | None:
    """What a page says its program does, and the page without that; None where it has no such line."""
    command = ("groff", "-K", "utf8", "-man", "-Tutf8", *WIDE, "-P-cbou")
    text = subprocess.run(
        command, input=gzip.decompress(path.read_bytes()), capture_output=True, check=True
    ).stdout.decode()
    lines = [line for line in text.splitlines()[1:] if line.strip()]
    for number, line in enumerate(lines[:4]):
        match = _NAME_LINE.match(line)
        if match:
            return match[1], "\n".join(lines[number + 1 :])[:chars]
    return None


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--every", type=int, default=1, help="take every n-th page (default: 1)")
    options.add_argument("--chars", type=int, default=8000, help="of a page at most (default: 8000)")
    args = options.parse_args()
    out: Path = args.out
    with tempfile.TemporaryDirectory() as folder:
        roff = {language: manual(language, Path(folder)) for language in LANGUAGES}
        names = sorted(set.intersection(*(set(pages) for pages in roff.values())))[:: args.every]
        read = {name: [page(roff[language][name], args.chars) for language in LANGUAGES] for name in names}
    pages = {name: [each for each in row if each] for name, row in read.items() if all(row)}
    questions: dict[str, list[str]] = {name: [] for name in (*LANGUAGES, "across")}
    for name, row in pages.items():
        for number, language in enumerate(LANGUAGES):
            path = out / "pages" / language / f"{name}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(row[number][1], encoding="utf-8")
            for kind, query in ((language, row[number][0]), ("across", row[number - 1][0])):
                question = {"query": query, "expect": path.name, "source": f"filesystem:{language}"}
                questions[kind].append(json.dumps(question, ensure_ascii=False))
    for kind, lines in questions.items():
        (out / f"{kind}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (out / "ctx.toml").write_text("".join(map(CONFIG.format, LANGUAGES)))
    print(f"{len(pages)} pages in each of {', '.join(LANGUAGES)}; questions: {', '.join(questions)}")


if __name__ == "__main__":
    main()

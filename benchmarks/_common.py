"""Shared parts of the benchmarks: a generated corpus, a header with the machine, and limits of figures."""

import argparse
import http.client
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctx.workspace import Workspace

VOCABULARY = 30_000
SYLLABLES = (
    "ba be bi bo bu da de di do du fa fe ka ke ki ko ku la le li lo lu ma me mi mo mu na ne ni no nu pa pe "
    "pi po ra re ri ro ru sa se si so ta te ti to tu va ve vi"
).split()
COMMON = (
    "the of and to in is for that with on as be by are this it from or an not can when which will has at if "
    "use value file data"
).split()

UNUSUAL = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")

_failed: list[str] = []
_figures: dict[str, float] = {}


def header(title: str) -> None:
    """Prints the title, the command, the machine and its load, without which figures cannot be compared."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    print(f"# {title}")
    print(f"command: python {' '.join(sys.argv)}")
    print(f"machine: {os.cpu_count()} cores, {_cpu()}, Python {platform.python_version()}, load {load}\n")


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def options(purpose: str | None) -> argparse.ArgumentParser:
    """An argument parser with the option `--json`, which every benchmark has. `purpose` is its
    description.
    """
    parser = argparse.ArgumentParser(
        description=purpose, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON document, last")
    return parser


def note(what: str, figure: float) -> None:
    """Adds a figure that has no limit to the JSON document."""
    _figures[what] = round(figure, 3)


def once(command: list[str], folder: Path, environ: Mapping[str, str] = os.environ) -> tuple[float, float]:
    """Runs a command to its end, discards its output, and returns (processor time, elapsed time) in ms."""
    # Without these variables, as in a user's shell: Python stores byte code and buffers its output.
    kept = {name: text for name, text in environ.items() if name not in UNUSUAL}
    began_s = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, env=kept, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1000, (time.perf_counter() - began_s) * 1000


def check(what: str, figure: float, limit: float, *, at_most: bool = True, unit: str = "") -> None:
    """Prints a figure and whether it keeps its limit. If it does not, `finish` exits with 1."""
    held = figure <= limit if at_most else figure >= limit
    sign = "<=" if at_most else ">="
    print(f"{'PASS' if held else 'FAIL'}  {what}: {figure:.2f}{unit} (promised {sign} {limit:g}{unit})")
    note(what, figure)
    if not held:
        _failed.append(what)


def finish() -> None:
    """Exits with 1 if a check failed, else with 0. With `--json`, prints all figures as JSON before."""
    if "--json" in sys.argv:
        print(
            json.dumps(
                {"figures": _figures, "failed": _failed, "load": os.getloadavg(), "cores": os.cpu_count()}
            )
        )
    sys.exit(1 if _failed else 0)


def timed(work: Callable[[], object]) -> float:
    """Runs `work` once and returns the elapsed time in seconds."""
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def quantiles(samples_s: list[float]) -> tuple[float, float, float]:
    """(p50, p95, p99) of the samples, in milliseconds."""
    ordered = sorted(samples_s)
    return (
        statistics.median(ordered) * 1e3,
        ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))] * 1e3,
        ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e3,
    )


class Words:
    """Random words with the frequencies of a natural language (Zipf's law), the same on every machine.

    Without a seed, it gives the sequence of words that `markdown_tree` writes. A seed gives another sequence
    of the same vocabulary.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.random = random.Random(7)
        made = {
            "".join(self.random.choices(SYLLABLES, k=self.random.randint(2, 4))) for _ in range(VOCABULARY)
        }
        rare = sorted(made)
        self.random.shuffle(rare)
        self.words = COMMON + rare
        if seed is not None:
            self.random = random.Random(seed)
        self.weights = [1 / (rank + 10) for rank in range(len(self.words))]
        total = 0.0
        self.cumulative = [total := total + weight for weight in self.weights]

    def take(self, count: int) -> list[str]:
        return self.random.choices(self.words, cum_weights=self.cumulative, k=count)


def used_s(pid: int) -> float:
    """The processor time that a process has used so far, in seconds. (Linux derives the id of a process's
    clock from the process id.)
    """
    return time.clock_gettime(~pid << 3 | 2)


def wait_until_idle(address: str) -> None:
    """Waits until the server at `HOST:PORT` is idle after its start. A server whose `/health` does not report
    its activity counts as idle. Raises `SystemExit` after about a minute.
    """
    for _ in range(120):
        time.sleep(0.5)
        connection = http.client.HTTPConnection(address, timeout=30)
        try:
            connection.request("GET", "/health")
            if json.loads(connection.getresponse().read()).get("activity", "idle") == "idle":
                time.sleep(3)  # the server creates some interfaces with a delay
                return
        except OSError:
            pass
        finally:
            connection.close()
    raise SystemExit("the server does not come to rest")


def markdown_tree(folder: Path, files: int, characters: int = 5_200, *, per_folder: int = 100) -> int:
    """Writes Markdown files of about `characters` each, with headings, paragraphs, lists and code. Returns
    their total size in characters.
    """
    words = Words()
    total = 0
    for number in range(files):
        path = folder / f"part-{number // per_folder:04d}" / f"page-{number:06d}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = markdown_page(words, f"{' '.join(words.take(3)).capitalize()} {number}", characters)
        path.write_text(text)
        total += len(text)
    return total


def markdown_page(words: Words, title: str, characters: int) -> str:
    """A Markdown page of about `characters` characters."""
    parts = [f"# {title}\n"]
    size = 0
    section = 0
    while size < characters:
        section += 1
        parts.append(f"\n## {' '.join(words.take(3)).capitalize()}\n")
        for _ in range(words.random.randint(1, 4)):
            sentence = " ".join(words.take(words.random.randint(25, 80)))
            parts.append(f"\n{sentence.capitalize()}.\n")
        if section % 3 == 0:
            names = words.take(4)
            parts.append(
                f"\n```python\ndef {names[0]}_{names[1]}({names[2]}: int) -> str:\n    return "
                f"{names[3]}Value({names[2]})\n```\n"
            )
        if section % 4 == 0:
            parts.extend(f"- {' '.join(words.take(8))}\n" for _ in range(4))
        size = sum(map(len, parts))
    return "".join(parts)


def fill_vectors(folder: Path) -> int:
    """Indexes a project and gives every chunk a random unit vector, because embedding would take minutes.
    Returns the number of chunks.
    """
    from ctx.config import load_config
    from ctx.workspace import open_workspace

    with open_workspace(load_config(str(folder / "ctx.toml"), {})) as space:
        space.indexer.run()
        embed_at_random(space)
        space.indexer.repair()
        return space.catalog.stats()["chunks"]


def embed_at_random(space: "Workspace") -> None:
    """Gives every chunk without an embedding a random unit vector."""
    import numpy as np

    model = space.model
    assert model is not None
    chance = np.random.default_rng(7)
    pending = (chunk.chunk_no for chunk in list(space.catalog.pending_chunks(model)))
    while numbers := list(islice(pending, 20_000)):
        texts = space.catalog.pending_texts(model, numbers)
        made = chance.standard_normal((len(texts), 384), dtype=np.float32)
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        space.catalog.put_embeddings(
            model, [(digest, row) for (digest, _), row in zip(texts, made, strict=True)]
        )

"""Whether the tests would notice: changes one thing at a time in a room that keeps data or a door, and runs its tests.

    python scripts/mutate.py [ROOM ...] [--sample 25] [--seed 1] [--seconds N] [--at FILE:LINE]

Each line is a mutant that no test noticed (`survived`); the last line of a room is its share of those that
fell. The tree is copied to a temporary folder, so the working copy is never touched. What survives on purpose
is named in docs/decisions/0007-mutants.md.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SLACK_S = 20.0  # beyond four times what the room's tests take unchanged: a mutant that loops has been noticed


class Room(NamedTuple):
    """Files that are changed, and what pytest runs for them."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS = {
    "indexing": Room(
        ("ctx/indexing/run.py",),
        ("tests/indexing/test_index_run.py", "tests/indexing/test_runs_cut_short.py"),
    ),
    "store": Room(
        (
            "ctx/store/record.py",
            "ctx/store/documents.py",
            "ctx/store/embeddings.py",
            "ctx/store/sqlite.py",
        ),
        (
            "tests/store/test_catalog_contract.py",
            "tests/store/test_embeddings_contract.py",
            "tests/store/test_store_schema.py",
        ),
    ),
    "guard": Room(
        ("ctx/server/guard.py", "ctx/server/zones.py"),
        (
            "tests/server/test_zones.py",
            "tests/server/test_guard.py",
            "tests/server/test_guard_documents.py",
        ),
    ),
    "policy": Room(
        ("ctx/server/policy.py",),
        ("tests/server/test_policy.py", "tests/server/test_zones.py", "tests/server/test_guard.py"),
    ),
    "keys": Room(("ctx/server/keys.py",), ("tests/server/test_keys.py", "tests/server/test_guard.py")),
    "frames": Room(("ctx/lua/frames.py",), ("tests/lua/test_lua_frames.py",)),
}

_COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


class Mutant(NamedTuple):
    """One change of a file: on what line, its kind, the node's number in the walk of the tree, and its substitute."""

    path: str
    line: int
    change: str
    number: int
    substitute: ast.AST

    def text(self, source: str) -> str:
        """The whole file with the change."""
        changed = _Replace(self.number, self.substitute).visit(_numbered(source))
        return ast.unparse(ast.fix_missing_locations(changed))


def _numbered(source: str) -> ast.Module:
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        node.number = number  # type: ignore[attr-defined]
    return tree


def _is_statement(node: ast.stmt) -> bool:
    """Whether leaving a statement out leaves a program that means something else."""
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant) and "logger" not in ast.unparse(node)
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__":
        return False  # saves memory, and means nothing else
    return isinstance(node, ast.Assign | ast.AugAssign | ast.Raise | ast.Delete | ast.Break | ast.Continue)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What else could stand in a node's place, each with its name."""
    match node:
        case ast.Compare(ops=[operator, *_]) if type(operator) in _COMPARISONS:
            twin = copy.deepcopy(node)
            twin.ops[0] = _COMPARISONS[type(operator)]()
            yield "comparison", twin
        case ast.BoolOp():
            twin = copy.deepcopy(node)
            twin.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and/or", twin
        case ast.UnaryOp(op=ast.Not()):
            yield "not", node.operand
        case ast.Constant(value=bool() as value):
            yield "true/false", ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield "plus one", ast.Constant(value + 1)
        case ast.Call(args=[_, _, *_]) if not any(isinstance(entry, ast.Starred) for entry in node.args):
            twin = copy.deepcopy(node)
            twin.args[0], twin.args[1] = twin.args[1], twin.args[0]
            yield "swapped arguments", twin
        case ast.Return(value=value) if value is not None and ast.unparse(value) != "None":
            yield "return None", ast.Return(ast.Constant(None))
        case ast.If() | ast.While():
            twin = copy.deepcopy(node)
            twin.test = ast.UnaryOp(ast.Not(), node.test)
            yield "condition turned", twin
        case ast.stmt() if _is_statement(node):
            yield "left out", ast.Pass()


class _Replace(ast.NodeTransformer):
    """Puts another node in the place of one."""

    def __init__(self, number: int, substitute: ast.AST) -> None:
        self._number = number
        self._substitute = substitute

    def visit(self, node: ast.AST) -> ast.AST:
        if getattr(node, "number", None) == self._number:
            return ast.copy_location(self._substitute, node)
        return self.generic_visit(node)


def _spared(tree: ast.Module) -> set[ast.AST]:
    """What no test could notice: annotations, docstrings, limits and tables at the top of a module."""
    spared: set[ast.AST] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [
                node.returns,
                *(argument.annotation for argument in ast.walk(node.args) if isinstance(argument, ast.arg)),
            ]
        elif isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.Module):
            parts = [child for child in node.body if isinstance(child, ast.Assign | ast.AnnAssign | ast.Expr)]
        elif isinstance(node, ast.ImportFrom | ast.Import):
            parts = [node]
        for part in filter(None, parts):
            spared.update(ast.walk(part))
    return spared


def mutants(path: str, source: str) -> list[Mutant]:
    """Every mutant of a file, in the order of its lines."""
    tree = _numbered(source)
    spared = _spared(tree)
    result = [
        Mutant(path, node.lineno, change, node.number, substitute)
        for node in ast.walk(tree)
        if node not in spared and hasattr(node, "lineno")
        for change, substitute in _changes(node)
    ]
    return sorted(result, key=lambda mutant: mutant.line)


def _passes(folder: Path, tests: tuple[str, ...], limit_s: float) -> bool:
    """Whether the room's tests pass in a copy of the tree. One that is still at it after `limit_s` has failed."""
    environ = {
        **os.environ,
        "CTX_FUZZ_SECONDS": "0.5",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(folder),
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
        "--timeout=60",
    ]
    process = subprocess.Popen(
        [*command, *(test for test in tests if (folder / test).exists())],
        cwd=folder,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(limit_s) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # and what a test had started
        except ProcessLookupError:
            pass
        process.wait()


def sweep(
    name: str, folder: Path, sample: int, seed: int, until_s: float, lines: list[str]
) -> tuple[int, int]:
    """Tries a room's mutants, or those of `lines`, in a copy of the tree: how many fell, how many were tried."""
    room = ROOMS[name]
    sources = {path: (folder / path).read_text() for path in room.files}
    every = [mutant for path, source in sources.items() for mutant in mutants(path, source)]
    chosen = random.Random(seed).sample(every, min(sample, len(every)))  # noqa: S311 - the same ones each time
    if lines:
        chosen = [mutant for mutant in every if f"{mutant.path}:{mutant.line}" in lines]
    began_s = time.monotonic()
    if not _passes(folder, room.tests, 300):
        raise SystemExit(f"{name}: its tests fail without any change")
    limit_s = 4 * (time.monotonic() - began_s) + SLACK_S
    fell = tried = 0
    for mutant in sorted(chosen, key=lambda mutant: (mutant.path, mutant.line)):
        if time.monotonic() > until_s:
            break
        (folder / mutant.path).write_text(mutant.text(sources[mutant.path]))
        noticed = not _passes(folder, room.tests, limit_s)
        (folder / mutant.path).write_text(sources[mutant.path])
        tried += 1
        fell += noticed
        if not noticed:
            line = sources[mutant.path].splitlines()[mutant.line - 1].strip()
            print(f"survived  {mutant.path}:{mutant.line}  {mutant.change}: {line}", flush=True)
    print(f"{name}: {fell} of {tried} fell, of {len(every)} possible; seed {seed}", flush=True)
    return fell, tried


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rooms", nargs="*", metavar="ROOM", choices=[[], *ROOMS], help=", ".join(ROOMS))
    parser.add_argument("--sample", type=int, default=25, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600, help="in all; what is left then is not tried")
    parser.add_argument(
        "--at", action="append", default=[], metavar="FILE:LINE", help="only this line's mutants"
    )
    options = parser.parse_args()
    until_s = time.monotonic() + options.seconds
    fell = tried = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "tree"
        spared = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", ".hypothesis")
        shutil.copytree(ROOT, folder, ignore=spared)
        for room in options.rooms or ROOMS:
            counts = sweep(room, folder, options.sample, options.seed, until_s, options.at)
            fell, tried = fell + counts[0], tried + counts[1]
    print(f"all: {fell} of {tried} fell ({100 * fell / max(tried, 1):.0f} %)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

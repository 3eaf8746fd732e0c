"""What writers that share a database store beside each other: documents of sources of their own, and memories
of banks of their own.

    python benchmarks/writers.py [--url postgresql://...] [--seconds 8] [--standby [--apart-ms 5]] [--bare]

Each writer is a process, as another machine would be. Without `--url` it starts the server of the tests, with
`fsync` on; `--standby` gives it a synchronous standby that applies each commit before it is acknowledged, and
`--apart-ms` has that one wait so long, as if it stood elsewhere. One writer and eight are measured in turn,
twice, and threads of one process beside them; with `--bare` what psycopg alone, in processes, makes of the very
same statements.
"""

import multiprocessing
import pickle
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path

from _common import header, note, options

sys.path[:0] = [
    str(Path(__file__).parent.parent / "tests"),
    str(Path(__file__).parent.parent / "tests" / "store"),
]

WRITERS = (1, 8, 1, 8)
CHUNKS = 4  # of a document
BARE = 1600  # transactions of one writer without ctx, and four times as many as each of eight has
TEXT = (
    "what the ferry carries over the river in the morning, when the water is high and the boats are late " * 3
)


Start = Barrier | threading.Barrier
START_S = 60.0  # in which all writers are ready; one that failed would keep the others waiting for good


def write_documents(url: str, name: str, batch: int, seconds: float, start: Start) -> tuple[int, float]:
    """How many documents one writer stores, and its processor time."""
    from store_tree import make

    from ctx.cluster.catalog import PostgresCatalog

    with PostgresCatalog(url) as catalog:
        catalog.put_documents([make(f"git:{name}", "first.md", ["first"])])
        start.wait(START_S)
        begun_s, spent_s, count = time.monotonic(), time.process_time(), 0
        while time.monotonic() - begun_s < seconds:
            documents = [
                make(
                    f"git:{name}",
                    f"{count + number}.md",
                    [f"{TEXT} {name} {count} {number} {part}" for part in range(CHUNKS)],
                )
                for number in range(batch)
            ]
            catalog.put_documents(documents)
            count += batch
        return count, time.process_time() - spent_s


def write_memories(url: str, name: str, batch: int, seconds: float, start: Start) -> tuple[int, float]:
    """How many memories one writer stores, and its processor time."""
    from ctx.memory import MemoryStore

    with MemoryStore(url) as store:
        bank = store.bank(name)
        bank.put("first")
        start.wait(START_S)
        begun_s, spent_s, count = time.monotonic(), time.process_time(), 0
        while time.monotonic() - begun_s < seconds:
            bank.put(f"{TEXT[:120]} {name} {count}", kind="note")
            count += 1
        return count, time.process_time() - spent_s


KINDS = {"documents": write_documents, "memories": write_memories}


def _puts(kind: str, url: str, opened: ExitStack) -> list[Callable[[int], object]]:
    """What each of eight writers does, once for each number."""
    if kind == "documents":
        from store_tree import make

        from ctx.cluster.catalog import PostgresCatalog

        def document(catalog: PostgresCatalog, writer: int, number: int) -> object:
            texts = [f"{TEXT} {writer} {number} {part}" for part in range(CHUNKS)]
            return catalog.put_documents([make(f"git:bare{writer}", f"{number}.md", texts)])

        catalogs = [opened.enter_context(PostgresCatalog(url)) for _ in range(8)]
        return [partial(document, catalog, writer) for writer, catalog in enumerate(catalogs)]
    from ctx.memory import MemoryBank, MemoryStore

    def memory(bank: MemoryBank, number: int) -> object:
        return bank.put(f"{TEXT[:120]} {number}", kind="note")

    stores = [opened.enter_context(MemoryStore(url)) for _ in range(8)]
    return [partial(memory, store.bank(f"bare{writer}")) for writer, store in enumerate(stores)]


@contextmanager
def bare(kind: str, url: str) -> Iterator[Callable[[int], tuple[float, float]]]:
    """`rate(writers)` of psycopg alone, with the statements of one put at a time."""
    import _replay
    import psycopg

    copies = [f"{url.rpartition('/')[2]}_{kind}{number}" for number in range(3)]
    address = f"{url.rpartition('/')[0]}/{{}}".format
    with (
        psycopg.connect(address("postgres"), autocommit=True) as admin,
        tempfile.TemporaryDirectory() as work,
    ):

        def copy(name: str, origin: str) -> None:
            admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
            admin.execute(f"CREATE DATABASE {name} TEMPLATE {origin}".encode())

        recorded, before, written = copies
        copy(recorded, "template1")
        with ExitStack() as opened:
            for put in _puts(kind, address(recorded), opened):
                put(-1)  # its source, its bank, its epoch
        copy(before, recorded)
        with ExitStack() as opened:
            puts = _puts(kind, address(recorded), opened)
            for put in puts:
                put(-2)
            copied = [(put, BARE if number == 0 else BARE // 4) for number, put in enumerate(puts)]
            writers = _replay.record(*map(list, zip(*copied, strict=True)))
        path = Path(work) / "statements"
        path.write_bytes(pickle.dumps(writers))

        def measured(count: int) -> tuple[float, float]:
            copy(written, before)
            return _replay.rate(address(written), path, count)

        yield measured
        for name in copies:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _work(
    kind: str, url: str, name: str, batch: int, seconds: float, start: Barrier, results: object
) -> None:
    results.put(KINDS[kind](url, name, batch, seconds, start))  # type: ignore[attr-defined]


def rate(kind: str, url: str, writers: int, batch: int, seconds: float, turn: int) -> tuple[float, float]:
    """What so many writers store a second, all together, and the cores that their own processes are busy
    on.
    """
    context = multiprocessing.get_context("spawn")
    results, start = context.Queue(), context.Barrier(writers)
    processes = [
        context.Process(
            target=_work, args=(kind, url, f"{kind}-{turn}-{batch}-{number}", batch, seconds, start, results)
        )
        for number in range(writers)
    ]
    for process in processes:
        process.start()
    figures = [results.get(timeout=seconds + 2 * START_S) for _ in processes]
    for process in processes:
        process.join()
    return sum(count for count, _ in figures) / seconds, sum(spent_s for _, spent_s in figures) / seconds


def rate_of_threads(
    kind: str, url: str, writers: int, batch: int, seconds: float, turn: int
) -> tuple[float, float]:
    """As `rate`, of threads of this process, each with connections of its own."""
    start, counts = threading.Barrier(writers), []

    def work(number: int) -> None:
        name = f"{kind}-thread-{turn}-{batch}-{number}"
        counts.append(KINDS[kind](url, name, batch, seconds, start))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(count for count, _ in counts) / seconds, max(spent_s for _, spent_s in counts) / seconds


def _set(url: str, **settings: str) -> None:
    """Settings of a server, from now on."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for name, value in settings.items():
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        connection.execute("SELECT pg_reload_conf()")


def commit_ms(url: str) -> float:
    """What a commit of next to nothing takes, by the clock."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS commits (no INT)")
        began_s = time.perf_counter()
        for _ in range(100):
            connection.execute("INSERT INTO commits VALUES (1)")
        took_s = time.perf_counter() - began_s
        connection.execute("DROP TABLE commits")
    return 10 * took_s


@contextmanager
def database(url: str | None, *, standby: bool, apart_ms: int = 0) -> Iterator[str]:
    """The address of a database to write to."""
    if url is not None:
        yield url
        return
    import postgres

    programs = postgres.Programs()
    primary = postgres.Server(programs, durable=True).create()
    follower = primary.standby() if standby else None
    try:
        if follower is not None:
            _set(follower.url(), recovery_min_apply_delay=f"{apart_ms}ms")
            _set(primary.url(), synchronous_standby_names="*", synchronous_commit="remote_apply")
        yield primary.database()
    finally:
        primary.discard()
        if follower is not None:
            follower.discard()
        programs.discard()


def compare(
    kind: str, url: str, batch: int, seconds: float, alone: Callable[[int], tuple[float, float]] | None
) -> None:
    """One writer and eight, in turn, as processes and as threads of one; and where it is given, the same
    statements without ctx.
    """
    rates: dict[tuple[str, int], list[float]] = {}
    for turn, writers in enumerate(WRITERS):
        per_s, cores = rate(kind, url, writers, batch, seconds, turn)
        threads_per_s, threads_cores = rate_of_threads(kind, url, writers, batch, seconds, turn)
        figures = {
            "processes": (per_s, 1000 * cores / per_s),
            "threads": (threads_per_s, 1000 * threads_cores / threads_per_s),
        }
        if alone is not None:
            figures["psycopg"] = alone(writers)
        for manner, (manner_per_s, _) in figures.items():
            rates.setdefault((manner, writers), []).append(manner_per_s)
        shown = ", ".join(
            f"{manner} {manner_per_s:.0f} a second ({ms:.2f} ms of their own each)"
            for manner, (manner_per_s, ms) in figures.items()
        )
        print(f"  {kind}, {batch} at once, {writers} writers: {shown}")
    for manner in dict.fromkeys(manner for manner, _ in rates):
        one, eight = (statistics.mean(rates[manner, writers]) for writers in (1, 8))
        note(f"{kind}_{batch}_ratio_{manner}", eight / one)
        print(f"{kind}, {batch} at once, {manner}: eight writers store {eight / one:.2f} times what one does")
    print()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--url", help="a database of its own (default: a server is started)")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--standby", action="store_true", help="with a synchronous standby")
    parser.add_argument("--bare", action="store_true", help="and the same statements without ctx")
    parser.add_argument("--apart-ms", type=int, default=0, help="how long that waits with each commit")
    args = parser.parse_args()
    header("writers beside each other")
    with database(args.url, standby=args.standby, apart_ms=args.apart_ms) as url:
        print(f"  a commit takes {commit_ms(url):.1f} ms")
        for kind, batch in (("documents", 1), ("documents", 20), ("memories", 1)):
            with ExitStack() as opened:
                alone = opened.enter_context(bare(kind, url)) if args.bare and batch == 1 else None
                compare(kind, url, batch, args.seconds, alone)
    spent_s = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"processor time of all processes: {spent_s.ru_utime + spent_s.ru_stime:.0f} s")


if __name__ == "__main__":
    main()

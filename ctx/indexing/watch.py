"""Keeps the store up to date while a server runs.

It has three threads: one listens to the file system (watchfiles), one indexes sources that changed or are
due, one embeds. Files are searchable by keyword as soon as they are stored; vectors follow. Failures never
stop the server: they are logged, shown as degraded, and retried.
"""

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial

from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from ctx.connectors.base import Connector
from ctx.connectors.defaults import SKIPPED_FOLDERS
from ctx.connectors.filesystem import FilesystemConnector
from ctx.errors import Busy, CtxError
from ctx.indexing.indexer import Indexer
from ctx.indexing.status import FIRST_ANSWERS_S, IndexReport

logger = logging.getLogger(__name__)

MAX_PATHS = 5000  # if more paths change at once (a branch switch), one scan of the whole source is cheaper
# Seconds between two full scans, because the kernel may drop events silently. A scan without changes costs
# one `stat` call per file.
FULL_SCAN_EVERY_S = 3600.0
MISSING_ROOT_EVERY_S = 2.0
RETRY_S = 5.0  # seconds to wait after a failure of the store, the lock or the index
SOURCE_RETRY_S = 60.0  # seconds to wait after a source failed; doubled with each further failure
SOURCE_RETRY_AT_MOST_S = 3600.0
# The first wait (seconds) while another process writes, or another machine indexes the source.
PUT_OFF_S = 0.2
PUT_OFF_AT_MOST_S = 2.0  # seconds; the wait doubles with each attempt, up to this limit
POLL_S = 2.0  # seconds between two scans of a folder whose changes the kernel cannot report
# Loading fastembed takes a second, so it waits until the first requests are answered.
WARM_AFTER_S = 2.0
POLL_SHARE = 10  # pause for this many times the scan's duration, so that scans take a tenth of the time


_Paths = frozenset[str] | None
"""The paths of a source to scan; None for the whole source."""


@dataclass(eq=False)
class Watcher:
    """Keeps all sources up to date until `close`. `start` returns at once; the work is done in threads.

    `intervals_s` are the seconds between two scans of a source that cannot be watched, by source name;
    `debounce_ms` is how long to wait for a burst of file changes to end. Ignores changes in the folders
    `ignored` (those of the store). If `follow` is False, each source is indexed once, and then only on
    request.

    `before` is called once before the first run, to report an old configuration. `on_report` gets the report
    of every run, in the indexing thread. The work begins `patience_s` seconds after `start` (None: the
    default), or when `begin` is called.
    """

    indexer: Indexer
    intervals_s: Mapping[str, float]
    _: KW_ONLY
    debounce_ms: int = 50
    ignored: Sequence[str] = ()
    follow: bool = True
    before: Callable[[], object] | None = None
    on_report: Callable[[IndexReport], None] | None = None
    patience_s: float | None = None

    def __post_init__(self) -> None:
        self.debounce_ms = max(self.debounce_ms, 2)
        self._ignored = tuple(os.path.realpath(path) + os.sep for path in self.ignored)
        self._patience_s = FIRST_ANSWERS_S if self.patience_s is None else self.patience_s
        self._begun = threading.Event()
        self._stop = threading.Event()
        self._wake = threading.Condition()
        self._due: dict[str, _Paths] = {}
        self._embed_due = threading.Event()
        self._next_s: dict[str, float] = {}
        self._failures: dict[str, int] = {}  # consecutive failures by source
        self._put_off_s: dict[str, float] = {}  # the last wait after `Busy`, by source
        self._slowest_scan_s = 0.0
        # Whether to check the index now; with sources, it is checked after the first source.
        self._look_due = not self.indexer.connectors
        self._looked_s = -math.inf
        self._polling = bool(os.environ.get("WATCHFILES_FORCE_POLLING"))
        self._unsayable = False  # whether a changed file had a name that is not UTF-8
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        now_s = time.monotonic()
        for name, connector in self.indexer.connectors.items():
            if not (
                self.follow and isinstance(connector, FilesystemConnector) and os.path.isdir(connector.root)
            ):
                # Watched sources are scanned later, once the watch is set up.
                self._due[name] = None
            self._next_s[name] = now_s + self._interval_s(name)
        self.indexer.await_first_run()
        loops = [("ctx-index", self._index_loop), ("ctx-embed", self._embed_loop)]
        if self.follow and any(isinstance(c, FilesystemConnector) for c in self.indexer.connectors.values()):
            loops.append(("ctx-watch", self._watch_loop))
        for name, loop in loops:
            thread = threading.Thread(target=loop, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def begin(self) -> None:
        """Starts the work now instead of waiting `patience_s` for the first requests."""
        self._begun.set()

    def stop(self) -> None:
        """Asks the threads to stop and returns at once. An index run ends after its current document."""
        self._stop.set()
        self._begun.set()
        self._embed_due.set()
        with self._wake:
            self._wake.notify_all()

    def close(self, timeout_s: float = 5.0) -> None:
        """Stops the threads and waits for them, `timeout_s` seconds at most."""
        self.stop()
        ends_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, ends_s - time.monotonic()))

    def request(self, name: str) -> None:
        """Requests a scan of a whole source, and returns at once."""
        self._add(name, None)

    def after_run(self, name: str, ok: bool) -> None:
        """Must be called after every run of a source, including runs that a user requested.

        A source that fails is scanned less and less often: a server that is down for a day should not be
        asked every few seconds.
        """
        with self._wake:
            now_s = time.monotonic()
            if not ok:
                self._failures[name] = count = self._failures.get(name, 0) + 1
                pause_s = SOURCE_RETRY_S * 2 ** min(count - 1, 16)
                self._next_s[name] = now_s + min(pause_s, SOURCE_RETRY_AT_MOST_S)
            elif self._failures.pop(name, 0):
                self._next_s[name] = now_s + self._interval_s(name)
            self._wake.notify_all()

    def look_soon(self) -> None:
        """Requests a check and repair of the index after a failed search, at most once in
        `RETRY_S` seconds.
        """
        if time.monotonic() - self._looked_s >= RETRY_S:
            with self._wake:
                self._look_due = True
                self._wake.notify_all()

    def embed_soon(self) -> None:
        """Wakes the embedding thread to embed pending chunks."""
        self._embed_due.set()

    def _interval_s(self, name: str) -> float:
        if not self.follow:
            return math.inf
        return self.intervals_s.get(name, FULL_SCAN_EVERY_S)

    def _add(self, name: str, paths: _Paths) -> None:
        with self._wake:
            pending = self._due.get(name, frozenset())
            together = None if pending is None or paths is None else pending | paths
            self._due[name] = None if together is None or len(together) > MAX_PATHS else together
            self._wake.notify_all()

    # -- indexing --------------------------------------------------------------------------------------------

    def _index_loop(self) -> None:
        self._begun.wait(self._patience_s)
        if self.before is not None and not self._stop.is_set():
            try:
                self.before()
            except CtxError as error:
                logger.warning("the stored sources could not be checked reason=%s", error.message)
        while not self._stop.is_set():
            if self._look_due and not self._due:
                # Find damage in the index now. Otherwise the first write would find it, and searches before
                # that write could be wrong. Reading the index takes half a second for a million chunks, so
                # sources come first.
                self._look()
            with self._wake:
                # Check again under the lock, so that a stop or request in the meantime is not missed.
                if not (self._due or self._look_due or self._stop.is_set()):
                    next_s = min(self._next_s.values(), default=math.inf) - time.monotonic()
                    self._wake.wait(min(max(0.0, next_s), 3600.0))
                now_s = time.monotonic()
                for name, next_s in self._next_s.items():
                    if next_s <= now_s:
                        self._next_s[name] = now_s + self._interval_s(name)
                        self._due[name] = None
                if self._stop.is_set():
                    return
                if not self._due:
                    continue
                name = next(iter(self._due))
                paths = self._due.pop(name)
            self._index(self.indexer.connectors[name], paths)
            self._look_due = self._look_due or self._looked_s == -math.inf

    def _look(self) -> None:
        self._look_due = False
        self._looked_s = time.monotonic()
        try:
            self.indexer.rebuild_damaged()
        except CtxError as error:
            logger.warning("the index could not be checked reason=%s", error.message)

    def _index(self, connector: Connector, paths: _Paths) -> None:
        earlier = self.indexer.failure(connector.name)
        try:
            if paths is None or not isinstance(connector, FilesystemConnector):
                report = self.indexer.run_source(connector, stop=self._stop)
                self._slowest_scan_s = max(report.duration_s, self._slowest_scan_s * 0.9)
            else:
                items = partial(connector.scan_paths, paths)
                report = self.indexer.run_source(connector, stop=self._stop, items=items)
            if report.ok and earlier is not None:
                logger.info("source healthy again source=%s", connector.name)
            elif not report.ok and self.indexer.failure(connector.name) != earlier:
                logger.warning("source unhealthy source=%s reason=%s", connector.name, report.note)
            self._put_off_s.pop(connector.name, None)
            self.after_run(connector.name, report.ok)
            if self.on_report is not None:
                self.on_report(report)
        except Busy as error:
            self._put_off(connector.name, error.message)
            self._add(connector.name, paths)
        except Exception as error:
            self._note_failure(connector.name, f"index run failed source={connector.name}", error)
            with self._wake:  # retry soon, because for example a full disk may get space again
                retry_s = time.monotonic() + RETRY_S
                self._next_s[connector.name] = min(self._next_s[connector.name], retry_s)
        self._embed_due.set()

    def _note_failure(self, key: str, failure: str, error: Exception) -> None:
        """Reports a failure as degraded and logs it once, not with every attempt."""
        if isinstance(error, CtxError):
            if self.indexer.degrade(key, error.message):
                logger.error("%s reason=%s", failure, error.message)
        elif self.indexer.degrade(key, "an unexpected error; see the log"):
            logger.error("%s", failure, exc_info=error)

    def _put_off(self, name: str, reason: str) -> None:
        last_s = self._put_off_s.get(name)
        if last_s is None:  # log once, not with every attempt
            logger.info("index run put off source=%s reason=%s", name, reason)
        pause_s = PUT_OFF_S if last_s is None else min(2 * last_s, PUT_OFF_AT_MOST_S)
        self._put_off_s[name] = pause_s
        self._stop.wait(pause_s)

    # -- embedding -------------------------------------------------------------------------------------------

    def _embed_loop(self) -> None:
        self._begun.wait(self._patience_s)
        if not self._stop.is_set():  # do not load a model while stopping, because that takes too long
            self._warm(documents=False)
        warm = False
        while not self._stop.is_set():
            if not self._embed_due.wait(None if warm else WARM_AFTER_S):
                self._warm(documents=True)
                warm = True
                continue
            self._embed_due.clear()
            if self._stop.is_set():
                return
            if not self._embed_pending() and not self._stop.wait(RETRY_S):
                self._embed_due.set()

    def _embed_pending(self) -> bool:
        """Embeds the pending chunks. Returns False after a failure, True also if another process is busy."""
        try:
            self.indexer.embed(stop=self._stop)
            self.indexer.degrade("embeddings", None)
        except Busy as error:
            logger.info("embedding put off reason=%s", error.message)
            self._embed_due.set()
        except Exception as error:
            self._note_failure("embeddings", "embedding failed", error)
            return False
        return True

    def _warm(self, *, documents: bool) -> None:
        try:
            self.indexer.warm(documents=documents)
        except CtxError as error:
            # Only warming for documents downloads a model, so only then is the failure a warning.
            level = logging.WARNING if documents else logging.DEBUG
            logger.log(level, "the embedder is not available yet reason=%s", error.message)

    # -- listening -------------------------------------------------------------------------------------------

    def _folders(self) -> dict[str, str]:
        """The resolved root of each folder, by source name."""
        connectors = self.indexer.connectors.values()
        return {c.name: os.path.realpath(c.root) for c in connectors if isinstance(c, FilesystemConnector)}

    def _watch_loop(self) -> None:
        watched = self._folders()
        self._begun.wait(self._patience_s)
        if not self._polling and any(_is_remote(root) for root in watched.values()):
            self._poll_because("on a network file system only this machine's own changes are reported")
        while not self._stop.is_set():
            present = _there(watched)
            if not present:
                self._stop.wait(MISSING_ROOT_EVERY_S)
                continue
            self.indexer.watching("polling" if self._polling else "native")
            try:
                if self._polling:
                    self._poll(watched)
                else:
                    self._listen(present, watched)
            except FileNotFoundError:
                self._stop.wait(0.2)  # a root disappeared before it was watched
            except (OSError, WatchfilesRustInternalError) as error:
                if "decode path" not in str(error):
                    reason = str(getattr(error, "strerror", None) or error).split(" about [")[0]
                    self._poll_because(f"the system cannot watch so many folders ({reason})")
                    continue
                self._scan_whole()

    def _scan_whole(self) -> None:
        """Waits after watchfiles failed at a changed file name that is not UTF-8. Other changes at the same
        time are lost, but the next watch begins with a full scan. Opening a folder with such a name also
        counts as a change, so this repeats as long as the file exists.
        """
        if not self._unsayable:
            logger.info("a changed name is not UTF-8: from now on the sources are scanned as a whole")
        self._unsayable = True
        self._stop.wait(max(POLL_S, POLL_SHARE * self._slowest_scan_s))

    def _poll_because(self, reason: str) -> None:
        self._polling = True
        self.indexer.degrade("watch", f"{reason}; polling instead")
        logger.warning("watching falls back to polling reason=%s", reason)

    def _poll(self, watched: Mapping[str, str]) -> None:
        """Scans the folders again and again until stopped.

        The polling of watchfiles is not used, because it compares times in whole seconds and would miss an
        edit in the same second as its last scan.
        """
        while not self._stop.is_set():
            for name in watched:
                self.request(name)
            self._stop.wait(max(POLL_S, POLL_SHARE * self._slowest_scan_s))

    def _matters(self, path: str, roots: Sequence[str]) -> bool:
        """Whether a change at a path can affect the index: the path is below a root, and not in the store's
        folder or in a folder of version control or build output.
        """
        if path.startswith(self._ignored):
            return False
        return any(
            path.startswith(root) and SKIPPED_FOLDERS.isdisjoint(path[len(root) :].split(os.sep))
            for root in roots
        )

    def _listen(self, present: Mapping[str, str], watched: Mapping[str, str]) -> None:
        """Listens for changes until stopped or until a root folder appears or disappears."""
        roots = sorted(set(present.values()))
        # watchfiles reports a burst of changes when two checks, one step apart, find the same changes. So a
        # single change is reported after one or two steps.
        step_ms = self.debounce_ms // 2
        with _listener(roots) as listener:
            # Scan after the watch is set up, to find changes from before.
            for name in present:
                self.request(name)
            while not self._stop.is_set():
                changes = listener.watch(
                    max(self.debounce_ms * 8, 400), step_ms, int(MISSING_ROOT_EVERY_S * 1000), self._stop
                )
                if _there(watched) != present:
                    for name in present:
                        self.request(name)
                    return
                if isinstance(changes, str):
                    continue  # no changes: the wait timed out, or the watcher is stopping
                if any(kind == _ADDED and os.path.isdir(path) for kind, path in changes):
                    # The kernel may have had no watch left for the new folder. In that case this call raises
                    # an error.
                    _listener(roots[:1], recursive=False).close()
                paths = {path for _, path in changes if self._matters(path, roots)}
                for name, root in present.items():
                    below = root.rstrip(os.sep) + os.sep
                    mine = frozenset(path for path in paths if path.startswith(below) or path == root)
                    if mine:
                        self._add(name, mine)


def _there(roots: Mapping[str, str]) -> dict[str, str]:
    return {name: root for name, root in roots.items() if os.path.isdir(root)}


_ADDED = 1  # the number with which watchfiles reports an added file or folder


def _listener(roots: list[str], *, recursive: bool = True) -> RustNotify:
    """Starts to listen to folders. Raises `OSError` if the kernel has too few watches.

    Uses `RustNotify` directly, because `watchfiles.watch` starts to listen only when the first change is
    requested.
    """
    try:
        return RustNotify(roots, False, False, 0, recursive, False)
    except PermissionError:
        # Skip unreadable folders. This also skips folders beyond the limit of watches silently, so try one
        # more watch, which raises an error in that case.
        listener = RustNotify(roots, False, False, 0, recursive, True)
        RustNotify(roots[:1], False, False, 0, False, False).close()
        return listener


_REMOTE = tuple(
    "nfs cifs smb 9p ceph afs fuse.sshfs fuse.rclone glusterfs lustre virtiofs vboxsf".split()  # noqa: SIM905
)


def _is_remote(path: str) -> bool:
    """Whether a folder is on a network file system, where the kernel does not report changes from other
    machines. False if unknown.
    """
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split(" ")[1:3] for line in file]
    except OSError:
        return False
    above = [
        (len(folder), kind)
        for folder, kind in mounts
        if path == folder or path.startswith(folder.rstrip("/") + "/")
    ]
    return bool(above) and max(above)[1].startswith(_REMOTE)

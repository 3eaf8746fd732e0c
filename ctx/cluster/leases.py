"""Leases in the database, for work that only one machine may do at a time.

A turn is a lease that is renewed until the work ends. If it is lost, an event is set, and the database
refuses further writes of this machine.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from ctx import files
from ctx.errors import Busy, StoreError

if TYPE_CHECKING:  # an index in OpenSearch needs a machine's name, and not psycopg
    from ctx.cluster.postgres import Database

TTL_S = 30.0  # how long a lease lasts without renewal, and so how long others wait for a machine that died
RENEWALS = 3  # renewals within this time
WAIT_S = 120.0  # the longest wait for another machine that does the same work
LOOK_S = 0.25  # the time between two attempts to take a lease


class Leases:
    """The leases in a shared database, timed by the database's clock. `owner` is the name shown to others."""

    def __init__(self, database: "Database", owner: str) -> None:
        self._database = database
        self._owner = owner

    def lease(self, name: str, ttl_s: float) -> int | None:
        """Takes the lease `name` for `ttl_s` and returns its epoch, which is higher than any earlier epoch.
        Returns None if another owner holds the lease.
        """
        with self._database.transaction(write=True) as connection:
            row = connection.execute(
                "INSERT INTO lease AS l VALUES (?, 1, ?, clock_timestamp() + make_interval(secs => ?)) "
                "ON CONFLICT (name) DO UPDATE SET epoch = l.epoch + 1, owner = excluded.owner, "
                "until = excluded.until WHERE l.until <= clock_timestamp() RETURNING epoch",
                (name, self._owner, ttl_s),
            ).fetchone()
        return None if row is None else int(row[0])

    def renew(self, name: str, epoch: int, ttl_s: float) -> bool:
        """Renews a lease for `ttl_s` from now. Returns False if it was released, or expired and was taken by
        another owner.
        """
        with self._database.transaction(write=True) as connection:
            return bool(
                connection.execute(
                    "UPDATE lease SET until = clock_timestamp() + make_interval(secs => ?) "
                    "WHERE name = ? AND epoch = ? AND until > '-infinity'",
                    (ttl_s, name, epoch),
                ).rowcount
            )

    def release(self, name: str, epoch: int) -> None:
        """Releases a lease. Does nothing if another owner has taken it meanwhile."""
        with self._database.transaction(write=True) as connection:
            connection.execute(
                "UPDATE lease SET until = '-infinity' WHERE name = ? AND epoch = ?", (name, epoch)
            )

    def holder(self, name: str) -> str | None:
        """The owner of a lease; None if it is free."""
        with self._database.transaction() as connection:
            row = connection.execute(
                "SELECT owner FROM lease WHERE name = ? AND until > clock_timestamp()", (name,)
            ).fetchone()
        return None if row is None else str(row[0])


class TurnEvent(threading.Event):
    """An event that is set when a turn is lost, or when the caller's own event `outer` is set."""

    def __init__(self, outer: threading.Event | None) -> None:
        super().__init__()
        self._outer = outer

    def is_set(self) -> bool:
        return super().is_set() or (self._outer is not None and self._outer.is_set())


@contextmanager
def turn(
    leases: Leases, name: str, what: str, stop: threading.Event | None, *, ttl_s: float = TTL_S
) -> Iterator[tuple[int, TurnEvent]]:
    """A context manager that holds the lease `name` until the end of the block. It yields (the lease's epoch,
    an event that is set when the lease is lost or `stop` is set).

    Raises `Busy` with the holder's name if the lease is taken. `what` begins the error message.
    """
    epoch = leases.lease(name, ttl_s)
    if epoch is None:
        raise Busy(f"{what} by {leases.holder(name) or 'another machine'}: try again when it has finished")
    ending = TurnEvent(stop)
    over = threading.Event()

    def renew() -> None:
        renewed_s = time.monotonic()
        while not over.wait(ttl_s / RENEWALS):
            try:
                if not leases.renew(name, epoch, ttl_s):
                    break
                renewed_s = time.monotonic()
            except StoreError:
                if time.monotonic() - renewed_s > ttl_s:
                    break
        if not over.is_set():
            ending.set()

    thread = threading.Thread(target=renew, name="ctx-turn", daemon=True)
    thread.start()
    try:
        yield epoch, ending
    finally:
        over.set()
        thread.join()
        try:
            leases.release(name, epoch)
        except StoreError:
            pass  # the lease will expire


@contextmanager
def turn_or_done(
    leases: Leases, name: str, what: str, done: Callable[[], bool], *, timeout_s: float = WAIT_S
) -> Iterator[bool]:
    """A context manager whose block only one machine runs at a time.

    It yields True if this machine must do the work, and False as soon as `done()` is true, because another
    machine has done it. Raises `Busy` if neither happens within `timeout_s`.
    """
    ends_s = time.monotonic() + timeout_s
    with ExitStack() as stack:
        mine = False
        while not mine:
            try:
                stack.enter_context(turn(leases, name, what, None))
                mine = True
            except Busy:
                if done():
                    break
                if time.monotonic() > ends_s:
                    raise
                time.sleep(LOOK_S)
        yield mine


def machine_name(folder: str) -> str:
    """This machine's name: the host name and six random hexadecimal digits, which are created once and kept
    in `folder`. Raises `StoreError`.
    """
    path = os.path.join(folder, "machine")
    try:
        if not os.path.exists(path):
            files.make_folder(folder, beneath=folder)
            files.replace(path, f"{socket.gethostname()}-{os.urandom(3).hex()}\n".encode())
        return files.read_file(path).decode("utf-8").strip()
    except OSError as error:
        raise StoreError(f"cannot keep this machine's name beside [db] path: {error.strerror}") from error

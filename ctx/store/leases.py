"""Turns: what only one may do at a time, among the machines that share a database.

A turn is a lease that is renewed while it lasts. Who loses it is told by an event, and its writes are refused
from then on.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from ctx import file_writing, files
from ctx.errors import Busy, StoreError
from ctx.store.base import Coordination

TTL_S = 30.0  # what a machine that dies costs the others
RENEWALS = 3  # within that time
WAIT_S = 120.0  # for a turn that another machine has, where its work is also this one's
LOOK_S = 0.25


class TurnEvent(threading.Event):
    """Set when a turn is lost, or when whoever asked for it wants it to end."""

    def __init__(self, outer: threading.Event | None) -> None:
        super().__init__()
        self._outer = outer

    def is_set(self) -> bool:
        return super().is_set() or (self._outer is not None and self._outer.is_set())


@contextmanager
def turn(
    coordination: Coordination, name: str, what: str, stop: threading.Event | None, *, ttl_s: float = TTL_S
) -> Iterator[tuple[int, TurnEvent]]:
    """The epoch of a lease on `name`, kept to the end of the block, and the event that ends it. Raises `Busy`
    naming the holder.
    """
    epoch = coordination.lease(name, ttl_s)
    if epoch is None:
        raise Busy(
            f"{what} by {coordination.holder(name) or 'another machine'}: try again when it has finished"
        )
    ending = TurnEvent(stop)
    over = threading.Event()

    def renew() -> None:
        renewed_s = time.monotonic()
        while not over.wait(ttl_s / RENEWALS):
            try:
                if not coordination.renew(name, epoch, ttl_s):
                    break
                renewed_s = time.monotonic()
            except StoreError:
                if time.monotonic() - renewed_s > ttl_s:
                    break  # by now it may be another one's
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
            coordination.release(name, epoch)
        except StoreError:
            pass  # it runs out by itself


@contextmanager
def turn_or_done(
    coordination: Coordination, name: str, what: str, done: Callable[[], bool], *, timeout_s: float = WAIT_S
) -> Iterator[bool]:
    """A block that nobody else is in, with True; or with False as soon as `done()`, since whoever was in it
    has done the work.

    Raises `Busy` where neither comes about in time.
    """
    ends_s = time.monotonic() + timeout_s
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(turn(coordination, name, what, None))
                mine = True
                break
            except Busy:
                if done():
                    mine = False
                    break
                if time.monotonic() > ends_s:
                    raise
                time.sleep(LOOK_S)
        yield mine


def machine_name(folder: str) -> str:
    """The name of this machine and store: the host's, and a few letters that are made once. Raises
    `StoreError`.
    """
    path = os.path.join(folder, "machine")
    try:
        try:
            return files.read_file(path).decode("utf-8").strip()
        except FileNotFoundError:
            files.make_folder(folder, beneath=folder)
            name = f"{socket.gethostname()}-{os.urandom(3).hex()}"
            file_writing.replace(path, f"{name}\n".encode())
            return name
    except OSError as error:
        raise StoreError(
            f"the name of this machine cannot be kept beside [db] path: {error.strerror}"
        ) from error

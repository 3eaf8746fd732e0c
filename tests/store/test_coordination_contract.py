"""What every coordination does: a lease is one's alone until it is given back or runs out."""

import threading
import time
from collections.abc import Iterator

import pytest

from ctx.errors import Busy
from ctx.store.base import Coordination
from ctx.store.leases import turn, turn_or_done

LATE_S = 30.0


class LocalCoordination:
    """The `Coordination` of one process: what the contract asks, in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: dict[str, tuple[int, float]] = {}  # epoch, until when (monotonic)

    def lease(self, name: str, ttl_s: float) -> int | None:
        with self._lock:
            epoch, until_s = self._leases.get(name, (0, 0.0))
            if until_s > time.monotonic():
                return None
            self._leases[name] = epoch + 1, time.monotonic() + ttl_s
            return epoch + 1

    def renew(self, name: str, epoch: int, ttl_s: float) -> bool:
        with self._lock:
            current, until_s = self._leases.get(name, (0, 0.0))
            if current != epoch or not until_s:
                return False
            self._leases[name] = epoch, time.monotonic() + ttl_s
            return True

    def release(self, name: str, epoch: int) -> None:
        with self._lock:
            if self._leases.get(name, (0, 0.0))[0] == epoch:
                self._leases[name] = epoch, 0.0

    def holder(self, name: str) -> str | None:
        with self._lock:
            until_s = self._leases.get(name, (0, 0.0))[1]
        return "this process" if until_s > time.monotonic() else None


@pytest.fixture(params=["local", pytest.param("postgresql", marks=pytest.mark.cluster)])
def coordination(request: pytest.FixtureRequest) -> Iterator[Coordination]:
    if request.param == "local":
        yield LocalCoordination()
        return
    url: str = request.getfixturevalue("database_url")
    from ctx.store.postgres_catalog import PostgresCatalog
    from ctx.store.postgres_coordination import PostgresCoordination

    with PostgresCatalog(url) as catalog:
        yield PostgresCoordination(catalog.database, "here")


def test_a_lease_is_one_holders_until_it_is_given_back(coordination: Coordination) -> None:
    epoch = coordination.lease("scan", 60)
    assert epoch is not None
    assert coordination.lease("scan", 60) is None
    assert coordination.holder("scan") is not None
    assert coordination.lease("embed", 60) is not None
    coordination.release("scan", epoch)
    assert coordination.holder("scan") is None
    after = coordination.lease("scan", 60)
    assert after is not None
    assert after > epoch


def test_a_lease_that_ran_out_is_anothers_and_cannot_be_renewed_then(coordination: Coordination) -> None:
    epoch = coordination.lease("scan", 0)
    assert epoch is not None
    after = coordination.lease("scan", 60)
    assert after is not None
    assert after > epoch
    assert not coordination.renew("scan", epoch, 60)
    coordination.release("scan", epoch)
    assert coordination.holder("scan") is not None, "the other one's stays"
    assert coordination.renew("scan", after, 60)


def test_of_many_that_ask_at_once_one_gets_it(coordination: Coordination) -> None:
    epochs: list[int | None] = []
    threads = [
        threading.Thread(target=lambda: epochs.append(coordination.lease("scan", 60))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(epoch is not None for epoch in epochs) == 1


@pytest.mark.slow
def test_a_turn_is_renewed_while_it_lasts_and_others_are_told_whose_it_is(coordination: Coordination) -> None:
    with turn(coordination, "scan", "'docs' is being indexed", None, ttl_s=4.0) as (epoch, ending):
        assert not ending.wait(5.0)
        with (
            pytest.raises(Busy, match="'docs' is being indexed by"),
            turn(coordination, "scan", "'docs' is being indexed", None),
        ):
            pass
        assert coordination.renew("scan", epoch, 4.0)
    assert coordination.holder("scan") is None


def test_who_loses_a_turn_is_told(coordination: Coordination) -> None:
    with turn(coordination, "scan", "it runs", None, ttl_s=0.3) as (epoch, ending):
        coordination.release("scan", epoch)
        assert coordination.lease("scan", 60) is not None
        assert ending.wait(LATE_S)
        assert ending.is_set()


def test_a_turn_ends_when_whoever_asked_for_it_wants_it_to(coordination: Coordination) -> None:
    stop = threading.Event()
    with turn(coordination, "scan", "it runs", stop) as (_, ending):
        assert not ending.is_set()
        stop.set()
        assert ending.is_set()


def test_whoever_finds_another_at_the_same_work_waits_until_it_is_done(coordination: Coordination) -> None:
    with turn_or_done(coordination, "index", "busy", lambda: False) as first:
        assert first
        with turn_or_done(coordination, "index", "busy", lambda: True) as second:
            assert not second, "the work is done, and was not theirs"
        with (
            pytest.raises(Busy, match="busy by"),
            turn_or_done(coordination, "index", "busy", lambda: False, timeout_s=0),
        ):
            pass
    with turn_or_done(coordination, "index", "busy", lambda: False) as third:
        assert third

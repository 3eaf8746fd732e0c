"""Leases: one holder at a time, until the lease is released or expires."""

import threading
from collections.abc import Iterator

import pytest

from ctx.cluster.catalog import PostgresCatalog
from ctx.cluster.leases import Leases, turn, turn_or_done
from ctx.errors import Busy

pytestmark = pytest.mark.cluster

LATE_S = 30.0


@pytest.fixture
def leases(database_url: str) -> Iterator[Leases]:
    with PostgresCatalog(database_url) as catalog:
        yield Leases(catalog.database, "here")


def test_a_lease_is_one_holders_until_it_is_given_back(leases: Leases) -> None:
    epoch = leases.lease("scan", 60)
    assert epoch is not None
    assert leases.lease("scan", 60) is None
    assert leases.holder("scan") is not None
    assert leases.lease("embed", 60) is not None
    leases.release("scan", epoch)
    assert leases.holder("scan") is None
    after = leases.lease("scan", 60)
    assert after is not None
    assert after > epoch


def test_a_lease_that_ran_out_is_anothers_and_cannot_be_renewed_then(leases: Leases) -> None:
    epoch = leases.lease("scan", 0)
    assert epoch is not None
    after = leases.lease("scan", 60)
    assert after is not None
    assert after > epoch
    assert not leases.renew("scan", epoch, 60)
    leases.release("scan", epoch)
    assert leases.holder("scan") is not None, "the other one's stays"
    assert leases.renew("scan", after, 60)


def test_of_many_that_ask_at_once_one_gets_it(leases: Leases) -> None:
    epochs: list[int | None] = []
    threads = [threading.Thread(target=lambda: epochs.append(leases.lease("scan", 60))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(epoch is not None for epoch in epochs) == 1


@pytest.mark.slow
def test_a_turn_is_renewed_while_it_lasts_and_others_are_told_whose_it_is(leases: Leases) -> None:
    with turn(leases, "scan", "'docs' is being indexed", None, ttl_s=4.0) as (epoch, ending):
        assert not ending.wait(5.0)
        with (
            pytest.raises(Busy, match="'docs' is being indexed by"),
            turn(leases, "scan", "'docs' is being indexed", None),
        ):
            pass
        assert leases.renew("scan", epoch, 4.0)
    assert leases.holder("scan") is None


def test_who_loses_a_turn_is_told(leases: Leases) -> None:
    with turn(leases, "scan", "it runs", None, ttl_s=0.3) as (epoch, ending):
        leases.release("scan", epoch)
        assert leases.lease("scan", 60) is not None
        assert ending.wait(LATE_S)
        assert ending.is_set()


def test_a_turn_ends_when_whoever_asked_for_it_wants_it_to(leases: Leases) -> None:
    stop = threading.Event()
    with turn(leases, "scan", "it runs", stop) as (_, ending):
        assert not ending.is_set()
        stop.set()
        assert ending.is_set()


def test_whoever_finds_another_at_the_same_work_waits_until_it_is_done(leases: Leases) -> None:
    with turn_or_done(leases, "index", "busy", lambda: False) as first:
        assert first
        with turn_or_done(leases, "index", "busy", lambda: True) as second:
            assert not second, "the work is done, and was not theirs"
        with (
            pytest.raises(Busy, match="busy by"),
            turn_or_done(leases, "index", "busy", lambda: False, timeout_s=0),
        ):
            pass
    with turn_or_done(leases, "index", "busy", lambda: False) as third:
        assert third

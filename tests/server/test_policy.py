"""The rules by themselves: binds, and whom a key is."""

from pathlib import Path

import pytest

from ctx.errors import ConfigError
from ctx.rates import SlidingWindow
from ctx.refusals import RateLimited, Unauthorized
from ctx.server.keys import Grant, KeyRing
from ctx.server.policy import (
    Access,
    PackPolicy,
    Policy,
    ServerSettings,
    check_bind,
    setting_doubts,
    split_bind,
)


@pytest.mark.parametrize("bind", ["0.0.0.0:7331", "192.168.1.5:7331", "[::]:7331", "ctx.lan:7331"])
def test_a_bind_beyond_this_machine_needs_a_key(tmp_path: Path, bind: str) -> None:
    with pytest.raises(ConfigError, match="ctx key create"):
        check_bind(ServerSettings(bind=bind))
    check_bind(ServerSettings(bind=bind, api_keys=("k",)))
    check_bind(ServerSettings(bind=bind, insecure_no_auth=True))
    ring = KeyRing(str(tmp_path / "keys.json"))
    with pytest.raises(ConfigError):
        check_bind(ServerSettings(bind=bind), ring)
    ring.create("laptop")
    check_bind(ServerSettings(bind=bind), ring)


@pytest.mark.parametrize("bind", ["127.0.0.1:7331", "localhost:0", "[::1]:7331", "127.0.0.9:1"])
def test_a_loopback_bind_needs_none(bind: str) -> None:
    check_bind(ServerSettings(bind=bind))


@pytest.mark.parametrize("bind", ["7331", "127.0.0.1", "::1:7331", ":7331", "host:port", "host:70000"])
def test_a_bind_that_is_none_is_named(bind: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        split_bind(bind)


def test_calls_are_counted_by_key_else_by_address_and_a_key_of_one_bank_names_it() -> None:
    policy, window = Policy(ServerSettings()), SlidingWindow(1)
    spenders = []
    for grant, client in (
        (Grant("key:laptop", frozenset(["alice"])), ("127.0.0.1", 9)),
        (Grant("key:desk", frozenset(["alice", "bob"])), ("127.0.0.1", 9)),
        (None, ("127.0.0.1", 9)),
        (None, None),
    ):
        access = Access(policy, "request")
        access.window = window
        access.grant = grant
        access.settle(client)
        access.spend()
        with pytest.raises(RateLimited):
            access.spend()
        spenders.append((access.spender, access.bank))
    assert spenders == [("key:laptop", "alice"), ("key:desk", None), ("127.0.0.1", None), ("local", None)]


def test_a_key_for_another_bank_is_told_from_no_key() -> None:
    access = Access(
        Policy(ServerSettings(packs=(PackPolicy("vault", at_banks=True, keys=("k",)),))), "request"
    )
    access.bank = "bob"
    access.bank_fixed = True
    with pytest.raises(Unauthorized, match="needs a key") as absent:
        access.admit_mcp()
    access.grant = Grant("key:laptop", frozenset(["alice"]))
    with pytest.raises(Unauthorized, match="does not open this bank") as present:
        access.admit_mcp()
    assert (absent.value.presented, present.value.presented) == (False, True)
    access.bank = "alice"
    access.admit_mcp()


@pytest.mark.parametrize(
    ("grant", "reason"),
    [
        (Grant("key:diary", pack="diary"), "opens the pack diary alone"),
        (Grant("key:laptop", frozenset(["bob", "alice"])), "memories alone, of the bank alice, bob"),
    ],
)
def test_a_key_for_memories_opens_no_documents_and_is_told_so(grant: Grant, reason: str) -> None:
    access = Access(Policy(ServerSettings(api_keys=("k",))), "request")
    access.grant = grant
    with pytest.raises(Unauthorized, match=reason) as refused:
        access.admit_documents()
    assert refused.value.presented


def test_a_pack_is_known_where_it_is_enabled() -> None:
    access = Access(Policy(ServerSettings(packs=(PackPolicy("vault"),))), "request")
    assert (access.knows_pack("vault"), access.knows_pack("diary")) == (True, False)


def test_a_key_that_does_not_open_a_pack_is_told_from_no_key() -> None:
    access = Access(Policy(ServerSettings(packs=(PackPolicy("vault", keys=("k",)),))), "request")
    with pytest.raises(Unauthorized, match="send 'Authorization") as absent:
        access.admit_pack("vault")
    access.grant = Grant("key:diary", pack="diary")
    with pytest.raises(Unauthorized, match="does not open this pack") as present:
        access.admit_pack("vault")
    assert (absent.value.presented, present.value.presented) == (False, True)


def test_a_call_by_a_packs_own_route_is_the_packs_and_else_its_endpoints() -> None:
    access = Access(Policy(ServerSettings()), "request")
    assert (access.caller().pack, access.caller(pack="vault").pack) == (None, "vault")
    access.pack = "diary"
    assert (access.caller().pack, access.caller(pack="vault").pack) == ("diary", "vault")


@pytest.mark.parametrize(
    ("hosts", "cors", "origins", "words"),
    [
        (["http://box.lan"], [], [], "allowed_hosts: 'http://box.lan' is not a host"),
        ([], ["a"], [], "cors_origins: 'a' is not an origin"),
        ([], ["https://example.org/page"], [], "'https://example.org/page' is not an origin"),
        ([], [], ["*"], "allowed_origins: '*' names no origin"),
    ],
)
def test_what_can_fit_no_request_is_doubted(
    hosts: list[str], cors: list[str], origins: list[str], words: str
) -> None:
    (doubt,) = setting_doubts(hosts, cors, origins)
    assert words in doubt


def test_what_can_fit_a_request_is_not_doubted() -> None:
    hosts = ["box.lan", "box.lan:8080", "[fe80::1]:7331", "192.168.1.2"]
    origins = ["https://example.org/", "http://localhost:3000", "chrome-extension://abc", "null", "app://x.y"]
    assert setting_doubts(hosts, ["*", *origins], origins) == []

"""Which addresses the server may bind to, and the owner's key."""

from pathlib import Path

import pytest

from ctx.errors import ConfigError
from ctx.server.keys import KeyRing
from ctx.server.policy import (
    PackPolicy,
    Policy,
    ServerSettings,
    check_bind,
    split_bind,
)


@pytest.mark.parametrize("bind", ["0.0.0.0:7331", "192.168.1.5:7331", "[::]:7331", "ctx.lan:7331"])
def test_a_bind_beyond_this_machine_needs_a_key(tmp_path: Path, bind: str) -> None:
    with pytest.raises(ConfigError, match="ctx key create"):
        check_bind(ServerSettings(bind=bind))
    check_bind(ServerSettings(bind=bind, api_keys=("k",)))
    check_bind(ServerSettings(bind=bind, insecure_no_auth=True))
    ring = KeyRing(str(tmp_path / "memory.db"))
    with pytest.raises(ConfigError):
        check_bind(ServerSettings(bind=bind), ring)
    ring.create("laptop")
    check_bind(ServerSettings(bind=bind), ring)


@pytest.mark.parametrize("bind", ["127.0.0.1:7331", "localhost:0", "[::1]:7331", "127.0.0.9:1"])
def test_a_loopback_bind_needs_none(bind: str) -> None:
    check_bind(ServerSettings(bind=bind))


@pytest.mark.parametrize("bind", ["7331", "127.0.0.1", "::1:7331", ":7331", "host:port", "host:70000"])
def test_an_invalid_bind_is_refused(bind: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        split_bind(bind)


def test_the_owners_key_opens_everything_and_closes_nothing() -> None:
    policy = Policy(ServerSettings(owner_key="secret", packs=(PackPolicy("sekha", key_required=True),)))
    grant = policy.grant("secret")
    assert grant is not None
    assert grant.whole
    assert not policy.has_keys
    assert not policy.closed

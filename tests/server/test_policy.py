"""The rules by themselves: binds, and the rate."""

from pathlib import Path

import pytest

from ctx.errors import ConfigError, RateLimited
from ctx.server.keys import KeyRing
from ctx.server.policy import ServerSettings, SlidingWindow, check_bind, split_bind


def test_the_window_slides(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1000.0]
    window = SlidingWindow(3, 60, lambda: now_s[0])
    for _ in range(3):
        window.spend("a")
        now_s[0] += 10
    with pytest.raises(RateLimited) as refused:
        window.spend("a")
    assert refused.value.retry_after_s == pytest.approx(30)
    window.spend("b")  # another caller has a window of its own
    now_s[0] = 1060.0
    window.spend("a")  # the first of the three has left
    with pytest.raises(RateLimited):
        window.spend("a")


def test_the_window_forgets_callers_rather_than_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctx.server.policy.RATE_KEYS", 2)
    window = SlidingWindow(1, 60, lambda: 0.0)
    for caller in ("a", "b", "c"):
        window.spend(caller)
    window.spend("a")  # forgotten: the longest silent
    with pytest.raises(RateLimited):
        window.spend("c")


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

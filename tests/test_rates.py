"""How often a caller may call, by a clock of the test's own."""

import pytest

from ctx.rates import SlidingWindow
from ctx.refusals import RateLimited


def test_the_window_slides_and_a_refused_call_does_not_count() -> None:
    present = [0.0]
    window = SlidingWindow(3, clock=lambda: present[0])
    for moment in (0.0, 20.0, 40.0):
        present[0] = moment
        window.spend("a")
    present[0] = 59.9
    with pytest.raises(RateLimited, match="more than 3 calls in 60 s") as limited:
        window.spend("a")
    assert limited.value.retry_after_s == pytest.approx(0.1)
    window.spend("b")  # another caller has a window of its own
    present[0] = 60.0
    window.spend("a")  # the first call left the window, and no more than it
    with pytest.raises(RateLimited):
        window.spend("a")
    assert window.current("a") == 3
    present[0] = 200.0
    assert window.current("a") == 0


def test_no_limit_is_no_limit() -> None:
    window = SlidingWindow(0)
    for _ in range(10_000):
        window.spend("a")


def test_the_window_forgets_callers_rather_than_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctx.rates.CALLERS", 2)
    window = SlidingWindow(1, clock=lambda: 0.0)
    for caller in ("a", "b", "c"):
        window.spend(caller)
    window.spend("a")  # forgotten: the longest silent
    with pytest.raises(RateLimited):
        window.spend("c")


def test_who_calls_too_often_is_told_in_the_words_that_were_chosen() -> None:
    window = SlidingWindow(1, refusal="Rate limit exceeded")
    window.spend("a")
    with pytest.raises(RateLimited, match="Rate limit exceeded") as limited:
        window.spend("a")
    assert limited.value.data == {"limit": 1}

"""Rate limits, with a clock under control."""

from pathlib import Path

import pytest

from ctx.errors import RateLimited
from ctx.tools.rates import Window


@pytest.mark.parametrize("file", ["", "rates.db"])
def test_the_window_slides_and_a_refused_call_does_not_count(file: str, tmp_path: Path) -> None:
    path = str(tmp_path / file) if file else None
    present = [0.0]
    rate = Window(3, path, clock=lambda: present[0])
    for moment in (0.0, 20.0, 40.0):
        present[0] = moment
        rate.spend("a")
    present[0] = 59.9
    with pytest.raises(RateLimited, match="more than 3 calls in 60 s") as limited:
        rate.spend("a")
    assert limited.value.retry_after_s == pytest.approx(0.1)
    rate.spend("b")  # another caller has a window of its own
    present[0] = 60.0
    rate.spend("a")  # the first call left the window, and no more than it
    with pytest.raises(RateLimited):
        rate.spend("a")
    assert rate.current("a") == 3
    present[0] = 200.0
    assert rate.current("a") == 0


def test_no_limit_is_no_limit() -> None:
    rate = Window(0)
    for _ in range(10_000):
        rate.spend("a")


def test_windows_of_one_name_in_a_file_count_together_and_those_of_another_apart(tmp_path: Path) -> None:
    path = str(tmp_path / "rates.db")
    first, second, other = (Window(2, path, name) for name in ("server", "server", "sekha"))
    first.spend("a")
    second.spend("a")
    for full in (first, second):
        with pytest.raises(RateLimited):
            full.spend("a")
    other.spend("a")

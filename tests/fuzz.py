"""How long the tests that try things at random go on: `CTX_FUZZ_SECONDS`, a second where it is not set."""

import os
import time
from collections.abc import Callable

import hypothesis
import pytest

SECONDS = float(os.environ.get("CTX_FUZZ_SECONDS", "1"))
patient = pytest.mark.timeout(SECONDS + 120)


def fuzz(test: Callable[[], None], examples: int = 50, share: float = 1.0) -> None:
    """Runs a hypothesis test with ever new seeds until its share of the time is up; at least once."""
    until_s = time.monotonic() + share * SECONDS
    seed = 0
    settings = hypothesis.settings(
        max_examples=examples, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    test = settings(test)
    while seed == 0 or time.monotonic() < until_s:
        hypothesis.seed(seed)(test)()
        seed += 1

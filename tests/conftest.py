"""What holds for every test."""

from collections.abc import Generator
from typing import Any

import hypothesis
import pytest

from ctx.text import sound

# How long an example takes to make or to try is the machine's matter and no finding.
hypothesis.settings.register_profile("ctx", deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
hypothesis.settings.load_profile("ctx")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """What a test printed goes from one process to another, which lone surrogates do not survive."""
    report = yield
    report.sections = [(name, sound(text)) for name, text in report.sections]
    return report

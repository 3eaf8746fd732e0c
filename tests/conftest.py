"""What holds for every test."""

from collections.abc import Generator
from typing import Any

import pytest

from ctx.text import sound


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """What a test printed goes from one process to another, which lone surrogates do not survive."""
    report = yield
    report.sections = [(name, sound(text)) for name, text in report.sections]
    return report

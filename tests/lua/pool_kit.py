"""Short calls of short scripts."""

import pytest
from redteam_run import poor_host, tool

from ctx.errors import CtxError
from ctx.lua.pool import Pool
from ctx.models import JSON

GRACE_S = 15.0  # a hang is twice as long; benchmarks/sandbox.py holds the real figure


def run(pool: Pool, body: str, arguments: JSON = None, *, timeout_s: float = 10.0, **fields: JSON) -> JSON:
    """The result of a tool whose `execute(p, context)` has this body."""
    return pool.run(
        tool(f"tool = {{}} function tool.execute(p, context) {body}\nend", arguments, **fields),
        poor_host,
        timeout_s,
    )


def failure(pool: Pool, body: str, **fields: JSON) -> CtxError:
    with pytest.raises(CtxError) as caught:
        run(pool, body, **fields)
    return caught.value

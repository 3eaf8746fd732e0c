"""Keys when a store is moved twice."""

from contextlib import closing
from pathlib import Path

from ctx.cluster.migrate import _moved_keys
from ctx.server.keys import KeyRing, match


def test_a_key_that_was_revoked_where_it_was_moved_to_stays_revoked(tmp_path: Path) -> None:
    origin, target = (str(tmp_path / name / "memory.db") for name in ("origin", "target"))
    with closing(KeyRing(origin)) as ring:
        key, _ = ring.create("ana")
    assert _moved_keys(KeyRing(origin), KeyRing(target)) == 1
    with closing(KeyRing(target)) as ring:
        ring.revoke("ana")
    assert _moved_keys(KeyRing(origin), KeyRing(target)) == 1  # it may be run again
    with closing(KeyRing(target)) as ring:
        assert match(key, ring.candidates()) is None

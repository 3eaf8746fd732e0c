"""What a server does for its memories when it starts."""

import threading
from pathlib import Path

from dialect_kit import CONFIG, pack_project
from kit import workspace

from ctx.background import Background


def test_memories_stored_without_a_model_are_embedded_when_a_server_with_one_starts(tmp_path: Path) -> None:
    config = pack_project(tmp_path)
    with workspace(config) as space:
        for number in range(3):
            space.memory.bank("alice").put(f"fact {number} of a time without a model")
    config.write_text(CONFIG.replace('provider = "disabled"', 'provider = "local"'))
    with workspace(config) as space:
        assert space.memory.pending() == 3
        Background(space).start()
        for _ in range(600):
            if not space.memory.pending():
                break
            threading.Event().wait(0.05)
        assert space.memory.pending() == 0
        assert space.memory.check(deep=True) == []

"""What `[packs.NAME] profile` chooses, without a server: which tools there are and what replies ask for."""

from pathlib import Path

import pytest
from dialect_kit import CONFIG, pack_project
from kit import workspace

from ctx.errors import ConfigError
from ctx.memory.dialects import DIALECTS

SEED = "".join(f'[packs.{name}]\nprofile = "seed"\n' for name in DIALECTS)
AT_A_BANK = ["retain", "recall", "reflect"]
SEED_TOOLS = {
    "hindsight": {*AT_A_BANK, "hindsight_put", "hindsight_search"},
    "claude-recall": {"store_memory", "search", "retrieve_memory", "get_stats", "clear_context"},
    "sekha": {
        *("memory_store", "memory_search", "memory_update", "memory_prune"),
        *("memory_get_context", "memory_export", "memory_stats"),
    },
}
CLAUDE_LIMIT, CURSOR_LIMIT = 64, 60  # of `mcp__SERVER__TOOL`, and of server and tool together


def test_the_profile_seed_serves_the_seeds_tools_and_no_others(tmp_path: Path) -> None:
    with workspace(pack_project(tmp_path, CONFIG + SEED)) as space:
        assert {pack.name: set(pack.tools) for pack in space.packs} == SEED_TOOLS
        assert [tool.name for pack in space.packs for tool in pack.bank_tools] == AT_A_BANK
        hint = space.packs[0].hint()
        assert "supersedes = [its id]" in hint
        assert "supersede_memory" not in hint + space.packs[0].instructions


def test_a_default_profile_has_the_seeds_tools_and_one_to_supersede(tmp_path: Path) -> None:
    with workspace(pack_project(tmp_path)) as space:
        for pack in space.packs:
            assert pack.tools.keys() > SEED_TOOLS[pack.name]
            assert {"supersede_memory", "memory_supersede"} & pack.tools.keys()


def test_an_unknown_profile_is_told_with_the_nearest_name(tmp_path: Path) -> None:
    config = pack_project(tmp_path, CONFIG + '[packs.sekha]\nprofile = "sed"\n')
    with (
        workspace(config) as space,
        pytest.raises(ConfigError, match=r"\[packs.sekha\] profile: unknown profile 'sed'.*'seed'"),
    ):
        _ = space.packs


def test_every_tool_name_fits_the_clients_limits_with_the_server_name_ctx() -> None:
    for dialect in DIALECTS.values():
        for tool in dialect.tools:
            name = dialect.prefix + tool.name
            assert len(f"mcp__ctx__{name}") <= CLAUDE_LIMIT
            assert len(f"ctx{name}") <= CURSOR_LIMIT

"""Claude Recall's tools of today: the pack's second profile, chosen by the configuration."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dialect_kit import CONFIG, KEY, RECALL, PackPipe, PackServer, Refused, pack_project, piped, served

pytestmark = pytest.mark.slow

PRESENT = CONFIG + '[packs.claude-recall]\nprofile = "present"\n'
TOOLS = (
    "delete_memory",
    "load_checkpoint",
    "load_rules",
    "save_checkpoint",
    "search_memory",
    "store_memory",
    "supersede_memory",
)
OWN = "/packs/claude-recall/mcp"


@pytest.fixture(scope="module")
def present(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a project that asks for the second profile, with two folders in it."""
    folder = tmp_path_factory.mktemp("present")
    for name in ("boat", "house"):
        (folder / name).mkdir()
    return pack_project(folder, PRESENT)


@pytest.fixture(scope="module")
def current(present: Path) -> Iterator[PackServer]:
    with served(present, SEKHA_API_KEY=KEY) as running:
        yield running


@pytest.fixture
def boat(present: Path) -> Iterator[PackPipe]:
    with piped(present, "claude-recall", "--bank", "folders", cwd=present.parent / "boat") as pipe:
        yield pipe


@pytest.fixture
def house(present: Path) -> Iterator[PackPipe]:
    with piped(present, "claude-recall", "--bank", "folders", cwd=present.parent / "house") as pipe:
        yield pipe


def test_the_configuration_chooses_its_tools_under_both_their_names(current: PackServer) -> None:
    assert sorted(current.tools(OWN)) == [RECALL + name for name in TOOLS]
    assert {RECALL + name for name in TOOLS} <= set(current.tools("/mcp"))
    assert RECALL + "search" not in current.tools("/mcp")
    assert current.client.get("/packs/claude-recall/health").json()["toolsRegistered"] == 7
    assert current.mcp("load_rules", {}, OWN)["counts"]["total"] == 0
    with pytest.raises(Refused) as refused:
        current.mcp("get_stats", {}, OWN)
    assert refused.value.code == -32000


def test_the_instructions_are_those_of_the_profile(present: Path) -> None:
    pipe = PackPipe(present, "claude-recall")
    assert "`load_rules`" in pipe.ask("initialize", {})["result"]["instructions"]
    pipe.end()


def test_what_was_stored_is_loaded_as_a_rule_by_its_kind(current: PackServer) -> None:
    bank = "rules"
    reply = current.rest(RECALL + "store_memory", {"content": "Use tabs in Go files"}, bank=bank)
    assert (reply["success"], reply["type"]) == (True, "preference")
    assert reply["activeRule"] == "Stored as active rule:\n- Use tabs in Go files"
    fix = {"content": "The deploy needs the VPN", "metadata": {"type": "devops"}}
    current.rest(RECALL + "store_memory", fix, bank=bank)
    note = {"content": "The cache lives in Redis", "metadata": {"type": "project-knowledge"}}
    current.rest(RECALL + "store_memory", note, bank=bank)
    loaded = current.rest(RECALL + "load_rules", {}, bank=bank)
    assert loaded["counts"] == {"preferences": 1, "corrections": 0, "failures": 0, "devops": 1, "total": 2}
    assert "## Preferences\n- Use tabs in Go files" in loaded["rules"]
    assert "## DevOps Rules\n- The deploy needs the VPN" in loaded["rules"]
    assert "Redis" not in loaded["rules"]
    assert loaded["summary"] == "2 rules loaded"


def test_what_is_searched_comes_with_ids_that_can_be_forgotten_and_brought_back(current: PackServer) -> None:
    bank = "search"
    fix = {"content": "The flaky test needs a retry", "metadata": {"type": "failure"}}
    current.rest(RECALL + "store_memory", fix, bank=bank)
    matches = current.mcp("search_memory", {"query": "flaky test", "limit": 5}, OWN, bank=bank)
    assert (matches["count"], matches["totalMatches"], matches["query"]) == (1, 1, "flaky test")
    [memory] = matches["memories"]
    assert matches["results"] == f"- [failure] (id: {memory['id']}) The flaky test needs a retry"
    wide = {"query": "flaky test", "type": "devops"}
    assert current.mcp("search_memory", wide, OWN, bank=bank)["count"] == 0
    assert "No memories found" in current.mcp("search_memory", {"query": "zebra"}, OWN, bank=bank)["results"]
    deletion = current.mcp("delete_memory", {"id": memory["id"]}, OWN, bank=bank)
    assert deletion["success"] is True
    assert current.mcp("load_rules", {}, OWN, bank=bank)["counts"]["total"] == 0
    repeat = current.mcp("delete_memory", {"id": memory["id"]}, OWN, bank=bank)
    assert (repeat["success"], "not found" in repeat["message"]) == (False, True)
    assert current.mcp("delete_memory", {"undo": deletion["op_id"]}, OWN, bank=bank)["restored"] == 1
    assert current.mcp("load_rules", {}, OWN, bank=bank)["counts"]["failures"] == 1


def test_a_projects_rule_holds_in_its_folder_alone(boat: PackPipe, house: PackPipe) -> None:
    boat.call("store_memory", {"content": "The standup starts at 9:00"})
    rule = {"content": "The standup starts at 10:30", "scope": "project"}
    assert boat.call("store_memory", rule)["success"] is True
    assert boat.call("load_rules", {})["counts"]["preferences"] == 2
    elsewhere = house.call("load_rules", {})
    assert (elsewhere["counts"]["preferences"], "10:30" in elsewhere["rules"]) == (1, False)
    assert house.call("search_memory", {"query": "When does the standup start?"})["count"] == 1
    named = {"query": "When does the standup start?", "projectId": boat.call("load_rules", {})["projectId"]}
    assert house.call("search_memory", named)["count"] == 2


def test_a_checkpoint_is_one_a_project_and_survives_the_process(present: Path, house: PackPipe) -> None:
    start = {"cwd": present.parent / "boat"}
    parts = {"completed": "the parser", "remaining": "the printer", "blockers": "none"}
    with piped(present, "claude-recall", "--bank", "stops", **start) as pipe:
        assert pipe.call("load_checkpoint", {})["found"] is False
        assert pipe.call("save_checkpoint", parts)["success"] is True
        assert pipe.call("save_checkpoint", {**parts, "remaining": "the tests", "notes": "see a.py"})["op_id"]
        assert pipe.call("search_memory", {"query": "the parser"})["count"] == 0
    with piped(present, "claude-recall", "--bank", "stops", **start) as pipe:
        checkpoint = pipe.call("load_checkpoint", {})
        assert (
            checkpoint["found"],
            checkpoint["completed"],
            checkpoint["remaining"],
            checkpoint["notes"],
        ) == (
            True,
            "the parser",
            "the tests",
            "see a.py",
        )
        assert checkpoint["updated_at_iso"].endswith("Z")
        assert "load_checkpoint" in pipe.call("load_rules", {})["rules"]
    assert house.call("load_checkpoint", {})["found"] is False


def test_over_http_a_project_has_to_be_named(current: PackServer) -> None:
    for tool, arguments in (
        ("load_checkpoint", {}),
        ("save_checkpoint", {"completed": "a", "remaining": "b", "blockers": "c"}),
        ("store_memory", {"content": "x", "scope": "project"}),
    ):
        with pytest.raises(Refused, match="name one with projectId"):
            current.rest(RECALL + tool, arguments, bank="named")
        assert current.rest(RECALL + tool, {**arguments, "projectId": "boat"}, bank="named")

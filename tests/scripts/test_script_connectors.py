"""Connectors in Lua: what is indexed, reported and deleted."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from kit import workspace
from script_kit import configured

from ctx.connectors.base import ScanLog
from ctx.errors import ConfigError
from ctx.indexing.run import Window
from ctx.models import JSON, Caller
from ctx.scripts.sources import moment_ms
from ctx.workspace import Workspace

CALLER = Caller("cli")

TICKETS = """
connector = { name = "tickets", description = "Tickets" }
function connector.scan(config)
  local items = {}
  for _, row in ipairs(json.parse(fs.read("rows.json"))) do items[#items + 1] = row end
  return items
end
"""


def ticket(number: int, **more: JSON) -> dict[str, JSON]:
    return {
        "source_id": f"T-{number}",
        "title": f"Ticket {number}",
        "body": f"The elevator of building {number} is stuck.",
        "updated_at": "2026-01-02T03:04:05Z",
        **more,
    }


class Project:
    """A project with one connector, whose rows a test writes."""

    def __init__(self, folder: Path, text: str = TICKETS, settings: str = "") -> None:
        self.folder = folder
        (folder / "connectors").mkdir()
        self.script = folder / "connectors" / "tickets.lua"
        self.script.write_text(text)
        self.rows([])
        self.config = configured(
            folder, f'[connectors.script.tickets]\npath = "./connectors/tickets.lua"\n{settings}'
        )

    def rows(self, rows: list[JSON]) -> None:
        (self.folder / "connectors" / "rows.json").write_text(json.dumps(rows))

    def index(self, space: Workspace) -> dict[str, JSON]:
        (report,) = space.refresh(["script:tickets"])
        return report


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def ids(space: Workspace) -> list[str]:
    return sorted(
        s.document.source_id for s in space.catalog.export() if s.document.source == "script:tickets"
    )


def counts(report: dict[str, JSON]) -> tuple[JSON, ...]:
    return tuple(report[name] for name in ("ok", "added", "updated", "unchanged", "deleted", "failed"))


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("HTTPS://t.example/1", True),
        ("mailto:ann@t.example", True),
        ("javascript:alert(1)", False),
        ("JAVASCRIPT:alert(1)//http://x", False),
        (" \x01javascript:alert(1)", False),
        ("https://t.example/\n1", False),
        ("s3://bucket/key", False),
    ],
)
def test_only_web_addresses_leave_as_source_url(project: Project, address: str, shown: bool) -> None:
    project.rows([ticket(1, source_url=address)])
    with workspace(project.config) as space:
        project.index(space)
        (hit,) = space.toolbox.call("search", {"query": "elevator", "source": "script"}, CALLER)["results"]
        document = space.toolbox.call("get", {"id": hit["id"]}, CALLER)
        expected = address if shown else None
        assert (hit["source_url"], document["source_url"]) == (expected, expected)


def test_items_are_documents_that_a_search_finds(project: Project) -> None:
    project.rows(
        [
            ticket(
                1,
                author="ann",
                source_url="https://t.example/1",
                created_at=1700000000,
                metadata={"labels": ["a"], "n": 1.5},
            ),
            ticket(
                2,
                url="https://t.example/2",
                metadata_json='{"state": "open"}',
                content_type="text/markdown",
                body="# Head\n\nlift",
            ),
            {"source_id": 3, "body": "A numbered one, without a title or a date."},
        ]
    )
    with workspace(project.config) as space:
        assert counts(project.index(space)) == (True, 3, 0, 0, 0, 0)
        (hit,) = space.toolbox.call("search", {"query": "elevator", "source": "script"}, CALLER)["results"]
        assert (hit["source"], hit["source_id"], hit["title"]) == ("script:tickets", "T-1", "Ticket 1")
        assert (hit["source_url"], hit["updated_at"]) == ("https://t.example/1", "2026-01-02T03:04:05Z")
        first = space.toolbox.call("get", {"id": hit["id"]}, CALLER)
        assert (first["author"], first["created_at"]) == ("ann", "2023-11-14T22:13:20Z")
        assert first["metadata"] == {"labels": ["a"], "n": 1.5}
        (second,) = space.toolbox.call("search", {"query": "lift"}, CALLER)["results"]
        document = space.toolbox.call("get", {"id": second["id"]}, CALLER)
        assert (document["metadata"], document["content_type"]) == ({"state": "open"}, "text/markdown")
        assert document["source_url"] == "https://t.example/2"
        assert ids(space) == ["3", "T-1", "T-2"]


def test_a_second_run_reads_only_what_changed_and_deletes_what_is_gone(project: Project) -> None:
    rows: list[JSON] = [ticket(1), ticket(2), ticket(3), {"source_id": "undated", "body": "no date at all"}]
    project.rows(rows)
    with workspace(project.config) as space:
        project.index(space)
        assert counts(project.index(space)) == (True, 0, 0, 4, 0, 0)
        project.rows([rows[0], ticket(2, body="It moves again."), rows[3]])
        assert counts(project.index(space)) == (True, 0, 1, 2, 1, 0)
        assert ids(space) == ["T-1", "T-2", "undated"]
        project.rows([])
        assert counts(project.index(space)) == (True, 0, 0, 0, 3, 0)


def test_a_bad_item_is_a_line_of_the_report_and_keeps_what_is_indexed_of_it(project: Project) -> None:
    project.rows([ticket(1), ticket(2)])
    with workspace(project.config) as space:
        project.index(space)
        rows: list[JSON] = [
            "text",
            7,
            {},
            {"body": "no id"},
            {"source_id": ""},
            {"source_id": True, "body": "x"},
            ticket(1, body="  "),
        ]
        project.rows([*rows, ticket(3), ticket(3, body="twice"), ticket(4, metadata_json="{")])
        report = project.index(space)
        # Nobody can say which the nameless ones are, so what is missing stays until they have names.
        assert counts(report) == (True, 2, 0, 0, 0, 8)
        assert ids(space) == ["T-1", "T-2", "T-3", "T-4"]
        assert "item 1: is not a table (and 8 more)" in [status.note for status in space.statuses()]
        project.rows([ticket(1, body="  "), ticket(3), ticket(4)])
        assert counts(project.index(space))[4] == 1
        assert ids(space) == ["T-1", "T-3", "T-4"]


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ('error("the API is down")', "the API is down"),
        ("while true do end", "timed out"),
        ('local x = ("x"):rep(1e9)', "memory"),
        ('http.get("http://127.0.0.1/")', "private"),
        ("coroutine.yield()", "yield"),
    ],
)
def test_an_incomplete_scan_deletes_nothing_and_keeps_what_it_read(
    tmp_path: Path, ending: str, why: str
) -> None:
    text = f"""
    connector = {{}}
    function connector.scan(config)
      for _, row in ipairs(json.parse(fs.read("rows.json"))) do
        if row.stop then {ending} end
        emit(row)
      end
    end
    """
    project = Project(tmp_path, text, "timeout = 1.0")
    project.rows([ticket(1), ticket(2), ticket(3)])
    with workspace(project.config) as space:
        project.index(space)
        project.rows([ticket(1, body="The doors close."), ticket(4), {"stop": True}])
        report = project.index(space)
        assert counts(report)[:5] == (False, 1, 1, 0, 0)
        assert why in report["note"]
        assert ids(space) == ["T-1", "T-2", "T-3", "T-4"]
        assert space.toolbox.call("search", {"query": "doors"}, CALLER)["results"]
        (status,) = [s for s in space.statuses() if s.name == "script:tickets"]
        assert status.healthy is False
        project.rows([ticket(4)])
        assert counts(project.index(space))[:5] == (True, 0, 0, 1, 3)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("return json.parse('{\"error\": \"rate limited\"}')",
        "not a table with the field 'error' and no items"),


        ("emit({ id = 'T-1', body = 'x' })", "item 1: has no source_id"),


    ],
)  # fmt: skip
def test_an_answer_that_is_no_list_deletes_nothing(tmp_path: Path, answer: str, why: str) -> None:
    text = f"""
    connector = {{}}
    function connector.scan(config)
      local rows = json.parse(fs.read("rows.json"))
      if #rows == 0 then {answer} end
      for _, row in ipairs(rows) do emit(row) end
    end
    """
    project = Project(tmp_path, text)
    project.rows([ticket(1), ticket(2)])
    with workspace(project.config) as space:
        project.index(space)
        project.rows([])
        report = project.index(space)
        assert report["deleted"] == 0
        assert ids(space) == ["T-1", "T-2"]
        (status,) = [status for status in space.statuses() if status.name == "script:tickets"]
        assert why in (status.note or "")


def test_the_settings_reach_the_script_with_variables_put_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKET_TOKEN", "t0ken ${TICKET_TOKEN}")
    text = """
    connector = {}
    function connector.scan(config, context)
      return { { source_id = "config", body = json.encode(config), title = tostring(context.config == config) } }
    end
    """
    project = Project(
        tmp_path, text, 'token = "Bearer ${TICKET_TOKEN}"\nprojects = ["a", "b"]\ndeep = { n = 1 }'
    )
    with workspace(project.config) as space:
        project.index(space)
        stored = next(s for s in space.catalog.export() if s.document.source == "script:tickets")
        assert stored.document.title == "true"
        assert json.loads(stored.document.body) == {
            "token": "Bearer t0ken ${TICKET_TOKEN}",  # put in once: a value is not looked at again
            "projects": ["a", "b"],
            "deep": {"n": 1},
        }
    monkeypatch.delenv("TICKET_TOKEN")
    with pytest.raises(ConfigError, match="TICKET_TOKEN"):
        workspace(project.config)


@pytest.mark.parametrize(
    ("said", "ms"),
    [
        ("2026-01-02T03:04:05Z", 1767323045000),
        ("2026-01-02T05:04:05+02:00", 1767323045000),
        ("2026-01-02T03:04:05.250Z", 1767323045250),
        ("2026-01-02", 1767312000000),
        (1767323045, 1767323045000),
        ("1767323045.000200", 1767323045000),
        ("yesterday", None),
        (float("nan"), None),
    ],
)
def test_a_time_is_read_as_scripts_write_it(said: JSON, ms: int | None) -> None:
    assert moment_ms(said) == ms


NEWS = """
connector = {}
function connector.scan(config, context)
  local since = context.known > 0 and context.store.get("since") or 0
  for _, row in ipairs(json.parse(fs.read("rows.json"))) do
    if row.n > since then
      emit(row)
      context.store.set("since", row.n)
    end
    if row.breaks and context.store.add("tries") == 1 then error("the API is down") end
  end
  if since > 0 then emit({ partial = true }) end
end
"""


def news(*numbers: int, **more: JSON) -> list[JSON]:
    return [ticket(number, n=number, **more) for number in numbers]


@pytest.mark.parametrize("attempt", ["dry run", "test", "part", "process that ends"])
def test_items_of_a_dry_run_or_a_killed_run_are_given_again(tmp_path: Path, attempt: str) -> None:
    project = Project(tmp_path, NEWS)
    project.rows(news(1, 2))
    with workspace(project.config) as space:
        project.index(space)
        project.rows(news(1, 2, 3, 4))
        if attempt == "dry run":
            (report,) = space.indexer.run(["script:tickets"], dry_run=True)
            assert report.added == 2
        elif attempt == "part":
            space.indexer.run(["script:tickets"], window=Window(until_ms=0))
        else:
            (connector,) = space.indexer.select(["script:tickets"])
            scan = connector.scan({"T-1": "", "T-2": ""}, ScanLog())
            assert isinstance(scan, Generator)
            assert [next(scan).source_id, next(scan).source_id] == ["T-3", "T-4"]
            if attempt == "test":
                assert list(scan) == []
            scan.close()
        assert ids(space) == ["T-1", "T-2"]
    with workspace(project.config) as space:
        project.index(space)
        assert ids(space) == ["T-1", "T-2", "T-3", "T-4"]

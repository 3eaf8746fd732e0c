"""Connectors in Lua, through an index run and a search: what is kept, what is reported, what is deleted."""

import json
import tracemalloc
from collections.abc import Generator
from pathlib import Path

import pytest
from kit import workspace
from running import configured

from ctx.connectors.base import ScanLog
from ctx.errors import ConfigError, SourceError
from ctx.extensions.scripts import ScriptConnector, ScriptFile, moment_ms
from ctx.indexing.window import Window
from ctx.sources import script_file
from ctx.types import JSON, Caller
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
    "body",
    [
        b"%PDF-1.4\n1 0 obj\n<</Type/Catalog>>\nendobj",
        b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
        "Лифт не работает".encode("cp1251"),
    ],
)
def test_a_body_that_is_no_text_is_a_line_of_the_report(tmp_path: Path, body: bytes) -> None:
    project = Project(
        tmp_path,
        "connector = {}\nfunction connector.scan()\n"
        'emit({ source_id = "odd", content_type = "application/pdf", body = fs.read("body.bin") })\nend',
    )
    (tmp_path / "connectors" / "body.bin").write_bytes(b"Lift")
    with workspace(project.config) as space:
        project.index(space)
        (tmp_path / "connectors" / "body.bin").write_bytes(body)
        (report,) = space.indexer.run(["script:tickets"])
        assert [problem.message for problem in report.problems] == [
            "its body is no text in UTF-8; what is indexed of it stays"
        ]
        assert ids(space) == ["odd"]


def test_a_field_that_is_none_is_noted_and_its_item_indexed(tmp_path: Path) -> None:
    project = Project(tmp_path)
    wrong = {"updated_at": "yesterday", "title": True, "metadata": "text", "metadata_json": "{a"}
    fields = [ticket(number, **{name: value}) for number, (name, value) in enumerate(wrong.items())]
    project.rows([*fields, ticket(9, created_at="", metadata=[])])
    with workspace(project.config) as space:
        (report,) = space.indexer.run(["script:tickets"])
        assert (report.added, list(report.problems)) == (5, [])
        assert [(note.source_id, note.message) for note in report.notes] == [
            ("T-0", "updated_at is no time (ISO 8601, or seconds since 1970), and is left out"),
            ("T-1", "title is no text, and is left out"),
            ("T-2", "metadata is no table, and is left out"),
            ("T-3", "metadata_json is not JSON, and is left out"),
        ]


def test_what_no_result_could_carry_is_left_out_and_its_item_found(tmp_path: Path) -> None:
    project = Project(tmp_path)
    fields = {
        "source_url": "https://example.com/" * 90_000,
        "author": "a" * 2001,
        "title": "Stuck " * 300_000,
    }
    project.rows([*(ticket(n, **{name: fields[name]}) for n, name in enumerate(fields)), ticket(3)])
    with workspace(project.config) as space:
        (report,) = space.indexer.run(["script:tickets"])
        assert (report.added, list(report.problems)) == (4, [])
        assert [(note.source_id, note.message) for note in report.notes] == [
            ("T-0", "source_url is longer than 2,000 characters, and is left out"),
            ("T-1", "author is longer than 2,000 characters, and is left out"),
        ]
        reply = space.toolbox.call("search", {"query": "elevator", "mode": "keyword"}, CALLER)
        assert len(reply["results"]) == 4
        assert len(json.dumps(reply)) < 20_000
        project.rows([ticket(0, source_id="T" * 2001), ticket(3)])
        (report,) = space.indexer.run(["script:tickets"])
        assert [problem.message for problem in report.problems] == [
            "its source_id is longer than 2,000 characters"
        ]


@pytest.mark.parametrize(
    "metadata_json",
    ["[" * 100_000, '{"a":' * 1000 + "1" + "}" * 1000, '{"a": "\\ud800"}', '{"a": ' + "9" * 5000],
)
def test_metadata_that_no_store_takes_is_noted_and_its_item_indexed(
    tmp_path: Path, metadata_json: str
) -> None:
    project = Project(tmp_path)
    project.rows([ticket(1, metadata_json=metadata_json), ticket(2)])
    with workspace(project.config) as space:
        (report,) = space.indexer.run(["script:tickets"])
        assert (report.added, list(report.problems)) == (2, [])
        assert [note.message for note in report.notes] == ["metadata_json is not JSON, and is left out"]


def test_an_item_that_json_cannot_say_is_a_line_and_deletes_nothing(tmp_path: Path) -> None:
    text = """
    connector = {}
    function connector.scan(config)
      emit({ source_id = "a", body = "first" })
      if config.bad then emit({ source_id = "b", body = { [{}] = 1 } }) else emit({ source_id = "b", body = "second" }) end
    end
    """
    project = Project(tmp_path, text)
    with workspace(project.config) as space:
        assert counts(project.index(space)) == (True, 2, 0, 0, 0, 0)
    with workspace(
        configured(tmp_path, '[connectors.script.tickets]\npath = "./connectors/tickets.lua"\nbad = true')
    ) as space:
        report = project.index(space)
        assert (report["deleted"], report["failed"]) == (0, 1)
        (status,) = [status for status in space.statuses() if status.name == "script:tickets"]
        assert (status.note or "").startswith("item 2: a table has a key of type table")
        assert ids(space) == ["a", "b"]


def test_a_body_cut_inside_a_character_is_kept_mended_and_an_id_so_cut_is_not_taken_for_another(
    tmp_path: Path,
) -> None:
    text = """
    connector = {}
    function connector.scan(config)
      emit({ source_id = "a", body = ("words na\u00efve"):sub(1, 9) })
      emit({ source_id = ("\u00e9"):sub(1, 1), body = "lost" })
    end
    """
    project = Project(tmp_path, text)
    with workspace(project.config) as space:
        report = project.index(space)
        assert (report["added"], report["failed"]) == (1, 1)
        (document,) = [stored.document for stored in space.catalog.export()]
        assert document.body == "words na\ufffd"
        (status,) = [status for status in space.statuses() if status.name == "script:tickets"]
        assert "item 2: its source_id is not valid UTF-8" in (status.note or "")


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
        ("return { items = { { source_id = 'T-1', body = 'x' } } }", "with the field 'items'"),
        ("return { source_id = 'T-1', body = 'alone' }", "not a table with the field"),
        ("emit({ id = 'T-1', body = 'x' })", "item 1: has no source_id"),
        ("emit(nil)", "item 1: is not a table"),
        ("emit('T-1')", "item 1: is not a table"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_items_deletes_nothing(tmp_path: Path, answer: str, why: str) -> None:
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


def test_an_empty_list_is_an_empty_source_and_what_was_emitted_needs_none(tmp_path: Path) -> None:
    text = """
    connector = {}
    function connector.scan(config)
      local rows = json.parse(fs.read("rows.json"))
      for _, row in ipairs(rows) do emit(row) end
      return #rows == 0 and {} or { count = #rows }
    end
    """
    project = Project(tmp_path, text)
    project.rows([ticket(1), ticket(2)])
    with workspace(project.config) as space:
        assert counts(project.index(space)) == (True, 2, 0, 0, 0, 0)
        project.rows([])
        assert counts(project.index(space))[4] == 2


@pytest.mark.parametrize(
    "ways",
    [
        "return { A, B }",
        "emit(A) emit(B)",
        "emit(A) return { B }",
        "local n = 0 return function() n = n + 1 return ({ A, B })[n] end",
        "return coroutine.create(function() coroutine.yield(A) coroutine.yield(B) end)",
        "return coroutine.wrap(function() coroutine.yield(A) coroutine.yield(B) end)",
        "context.emit(A) context.emit(B)",
    ],
)
def test_a_scan_may_give_its_items_in_several_ways(tmp_path: Path, ways: str) -> None:
    text = f"""
    connector = {{}}
    local A, B = {{ source_id = "a", body = "a" }}, {{ source_id = "b", body = "b" }}
    function connector.scan(config, context) {ways} end
    """
    project = Project(tmp_path, text)
    with workspace(project.config) as space:
        assert counts(project.index(space)) == (True, 2, 0, 0, 0, 0)


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


@pytest.mark.slow
def test_items_are_streamed_not_gathered(tmp_path: Path) -> None:
    """120 items of a megabyte each never stand in memory together, in the server or in the script (128
    MiB).
    """
    text = """
    connector = {}
    function connector.scan(config)
      local body = ("word "):rep(200000)
      for number = 1, 120 do emit({ source_id = "i" .. number, body = number .. body }) end
    end
    """
    project = Project(tmp_path, text)
    with workspace(project.config) as space:
        connector = ScriptConnector(
            script_file(space.config.script_connectors[0], space.config.root), space.runner
        )
        tracemalloc.start()
        count = sum(1 for _ in connector.scan({}, ScanLog()))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert count == 120
    assert peak < 30_000_000


def test_a_scan_that_nobody_reads_to_the_end_ends_its_script(tmp_path: Path) -> None:
    text = (
        "connector = {} function connector.scan() local n = 0 return function() n = n + 1 return { source_id "
        "= n, body = 'x' } end end"
    )
    project = Project(tmp_path, text)
    with workspace(project.config) as space:
        connector = ScriptConnector(
            script_file(space.config.script_connectors[0], space.config.root), space.runner
        )
        items = connector.scan({}, ScanLog())
        assert next(items).source_id == "1"
        items.close()  # type: ignore[attr-defined]
        assert space.pool._running == 0


def test_a_script_that_is_gone_is_a_source_that_cannot_be_read(project: Project) -> None:
    project.rows([ticket(1)])
    with workspace(project.config) as space:
        project.index(space)
        project.script.unlink()
        report = project.index(space)
        assert (report["ok"], report["deleted"]) == (False, 0)
        with pytest.raises(SourceError, match="cannot be read"):
            list(ScriptConnector(ScriptFile("x", str(project.script)), space.runner).scan({}, ScanLog()))


def test_an_edited_connector_is_what_the_next_run_reads(project: Project) -> None:
    project.rows([ticket(1)])
    with workspace(project.config) as space:
        project.index(space)
        project.script.write_text(
            'connector = {} function connector.scan() return { { source_id = "new", body = "new" } } end'
        )
        assert counts(project.index(space))[:5] == (True, 1, 0, 0, 1)
        project.script.write_text("connector = {")
        report = project.index(space)
        assert (report["ok"], report["deleted"]) == (False, 0)


@pytest.mark.parametrize(
    ("said", "ms"),
    [
        ("2026-01-02T03:04:05Z", 1767323045000),
        ("2026-01-02T03:04:05", 1767323045000),
        ("2026-01-02 03:04:05", 1767323045000),
        ("2026-01-02T05:04:05+02:00", 1767323045000),
        ("2026-01-02T03:04:05.250Z", 1767323045250),
        ("2026-01-02", 1767312000000),
        ("20260102", 1767312000000),
        (1767323045, 1767323045000),
        (1767323045.25, 1767323045250),
        ("1767323045.000200", 1767323045000),
        ("yesterday", None),
        ("", None),
        (None, None),
        (True, None),
        ({}, None),
        (1e300, None),
        (float("nan"), None),
        ("9" * 400, None),
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
def test_what_an_attempt_gave_is_given_again_to_the_run_that_stores_it(tmp_path: Path, attempt: str) -> None:
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


def test_a_scan_that_fails_goes_on_from_what_it_gave(tmp_path: Path) -> None:
    project = Project(tmp_path, NEWS)
    with workspace(project.config) as space:
        project.rows([*news(1), *news(2, breaks=True), *news(3)])
        assert counts(project.index(space))[:2] == (False, 2)
        assert counts(project.index(space))[:2] == (True, 1)
        assert ids(space) == ["T-1", "T-2", "T-3"]


def test_a_scan_sees_what_was_kept_and_what_it_keeps(tmp_path: Path) -> None:
    project = Project(
        tmp_path,
        """
        connector = {}
        function connector.scan(config, context)
          local before, now = context.store.get("n") or 0, context.store.add("n")
          context.store.set("list", { now })
          emit({ source_id = "n", body = before .. " " .. now .. " " .. table.concat(context.store.keys(), ",") })
          context.store.set("list", nil)
        end
        """,
    )
    with workspace(project.config) as space:
        for before in range(3):
            project.index(space)
            (stored,) = space.catalog.export()
            assert stored.document.body == f"{before} {before + 1} list,n"

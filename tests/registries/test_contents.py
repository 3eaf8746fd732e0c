"""What a registry offers is read as a stranger may have written it."""

import pytest

from ctx.errors import SourceError
from ctx.registries.contents import MAX_SCRIPT_FILES, MAX_SCRIPTS, Contents, Entry, contents


def tree(*paths: str, **modes: str) -> dict[str, Entry]:
    entries = {path: Entry("100644", f"{number:040x}") for number, path in enumerate(paths)}
    return entries | {path: Entry(mode, "f" * 40) for path, mode in modes.items()}


def names(offered: Contents) -> list[str]:
    return [f"{offer.kind} {offer.name}" for offer in offered.offers]


def test_the_folders_speak_for_themselves_where_there_is_no_manifest() -> None:
    offered = contents(
        None,
        tree(
            "tools/echo/tool.lua",
            "tools/echo/templates/a.txt",
            "connectors/jira/connector.lua",
            "agents/guide/agent.lua",
            "tools/echo.lua",
            "README.md",
        ),
    )
    assert names(offered) == ["agent guide", "connector jira", "tool echo"]
    assert offered.offers[-1].files == {
        "tool.lua": "tools/echo/tool.lua",
        "templates/a.txt": "tools/echo/templates/a.txt",
    }
    assert offered.problems == ()


def test_a_manifest_says_what_there_is_and_a_lone_script_brings_nothing_along() -> None:
    manifest = b"""
[registry]
name = "team"
description = "Ours\\u001b[31m"
[tools.echo]
path = "lua/echo.lua"
description = "Says it again"
tags = ["text", 7]
required_config = ["greeting"]
[agents.guide]
path = "agents/guide"
"""
    offered = contents(manifest, tree("lua/echo.lua", "lua/secret.lua", "agents/guide/agent.lua"))
    guide, echo = offered.offers
    assert echo.files == {"tool.lua": "lua/echo.lua"}
    assert (echo.description, echo.tags, echo.required_config) == ("Says it again", ("text",), ("greeting",))
    assert guide.files == {"agent.lua": "agents/guide/agent.lua"}
    assert "\x1b" not in offered.description


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../../etc/tool.lua", "plain names below"),
        ("/etc/tool.lua", "plain names below"),
        ("tools/../../x.lua", "plain names below"),
        ("tools//x.lua", "plain names below"),
        ("tools/a\\\\b.lua", "plain names below"),
        ("tools/.hidden.lua", "plain names below"),
        ("tools/x\\u202e.lua", "plain names below"),
        ("tools/there-is-none.lua", "there is no file"),
    ],
)
def test_a_path_that_leads_elsewhere_is_left_out(path: str, why: str) -> None:
    manifest = f'[tools.x]\npath = "{path}"\n[tools.good]\npath = "tools/good/tool.lua"'.encode()
    offered = contents(manifest, tree("tools/good/tool.lua"))
    assert names(offered) == ["tool good"]
    assert len(offered.problems) == 1
    assert why in offered.problems[0]
    assert "\u202e" not in offered.problems[0]


def test_links_and_submodules_are_named_and_left_out() -> None:
    entries = tree(
        "tools/good/tool.lua",
        "tools/deep/tool.lua",
        **{
            "tools/linked": "120000",
            "tools/module": "160000",
            "tools/script/tool.lua": "120000",
            "tools/deep/data": "120000",
        },
    )
    offered = contents(None, entries)
    assert names(offered) == ["tool good"]
    assert [problem.split(":")[0] for problem in offered.problems] == [
        "tool 'deep'",
        "tool 'linked'",
        "tool 'module'",
        "tool 'script'",
    ]
    assert ["a link" in problem or "a submodule" in problem for problem in offered.problems] == [True] * 4
    offered = contents(b'[tools.x]\npath = "tools/module/tool.lua"', entries)
    assert "is a submodule" in offered.problems[0]


def test_twins_that_only_case_tells_apart_are_one_too_many() -> None:
    offered = contents(None, tree("tools/Echo/tool.lua", "tools/echo/tool.lua"))
    assert names(offered) == ["tool Echo"]
    assert "upper and lower case" in offered.problems[0]
    for twin in ("tools/x/Data.txt", "tools/x/data.TXT/deeper"):
        offered = contents(None, tree("tools/x/tool.lua", "tools/x/data.txt", twin))
        assert names(offered) == []
        assert "upper and lower case" in offered.problems[0]


@pytest.mark.parametrize("name", ["a b", "ü", "x" * 65, "rm\x1b[2J", "../x", "-" * 70])
def test_odd_names_are_left_out_and_shown_harmlessly(name: str) -> None:
    offered = contents(None, tree(f"tools/{name}/tool.lua") if "/" not in name else tree())
    assert names(offered) == []
    assert all("\x1b" not in problem for problem in offered.problems)


def test_what_is_too_much_is_cut() -> None:
    offered = contents(None, tree(*(f"tools/t{number}/tool.lua" for number in range(MAX_SCRIPTS + 5))))
    assert len(offered.offers) == MAX_SCRIPTS
    offered = contents(None, tree("tools/x/tool.lua", *(f"tools/x/{n}.txt" for n in range(MAX_SCRIPT_FILES))))
    assert names(offered) == []
    assert "files, more than" in offered.problems[0]


@pytest.mark.parametrize(
    "text", [b"\xff", b"[tools", b"[tools.x]\n[tools.x]", b"a = " + b"[" * 5000, b"a = 0x" + b"f" * 5000]
)
def test_a_manifest_that_is_none_is_refused_whole(text: bytes) -> None:
    with pytest.raises(SourceError, match=r"its registry\.toml: (is|holds) "):
        contents(text, tree())


def test_a_list_of_keys_writes_no_line_of_its_own() -> None:
    manifest = b'[tools.x]\npath = "x.lua"\nrequired_config = ["a\\n[server]\\nbind = 1", "b"]'
    (offer,) = contents(manifest, tree("x.lua")).offers
    assert len(offer.required_config) == 2
    assert all(word.isprintable() for word in offer.required_config)


def test_a_manifest_of_other_shapes_offers_nothing() -> None:
    for text in (b"tools = 3", b"[tools]\nx = 3", b"registry = []", b'[tools.x]\npath = ["a"]\ntags = "b"'):
        assert contents(text, tree()).offers == ()


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        (None, "agents/guide/agent.toml"),
        (b'[agents.guide]\npath = "agents/guide"\n', "agents/guide/agent.toml"),
        (b'[agents.guide]\npath = "mine/agent.toml"\n', "mine/agent.toml"),
    ],
)
def test_an_agent_that_is_settings_is_left_out_with_what_to_do(manifest: bytes | None, path: str) -> None:
    offered = contents(manifest, tree(path, "tools/echo/tool.lua"))
    assert "agent guide" not in names(offered)
    (problem,) = offered.problems
    assert problem.startswith(f"agent 'guide': its {path} holds settings and no script; copy ")
    assert "[agents.inline.guide]" in problem


def test_an_agent_with_a_script_beside_its_settings_is_the_script() -> None:
    offered = contents(None, tree("agents/guide/agent.toml", "agents/guide/agent.lua"))
    assert names(offered) == ["agent guide"]
    assert offered.problems == ()

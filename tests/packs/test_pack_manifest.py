"""A pack of one's own: what its scripts share, its profiles, the arguments of its routes, and what is wrong
with a manifest.
"""

import os
from pathlib import Path

import pytest
from kit import ctx, workspace
from pack_kit import CONFIG, pack_project

from ctx.errors import BadRequest, ConfigError, ToolError
from ctx.packs.manifest import read_manifest
from ctx.packs.packs import Pack
from ctx.types import Caller

HEAD = 'name = "diary"\napi = 1\ngrants = ["memory"]\n'
SHARED = """\
-- Quotes "and" \\ backslashes, ends of lines, Größe: all of it comes through.
local shared = { limit = 3 }
function shared.greet(name) return "Guten Tag, " .. name .. " \\"\\\\\\n" end
return shared
"""
GREET = """\
tool = { name = "greet", description = "Greets", parameters = { type = "object", properties = { name = { type = "string" } } } }
function tool.execute(params, context)
  if params.name == "nobody" then
    error("nobody is there")
  end
  return { greeting = shared.greet(params.name), limit = shared.limit }
end
"""
COUNT = """\
tool = {
  name = "count",
  description = "Counts",
  parameters = {
    type = "object",
    properties = { from = { type = "integer" }, names = { type = "array", items = { type = "string" } }, twice = { type = "boolean" } },
    required = { "from" },
  },
}
function tool.execute(params, context)
  return { sum = params.from + (params.names and #params.names or 0), twice = params.twice }
end
"""
MANIFEST = (
    HEAD
    + """\
shared = "shared.lua"
tools = [{ name = "greet" }, { name = "old_greet", script = "greet.lua", profile = "old" }]
routes = [{ method = "GET", path = "/diary/{from}", script = "count.lua" }]
[profiles.new]
instructions = "Greet."
[profiles.old]
"""
)
CALLER = Caller("rest")


def diary(folder: Path, manifest: str = MANIFEST) -> Path:
    """The folder of the pack."""
    pack = folder / "diary"
    pack.mkdir()
    for name, text in (("shared.lua", SHARED), ("greet.lua", GREET), ("count.lua", COUNT)):
        (pack / name).write_text(text)
    (pack / "pack.toml").write_text(manifest)
    return pack


def enabled(folder: Path, settings: str = "") -> Path:
    """A configuration that enables the pack alone."""
    diary(folder)
    packs = CONFIG.replace('["hindsight", "claude-recall", "sekha"]', '["diary"]')
    return pack_project(folder, f'{packs}[packs.diary]\npath = "./diary"\n{settings}')


def test_scripts_see_what_they_share_and_keep_the_numbers_of_their_lines(tmp_path: Path) -> None:
    with workspace(enabled(tmp_path)) as space:
        assert [pack.name for pack in space.packs] == ["diary"]
        reply = space.toolbox.call("greet", {"name": "Ann"}, CALLER)
        assert reply == {"greeting": 'Guten Tag, Ann "\\\n', "limit": 3}
        with pytest.raises(ToolError, match=r":4: nobody is there"):
            space.toolbox.call("greet", {"name": "nobody"}, CALLER)


@pytest.mark.parametrize(
    ("settings", "tools"), [("", ["greet"]), ('profile = "old"\n', ["greet", "old_greet"])]
)
def test_a_profile_chooses_the_tools_and_the_first_is_the_default(
    tmp_path: Path, settings: str, tools: list[str]
) -> None:
    with workspace(enabled(tmp_path, settings)) as space:
        [pack] = space.packs
        assert sorted(pack.tools) == tools
        assert pack.manifest.instructions == ("" if settings else "Greet.")


def test_what_is_edited_while_a_server_runs_counts_from_its_next_start(tmp_path: Path) -> None:
    with workspace(enabled(tmp_path)) as space:
        [pack] = space.packs
        assert isinstance(pack, Pack)
        for name in ("shared.lua", "greet.lua", "count.lua"):
            (tmp_path / "diary" / name).write_text("this is no script")
        answer = pack.route_answer(pack.manifest.routes[0], space.toolbox)
        assert answer({"from": ["2"], "names": ["a"]}, {}, CALLER)["sum"] == 3
        assert space.toolbox.call("greet", {"name": "Ann"}, CALLER)["limit"] == 3


def test_a_pack_of_ones_own_reads_the_variables_that_it_was_granted_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value of the variable of the bank is what its scripts are told their bank is called."""
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_secret")
    config = enabled(tmp_path)
    manifest = tmp_path / "diary/pack.toml"
    manifest.write_text(MANIFEST + '[environ]\nbank = ["DIARY_BANK", "GITHUB_TOKEN"]\n')
    with pytest.raises(ConfigError) as refusal, workspace(config) as space:
        assert space.packs is None
    assert 'write env = ["DIARY_BANK", "GITHUB_TOKEN"]' in refusal.value.message
    assert "ghp_secret" not in refusal.value.message
    monkeypatch.setenv("DIARY_BANK", "mine")
    config.write_text(config.read_text() + 'env = ["DIARY_BANK"]\n')
    with pytest.raises(ConfigError, match="GITHUB_TOKEN"), workspace(config) as space:
        assert space.packs is None
    manifest.write_text(MANIFEST + '[environ]\nbank = "DIARY_BANK"\n')
    with workspace(config) as space:
        assert [pack.default_bank for pack in space.packs] == ["mine"]


@pytest.mark.parametrize("granted", ['"DIARY_BANK"', "[1]", '[["DIARY_BANK"]]'])
def test_what_a_pack_is_granted_is_a_list_of_variables(tmp_path: Path, granted: str) -> None:
    config = enabled(tmp_path)
    config.write_text(config.read_text() + f"env = {granted}\n")
    with pytest.raises(ConfigError, match="env: a list of variables"), workspace(config) as space:
        assert space.packs is None


def test_a_script_of_a_pack_that_leads_to_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    """Lines such as these are Lua: what the pack shares, every script of it sees."""
    folder = diary(tmp_path)
    (tmp_path / ".env").write_text('API_KEY = "s3cret"\n')
    (folder / "greet.lua").rename(folder / "hello.lua")
    (folder / "greet.lua").symlink_to("hello.lua")  # within the pack
    assert read_manifest(str(folder)).name == "diary"
    (folder / "shared.lua").unlink()
    (folder / "shared.lua").symlink_to(tmp_path / ".env")
    with pytest.raises(ConfigError, match=r"shared\.lua is a link that leads out of the pack"):
        read_manifest(str(folder))
    folder.rename(tmp_path / "elsewhere")
    (tmp_path / "diary").symlink_to("elsewhere")  # the folder itself may be one, which is asked about
    (folder / "shared.lua").unlink()
    (folder / "shared.lua").write_text(SHARED)
    assert read_manifest(str(tmp_path / "diary")).name == "diary"


def test_a_pipe_in_the_place_of_a_manifest_is_not_waited_for(tmp_path: Path) -> None:
    folder = diary(tmp_path)
    (folder / "pack.toml").unlink()
    os.mkfifo(folder / "pack.toml")
    with pytest.raises(ConfigError, match="is no file"):
        read_manifest(str(folder))


def test_a_route_has_the_types_of_its_scripts_parameters_and_drops_nothing(tmp_path: Path) -> None:
    with workspace(enabled(tmp_path)) as space:
        [pack] = space.packs
        assert isinstance(pack, Pack)
        answer = pack.route_answer(pack.manifest.routes[0], space.toolbox)
        texts = {"from": ["2"], "names": ["a", "b"], "twice": ["true"]}
        assert answer(texts, {}, CALLER) == {"sum": 4, "twice": True}
        assert answer({"from": ["2"]}, {"from": 9, "names": None}, CALLER)["sum"] == 2  # the path's own
        for faulty, message in (
            ({"from": ["two"]}, "must be of type 'integer'"),
            ({"from": ["2"], "name": ["a"]}, "did you mean 'names'"),
            ({}, "missing required parameter: from"),
        ):
            with pytest.raises(BadRequest, match=message):
                answer(faulty, {}, CALLER)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('shared = "none.lua"\ntools = []\n', "no such script: none.lua"),
        ('tools = [{ name = "greet", profile = "x" }]\n', "tools.greet.profile: no such profile: x"),
        ("tools = []\n[profiles.new]\ntools = []\n", "profiles.new: a table that may have instructions"),
        ("tools = []\n[profiles]\nnew = 1\n", "profiles.new: a table that may have instructions"),
        ("tools = []\nprofile = []\n", "profile: unknown key"),
        ("tools = \n", "pack.toml: is not TOML"),
        (f"tools = {'[' * 5000}\n", "pack.toml: is nested too deeply"),
        ("tools = [5]\n", "pack.toml: tools: each is a table"),
        ("tools = [{ name = 5 }]\n", "tools.5.name: must be a text"),
        ('tools = [{ script = "greet.lua" }]\n', "tools.name: is required"),
        ('tools = [{ name = "greet", script = 5 }]\n', "tools.greet.script: must be a text"),
        ('tools = [{ name = "greet", timeout_s = "soon" }]\n', "tools.greet.timeout_s: must be a number"),
        ('tools = [{ name = "greet", timeout_s = nan }]\n', "tools.greet.timeout_s: seconds for a call"),
        ('tools = [{ name = "greet", timeout_s = -1 }]\n', "tools.greet.timeout_s: seconds for a call"),
        ('tools = [{ name = "greet", at_banks = "no" }]\n', "tools.greet.at_banks: must be true or false"),
        ('tools = [{ name = "greet", bank_parameter = 5 }]\n', "bank_parameter: must be a text"),
        ("tools = []\n[methods]\nhello = 5\n", "no such script: 5"),
        ('tools = []\nagents = [{ name = "a", script = [] }]\n', "agents.script: must be a text"),
        ('tools = []\nroutes = [{ path = "/a/{b}/{b}", tool = "x" }]\n', "routes.path: after each /"),
        ('tools = []\nroutes = [{ path = "/{a:path}", tool = "x" }]\n', "routes.path: after each /"),
        ('tools = []\nroutes = [{ path = "/a\\n", tool = "x" }]\n', "routes.path: after each /"),
        ('tools = []\nroutes = [{ path = "a", tool = "x" }]\n', "routes.path: after each /"),
        ('tools = []\nroutes = [{ path = "/a", method = "EAT", tool = "x" }]\n', "method: must be one of"),
        ('tools = []\nroutes = [{ path = "/a", tool = 5 }]\n', "routes.tool: must be a text"),
        ("tools = []\nrate_per_minute = -5\n", "rate_per_minute: calls a minute"),
        ('tools = []\ndefault_bank = "../x"\n', "default_bank: has 1 to 128"),
        ('tools = []\nbank = "sekha"\n', "bank: a bank of its own has the pack's name, 'diary'"),
        ('tools = []\nsessions_file = "~/.bashrc"\n', "sessions_file: must be a file in ~/.diary"),
        ('tools = []\nsessions_file = "~/.diary/../x"\n', "sessions_file: must be a file in ~/.diary"),
        ('tools = []\nsessions_file = "/etc/x"\n', "sessions_file: must be a file in ~/.diary"),
    ],
)
def test_what_is_wrong_with_a_manifest_is_said(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_manifest(str(diary(tmp_path, HEAD + lines)))


@pytest.mark.parametrize("grants", ['[["memory"]]', "[5]", '["root"]'])
def test_a_grant_that_is_none_is_refused(tmp_path: Path, grants: str) -> None:
    head = HEAD.replace('["memory"]', grants)
    with pytest.raises(ConfigError, match=r"pack.toml: grants: unknown"):
        read_manifest(str(diary(tmp_path, f"{head}tools = []\n")))


def test_what_a_manifest_says_of_itself_drives_no_terminal(tmp_path: Path) -> None:
    manifest = MANIFEST.replace("api = 1", 'api = 1\ndescription = "\\u001b[31mred\\nsekha: trusted"')
    enabled(tmp_path)
    (tmp_path / "diary/pack.toml").write_text(manifest)
    listing = ctx("--config", str(tmp_path / "ctx.toml"), "pack", "list", cwd=tmp_path).stdout
    assert "diary: \\x1b[31mred sekha: trusted\n" in listing


@pytest.mark.parametrize(
    "setting", ['api_key_env = ["DIARY_KEY"]', "api_key_env = false", "default_bank = 5"]
)
def test_a_setting_that_is_no_text_is_refused_and_no_pack_is_served_without_its_key(
    tmp_path: Path, setting: str
) -> None:
    with (
        pytest.raises(ConfigError, match=rf"\[packs\.diary\] {setting.split()[0]}: text is needed"),
        workspace(enabled(tmp_path, setting + "\n")) as space,
    ):
        assert space.packs, "a look at the packs loads them"


def test_a_setting_that_names_no_profile_is_told_of_those_there_are(tmp_path: Path) -> None:
    manifest = read_manifest(str(diary(tmp_path)))
    with pytest.raises(
        ConfigError, match=r"\[packs.diary\] profile: unknown profile 'nwe'; did you mean 'new'"
    ):
        manifest.served("nwe")

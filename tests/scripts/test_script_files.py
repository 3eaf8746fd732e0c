"""A tool in Lua reads files it was granted, but never the store."""

from pathlib import Path

import pytest
from kit import workspace

from ctx.models import JSON, Caller

CALLER = Caller("cli")
READER = """
tool = { description = "d", parameters = { { name = "path", required = true } } }
function tool.execute(params, context)
  local ok, reply = pcall(fs.read, params.path)
  return { ok = ok, said = ok and "" or tostring(reply) }
end
"""


@pytest.mark.parametrize("path", ["./data/ctx.db", "./ctx.db"])
def test_a_store_outside_of_dot_ctx_is_no_scripts_to_read_either(tmp_path: Path, path: str) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "reader.lua").write_text(READER)
    config = tmp_path / "ctx.toml"
    config.write_text(
        f'[db]\npath = "{path}"\n[embedding]\nprovider = "disabled"\n'
        '[tools.script.reader]\npath = "./tools/reader.lua"\nfs = ["."]\n'
    )
    folder = (tmp_path / path).parent
    with workspace(config) as space:
        space.indexer.run()
        (folder / "keys.json").write_text("{}")
        (folder / "index").mkdir(exist_ok=True)
        for name in ("index/meta.json", "index.md", "ctx.database.md", "ctx.db.catalog-1.bak"):
            (folder / name).write_text("x")
        space.load_extensions()

        def read(name: str) -> JSON:
            return space.toolbox.call("reader", {"path": str(folder / name)}, CALLER)

        for name in (
            "ctx.db",
            "CTX.DB",
            "ctx.db-wal",
            "ctx.db.catalog-1.bak",
            "keys.json",
            "index/meta.json",
        ):
            assert "scripts may not read" in read(name)["said"], name
        for name in ("index.md", "ctx.database.md"):
            assert read(name)["ok"], name

"""`ctx connect` as a user runs it."""

import subprocess
from pathlib import Path

from kit import ctx

TOML = """\
# my settings
model = "large"   # keep

[mcp_servers.other]
command = "x"

[mcp_servers.ctx]
url = "http://old.example/mcp"

[mcp_servers.ctx.env]
A = "b"

[profiles.quick]
model = "small"
"""


def as_user(folder: Path, *arguments: str, home: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """In a project, with the home beside it where no other is named."""
    home = home or folder.parent / "home"
    return ctx(
        "connect", *arguments, cwd=folder, env={"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    )

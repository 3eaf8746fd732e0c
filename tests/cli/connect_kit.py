"""`ctx connect` as a user runs it."""

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

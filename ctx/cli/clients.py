"""The programs that `ctx connect` knows: where each keeps its servers, and what an entry looks like there.

Every row names the page that it was written after and when that was read. Where a client's documentation
names no file, or one that is not ours to edit as text, the row has none, and the entry is printed to be
pasted.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ctx.cli.entries import Entry


class Server(NamedTuple):
    """What a client is to be told: an address, or a command that it starts."""

    url: str
    command: str
    arguments: tuple[str, ...]  # of `ctx`, for a client that starts it
    key_env: str | None
    piped: bool


class Client(NamedTuple):
    """One client. `user` and `project` are its files: `~`, `{config}` (XDG) and `{apps}` (a desktop program's
    own folder) are filled in. Without `user` the entry is printed, and `then` says where it goes.
    """

    title: str
    user: str | None
    project: str | None
    entry: Callable[[Server], Entry]
    then: str  # what to do next
    source: str  # the documentation it was written after
    checked: str  # when that was read
    key: str = "mcpServers"  # of the table of servers
    form: str = "json"  # json | jsonc (with comments and trailing commas) | toml | yaml
    pipes_only: bool = False
    key_by_reference: bool = True  # its entries can name an environment variable in a header


def expanded(path: str) -> str:
    """A client's file on this machine."""
    home = os.path.expanduser("~")
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    apps = os.path.join(home, "Library/Application Support") if sys.platform == "darwin" else config
    return os.path.expanduser(path).replace("{config}", config).replace("{apps}", apps)


def installed(client: Client) -> bool:
    """Whether this user seems to have the client: its file is there, or the folder that is its own."""
    if client.user is None:
        return False
    path = expanded(client.user)
    folder = os.path.dirname(path)
    # A file for each server, in a folder.
    client_folder = os.path.dirname(folder) if client.form == "yaml" else folder
    return os.path.exists(path) or (client_folder != os.path.expanduser("~") and os.path.isdir(client_folder))


# -- entries -------------------------------------------------------------------------------------------------


def _started(server: Server) -> Entry:
    return {"command": server.command, "args": list(server.arguments)}


class Addressed(NamedTuple):
    """An entry with its address under `address`, a key as `reference` (with `%s` for the variable), a `type`
    for each of the two ways where the client asks for one, and what else it wants.
    """

    address: str = "url"
    reference: str = "${%s}"
    types: tuple[str, str] | None = None
    extra: tuple[tuple[str, object], ...] = ()

    def entry(self, server: Server) -> Entry:
        entry: Entry = {}
        if self.types:
            entry["type"] = self.types[server.piped]
        if server.piped:
            return {**entry, **_started(server), **dict(self.extra)}
        entry[self.address] = server.url
        if server.key_env:
            entry["headers"] = {"Authorization": f"Bearer {self.reference % server.key_env}"}
        return {**entry, **dict(self.extra)}


def _codex(server: Server) -> Entry:
    if server.piped:
        return _started(server)
    return {"url": server.url, **({"bearer_token_env_var": server.key_env} if server.key_env else {})}


def _continue(server: Server) -> Entry:
    if server.piped:
        return {"type": "stdio", **_started(server)}
    entry: Entry = {"type": "streamable-http", "url": server.url}
    if server.key_env:
        entry["requestOptions"] = {
            "headers": {"Authorization": f"Bearer ${{{{ secrets.{server.key_env} }}}}"}
        }
    return entry


def _opencode(server: Server) -> Entry:
    if server.piped:
        return {"type": "local", "command": [server.command, *server.arguments], "enabled": True}
    return {"type": "remote", "url": server.url, "enabled": True}


def _goose(server: Server) -> Entry:
    if server.piped:
        return {
            "type": "stdio",
            "cmd": server.command,
            "args": list(server.arguments),
            "enabled": True,
            "timeout": 300,
        }
    return {"type": "streamable_http", "uri": server.url, "enabled": True, "timeout": 300}


CLIENTS: Mapping[str, Client] = {
    "cursor": Client(
        "Cursor",
        "~/.cursor/mcp.json",
        ".cursor/mcp.json",
        Addressed(reference="${env:%s}").entry,
        "Cursor sees it at once: Settings > MCP.",
        "https://cursor.com/docs/mcp",
        "2026-11",
    ),
    "claude-code": Client(
        "Claude Code",
        "~/.claude.json",
        ".mcp.json",
        Addressed(types=("http", "stdio")).entry,
        "In a new session, /mcp shows it.",
        "https://code.claude.com/docs/en/mcp",
        "2026-11",
    ),
    "claude-desktop": Client(
        "Claude Desktop",
        "{apps}/Claude/claude_desktop_config.json",
        None,
        Addressed().entry,
        "Quit Claude Desktop and start it again.",
        "https://modelcontextprotocol.io/docs/develop/connect-local-servers",
        "2026-11",
        pipes_only=True,
    ),
    "vscode": Client(
        "VS Code",
        "{apps}/Code/User/mcp.json",
        ".vscode/mcp.json",
        Addressed(types=("http", "stdio")).entry,
        "Command palette > MCP: List Servers > Start.",
        "https://code.visualstudio.com/docs/copilot/reference/mcp-configuration",
        "2026-11",
        key="servers",
        form="jsonc",
        key_by_reference=False,  # ${env:X} in a header is sent as it stands: microsoft/vscode#336232
    ),
    "codex": Client(
        "Codex",
        "~/.codex/config.toml",
        ".codex/config.toml",
        _codex,
        "A new session has it; a project's file counts where the project is trusted.",
        "https://developers.openai.com/docs/extend/mcp",
        "2026-11",
        key="mcp_servers",
        form="toml",
    ),
    "windsurf": Client(
        "Windsurf",
        "~/.codeium/windsurf/mcp_config.json",
        None,
        Addressed("serverUrl", "${env:%s}").entry,
        "Cascade > MCP servers > Refresh.",
        "https://docs.windsurf.com/windsurf/cascade/mcp",
        "2026-11",
    ),
    "lmstudio": Client(
        "LM Studio",
        "~/.lmstudio/mcp.json",
        None,
        Addressed().entry,
        "LM Studio sees it at once: Program > Install.",
        "https://lmstudio.ai/docs/app/mcp",
        "2026-11",
        key_by_reference=False,
    ),
    "continue": Client(
        "Continue",
        "~/.continue/mcpServers/ctx.yaml",
        ".continue/mcpServers/ctx.yaml",
        _continue,
        "Reload the window; agent mode lists its tools. A key is looked up in Continue's .env files first.",
        "https://docs.continue.dev/customize/deep-dives/mcp",
        "2026-11",
        form="yaml",
    ),
    "gemini-cli": Client(
        "Gemini CLI",
        "~/.gemini/settings.json",
        ".gemini/settings.json",
        Addressed("httpUrl").entry,  # `url` would be an SSE endpoint there
        "In a new session, /mcp shows it.",
        "https://github.com/google-gemini/gemini-cli/blob/main/docs/tools/mcp-server.md",
        "2026-11-22",
        key_by_reference=False,  # variables are filled in under `env` alone
    ),
    "zed": Client(
        "Zed",
        "{config}/zed/settings.json",
        ".zed/settings.json",
        Addressed().entry,
        "Zed sees it at once: Settings > AI > MCP Servers.",
        "https://zed.dev/docs/ai/mcp",
        "2026-11-22",
        key="context_servers",
        form="jsonc",
        key_by_reference=False,
    ),
    "copilot-cli": Client(
        "GitHub Copilot CLI",
        "~/.copilot/mcp-config.json",
        ".github/mcp.json",
        Addressed(types=("http", "local"), extra=(("tools", ["*"]),)).entry,
        "In a new session, /mcp show lists it.",
        "https://docs.github.com/en/copilot/how-tos/copilot-cli/customize-copilot/add-mcp-servers",
        "2026-11-22",
        key_by_reference=False,
    ),
    "opencode": Client(
        "OpenCode",
        "{config}/opencode/opencode.json",
        "opencode.json",
        _opencode,
        "A new session has it; `opencode mcp list` shows it.",
        "https://opencode.ai/docs/mcp-servers/",
        "2026-11-22",
        key="mcp",  # the shape of version 1, which version 2 reads too: https://opencode.ai/docs/migrate-v1/
        form="jsonc",
        key_by_reference=False,
    ),
    "roo": Client(
        "Roo Code",
        None,
        ".roo/mcp.json",
        Addressed(types=("streamable-http", "stdio")).entry,
        "Roo Code > MCP > Edit Global MCP, which opens mcp_settings.json; "
        "`--scope project` writes .roo/mcp.json, which it finds by itself.",
        "https://docs.roocode.com/features/mcp/using-mcp-in-roo",
        "2026-11-22",
        key_by_reference=False,
    ),
    "cline": Client(
        "Cline",
        None,
        None,
        Addressed(types=("streamableHttp", "stdio")).entry,
        "Cline > MCP Servers > Configure > Configure MCP Servers; where that file is differs by version.",
        "https://docs.cline.bot/mcp/adding-and-configuring-servers",
        "2026-11-22",
        key_by_reference=False,
    ),
    "goose": Client(
        "goose",
        None,
        None,
        _goose,
        "~/.config/goose/config.yaml, beside the extensions there; or `goose configure` > Add Extension.",
        "https://block.github.io/goose/docs/guides/config-files",
        "2026-11-22",
        key="extensions",
        # JSON is YAML: what is printed can be pasted into config.yaml as it stands
        key_by_reference=False,
    ),
    "jetbrains": Client(
        "JetBrains AI Assistant and Junie",
        None,
        None,
        Addressed().entry,
        "Settings > Tools > AI Assistant (or Junie) > Model Context Protocol (MCP) > Add > As JSON.",
        "https://www.jetbrains.com/help/ai-assistant/configure-an-mcp-server.html",
        "2026-11-22",
        pipes_only=True,  # what its help says of every version; newer ones may take an address
    ),
    "open-webui": Client(
        "Open WebUI",
        None,
        None,
        Addressed().entry,
        "Admin Settings > External Tools > + with Type 'MCP (Streamable HTTP)': the address alone goes there "
        "(and under Auth a key). From a container this machine is host.docker.internal.",
        "https://docs.openwebui.com/features/mcp",
        "2026-11-22",
    ),
}

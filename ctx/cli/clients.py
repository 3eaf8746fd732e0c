"""The clients that `ctx connect` knows: where each keeps its MCP servers, and what an entry looks like.

Each row names the page that it was written from and when that was read. A row without files is printed, to
be pasted.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ctx.models import JSON

Entry = dict[str, JSON]


@dataclass(frozen=True)
class Server:
    """The target of an entry: a command that the client starts (`stdio`), or an address."""

    command: str
    arguments: tuple[str, ...]
    url: str = ""
    key_env: str | None = None
    stdio: bool = True


@dataclass(frozen=True, kw_only=True)
class Client:
    """One client. In paths, `{NAME|DEFAULT}` is an environment variable and `{apps}` the folder of desktop
    programs.
    """

    title: str
    user: str | None = None  # the user's file
    project: str | None = None  # a project's file
    then: str  # what to do next
    source: str  # the documentation page
    checked: str  # when that was read
    key: str = "mcpServers"  # the table of servers
    form: str = "json"  # json (comments are read) or toml
    types: tuple[str, str] | None = None  # the value of `type` for an address, and for a command
    address: str = "url"  # the key of an address
    key_reference: str | None = "${%s}"  # a variable in a header; None: the client cannot refer to one
    extra: Mapping[str, JSON] | None = None
    stdio_only: bool = False
    special: Callable[[Server], Entry] | None = None  # an entry of another shape

    def entry(self, server: Server) -> Entry:
        """The client's entry for a server."""
        if self.special:
            return self.special(server)
        entry: Entry = {"type": self.types[server.stdio]} if self.types else {}
        if server.stdio:
            entry |= {"command": server.command, "args": list(server.arguments)}
        else:
            entry[self.address] = server.url
            if server.key_env and self.key_reference:
                entry["headers"] = {"Authorization": f"Bearer {self.key_reference % server.key_env}"}
        return entry | dict(self.extra or {})


def expanded(path: str) -> str:
    """A client's file on this machine."""
    apps = "~/Library/Application Support" if sys.platform == "darwin" else "{XDG_CONFIG_HOME|~/.config}"
    path = path.replace("{apps}", apps)
    path = re.sub(r"\{(\w+)\|([^}]*)\}", lambda match: os.environ.get(match[1]) or match[2], path)
    return os.path.abspath(os.path.expanduser(path))


def installed(client: Client) -> bool:
    """Whether this user seems to have the client: its file is there, or its folder."""
    if client.user is None:
        return False
    path = expanded(client.user)
    folder = os.path.dirname(path)
    return os.path.exists(path) or (folder != os.path.expanduser("~") and os.path.isdir(folder))


def _codex(server: Server) -> Entry:
    if server.stdio:
        return {"command": server.command, "args": list(server.arguments)}
    return {"url": server.url, **({"bearer_token_env_var": server.key_env} if server.key_env else {})}


def _opencode(server: Server) -> Entry:
    if server.stdio:
        return {"type": "local", "command": [server.command, *server.arguments], "enabled": True}
    return {"type": "remote", "url": server.url, "enabled": True}


def _goose(server: Server) -> Entry:
    if server.stdio:
        way: Entry = {"type": "stdio", "cmd": server.command, "args": list(server.arguments)}
    else:
        way = {"type": "streamable_http", "uri": server.url}
    return {**way, "enabled": True, "timeout": 300}


CLIENTS: Mapping[str, Client] = {
    "cursor": Client(
        title="Cursor",
        user="~/.cursor/mcp.json",
        project=".cursor/mcp.json",
        key_reference="${env:%s}",
        then="Cursor sees it at once: Settings > MCP.",
        source="https://cursor.com/docs/mcp",
        checked="2026-11",
    ),
    "claude-code": Client(
        title="Claude Code",
        user="{CLAUDE_CONFIG_DIR|~}/.claude.json",
        project=".mcp.json",
        types=("http", "stdio"),
        then="In a new session, /mcp shows it.",
        source="https://code.claude.com/docs/en/mcp",
        checked="2026-11",
    ),
    "claude-desktop": Client(
        title="Claude Desktop",
        user="{apps}/Claude/claude_desktop_config.json",
        then="Quit Claude Desktop and start it again.",
        source="https://modelcontextprotocol.io/docs/develop/connect-local-servers",
        checked="2026-11",
        stdio_only=True,
    ),
    "vscode": Client(
        title="VS Code",
        user="{apps}/Code/User/mcp.json",
        project=".vscode/mcp.json",
        key="servers",
        types=("http", "stdio"),
        key_reference=None,  # ${env:X} in a header is sent unexpanded: microsoft/vscode#336232
        then="Command palette > MCP: List Servers > Start.",
        source="https://code.visualstudio.com/docs/copilot/reference/mcp-configuration",
        checked="2026-11",
    ),
    "codex": Client(
        title="Codex",
        user="{CODEX_HOME|~/.codex}/config.toml",
        project=".codex/config.toml",
        key="mcp_servers",
        form="toml",
        special=_codex,
        then="A new session has it.",
        source="https://developers.openai.com/docs/extend/mcp",
        checked="2026-11",
    ),
    "windsurf": Client(
        title="Windsurf",
        user="~/.codeium/windsurf/mcp_config.json",
        address="serverUrl",
        key_reference="${env:%s}",
        then="Cascade > MCP servers > Refresh.",
        source="https://docs.windsurf.com/windsurf/cascade/mcp",
        checked="2026-11",
    ),
    "antigravity": Client(
        title="Antigravity",
        user="~/.gemini/config/mcp_config.json",
        project=".agents/mcp_config.json",
        address="serverUrl",
        key_reference=None,
        then="Agent panel > ... > MCP Servers > Refresh.",
        source="https://antigravity.google/docs/mcp",
        checked="2026-11-28",
    ),
    "kiro": Client(
        title="Kiro",
        user="~/.kiro/settings/mcp.json",
        project=".kiro/settings/mcp.json",
        then="Kiro sees it at once: Kiro panel > MCP Servers.",
        source="https://kiro.dev/docs/mcp/configuration",
        checked="2026-11-28",
    ),
    "amp": Client(
        title="Amp",
        user="{XDG_CONFIG_HOME|~/.config}/amp/settings.json",
        project=".amp/settings.json",
        key="amp.mcpServers",
        then="`amp mcp list` shows it; a project's server has to be approved: `amp mcp approve ctx`.",
        source="https://ampcode.com/manual",
        checked="2026-11-28",
    ),
    "lmstudio": Client(
        title="LM Studio",
        user="~/.lmstudio/mcp.json",
        key_reference=None,
        then="LM Studio sees it at once: Program > Install.",
        source="https://lmstudio.ai/docs/app/mcp",
        checked="2026-11",
    ),
    "continue": Client(
        title="Continue",
        user="~/.continue/mcpServers/ctx.json",
        project=".continue/mcpServers/ctx.json",
        types=("streamable-http", "stdio"),
        key_reference=None,
        then="Reload the window; agent mode lists its tools.",
        source="https://docs.continue.dev/customize/deep-dives/mcp",
        checked="2026-11",
    ),
    "gemini-cli": Client(
        title="Gemini CLI",
        user="~/.gemini/settings.json",
        project=".gemini/settings.json",
        address="httpUrl",  # `url` would be an SSE endpoint
        key_reference=None,  # variables are replaced under `env` alone
        then="In a new session, /mcp shows it.",
        source="https://github.com/google-gemini/gemini-cli/blob/main/docs/tools/mcp-server.md",
        checked="2026-11-22",
    ),
    "zed": Client(
        title="Zed",
        user="{XDG_CONFIG_HOME|~/.config}/zed/settings.json",
        project=".zed/settings.json",
        key="context_servers",
        key_reference=None,
        then="Zed sees it at once: Settings > AI > MCP Servers.",
        source="https://zed.dev/docs/ai/mcp",
        checked="2026-11-22",
    ),
    "copilot-cli": Client(
        title="GitHub Copilot CLI",
        user="{COPILOT_HOME|~/.copilot}/mcp-config.json",
        project=".github/mcp.json",
        types=("http", "local"),
        extra={"tools": ["*"]},
        key_reference=None,
        then="In a new session, /mcp show lists it.",
        source="https://docs.github.com/en/copilot/how-tos/copilot-cli/customize-copilot/add-mcp-servers",
        checked="2026-11-22",
    ),
    "opencode": Client(
        title="OpenCode",
        user="{XDG_CONFIG_HOME|~/.config}/opencode/opencode.json",
        project="opencode.json",
        key="mcp",  # the shape of version 1, which version 2 reads too: https://opencode.ai/docs/migrate-v1/
        special=_opencode,
        key_reference=None,
        then="A new session has it; `opencode mcp list` shows it.",
        source="https://opencode.ai/docs/mcp-servers/",
        checked="2026-11-22",
    ),
    "roo": Client(
        title="Roo Code",
        project=".roo/mcp.json",
        types=("streamable-http", "stdio"),
        key_reference=None,
        then="Roo Code > MCP > Edit Global MCP, which opens mcp_settings.json.",
        source="https://docs.roocode.com/features/mcp/using-mcp-in-roo",
        checked="2026-11-22",
    ),
    "cline": Client(
        title="Cline",
        types=("streamableHttp", "stdio"),
        key_reference=None,
        then="Cline > MCP Servers > Configure > Configure MCP Servers; the file differs by version.",
        source="https://docs.cline.bot/mcp/adding-and-configuring-servers",
        checked="2026-11-22",
    ),
    "goose": Client(
        title="goose",
        key="extensions",  # JSON is YAML: what is printed can be pasted into config.yaml
        special=_goose,
        key_reference=None,
        then="~/.config/goose/config.yaml, next to the extensions; or `goose configure` > Add Extension.",
        source="https://block.github.io/goose/docs/guides/config-files",
        checked="2026-11-22",
    ),
    "jetbrains": Client(
        title="JetBrains AI Assistant and Junie",
        then="Settings > Tools > AI Assistant (or Junie) > Model Context Protocol (MCP) > Add > As JSON.",
        source="https://www.jetbrains.com/help/ai-assistant/configure-an-mcp-server.html",
        checked="2026-11-22",
        stdio_only=True,
    ),
    "open-webui": Client(
        title="Open WebUI",
        then="Admin Settings > External Tools > + with Type 'MCP (Streamable HTTP)': the address alone goes "
        "there (and under Auth a key). From a container this machine is host.docker.internal.",
        source="https://docs.openwebui.com/features/mcp",
        checked="2026-11-22",
    ),
}

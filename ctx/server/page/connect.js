// How to connect an editor or an agent: the entries that `ctx connect CLIENT` writes in this server's project.
import { address, call, copyButton, element, find, link, server, setTitle } from "./common.js";
import { curlLine } from "./tools.js";

export async function open() {
  setTitle("Connect");
  if (find("connect-list").childElementCount) return;
  const { name } = await call("/activity").catch(() => ({}));
  find("connect-list").replaceChildren(...clients(location.origin, name || "ctx").map(card), others());
}

function clients(origin, name) {
  const url = `${origin}/mcp`;
  const json = (value) => JSON.stringify(value, null, 2);
  const packed = (value) => encodeURIComponent(btoa(JSON.stringify(value)));
  const typed = { type: "http", url };
  return [
    { name: "Cursor", command: "cursor", hint: "~/.cursor/mcp.json, or .cursor/mcp.json of a project", text: json({ mcpServers: { [name]: { url } } }), install: `cursor://anysphere.cursor-deeplink/mcp/install?name=${name}&config=${packed({ url })}` },
    { name: "Claude Code", command: "claude-code", hint: "~/.claude.json, or .mcp.json of a project", text: json({ mcpServers: { [name]: typed } }) },
    { name: "Claude Desktop", command: "claude-desktop", hint: "claude_desktop_config.json; it speaks to programs alone, so it starts ctx as a go-between", text: json({ mcpServers: { [name]: { command: "ctx", args: ["mcp", "--url", url] } } }) },
    { name: "VS Code", command: "vscode", hint: ".vscode/mcp.json", text: json({ servers: { [name]: typed } }), install: `vscode:mcp/install?${encodeURIComponent(JSON.stringify({ name, ...typed }))}` },
    { name: "Codex", command: "codex", hint: "~/.codex/config.toml", text: `[mcp_servers.${name}]\nurl = "${url}"` },
    { name: "Windsurf", command: "windsurf", hint: "~/.codeium/windsurf/mcp_config.json", text: json({ mcpServers: { [name]: { serverUrl: url } } }) },
    { name: "LM Studio", command: "lmstudio", hint: "~/.lmstudio/mcp.json", text: json({ mcpServers: { [name]: { url } } }) },
    { name: "Anything else", hint: "plain HTTP; /openapi.json describes every tool, /llms.txt says it in a few words", text: curlLine("search", { query: "authentication" }) },
  ];
}

// Clients whose files have a form of their own: the command writes it, or prints what to paste.
const OTHERS = ["amp", "antigravity", "cline", "continue", "copilot-cli", "gemini-cli", "goose", "jetbrains", "kiro", "open-webui", "opencode", "roo", "zed"];

function others() {
  const node = element("article", undefined, "card");
  const list = element("p", "", "hint");
  list.append("Each has a form of its own, which the command knows: ", ...OTHERS.flatMap((name, index) => [index ? ", " : "", element("code", `ctx connect ${name}`)]), ". ", element("code", "ctx connect --list"), " says which are installed.");
  node.append(element("h2", "Other clients"), list);
  return node;
}

function card({ name, command, hint, text, install }) {
  const node = element("article", undefined, "card");
  const about = element("p", "", "hint");
  if (command) about.append(element("code", `ctx connect ${command}`), ` writes it into ${hint}`);
  else about.append(hint);
  const snippet = element("pre", text);
  snippet.tabIndex = 0;
  snippet.setAttribute("role", "region");
  snippet.setAttribute("aria-label", `Snippet for ${name}`);
  const actions = element("div", undefined, "actions");
  actions.append(copyButton("Copy", () => text, `Copy the snippet for ${name}`));
  if (install) actions.append(link(`Add to ${name}`, install, "button"));
  if (!command) actions.append(link("Try the tools", address("tools"), "button"));
  node.append(element("h2", name), about, snippet, actions);
  if (server.key && command) node.append(element("p", `This server needs a key: ctx connect ${command} --key-env NAME writes the name of the variable that holds it, never the key.`, "note"));
  return node;
}

// The page of a ctx server: searches, shows documents, the health of the sources and how to connect.
// Text from documents is only ever put in as text (textContent): a document must not be able to run here.
"use strict";

const LIMIT = 20;
const DEBOUNCE_MS = 140;
const ROWS_AT_FIRST = 3000;
const find = (id) => document.getElementById(id);
const state = { results: [], current: -1, request: null, key: sessionStorage.getItem("ctx-key") || "", opener: null };

async function call(path, body) {
  const headers = { "Content-Type": "application/json" };
  if (state.key) headers.Authorization = `Bearer ${state.key}`;
  const options = body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) };
  if (state.request && path === "/tools/search") options.signal = state.request.signal;
  const reply = await fetch(path, options);
  const answer = await reply.json();
  if (reply.status === 401) find("key-form").hidden = false;
  if (!reply.ok) throw Object.assign(new Error(answer.error?.message || `The server answered ${reply.status}`), { code: answer.error?.code });
  return answer;
}

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function say(text, failed = false) {
  find("status").textContent = text;
  find("status").classList.toggle("error", failed);
}

// ---- search ---------------------------------------------------------------------------------------------------------

function asked() {
  const form = new FormData(find("search"));
  return { query: form.get("query").trim(), mode: form.get("mode"), source: form.get("source") };
}

let pending = 0;
function searchSoon() {
  clearTimeout(pending);
  pending = setTimeout(() => search(), DEBOUNCE_MS);
}

async function search({ keepAddress = false } = {}) {
  clearTimeout(pending);
  const { query, mode, source } = asked();
  state.request?.abort();
  if (!keepAddress) remember(query, mode, source);
  if (!query) {
    show([]);
    say("");
    find("welcome").hidden = false;
    return;
  }
  state.request = new AbortController();
  const began = performance.now();
  const body = { query, mode, limit: LIMIT };
  if (source) body.source = source;
  try {
    let answer;
    let remark = "";
    try {
      answer = await call("/tools/search", body);
    } catch (error) {
      if (error.code !== "embeddings_disabled") throw error;
      answer = await call("/tools/search", { ...body, mode: "keyword" });
      remark = " · by keyword: embeddings are disabled on this server";
      onlyKeywords();
    }
    const count = answer.results.length;
    find("welcome").hidden = true;
    show(answer.results);
    const found = count === 0 ? "Nothing found" : count === LIMIT ? `The best ${count} documents` : count === 1 ? "1 document" : `${count} documents`;
    const notes = [answer.partial, answer.note].filter(Boolean).map((note) => ` · ${note}`).join("");
    say(`${found} in ${Math.round(performance.now() - began)} ms${remark}${notes}`);
  } catch (error) {
    if (error.name === "AbortError") return;
    show([]);
    find("welcome").hidden = true;
    say(error.message, true);
  }
}

function remember(query, mode, source) {
  const address = new URL(location.href);
  address.search = "";
  if (query) address.searchParams.set("q", query);
  if (mode !== "hybrid") address.searchParams.set("mode", mode);
  if (source) address.searchParams.set("source", source);
  address.hash = "";
  history.replaceState(null, "", address);
}

function show(results) {
  state.results = results;
  state.current = -1;
  find("results").replaceChildren(...results.map(resultRow));
}

function resultRow(result, index) {
  const row = find("result-template").content.firstElementChild.cloneNode(true);
  const open = row.querySelector(".open");
  open.href = `#${result.id}`;
  row.querySelector(".title").textContent = result.title;
  row.querySelector(".fill").style.transform = `scaleX(${Math.max(0.04, result.score)})`;
  row.querySelector(".path").textContent = `${result.source_id}:${result.start_line}`;
  row.querySelector(".heading").textContent = result.heading || "";
  row.querySelector(".snippet").replaceChildren(...highlighted(result.snippet, result.highlights || []));
  row.querySelector(".source").textContent = result.source;
  const time = row.querySelector("time");
  time.dateTime = result.updated_at;
  time.textContent = day(result.updated_at);
  const out = row.querySelector(".out");
  if (/^https?:\/\//.test(result.source_url || "")) {
    out.href = result.source_url;
    out.hidden = false;
  }
  open.addEventListener("click", (event) => {
    event.preventDefault();
    state.current = index;
    openDocument(result, open);
  });
  return row;
}

function highlighted(text, spans) {
  const parts = [];
  // The server counts characters, JavaScript counts UTF-16 units.
  const characters = Array.from(text);
  let last = 0;
  for (const [start, end] of spans) {
    parts.push(characters.slice(last, start).join(""), element("mark", characters.slice(start, end).join("")));
    last = end;
  }
  parts.push(characters.slice(last).join(""));
  return parts;
}

function day(text) {
  const moment = new Date(text);
  return Number.isNaN(moment.valueOf()) ? text : moment.toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" });
}

function move(step) {
  const links = [...document.querySelectorAll("#results .open")];
  if (!links.length) return;
  state.current = Math.min(links.length - 1, Math.max(0, state.current + step));
  document.querySelectorAll(".result").forEach((row, index) => row.classList.toggle("current", index === state.current));
  links[state.current].focus();
}

// ---- a document -----------------------------------------------------------------------------------------------------

async function openDocument(result, opener) {
  let whole;
  try {
    whole = await call("/tools/get", { id: result.id });
  } catch (error) {
    say(error.message, true);
    return;
  }
  state.opener = opener;
  find("document-title").textContent = whole.title;
  const meta = find("document-meta");
  meta.replaceChildren(`${whole.source} · ${whole.source_id} · ${day(whole.updated_at)}${whole.author ? ` · ${whole.author}` : ""}`);
  if (/^https?:\/\//.test(whole.source_url || "")) {
    const link = element("a", "Open at its source");
    link.href = whole.source_url;
    link.target = "_blank";
    link.rel = "noreferrer noopener";
    meta.append(" · ", link);
  }
  const lines = whole.body.split("\n");
  const [from, to] = result.start_line ? [result.start_line, result.end_line] : [0, 0];
  const body = find("document-body");
  const rows = (count) => lines.slice(0, count).map((line, index) => lineRow(line, index + 1, index + 1 >= from && index + 1 <= to));
  body.replaceChildren(...rows(Math.max(ROWS_AT_FIRST, to + 200)));
  if (lines.length > body.childElementCount) {
    const more = element("button", `Show all ${lines.length.toLocaleString()} lines`, "copy all");
    more.type = "button";
    more.addEventListener("click", () => body.replaceChildren(...rows(lines.length)));
    body.append(more);
  }
  find("document").showModal();
  body.querySelector(".found")?.scrollIntoView({ block: "center" });
  history.replaceState(null, "", `#${whole.id}`);
}

function lineRow(line, number, found) {
  const row = element("div", undefined, found ? "row found" : "row");
  const label = element("span", String(number), "number");
  label.setAttribute("aria-hidden", "true");
  row.append(label, element("span", line, "text"));
  return row;
}

// ---- sources --------------------------------------------------------------------------------------------------------

async function loadSources() {
  let sources;
  try {
    ({ sources } = await call("/tools/sources"));
  } catch (error) {
    say(error.message, true);
    return;
  }
  const select = find("source");
  const chosen = select.value || new URLSearchParams(location.search).get("source") || "";
  select.replaceChildren(new Option("All sources", ""), ...sources.map((source) => new Option(source.name, source.name)));
  select.value = sources.some((source) => source.name === chosen) ? chosen : "";
  const total = (field) => sources.reduce((sum, source) => sum + (source[field] || 0), 0);
  const facts = [[total("doc_count"), "documents"], [total("chunk_count"), "passages"], [sources.length, sources.length === 1 ? "source" : "sources"]];
  if (total("pending")) facts.push([total("pending"), "being embedded"]);
  find("facts").replaceChildren(...facts.map(([number, name]) => {
    const item = element("li");
    item.append(element("strong", number.toLocaleString()), name);
    return item;
  }));
  const sick = sources.some((source) => !source.healthy);
  find("health-dot").className = `dot${sick ? " bad" : total("pending") ? " warn" : ""}`;
  find("source-list").replaceChildren(...(sources.length ? sources.map(sourceCard) : [element("p", "No source is configured. Add a [connectors.filesystem.NAME] to ctx.toml.", "lead")]));
}

function sourceCard(source) {
  const card = element("article", undefined, "card");
  const title = element("h2", source.name);
  const word = !source.configured ? "not configured" : !source.healthy ? "unhealthy" : source.pending ? "embedding" : "fresh";
  title.append(element("span", word, `state${source.healthy ? (source.pending ? " warn" : "") : " bad"}`));
  const list = element("dl");
  const facts = { Documents: source.doc_count.toLocaleString(), Passages: (source.chunk_count || 0).toLocaleString(), "Waiting for vectors": (source.pending || 0).toLocaleString(), "Last indexed": source.last_indexed_at ? new Date(source.last_indexed_at).toLocaleString() : "never" };
  if (source.revision) facts.Revision = source.revision.slice(0, 12);
  for (const [name, value] of Object.entries(facts)) {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    list.append(pair);
  }
  card.append(title, list);
  if (source.note) card.append(element("p", source.note, "note"));
  return card;
}

// ---- connect --------------------------------------------------------------------------------------------------------

function loadConnect() {
  const url = location.origin;
  const entry = { url };
  const json = (value) => JSON.stringify(value, null, 2);
  const packed = (value) => btoa(JSON.stringify(value));
  const clients = [
    ["Cursor", "In ~/.cursor/mcp.json, or .cursor/mcp.json of a project.", json({ mcpServers: { ctx: entry } }), `cursor://anysphere.cursor-deeplink/mcp/install?name=ctx&config=${encodeURIComponent(packed(entry))}`],
    ["Claude Code", "In a terminal.", `claude mcp add --transport http ctx ${url}/mcp`],
    ["Claude Desktop", "In claude_desktop_config.json; it starts ctx itself.", json({ mcpServers: { ctx: { command: "ctx", args: ["mcp"] } } })],
    ["VS Code", "In .vscode/mcp.json.", json({ servers: { ctx: { type: "http", url: `${url}/mcp` } } }), `vscode:mcp/install?${encodeURIComponent(JSON.stringify({ name: "ctx", type: "http", url: `${url}/mcp` }))}`],
    ["Codex", "In ~/.codex/config.toml.", `[mcp_servers.ctx]\nurl = "${url}/mcp"`],
    ["Anything else", "Plain HTTP; /openapi.json describes every tool.", `curl ${url}/tools/search \\\n  -H 'Content-Type: application/json' \\\n  -d '{"query": "authentication", "mode": "hybrid"}'`],
  ];
  find("connect-list").replaceChildren(...clients.map(([name, hint, text, link]) => {
    const card = element("article", undefined, "card");
    const actions = element("div", undefined, "actions");
    const copy = element("button", "Copy", "copy");
    copy.type = "button";
    copy.setAttribute("aria-label", `Copy the snippet for ${name}`);
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        copy.textContent = "Copied";
      } catch {
        copy.textContent = "Select and copy by hand";
      }
      setTimeout(() => { copy.textContent = "Copy"; }, 1600);
    });
    actions.append(copy);
    if (link) {
      const install = element("a", `Add to ${name}`, "copy");
      install.href = link;
      actions.append(install);
    }
    const snippet = element("pre", text);
    snippet.tabIndex = 0;
    snippet.setAttribute("aria-label", `Snippet for ${name}`);
    card.append(element("h2", name), element("p", hint, "hint"), snippet, actions);
    return card;
  }));
}

// ---- what the server can do ---------------------------------------------------------------------------------------------

function onlyKeywords() {
  for (const choice of document.querySelectorAll("[name=mode]")) {
    choice.disabled = choice.value !== "keyword";
    choice.checked = choice.value === "keyword";
    if (choice.disabled) choice.parentElement.title = "Embeddings are disabled on this server";
  }
}

async function loadHealth() {
  try {
    const health = await call("/health");
    if (health.model === null) onlyKeywords();
  } catch (error) {
    say(error.message, true);
  }
}

// ---- views and keys -------------------------------------------------------------------------------------------------

function view(name) {
  for (const tab of document.querySelectorAll(".tab")) tab.setAttribute("aria-pressed", String(tab.dataset.view === name));
  for (const section of ["search", "sources", "connect"]) find(`view-${section}`).hidden = section !== name;
  if (name === "sources") loadSources();
  if (name === "search") find("query").focus();
}

document.querySelectorAll(".tab").forEach((tab) => tab.addEventListener("click", () => view(tab.dataset.view)));
find("search").addEventListener("submit", (event) => { event.preventDefault(); search(); });
find("query").addEventListener("input", searchSoon);
find("search").addEventListener("change", (event) => { if (event.target.id !== "query") search(); });
find("document-close").addEventListener("click", () => find("document").close());
find("document").addEventListener("close", () => {
  const { query, mode, source } = asked();
  remember(query, mode, source);
  state.opener?.focus();
});
find("document").addEventListener("click", (event) => { if (event.target === find("document")) find("document").close(); });
find("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  state.key = find("key").value.trim();
  sessionStorage.setItem("ctx-key", state.key);
  find("key-form").hidden = true;
  loadHealth().then(() => search());
  loadSources();
});
document.addEventListener("keydown", (event) => {
  if (find("document").open || event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    view("search");
    find("query").select();
  } else if (event.key === "Escape" && event.target === find("query")) {
    find("query").value = "";
    search();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !event.target.matches("select, [type=radio]")) {
    if (!state.results.length) return;
    event.preventDefault();
    if (event.key === "ArrowUp" && state.current <= 0) {
      state.current = -1;
      find("query").focus();
    } else {
      move(event.key === "ArrowDown" ? 1 : -1);
    }
  }
});

const given = new URLSearchParams(location.search);
find("query").value = given.get("q") || "";
const mode = document.querySelector(`[name=mode][value="${CSS.escape(given.get("mode") || "hybrid")}"]`);
if (mode) mode.checked = true;
loadConnect();
loadSources();
loadHealth().then(() => {
  if (find("query").value) search({ keepAddress: true });
  const id = location.hash.slice(1);
  if (/^[0-9a-f-]{36}$/.test(id)) openDocument({ id }, find("query"));
});

// What every view needs: calls to the server, elements, the address. Text from documents is only ever put in as text
// (textContent): a document must not be able to run here. Addresses are relative: the page may be below any path.

const RETRY_MS = 2000;
const listeners = { up: new Set(), health: new Set() };
export const server = { down: false, health: null, hearing: null, key: sessionStorage.getItem("ctx-key") || "", schemas: new Map() };

export const find = (id) => document.getElementById(id);
export const onUp = (listener) => listeners.up.add(listener);
export const onHealth = (listener) => listeners.health.add(listener);

// The parsed answer of the server. Throws an Error with the server's error code as `code`, or "down" if it does not answer.
export async function call(path, body, signal, more = {}, method = body === undefined ? "GET" : "POST") {
  const headers = { "Content-Type": "application/json", "X-Ctx-Client": "page", ...more };
  if (server.key) headers.Authorization = `Bearer ${server.key}`;
  const options = { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) };
  let reply;
  let answer;
  try {
    reply = await fetch(path, options);
    answer = await reply.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    goDown();
    throw Object.assign(new Error("The server does not answer."), { code: "down" });
  }
  if (server.down) comeUp();
  if (reply.status === 401) askForKey();
  if (!reply.ok) throw Object.assign(new Error(words(answer, reply)), { code: answer.error?.code, status: reply.status });
  return answer;
}

function words(answer, reply) {
  if (reply.status === 401) return server.key ? "This key is not valid." : "Enter the key above to continue.";
  return answer.error?.message || `The server answered ${reply.status}.`;
}

function askForKey() {
  const note = find("key-note");
  note.textContent = server.key ? "This key is not valid." : "The key is kept in this tab until you close it.";
  note.classList.toggle("error", Boolean(server.key));
  setDot("warn", "the server needs a key");
  if (!find("key-form").hidden) return;
  find("key-form").hidden = false;
  find("key").focus();
}

function goDown() {
  if (server.down) return;
  server.down = true;
  find("down").textContent = `The server at ${location.host} does not answer. Start it with: ctx serve. The page reconnects automatically.`;
  find("down").hidden = false;
  setDot("bad", "the server does not answer");
  setTimeout(retry, RETRY_MS);
}

async function retry() {
  await loadHealth();
  if (server.down) setTimeout(retry, RETRY_MS);
}

function comeUp() {
  server.down = false;
  find("down").hidden = true;
  for (const listener of listeners.up) listener();
}

export function loadHealth() {
  server.hearing = askHealth();
  return server.hearing;
}

// Waits for the health, which says whether there are embeddings.
export async function modesKnown() {
  if (server.health?.model === undefined) await server.hearing?.catch(() => {});
}

async function askHealth() {
  try {
    server.health = await call("health");
    for (const listener of listeners.health) listener(server.health);
  } catch (error) {
    if (error.code !== "down") throw error;
  }
}

export function setDot(state, meaning) {
  find("health-dot").className = `dot ${state}`;
  find("health-dot").setAttribute("aria-label", meaning);
}

// The parameters that a tool takes, from its schema: what this server can do is read there.
export async function parameters(tool) {
  if (!server.schemas.size) {
    const { tools } = await call("tools/list");
    for (const row of tools) server.schemas.set(row.name, row);
  }
  return server.schemas.get(tool)?.parameters?.properties || {};
}

// ---- elements -------------------------------------------------------------------------------------------------------

export function element(name, text, className) {
  const node = document.createElement(name);
  if (text !== undefined && text !== null) node.textContent = text;
  if (className) node.className = className;
  return node;
}

export function button(text, act, className = "button") {
  const node = element("button", text, className);
  node.type = "button";
  node.addEventListener("click", act);
  return node;
}

export function link(text, href, className) {
  const node = element("a", text, className);
  node.href = href;
  return node;
}

// A link out of the page; null for what is no web address.
export function outward(text, url) {
  if (!/^https?:\/\//i.test(url || "")) return null;
  const node = link(text, url);
  node.target = "_blank";
  node.rel = "noreferrer noopener";
  return node;
}

export function copyButton(label, text, name) {
  const node = button(label, async () => {
    try {
      await navigator.clipboard.writeText(text());
      node.textContent = "Copied";
    } catch {
      node.textContent = "Select and copy by hand";
    }
    setTimeout(() => { node.textContent = label; }, 1600);
  });
  if (name) node.setAttribute("aria-label", name);
  return node;
}

export function pairs(facts) {
  const list = element("dl");
  for (const [name, value] of facts) {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    list.append(pair);
  }
  return list;
}

// Bars from left to right: {share of the height in [0, 1], words}; null is a gap. `label` says the same in words.
export function chart(label, bars) {
  const node = element("div", undefined, "chart");
  node.setAttribute("role", "img");
  node.setAttribute("aria-label", label);
  for (const bar of bars) {
    const span = element("span");
    if (bar) {
      span.style.height = `${Math.max(4, 100 * bar.share)}%`;
      span.title = bar.words;
    }
    node.append(span);
  }
  return node;
}

// Labels for both ends of a chart's line.
export function ends(left, right) {
  const row = element("p", undefined, "ends");
  row.setAttribute("aria-hidden", "true");
  row.append(element("span", left), element("span", right));
  return row;
}

// ---- words ----------------------------------------------------------------------------------------------------------

export const number = (value) => (value || 0).toLocaleString();
export const count = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

export function day(text) {
  const moment = new Date(text);
  return Number.isNaN(moment.valueOf()) ? text : moment.toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" });
}

export function ago(text) {
  const seconds = Math.max(0, (Date.now() - new Date(text)) / 1000);
  if (seconds < 60) return "just now";
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    if (seconds >= size) return `${count(Math.floor(seconds / size), unit)} ago`;
  }
  return text;
}

export function duration(seconds) {
  if (seconds < 90) return count(Math.max(1, Math.round(seconds)), "second");
  return seconds < 5400 ? count(Math.round(seconds / 60), "minute") : `${(seconds / 3600).toFixed(1)} hours`;
}

const STOPS = new Set("a an and are as at be by can do does for from has have how i in is it my of on or that the this to was what when where which who why will with you".split(" "));

// The words of a query that say something.
export const wordsOf = (query) => (query.match(/[\p{L}\p{N}_]+/gu) || []).filter((word) => word.length > 1 && !STOPS.has(word.toLowerCase())).slice(0, 24);

// A pattern for the words of a query, with their endings; null where it has none worth marking.
export function wordPattern(query) {
  const stems = wordsOf(query)
    .map((word) => (/^[a-z]{5,}$/i.test(word) ? word.replace(/(?:ings?|ed|es|s|e|y)$/i, "") : word));
  if (!stems.length) return null;
  const parts = [...new Set(stems)].sort((first, second) => second.length - first.length)
    .map((word) => (word.length > 3 ? `${word}[\\p{L}\\p{N}]{0,6}` : `${word}s?`)); // "up" is not "upgrade"
  return new RegExp(`(?<![\\p{L}\\p{N}])(?:${parts.join("|")})(?![\\p{L}\\p{N}])`, "giu");
}

// ---- the address ----------------------------------------------------------------------------------------------------

// #/doc/ID?q=words -> {view: "doc", id: "ID", query: URLSearchParams}
export function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [view, ...steps] = path.split("/");
  let id = steps.join("/");
  try {
    id = decodeURIComponent(id);
  } catch {
    // an address written by hand: taken as it is
  }
  return { view: view || "search", id, query: new URLSearchParams(query || "") };
}

export function address(view, id = "", query = {}) {
  const parameters = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
  return `#/${view}${id ? `/${encodeURIComponent(id)}` : ""}${parameters.size ? `?${parameters}` : ""}`;
}

export function setTitle(text) {
  document.title = text ? `${text} - ctx` : "ctx";
}

// The whole address of a path of this server.
export const absolute = (path) => new URL(path, document.baseURI.split("#")[0]).href;

// ---- what this browser keeps ----------------------------------------------------------------------------------------

export function kept(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`ctx-${name}`)) ?? fallback;
  } catch {
    return fallback;
  }
}

export const keep = (name, value) => localStorage.setItem(`ctx-${name}`, JSON.stringify(value));

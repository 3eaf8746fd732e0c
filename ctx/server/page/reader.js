// One document, in its own view or next to the results: Markdown rendered, other text with line numbers and colours.
import { address, button, call, copyButton, day, element, find, keep, kept, link, number, outward, route, server, setTitle, wordPattern } from "./common.js";
import { codeRows, colouredLines, isCode } from "./code.js";
import { rendered } from "./markdown.js";
import { lastAddress } from "./search.js";

const ROWS_AT_FIRST = 3000;
const MAX_MARKS = 5000; // words lit in one text
const MARKDOWN = new Set(["text/markdown", "application/x-ipynb+json", "text/html"]);
const DEFINITION = /^\s{0,8}(?:export\s+|default\s+|public\s+|private\s+|protected\s+|static\s+|async\s+|abstract\s+|pub(?:\([a-z]+\))?\s+|local\s+)*(?:def|class|function\*?|fn|func|interface|struct|impl|trait|enum|type|module|namespace|macro|sub)\s+(?:\([^)]{0,80}\)\s*)?([\w$.:]{1,80})/;
const HEADING = /^#{1,6}\s+(\S.*)$/;
const EDITORS = { "VS Code": "vscode://file", Cursor: "cursor://file", Windsurf: "windsurf://file", Zed: "zed://file" };
const state = { id: null, whole: null, raw: false, span: [0, 0], query: "", request: null, places: [], place: -1, preview: false };

// ---- the view and the preview ---------------------------------------------------------------------------------------

export async function open(place, { again }) {
  find("document-back").href = lastAddress();
  find("view-doc").append(find("document"));
  await show(place.id, place.query, { preview: false, again });
}

export function close() {
  globalThis.CSS?.highlights?.delete("words");
}

// Shows a result next to the list. Previews do not appear in the log of calls.
export async function preview(host, id, query) {
  host.append(find("document"));
  await show(id, query, { preview: true });
}

export function hide() {
  state.request?.abort();
  find("document").hidden = true;
}

async function show(id, query, { preview, again }) {
  const box = find("document");
  box.hidden = preview && !state.id; // no empty heading while the first one is read
  box.classList.toggle("is-preview", preview);
  state.query = query.get("q") || "";
  const [from, to] = (query.get("lines") || "").split("-").map(Number);
  state.span = from ? [from, to || from] : [0, 0];
  if (state.id !== id || again || (state.preview && !preview)) {
    try {
      state.whole = await read(id, preview);
    } catch (error) {
      if (error.name === "AbortError") return;
      fail(error, id);
      box.hidden = false;
      return;
    }
    state.id = id;
    state.preview = preview;
    state.raw = !rendersAs(state.whole);
    box.hidden = false;
  }
  if (preview || route().view === "doc") draw();
}

async function read(id, preview) {
  state.request?.abort();
  state.request = new AbortController();
  if (!preview) clear();
  return call("tools/get", { id, chunks: false }, state.request.signal, preview ? { "X-Ctx-Client": "preview" } : {});
}

const rendersAs = (whole) => MARKDOWN.has(whole.content_type);

function clear() {
  find("document-title").textContent = "…";
  find("document-title").className = "";
  for (const part of ["document-path", "document-meta", "document-actions", "document-side", "document-body"]) find(part).replaceChildren();
}

function fail(error, id) {
  clear();
  state.id = null;
  find("stepper").hidden = true;
  find("document-title").textContent = error.code === "not_found" ? "No such document" : "The document cannot be shown";
  find("document-meta").textContent = error.code === "not_found" ? `There is no document ${id.slice(0, 80)}. It may have been deleted. Search for it again.` : error.message;
}

// ---- the text -------------------------------------------------------------------------------------------------------

function draw() {
  const { whole, span } = state;
  const body = find("document-body");
  const lines = whole.body.split("\n");
  if (!state.preview) setTitle(whole.title);
  find("document-title").textContent = whole.title;
  find("document-path").textContent = span[0] > 1 ? `${whole.source_id}:${span[0]}` : whole.source_id;
  find("document-meta").textContent = [whole.source, day(whole.updated_at), whole.author].filter(Boolean).join(" · ");
  const outline = state.raw ? drawLines(body, lines) : drawRendered(body);
  const repeated = !state.raw && outline[0]?.name === whole.title; // the text begins with its own title
  find("document-title").classList.toggle("visually-hidden", repeated || whole.title === whole.source_id);
  const pattern = wordPattern(state.query);
  markMatches(body, pattern);
  light(body, pattern);
  actions();
  drawOutline(outline);
  state.places = pattern ? lines.flatMap((line, index) => (line.length < 20_000 && line.search(pattern) >= 0 ? [index + 1] : [])) : [];
  state.place = state.places.findIndex((line) => line >= span[0]);
  drawStepper();
  goTo(body.querySelector(".found.hit") || body.querySelector(".found"));
}

// The preview has a scroll of its own; the view scrolls with the page.
function goTo(target) {
  const box = find("document");
  if (!state.preview) {
    if (target) target.scrollIntoView({ block: "center" });
    else window.scrollTo(0, 0);
    return;
  }
  box.scrollTop = 0;
  if (target) box.scrollTop = target.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
}

function drawRendered(body) {
  const [from, to] = state.span;
  body.className = "prose";
  const { fragment, headings } = rendered(state.whole.body);
  body.replaceChildren(fragment);
  for (const block of from ? body.querySelectorAll("[data-from]") : []) {
    const within = Number(block.dataset.to) >= from && Number(block.dataset.from) <= to;
    // The innermost blocks: an item and not the list around it.
    if (within && !block.querySelector(":scope > [data-from], :scope > table")) block.classList.add("found");
  }
  return headings.map(({ level, text, node }) => ({ level, name: text, line: Number(node.dataset.from) }));
}

function drawLines(body, lines) {
  const [from, to] = state.span;
  body.className = "lines";
  const coloured = colouredLines(state.whole.body, state.whole.source_id);
  const rows = (total) => codeRows(coloured.slice(0, total), 1, (line) => line >= from && line <= to);
  body.replaceChildren(...rows(Math.max(ROWS_AT_FIRST, to + 200)));
  if (lines.length > body.childElementCount) {
    body.append(button(`Show all ${number(lines.length)} lines`, () => body.replaceChildren(...rows(lines.length)), "button all"));
  }
  if (rendersAs(state.whole)) return rendered(state.whole.body).headings.map(({ level, text, node }) => ({ level, name: text, line: Number(node.dataset.from) }));
  return definitions(lines);
}

// Of the passage, the blocks and lines that have a word of the query; all of it where none has.
function markMatches(body, pattern) {
  const found = [...body.querySelectorAll(".found")];
  const hits = pattern ? found.filter((block) => (block.querySelector(".text") || block).textContent.search(pattern) >= 0) : [];
  for (const block of hits.length ? hits : found) block.classList.add("hit");
}

function definitions(lines) {
  const outline = [];
  const code = isCode(state.whole.source_id);
  for (const [index, line] of lines.entries()) {
    const match = line.length < 400 ? (code ? DEFINITION : HEADING).exec(line) : null;
    if (match && outline.length < 500) outline.push({ level: 1 + Math.min(3, Math.floor(line.search(/\S/) / 2)), name: match[1], line: index + 1 });
  }
  return outline;
}

// ---- around it ------------------------------------------------------------------------------------------------------

async function actions() {
  const { whole } = state;
  const parts = [];
  if (state.preview) parts.push(link("Open", address("doc", state.id, { q: state.query, lines: state.span.join("-") }), "button"));
  const file = await fileLink();
  if (file) parts.push(file);
  if (rendersAs(whole)) {
    parts.push(button(state.raw ? "Rendered" : "Source", () => {
      state.raw = !state.raw;
      draw();
    }));
  }
  parts.push(copyButton("Copy path", () => whole.source_id), copyButton("Copy text", () => whole.body));
  const out = outward("Original", whole.source_url);
  if (out) out.className = "button";
  find("document-actions").replaceChildren(...parts, ...(out ? [out] : []));
}

// The link that opens the file in an editor, where the server and the browser are on one machine.
async function fileLink() {
  if (!["localhost", "127.0.0.1", "[::1]"].includes(location.hostname)) return null;
  server.roots ||= call("activity").then((activity) => activity.roots || {}).catch(() => ({}));
  const root = (await server.roots)[state.whole.source];
  if (!root) return null;
  const place = `${root}/${state.whole.source_id}`.split("/").map(encodeURIComponent).join("/");
  const node = link("Open in editor", `${EDITORS[kept("editor", "VS Code")] || EDITORS["VS Code"]}${place}:${state.span[0] || 1}`, "button");
  node.id = "document-editor";
  return node;
}

export const openInEditor = () => find("document-editor")?.click();

export function editorChoice() {
  const select = element("select");
  select.append(...Object.keys(EDITORS).map((name) => new Option(name, name, false, name === kept("editor", "VS Code"))));
  select.addEventListener("change", () => keep("editor", select.value));
  return select;
}

function drawOutline(outline) {
  const side = find("document-side");
  side.hidden = outline.length < 2 || state.preview;
  if (side.hidden) return;
  const box = element("details");
  box.open = matchMedia("(min-width: 64rem)").matches;
  const list = element("ul", undefined, "plain");
  list.append(...outline.map(({ name, line, level }) => {
    const entry = element("li", undefined, `level-${Math.min(4, level)}`);
    const target = link("", address("doc", state.id, { q: state.query, lines: String(line) }));
    target.append(element("bdi", name));
    entry.append(target);
    return entry;
  }));
  box.append(element("summary", "Outline"), list);
  side.replaceChildren(box);
}

// ---- from one place with the words to the next ----------------------------------------------------------------------

function drawStepper() {
  find("stepper").hidden = state.places.length < 2;
  find("stepper-place").textContent = `${Math.max(0, state.place) + 1} of ${number(state.places.length)}`;
}

function step(by) {
  state.place = (state.place + by + state.places.length) % state.places.length;
  drawStepper();
  const line = state.places[state.place];
  const blocks = [...find("document-body").querySelectorAll("[data-from]")];
  goTo(blocks.filter((block) => Number(block.dataset.from) <= line && Number(block.dataset.to) >= line).pop());
}

// Highlights words without changing elements; browsers without CSS highlights show plain text.
export function light(body, pattern) {
  const registry = globalThis.CSS?.highlights;
  if (!registry || typeof Highlight === "undefined") return;
  const ranges = [...(registry.get("words") || [])].filter((range) => range.startContainer.isConnected && !body.contains(range.startContainer));
  const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT, (node) => (["number", "reason"].includes(node.parentElement.className) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT));
  while (pattern && walker.nextNode() && ranges.length < MAX_MARKS) {
    for (const match of walker.currentNode.data.matchAll(pattern)) {
      const range = new Range();
      range.setStart(walker.currentNode, match.index);
      range.setEnd(walker.currentNode, match.index + match[0].length);
      ranges.push(range);
    }
  }
  registry.set("words", new Highlight(...ranges));
}

find("stepper-up").addEventListener("click", () => step(-1));
find("stepper-down").addEventListener("click", () => step(1));

// One document: rendered where it is Markdown, else with line numbers; its outline, and every place that has the words.
import { address, button, call, copyButton, day, element, find, count, link, number, outward, parameters, route, setTitle, wordPattern } from "./common.js";
import { lastAddress } from "./search.js";
import { rendered } from "./markdown.js";

const ROWS_AT_FIRST = 3000;
const MAX_MARKS = 5000; // words lit in one text
const PLACES_AT_FIRST = 12;
const MARKDOWN = new Set(["text/markdown", "application/x-ipynb+json", "text/html"]);
const DEFINITION = /^\s{0,8}(?:export\s+|default\s+|public\s+|private\s+|protected\s+|static\s+|async\s+|abstract\s+|pub(?:\([a-z]+\))?\s+|local\s+)*(?:def|class|function\*?|fn|func|interface|struct|impl|trait|enum|type|module|namespace|macro|sub)\s+(?:\([^)]{0,80}\)\s*)?([\w$.:]{1,80})/;
const state = { id: null, whole: null, source: false };

export async function open(place, { again }) {
  find("document-back").href = lastAddress();
  find("document-back").textContent = lastAddress() === "#/search" ? "Search" : "Back to the results";
  if (state.id !== place.id || again) {
    clear(place.id);
    try {
      state.whole = await read(place.id);
    } catch (error) {
      if (state.id === place.id) fail(error, place.id);
      return;
    }
    if (route().view !== "doc" || route().id !== place.id) return; // somebody was quicker
    state.source = !rendersAs(state.whole);
    head(state.whole);
  }
  if (state.whole) draw(state.whole, place);
}

export function close() {
  globalThis.CSS?.highlights?.delete("words");
}

async function read(id) {
  const can = await parameters("get").catch(() => ({}));
  return call("/tools/get", can.chunks ? { id, chunks: false } : { id });
}

const rendersAs = (whole) => MARKDOWN.has(whole.content_type);

function clear(id) {
  state.id = id;
  state.whole = null;
  find("document-title").textContent = "…";
  for (const part of ["document-meta", "document-actions", "document-side", "document-body"]) find(part).replaceChildren();
}

function fail(error, id) {
  state.id = null;
  find("document-title").textContent = error.code === "not_found" ? "No such document" : "The document cannot be shown";
  find("document-meta").textContent = error.code === "not_found" ? `Nothing here is called ${id.slice(0, 80)}. It may have been deleted since; search for it again.` : error.message;
}

function head(whole) {
  find("document-title").textContent = whole.title;
  const facts = [whole.source, whole.source_id, day(whole.updated_at), whole.author].filter(Boolean);
  find("document-meta").replaceChildren(...facts.flatMap((fact, index) => [index ? " · " : "", element("bdi", fact)]));
}

// ---- the text -------------------------------------------------------------------------------------------------------

function draw(whole, place) {
  setTitle(whole.title);
  const [from, to] = (place.query.get("lines") || "").split("-").map(Number);
  const span = from ? [from, to || from] : [0, 0];
  const body = find("document-body");
  const lines = whole.body.split("\n");
  const outline = state.source ? drawLines(body, lines, span, whole) : drawRendered(body, whole.body, span);
  const pattern = wordPattern(place.query.get("q") || "");
  const places = pattern ? placesOf(lines, pattern) : [];
  actions(whole, place);
  side(outline, places, place);
  light(body, pattern);
  const target = body.querySelector(".found");
  if (target) target.scrollIntoView({ block: "center" });
  else window.scrollTo(0, 0);
}

function drawRendered(body, text, [from, to]) {
  body.className = "prose";
  const { fragment, headings } = rendered(text);
  body.replaceChildren(fragment);
  if (from) for (const block of body.querySelectorAll("[data-from]")) mark(block, from, to);
  return headings.map(({ level, text: name, node }) => ({ level, name, line: Number(node.dataset.from) }));
}

// The innermost blocks of the passage are marked: an item, not the list around it.
function mark(block, from, to) {
  const within = Number(block.dataset.to) >= from && Number(block.dataset.from) <= to;
  if (within && !block.querySelector(":scope > [data-from], :scope > table")) block.classList.add("found");
}

function drawLines(body, lines, [from, to], whole) {
  body.className = "lines";
  const rows = (total) => lines.slice(0, total).map((line, index) => lineRow(line, index + 1, index + 1 >= from && index + 1 <= to));
  body.replaceChildren(...rows(Math.max(ROWS_AT_FIRST, to + 200)));
  if (lines.length > body.childElementCount) {
    body.append(button(`Show all ${number(lines.length)} lines`, () => { body.replaceChildren(...rows(lines.length)); }, "button all"));
  }
  return rendersAs(whole) ? rendered(whole.body).headings.map(({ level, text, node }) => ({ level, name: text, line: Number(node.dataset.from) })) : definitions(lines);
}

function lineRow(line, row, found) {
  const node = element("div", undefined, found ? "row found" : "row");
  node.dataset.from = node.dataset.to = String(row);
  const label = element("span", String(row), "number");
  label.setAttribute("aria-hidden", "true");
  const text = element("span", line, "text");
  text.dir = "auto";
  node.append(label, text);
  return node;
}

function definitions(lines) {
  const outline = [];
  for (const [index, line] of lines.entries()) {
    const match = line.length < 400 ? DEFINITION.exec(line) || HEADING.exec(line) : null;
    if (match && outline.length < 500) outline.push({ level: 1 + Math.min(3, Math.floor(line.search(/\S/) / 2)), name: match[1], line: index + 1 });
  }
  return outline;
}

const HEADING = /^#{1,6}\s+(\S.*)$/;

// ---- beside it ------------------------------------------------------------------------------------------------------

function actions(whole, place) {
  const parts = [];
  if (rendersAs(whole)) {
    parts.push(button(state.source ? "Show rendered" : "Show the text", () => {
      state.source = !state.source;
      draw(whole, place);
      find("document-actions").querySelector("button").focus();
    }));
  }
  parts.push(copyButton("Copy the path", () => whole.source_id), copyButton("Copy the text", () => whole.body), copyButton("Copy for a model", () => `<document path="${whole.source_id}" source="${whole.source}">\n${whole.body}\n</document>`));
  const out = outward("Open at its source", whole.source_url);
  if (out) out.className = "button";
  find("document-actions").replaceChildren(...parts, ...(out ? [out] : []));
}

function side(outline, places, place) {
  const parts = [];
  if (places.length) parts.push(folding(count(places.length, "place has these words", "places have these words"), places.map((entry) => jump(entry, place)), true));
  if (outline.length > 1) parts.push(folding("Outline", outline.map((entry) => jump(entry, place)), !places.length || matchMedia("(min-width: 60rem)").matches));
  find("document-side").replaceChildren(...parts);
  find("document-side").hidden = !parts.length;
}

function folding(title, entries, unfolded) {
  const box = element("details");
  box.open = unfolded;
  const list = element("ul");
  list.append(...entries.slice(0, title === "Outline" ? entries.length : PLACES_AT_FIRST));
  box.append(element("summary", title), list);
  if (list.childElementCount < entries.length) {
    const rest = button(`All ${number(entries.length)}`, () => { list.append(...entries.slice(list.childElementCount)); rest.remove(); }, "button");
    box.append(rest);
  }
  return box;
}

function jump({ name, line, level = 1 }, place) {
  const entry = element("li", undefined, `level-${Math.min(4, level)}`);
  const target = link("", address("doc", place.id, { q: place.query.get("q"), lines: String(line) }));
  target.append(element("bdi", name));
  target.title = `line ${line}`;
  entry.append(target);
  return entry;
}

// Every line that has a word of the query: all passages of the document, not its best alone.
function placesOf(lines, pattern) {
  const places = [];
  for (const [index, line] of lines.entries()) {
    pattern.lastIndex = 0;
    const match = line.length < 20000 ? pattern.exec(line) : null;
    if (!match) continue;
    places.push({ name: excerpt(line, match.index), line: index + 1 });
  }
  return places;
}

// Some words around a place in a line, cut between words where there is a gap near enough; marks of headings and lists left out.
function excerpt(line, place) {
  const before = line.slice(Math.max(0, place - 24), place);
  const after = line.slice(place, place + 60);
  const head = place > 24 ? `…${before.replace(/^\S{0,14}\s/, "")}` : before.replace(/^\s*(?:#{1,6}|[-*+>]|\d+\.)\s+/, "");
  const tail = line.length > place + 60 ? `${after.replace(/\s\S{0,14}$/, "")}…` : after;
  return `${head}${tail}`.trim();
}

// Lights words without touching the elements; a browser without highlights shows the text as it is.
function light(body, pattern) {
  const registry = globalThis.CSS?.highlights;
  if (!registry || typeof Highlight === "undefined") return;
  registry.delete("words");
  if (!pattern) return;
  const ranges = [];
  const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT, (node) => (node.parentElement.className === "number" ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT));
  while (walker.nextNode() && ranges.length < MAX_MARKS) {
    for (const match of walker.currentNode.data.matchAll(pattern)) {
      const range = new Range();
      range.setStart(walker.currentNode, match.index);
      range.setEnd(walker.currentNode, match.index + match[0].length);
      ranges.push(range);
    }
  }
  registry.set("words", new Highlight(...ranges));
}

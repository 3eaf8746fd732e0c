// Search: a box, one row of filters, the results, and a preview of the selected one.
import { address, button, call, count, element, find, keep, kept, link, modesKnown, number, route, server, setTitle, wordPattern, wordsOf } from "./common.js";
import { codeRows, colouredLines, isCode, kindOf } from "./code.js";
import { hide, light, openInEditor, preview } from "./reader.js";

const LIMIT = 100; // the most that the server gives; the filters count these
const PAGE = 20; // rows shown at once
const DEBOUNCE_MS = 140;
const PAUSE_MS = 900; // without a key: the last word is taken as finished
const PREVIEW_MS = 60;
const NEAR = 0.4; // of the best score: what is only near in meaning and below it is left out
const NEAREST = 3; // shown where no document has the words
const SNIPPET_ROWS = 8;
const MAX_RECENT = 8;
const WIDE = matchMedia("(min-width: 64rem)");
const state = { results: [], current: -1, request: null, key: null, shown: 0, opener: null, timer: 0, pause: 0, looking: 0, open: false, typing: false };

const FACETS = {
  folder: ["All folders", (result) => folderOf(result.source_id)],
  kind: ["All kinds", (result) => kindOf(result.source_id)],
};

// The first folder of a path; of an address (a page of a site) that of its host.
const folderOf = (path) => /^(?:[a-z]+:\/\/[^/]+\/)?(?:[^/]+\/)?/i.exec(path)[0];

// ---- the view -------------------------------------------------------------------------------------------------------

export function open(place, { first, changed, again }) {
  state.open = true;
  const words = place.query.get("q") || "";
  if (again) state.key = null; // and what is being typed stays
  else fill(place.query, words);
  const drawn = search();
  const opener = state.opener;
  state.opener = null;
  if (opener?.isConnected) opener.focus({ preventScroll: true });
  else if (changed && find("key-form").hidden && matchMedia("(pointer: fine)").matches && (first || !words)) find("query").focus({ preventScroll: true });
  if (changed && state.current >= 0) look();
  return drawn;
}

function fill(query, words) {
  if (find("query").value.trim() !== words) find("query").value = words;
  for (const name of ["source", "folder", "kind"]) choose(name, query.get(name) || "");
  const mode = query.get("mode") || "";
  choose("mode", mode === "hybrid" ? "" : mode); // the same for all but a lone identifier
}

function choose(name, value) {
  const select = find(name);
  if (value && ![...select.options].some((option) => option.value === value)) select.add(new Option(value, value));
  select.value = value;
  if (name !== "mode") select.hidden = !value && select.options.length < 3;
}

export function close() {
  state.open = false;
  clearTimeout(state.timer);
  clearTimeout(state.pause);
}

export const focus = () => { find("query").focus(); find("query").select(); };
export const lastAddress = () => (state.key ? addressOf(wanted()) : "#/search");

function wanted() {
  const form = new FormData(find("search"));
  return { q: form.get("query").trim(), mode: form.get("mode") || "", source: form.get("source") || "", folder: form.get("folder") || "", kind: form.get("kind") || "" };
}

const addressOf = (request) => address("search", "", request);

// A new place to come back to is made by Enter and by a choice, not by each letter.
function go(request, replace) {
  const target = addressOf(request);
  if (target === (location.hash || "#/search")) return search();
  if (replace) {
    history.replaceState(null, "", target);
    search();
  } else {
    location.hash = target;
  }
}

function typed() {
  clearTimeout(state.timer);
  clearTimeout(state.pause);
  state.typing = true;
  state.timer = setTimeout(() => {
    choose("folder", "");
    choose("kind", "");
    go(wanted(), Boolean(route().query.get("q")));
  }, DEBOUNCE_MS);
  state.pause = setTimeout(finish, PAUSE_MS);
}

// The query is finished: its last word may be corrected now, and it is worth remembering.
function finish() {
  clearTimeout(state.pause);
  if (!state.typing) return;
  state.typing = false;
  remember(wanted().q);
  if (!state.results.some(hasWords)) search();
}

function remember(words) {
  if (words) keep("recent", [words, ...kept("recent", []).filter((other) => other !== words)].slice(0, MAX_RECENT));
}

function showRecent() {
  const recent = kept("recent", []);
  find("recent").hidden = !recent.length;
  find("recent-list").replaceChildren(...recent.map((words) => {
    const item = element("li");
    item.append(link(words, addressOf({ q: words })));
    return item;
  }));
}

export function setSources(sources) {
  const chosen = find("source").value;
  find("source").replaceChildren(new Option("All sources", ""), ...sources.map((source) => new Option(source.name, source.name)));
  choose("source", chosen);
}

export function setModes(health) {
  const off = health.model === null;
  find("mode-note").hidden = !off;
  find("mode").hidden = off;
  if (off) find("mode").value = "";
}

// ---- asking ---------------------------------------------------------------------------------------------------------

function say(text, notice = "", failed = false) {
  find("status").textContent = text;
  find("status").classList.toggle("error", failed);
  find("notice").textContent = notice;
  find("notice").hidden = !notice;
}

function bodyOf(request, glob = "") {
  const body = { query: request.q, mode: request.mode || "auto", limit: LIMIT, explain: true };
  if (request.source) body.source = request.source;
  if (state.typing) body.prefix = true;
  if (glob) body.filters = { path: glob };
  return body;
}

function globOf({ folder, kind }) {
  const ending = kind.replace(/[a-z]/g, (letter) => `[${letter}${letter.toUpperCase()}]`); // README.MD is of the kind md
  if (folder) return `${folder.replace(/[*?[\]{}\\!]/g, "?")}**${kind ? `/*.${ending}` : ""}`;
  return kind ? `**/*.${ending}` : "";
}

async function search() {
  clearTimeout(state.timer);
  await modesKnown();
  if (!state.open) return;
  const request = wanted();
  const key = JSON.stringify([request, state.typing]);
  setTitle(request.q);
  if (key === state.key) return;
  state.key = key;
  state.request?.abort();
  showWays([]);
  if (!request.q) {
    show([], request);
    say("");
    return;
  }
  const aborter = new AbortController();
  state.request = aborter;
  const began = performance.now();
  try {
    const answer = await call("tools/search", bodyOf(request), aborter.signal);
    const glob = globOf(request);
    const narrowed = glob ? await call("tools/search", bodyOf(request, glob), aborter.signal) : answer;
    if (aborter.signal.aborted) return;
    const fitting = narrowed.results.filter((result) => Object.entries(FACETS).every(([name, [, of]]) => !request[name] || of(result) === request[name]));
    const results = worthShowing(fitting, request);
    showFacets(answer.results, request);
    show(results, request);
    const notes = [narrowed.partial, state.typing ? "" : narrowed.note].filter((note) => note && !note.startsWith("0 exact"));
    say(summary(results, request, performance.now() - began), notes.join(". "));
    showWays(results.length ? [] : waysOut(request));
  } catch (error) {
    if (error.name === "AbortError") return;
    state.key = null;
    if (error.code === "down") {
      say(state.results.length ? "The server does not answer. These are the results of the last search." : "", "", true);
      return;
    }
    show([], request);
    say(error.message, "", true);
  }
}

const hasWords = (result) => !result.explain || Boolean(result.explain.keyword);

// Everything is near in meaning to some degree: what has none of the words and is far below the best is left out.
function worthShowing(results, request) {
  if (request.mode === "semantic" || !results.length) return results;
  if (!results.some(hasWords)) return results.slice(0, NEAREST);
  return results.filter((result) => hasWords(result) || result.score >= NEAR * results[0].score);
}

function summary(results, request, took) {
  const time = `in ${Math.round(took)} ms`;
  const exact = results.filter(hasWords).length;
  if (!results.length) return `Nothing found ${time}`;
  if (request.mode === "semantic") return `The ${count(results.length, "document")} nearest in meaning, ${time}`;
  if (!exact) return `No document has “${request.q.slice(0, 80)}”. Nearest in meaning:`;
  const near = results.length - exact;
  const most = exact + near === LIMIT ? "The best " : "";
  return `${most}${count(exact, "document")} with these words${near ? `, ${number(near)} near in meaning` : ""}, ${time}`;
}

// What else one may try who found nothing.
function waysOut(request) {
  if (server.documents === 0) return [link("Nothing is indexed yet: see Sources", address("sources"), "button")];
  const narrowing = [request.source, request.folder, request.kind && `.${request.kind}`].filter(Boolean);
  const ways = [];
  if (narrowing.length) ways.push(link(`Search everywhere, not only in ${narrowing.join(", ")}`, addressOf({ q: request.q, mode: request.mode }), "button"));
  if (request.mode === "keyword" && server.health?.model) ways.push(link("Search by words and meaning", addressOf({ ...request, mode: "" }), "button"));
  if (!ways.length) ways.push(link("See what is indexed", address("sources"), "button"));
  return ways;
}

function showWays(ways) {
  find("ways").replaceChildren(...ways);
  find("ways").hidden = !ways.length;
}

function showFacets(results, request) {
  for (const [name, [all, of]] of Object.entries(FACETS)) {
    const counts = new Map();
    for (const result of results) counts.set(of(result), (counts.get(of(result)) || 0) + 1);
    counts.delete("");
    const ordered = [...counts].sort((first, second) => second[1] - first[1] || (first[0] < second[0] ? -1 : 1));
    find(name).replaceChildren(new Option(all, ""), ...ordered.map(([value, total]) => new Option(`${value} (${total})`, value)));
    choose(name, request[name]);
  }
}

// ---- results --------------------------------------------------------------------------------------------------------

function show(results, request) {
  state.results = results;
  state.current = -1;
  state.shown = 0;
  find("welcome").hidden = Boolean(request.q);
  if (!request.q) {
    showRecent();
    for (const name of Object.keys(FACETS)) find(name).hidden = true;
  }
  find("results").replaceChildren();
  find("view-search").classList.toggle("has-results", results.length > 0);
  showMore(request, history.state?.rows);
  if (results.length && WIDE.matches) select(0);
  else hide();
}

function showMore(request, most = PAGE) {
  const rows = state.results.slice(state.shown, state.shown + most);
  find("results").append(...rows.map((result, index) => resultRow(result, state.shown + index, request)));
  light(find("results"), wordPattern(request.q));
  state.shown += rows.length;
  const rest = state.results.length - state.shown;
  const more = find("more");
  more.hidden = rest <= 0;
  more.textContent = `Show ${number(Math.min(PAGE, rest))} more`;
  more.onclick = () => {
    const from = state.shown;
    showMore(request);
    history.replaceState({ rows: state.shown }, ""); // a reload shows as many
    openers()[from]?.focus();
  };
}

const openers = () => document.querySelectorAll("#results .open");
const readerQuery = (result) => ({ q: wanted().q, lines: `${result.start_line || 1}-${result.end_line || 1}` });

function resultRow(result, index, request) {
  const row = element("li", undefined, "result");
  const open = link("", address("doc", result.id, readerQuery(result)), "open");
  const code = isCode(result.source_id);
  const title = element("span", code ? result.symbol?.name || result.source_id.split("/").pop() : result.title, "title");
  title.dir = "auto";
  const place = element("span", undefined, "place");
  place.append(element("bdi", `${result.source_id}:${result.start_line}`, "path"));
  if (result.heading && !code) place.append(element("bdi", result.heading, "heading"));
  open.append(title, place, code ? codeSnippet(result) : proseSnippet(result), element("span", reason(result, request), "reason"));
  open.addEventListener("focus", () => select(index));
  open.addEventListener("click", (event) => {
    remember(request.q);
    state.opener = open;
    // With a preview, a click selects and Enter opens. Without one, a click opens.
    if (event.detail === 0 || !WIDE.matches || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    select(index);
  });
  row.append(open);
  return row;
}

function codeSnippet(result) {
  const box = element("div", undefined, "snippet code");
  const lines = colouredLines(result.snippet, result.source_id);
  box.append(...codeRows(lines.slice(0, SNIPPET_ROWS), result.start_line));
  return box;
}

function proseSnippet(result) {
  const box = element("span", undefined, "snippet");
  box.dir = "auto";
  box.append(...highlighted(result.snippet.replace(/[.,;:]…$/, "…"), result.highlights || []));
  return box;
}

export function highlighted(text, spans) {
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

function reason(result, request) {
  if (!hasWords(result)) return "near in meaning";
  const terms = result.explain?.terms; // stems
  const absent = terms?.length ? wordsOf(request.q).filter((word) => !terms.some((term) => word.toLowerCase().startsWith(term.slice(0, -1)))) : [];
  return absent.length ? `without ${absent.join(", ")}` : "";
}

// ---- the selection --------------------------------------------------------------------------------------------------

function select(index) {
  state.current = index;
  document.querySelectorAll("#results .result").forEach((row, position) => row.classList.toggle("current", position === index));
  clearTimeout(state.looking);
  if (WIDE.matches) state.looking = setTimeout(look, PREVIEW_MS);
}

function look() {
  const result = state.results[state.current];
  if (state.open && result && WIDE.matches) preview(find("preview"), result.id, new URLSearchParams(readerQuery(result)));
}

function move(step) {
  const links = openers();
  if (!links.length) return;
  const before = document.activeElement.closest?.(".result") || step < 0 ? state.current : -1;
  links[Math.min(links.length - 1, Math.max(0, before + step))].focus();
}

export function key(event) {
  const typing = event.target.matches("input, textarea, select");
  const step = { ArrowDown: 1, ArrowUp: -1, ...(typing ? {} : { j: 1, k: -1 }) }[event.key];
  if (event.key === "Escape" && event.target === find("query")) {
    find("query").value = "";
    choose("folder", "");
    choose("kind", "");
    go(wanted());
  } else if (event.key === "e" && !typing) {
    openInEditor();
  } else if (step && !event.target.matches("select, textarea") && state.results.length) {
    event.preventDefault();
    if (step < 0 && state.current <= 0) find("query").focus();
    else move(step);
  }
}

find("search").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(state.timer);
  clearTimeout(state.pause);
  const done = !state.typing && state.key === JSON.stringify([wanted(), false]);
  state.typing = false;
  remember(wanted().q);
  if (done && state.results.length) openers()[Math.max(0, state.current)].click(); // Enter once more
  else go(wanted());
});
find("query").addEventListener("input", typed);
find("search").addEventListener("change", (event) => { if (event.target.id !== "query") go(wanted()); });

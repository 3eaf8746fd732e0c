// Search: a box, what narrows it, and the results with the reason of their rank.
import { address, button, call, count, day, element, find, link, modesKnown, number, outward, parameters, route, server, setTitle } from "./common.js";

const LIMIT = 100; // the most that the server gives; the counts beside the facets are of these
const PAGE = 20; // rows shown at once
const DEBOUNCE_MS = 140;
const CHIPS = 8;
const state = { results: [], current: -1, request: null, key: null, shown: 0, opener: null, timer: 0, open: false };

const FACETS = [
  ["source", "Source", (result) => result.source],
  ["folder", "Folder", (result) => folderOf(result.source_id)],
  ["kind", "Kind", (result) => kindOf(result.source_id)],
];

// The first folder of a path; of an address (a page of a site) that of its host.
const folderOf = (path) => /^(?:[a-z]+:\/\/[^/]+\/)?(?:[^/]+\/)?/i.exec(path)[0];
const kindOf = (path) => (/\.([A-Za-z0-9]{1,8})$/.exec(path.split("/").pop()) || ["", ""])[1].toLowerCase();

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
  return drawn;
}

function fill(query, words) {
  if (find("query").value.trim() !== words) find("query").value = words;
  const mode = document.querySelector(`[name=mode][value="${CSS.escape(query.get("mode") || "hybrid")}"]`);
  if (mode && !mode.disabled) mode.checked = true;
  setSource(query.get("source") || "");
}

export function close() {
  state.open = false;
  clearTimeout(state.timer);
}

export const focus = () => { find("query").focus(); find("query").select(); };
export const lastAddress = () => (state.key ? addressOf(wanted()) : "#/search");
export const lit = () => state.results;

function wanted() {
  const form = new FormData(find("search"));
  const query = route().view === "search" ? route().query : new URLSearchParams();
  return { q: form.get("query").trim(), mode: form.get("mode"), source: form.get("source") || "", folder: query.get("folder") || "", kind: query.get("kind") || "" };
}

function addressOf({ q, mode, source, folder, kind }) {
  return address("search", "", { q, mode: mode === "hybrid" ? "" : mode, source, folder, kind });
}

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
  state.timer = setTimeout(() => {
    const before = route().query.get("q");
    go({ ...wanted(), folder: "", kind: "" }, Boolean(before));
  }, DEBOUNCE_MS);
}

function setSource(name) {
  const select = find("source");
  if (name && ![...select.options].some((option) => option.value === name)) select.add(new Option(name, name));
  select.value = name;
}

export function setSources(sources) {
  const select = find("source");
  const chosen = select.value;
  select.replaceChildren(new Option("All sources", ""), ...sources.map((source) => new Option(source.name, source.name)));
  setSource(chosen);
}

export function setModes(health) {
  const off = health.model === null;
  find("mode-note").hidden = !off;
  for (const choice of document.querySelectorAll("[name=mode]")) {
    choice.disabled = off && choice.value !== "keyword";
    if (off) choice.checked = choice.value === "keyword";
  }
}

// ---- asking ---------------------------------------------------------------------------------------------------------

function say(text, failed = false) {
  find("status").textContent = text;
  find("status").classList.toggle("error", failed);
}

async function bodyOf(request, narrowed) {
  const can = await parameters("search").catch(() => ({}));
  const body = { query: request.q, mode: request.mode, limit: LIMIT, explain: true };
  if (request.source) body.source = request.source;
  if (can.prefix) body.prefix = true;
  const glob = globOf(request);
  if (narrowed && glob && can.filters?.properties?.path) body.filters = { path: glob };
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
  const key = JSON.stringify(request);
  if (key === state.key) {
    setTitle(request.q);
    return;
  }
  state.key = key;
  state.request?.abort();
  setTitle(request.q);
  if (!request.q) {
    show([], request);
    say("");
    showWays([]);
    return;
  }
  const aborter = new AbortController();
  state.request = aborter;
  const began = performance.now();
  try {
    const body = await bodyOf(request, false);
    const answer = await call("/tools/search", body, aborter.signal);
    let results = answer.results.filter((result) => fits(result, request));
    const narrower = request.folder || request.kind ? await bodyOf(request, true) : null;
    if (narrower?.filters) results = (await call("/tools/search", narrower, aborter.signal)).results.filter((result) => fits(result, request));
    if (aborter.signal.aborted) return;
    showFacets(answer.results, request);
    show(results, request);
    say(summary(results, answer, performance.now() - began));
    showWays(results.length ? [] : waysOut(request));
  } catch (error) {
    if (error.name === "AbortError") return;
    state.key = null;
    if (error.code === "down") {
      say("No answer from the server: these are the results of before.", true);
      return;
    }
    show([], request);
    showWays([]);
    say(error.message, true);
  }
}

const fits = (result, request) => FACETS.every(([name, , of]) => !request[name] || name === "source" || of(result) === request[name]);

function summary(results, answer, took) {
  const total = results.length;
  const text = total === 0 ? "Nothing found" : total === LIMIT ? `The best ${LIMIT} documents` : count(total, "document");
  const notes = [answer.partial, answer.note].filter(Boolean).map((note) => ` · ${note}`).join("");
  return `${text} in ${Math.round(took)} ms${notes}`;
}

// Where one may look who found nothing: what narrows the search let go, the other legs, the sources of an empty index.
function waysOut(request) {
  if (server.documents === 0) return [link("Nothing is indexed yet: see Sources", address("sources"), "button")];
  const ways = [];
  const narrowing = [request.source, request.folder, request.kind && `.${request.kind}`].filter(Boolean);
  if (narrowing.length) ways.push(link(`Search everywhere, not only in ${narrowing.join(", ")}`, addressOf({ ...request, source: "", folder: "", kind: "" }), "button"));
  if (request.mode !== "hybrid" && server.health?.model) ways.push(link("Search by words and meaning", addressOf({ ...request, mode: "hybrid" }), "button"));
  if (!ways.length) ways.push(link("See what is indexed", address("sources"), "button"));
  return ways;
}

function showWays(ways) {
  find("ways").replaceChildren(...ways);
  find("ways").hidden = !ways.length;
}

// ---- facets ---------------------------------------------------------------------------------------------------------

function showFacets(results, request) {
  const rows = FACETS.map((facet) => facetRow(facet, results, request)).filter(Boolean);
  find("facets").replaceChildren(...rows);
  find("facets").hidden = !rows.length;
}

function facetRow([name, label, of], results, request) {
  const counts = new Map();
  for (const result of results) counts.set(of(result), (counts.get(of(result)) || 0) + 1);
  counts.delete("");
  const chosen = request[name];
  if (chosen && !counts.has(chosen)) counts.set(chosen, 0);
  if (counts.size < 2 && !chosen) return null;
  const ordered = [...counts].sort((first, second) => second[1] - first[1] || (first[0] < second[0] ? -1 : 1));
  const choice = ordered.findIndex(([value]) => value === chosen);
  if (choice >= CHIPS) ordered.unshift(...ordered.splice(choice, 1)); // never behind "more": it is what one lets go again
  const row = element("div", undefined, "facet");
  row.setAttribute("role", "group");
  row.setAttribute("aria-label", label);
  row.append(element("span", label, "facet-name"));
  const chips = ordered.map(([value, total]) => {
    const chip = button("", () => go({ ...wanted(), [name]: chosen === value ? "" : value }), "chip");
    chip.setAttribute("aria-pressed", String(chosen === value));
    const text = element("bdi", value);
    chip.append(text, element("small", String(total)));
    return chip;
  });
  row.append(...chips.slice(0, CHIPS));
  if (chips.length > CHIPS) {
    const rest = button(`${chips.length - CHIPS} more`, () => rest.replaceWith(...chips.slice(CHIPS)), "chip quiet");
    row.append(rest);
  }
  return row;
}

// ---- results --------------------------------------------------------------------------------------------------------

function show(results, request) {
  state.results = results;
  state.current = -1;
  state.shown = 0;
  find("welcome").hidden = Boolean(request.q);
  if (!request.q) find("facets").hidden = true;
  find("results").replaceChildren();
  showMore(request, history.state?.rows);
}

function showMore(request, most = PAGE) {
  const best = { keyword: 0, semantic: 1 };
  for (const result of state.results) best.keyword = Math.max(best.keyword, result.explain?.keyword?.score || 0);
  const rows = state.results.slice(state.shown, state.shown + most);
  find("results").append(...rows.map((result, index) => resultRow(result, state.shown + index, request, best)));
  state.shown += rows.length;
  const rest = state.results.length - state.shown;
  const more = find("more");
  more.hidden = rest <= 0;
  more.textContent = `Show ${number(Math.min(PAGE, rest))} more`;
  more.onclick = () => {
    const from = state.shown;
    showMore(request);
    history.replaceState({ rows: state.shown }, ""); // a reload shows as many
    document.querySelectorAll("#results .open")[from]?.focus();
  };
}

function resultRow(result, index, request, best) {
  const row = find("result-template").content.firstElementChild.cloneNode(true);
  const opener = row.querySelector(".open");
  opener.href = address("doc", result.id, { q: request.q, lines: `${result.start_line || 1}-${result.end_line || 1}` });
  row.querySelector(".title").textContent = result.title;
  row.querySelector(".fill").style.transform = `scaleX(${Math.max(0.04, result.score)})`;
  row.querySelector(".score").title = `score ${result.score.toFixed(3)}`;
  row.querySelector(".path").textContent = `${result.source_id}:${result.start_line}`;
  row.querySelector(".heading").textContent = result.heading || "";
  row.querySelector(".snippet").replaceChildren(...highlighted(result.snippet, result.highlights || []));
  row.querySelector(".source").textContent = result.source;
  const time = row.querySelector("time");
  time.dateTime = result.updated_at;
  time.textContent = day(result.updated_at);
  if (result.explain) row.querySelector(".bars").replaceChildren(...bars(result, best));
  else row.querySelector(".why").remove();
  const out = outward("Open at its source", result.source_url);
  if (out) {
    out.className = "out";
    row.querySelector(".out").replaceWith(out);
  }
  opener.addEventListener("click", () => {
    state.current = index;
    state.opener = opener;
  });
  return row;
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

// Why a result stands where it does: how well its words fit, against the best of this search, and how near its meaning is.
function bars(result, best) {
  const { keyword, semantic, semantic_weight: weight, terms, chunk, ...further } = result.explain;
  const rows = [];
  const legs = [["Words", keyword, keyword && best.keyword ? keyword.score / best.keyword : 0], ["Meaning", semantic, semantic ? semantic.score : 0]];
  for (const [name, leg, share] of legs) {
    if (!leg && !(name === "Words" ? best.keyword : weight !== undefined)) continue;
    const bar = element("span", undefined, "leg");
    const fill = element("span", undefined, "fill");
    fill.style.transform = `scaleX(${Math.min(1, Math.max(0, share))})`;
    bar.append(fill);
    bar.setAttribute("aria-hidden", "true");
    rows.push(element("span", name), bar, element("span", leg ? `${leg.score.toFixed(2)}, rank ${leg.rank}` : "not among them", "figure"));
  }
  const facts = [`score ${result.score.toFixed(3)}`];
  if (weight !== undefined) facts.push(`meaning weighs ${Math.round(weight * 100)} %`);
  if (terms?.length) facts.push(`has: ${terms.join(", ")}`);
  for (const [name, value] of Object.entries(further)) {
    if (name === "rules") facts.push(...rulesInWords(value));
    else if (name !== "score" && value !== null && value !== "") facts.push(`${name.replaceAll("_", " ")}: ${typeof value === "object" ? JSON.stringify(value) : value}`);
  }
  rows.push(element("span", facts.join(" · "), "facts-line"));
  return rows;
}

// What a file is decides too: shares of the best score that its path and what it defines add, and the role it is held back for.
function rulesInWords(rules) {
  const gains = { path: "its path adds", definition: "what it defines adds" };
  return Object.entries(rules).map(([name, value]) => (gains[name] ? `${gains[name]} ${share(value)}` : `held back to ${share(value)}, as ${name} are`));
}

const share = (value) => `${Math.round(value * 100)} %`;

// ---- the keyboard ---------------------------------------------------------------------------------------------------

function move(step) {
  const links = [...document.querySelectorAll("#results .open")];
  if (!links.length) return;
  state.current = Math.min(links.length - 1, Math.max(0, state.current + step));
  document.querySelectorAll(".result").forEach((row, index) => row.classList.toggle("current", index === state.current));
  links[state.current].focus();
}

export function key(event) {
  if (event.key === "Escape" && event.target === find("query")) {
    find("query").value = "";
    go({ ...wanted(), q: "", folder: "", kind: "" });
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !event.target.matches("select, [type=radio], textarea")) {
    if (!state.results.length) return;
    event.preventDefault();
    if (event.key === "ArrowUp" && state.current <= 0) {
      state.current = -1;
      find("query").focus();
    } else {
      move(event.key === "ArrowDown" ? 1 : -1);
    }
  }
}

find("search").addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(state.timer); go(wanted()); });
find("query").addEventListener("input", typed);
find("search").addEventListener("change", (event) => { if (event.target.id !== "query") go(wanted()); });

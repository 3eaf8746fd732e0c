// The sources: how healthy and fresh, what is being done now and how far it is, what a run left out, "index now".
import { ago, button, call, chart, count, duration, element, ends, find, number, onUp, pairs, server, setDot } from "./common.js";
import { setSources } from "./search.js";

const BUSY_MS = 1000;
const IDLE_MS = 5000;
const PROBLEMS_AT_FIRST = 20;
const NO_DOCUMENT = "No document matched. Check root and include_globs in ctx.toml.";
const state = { open: false, timer: 0, sources: [], activity: {}, asked: new Map(), drawn: "" };

export function open() {
  state.open = true;
  state.drawn = "";
  if (state.sources.length) draw(); // show the last reply even if the server does not answer now
  return load();
}

export function close() {
  state.open = false;
}

export const nameOfState = (source) => {
  if (!source.configured) return ["not configured", "warn"];
  if (!source.healthy) return ["unhealthy", "bad"];
  if (!source.last_indexed_at) return ["never indexed", "warn"];
  return source.pending ? ["embedding", "warn"] : ["fresh", ""];
};

const indexed = (source) => (source.last_indexed_at ? ago(source.last_indexed_at) : "never");

// Looks now and again later: each second while something is done or looked at, else every few seconds.
export async function load() {
  clearTimeout(state.timer);
  try {
    state.sources = (await call("tools/sources")).sources;
    if (!state.silent) state.activity = await call("activity").catch(quiet);
    draw();
  } catch (error) {
    if (state.open && !state.sources.length) find("source-list").replaceChildren(element("p", error.message, "lead"));
    if (error.status === 401) return;
  }
  state.timer = setTimeout(load, (state.open || busy() || state.asked.size) && !document.hidden ? BUSY_MS : IDLE_MS);
}

onUp(() => { state.drawn = ""; });

// A server without this endpoint is not asked again.
function quiet(error) {
  if (error.code === "down") throw error;
  state.silent = error.code === "not_found";
  return {};
}

const busy = () => ["indexing", "embedding", "waiting"].includes(state.activity.phase) && state.activity.phase !== "idle";

function draw() {
  const { sources, activity } = state;
  const pending = sources.reduce((sum, source) => sum + (source.pending || 0), 0);
  const sick = sources.filter((source) => !source.healthy).map((source) => source.name);
  const never = sources.filter((source) => source.configured && !source.last_indexed_at);
  if (!server.down) {
    if (sick.length) setDot("bad", `unhealthy: ${sick.join(", ")}`);
    else if (activity.degraded?.length) setDot("bad", activity.degraded.join("; "));
    else if (busy()) setDot("warn", activity.phase);
    else if (pending || never.length) setDot("warn", pending ? "some passages have no embedding yet" : "not everything is indexed yet");
    else setDot("", "everything is up to date");
  }
  const picture = JSON.stringify([sources, activity, [...state.asked], sources.map(indexed)]);
  if (picture === state.drawn) return; // nothing new: what is unfolded and focused stays
  state.drawn = picture;
  drawFacts(sources, pending, never);
  setSources(sources);
  if (!state.open) return;
  drawWork({ ...activity, degraded: activity.degraded?.filter((line) => !sick.some((name) => line.startsWith(`${name}: `))) }); // those stand on their cards
  drawCards(sources, activity);
}

function drawFacts(sources, pending, never) {
  const total = (field) => sources.reduce((sum, source) => sum + (source[field] || 0), 0);
  const documents = total("doc_count");
  server.documents = documents;
  const facts = [[documents, documents === 1 ? "document" : "documents"], [total("chunk_count"), total("chunk_count") === 1 ? "passage" : "passages"], [sources.length, sources.length === 1 ? "source" : "sources"]];
  if (pending) facts.push([pending, "being embedded"]);
  find("facts").replaceChildren(...facts.map(([value, name]) => element("li", `${number(value)} ${name}`)));
  find("welcome-lead").textContent = lead(sources, documents, never);
}

function lead(sources, documents, never) {
  if (!sources.length) return "No source is configured. Add a [connectors.filesystem.NAME] with its root to ctx.toml, then start the server again.";
  if (documents) return "Search words, identifiers or a whole question.";
  const sick = sources.filter((source) => !source.healthy).map((source) => source.name);
  if (sick.length) return `Nothing is indexed yet: ${sick.join(", ")} cannot be read. See Sources for the reason.`;
  if (busy() || never.length) return "Nothing is indexed yet. The first run may still be running: see Sources.";
  return `The sources were read. ${NO_DOCUMENT}`;
}

// ---- work at hand ---------------------------------------------------------------------------------------------------

function drawWork({ phase, source, done, total, rate, left_s, degraded }) {
  const work = find("work");
  work.hidden = !busy() && !degraded?.length;
  if (work.hidden) return;
  const bar = find("work-bar");
  bar.hidden = !busy();
  if (total) {
    bar.max = total;
    bar.value = done;
  } else {
    bar.removeAttribute("value");
  }
  const doing = { indexing: source ? `Indexing ${source}` : "Starting to read the sources", embedding: "Embedding passages", waiting: `Waiting for another ctx process${source ? ` (${source})` : ""}` }[phase];
  const parts = [doing, done ? `${number(done)}${total ? ` of ${number(total)}` : ""}` : null, pace(rate, left_s), ...(degraded || [])];
  find("work-words").textContent = parts.filter(Boolean).join(" · ");
}

// Rate and time left, as the server has measured them over the last minute.
function pace(rate, left) {
  if (!(rate > 0)) return null;
  return `${rate < 10 ? rate.toFixed(1) : number(Math.round(rate))} a second${left ? ` · about ${duration(left)} left` : ""}`;
}

// ---- cards ----------------------------------------------------------------------------------------------------------

function drawCards(sources, activity) {
  const list = find("source-list");
  const focused = document.activeElement?.dataset?.name;
  const unfolded = new Set([...list.querySelectorAll("details[open]")].map((box) => box.dataset.name));
  const cards = sources.map((source) => card(source, activity, unfolded));
  list.replaceChildren(...(cards.length ? cards : [element("p", lead(sources, 0, []), "lead")]));
  if (focused) list.querySelector(`[data-name="${CSS.escape(focused)}"]`)?.focus();
}

function card(source, { runs, ages }, unfolded) {
  const run = runs?.[source.name];
  const node = element("article", undefined, "card");
  const title = element("h2");
  title.append(element("bdi", source.name));
  const [word, tone] = nameOfState(source);
  title.append(element("span", word, `state ${tone}`));
  const facts = [["Documents", number(source.doc_count)], ["Passages", number(source.chunk_count)]];
  if (source.pending) facts.push(["Without embedding yet", number(source.pending)]);
  facts.push(["Last indexed", indexed(source)]);
  if (source.revision) facts.push(["Revision", source.revision.slice(0, 12)]);
  const list = pairs(facts);
  if (source.last_indexed_at) [...list.querySelectorAll("dd")].find((value) => value.previousSibling.textContent === "Last indexed").title = new Date(source.last_indexed_at).toLocaleString();
  node.append(title, list);
  if (ages?.[source.name]?.filter(Boolean).length > 1) node.append(agesPicture(ages[source.name]));
  if (source.note) node.append(element("p", source.note, "note"));
  if (source.configured && source.healthy && source.last_indexed_at && !source.doc_count) node.append(element("p", NO_DOCUMENT, "note"));
  if (run) node.append(...runParts(source.name, run, unfolded));
  if (source.configured) node.append(indexNow(source.name));
  return node;
}

// When its documents last changed: a bar for each of the last months, and one for all that are older. In one month,
// as in a fresh clone, it says nothing.
function agesPicture(ages) {
  const months = ages.length - 1;
  const most = Math.max(...ages);
  const when = (age) => (age === months ? "longer ago" : age ? `${age} to ${age + 1} months ago` : "in the last 30 days");
  const bars = ages.map((value, age) => (value ? { share: value / most, words: `${count(value, "document")} last changed ${when(age)}` } : null));
  const figure = element("figure", undefined, "ages");
  const words = bars.filter(Boolean).map((bar) => bar.words).join(", ");
  figure.append(element("figcaption", "When its documents last changed"), chart(words, bars.reverse()), ends("over a year ago", "now"));
  return figure;
}

function runParts(name, run, unfolded) {
  const words = ["added", "updated", "deleted", "unchanged"].filter((word) => run[word]).map((word) => `${number(run[word])} ${word}`);
  if (run.skipped) words.push(`${number(run.skipped)} skipped (binary, or without text)`);
  if (run.failed) words.push(`${number(run.failed)} not read`);
  const parts = [element("p", `Last run: ${words.join(", ") || (run.ok ? "nothing to do" : "failed")} in ${run.seconds < 1 ? "under a second" : duration(run.seconds)}`, "note")];
  const entries = [...(run.problems || []), ...(run.notes || []), ...(run.skips || [])];
  if (entries.length) parts.push(left(name, entries, run, unfolded));
  return parts;
}

function left(name, entries, run, unfolded) {
  const box = element("details");
  box.dataset.name = name;
  box.open = unfolded.has(name);
  box.append(element("summary", `What was left out, and why (${number(Math.max(entries.length, run.failed + run.skipped))})`));
  const list = element("ul", undefined, "problems");
  const rows = entries.map(({ source_id: id, message }) => {
    const row = element("li");
    row.append(element("bdi", id || "the source"), `: ${message}`);
    return row;
  });
  list.append(...rows.slice(0, PROBLEMS_AT_FIRST));
  box.append(list);
  if (rows.length > PROBLEMS_AT_FIRST) {
    const rest = button(`All ${number(rows.length)}`, () => { list.append(...rows.slice(PROBLEMS_AT_FIRST)); rest.remove(); });
    box.append(rest);
  }
  return box;
}

function indexNow(name) {
  const row = element("div", undefined, "actions");
  const running = state.asked.get(name) === "running";
  const act = button(running ? "Indexing…" : "Index now", () => refresh(name));
  act.dataset.name = `now ${name}`;
  act.setAttribute("aria-label", `${act.textContent}: ${name}`);
  act.setAttribute("aria-disabled", String(running));
  row.append(act);
  const answer = state.asked.get(name);
  if (answer && !running) row.append(element("span", answer, "remark"));
  return row;
}

async function refresh(name) {
  if (state.asked.get(name) === "running") return;
  state.asked.set(name, "running");
  draw();
  try {
    const { result } = await call("tools/refresh", { source: name });
    const [report] = result.sources;
    const changed = report.added + report.updated + report.deleted;
    state.asked.set(name, report.ok ? (changed ? `${count(changed, "document")} changed` : "Nothing had changed") : report.note || "It failed");
  } catch (error) {
    state.asked.set(name, error.message);
  }
  await load();
  setTimeout(() => { state.asked.delete(name); draw(); }, 8000);
}

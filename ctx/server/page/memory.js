// Memories: the timeline of a bank, one memory with its history, and what can be done with it. It uses the tools of the
// memory pack, with the bank in a header; without them there is no view.
import { address, button, call, copyButton, count, day, element, find, link, number, pairs, parameters, route, setTitle } from "./common.js";

const PAGE = 50;
const RECALLED = 100; // memories fetched before the filters apply
const CHIPS = 24; // banks shown by name; the others by their address
const PART = 200_000; // characters of lines in one request: a character may be three bytes, and a request has a limit
const state = { bank: null, home: "default", cursor: null, undo: null, words: null, day: "" };
const WORDS = { put: "stored", update: "corrected", delete: "forgotten", undo: "undone", restore: "restored" };
const FIELDS = ["since", "until", "context", "type"];
const USUAL = new Set(["general", "world", "fact"]); // of most memories: not worth showing

export async function available() {
  return Object.keys(await parameters("list_memories").catch(() => ({}))).length > 0;
}

export async function open(place) {
  const { bank, id } = parse(place);
  setTitle("Memory");
  if (state.bank !== bank) state.undo = null; // an operation is taken back in its bank
  state.bank = bank;
  showBanks();
  try {
    if (id) await showOne(id, place);
    else await showList(place.query);
  } catch (error) {
    const words = element("p", error.message, "lead");
    if (!id) find("memory-list").replaceChildren(words);
    else if (route().view === "memory") {
      say("");
      find("memory-one").replaceChildren(link("All memories", addressOf(), "back"), words);
    }
  }
}

// #/memory/BANK/ID: a bank's name has no slash.
function parse(place) {
  const [bank, ...rest] = place.id.split("/");
  return { bank: bank || "", id: rest.join("/") };
}

const ask = (tool, values = {}) => call(`tools/${tool}`, values, undefined, state.bank ? { "X-Bank-Id": state.bank } : {}).then((answer) => answer.result);
const addressOf = (id = "", query = {}) => address("memory", id ? `${state.bank}/${id}` : state.bank, query);

function say(text, failed = false) {
  const line = find("memory-status");
  line.textContent = state.words ? `${state.words} ${text}` : text;
  state.words = null;
  line.classList.toggle("error", failed);
  if (state.undo) line.append(" ", button("Undo", undo));
}

// ---- the banks ------------------------------------------------------------------------------------------------------

// Those that this server, or this key, opens: the one shown first, then the fullest.
async function showBanks() {
  const bank = state.bank;
  const answer = await call("banks").catch(() => ({ banks: [] })); // without them the view is whole
  if (state.bank !== bank) return;
  state.home = answer.default || state.home;
  const shown = bank || answer.default;
  if (bank && !answer.banks.some((row) => row.bank === bank)) answer.banks.push({ bank, memories: 0 }); // where one is, though nothing is in it
  const rank = (row) => (row.bank === shown ? Infinity : row.memories);
  const chips = answer.banks.filter((row) => row.memories || row.bank === shown).sort((first, second) => rank(second) - rank(first)).slice(0, CHIPS).map((row) => {
    const chip = link("", address("memory", row.bank), "chip");
    chip.append(element("bdi", row.bank), element("small", number(row.memories)));
    if (row.bank === shown) chip.setAttribute("aria-current", "true");
    return chip;
  });
  find("memory-banks").replaceChildren(...chips);
  find("memory-banks").hidden = chips.length === 0;
}

// ---- the timeline ---------------------------------------------------------------------------------------------------

async function showList(query) {
  find("memory-one").replaceChildren();
  find("memory-list").hidden = false;
  find("memory-form").hidden = false;
  find("memory-new").hidden = false;
  for (const name of ["context", "type"]) offer(name, [], query.get(name) || "");
  for (const name of ["q", "since", "until"]) find(`memory-${name}`).value = query.get(name) || "";
  find("memory-superseded").checked = query.get("superseded") === "1";
  state.cursor = null;
  find("memory-list").replaceChildren();
  const words = query.get("q");
  if (words) await recall(words, query);
  else await more(query, true);
}

// Adds the values that are there to a filter.
function offer(name, values, chosen = find(`memory-${name}`).value) {
  const select = find(`memory-${name}`);
  const before = [...select.options].map((option) => option.value);
  const all = [...new Set([...before, ...values, chosen])].filter(Boolean).sort();
  select.replaceChildren(new Option(`Any ${name}`, ""), ...all.map((value) => new Option(value, value)));
  select.value = chosen;
  select.hidden = all.length < 2 && !chosen;
}

async function recall(words, query) {
  const values = { query: words, max_results: RECALLED };
  if (query.get("type")) values.types = [query.get("type")];
  if (query.get("superseded") === "1") values.include_superseded = true;
  const answer = await ask("recall", values);
  const results = (answer.memories || answer.results || []).filter((memory) => admits(query, memory));
  find("memory-list").replaceChildren(...results.map((memory) => row({ ...memory, text: memory.text || memory.content })));
  find("memory-more").hidden = true;
  const number = count(results.length, "memory", "memories");
  say(!results.length ? "No matching memories." : `${number}, best first`);
}

// What a question does not narrow by: when it was said, and where it belongs.
function admits(query, memory) {
  const said = (memory.said || "").slice(0, 10);
  const [since, until, context] = ["since", "until", "context"].map((name) => query.get(name));
  return (!since || said >= since) && (!until || said <= until) && (!context || memory.context === context);
}

async function more(query, first) {
  const values = { limit: PAGE };
  for (const name of FIELDS) if (query.get(name)) values[name] = query.get(name);
  if (query.get("superseded") === "1") values.include_superseded = true;
  if (state.cursor) values.cursor = state.cursor;
  const page = await ask("list_memories", values);
  state.cursor = page.cursor;
  offer("context", page.memories.map((memory) => memory.context));
  offer("type", page.memories.map((memory) => memory.type));
  if (first) {
    state.day = "";
    say(page.total ? `${count(page.total, "memory", "memories")}, latest first` : "No memories in this bank.");
  }
  find("memory-list").append(...page.memories.flatMap((memory) => (day(memory.said) === state.day ? [] : [element("h2", (state.day = day(memory.said)), "day")]).concat(row(memory))));
  find("memory-more").hidden = !page.cursor;
  find("memory-more").onclick = () => more(query, false).catch((error) => say(error.message, true));
}

function row(memory) {
  const node = element("article", undefined, `memory${memory.superseded_by ? " replaced" : ""}`);
  const text = link("", addressOf(memory.id));
  text.append(element("bdi", memory.text));
  const facts = [...[memory.context, memory.type].filter((value) => !USUAL.has(value)), ...(memory.tags || []), memory.score ? `${Math.round(100 * memory.score)} % sure, said ${day(memory.said)}` : null, memory.happened ? `happened ${memory.happened}` : null, memory.superseded_by ? "replaced by a later memory" : null];
  node.append(text, flagged(memory.flags));
  if (facts.some(Boolean)) node.append(element("p", facts.filter(Boolean).join(" · "), "remark"));
  for (const older of memory.replaced || []) node.append(element("p", `replaces: ${older.text} (${day(older.said)})`, "remark"));
  return node;
}

// What was found in a text when it was stored: a secret, or an instruction to the reader.
function flagged(flags) {
  const line = element("span");
  for (const flag of flags || []) line.append(element("strong", `⚠ ${typeof flag === "string" ? flag : flag.kind || JSON.stringify(flag)}`, "flag"));
  return line;
}

// ---- one memory -----------------------------------------------------------------------------------------------------

async function showOne(id) {
  find("memory-list").hidden = true;
  find("memory-form").hidden = true;
  find("memory-new").hidden = true;
  find("memory-more").hidden = true;
  find("memory-one").replaceChildren(); // another memory's
  const memory = await ask("get_memory", { memory_id: id });
  if (route().view !== "memory") return;
  say("");
  const text = element("p", memory.text, "memory-text");
  text.dir = "auto";
  const facts = [["Said", memory.said], ["Happened", memory.happened || "not known"], ["Stored", memory.created_at], ["Type", memory.type], ["Contexts", (memory.contexts || [memory.context]).join(", ")], ["Version", String(memory.version)]];
  if (memory.tags?.length) facts.push(["Tags", memory.tags.join(", ")]);
  const parts = [link("All memories", addressOf(), "back"), flagged(memory.flags), text, pairs(facts)];
  if (memory.superseded_by) parts.push(replacement(memory.superseded_by));
  parts.push(editor(memory), history(memory.history || []));
  find("memory-one").replaceChildren(...parts);
}

function replacement(id) {
  const line = element("p", "Replaced by a later memory: ");
  line.append(link("see it", addressOf(id)));
  return line;
}

function editor(memory) {
  const form = element("form", undefined, "card");
  const label = element("label", "The text");
  label.htmlFor = "memory-edit";
  const box = element("textarea", memory.text);
  box.id = "memory-edit";
  box.dir = "auto";
  box.rows = 3;
  box.required = true;
  const save = element("button", "Correct it", "button main");
  save.type = "submit";
  const actions = element("div", undefined, "actions");
  actions.append(save, button("Forget it", () => change("delete_memory", { memory_id: memory.id }, "Forgotten.", addressOf())), copyButton("Copy", () => memory.text));
  form.append(label, box, actions);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    change("update_memory", { memory_id: memory.id, content: box.value }, "Corrected. The earlier version is in its history.");
  });
  return form;
}

function history(changes) {
  const list = element("ol", undefined, "plain-list");
  for (const change of changes) {
    const entry = element("li", `${new Date(change.at).toLocaleString()} · ${WORDS[change.op] || change.op}`);
    const texts = change.changed?.text;
    if (texts?.from) entry.append(": ", element("del", texts.from), " → ", element("ins", texts.to));
    const names = Object.keys(change.changed || {}).filter((name) => name !== "text" && name !== "deleted_at");
    if (names.length) entry.append(` (${names.join(", ")})`);
    list.append(entry);
  }
  const box = element("section");
  box.append(element("h2", "History"), list);
  return box;
}

// ---- changing -------------------------------------------------------------------------------------------------------

async function change(tool, values, words, target) {
  try {
    const answer = await ask(tool, values);
    state.undo = answer.op_id || null;
    state.words = words;
    if (target && target !== location.hash) location.hash = target;
    else await open(route());
  } catch (error) {
    say(error.message, true);
  }
}

async function undo() {
  const id = state.undo;
  state.undo = null;
  await change("undo_memory", { op_id: id }, "Undone.");
}

function filled() {
  const query = { q: find("memory-q").value.trim(), superseded: find("memory-superseded").checked ? "1" : "" };
  for (const name of FIELDS) query[name] = find(`memory-${name}`).value.trim();
  return query;
}

const lines = (name) => `v1/default/banks/${encodeURIComponent(state.bank || state.home)}/memories/${name}`;

// What `ctx memory export` writes, and `ctx memory import` reads: nothing of a memory is left out.
async function exportAll() {
  const answer = await call(lines("export"));
  const target = link("", URL.createObjectURL(new Blob([answer.content], { type: "application/x-ndjson" })));
  target.download = `memories-${state.bank || state.home}.jsonl`;
  target.click();
  URL.revokeObjectURL(target.href);
  say(`${count(answer.count, "memory", "memories")} saved.`);
}

async function importAll(file) {
  const entries = (await file.text()).split("\n").filter((line) => line.trim());
  const sum = { imported: 0, skipped: 0, conflicts: [] };
  let taken = 0;
  try {
    for (const part of parts(entries)) {
      const answer = await call(lines("import"), { content: part.join("\n") });
      for (const name of Object.keys(sum)) sum[name] = sum[name].concat ? sum[name].concat(answer[name]) : sum[name] + answer[name];
      taken += part.length;
    }
    state.undo = null;
    await open(route());
    const left = sum.conflicts.length ? `; ${number(sum.conflicts.length)} have other content here and were not changed` : "";
    say(`${count(sum.imported, "memory", "memories")} imported, ${number(sum.skipped)} already existed${left}.`, sum.conflicts.length > 0);
  } catch (error) {
    say(`The import stopped after line ${taken} of ${entries.length}: ${error.message}`, true);
  }
}

// As many lines at a time as a request may hold.
function parts(entries) {
  const groups = [];
  let size = Infinity;
  for (const line of entries) {
    if (size + line.length > PART) { groups.push([]); size = 0; }
    groups.at(-1).push(line);
    size += line.length;
  }
  return groups;
}

find("memory-form").addEventListener("submit", (event) => { event.preventDefault(); location.hash = addressOf("", filled()); });
find("memory-form").addEventListener("change", (event) => { if (event.target.type !== "search") location.hash = addressOf("", filled()); });
find("memory-bank-form").addEventListener("submit", (event) => {
  event.preventDefault();
  location.hash = address("memory", find("memory-bank").value.trim());
  find("memory-bank").value = "";
});
find("memory-new").addEventListener("submit", (event) => {
  event.preventDefault();
  const box = find("memory-text");
  change("retain", { content: box.value }, "Kept.").then(() => { box.value = ""; });
});
find("memory-export").addEventListener("click", () => exportAll().catch((error) => say(error.message, true)));
find("memory-import").addEventListener("change", (event) => { if (event.target.files.length) importAll(event.target.files[0]).finally(() => { event.target.value = ""; }); }); // so that the same file may be chosen again

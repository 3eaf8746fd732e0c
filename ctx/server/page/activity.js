// What clients asked: searches and reads, newest first; those without a good hit are marked.
import { address, button, call, count, day, element, find, link, number, setTitle } from "./common.js";

const WEAK = "No good hit";
const CALLS = { search: "searched", get: "read", outline: "outlined", symbol: "looked up" };
const state = { entries: [], shown: "" };

export async function open() {
  setTitle("Activity");
  try {
    state.entries = (await call("log")).entries;
  } catch (error) {
    state.entries = [];
    draw();
    find("activity-status").textContent = error.code === "not_found" ? "Activity is off on this server ([server] activity = false)." : error.message;
    return;
  }
  draw();
}

function draw() {
  const clients = [...new Set(state.entries.map((entry) => entry.client))];
  const choices = ["", ...clients, ...(state.entries.some((entry) => entry.weak) ? [WEAK] : [])];
  find("activity-filters").replaceChildren(...(state.entries.length ? choices : []).map((choice) => {
    const chip = button(choice === "" ? "All" : choice, () => { state.shown = choice; draw(); }, "chip");
    chip.setAttribute("aria-pressed", String(choice === state.shown));
    return chip;
  }));
  const entries = state.entries.filter((entry) => !state.shown || (state.shown === WEAK ? entry.weak : entry.client === state.shown));
  const weak = entries.filter((entry) => entry.weak).length;
  const tokens = entries.reduce((sum, entry) => sum + tokensOf(entry), 0);
  find("activity-status").textContent = entries.length ? `${count(entries.length, "call")}, about ${number(tokens)} tokens${weak ? `; ${count(weak, "search", "searches")} without a good hit` : ""}` : "No calls yet. Connect an agent to see its searches here.";
  let last = "";
  find("activity-list").replaceChildren(...entries.flatMap((entry) => {
    const heading = day(entry.called_at) === last ? [] : [element("h2", (last = day(entry.called_at)), "day")];
    return [...heading, row(entry)];
  }));
  find("activity-clear").hidden = !state.entries.length;
}

// The page's own searches bring many hits for the filters, and no model reads them.
const tokensOf = (entry) => (entry.client === "page" ? 0 : entry.tokens);

function row(entry) {
  const node = element("article", undefined, `call${entry.weak ? " weak" : ""}`);
  const time = element("time", new Date(entry.called_at).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" }));
  time.dateTime = entry.called_at;
  const who = element("span", entry.client || entry.interface, "who");
  who.title = entry.interface;
  const what = element("div", undefined, "what");
  const searched = entry.tool === "search";
  const subject = searched ? link("", address("search", "", { q: entry.query })) : element("span");
  subject.append(element("bdi", entry.query));
  what.append(`${CALLS[entry.tool] || entry.tool} `, subject);
  if (entry.weak) what.append(" ", element("span", "no good hit", "tag"));
  if (entry.opened.length) what.append(element("p", `opened ${entry.opened.join(", ")}`, "remark"));
  const figures = [searched ? count(entry.hits, "hit") : "", tokensOf(entry) ? count(entry.tokens, "token") : ""].filter(Boolean).join(", ");
  node.append(time, who, what, element("span", figures, "figures"));
  return node;
}

find("activity-clear").addEventListener("click", async () => {
  if (!confirm("Delete all entries of the log?")) return;
  await call("log", undefined, undefined, {}, "DELETE").catch(() => {});
  open();
});

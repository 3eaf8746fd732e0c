// The page of a ctx server: every view has an address; this shows the view of the address.
import { find, loadHealth, onHealth, onUp, route, server, setTitle } from "./common.js";
import * as activity from "./activity.js";
import * as about from "./about.js";
import * as connect from "./connect.js";
import * as doc from "./reader.js";
import * as memory from "./memory.js";
import * as search from "./search.js";
import * as sources from "./sources.js";
import * as tools from "./tools.js";

const VIEWS = { search, doc, activity, sources, memory, tools, connect, about };
const TITLES = { activity: "Activity", sources: "Sources", memory: "Memory", tools: "Tools", connect: "Connect", about: "About" };
const scrolled = new Map(JSON.parse(sessionStorage.getItem("ctx-scrolled") || "[]")); // address -> how far down
let shown = null;

function showView() {
  const place = route();
  const name = VIEWS[place.view] ? place.view : "search";
  const first = shown === null;
  if (shown && shown !== name) VIEWS[shown].close?.();
  for (const tab of document.querySelectorAll(".tab")) {
    const current = tab.dataset.view === name || (name === "doc" && tab.dataset.view === "search");
    if (current) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  for (const view of Object.keys(VIEWS)) find(`view-${view}`).hidden = view !== name;
  setTitle(TITLES[name]);
  const changed = shown !== name;
  shown = name;
  const depth = scrolled.get(location.hash) || 0;
  const drawn = VIEWS[name].open(place, { first, changed });
  if (changed && !first && name !== "search") document.querySelector(`#view-${name} h1, #view-${name} #document-title`)?.focus({ preventScroll: true });
  if (name === "doc" ? first && depth : changed) scrollTo(depth, drawn); // a document that is opened goes to its passage
}

// Scrolls to where one was, again when the view is drawn: before, it may be too short.
async function scrollTo(depth, drawn) {
  const target = location.hash;
  window.scrollTo(0, depth);
  await drawn;
  if (location.hash === target) window.scrollTo(0, depth);
}

// Addresses of before the views had any: /?q=words#ID
function translateOld() {
  const query = new URLSearchParams(location.search);
  const id = location.hash.slice(1);
  if (/^[0-9a-f-]{36}$/.test(id)) history.replaceState(null, "", `${location.pathname}#/doc/${id}`);
  else if (query.size) history.replaceState(null, "", `${location.pathname}#/search?${query}`);
}

history.scrollRestoration = "manual";
about.applyTheme();
window.addEventListener("hashchange", showView);
window.addEventListener("scroll", () => { if (route().view === shown) scrolled.set(location.hash, window.scrollY); }, { passive: true });
window.addEventListener("pagehide", () => sessionStorage.setItem("ctx-scrolled", JSON.stringify([...scrolled])));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // its address is not a view's
  const target = shown === "search" && find("results").childElementCount ? find("results") : find("main");
  target.focus();
});
find("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  server.key = find("key").value.trim();
  sessionStorage.setItem("ctx-key", server.key);
  find("key").value = "";
  find("key-form").hidden = true;
  refresh();
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  const slash = event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey;
  if (slash || (event.key === "k" && (event.ctrlKey || event.metaKey))) {
    event.preventDefault();
    if (shown !== "search") location.hash = search.lastAddress();
    search.focus();
  } else if (shown === "search" && !event.ctrlKey && !event.metaKey && !event.altKey) {
    search.key(event);
  }
});

async function refresh() {
  await loadHealth().catch(() => {});
  await Promise.all([sources.load(), offerMemory()]);
  VIEWS[shown].open(route(), { first: false, changed: false, again: true });
}

async function offerMemory() {
  find("memory-tab").hidden = !(await memory.available());
}

onUp(() => refresh());
onHealth((health) => search.setModes(health));
translateOld();
loadHealth().catch(() => {}).then(() => {
  showView();
  sources.load();
  offerMemory();
});

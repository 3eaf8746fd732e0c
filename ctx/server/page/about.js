// Settings of this browser, version and model of the server, search times of the last hour, the keys.
import { call, chart, count, duration, element, ends, find, keep, kept, link, number, pairs, server, setTitle } from "./common.js";
import { editorChoice } from "./reader.js";

const MINUTES = 60;

export async function open() {
  setTitle("About");
  let activity = {};
  let health = server.health;
  try {
    [health, activity] = await Promise.all([call("health"), call("activity").catch(() => ({}))]);
  } catch {
    // the line at the top says that the server does not answer
  }
  find("about").replaceChildren(...[settingsCard(), health ? serverCard(health) : null, searchCard(activity.searches || []), keyCard(), moreCard()].filter(Boolean));
}

export function applyTheme() {
  document.documentElement.dataset.theme = kept("theme", "system");
}

function settingsCard() {
  const theme = element("select");
  theme.append(...["system", "light", "dark"].map((name) => new Option(name, name, false, name === kept("theme", "system"))));
  theme.addEventListener("change", () => { keep("theme", theme.value); applyTheme(); });
  const row = element("div", undefined, "inline");
  for (const [name, select] of [["Colours", theme], ["Editor", editorChoice()]]) {
    const label = element("label", `${name} `);
    label.append(select);
    row.append(label);
  }
  return titled("This browser", row);
}

function titled(title, ...parts) {
  const node = element("article", undefined, "card");
  node.append(element("h2", title), ...parts);
  return node;
}

function serverCard(health) {
  const facts = [["Version", health.version || "?"], ["Address", location.host]];
  if (health.model !== undefined) facts.push(["Embeddings", health.model === null ? "off" : health.model]);
  if (health.uptime_s) facts.push(["Up for", duration(health.uptime_s)]);
  if (health.index_behind) facts.push(["Writes not indexed yet", number(health.index_behind)]);
  if (health.watching) facts.push(["Watches files", health.watching]);
  return titled("This server", pairs(facts), ...(health.degraded || []).map((sentence) => element("p", sentence, "note")));
}

// Bars, a minute each, as high as the slowest search; the same in words.
function searchCard(minutes) {
  const total = minutes.reduce((sum, minute) => sum + minute.count, 0);
  if (!total) return titled("Searches of the last hour", element("p", "None yet.", "note"));
  const slowest = Math.max(...minutes.map((minute) => minute.slowest_ms));
  const byMinute = new Map(minutes.map((minute) => [minute.minutes_ago, minute]));
  const bars = Array.from({ length: MINUTES }, (_, place) => {
    const figures = byMinute.get(MINUTES - 1 - place);
    if (!figures) return null;
    const words = `${count(figures.minutes_ago, "minute")} ago: ${count(figures.count, "search", "searches")}, median ${figures.median_ms} ms, slowest ${figures.slowest_ms} ms`;
    return { share: figures.slowest_ms / slowest, words };
  });
  const picture = chart(`Search times of the last hour, the slowest ${slowest} ms`, bars);
  return titled("Searches of the last hour", picture, ends("an hour ago", "now"), element("p", `${count(total, "search", "searches")}; the slowest took ${slowest} ms; the median of the last minute that had any is ${minutes[0].median_ms} ms`, "note"));
}

function keyCard() {
  const list = element("dl", undefined, "keys-list");
  for (const [keys, meaning] of [["/ or Ctrl-K", "to the search box"], ["j k or ↑ ↓", "through the results"], ["Enter", "opens"], ["e", "opens in the editor"], ["Esc", "clears the box"], ["Alt-←", "back"]]) {
    const pair = element("div");
    const term = element("dt");
    term.append(element("kbd", keys));
    pair.append(term, element("dd", meaning));
    list.append(pair);
  }
  return titled("Keys", list);
}

function moreCard() {
  const row = element("p", undefined, "actions");
  row.append(link("OpenAPI", "openapi.json", "button"), link("For a model (llms.txt)", "llms.txt", "button"), link("Health", "health", "button"));
  return titled("For programs", row, element("p", "The page talks to this server only and loads nothing from elsewhere.", "note"));
}

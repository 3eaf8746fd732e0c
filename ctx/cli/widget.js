// Search for a static site, over what `ctx export` writes. No dependency, nothing is sent anywhere.
//   <script src="/ctx-widget.js" data-index="/ctx-index.json" data-link="/{path}/" defer></script>
// Opens by Ctrl-K, by "/", and by any element with the attribute data-ctx-search; where there is none it brings a button.
// data-link: where a document without an address of its own is: {path} is its id without the ending, {source_id} the whole id.
(() => {
  "use strict";
  const script = document.currentScript;
  const settings = script ? script.dataset : {};
  const base = script && script.src ? script.src : location.href;
  const LIMIT = 12, TITLE = 4, HEADING = 2, SNIPPET = 160;
  const WORD = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]+|[\p{L}\p{N}_]+/gu;
  const UNSPACED = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]/u;

  const folded = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  const stem = (word) => (word.length > 4 ? word.replace(/(?:ies|y)$/, "i").replace(/(?:sses)$/, "ss").replace(/(?<!s)s$/, "").replace(/(?:ing|ed)$/, "") : word);

  // The words of a text. Where a script writes no blanks, pairs of letters stand for them.
  function words(text) {
    const list = [];
    for (const word of folded(text).match(WORD) || []) {
      if (!UNSPACED.test(word) || word.length < 3) list.push(stem(word));
      else for (let at = 0; at < word.length - 1; at++) list.push(word.slice(at, at + 2));
    }
    return list;
  }

  const pause = () => new Promise((resume) => setTimeout(resume));

  // word -> [number of a chunk, how often, ...], and the length of each chunk; built in steps, so that the page stays quick.
  async function build(data) {
    const documents = new Map(data.documents.map((row) => [row.id, row]));
    const chunks = data.chunks.filter((chunk) => documents.has(chunk.document_id));
    const lists = new Map(), lengths = [];
    for (const [number, chunk] of chunks.entries()) {
      if (number % 400 === 399) await pause();
      const counts = new Map();
      const add = (text, weight) => words(text || "").forEach((word) => counts.set(word, (counts.get(word) || 0) + weight));
      add(documents.get(chunk.document_id).title, TITLE);
      add(chunk.heading, HEADING);
      add(chunk.text, 1);
      let length = 0;
      for (const [word, count] of counts) {
        length += count;
        if (!lists.has(word)) lists.set(word, []);
        lists.get(word).push(number, count);
      }
      lengths.push(length);
    }
    const mean = lengths.reduce((sum, length) => sum + length, 0) / (lengths.length || 1);
    return { documents, chunks, lists, lengths, mean, sorted: [...lists.keys()].sort() };
  }

  // The word itself, and for the last word of a query also those that begin with it, as one is still typing.
  function variants(index, word, last) {
    if (!last || word.length < 2) return [word];
    let low = 0, high = index.sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (index.sorted[middle] < word) low = middle + 1;
      else high = middle;
    }
    const list = [word];
    while (list.length < 40 && low < index.sorted.length && index.sorted[low].startsWith(word)) list.push(index.sorted[low++]);
    return [...new Set(list)];
  }

  // BM25 by the best passage of each document, times how much of the query it has.
  function search(index, query) {
    const asked = [...new Set(words(query))].slice(0, 12);
    const scores = new Map();
    asked.forEach((word, position) => {
      const best = new Map();
      for (const variant of variants(index, word, position === asked.length - 1)) {
        const list = index.lists.get(variant) || [];
        const rarity = Math.log(1 + index.chunks.length / (list.length / 2 + 0.5)) * (variant === word ? 1 : 0.7);
        for (let at = 0; at < list.length; at += 2) {
          const count = list[at + 1];
          const score = (rarity * count * 2.2) / (count + 1.2 * (0.25 + (0.75 * index.lengths[list[at]]) / index.mean));
          if (score > (best.get(list[at]) || 0)) best.set(list[at], score);
        }
      }
      for (const [number, score] of best) {
        const entry = scores.get(number) || { number, score: 0, hits: 0 };
        entry.score += score;
        entry.hits += 1;
        scores.set(number, entry);
      }
    });
    const ranked = [...scores.values()].map((entry) => ({ ...entry, score: entry.score * (entry.hits / asked.length) ** 2 }));
    ranked.sort((one, other) => other.score - one.score || one.number - other.number);
    const shown = new Map();
    for (const entry of ranked) {
      const chunk = index.chunks[entry.number];
      if (!shown.has(chunk.document_id)) shown.set(chunk.document_id, chunk);
      if (shown.size === LIMIT) break;
    }
    return [...shown].map(([id, chunk]) => ({ document: index.documents.get(id), chunk }));
  }

  // Where a result leads; null for an address that is none of the web's.
  function address(document) {
    let target = document.source_url;
    if (!target && settings.link) {
      const path = document.source_id.replace(/(?:(^|\/)index)?\.[^./]*$/, "$1").replace(/\/$/, "");
      const encoded = (text) => text.split("/").map(encodeURIComponent).join("/");
      target = settings.link.replace(/\{(path|source_id)\}/g, (_, name) => encoded(name === "path" ? path : document.source_id)).replace(/([^:])\/\/+/g, "$1/");
    }
    if (!target) return null;
    try {
      const url = new URL(target, base);
      return ["http:", "https:", location.protocol].includes(url.protocol) ? url.href : null;
    } catch {
      return null;
    }
  }

  function element(name, attributes, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  // The passage around its first word of the query, the words marked. Only ever text: an index may hold anybody's markup.
  function snippet(text, query) {
    const asked = new Set(words(query)), last = words(query).pop() || "";
    const wanted = (word) => words(word).some((each) => asked.has(each) || (last.length > 1 && each.startsWith(last)));
    const flat = text.replace(/\s+/g, " ").trim();
    const first = [...flat.matchAll(WORD)].find((match) => wanted(match[0]));
    const start = first && first.index > SNIPPET / 2 ? flat.lastIndexOf(" ", first.index - SNIPPET / 3) + 1 : 0;
    const part = flat.slice(start, start + SNIPPET);
    const nodes = [start ? "\u2026 " : ""];
    let end = 0;
    for (const match of part.matchAll(WORD)) {
      if (!wanted(match[0])) continue;
      nodes.push(part.slice(end, match.index), element("mark", {}, match[0]));
      end = match.index + match[0].length;
    }
    nodes.push(part.slice(end), start + SNIPPET < flat.length ? " \u2026" : "");
    return nodes;
  }

  const STYLE = `
    :host { all: initial; color-scheme: light dark; --text: light-dark(#1b1b1f, #ececf0); --soft: light-dark(#55555f, #b4b4be);
      --ground: light-dark(#fff, #202024); --line: light-dark(#8a8a94, #80808a); --hover: light-dark(#eceef6, #33343c); --accent: light-dark(#1d4fc4, #9dbdff); }
    * { box-sizing: border-box; font: 16px/1.45 system-ui, sans-serif; }
    button.open { position: fixed; right: 16px; bottom: 16px; padding: 10px 16px; border: 1px solid var(--line); border-radius: 24px;
      color: var(--text); background: var(--ground); cursor: pointer; z-index: 9999; }
    dialog { width: min(640px, calc(100vw - 24px)); max-height: min(80vh, 720px); margin: 8vh auto auto; padding: 0; overflow: hidden; border: 1px solid var(--line);
      border-radius: 12px; color: var(--text); background: var(--ground); }
    dialog[open] { display: flex; flex-direction: column; }
    dialog::backdrop { background: rgb(0 0 0 / 45%); }
    form { display: flex; gap: 8px; padding: 12px; border-bottom: 1px solid var(--line); }
    input { flex: 1; min-width: 0; padding: 8px 10px; border: 1px solid var(--line); border-radius: 8px; color: inherit; background: transparent; }
    form button { padding: 8px 12px; border: 1px solid var(--line); border-radius: 8px; color: inherit; background: transparent; cursor: pointer; }
    [role=status] { margin: 0; padding: 8px 16px; font-size: 14px; color: var(--soft); }
    ol { margin: 0; padding: 0 8px 8px; overflow-y: auto; list-style: none; }
    li > * { display: block; padding: 8px; border-radius: 8px; color: inherit; text-decoration: none; overflow-wrap: anywhere; }
    a:hover, a:focus { background: var(--hover); }
    :focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
    b { font-weight: 600; color: var(--accent); } small { display: block; font-size: 14px; color: var(--soft); }
    mark { font: inherit; font-weight: 600; color: inherit; background: none; text-decoration: underline; }`;

  const input = element("input", { type: "search", "aria-label": settings.label || "Search", placeholder: settings.label || "Search", autocomplete: "off", spellcheck: "false" });
  const close = element("button", { type: "submit" }, "Close");
  const form = element("form", { method: "dialog", role: "search" }, input, close);
  const status = element("p", { role: "status" });
  const results = element("ol", { "aria-label": "Results" });
  const dialog = element("dialog", { "aria-label": settings.label || "Search" }, form, status, results);
  const host = element("div");
  const root = host.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  root.adoptedStyleSheets = [sheet];
  root.append(dialog);

  let index = null, loading = null;

  function load() {
    loading ||= fetch(new URL(settings.index || "ctx-index.json", base))
      .then((reply) => (reply.ok ? reply.json() : Promise.reject(new Error(String(reply.status)))))
      .then(build)
      .then((built) => ((index = built), show()))
      .catch(() => ((loading = null), (status.textContent = location.protocol === "file:" ? "A browser loads the index from a web server only, not from a folder." : "The index could not be loaded.")));
  }

  function show() {
    const query = input.value.trim();
    results.replaceChildren();
    if (!index || !query) {
      status.textContent = !index ? "Loading \u2026" : "Type to search.";
      return;
    }
    const rows = search(index, query);
    for (const { document, chunk } of rows) {
      const target = address(document);
      const heading = chunk.heading && chunk.heading !== document.title ? " \u203a " + chunk.heading : "";
      const row = element(target ? "a" : "span", target ? { href: target } : {}, element("b", {}, document.title || document.source_id), heading, element("small", {}, ...snippet(chunk.text, query)));
      results.append(element("li", {}, row));
    }
    status.textContent = rows.length ? `${rows.length} ${rows.length === 1 ? "page" : "pages"}` : "Nothing found.";
  }

  function open() {
    if (dialog.open) return;
    dialog.showModal();
    input.select();
    load();
    if (index) show();
  }

  function move(event) {
    const links = [...results.querySelectorAll("a")];
    const at = links.indexOf(root.activeElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: at < 0 ? null : 0, End: at < 0 ? null : links.length - 1 }[event.key];
    if (event.isComposing) return; // Enter takes what an input method offers
    if (event.key === "Enter" && root.activeElement === input) {
      event.preventDefault(); // the first result, not the form's button
      if (links[0]) links[0].click();
    } else if (next != null) {
      event.preventDefault();
      if (next < 0) input.focus();
      else if (links[next]) links[next].focus();
    } else if (at >= 0 && event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey && event.key !== " ") {
      input.focus(); // typing goes on where one types
    }
  }

  input.addEventListener("input", show);
  dialog.addEventListener("keydown", move);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.addEventListener("keydown", (event) => {
    if (!event.key) return; // a field that the browser fills in says so by an event without one
    const typing = event.composedPath()[0].matches?.("input, textarea, select, [contenteditable]");
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
      event.preventDefault();
      dialog.open ? dialog.close() : open();
    } else if (event.key === "/" && !typing && !dialog.open && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      open();
    }
  });
  document.addEventListener("click", (event) => event.target.closest?.("[data-ctx-search]") && open());

  function begin() {
    if (!document.querySelector("[data-ctx-search]")) {
      const button = element("button", { type: "button", class: "open", "aria-keyshortcuts": "Control+K" }, settings.label || "Search");
      button.addEventListener("click", open);
      root.append(button);
    }
    document.body.append(host);
  }
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", begin) : begin();
})();

// Markdown as elements, made node by node and never from HTML. What a document brings along as HTML stays text;
// pictures are named, not loaded. Each block carries the lines it is of (data-from, data-to, from 1).
// A document is a stranger's: no pattern may try a run of letters in more than one way, or a line of blanks keeps the tab.
import { element, outward } from "./common.js";

const FENCE = /^\s{0,3}(```+|~~~+)\s*([\w+#.-]*)/;
const HEADING = /^\s{0,3}(#{1,6})\s([^]*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(\s+)(.*)$/;
const UNDERLINE = /^\s{0,3}(=+|-{2,})\s*$/;
const RULE = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;
const ROW = /^\s*\|.*\|\s*$/;
const DELIMITER = /^\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$/;
const MAX_DEPTH = 8;

// A fragment, and its headings as [{level, text, node}].
export function rendered(text) {
  const fragment = document.createDocumentFragment();
  const headings = [];
  blocks(text.split("\n"), 1, fragment, headings, 0);
  return { fragment, headings };
}

function placed(node, from, to) {
  node.dataset.from = String(from);
  node.dataset.to = String(to);
  return node;
}

// Reads `lines`, the first of which is line `first` of the document, into `parent`.
function blocks(lines, first, parent, headings, depth) {
  let at = first === 1 && depth === 0 ? frontMatter(lines, parent) : 0;
  while (at < lines.length) {
    const begin = at;
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const read = BLOCKS.find(({ begins }) => begins(lines, at, depth));
    const [node, end] = read ? read.read(lines, at, first, headings, depth) : paragraph(lines, at);
    at = Math.max(end, begin + 1);
    parent.append(placed(node, first + begin, first + at - 1));
  }
}

function frontMatter(lines, parent) {
  const end = lines[0].trim() === "---" ? lines.findIndex((line, index) => index > 0 && line.trim() === "---") : -1;
  if (end < 1 || end > 60) return 0;
  parent.append(placed(element("pre", lines.slice(1, end).join("\n"), "front"), 1, end + 1));
  return end + 1;
}

const BLOCKS = [
  { begins: (lines, at) => FENCE.test(lines[at]), read: fenced },
  { begins: (lines, at) => HEADING.test(lines[at]), read: heading },
  { begins: (lines, at) => RULE.test(lines[at]), read: (lines, at) => [element("hr"), at + 1] },
  { begins: (lines, at) => /^\s{0,3}>/.test(lines[at]), read: quote },
  { begins: (lines, at, depth) => depth < MAX_DEPTH && ITEM.test(lines[at]), read: list },
  { begins: (lines, at) => lines[at].includes("|") && delimits(lines[at + 1]), read: table },
  { begins: (lines, at) => ROW.test(lines[at]), read: table },
  { begins: (lines, at) => /^( {4}|\t)\S/.test(lines[at]), read: indented },
  { begins: (lines, at) => UNDERLINE.test(lines[at + 1] || ""), read: underlined },
];

function fenced(lines, at) {
  const [, fence, language] = FENCE.exec(lines[at]);
  let end = at + 1;
  while (end < lines.length && !(lines[end].trim().startsWith(fence) && /^[`~]+\s*$/.test(lines[end].trim()))) end += 1;
  const code = element("code", lines.slice(at + 1, end).join("\n"));
  const block = element("pre");
  block.tabIndex = 0;
  block.setAttribute("role", "region");
  block.setAttribute("aria-label", language ? `Code, ${language}` : `Code, line ${at + 1}`);
  block.append(code);
  return [block, end + 1];
}

function indented(lines, at) {
  let end = at;
  while (end < lines.length && (/^( {4}|\t)/.test(lines[end]) || !lines[end].trim())) end += 1;
  while (!lines[end - 1].trim()) end -= 1;
  const block = element("pre");
  block.append(element("code", lines.slice(at, end).map((line) => line.replace(/^( {4}|\t)/, "")).join("\n")));
  return [block, end];
}

function heading(lines, at, first, headings) {
  const [, marks, rest] = HEADING.exec(lines[at]);
  return [headed(marks.length, unclosed(rest.trim()), headings), at + 1];
}

// A heading without the marks that may close it: `Setup ##`, but not the one of `C#`.
function unclosed(text) {
  let end = text.length;
  while (text[end - 1] === "#") end -= 1;
  return end === 0 || /\s/.test(text[end - 1]) ? text.slice(0, end).trimEnd() : text;
}

function underlined(lines, at, first, headings) {
  return [headed(lines[at + 1].trim()[0] === "=" ? 1 : 2, lines[at].trim(), headings), at + 2];
}

function headed(level, text, headings) {
  const node = element(`h${Math.min(6, level + 1)}`); // the title of the view is the h1
  node.dir = "auto";
  inline(text, node);
  headings.push({ level, text: node.textContent, node });
  return node;
}

function quote(lines, at, first, headings, depth) {
  let end = at;
  while (end < lines.length && lines[end].trim() && (/^\s{0,3}>/.test(lines[end]) || end > at)) end += 1;
  const node = element("blockquote");
  const inner = lines.slice(at, end).map((line) => line.replace(/^\s{0,3}> ?/, ""));
  if (depth < MAX_DEPTH) blocks(inner, first + at, node, [], depth + 1);
  else node.textContent = inner.join("\n");
  return [node, end];
}

function list(lines, at, first, headings, depth) {
  const [, indent, mark] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(mark);
  const node = element(ordered ? "ol" : "ul");
  if (ordered && parseInt(mark, 10) !== 1) node.start = parseInt(mark, 10);
  let end = at;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    if (!item || item[1].length < indent.length || /\d/.test(item[2]) !== ordered || RULE.test(lines[end])) break;
    const begin = end;
    const width = item[1].length + item[2].length + Math.min(4, item[3].length);
    end = itemEnd(lines, end + 1, item[1].length);
    const inner = [item[4], ...lines.slice(begin + 1, end).map((line) => line.slice(Math.min(width, line.search(/\S|$/))))];
    const entry = placed(element("li"), first + begin, first + end - 1);
    entry.dir = "auto";
    itemInto(inner, first + begin, entry, depth);
    node.append(entry);
    while (end < lines.length && !lines[end].trim() && ITEM.test(lines[end + 1] || "")) end += 1;
  }
  return [node, end];
}

function itemEnd(lines, from, indent) {
  let end = from;
  while (end < lines.length) {
    const line = lines[end];
    const deeper = line.search(/\S/) > indent;
    const lazy = line.trim() && lines[end - 1].trim() && !ITEM.test(line) && !BLOCKS.slice(0, 4).some(({ begins }) => begins(lines, end, 0));
    if (line.trim() ? !deeper && !lazy : !((lines[end + 1] || "").search(/\S/) > indent)) break;
    end += 1;
  }
  return end;
}

function itemInto(inner, first, entry, depth) {
  const task = /^\[([ xX])\]\s+/.exec(inner[0]);
  const lines = task ? [inner[0].slice(task[0].length), ...inner.slice(1)] : inner;
  if (task) entry.className = "task";
  if (task) entry.append(element("span", task[1] === " " ? "☐ " : "☑ "));
  const whole = document.createDocumentFragment();
  blocks(lines, first, whole, [], depth + 1);
  const [only] = whole.childNodes;
  if (only?.tagName === "P") only.replaceWith(...only.childNodes); // a tight item has no paragraph
  entry.append(whole);
}

const delimits = (line = "") => DELIMITER.test(line.trim());

function table(lines, at, first) {
  let end = at;
  while (end < lines.length && lines[end].includes("|") && lines[end].trim()) end += 1;
  const headed = delimits(lines[at + 1]);
  const node = element("table");
  for (let row = at; row < end; row += 1) {
    if (headed && row === at + 1) continue;
    const line = placed(element("tr"), first + row, first + row);
    for (const cell of cells(lines[row])) {
      const box = element(headed && row === at ? "th" : "td");
      box.dir = "auto";
      inline(cell, box);
      line.append(box);
    }
    node.append(line);
  }
  const frame = element("div", undefined, "table");
  frame.tabIndex = 0;
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", `Table, line ${first + at}`);
  frame.append(node);
  return [frame, end];
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !BLOCKS.slice(0, 6).some(({ begins }) => begins(lines, end, 0))) {
    if (UNDERLINE.test(lines[end + 1] || "")) break; // a heading is next
    end += 1;
  }
  const node = element("p");
  node.dir = "auto";
  inline(lines.slice(at, end).map((line) => line.trim()).join("\n"), node);
  return [node, end];
}

// ---- within a line --------------------------------------------------------------------------------------------------

const SPANS = [
  [/(`{1,99})(?!`)([\s\S]{0,2000}?[^`])\1(?!`)/y, (match) => element("code", match[2].trim())],
  [/\\([!-/:-@[-`{-~])/y, (match) => document.createTextNode(match[1])],
  [/!\[([^\]\n]{0,300})\]\(([^)\s]{0,1000})[^)\n]{0,200}\)/y, (match) => element("span", `[picture: ${match[1] || match[2]}]`, "picture")],
  [/\[([^\]\n]{1,500})\]\(([^)\s]{0,1000})[^)\n]{0,200}\)/y, (match, depth) => within(outward("", match[2]) || element("span", "", "inner-link"), match[1], depth)],
  [/<(https?:\/\/[^\s<>]{1,1000})>/y, (match) => outward(match[1], match[1])],
  [/https?:\/\/[^\s<>()"'`\]]{1,1000}[^\s<>()"'`\].,;:!?*_]/y, (match) => outward(match[0], match[0])],
  [/\*\*(?=\S)([\s\S]{1,2000}?\S)\*\*/y, (match, depth) => within(element("strong"), match[1], depth)],
  [/\*(?=[^\s*])([^*]{1,2000}?[^\s*])\*(?!\*)|\*([^\s*])\*(?!\*)/y, (match, depth) => within(element("em"), match[1] || match[2], depth)],
  [/(?<![\p{L}\p{N}])_(?=\S)([^_]{1,2000}?\S|\S)_(?![\p{L}\p{N}])/yu, (match, depth) => within(element("em"), match[1], depth)],
  [/~~(?=\S)([^~]{1,1000}?)~~/y, (match, depth) => within(element("s"), match[1], depth)],
  [/ {2,99}\n|\\\n/y, () => element("br")],
];

function within(node, text, depth) {
  inline(text, node, depth + 1);
  return node;
}

export function inline(text, parent, depth = 0) {
  let plain = 0;
  let at = 0;
  while (at < text.length) {
    const next = depth > MAX_DEPTH ? null : spanAt(text, at);
    if (!next) {
      at += 1;
      continue;
    }
    const [match, make] = next;
    if (at > plain) parent.append(text.slice(plain, at));
    parent.append(make(match, depth));
    at += match[0].length;
    plain = at;
  }
  if (plain < text.length) parent.append(text.slice(plain));
}

function spanAt(text, at) {
  if (!"`\\![<h*_~ ".includes(text[at])) return null;
  for (const [pattern, make] of SPANS) {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (match) return [match, make];
  }
  return null;
}

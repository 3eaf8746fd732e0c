// Colours for source code. Every pattern matches to the end of what it began, so that no text is read twice.
import { element } from "./common.js";

const MAX_CHARS = 400_000; // longer texts stay plain
const HASH = new Set("py rb sh bash zsh yaml yml toml r pl ps1 mk cfg ini conf ex exs nix tf jl".split(" "));
const DASHES = new Set("lua sql hs elm".split(" "));
const MARKUP = new Set("html xml svg vue".split(" "));
const PROSE = new Set(["", "md", "txt", "rst", "adoc", "log", "csv", "tsv"]);
const KEYWORDS = new Set(("abstract and as assert async await begin bool boolean break byte case catch char class const continue crate def default defer delete do double dyn elif else elseif end "
  + "enum export extends extern false final finally float fn for foreach from func function global go goto if impl implements import in include inline instanceof int interface is lambda let local long loop "
  + "match mod module move mut namespace new nil none not null nullptr of operator or override package pass private protected pub public raise ref repeat require return self short signed sizeof "
  + "static string struct super switch then this throw throws trait true try type typedef typeof undefined union unless unsafe unsigned until use using var virtual void where while with yield "
  + "None True False select insert update into values create table").split(" "));

const STRINGS = /"(?:\\[^]|[^"\\\n])*"?|'(?:\\[^]|[^'\\\n])*'?/;
const COMMENTS = {
  hash: /"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|#[^\n]*/,
  dashes: /--\[\[[^]*?(?:\]\]|$)|--[^\n]*/,
  markup: /<!--[^]*?(?:-->|$)/,
  slashes: /\/\*[^]*?(?:\*\/|$)|\/\/[^\n]*|`(?:\\[^]|[^`\\])*`?/,
};

export const kindOf = (path) => (/\.([A-Za-z0-9]{1,8})$/.exec(path.split("/").pop()) || ["", ""])[1].toLowerCase();
export const isCode = (path) => !PROSE.has(kindOf(path));

function patternOf(kind) {
  const family = HASH.has(kind) ? "hash" : DASHES.has(kind) ? "dashes" : MARKUP.has(kind) ? "markup" : "slashes";
  return new RegExp(`(?<comment>${COMMENTS[family].source})|(?<string>${STRINGS.source})|(?<number>\\b\\d[\\w.]*)|(?<word>[A-Za-z_$][\\w$]*)`, "g");
}

function tokenClass({ comment, string, number, word }, text, end) {
  if (comment !== undefined) return /^("""|'''|`)/.test(comment) ? "string" : "comment";
  if (string !== undefined) return "string";
  if (number !== undefined) return "number";
  if (KEYWORDS.has(word)) return "keyword";
  return text[end] === "(" ? "name" : "";
}

// The lines of a text, each a list of texts and coloured spans, for `element.append(...line)`.
export function colouredLines(text, path) {
  if (PROSE.has(kindOf(path)) || text.length > MAX_CHARS) return text.split("\n").map((line) => [line]);
  const lines = [[]];
  const put = (part, name) => {
    part.split("\n").forEach((piece, index) => {
      if (index) lines.push([]);
      if (piece) lines.at(-1).push(name ? element("span", piece, `t-${name}`) : piece);
    });
  };
  let last = 0;
  for (const match of text.matchAll(patternOf(kindOf(path)))) {
    const name = tokenClass(match.groups, text, match.index + match[0].length);
    if (!name) continue;
    put(text.slice(last, match.index));
    put(match[0], name);
    last = match.index + match[0].length;
  }
  put(text.slice(last));
  return lines;
}

// Rows with line numbers from `first` on.
export function codeRows(lines, first, isFound = () => false) {
  return lines.map((parts, index) => {
    const line = first + index;
    const row = element("div", undefined, isFound(line) ? "row found" : "row");
    row.dataset.from = row.dataset.to = String(line);
    const number = element("span", String(line), "number");
    number.setAttribute("aria-hidden", "true");
    const text = element("span", undefined, "text");
    text.dir = "auto";
    text.append(...parts);
    row.append(number, text);
    return row;
  });
}

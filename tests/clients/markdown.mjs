// Renders Markdown by the page's own code, without a browser.
// usage: node markdown.mjs PAGE_FOLDER < '[text, ...]'; prints the shape of what came of each that is short
import { readFileSync } from "node:fs";
import { join } from "node:path";

class Node {
  constructor(name, children = []) {
    Object.assign(this, { name, childNodes: children, dataset: {}, tagName: name.toUpperCase() });
  }
  append(...nodes) { this.childNodes.push(...nodes); }
  replaceWith() {}
  setAttribute() {}
  get textContent() { return this.childNodes.map((node) => node.textContent ?? node).join(""); }
  set textContent(text) { this.childNodes = [text]; }
}

Object.assign(globalThis, {
  sessionStorage: { getItem: () => null },
  document: {
    createElement: (name) => new Node(name),
    createTextNode: (text) => text,
    createDocumentFragment: () => new Node("fragment"),
  },
});

const { rendered } = await import(join(process.argv[2], "markdown.js"));
const shape = (node) => (typeof node === "string" ? node : [node.name, ...node.childNodes.map(shape)]);
const answers = JSON.parse(readFileSync(0, "utf8")).map((text) => {
  const { fragment } = rendered(text);
  return text.length < 1000 ? fragment.childNodes.map(shape) : [];
});
console.log(JSON.stringify(answers));

// Every tool of the server with a form made from its schema, its reply, and the same call for a terminal.
import { absolute, address, call, copyButton, element, find, link, route, server, setTitle } from "./common.js";

const MAX_SHOWN = 200_000; // characters of a reply; the copy has all
const state = { rows: [], drawn: null };

export async function open(_place, { again }) {
  if (!state.rows.length || again) {
    try {
      state.rows = (await call("tools/list")).tools;
    } catch (error) {
      find("tool").replaceChildren(element("p", error.message, "lead"));
      state.drawn = null;
      return;
    }
  }
  if (route().view === "tools") draw(route().id || "search");
}

function draw(name) {
  const tool = state.rows.find((row) => row.name === name);
  const entries = (builtin) => state.rows.filter((row) => row.builtin === builtin).map((row) => {
    const entry = link(row.name, address("tools", row.name), "entry");
    if (row.name === name) entry.setAttribute("aria-current", "true");
    return entry;
  });
  const [own, further] = [entries(true), entries(false)];
  find("tool-list").replaceChildren(element("h2", "Documents"), ...own, ...(further.length ? [element("h2", "Memory and scripts"), ...further] : []));
  if (tool) setTitle(`${tool.name}, a tool`);
  const drawn = JSON.stringify([name, tool]);
  if (state.drawn === drawn) return; // a half-filled form stays, also when the list is read again
  state.drawn = drawn;
  if (tool) find("tool").replaceChildren(...toolParts(tool));
  else find("tool").replaceChildren(element("p", name ? `This server has no tool called ${name.slice(0, 80)}.` : "", "lead"));
}

function toolParts(tool) {
  const { properties = {}, required = [] } = tool.parameters || {};
  const form = element("form", undefined, "card tool-form");
  form.autocomplete = "off";
  const fields = Object.entries(properties).map(([name, schema]) => fieldOf(name, schema, required.includes(name)));
  const send = element("button", "Call it", "button main");
  send.type = "submit";
  const row = element("div", undefined, "actions");
  row.append(send);
  const further = fields.filter((field) => !field.required);
  form.append(...fields.filter((field) => field.required).map((field) => field.node));
  if (further.length) {
    const box = element("details");
    box.open = further.length === fields.length;
    box.append(element("summary", `Options (${further.length})`), ...further.map((field) => field.node));
    form.append(box);
  }
  form.append(row);
  const curl = element("pre");
  const reply = element("pre");
  const took = element("p", "", "remark");
  took.setAttribute("role", "status");
  for (const [box, label] of [[curl, "The same call for a terminal"], [reply, "Reply"]]) {
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", label);
  }
  reply.hidden = true;
  const renew = () => {
    try {
      curl.textContent = curlLine(tool.name, argumentsOf(fields));
    } catch (error) {
      curl.textContent = error.message;
    }
  };
  form.addEventListener("input", renew);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    callTool(tool, fields, reply, took, send);
  });
  renew();
  const copies = element("div", undefined, "actions");
  copies.append(copyButton("Copy the command", () => curl.textContent));
  return [element("h2", tool.name), description(tool), form, element("h3", "In a terminal"), curl, copies, took, reply];
}

const description = (tool) => {
  const node = element("p", tool.description, "note");
  node.dir = "auto";
  return node;
};

async function callTool(tool, fields, reply, took, send) {
  const began = performance.now();
  send.setAttribute("aria-disabled", "true");
  took.classList.remove("error");
  took.textContent = "Calling…";
  try {
    const answer = await call(`tools/${encodeURIComponent(tool.name)}`, argumentsOf(fields));
    const text = JSON.stringify(answer, null, 2);
    took.textContent = `Answered in ${Math.round(performance.now() - began)} ms`;
    reply.textContent = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}\n… (${text.length} characters)` : text;
    reply.hidden = false;
  } catch (error) {
    took.textContent = error.message;
    took.classList.add("error");
    reply.hidden = true;
  }
  send.removeAttribute("aria-disabled");
}

// ---- a form from a schema -------------------------------------------------------------------------------------------

// {node, name, required, read()}: read gives undefined where nothing is filled in, and throws where it does not fit.
function fieldOf(name, schema, required) {
  const node = element("div", undefined, "form-field");
  const label = element("label", name);
  const id = `field-${name}`;
  label.htmlFor = id;
  if (required) label.append(element("small", "required"));
  const input = inputOf(schema, required);
  input.id = id;
  if (schema.description) {
    const hint = element("p", schema.description, "hint");
    hint.id = `${id}-hint`;
    hint.dir = "auto";
    input.setAttribute("aria-describedby", hint.id);
    node.append(label, hint, input);
  } else {
    node.append(label, input);
  }
  return { node, name, required, read: () => valueOf(name, schema, input) };
}

function kindOf(schema) {
  if (Array.isArray(schema.enum)) return "enum";
  return Array.isArray(schema.type) ? schema.type.find((type) => type !== "null") : schema.type || "json";
}

function inputOf(schema, required) {
  const kind = kindOf(schema);
  if (kind === "enum" || kind === "boolean") {
    const select = element("select");
    const choices = kind === "enum" ? schema.enum : [true, false];
    const unset = schema.default === undefined ? "(not given)" : `(${schema.default}, the default)`;
    select.append(new Option(unset, ""), ...choices.map((choice) => new Option(String(choice), JSON.stringify(choice))));
    select.required = required;
    return select;
  }
  const simple = kind === "integer" || kind === "number";
  const input = element(simple ? "input" : "textarea");
  if (simple) {
    input.type = "number";
    input.step = kind === "integer" ? "1" : "any";
    if (schema.minimum !== undefined) input.min = schema.minimum;
    if (schema.maximum !== undefined) input.max = schema.maximum;
  } else {
    input.rows = kind === "string" ? 1 : 2;
    input.dir = "auto";
    input.spellcheck = false;
    if (kind === "string" && schema.maxLength) input.maxLength = schema.maxLength;
  }
  input.required = required;
  if (schema.default !== undefined) input.placeholder = kind === "string" ? schema.default : JSON.stringify(schema.default);
  else if (kind === "array") input.placeholder = "[…] as JSON";
  else if (kind === "object") input.placeholder = placeholderOf(schema);
  else if (kind === "json") input.placeholder = "JSON, or a text";
  return input;
}

function placeholderOf(schema) {
  const names = Object.keys(schema.properties || {});
  return names.length ? `{${names.map((name) => `"${name}": …`).join(", ")}} as JSON` : "{…} as JSON";
}

function valueOf(name, schema, input) {
  const text = input.value;
  if (text === "") return undefined;
  const kind = kindOf(schema);
  if (kind === "string") return text;
  try {
    return JSON.parse(text);
  } catch {
    if (kind === "json") return text;
    throw new Error(`${name} must be ${kind === "integer" || kind === "number" ? "a number" : "JSON"}`);
  }
}

function argumentsOf(fields) {
  const values = {};
  for (const field of fields) {
    const value = field.read();
    if (value !== undefined) values[field.name] = value;
  }
  return values;
}

export function curlLine(name, values) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const key = server.key ? " \\\n  -H \"Authorization: Bearer $CTX_KEY\"" : "";
  return `curl ${quoted(absolute(`tools/${name}`))}${key} \\\n  -H 'Content-Type: application/json' \\\n  -d ${quoted(JSON.stringify(values))}`;
}

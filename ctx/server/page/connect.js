// How to connect an editor or an agent: one client at a time, those that are installed first.
import { absolute, address, call, copyButton, element, find, link, route, server, setTitle } from "./common.js";
import { curlLine } from "./tools.js";

const OTHER = { name: "other", title: "Anything else" };
const state = { clients: [] };

export async function open(place, { again }) {
  setTitle("Connect");
  if (!state.clients.length || again) {
    try {
      state.clients = [...(await call(`clients?url=${encodeURIComponent(absolute("mcp"))}`)).clients, OTHER];
    } catch (error) {
      find("connect-list").querySelector("[aria-current]").scrollIntoView({ block: "nearest", inline: "nearest" });
  find("connect-client").replaceChildren(element("p", error.message, "lead"));
      return;
    }
  }
  if (route().view === "connect") draw(place.id);
}

function draw(name) {
  const chosen = state.clients.find((client) => client.name === name) || state.clients[0];
  find("connect-list").replaceChildren(...state.clients.map((client) => {
    const pill = link(client.title, address("connect", client.name), "chip");
    if (client === chosen) pill.setAttribute("aria-current", "true");
    if (client.installed) pill.append(element("small", "installed"));
    return pill;
  }));
  find("connect-client").replaceChildren(chosen === OTHER ? otherCard() : card(chosen));
}

function card({ name, title, file, text, then, link: install }) {
  const node = element("article", undefined, "card");
  node.append(element("h2", title), element("p", "In the project's folder, run:", "hint"), ...snippet(`ctx connect ${name}`, `command for ${title}`));
  node.append(element("p", file ? `Or put this into ${file}; it connects to this running server:` : "Or use this; it connects to this running server:", "hint"), ...snippet(text, `entry for ${title}`, install && link(`Add to ${title}`, install, "button")));
  node.append(element("p", then, "note"));
  if (server.key) node.append(element("p", `This server needs a key: ctx connect ${name} --key-env NAME writes the name of the variable that holds it, not the key.`, "note"));
  return node;
}

function otherCard() {
  const node = element("article", undefined, "card");
  node.append(element("h2", OTHER.title), element("p", "Plain HTTP; openapi.json describes every tool, llms.txt explains it in a few words.", "hint"));
  node.append(...snippet(curlLine("search", { query: "authentication" }), "command", link("Try the tools", address("tools"), "button")));
  return node;
}

function snippet(text, name, more) {
  const box = element("pre", text);
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", `The ${name}`);
  const actions = element("div", undefined, "actions");
  actions.append(copyButton("Copy", () => text, `Copy the ${name}`), ...(more ? [more] : []));
  return [box, actions];
}

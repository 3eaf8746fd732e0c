// A map of the index on a canvas: pixels are written into one image, which 50,000 points bear at every frame.
import { address, call, count, element, find, link, number, server, setTitle } from "./common.js";
import { lit } from "./search.js";

const LIT = 20; // hybrid search ranks everything: the best are what is meant
const SCALE = 10_000; // of the server's coordinates
const MARGIN = 0.04;
const MAX_ZOOM = 200;
const WITHOUT = "The map is drawn from embeddings, which are disabled on this server: set [embedding] provider in ctx.toml.";
const FRESH_MS = 10_000; // a map younger than this is not asked for again
const HUES = { light: ["#3b5bdb", "#d9480f", "#2b8a3e", "#9c36b5", "#0b7285", "#a61e4d", "#7a5b00", "#495057"], dark: ["#8aa4ff", "#ffa45c", "#69db7c", "#e599f7", "#66d9e8", "#faa2c1", "#ffe066", "#ced4da"] };
const scheme = matchMedia("(prefers-color-scheme: dark)");
export const view = { zoom: 1, x: 0.5, y: 0.5 }; // the middle of what is shown, in [0, 1]
const state = { atlas: null, hits: [], hidden: new Set(), frame: 0, drag: null, pointers: new Map(), near: -1, open: false, image: null };
export const figures = { frames: 0, drawing_ms: 0 };

const canvas = find("map-canvas");
const context = canvas.getContext("2d", { alpha: false });

export async function open(place, { again }) {
  state.open = true;
  setTitle("Map");
  const query = place.query.get("q") || "";
  find("map-query").value = query;
  find("map-frame").hidden = !state.atlas?.ids.length;
  if (server.health?.model === null) {
    find("map-frame").hidden = true;
    say(WITHOUT);
    return;
  }
  if (!state.atlas || again || Date.now() - state.drawn_ms > FRESH_MS) {
    say("Drawing the map…");
    try {
      state.atlas = columns(await call("/map"));
      state.drawn_ms = Date.now();
    } catch (error) {
      say(error.message);
      find("map-frame").hidden = true;
      return;
    }
  }
  await light(query);
  if (!state.open) return;
  find("map-frame").hidden = !state.atlas.ids.length;
  drawLegend();
  fit();
  if (state.hits.length && !state.hits.some(inSight)) all();
}

export function close() {
  state.open = false;
  cancelAnimationFrame(state.frame);
  state.frame = 0;
}

const say = (text) => { find("map-status").textContent = text; };

function columns(answer) {
  const index = new Map(answer.ids.map((id, point) => [id, point]));
  return { ...answer, index, x: Float32Array.from(answer.x, (value) => value / SCALE), y: Float32Array.from(answer.y, (value) => value / SCALE), source: Uint8Array.from(answer.source, (code) => Math.min(code, 255)) };
}

async function light(query) {
  let results = lit();
  if (query) {
    const mode = server.health?.model === null ? "keyword" : "hybrid";
    try {
      ({ results } = await call("/tools/search", { query, mode, limit: LIT }));
    } catch (error) {
      say(error.message);
      return;
    }
  }
  const shown = results.slice(0, LIT).filter((result) => state.atlas.index.has(result.id));
  state.hits = shown.map((result) => state.atlas.index.get(result.id));
  const { ids, documents } = state.atlas;
  const rest = documents - ids.length;
  const unseen = rest > 0 ? `, ${number(rest)} more are not embedded yet or too many to show` : "";
  say(ids.length ? `${count(ids.length, "document")}${unseen}${shown.length ? ` · ${number(shown.length)} lit` : ""}` : "Nothing is embedded yet, so there is nothing to draw.");
  canvas.setAttribute("aria-label", `Map of ${count(ids.length, "document")} from ${count(state.atlas.sources.length, "source")}; ${number(shown.length)} are lit and listed below`);
  find("map-hits").replaceChildren(...shown.map((result) => {
    const row = element("li");
    const target = link("", address("doc", result.id, { q: query }));
    target.append(element("bdi", result.title));
    row.append(target, " ", element("small", result.source_id));
    return row;
  }));
}

function drawLegend() {
  const totals = new Array(state.atlas.sources.length).fill(0);
  for (const code of state.atlas.source) totals[code] += 1;
  find("map-legend").replaceChildren(...state.atlas.sources.map((name, code) => {
    const chip = element("button", undefined, "chip");
    chip.type = "button";
    chip.setAttribute("aria-pressed", String(!state.hidden.has(code)));
    const dot = element("span", undefined, "swatch");
    dot.style.background = hue(code);
    chip.append(dot, element("bdi", name), element("small", number(totals[code])));
    chip.addEventListener("click", () => {
      if (!state.hidden.delete(code)) state.hidden.add(code);
      chip.setAttribute("aria-pressed", String(!state.hidden.has(code)));
      draw();
    });
    return chip;
  }));
}

const hue = (code) => HUES[scheme.matches ? "dark" : "light"][code % HUES.light.length];

// ---- drawing --------------------------------------------------------------------------------------------------------

function fit() {
  const box = canvas.getBoundingClientRect();
  const density = Math.min(2, window.devicePixelRatio || 1);
  const [width, height] = [Math.max(1, Math.round(box.width * density)), Math.max(1, Math.round(box.height * density))];
  if (canvas.width !== width || canvas.height !== height || !state.image) {
    canvas.width = width;
    canvas.height = height;
    state.image = context.createImageData(width, height);
    state.pixels = new Uint32Array(state.image.data.buffer);
    state.density = density;
  }
  draw();
}

export function draw() {
  if (!state.frame) state.frame = requestAnimationFrame(paint);
}

// A hue as it stands in memory: alpha, blue, green, red from the top.
function packed(text) {
  const value = parseInt(text.slice(1), 16);
  return (0xff000000 | ((value & 0xff) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

function paint() {
  state.frame = 0;
  if (!state.open || !state.atlas) return;
  const began = performance.now();
  const { pixels, atlas, density } = state;
  const { width, height } = canvas;
  const style = getComputedStyle(document.documentElement);
  pixels.fill(packed(style.getPropertyValue("--panel").trim()));
  const colours = Uint32Array.from({ length: atlas.sources.length }, (_, code) => packed(hue(code)));
  const size = Math.max(1, Math.round(density * (1.2 + Math.min(4, Math.log2(view.zoom) * 0.6) + Math.min(5, Math.max(0, 13 - Math.log2(atlas.ids.length + 1))))));
  const { scaleX, scaleY, left, top } = frameOf();
  const faint = state.hits.length > 0;
  for (let point = 0; point < atlas.x.length; point += 1) {
    const code = atlas.source[point];
    if (state.hidden.has(code)) continue;
    const x = (atlas.x[point] * scaleX + left) | 0;
    const y = (atlas.y[point] * scaleY + top) | 0;
    if (x < 0 || y < 0 || x + size > width || y + size > height) continue;
    for (let row = y; row < y + size; row += 1) {
      const start = row * width + x;
      for (let at = start; at < start + size; at += 1) pixels[at] = faint ? blended(pixels[at], colours[code]) : colours[code];
    }
  }
  context.putImageData(state.image, 0, 0);
  ring(style, { scaleX, scaleY, left, top });
  figures.frames += 1;
  figures.drawing_ms += performance.now() - began;
}

// Half of each: with hits lit, the others stand back.
const blended = (under, over) => (((under & 0xfefefefe) >>> 1) + ((over & 0xfefefefe) >>> 1)) | 0xff000000;

function ring(style, { scaleX, scaleY, left, top }) {
  const { atlas, density } = state;
  for (const point of [...state.hits, ...(state.near < 0 ? [] : [state.near])]) {
    const [x, y] = [atlas.x[point] * scaleX + left, atlas.y[point] * scaleY + top];
    context.beginPath();
    context.arc(x, y, (point === state.near ? 7 : 5) * density, 0, 2 * Math.PI);
    context.fillStyle = hue(atlas.source[point]);
    context.fill();
    context.lineWidth = 2 * density;
    context.strokeStyle = style.getPropertyValue("--text").trim();
    context.stroke();
  }
}

// From [0, 1] to pixels of the canvas: pixel = value * scale + offset. Up is up.
function frameOf() {
  const scaleX = canvas.width * (1 - 2 * MARGIN) * view.zoom;
  const scaleY = -canvas.height * (1 - 2 * MARGIN) * view.zoom;
  return { scaleX, scaleY, left: canvas.width / 2 - view.x * scaleX, top: canvas.height / 2 - view.y * scaleY };
}

function inSight(point) {
  const { scaleX, scaleY, left, top } = frameOf();
  const [x, y] = [state.atlas.x[point] * scaleX + left, state.atlas.y[point] * scaleY + top];
  return x >= 0 && y >= 0 && x < canvas.width && y < canvas.height;
}

// ---- moving about ---------------------------------------------------------------------------------------------------

// Zooms by a factor, holding the point of the map at (x, y), in pixels of the canvas.
export function zoom(factor, x = canvas.width / 2, y = canvas.height / 2) {
  const before = frameOf();
  const [pointX, pointY] = [(x - before.left) / before.scaleX, (y - before.top) / before.scaleY];
  view.zoom = Math.min(MAX_ZOOM, Math.max(1, view.zoom * factor));
  const after = frameOf();
  view.x += pointX - (x - after.left) / after.scaleX;
  view.y += pointY - (y - after.top) / after.scaleY;
  bound();
}

function shift(pixelsX, pixelsY) {
  const { scaleX, scaleY } = frameOf();
  view.x -= pixelsX / scaleX;
  view.y -= pixelsY / scaleY;
  bound();
}

function bound() {
  const half = 0.5 / view.zoom;
  view.x = Math.min(1 - half, Math.max(half, view.x));
  view.y = Math.min(1 - half, Math.max(half, view.y));
  draw();
}

function all() {
  Object.assign(view, { zoom: 1, x: 0.5, y: 0.5 });
  draw();
}

function place(event) {
  const box = canvas.getBoundingClientRect();
  return [(event.clientX - box.left) * state.density, (event.clientY - box.top) * state.density];
}

function nearest(x, y) {
  const { atlas } = state;
  const { scaleX, scaleY, left, top } = frameOf();
  let best = -1;
  let least = (12 * state.density) ** 2;
  for (let point = 0; point < atlas.x.length; point += 1) {
    if (state.hidden.has(atlas.source[point])) continue;
    const distance = (atlas.x[point] * scaleX + left - x) ** 2 + (atlas.y[point] * scaleY + top - y) ** 2;
    if (distance < least) [best, least] = [point, distance];
  }
  return best;
}

function point(event) {
  if (!state.atlas) return;
  const near = nearest(...place(event));
  canvas.classList.toggle("on-point", near >= 0);
  find("map-name").hidden = near < 0;
  if (near >= 0) find("map-name").textContent = `${state.atlas.titles[near]} (${state.atlas.sources[state.atlas.source[near]]})`;
  if (near !== state.near) draw();
  state.near = near;
}

function pinch(event) {
  const before = [...state.pointers.values()];
  state.pointers.set(event.pointerId, place(event));
  const after = [...state.pointers.values()];
  const gap = ([[x, y], [otherX, otherY]]) => Math.hypot(x - otherX, y - otherY) || 1;
  zoom(gap(after) / gap(before), (after[0][0] + after[1][0]) / 2, (after[0][1] + after[1][1]) / 2);
}

canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY / 300), ...place(event)); }, { passive: false });
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  state.pointers.set(event.pointerId, place(event));
  state.drag = { from: place(event), moved: false };
});
canvas.addEventListener("pointermove", (event) => {
  if (state.pointers.size === 2) return pinch(event);
  if (!state.pointers.has(event.pointerId)) return point(event);
  const [x, y] = place(event);
  const [beforeX, beforeY] = state.pointers.get(event.pointerId);
  state.pointers.set(event.pointerId, [x, y]);
  if (Math.hypot(x - state.drag.from[0], y - state.drag.from[1]) > 4 * state.density) state.drag.moved = true;
  if (state.drag.moved) shift(x - beforeX, y - beforeY);
});
for (const name of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(name, (event) => {
    state.pointers.delete(event.pointerId);
    if (name === "pointerup" && state.atlas && state.drag && !state.drag.moved) {
      const near = nearest(...place(event));
      if (near >= 0) location.hash = address("doc", state.atlas.ids[near], { q: find("map-query").value });
    }
  });
}
canvas.addEventListener("keydown", (event) => {
  const step = 60 * state.density;
  const moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
  if (moves[event.key]) shift(...moves[event.key]);
  else if (event.key === "+" || event.key === "=") zoom(1.4);
  else if (event.key === "-") zoom(1 / 1.4);
  else if (event.key === "0") all();
  else return;
  event.preventDefault();
});
find("map-in").addEventListener("click", () => zoom(1.6));
find("map-out").addEventListener("click", () => zoom(1 / 1.6));
find("map-all").addEventListener("click", all);
find("map-form").addEventListener("submit", (event) => {
  event.preventDefault();
  location.hash = address("map", "", { q: find("map-query").value.trim() });
});
window.addEventListener("resize", () => { if (state.open) fit(); });
scheme.addEventListener("change", () => { if (state.open && state.atlas) { drawLegend(); draw(); } });

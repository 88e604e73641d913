"use strict";
// Live status of the gateway. Reads server-sent events with fetch, because EventSource cannot carry a token.
// The token may be given after # in the address, which never leaves the browser, or typed in.

const byId = (id) => document.getElementById(id);
const svg = (name, attributes, text) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
};
let token = decodeURIComponent(location.hash.slice(1));

function say(text, kind) {
  byId("link").textContent = text;
  byId("link").className = "state " + kind;
}

function cell(row, text, kind) {
  const td = row.insertCell();
  td.textContent = text;
  if (kind) td.className = kind;
  return td;
}

function when(t) {
  // whole seconds since 1970 read as a date, small numbers are steps
  return typeof t === "number" && t > 1e8 ? new Date(t * 1000).toISOString().slice(0, 19).replace("T", " ") : String(t);
}

function amount(value, unit) {
  const text = typeof value === "number" ? String(+value.toPrecision(4)) : String(value);
  return unit ? `${text} ${unit}` : text;
}

function table(status) {
  const body = byId("rows");
  const ceiling = status.ceiling_bits;
  byId("ceiling").textContent = ceiling === null ? "No ceiling is set." :
    `Ceiling: ${ceiling} bits per stream. Beyond it releases no longer look at the data` +
    (status.blind ? `: ${status.blind} of ${status.released} so far.` : ".");
  byId("leaked").className = ceiling === null ? "free" : "";
  body.replaceChildren();
  for (const r of status.recent.slice(0, 50)) {
    const row = body.insertRow();
    cell(row, r.stream);
    cell(row, when(r.t));
    cell(row, r.lat === undefined ? amount(r.released, status.unit) : `${r.lat.toFixed(4)}, ${r.lon.toFixed(4)}`);
    cell(row, r.leaked_bits.toFixed(2), "number");
    const bar = cell(row, "", "share");
    if (ceiling !== null) {
      const progress = document.createElement("progress");
      progress.max = ceiling || 1;
      progress.value = r.leaked_bits;
      progress.title = `${r.leaked_bits.toFixed(2)} of ${ceiling} bits`;
      bar.append(progress);
    }
  }
}

function niceLength(km) {
  const power = 10 ** Math.floor(Math.log10(km));
  return [5, 2, 1].map((m) => m * power).find((length) => length <= km) || power;
}

function map(status) {
  const places = status.recent.filter((r) => r.lat !== undefined);
  byId("mapbox").hidden = places.length === 0;
  if (!places.length) return;
  const lats = places.map((r) => r.lat), lons = places.map((r) => r.lon);
  const mid = (Math.min(...lats) + Math.max(...lats)) / 2, middle = (Math.min(...lons) + Math.max(...lons)) / 2;
  const kmLat = 111.195, kmLon = 111.195 * Math.max(Math.cos(mid * Math.PI / 180), 0.01);
  const span = Math.max(...lats.map((v) => Math.abs(v - mid) * kmLat), ...lons.map((v) => Math.abs(v - middle) * kmLon), 0.25);
  const scale = 170 / span;
  const picture = byId("map");
  picture.replaceChildren();
  const many = new Map();
  for (const r of places) {
    const key = `${r.lat},${r.lon}`;
    many.set(key, { r, n: (many.get(key)?.n || 0) + 1 });
  }
  const dots = [...many.values()].sort((a, b) => b.n - a.n).map(({ r, n }) => ({
    r, n, x: 200 + (r.lon - middle) * kmLon * scale, y: 200 - (r.lat - mid) * kmLat * scale, size: Math.min(5 + 2 * Math.log2(n + 1), 16) }));
  // a label stands where it fits inside the picture and on nothing else, or nowhere: the dot has a title
  const taken = dots.map(({ x, y, size }) => [x - size, y + 4, 2 * size]);
  for (const { r, n, x, y, size } of dots) {
    const dot = svg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: size });
    dot.append(svg("title", {}, `${r.lat.toFixed(5)}, ${r.lon.toFixed(5)}: ${n > 1 ? `${n} streams` : r.stream}`));
    picture.append(dot);
    const text = n > 1 ? `${n} streams` : r.stream.slice(0, 18), wide = text.length * 6;
    const spots = [[size + 3, 3], [-size - 3 - wide, 3], [-wide / 2, -size - 3], [-wide / 2, size + 11]];
    const free = spots.map(([dx, dy]) => [x + dx, y + dy]).find(([left, base]) => left > 2 && left + wide < 398 && base > 12 &&
      base < 370 && !taken.some(([l, b, w]) => left < l + w && l < left + wide && Math.abs(base - b) < 11));
    if (!free) continue;
    taken.push([...free, wide]);
    picture.append(svg("text", { x: free[0].toFixed(1), y: free[1].toFixed(1) }, text));
  }
  const bar = niceLength(span / 2);
  picture.append(svg("line", { x1: 15, y1: 385, x2: 15 + bar * scale, y2: 385 }), svg("text", { x: 15, y: 378 }, `${bar} km`));
  byId("scale").textContent = "North is up. No map service is asked for tiles: it would learn the places.";
}

function show(status) {
  byId("streams").textContent = status.streams;
  byId("streams-word").textContent = status.streams === 1 ? "stream" : "streams";
  byId("rate").textContent = status.releases_per_second;
  byId("released").textContent = status.released;
  byId("repeated").textContent = status.repeated;
  const refused = Object.entries(status.refused).filter(([, n]) => n > 0);
  byId("refused").textContent = refused.reduce((a, [, n]) => a + n, 0);
  byId("why").textContent = refused.length ? ": " + refused.map(([why, n]) => `${n} ${why.replaceAll("_", " ")}`).join(", ") : "";
  const broker = status.broker_connected === null ? "none" : status.broker_connected ? "connected" : "lost";
  const version = status.broker_protocol === "3.1.1" ? " (MQTT 3.1.1: it cannot say that it refuses a release)" : "";
  byId("broker").textContent = (status.broker_trouble ?? broker) + version;
  table(status);
  map(status);
  say("live", "live");
}

async function watch() {
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const response = await fetch("v1/events", { headers });
  if (response.status === 401) {
    byId("login").hidden = false;
    say(token ? "wrong token" : "a token is needed", "lost");
    return false;
  }
  if (!response.ok) throw new Error("no events");
  byId("login").hidden = true;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return true;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    const last = parts.pop();
    if (last) show(JSON.parse(last.slice("data: ".length)));
  }
}

async function run() {
  for (;;) {
    try {
      if (!(await watch())) return;
    } catch (error) {
      if (!(error instanceof TypeError) && error.message !== "no events") throw error;
    }
    say("connection lost, trying again", "lost");
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value;
  run();
});
run();

function drawn() {
  const all = data.panels.filter((p) => !p.names).flatMap((p) => p.at);
  const span = (k) => [Math.min(...all.map((p) => p[k])), Math.max(...all.map((p) => p[k]))];
  data.panels.forEach((panel, k) => (panel.names ? named : data.map ? map : values)(panel, k, span));
  lateness();
}
function lateness() {
  const { svg, width, height } = canvas("now", 230, "bits about now, by how late releases come"), n = data.delays.length;
  const top = Math.max(...data.now.flatMap((row) => row.bits), 1e-9), right = 30;
  const X = (i) => 40 + i / (n - 1) * (width - 40 - right), Y = (v) => height - 30 - v / top * (height - 50);
  for (const v of ticks(top, 4)) {
    node(svg, "line", { class: "grid", x1: 40, x2: width - right, y1: Y(v), y2: Y(v) });
    say(svg, 34, Y(v) + 4, "end", String(v));
  }
  data.delays.forEach((name, i) => say(svg, X(i), height - 10, "middle", name));
  data.now.forEach((row, k) => {
    node(svg, "polyline", { class: `late late-${k % 3}`, points: row.bits.map((v, i) => `${X(i)},${Y(v)}`).join(" ") });
    row.bits.forEach((v, i) => node(node(svg, "circle", { class: `late late-${k % 3}`, cx: X(i), cy: Y(v), r: 2.5 }), "title", {}, `${row.name}, ${data.delays[i]}: ${number(v)} bits`));
    say(svg, X(0) + 6, Y(row.bits[0]) - 7, "start", row.name);
  });
}
function map(panel, k, span) {
  const [x0, x1] = span(0), [y0, y1] = span(1), pad = 26, wide = x1 - x0 || 1, tall = y1 - y0 || 1;
  const { svg, width, height } = canvas(`map-${k}`, (w) => Math.min(Math.max((w - 2 * pad) * tall / wide, 160), 420) + 2 * pad, `a map: ${panel.title}`);
  const scale = Math.min((width - 2 * pad) / wide, (height - 2 * pad) / tall);
  const X = (x) => width / 2 + (x - (x0 + x1) / 2) * scale, Y = (y) => height / 2 - (y - (y0 + y1) / 2) * scale;
  const all = new Map(), own = new Map();
  for (const p of data.panels.flatMap((one) => (one.names ? [] : one.at))) all.set(p.join(), p);
  for (const p of panel.at) own.set(p.join(), (own.get(p.join()) || 0) + 1);
  const part = node(svg, "g", { class: k ? "seen" : "truth" });
  for (const [x, y] of all.values()) node(part, "circle", { class: "place", cx: X(x), cy: Y(y), r: 2 });
  node(part, "polyline", { class: "way", points: panel.at.map(([x, y]) => `${X(x)},${Y(y)}`).join(" ") });
  for (const [key, n] of own) {
    const [x, y] = key.split(",").map(Number);
    node(node(part, "circle", { class: "stay", cx: X(x), cy: Y(y), r: 2 + 14 * Math.sqrt(n / panel.at.length) }), "title", {}, `${n} of ${panel.at.length} steps`);
  }
  const bar = ticks(wide / 2, 4)[1];
  node(svg, "line", { class: "axis", x1: 8, x2: 8 + bar * scale, y1: height - 8, y2: height - 8 });
  node(svg, "text", { class: "soft halo", x: 8, y: height - 14 }, `${bar} ${data.unit}`);
}
function named(panel, k) {
  const { svg, width, height } = canvas(`map-${k}`, 40 + 26 * panel.names.length, `by name: ${panel.title}`);
  const left = 16 + 8 * Math.max(...panel.names.map((s) => s.length));
  const X = (i) => left + i / panel.at.length * (width - left - 8), Y = (name) => 24 + 26 * panel.names.indexOf(name);
  for (const name of panel.names) say(svg, left - 8, Y(name) + 4, "end", name);
  node(node(svg, "g", { class: "seen" }), "path", { class: "way", d: panel.at.map((name, i) => `${i ? "L" : "M"}${X(i)},${Y(name)}H${X(i + 1)}`).join("") });
}
function values(panel, k, span) {
  const [low, high] = span(0), { svg, width, height } = canvas(`map-${k}`, 220, `step by step: ${panel.title}`);
  const X = (i) => 46 + i / panel.at.length * (width - 52), Y = (v) => height - 20 - (v - low) / (high - low || 1) * (height - 40);
  for (const v of [low, high]) say(svg, 42, Y(v) + 4, "end", number(v));
  const part = node(svg, "g", { class: k ? "seen" : "truth" });
  node(part, "path", { class: "way", d: panel.at.map(([v], i) => `${i ? "L" : "M"}${X(i)},${Y(v)}H${X(i + 1)}`).join("") });
  say(svg, 46, 12, "start", data.unit);
}
drawn();
whenResized(drawn);

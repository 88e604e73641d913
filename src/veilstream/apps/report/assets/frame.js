function drawn() {
  if (!data) return;
  const points = data.read.concat(data.released), pad = 34;
  const span = (k) => { const all = points.map((p) => p[k]); return [Math.min(...all), Math.max(...all)]; };
  if (!data.map) return values(span(0));
  const [x0, x1] = span(0), [y0, y1] = span(1), [w, h] = data.cell;
  const wide = x1 - x0 + 2 * w, tall = y1 - y0 + 2 * h;
  const { svg, width, height } = canvas("map", (w) => Math.min(Math.max((w - 2 * pad) * tall / wide, 220), 620) + 2 * pad,
    "a map of readings and the cells released for them");
  const scale = Math.min((width - 2 * pad) / wide, (height - 2 * pad) / tall);
  const X = (x) => width / 2 + (x - (x0 + x1) / 2) * scale, Y = (y) => height / 2 - (y - (y0 + y1) / 2) * scale;
  const across = Math.max(w * scale, 5), high = Math.max(h * scale, 5), [cx, cy] = data.released[0];
  if (h * scale >= 5) {  // the lattice, counted from a release
    for (let x = X(cx) % (w * scale) - w * scale / 2; x < width; x += w * scale) node(svg, "line", { class: "lattice", x1: x, x2: x, y1: 0, y2: height });
    for (let y = Y(cy) % (h * scale) - h * scale / 2; y < height; y += h * scale) node(svg, "line", { class: "lattice", x1: 0, x2: width, y1: y, y2: y });
  }
  const seen = new Map();
  data.released.forEach((p, i) => seen.set(p.join(), data.new[i]));
  for (const [key, fresh] of seen) {
    const [x, y] = key.split(",").map(Number);
    node(svg, "rect", { class: fresh ? "cell new" : "cell", x: X(x) - across / 2, y: Y(y) - high / 2, width: across, height: high });
  }
  node(svg, "polyline", { class: "read", points: data.read.map(([x, y]) => `${X(x)},${Y(y)}`).join(" ") });
  for (const [x, y] of data.read) node(svg, "circle", { class: "dot-read", cx: X(x), cy: Y(y), r: 2.2 });
  const bar = ticks(wide / 2, 4)[1];
  node(svg, "line", { class: "axis", x1: 8, x2: 8 + bar * scale, y1: height - 8, y2: height - 8 });
  node(svg, "text", { class: "soft halo", x: 8, y: height - 14 }, `${bar} ${data.unit}`);
}
function values([low, high]) {
  const { svg, width, height } = canvas("map", 300, "values read and released, step by step"), n = data.read.length;
  const X = (i) => 50 + i / n * (width - 60), Y = (v) => height - 24 - (v - low) / (high - low || 1) * (height - 44);
  const path = (of) => of.map(([v], i) => `${i ? "L" : "M"}${X(i)},${Y(v)}H${X(i + 1)}`).join("");
  for (const v of [low, high]) node(svg, "text", { class: "soft", x: 2, y: Y(v) + 4 }, number(v));
  node(svg, "text", { class: "soft", x: 50, y: 14 }, data.unit);
  node(svg, "path", { class: "true-line", d: path(data.read) });
  node(svg, "path", { class: "released-line", d: path(data.released) });
}
drawn();
whenResized(drawn);

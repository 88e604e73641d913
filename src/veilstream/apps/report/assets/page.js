(() => {
  const slider = document.getElementById("point");
  const n = data.names.length;
  const steps = data.true.length;
  const unit = data.unit ? " " + data.unit : "";
  const says = data.sampled ? "drawn from the chain" : "true";

  // --- small tools --------------------------------------------------------------------------------------
  function bytes(text) {
    const raw = atob(text), out = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
    return out;
  }
  const widest = (names) => Math.max(...names.map((s) => s.length)) * 6.6;
  // names as labels: the unit stands beside the axis, and so does what all of them are
  const bare = (name) => (data.levels_in && name.endsWith(" " + data.levels_in) ? name.slice(0, -data.levels_in.length - 1) : name).replace(/^(stop|cell) /, "");
  const brief = (name) => (bare(name).length > 16 ? bare(name).slice(0, 15) + "\u2026" : bare(name));
  const kind = data.values ? data.levels_in : data.names.some((name) => /^stop /.test(name)) ? "stop" : "";
  const names = data.names.map(brief);
  // the row of a state: values have the low ones at the bottom
  const line = (i) => (!data.values ? i : n - 1 - i);
  // releases: the states, or public points with places of their own; at: the state that each lies at
  const points = data.shown || { names: data.names, places: data.places, at: data.names.map((_, i) => i) };
  const shown = points.names.map(brief), nY = shown.length;
  // a heat map as a picture: columns x rows of bytes, shade = probability
  function heat(columns, rows, at) {
    const c = document.createElement("canvas");
    c.width = columns; c.height = rows;
    const pen = c.getContext("2d"), image = pen.createImageData(columns, rows);
    const hue = getComputedStyle(document.documentElement).getPropertyValue("--heat").trim();
    const rgb = [1, 3, 5].map((i) => parseInt(hue.slice(i, i + 2), 16));
    for (let y = 0; y < rows; y++) for (let x = 0; x < columns; x++) {
      const i = 4 * (y * columns + x);
      for (let k = 0; k < 3; k++) image.data[i + k] = rgb[k];
      image.data[i + 3] = Math.round(255 * Math.sqrt(at(x, y) / 255));
    }
    pen.putImageData(image, 0, 0);
    return c.toDataURL("image/png");
  }
  function key(svg, x, y, label) {
    x = Math.max(0, Math.min(x, svg.viewBox.baseVal.width - 162 - 7 * label.length));
    const shades = [0, 0.05, 0.25, 0.5, 1];
    shades.forEach((p, i) => {
      node(svg, "rect", { x: x + 30 * i, y, width: 30, height: 10, class: "heat-key", opacity: Math.sqrt(p) });
      node(svg, "text", { x: x + 30 * i + 15, y: y + 22, "text-anchor": "middle", class: "soft" }, String(p));
    });
    node(svg, "rect", { x, y, width: 150, height: 10, class: "box" });
    node(svg, "text", { x: x + 158, y: y + 10, class: "soft" }, label);
  }

  // --- the curve ------------------------------------------------------------------------------------------
  function drawCurve(spot, index) {
    const label = `Leakage against mean error. Chosen: ${number(spot.d)}${unit}, ${number(spot.l)} bits per step.`;
    const { svg, width, height } = canvas("curve", (w) => Math.min(400, Math.max(290, w * 0.42)), label);
    const m = { left: 54, right: 14, top: 52, bottom: 44 };
    const reach = 1.06 * Math.max(...data.curve.d, ...data.spots.map((s) => s.d), 1e-9);
    const most = 1.12 * Math.max(data.truth, ...data.spots.map((s) => s.l), 1e-9);
    const X = (d) => m.left + (d / reach) * (width - m.left - m.right);
    const Y = (l) => height - m.bottom - (l / most) * (height - m.top - m.bottom);
    for (const t of ticks(most, 5)) {
      node(svg, "line", { x1: m.left, x2: width - m.right, y1: Y(t), y2: Y(t), class: "grid" });
      node(svg, "text", { x: m.left - 6, y: Y(t) + 4, "text-anchor": "end", class: "soft" }, t);
    }
    for (const t of ticks(reach, width < 500 ? 4 : 8))
      node(svg, "text", { x: X(t), y: height - m.bottom + 17, "text-anchor": X(t) > width - 3.6 * `${t}`.length ? "end" : "middle", class: "soft" }, t);
    node(svg, "line", { x1: m.left, x2: width - m.right, y1: Y(0), y2: Y(0), class: "axis" });
    node(svg, "text", { x: (m.left + width) / 2, y: height - 8, "text-anchor": "middle" }, `mean error in the long run${data.unit ? ` (${data.unit})` : ""}`);
    node(svg, "text", { transform: `translate(14 ${(m.top + height - m.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, "leakage (bits per step)");
    node(svg, "line", { x1: m.left, x2: width - m.right, y1: Y(data.truth), y2: Y(data.truth), class: "axis", "stroke-dasharray": "2 4" });
    node(svg, "text", { x: width - m.right, y: Y(data.truth) - 5, "text-anchor": "end", class: "soft halo" }, `the truth: ${number(data.truth)}`);
    const along = (xs, ys) => xs.map((x, i) => `${X(x).toFixed(1)},${Y(ys[i]).toFixed(1)}`);
    const low = along(data.curve.x, data.curve.low), found = along(data.curve.d, data.curve.l);
    const clip = node(node(svg, "defs", {}), "clipPath", { id: "inside" });
    node(clip, "rect", { x: m.left, y: m.top, width: width - m.left - m.right, height: height - m.top - m.bottom });
    const art = node(svg, "g", { "clip-path": "url(#inside)" });
    node(art, "polygon", { points: [...low.filter((p) => +p.split(",")[0] >= X(data.curve.d[0]) - 1), ...found.slice().reverse()].join(" "), class: "band" });
    node(art, "polyline", { points: low.join(" "), class: "low" });
    node(art, "polyline", { points: found.join(" "), class: "found" });
    for (const [d, l] of data.laplace) {
      if (d <= reach && l <= most) node(svg, "rect", { x: X(d) - 3, y: Y(l) - 3, width: 6, height: 6, class: "laplace" });
    }
    data.spots.forEach((s, i) => {
      const dot = node(svg, "circle", { cx: X(s.d), cy: Y(s.l), r: 4.5, class: "dot" });
      dot.addEventListener("click", () => { slider.value = i; show(); });
      node(dot, "title", {}, `${number(s.d)}${unit}, ${number(s.l)} bits per step`);
    });
    const own = data.spots[data.own];
    node(svg, "circle", { cx: X(own.d), cy: Y(own.l), r: 9, class: "ours" });
    node(svg, "line", { x1: X(spot.d), x2: X(spot.d), y1: Y(spot.l), y2: Y(0), class: "drop" });
    node(svg, "circle", { cx: X(spot.d), cy: Y(spot.l), r: 6.5, class: "at", id: "chosen", "data-index": index });
    // legend, two rows where it is narrow
    const items = [["line", "policies found"], ["band", "certified band"], ["laplace", "planar Laplace"], ["ours", "this policy"], ["at", "chosen"]];
    let x = m.left, y = 14;
    for (const [kind, text] of items) {
      const w = 26 + text.length * 6.6 + 12;
      if (x + w > width) { x = m.left; y += 18; }
      if (kind === "line") node(svg, "line", { x1: x, x2: x + 20, y1: y - 4, y2: y - 4, class: "found" });
      if (kind === "band") node(svg, "rect", { x, y: y - 10, width: 20, height: 11, class: "band" });
      if (kind === "laplace") node(svg, "rect", { x: x + 7, y: y - 7, width: 6, height: 6, class: "laplace" });
      if (kind === "ours") node(svg, "circle", { cx: x + 10, cy: y - 4, r: 7, class: "ours" });
      if (kind === "at") node(svg, "circle", { cx: x + 10, cy: y - 4, r: 6, class: "at" });
      node(svg, "text", { x: x + 26, y }, text);
      x += w;
    }
  }

  // --- true, released, posterior over time ------------------------------------------------------------------
  function drawTrace(spot) {
    const row = Math.max(7, Math.min(22, 420 / n));
    const left = Math.min(124, 14 + widest(names));
    const top = 66, bottom = 40;
    const label = `The ${says} trace, what is released of it, and the adversary's posterior, over ${steps} steps.`;
    const { svg, width, height } = canvas("trace", top + bottom + row * n, label);
    const w = width - left - 10;
    const p = bytes(spot.posterior);
    node(svg, "image", { x: left, y: top, width: w, height: row * n, preserveAspectRatio: "none", href: heat(steps, n, (t, s) => p[t * n + line(s)]) });
    node(svg, "rect", { x: left, y: top, width: w, height: row * n, class: "box" });
    const every = Math.ceil(11 / row);
    names.forEach((name, i) => {
      if (i % every === 0) node(svg, "text", { x: left - 6, y: top + row * (line(i) + 0.5) + 4, "text-anchor": "end", class: "soft" }, name);
    });
    node(svg, "text", { x: 0, y: top - 5, class: "soft" }, kind);
    const span = data.hours ? steps * data.hours : steps;
    for (const t of ticks(span, width < 500 ? 4 : 8)) {
      const x = left + (t / span) * w;
      node(svg, "line", { x1: x, x2: x, y1: top + row * n, y2: top + row * n + 4, class: "axis" });
      if (x < width - 14) node(svg, "text", { x, y: top + row * n + 17, "text-anchor": "middle", class: "soft" }, t);
    }
    node(svg, "text", { x: left + w / 2, y: height - 6, "text-anchor": "middle" }, data.hours ? "hours" : "steps");
    const stairs = (values, shift) => values.map((s, t) => {
      const y = (top + row * (line(s) + 0.5) + shift).toFixed(1);
      return `${(left + (t / steps) * w).toFixed(1)},${y} ${(left + ((t + 1) / steps) * w).toFixed(1)},${y}`;
    }).join(" ");
    node(svg, "polyline", { points: stairs(data.true, -1.5), class: "true-line", id: "true-path" });
    node(svg, "polyline", { points: stairs(spot.released.map((y) => points.at[y]), 1.5), class: "released-line", id: "released-path" });
    node(svg, "line", { x1: left, x2: left + 26, y1: 10, y2: 10, class: "true-line" });
    node(svg, "text", { x: left + 32, y: 14 }, data.sampled ? "drawn from the chain" : "true");
    const second = left + (data.sampled ? 170 : 76);
    node(svg, "line", { x1: second, x2: second + 26, y1: 10, y2: 10, class: "released-line" });
    node(svg, "text", { x: second + 32, y: 14 }, "released");
    key(svg, left, 28, "posterior");
  }

  // --- where: a map without tiles, or bars for values -----------------------------------------------------
  function shares(values, size) {
    const out = new Array(size).fill(0);
    for (const s of values) out[s] += 1 / values.length;
    return out;
  }
  function moves(values) {
    const out = new Map();
    for (let t = 1; t < values.length; t++) if (values[t] !== values[t - 1]) {
      const k = values[t - 1] + ">" + values[t];
      out.set(k, (out.get(k) || 0) + 1);
    }
    return out;
  }
  function legend(svg, width, bars) {
    if (bars) node(svg, "rect", { x: 4, y: 4, width: 12, height: 12, class: "true-fill" });
    else node(svg, "circle", { cx: 10, cy: 10, r: 7, class: "true-fill" });
    node(svg, "text", { x: 24, y: 14 }, data.sampled ? "time there, drawn" : "time there, true");
    const x = width < 330 ? 8 : 150, y = width < 330 ? 28 : 10;
    if (bars) node(svg, "rect", { x: x + 2, y: y - 6, width: 12, height: 12, class: "released-fill" });
    else node(svg, "circle", { cx: x + 8, cy: y, r: 7, class: "released-ring" });
    node(svg, "text", { x: x + 22, y: y + 4 }, "time there, released");
  }
  function panel(svg, box, which, spot, labelled, title) {
    const at = which.map((i) => data.places[i]);
    const low = [0, 1].map((k) => Math.min(...at.map((p) => p[k]))), high = [0, 1].map((k) => Math.max(...at.map((p) => p[k])));
    const half = Math.max((high[0] - low[0]) / box.w, (high[1] - low[1]) / box.h, 1e-6) * 1.25 / 2;
    const mid = [0, 1].map((k) => (low[k] + high[k]) / 2);
    const X = (p) => box.x + box.w / 2 + (p[0] - mid[0]) / (2 * half), Y = (p) => box.y + box.h / 2 - (p[1] - mid[1]) / (2 * half);
    const id = "map" + box.x + "-" + box.y;
    node(node(svg, "clipPath", { id }), "rect", { x: box.x, y: box.y, width: box.w, height: box.h });
    const art = node(svg, "g", { "clip-path": `url(#${id})` });
    const place = (i) => [X(data.places[i]), Y(data.places[i])], point = (y) => [X(points.places[y]), Y(points.places[y])];
    for (const [values, kind, side, where] of [[data.true, "true-line", 1, place], [spot.released, "released-line", -1, point]]) {
      const counts = moves(values), most = Math.max(1, ...counts.values());
      for (const [k, c] of counts) {
        const [a, b] = k.split(">").map((i) => where(+i));
        const bend = [(a[0] + b[0]) / 2 + side * 0.1 * (b[1] - a[1]), (a[1] + b[1]) / 2 - side * 0.1 * (b[0] - a[0])];
        const flow = node(art, "path", { d: `M${a[0].toFixed(1)} ${a[1].toFixed(1)}Q${bend[0].toFixed(1)} ${bend[1].toFixed(1)} ${b[0].toFixed(1)} ${b[1].toFixed(1)}`, class: kind, opacity: 0.55 });
        flow.style.strokeWidth = (0.6 + 2 * c / most) + "px";
      }
    }
    const yes = shares(data.true, n), told = shares(spot.released, nY), near = new Array(n).fill(0);
    const taken = [];
    for (let i = 0; i < n; i++) {
      const [x, y] = place(i);
      node(art, "circle", { cx: x, cy: y, r: 2.5, class: "place" });
      if (yes[i]) node(art, "circle", { cx: x, cy: y, r: 3 + 22 * Math.sqrt(yes[i]), class: "true-fill" });
      taken.push([x - 4, y - 4, x + 4, y + 4]);
    }
    for (let k = 0; k < nY; k++) {
      const [x, y] = point(k);
      if (data.shown) node(art, "path", { d: `M${x - 3} ${y}h6M${x} ${y - 3}v6`, class: "released-line", "data-point": k });
      if (told[k]) node(art, "circle", { cx: x, cy: y, r: 3 + 22 * Math.sqrt(told[k]), class: "released-ring", "data-state": k });
      near[points.at[k]] = Math.max(near[points.at[k]], told[k]);
    }
    const order = labelled.slice().sort((i, j) => yes[j] + near[j] + data.law[j] - yes[i] - near[i] - data.law[i]);
    for (const i of order) {
      const [x, y] = place(i), w = names[i].length * 6.8, r = 6 + 22 * Math.sqrt(Math.max(yes[i], near[i]));
      const spots = [[r, 4], [-r - w, 4], [-w / 2, -r - 2], [-w / 2, r + 10], [r * 0.75, -r * 0.6], [-r * 0.75 - w, -r * 0.6], [r * 0.75, r * 0.6 + 8], [-r * 0.75 - w, r * 0.6 + 8]];
      for (const [dx, dy] of spots) {
        const area = [x + dx, y + dy - 10, x + dx + w, y + dy + 2];
        if (area[0] < box.x + 3 || area[2] > box.x + box.w - 3 || area[1] < box.y || area[3] > box.y + box.h) continue;
        if (taken.some((o) => area[0] < o[2] && o[0] < area[2] && area[1] < o[3] && o[1] < area[3])) continue;
        taken.push(area);
        node(svg, "text", { x: x + dx, y: y + dy, class: "halo" }, names[i]);
        break;
      }
    }
    node(svg, "rect", { x: box.x, y: box.y, width: box.w, height: box.h, class: "box" });
    const wide = 2 * half * box.w * 0.3, power = Math.pow(10, Math.floor(Math.log10(wide)));
    const bar = +([5, 2, 1].map((k) => k * power).find((b) => b <= wide) || power).toPrecision(1), long = bar / (2 * half);
    node(svg, "path", { d: `M${box.x + box.w - long} ${box.y + box.h + 8}v6h${long}v-6`, class: "axis" });
    node(svg, "text", { x: box.x + box.w - long - 6, y: box.y + box.h + 16, "text-anchor": "end", class: "soft" }, `${bar} km`);
    node(svg, "text", { x: box.x, y: box.y + box.h + 16, class: "soft" }, title);
    return { X, Y };
  }
  function drawMap(spot) {
    const caption = document.getElementById("map-caption");
    const all = data.names.map((_, i) => i);
    if (data.places === null) {
      caption.textContent = "Share of the example spent at each state, " + says + " and released.";
      const { svg, width, height } = canvas("map", 276 + 0.87 * widest(names), caption.textContent);
      const left = 44, top = 50, bottom = 24 + 0.87 * widest(names), yes = shares(data.true, n), told = shares(spot.released.map((y) => points.at[y]), n);
      const most = Math.max(...yes, ...told), w = (width - left - 8) / n, Y = (v) => height - bottom - (v / most) * (height - top - bottom);
      legend(svg, width, true);
      for (const t of ticks(most, 4)) {
        node(svg, "line", { x1: left, x2: width - 8, y1: Y(t), y2: Y(t), class: "grid" });
        node(svg, "text", { x: left - 6, y: Y(t) + 4, "text-anchor": "end", class: "soft" }, t);
      }
      const every = Math.ceil(16 / w);
      all.forEach((i) => {
        const x = left + w * i;
        node(svg, "rect", { x: x + 0.1 * w, y: Y(yes[i]), width: 0.4 * w, height: Y(0) - Y(yes[i]), class: "true-fill" });
        node(svg, "rect", { x: x + 0.5 * w, y: Y(told[i]), width: 0.4 * w, height: Y(0) - Y(told[i]), class: "released-fill", "data-state": i });
        if (i % every === 0) node(svg, "text", { transform: `translate(${x + w / 2 + 4} ${height - bottom + 8}) rotate(-60)`, "text-anchor": "end", class: "soft" }, names[i]);
      });
      node(svg, "text", { x: left, y: top - 12, class: "soft" }, "share of time");
      node(svg, "text", { x: width - 8, y: height - 5, "text-anchor": "end", class: "soft" }, kind);
      return;
    }
    caption.textContent = "Circles: share of the example's time; lines: moves, solid " + says + ", dashed released" + (data.shown ? "; crosses: the public points of releases" : "") + ". North is up.";
    const near = data.near === null ? null : all.filter((i) => data.near[i]);
    const two = near !== null;
    const { svg, width } = canvas("map", (w) => (two ? 2 * Math.min(w, 400) * 0.72 + (w < 330 ? 80 : 64) : Math.min(w, 460) * 0.85 + 70), caption.textContent);
    legend(svg, width);
    const top = width < 330 ? 44 : 28;
    if (!two) { panel(svg, { x: 1, y: top, w: width - 2, h: Math.min(width, 460) * 0.85 }, all, spot, all, ""); return; }
    const h = Math.min(width, 400) * 0.72;
    panel(svg, { x: 1, y: top, w: width - 2, h }, near, spot, near, "where most places are");
    panel(svg, { x: 1, y: top + h + 32, w: width - 2, h: h - 20 }, all, spot, all.filter((i) => !data.near[i]), "all places");
  }

  // --- the channel ----------------------------------------------------------------------------------------
  function drawChannel(spot) {
    const caption = document.getElementById("channel-caption");
    caption.textContent = `Probability of each release (column) given the true state (row), averaged over what the policy remembers (${spot.channel_level}).`;
    const left = Math.min(124, 14 + widest(names)) + 18;
    const box = document.getElementById("channel"), room = Math.max(280, box.clientWidth) - left - 6;
    const cell = Math.min(30, room / Math.max(n, nY)), side = cell * n, across = cell * nY;
    // public points of a map stand in the order of the places they lie at, and are called by these
    const onMap = data.shown && data.places && !data.shown.zones, order = shown.map((_, y) => y);
    if (onMap) order.sort((a, b) => points.at[a] - points.at[b]);
    const called = order.map((y) => (onMap ? names[points.at[y]] : shown[y]));
    const foot = 14 + 0.9 * widest(called);
    const { svg } = canvas("channel", 48 + side + foot + 22, caption.textContent);
    const p = bytes(spot.channel), top = 42;
    key(svg, left, 2, "probability");
    node(svg, "image", { x: left, y: top, width: across, height: side, preserveAspectRatio: "none", href: heat(nY, n, (y, x) => p[line(x) * nY + order[y]]) });
    node(svg, "rect", { x: left, y: top, width: across, height: side, class: "box" });
    const every = Math.ceil(11 / cell);
    names.forEach((name, i) => {
      if (i % every === 0) node(svg, "text", { x: left - 6, y: top + cell * (line(i) + 0.5) + 4, "text-anchor": "end", class: "soft" }, name);
    });
    called.forEach((name, i) => {
      if (i % every === 0) node(svg, "text", { transform: `translate(${left + cell * (i + 0.5) + 4} ${top + side + 8}) rotate(-65)`, "text-anchor": "end", class: "soft" }, name);
    });
    node(svg, "text", { transform: `translate(11 ${top + side / 2}) rotate(-90)`, "text-anchor": "middle" }, kind ? `true (${kind})` : "true");
    const title = onMap ? `released point, by the ${kind || "place"} it lies at` : kind ? `released (${kind})` : "released";
    node(svg, "text", { x: Math.max(left + across / 2, 3.4 * title.length), y: top + side + foot + 20, "text-anchor": "middle" }, title);
  }

  // --- one day by the hour, where there is a clock ----------------------------------------------------------
  function drawDay() {
    (data.day || []).forEach(({ kind, label, top, rows }, k) => {
      const { svg, width, height } = canvas(`day-${k}`, 144, `${label} by the hour, at most ${top}`);
      const left = 72, right = width - 18, base = height - 22, high = 32, most = Math.max(...rows.flat()) || 1;
      const X = (share) => (left + (right - left) * share).toFixed(1), Y = (v) => (base - (base - high) * v / most).toFixed(1);
      const say = (x, y, anchor, text) => node(svg, "text", { x, y, "text-anchor": anchor, class: "soft" }, text);
      node(svg, "path", { d: `M${left} ${base}H${right}`, class: "axis" });
      for (const hour of [0, 6, 12, 18, 24]) say(X(hour / 24), height - 6, "middle", `${hour}:00`);
      say(left - 6, high + 4, "end", top);
      say(left - 6, base, "end", "0");
      say(left + 4, high - 14, "start", label);
      rows.forEach((row, i) => {
        const points = row.map((v, t) => `${X(t / row.length)},${Y(v)} ${X((t + 1) / row.length)},${Y(v)}`).join(" ");
        node(svg, "polyline", { points, class: `day-${kind}`, "stroke-dasharray": i ? "5 4" : "none" });
      });
    });
  }

  // --- tables, as the page was written -------------------------------------------------------------------
  function fill(id, rows) {
    const table = document.querySelector(id + " table"), heads = [...table.tHead.rows[0].cells].map((c) => c.textContent);
    const body = table.tBodies[0];
    body.textContent = "";
    for (const cells of rows) {
      const row = body.insertRow();
      cells.forEach((text, i) => {
        const cell = document.createElement(i ? "td" : "th");
        if (!i) cell.scope = "row";
        else if (cells.length === 2) cell.colSpan = heads.length - 1;
        else cell.dataset.head = heads[i];
        cell.textContent = text;
        row.appendChild(cell);
      });
    }
  }

  // --- all together ---------------------------------------------------------------------------------------
  const put = (id, text) => { document.getElementById(id).textContent = text; };
  function show() {
    const index = +slider.value, spot = data.spots[index];
    put("short", spot.short);
    put("headline", spot.headline);
    put("command", spot.command);
    document.querySelector("#now caption").textContent =
      index === data.own ? "This policy" : `Operating point ${index + 1} of ${data.spots.length}`;
    fill("#now", spot.facts);
    fill("#rivals", spot.rivals);
    for (const part of document.querySelectorAll(".own-only")) part.hidden = index === data.own;
    slider.setAttribute("aria-valuetext", spot.short);
    document.getElementById("back").disabled = index === data.own;
    drawCurve(spot, index);
    drawTrace(spot);
    drawMap(spot);
    drawChannel(spot);
    drawDay();
  }
  slider.addEventListener("input", show);
  document.getElementById("back").addEventListener("click", () => { slider.value = data.own; show(); slider.focus(); });
  whenResized(show);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  window.addEventListener("beforeprint", show);
  window.addEventListener("afterprint", show);
  show();
})();

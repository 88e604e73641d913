const percent = (share) => `${Math.round(100 * share)}%`;

// leakage against error, both as shares, so that km and kWh stand side by side: a curve and a dot a user
function drawCurves({ users, median }) {
  const { svg, width, height } = canvas("curves", 330, "Leakage against error, one curve per user");
  const left = 46, right = width - 20, top = 12, bottom = height - 42;
  const X = (share) => left + share * (right - left), Y = (share) => bottom - share * (bottom - top);
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    node(svg, "path", { d: `M${X(share)} ${bottom}V${top}M${left} ${Y(share)}H${right}`, class: "grid" });
    say(svg, X(share), bottom + 15, "middle", percent(share));
    say(svg, left - 5, Y(share) + 4, "end", percent(share));
  }
  say(svg, (left + right) / 2, height - 8, "middle", "error, of what revealing nothing costs", "");
  say(svg, right - 4, top + 14, "end", "leakage, of what the truth reveals", "");
  const line = (curve, kind, title) => {
    const points = curve.filter(([d]) => d <= 1).map(([d, leak]) => `${X(d)},${Y(Math.min(leak, 1))}`).join(" ");
    node(node(svg, "polyline", { points, class: kind }), "title", {}, title);
  };
  for (const user of users) line(user.curve, "one " + user.kind, user.name);
  if (median) line(median, "median", "median user");
  for (const user of users) dot(svg, X(user.at[0]), Y(user.at[1]), user.kind, user.title, 3.5);
}

// later data with its interval, as a share of the limit, a line a user
function drawLimits({ users, most, label }) {
  const high = 12, tall = high + 22 * users.length, { svg, width, height } = canvas("limits", tall + 42, label);
  const left = 106, right = width - 20, X = (share) => left + Math.min(share / most, 1) * (right - left);
  node(svg, "path", { d: `M${X(1)} ${high}V${tall}`, class: "middle" });
  for (const share of ticks(most, width < 330 ? 2 : 4)) {
    node(svg, "path", { d: `M${X(share)} ${high}V${tall}`, class: "grid" });
    say(svg, X(share), tall + 15, "middle", percent(share));
  }
  users.forEach(({ name, kind, seen, title }, i) => {
    const y = high + 22 * (i + 0.5), [low, value, top] = seen.map(X);
    say(svg, left - 6, y + 4, "end", name.slice(0, 14));
    node(svg, "path", { d: `M${low} ${y}H${top}`, class: kind, "stroke-width": 2 });
    dot(svg, value, y, kind, title, 4);
  });
  say(svg, (left + right) / 2, height - 8, "middle", label, "");
}

function draw() {
  if (data.curves) drawCurves(data.curves);
  if (data.limits) drawLimits(data.limits);
}
draw();
whenResized(draw);
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, i) => {
    const text = head.textContent, button = document.createElement("button");
    button.type = "button"; button.textContent = text; head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach(h => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => row.cells[i].dataset.v ?? row.cells[i].textContent;
      const order = (a, b) => { const [x, y] = [key(a), key(b)], [p, q] = [Number(x), Number(y)];
        return x !== "" && y !== "" && !isNaN(p) && !isNaN(q) ? p - q : x.localeCompare(y); };
      body.append(...[...body.rows].sort((a, b) => up ? order(a, b) : order(b, a)));
    });
  });
}

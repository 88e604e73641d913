// what each mechanism reveals, beside ours and the floor: a line for each
function drawJudged({ rows, truth }) {
  const high = 26, each = 40, tall = high + each * rows.length;
  const { svg, width, height } = canvas("judged", tall + 42, "Bits per step of each mechanism, of ours and of the floor");
  const narrow = width < 560, left = narrow ? 12 : 215, right = width - 24;  // then names stand above their lines
  const most = Math.max(truth, ...rows.map((row) => row.bits[2])), X = (bits) => left + (bits / most) * (right - left);
  for (const bits of ticks(most, width < 500 ? 2 : 5)) {
    node(svg, "path", { d: `M${X(bits)} ${high}V${tall}`, class: "grid" });
    say(svg, X(bits), tall + 15, "middle", `${bits}`);
  }
  node(svg, "path", { d: `M${X(truth)} ${high - 6}V${tall}`, class: "axis" });
  say(svg, X(truth), high - 11, truth > most / 2 ? "end" : "start", "the truth");
  rows.forEach(({ name, error, bits, ours, floor }, i) => {
    const y = high + each * (i + (narrow ? 0.7 : 0.5));
    say(svg, narrow ? left : left - 10, y - (narrow ? 11 : 2), narrow ? "start" : "end", name, "halo");
    if (narrow) say(svg, right, y - 11, "end", error, "soft halo");
    else say(svg, left - 10, y + 13, "end", error);
    if (ours !== null) node(svg, "path", { d: `M${X(ours)} ${y}H${X(bits[1])}`, class: "axis" });
    node(svg, "path", { d: `M${X(bits[0])} ${y}H${X(bits[2])}`, class: "released", "stroke-width": 4 });
    if (floor !== null) node(svg, "path", { d: `M${X(floor)} ${y - 9}V${y + 9}`, class: "heat", "stroke-width": 2 });
    if (ours !== null) dot(svg, X(ours), y, "true", `ours at the same error: ${number(ours)} bits`, 5);
    dot(svg, X(bits[1]), y, "released", `${name}: ${number(bits[1])} bits`, 6);
  });
  say(svg, (left + right) / 2, height - 8, "middle", "bits per step", "");
}
const draw = () => drawJudged(data);
draw();
whenResized(draw);

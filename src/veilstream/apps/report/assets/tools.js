"use strict";
// what the script of every page draws with
const data = JSON.parse(document.getElementById("data").textContent);
const NS = "http://www.w3.org/2000/svg";
function node(parent, tag, attributes, text) {
  const made = document.createElementNS(NS, tag);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  parent.appendChild(made);
  return made;
}
function canvas(id, height, label) {
  const box = document.getElementById(id);
  const width = Math.max(280, Math.round(box.clientWidth) || 640);
  const tall = Math.round(typeof height === "function" ? height(width) : height);
  box.textContent = "";
  const svg = node(box, "svg", { viewBox: `0 0 ${width} ${tall}`, role: "img", "aria-label": label });
  return { svg, width, height: tall };
}
function number(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 0.1 ? value.toFixed(3) : size >= 0.001 ? value.toFixed(4) : value.toPrecision(1);
}
function ticks(high, count) {
  const rough = high / count, power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let k = 0; k * step <= high * 1.0001; k++) found.push(+(k * step).toPrecision(6));
  return found;
}
function whenResized(draw) {
  let width = window.innerWidth;
  window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; draw(); } });
}
const say = (svg, x, y, anchor, text, kind = "soft") => node(svg, "text", { x, y, "text-anchor": anchor, class: kind }, text);
const dot = (svg, x, y, kind, title, r) => node(node(svg, "circle", { cx: x, cy: y, r, class: "at-" + kind }), "title", {}, title);

// A matrix as a square of colour: red below nothing, green above; forbidden pairs hatched, the card's pairs framed.
import { element, fill, signed, figure } from "./dom.js";
import { isDark } from "./theme.js";

const CELL = 12;

export function drawHeat(id, matrix, view, { diverging, order }) {
  const count = matrix.length;
  const canvas = element("canvas", { class: "heat", width: count * CELL, height: count * CELL, tabindex: 0, role: "img",
    "aria-label": `Matrix of ${count} by ${count}; arrow keys read its cells` });
  const reading = element("p", { class: "heat-read", "aria-live": "polite" }, "Point at a cell to read it.");
  const chosen = new Set(view.best ? view.best.positions : []);
  const clash = new Set(view.conflicts.flatMap(([i, j]) => [`${i},${j}`, `${j},${i}`]));
  const largest = Math.max(1e-12, ...matrix.flat().map(Math.abs));
  const pen = canvas.getContext("2d");
  order.forEach((i, row) => order.forEach((j, column) => {
    pen.fillStyle = colour(i === j && diverging ? 0 : matrix[i][j] / largest, diverging);
    pen.fillRect(column * CELL, row * CELL, CELL, CELL);
    if (diverging && clash.has(`${i},${j}`)) hatch(pen, column * CELL, row * CELL);
    if (i !== j && chosen.has(i) && chosen.has(j)) frame(pen, column * CELL, row * CELL);
  }));
  let at = [0, 0];
  const read = (row, column) => {
    at = [row, column];
    const i = order[row], j = order[column];
    reading.textContent = i === j ? view.items[i].title
      : `${view.items[i].title} → ${view.items[j].title}: ${diverging ? signed(matrix[i][j]) : figure(matrix[i][j])}${diverging && clash.has(`${i},${j}`) ? " (forbidden)" : ""}`;
  };
  canvas.addEventListener("mousemove", (event) => {
    const cell = canvas.getBoundingClientRect().width / count;
    read(Math.min(count - 1, Math.floor(event.offsetY / cell)), Math.min(count - 1, Math.floor(event.offsetX / cell)));
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    read(...at.map((value, axis) => Math.max(0, Math.min(count - 1, value + step[axis]))));
  });
  const map = element("div", { class: "map" }, canvas, reading);
  fill(id, diverging ? element("div", { class: "heats" }, map, strongest(matrix, view, clash)) : map);
}

/** The pairs that matter most, in words. */
function strongest(matrix, view, clash) {
  const pairs = [];
  matrix.forEach((row, i) => row.forEach((value, j) => {
    if (i < j && value !== 0 && !clash.has(`${i},${j}`)) pairs.push([value, i, j]);
  }));
  pairs.sort((a, b) => b[0] - a[0]);
  const list = (title, some, kind) => some.length > 0 && [element("h3", {}, title), element("ul", {}, some.map(([value, i, j]) =>
    element("li", {}, element("span", { class: kind }, signed(value)), element("span", {}, `${view.items[i].title} · ${view.items[j].title}`))))];
  return element("div", { class: "strongest" },
    list("Better together", pairs.filter(([value]) => value > 0).slice(0, 6), "plus"),
    list("Better apart", pairs.filter(([value]) => value < 0).reverse().slice(0, 6), "minus"));
}

function colour(share, diverging) {
  const dark = isDark();
  const strength = Math.sqrt(Math.abs(share));
  const light = dark ? 14 + 48 * strength : 97 - 52 * strength;
  const hue = diverging && share < 0 ? 12 : 173;
  return `hsl(${hue} ${(15 + 55 * strength).toFixed(0)}% ${light.toFixed(0)}%)`;
}

function hatch(pen, x, y) {
  pen.strokeStyle = isDark() ? "rgb(255 255 255 / 35%)" : "rgb(0 0 0 / 28%)";
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(x, y + CELL);
  pen.lineTo(x + CELL, y);
  pen.stroke();
}

function frame(pen, x, y) {
  pen.strokeStyle = isDark() ? "#fff" : "#1f1d1a";
  pen.lineWidth = 2;
  pen.strokeRect(x + 1, y + 1, CELL - 2, CELL - 2);
}

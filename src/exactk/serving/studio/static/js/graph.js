// The constraint graph: a small spring layout in which items that clash stand near each other,
// so that a card reads as one item from each crowd. Deterministic: the same request, the same picture.
import { element, fill } from "./dom.js";

const WIDTH = 440;
const HEIGHT = 400;
const MARGIN = 34;

export function layout(count, conflicts, order) {
  const place = new Array(count);
  order.forEach((item, rank) => {
    const angle = (2 * Math.PI * rank) / count;
    place[item] = { x: Math.cos(angle), y: Math.sin(angle) };
  });
  const ideal = 1.6 / Math.sqrt(count);
  for (let round = 0; round < 160; round++) {
    const heat = 0.12 * (1 - round / 160);
    const push = place.map(() => ({ x: 0, y: 0 }));
    for (let i = 0; i < count; i++) {
      for (let j = i + 1; j < count; j++) {
        const dx = place[i].x - place[j].x, dy = place[i].y - place[j].y;
        const square = dx * dx + dy * dy + 1e-4;
        const force = (ideal * ideal) / square;
        push[i].x += dx * force; push[i].y += dy * force;
        push[j].x -= dx * force; push[j].y -= dy * force;
      }
    }
    for (const [i, j] of conflicts) {
      const dx = place[i].x - place[j].x, dy = place[i].y - place[j].y;
      const pull = Math.hypot(dx, dy) / ideal;
      push[i].x -= dx * pull; push[i].y -= dy * pull;
      push[j].x += dx * pull; push[j].y += dy * pull;
    }
    place.forEach((p, i) => {
      push[i].x -= p.x * 0.6; push[i].y -= p.y * 0.6; // towards the middle, so that nothing drifts away
      const length = Math.hypot(push[i].x, push[i].y) + 1e-9;
      const step = Math.min(heat, length);
      p.x += (push[i].x / length) * step; p.y += (push[i].y / length) * step;
    });
  }
  return scaled(place);
}

function scaled(place) {
  const range = (key) => {
    const values = place.map((p) => p[key]);
    const low = Math.min(...values), high = Math.max(...values);
    return [low, high - low || 1];
  };
  const [left, width] = range("x"), [top, height] = range("y");
  return place.map((p) => ({
    x: MARGIN + ((p.x - left) / width) * (WIDTH - 2 * MARGIN),
    y: MARGIN + ((p.y - top) / height) * (HEIGHT - 2 * MARGIN),
  }));
}

export function drawGraph(view, hue, places, showConflicts, tell) {
  const chosen = new Set(view.best ? view.best.positions : []);
  const clash = new Set(view.conflicts.map(([i, j]) => `${i},${j}`));
  const gone = new Set(view.excluded);
  const quiet = [], lit = [];
  for (let i = 0; i < view.items.length; i++) {
    for (let j = i + 1; j < view.items.length; j++) {
      const forbidden = clash.has(`${i},${j}`);
      const both = chosen.has(i) && chosen.has(j);
      if (both) lit.push(line(places, i, j, "lit"));
      else if (forbidden === showConflicts) quiet.push(line(places, i, j, forbidden ? "conflict" : ""));
    }
  }
  const named = view.items.length <= 14 ? view.items.map((_, i) => i) : [...chosen];
  const names = labels(view, named, places);
  const nodes = view.items.map((item, i) => node(item, i, places[i], hue(item), chosen.has(i), gone.has(i), view, names.get(i), tell));
  walkable([...nodes]);
  nodes.sort((a, b) => Number(a.classList.contains("in")) - Number(b.classList.contains("in")));
  fill("graph", element("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group",
    "aria-label": `Graph of ${view.items.length} candidates; ${view.conflicts.length} pairs are forbidden; the card is lit`,
  }, ...quiet, ...lit, ...nodes));
}

function line(places, i, j, kind) {
  return element("line", {
    x1: places[i].x.toFixed(1), y1: places[i].y.toFixed(1), x2: places[j].x.toFixed(1), y2: places[j].y.toFixed(1),
    class: kind || null, "data-a": i, "data-b": j,
  });
}

/** One stop for the Tab key; from there the arrow keys go to the nearest item in their direction. */
function walkable(nodes) {
  const at = (node) => ["cx", "cy"].map((name) => Number(node.firstChild.getAttribute(name)));
  const stop = nodes.find((node) => node.classList.contains("in")) || nodes[0];
  stop?.setAttribute("tabindex", "0");
  for (const node of nodes) {
    node.addEventListener("keydown", (event) => {
      const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
      if (!way) return;
      event.preventDefault();
      const [x, y] = at(node);
      const distance = (other) => {
        const [dx, dy] = [at(other)[0] - x, at(other)[1] - y];
        const ahead = dx * way[0] + dy * way[1], aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
        return ahead > 0 ? ahead + 2 * aside : Infinity;
      };
      const next = nodes.reduce((best, other) => (distance(other) < distance(best) ? other : best), node);
      nodes.forEach((each) => each.setAttribute("tabindex", each === next ? "0" : "-1"));
      next.focus();
    });
  }
}

const radius = (view, i) => 5 + 6 * view.share[i];

/** A place for each name: above its item, or the nearest place above or below that no other name takes. */
function labels(view, named, places) {
  const taken = [], found = new Map();
  for (const i of [...named].sort((a, b) => places[a].y - places[b].y)) {
    const text = shortened(view.items[i].title), half = 3.2 * text.length;
    const x = Math.max(half, Math.min(WIDTH - half, places[i].x));
    const above = places[i].y - radius(view, i) - 5, below = places[i].y + radius(view, i) + 13;
    const free = (y) => taken.every((other) => Math.abs(other.y - y) > 14 || Math.abs(other.x - x) > half + other.half);
    const y = [above, below, above - 15, below + 15, above - 30, below + 30].find((each) => free(each) && each > 10 && each < HEIGHT - 2) ?? above;
    taken.push({ x, y, half });
    found.set(i, { x: x.toFixed(1), y: y.toFixed(1), text });
  }
  return found;
}

function node(item, i, at, colour, isIn, isGone, view, name, tell) {
  return element("g", {
    class: `node${isIn ? " in" : ""}${isGone ? " gone" : ""}`, style: { "--hue": colour }, "data-position": i,
    tabindex: -1, role: "button", "aria-label": `${item.title}${isIn ? ", in the card" : ""}`,
    onmouseenter: () => tell(i), onfocus: () => tell(i), onclick: () => tell(i),
  },
  element("circle", { cx: at.x.toFixed(1), cy: at.y.toFixed(1), r: radius(view, i).toFixed(1) }),
  name ? element("text", { x: name.x, y: name.y }, name.text) : null);
}

const shortened = (title) => (title.length > 18 ? title.slice(0, 17) + "…" : title);

/** Show what one item touches. */
export function light(position) {
  document.querySelectorAll("#graph line").forEach((each) => {
    const touches = each.dataset.a === String(position) || each.dataset.b === String(position);
    each.classList.toggle("near", touches && !each.classList.contains("lit"));
  });
}

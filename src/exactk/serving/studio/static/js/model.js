// The model's own story: facts, training curves, the comparison table, where its folder holds them.
import { ask } from "./api.js";
import { element, figure, fill, find } from "./dom.js";

export async function drawModel() {
  const model = await ask("/v1/studio/model");
  find("model-section").hidden = !model.loaded;
  if (!model.loaded) return model;
  fill("model-facts", Object.entries(model.facts).map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, typeof value === "number" ? figure(value) : String(value)))));
  fill("curves", model.curves.map(curve));
  const table = model.comparison;
  fill("comparison", table && element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, table.columns.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, table.rows.map((row, index) => element("tr", { class: index === table.ours ? "ours" : null },
      row.map((cell) => element("td", {}, typeof cell === "number" ? figure(cell) : cell ?? "–"))))))));
  return model;
}

function curve({ name, values }) {
  const width = 300, height = 110, low = Math.min(...values), high = Math.max(...values), span = high - low || 1;
  const x = (i) => (values.length < 2 ? width / 2 : (i / (values.length - 1)) * width);
  const y = (value) => 8 + (1 - (value - low) / span) * (height - 16);
  const path = values.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  return element("figure", {},
    element("figcaption", {}, `${name}: ${figure(values[values.length - 1])}`),
    element("svg", { viewBox: `0 0 ${width} ${height + 16}`, role: "img", "aria-label": `${name} over ${values.length} reports, from ${figure(values[0])} to ${figure(values[values.length - 1])}` },
      element("line", { class: "axis", x1: 0, x2: width, y1: height, y2: height }),
      element("path", { d: path }),
      element("text", { x: 0, y: height + 14 }, "start"),
      element("text", { x: width, y: height + 14, "text-anchor": "end" }, `${values.length} reports`)));
}

// Making elements: one function, so that no text from a request is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "line", "circle", "text", "path", "title", "rect"]);

/** element("li", {class: "x", onclick: f}, "text", child, ...) */
export function element(tag, attributes = {}, ...children) {
  const made = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") Object.entries(value).forEach(([key, text]) => made.style.setProperty(key, text));
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const find = (id) => document.getElementById(id);

export function fill(id, ...children) {
  find(id).replaceChildren(...children.flat().filter(Boolean));
}

/** Three significant digits read well; whole numbers stay whole. */
export function figure(value) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) < 1e-9) return "0"; // rounding, not a figure
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 100 ? value.toFixed(1) : String(Number(value.toPrecision(3)));
}

export const signed = (value) => (value < 0 ? "−" : "+") + figure(Math.abs(value));

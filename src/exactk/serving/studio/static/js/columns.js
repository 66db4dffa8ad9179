// What came along with the request: its context as chips, its columns with their readers, and what is not read.
import { element, fill, find } from "./dom.js";

export function drawColumns(view, byModel) {
  const context = Object.entries(view.context);
  fill("context", context.map(([name, value]) => element("li", {}, element("span", {}, name), ` ${value}`)));
  find("context").hidden = context.length === 0;
  const who = byModel ? "The model does not read" : "No rule reads";
  fill("unread",
    view.unread.length > 0 && element("p", {}, `${who}: ${view.unread.join(", ")}.`),
    view.lacking.length > 0 && element("p", {}, `The model misses, and takes for unknown: ${view.lacking.join(", ")}.`));
  find("columns").hidden = view.columns.length === 0;
  find("columns-summary").textContent = `${view.columns.length} column${view.columns.length === 1 ? "" : "s"} and who reads them`;
  fill("columns-table", view.columns.map((column) => element("tr", { class: column.read_by.length ? null : "idle" },
    element("th", { scope: "row" }, column.name, column.of === "request" && element("small", {}, " of the request")),
    element("td", {}, column.read_by.length ? column.read_by.map((reader) => element("span", {}, reader)) : "nobody"))));
}

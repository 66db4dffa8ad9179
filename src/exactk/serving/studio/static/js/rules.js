// The switches: each rule on or off, with how many pairs it forbids here; wishes as chips.
import { element, find, fill } from "./dom.js";

export function drawRules(rules, on, view, flip) {
  const blocking = new Set(view && view.problem ? view.problem.blocking || [] : []);
  const field = find("rules");
  const focused = field.contains(document.activeElement) ? document.activeElement.dataset.rule : null;
  field.replaceChildren(field.querySelector("legend"), ...(rules.length ? rules.map((rule, index) =>
    element("label", { class: `rule${blocking.has(rule.name) ? " blocking" : ""}` },
      element("input", { type: "checkbox", class: "switch", role: "switch", checked: on[index], "data-rule": index, onchange: () => flip(index) }),
      element("span", {}, rule.name),
      element("small", {}, rule.counts))) : [element("p", { class: "hint" }, "None: every pair may stand together.")]));
  if (focused !== null) field.querySelector(`[data-rule="${focused}"]`)?.focus();
}

export function drawWishes(items, wishes, wish) {
  const title = new Map(items.map((item) => [item.item_id, item.title]));
  const chips = (kind, ids) => [...ids].map((id) => element("button", {
    type: "button", class: `wish ${kind}`, "aria-label": `Take back: ${kind} ${title.get(id)}`, onclick: () => wish(kind, id),
  }, `${kind} ${title.get(id)} ×`));
  fill("wishes", ...chips("must", wishes.include), ...chips("never", wishes.exclude));
}

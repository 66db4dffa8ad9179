// The switches: each rule on or off, with what it does here and what keeping it costs; wishes as chips.
import { element, figure, find, fill } from "./dom.js";

export function drawRules(rules, on, view, flip) {
  const blocking = new Set(view.problem ? view.problem.blocking || [] : []);
  const field = find("rules");
  const focused = field.contains(document.activeElement) ? document.activeElement.dataset.rule : null;
  field.replaceChildren(field.querySelector("legend"), ...(rules.length ? rules.map((rule, index) =>
    element("label", { class: `rule${blocking.has(rule.name) && on[index] ? " blocking" : ""}` },
      element("input", { type: "checkbox", class: "switch", role: "switch", checked: on[index], "data-rule": index, onchange: () => flip(index) }),
      element("span", {}, rule.name, element("small", { class: rule.kept === false ? "broken-here" : null }, standing(rule, on[index])))))
    : [element("p", { class: "hint" }, "None: every card may be shown.")]));
  if (focused !== null) field.querySelector(`[data-rule="${focused}"]`)?.focus();
}

/** What the card holds of it; what keeping it costs where it is on; where it is off, whether the card keeps it anyway. */
function standing(rule, isOn) {
  const cost = rule.cost === null ? "" : rule.cost > 0 ? `without it ${figure(rule.cost)} more` : "costs nothing here";
  const off = rule.kept === null ? "off" : rule.kept ? "off, kept all the same" : "off, and broken";
  return [rule.says, isOn ? cost : off].filter(Boolean).join(" · ");
}

export function drawWishes(items, wishes, wish) {
  const title = new Map(items.map((item) => [item.item_id, item.title]));
  const chips = (kind, ids) => [...ids].map((id) => element("button", {
    type: "button", class: `wish ${kind}`, "aria-label": `Take back: ${kind} ${title.get(id)}`, onclick: () => wish(kind, id),
  }, `${kind} ${title.get(id)} ×`));
  fill("wishes", ...chips("must", wishes.include), ...chips("never", wishes.exclude));
}

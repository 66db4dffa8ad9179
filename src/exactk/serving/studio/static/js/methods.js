// Our card beside the others': what each would have shown, and what it is worth under the same value.
import { breaking } from "./cards.js";
import { element, figure, fill } from "./dom.js";

export function drawMethods(view, hue, tell) {
  const known = view.methods.map((method) => method.value).filter((value) => value !== null);
  const top = Math.max(...known);
  fill("methods", view.methods.map((method) => {
    const broken = !method.valid;
    const clashing = new Set(method.clashes.flat());
    // Below zero (log-probabilities) the nearer to zero the better: -15 beside -16 fills 15/16.
    const ratio = top > 0 ? method.value / top : top / method.value;
    const share = method.value === null || !Number.isFinite(ratio) ? 0 : Math.max(0, Math.min(1, ratio));
    return element("div", { class: `method${method.key === "exact" ? " ours" : ""}${broken ? " broken" : ""}`, "data-method": method.key },
      element("span", { class: "name" }, method.name),
      element("span", { class: "items" }, method.positions.map((position) => {
        const item = view.items[position];
        return element("span", {
          class: `chip${clashing.has(position) ? " clash" : ""}`, title: item.title, style: { "--hue": hue(item) },
          onmouseenter: () => tell(position),
        }, item.title);
      }), Array.from({ length: method.missing }, () => element("span", { class: "chip empty" }, "nothing fits"))),
      element("span", { class: "value" }, figure(method.value)),
      element("div", { class: "bar" }, element("i", { style: { width: `${(100 * share).toFixed(1)}%` } })),
      element("span", { class: "note" }, [method.note, ...method.broken.map(breaking)].join("; ")));
  }));
}

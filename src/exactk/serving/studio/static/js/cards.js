// Items: the tiles of the card, the candidates below, and the panel that says why.
import { element, figure, fill, find, signed } from "./dom.js";

export function drawCard(view, hue, tell) {
  if (!view.best) {
    const blocking = view.problem.blocking || [];
    fill("card", element("li", { class: "none" }, element("b", {}, view.problem.title),
      blocking.length ? [
        element("p", {}, "Together these forbid one. Lift any of them and a card exists:"),
        element("ul", {}, blocking.map((name) => element("li", {}, name)))] : element("p", {}, view.problem.detail)));
    fill("proof");
    fill("preferences");
    return;
  }
  const places = view.best.in_places;
  fill("card", view.best.positions.map((position, place) => {
    const item = view.items[position];
    return element("li", { class: "tile", style: { "--hue": hue(item) }, onmouseenter: () => tell(position), onclick: () => tell(position) },
      places && element("span", { class: "place" }, `place ${place + 1}`),
      element("b", {}, item.title),
      element("small", {}, element("span", {}, item.category), element("span", {}, figure(view.scores[position]))));
  }));
  const proven = view.best.optimal;
  fill("proof", element("span", {}, "worth "), element("b", {}, figure(view.best.value)), " · ",
    element("span", { class: proven ? "seal" : "open" }, proven ? view.best.proof : view.best.bound === null ? view.best.proof : `at most ${figure(view.best.bound)}`),
    element("span", {}, ` · ${figure(view.best.ms)} ms`));
  fill("preferences", view.best.broken.map((one) => element("li", {}, breaking(one))));
}

/** A broken preference in words. */
export function breaking({ rule, times, cost }) {
  const often = times === 1 ? "once" : times === 2 ? "twice" : `${times} times`;
  return `${rule}: broken ${often}, −${figure(cost)}`;
}

export function drawCandidates(view, hue, order, wishes, tell, wish) {
  const chosen = new Set(view.best ? view.best.positions : []);
  fill("candidates", sorted(view, order).map((i) => {
    const item = view.items[i];
    const must = wishes.include.has(item.item_id), never = wishes.exclude.has(item.item_id);
    return element("li", {
      class: `candidate${chosen.has(i) ? " in" : ""}${never ? " gone" : ""}`, style: { "--hue": hue(item) }, "data-position": i,
      onmouseenter: () => tell(i),
    },
    element("button", { class: "who", type: "button", onfocus: () => tell(i), onclick: () => tell(i) }, item.title),
    element("small", {}, element("span", {}, item.category), element("span", {}, status(view, i, chosen))),
    element("div", { class: "bar" }, element("i", { style: { width: `${(100 * view.share[i]).toFixed(1)}%` } })),
    element("small", {}, element("span", {}, `score ${figure(view.scores[i])}`),
      element("span", { class: "acts" }, act("must", must, item, wish), act("never", never, item, wish))));
  }));
}

function act(kind, pressed, item, wish) {
  return element("button", {
    type: "button", class: kind, "aria-pressed": String(pressed),
    "aria-label": `${item.title}: ${kind === "must" ? "must be on the card" : "never on the card"}`,
    onclick: () => wish(kind, item.item_id),
  }, kind);
}

function status(view, i, chosen) {
  if (chosen.has(i)) return "on the card";
  const why = view.why[i];
  if (!why || why.cost === null) return why && why.text.startsWith("Not") ? "not worked out" : "fits no card";
  return `costs ${why.cost < 1e-4 ? "under 0.0001" : figure(why.cost)}`;
}

function sorted(view, order) {
  const all = view.items.map((_, i) => i);
  const cost = (i) => (view.why[i] && view.why[i].cost !== null ? view.why[i].cost : Infinity);
  const by = {
    score: (a, b) => view.scores[b] - view.scores[a],
    cost: (a, b) => cost(a) - cost(b) || view.scores[b] - view.scores[a],
    category: (a, b) => view.items[a].category.localeCompare(view.items[b].category) || view.scores[b] - view.scores[a],
    position: (a, b) => a - b,
  };
  return all.sort(by[order]);
}

export function tellWhy(view, i) {
  const item = view.items[i], why = view.why[i];
  find("why-title").textContent = item.title;
  document.querySelectorAll(".told").forEach((each) => each.classList.remove("told"));
  document.querySelectorAll(`[data-position="${i}"]`).forEach((each) => each.classList.add("told"));
  fill("why", element("p", { class: "verdict" }, why.text),
    why.blockers.length > 0 && element("ul", {}, why.blockers.map((blocker) =>
      element("li", {}, element("b", {}, view.items[blocker.position].title), " is on the card: ", blocker.rules.join("; ")))),
    why.blocking.length > 0 && element("ul", {}, why.blocking.map((name) => element("li", {}, "Ruled out by: ", name))),
    why.swap && element("p", { class: "hint" }, "The best card with it: ", why.swap.map((p) => view.items[p].title).join(" · ")),
    why.pairs.length > 0 && element("p", { class: "hint" }, "With the card’s items it adds ",
      why.pairs.map((pair) => `${signed(pair.value)} with ${view.items[pair.position].title}`).join(", "), "."),
    element("p", { class: "attributes" }, Object.entries(item.attributes).map(([name, value]) => `${name}: ${value}`).join(" · ")));
  tellHere(i);
}

/** On a narrow screen the panel is out of sight: say it in the candidate itself, too. */
function tellHere(i) {
  document.querySelectorAll(".here").forEach((each) => each.remove());
  if (!matchMedia("(max-width: 760px)").matches) return;
  const place = document.querySelector(`.candidate[data-position="${i}"]`);
  place?.append(element("div", { class: "here", "aria-hidden": "true" }, [...find("why").childNodes].map((node) => node.cloneNode(true))));
}

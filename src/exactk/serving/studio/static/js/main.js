// The studio: one request held in `state`, one question to the service per change, every panel drawn from its answer.
import { ask, Refused } from "./api.js";
import { drawCandidates, drawCard, tellWhy } from "./cards.js";
import { drawChanges } from "./changes.js";
import { hues } from "./colours.js";
import { drawColumns } from "./columns.js";
import { element, fill, find } from "./dom.js";
import { drawGraph, layout, light } from "./graph.js";
import { drawHeat } from "./heatmap.js";
import { drawMethods } from "./methods.js";
import { drawModel } from "./model.js";
import { drawRules, drawWishes } from "./rules.js";
import { startTheme } from "./theme.js";

const state = { request: null, rules: [], on: [], k: 4, wishes: { include: new Set(), exclude: new Set() }, view: null, conflictsShown: false, unfolded: false, pending: null };

async function start() {
  startTheme();
  listen();
  await guarded(async () => {
    const { sources, model } = await ask("/v1/studio/sources");
    fill("source", sources.map((source) => element("option", { value: source.key }, source.name)));
    find("scored-by-field").hidden = !model;
    await Promise.all([chooseSource(), drawModel()]);
  });
}

async function chooseSource() {
  const { requests } = await ask(`/v1/studio/requests/${find("source").value}`);
  fill("request", requests.map((request) => element("option", { value: request.index }, request.name)));
  await chooseRequest();
}

async function chooseRequest() {
  open(await ask(`/v1/studio/requests/${find("source").value}/${find("request").value}`));
}

/** Take a request up: all its rules on, no wishes, its own K. */
function open(request) {
  state.request = request;
  state.on = request.constraints.map(() => true);
  state.wishes = { include: new Set(request.include || []), exclude: new Set(request.exclude || []) };
  state.k = request.k;
  find("lesson").textContent = request.lesson || "";
  find("scored-by").value = request.user == null || find("scored-by-field").hidden ? "given" : "model"; // a model needs a user
  find("k").max = Math.max(2, Math.min(12, request.items.length));
  find("k").value = state.k;
  return update();
}

/** Ask for everything about the request as it stands now; a newer change overtakes an older one. `cause`: what changed. */
function update(cause = "") {
  return guarded(async () => {
    state.pending?.abort();
    state.pending = new AbortController();
    const { request, on, wishes, k } = state;
    const body = {
      k, items: request.items, scores: request.scores, pair_scores: request.pair_scores, user: request.user,
      user_features: request.user_features, context: request.context, constraints: request.constraints.map((rule, index) => ({ rule, on: on[index] })),
      include: [...wishes.include], exclude: [...wishes.exclude],
      scored_by: find("scored-by-field").hidden ? "given" : find("scored-by").value,
    };
    const view = await ask("/v1/studio/view", body, state.pending.signal).catch((error) => {
      if (body.scored_by === "given" || !(error instanceof Refused)) throw error;
      find("scored-by").value = "given"; // ids of another kind than the model's: its own scores still tell a story
      return ask("/v1/studio/view", { ...body, scored_by: "given" }, state.pending.signal);
    });
    const before = state.view;
    state.view = view;
    const same = before && before.items.length === view.items.length && before.items.every((item, i) => item.item_id === view.items[i].item_id);
    drawChanges(same ? before : null, view, cause);
    draw(!same || JSON.stringify(before.conflicts) !== JSON.stringify(view.conflicts), !same);
  });
}

function draw(moved, fresh) {
  const { view } = state;
  const hue = hues(view.items);
  if (moved) {
    const order = view.items.map((_, i) => i).sort((a, b) => view.items[a].category.localeCompare(view.items[b].category) || a - b);
    state.order = order;
    state.places = layout(view.items.length, view.conflicts, order);
  }
  if (fresh) {
    state.conflictsShown = view.items.length > 20;
    state.told = null;
    find("why-title").textContent = "Why?";
    fill("why", element("p", { class: "hint" }, "Point at an item, or reach it with Tab, to read why it is on the card, or what keeps it off."));
  }
  const most = view.items.length - state.wishes.exclude.size; // a card cannot hold more than is left
  find("k-shown").textContent = state.k > most ? `${Math.max(most, 1)}, all there are` : state.k;
  drawRules(view.rules, state.on, view, (index) => {
    state.on[index] = !state.on[index];
    update(`${view.rules[index].name} ${state.on[index] ? "on" : "off"}`);
  });
  drawColumns(view, find("scored-by").value === "model");
  drawWishes(view.items, state.wishes, wish);
  drawCard(view, hue, tell);
  drawMethods(view, hue, tell);
  drawCandidatesNow();
  drawGraphNow();
  drawMatrices();
  if (state.told !== null && state.told !== undefined) tell(state.told);
}

function drawCandidatesNow() {
  const kept = find("candidates").contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") || document.activeElement.textContent : null;
  const many = state.view.items.length > 14; // on a narrow screen the first twelve will do at first
  find("unfold").textContent = `Show all ${state.view.items.length}`;
  find("candidates").classList.toggle("folded", many && !state.unfolded);
  drawCandidates(state.view, hues(state.view.items), find("order").value, state.wishes, tell, wish);
  if (kept) [...find("candidates").querySelectorAll("button")].find((each) => (each.getAttribute("aria-label") || each.textContent) === kept)?.focus();
}

function drawGraphNow() {
  const { view, places, conflictsShown } = state;
  find("show-allowed").setAttribute("aria-pressed", String(!conflictsShown));
  find("show-conflicts").setAttribute("aria-pressed", String(conflictsShown));
  const hue = hues(view.items);
  drawGraph(view, hue, places, conflictsShown, tell);
  find("no-conflicts").hidden = view.conflicts.length > 0;
  find("no-conflicts").textContent = `No pair is forbidden${view.rules.length ? ": the rules that are on are about whole cards" : ""}.`;
  const categories = [...new Map(view.items.map((item) => [item.category, item])).values()].filter((item) => item.category);
  fill("legend", categories.slice(0, 12).map((item) => element("li", {}, element("i", { style: { "--hue": hue(item) } }), item.category)));
}

function drawMatrices() {
  const { view, order } = state;
  find("pairs-section").hidden = !view.pair_scores;
  if (view.pair_scores) drawHeat("pairs", view.pair_scores, view, { diverging: true, order });
  find("influence-section").hidden = !view.influence;
  if (view.influence) drawHeat("influence", view.influence, view, { diverging: true, order });
  find("attention-section").hidden = !view.attention;
  if (view.attention) drawHeat("attention", view.attention, view, { diverging: false, order });
}

function tell(position) {
  if (position >= state.view.items.length) return;
  state.told = position;
  tellWhy(state.view, position);
  light(position);
}

function wish(kind, id) {
  const [asked, other] = kind === "must" ? ["include", "exclude"] : ["exclude", "include"];
  if (!state.wishes[asked].delete(id)) {
    state.wishes[asked].add(id);
    state.wishes[other].delete(id);
  }
  const { title } = state.view.items.find((item) => item.item_id === id);
  update(`${title}: ${state.wishes[asked].has(id) ? kind : "as you like"}`);
}

function listen() {
  find("source").addEventListener("change", () => guarded(chooseSource));
  find("request").addEventListener("change", () => guarded(chooseRequest));
  find("previous").addEventListener("click", () => step(-1));
  find("next").addEventListener("click", () => step(1));
  find("k").addEventListener("input", () => { state.k = Number(find("k").value); update(`${state.k} items`); });
  find("scored-by").addEventListener("change", () => update());
  find("order").addEventListener("change", drawCandidatesNow);
  find("unfold").addEventListener("click", () => {
    state.unfolded = true;
    drawCandidatesNow();
    find("candidates").children[12].querySelector("button").focus({ preventScroll: true });
  });
  for (const [id, shown] of [["show-allowed", false], ["show-conflicts", true]]) {
    find(id).addEventListener("click", () => { state.conflictsShown = shown; drawGraphNow(); });
  }
  document.addEventListener("theme", () => state.view && drawMatrices());
  find("paste").addEventListener("click", () => {
    const { name, lesson, ...plain } = state.request || {};
    find("paste-text").value = JSON.stringify(plain, null, 1);
    find("paste-error").textContent = "";
    find("paste-dialog").showModal();
  });
  find("paste-use").addEventListener("click", usePasted);
}

function step(by) {
  const list = find("request");
  list.selectedIndex = (Math.max(list.selectedIndex, by < 0 ? 0 : -1) + by + list.length) % list.length;
  guarded(chooseRequest);
}

async function usePasted(event) {
  event.preventDefault();
  try {
    const request = await ask("/v1/studio/read", JSON.parse(find("paste-text").value));
    find("paste-dialog").close();
    find("request").selectedIndex = -1; // none of the list: each of them can be chosen again
    await open(request);
  } catch (error) {
    find("paste-error").textContent = error instanceof SyntaxError ? `Not JSON: ${error.message}` : error.message;
  }
}

/** Run, and say on the page what went wrong. */
async function guarded(action) {
  try {
    await action();
    find("message").hidden = true;
  } catch (error) {
    if (error.name === "AbortError") return;
    find("message").textContent = error instanceof Refused ? error.message : `The service cannot be reached (${error.message}).`;
    find("message").hidden = false;
  }
}

start();

// What the last change did: the card's worth before and after, which items came and which went.
import { element, figure, fill, signed } from "./dom.js";

/** `before` is the view that `view` took the place of, of the same candidates; `cause` what was changed, in words. */
export function drawChanges(before, view, cause) {
  if (!before || !cause) return fill("changed");
  if (!view.best) return fill("changed", element("b", {}, cause), ": no valid card is left.");
  if (!before.best) return fill("changed", element("b", {}, cause), ": there is a card again.");
  const titles = (some, others) => some.filter((p) => !others.includes(p)).map((p) => view.items[p].title).join(", ");
  const [was, is] = [before.best, view.best];
  const came = titles(is.positions, was.positions), went = titles(was.positions, is.positions);
  const difference = is.value - was.value;
  const same = Math.abs(difference) < 1e-9 * (1 + Math.abs(is.value));
  const moved = came || went ? "" : is.positions.join() === was.positions.join() ? " The card stays." : " The same items, in other places.";
  return fill("changed", element("b", {}, cause),
    same ? ": worth the same." : `: worth ${figure(was.value)} → ${figure(is.value)} (${signed(difference)}).`, moved,
    came && element("span", { class: "came" }, ` In: ${came}.`), went && element("span", { class: "went" }, ` Out: ${went}.`));
}

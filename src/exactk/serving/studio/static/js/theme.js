// Light and dark: the system's choice until the button says otherwise; remembered.
import { find } from "./dom.js";

const KEPT = "exactk-theme";

export function startTheme() {
  const kept = localStorage.getItem(KEPT);
  if (kept) document.documentElement.dataset.theme = kept;
  find("theme").addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem(KEPT, next);
    document.dispatchEvent(new Event("theme"));
  });
}

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

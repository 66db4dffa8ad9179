// Talking to the service; asks for the key once when it wants one.
import { find } from "./dom.js";

const KEY = "exactk-key";

export class Refused extends Error {
  constructor(problem) {
    super(problem.detail || problem.title || "the service did not answer");
    this.problem = problem;
  }
}

export async function ask(path, body, signal) {
  const key = sessionStorage.getItem(KEY);
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const options = { headers, signal };
  if (body !== undefined) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    headers["content-type"] = "application/json";
  }
  const response = await fetch(path, options);
  if (response.status === 401) {
    await askForKey();
    return ask(path, body, signal);
  }
  const answer = await response.json().catch(() => ({ title: response.statusText }));
  if (!response.ok) throw new Refused(answer);
  return answer;
}

function askForKey() {
  const dialog = find("key-dialog");
  dialog.returnValue = "";
  if (!dialog.open) dialog.showModal();
  return new Promise((go, stop) => {
    dialog.addEventListener("close", () => {
      if (dialog.returnValue !== "use") return stop(new Refused({ detail: "Without a key the service shows nothing; load the page again to give one." }));
      sessionStorage.setItem(KEY, find("key").value);
      return go();
    }, { once: true });
  });
}

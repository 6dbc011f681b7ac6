// What to look at twice: each caution is put together from its kind and its values, in the language of the page.

import { el } from "./dom.js";
import { written } from "./signs.js";
import { knows, say, sayNodes } from "./words.js";

const GRAVE = new Set(["forged", "window", "loss", "refused", "hidden"]);

/** Draw the cautions of a look, and what its payload has not as it was given. */
export function showCautions(list, { cautions, report }) {
  const seen = cautions.map(({ kind, values, text }) =>
    el(
      "li",
      { class: GRAVE.has(kind) ? "grave" : "" },
      el("span", { class: "kind" }, say(GRAVE.has(kind) ? "grave" : "note")),
      el("span", {}, ...(knows(`caution_${kind}`) ? sayNodes(`caution_${kind}`, values) : [written(text)])),
    ),
  );
  const carried = (report ?? []).filter((entry) => !entry.is_loss);
  if (carried.length) {
    const entries = carried.map(({ where, kind, action, reason }) =>
      el(
        "li",
        {},
        el("bdi", { class: "value", translate: "no" }, written(where)),
        ` ${say(`action_${action.replaceAll(" ", "_")}`)} (`,
        el("bdi", { translate: "no" }, written(kind)),
        "): ",
        el("bdi", { translate: "no" }, written(reason)),
      ),
    );
    const open = list.querySelector("details")?.open ?? false;
    seen.push(
      el("li", {}, el("details", { open }, el("summary", {}, say("report", { count: carried.length })), el("ul", {}, ...entries))),
    );
  }
  if (list.textContent !== seen.map((node) => node.textContent).join("")) list.replaceChildren(...seen);
}

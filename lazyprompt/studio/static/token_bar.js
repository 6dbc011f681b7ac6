// What each slot costs, against the context window, and what its colour is.

import { el } from "./dom.js";
import { colorOf } from "./prompt_view.js";
import { written } from "./signs.js";
import { number, say } from "./words.js";

const NEAR = 0.9;

/**
 * Draw the bar and the legend of a look.
 *
 * @param {{bar: Element, legend: Element}} places
 * @param {Object} look
 * @param {string | null} lit The slot that is picked out.
 * @param {(slot: string | null) => void} pick Told of the slot that is to be picked out from now on.
 */
export function showTokens({ bar, legend }, look, lit, pick) {
  const { slots, total, window } = look;
  const whole = Math.max(window ?? total, total, 1);
  const share = window ? total / window : null;
  const said =
    share === null ? say("tokens", { total }) : say("tokens_of", { total, window, percent: percent(total, window) });
  const strip = el("div", { class: "strip", role: "img", "aria-label": said });
  slots.forEach(({ name, tokens }, at) => {
    if (!tokens) return;
    const part = el("span", { class: `part ${colorOf(name, at)}`, translate: "no", title: `${written(name)} · ${number(tokens)}` });
    part.style.width = `${(100 * tokens) / whole}%`;
    strip.append(part);
  });
  const state = share === null ? "" : share > 1 ? " over" : share >= NEAR ? " near" : "";
  bar.className = `tokens${state}`;
  bar.replaceChildren(strip, el("p", {}, said, state ? el("strong", {}, ` ${say(`tokens${state.trim()}`)}`) : ""));

  // A button that has the focus keeps it: it is the same button, only with another number.
  slots.forEach(({ name, tokens }, at) => {
    const count = el("span", { class: "count" }, number(tokens));
    const known = legend.children[at]?.firstElementChild;
    if (known?.dataset.name === name) {
      known.querySelector(".count").replaceWith(count);
      known.setAttribute("aria-pressed", String(lit === name));
      known.onclick = () => pick(lit === name ? null : name);
      return;
    }
    const button = el(
      "button",
      { type: "button", "aria-pressed": String(lit === name), "data-name": name },
      el("span", { class: `swatch ${colorOf(name, at)}`, "aria-hidden": "true" }),
      el("bdi", { translate: "no" }, written(name)),
      count,
    );
    button.onclick = () => pick(lit === name ? null : name);
    const item = el("li", {}, button);
    if (legend.children[at]) legend.children[at].replaceWith(item);
    else legend.append(item);
  });
  while (legend.children.length > slots.length) legend.lastElementChild.remove();
}

/** A share in per cent; small ones with a digit more. */
function percent(total, window) {
  const share = (100 * total) / window;
  return share < 10 ? Math.round(10 * share) / 10 : Math.round(share);
}

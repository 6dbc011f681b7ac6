// What goes when a prompt has to be shorter: a slider for the most tokens, and what became of each message.

import { el } from "./dom.js";
import { written } from "./signs.js";
import { number, say } from "./words.js";

export class TrimView {
  #root;
  #slider = el("input", { type: "range", id: "trim_slider", min: 1, step: 1, max: 1, disabled: true });
  #label = el("label", { for: "trim_slider" });
  #count = el("output", { for: "trim_slider", translate: "no" });
  #said = el("p", { class: "said" });
  #gone = el("ol", { class: "gone", tabindex: 0 });
  #whole = 0;
  #moved = false;

  /**
   * @param {Element} root
   * @param {() => void} changed Told when the slider moves.
   */
  constructor(root, changed) {
    this.#root = root;
    root.append(el("div", { class: "slide" }, this.#label, this.#slider, this.#count), this.#said, this.#gone);
    this.#slider.addEventListener("input", () => {
      this.#moved = Number(this.#slider.value) < this.#whole;
      this.#tell();
      changed();
    });
  }

  /** The most tokens; null while nothing has to go. */
  get maxTokens() {
    return this.#moved ? Number(this.#slider.value) : null;
  }

  /** Begin anew, as with another file. */
  begin() {
    this.#moved = false;
    this.#whole = 0;
    this.#slider.disabled = true;
  }

  show({ trim, total }) {
    const whole = this.#moved && trim ? trim.before : total;
    if (whole !== this.#whole) {
      this.#whole = whole;
      this.#slider.disabled = !whole;
      this.#slider.max = String(Math.max(whole, 1));
      if (!this.#moved) this.#slider.value = String(whole);
    }
    this.#label.textContent = say("max_tokens");
    this.#gone.setAttribute("aria-label", say("gone_list"));
    this.#tell();
    const changed = trim?.messages.filter(({ fate }) => fate !== "kept") ?? [];
    const counts = Object.fromEntries(["dropped", "cut", "summarized"].map((fate) => [fate, changed.filter((each) => each.fate === fate).length]));
    this.#said.textContent = trim && changed.length
      ? say("trimmed", { before: trim.before, after: trim.after, ...counts })
      : say("untrimmed");
    this.#gone.replaceChildren(...changed.map(line));
  }

  #tell() {
    this.#count.textContent = number(Number(this.#slider.value));
  }
}

function line({ index, role, slot, fate, reason, before, after }) {
  return el(
    "li",
    { class: fate },
    el("span", { class: "fate" }, say(`fate_${fate}`)),
    " ",
    el("bdi", { class: "value", translate: "no" }, role === "slot" ? written(slot) : `${written(slot)}[${index}] ${written(role)}`),
    ` ${number(before)} → ${number(after)} `,
    el("span", { class: "quiet", translate: "no" }, written(reason)),
  );
}

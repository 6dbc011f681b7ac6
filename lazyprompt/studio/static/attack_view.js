// What a hostile value would look like: as it is given, beside what it becomes.

import { el, offer } from "./dom.js";
import { inUnits, showText } from "./prompt_view.js";
import { written } from "./signs.js";
import { knows, say } from "./words.js";

export class AttackView {
  #attack = el("select", { id: "attack" });
  #slot = el("select", { id: "attack_slot", translate: "no" });
  #words = new Map();
  #raw;
  #safe;
  #said = el("p", { class: "said" });
  #attacks = [];

  /**
   * @param {Element} root
   * @param {() => void} changed Told when another attack or slot is chosen.
   */
  constructor(root, changed) {
    const box = (id, word) => {
      const pre = el("pre", { id, tabindex: 0, role: "region", translate: "no" });
      return [pre, el("div", { class: "shown" }, this.#word("h3", word), pre)];
    };
    const [raw, rawBox] = box("attack_raw", "attack_raw");
    const [safe, safeBox] = box("attack_safe", "attack_safe");
    [this.#raw, this.#safe] = [raw, safe];
    root.append(
      el(
        "div",
        { class: "choices" },
        el("label", {}, this.#word("span", "attack"), " ", this.#attack),
        el("label", {}, this.#word("span", "attack_slot"), " ", this.#slot),
      ),
      el("div", { class: "beside" }, rawBox, safeBox),
      this.#said,
    );
    for (const select of [this.#attack, this.#slot]) select.addEventListener("change", changed);
  }

  #word(tag, key) {
    const node = el(tag);
    this.#words.set(node, key);
    return node;
  }

  /** Have these attacks to choose from. */
  begin(attacks) {
    this.#attacks = attacks;
    this.reword();
  }

  /** Have these slots to choose from; text is attacked first. */
  declare(inputs) {
    const names = [...inputs].sort((one, other) => (other.kind === "string") - (one.kind === "string"));
    offer(this.#slot, names.map(({ name }) => [name, written(name)]));
  }

  reword() {
    for (const [node, key] of this.#words) node.textContent = say(key);
    this.#raw.setAttribute("aria-label", say("attack_raw"));
    this.#safe.setAttribute("aria-label", say("attack_safe"));
    offer(this.#attack, this.#attacks.map(({ id, name }) => [id, knows(`attack_${id}`) ? say(`attack_${id}`) : written(name)]));
  }

  /** What is tried; null where there is nothing to try it on. */
  get chosen() {
    return this.#slot.value ? { id: this.#attack.value, slot: this.#slot.value } : null;
  }

  show(look, attacked) {
    const text = attacked ?? "";
    const landed = look.payload || !text ? null : landing(look, text);
    showText(this.#raw, text);
    showText(this.#safe, look.payload ? text : (landed?.text ?? ""));
    const slot = this.#slot.value;
    this.#said.textContent = say(outcome(slot, look.payload, landed), { count: landed?.count ?? 0 });
  }
}

/**
 * Where a value is in a flat prompt, and what it became there: each piece as it was given, before its control sequences
 * were made harmless, is looked through for it. Its slot says too little: a file's turns are its history.
 *
 * @returns {{text: string, count: number} | null} What it became, and how many of its sequences were made harmless.
 */
function landing(look, value) {
  const marks = inUnits(look.text, look.marks);
  let start = 0;
  for (const [at, { text, trusted, slot }] of look.segments.entries()) {
    const next = look.segments[at + 1];
    const end = start + text.length;
    // What stands side by side in one slot is one piece.
    if (trusted || (next && !next.trusted && next.slot === slot)) {
      if (trusted) start = end;
      continue;
    }
    const inside = marks.filter((mark) => mark.start >= start && mark.end <= end);
    const found = before(look.text, start, end, inside).indexOf(value);
    if (found !== -1) return slice(look.text, start, inside, found, found + value.length);
    start = end;
  }
  return null;
}

/** A part of a prompt as it was given. */
function before(text, start, end, marks) {
  let made = "";
  let at = start;
  for (const mark of marks) {
    made += text.slice(at, mark.start) + mark.raw;
    at = mark.end;
  }
  return made + text.slice(at, end);
}

/** What two places of a part as it was given are in the prompt. */
function slice(text, start, marks, from, to) {
  let grown = start;
  let first = start + from;
  let last = start + to;
  let count = 0;
  for (const mark of marks) {
    const more = mark.end - mark.start - mark.raw.length;
    const place = mark.start - grown;
    if (place < from) first += more;
    if (place < to) last += more;
    if (place >= from && place < to) count += 1;
    grown += more;
  }
  return { text: text.slice(first, last), count };
}

/** What is to be said of an attack. */
function outcome(slot, payload, landed) {
  if (!slot) return "attack_no_slot";
  if (payload) return "attack_payload";
  if (!landed) return "attack_absent";
  return landed.count ? "attack_marks" : "attack_plain";
}

// What differs from another version: the file by its parts, and what both make of the same inputs by slot.

import { el, offer } from "./dom.js";
import { written } from "./signs.js";
import { say, sayNodes } from "./words.js";

const SIGNS = { "+": "added", "-": "removed", "@": "place" };

export class DiffView {
  #select = el("select", { id: "other", translate: "no" });
  #label = el("label", {});
  #word = el("span");
  #body = el("div", { class: "diff", id: "diff" });
  #none = el("p", { class: "said", hidden: true });

  /**
   * @param {Element} root
   * @param {() => void} changed Told when another version is chosen.
   */
  constructor(root, changed) {
    this.#label.append(this.#word, " ", this.#select);
    root.append(el("div", { class: "choices" }, this.#label), this.#none, this.#body);
    this.#select.addEventListener("change", changed);
  }

  /** Have these versions to compare with. */
  begin(versions) {
    offer(this.#select, versions.map(({ path }) => [path, written(path)]));
    this.#label.hidden = !versions.length;
    this.#none.hidden = versions.length > 0;
    this.#body.replaceChildren();
    this.reword();
  }

  reword() {
    this.#word.textContent = say("diff_other");
    this.#none.textContent = say("diff_none");
  }

  /** The path of the version that is compared with; empty where there is none. */
  get other() {
    return this.#select.value;
  }

  show({ changes, slots, shared, prefix, error }) {
    const parts = changes.map(({ kind, name, what, lines }) => block(`diff_${kind}`, name, what, lines));
    const told = slots?.map(({ name, state, lines, before, after }) =>
      block("diff_slot", name, state, lines, say("diff_tokens", { before, after })),
    ) ?? [
      el("p", { class: "said" }, say("diff_no_slots"), ...(error ? [" ", el("bdi", { translate: "no" }, written(error.message))] : [])),
    ];
    this.#body.replaceChildren(
      el("h3", {}, say("diff_file")),
      ...(parts.length ? parts : [el("p", { class: "said" }, say("diff_same_file"))]),
      el("h3", {}, say("diff_made")),
      ...(shared ? [el("p", { class: "said" }, ...sayNodes(shared.slot === null ? "diff_shared_all" : "diff_shared", shared))] : []),
      ...(prefix ? [el("p", { class: "said" }, prefix)] : []),
      ...told,
    );
  }
}

/** One thing that differs: how, what, and its lines. */
function block(kind, name, state, lines, tokens = "") {
  const head = el(
    "p",
    { class: "what" },
    el("span", { class: `state ${state}` }, say(`state_${state}`)),
    " ",
    say(kind),
    " ",
    el("bdi", { class: "value", translate: "no" }, written(name)),
    tokens && el("span", { class: "quiet" }, ` ${tokens}`),
  );
  const shown = (lines ?? []).map((line) => {
    const how = SIGNS[line[0]] ?? "same";
    return el(how === "added" ? "ins" : how === "removed" ? "del" : "span", { class: `line ${how}`, translate: "no" }, `${written(line)}\n`);
  });
  return el("div", { class: "block" }, head, ...(shown.length ? [el("pre", { tabindex: 0 }, ...shown)] : []));
}

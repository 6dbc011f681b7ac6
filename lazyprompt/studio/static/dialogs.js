// Questions that have to be answered before anything else, and the list of shortcuts.

import { byId, el } from "./dom.js";
import { say } from "./words.js";

/**
 * Ask for a choice.
 *
 * @param {string} title The key of its title.
 * @param {Node[]} body
 * @param {string[]} choices Keys of words, the safest first: that one has the focus.
 * @returns {Promise<string | null>} The key that was chosen; null after Escape.
 */
export function choose(title, body, choices) {
  const dialog = byId("dialog");
  // Something else is asked already; it has to be answered first.
  if (dialog.open) return Promise.resolve(null);
  byId("dialog_title").textContent = say(title);
  byId("dialog_body").replaceChildren(...body);
  const buttons = choices.map((key, at) =>
    el("button", { type: "button", class: at ? "" : "main", value: key, autofocus: at === 0, click: () => dialog.close(key) }, say(key)),
  );
  byId("dialog_buttons").replaceChildren(...buttons);
  dialog.returnValue = "";
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue || null), { once: true });
    dialog.showModal();
  });
}

/**
 * Ask for the name of a new file.
 *
 * @returns {Promise<string | null>} The name, with a suffix; null where none is wanted.
 */
export async function askName() {
  const name = el("input", { type: "text", id: "new_name", spellcheck: "false", autocomplete: "off", translate: "no" });
  name.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    byId("dialog").close("create");
  });
  const label = el("label", { for: "new_name" }, say("new_name"));
  const answered = choose("add", [label, name], ["create", "cancel"]);
  name.focus();
  const path = (await answered) === "create" ? name.value.trim() : "";
  if (!path) return null;
  return /\.(prompty|prompt|ya?ml)$/i.test(path) ? path : `${path}.prompty`;
}

const SHORTCUTS = [
  ["S", "save"],
  ["K", "key_files"],
  ["E", "key_template"],
  ["I", "key_inputs"],
  ["Enter", "key_made"],
];

/** Show which keys do what. */
export function showShortcuts() {
  const command = navigator.platform.startsWith("Mac") ? "⌘" : "Ctrl";
  const rows = SHORTCUTS.flatMap(([key, word]) => [
    el("dt", {}, el("kbd", { translate: "no" }, command), " + ", el("kbd", { translate: "no" }, key)),
    el("dd", {}, say(word)),
  ]);
  const escape = [el("dt", {}, el("kbd", { translate: "no" }, "Esc")), el("dd", {}, say("key_escape"))];
  return choose("shortcuts", [el("dl", { class: "shortcuts" }, ...rows, ...escape)], ["close"]);
}

// The editor of a template: what was typed, whether it is saved, and where the cursor is.

import { byId } from "./dom.js";
import { restored, unified } from "./line_ends.js";

export class Editor {
  #area = byId("template");
  #saved = "";
  #changed;

  /** @param {() => void} changed Told of every change of the text. */
  constructor(changed) {
    this.#changed = changed;
    this.#area.addEventListener("input", changed);
    document.addEventListener("selectionchange", () => this.#tellPlace());
    this.#area.addEventListener("select", () => this.#tellPlace());
  }

  /** What was typed, as the file would hold it. */
  get text() {
    return restored(this.#saved, this.#area.value);
  }

  get dirty() {
    return this.#area.value !== unified(this.#saved);
  }

  /** Begin with a text as it is on disk. */
  begin(saved) {
    this.#area.value = saved;
    this.#saved = saved;
    this.#area.setSelectionRange(0, 0);
    this.#area.scrollTop = 0;
    this.#tellPlace();
  }

  /** Say that a text is on disk now. */
  wasSaved(text) {
    this.#saved = text;
    this.#changed();
  }

  /** Put the cursor to a line and a column, both from 1 on, in signs. */
  goTo(line, column) {
    const text = this.#area.value;
    let start = 0;
    for (let at = 1; at < line && start !== -1; at += 1) {
      const end = text.indexOf("\n", start);
      if (end === -1) break;
      start = end + 1;
    }
    const end = text.indexOf("\n", start) === -1 ? text.length : text.indexOf("\n", start);
    const signs = [...text.slice(start, end)].slice(0, (column ?? 1) - 1);
    const place = start + signs.join("").length;
    // A text area scrolls to its cursor when it gets the focus.
    this.#area.blur();
    this.#area.setSelectionRange(place, place);
    this.#area.focus();
  }

  focus() {
    this.#area.focus();
  }

  #tellPlace() {
    if (document.activeElement !== this.#area) return;
    const before = this.#area.value.slice(0, this.#area.selectionStart);
    const start = before.lastIndexOf("\n") + 1;
    let line = 1;
    for (let at = before.indexOf("\n"); at !== -1; at = before.indexOf("\n", at + 1)) line += 1;
    byId("place").textContent = `${line}:${[...before.slice(start)].length + 1}`;
  }
}

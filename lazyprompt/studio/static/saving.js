// What was typed, and the file on disk: saved, or not, and never over what somebody else wrote without a question.

import * as api from "./api.js";
import { choose } from "./dialogs.js";
import { el } from "./dom.js";
import { written } from "./signs.js";
import { say } from "./words.js";

export class Saving {
  #editor;
  #page;
  #path = null;
  #hash = null;

  /**
   * @param {import("./editor.js").Editor} editor
   * @param {{tell: (text: string) => void, changed: () => void, failed: (error: Error) => void}} page
   */
  constructor(editor, page) {
    this.#editor = editor;
    this.#page = page;
  }

  /** Begin with a file as it was read. */
  begin(path, hash) {
    this.#path = path;
    this.#hash = hash;
  }

  /**
   * Save what was typed.
   *
   * @param {string | null} hash What the file on disk has to be; null where there must be none.
   * @returns {Promise<boolean>} Whether the file and the editor are the same now.
   */
  async save(hash = this.#hash) {
    if (!this.#editor.dirty && hash === this.#hash) return true;
    const text = this.#editor.text;
    try {
      this.#hash = (await api.save({ path: this.#path, text, hash })).hash;
    } catch (error) {
      const changed = error instanceof api.Refused && error.status === 409 && error.body.hash !== hash;
      if (changed) return this.#conflict(error.body);
      this.#page.failed(error);
      this.#page.tell(say("not_saved"));
      return false;
    }
    this.#editor.wasSaved(text);
    if (!this.#editor.dirty) this.#page.tell(say("saved"));
    return true;
  }

  /** Whether the open file may be left: it is saved, or what was typed is not wanted. */
  async mayLeave() {
    if (!this.#editor.dirty) return true;
    const answer = await choose("leave", [el("p", {}, say("leave_told")), this.#name()], ["save", "discard", "cancel"]);
    return answer === "discard" || (answer === "save" && (await this.save()));
  }

  /** The file on disk is another than the one that was read: what is to become of it. */
  async #conflict({ hash, text }) {
    const gone = text === null;
    const body = [el("p", {}, say(gone ? "gone_told" : "conflict_told")), this.#name()];
    if (!gone) {
      body.push(el("pre", { tabindex: 0, role: "region", translate: "no", "aria-label": say("on_disk") }, written(text)));
    }
    const choices = gone ? ["keep_editing", "write_anew"] : ["keep_editing", "take_theirs", "overwrite"];
    const answer = await choose(gone ? "gone" : "conflict", body, choices);
    if (answer === "overwrite" || answer === "write_anew") return this.save(hash);
    if (answer !== "take_theirs") {
      this.#page.tell(say("not_saved"));
      return false;
    }
    this.#hash = hash;
    this.#editor.begin(text);
    this.#page.changed();
    this.#page.tell(say("taken"));
    return true;
  }

  #name() {
    return el("p", { class: "value", translate: "no" }, written(this.#path));
  }
}

// A field for each input that a prompt declares; what is typed as JSON is sent as it was typed.

import { el, offer } from "./dom.js";
import { written } from "./signs.js";
import { say, tellHidden } from "./words.js";

const WIDGETS = {
  string: "text",
  number: "number",
  integer: "number",
  float: "number",
  boolean: "check",
};
const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const ROWS = 8;
const COLUMNS = 64;

export class InputsForm {
  #root;
  #changed;
  #fields = new Map();
  #declared = "";
  #made = 0;

  /**
   * @param {Element} root The form.
   * @param {() => void} changed Told of every change.
   */
  constructor(root, changed) {
    this.#root = root;
    this.#changed = changed;
    root.addEventListener("submit", (event) => event.preventDefault());
  }

  /** Begin with the inputs of a file, and the values that it comes with. */
  begin(inputs, values) {
    this.#fields.clear();
    this.#root.replaceChildren();
    this.#declared = "";
    this.declare(inputs, values);
  }

  /** Have the fields of these inputs; one that was there before keeps what was typed. */
  declare(inputs, values = {}) {
    const declared = JSON.stringify(inputs);
    if (declared === this.#declared) return;
    this.#declared = declared;
    const fields = new Map();
    for (const input of inputs) {
      const known = this.#fields.get(input.name);
      const kept = known && known.widget === widgetOf(input, known.first) ? known : null;
      const value = input.name in values ? values[input.name] : firstOf(input);
      fields.set(input.name, kept ?? new Field(input, value, `input_${(this.#made += 1)}`, () => this.#changed()));
    }
    for (const [name, field] of this.#fields) if (fields.get(name) !== field) field.row.remove();
    [...fields.values()].forEach((field, at) => {
      if (this.#root.children[at] !== field.row) this.#root.insertBefore(field.row, this.#root.children[at] ?? null);
    });
    this.#fields = fields;
  }

  get names() {
    return [...this.#fields.keys()];
  }

  /** Write the words anew, in the language that is spoken now. */
  reword() {
    for (const field of this.#fields.values()) field.reword();
  }

  /** All values as members of a JSON object; null where one is no JSON, which its field says. */
  read() {
    const read = [...this.#fields.entries()].map(([name, field]) => [name, field.read()]);
    if (read.some(([, value]) => value === null)) return null;
    return `{${read
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => `${JSON.stringify(name)}:${value}`)
      .join(",")}}`;
  }
}

/** What an input begins with that came while the template was written; what is in the environment stays there. */
function firstOf({ sample, default: usual }) {
  const value = sample ?? usual;
  return typeof value === "string" && value.includes("${env:") ? undefined : value;
}

/** Which kind of field an input has; a string that is given something else is typed as JSON. */
function widgetOf({ kind, enum: choices }, value) {
  if (choices?.length && (value === undefined || value === null || choices.includes(value))) return "choice";
  const widget = WIDGETS[kind] ?? "json";
  if (value === undefined || value === null) return widget;
  if (widget === "text" && typeof value !== "string") return "json";
  if (widget === "number" && typeof value !== "number") return "json";
  if (widget === "check" && typeof value !== "boolean") return "json";
  return widget;
}

class Field {
  #input;
  #control;
  #given;
  #fault;
  #hidden;
  #told = "";

  constructor(input, value, id, changed) {
    this.#input = input;
    this.first = value;
    this.widget = widgetOf(input, value);
    this.#control = controlOf(this.widget, id, value, input);
    this.#control.addEventListener("input", () => {
      this.#given.checked = true;
      changed();
    });
    this.#given = el("input", { type: "checkbox", input: changed, hidden: input.required });
    this.#given.checked = input.required || (value !== undefined && value !== null);
    this.#fault = el("p", { class: "fault", id: `${id}_fault`, hidden: true });
    this.#hidden = el("p", { class: "unseen", id: `${id}_hidden`, hidden: true });
    const name = el("label", { for: id }, el("bdi", { class: "name", translate: "no" }, written(input.name)));
    const kind = el("span", { class: "quiet", translate: "no" }, input.kind + (input.required ? " *" : ""));
    const told = input.description
      ? el("p", { class: "quiet told", id: `${id}_told`, translate: "no", dir: "auto" }, written(input.description))
      : "";
    this.row = el(
      "div",
      { class: `field ${this.widget}` },
      el("div", { class: "head" }, name, kind, this.#given),
      this.#control,
      this.#hidden,
      this.#fault,
      told,
    );
    this.reword();
  }

  reword() {
    tellHidden(this.#hidden, this.#told);
    this.#given.setAttribute("aria-label", say("given", { name: this.#input.name }));
    this.#given.title = say("given", { name: this.#input.name });
  }

  /** The value as JSON text; undefined where it is not given, null where it is no JSON. */
  read() {
    const typed = this.#control.value;
    let value;
    if (!this.#given.checked) value = undefined;
    else if (this.widget === "text") value = JSON.stringify(typed);
    else if (this.widget === "check") value = String(this.#control.checked);
    else if (this.widget === "number") value = NUMBER.test(typed.trim()) ? typed.trim() : null;
    else value = isJson(typed) ? typed : null;
    const wrong = value === null;
    this.#fault.hidden = !wrong;
    this.#fault.textContent = wrong ? say(this.widget === "number" ? "no_number" : "no_json") : "";
    this.#control.setAttribute("aria-invalid", String(wrong));
    if (typed !== this.#told) tellHidden(this.#hidden, (this.#told = typed));
    return value;
  }
}

function controlOf(widget, id, value, { name, enum: choices }) {
  const shared = { id, name, translate: "no", "aria-describedby": `${id}_hidden ${id}_fault ${id}_told`, spellcheck: "false" };
  if (widget === "check") {
    const box = el("input", { ...shared, type: "checkbox" });
    box.checked = Boolean(value);
    return box;
  }
  if (widget === "choice") {
    const select = el("select", shared);
    offer(select, choices.map((each) => [JSON.stringify(each), written(String(each))]), JSON.stringify(value));
    return select;
  }
  if (widget === "number") {
    const line = el("input", { ...shared, type: "text", inputmode: "decimal" });
    line.value = value ?? "";
    return line;
  }
  const text = widget === "text" ? (value ?? "") : value === undefined || value === null ? "" : JSON.stringify(value, null, 2);
  const area = el("textarea", { ...shared, input: ({ target }) => fit(target) });
  area.value = text;
  fit(area);
  return area;
}

/** As many rows as its text has lines, long ones counted as several; of a long text only the beginning is looked at. */
function fit(area) {
  const lines = area.value.slice(0, ROWS * COLUMNS).split("\n", ROWS);
  const rows = Math.min(lines.reduce((sum, line) => sum + 1 + Math.floor(line.length / COLUMNS), 0), ROWS);
  if (area.rows !== rows) area.rows = rows;
}

export function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

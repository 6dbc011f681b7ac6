// What is made, shown sign by sign: the text of its element is the text that is sent, and nothing else.

import { rechunked } from "./chunks.js";
import { el } from "./dom.js";
import { hiddenIn, named, written } from "./signs.js";
import { say } from "./words.js";

const COLORS = 12;
// The height of a line, as studio.css has it.
const LINE = 1.6;
const MARKERS = "markers";

/** The class that colours a slot, by its place among the slots. */
export const colorOf = (name, at) => (name === MARKERS || name === "framing" ? "cm" : `c${at % COLORS}`);

/** One stretch of text that looks alike. */
class Run {
  constructor(start, end, slot, color, trusted, mark, first) {
    Object.assign(this, { start, end, slot, color, trusted, mark, first });
    this.key = [color, trusted ? "" : "u", first ? `f${slot}` : "", mark ? `m${mark.raw}` : ""].join(" ");
  }
}

export class PromptView {
  #root;
  #chunks = [];

  /** @param {Element} root What it is shown in. */
  constructor(root) {
    this.#root = root;
  }

  /** Show a look; only what changed is touched. */
  show(look) {
    const flat = !look.payload;
    const runs = flat ? runsOf(look) : [];
    const style = flat ? (start, end) => styleOf(runs, start, end) : () => "json";
    const old = this.#chunks;
    const { chunks, head, tail } = rechunked(old, look.text, style);
    for (const gone of old.slice(head, old.length - tail)) gone.node.remove();
    const before = tail ? chunks[chunks.length - tail].node : null;
    let at = 0;
    chunks.forEach((chunk, place) => {
      if (place >= head && place < chunks.length - tail) {
        chunk.node = el("div", { class: "chunk" }, ...(flat ? colored(runs, chunk.text, at) : keyed(chunk.text)));
        chunk.node.style.containIntrinsicBlockSize = `auto ${chunk.lines * LINE}em`;
        this.#root.insertBefore(chunk.node, before);
      }
      at += chunk.text.length;
    });
    this.#chunks = chunks;
  }

  /** Show nothing. */
  clear() {
    this.#chunks = [];
    this.#root.replaceChildren();
  }
}

/** A text on its own in an element, its hidden signs written out. */
export function showText(root, text) {
  root.replaceChildren(...signed(text, 0, text.length, hiddenIn(text)));
}

function runsOf({ text, segments, slots, marks }) {
  const color = new Map(slots.map(({ name }, at) => [name, colorOf(name, at)]));
  const places = inUnits(text, marks);
  const runs = [];
  const named = new Set([MARKERS]);
  let at = 0;
  let next = 0;
  segments.forEach(({ text: piece, slot, trusted }, place) => {
    const end = at + piece.length;
    // A value is named wherever it begins, the developer's own text where it begins first.
    const fresh = trusted ? !named.has(slot) : segments[place - 1]?.slot !== slot;
    named.add(slot);
    let start = at;
    const add = (stop, mark) => {
      if (stop > start) runs.push(new Run(start, stop, slot, color.get(slot) ?? "cm", trusted, mark, fresh && start === at));
      start = Math.max(start, stop);
    };
    for (; next < places.length && places[next].start < end; next += 1) {
      add(places[next].start, null);
      add(Math.min(places[next].end, end), places[next]);
    }
    add(end, null);
    at = end;
  });
  return runs;
}

/** Marks count signs, as Python does; JavaScript counts units, of which some signs have two. */
export function inUnits(text, marks) {
  if (!marks.length || !/[\ud800-\udfff]/.test(text)) return marks;
  const wanted = [...new Set(marks.flatMap(({ start, end }) => [start, end]))].sort((one, other) => one - other);
  const found = new Map();
  let signs = 0;
  let units = 0;
  for (const place of wanted) {
    for (; signs < place; signs += 1) units += text.codePointAt(units) > 0xffff ? 2 : 1;
    found.set(place, units);
  }
  return marks.map((mark) => ({ ...mark, start: found.get(mark.start), end: found.get(mark.end) }));
}

function* runsIn(runs, start, end) {
  let low = 0;
  let high = runs.length;
  while (low < high) {
    const half = (low + high) >> 1;
    if (runs[half].end > start) high = half;
    else low = half + 1;
  }
  for (; low < runs.length && runs[low].start < end; low += 1) yield runs[low];
}

function styleOf(runs, start, end) {
  let style = "";
  for (const run of runsIn(runs, start, end)) {
    style += `${Math.max(run.start, start) - start}:${run.start < start ? run.color + run.trusted + run.mark?.raw : run.key};`;
  }
  return style;
}

function* colored(runs, text, at) {
  const signs = hiddenIn(text);
  for (const run of runsIn(runs, at, at + text.length)) {
    const start = Math.max(run.start - at, 0);
    const end = Math.min(run.end - at, text.length);
    const first = run.first && run.start >= at;
    yield el(
      run.mark ? "mark" : "span",
      {
        class: `seg ${run.color}${run.trusted ? "" : " untrusted"}${first ? " first" : ""}`,
        "data-slot": first ? written(run.slot) : null,
        title: run.mark ? say("mark_title", { raw: run.mark.raw }) : null,
      },
      ...signed(text, start, end, signs),
    );
  }
}

/** The lines of a payload, the keys of its objects set off. */
function* keyed(text) {
  const signs = hiddenIn(text);
  const lines = /^([ ]*)("(?:[^"\\]|\\.)*")(?=:)/gm;
  let done = 0;
  for (const found of text.matchAll(lines)) {
    const start = found.index + found[1].length;
    const end = start + found[2].length;
    yield* signed(text, done, start, signs);
    yield el("span", { class: "key" }, ...signed(text, start, end, signs));
    done = end;
  }
  yield* signed(text, done, text.length, signs);
}

/** A part of a text as nodes; a hidden sign stays in the text and is written out beside it by the style sheet. */
function* signed(text, start, end, signs) {
  let done = start;
  for (const [from, to] of signs) {
    if (from < start || from >= end) continue;
    if (from > done) yield text.slice(done, from);
    const sign = text.slice(from, to);
    yield el("span", { class: "sign", "data-sign": named(sign) }, sign);
    done = to;
  }
  if (done < end) yield text.slice(done, end);
}

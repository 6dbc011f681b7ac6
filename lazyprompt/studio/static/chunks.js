// A long text in chunks of whole lines, so that a keystroke touches one of them: the rest is kept as it is.

const LINES = 40;
const SIGNS = 6_000;

/**
 * @typedef {Object} Chunk
 * @property {string} text Whole lines with their line breaks; the last chunk may end without one.
 * @property {string} style How it is coloured, as a string to compare.
 * @property {number} lines How many lines it has.
 * @property {Element | null} node Its element, once it is drawn.
 */

/**
 * The chunks of a new text: those of the old one that are as they were at both ends, and new ones between.
 *
 * @param {Chunk[]} old
 * @param {string} text
 * @param {(start: number, end: number) => string} styleOf How a part of the new text is coloured.
 * @returns {{chunks: Chunk[], head: number, tail: number}} The chunks; so many at each end are the old ones.
 */
export function rechunked(old, text, styleOf) {
  const fits = (chunk, at) =>
    text.startsWith(chunk.text, at) && styleOf(at, at + chunk.text.length) === chunk.style;
  let head = 0;
  let start = 0;
  // A chunk without a line break at its end is one only where the text ends.
  while (head < old.length && fits(old[head], start)) {
    const end = start + old[head].text.length;
    if (text[end - 1] !== "\n" && end !== text.length) break;
    start = end;
    head += 1;
  }
  let tail = 0;
  let end = text.length;
  while (tail < old.length - head) {
    const chunk = old[old.length - 1 - tail];
    const at = end - chunk.text.length;
    if (at < start || (at > 0 && text[at - 1] !== "\n") || !fits(chunk, at)) break;
    end = at;
    tail += 1;
  }
  const made = cut(text, start, end, styleOf);
  const chunks = [...old.slice(0, head), ...made, ...old.slice(old.length - tail)];
  // Many small edits leave many small chunks; then all is cut anew.
  if (chunks.length > 16 && chunks.length > (4 * text.length) / SIGNS + lines(text) / (LINES / 4)) {
    return { chunks: cut(text, 0, text.length, styleOf), head: 0, tail: 0 };
  }
  return { chunks, head, tail };
}

function cut(text, start, end, styleOf) {
  const made = [];
  let at = start;
  let count = 0;
  for (let place = text.indexOf("\n", start); place !== -1 && place < end; place = text.indexOf("\n", place + 1)) {
    count += 1;
    if (count < LINES && place - at < SIGNS) continue;
    made.push(chunkOf(text, at, place + 1, count, styleOf));
    at = place + 1;
    count = 0;
  }
  if (at < end) made.push(chunkOf(text, at, end, count + 1, styleOf));
  return made;
}

const chunkOf = (text, start, end, count, styleOf) => ({
  text: text.slice(start, end),
  style: styleOf(start, end),
  lines: count,
  node: null,
});

function lines(text) {
  let count = 0;
  for (let place = text.indexOf("\n"); place !== -1; place = text.indexOf("\n", place + 1)) count += 1;
  return count;
}

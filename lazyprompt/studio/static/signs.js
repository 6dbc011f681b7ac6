// Finds invisible characters by the same rules as lazyprompt/inspect/signs.py; a test compares the two.

const HIDDEN =
  /[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
const MAY_BE = new RegExp(HIDDEN.source, "u");
const STYLES = new Set(["\ufe0e", "\ufe0f"]);
const KEYCAPS = new Set("0123456789#*");
const LETTER = /^[\p{Lo}\p{Mn}\p{Mc}]$/u;
const SYMBOL = /^[\p{So}\p{Sk}\p{Sm}\p{Po}]$/u;
const JOINER = "\u200d";
const NON_JOINER = "\u200c";

/** The places of hidden signs: [[start, end], …] in UTF-16 units; half a pair, which no text has, is one as well. */
export function hiddenIn(text) {
  if (!MAY_BE.test(text) && text.isWellFormed()) return [];
  const found = [];
  for (const match of text.matchAll(HIDDEN)) {
    if (!shapes(text, match.index, match[0])) found.push([match.index, match.index + match[0].length]);
  }
  if (text.isWellFormed()) return found;
  for (const match of text.matchAll(/\p{Cs}/gu)) found.push([match.index, match.index + 1]);
  return found.sort((one, other) => one[0] - other[0]);
}

/** How a sign is written out: U+202E. */
export const named = (sign) => `U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** How many hidden signs a text has, and which: for places as text areas, which show nothing of them. */
export function countHidden(text) {
  const found = hiddenIn(text);
  return { count: found.length, signs: [...new Set(found.map(([start, end]) => named(text.slice(start, end))))] };
}

/** Text with each hidden sign written out, for places that show no marks. */
export function written(text) {
  let made = "";
  let done = 0;
  for (const [start, end] of hiddenIn(text)) {
    made += `${text.slice(done, start)}⟨${named(text.slice(start, end))}⟩`;
    done = end;
  }
  return made + text.slice(done);
}

/** Whether the sign at a place shapes its neighbours, which show that it is there. */
function shapes(text, at, sign) {
  const before = at ? signBefore(text, at) : "";
  if (STYLES.has(sign)) return KEYCAPS.has(before) || isSymbol(before);
  if (sign !== JOINER && sign !== NON_JOINER) return false;
  const behind = at + sign.length < text.length ? String.fromCodePoint(text.codePointAt(at + sign.length)) : "";
  if (isLetter(before) && isLetter(behind)) return true;
  return sign === JOINER && (isSymbol(before) || STYLES.has(before)) && isSymbol(behind);
}

function signBefore(text, at) {
  const low = text.charCodeAt(at - 1);
  const pair = at > 1 && low >= 0xdc00 && low <= 0xdfff && (text.charCodeAt(at - 2) & 0xfc00) === 0xd800;
  return pair ? text.slice(at - 2, at) : text[at - 1];
}

const isLetter = (sign) => sign >= "\u0600" && sign < "\u2000" && sign.length === 1 && LETTER.test(sign);
const isSymbol = (sign) => sign > "\x7f" && SYMBOL.test(sign);

// A text area knows one kind of line break; a file keeps those that it has.

const BREAK = /\r\n?/g;

/** A text as a text area holds it. */
export const unified = (text) => (text.includes("\r") ? text.replace(BREAK, "\n") : text);

/**
 * What was typed, with the line breaks of the file where nothing was typed, and its usual ones where something was.
 *
 * @param {string} file The text of the file, as it is.
 * @param {string} typed What the text area holds now.
 */
export function restored(file, typed) {
  if (!file.includes("\r")) return typed;
  const known = unified(file);
  if (known === typed) return file;
  const most = Math.min(known.length, typed.length);
  let head = 0;
  while (head < most && known[head] === typed[head]) head += 1;
  let tail = 0;
  while (tail < most - head && known.at(-1 - tail) === typed.at(-1 - tail)) tail += 1;
  const usual = file.includes("\r\n") ? "\r\n" : "\r";
  const middle = typed.slice(head, typed.length - tail).replaceAll("\n", usual);
  return file.slice(0, placeIn(file, head)) + middle + file.slice(placeIn(file, known.length - tail));
}

/** Where a place of the unified text is in the file. */
function placeIn(file, place) {
  let pairs = 0;
  for (let at = file.indexOf("\r\n"); at !== -1 && at - pairs < place; at = file.indexOf("\r\n", at + 2)) pairs += 1;
  return place + pairs;
}

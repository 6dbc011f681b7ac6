// Elements made of values. Text is only ever set as text: nothing here or elsewhere parses HTML.

export const byId = (id) => document.getElementById(id);

/**
 * An element.
 *
 * @param {string} tag
 * @param {Object<string, string | number | boolean | Function | null | undefined>} props Attributes; functions listen
 *     to the event of that name; true is an attribute without a value, and false, null and undefined are none.
 * @param {...(Node | string)} children
 */
export function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, String(value));
  }
  made.append(...children);
  return made;
}

/** Fill a select with choices, and keep what was chosen where it is still there. */
export function offer(select, choices, chosen = select.value) {
  const options = choices.map(([value, text]) => {
    const option = new Option(text, value);
    // A name that is its own value is nothing to translate.
    option.translate = value !== text;
    return option;
  });
  select.replaceChildren(...options);
  if (choices.some(([value]) => value === chosen)) select.value = chosen;
}

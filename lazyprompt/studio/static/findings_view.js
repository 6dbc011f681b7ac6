// The findings of `lazyprompt check` for what is in the editor.

import { el } from "./dom.js";
import { written } from "./signs.js";
import { say } from "./words.js";

/**
 * Draw findings.
 *
 * @param {Element} list
 * @param {object[]} findings
 * @param {{line?: number} | null | undefined} error An error that is shown already; it is left out.
 * @param {(line: number, column: number) => void} goTo Puts the cursor to a place.
 */
export function showFindings(list, findings, error, goTo) {
  const rows = findings
    .filter(({ code, line }) => !(code === "LP001" && error?.line === line))
    .map(({ code, severity, message, advice, line, column }) =>
      el(
        "li",
        { class: severity },
        el("span", { class: "kind" }, say(`severity_${severity}`)),
        el("button", { type: "button", click: () => goTo(line, column) }, say("place", { line, column })),
        el("span", {}, say(`rule_${code}`)),
        el("bdi", { translate: "no" }, written(`${code} ${advice ? `${message}; ${advice}` : message}`)),
      ),
    );
  if (list.textContent !== rows.map((row) => row.textContent).join("")) list.replaceChildren(...rows);
}

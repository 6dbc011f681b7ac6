// The server: every request carries the token of the address that was opened.

const TOKEN = new URLSearchParams(location.search).get("token") ?? "";

/** An answer that is no success: its status, and what the server said. */
export class Refused extends Error {
  constructor(status, body) {
    super(body?.error?.message ?? String(status));
    this.status = status;
    this.body = body;
  }
}

async function ask(path, init = {}) {
  const answer = await fetch(path, { ...init, headers: { "X-Studio-Token": TOKEN, "Content-Type": "application/json" } });
  const said = await answer.text();
  let body;
  try {
    body = JSON.parse(said);
  } catch {
    body = { error: { message: said } };
  }
  if (!answer.ok) throw new Refused(answer.status, body);
  return body;
}

const query = (path) => `?path=${encodeURIComponent(path)}`;

export const workspace = () => ask("/api/workspace");
export const file = (path) => ask(`/api/file${query(path)}`);
export const versions = (path) => ask(`/api/versions${query(path)}`);
/** @param {string} json The body, as JSON text: what was typed as JSON goes as it was typed. */
export const look = (json) => ask("/api/look", { method: "POST", body: json });
export const diff = (json) => ask("/api/diff", { method: "POST", body: json });
export const check = (body) => ask("/api/check", { method: "POST", body: JSON.stringify(body) });
export const save = (body) => ask("/api/save", { method: "POST", body: JSON.stringify(body) });

/** Asks one thing at a time: while an answer is awaited, the newest of all further wishes is what is asked next. */
export class Newest {
  #busy = false;
  #again = false;
  #work;

  /** @param {() => Promise<void>} work Asks for what is wanted now, and shows the answer. */
  constructor(work) {
    this.#work = work;
  }

  /** @returns {Promise<boolean>} True once all is answered; false at once where an earlier wish is still under way. */
  async ask() {
    this.#again = true;
    if (this.#busy) return false;
    this.#busy = true;
    try {
      while (this.#again) {
        this.#again = false;
        await this.#work();
      }
      return true;
    } finally {
      this.#busy = false;
    }
  }
}

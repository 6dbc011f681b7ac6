// The files of a workspace by topic and key, their languages and versions beside.

import { byId, el } from "./dom.js";
import { written } from "./signs.js";

export const hashOf = (path) => `#${encodeURIComponent(path)}`;

/** The file that the address names; null where it names none. */
export function namedFile() {
  try {
    return decodeURIComponent(location.hash.slice(1)) || null;
  } catch {
    return null;
  }
}

export class FilesView {
  #files = [];
  #open = null;

  constructor() {
    byId("filter").addEventListener("input", () => this.#draw());
  }

  show(files) {
    this.#files = files;
    this.#draw();
  }

  /** Say which file is open. */
  opened(path) {
    this.#open = path;
    this.#draw();
  }

  #draw() {
    const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.#files.filter(({ path }) => words.every((word) => path.toLowerCase().includes(word)));
    const byTopic = Map.groupBy(found, ({ key }) => (key.includes("/") ? key.slice(0, key.lastIndexOf("/")) : ""));
    // What is in no folder comes first: it has no heading of its own.
    const topics = [...byTopic].sort(([one], [other]) => Boolean(one) - Boolean(other));
    byId("tree").replaceChildren(...topics.map(([topic, files]) => this.#topic(topic, files)));
    byId("files_count").textContent =
      found.length === this.#files.length ? String(found.length) : `${found.length}/${this.#files.length}`;
    byId("no_files").hidden = found.length > 0;
    // Within the list only: the page stays where it is.
    const open = byId("tree").querySelector("[aria-current]");
    const box = byId("tree");
    if (open && (open.offsetTop < box.scrollTop || open.offsetTop + open.offsetHeight > box.scrollTop + box.clientHeight)) {
      box.scrollTop = open.offsetTop - box.clientHeight / 2;
    }
  }

  #topic(topic, files) {
    const keys = Map.groupBy(files, ({ key }) => key);
    const items = [...keys].map(([key, same]) => {
      const name = written(key.slice(topic ? topic.length + 1 : 0));
      const [plain, ...others] = [...same].sort((one, other) => tagsOf(one).length - tagsOf(other).length);
      // The file without language and version, or the only one, goes by the name of the key.
      const named = !others.length || !tagsOf(plain).length ? plain : null;
      const head = named ? this.#link(named, name, name) : el("bdi", { class: "name" }, name);
      return el("li", {}, head, ...same.filter((file) => file !== named).map((file) => this.#link(file, null, name)));
    });
    const list = el("ul", {}, ...items);
    return topic ? el("li", {}, el("h3", {}, el("bdi", {}, written(topic))), list) : el("li", {}, list);
  }

  /** A link to a file: by its key, or by what tells it from others of the same key. */
  #link(file, name, key) {
    const tags = tagsOf(file);
    const shown = name === null ? [] : [el("bdi", {}, name)];
    return el(
      "a",
      {
        href: hashOf(file.path),
        title: written(file.path),
        class: name === null ? "variant" : "",
        "aria-current": file.path === this.#open ? "true" : null,
        "aria-label": name === null ? [key, ...tags].join(" ") : null,
      },
      ...shown,
      ...tags.map((tag) => el("bdi", { class: "tag" }, tag)),
    );
  }
}

const tagsOf = ({ lang, version }) => [version && `@${version}`, lang].filter(Boolean).map(written);

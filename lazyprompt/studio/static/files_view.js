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
  #at = 0;

  /** @param {() => void} chosen Told when the highlighted file was chosen with Enter. */
  constructor(chosen) {
    const filter = byId("filter");
    const move = (at) => {
      this.#at = at;
      this.#highlight();
    };
    filter.addEventListener("input", () => {
      this.#at = 0;
      this.#draw();
    });
    filter.addEventListener("focus", () => move(0));
    filter.addEventListener("blur", () => this.#highlight());
    filter.addEventListener("keydown", (event) => {
      const last = this.#links.length - 1;
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        move(Math.max(0, Math.min(last, this.#at + (event.key === "ArrowDown" ? 1 : -1))));
      } else if (event.key === "Enter" && !event.isComposing && !event.ctrlKey && !event.metaKey && last >= 0) {
        event.preventDefault();
        location.hash = this.#links[this.#at].hash;
        chosen();
      }
    });
  }

  get #links() {
    return [...byId("tree").querySelectorAll("a")];
  }

  /** Mark the file that Enter opens, while the filter has the focus. */
  #highlight() {
    const typing = document.activeElement === byId("filter");
    this.#links.forEach((link, at) => link.classList.toggle("lit", typing && at === this.#at));
    if (typing) byId("tree").querySelector("a.lit")?.scrollIntoView({ block: "nearest" });
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
    this.#highlight();
  }

  #topic(topic, files) {
    const keys = Map.groupBy(files, ({ key }) => key);
    const items = [...keys].map(([key, same]) => {
      const name = written(key.slice(topic ? topic.length + 1 : 0));
      const [plain, ...more] = [...same].sort((one, other) => tagsOf(one).length - tagsOf(other).length);
      // The file without language and version, or the only one, goes by the name of the key.
      const named = !more.length || !tagsOf(plain).length ? plain : null;
      const head = named ? this.#link(named, name, name) : el("bdi", { class: "name" }, name);
      // A row for each version: its languages stay beside it.
      const others = named ? [...same].filter((file) => file !== named) : [...same];
      const rows = Map.groupBy(others.sort((one, other) => (one.version ? 1 : 0) - (other.version ? 1 : 0)), ({ version }) => version);
      const lines = [...rows.values()].map((row) => this.#row(row, name));
      return el("li", {}, head, el("div", { class: "variants" }, ...lines));
    });
    const list = el("ul", {}, ...items);
    return topic ? el("li", {}, el("h3", {}, el("bdi", {}, written(topic))), list) : el("li", {}, list);
  }

  /** The files of one version, the default language first; the version is told once. */
  #row(files, key) {
    const sorted = files.sort((one, other) => one.lang.localeCompare(other.lang));
    return el("span", { class: "row" }, ...sorted.map((file, at) => this.#link(file, null, key, at > 0)));
  }

  /** A link to a file: by its key, or by what tells it from others of the same key. */
  #link(file, name, key, inRow = false) {
    const tags = tagsOf(file);
    const told = inRow ? tags.slice(-1) : tags;
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
      ...told.map((tag) => el("bdi", { class: "tag" }, tag)),
    );
  }
}

const tagsOf = ({ lang, version }) => [version && `@${version}`, lang].filter(Boolean).map(written);

// All words of the page, in two languages: en.json and zh.json have the same keys.

import { el } from "./dom.js";
import { countHidden, written } from "./signs.js";

// How many kinds of hidden signs are named.
const MOST = 4;
const LANGUAGES = ["en", "zh"];
const KEPT = "lazyprompt-studio-language";
const tables = {};
let spoken = "en";

/** The language to begin with: what was chosen before, else the first of the browser's that there is. */
export function firstLanguage() {
  const wanted = [localStorage.getItem(KEPT), ...navigator.languages].filter(Boolean).map((each) => each.split("-")[0]);
  return wanted.find((each) => LANGUAGES.includes(each)) ?? "en";
}

/** Speak a language from now on. */
export async function speak(language, keep = false) {
  tables[language] ??= await (await fetch(`/static/${language}.json`)).json();
  spoken = language;
  if (keep) localStorage.setItem(KEPT, language);
  document.documentElement.lang = language === "zh" ? "zh-Hans" : language;
  for (const node of document.querySelectorAll("[data-t]")) node.textContent = say(node.dataset.t);
  for (const node of document.querySelectorAll("[data-t-label]")) node.setAttribute("aria-label", say(node.dataset.tLabel));
  for (const node of document.querySelectorAll("[data-t-title]")) node.title = say(node.dataset.tTitle);
  for (const node of document.querySelectorAll("[data-t-placeholder]")) node.placeholder = say(node.dataset.tPlaceholder);
}

/** Whether there is a word for something. */
export const knows = (key) => Object.hasOwn(tables[spoken] ?? {}, key);

const SLOT = /\{(\w+)\}/;

/** A sentence with its values. A value is never looked through for more. */
export const say = (key, values = {}) =>
  parts(key)
    .map((part, at) => (at % 2 ? shown(values[part]) : part))
    .join("");

/** The same as nodes: each value is an element of its own, which cannot turn what stands around it. */
export const sayNodes = (key, values) =>
  parts(key).map((part, at) => (at % 2 ? el("bdi", { class: "value", translate: "no" }, shown(values[part])) : part));

export const number = (value) => value.toLocaleString(spoken === "zh" ? "zh-CN" : "en");

/** Show next to a text area which invisible characters it contains. */
export function tellHidden(place, text) {
  const { count, signs } = countHidden(text);
  const shown = signs.length > MOST ? [...signs.slice(0, MOST), "…"] : signs;
  place.hidden = !count;
  place.textContent = count ? say("hidden_here", { count, signs: shown.join(", ") }) : "";
}

const parts = (key) => (tables[spoken]?.[key] ?? key).split(SLOT);
const shown = (value) => (typeof value === "number" ? number(value) : written(String(value)));

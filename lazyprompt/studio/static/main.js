// The page put together: what is typed and chosen on one side, what the server makes of it on the other.

import * as api from "./api.js";
import { AttackView } from "./attack_view.js";
import { showCautions } from "./cautions_view.js";
import { askName, showShortcuts } from "./dialogs.js";
import { DiffView } from "./diff_view.js";
import { byId, el, offer } from "./dom.js";
import { Editor } from "./editor.js";
import { showFindings } from "./findings_view.js";
import { FilesView, hashOf, namedFile } from "./files_view.js";
import { InputsForm, isJson } from "./inputs_form.js";
import { PromptView } from "./prompt_view.js";
import { Saving } from "./saving.js";
import { written } from "./signs.js";
import { showTokens } from "./token_bar.js";
import { TrimView } from "./trim_view.js";
import { firstLanguage, number, say, speak, tellHidden } from "./words.js";

// Forms whose model is a family of this library; a provider is told the name of one of its own.
const NEW_FILE = "system:\nYou are a helpful assistant.\n\nuser:\n{{ question }}\n";
const OWN_FORMS = new Set(["flat", "openai"]);

// The form is the file's own where it names a provider, else the one that was chosen last.
const state = { path: null, shown: null, diff: null, lit: null, declared: "", form: "flat", findings: [], checked: null };
// How long nothing is typed before the text is checked, in milliseconds.
const PAUSE = 250;
const looking = new api.Newest(lookNow);
const checking = new api.Newest(checkNow);
const editor = new Editor(changed);
const form = new InputsForm(byId("inputs"), changed);
const files = new FilesView(() => editor.focus());
const made = new PromptView(byId("made"));
const trim = new TrimView(byId("panel_trim"), changed);
const attack = new AttackView(byId("panel_attack"), changed);
const diff = new DiffView(byId("panel_diff"), changed);
const saving = new Saving(editor, { tell, changed, failed: (error) => stale(told(error)) });

const mode = () => document.querySelector("input[name=mode]:checked").value;
const isOwn = () => OWN_FORMS.has(byId("form").value);

async function changed() {
  tellDirty();
  if (state.path === null) return;
  checkSoon();
  busy(true);
  if (await looking.ask()) busy(false);
}

/** Check what is in the editor once nothing was typed for a moment. */
function checkSoon() {
  if (state.checked === `${state.path}\n${editor.text}`) return;
  byId("findings").setAttribute("aria-busy", "true");
  clearTimeout(state.pause);
  state.pause = setTimeout(() => checking.ask(), PAUSE);
}

async function checkNow() {
  const { path } = state;
  const text = editor.text;
  try {
    const { findings } = await api.check({ path, text });
    if (path !== state.path || text !== editor.text) return;
    state.checked = `${path}\n${text}`;
    state.findings = findings;
    tellFindings();
    byId("findings").setAttribute("aria-busy", "false");
  } catch (error) {
    stale(told(error));
  }
}

const tellFindings = () =>
  showFindings(byId("findings"), state.findings, state.error, (line, column) => editor.goTo(line, column));

const busy = (is) => byId("seen").setAttribute("aria-busy", String(is));

function tellDirty() {
  byId("save").disabled = !editor.dirty || state.path === null;
  byId("unsaved").hidden = !editor.dirty;
  if (editor.dirty) tell("");
}

function tellUnseen() {
  tellHidden(byId("template_hidden"), editor.text);
  tellHidden(byId("history_hidden"), byId("history").value);
}

function tell(text) {
  if (byId("status").textContent !== text) byId("status").textContent = text;
}

/** What is wanted now, as members of a JSON object; null where something that was typed is no JSON. */
function wanted() {
  const inputs = form.read();
  const typed = byId("history").value.trim();
  const fine = !typed || (isJson(typed) && typed.startsWith("["));
  byId("history_error").hidden = fine;
  byId("history_error").textContent = fine ? "" : say("no_history");
  tellUnseen();
  byId("history").setAttribute("aria-invalid", String(!fine));
  if (inputs === null || !fine) return null;
  const model = byId(isOwn() ? "family" : "model").value.trim() || null;
  const plain = JSON.stringify({ path: state.path, text: editor.text, form: byId("form").value, model });
  return `${plain.slice(0, -1)},"inputs":${inputs},"history":${typed || "null"}`;
}

async function lookNow() {
  const { path } = state;
  const now = mode();
  const body = wanted();
  byId("seen").classList.toggle("comparing", now === "diff");
  if (body === null) return stale(null);
  try {
    if (now === "diff") return await diffNow(path, body);
    const further = JSON.stringify({
      max_tokens: now === "trim" ? trim.maxTokens : null,
      window: Number(byId("window").value) || null,
      counter: byId("counter").value,
      attack: now === "attack" ? attack.chosen : null,
    });
    const answer = await api.look(`${body},${further.slice(1)}`);
    // Another file may have been opened, or another mode chosen, since this was asked.
    if (path !== state.path || now !== mode()) return;
    if (answer.inputs) declare(answer.inputs);
    if (answer.error) return stale(answer.error);
    state.shown = answer;
    show();
  } catch (error) {
    stale(told(error));
  }
}

async function diffNow(path, body) {
  if (!diff.other) return;
  const answer = await api.diff(`${body},"other":${JSON.stringify(diff.other)}}`);
  if (path !== state.path) return;
  if (answer.error) return stale(answer.error);
  state.diff = answer;
  diff.show(answer);
  stale(undefined);
}

/** What an error that is none of the library's says: the server is gone, or refused. */
function told(error) {
  if (error instanceof api.Refused) return { message: error.message };
  if (error instanceof TypeError && !navigator.onLine) return { message: say("no_server") };
  if (error instanceof TypeError && error.message.includes("fetch")) return { message: say("no_server") };
  throw error;
}

function declare(inputs) {
  const declared = JSON.stringify(inputs);
  if (declared === state.declared) return;
  state.declared = declared;
  form.declare(inputs);
  attack.declare(inputs);
  byId("no_inputs").hidden = inputs.length > 0;
}

function show() {
  stale(undefined);
  const { look, attacked } = state.shown;
  made.show(look);
  tokens();
  showCautions(byId("cautions"), look);
  byId("window").placeholder = look.window ? number(look.window) : say("window_none");
  if (mode() === "trim") trim.show(look);
  if (mode() === "attack") attack.show(look, attacked);
}

function tokens() {
  const { look } = state.shown;
  const at = look.slots.findIndex(({ name }) => name === state.lit);
  if (at === -1) state.lit = null;
  showTokens({ bar: byId("bar"), legend: byId("legend") }, look, state.lit, (slot) => {
    state.lit = slot;
    tokens();
  });
  const color = byId("legend").children[at]?.querySelector(".swatch").classList[1] ?? "";
  byId("made").dataset.lit = color;
}

/**
 * Say whether what is shown is of an earlier state.
 *
 * @param {{kind?: string, message: string, line?: number, column?: number} | null | undefined} error What is wrong; null where a field
 *     says so itself, and undefined where nothing is.
 */
function stale(error) {
  byId("seen").classList.toggle("stale", error !== undefined);
  byId("stale").hidden = error === undefined || state.shown === null;
  state.error = error;
  const box = byId("error");
  const key = error ? JSON.stringify(error) : "";
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  if (!error) return box.replaceChildren();
  const place = error.line
    ? [el("button", { type: "button", click: () => editor.goTo(error.line, error.column) }, say("place", { line: error.line, column: error.column ?? 1 })), " "]
    : [];
  const kind = error.kind ? [el("span", { class: "kind" }, say(`error_${error.kind}`)), " "] : [];
  box.replaceChildren(...place, ...kind, el("bdi", { translate: "no" }, written(error.message)));
}

async function open(path) {
  busy(true);
  try {
    const [file, { versions }] = await Promise.all([api.file(path), api.versions(path)]);
    // Another one may have been asked for meanwhile.
    if (path !== namedFile()) return;
    Object.assign(state, { path, shown: null, diff: null, lit: null, declared: "", findings: [], checked: null });
    byId("where").textContent = written(path);
    document.title = `${written(path)} · lazyprompt studio`;
    byId("history").value = "";
    byId("history_fold").open = false;
    made.clear();
    for (const id of ["bar", "legend", "cautions", "findings"]) byId(id).replaceChildren();
    trim.begin();
    byId("form").value = file.form ?? state.form;
    byId("model").value = (file.form && file.model) ?? "";
    tellForm();
    saving.begin(path, file.hash);
    editor.begin(file.text);
    form.begin([], {});
    if (file.error) stale(file.error);
    form.declare(file.inputs, file.values);
    declare(file.inputs);
    files.opened(path);
    diff.begin(versions);
    tell("");
    await changed();
  } catch (error) {
    stale(told(error));
    busy(false);
  }
}

async function turnTo() {
  const path = namedFile();
  if (path === null || path === state.path) return;
  if (await saving.mayLeave()) return open(path);
  history.replaceState(null, "", hashOf(state.path));
}

async function copy() {
  if (!state.shown) return;
  const done = navigator.clipboard.writeText(state.shown.look.text);
  tell(say(await done.then(() => "copied", () => "not_copied")));
}

function modeChosen() {
  for (const each of ["trim", "attack", "diff"]) byId(`panel_${each}`).hidden = mode() !== each;
  changed();
}

function tellForm() {
  byId("family_field").hidden = !isOwn();
  byId("model_field").hidden = isOwn();
}

function formChosen() {
  state.form = byId("form").value;
  tellForm();
  changed();
}

/** Ask for the name of a new file, write it, and open it. */
async function add() {
  if (!(await saving.mayLeave())) return;
  const path = await askName();
  if (path === null) return;
  try {
    await api.save({ path, text: NEW_FILE, hash: null });
  } catch (error) {
    // A file of that name is there already: it is opened.
    if (error.status !== 409) return tell(told(error).message);
  }
  files.show((await api.workspace()).files);
  history.replaceState(null, "", hashOf(path));
  await open(path);
  editor.focus();
}

const KEYS = {
  s: () => saving.save(),
  k: () => {
    byId("files_fold").open = true;
    byId("filter").focus();
  },
  e: () => editor.focus(),
  i: () => byId("inputs").querySelector(".field > :is(textarea, input, select)")?.focus(),
  enter: () => byId("made").focus(),
};

function keyPressed(event) {
  const act = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && KEYS[event.key.toLowerCase()];
  const typing = event.target.closest("input, textarea, select");
  if (event.key === "?" && !typing && !byId("dialog").open) showShortcuts();
  if (event.key === "Escape" && event.target === byId("filter")) editor.focus();
  if (!act) return;
  event.preventDefault();
  if (!byId("dialog").open) act();
}

async function reword(language, keep) {
  await speak(language, keep);
  offer(byId("family"), [["", say("family_none")], ...families.map((each) => [each, each])]);
  offer(byId("form"), [["flat", say("form_flat")], ...providers.map((each) => [each, each])]);
  form.reword();
  tellUnseen();
  attack.reword();
  diff.reword();
  tellFindings();
  if (state.diff) diff.show(state.diff);
  if (state.shown) show();
}

let families = [];
let providers = [];

async function start() {
  const language = firstLanguage();
  byId("language").value = language;
  await reword(language, false);
  const found = await api.workspace();
  ({ families, providers } = found);
  offer(byId("counter"), found.counters.map((each) => [each, each]));
  attack.begin(found.attacks);
  files.show(found.files);
  await reword(language, false);
  for (const id of ["family", "form", "counter"]) byId(id).addEventListener("change", id === "form" ? formChosen : changed);
  for (const id of ["model", "window", "history"]) byId(id).addEventListener("input", changed);
  byId("modes").addEventListener("change", modeChosen);
  byId("names").addEventListener("change", () => byId("made").classList.toggle("named", byId("names").checked));
  byId("made").classList.add("named");
  byId("save").addEventListener("click", () => saving.save());
  byId("copy").addEventListener("click", copy);
  byId("add").hidden = !found.adds;
  byId("add").addEventListener("click", add);
  byId("keys").addEventListener("click", showShortcuts);
  byId("language").addEventListener("change", () => reword(byId("language").value, true));
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    editor.focus();
  });
  addEventListener("hashchange", turnTo);
  addEventListener("keydown", keyPressed);
  addEventListener("beforeunload", (event) => editor.dirty && event.preventDefault());
  const first = namedFile() ?? found.files[0]?.path;
  if (matchMedia("(max-width: 60rem)").matches) byId("files_fold").open = false;
  if (first === undefined) return tell(say("no_files"));
  history.replaceState(null, "", hashOf(first));
  await open(first);
}

start().catch((error) => tell(error.message));

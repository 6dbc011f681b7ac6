"""The studio's page shows exactly the sent text, runs none of it, is accessible, and has two languages."""

from __future__ import annotations

import json
import re
import string
from hashlib import sha256
from itertools import groupby, product
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped] # it has no types

from lazyprompt import errors
from lazyprompt._base.characters import split_hidden
from lazyprompt.files.check.check import RULES
from lazyprompt.inspect.cautions import TEMPLATES
from lazyprompt.studio.reading import ATTACKS
from studio.helpers import Screen, open_studio
from studio.library_looks import Case, cases, expected_text, inputs_of
from support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from support.browser import Watch

pytestmark = pytest.mark.slow  # a browser

STATIC = ROOT / "lazyprompt" / "studio" / "static"
WORDS: dict[str, dict[str, str]] = {
    name: json.loads((STATIC / f"{name}.json").read_text(encoding="utf-8")) for name in ("en", "zh")
}
# One in this many files is shown in all its formats.
FILES = 30
HOSTILE = (
    "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'>"
    "\x1b[2J\x1b[8mhidden\x1b[0m \u202egnp.exe\u202c \u2066a\u2069 pa\u200bss\u2060word"
    " \U000e0041\U000e0042 \ufeff\xad\x07\u2028"
)


# Edits a text repeatedly, and compares the incremental redraw with a full redraw.
EDITS = """async (rounds) => {
  const { PromptView } = await import("/static/prompt_view.js");
  let seed = 7;
  const random = (most) => (seed = (seed * 48271) % 2147483647) % most;
  const bits = ["a", "\\n", "word\\n", "\\u{1f600}", "\\u202e", "x".repeat(50) + "\\n", "<|im_end|>", ""];
  const slots = ["markers", "system", "city"];
  const look = (pieces) => {
    const segments = pieces.map((text, at) => ({ text, slot: slots[at % 3], trusted: at % 3 < 2 }));
    const marks = [];
    let signs = 0;
    for (const { text, slot } of segments) {
      const at = slot === "city" ? text.indexOf("<|im_end|>") : -1;
      const start = signs + [...text.slice(0, Math.max(at, 0))].length;
      if (at !== -1) marks.push({ slot, start, end: start + 10, raw: "raw", safe: "safe" });
      signs += [...text].length;
    }
    return { payload: false, text: pieces.join(""), segments, marks, slots: slots.map((name) => ({ name })) };
  };
  const drawn = (root) => [...root.querySelectorAll(".seg")]
    .flatMap((node) => [...node.textContent].map((sign) => sign + node.className.replace(" first", "") + node.tagName));
  const pieces = Array.from({ length: 12 }, () => Array.from({ length: 60 }, () => bits[random(8)]).join(""));
  const [kept, fresh] = [document.createElement("div"), document.createElement("div")];
  const view = new PromptView(kept);
  for (let round = 0; round < rounds; round += 1) {
    // Mostly at the ends, where chunks are taken over; and texts that stay while their slots change.
    const at = [0, pieces.length - 1, random(pieces.length)][random(3)];
    const signs = [...pieces[at]];
    const place = [0, signs.length, random(signs.length + 1)][random(3)];
    if (random(4)) signs.splice(place, random(3) ? random(4) : random(400), bits[random(8)].repeat(random(3)));
    else if (at) pieces[at - 1] += signs.splice(0, random(90)).join("");
    pieces[at] = signs.join("");
    const now = look(pieces);
    view.show(now);
    fresh.replaceChildren();
    new PromptView(fresh).show(now);
    if (kept.textContent !== now.text) return `round ${round}: the text`;
    if (drawn(kept).join() !== drawn(fresh).join()) return `round ${round}: how it is drawn`;
    const whole = [...kept.children].slice(0, -1).every((chunk) => chunk.textContent.endsWith("\\n"));
    if (!whole) return `round ${round}: lines`;
  }
  return "";
}"""


def shown_text(screen: Screen, case: Case) -> object:
    """Return what the page shows of a case, whose file is open, in the same form as expected_text."""
    # Set both controls, and render once.
    screen.page.evaluate("family => { document.querySelector('#family').value = family; }", case.model or "")
    screen.set("#form", case.form)
    if screen.page.locator("#seen.stale").count():
        return {"message": screen.text("#error bdi").strip(), "line": None, "column": None}
    return screen.made


def test_the_page_shows_library_prompts_exactly_as_generate_prompt_returns_them(screen: Screen) -> None:
    chosen = [case for case in cases() if case.is_of_share(12) and sha256(case.path.encode()).digest()[0] % FILES == 1]
    assert len(chosen) > 20
    for path, same in groupby(chosen, attrgetter("path")):
        screen.open(path)
        for name, value in inputs_of(path).items():
            screen.give(name, value)
        assert [case for case in same if shown_text(screen, case) != expected_text(case)] == []


def test_hostile_content_runs_no_script_and_hidden_characters_are_shown(page: Page, tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>.prompty"
    value = {"name": "value", "kind": "string", "description": HOSTILE, "example": HOSTILE}
    inputs = yaml.safe_dump([value], default_flow_style=True, width=9999).strip()
    text = f"---\nname: x\ninputs: {inputs}\n---\nsystem:\n<b>Hi</b> {HOSTILE}\n\nuser:\n{{{{value}}}}\n"
    (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "<b>bad.prompty").write_text(
        f"---\ninputs: [{{name: a, kind: {yaml.safe_dump(HOSTILE, width=9999).strip()}}}]\n---\n", encoding="utf-8"
    )
    (tmp_path / "<img src=x onerror=alert(1)>@2.0.0.prompty").write_text(text.replace("system:", f"system:\n{HOSTILE}"))
    with open_studio(page, tmp_path) as screen:
        screen.open(name)
        for form in ("flat", "openai", "anthropic"):
            screen.set("#form", form)
            assert screen.text("#error") == ""
            assert screen.made.count("<script>window.ran = 1</script>") >= 2
            signs = page.eval_on_selector_all(
                "#made .sign", "all => all.map(each => [each.textContent, each.dataset.sign])"
            )
            found = [piece for piece, is_sign in split_hidden(screen.made) if is_sign]
            assert signs == [[sign, f"U+{ord(sign):04X}"] for sign in found]
            assert found or form != "flat"
        # A text area cannot show hidden characters; the list beside it does.
        assert "U+202E" in page.inner_text("#template_hidden")
        assert "U+202E" in page.inner_text("#inputs .unseen")
        # The areas around the prompt contain no hidden characters.
        for mode in ("trim", "attack", "diff"):
            screen.mode(mode)
            for area in ("#tree", "#where", "#legend", "#cautions", "#inputs", "#panel_trim", "#panel_diff", "title"):
                assert [piece for piece, is_sign in split_hidden(screen.text(area)) if is_sign] == []
        screen.mode("look")
        screen.open("<b>bad.prompty")
        assert "<script>" in screen.text("#error")
        assert [piece for piece, is_sign in split_hidden(screen.text("#error")) if is_sign] == []
        screen.checked()
        assert [piece for piece, is_sign in split_hidden(screen.text("#findings")) if is_sign] == []
        assert page.locator("script, img, b").count() == 1
        assert page.evaluate("window.ran") is None


def test_a_direction_override_in_a_value_does_not_reorder_the_surrounding_text(screen: Screen, place: Path) -> None:
    # Without isolation the override would mirror the text after the value.
    (place / "turned.prompty").write_text(
        '---\nname: x\ninputs: [{name: a, kind: string, example: "one \u202etwo"}]\n---\nsystem:\n{{a}} three four\n',
        encoding="utf-8",
    )
    screen.open("turned.prompty")
    edges = screen.page.evaluate("""() => {
      const left = (word) => {
        const walk = document.createTreeWalker(document.querySelector("#made"), NodeFilter.SHOW_TEXT);
        for (let node = walk.nextNode(); node; node = walk.nextNode()) {
          const at = node.data.indexOf(word);
          if (at === -1) continue;
          const range = document.createRange();
          range.setStart(node, at);
          range.setEnd(node, at + word.length);
          return range.getBoundingClientRect().left;
        }
      };
      return ["one", "two", "three", "four"].map(left);
    }""")
    assert edges == sorted(edges)


def test_the_page_finds_the_same_hidden_characters_as_the_library(screen: Screen) -> None:
    # Next to nothing, joining letters, symbols and digits.
    around = ("", "a", "\u0646", "\u0915\u094d", "\u2764", "\U0001f469", "1", "\ufe0f")
    signs = [chr(code) for code in (*range(0xD800), *range(0xE000, 0x10000)) if not chr(code).isalnum()]
    signs += [
        chr(code) for code in (*range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), 0x1F469, *range(0xE0000, 0xE1000))
    ]
    texts = ["".join(f"{before}{sign}{behind}|" for sign in signs) for before in around[:4] for behind in around[:4]]
    texts += [
        f"{before}{sign}{behind}" for before in around for behind in around for sign in "\u200c\u200d\ufe0e\ufe0f\u2060"
    ]
    screen.page.goto(screen.address)
    found = screen.page.evaluate(
        "async texts => { const { hiddenIn } = await import('/static/signs.js');"
        " return texts.map(text => hiddenIn(text).map(([from, to]) => text.slice(from, to))); }",
        texts,
    )
    assert found == [[piece for piece, is_sign in split_hidden(text) if is_sign] for text in texts]


def test_incremental_redraws_equal_a_full_redraw(screen: Screen) -> None:
    screen.page.goto(screen.address)
    assert screen.page.evaluate(EDITS, 150) == ""


@pytest.mark.parametrize(
    ("scheme", "language", "modes"),
    [("light", "en", ("look", "diff", "broken")), ("dark", "zh", ("trim", "attack", "dialog"))],
)
def test_axe_finds_no_serious_violations(screen: Screen, scheme: Any, language: str, modes: tuple[str, ...]) -> None:
    page = screen.page
    page.emulate_media(color_scheme=scheme)
    page.add_init_script(f"localStorage.setItem('lazyprompt-studio-language', '{language}')")
    screen.open("support/escalation@2.0.0.prompty")
    screen.give("conversation", [{"role": "user", "content": "<|im_end|>\u202e"}])
    screen.set("#family", "qwen2.5")
    screen.set("#window", "20")
    # The hundred other links are alike, and would take a second each time.
    page.fill("#filter", "escalation")
    axe = Axe()
    for mode in modes:
        if mode == "broken":
            screen.mode("look")
            screen.set("#template", "---\nname: [\n---\n")
        elif mode == "dialog":
            page.click("#keys")
        else:
            screen.mode(mode)
        found = [each for each in axe.run(page).response["violations"] if each["impact"] in ("serious", "critical")]
        assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == [], mode


def test_no_element_is_cut_off_in_narrow_windows(screen: Screen) -> None:
    screen.open("support/escalation@2.0.0.prompty")
    # A phone; a window of 1280 at 200 %.
    for width, mode in product((400, 640), ("look", "trim", "attack", "diff")):
        screen.page.set_viewport_size({"width": width, "height": 400})
        screen.mode(mode)
        assert screen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # An element that is too wide and cannot be scrolled would be cut off.
        wide = """() => [...document.querySelectorAll("body *")].filter((node) => node.checkVisibility()
          && node.getBoundingClientRect().right > innerWidth + 1 && !node.closest(".hidden, .skip"))
          .map((node) => node.outerHTML)"""
        assert screen.page.evaluate(wide) == []


def test_all_controls_can_be_used_with_the_keyboard(screen: Screen, place: Path) -> None:
    path = place / "keys.prompty"
    path.write_text("---\nname: keys\ninputs: [{name: a, kind: string}]\n---\nsystem:\n{{a}}\n", encoding="utf-8")
    screen.open("code/regex.yaml")
    keys = screen.page.keyboard
    keys.press("Control+k")
    keys.type("keys.prompty")
    keys.press("Tab")
    keys.press("Enter")
    screen.opened("keys.prompty")
    keys.press("Control+i")
    keys.type("Ada")
    screen.idle()
    assert "Ada" in screen.made
    keys.press("Control+e")
    keys.press("Control+End")
    keys.type("Go.")
    keys.press("Control+s")
    screen.says("Saved")
    assert path.read_text(encoding="utf-8").endswith("Go.")
    # The Tab key reaches each control in order, and each shows its focus.
    screen.page.evaluate("document.querySelector('#skip').focus()")
    seen: list[str] = []
    for _ in range(60):
        keys.press("Tab")
        name, outlined = screen.page.evaluate("""() => {
          const { activeElement: node } = document;
          const shown = node.type === "radio" ? node.nextElementSibling : node;
          return [node.id || node.value || node.tagName, getComputedStyle(shown).outlineStyle !== "none"];
        }""")
        assert outlined, name
        seen.append(name)
        if name == "made":
            break
    order = "language keys filter template look copy form family window counter names made"
    assert [name for name in seen if name in order.split()] == order.split()
    keys.press("?")
    assert screen.page.is_visible("dialog")
    keys.press("Escape")
    assert screen.page.is_hidden("dialog")
    screen.page.focus("#modes input:checked")
    keys.press("ArrowRight")
    screen.idle()
    assert screen.page.is_visible("#panel_trim")


def test_the_chosen_language_is_used_and_kept_after_a_reload(screen: Screen) -> None:
    screen.open("support/answer-ticket.prompty")
    assert screen.page.inner_text("#save") == "Save"
    screen.page.select_option("#language", "zh")
    screen.page.locator("#save", has_text="保存").wait_for()
    assert screen.page.get_attribute("html", "lang") == "zh-Hans"
    assert "ticket：值为空" in screen.text("#cautions")
    written = screen.template
    screen.set("#template", f"{written}\n{{{{ ticket | safe }}}}\n")
    screen.checked()
    assert "safe 过滤器没有作用" in screen.text("#findings")
    screen.set("#template", f"{written}\n{{% if %}}\n")
    screen.idle()
    assert "提示词文件有误" in screen.text("#error")
    screen.set("#template", written)
    screen.page.reload()
    screen.idle()
    assert screen.page.inner_text("#save") == "保存"


def test_the_page_starts_in_chinese_in_a_chinese_browser(browser: Browser, address: str, watch: Watch) -> None:
    with browser.new_context(locale="zh-CN") as context:
        page = context.new_page()
        watch.over(page)
        page.goto(address)
        page.locator("#save", has_text="保存").wait_for()
        assert watch.faults == []


def test_all_text_of_the_page_comes_from_the_translation_tables(screen: Screen) -> None:
    page = screen.page
    # A language table in which every word is replaced by #.
    table = {key: re.sub(r"[^{}]+(?=\{|$)", "#", text) for key, text in WORDS["en"].items()}
    page.route("**/static/en.json", lambda route: route.fulfill(json=table))
    screen.open("support/escalation@2.0.0.prompty")
    screen.give("conversation", [{"role": "user", "content": "<|im_end|>\u202e"}])
    own = """() => {
      const found = [];
      const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      for (let node = walk.nextNode(); node; node = walk.nextNode()) {
        if (!node.parentElement.closest("[translate=no]")) found.push(node.data);
      }
      for (const node of document.querySelectorAll("[aria-label], [title], [placeholder]")) {
        if (!node.closest("[translate=no]")) found.push(node.ariaLabel ?? "", node.title, node.placeholder ?? "");
      }
      return found;
    }"""
    for mode in ("look", "trim", "attack", "diff"):
        screen.mode(mode)
        # The labels of the checkboxes contain the names of the inputs.
        words = [re.sub("conversation|queues", "", text) for text in page.evaluate(own)]
        assert [text for text in words if re.search(r"[^\W\d_]{2}", text)] == []


def test_both_translation_tables_have_the_same_keys_and_placeholders() -> None:
    fields = {
        name: {
            key: sorted(each[1] for each in string.Formatter().parse(text) if each[1]) for key, text in words.items()
        }
        for name, words in WORDS.items()
    }
    assert fields["en"] == fields["zh"]
    assert {f"caution_{kind}": said for kind, said in TEMPLATES.items()}.items() <= WORDS["en"].items()
    assert {f"attack_{each.id}": each.name for each in ATTACKS}.items() <= WORDS["en"].items()
    kinds = {f"error_{name}" for name in vars(errors) if name.endswith("Error")}
    assert kinds | {f"rule_{code}" for code in RULES} <= WORDS["en"].keys()
    # Each key is used, and each used key exists.
    used = "".join(path.read_text(encoding="utf-8") for path in STATIC.iterdir() if path.suffix in (".js", ".html"))
    made = ("caution_", "attack_", "action_", "fate_", "diff_", "state_", "severity_", "rule_", "error_", "tokens")
    assert [key for key in WORDS["en"] if not key.startswith(made) and f'"{key}"' not in used] == []
    asked = re.findall(r'\\b(?:say|sayNodes)\("(\w+)"|data-t(?:-\w+)?="(\w+)"', used)
    assert {"".join(each) for each in asked} <= WORDS["en"].keys()


def test_page_scripts_never_parse_markup_or_load_from_other_hosts() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in sorted(STATIC.glob("*.js")))
    assert (
        re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser", code)
        == []
    )
    assert re.findall(r"https?:|//[a-z]+\.", (STATIC / "index.html").read_text(encoding="utf-8") + code) == []

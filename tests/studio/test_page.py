"""The studio's page in a real browser: typing, choosing and saving, and the rendered prompt."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from lazyprompt import Prompty
from lazyprompt.files.check.check import check
from studio.helpers import Screen, open_studio, serve_studio

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

    from support.browser import Watch

pytestmark = pytest.mark.slow  # a browser

SMALL = """---
name: small
inputs:
  - {name: city, kind: string, required: true, example: Leeds}
  - {name: count, kind: integer, default: 3}
  - {name: tags, kind: array, default: [a]}
  - {name: loud, kind: boolean, default: false}
---
system:
You are a librarian in {{city}}.

user:
{{count}} {{tags | join("+")}} {{loud}}
"""
NEUTRAL = "You are a librarian in Leeds."


@pytest.fixture
def small(place: Path) -> Path:
    path = place / "small.prompty"
    path.write_text(SMALL, encoding="utf-8")
    return path


@pytest.fixture
def screen(screen: Screen, small: Path) -> Screen:
    screen.open(small.name)
    return screen


def generate(text: str, inputs: dict[str, object], form: str = "flat", model: str | None = None) -> object:
    return Prompty.loads(text).generate_prompt(inputs, format=form, model=model)


def test_typed_text_is_rendered_at_once_for_the_chosen_family_and_provider(screen: Screen) -> None:
    values: dict[str, object] = {"city": "Leeds", "count": 3, "tags": ["a"], "loud": False}
    assert screen.made == generate(SMALL, values)
    screen.page.focus("#template")
    screen.page.keyboard.press("Control+End")
    screen.page.keyboard.type("More.")
    screen.idle()
    text = screen.template
    assert text == f"{SMALL}More."
    assert screen.made == generate(text, values)
    screen.page.fill("#inputs [name=city]", "Graz")
    screen.idle()
    screen.choose("#family", "llama-3")
    values["city"] = "Graz"
    assert screen.made == generate(text, values, model="llama-3")
    screen.choose("#form", "anthropic")
    assert screen.page.is_hidden("#family")
    assert json.loads(screen.made) == generate(text, values, "anthropic")
    screen.page.fill("#model", "claude-sonnet-4-5")
    screen.idle()
    assert json.loads(screen.made) == generate(text, values, "anthropic", "claude-sonnet-4-5")
    assert "200,000" in screen.text("#bar")
    screen.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    screen.page.click("#copy")
    screen.says("Copied")
    assert screen.page.evaluate("navigator.clipboard.readText()") == screen.made


def test_clicking_a_slot_in_the_legend_highlights_its_text(screen: Screen) -> None:
    button = screen.page.locator("#legend button", has_text="city")
    button.click()
    color = button.locator(".swatch").get_attribute("class") or ""
    assert screen.page.get_attribute("#made", "data-lit") == color.split()[-1]
    assert screen.text(f"#made .{color.split()[-1]}") == "Leeds"
    # The button is kept, with the focus, while its number changes.
    screen.set("#inputs [name=city]", "Leeds and all that lies around it")
    assert button.evaluate("node => node === document.activeElement && node.ariaPressed") == "true"
    button.click()
    assert screen.page.get_attribute("#made", "data-lit") == ""


def test_each_input_has_a_form_field_of_its_kind(screen: Screen) -> None:
    field = screen.page.locator("#inputs .field")
    assert [each.get_attribute("class") for each in field.all()] == [
        f"field {kind}" for kind in ("text", "number", "json", "check")
    ]
    assert screen.page.input_value("#inputs [name=tags]") == json.dumps(["a"], indent=2)
    screen.give("count", 12345678901234567890)
    screen.give("loud", value=True)
    assert "12345678901234567890 a true" in screen.made
    before = screen.made
    screen.set("#inputs [name=tags]", '["b",')
    assert screen.made == before
    assert screen.page.is_visible("#stale")
    assert "JSON" in screen.page.locator("#inputs .field.json .fault").inner_text()
    screen.set("#inputs [name=tags]", '["b"]')
    assert "b true" in screen.made
    assert screen.page.is_hidden("#stale")
    screen.page.locator("#inputs .field.number .head input").uncheck()
    screen.idle()
    assert "3 b true" in screen.made
    # A newly typed slot has a field at once, and the other fields keep their values.
    screen.set("#template", screen.template.replace("{{count}}", "{{count}} {{fresh}}"))
    screen.give("fresh", "new")
    assert "3 new b true" in screen.made


def test_the_history_is_rendered_before_the_user_message(screen: Screen) -> None:
    screen.page.click("#history_fold summary")
    screen.set("#history", '[["Hello", "How can I help?"]]')
    assert screen.made.index("How can I help?") < screen.made.index("3 a false")
    screen.set("#history", '{"no": "list"}')
    assert screen.page.is_visible("#history_error")
    assert "How can I help?" in screen.made


def test_the_trim_slider_shows_the_dropped_messages(screen: Screen) -> None:
    screen.set("#history", json.dumps([[f"Question {at}", f"Answer {at}"] for at in range(20)]))
    screen.mode("trim")
    whole = screen.made
    slider = screen.page.locator("#trim_slider")
    assert screen.page.locator("#panel_trim .gone li").count() == 0
    screen.set("#trim_slider", str(int(slider.get_attribute("max") or 0) // 2))
    assert "Question 0" not in screen.made
    assert "Question 19" in screen.made
    gone = screen.page.locator("#panel_trim .gone li")
    assert gone.count() > 5
    assert gone.first.inner_text().startswith("dropped history[0] user")
    slider.press("End")
    screen.idle()
    assert screen.made == whole


def test_an_attack_is_shown_beside_its_neutralized_text(screen: Screen) -> None:
    screen.set("#family", "qwen2.5")
    screen.mode("attack")
    screen.set("#attack_slot", "city")
    raw, safe = screen.text("#attack_raw"), screen.text("#attack_safe")
    assert "<|im_end|>" in raw
    assert safe == raw.replace("<|", "<\\|")
    assert safe in screen.made
    assert screen.page.locator("#made mark").count() == raw.count("<|")
    assert "neutralised" in screen.page.inner_text("#panel_attack .said")
    screen.set("#form", "openai")
    assert screen.text("#attack_safe") == raw
    assert "payload" in screen.page.inner_text("#panel_attack .said")
    screen.mode("look")
    assert "im_end" not in screen.made


def test_versions_are_compared_by_section_and_by_slot(screen: Screen) -> None:
    screen.open("code/commit-message@2.0.0.prompty")
    screen.mode("diff")
    assert screen.page.input_value("#other") == "code/commit-message@1.0.0.prompty"
    shown = screen.page.inner_text("#diff")
    assert "added input ticket" in shown
    assert screen.page.locator("#diff ins").count() > 0
    assert screen.page.locator("#diff .block").last.locator(".what").inner_text().split()[1] == "slot"
    assert re.search(r"Shared beginning.* about \d+ of \d+ tokens; it ends in instruction, line 1\.", shown)
    assert re.search(r"changed slot instruction \d+ → \d+ tokens", shown)
    assert screen.page.is_hidden("#made")
    screen.open("small.prompty")
    assert screen.page.inner_text("#panel_diff .said").startswith("This prompt has no other version")


def test_saved_text_is_written_to_disk_and_shown_after_a_reload(screen: Screen, small: Path) -> None:
    assert screen.page.is_disabled("#save")
    screen.set("#template", SMALL.replace("librarian", "gardener"))
    assert screen.page.is_visible("#unsaved")
    screen.page.keyboard.press("Control+s")
    screen.says("Saved")
    assert small.read_text(encoding="utf-8") == SMALL.replace("librarian", "gardener")
    assert screen.page.is_disabled("#save")
    screen.page.reload()
    screen.idle()
    assert "gardener" in screen.made


def test_saving_keeps_the_line_breaks_of_a_file(screen: Screen, small: Path) -> None:
    file = SMALL.replace("\n", "\r\n", 8)
    small.write_bytes(file.encode())
    screen.open("code/regex.yaml")
    screen.open(small.name)
    screen.set("#template", SMALL.replace("librarian", "gardener"))
    screen.page.click("#save")
    screen.says("Saved")
    assert small.read_bytes().decode() == file.replace("librarian", "gardener")


def test_saving_a_file_changed_on_disk_asks_which_version_to_keep(screen: Screen, small: Path, watch: Watch) -> None:
    watch.allow("409")
    theirs = SMALL.replace("librarian", "pilot")
    mine = SMALL.replace("librarian", "gardener")
    for answer in ("Escape", "Use the version on disk", "Overwrite it with mine"):
        screen.set("#template", mine)
        small.write_text(theirs, encoding="utf-8")
        screen.page.click("#save")
        assert "pilot" in screen.page.inner_text("dialog pre")
        if answer == "Escape":
            screen.page.keyboard.press("Escape")
            screen.page.wait_for_selector("dialog", state="hidden")
            assert (screen.template, screen.page.is_enabled("#save")) == (mine, True)
        else:
            screen.page.get_by_role("button", name=answer).click()
            screen.page.wait_for_selector("#save:disabled")
            taken = answer.startswith("Use")
            screen.idle()
            assert screen.template == small.read_text(encoding="utf-8") == (theirs if taken else mine)
        theirs = theirs.replace("pilot", "test pilot")


def test_a_file_deleted_on_disk_can_be_created_again(screen: Screen, small: Path, watch: Watch) -> None:
    watch.allow("409")
    screen.set("#template", SMALL.replace("librarian", "gardener"))
    small.unlink()
    screen.page.click("#save")
    screen.page.get_by_role("button", name="Create it again").click()
    screen.says("Saved")
    assert "gardener" in small.read_text(encoding="utf-8")


def test_an_invalid_template_keeps_the_last_view_and_shows_the_error_position(screen: Screen) -> None:
    before = screen.made
    screen.set("#template", SMALL.replace("{{city}}", "{% nothing %}"))
    assert screen.made == before
    assert screen.page.is_visible("#stale")
    place = screen.page.locator("#error button")
    assert place.inner_text().startswith("line 10, column ")
    place.click()
    assert screen.page.evaluate("document.activeElement.id") == "template"
    screen.page.locator("#place", has_text="10:").wait_for()
    screen.set("#template", SMALL)
    assert screen.text("#error") == ""
    assert screen.page.is_hidden("#stale")


def test_leaving_a_file_with_unsaved_text_asks_for_confirmation(screen: Screen, small: Path, watch: Watch) -> None:
    screen.set("#template", f"{SMALL}Mine.")
    go = "location.hash = encodeURIComponent('code/regex.yaml')"
    screen.page.evaluate(go)
    screen.page.get_by_role("button", name="Stay here").click()
    screen.page.wait_for_url("**#small.prompty")
    assert screen.template == f"{SMALL}Mine."
    # The browser asks for confirmation itself on a reload, but only if text was typed by hand.
    screen.page.focus("#template")
    screen.page.keyboard.type("x")
    watch.answer("accept")
    screen.page.reload()
    screen.idle()
    assert screen.template == SMALL
    screen.set("#template", f"{SMALL}Mine.")
    screen.page.evaluate(go)
    screen.page.locator("dialog").get_by_role("button", name="Save", exact=True).click()
    screen.page.locator("#where", has_text="code/regex.yaml").wait_for()
    assert small.read_text(encoding="utf-8") == f"{SMALL}Mine."


def test_typing_in_a_prompt_of_100_kb_redraws_only_a_few_nodes(screen: Screen, place: Path) -> None:
    lines = "".join(f"Line {at}: words that make a prompt of a hundred thousand signs.\n" for at in range(1600))
    text = SMALL.replace("user:", f"{lines}\nuser:")
    assert len(text) > 100_000
    (place / "large.prompty").write_text(text, encoding="utf-8")
    screen.open("large.prompty")
    screen.page.evaluate("""() => {
      window.touched = 0;
      new MutationObserver((all) => { for (const each of all) touched += each.addedNodes.length; })
        .observe(document.querySelector("#made"), { childList: true, subtree: true });
      const area = document.querySelector("#template");
      area.focus();
      const middle = area.value.indexOf("Line 800:");
      area.setSelectionRange(middle, middle);
    }""")
    screen.page.keyboard.type("\n")
    screen.idle()
    assert "\n\nLine 800:" in screen.made
    assert screen.made == generate(screen.template, {"city": "Leeds"})
    assert screen.page.evaluate("touched") <= 2
    assert screen.page.locator("#made .chunk").count() > 30


def test_the_file_filter_finds_files_by_typed_words(screen: Screen) -> None:
    screen.page.keyboard.press("Control+k")
    screen.page.keyboard.type("commit 2.0")
    assert [each.get_attribute("title") for each in screen.page.locator("#tree a").all()] == [
        "code/commit-message@2.0.0.prompty"
    ]
    screen.page.fill("#filter", "no such file")
    assert screen.page.is_visible("#no_files")


def test_a_single_file_is_served_and_a_stopped_server_is_reported(page: Page, tmp_path: Path, watch: Watch) -> None:
    watch.allow("ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET")
    (tmp_path / "one.prompty").write_text(SMALL, encoding="utf-8")
    screen = Screen(page, "")
    with serve_studio(tmp_path / "one.prompty") as address:
        page.goto(address)
        screen.idle()
        assert NEUTRAL in screen.made
        assert page.locator("#tree a").count() == 1
    screen.set("#template", f"{SMALL}More.")
    assert "does not respond" in screen.text("#error")
    assert NEUTRAL in screen.made


def test_findings_of_unsaved_text_are_listed_below_the_editor(screen: Screen, small: Path) -> None:
    screen.checked()
    assert screen.page.locator("#findings li").count() == 0
    screen.set("#template", f"{SMALL}\nhuman:\n{{{{count | safe}}}}\n")
    screen.checked()
    rows = screen.page.locator("#findings li")
    wanted = check(screen.template, name=small.name, base_dir=small.parent)
    assert [each.code for each in wanted] == ["LP030", "LP053"]
    assert [row.locator("bdi").inner_text() for row in rows.all()] == [
        f"{each.code} {each.message}; {each.advice}" for each in wanted
    ]
    rows.first.locator("button").click()
    # The browser reports a moved cursor later.
    screen.page.get_by_text(f"{wanted[0].line}:{wanted[0].column}", exact=True).and_(
        screen.page.locator("#place")
    ).wait_for()
    assert small.read_text(encoding="utf-8") == SMALL
    # A fault that prevents loading is reported only as the error; the rest is still checked.
    screen.set("#template", screen.template.replace("kind: integer", "kind: intger"))
    screen.checked()
    assert "intger" in screen.text("#error")
    assert "intger" not in screen.text("#findings")
    assert "LP030" in screen.text("#findings")
    screen.set("#template", SMALL)
    screen.checked()
    assert screen.page.locator("#findings li").count() == 0


def test_a_file_opens_in_the_format_of_its_own_provider(screen: Screen, place: Path) -> None:
    """A file opened as flat text, whatever provider it named."""
    for name, model in (("a", "{id: claude-sonnet-4-5, provider: anthropic}"), ("b", "{id: x, provider: vertexai}")):
        (place / f"{name}.prompty").write_text(f"---\nmodel: {model}\n---\nuser:\nHi.\n", encoding="utf-8")
    screen.open("a.prompty")
    assert (screen.page.input_value("#form"), screen.page.input_value("#model")) == ("anthropic", "claude-sonnet-4-5")
    assert screen.page.is_visible("#model")
    assert "max_tokens" in screen.made or '"messages"' in screen.made
    screen.open("b.prompty")
    assert (screen.page.input_value("#form"), screen.page.input_value("#model")) == ("gemini", "x")
    # A file without a provider is shown in the format chosen last.
    screen.open("small.prompty")
    assert screen.page.input_value("#form") == "flat"
    assert screen.page.is_visible("#family")
    screen.page.select_option("#form", "ollama")
    for path, form in (("a.prompty", "anthropic"), ("small.prompty", "ollama")):
        screen.page.evaluate("path => { location.hash = path; }", path)
        screen.opened(path)
        assert screen.page.input_value("#form") == form


def test_enter_opens_the_highlighted_file(screen: Screen) -> None:
    """The Enter key did nothing."""
    keys = screen.page.keyboard
    keys.press("Control+k")
    keys.type("commit")
    lit = screen.page.locator("#tree a.lit")
    assert lit.get_attribute("title") == screen.page.locator("#tree a").first.get_attribute("title")
    keys.press("ArrowDown")
    wanted = screen.page.locator("#tree a").nth(1).get_attribute("title") or ""
    assert lit.get_attribute("title") == wanted
    keys.press("Enter")
    screen.opened(wanted)
    assert screen.page.evaluate("document.activeElement.id") == "template"
    assert lit.count() == 0
    keys.press("Control+k")
    screen.page.fill("#filter", "no such file")
    keys.press("Enter")
    assert screen.text("#where") == wanted


def test_a_new_file_is_created_and_opened(screen: Screen, place: Path, watch: Watch) -> None:
    watch.allow("409|404")

    def add(name: str) -> None:
        screen.page.click("#add")
        screen.page.keyboard.type(name)
        screen.page.keyboard.press("Enter")

    add("fresh/hello@1.0.0")
    screen.opened("fresh/hello@1.0.0.prompty")
    text = (place / "fresh/hello@1.0.0.prompty").read_text(encoding="utf-8")
    assert text == screen.template
    assert check(text, name="x.prompty") == []
    assert screen.page.locator("#tree a[aria-current]").get_attribute("title") == "fresh/hello@1.0.0.prompty"
    # An existing file is opened and not overwritten; a path outside the workspace is refused.
    add("small")
    screen.opened("small.prompty")
    assert (place / "small.prompty").read_text(encoding="utf-8") == SMALL
    add("../out")
    screen.says("is not a prompt file in this workspace")
    assert not (place.parent / "out.prompty").exists()


def test_files_of_one_key_are_listed_with_one_row_per_version(page: Page, tmp_path: Path) -> None:
    """Files were wrapped at the end of a line, so that a language stood beside another version."""
    names = [f"desk/refund{lang}@{version}.prompty" for version in ("1.0.0", "1.1.0") for lang in ("", ".zh", ".pt-BR")]
    for name in (*names, "desk/refund.zh.prompty", "desk/refund.prompty", "desk/other-key-with-a-long-name.prompty"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("user:\nHi.\n", encoding="utf-8")
    with open_studio(page, tmp_path) as screen:
        page.goto(screen.address)
        screen.idle()
        item = page.locator("#tree li li", has=page.locator("a[title='desk/refund.prompty']"))
        rows = [[link.get_attribute("title") for link in row.locator("a").all()] for row in item.locator(".row").all()]
        assert sorted(map(len, rows)) == [1, 3, 3]
        for row in rows:
            assert len({str(title).rpartition("@")[2] for title in row}) == 1
        for beside in item.locator(".row").all():
            links = beside.locator("a").all()
            assert len({box["y"] for link in links if (box := link.bounding_box())}) == 1


PANE = 247  # pixels: 19 rem


def test_file_badges_stay_on_one_line_and_the_file_list_has_no_horizontal_scroll_bar(
    page: Page, tmp_path: Path
) -> None:
    # Two versions took two lines, and a long name made the list wider than its pane.
    long = "a-name-that-is-much-longer-than-the-pane-is-wide"
    for name in ("order@1.0.0", "order.zh@1.0.0", "order@1.1.0", long, f"{long}.zh"):
        (tmp_path / f"{name}.prompty").write_text("user:\nHi.\n", encoding="utf-8")
    with open_studio(page, tmp_path) as screen:
        page.goto(screen.address)
        screen.idle()
        for item in page.locator("#tree li li").all():
            boxes = [box for each in item.locator("bdi").all() if (box := each.bounding_box())]
            assert len({round(box["y"] + box["height"] / 2, -1) for box in boxes}) == 1
            assert max(box["x"] + box["width"] for box in boxes) <= PANE
        assert page.evaluate("(tree => tree.scrollWidth - tree.clientWidth)(document.querySelector('#tree'))") == 0
        screen.checked()
